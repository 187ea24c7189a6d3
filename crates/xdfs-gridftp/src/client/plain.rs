//! Servers without MLSD and MLST: what their other commands tell.
//!
//! LIST tells names, kinds, sizes and mostly modes, and no time that could be compared; SIZE and
//! MDTM tell sizes and times of files. Directories have no times here. Commands about several
//! entries are sent ahead.

use std::collections::HashSet;
use std::sync::atomic::Ordering;

use xdfs_proto::path::{FileKind, NO_TIME_NS};
use xdfs_proto::{Code, Fault};

use super::directory::{self, Take, Told};
use super::fault::{refused, says_empty};
use super::link::Link;
use super::listed::Listed;
use super::missing::{self, Known};
use super::pool::FtpStore;
use super::told_rows::split;
use super::tree::join;
use crate::reply::Reply;
use crate::time::parse_time;

const LOOK: &str = "look at";
/// Entries that are asked about in one round trip.
const AHEAD: usize = 100;

/// What is at a resolved path.
///
/// # Errors
/// Nothing is there, or the server doesn't tell.
pub(super) fn look(link: &mut Link, path: &[u8]) -> Result<Listed, Fault> {
    let mut found = look_at(link, &[path.to_vec()])?;
    found.pop().unwrap_or_else(|| FtpStore::facts(path, b""))
}

/// What is at each of some resolved paths.
///
/// # Errors
/// The connection is broken.
pub(super) fn look_at(
    link: &mut Link,
    paths: &[Vec<u8>],
) -> Result<Vec<Result<Listed, Fault>>, Fault> {
    let mut found = Vec::with_capacity(paths.len());
    for paths in paths.chunks(AHEAD) {
        look_ahead(link, paths, &mut found)?;
    }
    Ok(found)
}

fn look_ahead(
    link: &mut Link,
    paths: &[Vec<u8>],
    found: &mut Vec<Result<Listed, Fault>>,
) -> Result<(), Fault> {
    let before = found.len();
    let mut asked = Vec::with_capacity(paths.len());
    for path in paths {
        asked.push(link.command("SIZE", path));
    }
    let mut refusals = Vec::new();
    for (path, asked) in paths.iter().zip(asked) {
        if let Err(fault) = asked {
            found.push(Err(fault.path(path)));
            continue;
        }
        let reply = link.reply(LOOK)?;
        let size = number(&reply);
        let facts = size.map(|size| format!("Type=file;Size={size}; ."));
        found.push(match facts {
            Some(facts) => FtpStore::facts(path, facts.as_bytes()),
            None => {
                refusals.push((found.len() - before, reply.clone()));
                Err(refused(LOOK, path, &reply))
            }
        });
    }
    for (at, _) in &refusals {
        link.command("CWD", &paths[*at])?;
    }
    let mut missing = Vec::new();
    for (at, reply) in refusals {
        match link.reply(LOOK)?.code {
            200..300 => found[before + at] = FtpStore::facts(&paths[at], b"Type=dir; ."),
            _ => missing.push((at, reply)),
        }
    }
    let mut known = Known::default();
    for (at, reply) in missing {
        if let Err(fault) = &mut found[before + at] {
            *fault = known.explain(link, &paths[at], &reply, fault.clone());
        }
    }
    let files = paths.iter().zip(&mut found[before..]);
    let files = files.filter_map(|(path, found)| Some((path, found.as_mut().ok()?)));
    let is_file = |listed: &Listed| listed.attributes.kind == FileKind::File;
    let mut files: Vec<_> = files.filter(|(_, listed)| is_file(listed)).collect();
    times(link, &mut files)
}

fn number(reply: &Reply) -> Option<u64> {
    let text = reply.lines.first().filter(|_| reply.code == 213)?;
    let text = std::str::from_utf8(text.trim_ascii()).ok()?;
    let is_number = !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_digit());
    is_number.then(|| text.parse().ok()).flatten()
}

/// Asks for the times of files.
fn times<P: AsRef<[u8]>>(link: &mut Link, files: &mut [(P, &mut Listed)]) -> Result<(), Fault> {
    for files in files.chunks_mut(AHEAD) {
        if link.features.lacks_times {
            return Ok(());
        }
        let mut asked = Vec::with_capacity(files.len());
        for (path, _) in &*files {
            // Its name was listed, and may be one that can't be asked about.
            asked.push(link.command("MDTM", path.as_ref()).is_ok());
        }
        for ((_, listed), asked) in files.iter_mut().zip(asked) {
            if !asked {
                continue;
            }
            let reply = link.reply("ask for a time")?;
            let text = reply.lines.first().filter(|_| reply.code == 213);
            let time = text.and_then(|text| parse_time(text.trim_ascii()));
            listed.attributes.mtime_ns = time.unwrap_or(NO_TIME_NS);
            if matches!(reply.code, 500..=504) && !link.features.lacks_times {
                link.features.lacks_times = true;
                tracing::info!("the server tells no times: a synchronisation copies every file");
            }
        }
    }
    Ok(())
}

