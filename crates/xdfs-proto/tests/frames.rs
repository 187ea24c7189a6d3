//! Every frame reads back as it was written, and nothing a peer can send makes the decoder panic.

use proptest::prelude::*;
use xdfs_proto::digest::{DigestKind, DigestValue, Fragment, FragmentState};
use xdfs_proto::frame::{
    Accept, Ack, AuthOk, AuthRequest, BLOCK_HEADER_BYTES, BlockHeader, Cancel, Challenge, Durable,
    Eofr, Exception, FRAME_HEADER_BYTES, FrameHeader, Hole, Incoming, JoinRequest, Level, Offer,
    Proof, Published, Repeat, Request, Resume, Scope, SessionAccept, SessionRequest, Start,
    TimeAccount, TimeDetails, TunnelAccept, TunnelPurpose, TunnelRequest, kind,
};
use xdfs_proto::pack::{Failures, PACK_BYTES_MAX, PackRequest, Preserve};
use xdfs_proto::wire::{DecodeError, FAULT_TEXT_BYTES_MAX};
use xdfs_proto::{
    ByteRange, ChannelIndex, Code, Fault, FileId, Frame, Limits, Retry, SessionId, SessionSecret,
    SourceTag,
};

fn encode(frame: &Frame) -> Vec<u8> {
    let mut bytes = Vec::new();
    frame.encode(&mut bytes);
    bytes
}

fn decode(bytes: &[u8]) -> Result<Frame, DecodeError> {
    decode_within(bytes, &Limits::default())
}

fn decode_within(bytes: &[u8], limits: &Limits) -> Result<Frame, DecodeError> {
    let (header, body) = bytes.split_first_chunk().expect("a frame header");
    let header = FrameHeader::decode(*header, limits)?;
    Frame::decode(header, body, limits)
}

fn file() -> impl Strategy<Value = FileId> {
    any::<u32>().prop_map(FileId)
}

fn range() -> impl Strategy<Value = ByteRange> {
    (any::<u64>(), any::<u64>())
        .prop_filter("an empty range", |(a, b)| a != b)
        .prop_map(|(a, b)| ByteRange {
            start: a.min(b),
            end: a.max(b),
        })
}

fn path() -> impl Strategy<Value = Vec<u8>> {
    prop::collection::vec(1u8..=255, 0..40)
}

fn digest_kind() -> impl Strategy<Value = DigestKind> {
    prop::sample::select(vec![
        DigestKind::None,
        DigestKind::Crc64Nvme,
        DigestKind::Blake3,
    ])
}

fn digest() -> impl Strategy<Value = DigestValue> {
    prop_oneof![
        Just(DigestValue::None),
        any::<u64>().prop_map(DigestValue::Crc64Nvme),
        any::<[u8; 32]>().prop_map(DigestValue::Blake3),
    ]
}

fn durable() -> impl Strategy<Value = Vec<Fragment>> {
    let steps = prop::collection::vec((0u64..4, 1u64..5, any::<u64>()), 0..20);
    (digest_kind(), steps).prop_map(|(kind, steps)| {
        let mut end = 0;
        let fragment = |(gap, len, seed): (u64, u64, u64)| {
            let start = end + gap * 1024;
            end = start + len * 1024;
            let state = match kind {
                DigestKind::Crc64Nvme => FragmentState::Crc64Nvme(seed),
                DigestKind::Blake3 => FragmentState::Blake3 {
                    node: [seed as u8; 32],
                    root: if start == 0 {
                        [(seed >> 8) as u8; 32]
                    } else {
                        [0; 32]
                    },
                },
                _ => FragmentState::None,
            };
            Fragment {
                range: ByteRange { start, end },
                state,
            }
        };
        steps.into_iter().map(fragment).collect()
    })
}

