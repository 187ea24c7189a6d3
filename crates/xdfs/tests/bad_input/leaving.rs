//! Peers that misuse LEAVE: never answer it, never go, or let all channels leave.

use std::net::{SocketAddr, TcpListener};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::{self, JoinHandle};
use std::time::Duration;

use xdfs::{Client, Code, Limits, LocalPlace, TransferOptions};
use xdfs_proto::frame::{Exception, Frame};

use crate::peer::{BLOCK, Heard, Peer, accept, block_header, join, offer, session_ok};
use crate::stage::Stage;
use crate::support::{Folders, client, finish};

/// A client whose session has one channel so far, that channel, and the listener of its server.
pub(crate) fn session(channels: u32, limits: Limits) -> (Client, Peer, TcpListener) {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let addr: SocketAddr = listener.local_addr().unwrap();
    let server: JoinHandle<(Peer, TcpListener)> = thread::spawn(move || {
        let mut peer = accept(&listener);
        peer.read_hello();
        peer.welcome();
        assert!(matches!(peer.frame(), Frame::Session(_)));
        peer.send(&session_ok(channels, BLOCK));
        (peer, listener)
    });
    let client = client(addr, |options| {
        options.channels = Some(channels);
        options.block_size = Some(BLOCK);
        options.limits = limits;
    });
    let (peer, listener) = server.join().unwrap();
    (client, peer, listener)
}

/// A channel that the client opens and that asks to join.
pub(crate) fn joining(listener: &TcpListener) -> Peer {
    let mut peer = accept(listener);
    peer.read_hello();
    peer.welcome();
    assert!(matches!(peer.frame(), Frame::Join(_)));
    peer
}

/// Ends a talk when it is dropped, so that nothing waits for its end where a test fails.
#[derive(Default)]
struct Stop(Arc<AtomicBool>);

impl Drop for Stop {
    fn drop(&mut self) {
        self.0.store(true, Ordering::Relaxed);
    }
}

#[test]
fn a_leave_that_is_never_answered_ends_its_channel() {
    let limits = Limits {
        idle_timeout: Duration::from_secs(5),
        ..Limits::default()
    };
    let (client, mut old, listener) = session(1, limits);
    client.leave_channel();
    let mut new = joining(&listener);
    new.send(&Frame::JoinOk);
    assert!(matches!(old.frame(), Frame::Leave));
    // What else is said travels on the channel that stays.
    let folders = Folders::new(181);
    let source = LocalPlace::Path(folders.make_here("source", 1000));
    let transfer = client.upload(&source, b"x", &TransferOptions::default());
    assert!(matches!(new.frame(), Frame::Xftsmu(_)));
    let mut noop = Vec::new();
    Frame::Noop.encode(&mut noop);
    let stop = Stop::default();
    let stopped = Arc::clone(&stop.0);
    let talk = thread::spawn(move || {
        while !stopped.load(Ordering::Relaxed) && new.try_raw(&noop) {
            thread::sleep(Duration::from_millis(50));
        }
    });
    let fault = old.channel_exception();
    assert_eq!(fault.code, Code::DeadlineExceeded, "{fault}");
    drop(stop);
    talk.join().unwrap();
    transfer.unwrap().cancel();
}

#[test]
fn a_session_whose_last_channel_cannot_be_replaced_ends() {
    let (client, mut peer, listener) = session(1, Limits::default());
    // Nobody listens there any more.
    drop(listener);
    let folders = Folders::new(182);
    let source = LocalPlace::Path(folders.make_here("source", 1000));
    let transfer = client.upload(&source, b"x", &TransferOptions::default());
    assert!(matches!(peer.frame(), Frame::Xftsmu(_)));
    client.leave_channel();
    let talk = thread::spawn(move || {
        // The peer is there, and reads.
        let mut noop = Vec::new();
        Frame::Noop.encode(&mut noop);
        while peer.try_raw(&noop) {
            thread::sleep(Duration::from_millis(50));
        }
    });
    let fault = finish(transfer.unwrap()).unwrap_err();
    assert_eq!(fault.code, Code::ConnectionLost, "{fault}");
    drop(client);
    talk.join().unwrap();
}

#[test]
fn the_last_of_the_channels_that_leave_together_waits() {
    let (client, mut one, listener) = session(2, Limits::default());
    let mut two = joining(&listener);
    two.send(&Frame::JoinOk);
    for peer in [&mut one, &mut two] {
        peer.send(&Frame::Leave);
        assert!(matches!(peer.frame(), Frame::Leave));
    }
    // The client wants two others, and gets no answer yet.
    let mut others = [joining(&listener), joining(&listener)];
    // One of the two goes. The slots are looked at in their order.
    one.end();
    let folders = Folders::new(183);
    let source = LocalPlace::Path(folders.make_here("source", 1000));
    let transfer = client.upload(&source, b"x", &TransferOptions::default());
    assert!(matches!(two.frame(), Frame::Xftsmu(_)));
    others[0].send(&Frame::JoinOk);
    two.end();
    transfer.unwrap().cancel();
}

#[test]
fn channels_that_leave_and_never_go_are_bounded() {
    const CHANNELS: u32 = 4;
    let stage = Stage::new(184);
    let (mut first, id, accepted) = Peer::in_session(stage.server.addr, CHANNELS);
    first.send(&Frame::Xftsmu(offer("/held", Some(1 << 20))));
    assert!(matches!(first.frame(), Frame::Accept(_)));
    let mut held = Vec::new();
    let refused = (1..5 * CHANNELS).find_map(|index| {
        let mut peer = Peer::greeted(stage.server.addr);
        peer.send(&join(id, accepted.secret, index));
        match peer.frame() {
            Frame::JoinOk => {}
            Frame::Exception(Exception { fault, .. }) => return Some(fault),
            other => panic!("{other:?}"),
        }
        // It leaves, and is busy for ever.
        peer.send(&Frame::Leave);
        assert!(matches!(peer.frame(), Frame::Leave));
        let header = block_header(u64::from(index * BLOCK), &[0; BLOCK as usize]);
        peer.raw(&header.encode());
        held.push(peer);
        None
    });
    let fault = refused.expect("channels without a bound");
    assert_eq!(fault.code, Code::TooManyChannels, "{fault}");
    assert!(held.len() < 2 * CHANNELS as usize, "{}", held.len());
    // The session goes on.
    first.block(0, &[1; BLOCK as usize]);
    assert!(matches!(first.next(), Heard::Frame(_)));
    drop((first, held));
    stage.nothing_published("held");
}
