//! Digests of known content, however it is cut.

use std::io::{IoSlice, IoSliceMut};

use crate::endpoint::Endpoint;
use crate::registry::Registry;

/// Check values of the content `123456789`, and of no content: the catalogue of CRCs (CRC-64/NVME),
/// FIPS 180-4 by sha256sum, and the reference implementation of BLAKE3 by b3sum.
const KNOWN: [(&str, &str, &str); 3] = [
    ("crc64nvme", "ae8b14860a799888", "0000000000000000"),
    (
        "sha256",
        "15e2b0d3c33891ebb0f1ef609ec419420c20e320ce94c65fbc8c3312448eb225",
        "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855",
    ),
    (
        "blake3",
        "b7d65b48420d1033cb2595293263b6f72eabee20d55e699d0df1973b3c9deed1",
        "af1349b9f5f9a1a6a0404dea36dcc9499bcb25c9adc112b7cc9a93cae41f3262",
    ),
];

#[test]
fn both_directions_have_their_digests() {
    for (kind, wanted, empty) in KNOWN {
        let registry = Registry::standard();
        let stack = format!("memory,digest:kind={kind}").parse().unwrap();
        let stack = registry.build(&stack).unwrap();
        let endpoint = Endpoint::memory(format!("digest-{kind}").as_str());
        let mut listener = stack.listen(&endpoint).unwrap();
        let mut near = stack.open(&endpoint).unwrap();
        let mut far = listener.accept().unwrap();
        let slices = [IoSlice::new(b"12"), IoSlice::new(b""), IoSlice::new(b"345")];
        near.write_vectored(&slices).unwrap();
        // Asking doesn't end it.
        assert_ne!(near.control("digest.sent").unwrap().to_string(), wanted);
        near.write_vectored(&[IoSlice::new(b"6789")]).unwrap();
        let (mut a, mut b) = ([0; 4], [0; 100]);
        let mut bufs = [IoSliceMut::new(&mut a), IoSliceMut::new(&mut b)];
        assert_eq!(far.read_vectored(&mut bufs).unwrap(), 9);
        let text = |end: &dyn crate::Stream, name| end.control(name).unwrap().to_string();
        assert_eq!(text(&*near, "digest.sent"), wanted, "{kind}");
        assert_eq!(text(&*far, "digest.received"), wanted, "{kind}");
        assert_eq!(text(&*near, "digest.received"), empty, "{kind}");
        assert_eq!(text(&*far, "digest.sent"), empty, "{kind}");
    }
}
