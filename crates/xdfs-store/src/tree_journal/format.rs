//! The format of tree journals, without I/O.
//!
//! ```text
//! header, 64 bytes                          record
//!   0  magic "XDFSTREE"                       0  bytes of the body, u32
//!   8  version, u16 (2)                       4  CRC-32C, u32
//!  10  zero, u16                              8  body: kind u8, fields of the kind
//!  12  key, 32 bytes
//!  44  nonce, 16 bytes
//!  60  CRC-32C of the 60 bytes before, u32
//! ```
//!
//! Numbers are in network order. The check value of a record covers the header's check value, the
//! record's offset in the file, its length and its body, so a record of an older journal or from
//! another position does not pass. What follows the first record that fails its check is a torn
//! tail.

use std::collections::BTreeMap;
use std::io::{self, Read};
use std::ops::Bound;

use crc_fast::CrcAlgorithm;

const MAGIC: &[u8; 8] = b"XDFSTREE";
const VERSION: u16 = 2;
/// Size of the header.
pub const HEADER_BYTES: usize = 64;
/// Size of a record before its body.
pub const PREFIX_BYTES: usize = 8;
/// Size of a [`Claim`].
pub const CLAIM_BYTES: usize = 16;
/// Longest path in a record.
const PATH_BYTES_MAX: usize = u16::MAX as usize;
/// Maximum number of entries in a record.
const CLAIMS_MAX: usize = 4096;
/// Maximum size of a body.
const BODY_BYTES_MAX: usize = 64 + PATH_BYTES_MAX + CLAIMS_MAX * CLAIM_BYTES;

/// Record kinds.
mod kind {
    pub(super) const ROOT: u8 = 1;
    pub(super) const ENTRIES: u8 = 2;
    pub(super) const DIRECTORY: u8 = 3;
    pub(super) const FORGET: u8 = 4;
    pub(super) const FORGET_ENTRIES: u8 = 5;
    pub(super) const RUN: u8 = 6;
}

/// The tree to which a journal belongs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Header {
    /// Identifies the tree, its target and the metadata to be preserved.
    pub key: [u8; 32],
    /// Distinguishes successive journals of the same name, and makes claims unpredictable.
    pub nonce: [u8; 16],
}

/// A finished entry of a directory: its identity and version, as digests keyed by the journal.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Claim {
    /// Digest of kind, size and name.
    pub entry: u64,
    /// Digest of these and the modification time.
    pub version: u64,
}

/// The properties of an entry that go into its claim.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Mark {
    /// A number for the kind: 0 for a file, 1 for a symbolic link, 2 for a named pipe.
    pub kind: u8,
    /// Size of a file, else 0.
    pub size: u64,
    /// Modification time in nanoseconds since 1970-01-01 UTC.
    pub mtime_ns: i64,
}

/// Counts of a part of a tree.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Totals {
    /// Files.
    pub files: u64,
    /// Directories.
    pub directories: u64,
    /// Links and named pipes.
    pub others: u64,
    /// Bytes of the files.
    pub bytes: u64,
}

/// A directory finished with everything beneath it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Finished {
    /// Its counts, itself included.
    pub totals: Totals,
    /// Modification time set at the target, in nanoseconds since 1970-01-01 UTC; `None` if none was
    /// set. It changes when an entry is added or removed there.
    pub mtime_ns: Option<i64>,
}

/// The target of a tree.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Root {
    /// Its path there.
    pub path: Vec<u8>,
    /// Its inode number; 0 if unknown.
    pub inode: u64,
    /// Inode number of the tree's source; 0 if unknown.
    pub source_inode: u64,
    /// It existed before the tree, and keeps its mode.
    pub was_there: bool,
}

/// One record. Paths are those of directories, relative to the tree; empty for its root.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Record {
    /// The target of the tree.
    Root(Root),
    /// Finished entries of a directory, in several records if they don't fit into one.
    Entries(Vec<u8>, Vec<Claim>),
    /// A directory is finished with everything beneath it.
    Directory(Vec<u8>, Finished),
    /// Invalidates claims about a directory and everything beneath it.
    Forget(Vec<u8>),
    /// Invalidates claims about the entries of a directory.
    ForgetEntries(Vec<u8>),
    /// The start of a run (`false`) or its orderly end: everything was walked, and everything
    /// finished is claimed. The next run then skips nothing on the basis of earlier claims.
    Run(bool),
}

