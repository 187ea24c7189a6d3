//! Sources of `xdfs cp` that are one file on several servers.

use std::fs::File;
use std::path::Path;

use xdfs::operations::{MirroredFile, read_mirrors};
use xdfs::{Code, Fault, RemotePlace, ReplicaSet};

use crate::console::Console;
use crate::flags::{CpFlags, OutputFlags};
use crate::place::shown;
use crate::replicas::SeveralSources;
use crate::session::Connector;

const OPERATION: &str = "read the list of mirrors";

/// A file that several servers have.
#[derive(Clone, Debug)]
pub(super) struct SeveralFile {
    /// Its sources, as they are shown.
    pub(super) text: String,
    /// Its places, and facts known beforehand.
    pub(super) set: ReplicaSet,
}

/// Takes the words that list several sources of a file from the sources of the command.
///
/// # Errors
/// One of the URLs can't be understood or names no file, or the command can't be done with it.
pub(super) fn take(flags: &mut CpFlags) -> Result<Vec<SeveralFile>, Fault> {
    let mut files = Vec::new();
    let mut rest = Vec::new();
    for word in std::mem::take(&mut flags.places.sources) {
        match word.to_str().and_then(ReplicaSet::listed) {
            Some(places) => files.push(SeveralFile {
                text: shown(&word),
                set: ReplicaSet::new(places?)?,
            }),
            None => rest.push(word),
        }
    }
    flags.places.sources = rest;
    if let Some(list) = &flags.servers.mirrors {
        files.extend(listed(list, flags.output)?);
    }
    if !files.is_empty() {
        check(flags)?;
    }
    Ok(files)
}

/// The files of a list of mirrors.
fn listed(list: &Path, output: OutputFlags) -> Result<Vec<SeveralFile>, Fault> {
    let name = list.as_os_str().as_encoded_bytes();
    let failed = |error| Fault::from_io(OPERATION, name, &error);
    let files = match name {
        b"-" => read_mirrors(std::io::stdin().lock(), name)?,
        _ => read_mirrors(File::open(list).map_err(failed)?, name)?,
    };
    let is_one = files.len() == 1;
    let set = |file: MirroredFile| {
        let text = match &file.name {
            Some(file) if !is_one => format!("{}#{file}", list.display()),
            _ => list.display().to_string(),
        };
        let set = set_of(file, output).map_err(|fault| fault.path(&text))?;
        Ok(SeveralFile { text, set })
    };
    files.into_iter().map(set).collect()
}

/// The sources of a file of a list.
fn set_of(file: MirroredFile, output: OutputFlags) -> Result<ReplicaSet, Fault> {
    let count = file.urls.len();
    let (known, others): (Vec<_>, Vec<_>) =
        (file.urls.into_iter()).partition(|url| RemotePlace::is_remote(url));
    if known.is_empty() {
        let cause = format!("none of its {count} URLs is of a protocol that xdfs speaks");
        let fault = Fault::new(Code::Unsupported, OPERATION, cause);
        return Err(fault.hint("those are xdfs, ssh, ftp, ftps, gsiftp and sshftp"));
    }
    if !others.is_empty() {
        let text = format!(
            "warning: {} of {count} URLs are left out: xdfs doesn't speak their protocols",
            others.len()
        );
        Console::new(output).info(&text);
    }
    let places = known
        .iter()
        .map(|url| url.parse())
        .collect::<Result<_, _>>()?;
    let set = ReplicaSet::new(places)?;
    Ok(ReplicaSet {
        name: file.name.map_or(set.name, String::into_bytes),
        length: file.length,
        digest: file.digest,
        ..set
    })
}

/// Refuses what makes no sense with several sources of a file.
fn check(flags: &CpFlags) -> Result<(), Fault> {
    let refused = [
        (flags.recursive, "--recursive"),
        (flags.archive, "--archive"),
        (flags.files_from.is_some(), "--files-from"),
        (flags.remove_source, "--remove-source"),
        (flags.servers.detach, "--detach"),
    ];
    let invalid = |cause| Fault::new(Code::InvalidArgument, "plan the copy", cause);
    if let Some((_, flag)) = refused.iter().find(|(is_wanted, _)| *is_wanted) {
        let cause = format!("{flag} can't be done with several sources of one file");
        let hint = "name a single source; a comma in a path before a URL is %2C";
        return Err(invalid(cause).hint(hint));
    }
    let security = &flags.session.security;
    let secrets = [
        (security.password_file.is_some(), "--password-file"),
        (security.token_file.is_some(), "--token-file"),
        (security.ticket_file.is_some(), "--ticket-file"),
    ];
    match secrets.iter().find(|(is_named, _)| *is_named) {
        Some((_, flag)) if flags.servers.mirrors.is_some() => {
            let cause = format!("{flag} would send a secret to any server that a list names");
            Err(invalid(cause).hint("name the sources that may have it: URL,URL"))
        }
        _ => Ok(()),
    }
}

/// The files of several servers, and those of groups of servers.
///
/// # Errors
/// The command has both.
pub(super) fn joined(
    several: Vec<SeveralFile>,
    striped: Vec<SeveralFile>,
    is_target_striped: bool,
) -> Result<Vec<SeveralFile>, Fault> {
    match (several.is_empty(), striped.is_empty() && !is_target_striped) {
        (_, true) => Ok(several),
        (true, _) => Ok(striped),
        _ => {
            let cause = "--stripe can't be done together with several sources of one file";
            let fault = Fault::new(Code::InvalidArgument, "plan the copy", cause);
            Err(fault.hint("copy them by two commands"))
        }
    }
}

/// Refuses a word that lists several sources, where a single one is needed.
///
/// # Errors
/// It is one.
pub(super) fn refuse(word: &std::ffi::OsStr) -> Result<(), Fault> {
    if word.to_str().and_then(ReplicaSet::listed).is_none() {
        return Ok(());
    }
    let cause = "several sources of one file can't be on a line of a list";
    let fault = Fault::new(Code::InvalidArgument, "plan the copy", cause).path(shown(word));
    Err(fault.hint("copy it by a command of its own"))
}

/// The connector with these files, whose sources it opens sessions with.
pub(super) fn connector(connector: Connector, flags: &CpFlags, files: &[SeveralFile]) -> Connector {
    if files.is_empty() {
        return connector;
    }
    let words = flags.places.sources.iter().chain([&flags.places.target]);
    let sources = files.iter().flat_map(|file| &file.set.places);
    sending(connector.for_words_and(words, sources), files, None)
}

/// A connector with these sources of files, and servers that write the target together, where the
/// places of the command are known to it.
pub(super) fn sending(
    connector: Connector,
    files: &[SeveralFile],
    target: Option<ReplicaSet>,
) -> Connector {
    if files.is_empty() && target.is_none() {
        return connector;
    }
    let sessions = connector.clone();
    let sets = files.iter().map(|file| file.set.clone()).collect();
    let several = SeveralSources::new(sets, move |place: &RemotePlace| {
        sessions.connect_source(place)
    });
    connector.with_several(several.writing(target))
}
