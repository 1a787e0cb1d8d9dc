//! Prometheus metrics, collected when somebody asks.

use super::Admin;
use crate::server::Stopped;

/// The page.
pub(super) async fn page(admin: &Admin) -> Result<String, Stopped> {
    admin.handle.inspect(|_, _| String::from("# EOF\n")).await
}
