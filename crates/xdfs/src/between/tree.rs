//! A tree on its way from a server to another: one walk, and several files at a time.
//!
//! Each file is a copy of its own, which the two servers can do without this process. What isn't a
//! file or a directory is reported, and stays behind.

use std::collections::VecDeque;
use std::ops::ControlFlow;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::mpsc::{Receiver, RecvTimeoutError, SyncSender, sync_channel};
use std::sync::{Mutex, PoisonError};
use std::thread;
use std::time::{Duration, Instant};

use xdfs_engine::TimeSum;
use xdfs_proto::path::{Attributes, Call, FileKind};
use xdfs_proto::{Code, Fault, Retry};

use super::ServerFile;
use super::origin::look;
use crate::client::{Client, last_part};
use crate::events::{Observer, SyncStep, TransferResult, TreeEvent, TreeResult};
use crate::paths::join;
use crate::retry::RetryPolicy;
use crate::transfer::{LocalPlace, TransferOptions};
use crate::tree::TreeOptions;
use crate::tree::session::{RemoteCall, TreeSession};

/// Files at a time.
const FILES_MAX: usize = 8;
/// Files and events that wait.
const WAITING: usize = 256;
/// Directories whose times are set at the end, and that wait to be listed.
const DIRECTORIES_MAX: usize = 1_000_000;
/// Bytes of their paths.
const PATH_BYTES_MAX: usize = 256 << 20;
/// Calls at once that finish directories.
const CALLS_MAX: usize = 32;
/// What a directory has to permit while something is made in it.
const OPEN_MODE: u32 = 0o700;
/// Interval of progress, and of looks at whether the copy is still wanted.
const TICK: Duration = Duration::from_millis(100);
const OPERATION: &str = "copy a tree between servers";

/// A copy that runs.
struct TreeCourse<'a> {
    source: &'a ServerFile,
    from: &'a Client,
    to: &'a Client,
    /// The session with the target, which another one replaces when it breaks.
    session: TreeSession<'a>,
    /// The root of the tree at the target.
    root: Vec<u8>,
    /// It existed, and keeps its mode and time: it may be the root of an export.
    keeps_root: bool,
    options: &'a TreeOptions,
    is_stopped: AtomicBool,
    in_flight_bytes: AtomicU64,
}

/// A file to be copied, by its path beneath the roots.
struct FoundFile(Vec<u8>);

/// A directory that gets its mode and time once nothing more is made in it.
struct MadeDirectory {
    path: Vec<u8>,
    /// Its permission bits; 0 if they aren't known.
    mode: u32,
    mtime_ns: i64,
}

/// Directories that wait to be listed.
#[derive(Default)]
struct Unlisted {
    directories: Vec<(Vec<u8>, Attributes)>,
    /// Directories that were found so far, and the bytes of their paths.
    found: usize,
    path_bytes: usize,
}

impl Unlisted {
    /// Adds a directory.
    ///
    /// # Errors
    /// The tree has too many of them.
    fn add(&mut self, path: Vec<u8>, attributes: Attributes) -> Result<(), Fault> {
        self.found += 1;
        self.path_bytes += path.len();
        if self.found > DIRECTORIES_MAX || self.path_bytes > PATH_BYTES_MAX {
            let cause = format!(
                "it has more than {DIRECTORIES_MAX} directories, or more than {} MiB of paths",
                PATH_BYTES_MAX >> 20
            );
            return Err(Fault::new(Code::LimitExceeded, OPERATION, cause));
        }
        self.directories.push((path, attributes));
        Ok(())
    }
}

enum Event {
    Directory,
    Failed(Vec<u8>, Fault),
    File(TransferResult),
    /// Would be copied, with so many bytes.
    Step(Vec<u8>, u64),
}

impl Client {
    /// Copies the tree `source` of another server to `target`, like [`Client::upload_tree`]. There
    /// is no journal: what exists at the target is skipped as [`TreeOptions::skip`] says, and what
    /// was interrupted begins anew. Links are followed with [`TreeOptions::follow_links`] if they
    /// lead to files; other ones, and what is no file, are failures. Owners, extended attributes
    /// and hard links aren't preserved.
    ///
    /// # Errors
    /// As [`Client::upload_tree`].
    pub fn copy_tree_from(
        &self,
        source: &ServerFile,
        target: &[u8],
        options: &TreeOptions,
        observer: &mut dyn Observer,
    ) -> Result<TreeResult, Fault> {
        let began = Instant::now();
        let from = source.client()?;
        let path = &source.place().path;
        let found = look(&from, path).map_err(|fault| source.named(fault))?;
        if found.kind != FileKind::Directory {
            let fault = Fault::new(Code::NotDirectory, OPERATION, "it is no directory");
            return Err(source.named(fault.path(path).remote()));
        }
        let mut root = target.to_vec();
        let mut keeps_root = false;
        match look(self, target) {
            Ok(there) if there.kind == FileKind::Directory => {
                let name = last_part(path);
                match name.is_empty() {
                    true => keeps_root = true,
                    false => root = join(target, &name),
                }
            }
            Ok(_) => {
                let fault = Fault::new(Code::NotDirectory, OPERATION, "a file has the name");
                return Err(fault.path(target).remote());
            }
            Err(fault) if fault.code == Code::NotFound => {}
            Err(fault) => return Err(fault),
        }
        let course = TreeCourse {
            source,
            from: &from,
            to: self,
            session: TreeSession::new(self, options),
            root,
            keeps_root,
            options,
            is_stopped: AtomicBool::new(false),
            in_flight_bytes: AtomicU64::new(0),
        };
        let mut result = course.run(observer, began)?;
        result.elapsed = began.elapsed();
        Ok(result)
    }
}

