//! [`Running`]: a control plane whose file is edited while it runs.

use std::path::PathBuf;

use plimsoll_control::run::{Context, Control, Options, RunError};
use plimsoll_serve::AdminOptions;
use plimsoll_testing::tasks::wait_to_see;
use tokio::task::JoinHandle;

pub(crate) struct Running {
    pub(crate) context: Context,
    file: PathBuf,
    task: JoinHandle<Result<(), RunError>>,
    _directory: tempfile::TempDir,
}

impl Running {
    pub(crate) async fn start(text: &str) -> Self {
        let directory = tempfile::tempdir().unwrap();
        let file = directory.path().join("control.yaml");
        std::fs::write(&file, text).unwrap();
        let any = "127.0.0.1:0".parse().unwrap();
        let started = Control::start(Options {
            config: file.clone(),
            listen: Some(any),
            admin: Some(any),
            ..Options::default()
        });
        let control = started.await.unwrap();
        let context = control.context().clone();
        Self {
            context,
            file,
            task: tokio::spawn(control.run(AdminOptions::default())),
            _directory: directory,
        }
    }

    pub(crate) async fn edit(&self, text: &str) -> Result<(), String> {
        std::fs::write(&self.file, text).unwrap();
        self.context.reload.reload(true).await.unwrap()
    }

    /// Services with mode and number of endpoints, such as `a.shop:80 Shadow 2`.
    pub(crate) async fn services(&self) -> Vec<String> {
        let inspect = |state: &plimsoll_control::state::State, _| {
            let services = state.config().services.values();
            let shown = services.map(|service| {
                let localities = service.assignment.endpoints().iter();
                let endpoints: usize = localities.map(|one| one.lb_endpoints.len()).sum();
                format!("{} {:?} {endpoints}", service.name(), service.mode)
            });
            shown.collect()
        };
        self.context.handle.inspect(inspect).await.unwrap()
    }

    pub(crate) async fn wait_for(&self, expected: &[&str]) {
        let what = format!("services are {expected:?}");
        wait_to_see(
            &what,
            async || self.services().await,
            |seen| seen == expected,
        )
        .await;
    }

    pub(crate) async fn stop(self) {
        let Self { context, task, .. } = self;
        context.stopping.cancel();
        drop(context);
        task.await.unwrap().unwrap();
    }
}
