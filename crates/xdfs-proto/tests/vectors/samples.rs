//! The values that the vectors encode.

use xdfs_proto::digest::{DigestKind, DigestValue, Fragment, FragmentState};
use xdfs_proto::frame::{
    Accept, Ack, AuthOk, AuthRequest, Cancel, Challenge, Durable, Eofr, Exception, Frame, Hole,
    Incoming, JoinRequest, Level, Offer, Proof, Published, Repeat, Request, Resume, Scope,
    SessionAccept, SessionRequest, Start, TimeAccount, TimeDetails, TunnelAccept, TunnelPurpose,
    TunnelRequest,
};
use xdfs_proto::opening::{Answer, Feature, Hello, SERVICE_PROCESS, Welcome};
use xdfs_proto::pack::{Failures, PackRequest, Preserve};
use xdfs_proto::{
    ByteRange, ChannelIndex, Code, Fault, FileId, Retry, SessionId, SessionSecret, SourceTag,
};

fn feature(id: u16, name: &str, value: &[u8]) -> Feature {
    Feature {
        id,
        name: name.to_owned(),
        value: value.to_vec(),
    }
}

fn account(time_us: u64, store_permille: u16, [sync, cpu, rate, payload]: [u16; 4]) -> TimeAccount {
    TimeAccount {
        store_permille,
        details: Some(TimeDetails {
            time_us,
            sync_permille: sync,
            cpu_permille: cpu,
            rate_permille: rate,
            payload_permille: payload,
        }),
    }
}

pub(crate) fn hellos() -> Vec<(&'static str, Hello)> {
    vec![
        ("hello-plain", Hello::default()),
        (
            "hello-with-features",
            Hello {
                version_max: 3,
                features: vec![feature(2, "example", &[1, 2]), feature(0x8001, "must", &[])],
                ..Hello::default()
            },
        ),
        (
            "hello-protected",
            Hello {
                features: vec![
                    feature(1, "authentication", &[]),
                    feature(2, "clear-payload", &[]),
                ],
                ..Hello::default()
            },
        ),
        (
            "hello-other-service",
            Hello {
                service: SERVICE_PROCESS,
                ..Hello::default()
            },
        ),
    ]
}

pub(crate) fn answers() -> Vec<(&'static str, Answer)> {
    let refused = Fault::new(
        Code::VersionUnsupported,
        "open a channel",
        "no common protocol version: this side speaks 1 to 1, the peer 2 to 3",
    )
    .hint("install the same release on both sides")
    .remote();
    vec![
        (
            "welcome-plain",
            Answer::Welcome(Welcome {
                version: 1,
                features: vec![],
            }),
        ),
        (
            "welcome-with-a-feature",
            Answer::Welcome(Welcome {
                version: 1,
                features: vec![feature(2, "example", &[9])],
            }),
        ),
        (
            "welcome-protected",
            Answer::Welcome(Welcome {
                version: 1,
                features: vec![feature(1, "authentication", &[2, 3, 4])],
            }),
        ),
        (
            "welcome-protected-takes-clear",
            Answer::Welcome(Welcome {
                version: 1,
                features: vec![
                    feature(1, "authentication", &[2]),
                    feature(2, "clear-payload", &[]),
                ],
            }),
        ),
        ("refused", Answer::Refused(refused)),
    ]
}

const FILE: FileId = FileId(1);

fn range(start: u64, end: u64) -> ByteRange {
    ByteRange { start, end }
}

fn bytes16(first: u8) -> [u8; 16] {
    std::array::from_fn(|i| first + i as u8)
}

fn bytes32(first: u8) -> [u8; 32] {
    std::array::from_fn(|i| first + i as u8)
}

pub(crate) fn frames() -> Vec<(&'static str, Frame)> {
    let mut frames = session();
    frames.extend(proofs());
    frames.extend(tunnels());
    frames.extend(files());
    frames.extend(events());
    frames.extend(crate::calls::samples());
    frames.extend(crate::files::samples());
    frames
}