fn offer() -> impl Strategy<Value = Offer> {
    let source = (
        prop::option::of(any::<u64>()),
        any::<[u8; 16]>(),
        prop::option::of(any::<u32>()),
        prop::option::of(any::<i64>()),
    );
    let flags = any::<[bool; 3]>();
    let resume = prop::sample::select(vec![Resume::Never, Resume::Trust, Resume::Verify]);
    let plain = (file(), path(), path(), source, digest_kind(), flags, resume)
        .prop_map(
            |(file, path, name, (length, tag, mode, mtime_ns), digest, flags, resume)| {
                let [overwrite, dry_run, sparse] = flags;
                let tag = SourceTag(tag);
                Offer {
                    file,
                    path,
                    name,
                    length,
                    tag,
                    mode,
                    mtime_ns,
                    digest,
                    overwrite,
                    resume,
                    dry_run,
                    pack: false,
                    sparse,
                    relaxed: false,
                    last: None,
                }
            },
        )
        .boxed();
    let sizes = 1..=PACK_BYTES_MAX as u64;
    let flags = any::<[bool; 2]>();
    let last = prop::option::of(prop::collection::vec(file(), 0..4));
    let pack = (plain.clone(), sizes, flags, last);
    let pack = pack.prop_map(|(plain, length, flags, last)| Offer {
        name: Vec::new(),
        length: Some(length),
        tag: SourceTag::default(),
        mode: None,
        mtime_ns: None,
        overwrite: flags[0],
        resume: Resume::Never,
        dry_run: false,
        pack: true,
        sparse: false,
        relaxed: flags[1],
        last,
        ..plain
    });
    prop_oneof![3 => plain, 1 => pack]
}

fn failures() -> impl Strategy<Value = Failures> {
    let run = (0u32..1000, 1u32..4, fault());
    prop::collection::vec(run, 0..6).prop_map(|runs| {
        let mut failures = Failures::default();
        let mut number = 0;
        for (gap, count, fault) in runs {
            number += gap;
            for _ in 0..count {
                failures.push(number, fault.clone());
                number += 1;
            }
        }
        failures
    })
}

/// The details are as the peer claims them.
fn time_account() -> impl Strategy<Value = TimeAccount> {
    let details = prop::option::of(any::<(u64, [u16; 4])>());
    (0u16..=1000, details).prop_map(|(store_permille, details)| TimeAccount {
        store_permille,
        details: details.map(|(time_us, [sync, cpu, rate, payload])| TimeDetails {
            time_us,
            sync_permille: sync,
            cpu_permille: cpu,
            rate_permille: rate,
            payload_permille: payload,
        }),
    })
}

fn pack_request() -> impl Strategy<Value = PackRequest> {
    let keep = (any::<bool>(), any::<bool>(), any::<bool>(), any::<bool>());
    let name = prop::collection::vec("[a-z. ]{1,12}x", 1..4).prop_map(|n| n.join("/").into_bytes());
    let names = prop::collection::vec(name, 1..20);
    (keep, any::<u32>(), names).prop_map(|(keep, file_bytes_max, names)| PackRequest {
        keep: Preserve {
            owner: keep.0,
            xattrs: keep.1,
            read_times: keep.2,
        },
        follow: keep.3,
        file_bytes_max,
        names,
    })
}

fn text() -> impl Strategy<Value = String> {
    "[a-zäß€😀 ]{0,30}"
}

fn fault() -> impl Strategy<Value = Fault> {
    let retry = prop_oneof![
        Just(Retry::Never),
        Just(Retry::Now),
        any::<u32>().prop_map(Retry::AfterMs),
    ];
    let code = prop::sample::select(Code::ALL.to_vec());
    let path = prop::collection::vec(any::<u8>(), 0..40);
    (code, text(), path, text(), text(), retry).prop_map(|(code, op, path, cause, hint, retry)| {
        Fault::new(code, op, cause)
            .path(path)
            .hint(hint)
            .retry(retry)
            .remote()
    })
}

