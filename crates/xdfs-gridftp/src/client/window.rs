//! Small files read with commands sent ahead, one window after the other.
//!
//! In MODE E all files of a window travel over one data connection, one after the other; in stream
//! mode each needs one of its own.

use std::collections::VecDeque;

use xdfs_proto::pack::{Content, Entry, Metadata, PACK_BYTES_MAX, PackRequest, PackWriter};
use xdfs_proto::path::FileKind;
use xdfs_proto::{Code, Fault, Retry};

use super::channel::{Direction, Mode};
use super::fault::{is_unclear, lacking};
use super::features::name_of;
use super::fresh::{FRESH, being_written, is_fresh};
use super::incoming::Incoming;
use super::link::Link;
use super::listed::Listed;
use super::missing::Known;
use super::plain;
use super::pool::FtpStore;
use super::source::same_checksum;
use super::tree::join;
use crate::checksum::{Algorithm, Hasher};

/// Names that are looked at, and files that are asked for, in one round trip.
pub(super) const WINDOW: usize = 64;
/// Bytes of an entry beside its path and its content, at most.
const ENTRY_BYTES: usize = 64;

/// Reads names one window after the other, as far as the pack has room.
pub(super) fn read_windows(
    store: &FtpStore,
    link: &mut Link,
    root: &[u8],
    request: &PackRequest,
    pack: &mut PackWriter,
) -> Result<(), Fault> {
    for names in request.names.chunks(WINDOW) {
        if !read_window(store, link, root, request, names, pack)? {
            return Ok(());
        }
    }
    Ok(())
}

/// What is at each of some paths. A path that can't be sent fails by itself.
pub(super) fn look_at(
    link: &mut Link,
    paths: &[Vec<u8>],
) -> Result<Vec<Result<Listed, Fault>>, Fault> {
    if !link.features.mlst {
        return plain::look_at(link, paths);
    }
    let mut found = Vec::with_capacity(paths.len());
    let mut asked = Vec::with_capacity(paths.len());
    let mut unclear = Vec::new();
    for path in paths {
        asked.push(link.command("MLST", path));
    }
    let mut lacks_kinds = false;
    for (path, asked) in paths.iter().zip(asked) {
        found.push(match asked {
            Ok(()) => {
                let reply = link.reply("look at")?;
                lacks_kinds |= link.lacks_kinds(&reply);
                let looked = FtpStore::looked(path, &reply);
                looked.inspect_err(|fault| {
                    if is_unclear(&reply, fault) {
                        unclear.push((found.len(), reply.clone()));
                    }
                })
            }
            Err(fault) => Err(fault.path(path)),
        });
    }
    if lacks_kinds {
        return plain::look_at(link, paths);
    }
    let mut known = Known::default();
    for (number, reply) in unclear {
        if let Err(fault) = &mut found[number] {
            *fault = known.explain(link, &paths[number], &reply, fault.clone());
        }
    }
    Ok(found)
}

/// Whether the content of an entry belongs into a pack.
pub(super) fn is_fetched(listed: &Listed, request: &PackRequest) -> bool {
    let is_file = listed.attributes.kind == FileKind::File;
    let is_small = listed.attributes.size <= u64::from(request.file_bytes_max);
    is_file && listed.has_size && is_small && (request.follow || listed.link.is_none())
}

/// How many of the names, with so many bytes of content each, have room in a pack.
pub(super) fn fitting(
    names: &[Vec<u8>],
    contents: impl Iterator<Item = u64>,
    pack: &PackWriter,
) -> usize {
    let mut room = PACK_BYTES_MAX.saturating_sub(pack.len());
    let mut fitting = 0;
    for (name, content) in names.iter().zip(contents) {
        let bytes = usize::try_from(content).unwrap_or(usize::MAX);
        let bytes = bytes.saturating_add(name.len() + ENTRY_BYTES);
        if bytes > room && fitting + pack.entries() as usize > 0 {
            break;
        }
        room = room.saturating_sub(bytes);
        fitting += 1;
    }
    fitting
}