fn session() -> Vec<(&'static str, Frame)> {
    let request = SessionRequest {
        id: SessionId(bytes16(0x10)),
        channels: 4,
        block_size: 0,
        window: 0,
        start: Start::Elastic,
        user: String::new(),
    };
    let strict = SessionRequest {
        channels: 64,
        block_size: 1 << 20,
        window: 4 << 20,
        start: Start::Strict,
        user: "zoë".into(),
        ..request
    };
    vec![
        ("session-elastic", Frame::Session(request)),
        ("session-strict-with-user", Frame::Session(strict)),
        (
            "session-ok",
            Frame::SessionOk(SessionAccept {
                secret: SessionSecret(bytes16(0x30)),
                channels: 4,
                block_size: 256 << 10,
                window: 0,
            }),
        ),
        (
            "join",
            Frame::Join(JoinRequest {
                id: SessionId(bytes16(0x10)),
                secret: SessionSecret(bytes16(0x30)),
                channel: ChannelIndex(3),
            }),
        ),
        ("join-ok", Frame::JoinOk),
        ("leave", Frame::Leave),
        ("eoft", Frame::Eoft),
        ("noop", Frame::Noop),
        ("conm", Frame::Conm),
        ("xdfsm", Frame::XdfsM),
        ("zxdfs", Frame::Zxdfs),
    ]
}

fn proofs() -> Vec<(&'static str, Frame)> {
    let auth = |method, user: &str, body: &[u8]| {
        let (user, body) = (user.to_owned(), body.to_vec());
        Frame::Auth(AuthRequest { method, user, body })
    };
    let user = |name: &str| Frame::AuthOk(AuthOk { user: name.into() });
    vec![
        ("auth-anonymous", auth(1, "", &[])),
        ("auth-password", auth(3, "zoë", &bytes32(0x70))),
        ("auth-method-unknown", auth(255, "", &[0])),
        (
            "challenge",
            Frame::Challenge(Challenge(bytes32(0x90).to_vec())),
        ),
        ("challenge-empty", Frame::Challenge(Challenge(Vec::new()))),
        ("proof", Frame::Proof(Proof(bytes32(0xb0).to_vec()))),
        ("auth-ok", user("zoë")),
        ("auth-ok-without-a-name", user("")),
        ("protect-private", Frame::Protect(Level::Private)),
        ("protect-clear", Frame::Protect(Level::Clear)),
    ]
}

fn tunnels() -> Vec<(&'static str, Frame)> {
    let bundled = |purpose, target: &str, number, bundle| {
        let target = target.to_owned();
        Frame::Tunnel(TunnelRequest {
            purpose,
            target,
            number,
            bundle,
        })
    };
    let request = |purpose, target: &str, number| bundled(purpose, target, number, 0);
    let accept = |address: &str| {
        Frame::TunnelOk(TunnelAccept {
            address: address.into(),
        })
    };
    vec![
        (
            "tunnel-check",
            request(TunnelPurpose::Check, "db.lab:5432", 0),
        ),
        (
            "tunnel-connect",
            request(TunnelPurpose::Connect, "[2001:db8::1]:80", 0),
        ),
        (
            "tunnel-socket",
            request(TunnelPurpose::Connect, "unix:/run/app.sock", 0),
        ),
        (
            "tunnel-listen",
            request(TunnelPurpose::Listen, "127.0.0.1:0", 0),
        ),
        (
            "tunnel-take",
            request(TunnelPurpose::Take, "127.0.0.1:8080", u64::MAX),
        ),
        (
            "tunnel-connect-bundle",
            bundled(TunnelPurpose::Connect, "db.lab:5432", 0, 1 << 63),
        ),
        (
            "tunnel-take-bundle",
            bundled(TunnelPurpose::Take, "127.0.0.1:8080", 1, 2),
        ),
        (
            "tunnel-join",
            bundled(TunnelPurpose::Join, "db.lab:5432", 0, 1 << 63),
        ),
        ("tunnel-ok", accept("192.0.2.7:5432")),
        ("tunnel-ok-without-address", accept("")),
        (
            "incoming",
            Frame::Incoming(Incoming {
                number: 1 << 40,
                peer: "192.0.2.9:50000".into(),
            }),
        ),
    ]
}

