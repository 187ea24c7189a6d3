//! `xdfs mkdir`, `rm`, `mv`, `ln`, `touch` and `truncate`.

use std::ffi::OsStr;

use xdfs::operations::path::{is_root, join, last_part, parent};
use xdfs::operations::stat;
use xdfs::{
    Call, Client, Code, DigestKind, Fault, FileKind, LocalPlace, Resume, TransferOptions,
    TransferParameters, quoted,
};

use super::command::PathCommand;
use super::operand::{Operand, text_of};
use super::time;
use crate::context::Context;
use crate::flags::{LnFlags, MkdirFlags, MvFlags, RmFlags, TouchFlags, TruncateFlags};
use crate::missing;

/// Permissions of a new directory before the umask.
const DIRECTORY_MODE: u32 = 0o777;

/// Makes a call without a result.
fn change(client: &Client, call: Call) -> Result<(), Fault> {
    client.call(call).map(|_| ())
}

/// Runs `xdfs mkdir` and returns the exit code.
pub(crate) fn mkdir(context: &Context, flags: &MkdirFlags) -> u8 {
    let mut command = PathCommand::new(context, "mkdir", &flags.common);
    let mode = flags
        .mode
        .as_ref()
        .map(|mode| mode.apply(DIRECTORY_MODE, true));
    command.each(&flags.urls, |command, operand| {
        let call = Call::MakeDirectory {
            path: operand.path.clone(),
            mode,
            parents: flags.parents,
        };
        let made = change(&*command.client(operand)?, call);
        made.map_err(|fault| match fault.code {
            Code::AlreadyExists => fault.hint("--parents ignores that"),
            Code::NotFound if !flags.parents && missing::lacks_hint(&fault) => {
                fault.hint("use --parents to create its parent directories")
            }
            _ => fault,
        })?;
        command.done(operand);
        Ok(())
    });
    command.finish()
}

/// Runs `xdfs rm` and returns the exit code.
pub(crate) fn rm(context: &Context, flags: &RmFlags) -> u8 {
    let mut command = PathCommand::new(context, "rm", &flags.common);
    if flags.recursive {
        command = command.with_own_sessions();
    }
    let mut urls = Vec::new();
    for word in &flags.urls {
        match command.words_of(word) {
            Ok(words) => urls.extend(words),
            Err(fault) if flags.force && fault.code == Code::NotFound => {}
            Err(fault) => command.one(&text_of(word), |_| Err(fault)),
        }
    }
    command.each(&urls, |command, operand| {
        if is_root(&operand.path) {
            let cause = "the root of a server is never removed";
            let fault = Fault::new(Code::InvalidArgument, "remove", cause);
            return Err(operand.fault(fault.hint("name its contents")));
        }
        check_name(&operand.path, "remove").map_err(|fault| operand.fault(fault))?;
        match remove(command, operand, flags) {
            Err(fault) if flags.force && fault.code == Code::NotFound => {}
            Ok(false) => {}
            removed => {
                removed?;
                command.done(operand);
            }
        }
        Ok(())
    });
    command.finish()
}

/// Refuses a path whose last name is `.` or `..`: it is written by mistake more often than it is
/// meant, and the directory has a name of its own.
///
/// # Errors
/// It has such a name.
pub(crate) fn check_name(path: &[u8], operation: &str) -> Result<(), Fault> {
    if !matches!(last_part(path), b"." | b"..") {
        return Ok(());
    }
    let cause = "the last name of the path is '.' or '..'";
    let fault = Fault::new(Code::InvalidArgument, operation, cause);
    Err(fault.path(path).hint("name the directory itself"))
}

/// Removes a path; `false` if the user decides against it.
fn remove(command: &mut PathCommand, operand: &Operand, flags: &RmFlags) -> Result<bool, Fault> {
    let client = command.client(operand)?;
    let path = operand.path.clone();
    // A link with a trailing slash would refer to its target, which must not be removed.
    let is_directory = stat(&client, &path, false)?.kind == FileKind::Directory;
    if !is_directory && operand.is_written_as_directory() {
        let cause = "not a directory";
        return Err(operand.fault(Fault::new(Code::NotDirectory, "remove", cause)));
    }
    if is_directory && !flags.recursive && !flags.dir {
        let fault = Fault::new(Code::IsDirectory, "remove", "is a directory")
            .hint("use -r to remove it with its contents, or -d if it is empty");
        return Err(operand.fault(fault));
    }
    if flags.interactive {
        let all = if is_directory && flags.recursive {
            " and all in it"
        } else {
            ""
        };
        if !command.confirm(&format!("remove {}{all}?", quoted(&path)))? {
            return Ok(false);
        }
    }
    let call = match (is_directory, flags.recursive) {
        (false, _) => Call::RemoveFile { path },
        (true, true) => Call::RemoveTree { path },
        (true, false) => Call::RemoveDirectory { path },
    };
    change(&client, call).map(|()| true)
}

