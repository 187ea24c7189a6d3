//! Credentials of a thread, by the calls of the kernel.

use std::ffi::CString;
use std::io;

use nix::unistd::{Group, User, getgrouplist, getresgid, getresuid};
use rustix::process::{DumpableBehavior, set_dumpable_behavior};
use rustix::thread::{
    CapabilitySet, CapabilitySets, Gid, Uid, capabilities, set_capabilities, set_thread_groups,
    set_thread_res_gid, set_thread_res_uid,
};

use super::Ids;

const NO_CAPABILITIES: CapabilitySets = CapabilitySets {
    effective: CapabilitySet::empty(),
    permitted: CapabilitySet::empty(),
    inheritable: CapabilitySet::empty(),
};

/// User, group and groups of an account.
pub(super) fn account(name: &str) -> io::Result<Option<(u32, u32, Vec<u32>)>> {
    // No account has such a name.
    let Ok(text) = CString::new(name) else {
        return Ok(None);
    };
    let Some(user) = User::from_name(name)? else {
        return Ok(None);
    };
    let groups = getgrouplist(&text, user.gid)?;
    let groups = groups.into_iter().map(nix::unistd::Gid::as_raw).collect();
    Ok(Some((user.uid.as_raw(), user.gid.as_raw(), groups)))
}

pub(super) fn check_may_change() -> io::Result<()> {
    let needed = CapabilitySet::SETUID | CapabilitySet::SETGID;
    if !rustix::process::geteuid().is_root() {
        let cause = "it doesn't run as root";
        return Err(io::Error::new(io::ErrorKind::PermissionDenied, cause));
    }
    if !capabilities(None)?.effective.contains(needed) {
        let cause = "it runs as root without the capabilities CAP_SETUID and CAP_SETGID";
        return Err(io::Error::new(io::ErrorKind::PermissionDenied, cause));
    }
    Ok(())
}

/// Whether the thread has these ids and groups, and could not get others back.
pub(super) fn has(ids: &Ids) -> io::Result<bool> {
    let (users, groups) = (getresuid()?, getresgid()?);
    let users = [users.real, users.effective, users.saved];
    let own = [groups.real, groups.effective, groups.saved];
    if users.iter().any(|uid| uid.as_raw() != ids.uid)
        || own.iter().any(|gid| gid.as_raw() != ids.gid)
    {
        return Ok(false);
    }
    let mut groups: Vec<u32> = rustix::process::getgroups()?
        .into_iter()
        .map(Gid::as_raw)
        .collect();
    groups.sort_unstable();
    Ok(groups == ids.groups && (ids.is_root() || capabilities(None)? == NO_CAPABILITIES))
}

/// Groups first: who isn't root any more can't change them.
pub(super) fn take_on(ids: &Ids) -> io::Result<()> {
    let groups: Vec<Gid> = ids.groups.iter().map(|&gid| Gid::from_raw(gid)).collect();
    let (gid, uid) = (Gid::from_raw(ids.gid), Uid::from_raw(ids.uid));
    set_thread_groups(&groups)?;
    set_thread_res_gid(gid, gid, gid)?;
    set_thread_res_uid(uid, uid, uid)?;
    if !ids.is_root() {
        // The kernel does so by itself, unless it was told to keep them.
        set_capabilities(None, NO_CAPABILITIES)?;
    }
    // The same: or the account could read the memory of all other threads.
    Ok(set_dumpable_behavior(DumpableBehavior::NotDumpable)?)
}

/// The number of the user with this name.
pub(super) fn user_of_name(name: &str) -> io::Result<Option<u32>> {
    // No account has such a name.
    if name.contains('\0') {
        return Ok(None);
    }
    Ok(User::from_name(name)?.map(|user| user.uid.as_raw()))
}

/// The number of the group with this name.
pub(super) fn group_of_name(name: &str) -> io::Result<Option<u32>> {
    if name.contains('\0') {
        return Ok(None);
    }
    Ok(Group::from_name(name)?.map(|group| group.gid.as_raw()))
}

/// The name of the user with this number.
pub(super) fn name_of_user(uid: u32) -> io::Result<Option<String>> {
    let user = User::from_uid(nix::unistd::Uid::from_raw(uid))?;
    Ok(user.map(|user| user.name))
}

/// The name of the group with this number.
pub(super) fn name_of_group(gid: u32) -> io::Result<Option<String>> {
    let group = Group::from_gid(nix::unistd::Gid::from_raw(gid))?;
    Ok(group.map(|group| group.name))
}