/// Reads some names; `false` if the pack has no room for the rest.
fn read_window(
    store: &FtpStore,
    link: &mut Link,
    root: &[u8],
    request: &PackRequest,
    names: &[Vec<u8>],
    pack: &mut PackWriter,
) -> Result<bool, Fault> {
    let paths: Vec<_> = names.iter().map(|name| join(root, name)).collect();
    let mut found = look_unless_listed(store, link, &paths)?;
    for (path, found) in paths.iter().zip(&mut found) {
        // A path that was listed may still be one for which nothing can be asked.
        if let (Ok(_), Err(fault)) = (&found, link.check_path(path)) {
            *found = Err(fault.path(path));
        }
    }
    let is_fetched = |listed: &Listed| is_fetched(listed, request);
    let kind = link.features.checksum();
    let mut looked = found.iter().flatten();
    if kind.is_none() && looked.any(|listed| is_fetched(listed) && is_fresh(listed)) {
        link.rest(FRESH)?;
        found = look_at(link, &paths)?;
    }
    let both = paths.iter().zip(&mut found);
    let both = both.filter_map(|(path, found)| Some((path, found.as_mut().ok()?)));
    match link.features.mlst {
        true => both.for_each(|(path, found)| store.told().complete(path, found)),
        false => plain::complete(store, link, both)?,
    }
    let contents = found.iter().map(|found| match found {
        Ok(listed) if is_fetched(listed) => listed.attributes.size,
        _ => 0,
    });
    let fitting = fitting(names, contents, pack);
    let mode = store.mode(link, Direction::Receive);
    let mut ahead = VecDeque::new();
    let fetched = |(path, found): &(&Vec<u8>, &Result<Listed, Fault>)| {
        let listed = found.as_ref().ok().filter(|listed| is_fetched(listed))?;
        Some(((*path).clone(), listed.attributes.size))
    };
    if mode == Mode::Extended && (kind.is_some() || link.features.mlst) {
        let both = paths.iter().zip(&found).take(fitting);
        let wanted: Vec<_> = both.filter_map(|both| fetched(&both)).collect();
        if !wanted.is_empty() {
            link.prepare(Direction::Receive, mode, 1)?;
        }
        for (path, size) in wanted {
            link.command("RETR", &path)?;
            ask_proof(link, &path, kind)?;
            ahead.push_back(Incoming::new("read", &path, mode, 0, Some(size)));
        }
    }
    for ((name, path), found) in names.iter().zip(&paths).zip(found).take(fitting) {
        let listed = match found {
            Ok(listed) => listed,
            Err(fault) => {
                if !pack.entry(&failed(name, fault)) {
                    return Ok(false);
                }
                continue;
            }
        };
        if !is_fetched(&listed) {
            if !pack.entry(&without_content(name, path, &listed, request)) {
                return Ok(false);
            }
            continue;
        }
        if kind.is_none() && is_fresh(&listed) {
            if !pack.entry(&failed(name, being_written(path))) {
                return Ok(false);
            }
            continue;
        }
        let size = listed.attributes.size;
        // In stream mode nothing is asked for while a file is on its way: some servers answer then
        // before the end of the file, and the answers can't be told apart.
        let (mut incoming, is_asked) = match ahead.pop_front() {
            Some(incoming) => (incoming, true),
            None => (store.request(link, "RETR", path, Some(size))?, false),
        };
        let metadata = metadata_of(&listed);
        let bytes = usize::try_from(size).unwrap_or(usize::MAX);
        let packed = pack.file(name, &metadata, bytes, |room| {
            let count = incoming.read(link, room)?;
            incoming.finish(link)?;
            if !is_asked {
                ask_proof(link, path, kind)?;
            }
            prove(link, (path, &listed), kind, &room[..count])?;
            Ok(count)
        });
        let packed = packed.map_err(|fault| incoming.explained(link, fault));
        match packed {
            Ok(true) => {}
            Ok(false) => return Ok(false),
            // The server has only refused it, or it has changed: the others may be well.
            Err(fault) if incoming.is_complete() || !incoming.has_started() => {
                if store.falls_back(mode, &fault) {
                    return Err(fault);
                }
                if is_asked && !incoming.has_started() {
                    link.reply("look at")?;
                }
                if !pack.entry(&failed(name, fault)) {
                    return Ok(false);
                }
            }
            // So may they be if this one has failed on its way.
            Err(fault) if incoming.has_ended() || fault.code == Code::SourceChanged => {
                if store.falls_back(mode, &fault) {
                    return Err(fault);
                }
                let has_room = pack.entry(&failed(name, fault));
                let is_alone = !is_asked && incoming.has_ended();
                // The files that were asked for ahead can't be distinguished from the rest of this
                // one: they are asked for again.
                let is_usable = link.abort(None);
                if !has_room || !is_alone || !is_usable {
                    return Ok(false);
                }
            }
            Err(fault) => return Err(fault),
        }
    }
    Ok(fitting == names.len())
}

