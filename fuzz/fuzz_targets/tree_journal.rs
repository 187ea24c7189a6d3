//! The journal of a tree: any bytes are read without harm, and a journal that was damaged claims a
//! beginning of what was recorded in it, never anything else.
#![no_main]

use libfuzzer_sys::fuzz_target;
use xdfs_store::tree_journal::{Claim, Earlier, Finished, Header, Record, Records, Root, Totals};

const HEADER: Header = Header {
    key: [5; 32],
    nonce: [6; 16],
};

fn read(bytes: &[u8]) -> Option<(Header, Vec<Record>, u64)> {
    let mut records = Records::new(bytes).expect("memory can be read")?;
    let mut read = Vec::new();
    while let Some(record) = records.next_record().expect("memory can be read") {
        read.push(record);
    }
    Some((*records.header(), read, records.valid_bytes))
}

fn write(header: &Header, records: &[Record]) -> Vec<u8> {
    let mut bytes = header.encode().to_vec();
    for record in records {
        let at = bytes.len() as u64;
        record.encode(header, at, &mut bytes);
    }
    bytes
}

/// What is read must be written the same, and can be applied.
fn read_any(bytes: &[u8]) {
    let Some((header, records, valid_bytes)) = read(bytes) else {
        return;
    };
    let valid_bytes = usize::try_from(valid_bytes).expect("it is in memory");
    assert_eq!(write(&header, &records), bytes[..valid_bytes]);
}

/// Records of the input, with paths of few letters so that some lie beneath others.
fn records(input: &[u8]) -> Vec<Record> {
    let path = |bytes: &[u8]| -> Vec<u8> {
        let letters = bytes.iter().map(|b| b"ab/0"[usize::from(b % 4)]);
        letters.collect()
    };
    let chunks = input.chunks_exact(6);
    let records = chunks.map(|c| match c[0] % 6 {
        0 => Record::Root(Root {
            path: c[1..].to_vec(),
            inode: u64::from(c[1]),
            source_inode: u64::from(c[3]),
            was_there: c[2] % 2 == 0,
        }),
        1 => Record::Entries(
            path(&c[2..4]),
            (0..c[1])
                .map(|n| Claim {
                    entry: u64::from(n % 8),
                    version: u64::from(c[5]),
                })
                .collect(),
        ),
        2 => Record::Directory(
            path(&c[2..]),
            Finished {
                totals: Totals {
                    files: u64::from(c[1]),
                    ..Totals::default()
                },
                mtime_ns: (c[2] > 9).then(|| i64::from(c[1])),
            },
        ),
        3 => Record::Forget(path(&c[3..])),
        4 => Record::ForgetEntries(path(&c[2..4])),
        _ => Record::Run(c[1] % 2 == 0),
    });
    records.collect()
}

/// Makes a journal of the input, damages it at one place, and reads it.
fn read_damaged(input: &[u8]) {
    let Some((&[at_high, at_low, flip], input)) = input.split_first_chunk::<3>() else {
        return;
    };
    let written = records(input);
    let whole = write(&HEADER, &written);
    let (header, read_again, _) = read(&whole).expect("an undamaged journal is read");
    assert_eq!((header, &read_again), (HEADER, &written));
    let mut source = Records::new(&whole[..]).expect("memory").expect("a header");
    let earlier = Earlier::read(&mut source).expect("memory");
    // What is live says the same when it is written anew.
    let live: Vec<Record> = earlier.records().collect();
    let anew = write(&HEADER, &live);
    let mut source = Records::new(&anew[..]).expect("memory").expect("a header");
    let again = Earlier::read(&mut source).expect("memory");
    assert!(again.records().eq(live));
    let mut damaged = whole;
    let at = usize::from(u16::from_be_bytes([at_high, at_low])) % damaged.len();
    match flip {
        0 => damaged.truncate(at),
        flip => damaged[at] ^= flip,
    }
    let Some((_, found, valid_bytes)) = read(&damaged) else {
        return;
    };
    assert!(written.starts_with(&found));
    assert!(
        valid_bytes <= at as u64,
        "a record is believed that is damaged"
    );
}

fuzz_target!(|data: &[u8]| {
    read_any(data);
    read_damaged(data);
});