fn session() -> impl Strategy<Value = Frame> {
    let start = prop::sample::select(vec![Start::Elastic, Start::Strict]);
    let request = (
        any::<[u8; 16]>(),
        1u32..,
        prop_oneof![Just(0), 1024u32..],
        any::<u32>(),
        start,
        "[a-z@.]{0,20}",
    )
        .prop_map(|(id, channels, block_size, window, start, user)| {
            let id = SessionId(id);
            Frame::Session(SessionRequest {
                id,
                channels,
                block_size,
                window,
                start,
                user,
            })
        });
    let accept = (
        any::<[u8; 16]>(),
        1u32..,
        (10u32..=24).prop_map(|bits| 1 << bits),
        any::<u32>(),
    )
        .prop_map(|(secret, channels, block_size, window)| {
            let secret = SessionSecret(secret);
            Frame::SessionOk(SessionAccept {
                secret,
                channels,
                block_size,
                window,
            })
        });
    let join = (any::<[u8; 16]>(), any::<[u8; 16]>(), any::<u32>()).prop_map(|(id, s, c)| {
        let (id, secret, channel) = (SessionId(id), SessionSecret(s), ChannelIndex(c));
        Frame::Join(JoinRequest {
            id,
            secret,
            channel,
        })
    });
    prop_oneof![request, accept, join]
}

fn proof() -> impl Strategy<Value = Frame> {
    let body = || prop::collection::vec(any::<u8>(), 0..200);
    let auth = (any::<u8>(), text(), body())
        .prop_map(|(method, user, body)| Frame::Auth(AuthRequest { method, user, body }));
    prop_oneof![
        auth,
        body().prop_map(|body| Frame::Challenge(Challenge(body))),
        body().prop_map(|body| Frame::Proof(Proof(body))),
        tunnel(),
        text().prop_map(|user| Frame::AuthOk(AuthOk { user })),
    ]
}

fn tunnel() -> impl Strategy<Value = Frame> {
    let purpose = prop::sample::select(vec![
        (TunnelPurpose::Check, false, false),
        (TunnelPurpose::Connect, false, false),
        (TunnelPurpose::Connect, false, true),
        (TunnelPurpose::Listen, false, false),
        (TunnelPurpose::Take, true, false),
        (TunnelPurpose::Take, true, true),
        (TunnelPurpose::Join, false, true),
    ]);
    let request = (purpose, text(), 1..=u64::MAX, 1..=u64::MAX);
    let request = request.prop_map(|((purpose, takes, bundles), target, number, bundle)| {
        Frame::Tunnel(TunnelRequest {
            purpose,
            target,
            number: if takes { number } else { 0 },
            bundle: if bundles { bundle } else { 0 },
        })
    });
    let incoming = (any::<u64>(), text());
    prop_oneof![
        request,
        text().prop_map(|address| Frame::TunnelOk(TunnelAccept { address })),
        incoming.prop_map(|(number, peer)| Frame::Incoming(Incoming { number, peer })),
    ]
}

fn frame() -> impl Strategy<Value = Frame> {
    let empty = prop::sample::select(vec![
        Frame::JoinOk,
        Frame::Eoft,
        Frame::Leave,
        Frame::Protect(Level::Private),
        Frame::Protect(Level::Clear),
        Frame::Noop,
        Frame::Conm,
        Frame::XdfsM,
        Frame::Zxdfs,
    ]);
    let end = (
        file(),
        any::<u64>(),
        digest(),
        time_account(),
        prop::option::of(failures()),
    )
        .prop_map(|(file, length, digest, time, failures)| match failures {
            None => Frame::Eofr(Eofr {
                file,
                length,
                digest,
                time,
            }),
            Some(failures) => Frame::Published(Published {
                file,
                length,
                digest,
                time,
                failures,
            }),
        });
    let request = (
        file(),
        path(),
        any::<u64>(),
        prop::option::of(any::<u64>()),
        digest_kind(),
        prop::option::of(pack_request()),
    )
        .prop_map(|(file, path, offset, length, digest, pack)| {
            Frame::Xftsm(Request {
                file,
                path,
                offset: if pack.is_some() { 0 } else { offset },
                length: if pack.is_some() { None } else { length },
                digest,
                pack,
            })
        });
    let accept = (file(), path(), 10u32..=24, durable()).prop_map(|(file, path, log, durable)| {
        Frame::Accept(Accept {
            file,
            path,
            block_size: 1 << log,
            durable,
        })
    });
    let scope = prop_oneof![
        Just(Scope::Channel),
        file().prop_map(Scope::File),
        Just(Scope::Session)
    ];
    prop_oneof![
        session(),
        proof(),
        empty,
        end,
        offer().prop_map(Frame::Xftsmu),
        offer().prop_map(Frame::Offer),
        request,
        accept,
        (file(), range()).prop_map(|(file, range)| Frame::Hole(Hole { file, range })),
        (file(), range()).prop_map(|(file, range)| Frame::Repeat(Repeat { file, range })),
        any::<u64>().prop_map(|data_frames| Frame::Ack(Ack { data_frames })),
        (file(), any::<u64>()).prop_map(|(file, bytes)| Frame::Durable(Durable { file, bytes })),
        file().prop_map(|file| Frame::Cancel(Cancel { file })),
        (scope, fault()).prop_map(|(scope, fault)| Frame::Exception(Exception { scope, fault })),
    ]
}

