//! The check of believed files by owners and modes.

use std::ffi::OsString;
use std::fs::{self, File, Metadata, OpenOptions};
use std::io;
use std::os::unix::fs::{FileTypeExt as _, MetadataExt as _, OpenOptionsExt as _};
use std::path::{Component, Path, PathBuf};

use rustix::fs::OFlags;
use rustix::process::geteuid;

use super::{Distrust, Secrecy};

const ROOT: u32 = 0;
const ANY_ACCESS_OF_OTHERS: u32 = 0o077;
const WRITE_ACCESS_OF_OTHERS: u32 = 0o022;
/// In a directory with this bit, only owners can replace entries.
const STICKY: u32 = 0o1000;
/// The limit of Linux for symbolic links on one path.
const LINKS_MAX: usize = 40;

pub(super) fn open(path: &Path) -> io::Result<File> {
    let flags = OFlags::NONBLOCK | OFlags::NOCTTY;
    let mut options = OpenOptions::new();
    options.read(true).custom_flags(flags.bits().cast_signed());
    options.open(path)
}

pub(super) fn check(file: &File, path: &Path, secrecy: Secrecy) -> Result<(), Distrust> {
    let Some(place) = walk(path)? else {
        return Ok(());
    };
    let found = file.metadata()?;
    // Everybody may write to terminals, and is not read by that.
    if found.file_type().is_char_device() {
        return Ok(());
    }
    check_owner(&found, &place)?;
    let forbidden = match secrecy {
        Secrecy::Public => WRITE_ACCESS_OF_OTHERS,
        Secrecy::Secret => ANY_ACCESS_OF_OTHERS,
    };
    match found.mode() & forbidden {
        0 => Ok(()),
        _ if secrecy == Secrecy::Secret => Err(Distrust::Readable(place)),
        _ => Err(Distrust::Writable(place)),
    }
}

pub(super) fn check_folder(path: &Path) -> Result<(), Distrust> {
    let Some(place) = walk(path)? else {
        return Ok(());
    };
    let found = fs::symlink_metadata(&place)?;
    if !found.is_dir() {
        return Err(io::Error::from(io::ErrorKind::NotADirectory).into());
    }
    check_owner(&found, &place)?;
    match found.mode() & WRITE_ACCESS_OF_OTHERS {
        0 => Ok(()),
        _ => Err(Distrust::Writable(place)),
    }
}

/// Follows a path step by step and checks each directory on the way, but not what it leads to.
/// Returns the path without links, or `None` for a descriptor of this process, which has none.
fn walk(path: &Path) -> Result<Option<PathBuf>, Distrust> {
    let mut left = reversed(&std::path::absolute(path)?);
    let descriptors = PathBuf::from(format!("/proc/{}/fd", std::process::id()));
    let mut at = PathBuf::from("/");
    let mut links = 0;
    check_directory(&at)?;
    while let Some(name) = left.pop() {
        if name == ".." {
            at.pop();
            continue;
        }
        let next = at.join(&name);
        let found = fs::symlink_metadata(&next)?;
        if found.is_symlink() {
            if at == descriptors {
                return Ok(None);
            }
            check_link(&at, &found, &next)?;
            links += 1;
            if links > LINKS_MAX {
                return Err(io::Error::from(rustix::io::Errno::LOOP).into());
            }
            let target = fs::read_link(&next)?;
            if target.is_absolute() {
                at = PathBuf::from("/");
            }
            left.extend(reversed(&target));
            continue;
        }
        at = next;
        if !left.is_empty() {
            check_directory(&at)?;
        }
    }
    Ok(Some(at))
}

/// The names of a path, the last one first.
fn reversed(path: &Path) -> Vec<OsString> {
    let names = path.components().rev().filter_map(|part| match part {
        Component::Normal(name) => Some(name.to_owned()),
        Component::ParentDir => Some("..".into()),
        _ => None,
    });
    names.collect()
}

/// A directory on the way: others can't replace what it has.
fn check_directory(place: &Path) -> Result<(), Distrust> {
    let found = fs::symlink_metadata(place)?;
    if !is_trusted(found.uid()) && !is_unmapped(found.uid()) {
        return Err(Distrust::Owner(place.to_owned(), found.uid()));
    }
    match found.mode() & WRITE_ACCESS_OF_OTHERS {
        0 => Ok(()),
        _ if found.mode() & STICKY != 0 => Ok(()),
        _ => Err(Distrust::Writable(place.to_owned())),
    }
}

/// A link in a directory in which others may create files must not be theirs.
fn check_link(directory: &Path, link: &Metadata, place: &Path) -> Result<(), Distrust> {
    let is_shared = fs::symlink_metadata(directory)?.mode() & WRITE_ACCESS_OF_OTHERS != 0;
    match is_shared {
        true => check_owner(link, place),
        false => Ok(()),
    }
}

fn check_owner(found: &Metadata, place: &Path) -> Result<(), Distrust> {
    match is_trusted(found.uid()) {
        true => Ok(()),
        false => Err(Distrust::Owner(place.to_owned(), found.uid())),
    }
}

fn is_trusted(user: u32) -> bool {
    user == ROOT || user == geteuid().as_raw()
}

/// Whether an id stands for the users outside of this user namespace, the system's root among them:
/// in a container of an ordinary user, `/` and `/home` seem to belong to it.
#[cfg(target_os = "linux")]
fn is_unmapped(user: u32) -> bool {
    let number = |text: Option<&str>| text.and_then(|text| text.trim().parse::<u32>().ok());
    let overflow = fs::read_to_string("/proc/sys/kernel/overflowuid").ok();
    let Ok(map) = fs::read_to_string("/proc/self/uid_map") else {
        return false;
    };
    let is_mapped = map.lines().any(|line| {
        let mut fields = line.split_whitespace();
        let (first, _, count) = (number(fields.next()), fields.next(), number(fields.next()));
        first.is_none_or(|first| user >= first && user - first < count.unwrap_or(u32::MAX))
    });
    number(overflow.as_deref()) == Some(user) && !is_mapped
}

#[cfg(not(target_os = "linux"))]
fn is_unmapped(_: u32) -> bool {
    false
}
