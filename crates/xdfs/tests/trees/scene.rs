//! A server, a client, and trees between them.

use std::ops::ControlFlow;
use std::path::Path;

use xdfs::{Client, Code, Fault, TransferParameters, TreeEvent, TreeOptions, TreeResult};

/// What failed of a tree: path and code.
pub(crate) type Failed = Vec<(Vec<u8>, Code)>;

/// Copies a tree to the server.
pub(crate) fn up(
    client: &Client,
    source: &Path,
    target: &str,
    options: &TreeOptions,
) -> Result<(TreeResult, Failed), Fault> {
    let mut failed = Vec::new();
    let result = client.upload_tree(
        source,
        target.as_bytes(),
        options,
        &mut |event: TreeEvent<'_>| note(&event, &mut failed),
    )?;
    assert_eq!(result.failed, failed.len() as u64);
    Ok((result, failed))
}

/// Copies a tree from the server.
pub(crate) fn down(
    client: &Client,
    source: &str,
    target: &Path,
    options: &TreeOptions,
) -> Result<(TreeResult, Failed), Fault> {
    let mut failed = Vec::new();
    let result = client.download_tree(
        source.as_bytes(),
        target,
        options,
        &mut |event: TreeEvent<'_>| note(&event, &mut failed),
    )?;
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