/// The path of an entry placed at or into a target.
fn landing(client: &Client, target: &Operand, name: &[u8], many: bool) -> Result<Vec<u8>, Fault> {
    let into = many || target.is_written_as_directory();
    let found = match stat(client, &target.path, true) {
        Ok(attributes) => Some(attributes.kind),
        Err(fault) if fault.code == Code::NotFound && !into => None,
        Err(fault) if missing::lacks_hint(&fault) => {
            let directory = join(&target.path, b"");
            return Err(fault.hint(missing::hint(&target.place, &directory)));
        }
        Err(fault) => return Err(fault),
    };
    match found {
        Some(FileKind::Directory) => Ok(join(&target.path, name)),
        _ if into => {
            let cause = "the target is not a directory";
            Err(target.fault(Fault::new(Code::NotDirectory, "use the target", cause)))
        }
        _ => Ok(target.path.clone()),
    }
}

/// Adds how to make the directory of `to`, a new path, if the server doesn't have that directory.
fn with_directory(client: &Client, target: &Operand, to: &[u8], fault: Fault) -> Fault {
    let is_missing = missing::lacks_hint(&fault)
        && stat(client, parent(to), true).is_err_and(|above| above.code == Code::NotFound);
    match is_missing {
        true => {
            let hint = missing::hint(&target.place, to);
            fault.path(to).hint(hint)
        }
        false => fault,
    }
}

fn two_servers(operation: &str) -> Fault {
    let cause =
        "the two paths are on different servers, for different users, or with different settings";
    Fault::new(Code::InvalidArgument, operation, cause)
        .hint("xdfs cp --remove-source moves it between servers")
}

/// Runs `xdfs mv` and returns the exit code.
pub(crate) fn mv(context: &Context, flags: &MvFlags) -> u8 {
    let mut command = PathCommand::new(context, "mv", &flags.common);
    // At least two, by the definition of the flags.
    let Some((last, sources)) = flags.urls.split_last() else {
        return command.finish();
    };
    let target = match command.operand(last) {
        Ok(target) => target,
        Err(fault) => {
            command.fault(Some(&text_of(last)), &fault);
            return command.finish();
        }
    };
    let sources = command.expanded(sources);
    command.each(&sources, |command, source| {
        if !source.shares_session(&target) {
            return Err(two_servers("rename"));
        }
        if is_root(&source.path) {
            let cause = "the root of a server can't be moved";
            return Err(source.fault(Fault::new(Code::InvalidArgument, "rename", cause)));
        }
        check_name(&source.path, "rename").map_err(|fault| source.fault(fault))?;
        let client = command.client(source)?;
        let to = landing(&client, &target, last_part(&source.path), sources.len() > 1)?;
        let renamed = change(
            &client,
            Call::Rename {
                from: source.path.clone(),
                to: to.clone(),
                overwrite: flags.force,
            },
        );
        match renamed {
            Err(fault) if fault.code == Code::AlreadyExists && flags.no_clobber => return Ok(()),
            Err(fault) if fault.code == Code::AlreadyExists => {
                return Err(fault.path(to).hint("use --force to replace it"));
            }
            renamed => {
                renamed.map_err(|fault| with_directory(&client, &target, &to, fault))?;
            }
        }
        command.done(source);
        Ok(())
    });
    command.finish()
}

/// Runs `xdfs ln` and returns the exit code.
pub(crate) fn ln(context: &Context, flags: &LnFlags) -> u8 {
    let mut command = PathCommand::new(context, "ln", &flags.common);
    // At least two, by the definition of the flags.
    let Some((link, targets)) = flags.places.split_last() else {
        return command.finish();
    };
    let targets = match flags.symbolic {
        // Texts, which need not name anything.
        true => targets.to_vec(),
        false => command.expanded(targets),
    };
    for target in &targets {
        if command.is_over() {
            break;
        }
        command.one(&text_of(link), |command| {
            make_link(command, flags, target, link, targets.len() > 1)
        });
    }
    command.finish()
}

fn make_link(
    command: &mut PathCommand,
    flags: &LnFlags,
    target: &OsStr,
    link: &OsStr,
    many: bool,
) -> Result<(), Fault> {
    let mut link = command.operand(link)?;
    let client = command.client(&link)?;
    let call = if flags.symbolic {
        let text = target.as_encoded_bytes();
        if command.config()?.is_remote(target) {
            let cause = "the text of a symbolic link is a path, not a URL";
            return Err(
                Fault::new(Code::InvalidArgument, "make the symbolic link", cause)
                    .path(text)
                    .hint("write the path as seen from the directory of the link"),
            );
        }
        link.path = landing(&client, &link, last_part(text), many)?;
        Call::Symlink {
            target: text.to_vec(),
            path: link.path.clone(),
        }
    } else {
        let existing = command.operand(target)?;
        if !existing.shares_session(&link) {
            return Err(two_servers("link"));
        }
        link.path = landing(&client, &link, last_part(&existing.path), many)?;
        Call::Link {
            existing: existing.path,
            path: link.path.clone(),
        }
    };
    let made = match change(&client, call.clone()) {
        Err(fault) if fault.code == Code::AlreadyExists && flags.force => {
            let path = link.path.clone();
            change(&client, Call::RemoveFile { path })?;
            change(&client, call)
        }
        made => made,
    };
    made.map_err(|fault| match fault.code {
        Code::AlreadyExists => fault.hint("use --force to replace it"),
        _ => with_directory(&client, &link, &link.path, fault),
    })?;
    command.done(&link);
    Ok(())
}

