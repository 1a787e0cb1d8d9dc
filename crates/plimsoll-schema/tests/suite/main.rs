//! Files, messages and documents through the public API, as one program.
#![allow(
    clippy::unwrap_used,
    clippy::panic,
    clippy::cast_possible_truncation,
    clippy::cast_sign_loss,
    clippy::as_conversions,
    reason = "tests"
)]

mod documents;
mod every_field;
mod reachable;
mod rejected;
mod spelling;
mod wire_format;

use plimsoll_schema::Described;
use plimsoll_schema::file::FileMessage;
use plimsoll_schema::pb::cluster::ClusterMessage;
use plimsoll_schema::yaml::{ConfigError, Document};
use prost::Message as _;

/// Reads a file into the bytes of a message.
fn read<M: Described>(text: &str) -> Result<FileMessage<M>, ConfigError> {
    Document::parse(text)?.read()
}

fn file<M: Described>(text: &str) -> FileMessage<M> {
    read(text).unwrap_or_else(|error| panic!("{error}\n{text}"))
}

/// Reads a cluster file.
fn accepted(text: &str) -> ClusterMessage {
    ClusterMessage::decode(&file::<ClusterMessage>(text).bytes()[..]).unwrap()
}

fn error_of(text: &str) -> ConfigError {
    match read::<ClusterMessage>(text) {
        Ok(read) => panic!("accepted: {read:?}\n{text}"),
        Err(error) => error,
    }
}
