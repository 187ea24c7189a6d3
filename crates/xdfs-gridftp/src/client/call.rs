//! Calls about paths, as commands of FTP.

use std::sync::Arc;

use xdfs_proto::path::{Answer, Attributes, Call, Entry, FileKind, PART_BYTES};
use xdfs_proto::{ChecksumKind, ChecksumValue, Code, Fault};
use xdfs_store::{Store as _, check_cancelled};

use super::directory::{each_entry, untold};
use super::fault::{lacking, refused, violation};
use super::features::name_of;
use super::link::{Link, STALL};
use super::listed::Listed;
use super::listings::Directory;
use super::pool::{FtpStore, exists};
use super::sink::{rename, rename_over, set_metadata, set_time};
use super::{missing, plain};
use crate::checksum::{Algorithm, Hasher};

/// Bytes that are read at once.
const PIECE_BYTES: usize = 64 << 10;
/// Most directories above a path.
const DEPTH_MAX: usize = 256;

type Part<'a> = &'a mut dyn FnMut(Answer) -> Result<(), Fault>;

/// See [`xdfs_store::Store::call`].
pub(super) fn answer(store: &FtpStore, call: &Call, part: Part<'_>) -> Result<Answer, Fault> {
    let simple = |verb, path: &[u8]| {
        store.with(|link| {
            let path = FtpStore::resolve(link, path);
            remove(link, call.operation(), verb, &path)
        })?;
        Ok(Answer::Done)
    };
    if !matches!(
        call,
        Call::Stat { .. } | Call::ReadLink { .. } | Call::List { .. }
    ) {
        // It may change what they have told.
        store.told().clear();
    }
    match call {
        Call::Stat { path, follow: true } => store.with(|link| {
            let path = FtpStore::resolve(link, path);
            let listed = FtpStore::look(link, &path)?;
            Ok(Answer::Attributes(listed.attributes))
        }),
        Call::Stat { path, .. } => {
            let looked = store.with(|link| {
                let path = FtpStore::resolve(link, path);
                look_itself(store, link, &path)
            });
            let listed = match looked {
                Err(fault) if fault.code == Code::NotFound => return Err(fault),
                // MLST follows links, also those that it may not follow.
                Err(fault) => listed_link(store, path).ok_or(fault)?,
                Ok(listed) => listed,
            };
            Ok(Answer::Attributes(own_attributes(&listed)))
        }
        Call::ReadLink { path } => store.with(|link| {
            let path = FtpStore::resolve(link, path);
            let target = look_itself(store, link, &path)?.link;
            let target = target.ok_or_else(|| {
                let cause = "it is no symbolic link, or the server doesn't tell where it leads";
                lacking(call.operation(), &path, cause)
            })?;
            Ok(Answer::Target(target))
        }),
        Call::List {
            path,
            cursor,
            entries_max,
        } => list(store, path, cursor, *entries_max, part),
        Call::MakeDirectory {
            path,
            mode,
            parents,
        } => store.with(|link| {
            let path = FtpStore::resolve(link, path);
            match parents {
                true => make_directories(link, &path)?,
                false => make_directory(link, &path)?,
            }
            set_metadata(link, &path, None, *mode)?;
            Ok(Answer::Done)
        }),
        Call::RemoveFile { path } => simple("DELE", path),
        Call::RemoveDirectory { path } => simple("RMD", path),
        Call::RemoveTree { path } => remove_tree(store, path),
        Call::Rename {
            from,
            to,
            overwrite,
        } => store.with(|link| {
            let (from, to) = (FtpStore::resolve(link, from), FtpStore::resolve(link, to));
            if !overwrite && FtpStore::find(link, &to)?.is_some() {
                return Err(exists(call.operation(), &to));
            }
            match overwrite {
                true => rename_over(link, &from, &to)?,
                false => rename(link, &from, &to)?,
            }
            Ok(Answer::Done)
        }),
        Call::SetMode { path, mode } => store.with(|link| {
            let path = FtpStore::resolve(link, path);
            let argument = [format!("CHMOD {mode:03o} ").as_bytes(), &path].concat();
            let reply = link.exchange("SITE", &argument)?;
            match reply.code {
                200..300 => Ok(Answer::Done),
                _ => Err(refused(call.operation(), &path, &reply)),
            }
        }),
        Call::SetTimes { path, mtime_ns, .. } => store.with(|link| {
            let path = FtpStore::resolve(link, path);
            let is_set = match mtime_ns {
                Some(time) => set_time(link, &path, *time)?,
                None => false,
            };
            match is_set {
                true => Ok(Answer::Done),
                false => {
                    let cause = "the server has no MFMT, which sets times";
                    Err(lacking(call.operation(), &path, cause))
                }
            }
        }),
        // The protocol has no such command: a server says that a file is stored, and no more.
        Call::Sync { .. } => Ok(Answer::Done),
        Call::Checksum {
            path,
            offset,
            length,
            kind,
        } => checksum(store, path, *offset, *length, *kind),
        Call::ListPartial { .. } => Ok(Answer::Partial {
            files: Vec::new(),
            more: false,
        }),
        Call::LookUp { accounts, .. } => Ok(Answer::Accounts(vec![None; accounts.len()])),
        _ => Err(lacking(
            call.operation(),
            call.path(),
            "FTP servers can't do this",
        )),
    }
}

