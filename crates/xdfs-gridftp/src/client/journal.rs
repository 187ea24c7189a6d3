//! What is remembered of an upload: the name under which a server has the beginning of a file, and
//! checksums of this beginning.
//!
//! ```text
//! xdfs upload 1
//! tag 3f..                          the version of the source
//! length 1073741824
//! digest 1                          0 none, 1 CRC-64/NVME, 2 BLAKE3
//! hidden 2f64..                     the path at the server
//! part 0 8388608 MD5 5d41..         what each attempt has stored, one after the other
//! state 0 8388608 00d1..            what the digest of the transfer needs of it
//! end 77a0..                        BLAKE3 of all lines before
//! ```
//!
//! Bytes are written as hexadecimal digits. A file without its end, or of another version, says
//! nothing. It is locked as long as the upload lasts, so that of two uploads to one name one goes
//! on, and the other has a hidden name of its own.

use std::fmt::Write as _;
use std::fs::{self, File};
use std::io::{self, Read as _, Seek as _, Write as _};
use std::path::Path;
use std::time::Duration;

use xdfs_proto::digest::{DigestKind, Fragment, FragmentState};
use xdfs_proto::{ByteRange, SourceTag};
use xdfs_sys::fs::{Dir, is_ours, meta};
use xdfs_sys::trusted;

use super::features::name_of;
use crate::checksum::Algorithm;

const FIRST: &str = "xdfs upload 1\n";
/// Bytes of a journal that are read at most.
const BYTES_MAX: u64 = 1 << 20;
/// Attempts of one upload that are remembered.
pub(super) const PARTS_MAX: usize = 1000;
/// Journals that were not used for this long are removed.
const AGE_MAX: Duration = Duration::from_secs(60 * 24 * 60 * 60);
/// Servers end a session without progress before this time.
const SESSION_MAX: Duration = Duration::from_secs(5 * 60);
/// Prefix and suffix of their names.
const NAME: (&str, &str) = ("upload-", ".journal");

/// Bytes that the server has stored, and their checksum.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Part {
    pub(super) range: ByteRange,
    pub(super) kind: Algorithm,
    pub(super) checksum: String,
}

/// The content of a journal.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Record {
    pub(super) tag: SourceTag,
    pub(super) length: u64,
    pub(super) digest: DigestKind,
    pub(super) hidden: Vec<u8>,
    /// One after the other from the first byte on.
    pub(super) parts: Vec<Part>,
    /// The digest states of all parts together.
    pub(super) states: Vec<Fragment>,
}

/// The file of one upload, locked.
#[derive(Debug)]
pub(super) struct Journal {
    file: File,
    folder: Dir,
    name: String,
    is_empty: bool,
}

impl Journal {
    /// Opens the journal of the upload that `key` names. If it `creates` one, it removes those
    /// that are too old. Returns what an earlier attempt has recorded too. `None` if there is none,
    /// or another upload to the same name is under way.
    pub(super) fn open(
        folder: &Path,
        key: &[&[u8]],
        creates: bool,
    ) -> Option<(Self, Option<Record>)> {
        let mut hasher = blake3::Hasher::new();
        for part in key {
            hasher.update(&(part.len() as u64).to_be_bytes());
            hasher.update(part);
        }
        let name = &hasher.finalize().to_hex()[..32];
        let name = format!("{}{name}{}", NAME.0, NAME.1);
        if creates {
            let made = make_folder(folder);
            made.inspect_err(|error| tracing::debug!(%error, "an upload has no journal"))
                .ok()?;
            remove_old(folder, &name);
        }
        let path = folder.join(&name);
        let folder = Dir::open(folder).ok()?;
        let opened = match open_own(&folder, &name) {
            Err(error) if creates && error.kind() == io::ErrorKind::NotFound => {
                folder.create_new(name.as_bytes())
            }
            opened => opened,
        };
        let mut file = opened
            .inspect_err(|error| tracing::debug!(%error, "an upload has no journal"))
            .ok()?;
        trusted::check(&file, &path)
            .inspect_err(|error| tracing::warn!(%error, "the journal of an upload is not used"))
            .ok()?;
        file.try_lock().ok()?;
        let mut bytes = Vec::new();
        (&mut file).take(BYTES_MAX).read_to_end(&mut bytes).ok()?;
        let is_empty = bytes.is_empty();
        let earlier = String::from_utf8(bytes).ok();
        let earlier = earlier.and_then(|text| Record::decode(&text));
        let journal = Self {
            file,
            folder,
            name,
            is_empty,
        };
        Some((journal, earlier))
    }