/// Whether a listing may have this name: another one would lead out of the tree.
fn is_name(name: &[u8]) -> bool {
    !matches!(name, b"" | b"." | b"..") && !name.iter().any(|byte| matches!(byte, b'/' | 0))
}

impl TreeCourse<'_> {
    fn run(&self, observer: &mut dyn Observer, began: Instant) -> Result<TreeResult, Fault> {
        let mut result = TreeResult {
            target: self.root.clone(),
            ..TreeResult::default()
        };
        let mut time = TimeSum::default();
        let (files, queue) = sync_channel(WAITING);
        let (events, news) = sync_channel(WAITING);
        let queue = Mutex::new(queue);
        let walked = thread::scope(|scope| {
            let workers = match self.options.dry_run {
                true => 0,
                false => FILES_MAX,
            };
            for _ in 0..workers {
                let (queue, events) = (&queue, events.clone());
                scope.spawn(move || self.copy_files(queue, &events));
            }
            let walk = scope.spawn(move || self.walk(&files, &events));
            let mut told = began;
            loop {
                match news.recv_timeout(TICK) {
                    Ok(event) => {
                        let goes_on = count(event, &mut result, &mut time, observer);
                        if goes_on.is_break() {
                            self.stop();
                        }
                    }
                    Err(RecvTimeoutError::Timeout) => {}
                    Err(RecvTimeoutError::Disconnected) => break,
                }
                if told.elapsed() < TICK {
                    continue;
                }
                told = Instant::now();
                result.elapsed = began.elapsed();
                result.activity.in_flight_bytes = self.in_flight_bytes.load(Ordering::Relaxed);
                if observer.on_tree(TreeEvent::Progress(&result)).is_break() {
                    self.stop();
                }
            }
            walk.join().unwrap_or_else(|_| {
                let cause = "a thread has ended unexpectedly";
                Err(Fault::new(Code::Internal, OPERATION, cause))
            })
        });
        result.time_shares = time.shares();
        result.activity.in_flight_bytes = 0;
        if self.is_stopped() {
            let cause = "it was stopped";
            return Err(Fault::new(Code::Cancelled, OPERATION, cause)
                .hint("run the same command again to go on"));
        }
        let directories = walked?;
        if !self.options.dry_run {
            for (path, fault) in self.finish(directories) {
                // Everything is copied, so that there is nothing to stop.
                let _ = count(Event::Failed(path, fault), &mut result, &mut time, observer);
            }
        }
        Ok(result)
    }

    fn stop(&self) {
        self.is_stopped.store(true, Ordering::Relaxed);
    }

    fn is_stopped(&self) -> bool {
        self.is_stopped.load(Ordering::Relaxed)
    }

    /// Finds directories, which it makes, and files. Returns the directories, each before those in
    /// it.
    fn walk(
        &self,
        files: &SyncSender<FoundFile>,
        events: &SyncSender<Event>,
    ) -> Result<Vec<MadeDirectory>, Fault> {
        let root = look(self.from, &self.source.place().path);
        let root = root.map_err(|fault| self.source.named(fault))?;
        let mut unlisted = Unlisted::default();
        unlisted.directories.push((Vec::new(), root));
        let mut made = Vec::new();
        while let Some((path, attributes)) = unlisted.directories.pop() {
            if self.is_stopped() {
                break;
            }
            if let Err(fault) = self.make(&path, &attributes) {
                if path.is_empty() {
                    return Err(fault);
                }
                self.fail(events, path, fault);
                continue;
            }
            if !(path.is_empty() && self.keeps_root) {
                made.push(MadeDirectory {
                    path: path.clone(),
                    mode: attributes.mode & 0o777,
                    mtime_ns: attributes.mtime_ns,
                });
            }
            // Nobody is left to hear of it only after a panic.
            let _ = events.send(Event::Directory);
            if let Err(fault) = self.list(&path, &mut unlisted, files, events) {
                let fault = self.source.named(fault);
                // FTP can't tell some names; the others are well.
                let is_fatal = path.is_empty() && fault.code != Code::Unsupported;
                if is_fatal || fault.code == Code::LimitExceeded {
                    return Err(fault);
                }
                self.fail(events, path, fault);
            }
        }
        Ok(made)
    }

    fn list(
        &self,
        above: &[u8],
        unlisted: &mut Unlisted,
        files: &SyncSender<FoundFile>,
        events: &SyncSender<Event>,
    ) -> Result<(), Fault> {
        let whole = self.there(above);
        for entry in self.from.list(&whole) {
            if self.is_stopped() {
                break;
            }
            let entry = entry?;
            if !is_name(&entry.name) {
                let cause = format!(
                    "the listing has '{}', which is no name",
                    entry.name.escape_ascii()
                );
                let fault = Fault::new(Code::ProtocolViolation, "list a directory", cause);
                return Err(fault.path(whole));
            }
            let path = join(above, &entry.name);
            let mut attributes = entry.attributes;
            let is_link = attributes.kind == FileKind::Symlink;
            if self
                .options
                .filter
                .leaves_out(&path, attributes.kind == FileKind::Directory)
            {
                continue;
            }
            if is_link && self.options.follow_links {
                match look(self.from, &self.there(&path)) {
                    Ok(found) => attributes = found,
                    Err(fault) => {
                        self.fail(events, path, self.source.named(fault));
                        continue;
                    }
                }
            }
            match attributes.kind {
                FileKind::Directory if !is_link => unlisted.add(path, attributes)?,
                FileKind::File => {
                    let time = Some(attributes.mtime_ns);
                    let time = time.filter(|time| *time != 0 || self.from.ftp_store().is_none());
                    if self.options.is_beyond_limits(&attributes, time) {
                        continue;
                    }
                    // Nobody is left for it only after a panic.
                    let _ = match self.options.dry_run {
                        true => events.send(Event::Step(path, attributes.size)).is_ok(),
                        false => files.send(FoundFile(path)).is_ok(),
                    };
                }
                _ => {
                    let cause = match is_link {
                        true => "links aren't copied between servers",
                        false => "it is neither a file nor a directory",
                    };
                    let fault = Fault::new(Code::Unsupported, OPERATION, cause).path(&path);
                    let fault = match is_link && !self.options.follow_links {
                        true => fault.hint("--copy-links copies the files to which links lead"),
                        false => fault,
                    };
                    self.fail(events, path, fault);
                }
            }
        }
        Ok(())
    }

    /// The path of an entry at the source.
    fn there(&self, path: &[u8]) -> Vec<u8> {
        match path {
            [] => self.source.place().path.clone(),
            _ => join(&self.source.place().path, path),
        }
    }

    /// The path of an entry at the target.
    fn here(&self, path: &[u8]) -> Vec<u8> {
        match path {
            [] => self.root.clone(),
            _ => join(&self.root, path),
        }
    }

    fn make(&self, path: &[u8], attributes: &Attributes) -> Result<(), Fault> {
        if self.options.dry_run || path.is_empty() && self.keeps_root {
            return Ok(());
        }
        let mode = Some(attributes.mode & 0o777).filter(|mode| *mode != 0);
        let call = Call::MakeDirectory {
            path: self.here(path),
            mode: mode.map(|mode| mode | OPEN_MODE),
            parents: true,
        };
        RemoteCall::start(&self.session, call).wait()?;
        self.session.note_progress();
        Ok(())
    }

    /// Sets modes and times of directories, in which nothing is made any more. Returns what failed.
    fn finish(&self, directories: Vec<MadeDirectory>) -> Vec<(Vec<u8>, Fault)> {
        let mut asked: VecDeque<(Vec<u8>, RemoteCall<'_>)> = VecDeque::new();
        let mut failed = Vec::new();
        let mut wait = |(path, call): (Vec<u8>, RemoteCall<'_>)| match call.wait() {
            // As in uploads to such a server.
            Err(fault) if fault.code == Code::Unsupported => {}
            Err(fault) => failed.push((path, fault)),
            Ok(_) => {}
        };
        for made in directories.into_iter().rev() {
            let path = self.here(&made.path);
            let is_open = made.mode == 0 || made.mode & OPEN_MODE == OPEN_MODE;
            let mode = (!is_open).then(|| Call::SetMode {
                path: path.clone(),
                mode: made.mode,
            });
            let times = (made.mtime_ns != 0).then_some(Call::SetTimes {
                path,
                atime_ns: None,
                mtime_ns: Some(made.mtime_ns),
                follow: true,
            });
            for call in mode.into_iter().chain(times) {
                let call = RemoteCall::start(&self.session, call);
                asked.push_back((made.path.clone(), call));
                if asked.len() >= CALLS_MAX {
                    asked.pop_front().into_iter().for_each(&mut wait);
                }
            }
        }
        asked.into_iter().for_each(wait);
        failed
    }

    fn fail(&self, events: &SyncSender<Event>, path: Vec<u8>, fault: Fault) {
        // Nobody is left to hear of it only after a panic.
        let _ = events.send(Event::Failed(path, fault));
    }

    /// Copies files until there are no more.
    fn copy_files(&self, queue: &Mutex<Receiver<FoundFile>>, events: &SyncSender<Event>) {
        loop {
            let next = {
                let queue = queue.lock().unwrap_or_else(PoisonError::into_inner);
                queue.recv()
            };
            let Ok(FoundFile(path)) = next else {
                return;
            };
            if self.is_stopped() {
                continue;
            }
            let event = match self.copy_file(&path) {
                Ok(result) => Event::File(result),
                Err(_) if self.is_stopped() => continue,
                Err(fault) => Event::Failed(path, fault),
            };
            // Nobody is left to hear of it only after a panic.
            let _ = events.send(event);
        }
    }

    fn copy_file(&self, path: &[u8]) -> Result<TransferResult, Fault> {
        let RetryPolicy { retries_max, .. } = self.options.retry;
        let mut retries = 0;
        loop {
            let generation = self.session.generation();
            match self.try_file(path) {
                Ok(result) => {
                    self.session.note_progress();
                    return Ok(result);
                }
                // The session with the target, or a source that isn't there any more.
                Err(fault) if self.has_lost_target() && !self.is_stopped() => {
                    self.session.recover(generation, &fault.ending_session())?;
                }
                Err(fault)
                    if retries < retries_max
                        && !self.is_stopped()
                        && (fault.retry != Retry::Never || fault.code == Code::ConnectionLost) =>
                {
                    let pause = self.options.retry.pause(retries, &fault);
                    retries += 1;
                    tracing::info!(%fault, retries, "a file is copied again");
                    self.rest(pause);
                }
                result => return result,
            }
        }
    }

    /// Whether the session with the target is over.
    fn has_lost_target(&self) -> bool {
        self.to.ended().is_some()
    }

    fn try_file(&self, path: &[u8]) -> Result<TransferResult, Fault> {
        let options = self.options;
        let wanted = TransferOptions {
            rate_bytes_per_s_max: options.rate_bytes_per_s_max,
            resume: !options.begin_anew,
            verify_resumed: options.verify_resumed,
            digest: options.digest,
            overwrite: options.overwrite,
            skip: options.skip,
            ..TransferOptions::default()
        };
        let file = LocalPlace::Server(self.source.at(self.there(path)));
        let mut transfer = self.to.upload(&file, &self.here(path), &wanted)?;
        let mut told = 0;
        let mut is_wanted = true;
        while !transfer.is_finished() {
            if is_wanted && self.is_stopped() {
                is_wanted = false;
                transfer.cancel();
            }
            if let Some(progress) = transfer.progress(TICK) {
                let bytes = progress.bytes.max(told);
                self.in_flight_bytes
                    .fetch_add(bytes - told, Ordering::Relaxed);
                told = bytes;
            }
        }
        self.in_flight_bytes.fetch_sub(told, Ordering::Relaxed);
        transfer.wait()
    }

    fn rest(&self, pause: Duration) {
        let end = Instant::now() + pause;
        while !self.is_stopped() && Instant::now() < end {
            thread::sleep(TICK.min(end.saturating_duration_since(Instant::now())));
        }
    }
}

