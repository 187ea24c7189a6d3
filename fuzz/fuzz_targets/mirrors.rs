//! Lists of mirrors, as text and as Metalink: anybody may have written them.
#![no_main]

use libfuzzer_sys::fuzz_target;
use xdfs::operations::read_mirrors;

fuzz_target!(|bytes: &[u8]| {
    // Alone, and as what a Metalink has within its root.
    let root = b"<metalink xmlns=\"urn:ietf:params:xml:ns:metalink\"><file name=\"f\">";
    let within = [&root[..], bytes, b"</file></metalink>"].concat();
    for list in [bytes, &within] {
        for file in read_mirrors(list, b"list").into_iter().flatten() {
            let name = file.name.unwrap_or_default();
            assert!(!name.contains(['/', '\\', '\0']) && name != "..");
            assert!(file.urls.len() <= 10_000);
        }
    }
});
