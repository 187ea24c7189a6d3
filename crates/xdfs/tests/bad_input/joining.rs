//! Blocks that follow JOIN before it is answered ([S-38]).

use xdfs::{Code, Fault, Limits, LocalPlace, TransferOptions};
use xdfs_proto::FileId;
use xdfs_proto::frame::{Accept, Exception, Frame, Scope};
use xdfs_proto::opening::{Answer, Hello};

use crate::leaving::session;
use crate::peer::{BLOCK, Heard, Peer, accept, digest, eofr, join, offer};
use crate::stage::Stage;
use crate::support::Folders;

#[test]
fn blocks_on_a_channel_that_is_then_refused_are_sent_again() {
    const BLOCKS: usize = 40;
    let (client, mut first, listener) = session(2, Limits::default());
    let folders = Folders::new(191);
    let path = folders.make_here("source", BLOCKS as u64 * u64::from(BLOCK));
    let transfer = client.upload(&LocalPlace::Path(path), b"x", &TransferOptions::default());
    assert!(matches!(first.frame(), Frame::Xftsmu(_)));
    let mut second = accept(&listener);
    second.read_hello();
    assert!(matches!(second.next(), Heard::Frame(Frame::Join(_))));
    first.send(&Frame::Accept(Accept {
        file: FileId(1),
        path: Vec::new(),
        block_size: BLOCK,
        durable: Vec::new(),
    }));
    assert!(matches!(second.next(), Heard::Block));
    second.welcome();
    second.send(&Frame::Exception(Exception {
        scope: Scope::Channel,
        fault: Fault::new(Code::TooManyChannels, "join the session", "no more"),
    }));
    drop(second);
    let mut blocks = 0;
    while blocks < BLOCKS {
        match first.next() {
            Heard::Block => blocks += 1,
            Heard::Frame(_) => {}
            Heard::End => panic!("the client closed after {blocks} blocks"),
        }
    }
    transfer.unwrap().cancel();
}

#[test]
fn blocks_behind_join_are_taken() {
    let stage = Stage::new(192);
    let content = xdfs_testkit::tree::random_bytes(192, 2 * BLOCK as usize);
    let (one, two) = content.split_at(BLOCK as usize);
    let (mut first, id, accepted) = Peer::in_session(stage.server.addr, 2);
    first.send(&Frame::Xftsmu(offer("/file", Some(content.len() as u64))));
    assert!(matches!(first.frame(), Frame::Accept(_)));
    let mut second = Peer::connect(stage.server.addr);
    second.hello(&Hello::default());
    second.send(&join(id, accepted.secret, 1));
    second.block(0, one);
    assert!(matches!(second.answer(), Answer::Welcome(_)));
    assert!(matches!(second.frame(), Frame::JoinOk));
    first.block(u64::from(BLOCK), two);
    first.send(&eofr(content.len() as u64, digest(&content)));
    assert!(matches!(first.frame(), Frame::Published(_)));
    assert_eq!(std::fs::read(stage.folders.there("file")).unwrap(), content);
    // The index is used: neither the channel nor its block counts.
    let mut third = Peer::connect(stage.server.addr);
    third.hello(&Hello::default());
    third.send(&join(id, accepted.secret, 1));
    third.block(0, two);
    assert!(matches!(third.answer(), Answer::Welcome(_)));
    third.hold();
    assert_eq!(std::fs::read(stage.folders.there("file")).unwrap(), content);
    stage.still_serves();
}
