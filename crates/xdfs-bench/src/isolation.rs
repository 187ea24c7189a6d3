//! The same network for everyone: a network namespace of our own, with cubic.
//!
//! Where the system lets us, the benchmark replaces itself by a copy in fresh network and mount
//! namespaces, so that no foreign traffic or packet filter is on its loopback and all tools get the
//! same congestion control (bbr, a common default, costs dearly on loopback). Elsewhere it runs as
//! it is, and the report names what was in force. Either way the limit of open files is raised, for
//! runs with a thousand channels. Called by `main`, once, before anything else is made.

use std::{
    fs,
    path::Path,
    process::{Command, Stdio},
};

use crate::{
    congestion::{self, Allowed},
    wan,
};

/// Tells the copy that it is the copy, and whether it has namespaces of its own.
const MARK: &str = "XDFS_BENCH_ISOLATION";
/// Carries the arguments as the user gave them.
const ARGUMENTS: &str = "XDFS_BENCH_ARGUMENTS";

/// The names that need no name server.
const HOSTS: &str = "/etc/hosts";

const CURRENT: &str = "/proc/sys/net/ipv4/tcp_congestion_control";

/// Raises the limit of open files as far as it goes, then becomes the benchmark again.
#[cfg(unix)]
const RAISE_LIMIT: &str = r#"ulimit -n "$(ulimit -Hn)" 2>/dev/null; exec "$@""#;

/// Where the benchmark runs.
#[derive(Clone, Debug, Default, serde::Serialize)]
pub(crate) struct Isolation {
    /// Whether the network namespace is our own.
    pub(crate) own_network: bool,
    /// The congestion control in force, when the system tells.
    pub(crate) congestion_control: Option<String>,
    /// The arguments as the user gave them.
    pub(crate) arguments: String,
}

/// Whether this process is the copy that measures.
pub(crate) fn is_inside() -> bool {
    std::env::var_os(MARK).is_some()
}

/// Replaces this process by the copy that measures, with `extra` added to the arguments.
///
/// Returns only when that failed; the answer says why.
#[cfg(unix)]
pub(crate) fn enter(arguments: &[String], extra: &[String]) -> String {
    use std::os::unix::process::CommandExt as _;

    let program = match std::env::current_exe() {
        Ok(program) => program,
        Err(error) => return format!("the benchmark can't find itself: {error}"),
    };
    let namespaces = Command::new("unshare")
        .args(["-n", "-m", "true"])
        .stdin(Stdio::null())
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .status()
        .is_ok_and(|status| status.success());
    let mut command;
    if namespaces {
        command = Command::new("unshare");
        command.args(["-n", "-m", "sh", "-c", RAISE_LIMIT, "sh"]);
    } else {
        command = Command::new("sh");
        command.args(["-c", RAISE_LIMIT, "sh"]);
    }
    command
        .arg(program)
        .args(arguments)
        .args(extra)
        .env(MARK, if namespaces { "own" } else { "shared" })
        .env(ARGUMENTS, arguments.join(" "));
    format!(
        "the benchmark can't start its measuring copy: {}",
        command.exec()
    )
}

/// Only systems with Unix processes can run the rivals.
#[cfg(not(unix))]
pub(crate) fn enter(_arguments: &[String], _extra: &[String]) -> String {
    "the benchmark needs Linux".to_owned()
}

/// Sets up the network of the measuring copy; `scratch` holds a file that lives as long as the run.
///
/// What can't be set up is left as it is: the answer says what is in force.
pub(crate) fn set_up(scratch: &Path) -> Isolation {
    let own_network = std::env::var(MARK).is_ok_and(|mark| mark == "own");
    if own_network {
        let loopback_is_up = Command::new("ip")
            .args(["link", "set", "lo", "up"])
            .status()
            .is_ok_and(|status| status.success());
        if !loopback_is_up {
            eprintln!("xdfs-bench: can't bring up the loopback interface (is `ip` installed?)");
        }
        choose_congestion_control();
        name_hosts(scratch);
    }
    Isolation {
        own_network,
        congestion_control: read_word(CURRENT),
        arguments: std::env::var(ARGUMENTS).unwrap_or_default(),
    }
}

/// Gives our namespace its congestion control, which the machine has to allow while it is chosen:
/// putting its list back takes nothing away from a namespace that has chosen.
fn choose_congestion_control() {
    let allowed = Allowed::with_default();
    // Shown in the report if it did not work.
    let _ = fs::write(CURRENT, congestion::DEFAULT);
    drop(allowed);
}

/// Lets the names of this host and of those far away be resolved without a name server: the
/// GridFTP server does not start else.
fn name_hosts(scratch: &Path) {
    let mut names = fs::read_to_string(HOSTS).unwrap_or_default() + "\n" + wan::HOST_NAMES;
    if let Some(name) = read_word("/proc/sys/kernel/hostname") {
        let resolves = Command::new("getent")
            .args(["hosts", &name])
            .stdout(Stdio::null())
            .status()
            .is_ok_and(|status| status.success());
        if !resolves {
            names += &format!("127.0.0.1 localhost {name}\n::1 localhost {name}\n");
        }
    }
    let hosts = scratch.join("hosts");
    if fs::write(&hosts, names).is_ok() {
        // In our own mount namespace, so nobody else sees it and it ends with us.
        let _ = Command::new("mount")
            .arg("--bind")
            .arg(&hosts)
            .arg(HOSTS)
            .status();
    }
}

fn read_word(path: &str) -> Option<String> {
    let text = fs::read_to_string(path).ok()?;
    let word = text.trim();
    (!word.is_empty()).then(|| word.to_owned())
}
