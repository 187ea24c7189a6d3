//! Sessions that the other side ends: before, within and after transfers, and by an EOFT that is
//! lost with its channel. Rules S-25, S-30 and S-31.

use xdfs::{Call, Code, Fault, Limits, LocalPlace, Retry, TransferOptions, TransferParameters};
use xdfs_proto::CallId;
use xdfs_proto::file::{FileCall, FileFlags, FileOwner};
use xdfs_proto::frame::{Accept, AnswerPart, CallRequest, Frame};
use xdfs_testkit::wait::until;

use crate::leaving::{joining, session};
use crate::peer::{BLOCK, Heard, Peer, join, offer};
use crate::stage::{OLD, Stage, make_old};
use crate::support::{Folders, PATIENCE, finish, hidden_names};

/// Sends the beginning of EOFT, and then no more, as the channel breaks.
fn half_an_end(mut peer: Peer) {
    let mut bytes = Vec::new();
    Frame::Eoft.encode(&mut bytes);
    peer.raw(&bytes[..bytes.len() - 1]);
}

/// Fails unless EOFT is answered by EOFT, and the channel closed.
#[track_caller]
fn assert_ends(peer: &mut Peer) {
    assert_eq!(peer.frame(), Frame::Eoft);
    peer.end();
}

/// Fails unless the fault says that it can go on in another session.
#[track_caller]
fn assert_broken_off(fault: &Fault) {
    assert_eq!(fault.code, Code::ConnectionLost, "{fault}");
    assert_ne!(fault.retry, Retry::Never, "{fault}");
}

#[test]
fn s30_a_server_that_ends_a_session_before_anything_was_done_in_it() {
    let (client, mut peer, listener) = session(1, Limits::default());
    peer.send(&Frame::Eoft);
    assert_ends(&mut peer);
    // What is wanted further needs another session; no channel is opened in place of those.
    let folders = Folders::new(270);
    let source = LocalPlace::Path(folders.make_here("source", 1000));
    let result = client.upload(&source, b"x", &TransferOptions::default());
    let fault = result.and_then(finish).unwrap_err();
    assert_broken_off(&fault);
    drop(client);
    listener.set_nonblocking(true).unwrap();
    assert!(listener.accept().is_err(), "another channel came");
}

#[test]
fn s31_a_server_that_ends_the_session_while_it_takes_a_file() {
    let (client, mut peer, _listener) = session(1, Limits::default());
    let folders = Folders::new(271);
    let source = LocalPlace::Path(folders.make_here("source", 10_000));
    let transfer = client.upload(&source, b"x", &TransferOptions::default());
    let Frame::Xftsmu(offer) = peer.frame() else {
        panic!("no offer")
    };
    peer.send(&Frame::Accept(Accept {
        file: offer.file,
        path: offer.path,
        block_size: BLOCK,
        durable: Vec::new(),
    }));
    // All of it is sent, and whether it was published isn't known.
    assert!(matches!(peer.frame(), Frame::Eofr(_)));
    peer.send(&Frame::Eoft);
    assert_ends(&mut peer);
    let fault = finish(transfer.unwrap()).unwrap_err();
    assert_broken_off(&fault);
}

#[test]
fn s31_a_server_that_ends_the_session_while_it_gives_a_file() {
    let (client, mut peer, _listener) = session(1, Limits::default());
    let folders = Folders::new(272);
    let target = folders.here("target");
    make_old(&target);
    let options = TransferOptions {
        parameters: TransferParameters {
            overwrite: true,
            ..TransferParameters::default()
        },
        ..TransferOptions::default()
    };
    let place = LocalPlace::Path(target.clone());
    let transfer = client.download(b"/x", &place, &options);
    assert!(matches!(peer.frame(), Frame::Xftsm(_)));
    peer.send(&Frame::Offer(offer("", Some(10_000))));
    assert!(matches!(peer.frame(), Frame::Accept(_)));
    peer.block(0, &[1; BLOCK as usize]);
    peer.send(&Frame::Eoft);
    assert_ends(&mut peer);
    let fault = finish(transfer.unwrap()).unwrap_err();
    assert_broken_off(&fault);
    drop(client);
    assert_eq!(std::fs::read(&target).unwrap(), OLD);
    // What came is kept, so that another session goes on there.
    let folder = target.parent().unwrap();
    let names = hidden_names(folder);
    assert!(names.iter().any(|n| n.ends_with("journal")), "{names:?}");
}

#[test]
fn s30_an_end_that_is_lost_with_its_channel_and_said_again_to_a_client() {
    let (client, one, listener) = session(2, Limits::default());
    let mut two = joining(&listener);
    two.send(&Frame::JoinOk);
    half_an_end(one);
    // It knows of the loss, as it opens another channel.
    let _unanswered = joining(&listener);
    two.send(&Frame::Eoft);
    assert_ends(&mut two);
    drop(client);
}

#[test]
fn s30_an_end_that_is_lost_with_its_channel_and_said_again_to_a_server() {
    let stage = Stage::new(273);
    let (one, id, accepted) = Peer::in_session(stage.server.addr, 2);
    let joining = |index| {
        let mut peer = Peer::greeted(stage.server.addr);
        peer.send(&join(id, accepted.secret, index));
        (peer.frame() == Frame::JoinOk).then_some(peer)
    };
    let mut two = joining(1).expect("there is room");
    half_an_end(one);
    // It knows of the loss when there is room for another channel.
    let mut three = None;
    assert!(until(PATIENCE, || {
        three = joining(2);
        three.is_some()
    }));
    two.send(&Frame::Eoft);
    let answers = [two, three.unwrap()].map(|mut peer| match peer.next() {
        Heard::Frame(Frame::Eoft) => {
            peer.end();
            1
        }
        Heard::End => 0,
        other => panic!("{other:?}"),
    });
    assert_eq!(answers.iter().sum::<u32>(), 1, "it is answered once");
    stage.still_serves();
}

/// What is open at a server is broken off like at a client: it is kept, and goes on elsewhere.
#[test]
fn s25_a_client_that_ends_the_session_while_it_sends_a_file() {
    let stage = Stage::new(274);
    let mut peer = Peer::offering(stage.server.addr, "/file", Some(10_000));
    peer.block(0, &[1; BLOCK as usize]);
    peer.send(&Frame::Eoft);
    assert_ends(&mut peer);
    stage.nothing_published("file");
}

/// Rule S-32: an open file is closed with the session, whoever ends it.
#[test]
fn s32_open_handles_do_not_hinder_the_end() {
    for by_server in [false, true] {
        let mut stage = Stage::new(275);
        stage.folders.make_there("file", 10);
        let (mut peer, ..) = Peer::in_session(stage.server.addr, 1);
        peer.send(&Frame::Xpathm(CallRequest {
            id: CallId {
                slot: 0,
                sequence: 1,
            },
            call: Ok(Call::File(FileCall::Open {
                path: b"/file".to_vec(),
                flags: FileFlags {
                    read: true,
                    ..FileFlags::default()
                },
                mode: None,
                owner: FileOwner([1; 16]),
                identity: None,
            })),
        }));
        match peer.frame() {
            Frame::Answer(AnswerPart { answer, .. }) => drop(answer.unwrap()),
            other => panic!("{other:?}"),
        }
        if by_server {
            // It lets what is open finish, and nothing is.
            stage.server.handle.shutdown();
            assert_ends(&mut peer);
            stage.server.stop();
        } else {
            peer.send(&Frame::Eoft);
            assert_ends(&mut peer);
            stage.still_serves();
        }
    }
}
