//! Restart without a lost connection: a process hands its listening sockets to its successor.
//!
//! The successor gets the same sockets (`SCM_RIGHTS`), with the connections that wait in their
//! accept queues. Closing a socket of a `SO_REUSEPORT` group instead would reset connections whose
//! handshake ends at that moment. The two processes meet at an abstract Unix socket that is named
//! after the admin address, and trust each other only if they run as the same user.
//!
//! Protocol: the running process sends the number of its sockets (4 bytes, big endian), then the
//! sockets, at most [`BATCH`] with each byte. The successor sends [`DRAIN`] when it accepts
//! connections itself, and gets the same byte back when the name is free for it.

use std::io::{self, IoSlice, IoSliceMut};
use std::mem::MaybeUninit;
use std::net::{SocketAddr, TcpListener as StdListener};
use std::os::fd::{AsFd as _, BorrowedFd, OwnedFd};
use std::os::unix::net::{SocketAddr as UnixAddr, UnixListener as StdUnixListener};
use std::time::Duration;

use rustix::net::{
    RecvAncillaryBuffer, RecvAncillaryMessage, RecvFlags, SendAncillaryBuffer,
    SendAncillaryMessage, SendFlags, recvmsg, sendmsg,
};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _, Interest};
use tokio::net::{UnixListener, UnixStream};

/// Time limit of each step of a hand-over.
const TIMEOUT: Duration = Duration::from_secs(5);
/// Sockets per message; the kernel allows 253.
const BATCH: usize = 64;
/// Limit of sockets that a successor takes: one per listener and worker.
const MAX_SOCKETS: u32 = 1 << 16;
const DRAIN: u8 = b'D';

/// The side of the running process: waits for a successor.
pub(crate) struct Handover {
    listener: UnixListener,
    /// The latest process that asked for the sockets.
    successor: Option<UnixStream>,
}

pub(crate) enum HandoverRequest {
    /// A successor asks for the listening sockets; answered by [`Handover::send`].
    Sockets,
    /// The successor accepts connections: this process is to drain.
    Drain,
}

impl Handover {
    pub(crate) fn bind(admin: SocketAddr) -> io::Result<Self> {
        let listener = StdUnixListener::bind_addr(&name(admin)?)?;
        listener.set_nonblocking(true)?;
        Ok(Self {
            listener: UnixListener::from_std(listener)?,
            successor: None,
        })
    }

    /// Waits for the next request of a successor. Cancel safe.
    pub(crate) async fn next(&mut self) -> HandoverRequest {
        loop {
            tokio::select! {
                accepted = self.listener.accept() => match accepted {
                    Ok((stream, _)) if check_user(&stream).is_ok() => {
                        self.successor = Some(stream);
                        return HandoverRequest::Sockets;
                    }
                    Ok(_) => {}
                    // Most likely out of file descriptors: wait for connections to close.
                    Err(_) => tokio::time::sleep(Duration::from_millis(50)).await,
                },
                received = receive_byte(self.successor.as_ref()) => match received {
                    Some(DRAIN) => return HandoverRequest::Drain,
                    // The successor has failed. The next one gets the sockets too.
                    _ => self.successor = None,
                },
            }
        }
    }

    /// Sends the listening sockets to the successor that asked for them.
    pub(crate) async fn send(&mut self, sockets: &[StdListener]) -> io::Result<()> {
        let Some(successor) = &mut self.successor else {
            return Ok(());
        };
        let sent = within(send_sockets(successor, sockets)).await;
        if sent.is_err() {
            self.successor = None;
        }
        sent
    }

    /// Frees the name for the successor, and tells it.
    pub(crate) async fn finish(self) {
        drop(self.listener);
        if let Some(mut successor) = self.successor {
            // A successor that has ended does not need the answer.
            let _ = within(successor.write_all(&[DRAIN])).await;
        }
    }
}