/// What is at a resolved path, without following a link there.
fn look_itself(store: &FtpStore, link: &mut Link, path: &Vec<u8>) -> Result<Listed, Fault> {
    let mut listed = FtpStore::look(link, path)?;
    if link.features.mlst {
        store.told().complete(path, &mut listed);
        return Ok(listed);
    }
    let is_file = listed.attributes.kind == FileKind::File;
    match plain::complete(store, link, std::iter::once((path, &mut listed))) {
        // What takes a link for a directory could go beyond it.
        Err(fault) if !is_file || !link.is_usable() => Err(fault),
        _ => Ok(listed),
    }
}

/// The link at a path, if the listing of its directory shows one there.
fn listed_link(store: &FtpStore, path: &[u8]) -> Option<Listed> {
    let slash = path.iter().rposition(|byte| *byte == b'/');
    let (above, name) = match slash {
        Some(0) => (&b"/"[..], &path[1..]),
        Some(slash) => (&path[..slash], &path[slash + 1..]),
        None => return None,
    };
    let mut found = None;
    let listed = each_entry(store, above, &mut |listed| {
        if listed.link.is_some() && listed.name == name {
            found = Some(listed);
        }
        Ok(())
    });
    listed.ok().and(found)
}

/// Removes a file or a directory. That nothing was there is a fault of its own.
fn remove(link: &mut Link, operation: &str, verb: &'static str, path: &[u8]) -> Result<(), Fault> {
    let reply = link.exchange(verb, path)?;
    match reply.code {
        200..300 => Ok(()),
        _ => {
            let fault = refused(operation, path, &reply);
            Err(missing::explain(link, path, &reply, fault))
        }
    }
}

/// Removes one of the entries of a tree, which may have gone meanwhile.
fn remove_entry(
    link: &mut Link,
    operation: &str,
    verb: &'static str,
    path: &[u8],
) -> Result<(), Fault> {
    match remove(link, operation, verb, path) {
        Err(fault) if fault.code == Code::NotFound => Ok(()),
        removed => removed,
    }
}

/// The attributes of a link itself, as far as they are known.
fn own_attributes(listed: &Listed) -> Attributes {
    let attributes = listed.attributes.clone();
    match &listed.link {
        None => attributes,
        Some(target) => Attributes {
            kind: FileKind::Symlink,
            size: target.len() as u64,
            mode: 0o777,
            ..attributes
        },
    }
}

