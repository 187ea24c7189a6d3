//! `xdfs partial`: unfinished transfers, on a server or here.

use std::collections::VecDeque;
use std::ffi::OsStr;
use std::ops::ControlFlow;
use std::path::PathBuf;
use std::time::Duration;

use xdfs::operations::path::{join, last_part, parent};
use xdfs::operations::{
    InFlight, LISTINGS_AHEAD, List, Matched, UnfinishedListing, Walk, WalkEntry, WalkOptions,
    WalkStep, stat,
};
use xdfs::record::Record;
use xdfs::settings::ClientConfig;
use xdfs::store::{LocalStore, Store as _};
use xdfs::{Answer, Call, Client, Code, Entry, Fault, FileKind, Listing, PartialFile};

use super::command::PathCommand;
use super::operand::{Operand, text_of};
use super::text::{align, human};
use super::time::now;
use crate::context::Context;
use crate::flags::{PartialCommand, PartialFlags};
use crate::human::count;
use crate::place::Place;

/// Runs `xdfs partial` and returns the exit code.
pub(crate) fn partial(context: &Context, command: &PartialCommand) -> u8 {
    match command {
        PartialCommand::Ls(flags) => ls(context, &flags.which),
        PartialCommand::Rm(flags) => rm(context, &flags.which),
    }
}

/// An unfinished transfer, by the path of its target.
struct Found {
    path: Vec<u8>,
    file: PartialFile,
}

fn ls(context: &Context, flags: &PartialFlags) -> u8 {
    let mut command = PathCommand::new(context, "partial ls", &flags.common);
    let quoting = command.quoting(false);
    let heading = ["Arrived", "Size", "Age", "Target"];
    let mut rows = vec![heading.map(String::from).to_vec()];
    let mut show = |command: &mut PathCommand, operand: &str, Found { path, file }: Found| {
        if command.is_json() {
            command.write_record(&Record::partial(operand, &path, &file));
            return;
        }
        let length = file.length.map_or_else(|| "-".to_owned(), human);
        let age = age_text(now().saturating_sub(file.mtime_ns));
        rows.push(vec![human(file.arrived), length, age, quoting.text(&path)]);
    };
    for word in &command.expanded_to(&flags.places, Matched::Unfinished) {
        let text = text_of(word);
        command.one(&text, |command| {
            match Place::parse(command.config()?, word)? {
                Place::Local(directory) => {
                    let here = Here::open(command.config()?, word, directory)?;
                    let found = here.find(command, &text, flags);
                    found
                        .into_iter()
                        .for_each(|found| show(command, &text, found));
                    Ok(())
                }
                _ => {
                    let operand = command.operand(word)?;
                    let client = command.client(&operand)?;
                    find(command, &client, &operand, flags, &mut |command, found| {
                        show(command, &text, found);
                    })
                }
            }
        });
        if command.is_over() {
            break;
        }
    }
    if rows.len() > 1 {
        for line in align(&rows, |column, _| column == 3) {
            command.print(line.as_bytes());
            command.print(b"\n");
        }
    }
    command.finish()
}

fn rm(context: &Context, flags: &PartialFlags) -> u8 {
    let mut command = PathCommand::new(context, "partial rm", &flags.common);
    let since = oldest(flags);
    let call = |path: &[u8]| Call::RemovePartial {
        path: path.to_vec(),
        unchanged_since_ns: since,
    };
    for word in &command.expanded_to(&flags.places, Matched::Unfinished) {
        let text = text_of(word);
        command.one(&text, |command| {
            let mut outcome = Outcome::default();
            match Place::parse(command.config()?, word)? {
                Place::Local(directory) => {
                    let here = Here::open(command.config()?, word, directory)?;
                    for found in here.find(command, &text, flags) {
                        let result = here.call(&call(here.inner(&found.path)));
                        outcome.add(command, &text, found, result);
                    }
                }
                _ => {
                    let operand = command.operand(word)?;
                    let client = command.client(&operand)?;
                    let mut calls = InFlight::new();
                    find(command, &client, &operand, flags, &mut |command, found| {
                        let call = call(&found.path);
                        if let Some((found, result)) = calls.push(found, client.start_call(call)) {
                            outcome.add(command, &text, found, result);
                        }
                    })?;
                    while let Some((found, result)) = calls.pop() {
                        outcome.add(command, &text, found, result);
                    }
                }
            }
            outcome.report(command);
            Ok(())
        });
        if command.is_over() {
            break;
        }
    }
    command.finish()
}

