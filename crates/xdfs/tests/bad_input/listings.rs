//! Servers whose listings never end.

use std::net::{SocketAddr, TcpListener};
use std::thread::{self, JoinHandle};

use xdfs::{
    Answer, Attributes, Call, Client, Code, Entry, Fault, FileKind, SyncOptions,
    TransferParameters, TreeEvent, TreeOptions,
};
use xdfs_proto::CallId;
use xdfs_proto::frame::{AnswerPart, CallRequest, Frame, Taken};

use crate::peer::{BLOCK, Heard, accept, session_ok};
use crate::support::{Folders, client};

/// Parts after which the server ends the listing all the same, so that a client that would go on
/// for ever fails here, and doesn't hang.
const ENOUGH: u32 = 5000;

/// What the client takes of one directory here.
const LISTED_BYTES_MAX: u64 = 64 << 10;

/// What the server says of every directory.
#[derive(Clone, Copy)]
struct Lie {
    /// Names in part number so many.
    names: fn(u32) -> u32,
    /// The cursor after it.
    cursor: fn(u32) -> u32,
    /// All parts are of the same call, and otherwise each is the end of one.
    is_one_call: bool,
}

const SAME_CURSOR: Lie = Lie {
    names: |_| 1,
    cursor: |_| 7,
    is_one_call: false,
};
const CIRCLE: Lie = Lie {
    names: |_| 1,
    cursor: |part| part % 5,
    is_one_call: false,
};
const CIRCLE_OF_PARTS: Lie = Lie {
    is_one_call: true,
    ..CIRCLE
};
const NOTHING: Lie = Lie {
    names: |_| 0,
    cursor: |part| part,
    is_one_call: false,
};
const NAMES: Lie = Lie {
    names: |_| 10,
    cursor: |part| part,
    is_one_call: false,
};
const NAMES_IN_PARTS: Lie = Lie {
    is_one_call: true,
    ..NAMES
};

fn attributes(kind: FileKind) -> Attributes {
    Attributes {
        kind,
        size: 0,
        allocated: 0,
        mode: 0o755,
        uid: 0,
        gid: 0,
        links: 1,
        device: 1,
        inode: 1,
        atime_ns: 0,
        mtime_ns: 0,
        ctime_ns: 0,
    }
}

impl Lie {
    fn part(self, id: CallId, number: u32) -> Frame {
        let entry = |name: u32| Entry {
            name: format!("{number} {name}").into(),
            attributes: attributes(FileKind::File),
        };
        let goes_on = number < ENOUGH;
        let cursor = (self.cursor)(number).to_be_bytes().to_vec();
        Frame::Answer(AnswerPart {
            id,
            part: if self.is_one_call { number } else { 0 },
            last: !(self.is_one_call && goes_on),
            answer: Ok(Answer::Entries {
                entries: (0..(self.names)(number)).map(entry).collect(),
                cursor: goes_on.then_some(cursor),
            }),
        })
    }

    /// A server that tells it to one client, which takes at most [`LISTED_BYTES_MAX`].
    #[track_caller]
    fn tell(self) -> Told {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let addr = listener.local_addr().unwrap();
        let server = thread::spawn(move || self.serve(&listener));
        Told::new(addr, server)
    }

    fn serve(self, listener: &TcpListener) {
        let mut peer = accept(listener);
        peer.read_hello();
        peer.welcome();
        assert!(matches!(peer.frame(), Frame::Session(_)));
        peer.send(&session_ok(1, BLOCK));
        let mut told = 0;
        loop {
            let (id, is_stopped) = match peer.next() {
                Heard::End => return,
                Heard::Frame(Frame::Xpathm(CallRequest { id, call: Ok(call) })) => match call {
                    Call::List { .. } => (id, false),
                    _ => {
                        peer.send(&Frame::Answer(AnswerPart {
                            id,
                            part: 0,
                            last: true,
                            answer: Ok(Answer::Attributes(attributes(FileKind::Directory))),
                        }));
                        continue;
                    }
                },
                Heard::Frame(Frame::Taken(Taken { id, stop, .. }))
                    if self.is_one_call && told <= ENOUGH =>
                {
                    (id, stop)
                }
                _ => continue,
            };
            if is_stopped {
                let fault = Fault::new(Code::Cancelled, "list", "nobody wants it");
                peer.send(&Frame::Answer(AnswerPart {
                    id,
                    part: told,
                    last: true,
                    answer: Err(fault),
                }));
                told = ENOUGH + 1;
            } else {
                peer.send(&self.part(id, told));
                told += 1;
            }
        }
    }
}

