//! Many small files in one operation, by packs: read into memory, fetched to this machine, or sent.
//!
//! The caller names each file; there is no tree to be walked. Files that a pack can't move, since
//! they are large, of another kind, or fail, are left to the caller, who moves them one by one and
//! gets the fault of each. A thread does the work, with a bounded number of packs in flight. The
//! package of Python calls it.

use std::collections::VecDeque;
use std::fmt;
use std::path::PathBuf;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::task::{Context, Poll, ready};
use std::thread;
use std::time::Duration;

use xdfs_engine::command::TransferKind;
use xdfs_engine::mailbox::{Mailbox, mailbox};
use xdfs_engine::{DownloadSpec, PackSource, Spares, UploadSpec};
use xdfs_proto::frame::Resume;
use xdfs_proto::pack::{
    Content, Entry, Failures, Metadata, PACK_BYTES_MAX, PACK_REQUEST_BYTES_MAX, PackReader,
    PackRequest, PackWriter, Preserve, is_path,
};
use xdfs_proto::{Code, DigestKind, Fault, Limits};
use xdfs_store::{LocalStore, PackOptions, Store};

use super::inspector::{PackInspector, PackTarget, Received};
use super::options::{PACK_BYTES_LONG, PACK_BYTES_SHORT, SET_ID, SMALL_BYTES_MAX};
use crate::client::Client;
use crate::local_path::path_bytes;
use crate::paths::{Answer, Call};
use crate::transfer::{Transfer, TransferOptions};

/// Packs in flight. A peer accepts 16 transfers, most of which are left to other operations.
const PACKS_AT_ONCE: usize = 4;
/// Bytes that a pack should have, between those that suit short and long paths.
const PACK_BYTES: usize = PACK_BYTES_SHORT * 2;
const _: () = assert!(PACK_BYTES < PACK_BYTES_LONG);
/// Names in the first requests, before it is known how large the files are, and in later ones.
const NAMES_FIRST: usize = 64;
const NAMES_MAX: usize = 4096;
/// Interval between two looks whether the operation was given up.
const LOOK: Duration = Duration::from_millis(100);

/// A small file that was moved.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct SmallFile {
    /// Its size in bytes; 0 for a directory.
    pub bytes: u64,
    /// Its content, if it was read into memory.
    pub content: Vec<u8>,
}

/// The content of a small file to send.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum SmallSource {
    /// These bytes.
    Bytes(Vec<u8>),
    /// A file of this machine, which keeps its modification time and permission bits.
    Path(PathBuf),
}

/// The outcome of each file, in their order. `None` for one that was left to the caller.
type Moved = Vec<Option<SmallFile>>;

/// Small files that are being moved. It is a future for any asynchronous runtime: polling never
/// blocks. Polled again after its end it fails with [`Code::Internal`]. Dropping it ends the
/// operation: packs in flight may still be carried out.
pub struct PendingSmallFiles {
    moved: Mailbox<Result<Moved, Fault>>,
    is_given_up: Arc<AtomicBool>,
}

impl Client {
    /// Starts to read small files: absolute paths on the server. Symbolic links are followed.
    ///
    /// # Errors
    /// The thread can't be started. The future fails if the session ends.
    pub fn read_small_files(&self, paths: Vec<Vec<u8>>) -> Result<PendingSmallFiles, Fault> {
        self.move_small_files(move |mover| mover.fetch(&paths, None))
    }

    /// Starts to fetch small files, from absolute paths on the server to absolute paths of this
    /// machine in directories that exist. Symbolic links on the server are followed; a local one
    /// beneath the directory of all targets is not. Existing files are replaced, and directories
    /// made. What was fetched is durable at the end.
    ///
    /// # Errors
    /// As [`Self::read_small_files`].
    pub fn fetch_small_files(
        &self,
        files: Vec<(Vec<u8>, PathBuf)>,
    ) -> Result<PendingSmallFiles, Fault> {
        let (from, to): (Vec<_>, Vec<_>) = files.into_iter().unzip();
        self.move_small_files(move |mover| {
            let to: Vec<_> = to.iter().map(|path| path_bytes(path)).collect();
            mover.fetch(&from, Some(&to))
        })
    }

    /// Starts to send small files to absolute paths on the server. Existing files are replaced, and
    /// missing directories made. What was sent is durable at the end.
    ///
    /// # Errors
    /// As [`Self::read_small_files`].
    pub fn send_small_files(
        &self,
        files: Vec<(SmallSource, Vec<u8>)>,
    ) -> Result<PendingSmallFiles, Fault> {
        self.move_small_files(move |mover| mover.send(files))
    }

