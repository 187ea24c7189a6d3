//! Users who look at paths and change them, and who work on files in place, each in a directory
//! of its own. A model says what every answer has to be.
//!
//! Where nobody knows whether a call was carried out, since its session was lost before the answer,
//! the user goes on in another directory, and what is left in the old one has to be as before that
//! call or as after it.

use std::collections::BTreeMap;
use std::mem;
use std::sync::Arc;
use std::task::Poll;

use xdfs_engine::mailbox::{Mailbox, mailbox};
use xdfs_engine::{CallPart, CallSpec, Command, Commands};
use xdfs_proto::file::{Extent, FileAnswer, FileCall, FileFlags, FileOwner};
use xdfs_proto::path::{Answer, Attributes, Call, Entry};
use xdfs_proto::{Code, Fault, Side};
use xdfs_sim::store::{Content, Tree};
use xdfs_sim::{Random, World};

use crate::transfers::{check_fault, look};

/// Longest content that a user writes at once.
const WRITE_BYTES_MAX: u64 = 3_000;

/// A call that isn't answered yet.
struct Pending {
    number: u64,
    call: Call,
    parts: Mailbox<CallPart>,
    /// Of a listing.
    entries: Vec<Entry>,
}

/// A directory that its user has left, and what may be there.
struct Left {
    root: Vec<u8>,
    /// As the answers told it, and with the last call.
    may_be: Vec<Tree>,
    /// A file of which parts may be as before the last call and others as after it.
    is_torn: bool,
}

pub(crate) struct User {
    number: u64,
    generation: u64,
    /// What has to be beneath the directory.
    model: Tree,
    is_begun: bool,
    /// The handle of the file that is open, and its number in the model.
    open: Option<(u32, u64)>,
    pending: Option<Pending>,
    /// Calls that are still to be made.
    calls_left: u64,
    left: Vec<Left>,
    pub(crate) answers: u64,
    pub(crate) unknown: u64,
}

/// What came of a call.
enum Told {
    Answer(Answer),
    Fault(Fault),
    /// Nobody knows.
    Nothing,
}

impl User {
    pub(crate) fn new(number: u64, random: &mut Random) -> Self {
        Self {
            number,
            generation: 0,
            model: Tree::default(),
            is_begun: false,
            open: None,
            pending: None,
            calls_left: random.range(1, 60),
            left: Vec::new(),
            answers: 0,
            unknown: 0,
        }
    }

    fn root(&self) -> Vec<u8> {
        format!("/user-{}/{}", self.number, self.generation).into_bytes()
    }

    pub(crate) fn is_done(&self) -> bool {
        self.calls_left == 0 && self.pending.is_none()
    }

    /// Makes the next call, or takes the answer to the one that was made.
    pub(crate) fn act(&mut self, world: &World, commands: &Commands, next_call: &mut u64) {
        if self.pending.is_some() {
            self.take_answer(world, commands);
        } else if self.calls_left > 0 && world.choose(|random| random.permille(100)) {
            self.calls_left -= 1;
            let call = match self.is_begun {
                true => world.choose(|random| self.choose(random)),
                false => Call::MakeDirectory {
                    path: self.root(),
                    mode: None,
                    parents: true,
                },
            };
            let (sender, parts) = mailbox();
            let number = *next_call;
            *next_call += 1;
            self.pending = Some(Pending {
                number,
                call: call.clone(),
                parts,
                entries: Vec::new(),
            });
            // A session that has ended drops the call, and its sender with it.
            let _ = commands.send(Command::Call(CallSpec {
                number,
                call,
                parts: sender,
            }));
            world.act(23);
        }
    }

    /// Wants the answer no more.
    pub(crate) fn abandon(&mut self, world: &World) -> Option<Command> {
        let number = self.pending.as_ref()?.number;
        self.told(Told::Nothing, world);
        Some(Command::Abandon(number))
    }

