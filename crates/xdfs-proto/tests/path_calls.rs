//! CallClient and CallServer against each other, over channels that break at any step: each call is
//! carried out once, each is answered once and in order, and nothing is stuck.

use std::collections::{BTreeMap, VecDeque};

use xdfs_proto::call_client::{CallClient, CallClientOutput};
use xdfs_proto::call_server::{CallServer, CallServerOutput, Work};
use xdfs_proto::frame::{AnswerPart, FRAME_HEADER_BYTES, FrameHeader};
use xdfs_proto::path::{Answer, Attributes, Call, Entry, FileKind, PARTS_AHEAD_MAX};
use xdfs_proto::{CallId, Code, Fault, Frame, Limits};

/// Numbers that look random and are the same for the same seed (SplitMix64).
struct Random(u64);

impl Random {
    fn below(&mut self, end: u64) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        (z ^ (z >> 31)) % end
    }

    fn one_in(&mut self, n: u64) -> bool {
        self.below(n) == 0
    }
}

fn entry(number: u32) -> Entry {
    Entry {
        name: format!("entry-{number:06}").into_bytes(),
        attributes: Attributes {
            kind: FileKind::File,
            size: 1,
            allocated: 0,
            mode: 0o644,
            uid: 0,
            gid: 0,
            links: 1,
            device: 0,
            inode: u64::from(number),
            atime_ns: 0,
            mtime_ns: 0,
            ctime_ns: 0,
        },
    }
}

fn number_of(cursor: &[u8]) -> u32 {
    if cursor.is_empty() {
        return 0;
    }
    u32::from_be_bytes(cursor.try_into().expect("a cursor of this store"))
}

/// The next entries of a directory that has as many as the length of its path says.
fn listed(call: &Call, most: u32) -> (Vec<Entry>, Option<Vec<u8>>) {
    let Call::List {
        path,
        cursor,
        entries_max,
    } = call
    else {
        panic!("{call:?} is no listing");
    };
    let total = path.len() as u32 - 1;
    let from = number_of(cursor);
    let to = total.min(from + most.min(*entries_max));
    let cursor = (to < total).then(|| to.to_be_bytes().to_vec());
    ((from..to).map(entry).collect(), cursor)
}

/// A channel: what is on its way in each direction, and who knows that it is gone.
#[derive(Default)]
struct Channel {
    to_answerer: VecDeque<Vec<u8>>,
    to_caller: VecDeque<Vec<u8>>,
    broken: bool,
    client_knows: bool,
    server_knows: bool,
}

struct Expected {
    call: Call,
    entries: u32,
    over: bool,
    abandoned: bool,
    /// Parts that wait for the user.
    held: u32,
}

struct World {
    random: Random,
    limits: Limits,
    call_client: CallClient,
    call_server: CallServer,
    channels: Vec<Channel>,
    works: Vec<(Work, u32)>,
    expected: BTreeMap<CallId, Expected>,
    done: BTreeMap<Vec<u8>, u32>,
    asked: u32,
    breaks_left: u32,
}

impl World {
    fn new(seed: u64) -> Self {
        let limits = Limits {
            kept_part_bytes_max: 200 << 10,
            ..Limits::default()
        };
        Self {
            random: Random(seed),
            call_client: CallClient::new(limits.clone()),
            call_server: CallServer::new(limits.clone()),
            limits,
            channels: (0..3).map(|_| Channel::default()).collect(),
            works: Vec::new(),
            expected: BTreeMap::new(),
            done: BTreeMap::new(),
            asked: 0,
            breaks_left: 20,
        }
    }

    fn ask(&mut self) {
        self.asked += 1;
        let path = format!("path-{}", self.asked).into_bytes();
        let call = match self.random.below(4) {
            0 => Call::RemoveFile { path },
            1 => Call::Rename {
                from: path,
                to: b"to".to_vec(),
                overwrite: false,
            },
            2 => Call::Stat {
                path,
                follow: false,
            },
            _ => Call::List {
                path: vec![b'd'; 1 + self.random.below(120) as usize],
                cursor: Vec::new(),
                entries_max: if self.random.one_in(2) {
                    u32::MAX
                } else {
                    1 + self.random.below(60) as u32
                },
            },
        };
        if !self.call_client.has_room() {
            let fault = self.call_client.call(call).expect_err("no room");
            assert_eq!(fault.code, Code::LimitExceeded);
            return;
        }
        let id = self
            .call_client
            .call(call.clone())
            .expect("the rules are kept");
        let expected = Expected {
            call,
            entries: 0,
            over: false,
            abandoned: false,
            held: 0,
        };
        assert!(self.expected.insert(id, expected).is_none(), "a new name");
    }