/// Makes a directory whose parent is there.
fn make_directory(link: &mut Link, path: &[u8]) -> Result<(), Fault> {
    let operation = "make the directory";
    let reply = link.exchange("MKD", path)?;
    if reply.code < 300 {
        return Ok(());
    }
    match FtpStore::find(link, path)? {
        Some(_) => {
            let cause = "the name is taken";
            Err(Fault::new(Code::AlreadyExists, operation, cause).path(path))
        }
        None => Err(refused(operation, path, &reply)),
    }
}

/// Makes a directory with its parents, unless it is there.
pub(super) fn make_directories(link: &mut Link, path: &[u8]) -> Result<(), Fault> {
    let mut missing = vec![path];
    // Another connection may make a parent between two looks.
    let mut is_last = false;
    while let Some(path) = missing.last().copied() {
        if path.is_empty() || path == b"/" {
            missing.pop();
            continue;
        }
        let reply = link.exchange("MKD", path)?;
        let was_last = std::mem::take(&mut is_last);
        if reply.code < 300 {
            missing.pop();
            continue;
        }
        let found = FtpStore::find(link, path)?;
        match found.map(|found| found.kind) {
            Some(FileKind::Directory) => {
                missing.pop();
            }
            Some(_) => {
                let cause = "a file has the name";
                return Err(Fault::new(Code::NotDirectory, "make the directory", cause).path(path));
            }
            None => {
                let slash = path.iter().rposition(|byte| *byte == b'/').unwrap_or(0);
                let parent = &path[..slash];
                let is_there = parent.is_empty() || FtpStore::find(link, parent)?.is_some();
                if was_last || missing.len() >= DEPTH_MAX {
                    return Err(refused("make the directory", path, &reply));
                }
                is_last = is_there;
                if !is_there {
                    missing.push(parent);
                }
            }
        }
    }
    Ok(())
}

fn list(
    store: &FtpStore,
    path: &[u8],
    cursor: &[u8],
    entries_max: u32,
    part: Part<'_>,
) -> Result<Answer, Fault> {
    // A server has no place to go on from: the listing is read once, and its parts are served
    // from what is kept of it.
    let (id, skipped, read) = match cursor {
        [] => {
            let all = Arc::new(read_list(store, path)?);
            (store.listings().keep(&all), 0, all)
        }
        cursor => {
            let (id, skipped) = place_in_listing(cursor).ok_or_else(|| {
                Fault::new(Code::InvalidArgument, "", "the cursor is another server's").path(path)
            })?;
            let kept = store.listings().get(id).ok_or_else(|| {
                let cause = "the begun listing is no longer kept";
                let fault = Fault::new(Code::Busy, "", cause).path(path);
                fault.hint("list the directory again; fewer listings at a time are kept")
            })?;
            (id, skipped, kept)
        }
    };
    let Directory { all, left_out } = &*read;
    let rest = all.get(skipped..).unwrap_or_default();
    let most = usize::try_from(entries_max).unwrap_or(usize::MAX);
    let wanted = &rest[..most.min(rest.len())];
    let (mut entries, mut bytes) = (Vec::new(), 0);
    for (at, entry) in (skipped + 1..).zip(wanted) {
        bytes += entry.name.len() + size_of::<Entry>();
        entries.push(entry.clone());
        if bytes >= PART_BYTES {
            bytes = 0;
            let entries = std::mem::take(&mut entries);
            let cursor = Some(format!("{id} {at}").into_bytes());
            part(Answer::Entries { entries, cursor })?;
        }
    }
    let end = skipped + wanted.len();
    let has_more = end < all.len();
    if !has_more {
        store.listings().forget(id);
    }
    if !has_more && *left_out > 0 {
        if !entries.is_empty() {
            let cursor = Some(format!("{id} {end}").into_bytes());
            part(Answer::Entries { entries, cursor })?;
        }
        return Err(untold(path, *left_out));
    }
    let cursor = has_more.then(|| format!("{id} {end}").into_bytes());
    Ok(Answer::Entries { entries, cursor })
}

