//! `xdfs chmod` and `xdfs chown`.

use xdfs::operations::{InFlight, Walk, WalkEntry, WalkOptions, WalkStep, stat};
use xdfs::{Account, Answer, Attributes, Call, Client, Code, Fault, FileKind};

use super::command::PathCommand;
use super::criteria::Owner;
use super::operand::Operand;
use crate::context::Context;
use crate::flags::{ChmodFlags, ChownFlags};

/// Runs `xdfs chmod` and returns the exit code.
pub(crate) fn chmod(context: &Context, flags: &ChmodFlags) -> u8 {
    let mut command = PathCommand::new(context, "chmod", &flags.common);
    let set = |path: &[u8], a: &Attributes| Call::SetMode {
        path: path.to_vec(),
        mode: flags.mode.apply(a.mode, a.kind == FileKind::Directory),
    };
    let urls = command.expanded(&flags.urls);
    command.each(&urls, |command, operand| {
        let client = command.client(operand)?;
        let attributes = stat(&client, &operand.path, true)?;
        client.call(set(&operand.path, &attributes))?;
        if flags.recursive {
            // The permissions of a link have no effect, and its target isn't in the tree.
            let below = |found: &WalkEntry| {
                let is_link = found.attributes.kind == FileKind::Symlink;
                (!is_link).then(|| set(&found.path, &found.attributes))
            };
            change_below(command, &client, operand, attributes, below);
        }
        command.done(operand);
        Ok(())
    });
    command.finish()
}

/// Runs `xdfs chown` and returns the exit code.
pub(crate) fn chown(context: &Context, flags: &ChownFlags) -> u8 {
    let mut command = PathCommand::new(context, "chown", &flags.common);
    let urls = command.expanded(&flags.urls);
    command.each(&urls, |command, operand| {
        let client = command.client(operand)?;
        let [uid, gid] = numbers(&client, &operand.path, &flags.owner)?;
        let set = |path: &[u8], follow: bool| Call::SetOwner {
            path: path.to_vec(),
            uid,
            gid,
            follow,
        };
        let follow = !flags.no_dereference && !flags.recursive;
        client.call(set(&operand.path, follow))?;
        if flags.recursive {
            let attributes = stat(&client, &operand.path, false)?;
            let below = |found: &WalkEntry| Some(set(&found.path, false));
            change_below(command, &client, operand, attributes, below);
        }
        command.done(operand);
        Ok(())
    });
    command.finish()
}

/// The numbers of the owner and the group on the server.
///
/// # Errors
/// A name isn't known there, or can't be looked up.
fn numbers(client: &Client, path: &[u8], owner: &Owner) -> Result<[Option<u32>; 2], Fault> {
    const OPERATION: &str = "look up the owner for";
    const HINT: &str = "give the number, or a name of the server's system";
    let remote = |code, cause: String| {
        let fault = Fault::new(code, OPERATION, cause);
        client.fault_there(fault.path(path).hint(HINT))
    };
    let is_named = |a: &&Account| matches!(a, Account::UserNamed(_) | Account::GroupNamed(_));
    let accounts = [&owner.user, &owner.group].into_iter().flatten();
    let named: Vec<Account> = accounts.filter(is_named).cloned().collect();
    let found = client.look_up(path, &named);
    let found = found.map_err(|fault| match fault.code {
        Code::Unsupported => remote(fault.code, "the server can't look up names".into()),
        Code::PermissionDenied => fault.hint(HINT),
        _ => fault,
    });
    let mut found = found?.into_iter();
    let mut number = |account: &Option<Account>| {
        let (kind, name) = match account {
            None => return Ok(None),
            Some(Account::User(number) | Account::Group(number)) => return Ok(Some(*number)),
            Some(Account::GroupNamed(name)) => ("group", name),
            Some(Account::UserNamed(name)) => ("user", name),
        };
        match found.next().flatten() {
            Some(Account::User(number) | Account::Group(number)) => Ok(Some(number)),
            _ => {
                let cause = format!("the server knows no {kind} '{name}'");
                Err(remote(Code::InvalidArgument, cause))
            }
        }
    };
    Ok([number(&owner.user)?, number(&owner.group)?])
}

/// Makes a call for every entry beneath an operand, and reports faults.
fn change_below(
    command: &mut PathCommand,
    client: &Client,
    operand: &Operand,
    attributes: Attributes,
    call_for: impl Fn(&WalkEntry) -> Option<Call>,
) {
    let start = WalkEntry::start(&operand.path, attributes);
    let report = |command: &mut PathCommand, outcome: Option<((), Result<Answer, Fault>)>| {
        if let Some(((), Err(fault))) = outcome {
            command.fault(Some(&operand.text), &fault);
        }
    };
    let mut calls = InFlight::new();
    // No listing ahead: a directory is changed before it is listed, since the change may allow
    // that.
    let options = WalkOptions {
        listings_ahead_max: 0,
        ..WalkOptions::default()
    };
    for step in Walk::new(client, start, options) {
        match step {
            WalkStep::Entry(found) if found.depth > 0 => {
                let Some(call) = call_for(&found) else {
                    continue;
                };
                if found.is_directory() {
                    report(command, Some(((), client.call(call))));
                } else {
                    let earliest = calls.push((), client.start_call(call));
                    report(command, earliest);
                }
            }
            WalkStep::Entry(_) | WalkStep::Left(_) => {}
            WalkStep::Failed(fault) => command.fault(Some(&operand.text), &fault),
        }
    }
    while let Some(outcome) = calls.pop() {
        report(command, Some(outcome));
    }
}
