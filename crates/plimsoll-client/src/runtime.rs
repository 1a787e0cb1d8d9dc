//! [`block_on`]: runs a program that has no runtime of its own.

use crate::error::{Error, ErrorKind};

/// Runs `future` to its end on a runtime of this thread, for programs without one.
///
/// Programs that use tokio themselves write `#[tokio::main]` instead, which can use several
/// threads.
///
/// ```no_run
/// use plimsoll_client::{Client, Cluster, Request, block_on};
///
/// fn main() -> Result<(), Box<dyn std::error::Error>> {
///     block_on(async {
///         let orders = Cluster::new("orders").endpoints(["10.0.0.1:80"]);
///         let client = Client::builder().cluster(orders).build()?;
///         let orders = client.service("orders")?;
///         let response = orders.send(Request::get("/").body(())?).await?;
///         println!("{}", response.into_body().text().await?);
///         Ok(())
///     })
/// }
/// ```
pub fn block_on<T, E: From<Error>>(future: impl Future<Output = Result<T, E>>) -> Result<T, E> {
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()
        .map_err(|error| {
            Error::new(ErrorKind::Config, "cannot start a tokio runtime").with_source(error)
        })?;
    runtime.block_on(future)
}
