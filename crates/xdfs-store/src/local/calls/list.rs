//! Listing a directory, in parts and over several calls.
//!
//! A cursor says where to resume, so nothing is held open between calls. Where the file system has
//! stable positions, a cursor is such a position. Elsewhere names are returned in byte order, and
//! the cursor is the last one: each pass over the directory then collects as many names as fit into
//! memory. Either way a name that exists throughout is returned exactly once, whatever is added and
//! removed meanwhile.
//!
//! A cursor also identifies its directory, so that a replaced one is detected.

use std::io;
use std::ops::ControlFlow;

use xdfs_proto::path::{Answer, Attributes, Entry, PART_BYTES};
use xdfs_proto::{Code, Fault};
use xdfs_sys::fs::{self, Dir};

use super::super::path;
use super::{Paths, attributes, io_fault, kind, resolve_fault};

/// Approximate size of an entry without its name.
const ENTRY_BYTES: usize = 96;
/// Number of names held in memory when sorting.
const SORTED_MAX: usize = 65_536;
/// First byte of a cursor with a position.
const POSITION: u8 = 1;
/// First byte of a cursor with a name.
const NAME: u8 = 2;
/// Bytes of a cursor before its position or name: form, device and inode.
const HEAD_BYTES: usize = 1 + 8 + 8;

type Part<'a> = dyn FnMut(Answer) -> Result<(), Fault> + 'a;

pub(super) fn list(
    paths: &Paths<'_>,
    requested: &[u8],
    cursor: &[u8],
    entries_max: u32,
    part: &mut Part<'_>,
) -> Result<Answer, Fault> {
    paths.check(requested)?;
    if entries_max == 0 {
        let cause = "a listing must ask for at least one entry";
        return Err(Fault::new(Code::InvalidArgument, "", cause).path(requested));
    }
    let dir = paths.open(requested);
    let dir = dir.map_err(|error| resolve_fault(requested, &error))?;
    let by_position = dir.has_lasting_positions();
    list_open(&dir, by_position, requested, cursor, entries_max, part)
}

fn list_open(
    dir: &Dir,
    by_position: bool,
    requested: &[u8],
    cursor: &[u8],
    entries_max: u32,
    part: &mut Part<'_>,
) -> Result<Answer, Fault> {
    let meta = dir.meta().map_err(|error| io_fault(requested, &error))?;
    let (device, inode) = meta.identity.unwrap_or_default();
    let head = [
        &[if by_position { POSITION } else { NAME }][..],
        &device.to_be_bytes(),
        &inode.to_be_bytes(),
    ]
    .concat();
    debug_assert_eq!(head.len(), HEAD_BYTES);
    let start = match cursor.strip_prefix(&*head) {
        Some(start) => start,
        None if cursor.is_empty() => &[],
        None => return Err(bad_cursor(requested)),
    };
    let mut output = Output {
        dir,
        head,
        entries: Vec::new(),
        bytes: 0,
        left: entries_max,
        last: start.to_vec(),
        part,
        fault: None,
    };
    let ended = if by_position {
        let position = match start {
            [] => None,
            start => Some(u64::from_be_bytes(
                start.try_into().map_err(|_| bad_cursor(requested))?,
            )),
        };
        by_positions(&mut output, position)
    } else {
        by_names(&mut output)
    };
    let ended = ended.map_err(|error| match error.kind() {
        // Positions are numbers that only this file system can interpret.
        io::ErrorKind::InvalidInput if !start.is_empty() => bad_cursor(requested),
        _ => io_fault(requested, &error),
    })?;
    output.end(ended)
}

fn bad_cursor(requested: &[u8]) -> Fault {
    let cause = "the cursor isn't one of this directory; it may have been replaced";
    Fault::new(Code::InvalidArgument, "", cause)
        .path(requested)
        .hint("list it from the start")
}

/// Lists the directory in its own order. Returns whether its end was reached.
fn by_positions(output: &mut Output<'_, '_>, position: Option<u64>) -> io::Result<bool> {
    let dir = output.dir;
    let mut ended = true;
    dir.each_name(position, &mut |name, kind, next| {
        let after = next.unwrap_or(0).to_be_bytes();
        let flow = output.add(name.to_vec(), kind, Some(&after));
        ended &= flow.is_continue();
        flow
    })?;
    Ok(ended)
}

