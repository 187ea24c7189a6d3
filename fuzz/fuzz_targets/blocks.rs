//! The blocks of the transforms `zstd` and `lz4`, from a peer that sends anything in any pieces.
//! The reader ends with an error or the end, holds no more than two blocks, and yields no more than
//! the peer's bytes can declare.
#![no_main]

use std::collections::VecDeque;
use std::io::{self, ErrorKind, IoSlice, IoSliceMut};
use std::sync::Mutex;

use libfuzzer_sys::fuzz_target;
use xdfs_sys::poll::{Poller, Token};
use xdfs_xio::{
    Capabilities, Driver, Endpoint, Form, Listener, Property, Registry, Stream, Transport,
};

/// A received buffer of any stream, and the content of a block.
const HELD_MAX: usize = xdfs_xio::ENCODED_BYTES_MAX + (256 << 10);

#[derive(Debug)]
struct Bytes(Mutex<Option<Peer>>);

#[derive(Clone, Debug)]
struct Peer {
    bytes: VecDeque<u8>,
    step: usize,
}

impl Transport for Bytes {
    fn open(&self, _: &Endpoint) -> io::Result<Box<dyn Stream>> {
        let peer = self.0.lock().expect("no panic").take();
        Ok(Box::new(peer.expect("one stream")))
    }

    fn listen(&self, _: &Endpoint) -> io::Result<Box<dyn Listener>> {
        Err(ErrorKind::Unsupported.into())
    }
}

impl Stream for Peer {
    fn read_vectored(&mut self, bufs: &mut [IoSliceMut<'_>]) -> io::Result<usize> {
        let mut n = 0;
        for to in bufs
            .iter_mut()
            .flat_map(|buf| buf.iter_mut())
            .take(self.step)
        {
            let Some(byte) = self.bytes.pop_front() else {
                break;
            };
            *to = byte;
            n += 1;
        }
        Ok(n)
    }

    fn write_vectored(&mut self, _: &[IoSlice<'_>]) -> io::Result<usize> {
        Err(ErrorKind::BrokenPipe.into())
    }

    fn finish_open(&mut self) -> io::Result<bool> {
        Ok(true)
    }

    fn close(&mut self) -> io::Result<()> {
        Ok(())
    }

    fn register(&mut self, _: &mut Poller, _: Token) -> io::Result<()> {
        Ok(())
    }

    fn deregister(&mut self, _: &mut Poller) -> io::Result<()> {
        Ok(())
    }

    fn capabilities(&self) -> Capabilities {
        Capabilities {
            integrity: false,
            local: true,
        }
    }

    fn peer(&self) -> String {
        "fuzz".to_owned()
    }
}

fuzz_target!(|input: (bool, u16, u16, &[u8])| {
    let (is_zstd, step, room, bytes) = input;
    let peer = Peer {
        bytes: bytes.iter().copied().collect(),
        step: usize::from(step) + 1,
    };
    let transport = Driver::transport("fuzz", Form::Name, &[], move |()| {
        Bytes(Mutex::new(Some(peer.clone())))
    });
    let registry = Registry::standard().with(transport.gives(&[Property::Order]));
    let stack = if is_zstd { "fuzz,zstd" } else { "fuzz,lz4" };
    let stack = registry.build(&stack.parse().expect("a stack"));
    let endpoint = Endpoint::new("fuzz", Endpoint::memory("x").location().clone());
    let mut stream = stack.expect("a stack").open(&endpoint).expect("a stream");
    let mut space = vec![0; usize::from(room) + 1];
    let mut content = 0;
    while let Ok(n @ 1..) = stream.read_vectored(&mut [IoSliceMut::new(&mut space)]) {
        content += n;
        assert!(stream.held_bytes() <= HELD_MAX);
    }
    // A block of at least 8 bytes declares at most 256 KiB.
    assert!(content <= bytes.len().max(bytes.len() / 8 * (256 << 10)));
});
