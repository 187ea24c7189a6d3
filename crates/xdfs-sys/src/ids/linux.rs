//! Credentials of a thread, by system calls.

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

/// Primary ids and supplementary groups of an account.
pub(super) fn account(name: &str) -> io::Result<Option<(u32, u32, Vec<u32>)>> {
    // No account has a name with NUL.
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

/// Whether the thread acts with exactly these ids and groups, and has no capability to take others.
pub(super) fn has(ids: &Ids) -> io::Result<bool> {
    let (users, groups) = (getresuid()?, getresgid()?);
    let kept = [users.real, users.saved].map(nix::unistd::Uid::as_raw);
    let own = [groups.real, groups.effective, groups.saved];
    if users.effective.as_raw() != ids.uid
        || (kept != [0; 2] && kept != [ids.uid; 2])
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

/// Groups first: without root they can't be changed. The real and the saved user stay root: by them
/// the kernel judges who may send a signal to the thread, or limit its process, and one
/// that ends the thread ends the server.
pub(super) fn take_on(ids: &Ids) -> io::Result<()> {
    let groups: Vec<Gid> = ids.groups.iter().map(|&gid| Gid::from_raw(gid)).collect();
    let (gid, uid) = (Gid::from_raw(ids.gid), Uid::from_raw(ids.uid));
    set_thread_groups(&groups)?;
    set_thread_res_gid(gid, gid, gid)?;
    set_thread_res_uid(Uid::ROOT, uid, Uid::ROOT)?;
    if !ids.is_root() {
        // Without any it can't take on other groups, and as root again it would be without rights
        // beyond those of files' owners.
        set_capabilities(None, NO_CAPABILITIES)?;
    }
    // The kernel does so itself, unless it was told not to. Otherwise the account could read the
    // memory of all other threads.
    Ok(set_dumpable_behavior(DumpableBehavior::NotDumpable)?)
}

/// The id of the user with this name.
pub(super) fn user_of_name(name: &str) -> io::Result<Option<u32>> {
    // No account has a name with NUL.
    if name.contains('\0') {
        return Ok(None);
    }
    Ok(User::from_name(name)?.map(|user| user.uid.as_raw()))
}

/// The id of the group with this name.
pub(super) fn group_of_name(name: &str) -> io::Result<Option<u32>> {
    if name.contains('\0') {
        return Ok(None);
    }
    Ok(Group::from_name(name)?.map(|group| group.gid.as_raw()))
}

/// The name of the user with this id.
pub(super) fn name_of_user(uid: u32) -> io::Result<Option<String>> {
    let user = User::from_uid(nix::unistd::Uid::from_raw(uid))?;
    Ok(user.map(|user| user.name))
}

/// The name of the group with this id.
pub(super) fn name_of_group(gid: u32) -> io::Result<Option<String>> {
    let group = Group::from_gid(nix::unistd::Gid::from_raw(gid))?;
    Ok(group.map(|group| group.name))
}