/// What became of the unfinished transfers of an operand.
#[derive(Default)]
struct Outcome {
    removed: u64,
    running: u64,
    /// Bytes that the removed ones took.
    bytes: u64,
}

impl Outcome {
    fn add(
        &mut self,
        command: &mut PathCommand,
        operand: &str,
        found: Found,
        result: Result<Answer, Fault>,
    ) {
        match result {
            Ok(_) => {
                self.removed += 1;
                self.bytes += found.file.allocated;
                if command.is_json() {
                    command.write_record(&Record::done(operand, &found.path));
                }
            }
            Err(fault) if fault.code == Code::Busy => self.running += 1,
            // It has just ended.
            Err(fault) if fault.code == Code::NotFound => {}
            Err(fault) => command.fault(Some(operand), &fault),
        }
    }

    fn report(&self, command: &mut PathCommand) {
        if command.is_json() {
            return;
        }
        let stay = match self.running {
            0 => String::new(),
            1 => "; 1 is running".to_owned(),
            running => format!("; {running} are running"),
        };
        let removed = count(self.removed, "unfinished transfer");
        let text = format!("{removed} removed, {}B{stay}\n", human(self.bytes));
        command.print(text.as_bytes());
    }
}

/// A local directory.
struct Here {
    store: LocalStore,
    /// Its path, which begins those of the targets.
    path: Vec<u8>,
}

impl Here {
    /// Opens the directory that `word` names.
    fn open(config: &ClientConfig, word: &OsStr, directory: PathBuf) -> Result<Self, Fault> {
        let store = LocalStore::rooted(&directory, false).map_err(|mut fault| {
            fault.operation = "list the unfinished transfers in".into();
            config.hinted(fault, [word])
        })?;
        let mut path = directory.into_os_string().into_encoded_bytes();
        // Paths in it begin with a slash.
        while path.last() == Some(&b'/') {
            path.pop();
        }
        Ok(Self { store, path })
    }

    /// The path beneath the directory.
    fn inner<'p>(&self, path: &'p [u8]) -> &'p [u8] {
        path.get(self.path.len()..).unwrap_or_default()
    }

    fn call(&self, call: &Call) -> Result<Answer, Fault> {
        self.store.call(call, &mut |_| Ok(()))
    }

    fn find(&self, command: &mut PathCommand, operand: &str, flags: &PartialFlags) -> Vec<Found> {
        let since = oldest(flags);
        let mut all = Vec::new();
        let unread = self.store.each_partial(&mut |path, file| {
            if since.is_none_or(|since| file.mtime_ns < since) {
                let path = [&self.path[..], path].concat();
                let file = file.clone();
                all.push(Found { path, file });
            }
            match command.is_over() {
                true => ControlFlow::Break(()),
                false => ControlFlow::Continue(()),
            }
        });
        if unread > 0 {
            let cause = match unread {
                1 => "a directory below it can't be read".to_owned(),
                unread => format!("{unread} directories below it can't be read"),
            };
            let fault = Fault::new(
                Code::PermissionDenied,
                "list the unfinished transfers in",
                cause,
            );
            command.fault(Some(operand), &fault.path(&self.path));
        }
        all.sort_by(|a, b| a.path.cmp(&b.path));
        all
    }
}

/// The time before which a transfer must have changed last.
fn oldest(flags: &PartialFlags) -> Option<i64> {
    let age = flags.older_than?;
    let age = i64::try_from(age.as_nanos()).unwrap_or(i64::MAX);
    Some(now().saturating_sub(age))
}

