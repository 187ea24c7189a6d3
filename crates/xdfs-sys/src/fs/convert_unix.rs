//! Conversions between the types of `rustix` and of this module.

use std::io;

use rustix::fs::{FileType, Gid, Mode, Stat, Timespec, Timestamps, UTIME_OMIT, Uid};
use rustix::io::Errno;

use super::{FileKind, Meta};

/// Whether an error means that a call is not supported, for which there are several codes.
pub(super) fn is_unsupported(error: Errno) -> bool {
    [Errno::INVAL, Errno::NOSYS, Errno::NOTSUP, Errno::OPNOTSUPP].contains(&error)
}

pub(super) fn meta_from(stat: &Stat) -> Meta {
    let time = |seconds: i64, nanoseconds: i64| {
        seconds
            .saturating_mul(1_000_000_000)
            .saturating_add(nanoseconds)
    };
    let blocks: u64 = number(stat.st_blocks);
    let mode: u32 = number(stat.st_mode);
    Meta {
        kind: kind_of(FileType::from_raw_mode(stat.st_mode)),
        length: number(stat.st_size),
        allocated: Some(blocks.saturating_mul(512)),
        atime_ns: time(number(stat.st_atime), number(stat.st_atime_nsec)),
        mtime_ns: time(number(stat.st_mtime), number(stat.st_mtime_nsec)),
        ctime_ns: time(number(stat.st_ctime), number(stat.st_ctime_nsec)),
        mode: Some(mode & 0o7777),
        identity: Some((number(stat.st_dev), number(stat.st_ino))),
        links: number(stat.st_nlink),
        owner: Some(stat.st_uid),
        group: Some(stat.st_gid),
    }
}

pub(super) fn kind_of(kind: FileType) -> FileKind {
    match kind {
        FileType::RegularFile => FileKind::Regular,
        FileType::Directory => FileKind::Directory,
        FileType::Symlink => FileKind::Symlink,
        FileType::Fifo => FileKind::Fifo,
        FileType::Socket => FileKind::Socket,
        FileType::BlockDevice => FileKind::BlockDevice,
        FileType::CharacterDevice => FileKind::CharacterDevice,
        _ => FileKind::Other,
    }
}

/// Converts a field of `stat`, whose type differs between systems; a value out of range becomes
/// zero.
pub(super) fn number<T: TryInto<U>, U: Default>(value: T) -> U {
    value.try_into().unwrap_or_default()
}

/// The kind stored in a directory entry, if the file system stores it there.
pub(super) fn listed_kind(kind: FileType) -> Option<FileKind> {
    (kind != FileType::Unknown).then(|| kind_of(kind))
}

pub(super) fn mode_of(mode: u32) -> Mode {
    Mode::from_raw_mode(number(mode & 0o7777))
}

pub(super) fn timestamps(atime_ns: Option<i64>, mtime_ns: Option<i64>) -> Timestamps {
    const SECOND: i64 = 1_000_000_000;
    let time = |ns: Option<i64>| Timespec {
        tv_sec: ns.map_or(0, |ns| number(ns.div_euclid(SECOND))),
        tv_nsec: ns.map_or(UTIME_OMIT, |ns| number(ns.rem_euclid(SECOND))),
    };
    Timestamps {
        last_access: time(atime_ns),
        last_modification: time(mtime_ns),
    }
}

pub(super) fn owner(uid: Option<u32>, gid: Option<u32>) -> io::Result<(Option<Uid>, Option<Gid>)> {
    // The system call interprets this id as "unchanged".
    if uid == Some(u32::MAX) || gid == Some(u32::MAX) {
        return Err(Errno::INVAL.into());
    }
    Ok((uid.map(Uid::from_raw), gid.map(Gid::from_raw)))
}