/// Lists the directory in the order of names. Returns whether its end was reached.
fn by_names(output: &mut Output<'_, '_>) -> io::Result<bool> {
    loop {
        let after = output.last.clone();
        // One more than wanted shows that there is more.
        let wanted = usize::try_from(output.left)
            .unwrap_or(usize::MAX)
            .saturating_add(1)
            .min(SORTED_MAX);
        let mut names = FirstNames::new(wanted);
        output.dir.each_name(None, &mut |name, kind, _| {
            if name > &*after && !path::is_hidden_name(name) {
                names.add(name, kind);
            }
            ControlFlow::Continue(())
        })?;
        let (names, dropped) = names.sorted();
        let last = names.last().map(|(name, _)| name.clone());
        for (name, kind) in names {
            if output.add(name, kind, None).is_break() {
                return Ok(false);
            }
        }
        let Some(last) = last.filter(|_| dropped) else {
            return Ok(true);
        };
        // Includes names that vanished.
        output.last = last;
    }
}

/// A name, and its kind if the directory tells it.
type Name = (Vec<u8>, Option<fs::FileKind>);

/// The first names of a directory, in byte order.
struct FirstNames {
    wanted: usize,
    /// At most twice as many as wanted.
    names: Vec<Name>,
    /// There are more names than wanted.
    dropped: bool,
}

impl FirstNames {
    fn new(wanted: usize) -> Self {
        Self {
            wanted,
            names: Vec::new(),
            dropped: false,
        }
    }

    fn add(&mut self, name: &[u8], kind: Option<fs::FileKind>) {
        self.names.push((name.to_vec(), kind));
        if self.names.len() / 2 >= self.wanted {
            self.shorten();
        }
    }

    /// Sorts the names, and drops those after the wanted ones.
    fn shorten(&mut self) {
        self.names.sort_unstable_by(|a, b| a.0.cmp(&b.0));
        // A name created again during the pass may be found twice.
        self.names.dedup_by(|a, b| a.0 == b.0);
        self.dropped |= self.names.len() > self.wanted;
        self.names.truncate(self.wanted);
    }

    /// The names, and whether any were dropped.
    fn sorted(mut self) -> (Vec<Name>, bool) {
        self.shorten();
        (self.names, self.dropped)
    }
}

/// Collects the entries of one call.
struct Output<'a, 'p> {
    dir: &'a Dir,
    /// The common beginning of all cursors.
    head: Vec<u8>,
    entries: Vec<Entry>,
    bytes: usize,
    /// Number of entries that this call may still return.
    left: u32,
    /// The rest of the cursor after the last entry.
    last: Vec<u8>,
    part: &'a mut Part<'p>,
    /// The fault returned by `part`.
    fault: Option<Fault>,
}

impl Output<'_, '_> {
    /// Adds a name, with the cursor after it, by default itself. Breaks before the first one too
    /// many.
    fn add(
        &mut self,
        name: Vec<u8>,
        listed: Option<fs::FileKind>,
        after: Option<&[u8]>,
    ) -> ControlFlow<()> {
        if path::is_hidden_name(&name) {
            return ControlFlow::Continue(());
        }
        let attributes = match self.dir.meta_of(&name) {
            Ok(Some(meta)) => attributes(&meta),
            // Removed concurrently.
            Ok(None) => return ControlFlow::Continue(()),
            Err(_) => unknown(listed),
        };
        if self.left == 0 {
            return ControlFlow::Break(());
        }
        if self.bytes >= PART_BYTES {
            let entries = std::mem::take(&mut self.entries);
            let cursor = Some(self.cursor());
            if let Err(fault) = (self.part)(Answer::Entries { entries, cursor }) {
                self.fault = Some(fault);
                return ControlFlow::Break(());
            }
            self.bytes = 0;
        }
        self.left -= 1;
        self.bytes += name.len() + ENTRY_BYTES;
        self.last.clear();
        self.last.extend(after.unwrap_or(&name));
        self.entries.push(Entry { name, attributes });
        ControlFlow::Continue(())
    }

    fn cursor(&self) -> Vec<u8> {
        [&*self.head, &self.last].concat()
    }

    fn end(self, ended: bool) -> Result<Answer, Fault> {
        let cursor = (!ended).then(|| self.cursor());
        match self.fault {
            Some(fault) => Err(fault),
            None => Ok(Answer::Entries {
                entries: self.entries,
                cursor,
            }),
        }
    }
}

/// Attributes of a name whose attributes can't be read.
fn unknown(listed: Option<fs::FileKind>) -> Attributes {
    Attributes {
        kind: listed.map_or(xdfs_proto::path::FileKind::Other, kind),
        size: 0,
        allocated: 0,
        mode: 0,
        uid: 0,
        gid: 0,
        links: 0,
        device: 0,
        inode: 0,
        atime_ns: 0,
        mtime_ns: 0,
        ctime_ns: 0,
    }
}

#[cfg(test)]
mod tests;
