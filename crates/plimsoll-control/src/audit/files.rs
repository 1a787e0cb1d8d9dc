//! [`AuditFiles`]: the audit on disk, so that a restart does not forget it.
//!
//! A line of JSON per entry, and one per delivery, appended to a file for each source of changes: a
//! flood of one source pushes out its own lines only. A full file replaces the one before, so that
//! each source has at most twice [`MAX_BYTES`]. A thread of its own writes: a slow or full disk
//! delays nobody, and what it loses is counted and logged. A line that a crash has torn is skipped.

use std::collections::{BTreeMap, BTreeSet};
use std::fs::{self, File};
use std::io::{self, Read as _};
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::mpsc::{Receiver, SyncSender, sync_channel};

use plimsoll_core::log_line;
use plimsoll_serve::AppendedFile;
use serde::{Deserialize, Serialize};

use super::record::{AuditDelivery, AuditRecord};
use crate::log_lines;

/// Most bytes of a file; the one before is kept beside it.
const MAX_BYTES: u64 = 4 << 20;
/// Most bytes of a file that are read: one without end, such as a device, takes no memory. A line
/// that is longer than [`MAX_BYTES`] is a file by itself.
const MAX_READ: u64 = 4 * MAX_BYTES;
/// Most sources with a file of their own. Names of some come from the network.
const MAX_SOURCES: usize = 16;
/// Lines that wait for the disk; beyond that they are lost.
const MAX_WAITING: usize = 1000;
/// Directory below that of the state.
const DIRECTORY: &str = "audit";

/// A line of a file.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(untagged)]
enum Line {
    Entry(AuditRecord),
    Delivered {
        number: u64,
        delivery: AuditDelivery,
    },
}

/// Appends to the files.
#[derive(Debug)]
pub(crate) struct AuditFiles {
    lines: SyncSender<(String, Line)>,
    lost: Arc<AtomicU64>,
}

impl AuditFiles {
    /// Creates the directory and starts the thread, which ends when this value is dropped.
    pub(crate) fn open(state: &Path) -> io::Result<Self> {
        let directory = state.join(DIRECTORY);
        fs::create_dir_all(&directory)?;
        let (lines, receiver) = sync_channel(MAX_WAITING);
        let lost = Arc::new(AtomicU64::new(0));
        let counted = Arc::clone(&lost);
        let thread = std::thread::Builder::new().name("audit".to_owned());
        thread.spawn(move || write_all(&directory, &receiver, &counted))?;
        Ok(Self { lines, lost })
    }

    /// Appends an entry to the file of its source, unless the disk is behind: then it is lost.
    pub(super) fn entry(&self, entry: AuditRecord) {
        self.append(source(&entry.by), Line::Entry(entry));
    }

    /// Appends how far an entry was delivered.
    pub(super) fn delivered(&self, by: &str, number: u64, delivery: AuditDelivery) {
        self.append(source(by), Line::Delivered { number, delivery });
    }

    /// Returns the number of lines that could not be written.
    pub(super) fn lost(&self) -> u64 {
        self.lost.load(Ordering::Relaxed)
    }

    fn append(&self, source: String, line: Line) {
        if self.lines.try_send((source, line)).is_err() {
            self.lost.fetch_add(1, Ordering::Relaxed);
        }
    }
}

/// Returns the source of a change: the first word of who made it, as a part of a file name.
pub(super) fn source(by: &str) -> String {
    let word = by.split([' ', '/']).next().unwrap_or_default();
    let letters = word.chars().filter(char::is_ascii_alphanumeric).take(32);
    let name: String = letters.map(|letter| letter.to_ascii_lowercase()).collect();
    if name.is_empty() {
        "other".to_owned()
    } else {
        name
    }
}

/// Reads the entries of all files, oldest first, with how far they were delivered. Lines that
/// cannot be read are left out.
pub fn read(state: &Path) -> io::Result<Vec<AuditRecord>> {
    let mut entries = BTreeMap::new();
    let mut delivered = Vec::new();
    for file in fs::read_dir(state.join(DIRECTORY))? {
        let mut bytes = Vec::new();
        File::open(file?.path())?
            .take(MAX_READ)
            .read_to_end(&mut bytes)?;
        for line in bytes.split(|byte| *byte == b'\n') {
            match serde_json::from_slice(line) {
                Ok(Line::Entry(entry)) => {
                    entries.insert(entry.number, entry);
                }
                Ok(Line::Delivered { number, delivery }) => delivered.push((number, delivery)),
                Err(_) => {}
            }
        }
    }
    for (number, delivery) in delivered {
        if let Some(entry) = entries.get_mut(&number) {
            entry.delivery = Some(delivery);
        }
    }
    Ok(entries.into_values().collect())
}