    /// Whether the session of an earlier attempt can still be there.
    pub(super) fn is_recent(&self) -> bool {
        let written = self.file.metadata().and_then(|found| found.modified());
        written.is_ok_and(|at| at.elapsed().is_ok_and(|age| age < SESSION_MAX))
    }

    /// Replaces the content. What a power cut leaves of that says nothing.
    pub(super) fn write(&mut self, record: &Record) -> io::Result<()> {
        let text = record.encode();
        self.is_empty = false;
        self.file.rewind()?;
        self.file.write_all(text.as_bytes())?;
        self.file.set_len(text.len() as u64)?;
        self.file.sync_data()
    }

    /// There is nothing to go on with any more.
    pub(super) fn remove(mut self) {
        self.is_empty = true;
    }
}

impl Drop for Journal {
    /// Removes it if it says nothing, and unlocks it. Closing isn't enough: a process that another
    /// thread starts has a copy of the descriptor until it executes.
    fn drop(&mut self) {
        if self.is_empty
            && let Err(error) = self.folder.remove(self.name.as_bytes())
        {
            tracing::debug!(%error, "the journal of an upload stays");
        }
        // After a failure the lock ends with the last copy.
        let _ = self.file.unlock();
    }
}

fn make_folder(folder: &Path) -> io::Result<()> {
    let mut builder = fs::DirBuilder::new();
    builder.recursive(true);
    #[cfg(unix)]
    std::os::unix::fs::DirBuilderExt::mode(&mut builder, 0o700);
    builder.create(folder)
}

/// Opens a file of one's own, and nothing that somebody else has put there.
fn open_own(folder: &Dir, name: &str) -> io::Result<File> {
    let file = folder.open_existing(name.as_bytes())?;
    match file.metadata()?.is_file() && is_ours(&meta(&file)?) {
        true => Ok(file),
        false => Err(io::Error::other("it is no file of this user")),
    }
}

fn remove_old(folder: &Path, own: &str) {
    let (Ok(entries), Ok(folder)) = (fs::read_dir(folder), Dir::open(folder)) else {
        return;
    };
    for entry in entries.flatten() {
        let name = entry.file_name();
        let name = name.to_string_lossy();
        let is_other = name.starts_with(NAME.0) && name.ends_with(NAME.1) && name != own;
        let age = entry.metadata().and_then(|found| found.modified());
        let is_old = age.is_ok_and(|at| at.elapsed().is_ok_and(|age| age > AGE_MAX));
        let is_free = || open_own(&folder, &name).is_ok_and(|file| file.try_lock().is_ok());
        if is_other && is_old && is_free() {
            // Nobody needs it.
            let _ = folder.remove(name.as_bytes());
        }
    }
}

fn hex(bytes: &[u8]) -> String {
    let mut text = String::with_capacity(2 * bytes.len());
    for byte in bytes {
        let _ = write!(text, "{byte:02x}");
    }
    text
}

fn bytes_of(text: &str) -> Option<Vec<u8>> {
    let pairs = text.as_bytes().chunks(2);
    let byte = |pair: &[u8]| {
        let is_pair = pair.len() == 2 && pair.iter().all(u8::is_ascii_hexdigit);
        let digits = std::str::from_utf8(pair).ok().filter(|_| is_pair)?;
        u8::from_str_radix(digits, 16).ok()
    };
    pairs.map(byte).collect()
}

fn state_bytes(state: &FragmentState) -> Vec<u8> {
    match state {
        FragmentState::None => Vec::new(),
        FragmentState::Crc64Nvme(crc) => crc.to_be_bytes().to_vec(),
        FragmentState::Blake3 { node, root } => [&node[..], root].concat(),
    }
}