    fn take_answer(&mut self, world: &World, commands: &Commands) {
        while let Some(pending) = &mut self.pending {
            let told = match look(&pending.parts) {
                Poll::Pending => return,
                Poll::Ready(None) => {
                    world.violation(format!("a call had no answer: {:?}", pending.call));
                    Told::Nothing
                }
                Poll::Ready(Some(CallPart {
                    answer: Ok(Answer::Entries { entries, .. }),
                    last: false,
                })) => {
                    pending.entries.extend(entries);
                    let _ = commands.send(Command::Took(pending.number));
                    continue;
                }
                Poll::Ready(Some(CallPart {
                    answer: Ok(Answer::Entries { entries, .. }),
                    last: true,
                })) => {
                    let mut all = mem::take(&mut pending.entries);
                    all.extend(entries);
                    Told::Answer(Answer::Entries {
                        entries: all,
                        cursor: None,
                    })
                }
                Poll::Ready(Some(part)) => part.answer.map_or_else(Told::Fault, Told::Answer),
            };
            if matches!(look(&pending.parts), Poll::Ready(Some(_))) {
                world.violation(format!("a call had two answers: {:?}", pending.call));
            }
            world.act(24);
            self.told(told, world);
        }
    }

    /// Compares what came of the call with what the model says.
    fn told(&mut self, told: Told, world: &World) {
        let Some(Pending { call, .. }) = self.pending.take() else {
            return;
        };
        let mut after = self.model.clone();
        let expected = self.expect(&mut after, &call);
        let problem = match (&told, &expected) {
            (Told::Answer(answer), Ok(expected)) if alike(answer) == alike(expected) => None,
            (Told::Fault(fault), Err(code)) if fault.code == *code => None,
            (Told::Fault(fault), _) if leaves_open(fault) => None,
            (Told::Answer(answer), expected) => Some(format!("{answer:?}, not {expected:?}")),
            (Told::Fault(fault), expected) => Some(format!("{fault:?}, not {expected:?}")),
            (Told::Nothing, _) => None,
        };
        if let Some(problem) = problem {
            world.violation(format!("{call:?} was answered by {problem}"));
        }
        match told {
            Told::Answer(answer) => {
                self.answers += 1;
                self.is_begun = true;
                self.model = after;
                match answer {
                    Answer::File(FileAnswer::Opened { handle, .. }) => {
                        let file = self.open.take().map(|(_, file)| file);
                        self.open = file.map(|file| (handle, file));
                    }
                    _ if matches!(call, Call::File(FileCall::Close { .. })) => self.open = None,
                    _ => {}
                }
            }
            Told::Fault(fault) => {
                check_fault(&fault, world);
                self.end_open(&call);
                let is_expected = expected.is_err_and(|code| code == fault.code);
                // The store says of names that nothing was done; of bytes it can't say so.
                let is_name = !matches!(call, Call::File(_));
                let is_whole = is_name && fault.side == Side::Remote && fault.code == Code::Io;
                if !is_expected && !is_whole {
                    self.leave(&call, after);
                }
            }
            Told::Nothing => {
                self.end_open(&call);
                self.leave(&call, after);
            }
        }
    }

    /// What was to be opened isn't.
    fn end_open(&mut self, call: &Call) {
        if matches!(call, Call::File(FileCall::Open { .. })) {
            self.open = None;
        }
    }

    /// Nobody knows whether a call was carried out: if it changes something, goes elsewhere.
    fn leave(&mut self, call: &Call, after: Tree) {
        self.unknown += 1;
        let changes = !call.is_read_only() || matches!(call, Call::File(FileCall::Open { .. }));
        if !changes {
            return;
        }
        let before = mem::take(&mut self.model);
        let mut may_be = vec![before.clone(), after];
        if let (Call::File(FileCall::Write { extents, bytes, .. }), Some((_, file))) =
            (call, self.open)
        {
            // It may have come to any of the extents, which overlap.
            let (mut part, mut rest) = (before, bytes.as_slice());
            for extent in extents {
                let (now, later) = rest.split_at(extent.length as usize);
                part.content(file).write(extent.offset, now);
                may_be.push(part.clone());
                rest = later;
            }
        }
        self.move_on(may_be, matches!(call, Call::File(_)));
    }

    fn move_on(&mut self, may_be: Vec<Tree>, is_torn: bool) {
        let root = self.root();
        self.left.push(Left {
            root,
            may_be,
            is_torn,
        });
        self.generation += 1;
        self.model = Tree::default();
        self.is_begun = false;
        self.open = None;
    }

    /// The session has ended, and with it what was open. Everything was answered, if the client
    /// is still the same.
    pub(crate) fn session_ended(&mut self, world: &World, commands: &Commands, is_killed: bool) {
        match is_killed {
            true => self.told(Told::Nothing, world),
            false => self.take_answer(world, commands),
        }
        if let Some(pending) = &self.pending {
            world.violation(format!("a call was never answered: {:?}", pending.call));
        }
        self.open = None;
    }

