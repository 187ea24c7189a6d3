//! The opening exchange: round trips, what it refuses, and how it chooses.

use proptest::prelude::*;
use xdfs_proto::opening::{
    Answer, Feature, Hello, OPENING_HEADER_BYTES, SERVICE_PROCESS, VERSION, Welcome,
};
use xdfs_proto::wire::DecodeError;
use xdfs_proto::{Code, Fault, Retry};

fn hello_bytes(hello: &Hello) -> Vec<u8> {
    let mut bytes = Vec::new();
    hello.encode(&mut bytes);
    bytes
}

fn answer_bytes(answer: &Answer) -> Vec<u8> {
    let mut bytes = Vec::new();
    answer.encode(&mut bytes);
    bytes
}

fn feature(id: u16, name: &str, value: &[u8]) -> Feature {
    Feature {
        id,
        name: name.to_owned(),
        value: value.to_vec(),
    }
}

fn features() -> impl Strategy<Value = Vec<Feature>> {
    let value = prop::collection::vec(any::<u8>(), 0..30);
    prop::collection::btree_map(any::<u16>(), ("[!-~]{1,64}", value), 0..20).prop_map(|map| {
        map.into_iter()
            .map(|(id, (name, value))| Feature { id, name, value })
            .collect()
    })
}

fn hello() -> impl Strategy<Value = Hello> {
    (any::<u8>(), 1u8.., any::<u8>(), features()).prop_map(|(service, version_min, m, features)| {
        Hello {
            service,
            version_min,
            version_max: m.max(version_min),
            features,
        }
    })
}

fn answer() -> impl Strategy<Value = Answer> {
    let fault = ("[a-z ]{0,20}", "[a-z ]{0,20}", any::<u32>()).prop_map(|(op, cause, ms)| {
        Fault::new(Code::Busy, op, cause)
            .retry(Retry::AfterMs(ms))
            .remote()
    });
    prop_oneof![
        (1u8.., features())
            .prop_map(|(version, features)| Answer::Welcome(Welcome { version, features })),
        fault.prop_map(Answer::Refused),
    ]
}

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn a_hello_reads_back_as_written(
        hello in hello(),
        rest in prop::collection::vec(any::<u8>(), 0..9),
    ) {
        let bytes = hello_bytes(&hello);
        for len in 0..bytes.len() {
            prop_assert_eq!(Hello::decode(&bytes[..len]), Ok(None));
        }
        let whole = [bytes.as_slice(), &rest].concat();
        prop_assert_eq!(Hello::decode(&whole), Ok(Some((hello, bytes.len()))));
        prop_assert_eq!(Answer::decode(&bytes), Err(DecodeError::BadMagic));
    }

    #[test]
    fn an_answer_reads_back_as_written(
        answer in answer(),
        rest in prop::collection::vec(any::<u8>(), 0..9),
    ) {
        let bytes = answer_bytes(&answer);
        for len in 0..bytes.len() {
            prop_assert_eq!(Answer::decode(&bytes[..len]), Ok(None));
        }
        let whole = [bytes.as_slice(), &rest].concat();
        prop_assert_eq!(Answer::decode(&whole), Ok(Some((answer, bytes.len()))));
    }

    #[test]
    fn damage_never_panics(
        hello in hello(),
        answer in answer(),
        at in any::<prop::sample::Index>(),
        to: u8,
    ) {
        let mut bytes = hello_bytes(&hello);
        let i = at.index(bytes.len());
        bytes[i] = to;
        let _ = Hello::decode(&bytes);
        let mut bytes = answer_bytes(&answer);
        let i = at.index(bytes.len());
        bytes[i] = to;
        let _ = Answer::decode(&bytes);
    }

    #[test]
    fn random_bytes_never_panic(bytes in prop::collection::vec(any::<u8>(), 0..200)) {
        let _ = Hello::decode(&bytes);
        let magic = hello_bytes(&Hello::default());
        let _ = Hello::decode(&[&magic[..8], &bytes].concat());
        let magic = answer_bytes(&Answer::Welcome(Welcome { version: 1, features: vec![] }));
        let _ = Answer::decode(&[&magic[..8], &bytes].concat());
    }
}

#[test]
fn a_wrong_magic_is_found_at_the_first_wrong_byte() {
    for foreign in [
        "GET / HTTP/1.1\r\n",
        "SSH-2.0-x\r\n",
        "\u{16}\u{3}\u{1}",
        "x",
    ] {
        assert_eq!(
            Hello::decode(&foreign.as_bytes()[..1]),
            Err(DecodeError::BadMagic)
        );
    }
    let good = hello_bytes(&Hello::default());
    for i in 0..8 {
        let mut bytes = good[..=i].to_vec();
        assert_eq!(Hello::decode(&bytes), Ok(None));
        bytes[i] ^= 0x20;
        assert_eq!(
            Hello::decode(&bytes),
            Err(DecodeError::BadMagic),
            "byte {i}"
        );
    }
    assert_eq!(DecodeError::BadMagic.fault().code, Code::BadMagic);
}

#[test]
fn a_transport_in_text_mode_is_found() {
    let good = hello_bytes(&Hello::default());
    let mut no_return = good.clone();
    no_return.retain(|b| *b != b'\r');
    assert_eq!(Hello::decode(&no_return), Err(DecodeError::BadMagic));
    let at = good.iter().position(|b| *b == b'\n').unwrap();
    let mut two_returns = good.clone();
    two_returns.insert(at, b'\r');
    assert_eq!(Hello::decode(&two_returns), Err(DecodeError::BadMagic));
    let seven_bits: Vec<u8> = good.iter().map(|b| b & 0x7f).collect();
    assert_eq!(Hello::decode(&seven_bits), Err(DecodeError::BadMagic));
}

