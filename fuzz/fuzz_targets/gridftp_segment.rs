//! Segments of MODE T, and what replies say of them, from any bytes: no panic, bounded memory, no
//! path leads out of the tree or stands there twice, and what is read is written the same.
#![no_main]

use std::collections::HashSet;

use libfuzzer_sys::fuzz_target;
use xdfs_gridftp::archive::{
    ArchiveWriter, Compression, Kind, MEMBERS_MAX, SEGMENT_BYTES_MAX, members, unpack,
};
use xdfs_gridftp::segment::{Closing, Numbers, Opening, parse_failures};
use xdfs_proto::Limits;
use xdfs_proto::pack::is_path;

fuzz_target!(|data: &[u8]| {
    let Some((&how, data)) = data.split_first() else {
        return;
    };
    if let Some(numbers) = Numbers::parse(data) {
        assert!(numbers.iter().count() <= MEMBERS_MAX);
        assert_eq!(Numbers::of(numbers.iter()).map(|all| all.iter().count()),
            Some(numbers.iter().count()));
    }
    let _ = (Opening::parse(data), Closing::parse(data));
    if let Some(failures) = parse_failures(&[data.to_vec()], 100) {
        assert!(failures.of(100).is_none() && !failures.is_empty());
    }
    let compression = Compression::ALL[usize::from(how) % Compression::ALL.len()].0;
    let Ok(archive) = unpack(compression, data) else {
        return;
    };
    assert!(archive.len() <= SEGMENT_BYTES_MAX);
    let Ok(found) = members(&archive) else {
        return;
    };
    let (limits, mut paths) = (Limits::default(), HashSet::new());
    let mut writer = ArchiveWriter::new(Compression::None).unwrap();
    for member in &found {
        assert!(is_path(&member.path, &limits));
        assert!(!member.path.is_empty() || member.kind != Kind::File);
        assert!(paths.insert((member.kind == Kind::Attributes, &member.path)));
        writer.add(member).unwrap();
    }
    let again = writer.finish().unwrap();
    if again.len() <= SEGMENT_BYTES_MAX {
        assert_eq!(members(&again).unwrap(), found);
    }
});