    fn move_small_files(
        &self,
        work: impl FnOnce(&mut Mover) -> Result<Moved, Fault> + Send + 'static,
    ) -> Result<PendingSmallFiles, Fault> {
        let (sender, moved) = mailbox();
        let is_given_up = Arc::<AtomicBool>::default();
        let mut mover = Mover {
            client: self.share(),
            spares: Spares::default(),
            is_given_up: Arc::clone(&is_given_up),
        };
        let thread = thread::Builder::new().name("xdfs-small-files".into());
        let started = thread.spawn(move || {
            // An operation that was given up has no reader.
            let _ = sender.send(work(&mut mover));
        });
        started.map_err(|error| Fault::from_io("start a thread for", "", &error))?;
        Ok(PendingSmallFiles { moved, is_given_up })
    }
}

impl Future for PendingSmallFiles {
    type Output = Result<Moved, Fault>;

    fn poll(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Self::Output> {
        let ended = || Fault::new(Code::Internal, "move small files", "it has ended already");
        let moved = ready!(self.moved.poll_recv(context));
        Poll::Ready(moved.unwrap_or_else(|| Err(ended())))
    }
}

impl Drop for PendingSmallFiles {
    fn drop(&mut self) {
        self.is_given_up.store(true, Ordering::Relaxed);
    }
}

impl fmt::Debug for PendingSmallFiles {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("PendingSmallFiles").finish_non_exhaustive()
    }
}

/// Transfers of packs with what they carry. Dropping it cancels them.
struct InFlight<T>(VecDeque<(Transfer, T)>);

impl<T> InFlight<T> {
    fn new() -> Self {
        Self(VecDeque::new())
    }

    fn has_room(&self) -> bool {
        self.0.len() < PACKS_AT_ONCE
    }
}

impl<T> Drop for InFlight<T> {
    fn drop(&mut self) {
        for (transfer, _) in &self.0 {
            transfer.cancel();
        }
    }
}

/// The thread of an operation.
struct Mover {
    client: Client,
    spares: Spares,
    is_given_up: Arc<AtomicBool>,
}

/// The store that a requested pack passes, and the numbers of the files that it was asked for.
type Requested = (Arc<PackInspector>, Vec<usize>);

/// A directory of this machine, and the names beneath it that files get.
struct Here<'a> {
    store: LocalStore,
    root: &'a [u8],
    names: Vec<Option<&'a [u8]>>,
}

impl Mover {
    /// Fetches files into memory, or to paths of this machine.
    fn fetch(&self, paths: &[Vec<u8>], to: Option<&[Vec<u8>]>) -> Result<Moved, Fault> {
        let mut moved = vec![None; paths.len()];
        let (root, names) = beneath(paths);
        let here = to.map(|to| {
            let (root, names) = beneath(to);
            let store = LocalStore::unrooted().masking_modes();
            Here { store, root, names }
        });
        let has_place = |at: &usize| {
            let is_there = here.as_ref().is_none_or(|here| here.names[*at].is_some());
            is_there && names[*at].is_some()
        };
        let mut waiting: VecDeque<usize> = (0..paths.len()).filter(has_place).collect();
        // A request that follows links needs a channel whose server is known to do so.
        let path = root.to_vec();
        if !self.is_done(Call::Stat { path, follow: true })? {
            return Ok(moved);
        }
        let mut in_flight = InFlight::new();
        let mut names_max = NAMES_FIRST;
        let mut is_refused = false;
        loop {
            while in_flight.has_room() && !waiting.is_empty() && !is_refused {
                let request = self.request(root, &names, &mut waiting, names_max)?;
                in_flight.0.push_back(request);
            }
            let Some((transfer, (inspector, asked))) = in_flight.0.pop_front() else {
                break;
            };
            if self.wait(transfer)?.is_none() {
                // The others of the server would fail for the same reason.
                is_refused = true;
                continue;
            }
            let (count, bytes) = self.take(&inspector, &asked, here.as_ref(), &mut moved);
            // A pack has at least one of the names.
            is_refused = count == 0;
            let rest = asked.get(count..).unwrap_or_default();
            rest.iter().rev().for_each(|at| waiting.push_front(*at));
            let average = bytes.div_ceil(count.max(1)).max(1);
            names_max = (PACK_BYTES / average).clamp(1, NAMES_MAX);
        }
        if let Some(here) = here.filter(|_| moved.iter().any(Option::is_some)) {
            let path = here.root.to_vec();
            let synced = Store::call(&here.store, &Call::Sync { path }, &mut |_| Ok(()));
            if synced.is_err() {
                moved.fill(None);
            }
        }
        Ok(moved)
    }

