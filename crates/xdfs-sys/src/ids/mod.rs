//! The ids of a local account, taken on by one thread.
//!
//! The C library gives all threads of a process the same ids. The kernel keeps them for each
//! thread, and its own calls change those of the calling thread alone: that is what is used here.
//! Linux only; elsewhere every function says so.

#[cfg(target_os = "linux")]
#[path = "linux.rs"]
mod imp;
#[cfg(not(target_os = "linux"))]
#[path = "other.rs"]
mod imp;
#[cfg(all(test, target_os = "linux"))]
mod tests;

use std::io;

/// The number of the user with this name, as the system's database of users says; `None` if there
/// is none, and on other systems than Linux. Takes as long as the database does, which may be in
/// the network; so do the other three.
///
/// # Errors
/// What the system says.
pub fn user_of_name(name: &str) -> io::Result<Option<u32>> {
    imp::user_of_name(name)
}

/// The number of the group with this name.
///
/// # Errors
/// What the system says.
pub fn group_of_name(name: &str) -> io::Result<Option<u32>> {
    imp::group_of_name(name)
}

/// The name of the user with this number.
///
/// # Errors
/// What the system says.
pub fn name_of_user(uid: u32) -> io::Result<Option<String>> {
    imp::name_of_user(uid)
}

/// The name of the group with this number.
///
/// # Errors
/// What the system says.
pub fn name_of_group(gid: u32) -> io::Result<Option<String>> {
    imp::name_of_group(gid)
}

/// What the kernel knows an account by: its user, its group and its supplementary groups.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Ids {
    uid: u32,
    gid: u32,
    /// Sorted, each once.
    groups: Vec<u32>,
}

impl Ids {
    /// The ids of the account with this name, as the system's databases of users and groups say;
    /// `None` if there is no such account. Takes as long as these databases do, which may be in
    /// the network.
    ///
    /// # Errors
    /// What the system says; `Unsupported` on other systems than Linux.
    pub fn of_account(name: &str) -> io::Result<Option<Self>> {
        let Some((uid, gid, mut groups)) = imp::account(name)? else {
            return Ok(None);
        };
        groups.sort_unstable();
        groups.dedup();
        // The kernel takes this number for "leave it as it is".
        if uid == u32::MAX || gid == u32::MAX || groups.contains(&u32::MAX) {
            let cause = "the account has an id that can't be used";
            return Err(io::Error::new(io::ErrorKind::InvalidData, cause));
        }
        Ok(Some(Self { uid, gid, groups }))
    }

    /// Whether this is the user that may do everything.
    #[must_use]
    pub fn is_root(&self) -> bool {
        self.uid == 0
    }

    /// The number of the user.
    #[must_use]
    pub fn uid(&self) -> u32 {
        self.uid
    }

    /// The number of the user's own group.
    #[must_use]
    pub fn gid(&self) -> u32 {
        self.gid
    }

    /// Gives the calling thread these ids (real, effective and saved) and these groups for good,
    /// and no capabilities unless they are root's. Threads that it starts from now on inherit all
    /// of that. Nothing happens if the thread has them already. The process leaves no core dumps
    /// and can't be traced by the account from then on.
    ///
    /// # Errors
    /// The system refuses, or the thread would still have something else. It then has a mixture of
    /// ids and must not go on.
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

/// Whether the calling thread may take on the ids of any account.
///
/// # Errors
/// `PermissionDenied` if it isn't root's or lacks what root usually may; `Unsupported` on other
/// systems than Linux.
pub fn check_may_change() -> io::Result<()> {
    imp::check_may_change()
}

/// The user for whom the calling thread opens files; `None` where that isn't a number.
#[must_use]
pub fn effective_user() -> Option<u32> {
    #[cfg(unix)]
    return Some(rustix::process::geteuid().as_raw());
    #[cfg(not(unix))]
    None
}