/// The number of a listing, and that of its entries before a cursor.
fn place_in_listing(cursor: &[u8]) -> Option<(u64, usize)> {
    let (id, count) = std::str::from_utf8(cursor).ok()?.split_once(' ')?;
    Some((id.parse().ok()?, count.parse().ok()?))
}

/// Reads a whole directory.
fn read_list(store: &FtpStore, path: &[u8]) -> Result<Directory, Fault> {
    let mut entries = Vec::new();
    let mut add = |listed: Listed| {
        entries.push(Entry {
            attributes: own_attributes(&listed),
            name: listed.name,
        });
        Ok(())
    };
    let known = store.tree().and_then(|tree| tree.take_listing(path));
    let left_out = match known {
        Some(known) => {
            known.into_iter().try_for_each(add)?;
            0
        }
        None => each_entry(store, path, &mut add)?,
    };
    Ok(Directory {
        all: entries,
        left_out,
    })
}

/// Removes a directory and what is in it; links are removed, and not followed.
fn remove_tree(store: &FtpStore, path: &[u8]) -> Result<Answer, Fault> {
    store.with(|link| {
        let path = FtpStore::resolve(link, path);
        if link.features.mlst || !plain::is_link(store, link, &path)? {
            return Ok(());
        }
        let fault = Fault::new(
            Code::NotDirectory,
            "remove the tree",
            "it is a symbolic link",
        );
        Err(fault.path(path).hint("remove the link itself, without -r"))
    })?;
    let mut removed = 0;
    // Directories to be removed once those after them are.
    let mut open = vec![(path.to_vec(), false)];
    while let Some((path, is_empty)) = open.pop() {
        check_cancelled()?;
        if is_empty {
            store.with(|link| {
                let path = FtpStore::resolve(link, &path);
                remove_entry(link, "remove the directory", "RMD", &path)
            })?;
            removed += 1;
            continue;
        }
        let (mut files, mut directories) = (Vec::new(), Vec::new());
        each_entry(store, &path, &mut |listed| {
            let is_directory =
                listed.link.is_none() && listed.attributes.kind == FileKind::Directory;
            let child = [&path, &b"/"[..], &listed.name].concat();
            match is_directory {
                true => directories.push((child, false)),
                false => files.push(child),
            }
            Ok(())
        })?;
        removed += files.len() as u64;
        store.with(|link| {
            for file in files {
                let file = FtpStore::resolve(link, &file);
                remove_entry(link, "remove", "DELE", &file)?;
            }
            Ok(())
        })?;
        open.push((path, true));
        open.append(&mut directories);
    }
    Ok(Answer::Removed { entries: removed })
}

impl FtpStore {
    /// Whether the server computes checksums of this kind; `false` if it can't be reached.
    pub(super) fn has_checksum(&self, kind: ChecksumKind) -> bool {
        let has = |link: &Link, algorithm| link.features.checksums.contains(&algorithm);
        let computes = self.with(|link| Ok(algorithm_of(kind).is_some_and(|own| has(link, own))));
        computes.unwrap_or(false)
    }
}

fn algorithm_of(kind: ChecksumKind) -> Option<Algorithm> {
    match kind {
        ChecksumKind::Crc64Nvme => Some(Algorithm::Crc64Nvme),
        ChecksumKind::Blake3 => Some(Algorithm::Blake3),
        ChecksumKind::Sha256 => Some(Algorithm::Sha256),
        ChecksumKind::Md5 => Some(Algorithm::Md5),
        _ => None,
    }
}

