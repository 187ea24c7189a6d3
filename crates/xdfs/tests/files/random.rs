//! Any sequence of calls does to a file of a server what it does to a local one.

use std::cell::Cell;
use std::fs::File;
use std::io::{Read, Seek, SeekFrom, Write};
use std::os::unix::fs::FileExt as _;

use proptest::prelude::*;
use proptest::test_runner::{Config, TestRunner};
use xdfs::RemoteFile;

use crate::support::{Folders, Serving, client};
use crate::{both, open, pattern};

#[derive(Clone, Debug)]
enum Step {
    Read(usize),
    ReadShared(usize),
    Write(u64, usize),
    Seek(SeekFrom),
    ReadAt(u64, usize),
    WriteAt(u64, u64, usize),
    WritePieces(u64, Vec<(u64, usize)>),
    ReadPieces(Vec<(u64, u32)>),
    SetLength(u64),
    Sync,
    Flush,
    Length,
}

fn step() -> impl Strategy<Value = Step> {
    // Near each other, so that they meet, and across the borders of blocks.
    let place = || prop_oneof![3 => 0u64..3_000, 2 => 60_000u64..63_000, 1 => 0u64..300_000];
    let length = || prop_oneof![4 => 0usize..500, 2 => 0usize..9_000, 1 => 0usize..140_000];
    let piece = || (place(), 1usize..2_000);
    prop_oneof![
        4 => length().prop_map(Step::Read),
        3 => length().prop_map(Step::ReadShared),
        4 => (any::<u64>(), length()).prop_map(|(seed, n)| Step::Write(seed, n)),
        1 => place().prop_map(|at| Step::Seek(SeekFrom::Start(at))),
        1 => (-2_000i64..2_000).prop_map(|by| Step::Seek(SeekFrom::Current(by))),
        1 => (-2_000i64..100).prop_map(|by| Step::Seek(SeekFrom::End(by))),
        3 => (place(), length()).prop_map(|(at, n)| Step::ReadAt(at, n)),
        4 => (any::<u64>(), place(), length()).prop_map(|(s, at, n)| Step::WriteAt(s, at, n)),
        1 => (any::<u64>(), prop::collection::vec(piece(), 0..8))
            .prop_map(|(seed, pieces)| Step::WritePieces(seed, pieces)),
        1 => prop::collection::vec((place(), 1u32..2_000), 1..8).prop_map(Step::ReadPieces),
        1 => place().prop_map(Step::SetLength),
        1 => Just(Step::Sync),
        1 => Just(Step::Flush),
        1 => Just(Step::Length),
    ]
}

/// Reads until there are as many bytes, or no more: how many come at once is nobody's business.
fn read_full(file: &mut impl Read, length: usize) -> Vec<u8> {
    let mut bytes = Vec::new();
    let taken = file.by_ref().take(length as u64).read_to_end(&mut bytes);
    taken.unwrap();
    bytes
}

fn read_local(file: &File, at: u64, length: usize) -> Vec<u8> {
    let mut bytes = vec![0; length];
    let mut filled = 0;
    while filled < length {
        match file
            .read_at(&mut bytes[filled..], at + filled as u64)
            .unwrap()
        {
            0 => break,
            read => filled += read,
        }
    }
    bytes.truncate(filled);
    bytes
}

/// Reads as much by blocks that are shared.
fn read_shared(file: &RemoteFile, length: usize) -> Vec<u8> {
    let mut bytes = Vec::new();
    while bytes.len() < length {
        let block = file.read_shared(length - bytes.len()).unwrap();
        if block.is_empty() {
            break;
        }
        bytes.extend_from_slice(&block);
    }
    bytes
}

fn same(remote: &mut RemoteFile, local: &mut File, step: &Step) {
    match step {
        Step::ReadShared(length) => {
            assert!(read_shared(remote, *length) == read_full(local, *length));
        }
        Step::Read(length) => {
            assert!(read_full(remote, *length) == read_full(local, *length));
        }
        Step::Write(seed, length) => {
            let bytes = pattern(*seed, *length);
            remote.write_all(&bytes).unwrap();
            local.write_all(&bytes).unwrap();
        }
        Step::Seek(to) => {
            let (there, here) = (remote.seek(*to).ok(), local.seek(*to).ok());
            assert_eq!(there, here);
        }
        Step::ReadAt(at, length) => {
            let mut bytes = vec![0; *length];
            let read = remote.read_at(*at, &mut bytes).unwrap();
            bytes.truncate(read);
            assert!(bytes == read_local(local, *at, *length));
        }
        Step::WriteAt(seed, at, length) => {
            let bytes = pattern(*seed, *length);
            remote.write_at(*at, &bytes).unwrap();
            local.write_all_at(&bytes, *at).unwrap();
        }
        Step::WritePieces(seed, pieces) => {
            let made: Vec<(u64, Vec<u8>)> = pieces
                .iter()
                .map(|(at, length)| (*at, pattern(seed ^ at, *length)))
                .collect();
            let pieces: Vec<(u64, &[u8])> = made.iter().map(|(at, b)| (*at, &b[..])).collect();
            remote.write_vectored_at(&pieces).unwrap();
            for (at, bytes) in pieces {
                local.write_all_at(bytes, at).unwrap();
            }
        }
        Step::ReadPieces(pieces) => {
            let read = remote.read_vectored_at(pieces).unwrap();
            let expected: Vec<Vec<u8>> = pieces
                .iter()
                .map(|(at, length)| read_local(local, *at, *length as usize))
                .collect();
            assert!(read == expected);
        }
        Step::SetLength(length) => {
            remote.set_len(*length).unwrap();
            local.set_len(*length).unwrap();
        }
        Step::Sync => remote.sync().unwrap(),
        Step::Flush => remote.flush().unwrap(),
        Step::Length => {
            let size = remote.metadata().unwrap().size;
            assert_eq!(size, local.metadata().unwrap().len());
        }
    }
}

#[test]
fn a_file_of_a_server_is_like_a_local_one() {
    let folders = Folders::new(1);
    let serving = Serving::start(&folders.root(), |_| {});
    let client = client(serving.addr, |options| options.channels = Some(3));
    let config = Config {
        cases: 120,
        failure_persistence: None,
        ..Config::default()
    };
    let steps = prop::collection::vec(step(), 1..60);
    let number = Cell::new(0);
    let result = TestRunner::new(config).run(&steps, |steps| {
        number.set(number.get() + 1);
        let name = format!("f{}", number.get());
        let mut remote = open(&client, &name, &both());
        let local = folders.here(&name);
        let mut local = File::options()
            .read(true)
            .write(true)
            .create_new(true)
            .open(local)
            .unwrap();
        for step in &steps {
            same(&mut remote, &mut local, step);
        }
        remote.close().unwrap();
        let there = std::fs::read(folders.there(&name)).unwrap();
        assert!(there == std::fs::read(folders.here(&name)).unwrap());
        Ok(())
    });
    result.unwrap();
}
