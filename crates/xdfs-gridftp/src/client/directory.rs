//! Directories, listed to their ends.

use std::collections::HashMap;
use std::hash::{BuildHasher as _, RandomState};

use xdfs_proto::path::FileKind;
use xdfs_proto::{Code, Fault};

use super::channel::Direction;
use super::fault::{self, says_empty, violation};
use super::incoming::Incoming;
use super::link::Link;
use super::listed::{Listed, RowError};
use super::listing::{Rows, parse_facts, row_of};
use super::listings::NAMES_MAX;
use super::pool::FtpStore;
use super::{missing, plain};
use crate::facts::left_out;
use crate::reply::Reply;

const OPERATION: &str = "list";
/// Bytes that are read at once.
const PIECE_BYTES: usize = 64 << 10;
/// Most bytes of a listing.
const LISTING_BYTES_MAX: usize = 256 << 20;

/// Takes an entry of a listing.
pub(super) type Take<'a> = dyn FnMut(Listed) -> Result<(), Fault> + 'a;

/// The end of a listing.
pub(super) enum Told {
    /// Of so many names in it the server can't tell.
    All(u64),
    /// The server has refused the command, before any row.
    Refused(Reply),
    /// Its rows don't say what is a directory.
    Kindless,
}

/// Lists a directory to its end. Returns how many names in it the server couldn't tell.
///
/// # Errors
/// The server refuses it, or what it tells is no listing, or has no known form.
pub(super) fn each_entry(
    store: &FtpStore,
    path: &[u8],
    entry: &mut Take<'_>,
) -> Result<u64, Fault> {
    loop {
        let mut link = store.take(Some((Direction::List, 1)))?;
        let mode = store.mode(&link, Direction::List);
        let (mut has_begun, mut links) = (false, Vec::new());
        let resolved = FtpStore::resolve(&link, path);
        let has_rows = link.features.mlst;
        let mut take = |listed: Listed| {
            has_begun = true;
            if listed.link.is_some() || listed.attributes.kind == FileKind::Symlink {
                links.push(listed.clone());
            }
            if listed.is_own {
                return Ok(());
            }
            if has_rows {
                store.files().note(&resolved, &listed);
            }
            entry(listed)
        };
        let listed = match has_rows {
            true => {
                let command = ("MLSD", resolved.as_slice());
                let listed = match rows(store, &mut link, command, &resolved, &mut take) {
                    Ok(Told::Kindless) => {
                        link.leave_out_facts();
                        plain::list(store, &mut link, &resolved, &mut take).map(|()| 0)
                    }
                    Ok(Told::Refused(reply)) if is_empty(&mut link, &resolved, &reply)? => Ok(0),
                    told => told.and_then(|told| told.or_refused(&resolved)),
                };
                if link.features.mlst && listed.is_ok() && !links.is_empty() {
                    // MLST may tell what they lead to alone.
                    store.told().keep(&resolved, links.iter());
                }
                listed
            }
            false => plain::list(store, &mut link, &resolved, &mut take).map(|()| 0),
        };
        let listed = listed.map_err(|fault| link.explained(fault, has_begun));
        if link.is_usable() {
            store.give_back(link);
        }
        match listed {
            Err(fault) if !has_begun && store.falls_back(mode, &fault) => {}
            listed => return listed,
        }
    }
}

