//! What a refusal means that doesn't say why: whether nothing is there, is looked up in a listing.

use std::collections::{HashMap, HashSet};

use xdfs_proto::{Code, Fault};

use super::channel::{Direction, Mode};
use super::fault::{is_unclear, refused, says_empty};
use super::incoming::Incoming;
use super::link::Link;
use super::listing::{ROW_BYTES_MAX, Rows};
use crate::reply::Reply;

/// Bytes of a listing that are read at most.
const BYTES_MAX: usize = 64 << 20;
/// Bytes that are read at once.
const PIECE_BYTES: usize = 64 << 10;
/// Most directories above a path that are listed.
const DEPTH_MAX: usize = 64;

/// The names in directories, in lower case too: servers may know names in any case.
type Names = HashSet<Vec<u8>>;

/// Directories that were listed, for several refusals in a row.
#[derive(Debug, Default)]
pub(super) struct Known {
    directories: HashMap<Vec<u8>, Option<Names>>,
}

/// Says that nothing is at a path if the refusal leaves it open, and the listings of the
/// directories above show it. Otherwise it stays a failure.
pub(super) fn explain(link: &mut Link, path: &[u8], reply: &Reply, fault: Fault) -> Fault {
    Known::default().explain(link, path, reply, fault)
}

impl Known {
    /// See [`explain`].
    pub(super) fn explain(
        &mut self,
        link: &mut Link,
        path: &[u8],
        reply: &Reply,
        fault: Fault,
    ) -> Fault {
        if !is_unclear(reply, &fault) {
            return fault;
        }
        match self.is_missing(link, path, 0) {
            Ok(true) => Fault {
                code: Code::NotFound,
                ..fault
            },
            Ok(false) => fault,
            Err(other) => {
                tracing::debug!(%other, "whether it is there is not known");
                fault
            }
        }
    }

    fn is_missing(&mut self, link: &mut Link, path: &[u8], depth: usize) -> Result<bool, Fault> {
        let slash = path.iter().rposition(|byte| *byte == b'/');
        let (Some(slash), true) = (slash, depth < DEPTH_MAX) else {
            return Ok(false);
        };
        let name = &path[slash + 1..];
        let parent = if slash == 0 { b"/" } else { &path[..slash] };
        if name.is_empty() {
            return Ok(false);
        }
        if !self.directories.contains_key(parent) {
            let names = names_in(link, parent)?;
            self.directories.insert(parent.to_vec(), names);
        }
        if let Some(names) = self.directories.get(parent).and_then(Option::as_ref) {
            return Ok(lacks(names, name));
        }
        if parent == b"/" || self.is_missing(link, parent, depth + 1)? {
            return Ok(parent != b"/");
        }
        // Another connection may have made it between the two looks.
        let names = names_in(link, parent)?;
        let is_missing = names.as_ref().is_some_and(|names| lacks(names, name));
        self.directories.insert(parent.to_vec(), names);
        Ok(is_missing)
    }
}

fn lacks(names: &Names, name: &[u8]) -> bool {
    !names.contains(name) && !names.contains(&name.to_ascii_lowercase())
}

/// The names in a directory; `None` if the server doesn't go there or doesn't list it.
fn names_in(link: &mut Link, path: &[u8]) -> Result<Option<Names>, Fault> {
    let entered = link.exchange("CWD", path)?;
    if !matches!(entered.code, 200..300) {
        return Ok(None);
    }
    let has_rows = link.features.mlst;
    // Hidden names too, which servers without MLSD leave out otherwise.
    let (verb, argument) = match has_rows {
        true => ("MLSD", path.to_vec()),
        false => ("NLST", b"-a".to_vec()),
    };
    link.prepare(Direction::Receive, Mode::Stream, 1)?;
    link.command(verb, &argument)?;
    let mut incoming = Incoming::new("list", path, Mode::Stream, 0, None);
    let (mut rows, mut rest, mut bytes) = (Rows::default(), Vec::new(), 0);
    let mut names = Names::new();
    let mut add = |name: &[u8]| {
        names.insert(name.to_ascii_lowercase());
        names.insert(name.to_vec());
    };
    let mut piece = vec![0; PIECE_BYTES];
    let broken = |cause: String| Fault::new(Code::ProtocolViolation, "list", cause);
    while !incoming.is_complete() {
        let count = match incoming.read(link, &mut piece) {
            Ok(count) => count,
            Err(fault) => {
                let said = incoming.confirmation().filter(|_| !incoming.has_started());
                return match said {
                    Some(reply) if says_empty(reply, path) => Ok(Some(Names::new())),
                    _ => Err(fault),
                };
            }
        };
        bytes += count;
        if bytes > BYTES_MAX || rest.len() > ROW_BYTES_MAX + PIECE_BYTES {
            return Err(broken("the listing is too long".into()).path(path));
        }
        if has_rows {
            rows.push(&piece[..count]);
            let is_last = incoming.is_complete();
            while let Some(row) = rows
                .next_row(is_last)
                .map_err(|error| broken(error.to_string()))?
            {
                add(&row.name);
            }
            continue;
        }
        rest.extend_from_slice(&piece[..count]);
        let end = match incoming.is_complete() {
            true => rest.len(),
            false => rest
                .iter()
                .rposition(|byte| *byte == b'\n')
                .map_or(0, |at| at + 1),
        };
        for line in rest
            .drain(..end)
            .collect::<Vec<_>>()
            .split(|byte| *byte == b'\n')
        {
            let line = line.strip_suffix(b"\r").unwrap_or(line);
            add(line.rsplit(|byte| *byte == b'/').next().unwrap_or(line));
        }
    }
    let is_whole = doubt(&incoming).is_none();
    // A directory that isn't shown lists nothing, not even itself.
    let shows = has_rows || names.contains(&b"."[..]);
    Ok(Some(names).filter(|_| is_whole && shows))
}

/// What the confirmation of a listing says, if it sounds as if there were more: some servers
/// confirm
/// a listing that they couldn't make, or of which they gave the beginning.
pub(super) fn doubt(incoming: &Incoming) -> Option<String> {
    let said = refused("", b"", incoming.confirmation()?).cause;
    let lower = said.to_ascii_lowercase();
    let words = [
        "fail",
        "error",
        "denied",
        "can't",
        "cannot",
        "truncated",
        "limit",
    ];
    words
        .iter()
        .any(|word| lower.contains(word))
        .then_some(said)
}