fn files() -> Vec<(&'static str, Frame)> {
    let upload = Offer {
        file: FILE,
        path: b"incoming/data.bin".to_vec(),
        name: b"data.bin".to_vec(),
        length: Some(5 << 30),
        tag: SourceTag(bytes16(0x50)),
        mode: Some(0o644),
        mtime_ns: Some(-1),
        digest: DigestKind::Crc64Nvme,
        overwrite: true,
        resume: Resume::Trust,
        dry_run: false,
        pack: false,
        sparse: false,
        relaxed: false,
        last: None,
    };
    let stream = Offer {
        path: vec![b'/', 0xff, b'x'],
        name: vec![],
        length: None,
        tag: SourceTag([0; 16]),
        mode: None,
        mtime_ns: None,
        digest: DigestKind::None,
        overwrite: false,
        resume: Resume::Never,
        dry_run: true,
        ..upload.clone()
    };
    let download = Offer {
        path: vec![],
        digest: DigestKind::Blake3,
        length: Some(0),
        overwrite: false,
        mtime_ns: Some(1_700_000_000_123_456_789),
        ..upload.clone()
    };
    let sparse = Offer {
        sparse: true,
        ..upload.clone()
    };
    let verified = Offer {
        resume: Resume::Verify,
        ..upload.clone()
    };
    let accept = Accept {
        file: FILE,
        path: b"/srv/incoming/data.bin".to_vec(),
        block_size: 256 << 10,
        durable: vec![],
    };
    let crc = |start, end, crc| Fragment {
        range: range(start, end),
        state: FragmentState::Crc64Nvme(crc),
    };
    let resumed = Accept {
        durable: vec![
            crc(0, 1 << 20, 0x0123_4567_89ab_cdef),
            crc(2 << 20, (2 << 20) + 5, 0xfedc_ba98_7654_3210),
        ],
        ..accept.clone()
    };
    let tree = |start, end, root| Fragment {
        range: range(start, end),
        state: FragmentState::Blake3 {
            node: bytes32(0x80),
            root,
        },
    };
    let subtrees = Accept {
        path: vec![],
        durable: vec![
            tree(0, 512 << 10, bytes32(0xa0)),
            tree(512 << 10, 768 << 10, [0; 32]),
            tree(1 << 20, (1 << 20) + 100, [0; 32]),
        ],
        ..accept
    };
    let without = Accept {
        durable: vec![Fragment {
            range: range(0, 1 << 20),
            state: FragmentState::None,
        }],
        ..accept.clone()
    };
    let request = Request {
        file: FileId(2),
        path: b"outgoing/data.bin".to_vec(),
        offset: 0,
        length: None,
        digest: DigestKind::Crc64Nvme,
        pack: None,
    };
    let partial = Request {
        offset: 4096,
        length: Some(u64::MAX - 4096),
        ..request.clone()
    };
    let wished = Request {
        pack: Some(PackRequest {
            keep: Preserve {
                owner: true,
                xattrs: false,
                read_times: true,
            },
            follow: false,
            file_bytes_max: 512 << 10,
            names: vec![b"a".to_vec(), b"d/\xff b".to_vec()],
        }),
        ..request.clone()
    };
    let followed = Request {
        pack: wished.pack.clone().map(|pack| PackRequest {
            follow: true,
            ..pack
        }),
        ..wished.clone()
    };
    let pack = Offer {
        path: b"/tree".to_vec(),
        name: vec![],
        length: Some(1 << 20),
        tag: SourceTag::default(),
        mode: None,
        mtime_ns: None,
        digest: DigestKind::None,
        overwrite: true,
        resume: Resume::Never,
        dry_run: false,
        pack: true,
        sparse: false,
        relaxed: false,
        last: None,
        file: FILE,
    };
    let relaxed = Offer {
        relaxed: true,
        ..pack.clone()
    };
    let last = Offer {
        last: Some(vec![FileId(6), FileId(4)]),
        ..pack.clone()
    };
    vec![
        ("xftsmu", Frame::Xftsmu(upload)),
        ("xftsmu-sparse", Frame::Xftsmu(sparse)),
        ("xftsmu-verify-resumed", Frame::Xftsmu(verified)),
        ("xftsmu-stream-dry-run", Frame::Xftsmu(stream)),
        ("xftsm", Frame::Xftsm(request)),
        ("xftsm-partial", Frame::Xftsm(partial)),
        ("xftsm-pack", Frame::Xftsm(wished)),
        ("xftsm-pack-follow-links", Frame::Xftsm(followed)),
        ("xftsmu-pack", Frame::Xftsmu(pack)),
        ("xftsmu-pack-relaxed", Frame::Xftsmu(relaxed)),
        ("xftsmu-pack-last", Frame::Xftsmu(last)),
        ("offer-empty-file", Frame::Offer(download)),
        ("accept-fresh", Frame::Accept(accept)),
        ("accept-resumed-crc64", Frame::Accept(resumed)),
        ("accept-resumed-blake3", Frame::Accept(subtrees)),
        ("accept-resumed-without-digest", Frame::Accept(without)),
    ]
}

