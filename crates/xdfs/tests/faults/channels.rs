//! Channels that are cut while the transfer goes on.

use xdfs::{Code, Retry};
use xdfs_testkit::proxy::Plan;
use xdfs_testkit::tree::Random;

use crate::scene::{DIGESTS, Scene, WAYS, Way, wait_for_bytes};
use crate::support::finish;

const SIZE: u64 = 32 << 20;

#[test]
fn one_of_four_channels_is_cut() {
    let mut random = Random::new(1);
    for way in WAYS {
        for digest in DIGESTS {
            for round in 0..3 {
                let scene = Scene::new(1, way, SIZE).digest(digest);
                let at = 300_000 + random.below(1 << 20);
                scene.proxy.push_plan(Plan::default());
                scene.proxy.push_plan(scene.plan(|faults| match round {
                    2 => faults.close_after = Some(at),
                    _ => faults.cut_after = Some(at),
                }));
                let result = scene.run(&scene.client(4)).unwrap();
                assert_eq!(result.bytes, SIZE);
                if way == Way::Up {
                    let again = result.retransmitted_bytes;
                    assert!(0 < again && again <= SIZE / 2, "{again} bytes went again");
                }
                scene.arrived();
            }
        }
    }
}

/// The first channel is like any other.
#[test]
fn the_first_channel_is_cut() {
    for way in WAYS {
        let scene = Scene::new(2, way, SIZE);
        scene
            .proxy
            .push_plan(scene.plan(|f| f.cut_after = Some(700_000)));
        assert_eq!(scene.run(&scene.client(3)).unwrap().bytes, SIZE);
        scene.arrived();
    }
}

/// Channel after channel, at moments that have nothing to do with the bytes.
#[test]
fn channels_are_cut_again_and_again() {
    for way in WAYS {
        let scene = Scene::new(3, way, SIZE).rate(24 << 20);
        let client = scene.client(4);
        let mut transfer = scene.start(&client);
        let mut random = Random::new(3);
        let mut cut = 0;
        for step in 1..8 {
            wait_for_bytes(&mut transfer, step * (SIZE / 10));
            let live = scene.proxy.live().len();
            // Never the last one: that would end the session.
            if live > 1 {
                let nth = usize::try_from(random.below(live as u64)).unwrap();
                cut += usize::from(scene.proxy.cut_nth(nth));
            }
        }
        assert!(cut >= 3, "{cut} channels were cut");
        assert_eq!(finish(transfer).unwrap().bytes, SIZE);
        scene.arrived();
        assert!(scene.proxy.accepted() > 4, "no channel was replaced");
    }
}

#[test]
fn all_channels_are_cut() {
    for way in WAYS {
        for digest in DIGESTS {
            let scene = Scene::new(4, way, SIZE).digest(digest).rate(24 << 20);
            let client = scene.client(3);
            let mut transfer = scene.start(&client);
            wait_for_bytes(&mut transfer, SIZE / 2);
            scene.proxy.block_new(true);
            scene.proxy.cut_all();
            let fault = finish(transfer).unwrap_err();
            assert_eq!(fault.code, Code::ConnectionLost, "{fault}");
            assert_ne!(fault.retry, Retry::Never, "{fault}");
            assert!(fault.hint.contains("again"), "{fault:?}");
            scene.unpublished();
            drop(client);
            scene.proxy.block_new(false);
            let result = scene.again(3);
            assert!(result.resumed_bytes >= SIZE / 8, "{way:?}: {result:?}");
            assert_eq!(result.bytes, SIZE);
            scene.arrived();
        }
    }
}
