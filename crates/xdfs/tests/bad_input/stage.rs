//! A server with short deadlines, and what must hold after every bad thing.

use std::path::Path;
use std::time::Duration;

use xdfs::{Client, Code, Fault, Limits, ServerBuilder, Side, TransferOptions};

use crate::support::{Folders, Serving, assert_equal, client, hidden_names, upload};

#[derive(Debug)]
pub(crate) struct Stage {
    pub(crate) folders: Folders,
    pub(crate) server: Serving,
}

/// Deadlines that a test can wait for, and that nobody misses because the machine is busy.
pub(crate) fn short_limits() -> Limits {
    Limits {
        opening_timeout: Duration::from_secs(1),
        idle_timeout: Duration::from_secs(3),
        ..Limits::default()
    }
}

impl Stage {
    pub(crate) fn new(seed: u64) -> Self {
        Self::with(seed, |_| {})
    }

    /// A server with short deadlines.
    pub(crate) fn impatient(seed: u64) -> Self {
        Self::with(seed, |server| server.limits = short_limits())
    }

    pub(crate) fn with(seed: u64, change: impl FnOnce(&mut ServerBuilder)) -> Self {
        let folders = Folders::new(seed);
        let server = Serving::start(&folders.root(), change);
        Self { folders, server }
    }

    pub(crate) fn client(&self) -> Client {
        client(self.server.addr, |options| options.channels = Some(2))
    }

    /// Fails unless the server serves somebody else as if nothing had happened.
    #[track_caller]
    pub(crate) fn still_serves(&self) {
        let source = self.folders.make_here("good", 300_000);
        let result = upload(
            &self.client(),
            &source,
            "/good",
            &TransferOptions::default(),
        );
        assert_eq!(result.unwrap().bytes, 300_000);
        assert_equal(&source, &self.folders.there("good"));
        std::fs::remove_file(self.folders.there("good")).unwrap();
    }

    /// Fails unless there is nothing under the name, and the server serves.
    #[track_caller]
    pub(crate) fn nothing_published(&self, name: &str) {
        assert!(!self.folders.there(name).exists(), "{name} is published");
        self.still_serves();
    }
}

/// Fails unless the fault says all that it has to.
#[track_caller]
pub(crate) fn assert_fault(fault: &Fault, code: Code, side: Side, path: impl AsRef<[u8]>) {
    assert_eq!(fault.code, code, "{fault}");
    assert_eq!(fault.side, side, "{fault}");
    let path = path.as_ref();
    assert!(
        fault.path == path,
        "the path is '{}', not '{}': {fault}",
        fault.path.escape_ascii(),
        path.escape_ascii()
    );
    assert!(
        !fault.operation.is_empty() && !fault.cause.is_empty(),
        "{fault:?}"
    );
}

/// A target that stood there before.
pub(crate) const OLD: &[u8] = b"the content of before";

/// Puts a target there before.
pub(crate) fn make_old(path: &Path) {
    std::fs::write(path, OLD).unwrap();
}

/// Fails unless the target is as it was, with no unfinished transfer beside it.
#[track_caller]
pub(crate) fn assert_old(path: &Path) {
    assert_eq!(std::fs::read(path).unwrap(), OLD);
    let folder = path.parent().unwrap();
    assert_eq!(hidden_names(folder), [""; 0]);
}