proptest! {
    #![proptest_config(ProptestConfig {
        failure_persistence: None,
        cases: 512,
        ..ProptestConfig::default()
    })]

    #[test]
    fn a_frame_reads_back_as_written(frame in frame()) {
        let bytes = encode(&frame);
        prop_assert_eq!(decode(&bytes), Ok(frame));
    }

    #[test]
    fn a_frame_cut_anywhere_is_refused(frame in frame()) {
        let bytes = encode(&frame);
        let limits = Limits::default();
        let header = FrameHeader::decode(*bytes.first_chunk().unwrap(), &limits).unwrap();
        prop_assert_eq!(header.length as usize, bytes.len() - FRAME_HEADER_BYTES);
        let body = &bytes[FRAME_HEADER_BYTES..];
        for len in 0..body.len() {
            let result = Frame::decode(header, &body[..len], &Limits::default());
            prop_assert!(matches!(result, Err(DecodeError::Truncated(_))), "{len}: {result:?}");
        }
        let longer = [body, &[0]].concat();
        let result = Frame::decode(header, &longer, &Limits::default());
        prop_assert_eq!(result, Err(DecodeError::Trailing(1)));
    }

    #[test]
    fn random_bytes_never_panic(
        header in any::<[u8; FRAME_HEADER_BYTES]>(),
        body in prop::collection::vec(any::<u8>(), 0..300),
    ) {
        let _ = FrameHeader::decode(header, &Limits::default());
        for kind in 0..=255 {
            let (flags, length) = (header[1], body.len() as u32);
            let header = FrameHeader { kind, flags, check: 0, length };
            let _ = Frame::decode(header, &body, &Limits::default());
        }
    }

    #[test]
    fn a_damaged_frame_never_panics(frame in frame(), at in any::<prop::sample::Index>(), to: u8) {
        let mut bytes = encode(&frame);
        let at = at.index(bytes.len());
        bytes[at] = to;
        if let Ok(decoded) = decode(&bytes) {
            prop_assert_eq!(decode(&encode(&decoded)), Ok(decoded));
        }
    }

    #[test]
    fn a_block_header_reads_back_as_written(
        file: u32, check: u32, clear: bool, offset in 0u64..1 << 63, length in 1u32..=16 << 20,
    ) {
        let block = BlockHeader { file: FileId(file), check, clear, offset, length };
        let bytes = block.encode();
        let (header, rest) = bytes.split_first_chunk().unwrap();
        let header = FrameHeader::decode(*header, &Limits::default()).unwrap();
        prop_assert!(header.is_block());
        let rest: [u8; BLOCK_HEADER_BYTES - FRAME_HEADER_BYTES] = rest.try_into().unwrap();
        prop_assert_eq!(BlockHeader::decode(header, rest), Ok(block));
        let end = offset + u64::from(length);
        prop_assert_eq!(block.range(), ByteRange { start: offset, end });
    }
}

fn header(kind: u8, flags: u8, length: u32) -> [u8; FRAME_HEADER_BYTES] {
    let [a, b, c, d] = length.to_be_bytes();
    [kind, flags, 0, 0, a, b, c, d]
}