/// The side of the new process: the process that it replaces.
pub(crate) struct Predecessor {
    stream: UnixStream,
}

impl Predecessor {
    /// Asks the process with this admin address for its listening sockets.
    pub(crate) async fn connect(admin: SocketAddr) -> io::Result<(Self, Vec<StdListener>)> {
        let stream = std::os::unix::net::UnixStream::connect_addr(&name(admin)?)?;
        stream.set_nonblocking(true)?;
        let mut stream = UnixStream::from_std(stream)?;
        check_user(&stream)?;
        let sockets = within(receive_sockets(&mut stream)).await?;
        Ok((Self { stream }, sockets))
    }

    /// Tells the previous process to drain; returns when its admin address may be opened.
    pub(crate) async fn drain(mut self) -> io::Result<()> {
        within(async {
            self.stream.write_all(&[DRAIN]).await?;
            self.stream.read_u8().await.map(|_| ())
        })
        .await
    }
}

#[cfg(target_os = "linux")]
fn name(admin: SocketAddr) -> io::Result<UnixAddr> {
    use std::os::linux::net::SocketAddrExt as _;
    UnixAddr::from_abstract_name(format!("plimsoll-proxy/{admin}"))
}

/// Only Linux has abstract sockets. Elsewhere a successor opens sockets of its own.
#[cfg(not(target_os = "linux"))]
fn name(_: SocketAddr) -> io::Result<UnixAddr> {
    Err(io::ErrorKind::Unsupported.into())
}

async fn within<T>(step: impl Future<Output = io::Result<T>>) -> io::Result<T> {
    tokio::time::timeout(TIMEOUT, step)
        .await
        .unwrap_or_else(|_| Err(io::ErrorKind::TimedOut.into()))
}

/// Any process of the network namespace can use an abstract socket: it must run as our user.
fn check_user(stream: &UnixStream) -> io::Result<()> {
    let peer = stream.peer_cred()?.uid();
    if peer == rustix::process::geteuid().as_raw() {
        return Ok(());
    }
    let reason = format!("the other process runs as user {peer}");
    Err(io::Error::new(io::ErrorKind::PermissionDenied, reason))
}

/// Waits for a byte of the successor; never resolves without one. `None` is the end of the stream.
async fn receive_byte(successor: Option<&UnixStream>) -> Option<u8> {
    let Some(stream) = successor else {
        return std::future::pending().await;
    };
    let mut byte = [0];
    loop {
        stream.readable().await.ok()?;
        match stream.try_read(&mut byte) {
            Ok(0) => return None,
            Ok(_) => return Some(byte[0]),
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => {}
            Err(_) => return None,
        }
    }
}

async fn send_sockets(stream: &mut UnixStream, sockets: &[StdListener]) -> io::Result<()> {
    let count = u32::try_from(sockets.len()).unwrap_or(u32::MAX);
    stream.write_all(&count.to_be_bytes()).await?;
    for batch in sockets.chunks(BATCH) {
        let fds: Vec<BorrowedFd<'_>> = batch.iter().map(|one| one.as_fd()).collect();
        stream
            .async_io(Interest::WRITABLE, || {
                let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(BATCH))];
                let mut control = SendAncillaryBuffer::new(&mut space);
                control.push(SendAncillaryMessage::ScmRights(&fds));
                let flags = SendFlags::NOSIGNAL;
                sendmsg(&*stream, &[IoSlice::new(&[0])], &mut control, flags)?;
                Ok(())
            })
            .await?;
    }
    Ok(())
}