fn state_of(digest: DigestKind, bytes: &[u8]) -> Option<FragmentState> {
    match (digest, bytes.len()) {
        (DigestKind::None, 0) => Some(FragmentState::None),
        (DigestKind::Crc64Nvme, 8) => {
            let crc = bytes.try_into().ok().map(u64::from_be_bytes)?;
            Some(FragmentState::Crc64Nvme(crc))
        }
        (DigestKind::Blake3, 64) => Some(FragmentState::Blake3 {
            node: bytes[..32].try_into().ok()?,
            root: bytes[32..].try_into().ok()?,
        }),
        _ => None,
    }
}

fn digest_of(number: &str) -> Option<DigestKind> {
    match number {
        "0" => Some(DigestKind::None),
        "1" => Some(DigestKind::Crc64Nvme),
        "2" => Some(DigestKind::Blake3),
        _ => None,
    }
}

impl Record {
    /// Bytes that the parts have together.
    pub(super) fn bytes(&self) -> u64 {
        self.parts.last().map_or(0, |part| part.range.end)
    }

    fn encode(&self) -> String {
        let digest = match self.digest {
            DigestKind::Crc64Nvme => 1,
            DigestKind::Blake3 => 2,
            // Another one is not known here, and its states neither.
            _ => 0,
        };
        let (tag, hidden) = (hex(&self.tag.0), hex(&self.hidden));
        let length = self.length;
        let mut text =
            format!("{FIRST}tag {tag}\nlength {length}\ndigest {digest}\nhidden {hidden}\n");
        for Part {
            range: ByteRange { start, end },
            kind,
            checksum,
        } in &self.parts
        {
            let name = name_of(*kind);
            let _ = writeln!(text, "part {start} {end} {name} {checksum}");
        }
        for Fragment {
            range: ByteRange { start, end },
            state,
        } in &self.states
        {
            let state = hex(&state_bytes(state));
            let _ = writeln!(text, "state {start} {end} {state}");
        }
        let end = blake3::hash(text.as_bytes()).to_hex();
        let _ = writeln!(text, "end {end}");
        text
    }

