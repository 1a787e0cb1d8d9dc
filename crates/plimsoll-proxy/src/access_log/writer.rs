//! [`Writer`]: thread that writes one access log file, and survives a full disk and log rotation.
//!
//! Lines that cannot be written are kept and tried again; meanwhile the queue fills up and further
//! lines are dropped and counted. The file is opened again on request, and when its path leads to
//! another file.

use std::fs::{File, OpenOptions};
use std::io::{self, Write};
use std::os::unix::fs::MetadataExt as _;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::mpsc::{Receiver, RecvTimeoutError};
use std::time::{Duration, Instant};

use plimsoll_core::log_line;

use crate::log_lines;

/// Bytes that are written at once.
const BATCH_BYTES: usize = 64 << 10;
/// Pause after a failed write, and how often the path is checked for another file.
const CHECK_INTERVAL: Duration = Duration::from_secs(1);

/// State that the writer shares with the senders of lines.
#[derive(Debug, Default)]
pub(super) struct Shared {
    pub(super) completed: AtomicU64,
    pub(super) dropped: AtomicU64,
    pub(super) failed: AtomicU64,
    pub(super) reopen_failed: AtomicU64,
    /// Asks the writer to open the file again.
    pub(super) reopen: AtomicBool,
}

/// Destination of the lines.
pub(super) trait Output: Write {
    /// Opens the destination again if `force` is set or its path leads elsewhere.
    fn reopen(&mut self, force: bool) -> io::Result<()>;
}

/// A log file, or standard output.
pub(super) struct LogFile {
    path: Option<PathBuf>,
    output: Box<dyn Write + Send>,
    identity: Option<(u64, u64)>,
}

impl LogFile {
    pub(super) fn open(path: Option<PathBuf>) -> io::Result<Self> {
        let Some(path) = path else {
            return Ok(Self {
                path: None,
                output: Box::new(io::stdout()),
                identity: None,
            });
        };
        let (file, identity) = open(&path)?;
        Ok(Self {
            path: Some(path),
            output: Box::new(file),
            identity: Some(identity),
        })
    }
}

fn open(path: &Path) -> io::Result<(File, (u64, u64))> {
    let file = OpenOptions::new().create(true).append(true).open(path)?;
    let metadata = file.metadata()?;
    Ok((file, (metadata.dev(), metadata.ino())))
}

impl Write for LogFile {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.output.write(bytes)
    }

    fn flush(&mut self) -> io::Result<()> {
        self.output.flush()
    }
}

impl Output for LogFile {
    fn reopen(&mut self, force: bool) -> io::Result<()> {
        let Some(path) = &self.path else {
            return Ok(());
        };
        let found = std::fs::metadata(path).ok();
        let identity = found.map(|metadata| (metadata.dev(), metadata.ino()));
        if force || identity != self.identity {
            let (file, identity) = open(path)?;
            self.output = Box::new(file);
            self.identity = Some(identity);
        }
        Ok(())
    }
}

/// Writes the lines of one access log.
pub(super) struct Writer<O> {
    output: O,
    shared: Arc<Shared>,
    /// Bytes that are not written yet, and the number of lines in them.
    batch: Vec<u8>,
    lines: u64,
    is_failing: bool,
    checked: Instant,
}

impl<O: Output> Writer<O> {
    pub(super) fn new(output: O, shared: Arc<Shared>) -> Self {
        Self {
            output,
            shared,
            batch: Vec::with_capacity(BATCH_BYTES),
            lines: 0,
            is_failing: false,
            checked: Instant::now(),
        }
    }

