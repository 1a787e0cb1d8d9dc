//! Interpreters of byte strings, shared with the fuzz targets.

pub(crate) mod ads_client_ops;
pub(crate) mod ads_ops;
pub(crate) mod lrs_ops;
pub(crate) mod orca;
pub(crate) mod records;
pub(crate) mod service_config;
pub(crate) mod wire;
