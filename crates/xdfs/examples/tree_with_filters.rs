//! Uploads a directory without unneeded files: `cargo run --example tree_with_filters -- DIRECTORY
//! xdfs://HOST/PATH PATTERN...`.

use std::error::Error;
use std::ops::ControlFlow;
use std::path::Path;

use xdfs::{
    Client, ClientOptions, Fault, Filter, FilterRule, RemotePlace, TreeEvent, TreeOptions,
    TreeResult,
};

fn main() -> Result<(), Box<dyn Error>> {
    let words: Vec<String> = std::env::args().skip(1).collect();
    let [directory, url, patterns @ ..] = words.as_slice() else {
        return Err("usage: tree_with_filters DIRECTORY URL PATTERN...".into());
    };
    let result = upload_tree(Path::new(directory), &url.parse()?, patterns)?;
    println!("{} files, {} failed", result.files, result.failed);
    Ok(())
}

/// Uploads `directory` to the path of `target`, without entries that match the patterns, which are
/// lines of a gitignore file.
pub(crate) fn upload_tree(
    directory: &Path,
    target: &RemotePlace,
    patterns: &[String],
) -> Result<TreeResult, Fault> {
    let rules: Vec<FilterRule> = patterns.iter().cloned().map(FilterRule::Exclude).collect();
    let options = TreeOptions {
        filter: Filter::new(&rules)?,
        ..TreeOptions::default()
    };
    let client = Client::connect(target, ClientOptions::default())?;
    // Failed entries are reported, and the rest continues.
    let mut observer = |event: TreeEvent<'_>| {
        if let TreeEvent::Failed { path, fault } = event {
            eprintln!("{}: {fault}", path.escape_ascii());
        }
        ControlFlow::Continue(())
    };
    client.upload_tree(directory, &target.path, &options, &mut observer)
}