/// Lists a directory, with the times of its files.
///
/// # Errors
/// The server refuses it, or tells it in a form that isn't known.
pub(super) fn list(
    store: &FtpStore,
    link: &mut Link,
    path: &[u8],
    entry: &mut Take<'_>,
) -> Result<(), Fault> {
    let mut rows = read(store, link, path)?;
    let files = rows.iter_mut();
    let files = files.filter(|row| row.attributes.kind == FileKind::File);
    let mut files: Vec<_> = files.map(|row| (join(path, &row.name), row)).collect();
    times(link, &mut files)?;
    rows.into_iter().try_for_each(entry)
}

/// Reads the rows of a directory, and remembers them.
///
/// # Errors
/// As [`list`].
fn read(store: &FtpStore, link: &mut Link, path: &[u8]) -> Result<Vec<Listed>, Fault> {
    // In a path LIST may take wildcards, and options.
    let entered = link.exchange("CWD", path)?;
    if !matches!(entered.code, 200..300) {
        let fault = refused("list", path, &entered);
        return Err(missing::explain(link, path, &entered, fault));
    }
    let rows = read_here(store, link, path);
    if link.is_usable() {
        // Some systems don't remove a directory in which somebody is.
        let home = link.home.directory.clone();
        link.exchange("CWD", &home)?;
    }
    let rows = rows?;
    store.told().keep(path, rows.iter());
    Ok(rows)
}

/// Reads the rows of the directory in which the session is.
fn read_here(store: &FtpStore, link: &mut Link, path: &[u8]) -> Result<Vec<Listed>, Fault> {
    let mut ask = |argument: &[u8]| {
        let (mut rows, mut has_own) = (Vec::new(), false);
        let told = directory::rows(store, link, ("LIST", argument), path, &mut |row: Listed| {
            match row.is_own {
                true => has_own = true,
                false => rows.push(row),
            }
            Ok(())
        })?;
        Ok::<_, Fault>((told, rows, has_own))
    };
    // The directory is there: the session is in it.
    let is_empty = |told: &Told| match told {
        Told::Refused(reply) => says_empty(reply, path),
        _ => false,
    };
    let doubt = |code, cause: &str| Err(Fault::new(code, "list", cause).path(path));
    // Hidden names too. Where this option works, the directory itself is among them.
    let (told, all, has_own) = ask(b"-a")?;
    if has_own {
        store.lists_hidden().store(true, Ordering::Relaxed);
        return told.or_refused(path).map(|_| all);
    }
    let lists_hidden = store.lists_hidden().load(Ordering::Relaxed);
    match &told {
        told if is_empty(told) && lists_hidden => return Ok(all),
        told if is_empty(told) => {}
        Told::Refused(reply) if lists_hidden || !matches!(reply.code, 500 | 501 | 504 | 550) => {
            return told.or_refused(path).map(|_| all);
        }
        Told::All(_) if lists_hidden => {
            let cause = "the listing lacks '.', which the server lists in other directories";
            return doubt(Code::LimitExceeded, cause);
        }
        _ => {}
    }
    // It is unknown, or was taken for a name.
    let (told, plain, _) = ask(b"")?;
    if !is_empty(&told) {
        told.or_refused(path)?;
    }
    let key = |row: &Listed| (row.name.clone(), row.attributes.kind as u8);
    let known: HashSet<_> = all.iter().map(key).collect();
    let is_name = |row: &Listed| row.name == b"-a";
    if plain.iter().all(|row| known.contains(&key(row))) {
        Ok(all)
    } else if all.is_empty() || plain.iter().any(is_name) {
        Ok(plain)
    } else {
        let cause = "LIST and LIST -a tell different names: it may have changed meanwhile";
        doubt(Code::SourceChanged, cause)
    }
}

/// Adds what rows tell to what SIZE and CWD have told of entries. Directories whose rows aren't
/// remembered are listed for that.
///
/// # Errors
/// The connection is broken, or a directory can't be listed.
pub(super) fn complete<'a>(
    store: &FtpStore,
    link: &mut Link,
    found: impl Iterator<Item = (&'a Vec<u8>, &'a mut Listed)>,
) -> Result<(), Fault> {
    for (path, listed) in found {
        if let Some((above, _)) = split(path)
            && !store.told().knows(above)
        {
            read(store, link, above)?;
        }
        store.told().complete(path, listed);
    }
    Ok(())
}

/// Whether a path is a link now.
///
/// # Errors
/// As [`complete`].
pub(super) fn is_link(store: &FtpStore, link: &mut Link, path: &[u8]) -> Result<bool, Fault> {
    let Some((above, name)) = split(path) else {
        return Ok(false);
    };
    let rows = read(store, link, above)?;
    let found = rows.iter().find(|row| row.name == name);
    Ok(found.is_some_and(|row| row.attributes.kind == FileKind::Symlink))
}
