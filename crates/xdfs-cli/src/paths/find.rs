//! `xdfs find`.

use super::command::{PathCommand, stat};
use super::glob::Glob;
use super::json::PathRecord;
use super::operand::last_part;
use super::time;
use super::walk::{LISTINGS_AHEAD, Walk, WalkEntry, WalkStep};
use crate::context::Context;
use crate::flags::FindFlags;

/// The tests of `find`.
struct Tests<'a> {
    flags: &'a FindFlags,
    name: Option<Glob>,
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
}

/// Runs the command and returns the exit code.
pub(crate) fn find(context: &Context, flags: &FindFlags) -> u8 {
    let mut work = PathCommand::new(context, "find", &flags.common);
    let quoting = work.quoting(flags.print0);
    let tests = Tests {
        flags,
        name: flags
            .name
            .as_ref()
            .map(|name| Glob::new(name.as_encoded_bytes())),
        now_ns: time::now(),
    };
    let end: &[u8] = if flags.print0 { b"\0" } else { b"\n" };
    work.each(&flags.urls, |work, operand| {
        let client = work.client(operand)?;
        let path = operand.path.clone();
        let start = WalkEntry {
            attributes: stat(&client, &path, false)?,
            name: last_part(&path).to_vec(),
            path,
            depth: 0,
        };
        let depth_max = flags.maxdepth.unwrap_or(u32::MAX);
        for step in Walk::new(&*client, start, depth_max, LISTINGS_AHEAD) {
            match step {
                WalkStep::Entry(found) if tests.hold(&found) => {
                    if work.is_json() {
                        let record =
                            PathRecord::entry(&operand.text, &found.path, &found.attributes, None);
                        work.say(record);
                    } else {
                        work.print(&quoting.write(&found.path));
                        work.print(end);
                    }
                }
                WalkStep::Entry(_) | WalkStep::Left(_) => {}
                WalkStep::Failed(fault) => work.fault(Some(&operand.text), &fault),
            }
            if work.is_over() {
                break;
            }
        }
        Ok(())
    });
    work.finish()
}
