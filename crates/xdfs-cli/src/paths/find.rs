//! `xdfs find`.

use xdfs::record::Record;
use xdfs::{Answer, Call, Client, Code, Fault, NamePattern};

use super::calls::{InFlight, stat};
use super::command::PathCommand;
use super::operand::{Operand, is_root, last_part};
use super::time;
use super::walk::{LISTINGS_AHEAD, Walk, WalkEntry, WalkStep};
use crate::context::Context;
use crate::flags::FindFlags;

/// Entries whose owners are looked up together.
const NAMED_AT_ONCE: usize = 128;

/// The tests of `find`.
struct Tests<'a> {
    flags: &'a FindFlags,
    name: Option<NamePattern>,
    now_ns: i64,
}

impl Tests<'_> {
    fn hold(&self, found: &WalkEntry) -> bool {
        let (flags, a) = (self.flags, &found.attributes);
        flags.kind.is_none_or(|kind| kind.holds(a.kind))
            && flags.size.is_none_or(|size| size.holds(a.size))
            && flags
                .mtime
                .is_none_or(|days| days.holds(a.mtime_ns, self.now_ns))
            && flags.newer.is_none_or(|time| a.mtime_ns > time)
            && self
                .name
                .as_ref()
                .is_none_or(|name| name.matches(&found.name))
    }

    /// Whether everything passes.
    fn are_none(&self) -> bool {
        let flags = self.flags;
        self.name.is_none()
            && flags.kind.is_none()
            && flags.size.is_none()
            && flags.mtime.is_none()
            && flags.newer.is_none()
    }
}

/// Runs the command and returns the exit code.
pub(crate) fn find(context: &Context, flags: &FindFlags) -> u8 {
    let mut command = PathCommand::new(context, "find", &flags.common);
    let quoting = command.quoting(flags.print0);
    let tests = Tests {
        flags,
        name: flags
            .name
            .as_ref()
            .map(|name| NamePattern::new(name.as_encoded_bytes())),
        now_ns: time::now(),
    };
    let end: &[u8] = if flags.print0 { b"\0" } else { b"\n" };
    let urls = command.expanded(&flags.urls);
    command.each(&urls, |command, operand| {
        if flags.delete && tests.are_none() && is_root(&operand.path) {
            let cause = "everything below the root of the server would be removed";
            let fault = Fault::new(Code::InvalidArgument, "remove", cause);
            return Err(operand.fault(fault.hint("add a test such as -name, or name a directory")));
        }
        let client = command.client(operand)?;
        let path = operand.path.clone();
        let start = WalkEntry {
            attributes: stat(&client, &path, false)?,
            name: last_part(&path).to_vec(),
            path,
            depth: 0,
        };
        let depth_max = flags.maxdepth.unwrap_or(u32::MAX);
        let mut found_entries = FoundEntries {
            operand,
            client: &client,
            waiting: Vec::new(),
        };
        let mut removal = Removal {
            operand,
            client: &client,
            calls: InFlight::new(&client),
        };
        for step in Walk::new(&*client, start, depth_max, LISTINGS_AHEAD) {
            match step {
                // A directory that is entered is removed after its contents.
                WalkStep::Entry(found) if flags.delete => {
                    let is_entered = found.is_directory() && found.depth < depth_max;
                    if !is_entered && tests.hold(&found) {
                        removal.remove(command, &found);
                    }
                }
                WalkStep::Left(found) if flags.delete => {
                    if tests.hold(&found) {
                        removal.remove(command, &found);
                    }
                }
                WalkStep::Entry(found) if tests.hold(&found) => {
                    if command.is_json() {
                        found_entries.push(command, found);
                    } else {
                        command.print(&quoting.write(&found.path));
                        command.print(end);
                    }
                }
                WalkStep::Entry(_) | WalkStep::Left(_) => {}
                WalkStep::Failed(fault) => {
                    found_entries.write_records(command);
                    command.fault(Some(&operand.text), &fault);
                }
            }
            if command.is_over() {
                break;
            }
        }
        found_entries.write_records(command);
        removal.finish(command);
        Ok(())
    });
    command.finish()
}

/// Entries found and not yet printed, as JSON: the names of their owners take a round trip.
struct FoundEntries<'a> {
    operand: &'a Operand,
    client: &'a Client,
    waiting: Vec<WalkEntry>,
}

impl FoundEntries<'_> {
    fn push(&mut self, command: &mut PathCommand, found: WalkEntry) {
        self.waiting.push(found);
        if self.waiting.len() >= NAMED_AT_ONCE {
            self.write_records(command);
        }
    }

    /// Prints them, unless the command is over.
    fn write_records(&mut self, command: &mut PathCommand) {
        if command.is_over() {
            return;
        }
        let attributes = self.waiting.iter().map(|found| &found.attributes);
        let names = self.client.account_names(&self.operand.path, attributes);
        let names = names.wait();
        for WalkEntry {
            path, attributes, ..
        } in self.waiting.drain(..)
        {
            let owner = names.of(&attributes);
            let text = &self.operand.text;
            command.write_record(&Record::entry(text, &path, &attributes, &owner, None));
        }
    }
}

/// Removes the entries found, files several at a time.
struct Removal<'a> {
    operand: &'a Operand,
    client: &'a Client,
    calls: InFlight<'a, Vec<u8>>,
}

impl Removal<'_> {
    fn remove(&mut self, command: &mut PathCommand, found: &WalkEntry) {
        let path = found.path.clone();
        if is_root(&path) {
            return;
        }
        if !found.is_directory() {
            let earliest = self.calls.push(path.clone(), Call::RemoveFile { path });
            self.report(command, earliest);
            return;
        }
        // Its contents first.
        self.finish(command);
        let removed = self
            .client
            .call(Call::RemoveDirectory { path: path.clone() });
        self.report(command, Some((path, removed)));
    }

    /// Waits for all removals.
    fn finish(&mut self, command: &mut PathCommand) {
        while let Some(outcome) = self.calls.pop() {
            self.report(command, Some(outcome));
        }
    }

    fn report(&self, command: &mut PathCommand, outcome: Option<(Vec<u8>, Result<Answer, Fault>)>) {
        match outcome {
            Some((path, Ok(_))) if command.is_json() => {
                command.write_record(&Record::done(&self.operand.text, &path));
            }
            Some((_, Err(fault))) => command.fault(Some(&self.operand.text), &fault),
            Some(_) | None => {}
        }
    }
}
