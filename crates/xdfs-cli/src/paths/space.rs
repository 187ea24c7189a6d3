//! `xdfs cat`, `df` and `du`: the content of paths, and their space.

use std::collections::HashSet;

use xdfs::operations::{Walk, WalkEntry, WalkOptions, WalkStep, stat, unexpected_answer};
use xdfs::record::{Record, SpaceCounts};
use xdfs::{Answer, Call, LocalPlace, Resume, TransferOptions, TransferParameters, TransferRoute};

use super::command::PathCommand;
use super::partial::WithPartial;
use super::text::{align, space};
use crate::context::Context;
use crate::flags::{CatFlags, DfFlags, DuFlags, PathFlags};

/// Runs `xdfs cat` and returns the exit code.
pub(crate) fn cat(context: &Context, flags: &CatFlags) -> u8 {
    let common = PathFlags {
        json: false,
        verbose: flags.verbose,
        stack: flags.stack.clone(),
        security: flags.security.clone(),
        own_session: true,
    };
    let options = TransferOptions {
        parameters: TransferParameters {
            resume: Resume::Never,
            ..TransferParameters::default()
        },
        offset: flags.offset,
        length: flags.length,
        ..TransferOptions::default()
    };
    let mut command = PathCommand::new(context, "cat", &common).with_transfers();
    // One after the other, since they share standard output.
    let urls = command.expanded(&flags.urls);
    command.each(&urls, |command, operand| {
        let client = command.client(operand)?;
        let route = TransferRoute::Download {
            from: operand.path.clone(),
            to: LocalPlace::Standard,
        };
        command.follow(client.copy(&route, &options)?)
    });
    command.finish()
}

/// Runs `xdfs df` and returns the exit code.
pub(crate) fn df(context: &Context, flags: &DfFlags) -> u8 {
    let mut command = PathCommand::new(context, "df", &flags.common);
    let quoting = command.quoting(false);
    let unit = if flags.human_readable {
        "Size"
    } else {
        "1K-blocks"
    };
    let heading = [unit, "Used", "Available", "Use%", "Path"];
    let mut rows = vec![Vec::from(heading.map(String::from))];
    let urls = command.expanded(&flags.urls);
    command.each(&urls, |command, operand| {
        let client = command.client(operand)?;
        let path = operand.path.clone();
        let Answer::Space {
            total,
            free,
            available,
            files,
            files_free,
        } = client.call(Call::Space { path })?
        else {
            return Err(unexpected_answer(
                "look at the space left in",
                &operand.path,
            ));
        };
        if command.is_json() {
            let counts = SpaceCounts {
                total,
                free,
                available,
                files,
                files_free,
            };
            command.write_record(&Record::space(&operand.text, &operand.path, counts));
            return Ok(());
        }
        let used = total.saturating_sub(free);
        rows.push(vec![
            space(total, flags.human_readable),
            space(used, flags.human_readable),
            space(available, flags.human_readable),
            percent(used, available),
            quoting.text(&operand.path),
        ]);
        Ok(())
    });
    if rows.len() > 1 {
        for line in align(&rows, |column, _| column == 4) {
            command.print(line.as_bytes());
            command.print(b"\n");
        }
    }
    command.finish()
}

/// The used share of the space available to this user, rounded up as by df(1).
fn percent(used: u64, available: u64) -> String {
    let all = u128::from(used) + u128::from(available);
    match all {
        0 => "-".into(),
        all => format!("{}%", (u128::from(used) * 100).div_ceil(all)),
    }
}

/// Runs `xdfs du` and returns the exit code.
pub(crate) fn du(context: &Context, flags: &DuFlags) -> u8 {
    let mut command = PathCommand::new(context, "du", &flags.common);
    let quoting = command.quoting(false);
    // Hard-linked files counted already, by device and inode.
    let mut counted: HashSet<(u64, u64)> = HashSet::new();
    let urls = command.expanded(&flags.urls);
    command.each(&urls, |command, operand| {
        let client = command.client(operand)?;
        let apparent = flags.apparent_size || !operand.place.address.traits().storage;
        let start = WalkEntry::start(&operand.path, stat(&client, &operand.path, false)?);
        let report = |command: &mut PathCommand, found: &WalkEntry, bytes: u64| {
            if flags.summarize && found.depth > 0 {
                return;
            }
            if command.is_json() {
                command.write_record(&Record::usage(&operand.text, &found.path, bytes));
            } else {
                let size = space(bytes, flags.human_readable);
                command.print(format!("{size}\t{}\n", quoting.text(&found.path)).as_bytes());
            }
        };
        // Sums of the directories above the current entry, the innermost last.
        let mut sums: Vec<u64> = Vec::new();
        for step in Walk::new(&WithPartial(&client), start, WalkOptions::default()) {
            match step {
                WalkStep::Entry(found) => {
                    let bytes = own_bytes(&found, apparent, &mut counted);
                    if found.is_directory() {
                        sums.push(bytes);
                    } else if let Some(sum) = sums.last_mut() {
                        *sum = sum.saturating_add(bytes);
                    } else {
                        report(command, &found, bytes);
                    }
                }
                WalkStep::Left(found) => {
                    let bytes = sums.pop().unwrap_or(0);
                    if let Some(above) = sums.last_mut() {
                        *above = above.saturating_add(bytes);
                    }
                    report(command, &found, bytes);
                }
                WalkStep::Failed(fault) => command.fault(Some(&operand.text), &fault),
            }
            if command.is_over() {
                break;
            }
        }
        Ok(())
    });
    command.finish()
}

/// The space of an entry itself; 0 if it was counted under another name.
fn own_bytes(found: &WalkEntry, apparent: bool, counted: &mut HashSet<(u64, u64)>) -> u64 {
    let a = &found.attributes;
    let again = a.links > 1
        && a.inode != 0
        && !found.is_directory()
        && !counted.insert((a.device, a.inode));
    match (again, apparent) {
        (true, _) => 0,
        // The names in a directory aren't content.
        (false, true) if found.is_directory() => 0,
        (false, true) => a.size,
        (false, false) => a.allocated,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn shares_are_rounded_up() {
        assert_eq!(percent(0, 100), "0%");
        assert_eq!(percent(1, 999), "1%");
        assert_eq!(percent(1, 0), "100%");
        assert_eq!(percent(0, 0), "-");
        assert_eq!(percent(u64::MAX, u64::MAX), "50%");
    }
}
