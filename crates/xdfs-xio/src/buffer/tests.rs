//! What is gathered, read ahead, and passed on.

use std::io::{ErrorKind, IoSlice, IoSliceMut};

use crate::endpoint::Endpoint;
use crate::registry::Registry;
use crate::stream::{Listener, Stream};

/// A buffered end, and the plain other one.
fn connect(stack: &str, name: &str) -> (Box<dyn Stream>, Box<dyn Stream>, Box<dyn Listener>) {
    let build = |text: &str| Registry::standard().build(&text.parse().unwrap()).unwrap();
    let endpoint = Endpoint::memory(name);
    let mut listener = build("memory").listen(&endpoint).unwrap();
    let near = build(stack).open(&endpoint).unwrap();
    let far = listener.accept().unwrap();
    (near, far, listener)
}

fn count(stream: &dyn Stream, name: &str) -> u64 {
    stream.control(name).unwrap().to_string().parse().unwrap()
}

fn read(stream: &mut dyn Stream, len: usize) -> Result<Vec<u8>, ErrorKind> {
    let mut space = vec![0; len];
    let n = stream.read_vectored(&mut [IoSliceMut::new(&mut space)]);
    space.truncate(n.map_err(|e| e.kind())?);
    Ok(space)
}

#[test]
fn small_writes_go_out_together_when_flushed() {
    let (mut near, mut far, _listener) = connect("memory,buffer:size=1000", "buffer-flush");
    for i in 0..100_u8 {
        let n = near.write_vectored(&[IoSlice::new(&[i]), IoSlice::new(&[i, i])]);
        assert_eq!(n.unwrap(), 3);
    }
    assert_eq!(read(&mut *far, 1000), Err(ErrorKind::WouldBlock));
    assert!(near.has_unflushed());
    near.flush().unwrap();
    assert!(!near.has_unflushed());
    let wanted: Vec<u8> = (0..100).flat_map(|i| [i; 3]).collect();
    assert_eq!(read(&mut *far, 1000), Ok(wanted));
    assert_eq!(count(&*near, "buffer.gathered"), 100);
    assert_eq!(count(&*near, "buffer.writes"), 1);
}

#[test]
fn a_full_buffer_and_the_close_write_too() {
    let (mut near, mut far, _listener) = connect("memory,buffer:size=1000", "buffer-full");
    for _ in 0..4 {
        near.write_vectored(&[IoSlice::new(&[7; 300])]).unwrap();
    }
    assert_eq!(read(&mut *far, 5000), Ok(vec![7; 900]));
    // A large one comes after what was gathered before.
    near.write_vectored(&[IoSlice::new(&[8; 3000])]).unwrap();
    let wanted = [vec![7; 300], vec![8; 3000]].concat();
    assert_eq!(read(&mut *far, 5000), Ok(wanted));
    near.write_vectored(&[IoSlice::new(b"end")]).unwrap();
    near.close().unwrap();
    assert_eq!(read(&mut *far, 5000), Ok(b"end".to_vec()));
    assert_eq!(read(&mut *far, 5000), Ok(Vec::new()));
    let refused = near.write_vectored(&[IoSlice::new(b"x")]);
    assert_eq!(refused.unwrap_err().kind(), ErrorKind::BrokenPipe);
}

#[test]
fn what_a_full_transport_refuses_stays_and_goes_out_later() {
    let (mut near, mut far, _listener) = connect("memory,buffer:size=1000", "buffer-blocked");
    let mut sent: Vec<u8> = Vec::new();
    loop {
        let byte = [(sent.len() / 400 % 251) as u8; 400];
        match near.write_vectored(&[IoSlice::new(&byte)]) {
            Ok(n) => sent.extend_from_slice(&byte[..n]),
            Err(e) => break assert_eq!(e.kind(), ErrorKind::WouldBlock),
        }
    }
    assert_eq!(near.flush().unwrap_err().kind(), ErrorKind::WouldBlock);
    let mut seen = Vec::new();
    while seen.len() < sent.len() {
        seen.extend(read(&mut *far, 70_000).unwrap());
        let _ = near.flush();
    }
    assert!(seen == sent);
    assert!(!near.has_unflushed());
}

#[test]
fn small_reads_take_from_one_large_one() {
    let (mut near, mut far, _listener) = connect("memory,buffer:size=1000", "buffer-ahead");
    let content: Vec<u8> = (0..=255).cycle().take(2500).collect();
    far.write_vectored(&[IoSlice::new(&content)]).unwrap();
    far.close().unwrap();
    let mut seen = read(&mut *near, 10).unwrap();
    assert_eq!(near.held_bytes(), 990);
    while let Ok(more @ [_, ..]) = read(&mut *near, 7).as_deref() {
        seen.extend_from_slice(more);
    }
    assert!(seen == content);
    assert_eq!(
        (read(&mut *near, 7), near.held_bytes()),
        (Ok(Vec::new()), 0)
    );
}
