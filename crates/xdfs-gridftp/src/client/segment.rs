//! Segments of MODE T: packs as one transfer each.

use std::borrow::Cow;
use std::collections::HashMap;

use xdfs_proto::pack::{Content, Entry, PackRequest, PackWriter};
use xdfs_proto::{Code, Fault, Retry};
use xdfs_store::PackOptions;

use super::channel::{Direction, Mode};
use super::fault::{refused, violation};
use super::features::name_of;
use super::incoming::Incoming;
use super::link::Link;
use super::listed::Listed;
use super::outgoing::Outgoing;
use super::pool::FtpStore;
use super::tree::{Tree, is_refusal, join};
use super::window::{fitting, is_fetched, metadata_of, read_windows, without_content};
use crate::archive::{
    ArchiveError, ArchiveWriter, FILE_BYTES_MAX, Kind, MEMBERS_MAX, Member, SEGMENT_BYTES_MAX,
    members, unpack,
};
use crate::checksum::{Algorithm, Hasher};
use crate::segment::{Closing, Numbers, RANGES_MAX, SegmentRequest, parse_failures};

const READ: &str = "read";
const STORE: &str = "store";
/// Bytes that are read at once.
const PIECE_BYTES: usize = 256 << 10;
/// Permission bits of files and directories of which none are known.
const FILE_MODE: u16 = 0o644;
const DIRECTORY_MODE: u16 = 0o755;
const NS: i64 = 1_000_000_000;

fn damaged(error: &ArchiveError) -> Fault {
    violation(READ, error.to_string())
}

fn digits(kind: Algorithm, bytes: &[u8]) -> String {
    let mut hasher = Hasher::new(kind);
    hasher.update(bytes);
    hasher.finish()
}

/// Reads a pack by segments; `false` if the server can't, or doesn't know its entries.
///
/// # Errors
/// As [`xdfs_store::Store::read_pack`].
pub(super) fn read(
    store: &FtpStore,
    root: &[u8],
    request: &PackRequest,
    pack: &mut PackWriter,
) -> Result<bool, Fault> {
    let tree = store.tree().filter(|tree| tree.is_at(root));
    let Some(tree) = tree else {
        return Ok(false);
    };
    let rows = request.names.iter().map(|name| tree.find(name));
    let Some(rows) = rows.collect::<Option<Vec<_>>>() else {
        return Ok(false);
    };
    let is_member = |listed: &Listed| {
        is_fetched(listed, request) && listed.attributes.size <= FILE_BYTES_MAX.into()
    };
    let content = |listed: &Listed| {
        if is_member(listed) {
            listed.attributes.size
        } else {
            0
        }
    };
    let count = fitting(
        &request.names,
        rows.iter().map(|(_, listed)| content(listed)),
        pack,
    );
    let rows = &rows[..count];
    let wanted = rows.iter().filter(|(_, listed)| is_member(listed));
    let mut wanted: Vec<_> = wanted.map(|(number, _)| *number).collect();
    wanted.sort_unstable();
    wanted.dedup();
    let mut link = store.take(Some((Direction::Receive, 1)))?;
    let mut archives = Vec::new();
    for numbers in wanted.chunks(count_at_once(&wanted)) {
        match fetch(store, &mut link, &tree, numbers) {
            Ok(archive) => archives.push(archive),
            Err(fault) => {
                let is_usable = link.is_usable();
                if is_usable {
                    store.give_back(link);
                }
                if is_refusal(&fault) && is_usable || store.falls_back(Mode::Extended, &fault) {
                    tracing::debug!(%fault, "a tree is not read by segments any more");
                    store.forget_tree();
                    return Ok(false);
                }
                return Err(fault.preventing(root));
            }
        }
    }
    let mut found = HashMap::new();
    for archive in &archives {
        for member in members(archive).map_err(|error| damaged(&error))? {
            let known = tree.find(&member.path);
            let is_wanted = known.is_some_and(|(number, listed)| {
                wanted.binary_search(&number).is_ok()
                    && listed.attributes.size == member.data.len() as u64
            });
            if member.kind != Kind::File || !is_wanted {
                let path = member.path.escape_ascii();
                return Err(violation(READ, format!("'{path}' wasn't asked for")).path(root));
            }
            found.insert(member.path.into_owned(), member.data);
        }
    }
    let written = write_entries(store, &mut link, root, request, rows, &found, pack);
    drop(found);
    for memory in archives {
        store.give_segment_memory(memory);
    }
    if link.is_usable() {
        store.give_back(link);
    }
    written
        .map(|()| true)
        .map_err(|fault| fault.preventing(root))
}

