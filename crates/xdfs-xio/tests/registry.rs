//! From the text of a stack to one that opens, and what is said of texts that lead to none.

#![expect(clippy::unwrap_used, reason = "a step that fails is a failed test")]

use std::io::{ErrorKind, IoSlice, IoSliceMut};

use xdfs_xio::{
    DriverSpec, Endpoint, Property, Registry, Role, SpecError, Stack, StackSpec, Stream,
};

#[path = "support/xor.rs"]
mod outside;

fn registry() -> Registry {
    Registry::standard().with(outside::xor())
}

fn build(text: &str) -> Result<Stack, SpecError> {
    registry().build(&text.parse()?)
}

fn why(text: &str) -> String {
    build(text).map(|_| ()).unwrap_err().to_string()
}

#[test]
fn the_standard_drivers_are_registered() {
    let registry = Registry::standard();
    let drivers = registry.drivers().map(|d| (d.name(), d.role()));
    let wanted = [
        ("buffer", Role::Transform),
        ("digest", Role::Transform),
        ("file", Role::Transport),
        ("http", Role::Transform),
        ("lz4", Role::Transform),
        ("memory", Role::Transport),
        ("process", Role::Transport),
        ("ptcp", Role::Bundle),
        ("quic", Role::Transport),
        ("stdio", Role::Transport),
        ("tcp", Role::Transport),
        ("throttle", Role::Transform),
        ("tls", Role::Transform),
        ("trace", Role::Transform),
        ("udp", Role::Transport),
        ("unix", Role::Transport),
        ("zstd", Role::Transform),
    ];
    assert_eq!(drivers.collect::<Vec<_>>(), wanted);
}

#[test]
fn what_is_unknown_or_wrong_is_told_with_what_there_is() {
    for (text, wanted) in [
        (
            "tcp,zip",
            "unknown driver 'zip'; there are buffer, digest, file, http, lz4, memory, process, \
             ptcp, quic, stdio, tcp, throttle, tls, trace, udp, unix, xor, zstd",
        ),
        (
            "sctp",
            "unknown driver 'sctp'; there are buffer, digest, file, http, lz4, memory, process, \
             ptcp, quic, stdio, tcp, throttle, tls, trace, udp, unix, xor, zstd",
        ),
        (
            "tls",
            "a stack begins with a transport (file, memory, process, quic, stdio, tcp, udp, unix), \
             and 'tls' is a transform",
        ),
        (
            "tcp,memory",
            "'memory' is a transport, and only the first driver of a stack can be one",
        ),
        (
            "memory:size=1",
            "unknown attribute 'size'; the driver 'memory' has no attributes",
        ),
        (
            "tcp,xor:ley=1",
            "unknown attribute 'ley'; the driver 'xor' has key (a number from 0 to 255)",
        ),
        (
            "tcp:nodelay=yes",
            "invalid value in 'tcp:nodelay=yes'; expected true or false",
        ),
        (
            "tcp:buffer=17",
            "invalid value in 'tcp:buffer=17'; expected bytes from 4096 to 1073741824",
        ),
        (
            "memory,xor:key=256",
            "invalid value in 'xor:key=256'; expected a number from 0 to 255",
        ),
    ] {
        assert_eq!(why(text), wanted, "{text}");
    }
    let all = why("tcp:nagle=1");
    for name in ["nodelay", "buffer", "keepalive"] {
        assert!(all.contains(name), "{all}");
    }
}

#[test]
fn what_a_driver_needs_has_to_be_given_below_it() {
    let bound = || outside::xor().needs(&[Property::Order, Property::Protection]);
    let registry = Registry::standard().with(bound());
    let build = |text: &str| registry.build(&text.parse::<StackSpec>().unwrap());
    assert_eq!(
        build("tcp,xor").unwrap_err().to_string(),
        "the driver 'xor' needs protection, which no driver below it gives"
    );
    build("tcp,xor,tls").unwrap_err();
    assert!(build("tcp,tls,xor").unwrap().gives(Property::Protection));
}

#[test]
fn a_stack_opens_only_what_its_transport_leads_to() {
    let stack = build("memory,xor").unwrap();
    for (endpoint, wanted) in [
        (
            Endpoint::unix("/nowhere"),
            "the stack memory,xor can't reach unix:/nowhere",
        ),
        (
            Endpoint::new("memory", Endpoint::unix("/nowhere").location().clone()),
            "the stack memory,xor takes a name, not a path",
        ),
    ] {
        let errors = [
            stack.open(&endpoint).unwrap_err(),
            stack.listen(&endpoint).unwrap_err(),
        ];
        for error in errors {
            assert_eq!(error.kind(), ErrorKind::InvalidInput);
            assert_eq!(error.to_string(), wanted);
        }
    }
}

#[test]
fn tls_without_a_configuration_says_so() {
    let stack = build("memory,tls").unwrap();
    assert!(stack.gives(Property::Protection));
    let endpoint = Endpoint::memory("tls-without-a-configuration");
    let mut listener = stack.listen(&endpoint).unwrap();
    let opened = stack.open(&endpoint).unwrap_err();
    assert_eq!(opened.kind(), ErrorKind::Unsupported);
    assert_eq!(
        opened.to_string(),
        "the driver 'tls' has no configuration for the client end"
    );
    let accepted = listener.accept().unwrap_err();
    assert_eq!(
        accepted.to_string(),
        "the driver 'tls' has no configuration for the server end"
    );
}