    /// Writes lines until the last sender is dropped.
    pub(super) fn run(mut self, queue: &Receiver<Vec<u8>>) {
        loop {
            match queue.recv_timeout(CHECK_INTERVAL) {
                Ok(line) => self.add(&line),
                Err(RecvTimeoutError::Timeout) => {}
                Err(RecvTimeoutError::Disconnected) => break,
            }
            while self.batch.len() < BATCH_BYTES
                && let Ok(line) = queue.try_recv()
            {
                self.add(&line);
            }
            self.check_file();
            while !self.write() {
                // The file may have been replaced, or removed to free space.
                std::thread::sleep(CHECK_INTERVAL);
                self.check_file();
            }
        }
        let _ = self.write();
    }

    fn add(&mut self, line: &[u8]) {
        self.batch.extend_from_slice(line);
        self.lines += 1;
    }

    /// Opens the file again if that was asked for, or if the path leads to another file.
    fn check_file(&mut self) {
        let force = self.shared.reopen.swap(false, Ordering::Relaxed);
        if !force && self.checked.elapsed() < CHECK_INTERVAL {
            return;
        }
        self.checked = Instant::now();
        if let Err(error) = self.output.reopen(force) {
            self.shared.reopen_failed.fetch_add(1, Ordering::Relaxed);
            log_line!(log_lines::ACCESS_LOG_NOT_REOPENED, %error);
        }
    }

