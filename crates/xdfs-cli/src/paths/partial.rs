//! `xdfs partial`: unfinished transfers on a server.

use std::collections::VecDeque;
use std::time::Duration;

use xdfs::{Answer, Call, Client, Code, Entry, Fault, FileKind, Listing, PartialFile, PendingCall};

use super::command::{InFlight, PathCommand, stat, unexpected};
use super::json::{PartialBody, PathBody, PathRecord};
use super::operand::{Operand, join, last_part, parent};
use super::text::{align, human};
use super::time::now;
use super::walk::{LISTINGS_AHEAD, List, Walk, WalkEntry, WalkStep};
use crate::context::Context;
use crate::flags::{PartialCommand, PartialFlags};
use crate::human::count;

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
    let mut work = PathCommand::new(context, "partial ls", &flags.common);
    let quoting = work.quoting(false);
    let mut rows = Vec::new();
    work.each(&flags.urls, |work, operand| {
        let client = work.client(operand)?;
        find(
            work,
            &client,
            operand,
            flags,
            &mut |work, Found { path, file }| {
                if work.is_json() {
                    work.say(PathRecord::Partial(PartialBody {
                        operand: &operand.text,
                        path: PathBody::new(&path),
                        arrived: file.arrived,
                        length: file.length,
                        allocated: file.allocated,
                        mtime_ns: file.mtime_ns,
                    }));
                    return;
                }
                let length = file.length.map_or_else(|| "-".to_owned(), human);
                let age = now().saturating_sub(file.mtime_ns);
                rows.push(vec![
                    human(file.arrived),
                    length,
                    age_text(age),
                    quoting.text(&path),
                ]);
            },
        )
    });
    for line in align(&rows, &[3]) {
        work.print(line.as_bytes());
        work.print(b"\n");
    }
    work.finish()
}

fn rm(context: &Context, flags: &PartialFlags) -> u8 {
    let mut work = PathCommand::new(context, "partial rm", &flags.common);
    let since = oldest(flags);
    work.each(&flags.urls, |work, operand| {
        let client = work.client(operand)?;
        let (mut removed, mut running, mut bytes) = (0, 0, 0);
        let mut ended = |work: &mut PathCommand, found: Found, result: Result<Answer, Fault>| {
            match result {
                Ok(_) => {
                    removed += 1;
                    bytes += found.file.allocated;
                    if work.is_json() {
                        work.say(PathRecord::done(&operand.text, &found.path));
                    }
                }
                Err(fault) if fault.code == Code::Busy => running += 1,
                // It has just ended.
                Err(fault) if fault.code == Code::NotFound => {}
                Err(fault) => work.fault(Some(&operand.text), &fault),
            }
        };
        let mut calls = InFlight::new(&client);
        let found = find(work, &client, operand, flags, &mut |work, found| {
            let call = Call::RemovePartial {
                path: found.path.clone(),
                unchanged_since_ns: since,
            };
            if let Some((found, result)) = calls.push(found, call) {
                ended(work, found, result);
            }
        });
        while let Some((found, result)) = calls.pop() {
            ended(work, found, result);
        }
        if !work.is_json() {
            let stay = match running {
                0 => String::new(),
                1 => "; 1 is running".to_owned(),
                running => format!("; {running} are running"),
            };
            let text = format!(
                "{} removed, {}B{stay}\n",
                count(removed, "unfinished transfer"),
                human(bytes),
            );
            work.print(text.as_bytes());
        }
        found
    });
    work.finish()
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
    work: &mut PathCommand,
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
            let files = finish(client, above, client.start_call(call(above, Vec::new())))?;
            let mut to_it = files
                .into_iter()
                .filter(|file| file.name == last_part(path));
            let Some(file) = to_it.next() else {
                let cause = "there is no unfinished transfer to it";
                let fault = Fault::new(Code::NotFound, "list unfinished transfers", cause);
                return Err(fault.path(path).remote());
            };
            if is_wanted(&file) {
                let path = path.clone();
                take(work, Found { path, file });
            }
            return Ok(());
        }
    };
    let start = WalkEntry {
        name: last_part(path).to_vec(),
        path: path.clone(),
        attributes,
        depth: 0,
    };
    let mut pending: VecDeque<(Vec<u8>, Result<PendingCall, Fault>)> = VecDeque::new();
    let mut settle = |work: &mut PathCommand, (directory, asked): (Vec<u8>, _)| match finish(
        client, &directory, asked,
    ) {
        Ok(files) => {
            for file in files.into_iter().filter(is_wanted) {
                let path = join(&directory, &file.name);
                take(work, Found { path, file });
            }
            false
        }
        Err(fault) => {
            work.fault(Some(&operand.text), &fault);
            fault.code == Code::Unsupported
        }
    };
    for step in Walk::new(client, start, u32::MAX, LISTINGS_AHEAD) {
        match step {
            WalkStep::Entry(found) if found.is_directory() => {
                let asked = client.start_call(call(&found.path, Vec::new()));
                pending.push_back((found.path, asked));
            }
            WalkStep::Entry(_) | WalkStep::Left(_) => continue,
            WalkStep::Failed(fault) => work.fault(Some(&operand.text), &fault),
        }
        let first = (pending.len() > LISTINGS_AHEAD).then(|| pending.pop_front());
        if let Some(first) = first.flatten()
            && settle(work, first)
        {
            return Ok(());
        }
        if work.is_over() {
            return Ok(());
        }
    }
    for asked in pending {
        if settle(work, asked) || work.is_over() {
            return Ok(());
        }
    }
    Ok(())
}

fn call(directory: &[u8], after: Vec<u8>) -> Call {
    Call::ListPartial {
        path: directory.to_vec(),
        after,
    }
}

/// The unfinished transfers of a directory, of which the first were asked for.
fn finish(
    client: &Client,
    directory: &[u8],
    asked: Result<PendingCall, Fault>,
) -> Result<Vec<PartialFile>, Fault> {
    let mut answer = asked
        .and_then(PendingCall::wait)
        .map_err(|fault| match fault.code {
            Code::Unsupported => fault.hint("this server is too old for it"),
            _ => fault,
        })?;
    let mut all: Vec<PartialFile> = Vec::new();
    loop {
        let Answer::Partial { files, more } = answer else {
            return Err(unexpected("list unfinished transfers", directory));
        };
        // In their order, so a server can't make this go on for ever.
        let last = all.last().map(|last| last.name.clone());
        if files.first().map(|first| &first.name) <= last.as_ref() && last.is_some() {
            return Err(unexpected("list unfinished transfers", directory));
        }
        all.extend(files);
        let Some(last) = all.last().filter(|_| more) else {
            return Ok(all);
        };
        answer = client.call(call(directory, last.name.clone()))?;
    }
}

/// The listing of a directory with the unfinished transfers into it, as files of what they take.
pub(crate) struct WithPartial<'a>(pub(crate) &'a Client);

impl List for WithPartial<'_> {
    type Pending = (Vec<u8>, Listing, Result<PendingCall, Fault>);

    fn start(&self, path: &[u8]) -> Self::Pending {
        let partial = self.0.start_call(call(path, Vec::new()));
        (path.to_vec(), self.0.start(path), partial)
    }

    fn finish(
        &self,
        (path, listing, partial): Self::Pending,
        take: &mut dyn FnMut(Entry),
    ) -> Result<(), Fault> {
        self.0.finish(listing, take)?;
        let files = match finish(self.0, &path, partial) {
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
