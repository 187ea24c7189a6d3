//! `xdfs cp --remove-source`: removes sources whose targets have the same content and are durable.
//!
//! It trusts no earlier step: everything is compared once more, by digests of both sides, so that
//! entries which a copy skipped count like those that it moved.

use std::collections::VecDeque;
use std::sync::Arc;
use std::sync::mpsc::{self, RecvTimeoutError};
use std::thread;
use std::time::Duration;

use xdfs::operations::path::{join, last_part};
use xdfs::operations::{PathSide, SideCall, Walk, WalkEntry, WalkOptions, WalkStep};
use xdfs::{
    Answer, Attributes, Call, ChecksumKind, Code, Fault, FileKind, Filter, LocalPlace,
    TransferRoute,
};

use super::origins::Origins;
use super::plan::PlannedCopy;
use crate::interrupt::Interrupt;
use crate::report::{Label, Reporter};
use crate::session::Connector;

const OPERATION: &str = "remove the source";
/// Entries that are compared at once.
const ENTRIES_AHEAD: usize = 16;
/// The size from which a file takes long enough to be compared that an interrupt can't wait.
const LONG_BYTES: u64 = 64 << 20;
/// The interval between two checks for an interrupt meanwhile.
const TICK: Duration = Duration::from_millis(50);
/// Entries that are removed together, after one synchronisation of the target.
const GROUP_ENTRIES: usize = 1024;

/// A copy that has ended, with the sources that it leaves.
pub(super) struct Removal<'a> {
    pub(super) label: &'a Label,
    /// The side and the path of the source.
    pub(super) source: (PathSide, Vec<u8>),
    /// The side and the path of the target.
    pub(super) target: (PathSide, Vec<u8>),
    /// Entries that are not the same at the target are failures; otherwise the copy has reported
    /// some already.
    pub(super) reports_all: bool,
    pub(super) interrupt: &'a Interrupt,
}

/// An entry that is compared with its target.
struct Candidate {
    /// Relative to the root; empty for the root itself.
    name: Vec<u8>,
    path: Vec<u8>,
    attributes: Attributes,
    target: SideCall,
    contents: [SideCall; 2],
}

/// An entry that may be removed.
struct Compared {
    name: Vec<u8>,
    path: Vec<u8>,
    attributes: Attributes,
}

struct Run<'a> {
    removal: &'a Removal<'a>,
    reporter: &'a mut Reporter,
    waiting: VecDeque<Candidate>,
    equal: Vec<Compared>,
}

/// The removal of the source of a file that was copied; `None` if it has no path.
///
/// # Errors
/// The session can't be opened, or the target can't be looked up.
pub(super) fn of_file<'a>(
    connector: &Connector,
    job: &'a PlannedCopy,
    origins: &Origins,
    interrupt: &'a Interrupt,
) -> Result<Option<Removal<'a>>, Fault> {
    let (here_side, here) = match job.route.local() {
        LocalPlace::Path(here) => {
            let path = here.as_os_str().as_encoded_bytes().to_vec();
            (PathSide::Local, path)
        }
        LocalPlace::Server(file) => {
            let origin = origins.connect(file.place())?;
            (
                PathSide::Remote(Arc::clone(origin.client())),
                file.place().path.clone(),
            )
        }
        _ => return Ok(None),
    };
    let client = connector.connect(&job.server)?;
    let there = PathSide::Remote(Arc::clone(client.client()));
    connector.leave(&job.server, client);
    let (source, target) = match &job.route {
        TransferRoute::Upload { to, .. } => {
            let found = stat(&there, to, true).wait().and_then(attributes_of)?;
            let to = match found.kind {
                FileKind::Directory => join(to, last_part(&here)),
                _ => to.clone(),
            };
            ((here_side, here), (there, to))
        }
        TransferRoute::Download { from, .. } => ((there, from.clone()), (here_side, here)),
    };
    Ok(Some(Removal {
        label: &job.label,
        source,
        target,
        reports_all: true,
        interrupt,
    }))
}

impl Removal<'_> {
    /// Removes the files and links of the source, without those that the filter leaves out.
    /// Reports those that stay, and the failures.
    pub(super) fn run(&self, filter: &Filter, reporter: &mut Reporter) {
        let text = "comparing source and target before the source is removed";
        reporter.console().detail(text);
        if !self.interrupt.requested() {
            self.compare_and_remove(filter, reporter);
        }
        if self.interrupt.requested() {
            // Checksums of large files may take minutes more at a server.
            for (side, _) in [&self.source, &self.target] {
                if let PathSide::Remote(client) = side {
                    client.stop();
                }
            }
            let fault = Interrupt::fault(OPERATION);
            let hint = "run the same command again for what is left";
            reporter.failure(Some(self.label), &fault.hint(hint));
        }
    }

    fn compare_and_remove(&self, filter: &Filter, reporter: &mut Reporter) {
        let mut run = Run {
            removal: self,
            reporter,
            waiting: VecDeque::new(),
            equal: Vec::new(),
        };
        let (side, root) = &self.source;
        match stat(side, root, true).wait().and_then(attributes_of) {
            Ok(attributes) if attributes.kind == FileKind::Directory => {
                run.tree(attributes, filter);
            }
            Ok(attributes) => run.push(Vec::new(), root.clone(), attributes),
            Err(fault) => run.failed(b"", &fault),
        }
        while !run.waiting.is_empty() && !self.interrupt.requested() {
            run.compare();
        }
        run.remove();
    }
}