/// Counts what has become of an entry.
fn count(
    event: Event,
    result: &mut TreeResult,
    time: &mut TimeSum,
    observer: &mut dyn Observer,
) -> ControlFlow<()> {
    match event {
        Event::Directory => result.directories += 1,
        Event::Failed(path, fault) => {
            result.failed += 1;
            let (path, fault) = (&path, &fault);
            return observer.on_tree(TreeEvent::Failed { path, fault });
        }
        Event::File(file) if file.is_skipped => {
            result.resumed.files += 1;
            result.resumed.bytes += file.bytes;
        }
        Event::File(file) => {
            result.files += 1;
            result.bytes += file.bytes;
            time.add(&file.time_shares, Duration::from_secs_f64(file.seconds));
        }
        Event::Step(path, bytes) => {
            result.files += 1;
            result.bytes += bytes;
            let step = TreeEvent::Step {
                step: SyncStep::Copy,
                path: &path,
                from: None,
            };
            return observer.on_tree(step);
        }
    }
    ControlFlow::Continue(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn no_name_leads_out_of_the_tree() {
        for name in [&b""[..], b".", b"..", b"a/b", b"/", b"../a", b"a\0"] {
            assert!(!is_name(name), "{name:?}");
        }
        assert!(is_name(b"...") && is_name(b"a b\n") && is_name(b"\xff"));
    }
}
