//! `xdfs check`: compares two trees, on any sides, by walking both in the same order.

use std::cmp::Ordering;
use std::collections::VecDeque;
use std::ffi::OsStr;

use xdfs::operations::{
    PathSide, SideCall, Walk, WalkEntry, WalkOptions, WalkStep, unexpected_answer,
};
use xdfs::record::{CheckCounts, Record};
use xdfs::{Answer, Attributes, Call, ChecksumKind, ChecksumValue, Code, Fault, FileKind, Filter};

use super::command::PathCommand;
use super::operand::text_of;
use super::side::SideOperand;
use super::sum::ask_digest;
use crate::context::Context;
use crate::flags::CheckFlags;
use crate::human;

/// Entries that are compared at once.
const ENTRIES_AHEAD: usize = 16;

/// Runs the command and returns the exit code.
pub(crate) fn check(context: &Context, flags: &CheckFlags) -> u8 {
    let mut command = PathCommand::new(context, "check", &flags.common).with_own_sessions();
    command.one(&text_of(&flags.source), |command| compare(command, flags));
    command.finish()
}

/// One of the two trees: its next entry, and what could not be listed.
struct Tree<'a> {
    operand: &'a SideOperand,
    walk: Walk<'a, PathSide>,
    next: Option<WalkEntry>,
    /// The latest entry, relative to the root.
    latest: Vec<u8>,
    /// Directories that were not listed completely, above the latest entry or at it.
    unlisted: Vec<Vec<u8>>,
}

impl<'a> Tree<'a> {
    fn new(operand: &'a SideOperand, attributes: Attributes, filter: &'a Filter) -> Self {
        let keeps = |found: &WalkEntry| {
            let (path, a) = (operand.relative(&found.path), &found.attributes);
            let is_beyond = a.kind == FileKind::File && filter.leaves_out_file(a.size, a.mtime_ns);
            !is_beyond && !filter.leaves_out(path, found.is_directory())
        };
        let sorted = WalkOptions {
            sorted: true,
            ..WalkOptions::default()
        };
        Self {
            operand,
            walk: operand.walk(attributes, sorted).only(keeps),
            next: None,
            latest: Vec::new(),
            unlisted: Vec::new(),
        }
    }

    /// Goes to the next entry, and reports directories that can't be listed.
    fn advance(&mut self, command: &mut PathCommand) {
        self.next = loop {
            match self.walk.next() {
                Some(WalkStep::Entry(found)) => {
                    self.latest = self.operand.relative(&found.path).to_vec();
                    // The root has been looked at.
                    if found.depth > 0 {
                        break Some(found);
                    }
                }
                Some(WalkStep::Left(_)) => {}
                // Follows its directory at once.
                Some(WalkStep::Failed(fault)) => {
                    self.unlisted.push(self.latest.clone());
                    command.fault(Some(&self.operand.text), &fault);
                }
                None => break None,
            }
        };
    }

    fn relative(&self, found: &WalkEntry) -> Vec<u8> {
        self.operand.relative(&found.path).to_vec()
    }

    /// Whether the path may be in a directory that was not listed completely.
    fn may_have(&mut self, path: &[u8]) -> bool {
        let is_in = |above: &Vec<u8>| {
            let below = path.strip_prefix(above.as_slice());
            above.is_empty() || below.is_some_and(|below| below.starts_with(b"/"))
        };
        // Both trees are in the same order: none of the others is needed again.
        self.unlisted.retain(is_in);
        !self.unlisted.is_empty()
    }
}

/// The order of a walk: by the names, one directory after the other.
fn order(a: &[u8], b: &[u8]) -> Ordering {
    a.split(|&c| c == b'/').cmp(b.split(|&c| c == b'/'))
}

/// An entry that is on one side or both.
struct Compared {
    path: Vec<u8>,
    source: Option<Attributes>,
    target: Option<Attributes>,
    /// Content that has to be compared, of source and target.
    asked: Option<[(Vec<u8>, SideCall); 2]>,
}