impl Run<'_> {
    fn tree(&mut self, attributes: Attributes, filter: &Filter) {
        let (side, root) = &self.removal.source;
        let start = WalkEntry::start(root, attributes);
        let relative = |path: &[u8]| {
            let rest = path.get(root.len()..).unwrap_or_default();
            rest.strip_prefix(b"/").unwrap_or(rest).to_vec()
        };
        let keeps = |found: &WalkEntry| {
            let a = &found.attributes;
            let is_beyond = a.kind == FileKind::File && filter.leaves_out_file(a.size, a.mtime_ns);
            !is_beyond && !filter.leaves_out(&relative(&found.path), found.is_directory())
        };
        for step in Walk::new(side, start, WalkOptions::default()).only(keeps) {
            if self.removal.interrupt.requested() {
                return;
            }
            match step {
                WalkStep::Entry(found) => match found.attributes.kind {
                    FileKind::File | FileKind::Symlink => {
                        self.push(relative(&found.path), found.path, found.attributes);
                    }
                    _ => {}
                },
                WalkStep::Left(_) => {}
                WalkStep::Failed(fault) => self.failed(b"", &fault),
            }
        }
    }

    /// Starts to compare an entry.
    fn push(&mut self, name: Vec<u8>, path: Vec<u8>, attributes: Attributes) {
        let (source, (target, root)) = (&self.removal.source.0, &self.removal.target);
        let there = match name.as_slice() {
            [] => root.clone(),
            name => join(root, name),
        };
        let content = |side: &PathSide, path: &[u8]| {
            let path = path.to_vec();
            side.start_call(match attributes.kind {
                FileKind::Symlink => Call::ReadLink { path },
                _ => Call::Checksum {
                    path,
                    offset: 0,
                    length: None,
                    kind: ChecksumKind::Blake3,
                },
            })
        };
        let candidate = Candidate {
            target: stat(target, &there, false),
            contents: [content(source, &path), content(target, &there)],
            name,
            path,
            attributes,
        };
        self.waiting.push_back(candidate);
        if self.waiting.len() >= ENTRIES_AHEAD {
            self.compare();
        }
    }

    /// Waits for the earliest comparison.
    fn compare(&mut self) {
        let Some(entry) = self.waiting.pop_front() else {
            return;
        };
        let Candidate {
            name,
            path,
            attributes,
            target,
            contents,
        } = entry;
        match outcome(&attributes, target, contents, self.removal.interrupt) {
            Ok(()) => self.equal.push(Compared {
                name,
                path,
                attributes,
            }),
            // Reported once, at the end.
            Err(_) if self.removal.interrupt.requested() => {}
            Err(fault) => self.stays(&name, &fault.path(path)),
        }
        if self.equal.len() >= GROUP_ENTRIES {
            self.remove();
        }
    }

    /// Removes the compared entries, once the target is durable.
    fn remove(&mut self) {
        let equal = std::mem::take(&mut self.equal);
        if equal.is_empty() || self.removal.interrupt.requested() {
            return;
        }
        let (target, root) = &self.removal.target;
        if let Err(fault) = target.start_call(Call::Sync { path: root.clone() }).wait() {
            return self.failed(b"", &fault);
        }
        let source = &self.removal.source.0;
        for group in equal.chunks(ENTRIES_AHEAD) {
            let now = group.iter().map(|entry| stat(source, &entry.path, false));
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
                match removal.wait() {
                    Ok(_) => self.reporter.source_removed(),
                    Err(fault) => self.failed(&entry.name, &fault),
                }
            }
        }
    }

    /// Reports an entry that isn't the same at the target.
    fn stays(&mut self, name: &[u8], fault: &Fault) {
        if self.removal.reports_all {
            self.failed(name, fault);
        } else {
            self.reporter.console().detail(&fault.to_string());
        }
    }

    fn failed(&mut self, name: &[u8], fault: &Fault) {
        self.reporter.tree_failure(self.removal.label, name, fault);
    }
}

fn stat(side: &PathSide, path: &[u8], follow: bool) -> SideCall {
    let path = path.to_vec();
    side.start_call(Call::Stat { path, follow })
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
/// It isn't, or can't be compared, or the user has interrupted it.
fn outcome(
    source: &Attributes,
    target: SideCall,
    contents: [SideCall; 2],
    interrupt: &Interrupt,
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
        true => unless_interrupted(answers, interrupt)?,
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

/// The result of `work`, which a thread of its own does: it is left behind at an interrupt.
fn unless_interrupted<T: Send + 'static>(
    work: impl FnOnce() -> Result<T, Fault> + Send + 'static,
    interrupt: &Interrupt,
) -> Result<T, Fault> {
    let (done, result) = mpsc::channel();
    thread::spawn(move || done.send(work()));
    loop {
        match result.recv_timeout(TICK) {
            Ok(result) => return result,
            Err(RecvTimeoutError::Timeout) if !interrupt.requested() => {}
            Err(RecvTimeoutError::Timeout) => return Err(Interrupt::fault(OPERATION)),
            Err(RecvTimeoutError::Disconnected) => {
                let cause = "the comparison has failed";
                return Err(Fault::new(Code::Internal, OPERATION, cause));
            }
        }
    }
}
