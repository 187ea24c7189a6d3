//! How a peer spends its time: accounts that can't be, and peers that don't report it.

use std::net::TcpListener;
use std::thread;

use xdfs::{DigestValue, LimitedBy, LocalPlace, TransferOptions, TransferResult};
use xdfs_proto::FileId;
use xdfs_proto::frame::{Accept, Eofr, Frame, Offer, Published, TimeAccount, TimeDetails};
use xdfs_proto::opening::{Answer, Feature, Welcome};
use xdfs_proto::pack::Failures;

use crate::peer::{BLOCK, Peer, accept, digest, offer, session_ok};
use crate::stage::Stage;
use crate::support::{Folders, client, finish};

const ABSURD: TimeAccount = TimeAccount {
    store_permille: 1000,
    details: Some(TimeDetails {
        time_us: u64::MAX,
        sync_permille: u16::MAX,
        cpu_permille: u16::MAX,
        rate_permille: u16::MAX,
        payload_permille: u16::MAX,
    }),
};

/// A transfer of an empty file with a server that reports this account, and the account of the
/// client, to a server that reports its own if `has_feature`.
fn transfer(
    seed: u64,
    uploads: bool,
    has_feature: bool,
    claimed: TimeAccount,
) -> (TransferResult, TimeAccount) {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let addr = listener.local_addr().unwrap();
    let server = thread::spawn(move || {
        let mut peer = accept(&listener);
        peer.read_hello();
        let feature = Feature {
            id: 4,
            name: "time-account".into(),
            value: Vec::new(),
        };
        let mut welcome = Vec::new();
        Answer::Welcome(Welcome {
            version: 1,
            features: has_feature.then_some(feature).into_iter().collect(),
        })
        .encode(&mut welcome);
        peer.raw(&welcome);
        assert!(matches!(peer.frame(), Frame::Session(_)));
        peer.send(&session_ok(1, BLOCK));
        let reported = match peer.frame() {
            Frame::Xftsmu(offer) => upload_to(&mut peer, &offer, claimed),
            Frame::Xftsm(request) => download_from(&mut peer, request.file, claimed),
            other => panic!("{other:?}"),
        };
        peer.hold();
        reported
    });
    let folders = Folders::new(seed);
    let place = LocalPlace::Path(match uploads {
        true => folders.make_here("source", 0),
        false => folders.here("target"),
    });
    let client = client(addr, |options| {
        options.channels = Some(1);
        options.block_size = Some(BLOCK);
    });
    let options = TransferOptions::default();
    let transfer = match uploads {
        true => client.upload(&place, b"/x", &options),
        false => client.download(b"/x", &place, &options),
    };
    let result = finish(transfer.unwrap()).unwrap();
    drop(client);
    (result, server.join().unwrap())
}

fn upload_to(peer: &mut Peer, offer: &Offer, claimed: TimeAccount) -> TimeAccount {
    peer.send(&Frame::Accept(Accept {
        file: offer.file,
        path: offer.path.clone(),
        block_size: BLOCK,
        durable: Vec::new(),
    }));
    let Frame::Eofr(end) = peer.frame() else {
        panic!("no end")
    };
    peer.send(&published(end.file, end.digest, claimed));
    end.time
}

fn download_from(peer: &mut Peer, file: FileId, claimed: TimeAccount) -> TimeAccount {
    peer.send(&Frame::Offer(Offer {
        file,
        ..offer("", Some(0))
    }));
    assert!(matches!(peer.frame(), Frame::Accept(_)));
    peer.send(&Frame::Eofr(Eofr {
        file,
        length: 0,
        digest: digest(b""),
        time: claimed,
    }));
    match peer.frame() {
        Frame::Published(end) => end.time,
        other => panic!("{other:?}"),
    }
}

fn published(file: FileId, digest: DigestValue, time: TimeAccount) -> Frame {
    Frame::Published(Published {
        file,
        length: 0,
        digest,
        time,
        failures: Failures::default(),
    })
}

#[track_caller]
fn assert_whole(result: &TransferResult) {
    let shares: Vec<f64> = result.time_shares.iter().map(|(_, share)| share).collect();
    let sum: f64 = shares.iter().sum();
    assert!((sum - 1.0).abs() < 1e-9, "{shares:?}");
    assert!(shares.iter().all(|share| (0.0..=1.0).contains(share)));
}

/// [F-27]
#[test]
fn f27_absurd_figures_of_a_server_do_no_harm() {
    for (seed, uploads) in [(240, true), (241, false)] {
        let (result, reported) = transfer(seed, uploads, true, ABSURD);
        assert_whole(&result);
        // What it claims counts as all of its time, and no more.
        let shares = &result.time_shares;
        assert!(shares.of(LimitedBy::RateLimit) <= 0.34, "{shares:?}");
        assert!(shares.of(LimitedBy::RateLimit) > 0.2, "{shares:?}");
        let details = reported.details.expect("the client reports its own");
        let own = [details.cpu_permille, details.rate_permille];
        assert!(own.iter().sum::<u16>() <= 1000, "{details:?}");
    }
}

/// [F-27]
#[test]
fn f27_an_older_server_gets_the_one_figure_that_it_knows() {
    for (seed, uploads) in [(242, true), (243, false)] {
        let (result, reported) = transfer(seed, uploads, false, TimeAccount::of_store(1000));
        assert_whole(&result);
        assert_eq!(reported.details, None);
        let by = match uploads {
            true => LimitedBy::TargetWrite,
            false => LimitedBy::SourceRead,
        };
        assert!(result.time_shares.of(by) >= 0.5, "{:?}", result.time_shares);
    }
}

/// [F-27]
#[test]
fn f27_a_server_takes_any_account_and_tells_an_older_client_one_figure() {
    let stage = Stage::new(244);
    let mut peer = Peer::offering(stage.server.addr, "/file", Some(0));
    peer.send(&Frame::Eofr(Eofr {
        file: FileId(1),
        length: 0,
        digest: digest(b""),
        time: ABSURD,
    }));
    match peer.frame() {
        Frame::Published(end) => assert_eq!(end.time.details, None),
        other => panic!("{other:?}"),
    }
    assert!(stage.folders.there("file").exists());
    stage.still_serves();
}
