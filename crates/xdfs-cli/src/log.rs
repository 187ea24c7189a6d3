//! The log: to standard error, or to the file of `--log-file`.

use std::fs::{File, OpenOptions};
use std::io::{self, Write};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, OnceLock};

use tracing::Level;
use xdfs::Fault;

use crate::stderr;

/// The file of the log, if there is one.
static FILE: OnceLock<Arc<LogFile>> = OnceLock::new();

/// The file of the log. That it can't be written is said once on standard error.
#[derive(Debug)]
struct LogFile {
    path: PathBuf,
    file: File,
    has_failed: AtomicBool,
}

impl Write for &LogFile {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        let written = (&self.file).write(bytes);
        if let Err(error) = &written
            && error.kind() != io::ErrorKind::Interrupted
            && !self.has_failed.swap(true, Ordering::Relaxed)
        {
            let name = self.path.as_os_str().as_encoded_bytes();
            let fault = Fault::from_io("write the log file", name, error);
            stderr::write(&format!(
                "warning: {fault}; its lines are lost from now on\n"
            ));
        }
        written
    }

    fn flush(&mut self) -> io::Result<()> {
        (&self.file).flush()
    }
}

/// Opens the file that the log goes to.
///
/// # Errors
/// It can't be opened.
pub(crate) fn use_file(path: &Path) -> Result<(), Fault> {
    let mut options = OpenOptions::new();
    options.create(true).append(true);
    #[cfg(unix)]
    {
        use std::os::unix::fs::OpenOptionsExt as _;
        // It names files, users and servers.
        options.mode(0o600);
    }
    let name = path.as_os_str().as_encoded_bytes();
    let file = options.open(path);
    let file = file.map_err(|error| Fault::from_io("open the log file", name, &error))?;
    // There is one command line in a process.
    let _ = FILE.set(Arc::new(LogFile {
        path: path.to_owned(),
        file,
        has_failed: AtomicBool::new(false),
    }));
    Ok(())
}

/// Whether messages belong into a file too.
pub(crate) fn has_file() -> bool {
    FILE.get().is_some()
}

/// Starts logging: to the file, or, if a level is given, to standard error.
pub(crate) fn start_log(level: Option<Level>) {
    let log = tracing_subscriber::fmt().compact().with_ansi(false);
    // A line that can't be written is lost, of which a file warns once. The layer would say so on
    // standard error, by a macro that panics where that can't be written either, and take a session
    // or the program with it.
    let log = log.log_internal_errors(false);
    // In a shell, logging may have been started already.
    let _ = match (FILE.get(), level) {
        (Some(file), level) => log
            .with_writer(Arc::clone(file))
            .with_max_level(level.unwrap_or(Level::INFO))
            .try_init(),
        (None, Some(level)) => log.with_writer(io::stderr).with_max_level(level).try_init(),
        (None, None) => Ok(()),
    };
}