    /// The server lost what was not durable.
    pub(crate) fn server_crashed(&mut self, world: &World) {
        self.told(Told::Nothing, world);
        let mut crashed = self.model.clone();
        crashed.crash();
        let mut may_be = vec![crashed];
        for left in &mut self.left {
            let mut crashed = left.may_be.clone();
            crashed.iter_mut().for_each(Tree::crash);
            left.may_be.extend(crashed);
        }
        // What had no answer yet may have been done just before, or just after.
        may_be.push(mem::take(&mut self.model));
        self.move_on(may_be, true);
    }

    /// What a model makes of a call.
    fn expect(&mut self, model: &mut Tree, call: &Call) -> Result<Answer, Code> {
        let Call::File(call) = call else {
            return model.call(call).map_err(|fault| fault.code);
        };
        let file = self.open.map_or(0, |(_, file)| file);
        Ok(match call {
            FileCall::Open { path, flags, .. } => {
                let (file, created) = model.open(path, flags).map_err(|fault| fault.code)?;
                self.open = Some((0, file));
                opened(created, model.content(file).bytes.len() as u64)
            }
            FileCall::Read { extents, .. } => {
                let content = model.content(file);
                let read = |extent: &Extent| content.read(extent.offset, extent.length as usize);
                let parts: Vec<&[u8]> = extents.iter().map(read).collect();
                Answer::File(FileAnswer::Data {
                    lengths: parts.iter().map(|part| part.len() as u32).collect(),
                    bytes: Arc::new(parts.concat()),
                })
            }
            FileCall::Write { extents, bytes, .. } => {
                let mut rest = bytes.as_slice();
                for extent in extents {
                    let (now, later) = rest.split_at(extent.length as usize);
                    model.content(file).write(extent.offset, now);
                    rest = later;
                }
                Answer::Done
            }
            FileCall::Flush { .. } => {
                model.content(file).sync();
                Answer::Done
            }
            FileCall::SetLength { length, .. } => {
                model.content(file).bytes.resize(*length as usize, 0);
                Answer::Done
            }
            FileCall::Close { .. } => Answer::Done,
            _ => return Err(Code::Unsupported),
        })
    }

    fn path(&self, random: &mut Random) -> Vec<u8> {
        let mut path = self.root();
        for _ in 0..random.pick(&[1, 1, 2]) {
            path.push(b'/');
            path.push(random.pick(b"abc"));
        }
        path
    }

    fn choose(&self, random: &mut Random) -> Call {
        if let Some((handle, _)) = self.open
            && random.permille(800)
        {
            return Call::File(choose_file_call(random, handle));
        }
        let path = self.path(random);
        match random.below(11) {
            0 => Call::Stat { path, follow: true },
            1 => Call::List {
                path: match random.permille(700) {
                    true => self.root(),
                    false => path,
                },
                cursor: Vec::new(),
                entries_max: 1000,
            },
            2 | 3 => Call::MakeDirectory {
                path,
                mode: None,
                parents: random.permille(300),
            },
            4 => Call::RemoveFile { path },
            5 => Call::RemoveDirectory { path },
            6 => Call::RemoveTree { path },
            7 => Call::Rename {
                from: path,
                to: self.path(random),
                overwrite: random.permille(500),
            },
            8 => Call::Copy {
                from: path,
                to: self.path(random),
                overwrite: random.permille(500),
            },
            // One file is open at a time.
            9 | 10 if self.open.is_none() => {
                let mut owner = [0; 16];
                owner.fill_with(|| random.draw() as u8);
                let create = random.permille(800);
                Call::File(FileCall::Open {
                    path,
                    flags: FileFlags {
                        read: true,
                        write: true,
                        create,
                        exclusive: create && random.permille(300),
                        truncate: random.permille(200),
                        ..FileFlags::default()
                    },
                    mode: None,
                    owner: FileOwner(owner),
                    identity: None,
                })
            }
            _ => Call::Sync { path: self.root() },
        }
    }