#[test]
fn only_the_kinds_of_the_table_exist() {
    let limits = Limits::default();
    let known: Vec<u8> = (0..=255)
        .filter(|k| FrameHeader::decode(header(*k, 0, 20), &limits).is_ok())
        .collect();
    let expected: Vec<u8> = (0x01..=0x0d)
        .chain(0x10..=0x1f)
        .chain([0x20, 0x21, 0x30, 0x31, 0x7f])
        .collect();
    assert_eq!(known, expected);
    let error = FrameHeader::decode(header(0x22, 0, 20), &limits).unwrap_err();
    assert_eq!(error, DecodeError::UnknownKind(0x22));
    assert_eq!(error.fault().code, Code::MalformedFrame);
}

#[test]
fn lengths_are_bounded_by_their_kind() {
    let limits = Limits {
        control_frame_bytes_max: 8192,
        block_bytes_max: 4096,
        ..Limits::default()
    };
    let length = |kind, length| FrameHeader::decode(header(kind, 0, length), &limits);
    assert!(length(kind::EXCEPTION, 8192).is_ok());
    let error = length(kind::EXCEPTION, 8193).unwrap_err();
    assert_eq!(error.fault().code, Code::FrameTooLarge);
    assert_eq!(
        length(kind::BLOCK, 16),
        Err(DecodeError::Invalid("length of a block"))
    );
    assert!(length(kind::ACCEPT, 256 << 10).is_ok());
    let error = length(kind::ACCEPT, (256 << 10) + 1).unwrap_err();
    assert_eq!(error.fault().code, Code::FrameTooLarge);
    assert!(length(kind::BLOCK, 17).is_ok());
    assert!(length(kind::BLOCK, 16 + 4096).is_ok());
    assert_eq!(
        length(kind::BLOCK, 16 + 4097),
        Err(DecodeError::TooLarge {
            field: "length of a block",
            actual: 4113,
            limit: 4112
        })
    );
    assert!(length(kind::BLOCK, u32::MAX).is_err());
}

#[test]
fn undefined_flags_and_reserved_bits_are_refused() {
    let limits = Limits::default();
    let defined = |kind| -> u8 {
        (0..8)
            .map(|bit| 1 << bit)
            .filter(|f| FrameHeader::decode(header(kind, *f, 20), &limits).is_ok())
            .sum()
    };
    assert_eq!(defined(kind::SESSION), 1);
    assert_eq!(defined(kind::XFTSM), 3);
    assert_eq!(defined(kind::XFTSMU), 0xfd);
    assert_eq!(defined(kind::OFFER), 0xfd);
    assert_eq!(defined(kind::PUBLISHED), 3);
    assert_eq!(defined(kind::EOFR), 2);
    assert_eq!(defined(kind::BLOCK), 1);
    assert_eq!(defined(kind::PROTECT), 0);
    assert_eq!(defined(kind::ACK), 0);
    let mut bytes = header(kind::NOOP, 0, 0);
    bytes[3] = 1;
    assert_eq!(
        FrameHeader::decode(bytes, &limits),
        Err(DecodeError::Invalid("reserved field of a frame"))
    );
}

#[test]
fn a_block_past_the_end_of_numbers_is_refused() {
    let decode = |offset: u64| {
        let block = BlockHeader {
            file: FileId(u32::MAX),
            check: u32::MAX,
            clear: false,
            offset,
            length: 10,
        };
        let bytes = block.encode();
        let head = FrameHeader::decode(*bytes.first_chunk().unwrap(), &Limits::default()).unwrap();
        BlockHeader::decode(head, *bytes.last_chunk().unwrap())
    };
    let error = DecodeError::Invalid("offset of a block");
    assert_eq!(decode(u64::MAX), Err(error));
    assert_eq!(decode(u64::MAX - 10).unwrap().range().end, u64::MAX);
}