async fn receive_sockets(stream: &mut UnixStream) -> io::Result<Vec<StdListener>> {
    let count = stream.read_u32().await?;
    if count > MAX_SOCKETS {
        let reason = format!("{count} sockets are more than {MAX_SOCKETS}");
        return Err(io::Error::new(io::ErrorKind::InvalidData, reason));
    }
    let mut sockets = Vec::new();
    while sockets.len() < usize::try_from(count).unwrap_or(usize::MAX) {
        let received = stream.async_io(Interest::READABLE, || receive_batch(stream));
        let batch = received.await?;
        if batch.is_empty() {
            return Err(io::ErrorKind::UnexpectedEof.into());
        }
        sockets.extend(batch.into_iter().map(StdListener::from));
    }
    Ok(sockets)
}

/// Receives one message with its sockets. Reads a single byte: with more, the kernel could merge
/// messages and truncate their sockets.
fn receive_batch(stream: &UnixStream) -> io::Result<Vec<OwnedFd>> {
    let mut byte = [0];
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(BATCH))];
    let mut control = RecvAncillaryBuffer::new(&mut space);
    let mut data = [IoSliceMut::new(&mut byte)];
    #[cfg(target_os = "linux")]
    let flags = RecvFlags::CMSG_CLOEXEC;
    #[cfg(not(target_os = "linux"))]
    let flags = RecvFlags::empty();
    recvmsg(stream, &mut data, &mut control, flags)?;
    let received = control.drain().filter_map(|message| match message {
        RecvAncillaryMessage::ScmRights(fds) => Some(fds),
        _ => None,
    });
    Ok(received.flatten().collect())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn admin() -> SocketAddr {
        // Names of abstract sockets are shared by all processes: a port nobody else has.
        let socket = StdListener::bind("127.0.0.1:0").unwrap();
        let address = socket.local_addr().unwrap();
        drop(socket);
        address
    }

    fn listening(count: usize) -> Vec<StdListener> {
        let bind = || StdListener::bind("127.0.0.1:0").unwrap();
        std::iter::repeat_with(bind).take(count).collect()
    }

    fn addresses(sockets: &[StdListener]) -> Vec<SocketAddr> {
        sockets
            .iter()
            .map(|one| one.local_addr().unwrap())
            .collect()
    }

    async fn hand_over(count: usize) {
        let admin = admin();
        let sockets = listening(count);
        let mut old = Handover::bind(admin).unwrap();
        assert!(Handover::bind(admin).is_err(), "the name is taken");
        let running = async {
            assert!(matches!(old.next().await, HandoverRequest::Sockets));
            old.send(&sockets).await.unwrap();
            assert!(matches!(old.next().await, HandoverRequest::Drain));
            old.finish().await;
        };
        let starting = async {
            let (previous, received) = Predecessor::connect(admin).await.unwrap();
            assert_eq!(addresses(&received), addresses(&sockets));
            previous.drain().await.unwrap();
            Handover::bind(admin).expect("the name is free");
        };
        tokio::join!(running, starting);
    }

    #[tokio::test]
    async fn all_sockets_are_handed_over_and_the_name_is_freed() {
        for count in [0, 1, BATCH, 2 * BATCH + 1] {
            hand_over(count).await;
        }
    }

    #[tokio::test]
    async fn a_successor_that_fails_is_forgotten() {
        let admin = admin();
        let sockets = listening(1);
        let mut old = Handover::bind(admin).unwrap();
        let running = async {
            for _ in 0..2 {
                assert!(matches!(old.next().await, HandoverRequest::Sockets));
                old.send(&sockets).await.unwrap();
            }
            assert!(matches!(old.next().await, HandoverRequest::Drain));
            old.finish().await;
        };
        let starting = async {
            drop(Predecessor::connect(admin).await.unwrap());
            let (previous, received) = Predecessor::connect(admin).await.unwrap();
            assert_eq!(received.len(), 1);
            previous.drain().await.unwrap();
        };
        tokio::join!(running, starting);
    }

    #[tokio::test]
    async fn without_a_predecessor_there_is_an_error() {
        let refused = Predecessor::connect(admin()).await.err().unwrap();
        assert_eq!(refused.kind(), io::ErrorKind::ConnectionRefused);
    }
}