fn write_all(directory: &Path, lines: &Receiver<(String, Line)>, lost: &AtomicU64) {
    let mut files: BTreeMap<String, AppendedFile> = BTreeMap::new();
    let mut is_failing = false;
    let mut known: BTreeSet<String> = existing(directory);
    for (source, line) in lines {
        let source = if known.contains(&source) || known.len() < MAX_SOURCES {
            known.insert(source.clone());
            source
        } else {
            "other".to_owned()
        };
        let path = || directory.join(format!("{source}.jsonl"));
        let file = files
            .entry(source.clone())
            .or_insert_with(|| AppendedFile::new(path(), MAX_BYTES));
        let Ok(mut text) = serde_json::to_vec(&line) else {
            continue;
        };
        text.push(b'\n');
        match file.append(&text) {
            Ok(()) => is_failing = false,
            Err(error) => {
                lost.fetch_add(1, Ordering::Relaxed);
                if !is_failing {
                    let directory = directory.display();
                    log_line!(log_lines::AUDIT_NOT_WRITTEN, %directory, %error);
                }
                is_failing = true;
            }
        }
    }
}

/// Sources that have a file already.
fn existing(directory: &Path) -> BTreeSet<String> {
    let files = fs::read_dir(directory).into_iter().flatten().flatten();
    let names = files.filter_map(|file| file.file_name().into_string().ok());
    names
        .filter_map(|name| Some(name.split_once('.')?.0.to_owned()))
        .collect()
}

#[cfg(test)]
mod tests {
    use super::super::{Audit, AuditKind, Change};
    use super::*;
    use plimsoll_core::time::Instant;
    use plimsoll_testing::wait_to_see;

    fn change(service: &str) -> Vec<Change> {
        vec![Change {
            service: Some(service.into()),
            field: "ramp".to_owned(),
            before: Some("10".to_owned()),
            after: Some("50".to_owned()),
            source: None,
        }]
    }

    fn numbers(state: &Path) -> Vec<u64> {
        let read = read(state).unwrap_or_default();
        read.iter().map(|entry| entry.number).collect()
    }

    #[test]
    fn entries_outlive_a_restart_and_numbers_go_on() {
        let state = tempfile::tempdir().unwrap();
        let now = Instant::from_secs(1);
        let by = "edit of the files";
        let audit = Audit::kept_in(state.path()).unwrap();
        let first = audit.add(AuditKind::Changed, by, change("orders"), now);
        assert_eq!(first.number, 1);
        let streams = [(7, 1)].into();
        audit.await_answers(1, streams);
        audit.answer(7, super::super::Answer::Accepted(1), Instant::from_secs(2));
        audit.refuse("Service shop/orders", "no", now);
        wait_to_see(
            "both are written",
            || numbers(state.path()),
            |all| *all == [1, 2],
        );
        drop(audit);
        // A crash in the middle of a line.
        let file = state.path().join("audit/edit.jsonl");
        let mut bytes = fs::read(&file).unwrap();
        bytes.extend(b"{\"number\":9,\"at_u");
        fs::write(&file, bytes).unwrap();

        let audit = Audit::kept_in(state.path()).unwrap();
        let third = audit.add(AuditKind::Changed, by, change("users"), now);
        assert_eq!(third.number, 3);
        wait_to_see(
            "it is written",
            || numbers(state.path()),
            |all| *all == [1, 2, 3],
        );
        let all = audit.records();
        let shown: Vec<_> = all
            .iter()
            .map(|one| (one.number, one.text.as_str()))
            .collect();
        let expected = [
            (3, "users: ramp 10 → 50"),
            (2, "Service shop/orders refused: no"),
            (1, "orders: ramp 10 → 50"),
        ];
        assert_eq!(shown, expected);
        let delivery = all[2].delivery.as_ref().unwrap();
        assert_eq!((delivery.accepted, delivery.last_ack_ms), (1, Some(1000)));
    }

    #[test]
    fn a_disk_that_is_full_does_no_harm_and_is_counted() {
        let state = tempfile::tempdir().unwrap();
        let directory = state.path().join(DIRECTORY);
        fs::create_dir(&directory).unwrap();
        // Every write to it fails, as on a full disk.
        std::os::unix::fs::symlink("/dev/full", directory.join("edit.jsonl")).unwrap();
        let audit = Audit::kept_in(state.path()).unwrap();
        let now = Instant::from_secs(1);
        audit.add(
            AuditKind::Changed,
            "edit of the files",
            change("orders"),
            now,
        );
        wait_to_see("it is lost", || audit.lost(), |lost| *lost == Some(1));
        assert_eq!(audit.records().len(), 1);
        audit.refuse("Kubernetes", "no", now);
        let kept = || fs::read_to_string(directory.join("kubernetes.jsonl"));
        let _ = wait_to_see("the others are kept", kept, |text| {
            text.as_ref().is_ok_and(|text| text.ends_with('\n'))
        });
    }

    #[test]
    fn sources_are_parts_of_file_names() {
        for (by, name) in [
            ("edit of the files", "edit"),
            ("Kubernetes", "kubernetes"),
            ("Service shop/orders", "service"),
            ("../../etc", "other"),
            ("", "other"),
        ] {
            assert_eq!(source(by), name);
        }
    }
}