    /// Requests the next names, as many as a request has room for.
    fn request(
        &self,
        root: &[u8],
        names: &[Option<&[u8]>],
        waiting: &mut VecDeque<usize>,
        names_max: usize,
    ) -> Result<(Transfer, Requested), Fault> {
        let (mut asked, mut wanted) = (Vec::new(), Vec::new());
        let mut name_bytes = 0;
        while let Some(at) = waiting.front().copied().filter(|_| asked.len() < names_max) {
            let name = names[at].unwrap_or_default();
            name_bytes += PackRequest::name_bytes(name);
            if name_bytes > PACK_REQUEST_BYTES_MAX && !asked.is_empty() {
                break;
            }
            waiting.pop_front();
            asked.push(at);
            wanted.push(name.to_vec());
        }
        let target = PackTarget::Kept(self.spares.clone());
        let keep = Preserve::default();
        let inspector = Arc::new(PackInspector::new(wanted.clone(), keep, target));
        let spec = DownloadSpec {
            source: root.to_vec(),
            store: Arc::clone(&inspector) as Arc<dyn Store>,
            target: b"/".to_vec(),
            name: Vec::new(),
            pack_request: Some(PackRequest {
                keep,
                follow: true,
                file_bytes_max: SMALL_BYTES_MAX,
                names: wanted,
            }),
        };
        let started = self
            .client
            .start(&options(), TransferKind::Download(spec))?;
        Ok((started, (inspector, asked)))
    }

    /// Takes what has arrived of the files that were asked for. Returns for how many of them there
    /// was room in the pack, and its size in bytes.
    fn take(
        &self,
        inspector: &PackInspector,
        asked: &[usize],
        here: Option<&Here<'_>>,
        moved: &mut Moved,
    ) -> (usize, usize) {
        let received = inspector.take();
        let Some((memory, length)) = inspector.take_kept() else {
            return (received.len(), 0);
        };
        let limits = Limits::default();
        let mut entries = PackReader::new(&memory[..length], &limits);
        let mut local = PackWriter::new(self.spares.take(0), PACK_BYTES_MAX);
        let mut written = Vec::new();
        for (at, received) in asked.iter().copied().zip(&received) {
            if !matches!(received, Received::Moved(_)) {
                continue;
            }
            let Some(Ok(entry)) = entries.next() else {
                break;
            };
            if let Some(here) = here {
                let is_moved = matches!(entry.content, Content::File(_) | Content::Directory);
                let name = here.names[at].unwrap_or_default();
                if is_moved && local.entry(&entry.at(name)) {
                    written.push((at, entry.bytes()));
                }
            } else if let Content::File(bytes) = entry.content {
                moved[at] = Some(SmallFile {
                    bytes: bytes.len() as u64,
                    content: bytes.to_vec(),
                });
            }
        }
        let (pack, pack_length) = local.finish();
        if let Some(here) = here.filter(|_| !written.is_empty()) {
            let how = PackOptions {
                overwrite: true,
                relaxed: false,
            };
            if let Ok(failures) = here.store.write_pack(here.root, how, &pack[..pack_length]) {
                note(&written, &failures, moved);
            }
        }
        self.spares.give(pack);
        self.spares.give(memory);
        (received.len(), length)
    }

    /// Sends files.
    fn send(&self, files: Vec<(SmallSource, Vec<u8>)>) -> Result<Moved, Fault> {
        let mut moved = vec![None; files.len()];
        let (sources, paths): (Vec<_>, Vec<_>) = files.into_iter().unzip();
        let (root, names) = beneath(&paths);
        let make = Call::MakeDirectory {
            path: root.to_vec(),
            mode: None,
            parents: true,
        };
        if !self.is_done(make)? {
            return Ok(moved);
        }
        let mut in_flight = InFlight::new();
        let mut pack = self.begin_pack();
        let mut carried = Vec::new();
        for (at, source) in sources.into_iter().enumerate() {
            let Some(name) = names[at] else { continue };
            let Ok(Some((bytes, metadata))) = source.content() else {
                continue;
            };
            if !pack.is_empty() && pack.len() + bytes.len() > PACK_BYTES {
                let full = std::mem::replace(&mut pack, self.begin_pack());
                let sent = self.send_pack(root, full)?;
                in_flight.0.push_back((sent, std::mem::take(&mut carried)));
                if !in_flight.has_room() && !self.settle(&mut in_flight, &mut moved)? {
                    return self.synced(root, in_flight, moved);
                }
            }
            let entry = Entry {
                path: name,
                metadata,
                content: Content::File(&bytes),
            };
            if pack.entry(&entry) {
                carried.push((at, bytes.len() as u64));
            }
        }
        if !pack.is_empty() {
            in_flight
                .0
                .push_back((self.send_pack(root, pack)?, carried));
        }
        self.synced(root, in_flight, moved)
    }

