//! Cancelling when the other side may have published already: both sides report what is so.

use std::net::TcpListener;
use std::sync::mpsc;
use std::thread;

use xdfs::{Code, Fault, LocalPlace, TransferOptions, TransferResult};
use xdfs_proto::frame::{Accept, Cancel, Eofr, Frame, Published, TimeAccount};

use crate::peer::{BLOCK, Peer, accept, block_header, digest, eofr, session_ok};
use crate::stage::Stage;
use crate::support::{Folders, PATIENCE, client, finish};

/// What the store does at the moment can't be taken back: the answer to CANCEL is PUBLISHED.
#[test]
fn a_server_that_publishes_says_so_to_whoever_cancels() {
    let stage = Stage::new(230);
    let content = [7; 4096];
    let mut peer = Peer::offering(stage.server.addr, "/file", Some(4096));
    let mut bytes = block_header(0, &content).encode().to_vec();
    bytes.extend_from_slice(&content);
    eofr(4096, digest(&content)).encode(&mut bytes);
    let file = xdfs_proto::FileId(1);
    Frame::Cancel(Cancel { file }).encode(&mut bytes);
    peer.raw(&bytes);
    let answer = peer.frame();
    assert!(matches!(answer, Frame::Published(_)), "{answer:?}");
    assert_eq!(std::fs::read(stage.folders.there("file")).unwrap(), content);
    stage.still_serves();
}

/// A client whose user cancels after the end was sent, and a server that says this of the file.
fn cancelled_late(
    answer: impl FnOnce(Frame) -> Frame + Send + 'static,
) -> Result<TransferResult, Fault> {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let addr = listener.local_addr().unwrap();
    let (ended, has_ended) = mpsc::channel();
    let server = thread::spawn(move || {
        let mut peer = accept(&listener);
        peer.read_hello();
        peer.welcome();
        assert!(matches!(peer.frame(), Frame::Session(_)));
        peer.send(&session_ok(1, BLOCK));
        let Frame::Xftsmu(offer) = peer.frame() else {
            panic!("no offer")
        };
        peer.send(&Frame::Accept(Accept {
            file: offer.file,
            path: offer.path,
            block_size: BLOCK,
            durable: Vec::new(),
        }));
        let end = peer.frame();
        assert!(matches!(end, Frame::Eofr(_)), "{end:?}");
        ended.send(()).unwrap();
        let cancel = peer.frame();
        assert!(matches!(cancel, Frame::Cancel(_)), "{cancel:?}");
        peer.send(&answer(end));
        peer.hold();
    });
    let folders = Folders::new(231);
    let source = LocalPlace::Path(folders.make_here("source", 0));
    let client = client(addr, |options| {
        options.channels = Some(1);
        options.block_size = Some(BLOCK);
    });
    let options = TransferOptions::default();
    let transfer = client.upload(&source, b"/x", &options).unwrap();
    has_ended.recv_timeout(PATIENCE).unwrap();
    transfer.cancel();
    let result = finish(transfer);
    drop(client);
    server.join().unwrap();
    result
}

#[test]
fn a_client_that_cancels_what_is_published_says_that_it_is() {
    let result = cancelled_late(|end| match end {
        Frame::Eofr(Eofr {
            file,
            length,
            digest,
            ..
        }) => Frame::Published(Published {
            file,
            length,
            digest,
            time: TimeAccount::default(),
            failures: xdfs_proto::pack::Failures::default(),
        }),
        other => panic!("{other:?}"),
    });
    assert_eq!(result.unwrap().bytes, 0);
}

#[test]
fn a_client_that_cancels_in_time_says_so() {
    let result = cancelled_late(|end| match end {
        Frame::Eofr(Eofr { file, .. }) => Frame::Cancel(Cancel { file }),
        other => panic!("{other:?}"),
    });
    let fault = result.unwrap_err();
    assert_eq!(fault.code, Code::Cancelled, "{fault}");
    assert_eq!(fault.side, xdfs::Side::Local, "{fault}");
}
