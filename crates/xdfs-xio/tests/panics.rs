//! Drivers of a program that panic, wherever they are called: the stream fails, and whoever uses it
//! goes on.

#![expect(clippy::unwrap_used, reason = "a step that fails is a failed test")]

use std::io::{self, IoSlice, IoSliceMut};
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};

use xdfs_sys::poll::{Poller, Token};
use xdfs_xio::{
    Attribute, Capabilities, Control, Driver, End, Endpoint, Form, Listener, Output, Property,
    Protection, Registry, Room, Stack, Stream, Transform, Transport,
};

/// Where to panic.
#[derive(Clone, Debug, Default)]
struct Options {
    at: String,
}

const ATTRIBUTES: &[Attribute<Options>] = &[Attribute {
    name: "at",
    takes: "the name of a function",
    set: |options, text| {
        options.at = text.to_owned();
        Some(())
    },
    text: |options| Some(options.at.clone()),
}];

/// A driver that panics at one place.
#[derive(Debug)]
struct Fragile {
    at: String,
    /// Calls since it panicked, or since it was dropped.
    later: Arc<AtomicU32>,
}

impl Fragile {
    fn come_to(&self, place: &str) {
        if self.later.load(Ordering::Relaxed) > 0 {
            self.later.fetch_add(1, Ordering::Relaxed);
        }
        if self.at == place {
            self.later.fetch_add(1, Ordering::Relaxed);
            panic!("on purpose, in {place}");
        }
    }
}

impl Drop for Fragile {
    fn drop(&mut self) {
        if self.at == "drop" {
            panic!("on purpose, in drop");
        }
    }
}

impl Transform for Fragile {
    fn is_open(&self) -> bool {
        self.come_to("is_open");
        true
    }

    fn encode(&mut self, content: &[IoSlice<'_>], out: &mut Output) -> io::Result<usize> {
        self.come_to("encode");
        content.iter().for_each(|slice| out.extend(slice));
        Ok(content.iter().map(|slice| slice.len()).sum())
    }

    fn decode(
        &mut self,
        encoded: &[u8],
        content: &mut Room<'_, '_>,
        _: &mut Output,
    ) -> io::Result<usize> {
        self.come_to("decode");
        Ok(content.put(encoded))
    }

    fn held_bytes(&self) -> usize {
        self.come_to("held_bytes");
        0
    }

    fn close(&mut self, _: &mut Output) {
        self.come_to("close");
    }

    fn capabilities(&self, below: Capabilities) -> Capabilities {
        self.come_to("capabilities");
        below
    }

    fn controls(&self, _: &mut Vec<Control>) {
        self.come_to("controls");
    }

    fn protection(&self) -> Option<Protection> {
        self.come_to("protection");
        None
    }
}

/// The stack `memory,fragile` that panics at `place`, and its count of later calls.
fn stack(place: &str) -> (Stack, Arc<AtomicU32>) {
    let later = Arc::new(AtomicU32::new(0));
    let counted = Arc::clone(&later);
    let fragile = Driver::transform("fragile", ATTRIBUTES, move |options: Options| {
        let later = Arc::clone(&counted);
        move |_: End| {
            assert_ne!(options.at, "make", "on purpose, in make");
            Ok(Fragile {
                at: options.at.clone(),
                later: Arc::clone(&later),
            })
        }
    });
    let registry = Registry::standard().with(fragile);
    let spec = format!("memory,fragile:at={place}").parse().unwrap();
    (registry.build(&spec).unwrap(), later)
}

fn plain() -> Stack {
    Registry::standard()
        .build(&"memory".parse().unwrap())
        .unwrap()
}

/// Calls everything that a session calls.
fn use_all(stream: &mut dyn Stream) -> Vec<io::Error> {
    let mut poller = Poller::new().unwrap();
    let results = [
        stream.register(&mut poller, Token(1)),
        stream.finish_open().map(drop),
        stream.write_vectored(&[IoSlice::new(b"four")]).map(drop),
        stream.flush(),
        stream
            .read_vectored(&mut [IoSliceMut::new(&mut [0; 4])])
            .map(drop),
        stream.set_window(10_000),
        stream.suit_long_path(),
    ];
    let _ = (stream.has_unflushed(), stream.held_bytes());
    let _ = (stream.measure(), stream.protection(), stream.peer());
    let _ = (stream.capabilities(), stream.protected().is_some());
    stream.controls(&mut Vec::new());
    let closed = [stream.close(), stream.deregister(&mut poller)];
    let results = results.into_iter().chain(closed);
    results.filter_map(Result::err).collect()
}

#[test]
fn a_panic_is_an_error_of_its_stream() {
    for (place, error_count) in [
        ("is_open", 8),
        ("encode", 7),
        ("decode", 5),
        ("held_bytes", 2),
        ("close", 2),
        ("controls", 2),
        ("protection", 2),
        ("drop", 0),
        ("nowhere", 0),
    ] {
        let (stack, later) = stack(place);
        let endpoint = Endpoint::memory(format!("panics-{place}"));
        let mut listener = plain().listen(&endpoint).unwrap();
        let mut client = stack.open(&endpoint).unwrap();
        let mut server = listener.accept().unwrap();
        let _ = server.write_vectored(&[IoSlice::new(b"text")]).unwrap();
        let errors = use_all(&mut *client);
        assert_eq!(errors.len(), error_count, "{place}: {errors:?}");
        let wanted = "internal error: a driver of the channel's stack panicked";
        assert!(errors.iter().all(|e| e.to_string() == wanted), "{errors:?}");
        // Nothing has used it since.
        let calls = later.load(Ordering::Relaxed);
        assert!(calls <= 1, "{place}: {calls}");
        let errors = use_all(&mut *client).len();
        assert_eq!(errors == 9, calls == 1, "{place}: {errors}");
        assert_eq!(client.peer(), format!("memory:panics-{place}"));
        assert!(client.capabilities().local);
        drop(client);
        // The peer sees the end of the channel.
        let mut end = [0; 100];
        let ended = loop {
            match server.read_vectored(&mut [IoSliceMut::new(&mut end)]) {
                Ok(0) => break true,
                Ok(_) => {}
                Err(e) => break e.kind() == io::ErrorKind::ConnectionReset,
            }
        };
        assert!(ended, "{place}");
    }
}

#[test]
fn a_panic_when_a_stream_is_made_costs_that_stream() {
    for place in ["make", "capabilities"] {
        let (stack, _) = stack(place);
        let endpoint = Endpoint::memory(format!("panics-made-{place}"));
        let mut listener = stack.listen(&endpoint).unwrap();
        assert!(stack.open(&endpoint).is_err(), "{place}");
        for _ in 0..3 {
            let _client = plain().open(&endpoint).unwrap();
        }
        // The first was that of the failed open.
        for _ in 0..4 {
            let error = listener.accept().unwrap_err();
            assert!(error.to_string().contains("panicked"), "{place}: {error}");
        }
        let error = listener.accept().unwrap_err();
        assert_eq!(error.kind(), io::ErrorKind::WouldBlock);
    }
}

/// A transport whose calls panic.
#[derive(Debug)]
struct Broken;

impl Transport for Broken {
    fn open(&self, _: &Endpoint) -> io::Result<Box<dyn Stream>> {
        panic!("on purpose, in open")
    }

