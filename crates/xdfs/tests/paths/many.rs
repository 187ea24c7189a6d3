//! Many calls, and large directories, beside each other and beside transfers.

use std::collections::BTreeSet;

use xdfs::{Answer, Code, LocalPlace, TransferOptions, TransferParameters};

use crate::place::{Place, list, make, make_files, stat};
use crate::support::{assert_equal, download, finish, hidden_names, upload};

#[test]
fn ten_thousand_calls_at_once_are_all_answered() {
    for (is_protected, channels) in [(false, None), (true, Some(3))] {
        let place = Place::new(1, is_protected);
        make_files(&place.folders.root(), 100);
        let client = place.client(channels);
        let pending: Vec<_> = (0..10_000)
            .map(|i| {
                let path = format!("/file {:06}", i % 200);
                client.start_call(stat(&path)).unwrap()
            })
            .collect();
        for (i, call) in pending.into_iter().enumerate() {
            match call.wait() {
                Ok(Answer::Attributes(_)) => assert!(i % 200 < 100, "{i}"),
                Ok(other) => panic!("{other:?}"),
                Err(fault) => {
                    assert_eq!((fault.code, i % 200 >= 100), (Code::NotFound, true), "{i}");
                    assert_eq!(fault.path, format!("/file {:06}", i % 200).as_bytes());
                }
            }
        }
    }
}

#[test]
fn a_large_directory_is_listed_once_each() {
    const COUNT: u32 = 100_000;
    let place = Place::new(2, false);
    make_files(&place.there("large"), COUNT);
    for channels in [None, Some(4)] {
        let client = place.client(channels);
        let mut names = BTreeSet::new();
        for entry in client.list(b"/large") {
            let entry = entry.unwrap();
            assert!(names.insert(entry.name), "a name came twice");
        }
        assert_eq!(names.len(), COUNT as usize);
    }

    let client = place.client(None);
    // In the middle nothing more comes, while other calls go on.
    let mut first = client.list(b"/large");
    let mut others: Vec<_> = (0..60).map(|_| client.list(b"/large")).collect();
    assert!(first.by_ref().take(1000).all(|entry| entry.is_ok()));
    for listing in &mut others {
        assert!(listing.next().unwrap().is_ok());
    }
    client.call(make("/beside")).unwrap();
    drop(others);
    assert_eq!(first.count(), COUNT as usize - 1000);
    // All at once is one answer, too.
    let Answer::Entries { entries, cursor } = client.call(list("/large", 5000)).unwrap() else {
        panic!("no entries")
    };
    assert_eq!((entries.len(), cursor.is_some()), (5000, true));
}

#[test]
fn a_listing_ends_with_its_client_and_after_an_error() {
    let place = Place::new(3, false);
    make_files(&place.there("large"), 20_000);
    let client = place.client(None);
    let mut gone = client.list(b"/none");
    assert_eq!(gone.next().unwrap().unwrap_err().code, Code::NotFound);
    assert!(gone.next().is_none());

    let mut listing = client.list(b"/large");
    listing.next().unwrap().unwrap();
    drop(client);
    let (entries, faults): (Vec<_>, Vec<_>) = listing.partition(Result::is_ok);
    assert!(entries.len() < 19_999);
    let codes: Vec<Code> = faults.into_iter().map(|f| f.unwrap_err().code).collect();
    assert_eq!(codes, [Code::Cancelled]);
}

#[test]
fn calls_go_on_while_files_move() {
    for is_protected in [false, true] {
        let place = Place::new(4, is_protected);
        let source = place.folders.make_here("up", 40 << 20);
        let remote = place.folders.make_there("down", 40 << 20);
        let client = place.client(Some(3));
        let options = TransferOptions {
            parameters: TransferParameters {
                rate_bytes_per_s_max: Some(60 << 20),
                ..TransferParameters::default()
            },
            ..TransferOptions::default()
        };
        let target = place.folders.here("target");
        let up = client
            .upload(&LocalPlace::Path(source.clone()), b"/target", &options)
            .unwrap();
        let down = client
            .download(b"/down", &LocalPlace::Path(target.clone()), &options)
            .unwrap();
        for i in 0..300 {
            client.call(make(&format!("/made {i}"))).unwrap();
        }
        let made = client.list(b"/").filter(|entry| {
            let name = &entry.as_ref().unwrap().name;
            name.starts_with(b"made ")
        });
        assert_eq!(made.count(), 300);
        finish(up).unwrap();
        finish(down).unwrap();
        assert_equal(&source, &place.there("target"));
        assert_equal(&remote, &target);
        // And after them, and between two.
        client.call(stat("/target")).unwrap();
        upload(&client, &source, "/again", &TransferOptions::default()).unwrap();
        let got = place.folders.here("got");
        download(&client, "/again", &got, &TransferOptions::default()).unwrap();
        client.call(stat("/again")).unwrap();
        assert_eq!(hidden_names(&place.folders.root()), [""; 0]);
    }
}