    fn encoded(&self, frame: &Frame) -> Vec<u8> {
        let mut bytes = Vec::new();
        frame.encode(&mut bytes);
        assert_eq!(&self.decoded(&bytes), frame);
        bytes
    }

    fn decoded(&self, bytes: &[u8]) -> Frame {
        let (header, body) = bytes
            .split_first_chunk::<FRAME_HEADER_BYTES>()
            .expect("the rules are kept");
        let header = FrameHeader::decode(*header, &self.limits).expect("the rules are kept");
        let frame = Frame::decode(header, body, &self.limits).expect("the rules are kept");
        match frame {
            // The side isn't on the wire.
            Frame::Answer(AnswerPart {
                id,
                part,
                last,
                answer,
            }) => Frame::Answer(AnswerPart {
                id,
                part,
                last,
                answer: answer.map_err(|mut f| {
                    f.side = xdfs_proto::Side::Local;
                    f
                }),
            }),
            other => other,
        }
    }

    /// A channel that a side believes in.
    fn choose(&mut self, call_client: bool) -> Option<usize> {
        let alive: Vec<usize> = (0..self.channels.len())
            .filter(|&i| {
                let c = &self.channels[i];
                !if call_client {
                    c.client_knows
                } else {
                    c.server_knows
                }
            })
            .collect();
        if alive.is_empty() {
            return None;
        }
        Some(alive[self.random.below(alive.len() as u64) as usize])
    }

    fn poll_caller(&mut self) {
        let Some(index) = self.choose(true) else {
            return;
        };
        match self.call_client.poll_output() {
            Some(CallClientOutput::Transmit(frame)) => {
                let bytes = self.encoded(&frame);
                let channel = &mut self.channels[index];
                if !channel.broken {
                    channel.to_answerer.push_back(bytes);
                }
            }
            Some(CallClientOutput::Part { id, answer, last }) => self.part(id, answer, last),
            Some(other) => panic!("{other:?}"),
            None => {}
        }
    }

    fn part(&mut self, id: CallId, answer: Result<Answer, Fault>, last: bool) {
        let expected = self.expected.get_mut(&id).expect("a call that was made");
        assert!(!expected.over, "{id} ended twice");
        expected.over = last;
        match answer.expect("the rules are kept") {
            Answer::Entries { entries, cursor } => {
                for found in entries {
                    assert_eq!(found, entry(expected.entries), "{id}");
                    expected.entries += 1;
                }
                let Call::List {
                    path, entries_max, ..
                } = &expected.call
                else {
                    panic!("no listing");
                };
                let total = path.len() as u32 - 1;
                if last {
                    assert_eq!(expected.entries, total.min(*entries_max));
                    if expected.entries < total {
                        assert_eq!(
                            number_of(&cursor.expect("the rules are kept")),
                            expected.entries
                        );
                    }
                } else {
                    expected.held += 1;
                    assert!(expected.held < PARTS_AHEAD_MAX);
                }
            }
            _ => assert!(last),
        }
    }

    fn poll_answerer(&mut self) {
        let Some(index) = self.choose(false) else {
            return;
        };
        if let Some(CallServerOutput::Transmit(frame)) = self.call_server.poll_output() {
            let bytes = self.encoded(&frame);
            let channel = &mut self.channels[index];
            if !channel.broken {
                channel.to_caller.push_back(bytes);
            }
        }
    }

    fn deliver(&mut self, index: usize) {
        let channel = &mut self.channels[index];
        if let Some(bytes) = channel.to_answerer.pop_front() {
            let frame = self.decoded(&bytes);
            self.call_server
                .handle_frame(frame)
                .expect("the rules are kept");
        }
        if let Some(bytes) = self.channels[index].to_caller.pop_front() {
            let frame = self.decoded(&bytes);
            self.call_client
                .handle_frame(frame)
                .expect("the rules are kept");
        }
    }

    fn break_or_notice(&mut self, index: usize) {
        let channel = &mut self.channels[index];
        if !channel.broken && self.breaks_left > 0 {
            self.breaks_left -= 1;
            channel.broken = true;
            channel.to_answerer.clear();
            channel.to_caller.clear();
            self.channels.push(Channel::default());
        }
        self.notice(index);
    }

    fn notice(&mut self, index: usize) {
        let call_client = self.random.one_in(2);
        let channel = &mut self.channels[index];
        if !channel.broken {
            return;
        }
        if call_client && !channel.client_knows {
            channel.client_knows = true;
            self.call_client.channel_down();
        } else if !call_client && !channel.server_knows {
            channel.server_knows = true;
            self.call_server.channel_down();
        }
    }

