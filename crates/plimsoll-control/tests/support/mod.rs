//! What the tests share, with each other and with the fuzz targets.

#[cfg(feature = "etcd")]
pub(crate) mod ads;
pub(crate) mod config_text;
#[cfg(feature = "etcd")]
pub(crate) mod etcd;
pub(crate) mod identity;
pub(crate) mod stream;
