//! Tests as an ordinary user, where they run as root, who may do everything.

use std::fs;
use std::os::unix::fs::PermissionsExt as _;
use std::path::Path;

use rustix::process::geteuid;

/// User and group of the account that owns nothing, on every Linux.
pub const ID: u32 = 65_534;

/// Whether this process runs as root.
#[must_use]
pub fn is_root() -> bool {
    geteuid().is_root()
}

/// Takes the calling thread, and those that it starts, to the ids of nobody, if this is root.
/// There is no way back.
///
/// # Panics
/// If the system refuses it to root.
#[cfg(target_os = "linux")]
pub fn become_nobody() {
    use rustix::process::{Gid, Uid};
    use rustix::thread::{set_thread_groups, set_thread_res_gid, set_thread_res_uid};
    if !is_root() {
        return;
    }
    let (gid, uid) = (Gid::from_raw(ID), Uid::from_raw(ID));
    set_thread_groups(&[]).expect("root may leave its groups");
    set_thread_res_gid(gid, gid, gid).expect("root may change its group");
    set_thread_res_uid(uid, uid, uid).expect("root may change its user");
}

/// Does something in a thread that is nobody's if this is root, and passes a panic on.
#[cfg(target_os = "linux")]
pub fn act<T: Send>(act: impl FnOnce() -> T + Send) -> T {
    std::thread::scope(|scope| {
        let acting = scope.spawn(|| {
            become_nobody();
            act()
        });
        acting
            .join()
            .unwrap_or_else(|panic| std::panic::resume_unwind(panic))
    })
}

/// Lets nobody come to a folder which a test made within the folder for temporary files: those are
/// their owner's at first. What is above is not the test's, and stays as it is.
///
/// # Errors
/// Why nobody can't come there, as the reason for which to skip a test.
pub fn let_in(path: &Path) -> Result<(), String> {
    if !is_root() {
        return Ok(());
    }
    let_in_below(&std::env::temp_dir(), path)
}

fn let_in_below(temporary: &Path, path: &Path) -> Result<(), String> {
    if !path.starts_with(temporary) {
        return Err(format!("{} is not a temporary directory", path.display()));
    }
    for folder in path.ancestors() {
        let mode = fs::metadata(folder).map_err(|error| error.to_string())?;
        let mode = mode.permissions().mode();
        if folder != temporary && folder.starts_with(temporary) {
            let opened = fs::Permissions::from_mode(mode | 0o055);
            fs::set_permissions(folder, opened).map_err(|error| error.to_string())?;
        } else if mode & 0o001 == 0 {
            return Err(format!("nobody can't pass {}", folder.display()));
        }
    }
    Ok(())
}

#[cfg(all(test, target_os = "linux"))]
mod tests {
    use super::*;

    fn mode(path: &Path) -> u32 {
        fs::metadata(path)
            .expect("it was made")
            .permissions()
            .mode()
            & 0o7777
    }

    #[test]
    fn only_what_a_test_made_is_opened() {
        if !is_root() {
            return crate::skip::test("only root becomes nobody");
        }
        let temporary = tempfile::tempdir().unwrap();
        let made = temporary.path().join("made");
        let within = made.join("a/b");
        fs::create_dir_all(&within).unwrap();
        let set = |path: &Path, mode| {
            fs::set_permissions(path, fs::Permissions::from_mode(mode)).unwrap();
        };
        set(temporary.path(), 0o700);
        set(&made, 0o700);
        let reason = let_in_below(temporary.path(), &within).unwrap_err();
        assert!(reason.contains("can't pass"), "{reason}");
        set(temporary.path(), 0o1711);
        set(&within, 0o700);
        set(&made, 0o700);
        if let Err(reason) = let_in_below(temporary.path(), &within) {
            return crate::skip::test(reason);
        }
        let modes = [temporary.path(), &*made, &*within].map(mode);
        assert_eq!(modes, [0o1711, 0o755, 0o755]);
        assert!(act(|| fs::read_dir(&within).is_ok()));
        set(&within, 0o700);
        assert!(act(|| fs::read_dir(&within).is_err()));
        assert!(is_root() && fs::read_dir(&within).is_ok());
        assert!(let_in_below(&within, &made).is_err());
    }
}
