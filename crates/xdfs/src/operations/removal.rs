//! Removes the source of a copy, where the target has the same content and is durable.
//!
//! It trusts no earlier step: everything is compared once more, by digests of both sides, so that
//! entries which a copy skipped count like those that it moved.

use std::collections::VecDeque;
use std::sync::mpsc::{self, RecvTimeoutError};
use std::thread;
use std::time::Duration;

use xdfs_proto::{ChecksumKind, Code, Fault};

use super::calls::SideCall;
use super::path::join;
use super::side::{PathSide, SidePath};
use super::walk::{WalkEntry, WalkOptions, WalkStep};
use crate::paths::{Answer, Attributes, Call, FileKind};
use crate::tree::Filter;

const OPERATION: &str = "remove the source";
/// Entries that are compared at once.
const ENTRIES_AHEAD: usize = 16;
/// The size from which a file takes long enough to be compared that a cancellation can't wait.
const LONG_BYTES: u64 = 64 << 20;
/// The interval between two checks for a cancellation meanwhile.
const TICK: Duration = Duration::from_millis(50);
/// Entries that are removed together, after one synchronisation of the target.
const GROUP_ENTRIES: usize = 1024;

/// A copy that has ended, with the source that it leaves: a file, or a tree.
#[derive(Clone, Debug)]
pub struct Removal {
    /// The source. The files and symbolic links of a tree are removed, and its directories stay.
    pub source: SidePath,
    /// The place that it was copied to.
    pub target: SidePath,
}

/// An event of a removal. Names are relative to the source, and empty for the source itself.
#[derive(Debug)]
#[non_exhaustive]
pub enum RemovalEvent<'a> {
    /// An entry was removed.
    Removed {
        /// Its name.
        name: &'a [u8],
    },
    /// An entry stays, since it isn't the same at the target, or can't be compared.
    Stays {
        /// Its name.
        name: &'a [u8],
        /// The reason.
        fault: &'a Fault,
    },
    /// An entry could not be removed, or looked up.
    Failed {
        /// Its name.
        name: &'a [u8],
        /// The reason.
        fault: &'a Fault,
    },
}

/// An entry that is compared with its target.
struct Candidate {
    entry: Entry,
    target: SideCall,
    contents: [SideCall; 2],
}

/// An entry of the source.
struct Entry {
    /// Relative to the root; empty for the root itself.
    name: Vec<u8>,
    path: Vec<u8>,
    attributes: Attributes,
}

struct Run<'a> {
    removal: &'a Removal,
    is_cancelled: &'a dyn Fn() -> bool,
    observer: &'a mut dyn FnMut(RemovalEvent<'_>),
    waiting: VecDeque<Candidate>,
    /// Entries that may be removed.
    equal: Vec<Entry>,
}

impl Removal {
    /// Removes the files and links of the source, without those that the filter leaves out, and
    /// passes events to `observer`. Ends soon once `is_cancelled` holds; a server may still compute
    /// the digest of a large file then, which [`Client::stop`](crate::Client::stop) ends.
    pub fn run(
        &self,
        filter: &Filter,
        is_cancelled: &dyn Fn() -> bool,
        observer: &mut dyn FnMut(RemovalEvent<'_>),
    ) {
        if is_cancelled() {
            return;
        }
        let mut run = Run {
            removal: self,
            is_cancelled,
            observer,
            waiting: VecDeque::new(),
            equal: Vec::new(),
        };
        match self.source.stat(true) {
            Ok(attributes) if attributes.kind == FileKind::Directory => {
                run.tree(attributes, filter);
            }
            Ok(attributes) => run.push(Entry {
                name: Vec::new(),
                path: self.source.path.clone(),
                attributes,
            }),
            Err(fault) => run.failed(b"", &fault),
        }
        while !run.waiting.is_empty() && !is_cancelled() {
            run.compare();
        }
        run.remove();
    }
}

impl Run<'_> {
    fn tree(&mut self, attributes: Attributes, filter: &Filter) {
        let source = &self.removal.source;
        let keeps = |found: &WalkEntry| {
            let (name, a) = (source.relative(&found.path), &found.attributes);
            let is_beyond = a.kind == FileKind::File && filter.leaves_out_file(a.size, a.mtime_ns);
            !is_beyond && !filter.leaves_out(name, found.is_directory())
        };
        let walk = source.walk(attributes, WalkOptions::default());
        for step in walk.only(keeps) {
            if (self.is_cancelled)() {
                return;
            }
            match step {
                WalkStep::Entry(found) => match found.attributes.kind {
                    FileKind::File | FileKind::Symlink => self.push(Entry {
                        name: source.relative(&found.path).to_vec(),
                        path: found.path,
                        attributes: found.attributes,
                    }),
                    _ => {}
                },
                WalkStep::Left(_) => {}
                WalkStep::Failed(fault) => self.failed(b"", &fault),
            }
        }
    }

    /// Starts to compare an entry.
    fn push(&mut self, entry: Entry) {
        let Removal { source, target } = self.removal;
        let there = match entry.name.as_slice() {
            [] => target.path.clone(),
            name => join(&target.path, name),
        };
        let content = |side: &PathSide, path: &[u8]| match entry.attributes.kind {
            FileKind::Symlink => side.start_call(Call::ReadLink {
                path: path.to_vec(),
            }),
            _ => side.start_digest(path, ChecksumKind::Blake3),
        };
        self.waiting.push_back(Candidate {
            target: target.side.start_stat(&there, false),
            contents: [
                content(&source.side, &entry.path),
                content(&target.side, &there),
            ],
            entry,
        });
        if self.waiting.len() >= ENTRIES_AHEAD {
            self.compare();
        }
    }