/// Creates an empty file.
fn make_file(client: &Client, operand: &Operand) -> Result<(), Fault> {
    let options = TransferOptions {
        parameters: TransferParameters {
            resume: Resume::Never,
            digest: Some(DigestKind::None),
            ..TransferParameters::default()
        },
        length: Some(0),
        ..TransferOptions::default()
    };
    let path = &operand.path;
    let made = client.upload(&LocalPlace::Memory, path, &options)?.wait();
    match made {
        // Created by another process.
        Err(fault) if fault.code == Code::AlreadyExists => Ok(()),
        Err(fault) => Err(with_directory(client, operand, path, fault)),
        Ok(_) => Ok(()),
    }
}

/// Access and modification time, in nanoseconds since 1970.
type Times = (i64, i64);

/// Runs `xdfs touch` and returns the exit code.
pub(crate) fn touch(context: &Context, flags: &TouchFlags) -> u8 {
    let mut command = PathCommand::new(context, "touch", &flags.common).with_transfers();
    let times = match wanted_times(&mut command, flags) {
        Ok(times) => times,
        Err(fault) => {
            let reference = flags.reference.as_deref().map(text_of);
            command.fault(reference.as_deref(), &fault);
            return command.finish();
        }
    };
    let both = flags.access == flags.modified;
    let urls = command.expanded(&flags.urls);
    command.each(&urls, |command, operand| {
        let client = command.client(operand)?;
        let call = Call::SetTimes {
            path: operand.path.clone(),
            atime_ns: (both || flags.access).then_some(times.0),
            mtime_ns: (both || flags.modified).then_some(times.1),
            follow: true,
        };
        match change(&client, call.clone()) {
            Err(fault) if fault.code == Code::NotFound => {
                if flags.no_create {
                    return Ok(());
                }
                if operand.is_written_as_directory() {
                    return Err(fault);
                }
                make_file(&client, operand)?;
                change(&client, call)?;
            }
            set => set?,
        }
        command.done(operand);
        Ok(())
    });
    command.finish()
}

/// The times set by the flags.
///
/// # Errors
/// The reference file can't be looked up.
fn wanted_times(command: &mut PathCommand, flags: &TouchFlags) -> Result<Times, Fault> {
    let Some(reference) = &flags.reference else {
        let time = flags.date.or(flags.stamp).unwrap_or_else(time::now);
        return Ok((time, time));
    };
    if command.config()?.is_remote(reference) {
        let reference = command.word_of(reference)?;
        let operand = command.operand(&reference)?;
        let attributes = stat(&*command.client(&operand)?, &operand.path, true)?;
        let time = attributes.mtime().ok_or_else(|| {
            let cause = "the server tells no time of it";
            Fault::new(Code::Unsupported, "look at the reference", cause).path(&operand.path)
        })?;
        return Ok((attributes.atime_ns, time));
    }
    let path = reference.as_encoded_bytes();
    let at = |error: &std::io::Error| Fault::from_io("look at the reference", path, error);
    let metadata = std::fs::metadata(reference).map_err(|e| at(&e))?;
    let times = (metadata.accessed(), metadata.modified());
    let nanoseconds = |time: std::io::Result<_>| time.map(time::nanoseconds_of);
    Ok((
        nanoseconds(times.0).map_err(|e| at(&e))?,
        nanoseconds(times.1).map_err(|e| at(&e))?,
    ))
}

/// Runs `xdfs truncate` and returns the exit code.
pub(crate) fn truncate(context: &Context, flags: &TruncateFlags) -> u8 {
    let mut command = PathCommand::new(context, "truncate", &flags.common).with_transfers();
    let urls = command.expanded(&flags.urls);
    command.each(&urls, |command, operand| {
        let client = command.client(operand)?;
        let path = operand.path.clone();
        let bytes = match stat(&client, &path, true) {
            Ok(attributes) => attributes.size,
            Err(fault) if fault.code == Code::NotFound => {
                if flags.no_create {
                    return Ok(());
                }
                make_file(&client, operand)?;
                0
            }
            Err(fault) => return Err(fault),
        };
        let length = flags.size.of(bytes).ok_or_else(|| {
            Fault::new(Code::InvalidArgument, "set the length of", "no such length").path(&path)
        })?;
        change(&client, Call::Truncate { path, length })?;
        command.done(operand);
        Ok(())
    });
    command.finish()
}