/// The value that hexadecimal digits stand for.
fn value_of(kind: ChecksumKind, digits: &str) -> Option<ChecksumValue> {
    let is_hexadecimal = digits.bytes().all(|byte| byte.is_ascii_hexdigit());
    fn bytes<const N: usize>(digits: &str) -> Option<[u8; N]> {
        let mut value = [0; N];
        if digits.len() != 2 * N {
            return None;
        }
        for (at, byte) in value.iter_mut().enumerate() {
            *byte = u8::from_str_radix(&digits[2 * at..2 * at + 2], 16).ok()?;
        }
        Some(value)
    }
    let digits = is_hexadecimal.then_some(digits)?;
    Some(match kind {
        ChecksumKind::Crc64Nvme => ChecksumValue::Crc64Nvme(u64::from_be_bytes(bytes(digits)?)),
        ChecksumKind::Blake3 => ChecksumValue::Blake3(bytes(digits)?),
        ChecksumKind::Sha256 => ChecksumValue::Sha256(bytes(digits)?),
        ChecksumKind::Md5 => ChecksumValue::Md5(bytes(digits)?),
        _ => return None,
    })
}

/// The checksum of a file: the server's if it computes this kind, or else of what is read.
fn checksum(
    store: &FtpStore,
    path: &[u8],
    offset: u64,
    length: Option<u64>,
    kind: ChecksumKind,
) -> Result<Answer, Fault> {
    let operation = "compute the digest of";
    let algorithm = algorithm_of(kind);
    let algorithm =
        algorithm.ok_or_else(|| lacking(operation, path, "this kind isn't known here"))?;
    let (size, digits) = store.with(|link| {
        let path = FtpStore::resolve(link, path);
        let found = FtpStore::look(link, &path)?.attributes;
        if found.kind == FileKind::Directory {
            let cause = "it is a directory";
            return Err(Fault::new(Code::IsDirectory, operation, cause).path(path));
        }
        let is_whole = offset == 0 && length.is_none_or(|length| length == found.size);
        if !is_whole || !link.features.checksums.contains(&algorithm) {
            return Ok((found.size, None));
        }
        let name = name_of(algorithm);
        let argument = [name.as_bytes(), b" 0 -1 ", &path].concat();
        link.command("CKSM", &argument)?;
        let reply = link.reply_within(operation, STALL.saturating_mul(60))?;
        match (reply.code, reply.lines.first()) {
            (213, Some(line)) => {
                let digits = String::from_utf8_lossy(line.trim_ascii()).into_owned();
                Ok((found.size, Some(digits)))
            }
            (500..=504, _) => Ok((found.size, None)),
            _ => Err(refused(operation, &path, &reply)),
        }
    })?;
    let wanted = length.unwrap_or_else(|| size.saturating_sub(offset));
    if offset.checked_add(wanted).is_none_or(|end| end > size) {
        let cause = format!("it has only {size} bytes");
        return Err(Fault::new(Code::OffsetPastEnd, operation, cause).path(path));
    }
    let digits = match digits {
        Some(digits) => digits,
        None => read_through(store, path, offset, wanted, algorithm)?,
    };
    let value = value_of(kind, &digits);
    let value = value
        .ok_or_else(|| violation(operation, "the server's checksum has another form").path(path))?;
    Ok(Answer::Digest {
        value,
        length: wanted,
    })
}

fn read_through(
    store: &FtpStore,
    path: &[u8],
    offset: u64,
    length: u64,
    kind: Algorithm,
) -> Result<String, Fault> {
    let mut source = store.open_source(path)?;
    let mut hasher = Hasher::new(kind);
    let (mut at, end) = (offset, offset + length);
    let mut piece = vec![0; 4 * PIECE_BYTES];
    while at < end {
        check_cancelled()?;
        let left = usize::try_from(end - at).unwrap_or(usize::MAX);
        let most = left.min(piece.len());
        let count = source.read_at(at, &mut piece[..most])?;
        hasher.update(&piece[..count]);
        at += count as u64;
        if count == 0 {
            let cause = "it ended early";
            return Err(Fault::new(Code::SourceChanged, "read", cause).path(path));
        }
    }
    source.verify_unchanged()?;
    Ok(hasher.finish())
}