    /// What has to hold in the end.
    pub(crate) fn check(&mut self, store: &Tree) -> Result<(), String> {
        let last = mem::take(&mut self.model);
        self.move_on(vec![last], false);
        for left in &self.left {
            let there = store.beneath(&left.root);
            let is_so = left.may_be.iter().any(|may_be| {
                let may_be = may_be.beneath(&left.root);
                // What was carried out after a power cut is durable or not; seen it is whole.
                let seen = |tree: &BTreeMap<Vec<u8>, Option<&Content>>| -> Vec<_> {
                    let node = |(path, content): (&Vec<u8>, &Option<&Content>)| {
                        (path.clone(), content.map(|content| content.bytes.clone()))
                    };
                    tree.iter().map(node).collect()
                };
                seen(&there) == seen(&may_be)
            });
            let is_torn = || is_torn_between(&left.may_be, &left.root, &there);
            if !(is_so || left.is_torn && is_torn()) {
                let root = String::from_utf8_lossy(&left.root);
                return Err(format!("{root} is {there:?}, not one of {:?}", left.may_be));
            }
        }
        Ok(())
    }
}

/// Whether all names are as in one of some trees, and each byte of the files as in one of them,
/// durable or not.
fn is_torn_between(
    may_be: &[Tree],
    root: &[u8],
    there: &BTreeMap<Vec<u8>, Option<&Content>>,
) -> bool {
    let trees: Vec<_> = may_be.iter().map(|tree| tree.beneath(root)).collect();
    let names = |tree: &BTreeMap<Vec<u8>, Option<&Content>>| -> Vec<(Vec<u8>, bool)> {
        let names = tree
            .iter()
            .map(|(path, content)| (path.clone(), content.is_some()));
        names.collect()
    };
    let files = there
        .iter()
        .filter_map(|(path, content)| Some((path, (*content)?)));
    trees.iter().any(|tree| names(tree) == names(there))
        && files.into_iter().all(|(path, content)| {
            let versions = trees
                .iter()
                .filter_map(|tree| tree.get(path).copied().flatten());
            let versions: Vec<_> = versions
                .flat_map(|one| [&one.bytes, &one.durable])
                .collect();
            let is_length = versions.iter().any(|one| content.bytes.len() <= one.len());
            let bytes = content.bytes.iter().enumerate();
            let mut known = bytes.map(|(at, byte)| {
                // What was written behind the end of a version is zero before that.
                *byte == 0 || versions.iter().any(|one| one.get(at) == Some(byte))
            });
            is_length && known.all(|known| known)
        })
}

fn choose_file_call(random: &mut Random, handle: u32) -> FileCall {
    let locked = false;
    let count = random.range(1, 3);
    let mut extents: Vec<Extent> = Vec::new();
    for _ in 0..count {
        extents.push(Extent {
            offset: random.below(10_000),
            length: random.range(1, WRITE_BYTES_MAX) as u32,
        });
    }
    match random.below(10) {
        0..3 => FileCall::Read {
            handle,
            locked,
            extents,
        },
        3..7 => {
            let length: u32 = extents.iter().map(|extent| extent.length).sum();
            let mut bytes = vec![0; length as usize];
            bytes.fill_with(|| random.draw() as u8);
            FileCall::Write {
                handle,
                locked,
                extents,
                bytes: Arc::new(bytes),
            }
        }
        7 => FileCall::SetLength {
            handle,
            locked,
            length: random.below(10_000),
        },
        8 => FileCall::Flush {
            handle,
            data_only: random.permille(500),
        },
        _ => FileCall::Close { handle },
    }
}

/// Whether a fault of a side says that the call failed for a reason that no model knows.
fn leaves_open(fault: &Fault) -> bool {
    fault.side == Side::Local
        || matches!(
            fault.code,
            Code::Cancelled
                | Code::ConnectionLost
                | Code::DeadlineExceeded
                | Code::Io
                | Code::LimitExceeded
                | Code::NoSpace
                | Code::ShuttingDown
        )
}

fn opened(created: bool, size: u64) -> Answer {
    Answer::File(FileAnswer::Opened {
        handle: 0,
        identity: Default::default(),
        created,
        run: 0,
        attributes: Attributes {
            kind: xdfs_proto::path::FileKind::File,
            size,
            allocated: 0,
            mode: 0,
            uid: 0,
            gid: 0,
            links: 0,
            device: 0,
            inode: 0,
            atime_ns: 0,
            mtime_ns: 0,
            ctime_ns: 0,
        },
    })
}

/// What of an answer a model knows.
fn alike(answer: &Answer) -> Answer {
    match answer {
        Answer::File(FileAnswer::Opened {
            created,
            attributes,
            ..
        }) => opened(*created, attributes.size),
        answer => answer.clone(),
    }
}
