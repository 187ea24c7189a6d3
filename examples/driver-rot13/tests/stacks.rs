//! The driver in stacks, over transports that move bytes for real.

use std::io::{self, ErrorKind, IoSlice, IoSliceMut};
use std::thread;
use std::time::{Duration, Instant};

use xdfs_xio::{ControlValue, Endpoint, Registry, Stack, Stream};

const PATIENCE: Duration = Duration::from_secs(30);

fn stack(text: &str) -> Stack {
    let registry = Registry::standard().with(xdfs_driver_rot13::driver());
    registry.build(&text.parse().unwrap()).unwrap()
}

/// Repeats a call that would block. A program waits for the poller instead.
fn until<T>(mut call: impl FnMut() -> io::Result<T>) -> T {
    let start = Instant::now();
    loop {
        match call() {
            Err(e) if e.kind() == ErrorKind::WouldBlock => {
                assert!(start.elapsed() < PATIENCE, "nothing comes");
                thread::sleep(Duration::from_millis(1));
            }
            done => return done.unwrap(),
        }
    }
}

/// Both ends of a channel between two stacks.
fn connect(text: &str, below: &str, endpoint: &Endpoint) -> [Box<dyn Stream>; 2] {
    let mut listener = stack(below).listen(endpoint).unwrap();
    let mut client = stack(text).open(&listener.local_endpoint()).unwrap();
    let server = until(|| listener.accept());
    until(|| match client.finish_open()? {
        true => Ok(()),
        false => Err(ErrorKind::WouldBlock.into()),
    });
    [client, server]
}

/// Sends `content` from one end to the other in one thread, and returns what arrives.
fn sent(from: &mut dyn Stream, to: &mut dyn Stream, content: &[u8]) -> Vec<u8> {
    let (mut written, mut read, mut seen) = (0, 0, vec![0; content.len()]);
    while read < content.len() {
        if written < content.len() {
            match from.write_vectored(&[IoSlice::new(&content[written..])]) {
                Err(e) if e.kind() == ErrorKind::WouldBlock => {}
                done => written += done.unwrap(),
            }
        } else if let Err(e) = from.flush() {
            assert_eq!(e.kind(), ErrorKind::WouldBlock);
        }
        match to.read_vectored(&mut [IoSliceMut::new(&mut seen[read..])]) {
            Err(e) if e.kind() == ErrorKind::WouldBlock => thread::yield_now(),
            Ok(0) => panic!("it ended after {read} bytes"),
            done => read += done.unwrap(),
        }
    }
    seen
}

fn endpoints(name: &str) -> [(&'static str, Endpoint); 2] {
    [
        ("memory", Endpoint::memory(name)),
        ("tcp", Endpoint::tcp("127.0.0.1:0".parse().unwrap())),
    ]
}

#[test]
fn content_arrives_as_it_was() {
    let content: Vec<u8> = (0..4_000_000_u32).map(|i| (i % 251) as u8).collect();
    for (transport, endpoint) in endpoints("rot13-content") {
        let text = format!("{transport},rot13");
        let [mut client, mut server] = connect(&text, &text, &endpoint);
        assert!(sent(&mut *client, &mut *server, &content) == content);
        assert!(sent(&mut *server, &mut *client, &content) == content);
        let bytes = ControlValue::Count(content.len() as u64);
        assert_eq!(client.control("rot13.bytes"), Some(bytes));
        client.close().unwrap();
        let end = until(|| server.read_vectored(&mut [IoSliceMut::new(&mut [0])]));
        assert_eq!(end, 0);
    }
}

#[test]
fn the_bytes_on_the_way_are_rotated() {
    for (transport, endpoint) in endpoints("rot13-way") {
        for (attributes, wanted) in [("", b"Uryyb, 9"), (":by=1", b"Ifmmp, 9")] {
            let text = format!("{transport},rot13{attributes}");
            let [mut client, mut server] = connect(&text, transport, &endpoint);
            assert_eq!(sent(&mut *client, &mut *server, b"Hello, 9"), wanted);
            assert_eq!(sent(&mut *server, &mut *client, wanted), b"Hello, 9");
        }
    }
}

#[test]
fn attributes_are_checked() {
    let registry = Registry::standard().with(xdfs_driver_rot13::driver());
    for value in ["0", "26", "-1", "x", ""] {
        let spec = format!("memory,rot13:by={value}").parse().unwrap();
        let error = registry.build(&spec).unwrap_err().to_string();
        assert!(error.contains("a number from 1 to 25"), "{error}");
    }
}