    fn begin_pack(&self) -> PackWriter {
        PackWriter::new(self.spares.take(0), PACK_BYTES_MAX)
    }

    fn send_pack(&self, root: &[u8], pack: PackWriter) -> Result<Transfer, Fault> {
        let (memory, length) = pack.finish();
        let spec = UploadSpec {
            source: Box::new(PackSource::new(memory, length, self.spares.clone())),
            source_path: Vec::new(),
            target: root.to_vec(),
            name: Vec::new(),
            pack: true,
            relaxed: false,
            last: None,
        };
        self.client.start(&options(), TransferKind::Upload(spec))
    }

    /// Waits for the first pack in flight. Returns whether it was carried out.
    fn settle(
        &self,
        in_flight: &mut InFlight<Vec<(usize, u64)>>,
        moved: &mut Moved,
    ) -> Result<bool, Fault> {
        let Some((transfer, carried)) = in_flight.0.pop_front() else {
            return Ok(true);
        };
        let Some(failures) = self.wait(transfer)? else {
            return Ok(false);
        };
        note(&carried, &failures, moved);
        Ok(true)
    }

    /// Waits for the packs in flight, and makes durable what was sent.
    fn synced(
        &self,
        root: &[u8],
        mut in_flight: InFlight<Vec<(usize, u64)>>,
        mut moved: Moved,
    ) -> Result<Moved, Fault> {
        while !in_flight.0.is_empty() {
            self.settle(&mut in_flight, &mut moved)?;
        }
        let path = root.to_vec();
        if moved.iter().any(Option::is_some) && !self.is_done(Call::Sync { path })? {
            moved.fill(None);
        }
        Ok(moved)
    }

    /// Makes a call, and returns whether it succeeded.
    ///
    /// # Errors
    /// The session has ended.
    fn is_done(&self, call: Call) -> Result<bool, Fault> {
        match self.client.call(call) {
            Ok(Answer::Attributes(_) | Answer::Done) => Ok(true),
            Err(fault) if fault.ends_session => Err(fault),
            Ok(_) | Err(_) => Ok(false),
        }
    }

    /// Waits for a pack; `None` if it failed as a whole.
    ///
    /// # Errors
    /// The session has ended, or the operation was given up.
    fn wait(&self, mut transfer: Transfer) -> Result<Option<Failures>, Fault> {
        while !transfer.is_finished() {
            if self.is_given_up.load(Ordering::Relaxed) {
                transfer.cancel();
                return Err(Fault::new(Code::Cancelled, "copy", "it was given up"));
            }
            // Progress is not reported.
            let _ = transfer.progress(LOOK);
        }
        match transfer.wait_for_pack() {
            Ok((failures, _)) => Ok(Some(failures)),
            Err(fault) if fault.ends_session => Err(fault),
            Err(_) => Ok(None),
        }
    }
}

impl SmallSource {
    /// The content, and the metadata to send with it; `None` if it isn't a small file.
    fn content(self) -> Result<Option<(Vec<u8>, Metadata<'static>)>, Fault> {
        let path = match self {
            Self::Bytes(bytes) => {
                let is_small = bytes.len() <= SMALL_BYTES_MAX as usize;
                return Ok(is_small.then(|| (bytes, Metadata::default())));
            }
            Self::Path(path) => path,
        };
        let mut source = LocalStore::unrooted().open_source(&path_bytes(&path))?;
        let info = source.info().clone();
        let small = |length: &u64| *length <= u64::from(SMALL_BYTES_MAX);
        let Some(length) = info.length.filter(small).filter(|_| info.random_reads) else {
            return Ok(None);
        };
        // At most `SMALL_BYTES_MAX`.
        let mut bytes = vec![0; usize::try_from(length).unwrap_or(usize::MAX)];
        let mut filled = 0;
        while filled < bytes.len() {
            match source.read_at(filled as u64, &mut bytes[filled..])? {
                0 => return Ok(None),
                count => filled += count,
            }
        }
        source.verify_unchanged()?;
        let mode = info.mode.map(|mode| mode & 0o7777 & !SET_ID);
        let metadata = Metadata {
            mode: mode.and_then(|mode| u16::try_from(mode).ok()),
            mtime_ns: info.mtime_ns,
            sparse: info.sparse,
            ..Metadata::default()
        };
        Ok(Some((bytes, metadata)))
    }
}

