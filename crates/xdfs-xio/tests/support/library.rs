//! Builds shared libraries of drivers from C, as their authors do.

use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::LazyLock;
use std::sync::atomic::{AtomicU32, Ordering};

/// Where the libraries of this run are; loaded ones stay loaded, the files go with the process.
static FOLDER: LazyLock<tempfile::TempDir> = LazyLock::new(|| tempfile::tempdir().unwrap());

/// The library of the C file `source`, a path from the root of the repository, with these macros;
/// `None` if this machine has no C compiler.
pub(crate) fn build(source: &str, macros: &[&str]) -> Option<PathBuf> {
    static NEXT: AtomicU32 = AtomicU32::new(0);
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
    let number = NEXT.fetch_add(1, Ordering::Relaxed);
    let ending = std::env::consts::DLL_EXTENSION;
    let process = std::process::id();
    let library = FOLDER.path().join(format!("{process}-{number}.{ending}"));
    let run = Command::new("cc")
        .args(["-std=c11", "-O1", "-Wall", "-Wextra", "-Werror", "-fPIC"])
        .args(["-shared", "-o"])
        .arg(&library)
        .arg("-I")
        .arg(root.join("include"))
        .args(macros.iter().map(|macro_| format!("-D{macro_}")))
        .arg(root.join(source))
        .output();
    let run = match run {
        Err(e) if e.kind() == std::io::ErrorKind::NotFound => return None,
        run => run.unwrap(),
    };
    let errors = String::from_utf8_lossy(&run.stderr);
    assert!(run.status.success(), "{source} {macros:?}: {errors}");
    Some(library)
}
