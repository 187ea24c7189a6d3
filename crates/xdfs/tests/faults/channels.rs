//! Channels that are cut while the transfer goes on.

use xdfs::{Code, Retry};
use xdfs_testkit::proxy::Plan;
use xdfs_testkit::tree::Random;

use crate::scene::{Way, everywhere, wait_for_bytes};
use crate::support::finish;

const SIZE: u64 = 32 << 20;

#[test]
fn one_of_four_channels_is_cut() {
    everywhere(|case| {
        let mut random = Random::new(1);
        for is_closed in [false, true] {
            let scene = case.scene(1, SIZE);
            let at = 300_000 + random.below(1 << 20);
            scene.line.push_plan(Plan::default());
            scene.line.push_plan(scene.plan(|faults| match is_closed {
                true => faults.close_after = Some(at),
                false => faults.cut_after = Some(at),
            }));
            let result = scene.run(&scene.client(4)).unwrap();
            assert_eq!(result.bytes, SIZE);
            if case.way == Way::Up {
                let again = result.retransmitted_bytes;
                assert!(0 < again && again <= SIZE / 2, "{again} bytes went again");
            }
            scene.arrived();
        }
    });
}

/// The first channel is like any other.
#[test]
fn the_first_channel_is_cut() {
    everywhere(|case| {
        let scene = case.scene(2, SIZE);
        scene
            .line
            .push_plan(scene.plan(|f| f.cut_after = Some(700_000)));
        assert_eq!(scene.run(&scene.client(3)).unwrap().bytes, SIZE);
        scene.arrived();
    });
}

/// Channel after channel, at moments that have nothing to do with the bytes.
#[test]
fn channels_are_cut_again_and_again() {
    everywhere(|case| {
        let scene = case.scene(3, SIZE).rate(24 << 20);
        let client = scene.client(6);
        let mut transfer = scene.start(&client);
        let mut random = Random::new(3);
        let mut cut = 0;
        for step in 1..8 {
            let open = wait_for_bytes(&mut transfer, step * (SIZE / 10));
            let live = scene.line.live().len();
            // Never the last one: that would end the session. Of the living ones some may not be
            // open yet, and of the open ones some may be cut, which the session has not noticed.
            if live > 2 && open > 2 {
                let nth = usize::try_from(random.below(live as u64)).unwrap();
                cut += usize::from(scene.line.cut_nth(nth));
            }
        }
        assert!(cut >= 3, "{cut} channels were cut");
        assert_eq!(finish(transfer).unwrap().bytes, SIZE);
        scene.arrived();
        assert!(scene.line.accepted() > 6, "no channel was replaced");
    });
}

#[test]
fn all_channels_are_cut() {
    everywhere(|case| {
        let scene = case.scene(4, SIZE).rate(24 << 20);
        let client = scene.client(3);
        let mut transfer = scene.start(&client);
        wait_for_bytes(&mut transfer, SIZE / 2);
        scene.line.block_new(true);
        scene.line.cut_all();
        let fault = finish(transfer).unwrap_err();
        assert_eq!(fault.code, Code::ConnectionLost, "{fault}");
        assert_ne!(fault.retry, Retry::Never, "{fault}");
        assert!(fault.hint.contains("again"), "{fault:?}");
        scene.unpublished();
        drop(client);
        scene.line.block_new(false);
        let result = scene.again(3);
        assert!(result.resumed_bytes >= SIZE / 8, "{case:?}: {result:?}");
        assert_eq!(result.bytes, SIZE);
        scene.arrived();
    });
}
