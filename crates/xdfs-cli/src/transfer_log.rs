//! The transfer log: a file with a line for each file that was transferred.
//!
//! A line has the time, the bytes, the digest, the source and the target. It is appended in one
//! call once its file is transferred, so that a killed process loses none, and so that the lines of
//! several processes with one log don't mix.

use std::fs::{File, OpenOptions};
use std::io::Write as _;
use std::path::{Path, PathBuf};

use jiff::Timestamp;
use xdfs::{DigestValue, Fault, Quoting};

use crate::progress;

/// The transfer log of a command.
#[derive(Debug)]
pub(crate) struct TransferLog {
    path: PathBuf,
    file: File,
    /// A line could not be written, which was reported.
    has_failed: bool,
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
            file,
            has_failed: false,
        })
    }

    /// Adds a file.
    ///
    /// # Errors
    /// It can't be written, for the first time: one error stands for all later ones.
    pub(crate) fn add(
        &mut self,
        source: &str,
        target: &str,
        bytes: u64,
        digest: &DigestValue,
    ) -> Result<(), Fault> {
        let time = Timestamp::now().strftime("%Y-%m-%dT%H:%M:%SZ");
        let digest = progress::digest(digest, ":").unwrap_or_else(|| "-".to_owned());
        let [source, target] = [source, target].map(|name| Quoting::Shell.text(name.as_bytes()));
        let line = format!("{time} {bytes} {digest} {source} {target}\n");
        let Err(error) = self.file.write_all(line.as_bytes()) else {
            return Ok(());
        };
        if std::mem::replace(&mut self.has_failed, true) {
            return Ok(());
        }
        let name = self.path.as_os_str().as_encoded_bytes();
        Err(Fault::from_io("write the transfer log", name, &error).hint(""))
    }
}