/// What is at each of some paths: what was listed lately, or what is there now.
fn look_unless_listed(
    store: &FtpStore,
    link: &mut Link,
    paths: &[Vec<u8>],
) -> Result<Vec<Result<Listed, Fault>>, Fault> {
    let mut files = store.files();
    let listed: Vec<_> = paths.iter().map(|path| files.take(path)).collect();
    drop(files);
    let both = paths.iter().zip(&listed);
    let unknown = both.filter(|(_, listed)| listed.is_none());
    let unknown: Vec<_> = unknown.map(|(path, _)| path.clone()).collect();
    let mut looked = look_at(link, &unknown)?.into_iter();
    let found = listed.into_iter().map(|listed| match listed {
        Some(listed) => Some(Ok(listed)),
        None => looked.next(),
    });
    Ok(found.flatten().collect())
}

/// Asks for what shows that a file has come as it is: its checksum, or else its size and time.
fn ask_proof(link: &mut Link, path: &[u8], kind: Option<Algorithm>) -> Result<(), Fault> {
    match kind {
        None if link.features.mlst => link.command("MLST", path),
        kind => ask_checksum(link, path, kind),
    }
}

/// Asks for the checksum of a file, if the server computes any.
pub(super) fn ask_checksum(
    link: &mut Link,
    path: &[u8],
    kind: Option<Algorithm>,
) -> Result<(), Fault> {
    let Some(kind) = kind else {
        return Ok(());
    };
    let argument = [name_of(kind).as_bytes(), b" 0 -1 ", path].concat();
    link.command("CKSM", &argument)
}

/// Compares a received file, for which [`ask_proof`] has asked: by its checksum, or else it
/// has to have the size and the time that it had before.
fn prove(
    link: &mut Link,
    (path, before): (&[u8], &Listed),
    kind: Option<Algorithm>,
    content: &[u8],
) -> Result<(), Fault> {
    if let Some(kind) = kind {
        let reply = link.reply("compute the checksum of")?;
        let mut hasher = Hasher::new(kind);
        hasher.update(content);
        let is_exposed = link.features.is_exposed;
        if same_checksum(path, name_of(kind), &hasher.finish(), &reply, is_exposed)? {
            return Ok(());
        }
        // What this server says that it can do, it can't.
        link.features.checksums.clear();
    }
    let changed = |cause: &str| {
        let fault = Fault::new(Code::SourceChanged, "verify the source", cause);
        Err(fault.path(path).retry(Retry::Now))
    };
    if kind.is_some() && link.pending() > 0 {
        return changed("the server computes no checksum of it after all");
    }
    let found = match kind {
        None if link.features.mlst => FtpStore::looked(path, &link.reply("look at")?)?,
        _ => FtpStore::look(link, path)?,
    };
    let (found, before) = (found.attributes, &before.attributes);
    if (found.size, found.mtime_ns) == (before.size, before.mtime_ns) {
        return Ok(());
    }
    changed("its size or its time has changed meanwhile")
}

pub(super) fn metadata_of(listed: &Listed) -> Metadata<'_> {
    Metadata {
        mode: u16::try_from(listed.attributes.mode)
            .ok()
            .filter(|_| listed.has_mode),
        mtime_ns: listed.attributes.mtime(),
        ..Metadata::default()
    }
}

fn failed(path: &[u8], fault: Fault) -> Entry<'_> {
    Entry {
        path,
        metadata: Metadata::default(),
        content: Content::Failed(fault),
    }
}

pub(super) fn without_content<'a>(
    name: &'a [u8],
    path: &[u8],
    listed: &'a Listed,
    request: &PackRequest,
) -> Entry<'a> {
    let content = match (listed.attributes.kind, &listed.link) {
        (_, Some(target)) if !request.follow => Content::Symlink(target),
        (FileKind::Directory, _) => Content::Directory,
        (FileKind::File, _) if listed.has_size => Content::Large(listed.attributes.size),
        _ => {
            let cause = "the server doesn't tell what it is";
            return failed(name, lacking("read", path, cause));
        }
    };
    Entry {
        path: name,
        metadata: metadata_of(listed),
        content,
    }
}
