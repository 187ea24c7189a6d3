//! `xdfs find`.

use std::sync::Arc;

use xdfs::operations::{Find, FindOptions, FindStep, FindTests, PathSide, SidePath, WalkEntry};
use xdfs::record::Record;
use xdfs::{Client, NamePattern};

use super::command::PathCommand;
use super::operand::Operand;
use super::time;
use crate::context::Context;
use crate::flags::FindFlags;

/// Entries whose owners are looked up together.
const NAMED_AT_ONCE: usize = 128;

fn options(flags: &FindFlags) -> FindOptions {
    let name = flags.name.as_ref();
    FindOptions {
        tests: FindTests {
            name: name.map(|name| NamePattern::new(name.as_encoded_bytes())),
            kind: flags.kind.map(Into::into),
            size: flags.size,
            modified: flags.mtime,
            newer_ns: flags.newer,
        },
        now_ns: time::now(),
        depth_max: flags.maxdepth.unwrap_or(u32::MAX),
        delete: flags.delete,
    }
}

/// Runs the command and returns the exit code.
pub(crate) fn find(context: &Context, flags: &FindFlags) -> u8 {
    let mut command = PathCommand::new(context, "find", &flags.common);
    let quoting = command.quoting(flags.print0);
    let options = options(flags);
    let end: &[u8] = if flags.print0 { b"\0" } else { b"\n" };
    let urls = command.expanded(&flags.urls);
    command.each(&urls, |command, operand| {
        let checked = options.check(&operand.path);
        checked.map_err(|fault| operand.fault(fault))?;
        let client = command.client(operand)?;
        let start = SidePath {
            side: PathSide::Remote(Arc::clone(client.client())),
            path: operand.path.clone(),
        };
        let mut found_entries = FoundEntries {
            operand,
            client: &client,
            waiting: Vec::new(),
        };
        let mut search = Find::new(&start, &options)?;
        while let Some(step) = search.next() {
            match step {
                FindStep::Found(found) if command.is_json() => found_entries.push(command, found),
                FindStep::Found(found) => {
                    command.print(&quoting.write(&found.path));
                    command.print(end);
                }
                FindStep::Removed(path) if command.is_json() => {
                    command.write_record(&Record::done(&operand.text, &path));
                }
                FindStep::Removed(_) | FindStep::Other => {}
                FindStep::Failed(fault) => {
                    found_entries.write_records(command);
                    command.fault(Some(&operand.text), &fault);
                }
            }
            if command.is_over() {
                search.stop();
            }
        }
        found_entries.write_records(command);
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
