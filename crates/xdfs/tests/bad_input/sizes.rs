//! Files of lengths at which something could be off by one, and one larger than 32 bits.

use std::fs::File;
use std::io::{Read as _, Seek as _, SeekFrom, Write as _};

use xdfs::{DigestKind, TransferOptions, TransferParameters};

use crate::stage::Stage;
use crate::support::{assert_equal, client, download, hidden_names, upload};

const BLOCK: u64 = 4096;

#[test]
fn lengths_around_blocks() {
    let stage = Stage::new(300);
    for digest in [DigestKind::Crc64Nvme, DigestKind::Blake3, DigestKind::None] {
        for length in [0, 1, BLOCK - 1, BLOCK, BLOCK + 1, 8 * BLOCK, 8 * BLOCK + 1] {
            let client = client(stage.server.addr, |options| {
                options.channels = Some(3);
                options.block_size = Some(4096);
            });
            let options = TransferOptions {
                parameters: TransferParameters {
                    digest: Some(digest),
                    overwrite: true,
                    ..TransferParameters::default()
                },
                ..TransferOptions::default()
            };
            let source = stage.folders.make_here("source", length);
            let up = upload(&client, &source, "/file", &options).unwrap();
            assert_eq!((up.bytes, up.retransmitted_bytes), (length, 0));
            assert_equal(&source, &stage.folders.there("file"));
            let target = stage.folders.here("back");
            let down = download(&client, "/file", &target, &options).unwrap();
            assert_eq!((down.bytes, down.digest), (length, up.digest));
            assert_equal(&source, &target);
        }
    }
    assert_eq!(hidden_names(&stage.folders.root()), [""; 0]);
    assert_eq!(hidden_names(&stage.folders.here("")), [""; 0]);
}

#[test]
fn parts_of_a_file() {
    let stage = Stage::new(301);
    let source = stage.folders.make_here("source", 10 * BLOCK + 7);
    let whole = std::fs::read(&source).unwrap();
    let client = stage.client();
    for (offset, length) in [
        (0, Some(0)),
        (1, Some(1)),
        (4097, None),
        (40_967, None),
        (5, Some(1 << 60)),
    ] {
        let options = TransferOptions {
            parameters: TransferParameters {
                overwrite: true,
                ..TransferParameters::default()
            },
            offset,
            length,
            ..TransferOptions::default()
        };
        let start = usize::try_from(offset).unwrap();
        let end = length.map_or(whole.len() as u64, |n| (offset + n).min(whole.len() as u64));
        let expected = &whole[start..usize::try_from(end).unwrap()];
        upload(&client, &source, "/part", &options).unwrap();
        assert!(std::fs::read(stage.folders.there("part")).unwrap() == expected);
        std::fs::copy(&source, stage.folders.there("whole")).unwrap();
        let target = stage.folders.here("part");
        download(&client, "/whole", &target, &options).unwrap();
        assert!(std::fs::read(&target).unwrap() == expected);
    }
}

/// Over 4 GiB, with data at the ends and around 4 GiB; the rest is a hole.
#[test]
fn a_sparse_file_over_4_gib() {
    const LENGTH: u64 = (4 << 30) + 12_345;
    let places = [0, (4 << 30) - 5, LENGTH - 10];
    let stage = Stage::new(302);
    let source = stage.folders.here("sparse");
    let mut file = File::create(&source).unwrap();
    file.set_len(LENGTH).unwrap();
    for at in places {
        file.seek(SeekFrom::Start(at)).unwrap();
        file.write_all(b"0123456789").unwrap();
    }
    drop(file);
    let check = |path: &std::path::Path| {
        let mut file = File::open(path).unwrap();
        assert_eq!(file.metadata().unwrap().len(), LENGTH);
        for at in places {
            let mut bytes = [0; 10];
            file.seek(SeekFrom::Start(at)).unwrap();
            file.read_exact(&mut bytes).unwrap();
            assert_eq!(&bytes, b"0123456789", "at {at}");
        }
        #[cfg(target_os = "linux")]
        {
            use std::os::unix::fs::MetadataExt as _;
            let allocated = file.metadata().unwrap().blocks() * 512;
            assert!(allocated < 64 << 20, "{allocated} bytes are allocated");
        }
    };
    let client = client(stage.server.addr, |options| options.channels = Some(4));
    let options = TransferOptions::default();
    let result = upload(&client, &source, "/sparse", &options).unwrap();
    assert_eq!(result.bytes, LENGTH);
    check(&stage.folders.there("sparse"));
    let back = stage.folders.here("back");
    assert_eq!(
        download(&client, "/sparse", &back, &options)
            .unwrap()
            .digest,
        result.digest
    );
    check(&back);
    stage.still_serves();
}
