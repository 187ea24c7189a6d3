//! Segments: files to which the records of all parcels are appended.
//!
//! Each process writes segments of its own, so that nothing is ever appended behind a torn record.
//! The index says which records count; a record that it doesn't name was never acknowledged.

use std::collections::{BTreeMap, BTreeSet};
use std::fs::{self, File, OpenOptions};
use std::io::{self, IoSlice};
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use crc_fast::CrcAlgorithm;
use xdfs_proto::{Code, Fault, Retry};
use xdfs_sys::fs as system;

/// Size of the header of a record: magic, length of the payload, number of the parcel, offset,
/// CRC-32C of these and the payload.
pub(crate) const HEADER_BYTES: u64 = 4 + 4 + 8 + 8 + 4;
/// Longest payload of a record that is read: the engine merges writes up to 4 MiB.
const PAYLOAD_BYTES_MAX: u64 = 16 << 20;
const MAGIC: [u8; 4] = *b"xSeg";
/// Pause before a sender tries a full spool again.
const FULL_RETRY_MS: u32 = 2_000;

/// The part of a record that counts.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Extent {
    /// The segment; [`HOLE`] for zeros that aren't stored.
    pub(crate) segment: u64,
    /// Position of the record there.
    pub(crate) position: u64,
    /// Offset in the file of the record's payload.
    pub(crate) record_offset: u64,
    /// Length of the record's payload.
    pub(crate) record_bytes: u64,
    /// First byte of the file that counts.
    pub(crate) start: u64,
    /// End of what counts.
    pub(crate) end: u64,
}

/// Number of no segment.
pub(crate) const HOLE: u64 = u64::MAX;

impl Extent {
    pub(crate) fn hole(start: u64, end: u64) -> Self {
        Self {
            segment: HOLE,
            position: 0,
            record_offset: start,
            record_bytes: 0,
            start,
            end,
        }
    }

    /// Bytes that the part takes in its segment.
    pub(crate) fn stored_bytes(&self) -> u64 {
        match self.segment {
            HOLE => 0,
            _ => self.end - self.start,
        }
    }

    /// End of the record in its segment.
    pub(crate) fn record_end(&self) -> u64 {
        self.position + HEADER_BYTES + self.record_bytes
    }
}

/// One file.
#[derive(Debug)]
pub(crate) struct Segment {
    pub(crate) number: u64,
    file: File,
}

impl Segment {
    /// Reads the payload of a record, and verifies it.
    pub(crate) fn read(&self, parcel: u64, extent: &Extent) -> io::Result<Vec<u8>> {
        let damaged = || {
            let cause = format!("segment {} of the spool is damaged", self.number);
            io::Error::new(io::ErrorKind::InvalidData, cause)
        };
        if extent.record_bytes > PAYLOAD_BYTES_MAX {
            return Err(damaged());
        }
        let mut record = vec![0; (HEADER_BYTES + extent.record_bytes) as usize];
        let mut done = 0;
        while done < record.len() {
            let at = extent.position + done as u64;
            match system::read_at(&self.file, &mut record[done..], at)? {
                0 => return Err(damaged()),
                read => done += read,
            }
        }
        let payload = record.split_off(HEADER_BYTES as usize);
        let expected = header(parcel, extent.record_offset, &[IoSlice::new(&payload)]);
        match record == expected {
            true => Ok(payload),
            false => Err(damaged()),
        }
    }
}

