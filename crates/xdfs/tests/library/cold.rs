//! Large files whose bytes have to come from a disk, in part or all of them.

use std::fs::File;
use std::os::unix::fs::FileExt as _;
use std::path::Path;

use rustix::fs::{Advice, fadvise};
use xdfs::{DigestKind, TransferOptions, TransferParameters};

use crate::support::{self, Folders, Serving, assert_equal};

/// More than the least of a file that is read past the page cache, and no multiple of a page.
const BYTES: u64 = (66 << 20) + 5_003;

/// Takes a file out of the page cache, except for some bytes in the middle.
fn cool(path: &Path, warm: usize) {
    let file = File::open(path).unwrap();
    file.sync_all().unwrap();
    fadvise(&file, 0, None, Advice::DontNeed).unwrap();
    file.read_exact_at(&mut vec![0; warm], 20 << 20).unwrap();
}

#[test]
fn large_files_that_are_not_in_memory_arrive_whole() {
    let folders = Folders::new(905);
    let server = Serving::start(&folders.root(), |_| {});
    let client = support::client(server.addr, |_| {});
    let here = folders.make_here("source", BYTES);
    for (number, digest) in [DigestKind::Blake3, DigestKind::Crc64Nvme]
        .into_iter()
        .enumerate()
    {
        let options = TransferOptions {
            parameters: TransferParameters {
                digest: Some(digest),
                ..TransferParameters::default()
            },
            ..TransferOptions::default()
        };
        cool(&here, number * (9 << 20));
        let there = format!("/up{number}");
        let result = support::upload(&client, &here, &there, &options).unwrap();
        assert_eq!(result.bytes, BYTES);
        assert_equal(&here, &folders.there(&there[1..]));
        cool(&folders.there(&there[1..]), (1 - number) * (9 << 20));
        let back = folders.here(&format!("back{number}"));
        support::download(&client, &there, &back, &options).unwrap();
        assert_equal(&here, &back);
    }
    // From the middle of a page, to its own end.
    cool(&here, 0);
    let options = TransferOptions {
        offset: 12_345,
        ..TransferOptions::default()
    };
    support::upload(&client, &here, "/part", &options).unwrap();
    let (whole, part) = (
        std::fs::read(&here).unwrap(),
        std::fs::read(folders.there("part")).unwrap(),
    );
    assert!(part == whole[12_345..]);
}