/// Passes on each unfinished transfer below an operand, or to it.
///
/// # Errors
/// The operand can't be looked up, or there is no such transfer.
fn find(
    command: &mut PathCommand,
    client: &Client,
    operand: &Operand,
    flags: &PartialFlags,
    take: &mut dyn FnMut(&mut PathCommand, Found),
) -> Result<(), Fault> {
    let since = oldest(flags);
    let is_wanted = |file: &PartialFile| since.is_none_or(|since| file.mtime_ns < since);
    let path = &operand.path;
    let attributes = match stat(client, path, false) {
        Ok(attributes) if attributes.kind == FileKind::Directory => attributes,
        // A target appears once its transfer is complete.
        Err(fault) if fault.code != Code::NotFound => return Err(fault),
        _ => {
            let above = parent(path);
            let files = UnfinishedListing::begin(client, above).finish(client)?;
            let mut to_it = files
                .into_iter()
                .filter(|file| file.name == last_part(path));
            let Some(file) = to_it.next() else {
                let cause = "there is no unfinished transfer to it";
                let fault = Fault::new(Code::NotFound, "list the unfinished transfers in", cause);
                return Err(operand.fault(fault));
            };
            if is_wanted(&file) {
                let path = path.clone();
                take(command, Found { path, file });
            }
            return Ok(());
        }
    };
    let start = WalkEntry::start(path, attributes);
    let mut pending: VecDeque<UnfinishedListing> = VecDeque::new();
    let mut settle = |command: &mut PathCommand, listing: UnfinishedListing| {
        let directory = listing.directory().to_vec();
        match listing.finish(client) {
            Ok(files) => {
                for file in files.into_iter().filter(is_wanted) {
                    let path = join(&directory, &file.name);
                    take(command, Found { path, file });
                }
                false
            }
            Err(fault) => {
                command.fault(Some(&operand.text), &fault);
                fault.code == Code::Unsupported
            }
        }
    };
    for step in Walk::new(client, start, WalkOptions::default()) {
        match step {
            WalkStep::Entry(found) if found.is_directory() => {
                pending.push_back(UnfinishedListing::begin(client, &found.path));
            }
            WalkStep::Entry(_) | WalkStep::Left(_) => continue,
            WalkStep::Failed(fault) => command.fault(Some(&operand.text), &fault),
        }
        let first = (pending.len() > LISTINGS_AHEAD).then(|| pending.pop_front());
        if let Some(first) = first.flatten()
            && settle(command, first)
        {
            return Ok(());
        }
        if command.is_over() {
            return Ok(());
        }
    }
    for asked in pending {
        if settle(command, asked) || command.is_over() {
            return Ok(());
        }
    }
    Ok(())
}

/// The listing of a directory with the unfinished transfers into it, as files of what they take.
pub(crate) struct WithPartial<'a>(pub(crate) &'a Client);

impl List for WithPartial<'_> {
    type Pending = (Listing, UnfinishedListing);

    fn begin_listing(&self, path: &[u8]) -> Self::Pending {
        let partial = UnfinishedListing::begin(self.0, path);
        (self.0.begin_listing(path), partial)
    }

    fn finish_listing(
        &self,
        (listing, partial): Self::Pending,
        take: &mut dyn FnMut(Entry),
    ) -> Result<(), Fault> {
        self.0.finish_listing(listing, take)?;
        let files = match partial.finish(self.0) {
            // A server that can't tell.
            Err(fault) if fault.code == Code::Unsupported => return Ok(()),
            files => files?,
        };
        for PartialFile {
            name,
            arrived,
            allocated,
            mtime_ns,
            ..
        } in files
        {
            take(Entry {
                name,
                attributes: xdfs::Attributes {
                    kind: FileKind::File,
                    size: arrived,
                    allocated,
                    mode: 0,
                    uid: 0,
                    gid: 0,
                    links: 1,
                    device: 0,
                    inode: 0,
                    atime_ns: mtime_ns,
                    mtime_ns,
                    ctime_ns: mtime_ns,
                },
            });
        }
        Ok(())
    }
}

/// An age in its largest unit.
fn age_text(ns: i64) -> String {
    let seconds = Duration::from_nanos(u64::try_from(ns).unwrap_or(0)).as_secs();
    match seconds {
        s if s >= 86_400 => format!("{}d", s / 86_400),
        s if s >= 3600 => format!("{}h", s / 3600),
        s if s >= 60 => format!("{}m", s / 60),
        s => format!("{s}s"),
    }
}
