//! `xdfs chmod` and `xdfs chown`.

use xdfs::{Answer, Attributes, Call, Client, Fault, FileKind};

use super::command::{InFlight, PathCommand, stat};
use super::operand::{Operand, last_part};
use super::walk::{Walk, WalkEntry, WalkStep};
use crate::context::Context;
use crate::flags::{ChmodFlags, ChownFlags};

/// Runs `xdfs chmod` and returns the exit code.
pub(crate) fn chmod(context: &Context, flags: &ChmodFlags) -> u8 {
    let mut work = PathCommand::new(context, "chmod", &flags.common);
    let set = |path: &[u8], a: &Attributes| Call::SetMode {
        path: path.to_vec(),
        mode: flags.mode.apply(a.mode, a.kind == FileKind::Directory),
    };
    work.each(&flags.urls, |work, operand| {
        let client = work.client(operand)?;
        let attributes = stat(&client, &operand.path, true)?;
        client.call(set(&operand.path, &attributes))?;
        if flags.recursive {
            // The permissions of a link have no effect, and its target isn't in the tree.
            let below = |found: &WalkEntry| {
                let is_link = found.attributes.kind == FileKind::Symlink;
                (!is_link).then(|| set(&found.path, &found.attributes))
            };
            change_below(work, &client, operand, attributes, below);
        }
        work.done(operand);
        Ok(())
    });
    work.finish()
}

/// Runs `xdfs chown` and returns the exit code.
pub(crate) fn chown(context: &Context, flags: &ChownFlags) -> u8 {
    let mut work = PathCommand::new(context, "chown", &flags.common);
    let set = |path: &[u8], follow: bool| Call::SetOwner {
        path: path.to_vec(),
        uid: flags.owner.uid,
        gid: flags.owner.gid,
        follow,
    };
    work.each(&flags.urls, |work, operand| {
        let client = work.client(operand)?;
        let follow = !flags.no_dereference && !flags.recursive;
        client.call(set(&operand.path, follow))?;
        if flags.recursive {
            let attributes = stat(&client, &operand.path, false)?;
            let below = |found: &WalkEntry| Some(set(&found.path, false));
            change_below(work, &client, operand, attributes, below);
        }
        work.done(operand);
        Ok(())
    });
    work.finish()
}

/// Makes a call for every entry beneath an operand, and reports faults.
fn change_below(
    work: &mut PathCommand,
    client: &Client,
    operand: &Operand,
    attributes: Attributes,
    call_for: impl Fn(&WalkEntry) -> Option<Call>,
) {
    let start = WalkEntry {
        name: last_part(&operand.path).to_vec(),
        path: operand.path.clone(),
        attributes,
        depth: 0,
    };
    let report = |work: &mut PathCommand, outcome: Option<((), Result<Answer, Fault>)>| {
        if let Some(((), Err(fault))) = outcome {
            work.fault(Some(&operand.text), &fault);
        }
    };
    let mut calls = InFlight::new(client);
    // No listing ahead: a directory is changed before it is listed, since the change may allow
    // that.
    for step in Walk::new(client, start, u32::MAX, 0) {
        match step {
            WalkStep::Entry(found) if found.depth > 0 => {
                let Some(call) = call_for(&found) else {
                    continue;
                };
                if found.is_directory() {
                    report(work, Some(((), client.call(call))));
                } else {
                    let earliest = calls.push((), call);
                    report(work, earliest);
                }
            }
            WalkStep::Entry(_) | WalkStep::Left(_) => {}
            WalkStep::Failed(fault) => work.fault(Some(&operand.text), &fault),
        }
    }
    while let Some(outcome) = calls.pop() {
        report(work, Some(outcome));
    }
}
