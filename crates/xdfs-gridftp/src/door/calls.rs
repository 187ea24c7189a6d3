//! Calls about paths. A reply says that what was asked for is done, and no command makes it durable
//! later: so the time and the mode of a file are durable before it gets another name, as its
//! content is. Clients store a file under a hidden name, tell both, and rename it.

use xdfs_proto::Fault;
use xdfs_proto::file::FileFlags;
use xdfs_proto::path::{Answer, Call};
use xdfs_store::{FileRequest, Store};

/// See the module documentation.
#[derive(Debug, Default)]
pub(super) struct Calls {
    /// The file of which something was told last.
    changed: Option<Vec<u8>>,
}

impl Calls {
    /// Answers a call.
    ///
    /// # Errors
    /// Those of the store.
    pub(super) fn answer(&mut self, store: &dyn Store, call: &Call) -> Result<Answer, Fault> {
        if let Call::Rename { from, .. } = call
            && self.changed.as_ref() == Some(from)
        {
            make_durable(store, from)?;
        }
        let answer = store.call(call, &mut |_| Ok(()))?;
        if let Call::SetMode { path, .. } | Call::SetTimes { path, .. } = call {
            self.changed = Some(path.clone());
        }
        Ok(answer)
    }
}

/// # Errors
/// The disk fails. What can't be opened, such as a directory, is left as it is.
fn make_durable(store: &dyn Store, path: &[u8]) -> Result<(), Fault> {
    let open = |write: bool| {
        store.open_file(&FileRequest {
            path: path.to_vec(),
            flags: FileFlags {
                read: !write,
                write,
                ..FileFlags::default()
            },
            mode: None,
            identity: None,
        })
    };
    // The owner may have made it read-only just now.
    let Ok(opened) = open(true).or_else(|_| open(false)) else {
        return Ok(());
    };
    if opened.file.is_pipe() {
        return Ok(());
    }
    let synced = opened.file.sync(false);
    synced.map_err(|fault| {
        let operation = "save the time and mode of".to_owned();
        Fault { operation, ..fault }.preventing(path)
    })
}