impl Totals {
    /// Adds the counts of another part.
    pub fn add(&mut self, other: &Self) {
        self.files = self.files.saturating_add(other.files);
        self.directories = self.directories.saturating_add(other.directories);
        self.others = self.others.saturating_add(other.others);
        self.bytes = self.bytes.saturating_add(other.bytes);
    }
}

impl Header {
    /// Encodes the header.
    #[must_use]
    pub fn encode(&self) -> [u8; HEADER_BYTES] {
        let mut out = [0; HEADER_BYTES];
        out[..8].copy_from_slice(MAGIC);
        out[8..10].copy_from_slice(&VERSION.to_be_bytes());
        out[12..44].copy_from_slice(&self.key);
        out[44..60].copy_from_slice(&self.nonce);
        let check = crc32c(&[&out[..60]]);
        out[60..].copy_from_slice(&check.to_be_bytes());
        out
    }

    /// Decodes a header; `None` if it is damaged or of another version.
    #[must_use]
    pub fn decode(bytes: &[u8; HEADER_BYTES]) -> Option<Self> {
        let mut at = Fields(bytes);
        let known = at.take::<8>()? == *MAGIC
            && at.take()? == VERSION.to_be_bytes()
            && at.take()? == [0; 2]
            && crc32c(&[&bytes[..60]]).to_be_bytes() == bytes[60..];
        let (key, nonce) = (at.take()?, at.take()?);
        known.then_some(Self { key, nonce })
    }

    /// The claim of an entry, by its name in a directory.
    #[must_use]
    pub fn claim(&self, directory: &[u8], name: &[u8], mark: Mark) -> Claim {
        let mut hasher = self.hasher(directory, name, mark);
        let entry = digest_word(&hasher);
        hasher.update(&mark.mtime_ns.to_be_bytes());
        Claim {
            entry,
            version: digest_word(&hasher),
        }
    }

    /// The part of the claim that doesn't depend on the modification time.
    #[must_use]
    pub fn claim_entry(&self, directory: &[u8], name: &[u8], mark: Mark) -> u64 {
        digest_word(&self.hasher(directory, name, mark))
    }

    fn hasher(&self, directory: &[u8], name: &[u8], mark: Mark) -> blake3::Hasher {
        let mut hasher = blake3::Hasher::new_keyed(&self.key);
        hasher.update(&self.nonce);
        hasher.update(&[mark.kind]);
        hasher.update(&mark.size.to_be_bytes());
        hasher.update(&(directory.len() as u64).to_be_bytes());
        hasher.update(directory);
        // A name precedes the time; its length separates them.
        hasher.update(&(name.len() as u64).to_be_bytes());
        hasher.update(name);
        hasher
    }
}

fn digest_word(hasher: &blake3::Hasher) -> u64 {
    let hash = hasher.finalize();
    let (first, _) = hash
        .as_bytes()
        .split_first_chunk()
        .unwrap_or((&[0; 8], &[]));
    u64::from_be_bytes(*first)
}

impl Record {
    /// Appends the record to `out`, for offset `at` of a file with this header.
    pub fn encode(&self, header: &Header, at: u64, out: &mut Vec<u8>) {
        match self {
            Self::Entries(path, claims) if claims.len() > CLAIMS_MAX => {
                let begin = out.len();
                for claims in claims.chunks(CLAIMS_MAX) {
                    let at = at + (out.len() - begin) as u64;
                    Self::Entries(path.clone(), claims.to_vec()).encode(header, at, out);
                }
            }
            _ => self.encode_one(header, at, out),
        }
    }