fn events() -> Vec<(&'static str, Frame)> {
    let fault = Fault::new(Code::NoSpace, "write", "no space left on device")
        .path("incoming/data.bin")
        .hint("free some space and run the same command again to go on")
        .retry(Retry::AfterMs(5000))
        .remote();
    let busy = Fault::new(
        Code::TooManyChannels,
        "join the session",
        "4 channels were accepted",
    )
    .retry(Retry::Now)
    .remote();
    let closing = Fault::new(
        Code::ShuttingDown,
        "accept a file",
        "the server is shutting down",
    )
    .remote();
    let mut failures = Failures::default();
    for number in [3, 4, 5, 9] {
        failures.push(number, fault.clone());
    }
    let eofr = |digest| {
        Frame::Eofr(Eofr {
            file: FILE,
            length: 6,
            digest,
            time: TimeAccount::of_store(250),
        })
    };
    vec![
        ("eofr-without-digest", eofr(DigestValue::None)),
        (
            "eofr-crc64",
            eofr(DigestValue::Crc64Nvme(0xae8b_1486_0a79_9888)),
        ),
        ("eofr-blake3", eofr(DigestValue::Blake3(bytes32(0xc0)))),
        (
            "eofr-account",
            Frame::Eofr(Eofr {
                file: FILE,
                length: 6,
                digest: DigestValue::Crc64Nvme(0xae8b_1486_0a79_9888),
                time: account(1500, 250, [0, 330, 41, 300]),
            }),
        ),
        (
            "published",
            Frame::Published(Published {
                file: FILE,
                length: 5 << 30,
                digest: DigestValue::Crc64Nvme(1),
                time: TimeAccount::of_store(1000),
                failures: Failures::default(),
            }),
        ),
        (
            "published-pack",
            Frame::Published(Published {
                file: FILE,
                length: 1 << 20,
                digest: DigestValue::None,
                time: TimeAccount::default(),
                failures: failures.clone(),
            }),
        ),
        (
            "published-account",
            Frame::Published(Published {
                file: FILE,
                length: 5 << 30,
                digest: DigestValue::Crc64Nvme(1),
                time: account(5_000_000_000, 700, [600, 200, 0, 60]),
                failures: Failures::default(),
            }),
        ),
        (
            "published-pack-account-absurd",
            Frame::Published(Published {
                file: FILE,
                length: 1 << 20,
                digest: DigestValue::None,
                time: account(u64::MAX, 1000, [u16::MAX, 1001, u16::MAX, 2000]),
                failures,
            }),
        ),
        (
            "hole",
            Frame::Hole(Hole {
                file: FILE,
                range: range(1 << 20, 1 << 40),
            }),
        ),
        ("ack", Frame::Ack(Ack { data_frames: 300 })),
        (
            "repeat",
            Frame::Repeat(Repeat {
                file: FILE,
                range: range(256 << 10, 512 << 10),
            }),
        ),
        (
            "durable",
            Frame::Durable(Durable {
                file: FILE,
                bytes: 3 << 20,
            }),
        ),
        ("cancel", Frame::Cancel(Cancel { file: FILE })),
        (
            "exception-file",
            Frame::Exception(Exception {
                scope: Scope::File(FILE),
                fault,
            }),
        ),
        (
            "exception-channel",
            Frame::Exception(Exception {
                scope: Scope::Channel,
                fault: busy,
            }),
        ),
        (
            "exception-session",
            Frame::Exception(Exception {
                scope: Scope::Session,
                fault: closing,
            }),
        ),
    ]
}

/// Name, file, offset, whether there is a check value, payload.
/// Name, file, offset, how it travels (`None` without a check value), payload.
type Block = (&'static str, FileId, u64, Option<Level>, Vec<u8>);

pub(crate) fn blocks() -> Vec<Block> {
    vec![
        (
            "digits",
            FILE,
            0,
            Some(Level::Private),
            b"123456789".to_vec(),
        ),
        (
            "one-byte-far-away",
            FileId(7),
            1 << 40,
            Some(Level::Private),
            vec![0xff],
        ),
        ("without-check", FILE, 4096, None, b"abc".to_vec()),
        ("zeros", FILE, 1024, Some(Level::Private), vec![0; 32]),
        ("clear", FILE, 0, Some(Level::Clear), b"123456789".to_vec()),
    ]
}
