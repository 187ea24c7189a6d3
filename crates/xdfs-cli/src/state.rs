//! The directories of the user's state, which persists between runs.

use std::env;
use std::path::{Path, PathBuf};

/// The directory of tree journals; `None` if the user has no state directory.
pub(crate) fn trees() -> Option<PathBuf> {
    Some(folder()?.join("trees"))
}

/// The directory of the journals of uploads to FTP servers; `None` if the user has no state
/// directory.
pub(crate) fn uploads() -> Option<PathBuf> {
    Some(folder()?.join("uploads"))
}

/// The directory of the transfer service; `None` if the user has no state directory.
#[cfg(feature = "service")]
pub(crate) fn service() -> Option<PathBuf> {
    Some(folder()?.join("service"))
}

/// The directory of the agent's sockets; `None` if the user has none.
///
/// `agent` in the state directory if a variable of xdfs names that, or else `xdfs` in
/// `XDG_RUNTIME_DIR`, or else `agent` in the state directory.
#[cfg(unix)]
pub(crate) fn agent() -> Option<PathBuf> {
    agent_by(of_environment)
}

#[cfg(unix)]
fn agent_by(set: impl Fn(&str) -> Option<PathBuf>) -> Option<PathBuf> {
    let is_own = ["XDFS_STATE_DIR", "XDFS_CONFIG_DIR"]
        .iter()
        .any(|name| set(name).is_some());
    match set("XDG_RUNTIME_DIR").filter(|folder| !is_own && folder.is_absolute()) {
        Some(folder) => Some(folder.join("xdfs")),
        None => Some(folder_by(set)?.join("agent")),
    }
}

/// The state directory; `None` if the user has none.
///
/// `XDFS_STATE_DIR`, or `state` in `XDFS_CONFIG_DIR`, or the one of the XDG Base Directory
/// Specification.
pub(crate) fn folder() -> Option<PathBuf> {
    folder_by(of_environment)
}

fn of_environment(name: &str) -> Option<PathBuf> {
    env::var_os(name)
        .filter(|value| !value.is_empty())
        .map(PathBuf::from)
}

fn folder_by(set: impl Fn(&str) -> Option<PathBuf>) -> Option<PathBuf> {
    let own = set("XDFS_STATE_DIR").or_else(|| Some(set("XDFS_CONFIG_DIR")?.join("state")));
    own.or_else(|| {
        let named = set("XDG_STATE_HOME").filter(|folder| folder.is_absolute());
        let home = || set("HOME").or_else(|| set("USERPROFILE"));
        let state = named.or_else(|| Some(home()?.join(Path::new(".local/state"))));
        Some(state?.join("xdfs"))
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn found(set: &[(&str, &str)]) -> Option<PathBuf> {
        folder_by(|name| {
            let found = set.iter().find(|(key, _)| *key == name);
            found.map(|(_, value)| value.into())
        })
    }

    #[cfg(unix)]
    #[test]
    fn the_agent_is_in_the_runtime_directory_unless_a_folder_is_named() {
        let agent = |set: &[(&str, &str)]| {
            agent_by(|name| {
                let found = set.iter().find(|(key, _)| *key == name);
                found.map(|(_, value)| value.into())
            })
        };
        let (home, run) = (("HOME", "/home/me"), ("XDG_RUNTIME_DIR", "/run/user/7"));
        assert_eq!(agent(&[home, run]), Some("/run/user/7/xdfs".into()));
        let own = "/home/me/.local/state/xdfs/agent";
        assert_eq!(agent(&[home]), Some(own.into()));
        assert_eq!(agent(&[home, ("XDG_RUNTIME_DIR", "run")]), Some(own.into()));
        let config = ("XDFS_CONFIG_DIR", "/config");
        assert_eq!(agent(&[run, config]), Some("/config/state/agent".into()));
        let state = ("XDFS_STATE_DIR", "/own");
        assert_eq!(agent(&[run, config, state]), Some("/own/agent".into()));
        assert_eq!(agent(&[]), None);
    }

    #[test]
    fn the_own_folder_goes_before_that_of_the_system() {
        let mut set = vec![("HOME", "/home/me")];
        assert_eq!(found(&set), Some("/home/me/.local/state/xdfs".into()));
        set.push(("XDG_STATE_HOME", "relative"));
        assert_eq!(found(&set), Some("/home/me/.local/state/xdfs".into()));
        set[1].1 = "/state";
        assert_eq!(found(&set), Some("/state/xdfs".into()));
        set.push(("XDFS_CONFIG_DIR", "/config"));
        assert_eq!(found(&set), Some("/config/state".into()));
        set.push(("XDFS_STATE_DIR", "/own"));
        assert_eq!(found(&set), Some("/own".into()));
        assert_eq!(found(&[]), None);
    }
}
