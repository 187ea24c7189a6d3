//! Packs: many small files in few round trips.
//!
//! Commands are sent ahead. In MODE E all files of a pack travel over one data connection, one
//! after the other; in stream mode each needs one of its own.

use std::collections::{HashSet, VecDeque};

use xdfs_proto::pack::{Content, Entry, Failures, Metadata, PackReader, PackRequest, PackWriter};
use xdfs_proto::{Code, Fault, Limits};
use xdfs_store::PackOptions;

use super::call::make_directories;
use super::channel::{Direction, Mode};
use super::fault::{lacking, refused};
use super::features::name_of;
use super::link::Link;
use super::outgoing::Outgoing;
use super::pool::{FtpStore, exists};
use super::segment;
use super::sink::{AskedTime, hidden, replace, same_size, set_metadata};
use super::source::same_checksum;
use super::tree::join;
use super::window::{WINDOW, ask_checksum, look_at, read_windows};
use crate::checksum::Hasher;

/// See [`xdfs_store::Store::read_pack`].
pub(super) fn read(
    store: &FtpStore,
    root: &[u8],
    request: &PackRequest,
    pack: &mut PackWriter,
) -> Result<(), Fault> {
    if segment::read(store, root, request, pack)? {
        return Ok(());
    }
    loop {
        let mut link = store.take(Some((Direction::Receive, 1)))?;
        let root = FtpStore::resolve(&link, root);
        let before = pack.entries();
        let mode = store.mode(&link, Direction::Receive);
        let result = read_windows(store, &mut link, &root, request, pack);
        let result = result.map_err(|fault| link.explained(fault, pack.entries() != before));
        if result.is_ok() && link.is_usable() {
            store.give_back(link);
        }
        match result {
            Err(fault) if pack.entries() == before && store.falls_back(mode, &fault) => {}
            // Whole files are kept, and the rest is asked for over another connection.
            Err(fault) if pack.entries() != before && fault.code != Code::Cancelled => {
                tracing::debug!(%fault, "a pack ends early");
                return Ok(());
            }
            result => return result.map_err(|fault| fault.preventing(root)),
        }
    }
}

/// See [`xdfs_store::Store::write_pack`].
pub(super) fn write(
    store: &FtpStore,
    root: &[u8],
    options: PackOptions,
    pack: &[u8],
) -> Result<Failures, Fault> {
    let limits = Limits::default();
    let entries = PackReader::new(pack, &limits).collect::<Result<Vec<_>, _>>();
    let entries = entries
        .map_err(|error| Fault::new(Code::MalformedFrame, "write", error.to_string()).path(root))?;
    store.files().clear();
    let mut link = store.take(Some((Direction::Send, 1)))?;
    let resolved = FtpStore::resolve(&link, root);
    let mode = store.mode(&link, Direction::Send);
    let mut writing = Writing {
        has_segments: mode == Mode::Extended && !link.features.segments.is_empty(),
        store,
        link: &mut link,
        mode,
        options,
        made: HashSet::new(),
    };
    let result = writing.all(&resolved, &entries);
    if link.is_usable() {
        store.give_back(link);
    }
    result.map_err(|fault| fault.preventing(root))
}

/// The state of a pack that is written.
struct Writing<'a> {
    store: &'a FtpStore,
    link: &'a mut Link,
    mode: Mode,
    /// The server takes segments of MODE T.
    has_segments: bool,
    options: PackOptions,
    /// Directories that are there.
    made: HashSet<Vec<u8>>,
}

/// A file to store.
struct ToStore<'a> {
    number: usize,
    path: Vec<u8>,
    hidden: Vec<u8>,
    data: &'a [u8],
    metadata: &'a Metadata<'a>,
}