/// Both ends of a new channel of `stack`.
fn connect(stack: &Stack, endpoint: &Endpoint) -> (Box<dyn Stream>, Box<dyn Stream>) {
    let mut listener = stack.listen(endpoint).unwrap();
    let mut client = stack.open(&listener.local_endpoint()).unwrap();
    let server = loop {
        match listener.accept() {
            Err(e) if e.kind() == ErrorKind::WouldBlock => std::thread::yield_now(),
            accepted => break accepted.unwrap(),
        }
    };
    while !client.finish_open().unwrap() {
        std::thread::yield_now();
    }
    (client, server)
}

/// The bytes that one end gets, once `len` of them are there.
fn read(stream: &mut dyn Stream, len: usize) -> Vec<u8> {
    let (mut seen, mut got) = (vec![0; len], 0);
    while got < len {
        match stream.read_vectored(&mut [IoSliceMut::new(&mut seen[got..])]) {
            Err(e) if e.kind() == ErrorKind::WouldBlock => std::thread::yield_now(),
            n => got += n.unwrap(),
        }
    }
    seen
}

#[test]
fn a_driver_from_outside_is_used_by_its_name() {
    let stack = build("memory,xor:key=1").unwrap();
    assert_eq!(stack.spec().to_string(), "memory,xor:key=1");
    let (mut client, mut server) = connect(&stack, &Endpoint::memory("from-outside"));
    client.write_vectored(&[IoSlice::new(b"hello")]).unwrap();
    assert_eq!(read(&mut *server, 5), b"hello");
}

/// It stands between the ends: with different keys they don't understand each other, and twice the
/// same key is none.
#[test]
fn the_bytes_on_the_way_are_those_that_the_drivers_made() {
    let endpoint = Endpoint::memory("on-the-way");
    let mut listener = build("memory,xor:key=3")
        .unwrap()
        .listen(&endpoint)
        .unwrap();
    for (text, wanted) in [
        ("memory", b"kfoo"),
        ("memory,xor:key=3", b"hell"),
        ("memory,xor:key=3,xor:key=3", b"kfoo"),
        ("memory,xor:key=1,xor:key=2", b"hell"),
    ] {
        let mut client = build(text).unwrap().open(&endpoint).unwrap();
        client.write_vectored(&[IoSlice::new(b"hell")]).unwrap();
        assert_eq!(read(&mut *listener.accept().unwrap(), 4), wanted, "{text}");
    }
}

#[test]
fn a_driver_of_the_same_name_takes_the_place_of_the_one_before() {
    let fixed = xdfs_xio::Driver::transform("xor", &[], |()| {
        |_| Err::<Never, _>(ErrorKind::Other.into())
    });
    let registry = registry().with(fixed);
    let spec: StackSpec = "memory,xor:key=1".parse().unwrap();
    assert!(registry.build(&spec).is_err());
    let spec = StackSpec::new(DriverSpec::new("memory").unwrap());
    let stack = registry
        .build(&spec.with(DriverSpec::new("xor").unwrap()))
        .unwrap();
    let endpoint = Endpoint::memory("taken-place");
    let _listener = stack.listen(&endpoint).unwrap();
    assert_eq!(stack.open(&endpoint).unwrap_err().kind(), ErrorKind::Other);
}

/// A transform of which there is none.
#[derive(Debug)]
enum Never {}

impl xdfs_xio::Transform for Never {
    fn encode(&mut self, _: &[IoSlice<'_>], _: &mut xdfs_xio::Output) -> std::io::Result<usize> {
        match *self {}
    }

    fn decode(
        &mut self,
        _: &[u8],
        _: &mut xdfs_xio::Room<'_, '_>,
        _: &mut xdfs_xio::Output,
    ) -> std::io::Result<usize> {
        match *self {}
    }
}

/// A transform that waits for more, whatever it gets.
#[derive(Debug)]
struct Insatiable;

impl xdfs_xio::Transform for Insatiable {
    fn encode(&mut self, _: &[IoSlice<'_>], _: &mut xdfs_xio::Output) -> std::io::Result<usize> {
        Ok(0)
    }

    fn decode(
        &mut self,
        _: &[u8],
        _: &mut xdfs_xio::Room<'_, '_>,
        _: &mut xdfs_xio::Output,
    ) -> std::io::Result<usize> {
        Ok(0)
    }
}

#[test]
fn what_waits_for_the_rest_of_a_unit_is_bounded() {
    let insatiable = xdfs_xio::Driver::transform("insatiable", &[], |()| |_| Ok(Insatiable));
    let registry = Registry::standard().with(insatiable);
    let endpoint = Endpoint::memory("insatiable");
    let spec = "memory,insatiable".parse().unwrap();
    let mut listener = registry.build(&spec).unwrap().listen(&endpoint).unwrap();
    let mut client = build("memory").unwrap().open(&endpoint).unwrap();
    let mut server = listener.accept().unwrap();
    let (bytes, mut most) = (vec![0; 100_000], 0);
    let error = loop {
        let _ = client.write_vectored(&[IoSlice::new(&bytes)]).unwrap();
        match server.read_vectored(&mut [IoSliceMut::new(&mut [0; 100])]) {
            Err(e) if e.kind() == ErrorKind::WouldBlock => {}
            Err(e) => break e,
            Ok(n) => panic!("{n} bytes of nothing"),
        }
        most = most.max(server.held_bytes());
    };
    assert_eq!(error.kind(), ErrorKind::InvalidData);
    assert!((100_000..1 << 20).contains(&most), "{most}");
    // A peer that leaves within a unit didn't end in order.
    let mut client = build("memory").unwrap().open(&endpoint).unwrap();
    let mut server = listener.accept().unwrap();
    client.write_vectored(&[IoSlice::new(b"half")]).unwrap();
    client.close().unwrap();
    let end = server.read_vectored(&mut [IoSliceMut::new(&mut [0; 100])]);
    assert_eq!(end.unwrap_err().kind(), ErrorKind::UnexpectedEof);
}