    fn encode_one(&self, header: &Header, at: u64, out: &mut Vec<u8>) {
        let begin = out.len();
        out.extend([0; PREFIX_BYTES]);
        match self {
            Self::Root(root) => {
                out.push(kind::ROOT);
                out.extend(root.inode.to_be_bytes());
                out.extend(root.source_inode.to_be_bytes());
                out.push(u8::from(root.was_there));
                out.extend(&root.path);
            }
            Self::Entries(path, claims) => {
                out.push(kind::ENTRIES);
                let length = u16::try_from(path.len()).unwrap_or(u16::MAX);
                out.extend(length.to_be_bytes());
                out.extend(path);
                for claim in claims {
                    out.extend(claim.entry.to_be_bytes());
                    out.extend(claim.version.to_be_bytes());
                }
            }
            Self::Directory(path, Finished { totals, mtime_ns }) => {
                out.push(kind::DIRECTORY);
                out.push(u8::from(mtime_ns.is_some()));
                out.extend(mtime_ns.unwrap_or(0).to_be_bytes());
                let Totals {
                    files,
                    directories,
                    others,
                    bytes,
                } = totals;
                for number in [files, directories, others, bytes] {
                    out.extend(number.to_be_bytes());
                }
                out.extend(path);
            }
            Self::Forget(path) => {
                out.push(kind::FORGET);
                out.extend(path);
            }
            Self::ForgetEntries(path) => {
                out.push(kind::FORGET_ENTRIES);
                out.extend(path);
            }
            Self::Run(ended) => out.extend([kind::RUN, u8::from(*ended)]),
        }
        let length = u32::try_from(out.len() - begin - PREFIX_BYTES).unwrap_or(u32::MAX);
        let check = record_check(header, at, length, &out[begin + PREFIX_BYTES..]);
        out[begin..begin + 4].copy_from_slice(&length.to_be_bytes());
        out[begin + 4..begin + PREFIX_BYTES].copy_from_slice(&check.to_be_bytes());
    }

    /// Decodes the body of a record.
    fn decode(body: &[u8]) -> Option<Self> {
        let mut at = Fields(body);
        let [kind] = at.take::<1>()?;
        let record = match kind {
            kind::ROOT => {
                let inode = u64::from_be_bytes(at.take()?);
                let source_inode = u64::from_be_bytes(at.take()?);
                let was_there = at.flag()?;
                let path = at.path()?;
                Self::Root(Root {
                    path,
                    inode,
                    source_inode,
                    was_there,
                })
            }
            kind::ENTRIES => {
                let length = usize::from(u16::from_be_bytes(at.take()?));
                let (path, claims) = at.0.split_at_checked(length)?;
                let (claims, rest) = claims.as_chunks::<CLAIM_BYTES>();
                if claims.len() > CLAIMS_MAX || !rest.is_empty() {
                    return None;
                }
                let claims = claims.iter().filter_map(|bytes| {
                    let mut at = Fields(bytes);
                    Some(Claim {
                        entry: u64::from_be_bytes(at.take()?),
                        version: u64::from_be_bytes(at.take()?),
                    })
                });
                Self::Entries(path.to_vec(), claims.collect())
            }
            kind::DIRECTORY => {
                let is_known = at.flag()?;
                let mtime_ns = i64::from_be_bytes(at.take()?);
                let mtime_ns = is_known.then_some(mtime_ns);
                let totals = Totals {
                    files: u64::from_be_bytes(at.take()?),
                    directories: u64::from_be_bytes(at.take()?),
                    others: u64::from_be_bytes(at.take()?),
                    bytes: u64::from_be_bytes(at.take()?),
                };
                Self::Directory(at.path()?, Finished { totals, mtime_ns })
            }
            kind::FORGET => Self::Forget(at.path()?),
            kind::FORGET_ENTRIES => Self::ForgetEntries(at.path()?),
            kind::RUN => {
                let ended = at.flag()?;
                if !at.0.is_empty() {
                    return None;
                }
                Self::Run(ended)
            }
            _ => return None,
        };
        Some(record)
    }
}

/// Reads records in sequence.
#[derive(Debug)]
pub struct Records<R> {
    input: R,
    header: Header,
    /// Bytes of the valid part; what follows is a torn tail.
    pub valid_bytes: u64,
    body: Vec<u8>,
}

impl<R: Read> Records<R> {
    /// Reads the header; `None` if it is damaged or of another version.
    ///
    /// # Errors
    /// An error of the input, other than its end.
    pub fn new(mut input: R) -> io::Result<Option<Self>> {
        let mut bytes = [0; HEADER_BYTES];
        if !fill(&mut input, &mut bytes)? {
            return Ok(None);
        }
        Ok(Header::decode(&bytes).map(|header| Self {
            input,
            header,
            valid_bytes: HEADER_BYTES as u64,
            body: Vec::new(),
        }))
    }

    /// The header of the journal.
    #[must_use]
    pub fn header(&self) -> &Header {
        &self.header
    }

