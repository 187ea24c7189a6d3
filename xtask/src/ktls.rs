//! Tests on a kernel that makes TLS records (kTLS), which the one of this machine may lack: User
//! Mode Linux runs it as a program, and `ktls.sh` is its first process.

use std::fs;
use std::io::{BufRead, BufReader};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use crate::{Failure, Outcome, cargo, root};

/// Longest time that it may take, in seconds.
const SECONDS_MAX: &str = "900";
/// Where Debian's package puts the modules of that kernel.
const MODULES: &str = "/usr/lib/uml/modules";

/// What is run: a package, one of its test targets (none for its library), and filters.
const TESTS: [(&str, Option<&str>, &str); 4] = [
    ("xdfs-xio", None, "tls::"),
    ("xdfs-xio", Some("behaviour"), "tls_"),
    (
        "xdfs",
        Some("secure"),
        "channels::broken channels::changed join:: level:: methods:: middle::",
    ),
    ("xdfs-cli", Some("program"), "offload::"),
];

/// Builds the tests here and runs them there.
pub(crate) fn run() -> Outcome {
    let missing = ["linux.uml", "modprobe", "timeout"]
        .into_iter()
        .find(|program| !is_there(program));
    if missing.is_some() || !Path::new(MODULES).is_dir() {
        let message = "a kernel with TLS is needed: apt-get install user-mode-linux kmod";
        return Err(Failure::Message(message.into()));
    }
    let mut lines = String::new();
    for (package, target, filters) in TESTS {
        let program = build(package, target)?;
        lines += &format!("{} {filters}\n", program.display());
    }
    let folder = std::env::temp_dir().join(format!("xdfs-ktls-{}", std::process::id()));
    fs::create_dir_all(&folder).map_err(|e| format!("can't make {}: {e}", folder.display()))?;
    let list = folder.join("tests");
    let outcome = fs::write(&list, lines)
        .map_err(|e| Failure::Message(format!("can't write {}: {e}", list.display())))
        .and_then(|()| boot(&list));
    // What is left there is a few bytes.
    let _ = fs::remove_dir_all(&folder);
    outcome
}

fn is_there(program: &str) -> bool {
    let paths = std::env::var_os("PATH").unwrap_or_default();
    std::env::split_paths(&paths)
        .chain(["/sbin".into(), "/usr/sbin".into()])
        .any(|folder: PathBuf| folder.join(program).is_file())
}

/// Builds a test program and says where it is, which cargo tells on standard error.
fn build(package: &str, target: Option<&str>) -> Result<PathBuf, Failure> {
    let mut command = cargo();
    command.args(["test", "--locked", "--no-run", "--package", package]);
    match target {
        Some(target) => command.args(["--test", target]),
        None => command.arg("--lib"),
    };
    let output = command
        .stderr(Stdio::piped())
        .output()
        .map_err(|e| format!("can't run cargo: {e}"))?;
    let said = String::from_utf8_lossy(&output.stderr);
    let program = said
        .lines()
        .filter_map(|line| line.trim_start().strip_prefix("Executable "))
        .find_map(|line| line.rsplit_once('(')?.1.strip_suffix(')'));
    match program {
        Some(program) if output.status.success() => Ok(root().join(program)),
        _ => Err(Failure::Message(format!(
            "{package} can't be built:\n{said}"
        ))),
    }
}

/// Runs the programs of the list, and shows what they print.
fn boot(list: &Path) -> Outcome {
    let script = root().join("xtask/ktls.sh");
    let mut child = Command::new("timeout")
        .args(["--kill-after=10", SECONDS_MAX, "linux.uml"])
        .args(["mem=1G", "rootfstype=hostfs", "rootflags=/", "ro", "quiet"])
        .args(["con=null", "con0=null,fd:1", "init=/bin/sh", "--"])
        .args([script.as_path(), Path::new(MODULES), list])
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .stderr(Stdio::null())
        .spawn()
        .map_err(|e| format!("can't run linux.uml: {e}"))?;
    let mut passed = false;
    if let Some(stdout) = child.stdout.take() {
        for line in BufReader::new(stdout).split(b'\n').map_while(Result::ok) {
            let line = String::from_utf8_lossy(&line);
            let line = line.trim_end();
            println!("{line}");
            passed |= line == "ktls: passed";
        }
    }
    // Its status says how the kernel ended, which tells nothing of the tests.
    let _ = child.wait();
    if passed {
        Ok(())
    } else {
        Err(Failure::Message("the tests didn't pass, see above".into()))
    }
}
