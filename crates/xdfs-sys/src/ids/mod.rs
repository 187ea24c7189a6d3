//! Ids of local accounts, assumed by single threads.
//!
//! The C library gives all threads of a process the same ids. The kernel keeps them per thread, and
//! its own calls, used here, change only those of the calling thread. Linux only; elsewhere every
//! function is `Unsupported` or finds nothing.

#[cfg(target_os = "linux")]
#[path = "linux.rs"]
mod imp;
#[cfg(not(target_os = "linux"))]
#[path = "other.rs"]
mod imp;
#[cfg(all(test, target_os = "linux"))]
mod tests;

use std::io;

/// The id of the user with this name in the system's user database; `None` if there is none, and on
/// other systems than Linux. May be slow, as the database may be on the network; so may the other
/// three lookups.
///
/// # Errors
/// Any error of the system call.
pub fn user_of_name(name: &str) -> io::Result<Option<u32>> {
    imp::user_of_name(name)
}

/// The id of the group with this name.
///
/// # Errors
/// Any error of the system call.
pub fn group_of_name(name: &str) -> io::Result<Option<u32>> {
    imp::group_of_name(name)
}

/// The name of the user with this id.
///
/// # Errors
/// Any error of the system call.
pub fn name_of_user(uid: u32) -> io::Result<Option<String>> {
    imp::name_of_user(uid)
}

/// The name of the group with this id.
///
/// # Errors
/// Any error of the system call.
pub fn name_of_group(gid: u32) -> io::Result<Option<String>> {
    imp::name_of_group(gid)
}

/// The ids of an account: its user, its group and its supplementary groups.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Ids {
    uid: u32,
    gid: u32,
    /// Sorted, without duplicates.
    groups: Vec<u32>,
}

impl Ids {
    /// The ids of the account with this name in the system's user and group databases; `None` if
    /// there is no such account. May be slow, as the databases may be on the network.
    ///
    /// # Errors
    /// Any error of the system call; `Unsupported` on other systems than Linux.
    pub fn of_account(name: &str) -> io::Result<Option<Self>> {
        let Some((uid, gid, mut groups)) = imp::account(name)? else {
            return Ok(None);
        };
        groups.sort_unstable();
        groups.dedup();
        // The kernel interprets this id as "unchanged".
        if uid == u32::MAX || gid == u32::MAX || groups.contains(&u32::MAX) {
            let cause = "the account has an id that can't be used";
            return Err(io::Error::new(io::ErrorKind::InvalidData, cause));
        }
        Ok(Some(Self { uid, gid, groups }))
    }

    /// Whether this is root.
    #[must_use]
    pub fn is_root(&self) -> bool {
        self.uid == 0
    }

    /// The id of the user.
    #[must_use]
    pub fn uid(&self) -> u32 {
        self.uid
    }

    /// The id of the user's primary group.
    #[must_use]
    pub fn gid(&self) -> u32 {
        self.gid
    }

    /// Whether the account is in a group.
    #[must_use]
    pub fn has_group(&self, gid: u32) -> bool {
        self.gid == gid || self.groups.contains(&gid)
    }

    /// Gives the calling thread these ids and groups to act with, and no capabilities unless the
    /// user is root. Threads started by it inherit all of that. Does nothing if the thread already
    /// has them. The real and the saved user stay root, so that the account can't send signals to
    /// the thread, and with them end the process. From then on, the process leaves no core dumps
    /// and can't be traced by the account.
    ///
    /// # Errors
    /// The system refuses, or the thread would retain something else. The thread may then have a
    /// mixture of ids and must not continue.
    pub fn take_on(&self) -> io::Result<()> {
        if imp::has(self)? {
            return Ok(());
        }
        imp::take_on(self)?;
        if imp::has(self)? {
            return Ok(());
        }
        let cause = "the thread kept ids or capabilities of before";
        Err(io::Error::new(io::ErrorKind::PermissionDenied, cause))
    }
}

/// Checks that the calling thread may assume the ids of any account.
///
/// # Errors
/// `PermissionDenied` if it is not root or lacks root's usual capabilities; `Unsupported` on other
/// systems than Linux.
pub fn check_may_change() -> io::Result<()> {
    imp::check_may_change()
}

/// The owners that the calling thread can give to files that it creates: its user, and its groups
/// without duplicates; `None` if it can give any, and where files have no owners.
///
/// # Errors
/// Any error of the system call.
pub fn settable_owners() -> io::Result<Option<(u32, Vec<u32>)>> {
    #[cfg(unix)]
    {
        use rustix::process::{getegid, geteuid, getgroups};
        if may_change_owners()? {
            return Ok(None);
        }
        let mut groups: Vec<u32> = getgroups()?.into_iter().map(|gid| gid.as_raw()).collect();
        groups.push(getegid().as_raw());
        groups.sort_unstable();
        groups.dedup();
        Ok(Some((geteuid().as_raw(), groups)))
    }
    #[cfg(not(unix))]
    Ok(None)
}

/// Whether the calling thread may give files to other users.
#[cfg(unix)]
fn may_change_owners() -> io::Result<bool> {
    #[cfg(target_os = "linux")]
    {
        let has = rustix::thread::capabilities(None)?.effective;
        Ok(has.contains(rustix::thread::CapabilitySet::CHOWN))
    }
    #[cfg(not(target_os = "linux"))]
    Ok(rustix::process::geteuid().is_root())
}

/// The user who started this process; `None` where users have no numeric ids.
#[must_use]
pub fn real_user() -> Option<u32> {
    #[cfg(unix)]
    return Some(rustix::process::getuid().as_raw());
    #[cfg(not(unix))]
    None
}

/// The user for whom the calling thread opens files; `None` where users have no numeric ids.
#[must_use]
pub fn effective_user() -> Option<u32> {
    #[cfg(unix)]
    return Some(rustix::process::geteuid().as_raw());
    #[cfg(not(unix))]
    None
}
