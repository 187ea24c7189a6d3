//! Servers, clients, and trees between them.

use std::ops::ControlFlow;
use std::path::Path;
use std::sync::Arc;

use xdfs::{
    Client, Code, Fault, Observer, ServerFile, TransferParameters, TreeEvent, TreeOptions,
    TreeResult,
};

use crate::support::{Serving, client};

/// The direction of a tree.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Way {
    Up,
    Down,
    /// From one server to another.
    Between,
}

pub(crate) const ALL_WAYS: [Way; 3] = [Way::Up, Way::Down, Way::Between];

/// The server of a source, whose trees go to another server.
pub(crate) struct Origin {
    _server: Serving,
    client: Arc<Client>,
}

impl Origin {
    pub(crate) fn new(root: &Path) -> Self {
        let server = Serving::start(root, |_| {});
        let client = Arc::new(client(server.addr, |_| {}));
        Self {
            _server: server,
            client,
        }
    }

    /// The file or directory at a path.
    pub(crate) fn at(&self, path: &str) -> ServerFile {
        let mut place = self.client.place().clone();
        place.path = path.into();
        let client = Arc::clone(&self.client);
        ServerFile::new(place, move |_| Ok(Arc::clone(&client)))
    }
}

/// What failed of a tree: path and code.
pub(crate) type Failed = Vec<(Vec<u8>, Code)>;

/// Copies a tree to the server.
pub(crate) fn up(
    client: &Client,
    source: &Path,
    target: &str,
    options: &TreeOptions,
) -> Result<(TreeResult, Failed), Fault> {
    noting(|observer| client.upload_tree(source, target.as_bytes(), options, observer))
}

/// Copies a tree from the server.
pub(crate) fn down(
    client: &Client,
    source: &str,
    target: &Path,
    options: &TreeOptions,
) -> Result<(TreeResult, Failed), Fault> {
    noting(|observer| client.download_tree(source.as_bytes(), target, options, observer))
}

/// Copies a tree from one server to another.
pub(crate) fn across(
    client: &Client,
    source: &ServerFile,
    target: &str,
    options: &TreeOptions,
) -> Result<(TreeResult, Failed), Fault> {
    noting(|observer| client.copy_tree_from(source, target.as_bytes(), options, observer))
}

/// The result of a copy, and its failures, of which it has to count each.
fn noting(
    copy: impl FnOnce(&mut dyn Observer) -> Result<TreeResult, Fault>,
) -> Result<(TreeResult, Failed), Fault> {
    let mut failed = Vec::new();
    let result = copy(&mut |event: TreeEvent<'_>| note(&event, &mut failed))?;
    assert_eq!(result.failed, failed.len() as u64);
    Ok((result, failed))
}

fn note(event: &TreeEvent<'_>, failed: &mut Failed) -> ControlFlow<()> {
    if let TreeEvent::Failed { path, fault } = event {
        failed.push((path.to_vec(), fault.code));
    }
    ControlFlow::Continue(())
}

/// Replace what is there.
pub(crate) fn replacing() -> TreeOptions {
    TreeOptions {
        parameters: TransferParameters {
            overwrite: true,
            ..TransferParameters::default()
        },
        ..TreeOptions::default()
    }
}