    fn listen(&self, endpoint: &Endpoint) -> io::Result<Box<dyn Listener>> {
        match endpoint.name() {
            Some("there") => Ok(Box::new(BrokenListener(endpoint.clone()))),
            _ => panic!("on purpose, in listen"),
        }
    }
}

#[derive(Debug)]
struct BrokenListener(Endpoint);

impl Listener for BrokenListener {
    fn accept(&mut self) -> io::Result<Box<dyn Stream>> {
        panic!("on purpose, in accept")
    }

    fn register(&mut self, _: &mut Poller, _: Token) -> io::Result<()> {
        Ok(())
    }

    fn local_endpoint(&self) -> Endpoint {
        self.0.clone()
    }
}

#[test]
fn a_panic_in_a_transport_is_an_error_too() {
    let broken =
        Driver::transport("broken", Form::Name, &[], |()| Broken).gives(&[Property::Order]);
    let registry = Registry::standard().with(broken);
    let stack = registry.build(&"broken".parse().unwrap()).unwrap();
    let endpoint = |name: &str| {
        let location = xdfs_xio::Location::Name(name.to_owned());
        Endpoint::new("broken", location)
    };
    let wanted = "internal error: a driver of the channel's stack panicked";
    let errors = [
        stack.open(&endpoint("x")).map(drop),
        stack.listen(&endpoint("x")).map(drop),
    ];
    for error in errors {
        assert_eq!(error.unwrap_err().to_string(), wanted);
    }
    let mut listener = stack.listen(&endpoint("there")).unwrap();
    let mut poller = Poller::new().unwrap();
    listener.register(&mut poller, Token(1)).unwrap();
    for _ in 0..2 {
        assert_eq!(listener.accept().unwrap_err().to_string(), wanted);
    }
    assert!(listener.register(&mut poller, Token(1)).is_err());
    assert_eq!(listener.local_endpoint(), endpoint("there"));
}
