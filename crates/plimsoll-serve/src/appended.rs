//! [`AppendedFile`]: a file of lines that is appended to, bounded, and survives a crash.

use std::fs::{self, File, OpenOptions};
use std::io::{self, Write as _};
use std::path::{Path, PathBuf};

/// A file that is appended to. If it is full, it replaces the one before, `NAME.1.EXTENSION`.
#[derive(Debug)]
pub struct AppendedFile {
    path: PathBuf,
    max_bytes: u64,
    /// With its size; `None` before the first line, and after an error.
    open: Option<(File, u64)>,
}

impl AppendedFile {
    /// Creates the writer of a file with a limit of its size. Nothing is opened yet.
    pub const fn new(path: PathBuf, max_bytes: u64) -> Self {
        Self {
            path,
            max_bytes,
            open: None,
        }
    }

    /// Appends a line, which ends with a line feed, and waits until it is on the disk.
    pub fn append(&mut self, line: &[u8]) -> io::Result<()> {
        let (mut file, mut size) = match self.open.take() {
            Some(open) => open,
            None => self.open()?,
        };
        if size > 0 && size + line.len() as u64 > self.max_bytes {
            fs::rename(&self.path, before(&self.path))?;
            (file, size) = self.open()?;
        }
        file.write_all(line)?;
        file.sync_data()?;
        self.open = Some((file, size + line.len() as u64));
        Ok(())
    }

    /// Returns the lines of the file before and of the file; without those that a crash has torn.
    pub fn lines(path: &Path) -> io::Result<Vec<Vec<u8>>> {
        let mut lines = Vec::new();
        for path in [&before(path), path] {
            let bytes = match fs::read(path) {
                Err(error) if error.kind() == io::ErrorKind::NotFound => continue,
                read => read?,
            };
            let whole = bytes.split_inclusive(|byte| *byte == b'\n');
            lines.extend(
                whole
                    .filter(|line| line.ends_with(b"\n"))
                    .map(<[u8]>::to_vec),
            );
        }
        Ok(lines)
    }

    /// Opens the file, and ends a line that a crash or a full disk has torn.
    fn open(&self) -> io::Result<(File, u64)> {
        let mut options = OpenOptions::new();
        let mut file = options.create(true).append(true).open(&self.path)?;
        let mut size = file.metadata()?.len();
        let is_torn = size > 0 && fs::read(&self.path)?.last() != Some(&b'\n');
        if is_torn {
            file.write_all(b"\n")?;
            size += 1;
        }
        Ok((file, size))
    }
}

fn before(path: &Path) -> PathBuf {
    let extension = path.extension().unwrap_or_default().to_string_lossy();
    path.with_extension(format!("1.{extension}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_file_is_bounded_and_the_one_before_is_kept() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("edit.jsonl");
        assert!(AppendedFile::lines(&path).unwrap().is_empty());
        let mut file = AppendedFile::new(path.clone(), 10);
        for line in ["one\n", "two\n", "three\n", "four\n"] {
            file.append(line.as_bytes()).unwrap();
        }
        assert_eq!(fs::read_to_string(&path).unwrap(), "four\n");
        assert_eq!(fs::read_to_string(before(&path)).unwrap(), "three\n");
        let lines = AppendedFile::lines(&path).unwrap();
        assert_eq!(lines, [b"three\n".to_vec(), b"four\n".to_vec()]);
    }

    #[test]
    fn a_torn_line_is_ended_and_left_out() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("edit.jsonl");
        fs::write(&path, "one\ntw").unwrap();
        assert_eq!(AppendedFile::lines(&path).unwrap(), [b"one\n".to_vec()]);
        let mut file = AppendedFile::new(path.clone(), 100);
        file.append(b"three\n").unwrap();
        assert_eq!(fs::read_to_string(&path).unwrap(), "one\ntw\nthree\n");
    }
}