#[test]
fn fields_without_a_meaning_are_refused() {
    let good = hello_bytes(&Hello::default());
    assert_eq!(good.len(), OPENING_HEADER_BYTES);
    let hello = |at: usize, to: u8| {
        let mut bytes = good.clone();
        bytes[at] = to;
        Hello::decode(&bytes)
    };
    assert_eq!(
        hello(9, 0),
        Err(DecodeError::Invalid("version range of HELLO"))
    );
    assert_eq!(
        hello(9, 2),
        Err(DecodeError::Invalid("version range of HELLO"))
    );
    assert_eq!(
        hello(11, 1),
        Err(DecodeError::Invalid("reserved field of HELLO"))
    );
    let too_long = DecodeError::TooLarge {
        field: "length of the opening",
        actual: 0x0100_0000,
        limit: 4096,
    };
    assert_eq!(hello(12, 1), Err(too_long));

    let good = answer_bytes(&Answer::Welcome(Welcome {
        version: 1,
        features: vec![],
    }));
    let answer = |at: usize, to: u8| {
        let mut bytes = good.clone();
        bytes[at] = to;
        Answer::decode(&bytes)
    };
    assert_eq!(
        answer(8, 2),
        Err(DecodeError::Invalid("status of the answer"))
    );
    assert_eq!(
        answer(8, 1),
        Err(DecodeError::Invalid("version of the answer"))
    );
    assert_eq!(
        answer(9, 0),
        Err(DecodeError::Invalid("version of the answer"))
    );
    assert_eq!(
        answer(10, 1),
        Err(DecodeError::Invalid("reserved field of the answer"))
    );
}

#[test]
fn features_stand_in_the_order_of_their_numbers() {
    let features = vec![
        feature(9, "b", b""),
        feature(3, "a", b"v"),
        feature(9, "again", b""),
    ];
    let hello = Hello {
        features,
        ..Hello::default()
    };
    let bytes = hello_bytes(&hello);
    let (decoded, _) = Hello::decode(&bytes).unwrap().unwrap();
    assert_eq!(
        decoded.features,
        [feature(3, "a", b"v"), feature(9, "b", b"")]
    );
    // The second number made equal to the first.
    let mut bytes = bytes;
    let second = OPENING_HEADER_BYTES + 2 + 2 + 1 + 2 + 1;
    bytes[second + 1] = 3;
    assert_eq!(
        Hello::decode(&bytes),
        Err(DecodeError::Invalid("order of the features"))
    );
}

#[test]
fn a_list_that_is_too_long_loses_features_and_stays_valid() {
    let features = (0..100).map(|i| feature(i, "f", &[7; 90])).collect();
    let bytes = hello_bytes(&Hello {
        features,
        ..Hello::default()
    });
    let (decoded, taken) = Hello::decode(&bytes).unwrap().unwrap();
    assert_eq!(taken, bytes.len());
    assert_eq!(decoded.features.len(), 4096 / 97);
}

#[test]
fn the_common_features_are_chosen() {
    let offered = vec![feature(1, "one", b"theirs"), feature(2, "two", b"")];
    let hello = Hello {
        features: offered,
        ..Hello::default()
    };
    let known = [feature(1, "one", b"ours"), feature(5, "five", b"")];
    let Answer::Welcome(welcome) = hello.answer(&known) else {
        panic!("refused")
    };
    assert_eq!(welcome.version, VERSION);
    assert_eq!(welcome.features, [feature(1, "one", b"ours")]);
    assert_eq!(hello.check(&welcome), Ok(()));
}

#[test]
fn a_mandatory_feature_that_is_not_known_is_refused_by_name() {
    let hello = Hello {
        features: vec![feature(0x8001, "quantum-lock", b"")],
        ..Hello::default()
    };
    let Answer::Refused(fault) = hello.answer(&[]) else {
        panic!("welcomed")
    };
    assert_eq!(fault.code, Code::FeatureUnsupported);
    assert!(fault.cause.contains("quantum-lock"), "{}", fault.cause);
    assert!(matches!(hello.answer(&hello.features), Answer::Welcome(_)));
}

#[test]
fn versions_without_a_common_one_are_refused_with_both_ranges() {
    let hello = Hello {
        version_min: VERSION + 1,
        version_max: VERSION + 2,
        ..Hello::default()
    };
    let Answer::Refused(fault) = hello.answer(&[]) else {
        panic!("welcomed")
    };
    assert_eq!(fault.code, Code::VersionUnsupported);
    assert!(
        fault.cause.contains("speaks 1 to 1, the peer 2 to 3"),
        "{}",
        fault.cause
    );
    let wider = Hello {
        version_max: 9,
        ..Hello::default()
    };
    assert!(matches!(
        wider.answer(&[]),
        Answer::Welcome(Welcome {
            version: VERSION,
            ..
        })
    ));
}

#[test]
fn a_service_that_is_not_offered_is_refused_by_name() {
    let hello = Hello {
        service: SERVICE_PROCESS,
        ..Hello::default()
    };
    let Answer::Refused(fault) = hello.answer(&[]) else {
        panic!("welcomed")
    };
    assert_eq!(fault.code, Code::FeatureUnsupported);
    assert_eq!(fault.cause, "service not available: remote processes");
}

#[test]
fn a_welcome_that_nobody_asked_for_is_found() {
    let hello = Hello::default();
    let version = hello
        .check(&Welcome {
            version: 2,
            features: vec![],
        })
        .unwrap_err();
    assert_eq!(version.code, Code::ProtocolViolation);
    let features = vec![feature(4, "gift", b"")];
    let extra = hello
        .check(&Welcome {
            version: 1,
            features,
        })
        .unwrap_err();
    assert!(extra.cause.contains("gift"));
}