impl Writing<'_> {
    /// Writes all entries: first directories, then files, then the rest.
    ///
    /// # Errors
    /// The connection is of no use any more.
    fn all(&mut self, root: &[u8], entries: &[Entry<'_>]) -> Result<Failures, Fault> {
        let mut results = vec![Ok(()); entries.len()];
        let (mut files, mut others) = (Vec::new(), Vec::new());
        for (number, entry) in entries.iter().enumerate() {
            let path = join(root, entry.path);
            if let Err(fault) = self.link.check_path(&path) {
                results[number] = Err(fault.path(path));
                continue;
            }
            if self.has_segments && segment::is_member(entry) {
                continue;
            }
            match entry.content {
                Content::Directory => results[number] = self.directory(&path),
                Content::File(data) => files.push(ToStore {
                    number,
                    hidden: hidden(&path)?,
                    path,
                    data,
                    metadata: &entry.metadata,
                }),
                _ => others.push((number, entry, path)),
            }
            self.still_usable(&results[number])?;
        }
        if self.has_segments {
            let (store, options) = (self.store, self.options);
            segment::write(store, self.link, root, options, entries, &mut results)?;
        }
        for window in files.chunks(WINDOW) {
            self.files(window, &mut results)?;
        }
        for (number, entry, path) in others {
            results[number] = self.other(entry, &path);
            self.still_usable(&results[number])?;
        }
        let mut failures = Failures::default();
        for (number, result) in (0..).zip(results) {
            if let Err(fault) = result {
                failures.push(number, fault);
            }
        }
        Ok(failures)
    }

    /// # Errors
    /// What failed has broken the connection, so that nothing else can be done.
    fn still_usable(&mut self, result: &Result<(), Fault>) -> Result<(), Fault> {
        match result {
            Err(fault) if !self.link.is_usable() => Err(fault.clone()),
            _ => Ok(()),
        }
    }

    fn other(&mut self, entry: &Entry<'_>, path: &[u8]) -> Result<(), Fault> {
        if entry.content != Content::Attributes {
            let cause = "FTP has only files and directories";
            return Err(lacking("store", path, cause));
        }
        let mode = entry.metadata.mode.map(u32::from);
        let set = set_metadata(self.link, path, entry.metadata.mtime_ns, mode);
        match set {
            // Some servers set the times of files only.
            Err(fault) if self.link.is_usable() => {
                tracing::debug!(%fault, "the attributes of a directory are not set");
                Ok(())
            }
            set => set,
        }
    }

    fn directory(&mut self, path: &[u8]) -> Result<(), Fault> {
        if !self.made.contains(path) {
            make_directories(self.link, path)?;
            self.made.insert(path.to_vec());
        }
        Ok(())
    }

    /// Stores files under hidden names, and then publishes those that are as they should be.
    ///
    /// # Errors
    /// The connection is of no use any more. Hidden files are removed later then.
    fn files(
        &mut self,
        files: &[ToStore<'_>],
        results: &mut [Result<(), Fault>],
    ) -> Result<(), Fault> {
        let mut begun = Vec::new();
        let done = self.store_all(files, results, &mut begun);
        let published = done.and_then(|sizes| self.publish(&begun, &sizes, results));
        // A hidden file that has got its name is none any more.
        let left = begun.iter().filter(|file| results[file.number].is_err());
        let hidden = |file: &&ToStore<'_>| file.hidden.clone();
        match published {
            Ok(()) => {
                let left: Vec<_> = left.map(hidden).collect();
                self.link.delete_all(&left)
            }
            Err(fault) => {
                for file in begun {
                    self.store.remove_later(file.hidden.clone());
                }
                Err(fault)
            }
        }
    }

    /// Stores files under hidden names. Those that were begun are in `begun`; returns those of
    /// which no checksum was compared.
    fn store_all<'a, 'b>(
        &mut self,
        files: &'a [ToStore<'b>],
        results: &mut [Result<(), Fault>],
        begun: &mut Vec<&'a ToStore<'b>>,
    ) -> Result<Vec<&'a ToStore<'b>>, Fault> {
        if !self.options.overwrite {
            let paths: Vec<_> = files.iter().map(|file| file.path.clone()).collect();
            for (file, found) in files.iter().zip(look_at(self.link, &paths)?) {
                match found {
                    Ok(_) => results[file.number] = Err(exists("store", &file.path)),
                    Err(fault) if fault.code == Code::NotFound => {}
                    // What may be there is not replaced.
                    Err(fault) => results[file.number] = Err(fault),
                }
            }
        }
        let mut sizes = Vec::new();
        let mut before: Option<(&ToStore<'_>, Outgoing)> = None;
        let mut queue: VecDeque<_> = files.iter().map(|file| (file, false)).collect();
        while let Some((file, is_again)) = queue.pop_front() {
            let slash = file.path.iter().rposition(|byte| *byte == b'/');
            let parent = &file.path[..slash.unwrap_or(0)];
            let is_ready = self.mode == Mode::Extended
                && self.link.has_channels(Direction::Send, 1)
                && self.made.contains(parent);
            if !is_ready {
                self.confirm(before.take(), results, &mut sizes)?;
                if results[file.number].is_ok() {
                    results[file.number] = self.directory(parent);
                    self.still_usable(&results[file.number])?;
                }
            }
            if results[file.number].is_err() {
                continue;
            }
            if !is_ready {
                self.link.prepare(Direction::Send, self.mode, 1)?;
            }
            self.link.command("STOR", &file.hidden)?;
            if !is_again {
                begun.push(file);
            }
            let is_damaged = !self.confirm(before.take(), results, &mut sizes)?;
            match self.send(file) {
                Ok(outgoing) => before = Some((file, outgoing)),
                Err(fault) => {
                    self.still_usable(&Err(fault.clone()))?;
                    self.link.close_channels();
                    match is_damaged && !is_again {
                        // The refusal of the file before may have ended its connection.
                        true => queue.push_front((file, true)),
                        false => results[file.number] = Err(fault),
                    }
                }
            }
        }
        self.confirm(before.take(), results, &mut sizes)?;
        Ok(sizes)
    }

    /// Whether a command may follow a file before the server has confirmed it: in stream mode some
    /// servers answer it first.
    fn asks_ahead(&self) -> bool {
        self.mode == Mode::Extended
    }

    fn ask_checksum(&mut self, file: &ToStore<'_>) -> Result<(), Fault> {
        let kind = self.link.features.checksum();
        ask_checksum(self.link, &file.hidden, kind)
    }

    /// Sends a file for which STOR is sent, and asks for what is compared.
    fn send(&mut self, file: &ToStore<'_>) -> Result<Outgoing, Fault> {
        let mut outgoing = Outgoing::begin("store", &file.path, self.link)?;
        outgoing.write(self.link, file.data)?;
        outgoing.end(self.link)?;
        // Not for the size: some servers answer at once, before the file has its end.
        if self.asks_ahead() {
            self.ask_checksum(file)?;
        }
        Ok(outgoing)
    }

    /// Waits until a file is stored, and compares it. Returns `false` if the server has refused it
    /// after its data. If there is nothing to compare with, the file gets into `sizes`.
    fn confirm<'a, 'b>(
        &mut self,
        before: Option<(&'a ToStore<'b>, Outgoing)>,
        results: &mut [Result<(), Fault>],
        sizes: &mut Vec<&'a ToStore<'b>>,
    ) -> Result<bool, Fault> {
        let Some((file, outgoing)) = before else {
            return Ok(true);
        };
        let (pending, confirmed) = (self.link.pending(), outgoing.confirm(self.link));
        if let Err(fault) = confirmed {
            if self.link.pending() == pending {
                return Err(fault);
            }
            if self.asks_ahead() && self.link.features.checksum().is_some() {
                self.link.reply("compare a file")?;
            }
            if self.link.pending() == 0 {
                self.link.close_channels();
            }
            results[file.number] = Err(fault);
            return Ok(false);
        }
        let Some(kind) = self.link.features.checksum() else {
            sizes.push(file);
            return Ok(true);
        };
        if !self.asks_ahead() {
            self.ask_checksum(file)?;
        }
        let reply = self.link.reply("compare a file")?;
        let mut hasher = Hasher::new(kind);
        hasher.update(file.data);
        let is_exposed = self.link.features.is_exposed;
        match same_checksum(
            &file.path,
            name_of(kind),
            &hasher.finish(),
            &reply,
            is_exposed,
        ) {
            Ok(true) => {}
            Ok(false) => sizes.push(file),
            Err(fault) => results[file.number] = Err(fault),
        }
        Ok(true)
    }

    /// Gives files their times, modes and names, in one round trip.
    fn publish(
        &mut self,
        files: &[&ToStore<'_>],
        sizes: &[&ToStore<'_>],
        results: &mut [Result<(), Fault>],
    ) -> Result<(), Fault> {
        let hidden: Vec<_> = sizes.iter().map(|file| file.hidden.clone()).collect();
        for (file, found) in sizes.iter().zip(look_at(self.link, &hidden)?) {
            let length = file.data.len() as u64;
            let compared = found.and_then(|found| same_size(&file.path, length, &found));
            results[file.number] = compared.map_err(|fault| fault.path(&file.path));
        }
        let mut waiting = Vec::new();
        for file in files.iter().filter(|file| results[file.number].is_ok()) {
            let mode = file.metadata.mode;
            if let Some(mode) = mode {
                let words = format!("CHMOD {:03o} ", mode & 0o777);
                let argument = [words.as_bytes(), &file.hidden].concat();
                self.link.command("SITE", &argument)?;
            }
            let time = AskedTime::ask(self.link, &file.hidden, file.metadata.mtime_ns)?;
            self.link.command("RNFR", &file.hidden)?;
            self.link.command("RNTO", &file.path)?;
            waiting.push((file, usize::from(mode.is_some()), time));
        }
        let mut unreplaced = Vec::new();
        for (file, modes, time) in waiting {
            for _ in 0..modes {
                // As far as the server can.
                self.link.reply("set the permissions of")?;
            }
            let pending = self.link.pending();
            let mut result = match time.map(|asked| asked.settle(self.link, &file.path)) {
                // Without the reply nothing else can be read.
                Some(Err(fault)) if self.link.pending() == pending => return Err(fault),
                Some(set) => set.map(drop),
                None => Ok(()),
            };
            let operation = "rename";
            let (first, second) = (self.link.reply(operation)?, self.link.reply(operation)?);
            if result.is_ok() {
                result = match (first.code, second.code) {
                    (..400, ..400) => Ok(()),
                    (..400, _) => {
                        unreplaced.push(file);
                        Err(refused(operation, &file.path, &second))
                    }
                    _ => Err(refused(operation, &file.path, &first)),
                };
            }
            results[file.number] = result;
        }
        if !self.options.overwrite {
            return Ok(());
        }
        for file in unreplaced {
            if let Err(refusal) = results[file.number].clone() {
                results[file.number] = replace(self.link, &file.hidden, &file.path, refusal);
                self.still_usable(&results[file.number])?;
            }
        }
        Ok(())
    }
}