    /// Waits for the earliest comparison.
    fn compare(&mut self) {
        let Some(candidate) = self.waiting.pop_front() else {
            return;
        };
        let Candidate {
            entry,
            target,
            contents,
        } = candidate;
        match outcome(&entry.attributes, target, contents, self.is_cancelled) {
            Ok(()) => self.equal.push(entry),
            // The caller knows.
            Err(_) if (self.is_cancelled)() => {}
            Err(fault) => {
                let fault = &fault.path(entry.path);
                let name = &entry.name;
                (self.observer)(RemovalEvent::Stays { name, fault });
            }
        }
        if self.equal.len() >= GROUP_ENTRIES {
            self.remove();
        }
    }

    /// Removes the compared entries, once the target is durable.
    fn remove(&mut self) {
        let equal = std::mem::take(&mut self.equal);
        if equal.is_empty() || (self.is_cancelled)() {
            return;
        }
        let SidePath { side, path } = &self.removal.target;
        let sync = Call::Sync { path: path.clone() };
        if let Err(fault) = side.start_call(sync).wait() {
            return self.failed(b"", &fault);
        }
        let source = &self.removal.source.side;
        for group in equal.chunks(ENTRIES_AHEAD) {
            let now = group
                .iter()
                .map(|entry| source.start_stat(&entry.path, false));
            let now: Vec<SideCall> = now.collect();
            let mut removals = Vec::with_capacity(group.len());
            for (entry, now) in group.iter().zip(now) {
                // A single source may be named by a link, to which its attributes don't belong.
                match now.wait().and_then(attributes_of) {
                    Ok(now) if is_unchanged(&entry.attributes, &now) => {
                        let path = entry.path.clone();
                        removals.push((entry, source.start_call(Call::RemoveFile { path })));
                    }
                    Ok(_) => {
                        let cause = "it changed after it was copied, or is a link to what was";
                        let fault = Fault::new(Code::SourceChanged, OPERATION, cause);
                        self.failed(&entry.name, &fault.path(&entry.path));
                    }
                    Err(fault) => self.failed(&entry.name, &fault),
                }
            }
            for (entry, removal) in removals {
                let name = &entry.name;
                match removal.wait() {
                    Ok(_) => (self.observer)(RemovalEvent::Removed { name }),
                    Err(fault) => self.failed(name, &fault),
                }
            }
        }
    }

    fn failed(&mut self, name: &[u8], fault: &Fault) {
        (self.observer)(RemovalEvent::Failed { name, fault });
    }
}

fn attributes_of(answer: Answer) -> Result<Attributes, Fault> {
    match answer {
        Answer::Attributes(attributes) => Ok(attributes),
        _ => Err(Fault::new(
            Code::ProtocolViolation,
            OPERATION,
            "unexpected kind of answer",
        )),
    }
}

/// Whether a file is still the same version.
fn is_unchanged(before: &Attributes, now: &Attributes) -> bool {
    // The removal of another name of a file changes this time.
    let ctime_ns = match before.links {
        0 | 1 => now.ctime_ns,
        _ => before.ctime_ns,
    };
    version(before)
        == version(&Attributes {
            ctime_ns,
            ..now.clone()
        })
}

/// What changes with a file.
fn version(of: &Attributes) -> (FileKind, u64, u64, u64, i64, i64) {
    (
        of.kind,
        of.device,
        of.inode,
        of.size,
        of.mtime_ns,
        of.ctime_ns,
    )
}

/// Whether the entry is the same at the target, and another one.
///
/// # Errors
/// It isn't, or can't be compared, or the removal is cancelled.
fn outcome(
    source: &Attributes,
    target: SideCall,
    contents: [SideCall; 2],
    is_cancelled: &dyn Fn() -> bool,
) -> Result<(), Fault> {
    let different = |cause: &str| {
        let fault = Fault::new(Code::IntegrityMismatch, OPERATION, cause);
        Err(fault.hint("look at both with `xdfs check`"))
    };
    let target = target.wait().and_then(attributes_of)?;
    if version(&target) == version(source) {
        let cause = "source and target are one file";
        return Err(Fault::new(Code::InvalidArgument, OPERATION, cause));
    }
    if target.kind != source.kind || source.kind == FileKind::File && target.size != source.size {
        return different("its target is not the same");
    }
    let [one, other] = contents;
    // The call of the server runs while this side computes.
    let answers = move || Ok((one.wait()?, other.wait()?));
    let answers = match source.size >= LONG_BYTES {
        true => unless_cancelled(answers, is_cancelled)?,
        false => answers()?,
    };
    let is_same = match answers {
        (Answer::Target(one), Answer::Target(other)) => one == other,
        (Answer::Digest { value, length }, other) => other == Answer::Digest { value, length },
        _ => false,
    };
    if is_same {
        Ok(())
    } else {
        different("its target has other content")
    }
}

/// The result of `work`, which a thread of its own does: it is left behind at a cancellation.
fn unless_cancelled<T: Send + 'static>(
    work: impl FnOnce() -> Result<T, Fault> + Send + 'static,
    is_cancelled: &dyn Fn() -> bool,
) -> Result<T, Fault> {
    let (done, result) = mpsc::channel();
    thread::spawn(move || done.send(work()));
    loop {
        match result.recv_timeout(TICK) {
            Ok(result) => return result,
            Err(RecvTimeoutError::Timeout) if !is_cancelled() => {}
            Err(RecvTimeoutError::Timeout) => {
                return Err(Fault::new(Code::Cancelled, OPERATION, "it was cancelled"));
            }
            Err(RecvTimeoutError::Disconnected) => {
                let cause = "the comparison has failed";
                return Err(Fault::new(Code::Internal, OPERATION, cause));
            }
        }
    }
}
