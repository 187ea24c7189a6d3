//! Bits that flip on the way: in payload they cost one block, in a header the session.

use std::time::Duration;

use xdfs::Limits;
use xdfs_testkit::proxy::{Flip, Plan};

use crate::scene::{BLOCK, DIGESTS, Scene, WAYS, Way};

const SIZE: u64 = 6 << 20;

#[test]
fn a_bit_of_the_payload() {
    for way in WAYS {
        for digest in DIGESTS {
            let scene = Scene::new(100, way, SIZE).digest(digest);
            let byte = scene.join_bytes() + 24 + 1000;
            scene.proxy.push_plan(Plan::default());
            scene
                .proxy
                .push_plan(scene.plan(|f| f.flip = Some(Flip { byte, bit: 3 })));
            let result = scene.run(&scene.client(2)).unwrap();
            if way == Way::Up {
                assert_eq!(result.retransmitted_bytes, BLOCK);
            }
            scene.arrived();
        }
    }
}

/// Every byte of the header of a block: it never hangs, never publishes other bytes, and the next
/// attempt is clean.
#[test]
fn a_bit_of_a_header() {
    for way in WAYS {
        for n in 0..24 {
            let limits = Limits {
                idle_timeout: Duration::from_secs(1),
                stall_timeout: Duration::from_millis(400),
                ..Limits::default()
            };
            let mut scene = Scene::with(101, way, SIZE, |server| server.limits = limits.clone());
            scene.limits = limits;
            let byte = scene.join_bytes() + n;
            // A bit that makes a plausible value: another block for an offset, another length.
            let bit = match n {
                4..8 | 16..24 => u8::try_from(n % 8).unwrap(),
                _ => 6,
            };
            scene.proxy.push_plan(Plan::default());
            scene
                .proxy
                .push_plan(scene.plan(|f| f.flip = Some(Flip { byte, bit })));
            match scene.run(&scene.client(2)) {
                // Where it is the check value that flips, the block goes again.
                Ok(_) => scene.arrived(),
                Err(fault) => {
                    assert!(!fault.cause.is_empty(), "{fault:?}");
                    scene.unpublished();
                    scene.again(2);
                    scene.arrived();
                }
            }
        }
    }
}