    fn decode(text: &str) -> Option<Self> {
        let (body, end) = text.split_at_checked(text.trim_end().rfind('\n')? + 1)?;
        let is_whole = end.strip_suffix('\n')?.strip_prefix("end ")?
            == blake3::hash(body.as_bytes()).to_hex().as_str();
        if !is_whole {
            return None;
        }
        let mut lines = body.strip_prefix(FIRST)?.lines();
        let mut field = |name: &str| lines.next()?.strip_prefix(name)?.strip_prefix(' ');
        let tag = SourceTag(bytes_of(field("tag")?)?.try_into().ok()?);
        let length = field("length")?.parse().ok()?;
        let digest = digest_of(field("digest")?)?;
        let hidden = bytes_of(field("hidden")?)?;
        let mut record = Self {
            tag,
            length,
            digest,
            hidden,
            parts: Vec::new(),
            states: Vec::new(),
        };
        for line in lines {
            let words: Vec<_> = line.split(' ').collect();
            let range = |start: &str, end: &str| {
                let range = ByteRange {
                    start: start.parse().ok()?,
                    end: end.parse().ok()?,
                };
                (range.start < range.end && range.end <= length).then_some(range)
            };
            match words[..] {
                ["part", start, end, name, checksum] => {
                    let kind = Algorithm::from_name(name.as_bytes())?;
                    let part = Part {
                        range: range(start, end)?,
                        kind,
                        checksum: checksum.to_owned(),
                    };
                    let follows = part.range.start == record.bytes();
                    if !follows || !kind.is_checksum(checksum.as_bytes()) {
                        return None;
                    }
                    record.parts.push(part);
                }
                ["state", start, end, state] => record.states.push(Fragment {
                    range: range(start, end)?,
                    state: state_of(digest, &bytes_of(state)?)?,
                }),
                _ => return None,
            }
        }
        Some(record)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn record() -> Record {
        let range = |start, end| ByteRange { start, end };
        Record {
            tag: SourceTag([7; 16]),
            length: 100,
            digest: DigestKind::Crc64Nvme,
            hidden: b"/d/.a b\xff.ftp-part".to_vec(),
            parts: vec![
                Part {
                    range: range(0, 40),
                    kind: Algorithm::Md5,
                    checksum: "ab".repeat(16),
                },
                Part {
                    range: range(40, 64),
                    kind: Algorithm::Crc64Nvme,
                    checksum: "0".repeat(16),
                },
            ],
            states: vec![Fragment {
                range: range(0, 64),
                state: FragmentState::Crc64Nvme(5),
            }],
        }
    }

    #[test]
    fn what_is_written_is_read() {
        let mut record = record();
        assert_eq!(Record::decode(&record.encode()), Some(record.clone()));
        record.digest = DigestKind::Blake3;
        record.states[0].state = FragmentState::Blake3 {
            node: [1; 32],
            root: [2; 32],
        };
        assert_eq!(Record::decode(&record.encode()), Some(record.clone()));
        record.digest = DigestKind::None;
        record.states.clear();
        record.parts.clear();
        assert_eq!(record.bytes(), 0);
        assert_eq!(Record::decode(&record.encode()), Some(record));
    }

    #[test]
    fn what_is_damaged_says_nothing() {
        let text = record().encode();
        for at in 0..text.len() {
            assert_eq!(Record::decode(&text[..at]), None, "cut off at {at}");
            let mut bytes = text.clone().into_bytes();
            bytes[at] ^= 1;
            let text = String::from_utf8(bytes).unwrap();
            assert_eq!(Record::decode(&text), None, "another byte at {at}");
        }
        // What is whole and can't be true.
        let change = |change: fn(&mut Record)| {
            let mut record = record();
            change(&mut record);
            Record::decode(&record.encode())
        };
        assert_eq!(change(|record| record.length = 63), None);
        assert_eq!(change(|record| record.parts[1].range.start = 41), None);
        assert_eq!(change(|record| record.parts[0].checksum.push('a')), None);
        assert_eq!(change(|record| record.digest = DigestKind::None), None);
    }

    #[test]
    fn one_upload_has_the_journal() {
        let folder = tempfile::tempdir().unwrap();
        let folder = folder.path().join("uploads");
        let key: [&[u8]; 2] = [b"host", b"/d/a"];
        assert!(Journal::open(&folder, &key, false).is_none());
        let (mut journal, earlier) = Journal::open(&folder, &key, true).unwrap();
        assert_eq!(earlier, None);
        journal.write(&record()).unwrap();
        assert!(journal.is_recent());
        assert!(Journal::open(&folder, &key, true).is_none());
        let (other, _) = Journal::open(&folder, &[b"host", b"/d/b"], true).unwrap();
        drop((journal, other));
        // The other one says nothing.
        assert_eq!(fs::read_dir(&folder).unwrap().count(), 1);
        let (journal, earlier) = Journal::open(&folder, &key, false).unwrap();
        assert_eq!(earlier, Some(record()));
        let old = std::time::SystemTime::now() - 2 * SESSION_MAX;
        journal.file.set_modified(old).unwrap();
        assert!(!journal.is_recent());
        journal.remove();
        assert!(Journal::open(&folder, &key, false).is_none());
    }

    #[test]
    #[cfg(unix)]
    fn what_is_no_file_of_ones_own_is_left_alone() {
        let folder = tempfile::tempdir().unwrap();
        let key: [&[u8]; 1] = [b"host"];
        let (mut journal, _) = Journal::open(folder.path(), &key, true).unwrap();
        journal.write(&record()).unwrap();
        let path = folder.path().join(&journal.name);
        drop(journal);
        let other = folder.path().join("other");
        fs::rename(&path, &other).unwrap();
        std::os::unix::fs::symlink(&other, &path).unwrap();
        assert!(Journal::open(folder.path(), &key, true).is_none());
        fs::remove_file(&path).unwrap();
        let made = std::process::Command::new("mkfifo").arg(&path).status();
        assert!(made.unwrap().success());
        // It doesn't wait for a writer either.
        assert!(Journal::open(folder.path(), &key, true).is_none());
        assert!(path.exists());
    }
}