    /// Writes the batch; returns whether all of it was written. What was not is kept.
    fn write(&mut self) -> bool {
        while !self.batch.is_empty() {
            match self.output.write(&self.batch) {
                Ok(0) => return self.failed(&io::ErrorKind::WriteZero.into()),
                Ok(count) => drop(self.batch.drain(..count)),
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) => return self.failed(&error),
            }
        }
        if let Err(error) = self.output.flush() {
            return self.failed(&error);
        }
        if std::mem::take(&mut self.is_failing) {
            log_line!(log_lines::ACCESS_LOG_RESTORED);
        }
        let lines = std::mem::take(&mut self.lines);
        self.shared.completed.fetch_add(lines, Ordering::Relaxed);
        true
    }

    fn failed(&mut self, error: &io::Error) -> bool {
        self.shared.failed.fetch_add(1, Ordering::Relaxed);
        if !std::mem::replace(&mut self.is_failing, true) {
            log_line!(log_lines::ACCESS_LOG_FAILED, %error);
        }
        false
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A disk that takes a limited number of bytes.
    #[derive(Default)]
    struct Disk {
        free: usize,
        written: Vec<u8>,
    }

    impl Write for Disk {
        fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
            let count = bytes.len().min(self.free);
            if count == 0 {
                return Err(io::ErrorKind::StorageFull.into());
            }
            self.free -= count;
            self.written.extend_from_slice(&bytes[..count]);
            Ok(count)
        }

        fn flush(&mut self) -> io::Result<()> {
            Ok(())
        }
    }

    impl Output for Disk {
        fn reopen(&mut self, _: bool) -> io::Result<()> {
            Ok(())
        }
    }

    #[test]
    fn lines_survive_a_full_disk() {
        let disk = Disk {
            free: 4,
            ..Disk::default()
        };
        let shared = Arc::new(Shared::default());
        let mut writer = Writer::new(disk, Arc::clone(&shared));
        writer.add(b"one\n");
        writer.add(b"two\n");
        assert!(!writer.write());
        assert!(!writer.write());
        assert_eq!(shared.failed.load(Ordering::Relaxed), 2);
        assert_eq!(shared.completed.load(Ordering::Relaxed), 0);
        writer.output.free = 100;
        writer.add(b"three\n");
        assert!(writer.write());
        assert_eq!(writer.output.written, b"one\ntwo\nthree\n");
        assert_eq!(shared.completed.load(Ordering::Relaxed), 3);
    }

    #[test]
    fn a_moved_file_is_opened_again() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("log");
        let mut file = LogFile::open(Some(path.clone())).unwrap();
        file.write_all(b"one\n").unwrap();
        file.reopen(false).unwrap();
        file.write_all(b"two\n").unwrap();
        let moved = folder.path().join("log.1");
        std::fs::rename(&path, &moved).unwrap();
        file.reopen(false).unwrap();
        file.write_all(b"three\n").unwrap();
        let read = |path: &Path| std::fs::read_to_string(path).unwrap();
        assert_eq!((&*read(&moved), &*read(&path)), ("one\ntwo\n", "three\n"));
        // A file that cannot be opened leaves the open one in use.
        std::fs::remove_dir_all(folder.path()).unwrap();
        assert!(file.reopen(true).is_err());
        file.write_all(b"four\n").unwrap();
    }

    /// An output whose next results are given.
    #[derive(Default)]
    struct Scripted {
        writes: Vec<io::Result<usize>>,
        flushes: Vec<io::Result<()>>,
        reopened: Vec<bool>,
        fails_to_reopen: bool,
    }

    impl Write for Scripted {
        fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
            self.writes.pop().unwrap_or(Ok(bytes.len()))
        }

        fn flush(&mut self) -> io::Result<()> {
            self.flushes.pop().unwrap_or(Ok(()))
        }
    }

    impl Output for Scripted {
        fn reopen(&mut self, force: bool) -> io::Result<()> {
            self.reopened.push(force);
            if self.fails_to_reopen {
                return Err(io::ErrorKind::NotFound.into());
            }
            Ok(())
        }
    }

    fn scripted() -> (Writer<Scripted>, Arc<Shared>) {
        let shared = Arc::new(Shared::default());
        (
            Writer::new(Scripted::default(), Arc::clone(&shared)),
            shared,
        )
    }

    #[test]
    fn writes_without_progress_and_failed_flushes_are_failures() {
        let (mut writer, shared) = scripted();
        let failed = || shared.failed.load(Ordering::Relaxed);
        writer.add(b"line\n");
        writer.output.writes = vec![Ok(0)];
        assert!(!writer.write());
        assert_eq!((failed(), writer.batch.len()), (1, 5));
        // A signal is none.
        writer.output.writes = vec![Ok(2), Err(io::ErrorKind::Interrupted.into())];
        writer.output.flushes = vec![Err(io::ErrorKind::StorageFull.into())];
        assert!(!writer.write());
        assert_eq!((failed(), writer.batch.len()), (2, 0));
        assert!(writer.is_failing);
        assert_eq!(shared.completed.load(Ordering::Relaxed), 0);
        assert!(writer.write());
        assert!(!writer.is_failing);
        assert_eq!(failed(), 2);
        assert_eq!(shared.completed.load(Ordering::Relaxed), 1);
    }

    #[test]
    fn the_file_is_checked_on_request_and_once_per_interval() {
        let (mut writer, shared) = scripted();
        writer.check_file();
        assert!(writer.output.reopened.is_empty());
        shared.reopen.store(true, Ordering::Relaxed);
        writer.check_file();
        writer.check_file();
        assert_eq!(writer.output.reopened, [true], "a request is served once");
        writer.checked -= CHECK_INTERVAL;
        writer.output.fails_to_reopen = true;
        writer.check_file();
        writer.check_file();
        assert_eq!(writer.output.reopened, [true, false]);
        assert_eq!(shared.reopen_failed.load(Ordering::Relaxed), 1);
    }

    #[test]
    fn queued_lines_are_written_before_the_writer_ends() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("log");
        let shared = Arc::new(Shared::default());
        let file = LogFile::open(Some(path.clone())).unwrap();
        let (lines, queue) = std::sync::mpsc::channel();
        // More than one batch.
        let long = [vec![b'x'; BATCH_BYTES - 1], b"\n".to_vec()].concat();
        for _ in 0..3 {
            lines.send(long.clone()).unwrap();
        }
        drop(lines);
        Writer::new(file, Arc::clone(&shared)).run(&queue);
        assert_eq!(std::fs::read(path).unwrap(), long.repeat(3));
        assert_eq!(shared.completed.load(Ordering::Relaxed), 3);
    }
}