    fn work(&mut self) {
        if self.works.len() < 6
            && let Some(work) = self.call_server.next_work()
        {
            if !matches!(work.call, Call::List { .. }) {
                *self.done.entry(work.call.path().to_vec()).or_default() += 1;
            }
            self.works.push((work, 0));
        }
        if self.works.is_empty() {
            return;
        }
        let index = self.random.below(self.works.len() as u64) as usize;
        let (work, mut made) = self.works.swap_remove(index);
        let id = work.id;
        match &work.call {
            Call::List { .. } => {}
            Call::Stat { .. } => {
                let answer = Answer::Attributes(entry(0).attributes);
                return self.call_server.finished(id, Ok(answer));
            }
            _ => return self.call_server.finished(id, Ok(Answer::Done)),
        }
        let (entries, cursor) = listed(&work.call, 1 + self.random.below(3) as u32);
        let Call::List {
            path, entries_max, ..
        } = work.call
        else {
            return;
        };
        let left = entries_max - entries.len() as u32;
        let Some(cursor) = cursor.filter(|_| left > 0 || self.random.one_in(2)) else {
            let total = path.len() as u32 - 1;
            let end = entries.last().map_or(0, |e| e.attributes.inode as u32 + 1);
            let cursor = (left == 0 && end < total).then(|| end.to_be_bytes().to_vec());
            return self
                .call_server
                .finished(id, Ok(Answer::Entries { entries, cursor }));
        };
        let answer = Answer::Entries {
            entries,
            cursor: Some(cursor.clone()),
        };
        made += 1;
        let more = self.call_server.part(id, answer);
        if !more || made == work.parts_max {
            return self.call_server.paused(id);
        }
        if left == 0 {
            let (entries, cursor) = (Vec::new(), Some(cursor));
            return self
                .call_server
                .finished(id, Ok(Answer::Entries { entries, cursor }));
        }
        let call = Call::List {
            path,
            cursor,
            entries_max: left,
        };
        self.works.push((Work { call, ..work }, made));
    }

    /// A user takes the parts that he holds, or wants no more of them.
    fn use_parts(&mut self) {
        let held: Vec<CallId> = self
            .expected
            .iter()
            .filter(|(_, e)| e.held > 0 && !e.abandoned)
            .map(|(id, _)| *id)
            .collect();
        if held.is_empty() {
            return;
        }
        let id = held[self.random.below(held.len() as u64) as usize];
        let expected = self.expected.get_mut(&id).expect("the rules are kept");
        expected.held -= 1;
        self.call_client.took(id);
    }

    fn step(&mut self) {
        let index = self.random.below(self.channels.len() as u64) as usize;
        match self.random.below(8) {
            0 | 1 => self.poll_caller(),
            2 | 3 => self.poll_answerer(),
            4 | 5 => self.deliver(index),
            6 => self.work(),
            _ => self.use_parts(),
        }
    }

    fn is_over(&self) -> bool {
        self.call_client.unanswered() == 0 && self.call_server.unfinished() == 0
    }

    fn settle(&mut self) {
        for _ in 0..2_000_000 {
            if self.is_over() && self.expected.values().all(|e| e.over || e.abandoned) {
                return;
            }
            let index = self.random.below(self.channels.len() as u64) as usize;
            self.notice(index);
            self.step();
        }
        panic!("stuck with {} calls", self.call_client.unanswered());
    }
}

#[test]
fn each_call_is_carried_out_and_answered_once_whatever_breaks() {
    for seed in 0..150 {
        let mut world = World::new(seed);
        for _ in 0..3000 {
            let index = world.random.below(world.channels.len() as u64) as usize;
            if world.asked < 200 && world.random.one_in(8) {
                world.ask();
            }
            if world.random.one_in(60) {
                world.break_or_notice(index);
            }
            if world.random.one_in(30) {
                world.notice(index);
            }
            if world.random.one_in(300) {
                let ids: Vec<_> = world.expected.keys().copied().collect();
                if let Some(id) = ids.get(world.random.below(ids.len().max(1) as u64) as usize) {
                    world.call_client.abandon(*id);
                    world
                        .expected
                        .get_mut(id)
                        .expect("the rules are kept")
                        .abandoned = true;
                }
            }
            world.step();
        }
        world.settle();
        let changes = world
            .expected
            .values()
            .filter(|e| !matches!(e.call, Call::List { .. }));
        for expected in changes {
            assert_eq!(
                world.done.get(expected.call.path()),
                Some(&1),
                "seed {seed}"
            );
        }
    }
}