/// How many of ascending numbers a command may have, so that it has no more than [`RANGES_MAX`]
/// ranges.
fn count_at_once(numbers: &[u32]) -> usize {
    let breaks = numbers
        .windows(2)
        .filter(|pair| pair[0] + 1 != pair[1])
        .count();
    match breaks < RANGES_MAX {
        true => MEMBERS_MAX,
        false => RANGES_MAX,
    }
}

/// Adds the entries to a pack. Files that aren't in a segment have changed since, or can't be read:
/// they are asked for by themselves.
fn write_entries(
    store: &FtpStore,
    link: &mut Link,
    root: &[u8],
    request: &PackRequest,
    rows: &[(u32, &Listed)],
    found: &HashMap<Vec<u8>, &[u8]>,
    pack: &mut PackWriter,
) -> Result<(), Fault> {
    let resolved = FtpStore::resolve(link, root);
    for (name, (_, listed)) in request.names.iter().zip(rows) {
        let path = join(&resolved, name);
        let entry = match found.get(name) {
            Some(data) => Entry {
                path: name,
                metadata: metadata_of(listed),
                content: Content::File(data),
            },
            None if !is_fetched(listed, request) => without_content(name, &path, listed, request),
            None => {
                let before = pack.entries();
                let alone = PackRequest {
                    names: vec![name.clone()],
                    ..request.clone()
                };
                read_windows(store, link, &resolved, &alone, pack)?;
                match pack.entries() > before {
                    true => continue,
                    false => return Ok(()),
                }
            }
        };
        if !pack.entry(&entry) {
            return Ok(());
        }
    }
    Ok(())
}

/// Fetches a segment, and compares it. Returns the archive.
fn fetch(
    store: &FtpStore,
    link: &mut Link,
    tree: &Tree,
    numbers: &[u32],
) -> Result<Vec<u8>, Fault> {
    let numbers = Numbers::of(numbers.iter().copied());
    let numbers = numbers.ok_or_else(|| violation(READ, "there is nothing to ask for"))?;
    let compression = store.compression(link);
    let request = SegmentRequest {
        transaction: tree.transaction,
        compression,
        numbers,
    };
    link.prepare(Direction::Receive, Mode::Extended, 1)?;
    let argument = [format!("T {request} ").as_bytes(), &tree.root].concat();
    link.command("ERET", &argument)?;
    let mut incoming = Incoming::new(READ, &tree.root, Mode::Extended, 0, None);
    let (mut wire, mut filled) = (store.segment_memory(), 0);
    while !incoming.is_complete() {
        if wire.len() < filled + PIECE_BYTES {
            wire.resize(filled + PIECE_BYTES, 0);
        }
        filled += incoming.read(link, &mut wire[filled..])?;
        if filled > SEGMENT_BYTES_MAX {
            return Err(damaged(&ArchiveError::TooLarge).path(&tree.root));
        }
    }
    wire.truncate(filled);
    let said = incoming
        .confirmation()
        .and_then(|reply| reply.lines.first());
    let closing = said.and_then(|line| Closing::parse(line.trim_ascii()));
    let closing =
        closing.ok_or_else(|| violation(READ, "the server tells no checksum").path(&tree.root))?;
    let own = digits(Algorithm::Crc64Nvme, &wire);
    if own != closing.digits {
        let said = closing.digits;
        let cause = format!("CRC64NVME is {said} at the server and {own} of what came");
        let fault = Fault::new(Code::IntegrityMismatch, READ, cause);
        return Err(fault.path(&tree.root).retry(Retry::Now));
    }
    let archive = match unpack(compression, &wire).map_err(|error| damaged(&error))? {
        Cow::Owned(archive) => archive,
        Cow::Borrowed(_) => return Ok(wire),
    };
    store.note_compression(archive.len(), wire.len());
    store.give_segment_memory(wire);
    Ok(archive)
}

/// A segment to be stored, and which entries it has.
struct Leaving {
    writer: ArchiveWriter,
    numbers: Vec<usize>,
}