struct Comparison<'a> {
    source: &'a SideOperand,
    target: &'a SideOperand,
    kind: ChecksumKind,
    waiting: VecDeque<Compared>,
    counts: CheckCounts,
}

/// Attributes of the operand that `word` names, which may have been meant as another place.
fn stat(command: &PathCommand, operand: &SideOperand, word: &OsStr) -> Result<Attributes, Fault> {
    match operand.stat(true) {
        Err(fault) if fault.code == Code::NotFound => Err(command.config()?.hinted(fault, [word])),
        other => other,
    }
}

fn compare(command: &mut PathCommand, flags: &CheckFlags) -> Result<(), Fault> {
    let filter = flags.filter.filter()?;
    let source = command.word_of(&flags.source)?;
    let source = SideOperand::open(command, &source)?;
    let target = command.word_of(&flags.target)?;
    let target = SideOperand::open(command, &target)?;
    let roots = [
        stat(command, &source, &flags.source)?,
        stat(command, &target, &flags.target)?,
    ];
    let mut comparison = Comparison {
        source: &source,
        target: &target,
        kind: flags.digest.into(),
        waiting: VecDeque::new(),
        counts: CheckCounts::default(),
    };
    let [source_root, target_root] = roots;
    let is_directory = |root: &Attributes| root.kind == FileKind::Directory;
    match (is_directory(&source_root), is_directory(&target_root)) {
        (true, true) => {
            let mut trees = (
                Tree::new(&source, source_root, &filter),
                Tree::new(&target, target_root, &filter),
            );
            comparison.merge(command, &mut trees);
        }
        (false, false) => {
            let paths = [source.path.clone(), target.path.clone()];
            comparison.both(command, b".".to_vec(), paths, [source_root, target_root]);
        }
        (first, _) => {
            let file = if first { &target } else { &source };
            let cause = "the other one is a directory";
            let hint = "name two files, or two directories";
            let fault = Fault::new(Code::NotDirectory, "compare", cause);
            return Err(file.side.fault(fault.path(&file.path).hint(hint)));
        }
    }
    comparison.finish(command);
    Ok(())
}