/// F-20: whatever one or two bits of a header change, it is found before anything is believed.
#[test]
fn every_two_changed_bits_of_a_block_s_header_are_found() {
    let block = BlockHeader {
        file: FileId(7),
        check: 0x1234_5678,
        clear: false,
        offset: 3 << 20,
        length: 1 << 20,
    };
    let sound = block.encode();
    assert!(BlockHeader::is_sound(&sound));
    let flip = |bytes: &mut [u8; BLOCK_HEADER_BYTES], bit: usize| bytes[bit / 8] ^= 1 << (bit % 8);
    let bits = BLOCK_HEADER_BYTES * 8;
    for first in 0..bits {
        let mut one = sound;
        flip(&mut one, first);
        assert!(!BlockHeader::is_sound(&one), "bit {first}");
        for second in 0..first {
            let mut two = one;
            flip(&mut two, second);
            assert!(!BlockHeader::is_sound(&two), "bits {first} and {second}");
        }
    }
    let mut moved = sound;
    moved[17] ^= 1;
    let head = FrameHeader::decode(*moved.first_chunk().unwrap(), &Limits::default()).unwrap();
    let error = BlockHeader::decode(head, *moved.last_chunk().unwrap()).unwrap_err();
    assert_eq!(error, DecodeError::Damaged);
    assert_eq!(error.fault().code, Code::IntegrityMismatch);
}

#[test]
fn whatever_a_fault_holds_makes_a_valid_frame() {
    let long = "ä\u{1b}[2J\n".repeat(20_000);
    let fault = Fault::new(Code::Io, &long, &long)
        .path(vec![0; 9000])
        .hint(&long);
    let bytes = encode(&Frame::Exception(Exception {
        scope: Scope::Session,
        fault,
    }));
    assert!(bytes.len() < 8192);
    let Ok(Frame::Exception(Exception { fault, .. })) = decode(&bytes) else {
        panic!("not an exception")
    };
    assert!(fault.cause.starts_with("ä [2J ä"));
    assert!((FAULT_TEXT_BYTES_MAX - 1..=FAULT_TEXT_BYTES_MAX).contains(&fault.cause.len()));
    assert_eq!(fault.path.len(), FAULT_TEXT_BYTES_MAX);
}

#[test]
fn control_characters_in_a_fault_of_a_peer_are_refused() {
    let fault = Fault::new(Code::Io, "write", "CAUSE");
    let mut bytes = encode(&Frame::Exception(Exception {
        scope: Scope::Channel,
        fault,
    }));
    let at = bytes.windows(5).position(|w| w == b"CAUSE").unwrap();
    bytes[at] = 0x1b;
    assert_eq!(
        decode(&bytes),
        Err(DecodeError::Invalid("cause of a fault"))
    );
}

fn request(path: Vec<u8>) -> Frame {
    let (offset, length, digest) = (0, None, DigestKind::None);
    Frame::Xftsm(Request {
        file: FileId(1),
        path,
        offset,
        length,
        digest,
        pack: None,
    })
}

#[test]
fn paths_are_bounded_and_have_no_zero_byte() {
    let limits = Limits::default();
    assert!(decode(&encode(&request(vec![b'x'; limits.path_bytes_max]))).is_ok());
    assert_eq!(
        decode(&encode(&request(vec![b'x'; limits.path_bytes_max + 1]))),
        Err(DecodeError::TooLarge {
            field: "path",
            actual: 4097,
            limit: 4096
        })
    );
    let zero = Err(DecodeError::Invalid("path"));
    assert_eq!(decode(&encode(&request(b"a\0b".to_vec()))), zero);
    // A path that the length field can't hold must never arrive as another path.
    assert_eq!(decode(&encode(&request(vec![b'x'; 70_000]))), zero);
}

fn accept(block_size: u32, durable: Vec<Fragment>) -> Frame {
    Frame::Accept(Accept {
        file: FileId(1),
        path: b"/t".to_vec(),
        block_size,
        durable,
    })
}

fn crc(start: u64, end: u64) -> Fragment {
    Fragment {
        range: ByteRange { start, end },
        state: FragmentState::Crc64Nvme(7),
    }
}

#[test]
fn the_block_size_is_a_power_of_two_within_bounds() {
    for good in [1024, 2048, 256 << 10, 16 << 20] {
        assert!(decode(&encode(&accept(good, vec![]))).is_ok());
    }
    for bad in [0, 1, 512, 1025, 3 << 20, 32 << 20, u32::MAX] {
        let result = decode(&encode(&accept(bad, vec![])));
        assert_eq!(result, Err(DecodeError::Invalid("block size")), "{bad}");
    }
}