/// An entry that gets another name.
trait Renamed {
    /// This entry under another name. A directory is given no metadata: it isn't complete yet.
    fn at<'a>(&'a self, path: &'a [u8]) -> Entry<'a>;

    /// The size of its content.
    fn bytes(&self) -> u64;
}

impl Renamed for Entry<'_> {
    fn at<'a>(&'a self, path: &'a [u8]) -> Entry<'a> {
        let is_file = matches!(self.content, Content::File(_));
        Entry {
            path,
            metadata: Metadata {
                mode: self.metadata.mode.filter(|_| is_file),
                mtime_ns: self.metadata.mtime_ns.filter(|_| is_file),
                sparse: self.metadata.sparse,
                ..Metadata::default()
            },
            content: self.content.clone(),
        }
    }

    fn bytes(&self) -> u64 {
        match &self.content {
            Content::File(bytes) => bytes.len() as u64,
            _ => 0,
        }
    }
}

/// Notes the entries of a pack that didn't fail.
fn note(carried: &[(usize, u64)], failures: &Failures, moved: &mut Moved) {
    for (number, (at, bytes)) in (0..).zip(carried) {
        if failures.of(number).is_none() {
            moved[*at] = Some(SmallFile {
                bytes: *bytes,
                content: Vec::new(),
            });
        }
    }
}

/// Packs replace existing files; their blocks are checked one by one.
fn options() -> TransferOptions {
    let mut options = TransferOptions::default();
    options.parameters.overwrite = true;
    options.parameters.digest = Some(DigestKind::None);
    options.parameters.resume = Resume::Never;
    options
}

/// The directory of all paths, and their names from there; `None` for a path that a pack can't
/// have.
fn beneath(paths: &[Vec<u8>]) -> (&[u8], Vec<Option<&[u8]>>) {
    let limits = Limits::default();
    let is_fit = |path: &&Vec<u8>| {
        let name = path.strip_prefix(b"/");
        name.is_some_and(|name| !name.is_empty() && is_path(name, &limits))
    };
    // It ends in a slash.
    let up_to_slash = |path: &[u8]| {
        let slash = path.iter().rposition(|byte| *byte == b'/');
        slash.map_or(0, |at| at + 1)
    };
    let mut directories = paths.iter().filter(is_fit).map(|path| {
        let end = up_to_slash(path);
        &path[..end]
    });
    let first = directories.next().unwrap_or(b"/");
    let common = directories.fold(first, |common, directory| {
        let shared = common
            .iter()
            .zip(directory)
            .take_while(|(one, other)| one == other);
        let shared = &common[..shared.count()];
        &common[..up_to_slash(shared)]
    });
    let names = paths.iter().map(|path| {
        let path = Some(path).filter(is_fit)?;
        path.get(common.len()..)
    });
    let names = names.collect();
    let root = common.strip_suffix(b"/").filter(|root| !root.is_empty());
    (root.unwrap_or(b"/"), names)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn paths_have_names_beneath_their_common_directory() {
        let paths = |paths: &[&str]| -> Vec<Vec<u8>> {
            paths.iter().map(|path| path.as_bytes().to_vec()).collect()
        };
        for (given, root, names) in [
            (&["/a/b/c", "/a/b/d"][..], "/a/b", &["c", "d"][..]),
            (&["/a/b/c", "/a/bc"], "/a", &["b/c", "bc"]),
            (&["/a", "/b/c"], "/", &["a", "b/c"]),
            (&["/ab/x", "/ac/x"], "/", &["ab/x", "ac/x"]),
            (&["/one"], "/", &["one"]),
            (&[], "/", &[]),
        ] {
            let given = paths(given);
            let (found, of) = beneath(&given);
            assert_eq!(found, root.as_bytes(), "{given:?}");
            let of: Vec<_> = of.into_iter().map(Option::unwrap).collect();
            let names: Vec<_> = names.iter().map(|name| name.as_bytes()).collect();
            assert_eq!(of, names, "{given:?}");
        }
        let odd = paths(&[
            "/a/../b", "relative", "/", "", "//x", "/d/e/", "/a/./b", "/a/b",
        ]);
        let (root, names) = beneath(&odd);
        assert_eq!(root, b"/a");
        assert_eq!(names.iter().flatten().count(), 1);
        assert_eq!(names[7], Some(&b"b"[..]));
    }
}
