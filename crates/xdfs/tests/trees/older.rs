//! Servers that are older than the calls for large files that changed in part.

use std::io::{self, Read as _, Write as _};
use std::net::{Shutdown, SocketAddr, TcpListener, TcpStream};
use std::ops::ControlFlow;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::thread::{self, JoinHandle};
use std::time::Duration;

use xdfs::{Code, SyncOptions, TreeEvent};
use xdfs_proto::frame::{CallRequest, FRAME_HEADER_BYTES};
use xdfs_proto::path::Call;
use xdfs_proto::{CallId, DigestKind, Frame};

use crate::delta::{noise, place};
use crate::picture::assert_same;
use crate::sync::{Stage, WAYS};

/// Stands before a server and makes an operation that nobody knows of calls for signatures.
struct Older {
    addr: SocketAddr,
    is_over: Arc<AtomicBool>,
    changed: Arc<AtomicUsize>,
    thread: Option<JoinHandle<()>>,
}

/// Where the operation is in a frame of a call.
const AT: usize = FRAME_HEADER_BYTES + 6;

/// Whether a call for signatures begins there, as far as can be seen: its kind, no flags, not long,
/// a slot, a number below 2^16, and the operation.
fn may_begin(bytes: &[u8]) -> bool {
    let mut frame = Vec::new();
    Frame::Xpathm(CallRequest {
        id: CallId {
            slot: 0,
            sequence: 1,
        },
        call: Ok(Call::Signatures {
            path: Vec::new(),
            digest: DigestKind::None,
            block_bytes: 1024,
            first: 0,
            count: 1,
        }),
    })
    .encode(&mut frame);
    let is_free = |at: usize| matches!(at, 7 | 9 | 12 | 13);
    let mut seen = bytes.iter().take(AT + 1).enumerate();
    seen.all(|(at, byte)| is_free(at) || *byte == frame[at])
}

fn relay(mut from: TcpStream, mut to: TcpStream, changed: Option<&AtomicUsize>) -> io::Result<()> {
    // What may be the beginning of a frame that isn't all there waits no longer than this.
    from.set_read_timeout(changed.map(|_| Duration::from_millis(50)))?;
    let (mut kept, mut buf) = (Vec::new(), vec![0; 64 << 10]);
    loop {
        let mut flush = false;
        match from.read(&mut buf) {
            Ok(0) => break,
            Ok(count) => kept.extend_from_slice(&buf[..count]),
            Err(error) => match error.kind() {
                io::ErrorKind::WouldBlock | io::ErrorKind::TimedOut => flush = true,
                _ => return Err(error),
            },
        }
        let mut end = kept.len();
        if let Some(changed) = changed {
            for at in 0..kept.len() {
                if !may_begin(&kept[at..]) {
                    continue;
                }
                if kept.len() - at > AT {
                    kept[at + AT] = 0xfe;
                    changed.fetch_add(1, Ordering::SeqCst);
                } else if !flush {
                    end = at;
                    break;
                }
            }
        }
        to.write_all(&kept[..end])?;
        kept.drain(..end);
    }
    to.write_all(&kept)?;
    to.shutdown(Shutdown::Write)
}

impl Older {
    fn before(server: SocketAddr) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let addr = listener.local_addr().unwrap();
        let is_over = Arc::new(AtomicBool::new(false));
        let changed = Arc::new(AtomicUsize::new(0));
        let (over, count) = (Arc::clone(&is_over), Arc::clone(&changed));
        let thread = thread::spawn(move || {
            while let Ok((client, _)) = listener.accept()
                && !over.load(Ordering::SeqCst)
            {
                let server = TcpStream::connect(server).unwrap();
                let (up, down) = (client.try_clone().unwrap(), server.try_clone().unwrap());
                let count = Arc::clone(&count);
                // They end with the connection.
                thread::spawn(move || relay(up, server, Some(&count)));
                thread::spawn(move || relay(down, client, None));
            }
        });
        Self {
            addr,
            is_over,
            changed,
            thread: Some(thread),
        }
    }
}

impl Drop for Older {
    fn drop(&mut self) {
        self.is_over.store(true, Ordering::SeqCst);
        let _ = TcpStream::connect(self.addr);
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}

#[test]
fn a_server_that_is_older_gets_and_gives_whole_files() {
    const COUNT: usize = 5;
    let old = noise(1, 3 << 20);
    let mut new = old.clone();
    new[12345] ^= 1;
    for way in WAYS {
        let mut older = None;
        let stage = Stage::behind(way, |server| older.insert(Older::before(server)).addr);
        for number in 0..COUNT {
            place(&stage, &format!("file{number}"), &old, &new);
        }
        let options = SyncOptions {
            delta: true,
            ..SyncOptions::default()
        };
        let mut warnings = Vec::new();
        let mut observer = |event: TreeEvent<'_>| {
            match event {
                TreeEvent::Warning(fault) => warnings.push(fault.code),
                TreeEvent::Failed { fault, .. } => panic!("{fault}"),
                _ => {}
            }
            ControlFlow::Continue(())
        };
        let result = stage.sync_by(&options, &mut observer).unwrap();
        assert_same(&stage.source(), &stage.target());
        // It said so once, and the session went on with whole files.
        assert_eq!(warnings, [Code::Unsupported], "{way:?}");
        assert_eq!((result.tree.files, result.tree.matched_bytes), (5, 0));
        assert_eq!(stage.client.ended(), None);
        // At most each of those that look through files had asked by then, and one of each
        // again while the first was told.
        let asked = older.unwrap().changed.load(Ordering::SeqCst);
        assert!((1..=16).contains(&asked), "{asked}");
    }
}
