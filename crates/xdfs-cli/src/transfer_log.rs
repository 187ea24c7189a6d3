//! The transfer log: a file with a line for each file that was transferred.
//!
//! A line has the time, the bytes, the digest, the source and the target.

use std::fs::{File, OpenOptions};
use std::io::{BufWriter, Write as _};
use std::path::{Path, PathBuf};

use jiff::Timestamp;
use xdfs::{DigestValue, Fault, Quoting};

use crate::progress;

/// The transfer log of a command.
#[derive(Debug)]
pub(crate) struct TransferLog {
    path: PathBuf,
    file: BufWriter<File>,
}

impl TransferLog {
    /// Opens the log, to which lines are appended.
    ///
    /// # Errors
    /// It can't be opened.
    pub(crate) fn open(path: &Path) -> Result<Self, Fault> {
        let mut options = OpenOptions::new();
        options.create(true).append(true);
        #[cfg(unix)]
        {
            use std::os::unix::fs::OpenOptionsExt as _;
            // It names files and servers.
            options.mode(0o600);
        }
        let name = path.as_os_str().as_encoded_bytes();
        let file = options.open(path);
        let file = file.map_err(|e| Fault::from_io("open the transfer log", name, &e))?;
        Ok(Self {
            path: path.to_owned(),
            file: BufWriter::new(file),
        })
    }

    /// Adds a file.
    ///
    /// # Errors
    /// It can't be written.
    pub(crate) fn add(
        &mut self,
        source: &str,
        target: &str,
        bytes: u64,
        digest: &DigestValue,
    ) -> Result<(), Fault> {
        let time = Timestamp::now().strftime("%Y-%m-%dT%H:%M:%SZ");
        let digest = match progress::digest(digest) {
            (_, None) => "-".to_owned(),
            (kind, Some(value)) => format!("{kind}:{value}"),
        };
        let [source, target] = [source, target].map(|name| Quoting::Shell.text(name.as_bytes()));
        let written = writeln!(self.file, "{time} {bytes} {digest} {source} {target}");
        written.map_err(|error| self.unwritten(&error))
    }

    /// Writes what is still in memory.
    ///
    /// # Errors
    /// It can't be written.
    pub(crate) fn finish(mut self) -> Result<(), Fault> {
        let written = self.file.flush();
        written.map_err(|error| self.unwritten(&error))
    }

    fn unwritten(&self, error: &std::io::Error) -> Fault {
        let name = self.path.as_os_str().as_encoded_bytes();
        Fault::from_io("write the transfer log", name, error).hint("")
    }
}
