//! The plain path over every transport, both ways.

use std::thread;

use xdfs::{Address, Client, ClientOptions, RemotePlace, ServerBuilder, TransferOptions};

use crate::scene::DIGESTS;
use crate::support::{Folders, assert_equal, download, hidden_names, upload};

const SIZE: u64 = (5 << 20) + 77;

/// Serves on an address and moves a file there and back. `None` if there is no such address here.
fn there_and_back(seed: u64, listen: Address) -> Option<()> {
    let folders = Folders::new(seed);
    let server = ServerBuilder {
        listen: vec![listen],
        root: folders.root(),
        ..ServerBuilder::default()
    };
    let server = match server.bind() {
        Ok(server) => server,
        Err(fault) => {
            xdfs_testkit::skip::test(fault);
            return None;
        }
    };
    let place = RemotePlace {
        user: None,
        address: server.addresses().remove(0),
        path: Vec::new(),
        invitation: xdfs::Invitation::default(),
    };
    let handle = server.handle();
    let thread = thread::spawn(move || server.run());
    let source = folders.make_here("source", SIZE);
    for digest in DIGESTS {
        let options = TransferOptions {
            digest,
            overwrite: true,
            ..TransferOptions::default()
        };
        for channels in [1, 5] {
            let client = Client::connect(
                &place,
                ClientOptions {
                    channels: Some(channels),
                    ..ClientOptions::default()
                },
            )
            .unwrap();
            let up = upload(&client, &source, "/file", &options).unwrap();
            assert_eq!(up.bytes, SIZE);
            assert_equal(&source, &folders.there("file"));
            let back = folders.here("back");
            let down = download(&client, "/file", &back, &options).unwrap();
            assert_eq!(down.digest, up.digest);
            assert_equal(&source, &back);
        }
    }
    assert_eq!(hidden_names(&folders.root()), [""; 0]);
    handle.shutdown();
    thread.join().unwrap().unwrap();
    Some(())
}

#[test]
fn tcp_v4() {
    assert!(there_and_back(700, "127.0.0.1:0".parse().unwrap()).is_some());
}

#[test]
fn tcp_v6() {
    // Not every machine has it.
    let _ = there_and_back(701, "[::1]:0".parse().unwrap());
}

#[cfg(unix)]
#[test]
fn unix() {
    let folder = tempfile::tempdir().unwrap();
    let socket = Address::Unix(folder.path().join("socket"));
    assert!(there_and_back(702, socket).is_some());
}

#[test]
fn memory() {
    assert!(there_and_back(703, Address::Memory("transports".into())).is_some());
}
