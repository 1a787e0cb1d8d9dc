//! [`channel`]: from a target and the environment to something that generated clients send through.
//!
//! The only place of the crate that reads the environment. Channels of a process share one client,
//! and with it one discovery stream, one stream of load reports and all connections, as long as one
//! of them lives.

use std::sync::{Mutex, PoisonError};

use crate::client::{Client, WeakClient};
use crate::error::{Error, ErrorKind};
use crate::tonic::Channel;
use crate::xds::XdsOptions;

/// File with the bootstrap.
const GRPC_XDS_BOOTSTRAP: &str = "GRPC_XDS_BOOTSTRAP";
/// The bootstrap itself.
const GRPC_XDS_BOOTSTRAP_CONFIG: &str = "GRPC_XDS_BOOTSTRAP_CONFIG";

/// The client that channels share, while there is one.
static SHARED: Mutex<Option<WeakClient>> = Mutex::new(None);

/// A channel to `xds:///name`. The management server is the one of gRPC's bootstrap, in the file
/// that `GRPC_XDS_BOOTSTRAP` names or in `GRPC_XDS_BOOTSTRAP_CONFIG`.
///
/// ```no_run
/// # async fn example() -> Result<(), Box<dyn std::error::Error>> {
/// let channel = plimsoll_client::channel("xds:///orders").await?;
/// // let mut orders = OrdersClient::new(channel);
/// # Ok(())
/// # }
/// ```
pub async fn channel(target: &str) -> Result<Channel, Error> {
    let client = shared()?;
    Ok(client.target(target).await?.into())
}

/// The client of the environment. It lives as long as somebody has it.
fn shared() -> Result<Client, Error> {
    let mut shared = SHARED.lock().unwrap_or_else(PoisonError::into_inner);
    if let Some(client) = shared.as_ref().and_then(WeakClient::upgrade) {
        return Ok(client);
    }
    let options = XdsOptions::from_env()?;
    let client = Client::builder().xds(options).build();
    *shared = Some(client.downgrade());
    Ok(client)
}

impl XdsOptions {
    /// What the environment says: gRPC's variables, in gRPC's order.
    pub fn from_env() -> Result<Self, Error> {
        let config = |message: String| Error::new(ErrorKind::Config, message);
        let (text, place) = match std::env::var(GRPC_XDS_BOOTSTRAP) {
            Ok(path) if !path.is_empty() => {
                let text = std::fs::read_to_string(&path);
                let unread = |error| config(format!("{GRPC_XDS_BOOTSTRAP}={path}")).because(error);
                (text.map_err(unread)?, path)
            }
            _ => {
                let text = std::env::var(GRPC_XDS_BOOTSTRAP_CONFIG).map_err(|_| {
                    config(format!(
                        "neither {GRPC_XDS_BOOTSTRAP} nor {GRPC_XDS_BOOTSTRAP_CONFIG} is set"
                    ))
                })?;
                (text, GRPC_XDS_BOOTSTRAP_CONFIG.to_owned())
            }
        };
        Self::from_bootstrap(&text).map_err(|error| config(place).because(error))
    }
}