/// Reads the rows that a command asks for, also those of the directory itself.
///
/// # Errors
/// As [`each_entry`].
pub(super) fn rows(
    store: &FtpStore,
    link: &mut Link,
    (verb, argument): (&'static str, &[u8]),
    path: &[u8],
    entry: &mut Take<'_>,
) -> Result<Told, Fault> {
    let broken = |error: RowError| violation(OPERATION, error.to_string()).path(path);
    let mode = store.mode(link, Direction::List);
    link.prepare(Direction::List, mode, 1)?;
    link.command(verb, argument)?;
    let mut incoming = Incoming::new(OPERATION, path, mode, 0, None);
    let (mut names, mut bytes, mut piece) = (0, 0, vec![0; PIECE_BYTES]);
    let mut is_kindless = false;
    let mut seen = SeenNames::default();
    let mut rows = match verb {
        "LIST" => Rows::long(),
        _ => Rows::default(),
    };
    loop {
        let count = match incoming.read(link, &mut piece) {
            Ok(count) => count,
            Err(fault) => {
                return match incoming.confirmation().filter(|_| !incoming.has_started()) {
                    Some(reply) => Ok(Told::Refused(reply.clone())),
                    // What has begun can be done, and lacks more than names that can't be told.
                    None if bytes > 0 => Err(fault::broken(fault)),
                    None => Err(fault),
                };
            }
        };
        bytes += count;
        if names > NAMES_MAX || bytes > LISTING_BYTES_MAX {
            let cause = format!(
                "the directory has more than {NAMES_MAX} names, or more than {} MiB of them",
                LISTING_BYTES_MAX >> 20
            );
            return Err(Fault::new(Code::LimitExceeded, OPERATION, cause).path(path));
        }
        rows.push(&piece[..count]);
        while !is_kindless {
            let row = match rows.next_row(incoming.is_complete()) {
                Err(RowError::NoKind) if names == 0 => {
                    is_kindless = true;
                    break;
                }
                row => row.map_err(broken)?,
            };
            let Some(listed) = row else {
                break;
            };
            names += 1;
            seen.check(&listed, path)?;
            entry(listed)?;
        }
        if incoming.is_complete() {
            break;
        }
    }
    match missing::doubt(&incoming) {
        None if is_kindless => Ok(Told::Kindless),
        None => Ok(Told::All(incoming.confirmation().map_or(0, left_out))),
        Some(said) => {
            let cause = format!("the server may not have told all names: {said}");
            Err(Fault::new(Code::LimitExceeded, OPERATION, cause).path(path))
        }
    }
}

impl Told {
    /// How many names it lacks.
    ///
    /// # Errors
    /// It was refused.
    pub(super) fn or_refused(self, path: &[u8]) -> Result<u64, Fault> {
        match self {
            Self::All(left_out) => Ok(left_out),
            Self::Refused(reply) => Err(fault::refused(OPERATION, path, &reply)),
            Self::Kindless => Err(violation(OPERATION, RowError::NoKind.to_string()).path(path)),
        }
    }
}

impl Link {
    /// Whether a reply to MLST doesn't say what is there. Then MLST and MLSD are left out from now
    /// on: other commands tell.
    pub(super) fn lacks_kinds(&mut self, reply: &Reply) -> bool {
        let lacks = matches!(reply.code, 200..300)
            && matches!(parse_facts(row_of(reply)), Err(RowError::NoKind));
        if lacks {
            self.leave_out_facts();
        }
        lacks
    }

    /// MLST and MLSD aren't used from now on.
    pub(super) fn leave_out_facts(&mut self) {
        tracing::debug!("MLST and MLSD don't say what is a directory: they are left out");
        self.features.mlst = false;
    }
}

/// Whether a refusal to list a directory says that nothing is in it, and a directory is there.
///
/// # Errors
/// The connection is broken.
fn is_empty(link: &mut Link, path: &[u8], reply: &Reply) -> Result<bool, Fault> {
    if !says_empty(reply, path) {
        return Ok(false);
    }
    match FtpStore::look(link, path) {
        Ok(found) => Ok(found.attributes.kind == FileKind::Directory),
        Err(fault) if !link.is_usable() => Err(fault),
        Err(_) => Ok(false),
    }
}

/// The names of a listing, and what was told of them, by hashes.
#[derive(Default)]
struct SeenNames {
    random: RandomState,
    seen: HashMap<u64, u64>,
}

impl SeenNames {
    /// Fails for a name that comes again, with other facts: one of them may be part of another
    /// name, or it was replaced meanwhile. Servers may list a name twice that is created again.
    fn check(&mut self, listed: &Listed, path: &[u8]) -> Result<(), Fault> {
        if listed.is_own {
            return Ok(());
        }
        let Listed {
            name,
            attributes: found,
            link,
            ..
        } = listed;
        let name_hash = self.random.hash_one(name);
        let facts = (found.kind as u8, found.size, found.mtime_ns, link);
        let facts = self.random.hash_one(facts);
        if *self.seen.entry(name_hash).or_insert(facts) == facts {
            return Ok(());
        }
        let name = name.escape_ascii();
        let cause = format!("the server tells '{name}' twice, and not the same of it");
        let fault = Fault::new(Code::SourceChanged, OPERATION, cause).path(path);
        Err(fault.hint("list it again; names with ends of lines can't be told by FTP"))
    }
}

/// The fault of a listing that lacks so many names.
pub(super) fn untold(path: &[u8], names: u64) -> Fault {
    let what = match names {
        1 => "1 name in it is".to_owned(),
        names => format!("{names} names in it are"),
    };
    let cause = format!("{what} left out: FTP can't carry names with an end of a line");
    let fault = Fault::new(Code::Unsupported, OPERATION, cause).path(path);
    fault.hint("give them other names, or reach the server by xdfs:// or ssh://")
}
