//! [`StateFile`]: orders in a file, so that they survive a restart without a store.

use std::io;
use std::path::{Path, PathBuf};

use plimsoll_core::evacuation::Order;
use plimsoll_core::units::FieldError;

use super::OrderRecord;
use crate::config::ControlConfig;

/// The file of `evacuation.state_file`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct StateFile {
    path: PathBuf,
}

/// Why a state file cannot be read.
#[derive(Debug, thiserror::Error)]
pub enum StateFileError {
    #[error("{0}")]
    Io(#[from] io::Error),
    #[error("not a list of orders: {0}")]
    Json(#[from] serde_json::Error),
    #[error("{0}")]
    Order(FieldError),
}

impl StateFile {
    /// Names a file, which need not exist yet.
    pub const fn new(path: PathBuf) -> Self {
        Self { path }
    }

    /// Returns the file of a configuration, if it has one.
    pub(crate) fn of(config: &ControlConfig) -> Option<Self> {
        let path = config.operation.evacuation.state_file.clone();
        path.map(Self::new)
    }

    /// Returns where the file is, for messages.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Reads the orders; none if there is no file yet.
    pub fn load(&self) -> Result<Vec<Order>, StateFileError> {
        let text = match std::fs::read(&self.path) {
            Ok(text) => text,
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(Vec::new()),
            Err(error) => return Err(error.into()),
        };
        let records: Vec<OrderRecord> = serde_json::from_slice(&text)?;
        let orders = records.into_iter().map(Order::try_from);
        orders
            .collect::<Result<_, _>>()
            .map_err(StateFileError::Order)
    }

    /// Replaces the file as a whole: a process that is killed leaves the old one or the new one.
    pub fn save(&self, orders: &[OrderRecord]) -> io::Result<()> {
        let mut name = self.path.file_name().unwrap_or_default().to_owned();
        name.push(".new");
        let written = self.path.with_file_name(name);
        std::fs::write(&written, serde_json::to_vec_pretty(orders)?)?;
        std::fs::rename(&written, &self.path)
    }
}

#[cfg(test)]
mod tests {
    use super::super::record::tests::order;
    use super::*;

    #[test]
    fn orders_survive_in_a_file() {
        let directory = tempfile::tempdir().unwrap();
        let file = StateFile::new(directory.path().join("zones.json"));
        assert_eq!(file.load().unwrap(), []);
        let order = order("b", 1);
        file.save(&[OrderRecord::from(&order)]).unwrap();
        assert_eq!(file.load().unwrap(), [order]);
        std::fs::write(file.path(), "[{}]").unwrap();
        assert!(
            file.load()
                .unwrap_err()
                .to_string()
                .starts_with("not a list of orders")
        );
        std::fs::write(file.path(), "[").unwrap();
        assert!(file.load().is_err());
    }
}
