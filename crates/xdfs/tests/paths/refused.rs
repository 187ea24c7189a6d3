//! Who may not, and servers that end.

use std::time::{Duration, Instant};

use xdfs::security::Rights;
use xdfs::{Answer, Call, Code, Side};

use crate::place::{Place, list, make, make_files, rename, stat};
use crate::support::{PATIENCE, Serving, client};

#[test]
fn a_server_that_takes_no_writes_answers_questions() {
    let place = Place::new(1, false);
    make_files(&place.folders.root(), 3);
    let serving = Serving::start(&place.folders.root(), |builder| builder.read_only = true);
    let client = client(serving.addr, |_| {});
    assert_eq!(client.list(b"/").count(), 3);
    for call in [
        make("/new"),
        rename("/file 000000", "/new"),
        Call::RemoveFile {
            path: b"/file 000000".to_vec(),
        },
        Call::RemoveTree {
            path: b"/".to_vec(),
        },
    ] {
        let fault = client.call(call).unwrap_err();
        assert_eq!((fault.code, fault.side), (Code::ReadOnly, Side::Remote));
    }
    assert_eq!(client.list(b"/").count(), 3);
    assert!(!place.there("new").exists());
}

#[test]
fn a_user_without_the_right_changes_nothing() {
    let place = Place::protected(2, Some(Rights::READ));
    make_files(&place.folders.root(), 2);
    let client = place.client(None);
    client.call(stat("/e/file 000000")).unwrap();
    for call in [
        make("/e/new"),
        rename("/e/file 000000", "/e/new"),
        Call::Truncate {
            path: b"/e/file 000000".to_vec(),
            length: 9,
        },
    ] {
        let fault = client.call(call).unwrap_err();
        let refused = [Code::PermissionDenied, Code::ReadOnly].contains(&fault.code);
        assert!(refused && fault.side == Side::Remote, "{fault:?}");
    }
    assert!(!place.there("new").exists());
    let outside = client.call(list("/other", 10)).unwrap_err();
    assert!(outside.side == Side::Remote, "{outside:?}");
}

#[test]
fn a_server_that_drains_refuses_new_calls_and_lets_listings_end() {
    let mut place = Place::new(3, false);
    make_files(&place.there("large"), 20_000);
    let client = place.client(None);
    let mut listing = client.list(b"/large");
    listing.next().unwrap().unwrap();
    place.serving.handle.shutdown();
    // The order takes its time to the session; what comes before it is carried out.
    let start = Instant::now();
    let fault = loop {
        match client.call(stat("/large")) {
            Ok(_) => assert!(start.elapsed() < PATIENCE, "it never drains"),
            Err(fault) => break fault,
        }
    };
    assert_eq!((fault.code, fault.side), (Code::ShuttingDown, Side::Remote));
    assert_eq!(fault.path, b"/large");
    let made = client.call(make("/new")).unwrap_err();
    assert_eq!(made.code, Code::ShuttingDown);
    assert!(!place.there("new").exists());
    assert_eq!(listing.filter(|entry| entry.is_ok()).count(), 19_999);
    drop(client);
    place.serving.stop();
}

#[test]
fn the_end_of_a_session_ends_its_calls() {
    let mut place = Place::new(4, false);
    make_files(&place.there("large"), 20_000);
    let client = place.client(Some(2));
    let mut listing = client.list(b"/large");
    listing.next().unwrap().unwrap();
    // At once, in the middle of the listing.
    place.serving.stop();
    let fault = listing.find_map(Result::err).unwrap();
    let codes = [Code::ShuttingDown, Code::ConnectionLost];
    assert!(codes.contains(&fault.code), "{fault:?}");
    assert!(listing.next().is_none());
    for call in [stat("/"), make("/new")] {
        assert!(codes.contains(&client.call(call).unwrap_err().code));
    }
    assert!(!place.there("new").exists());
}

#[test]
fn a_server_that_is_not_there_fails_each_call() {
    let mut place = Place::new(5, false);
    place.serving.stop();
    let client = place.client(None);
    let fault = client.call(make("/new")).unwrap_err();
    assert_eq!(
        (fault.code, fault.side),
        (Code::ConnectionRefused, Side::Local)
    );
    assert!(!fault.hint.contains("may have been done"), "{fault:?}");
    assert!(client.list(b"/").next().unwrap().is_err());
}

#[test]
fn a_client_waits_for_calls_that_were_started() {
    let place = Place::new(6, true);
    let client = place.client(None);
    for i in 0..500 {
        drop(client.start_call(make(&format!("/made {i}"))).unwrap());
    }
    client.close();
    let made = std::fs::read_dir(place.folders.root()).unwrap().count();
    assert_eq!(made, 500);
    // And a listing that nobody takes doesn't hold it up.
    let client = place.client(None);
    let pending = client.start_call(list("/", u32::MAX)).unwrap();
    let start = Instant::now();
    drop(client);
    assert!(start.elapsed() < Duration::from_secs(30));
    match pending.wait() {
        Ok(Answer::Entries { entries, .. }) => assert_eq!(entries.len(), 500),
        Ok(other) => panic!("{other:?}"),
        Err(fault) => assert_eq!(fault.code, Code::Cancelled),
    }
}