#[test]
fn durable_ranges_are_in_order_and_apart() {
    assert!(decode(&encode(&accept(1024, vec![crc(0, 10), crc(10, 20)]))).is_ok());
    for bad in [vec![crc(0, 10), crc(9, 20)], vec![crc(10, 20), crc(0, 5)]] {
        let result = decode(&encode(&accept(1024, bad)));
        assert_eq!(result, Err(DecodeError::Invalid("order of durable ranges")));
    }
    let empty = decode(&encode(&accept(1024, vec![crc(5, 5)])));
    assert_eq!(empty, Err(DecodeError::Invalid("end of a range")));
}

#[test]
fn as_many_durable_ranges_fit_as_announced() {
    for (kind, bytes_max, most) in [
        (DigestKind::None, 256 << 10, 16_319),
        (DigestKind::Crc64Nvme, 256 << 10, 10_879),
        (DigestKind::Blake3, 256 << 10, 5_439),
        (DigestKind::None, 8 << 10, 447),
        (DigestKind::Crc64Nvme, 8 << 10, 298),
        (DigestKind::Blake3, 8 << 10, 148),
        (DigestKind::Crc64Nvme, 100, 0),
    ] {
        let limits = Limits {
            accept_bytes_max: bytes_max,
            ..Limits::default()
        };
        assert_eq!(
            Accept::durable_max(kind, &limits),
            most,
            "{kind:?} in {bytes_max}"
        );
        let fragment = |i: usize| Fragment {
            range: ByteRange {
                start: i as u64 * 2048,
                end: i as u64 * 2048 + 1024,
            },
            state: match kind {
                DigestKind::Crc64Nvme => FragmentState::Crc64Nvme(1),
                DigestKind::Blake3 => FragmentState::Blake3 {
                    node: [1; 32],
                    root: [0; 32],
                },
                _ => FragmentState::None,
            },
        };
        let durable: Vec<_> = (0..most).map(fragment).collect();
        let path = vec![b'p'; 1024];
        let full = Accept {
            file: FileId(1),
            path,
            block_size: 1024,
            durable,
        };
        if most > 0 {
            let bytes = encode(&Frame::Accept(full.clone()));
            assert_eq!(decode_within(&bytes, &limits), Ok(Frame::Accept(full)));
        }
    }
    let durable: Vec<_> = (0..1001).map(|i| crc(2 * i, 2 * i + 1)).collect();
    let few = Limits {
        resume_ranges_max: 1000,
        ..Limits::default()
    };
    let error = decode_within(&encode(&accept(1024, durable)), &few).unwrap_err();
    assert_eq!(error.fault().code, Code::FrameTooLarge);
}

#[test]
fn a_count_that_the_body_does_not_hold_costs_nothing() {
    let limits = Limits {
        resume_ranges_max: usize::MAX,
        ..Limits::default()
    };
    let mut bytes = encode(&accept(1024, vec![crc(0, 10)]));
    let at = bytes.len() - 24 - 4;
    bytes[at..at + 4].copy_from_slice(&u32::MAX.to_be_bytes());
    assert_eq!(
        decode_within(&bytes, &limits),
        Err(DecodeError::Truncated("start of a range"))
    );
}

#[test]
fn an_absent_field_is_zero() {
    let mut bytes = encode(&request(b"p".to_vec()));
    bytes[FRAME_HEADER_BYTES + 4 + 8 + 7] = 1;
    assert_eq!(decode(&bytes), Err(DecodeError::Invalid("length")));
}

#[test]
fn a_session_without_channels_is_refused() {
    let id = SessionId([1; 16]);
    let start = Start::Elastic;
    let (channels, block_size, window, user) = (0, 0, 0, String::new());
    let bytes = encode(&Frame::Session(SessionRequest {
        id,
        channels,
        block_size,
        window,
        start,
        user,
    }));
    assert_eq!(
        decode(&bytes),
        Err(DecodeError::Invalid("number of channels"))
    );
}