    /// The next record; `None` at the end of the valid part.
    ///
    /// # Errors
    /// As [`Self::new`].
    pub fn next_record(&mut self) -> io::Result<Option<Record>> {
        let mut prefix = [0; PREFIX_BYTES];
        if !fill(&mut self.input, &mut prefix)? {
            return Ok(None);
        }
        let mut at = Fields(&prefix);
        let (Some(length), Some(check)) = (at.take(), at.take()) else {
            return Ok(None);
        };
        let length = u32::from_be_bytes(length);
        let bytes = length as usize;
        if bytes > BODY_BYTES_MAX {
            return Ok(None);
        }
        self.body.resize(bytes, 0);
        if !fill(&mut self.input, &mut self.body)?
            || record_check(&self.header, self.valid_bytes, length, &self.body).to_be_bytes()
                != check
        {
            return Ok(None);
        }
        let record = Record::decode(&self.body);
        if record.is_some() {
            self.valid_bytes += (PREFIX_BYTES + bytes) as u64;
        }
        Ok(record)
    }
}

/// Fills `out`; `false` if the input ends before.
fn fill(input: &mut impl Read, out: &mut [u8]) -> io::Result<bool> {
    match input.read_exact(out) {
        Ok(()) => Ok(true),
        Err(error) if error.kind() == io::ErrorKind::UnexpectedEof => Ok(false),
        Err(error) => Err(error),
    }
}

/// A map of directories by path.
#[derive(Clone, Debug)]
pub(super) struct Directories<T>(BTreeMap<Vec<u8>, T>);

impl<T> Default for Directories<T> {
    fn default() -> Self {
        Self(BTreeMap::new())
    }
}

impl<T: Default> Directories<T> {
    pub(super) fn get(&self, path: &[u8]) -> Option<&T> {
        self.0.get(path)
    }

    pub(super) fn get_mut(&mut self, path: &[u8]) -> Option<&mut T> {
        self.0.get_mut(path)
    }

    pub(super) fn entry(&mut self, path: &[u8]) -> &mut T {
        if !self.0.contains_key(path) {
            self.0.insert(path.to_vec(), T::default());
        }
        self.0.entry(path.to_vec()).or_default()
    }

    pub(super) fn iter(&self) -> impl Iterator<Item = (&Vec<u8>, &T)> {
        self.0.iter()
    }

    /// Entries from the path `first` on.
    fn from<'a>(&'a self, first: &[u8]) -> impl Iterator<Item = (&'a [u8], &'a T)> + use<'a, T> {
        let range = (Bound::Included(first), Bound::Unbounded);
        let range = self.0.range::<[u8], _>(range);
        range.map(|(path, value)| (&path[..], value))
    }

    pub(super) fn values_mut(&mut self) -> impl Iterator<Item = &mut T> {
        self.0.values_mut()
    }

    /// Removes a directory and everything beneath it.
    pub(super) fn remove(&mut self, path: &[u8], mut removed: impl FnMut(T)) {
        if path.is_empty() {
            std::mem::take(&mut self.0).into_values().for_each(removed);
            return;
        }
        if let Some(value) = self.0.remove(path) {
            removed(value);
        }
        let first = [path, b"/"].concat();
        while let Some(below) = self.below(&first) {
            if let Some(value) = self.0.remove(&below) {
                removed(value);
            }
        }
    }

    /// Whether there is an entry beneath a directory.
    pub(super) fn has_below(&self, path: &[u8]) -> bool {
        if path.is_empty() {
            return self.0.keys().any(|path| !path.is_empty());
        }
        self.below(&[path, b"/"].concat()).is_some()
    }

    fn below(&self, first: &[u8]) -> Option<Vec<u8>> {
        let range = (Bound::Included(first), Bound::Unbounded);
        let (path, _) = self.0.range::<[u8], _>(range).next()?;
        path.starts_with(first).then(|| path.clone())
    }
}

/// Claims about a directory.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct DirectoryClaims {
    /// Sorted by [`Claim::entry`] after reading; the latest of each entry is kept.
    pub(super) claims: Vec<Claim>,
    pub(super) finished: Option<Finished>,
}

/// The leading records, which name the target and claim nothing, encoded without the header.
#[derive(Clone, Debug, Default)]
pub(super) struct Lead {
    records: Vec<u8>,
    has_root: bool,
}

