//! The plain path over every transport, both ways.

use std::thread;

use xdfs::{
    Address, Client, ClientOptions, RemotePlace, ServerBuilder, TransferOptions, TransferParameters,
};

use crate::scene::DIGESTS;
use crate::support::{Folders, assert_equal, download, hidden_names, upload};

const SIZE: u64 = (5 << 20) + 77;

/// Serves on an address and moves a file there and back. `None` if there is no such address here.
fn there_and_back(seed: u64, listen: Address) -> Option<()> {
    there_and_back_by(seed, listen, |address| address)
}

/// The same for a client that connects where `way` says, given the address of the server.
fn there_and_back_by(
    seed: u64,
    listen: Address,
    way: impl FnOnce(Address) -> Address,
) -> Option<()> {
    let folders = Folders::new(seed);
    let server = ServerBuilder {
        listen: vec![listen.into()],
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
        address: way(server.addresses().remove(0)),
        path: Vec::new(),
        invitation: xdfs::Invitation::default(),
        profile: None,
        stack: None,
    };
    let handle = server.handle();
    let thread = thread::spawn(move || server.run());
    let source = folders.make_here("source", SIZE);
    for digest in DIGESTS {
        let options = TransferOptions {
            parameters: TransferParameters {
                digest: Some(digest),
                overwrite: true,
                ..TransferParameters::default()
            },
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

/// Copies between two connections until both have ended.
#[cfg(unix)]
macro_rules! forward {
    ($listener:expr, $connect:expr) => {
        thread::spawn(move || {
            while let Ok((near, _)) = $listener.accept() {
                let Ok(far) = $connect else { return };
                let (mut from_near, mut to_far) =
                    (near.try_clone().unwrap(), far.try_clone().unwrap());
                thread::spawn(move || {
                    let _ = std::io::copy(&mut from_near, &mut to_far);
                    let _ = to_far.shutdown(std::net::Shutdown::Write);
                });
                let (mut from_far, mut to_near) = (far, near);
                thread::spawn(move || {
                    let _ = std::io::copy(&mut from_far, &mut to_near);
                    let _ = to_near.shutdown(std::net::Shutdown::Write);
                });
            }
        })
    };
}

/// Neither end of a Unix socket can know that it leads to another machine.
#[cfg(unix)]
#[test]
fn a_unix_socket_that_is_forwarded_to_tcp() {
    let folder = tempfile::tempdir().unwrap();
    let socket = folder.path().join("socket");
    let listener = std::os::unix::net::UnixListener::bind(&socket).unwrap();
    let way = |address: Address| {
        let Address::Host { host, port } = address else {
            panic!("{address:?}")
        };
        // It ends with the process.
        let _forwarder = forward!(listener, std::net::TcpStream::connect((&host[..], port)));
        Address::Unix(socket)
    };
    assert!(there_and_back_by(704, "127.0.0.1:0".parse().unwrap(), way).is_some());
}

#[cfg(unix)]
#[test]
fn tcp_that_is_forwarded_to_a_unix_socket() {
    let folder = tempfile::tempdir().unwrap();
    let way = |address: Address| {
        let Address::Unix(socket) = address else {
            panic!("{address:?}")
        };
        let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
        let near = listener.local_addr().unwrap();
        let _forwarder = forward!(listener, std::os::unix::net::UnixStream::connect(&socket));
        near.to_string().parse().unwrap()
    };
    let listen = Address::Unix(folder.path().join("socket"));
    assert!(there_and_back_by(705, listen, way).is_some());
}

#[test]
fn memory() {
    assert!(there_and_back(703, Address::Memory("transports".into())).is_some());
}
