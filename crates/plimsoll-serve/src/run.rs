//! Startup of a server: listening sockets and [`RunError`].

use std::error::Error;
use std::io;
use std::net::{IpAddr, SocketAddr, TcpListener as StdListener};

use socket2::{Domain, Protocol, Socket, Type};
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

/// Whether two listening sockets cannot be open at the same time: their ports are equal, and so are
/// their addresses, or one of them is that of all interfaces.
pub fn same_socket(one: SocketAddr, other: SocketAddr) -> bool {
    let all = one.ip().is_unspecified() || other.ip().is_unspecified();
    one.port() != 0 && one.port() == other.port() && (one.ip() == other.ip() || all)
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

/// Length of the queue of connections that are established but not accepted.
const BACKLOG: i32 = 1024;

/// Binds a listening socket whose address other processes of the same user can share
/// (`SO_REUSEPORT`), so that the next process starts before this one ends. Uses the socket of
/// `inherited` that has the address, if there is one.
pub fn bind_shared<E>(
    address: SocketAddr,
    inherited: &[StdListener],
) -> Result<TcpListener, RunError<E>> {
    let bound = || {
        if let Some(socket) = find_sockets(inherited, address).next() {
            let socket = socket.try_clone()?;
            socket.set_nonblocking(true)?;
            return TcpListener::from_std(socket);
        }
        let domain = Domain::for_address(address);
        let socket = Socket::new(domain, Type::STREAM, Some(Protocol::TCP))?;
        socket.set_reuse_address(true)?;
        socket.set_reuse_port(true)?;
        socket.set_nonblocking(true)?;
        socket.bind(&address.into())?;
        socket.listen(BACKLOG)?;
        TcpListener::from_std(socket.into())
    };
    bound().map_err(|error| RunError::Bind(address, error))
}

/// Returns the inherited sockets that listen on an address. A socket on `::` also accepts IPv4, so
/// it serves for `0.0.0.0`.
pub fn find_sockets(
    inherited: &[StdListener],
    address: SocketAddr,
) -> impl Iterator<Item = &StdListener> {
    let has_address = move |socket: &&StdListener| {
        let Ok(local) = socket.local_addr() else {
            return false;
        };
        let both_any = local.ip().is_unspecified() && address.ip().is_unspecified();
        let same_ip = local.ip() == address.ip() || both_any && matches!(local.ip(), IpAddr::V6(_));
        local.port() == address.port() && same_ip
    };
    inherited.iter().filter(has_address)
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

    #[tokio::test]
    async fn shared_addresses_can_be_bound_twice() {
        let any = "127.0.0.1:0".parse().unwrap();
        let first = bind_shared::<io::Error>(any, &[]).unwrap();
        let address = first.local_addr().unwrap();
        let second = bind_shared::<io::Error>(address, &[]).unwrap();
        assert_eq!(second.local_addr().unwrap(), address);
        drop((first, second));
        let alone = StdListener::bind(any).unwrap();
        let taken = alone.local_addr().unwrap();
        assert!(bind_shared::<io::Error>(taken, &[]).is_err());
        let inherited = bind_shared::<io::Error>(taken, &[alone]).unwrap();
        assert_eq!(inherited.local_addr().unwrap(), taken);
    }

    #[test]
    fn inherited_sockets_are_found_by_address() {
        let any = StdListener::bind("[::]:0").unwrap();
        let port = any.local_addr().unwrap().port();
        let sockets = [any];
        let found = |ip: &str| {
            let address = SocketAddr::new(ip.parse().unwrap(), port);
            find_sockets(&sockets, address).next().is_some()
        };
        assert!(found("::") && found("0.0.0.0"));
        assert!(!found("127.0.0.1") && !found("::1"));
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