/// A client, and the server that lies to it.
struct Told {
    client: Client,
    server: JoinHandle<()>,
}

impl Told {
    #[track_caller]
    fn new(addr: SocketAddr, server: JoinHandle<()>) -> Self {
        let client = client(addr, |options| {
            options.limits.listed_bytes_max = LISTED_BYTES_MAX;
        });
        Self { client, server }
    }

    fn end(self) {
        drop(self.client);
        self.server.join().unwrap();
    }
}

#[track_caller]
fn check(fault: &Fault, code: Code, path: &[u8]) {
    assert_eq!(fault.code, code, "{fault:?}");
    assert_eq!(fault.path, path, "{fault:?}");
    assert!(fault.cause.contains("the server"), "{fault:?}");
}

/// What a listing says, and what it says when it is put together.
#[track_caller]
fn fails(lie: Lie, code: Code) {
    let told = lie.tell();
    let mut entries = 0;
    let fault = told.client.list(b"/d").find_map(|entry| match entry {
        Ok(_) => {
            entries += 1;
            None
        }
        Err(fault) => Some(fault),
    });
    check(&fault.expect("it came to an end"), code, b"/d");
    assert!(entries < LISTED_BYTES_MAX / 64, "{entries} entries");
    told.end();
}

#[test]
fn a_listing_that_goes_round_in_circles_is_a_violation() {
    for lie in [SAME_CURSOR, CIRCLE, CIRCLE_OF_PARTS, NOTHING] {
        fails(lie, Code::ProtocolViolation);
    }
}

#[test]
fn a_listing_that_never_ends_is_given_up() {
    for lie in [NAMES, NAMES_IN_PARTS] {
        fails(lie, Code::LimitExceeded);
    }
    let told = NAMES_IN_PARTS.tell();
    let call = Call::List {
        path: b"/d".to_vec(),
        cursor: Vec::new(),
        entries_max: u32::MAX,
    };
    check(
        &told.client.call(call).unwrap_err(),
        Code::LimitExceeded,
        b"/d",
    );
    told.end();
}

/// Copies and synchronises a tree from there, and returns how that ended, or what failed of it.
fn fetch(lie: Lie, seed: u64) -> [Vec<Fault>; 2] {
    let folders = Folders::new(seed);
    let tree = TreeOptions {
        parameters: TransferParameters {
            dry_run: true,
            ..TransferParameters::default()
        },
        ..TreeOptions::default()
    };
    let sync = SyncOptions {
        tree: tree.clone(),
        ..SyncOptions::default()
    };
    [false, true].map(|is_sync| {
        let told = lie.tell();
        let mut faults = Vec::new();
        let mut observer = |event: TreeEvent<'_>| {
            if let TreeEvent::Failed { fault, .. } = event {
                faults.push(fault.clone());
            }
            std::ops::ControlFlow::Continue(())
        };
        let target = folders.here("copy");
        let client = &told.client;
        let ended = if is_sync {
            let result = client.sync_from(b"/d", &target, &sync, &mut observer);
            result.map(drop)
        } else {
            let result = client.download_tree(b"/d", &target, &tree, &mut observer);
            result.map(drop)
        };
        faults.extend(ended.err());
        told.end();
        faults
    })
}

#[test]
fn trees_are_not_fetched_for_ever() {
    for faults in fetch(SAME_CURSOR, 450) {
        assert_eq!(faults.len(), 1, "{faults:?}");
        check(&faults[0], Code::ProtocolViolation, b"/d");
    }
    for faults in fetch(NAMES, 451) {
        assert_eq!(faults.len(), 1, "{faults:?}");
        check(&faults[0], Code::LimitExceeded, b"/d");
    }
}
