//! Programs that some tests start, if they are there.

use std::env;
use std::path::PathBuf;

/// The path of the first of these programs that there is. Debian keeps those of the system beside
/// the folders of users.
pub(crate) fn program(names: &[&str]) -> Option<PathBuf> {
    let path = env::var_os("PATH").unwrap_or_default();
    let mut folders: Vec<_> = env::split_paths(&path).collect();
    folders.push("/usr/sbin".into());
    let mut paths = names
        .iter()
        .flat_map(|name| folders.iter().map(move |folder| folder.join(name)));
    paths.find(|path| path.is_file())
}
