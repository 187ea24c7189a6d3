//! Packs: no panic, and what decodes has exactly one encoding, which is the one that came.
#![no_main]

use libfuzzer_sys::fuzz_target;
use xdfs_proto::pack::{Content, PACK_BYTES_MAX, PackReader, PackWriter, is_path};
use xdfs_proto::{Code, Limits};

fuzz_target!(|data: &[u8]| {
    let limits = Limits::default();
    let data = &data[..data.len().min(PACK_BYTES_MAX)];
    let mut writer = PackWriter::new(Vec::new(), data.len());
    let mut is_same = true;
    for entry in PackReader::new(data, &limits) {
        let Ok(entry) = entry else {
            is_same = false;
            break;
        };
        assert!(is_path(entry.path, &limits));
        // Codes that aren't known read as "internal", whose number is another one.
        if let Content::Failed(fault) = &entry.content
            && fault.code == Code::Internal
        {
            return;
        }
        assert!(writer.entry(&entry));
    }
    let (bytes, length) = writer.finish();
    assert_eq!(&bytes[..length], &data[..length]);
    assert!(!is_same || length == data.len());
});