/// Stores files, directories and attributes by segments. Those that fail have it in `results`.
///
/// # Errors
/// The connection is of no use any more.
pub(super) fn write(
    store: &FtpStore,
    link: &mut Link,
    root: &[u8],
    options: PackOptions,
    entries: &[Entry<'_>],
    results: &mut [Result<(), Fault>],
) -> Result<(), Fault> {
    let mut leaving: Option<Leaving> = None;
    for (number, entry) in entries.iter().enumerate() {
        let Some(member) = member_of(entry).filter(|_| results[number].is_ok()) else {
            continue;
        };
        let writing = |error: std::io::Error| Fault::from_io(STORE, root, &error);
        let mut segment = match leaving.take() {
            Some(segment) => segment,
            None => Leaving {
                writer: ArchiveWriter::new(store.compression(link)).map_err(writing)?,
                numbers: Vec::new(),
            },
        };
        segment.writer.add(&member).map_err(writing)?;
        segment.numbers.push(number);
        match segment.writer.is_full() {
            true => send(store, link, root, options, segment, results)?,
            false => leaving = Some(segment),
        }
    }
    match leaving {
        Some(segment) => send(store, link, root, options, segment, results),
        None => Ok(()),
    }
}

/// Whether an entry can be in a segment.
pub(super) fn is_member(entry: &Entry<'_>) -> bool {
    member_of(entry).is_some()
}

fn member_of<'a>(entry: &Entry<'a>) -> Option<Member<'a>> {
    let (kind, data, mode) = match entry.content {
        Content::Attributes => (Kind::Attributes, &b""[..], DIRECTORY_MODE),
        Content::Directory => (Kind::Directory, &b""[..], DIRECTORY_MODE),
        Content::File(data) if data.len() <= FILE_BYTES_MAX as usize => {
            (Kind::File, data, FILE_MODE)
        }
        _ => return None,
    };
    Some(Member {
        path: Cow::Borrowed(entry.path),
        kind,
        mode: entry.metadata.mode.unwrap_or(mode),
        mtime_s: entry.metadata.mtime_ns.map(|time| time.div_euclid(NS)),
        data,
    })
}

fn send(
    store: &FtpStore,
    link: &mut Link,
    root: &[u8],
    options: PackOptions,
    segment: Leaving,
    results: &mut [Result<(), Fault>],
) -> Result<(), Fault> {
    let Leaving { writer, numbers } = segment;
    let (compression, bytes) = (writer.compression(), writer.bytes());
    let wire = writer.finish();
    let wire = wire.map_err(|error| Fault::from_io(STORE, root, &error))?;
    store.note_compression(bytes, wire.len());
    link.prepare(Direction::Send, Mode::Extended, 1)?;
    let how = if options.overwrite { "any" } else { "new" };
    let words = format!("T {} {how} ", compression.name());
    // A server with this mode takes all kinds.
    let kind = link.features.checksum().unwrap_or(Algorithm::Crc64Nvme);
    let announced = format!("{} {}", name_of(kind), digits(kind, &wire));
    link.command("SCKS", announced.as_bytes())?;
    link.command("ESTO", &[words.as_bytes(), root].concat())?;
    let announced = link.reply(STORE)?;
    let sent = match announced.code {
        200..300 => send_all(link, root, &wire),
        _ => {
            // ESTO is refused without it.
            link.reply(STORE)?;
            Err(refused(STORE, root, &announced))
        }
    };
    let failed = match sent {
        Ok(None) => return Ok(()),
        Ok(Some(rows)) => parse_failures(&rows, u32::try_from(numbers.len()).unwrap_or(u32::MAX))
            .ok_or_else(|| {
                let said = rows.join(&b' ');
                violation(STORE, format!("the server says {}", said.escape_ascii())).path(root)
            }),
        Err(fault) if !link.is_usable() => return Err(fault),
        Err(fault) => Err(fault),
    };
    for (at, number) in (0..).zip(numbers) {
        let fault = match &failed {
            Ok(failures) => failures.of(at).cloned(),
            Err(fault) => Some(fault.clone()),
        };
        if let Some(fault) = fault {
            results[number] = Err(fault);
        }
    }
    if failed.is_err() {
        link.close_channels();
    }
    Ok(())
}

/// Sends a segment for which ESTO is sent. Returns the rows about what could not be stored.
fn send_all(link: &mut Link, root: &[u8], wire: &[u8]) -> Result<Option<Vec<Vec<u8>>>, Fault> {
    let mut outgoing = Outgoing::begin(STORE, root, link)?;
    outgoing.write(link, wire)?;
    outgoing.end(link)?;
    outgoing.confirm_or_rows(link)
}