impl Comparison<'_> {
    fn merge(&mut self, command: &mut PathCommand, (source, target): &mut (Tree<'_>, Tree<'_>)) {
        source.advance(command);
        target.advance(command);
        while !command.is_over() {
            let (one, other) = match (&source.next, &target.next) {
                (None, None) => return,
                (Some(one), None) => (Some(source.relative(one)), None),
                (None, Some(other)) => (None, Some(target.relative(other))),
                (Some(one), Some(other)) => {
                    let [one, other] = [source.relative(one), target.relative(other)];
                    match order(&one, &other) {
                        Ordering::Less => (Some(one), None),
                        Ordering::Equal => (Some(one), Some(other)),
                        Ordering::Greater => (None, Some(other)),
                    }
                }
            };
            match (one, other) {
                (Some(path), Some(_)) => {
                    if let (Some(one), Some(other)) = (source.next.take(), target.next.take()) {
                        let paths = [one.path, other.path];
                        self.both(command, path, paths, [one.attributes, other.attributes]);
                    }
                    source.advance(command);
                    target.advance(command);
                }
                (Some(path), None) => {
                    let found = source.next.take().map(|found| found.attributes);
                    if !target.may_have(&path) {
                        self.push(command, path, (found, None), None);
                    }
                    source.advance(command);
                }
                (None, path) => {
                    let path = path.unwrap_or_default();
                    let found = target.next.take().map(|found| found.attributes);
                    if !source.may_have(&path) {
                        self.push(command, path, (None, found), None);
                    }
                    target.advance(command);
                }
            }
        }
    }

    /// Compares an entry that is on both sides under these paths.
    fn both(
        &mut self,
        command: &mut PathCommand,
        path: Vec<u8>,
        paths: [Vec<u8>; 2],
        [source, target]: [Attributes; 2],
    ) {
        let is_content_needed = source.kind == target.kind
            && match source.kind {
                FileKind::File => source.size == target.size && source.size > 0,
                FileKind::Symlink => true,
                _ => false,
            };
        let ask = |operand: &SideOperand, path: Vec<u8>| {
            let asked = match source.kind {
                FileKind::Symlink => operand
                    .side
                    .start_call(Call::ReadLink { path: path.clone() }),
                _ => ask_digest(operand, path.clone(), self.kind),
            };
            (path, asked)
        };
        let asked = is_content_needed.then(|| {
            let [one, other] = paths;
            [ask(self.source, one), ask(self.target, other)]
        });
        self.push(command, path, (Some(source), Some(target)), asked);
    }

    fn push(
        &mut self,
        command: &mut PathCommand,
        path: Vec<u8>,
        (source, target): (Option<Attributes>, Option<Attributes>),
        asked: Option<[(Vec<u8>, SideCall); 2]>,
    ) {
        self.waiting.push_back(Compared {
            path,
            source,
            target,
            asked,
        });
        if self.waiting.len() >= ENTRIES_AHEAD {
            self.report(command);
        }
    }

    /// Waits for the earliest entry, and reports it.
    fn report(&mut self, command: &mut PathCommand) {
        let Some(entry) = self.waiting.pop_front() else {
            return;
        };
        let is_equal = match (&entry.source, &entry.target, entry.asked) {
            (Some(_), Some(_), Some([one, other])) => {
                let one = content(one).map_err(|fault| (self.source, fault));
                let other = content(other).map_err(|fault| (self.target, fault));
                match (one, other) {
                    (Ok(one), Ok(other)) => one == other,
                    (one, other) => {
                        for (operand, fault) in [one.err(), other.err()].into_iter().flatten() {
                            command.fault(Some(&operand.text), &fault);
                        }
                        return;
                    }
                }
            }
            (Some(one), Some(other), None) => {
                one.kind == other.kind && (one.kind != FileKind::File || one.size == other.size)
            }
            _ => false,
        };
        let counts = &mut self.counts;
        let (count, word) = match (&entry.source, &entry.target) {
            (Some(found), Some(_)) if is_equal => {
                counts.equal += 1;
                if found.kind == FileKind::File {
                    counts.equal_bytes = counts.equal_bytes.saturating_add(found.size);
                }
                return;
            }
            (Some(_), Some(_)) => (&mut counts.differs, "differs"),
            (Some(_), None) => (&mut counts.missing, "missing"),
            (None, _) => (&mut counts.extra, "extra"),
        };
        *count += 1;
        if command.is_json() {
            let (source, target) = (entry.source.as_ref(), entry.target.as_ref());
            command.write_record(&Record::difference(&entry.path, source, target));
            return;
        }
        let name = command.quoting(false).write(&entry.path);
        command.print(&[word.as_bytes(), b" ", &name, b"\n"].concat());
        command.flush();
    }

    fn finish(mut self, command: &mut PathCommand) {
        while !self.waiting.is_empty() && !command.is_over() {
            self.report(command);
        }
        if command.is_over() {
            return;
        }
        let counts = self.counts;
        let text = format!(
            "{} equal ({}), {} differ, {} missing, {} extra",
            counts.equal,
            human::size(counts.equal_bytes),
            counts.differs,
            counts.missing,
            counts.extra,
        );
        let is_different = counts.differs + counts.missing + counts.extra > 0;
        if command.is_json() {
            let (source, target) = (&self.source.text, &self.target.text);
            command.write_record(&Record::check(source, target, counts));
        }
        command.compared(is_different, &text);
    }
}

/// Content in a form that can be compared: the target of a link, or a digest.
#[derive(PartialEq)]
enum Content {
    Link(Vec<u8>),
    File(ChecksumValue, u64),
}

fn content((path, asked): (Vec<u8>, SideCall)) -> Result<Content, Fault> {
    match asked.wait()? {
        Answer::Target(target) => Ok(Content::Link(target)),
        Answer::Digest { value, length } => Ok(Content::File(value, length)),
        _ => Err(unexpected_answer("compare", &path)),
    }
}
