//! Unfinished transfers: which there are in a directory, and discarding them.
//!
//! A transfer holds the lock of its partial file, so nothing is discarded that is in use. A journal
//! without a partial file is discarded in the same way: under the lock of a new one.

use std::collections::BTreeSet;
use std::ops::ControlFlow;

use xdfs_proto::path::{Answer, PART_BYTES, PartialFile};
use xdfs_proto::{Code, Fault};
use xdfs_sys::fs::{Dir, FileKind, Meta};

use super::super::journal_file::JournalFile;
use super::super::partial::{self, Partial};
use super::super::path::{self, HiddenNames};
use super::super::target::Target;
use super::{Paths, io_fault, resolve_fault};

/// Names held in memory, the first ones in their order.
const SORTED_MAX: usize = 1024;

pub(super) fn list(paths: &Paths<'_>, requested: &[u8], after: &[u8]) -> Result<Answer, Fault> {
    paths.check(requested)?;
    let dir = paths.open(requested);
    let dir = dir.map_err(|error| resolve_fault(requested, &error))?;
    let mut names = BTreeSet::new();
    let mut more = false;
    let read = dir.each_name(None, &mut |name, _, _| {
        if let Some(stem) = path::stem_of_hidden(name)
            && stem > after
        {
            names.insert(stem.to_vec());
            if names.len() > SORTED_MAX {
                names.pop_last();
                more = true;
            }
        }
        ControlFlow::Continue(())
    });
    read.map_err(|error| io_fault(requested, &error))?;
    let (mut files, mut bytes) = (Vec::new(), 0);
    for name in names {
        if bytes >= PART_BYTES {
            more = true;
            break;
        }
        // Those that were finished or discarded meanwhile are none any more.
        if let Some(file) = look(&dir, name) {
            bytes += file.bytes();
            files.push(file);
        }
    }
    // If all have vanished, the next names are for another call.
    more &= !files.is_empty();
    Ok(Answer::Partial { files, more })
}

/// The unfinished transfer of this name.
fn look(dir: &Dir, name: Vec<u8>) -> Option<PartialFile> {
    let names = HiddenNames::of(&name);
    let [partial, journal] = found(dir, &names);
    let newest = newest(&[&partial, &journal])?;
    let claimed = partial
        .as_ref()
        .and_then(|_| JournalFile::arrived(dir, &names));
    let (arrived, length) = claimed.unwrap_or_default();
    let allocated = [partial, journal].into_iter().flatten();
    let allocated = allocated.filter_map(|meta| meta.allocated).sum();
    Some(PartialFile {
        name,
        arrived,
        length,
        allocated,
        mtime_ns: newest,
    })
}

/// The partial file and its journal.
fn found(dir: &Dir, names: &HiddenNames) -> [Option<Meta>; 2] {
    let meta = |name: &[u8]| {
        let meta = dir.meta_of(name).ok().flatten();
        meta.filter(|meta| meta.kind != FileKind::Directory)
    };
    let journal = meta(&names.journal).or_else(|| meta(&names.new_journal));
    [meta(&names.partial), journal]
}

fn newest(metas: &[&Option<Meta>]) -> Option<i64> {
    let metas = metas.iter().copied().flatten();
    metas.map(|meta| meta.mtime_ns).max()
}

pub(super) fn remove(
    paths: &Paths<'_>,
    requested: &[u8],
    unchanged_since_ns: Option<i64>,
) -> Result<(), Fault> {
    let name = paths.name(requested)?;
    let names = HiddenNames::of(name.name);
    let check_age = |metas: &[&Option<Meta>]| {
        let newest = newest(metas).ok_or_else(|| {
            let cause = "there is no unfinished transfer to it";
            Fault::new(Code::NotFound, "", cause).path(requested)
        })?;
        match unchanged_since_ns.is_some_and(|since| newest >= since) {
            true => {
                let cause = "something has arrived since then";
                Err(Fault::new(Code::Busy, "", cause).path(requested))
            }
            false => Ok(()),
        }
    };
    let [partial, journal] = found(&name.dir, &names);
    check_age(&[&partial, &journal])?;
    let target = Target {
        dir: name.dir,
        name: name.name.to_vec(),
        path: requested.to_vec(),
    };
    let locked = Partial::open(&target, &names).map_err(|fault| match fault.code {
        Code::Busy => Fault::new(Code::Busy, "", "the transfer is running")
            .path(requested)
            .hint("wait for it to end"),
        _ => fault,
    })?;
    // A transfer may have gone on and ended since.
    let [partial, journal] = found(&target.dir, &names);
    let partial = partial.filter(|_| !locked.is_new);
    let checked = match check_age(&[&partial, &journal]) {
        Err(fault) if fault.code == Code::NotFound => Ok(()),
        checked => checked,
    };
    let discard = || {
        if checked.is_ok() {
            JournalFile::remove(&target.dir, &names)?;
        }
        let goes = checked.is_ok() || locked.is_new;
        if goes && partial::is_named(&target, &names, &locked.file)? {
            target.dir.remove(&names.partial)?;
        }
        Ok(())
    };
    let discarded = discard();
    partial::unlock(&locked.file);
    discarded.map_err(|error| io_fault(requested, &error))?;
    checked
}
