//! [`ExportRuntime`]: a Tokio runtime on a thread of its own, for exporters of telemetry.

use std::io;

use tokio::runtime::{Builder, Handle};
use tokio::sync::oneshot;

/// A Tokio runtime on a thread of its own, for exporters such as that of `opentelemetry-otlp`.
///
/// An exporter's connection lives on the runtime in which the exporter was built. If that is the
/// program's own, and has one worker, flushing or shutting down the tracer provider blocks the only
/// thread that could send the spans: a deadlock. Build the exporter with [`Self::enter`] instead.
///
/// Keep the value as long as spans are exported: the runtime ends when it is dropped.
///
/// ```
/// # fn example() -> std::io::Result<()> {
/// let exporting = plimsoll_client::ExportRuntime::start()?;
/// let thread = exporting.enter(|| tokio::runtime::Handle::current());
/// # Ok(())
/// # }
/// ```
#[derive(Debug)]
pub struct ExportRuntime {
    handle: Handle,
    /// Dropped to end the thread.
    _running: oneshot::Sender<()>,
}

impl ExportRuntime {
    /// Starts the thread; fails if the operating system refuses one.
    pub fn start() -> io::Result<Self> {
        let runtime = Builder::new_current_thread().enable_all().build()?;
        let handle = runtime.handle().clone();
        let (running, ended) = oneshot::channel::<()>();
        std::thread::Builder::new()
            .name("telemetry-export".to_owned())
            .spawn(move || {
                // Ends with an error when the sender is dropped.
                let _ = runtime.block_on(ended);
            })?;
        Ok(Self {
            handle,
            _running: running,
        })
    }

    /// Calls `build` within the runtime, so that what it creates sends from there.
    pub fn enter<T>(&self, build: impl FnOnce() -> T) -> T {
        let _entered = self.handle.enter();
        build()
    }
}