impl Lead {
    /// Adds a record at offset `begin` of the file, if it continues the lead.
    pub(super) fn note(&mut self, header: &Header, record: &Record, begin: u64) {
        let end = (HEADER_BYTES + self.records.len()) as u64;
        if begin == end && matches!(record, Record::Root(_) | Record::Run(false)) {
            record.encode(header, begin, &mut self.records);
            self.has_root |= matches!(record, Record::Root(_));
        }
    }

    /// The content that stays valid whatever else is in doubt.
    pub(super) fn encode(&self, header: &Header) -> Vec<u8> {
        match self.has_root {
            true => [&header.encode()[..], &self.records].concat(),
            false => Vec::new(),
        }
    }
}

/// The content of a journal: the frontier of finished directories and entries.
#[derive(Clone, Debug, Default)]
pub struct Earlier {
    pub(super) lead: Lead,
    pub(super) directories: Directories<DirectoryClaims>,
    /// Claims of runs before the last one that completed. The tree may have changed since: they
    /// identify what those runs created, and nothing is skipped because of them.
    pub(super) past: Directories<DirectoryClaims>,
    /// The target of the tree.
    pub root: Option<Root>,
    /// The last run ended in an orderly way: everything finished is claimed.
    pub is_complete: bool,
    /// There was an earlier run.
    pub has_run: bool,
    /// A run before the last one was interrupted, or a disk error left doubts: unclaimed entries
    /// may exist at the target, whatever later runs did.
    pub was_broken_off: bool,
    /// The previous run left nothing to do.
    pub was_whole: bool,
}

impl Earlier {
    /// Reads all records.
    ///
    /// # Errors
    /// An error of the input.
    pub fn read<R: Read>(records: &mut Records<R>) -> io::Result<Self> {
        let mut earlier = Self::default();
        let mut begin = records.valid_bytes;
        while let Some(record) = records.next_record()? {
            earlier.lead.note(records.header(), &record, begin);
            begin = records.valid_bytes;
            earlier.apply(record);
        }
        let known = earlier.directories.values_mut();
        known
            .chain(earlier.past.values_mut())
            .for_each(DirectoryClaims::tidy);
        Ok(earlier)
    }

    /// Starts a run. If the previous one completed, everything is checked again.
    pub fn begin_run(&mut self) {
        if !self.is_complete {
            return;
        }
        for (path, known) in std::mem::take(&mut self.directories).0 {
            if known.finished.is_some() {
                self.past.remove(&path, drop);
            }
            let past = self.past.entry(&path);
            past.finished = past.finished.or(known.finished);
            past.claims.extend(known.claims);
            past.tidy();
        }
    }

    fn apply(&mut self, record: Record) {
        match record {
            Record::Root(root) => self.root = Some(root),
            Record::Entries(path, claims) => {
                self.directories.entry(&path).claims.extend(claims);
            }
            Record::Directory(path, finished) => {
                self.past.remove(&path, drop);
                self.directories.remove(&path, drop);
                self.directories.entry(&path).finished = Some(finished);
            }
            Record::Forget(path) => {
                self.past.remove(&path, drop);
                self.directories.remove(&path, drop);
            }
            Record::ForgetEntries(path) => {
                if let Some(known) = self.directories.get_mut(&path) {
                    known.claims = Vec::new();
                }
            }
            Record::Run(ended) => {
                if !ended {
                    self.was_broken_off |= self.has_run && !self.is_complete;
                    self.begin_run();
                }
                self.has_run = true;
                self.is_complete = ended;
            }
        }
    }

