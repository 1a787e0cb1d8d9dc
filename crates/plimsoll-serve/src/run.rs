//! Startup of a server: listening sockets and [`RunError`].

use std::error::Error;
use std::io;
use std::net::SocketAddr;

use tokio::net::TcpListener;

use crate::FileError;

/// Why a server could not start or had to stop. `E` is the error of its configuration.
#[derive(Debug, thiserror::Error)]
pub enum RunError<E> {
    /// The configuration could not be loaded at startup.
    #[error(transparent)]
    Config(#[from] FileError<E>),
    #[error("cannot listen on {0}")]
    Bind(SocketAddr, #[source] io::Error),
    /// Another step of the startup failed; the text says which.
    #[error("{0}")]
    Failed(String, #[source] Box<dyn Error + Send + Sync>),
}

/// Binds a listening socket; returns its address, which has the actual port if 0 was given.
pub async fn bind<E>(address: SocketAddr) -> Result<(TcpListener, SocketAddr), RunError<E>> {
    let bound = async {
        let listener = TcpListener::bind(address).await?;
        let local = listener.local_addr()?;
        Ok((listener, local))
    };
    bound.await.map_err(|error| RunError::Bind(address, error))
}

/// Formats an error and its sources on one line.
pub fn error_chain(error: &dyn Error) -> String {
    let mut text = error.to_string();
    let mut cause = error.source();
    while let Some(error) = cause {
        text = format!("{text}: {error}");
        cause = error.source();
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn errors_keep_their_source() {
        let (_listener, taken) = bind::<io::Error>("127.0.0.1:0".parse().unwrap())
            .await
            .unwrap();
        let error = bind::<io::Error>(taken).await.unwrap_err();
        assert_eq!(error.to_string(), format!("cannot listen on {taken}"));
        let cause = error.source().unwrap().downcast_ref::<io::Error>();
        assert_eq!(cause.unwrap().kind(), io::ErrorKind::AddrInUse);
        let text = error_chain(&error);
        let start = format!("cannot listen on {taken}: Address already in use");
        assert!(text.starts_with(&start), "{text}");
    }

    #[test]
    fn a_configuration_error_is_printed_without_prefix() {
        let error = FileError {
            file: "control.yaml".to_owned(),
            error: io::Error::other("no"),
        };
        assert_eq!(error_chain(&RunError::from(error)), "control.yaml: no");
    }
}
