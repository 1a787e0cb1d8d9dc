//! [`Client::from_env`]: the one client of a process that is configured by gRPC's environment.

use std::sync::{Arc, Mutex, PoisonError, Weak};

use super::{Client, Inner};
use crate::error::Error;
use crate::xds::XdsOptions;

static SHARED: Mutex<Weak<Inner>> = Mutex::new(Weak::new());

impl Client {
    /// Returns the client of this process that gRPC's bootstrap configures, the one that
    /// [`channel()`](crate::channel()) uses; builds it if there is none.
    ///
    /// The bootstrap is read from the file that `GRPC_XDS_BOOTSTRAP` names, or from
    /// `GRPC_XDS_BOOTSTRAP_CONFIG`. The client ends with its last clone, service and channel; the
    /// next call builds another one.
    ///
    /// ```no_run
    /// # async fn example() -> Result<(), Box<dyn std::error::Error>> {
    /// use plimsoll_client::{Client, Request};
    ///
    /// let client = Client::from_env()?;
    /// let orders = client.target("xds:///orders").await?;
    /// let response = orders.send(Request::get("/").body(())?).await?;
    /// client.shutdown().await?;
    /// # Ok(())
    /// # }
    /// ```
    pub fn from_env() -> Result<Self, Error> {
        let mut shared = SHARED.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(client) = shared.upgrade().map(Self).filter(Self::is_open) {
            return Ok(client);
        }
        let options = XdsOptions::from_env()?;
        let client = Self::builder().xds(options).build()?;
        *shared = Arc::downgrade(&client.0);
        Ok(client)
    }
}