/// The header of a record.
fn header(parcel: u64, offset: u64, bufs: &[IoSlice<'_>]) -> [u8; HEADER_BYTES as usize] {
    let bytes: usize = bufs.iter().map(|buf| buf.len()).sum();
    let mut header = [0; HEADER_BYTES as usize];
    header[..4].copy_from_slice(&MAGIC);
    // The caller bounds it.
    header[4..8].copy_from_slice(&u32::try_from(bytes).unwrap_or(u32::MAX).to_be_bytes());
    header[8..16].copy_from_slice(&parcel.to_be_bytes());
    header[16..24].copy_from_slice(&offset.to_be_bytes());
    let mut digest = crc_fast::Digest::new(CrcAlgorithm::Crc32Iscsi);
    digest.update(&header[..24]);
    bufs.iter().for_each(|buf| digest.update(buf));
    // The 32-bit checksum comes in a wider type.
    header[24..].copy_from_slice(&(digest.finalize() as u32).to_be_bytes());
    header
}

/// The segments of a spool.
#[derive(Debug)]
pub(crate) struct Segments {
    dir: PathBuf,
    segment_bytes: u64,
    reserve_bytes: u64,
    state: Mutex<State>,
    /// Held while files are synchronised, so that all who wait for the same bytes see the end.
    turn: Mutex<()>,
}

#[derive(Debug, Default)]
struct State {
    known: BTreeMap<u64, Arc<Segment>>,
    /// The one that is appended to, and its end.
    open: Option<(Arc<Segment>, u64)>,
    next: u64,
    /// Written since their last synchronisation.
    dirty: BTreeMap<u64, Arc<Segment>>,
    /// Their synchronisation failed: what was written and isn't in the index may be lost.
    failed: BTreeSet<u64>,
}

impl Segments {
    /// Opens the directory. Keeps the segments that the index names, each cut to the end of its
    /// last record there, and removes all others.
    pub(crate) fn open(
        dir: &Path,
        segment_bytes: u64,
        reserve_bytes: u64,
        indexed: &BTreeMap<u64, SegmentUse>,
    ) -> Result<Self, Fault> {
        let fault = |error: &io::Error| Fault::from_io("open the spool", path_bytes(dir), error);
        fs::create_dir_all(dir).map_err(|error| fault(&error))?;
        let mut state = State {
            next: indexed.keys().last().map_or(0, |last| last + 1),
            ..State::default()
        };
        for entry in fs::read_dir(dir).map_err(|error| fault(&error))? {
            let name = entry.map_err(|error| fault(&error))?.file_name();
            let Some(number) = number_of(&name.to_string_lossy()) else {
                continue;
            };
            state.next = state.next.max(number + 1);
            let path = dir.join(&name);
            let Some(own) = indexed.get(&number).filter(|own| own.live > 0) else {
                fs::remove_file(&path).map_err(|error| fault(&error))?;
                continue;
            };
            let opened = OpenOptions::new().read(true).write(true).open(&path);
            let file = opened.map_err(|error| fault(&error))?;
            let length = file.metadata().map_err(|error| fault(&error))?.len();
            if length > own.end {
                file.set_len(own.end).map_err(|error| fault(&error))?;
            }
            let segment = Arc::new(Segment { number, file });
            state.known.insert(number, segment);
        }
        let mut named = indexed.iter().filter(|(_, own)| own.live > 0);
        if let Some((lost, _)) = named.find(|(number, _)| !state.known.contains_key(number)) {
            let cause = format!("its segment {lost} is missing");
            return Err(Fault::new(Code::Io, "open the spool", cause).path(path_bytes(dir)));
        }
        Ok(Self {
            dir: dir.to_owned(),
            segment_bytes,
            reserve_bytes,
            state: Mutex::new(state),
            turn: Mutex::default(),
        })
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn fault(&self, operation: &str, error: &io::Error) -> Fault {
        let fault = Fault::from_io(operation, path_bytes(&self.dir), error);
        match fault.code {
            Code::NoSpace => full(fault),
            _ => fault,
        }
    }

    /// Appends a record. It counts once it was synchronised, and the index names it. The segment is
    /// kept for as long as the caller has it.
    pub(crate) fn append(
        &self,
        parcel: u64,
        offset: u64,
        bufs: &[IoSlice<'_>],
    ) -> Result<(Extent, Arc<Segment>), Fault> {
        let bytes: u64 = bufs.iter().map(|buf| buf.len() as u64).sum();
        let (segment, position) = self.reserve(HEADER_BYTES + bytes)?;
        let header = header(parcel, offset, bufs);
        let mut all = Vec::with_capacity(bufs.len() + 1);
        all.push(IoSlice::new(&header));
        all.extend(bufs.iter().map(|buf| IoSlice::new(buf)));
        system::write_all_at(&segment.file, &all, position)
            .map_err(|error| self.fault("write", &error))?;
        // After the write: a synchronisation in between doesn't cover it.
        let mut state = self.lock();
        state.dirty.insert(segment.number, Arc::clone(&segment));
        drop(state);
        let extent = Extent {
            segment: segment.number,
            position,
            record_offset: offset,
            record_bytes: bytes,
            start: offset,
            end: offset + bytes,
        };
        Ok((extent, segment))
    }

    /// A place for a record.
    fn reserve(&self, bytes: u64) -> Result<(Arc<Segment>, u64), Fault> {
        let mut state = self.lock();
        let is_full = |(_, end): &(_, u64)| *end > 0 && *end + bytes > self.segment_bytes;
        if state.open.as_ref().is_none_or(is_full) {
            let segment = self.create(state.next)?;
            state.next += 1;
            state.known.insert(segment.number, Arc::clone(&segment));
            state.open = Some((segment, 0));
        }
        let Some((segment, end)) = &mut state.open else {
            return Err(Fault::new(Code::Internal, "write", "there is no segment"));
        };
        // The index needs room to say that something was delivered, which frees the rest.
        if let Some(left) = system::space_left(&segment.file)
            && left < bytes.saturating_add(self.reserve_bytes)
        {
            let cause = "no space left in the spool";
            let fault = Fault::new(Code::NoSpace, "write", cause);
            return Err(full(fault.path(path_bytes(&self.dir))));
        }
        let position = *end;
        *end += bytes;
        Ok((Arc::clone(segment), position))
    }

    fn create(&self, number: u64) -> Result<Arc<Segment>, Fault> {
        let create = || {
            let path = self.dir.join(name_of(number));
            let mut options = OpenOptions::new();
            let file = options.read(true).write(true).create_new(true).open(path)?;
            File::open(&self.dir)?.sync_all()?;
            Ok(Arc::new(Segment { number, file }))
        };
        create().map_err(|error: io::Error| self.fault("write", &error))
    }

    /// Makes everything durable that was appended before.
    pub(crate) fn sync(&self) -> Result<(), Fault> {
        let _turn = self.turn.lock().unwrap_or_else(PoisonError::into_inner);
        let dirty = std::mem::take(&mut self.lock().dirty);
        let mut result = Ok(());
        for (number, segment) in dirty {
            if let Err(error) = segment.file.sync_data() {
                let mut state = self.lock();
                state.failed.insert(number);
                // What comes next has to be in a file whose errors are its own.
                if state
                    .open
                    .as_ref()
                    .is_some_and(|(open, _)| open.number == number)
                {
                    state.open = None;
                }
                result = Err(self.fault("synchronise", &error));
            }
        }
        result
    }

    /// Whether what was appended to a segment, and isn't in the index, may be lost.
    pub(crate) fn has_failed(&self, number: u64) -> bool {
        self.lock().failed.contains(&number)
    }

    /// A segment that the index names.
    pub(crate) fn get(&self, number: u64) -> Option<Arc<Segment>> {
        self.lock().known.get(&number).map(Arc::clone)
    }

    /// Removes the segments that nothing needs: those without a live byte to which nothing is
    /// written any more.
    pub(crate) fn remove_unused(&self, is_live: impl Fn(u64) -> bool) {
        let mut state = self.lock();
        let State {
            known, open, dirty, ..
        } = &mut *state;
        let open = open.as_ref().map(|(segment, _)| segment.number);
        let mut unused = Vec::new();
        known.retain(|number, segment| {
            let holders = 1 + usize::from(dirty.contains_key(number));
            let is_used =
                Some(*number) == open || is_live(*number) || Arc::strong_count(segment) > holders;
            if !is_used {
                unused.push(*number);
            }
            is_used
        });
        for number in unused {
            dirty.remove(&number);
            // If it stays, the next start removes it.
            let _ = fs::remove_file(self.dir.join(name_of(number)));
        }
    }

    /// Ends the open segment if nothing in it is live, so that its storage is freed.
    pub(crate) fn close_unused(&self, is_live: impl Fn(u64) -> bool) {
        let mut state = self.lock();
        let is_unused = |(segment, end): &(Arc<Segment>, u64)| {
            // Those of `known`, of `open`, and maybe of `dirty`.
            let holders = 2 + usize::from(state.dirty.contains_key(&segment.number));
            *end > 0 && !is_live(segment.number) && Arc::strong_count(segment) <= holders
        };
        if state.open.as_ref().is_some_and(is_unused) {
            state.open = None;
        }
    }
}

/// How much of a segment the index names.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct SegmentUse {
    /// Bytes that count.
    pub(crate) live: u64,
    /// End of the last record.
    pub(crate) end: u64,
}

/// The fault of a full spool, whose sender tries again.
pub(crate) fn full(fault: Fault) -> Fault {
    let hint = "it has room again when something was delivered";
    fault.hint(hint).retry(Retry::AfterMs(FULL_RETRY_MS))
}

pub(crate) fn path_bytes(path: &Path) -> &[u8] {
    path.as_os_str().as_encoded_bytes()
}

fn name_of(number: u64) -> String {
    format!("{number:08}.seg")
}

fn number_of(name: &str) -> Option<u64> {
    name.strip_suffix(".seg")?.parse().ok()
}
