//! Streams, which can't be asked for the same bytes twice.

use std::io::{IoSlice, Write};
use std::sync::{Arc, Mutex};

use xdfs_proto::Code;
use xdfs_store::{Sink, Source, StreamSink, StreamSource};

use crate::common::*;

/// Output that the test can look at.
#[derive(Clone, Default)]
struct Shared(Arc<Mutex<Vec<u8>>>);

impl Write for Shared {
    fn write(&mut self, buf: &[u8]) -> std::io::Result<usize> {
        self.0.lock().unwrap().extend_from_slice(buf);
        Ok(buf.len())
    }

    fn flush(&mut self) -> std::io::Result<()> {
        Ok(())
    }
}

/// Input that comes in bits.
struct Slow(Vec<u8>);

impl std::io::Read for Slow {
    fn read(&mut self, buf: &mut [u8]) -> std::io::Result<usize> {
        let count = buf.len().min(3).min(self.0.len());
        buf[..count].copy_from_slice(&self.0[..count]);
        self.0.drain(..count);
        Ok(count)
    }
}

#[test]
fn a_stream_is_read_once_in_order_and_in_full_buffers() {
    let mut source = StreamSource::new(Box::new(Slow(pattern(100))), "-");
    assert_eq!(source.info().length, None);
    assert!(!source.info().random_reads);
    let mut buf = [0; 64];
    assert_eq!(source.read_at(0, &mut buf).unwrap(), 64);
    assert_fault(source.read_at(0, &mut buf), Code::Unsupported, "-");
    assert_eq!(source.read_at(64, &mut buf).unwrap(), 36);
    assert_eq!(source.read_at(100, &mut buf).unwrap(), 0);
    source.verify_unchanged().unwrap();
}

#[test]
fn early_blocks_wait_for_their_turn() {
    let out = Shared::default();
    let mut sink = StreamSink::new(Box::new(out.clone()), "-");
    assert!(!sink.capabilities().random_writes);
    let put =
        |sink: &mut StreamSink, at: u64, bytes: &[u8]| sink.write_at(at, &[IoSlice::new(bytes)]);
    put(&mut sink, 6, b"67").unwrap();
    put(&mut sink, 2, b"23").unwrap();
    assert_fault(put(&mut sink, 3, b"x"), Code::Internal, "-");
    assert_fault(sink.publish(8, &[]), Code::Internal, "-");
    put(&mut sink, 0, b"01").unwrap();
    assert_eq!(*out.0.lock().unwrap(), b"0123");
    assert_fault(put(&mut sink, 1, b"x"), Code::Internal, "-");
    put(&mut sink, 4, b"45").unwrap();
    assert_eq!(*out.0.lock().unwrap(), b"01234567");
    sink.publish(8, &[]).unwrap();
}

#[test]
fn waiting_blocks_are_bounded() {
    let mut sink = StreamSink::with_limit(Box::new(std::io::sink()), "-", 10);
    sink.write_at(100, &[IoSlice::new(&[0; 8])]).unwrap();
    let three = [IoSlice::new(&[0; 3])];
    assert_fault(sink.write_at(200, &three), Code::LimitExceeded, "-");
    // What has its turn needs no place.
    sink.write_at(0, &[IoSlice::new(&[0; 100])]).unwrap();
    sink.write_at(200, &three).unwrap();
}

#[test]
fn a_reader_that_went_away_is_named() {
    struct Broken;
    impl Write for Broken {
        fn write(&mut self, _: &[u8]) -> std::io::Result<usize> {
            Err(std::io::ErrorKind::BrokenPipe.into())
        }
        fn flush(&mut self) -> std::io::Result<()> {
            Ok(())
        }
    }
    let mut sink = StreamSink::new(Box::new(Broken), "-");
    assert_fault(sink.write_at(0, &[IoSlice::new(b"x")]), Code::Io, "-");
}