    /// Whether there are no claims.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        let is_nothing = |k: &DirectoryClaims| k.claims.is_empty() && k.finished.is_none();
        let mut known = self.directories.iter().chain(self.past.iter());
        known.all(|(_, known)| is_nothing(known))
    }

    /// The claim about a directory finished with everything beneath it.
    #[must_use]
    pub fn finished(&self, directory: &[u8]) -> Option<Finished> {
        self.directories.get(directory)?.finished
    }

    /// The finished subdirectories of a directory: their names and claims.
    pub fn finished_in<'a>(
        &'a self,
        directory: &[u8],
    ) -> impl Iterator<Item = (&'a [u8], Finished)> + use<'a> {
        let first = match directory {
            b"" => Vec::new(),
            path => [path, b"/"].concat(),
        };
        let known = self.directories.from(&first);
        known
            .map_while({
                let first = first.clone();
                move |(path, known)| Some((path.strip_prefix(&first[..])?, known.finished))
            })
            .filter(|(name, _)| !name.is_empty() && !name.contains(&b'/'))
            .filter_map(|(name, finished)| Some((name, finished?)))
    }

    /// The claims about entries of a directory, sorted by [`Claim::entry`].
    #[must_use]
    pub fn claims(&self, directory: &[u8]) -> &[Claim] {
        self.directories.get(directory).map_or(&[], |k| &k.claims)
    }

    /// The claims about entries of a directory by completed runs, in the same order.
    #[must_use]
    pub fn past_claims(&self, directory: &[u8]) -> &[Claim] {
        self.past.get(directory).map_or(&[], |k| &k.claims)
    }

    /// Whether a completed run had finished a directory, by itself or with a parent.
    #[must_use]
    pub fn was_finished(&self, directory: &[u8]) -> bool {
        let is_finished = |path: &[u8]| self.past.get(path).is_some_and(|k| k.finished.is_some());
        let slashes = (0..directory.len()).filter(|at| directory[*at] == b'/');
        let mut above = slashes.map(|at| &directory[..at]);
        is_finished(directory) || is_finished(b"") || above.any(is_finished)
    }

    /// Whether anything in or beneath a directory is claimed.
    #[must_use]
    pub fn knows_of(&self, directory: &[u8]) -> bool {
        !self.claims(directory).is_empty() || self.directories.has_below(directory)
    }

    /// An equivalent sequence of records.
    pub fn records(&self) -> impl Iterator<Item = Record> + '_ {
        let root = self.root.iter().cloned().map(Record::Root);
        // If writing fails later, the lead still shows that there was a run.
        let runs = usize::from(self.has_run) + usize::from(self.was_broken_off);
        let root = root.chain(std::iter::repeat_n(Record::Run(false), runs));
        let past = self.past.records();
        // A directory without claims says nothing.
        let has_past = self.past.records().next().is_some();
        let between = [Record::Run(true), Record::Run(false)].into_iter();
        let past = past.chain(between.filter(move |_| has_past));
        // The start of the current run is recorded above.
        let run = self.is_complete.then_some(Record::Run(true));
        let known = self.directories.records();
        root.chain(past).chain(known).chain(run)
    }
}

impl Directories<DirectoryClaims> {
    /// An equivalent sequence of records.
    fn records(&self) -> impl Iterator<Item = Record> + '_ {
        self.iter().flat_map(|(path, known)| {
            let finished = known.finished.map(|t| Record::Directory(path.clone(), t));
            // In batches, so that many claims aren't held in memory twice.
            let claims = known.claims.chunks(CLAIMS_MAX);
            let claims = claims.map(|c| Record::Entries(path.clone(), c.to_vec()));
            finished.into_iter().chain(claims)
        })
    }
}

impl DirectoryClaims {
    /// Sorts the claims, and keeps the latest of each entry.
    fn tidy(&mut self) {
        let claims = &mut self.claims;
        // The latest first, so that it is kept.
        claims.reverse();
        claims.sort_by_key(|claim| claim.entry);
        claims.dedup_by_key(|claim| claim.entry);
        claims.shrink_to_fit();
    }
}

fn record_check(header: &Header, at: u64, length: u32, body: &[u8]) -> u32 {
    let own = header.encode();
    crc32c(&[&own[60..], &at.to_be_bytes(), &length.to_be_bytes(), body])
}

fn crc32c(parts: &[&[u8]]) -> u32 {
    let mut digest = crc_fast::Digest::new(CrcAlgorithm::Crc32Iscsi);
    for part in parts {
        digest.update(part);
    }
    // The 32-bit checksum comes in a wider type.
    digest.finalize() as u32
}

/// Takes fields off the front of a slice.
struct Fields<'a>(&'a [u8]);

impl Fields<'_> {
    fn take<const N: usize>(&mut self) -> Option<[u8; N]> {
        let (field, rest) = self.0.split_first_chunk::<N>()?;
        self.0 = rest;
        Some(*field)
    }

    fn flag(&mut self) -> Option<bool> {
        match self.take()? {
            [0] => Some(false),
            [1] => Some(true),
            _ => None,
        }
    }

    /// The remaining bytes.
    fn path(&self) -> Option<Vec<u8>> {
        (self.0.len() <= PATH_BYTES_MAX).then(|| self.0.to_vec())
    }
}
