//! Bits that flip on the way: in payload they cost one block, in its header a channel.

use xdfs::Retry;
use xdfs_testkit::proxy::{Flip, Plan};

use crate::scene::{BLOCK, Case, DIGESTS, Scene, TRANSPORTS, Transport, WAYS, Way};

/// Transports that leave it to the session to find out. (With TLS nothing gets so far, and within
/// the memory of a process nothing flips.)
fn unchecked() -> impl Iterator<Item = Transport> + Clone {
    let is_checked =
        |transport: Transport| matches!(transport, Transport::Memory | Transport::Quic);
    TRANSPORTS
        .iter()
        .copied()
        .filter(move |&transport| !is_checked(transport))
}

const SIZE: u64 = 6 << 20;

#[test]
fn a_bit_of_the_payload() {
    for (transport, way) in unchecked().flat_map(|t| WAYS.map(|way| (t, way))) {
        for digest in DIGESTS {
            let case = Case {
                transport,
                way,
                digest,
            };
            let scene = case.scene(100, SIZE);
            let byte = scene.join_bytes() + 24 + 1000;
            scene.line.push_plan(Plan::default());
            scene
                .line
                .push_plan(scene.plan(|f| f.flip = Some(Flip { byte, bit: 3 })));
            let result = scene.run(&scene.client(2)).unwrap();
            if way == Way::Up {
                assert_eq!(result.retransmitted_bytes, BLOCK);
            }
            scene.arrived();
        }
    }
}

/// Every byte of the header of a block, from its kind to its offset: what it says isn't believed.
/// The channel is given up, what it owed goes on others, and the file arrives.
#[test]
fn a_bit_of_a_header() {
    for way in WAYS {
        for (n, transport) in (0..24).zip(unchecked().cycle()) {
            let digest = DIGESTS[0];
            let case = Case {
                transport,
                way,
                digest,
            };
            let scene = case.scene(101, 2 << 20);
            let byte = scene.join_bytes() + n;
            let bit = u8::try_from(n % 8).unwrap();
            scene.line.push_plan(Plan::default());
            scene
                .line
                .push_plan(scene.plan(|f| f.flip = Some(Flip { byte, bit })));
            let result = scene.run(&scene.client(2));
            assert!(result.is_ok(), "{case:?}, byte {n}: {result:?}");
            scene.arrived();
        }
    }
}

/// What comes to a client that downloads on one channel, before the first block: WELCOME with the
/// features `follow-links`, `time-account` and `last-pack`, SESSION-OK, and OFFER with the name of
/// the source.
const OFFERED_BYTES: u64 = (16 + 6 + 12 + 6 + 12 + 6 + 9) + (8 + 28) + (8 + 42 + 2 + 2 + 6);

/// On the only channel nothing can go on. The session ends at once, not by a deadline, with advice
/// to try again; and the next attempt arrives.
#[test]
fn a_bit_of_a_header_on_the_only_channel() {
    for n in [0, 4, 8, 12, 17, 21] {
        let scene = Scene::new(102, Way::Down, 2 << 20);
        let byte = OFFERED_BYTES + (24 + BLOCK) + n;
        scene
            .line
            .push_plan(scene.plan(|f| f.flip = Some(Flip { byte, bit: 5 })));
        let fault = scene.run(&scene.client(1)).unwrap_err();
        assert_ne!(fault.retry, Retry::Never, "{fault:?}");
        assert!(fault.cause.contains("changed on the way"), "{fault:?}");
        scene.unpublished();
        scene.again(1);
        scene.arrived();
    }
}
