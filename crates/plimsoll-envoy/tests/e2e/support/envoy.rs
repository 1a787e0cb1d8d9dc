//! A released Envoy with the library in its search path.

use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::process::{Command, ExitStatus, Output};

use serde_json::Value;

use super::{library, wait_for, wait_until};
use plimsoll_testing::http::{get, get_json};
use plimsoll_testing::{Process, envoy};

/// Running Envoy; killed when dropped.
pub(crate) struct Envoy {
    pub(crate) listener: SocketAddr,
    admin: SocketAddr,
    log: PathBuf,
    process: Process,
}

fn command(release: &str, file: &Path) -> Command {
    let mut command = Command::new(envoy(release));
    command.arg("-c").arg(file);
    command.args([
        "--disable-hot-restart",
        "--concurrency",
        "2",
        "-l",
        "warning",
        "--component-log-level",
        "dynamic_modules:info",
    ]);
    command.env(
        "ENVOY_DYNAMIC_MODULES_SEARCH_PATH",
        library().parent().unwrap(),
    );
    command
}

fn write(directory: &Path, name: &str, bootstrap: &str) -> PathBuf {
    let file = directory.join(name);
    std::fs::write(&file, bootstrap).unwrap();
    file
}

/// Runs `envoy --mode validate`.
pub(crate) fn validate(release: &str, directory: &Path, bootstrap: &Value) -> Output {
    let file = write(directory, "validate.yaml", &bootstrap.to_string());
    let mut command = command(release, &file);
    command.args(["--mode", "validate"]).output().unwrap()
}

impl Envoy {
    /// Starts an Envoy with two workers, whose files are written to `directory`.
    pub(crate) fn start(release: &str, directory: &Path, bootstrap: &Value) -> Self {
        Self::start_text(release, directory, &bootstrap.to_string())
    }

    /// Starts an Envoy with a bootstrap in YAML or JSON; its first listener gets the requests.
    pub(crate) fn start_text(release: &str, directory: &Path, bootstrap: &str) -> Self {
        let file = |name: &str| directory.join(name);
        let mut command = command(release, &write(directory, "envoy.yaml", bootstrap));
        command.arg("--admin-address-path").arg(file("admin"));
        let log = file("log");
        let mut process = Process::start(command, &log);
        let admin = wait_for("Envoy's admin interface is bound", || {
            assert!(process.is_alive(), "Envoy {release} exited");
            let text = std::fs::read_to_string(file("admin")).ok()?;
            text.trim().parse().ok()
        });
        Self {
            listener: wait_for("Envoy's listener is bound", || listener(admin)),
            admin,
            log,
            process,
        }
    }

    /// Returns the sum of all counters or gauges whose names match a regular expression.
    pub(crate) fn stat(&self, name: &str) -> u64 {
        self.stats(name).iter().sum()
    }

    /// Returns all counters and gauges whose names match a regular expression.
    pub(crate) fn stats(&self, name: &str) -> Vec<u64> {
        let text = get(self.admin, &format!("/stats?filter=^{name}$")).unwrap();
        let values = text.lines().filter_map(|line| line.rsplit(' ').next());
        values.filter_map(|value| value.parse().ok()).collect()
    }

    /// Returns everything that Envoy logged.
    pub(crate) fn log(&self) -> String {
        std::fs::read_to_string(&self.log).unwrap()
    }

    /// Returns the resident memory in KiB.
    pub(crate) fn resident(&self) -> u64 {
        let status = std::fs::read_to_string(format!("/proc/{}/status", self.pid())).unwrap();
        let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:"));
        let number = line.and_then(|line| line.split_whitespace().next());
        number.unwrap().parse().unwrap()
    }

    /// Returns the number of threads with this name.
    pub(crate) fn threads(&self, name: &str) -> usize {
        let threads = std::fs::read_dir(format!("/proc/{}/task", self.pid())).unwrap();
        // A thread may have ended.
        let names = threads
            .filter_map(|thread| std::fs::read_to_string(thread.ok()?.path().join("comm")).ok());
        names.filter(|comm| comm.trim() == name).count()
    }

    /// Returns the CPU time of all threads in seconds.
    pub(crate) fn cpu_seconds(&self) -> f64 {
        let threads = std::fs::read_dir(format!("/proc/{}/task", self.pid())).unwrap();
        let nanoseconds = threads.filter_map(|thread| {
            let path = thread.ok()?.path().join("schedstat");
            // A thread may have ended.
            let text = std::fs::read_to_string(path).ok()?;
            text.split_whitespace().next()?.parse::<f64>().ok()
        });
        nanoseconds.sum::<f64>() / 1e9
    }

    pub(crate) fn pid(&self) -> u32 {
        self.process.child.id()
    }

    /// Ends Envoy with SIGTERM and returns its status.
    pub(crate) fn terminate(mut self) -> ExitStatus {
        let pid = self.pid().to_string();
        assert!(Command::new("kill").arg(&pid).status().unwrap().success());
        wait_until("Envoy has exited", || !self.process.is_alive());
        self.process.child.wait().unwrap()
    }
}

/// Returns the bound address of the listener.
fn listener(admin: SocketAddr) -> Option<SocketAddr> {
    let page = get_json(admin, "/listeners?format=json")?;
    let all = page["listener_statuses"].as_array()?;
    let own = all.iter().find(|listener| listener["name"] == "ingress")?;
    let port = own["local_address"]["socket_address"]["port_value"].as_u64()?;
    Some(SocketAddr::from((
        [127, 0, 0, 1],
        u16::try_from(port).ok()?,
    )))
}
