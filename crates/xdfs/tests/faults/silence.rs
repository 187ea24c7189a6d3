//! Channels through which nothing comes any more, or little.

use std::time::Duration;

use xdfs::{Code, Limits, Retry};
use xdfs_testkit::proxy::Plan;

use crate::scene::{Scene, WAYS, everywhere, wait_for_bytes};
use crate::support::finish;

const SIZE: u64 = 32 << 20;

fn limits() -> Limits {
    Limits {
        stall_timeout: Duration::from_millis(400),
        ..Limits::default()
    }
}

#[test]
fn a_black_hole_on_one_channel() {
    everywhere(|case| {
        let mut scene = case.scene_with(200, SIZE, |server| server.limits = limits());
        scene.limits = limits();
        scene.line.push_plan(Plan::default());
        scene
            .line
            .push_plan(scene.plan(|f| f.hang_after = Some(400_000)));
        assert_eq!(scene.run(&scene.client(3)).unwrap().bytes, SIZE);
        scene.arrived();
    });
}

#[test]
fn a_black_hole_on_all_channels() {
    everywhere(|case| {
        let patient_for = |seconds| Limits {
            idle_timeout: Duration::from_secs(seconds),
            opening_timeout: Duration::from_secs(seconds),
            ..limits()
        };
        // The client is the first to find out.
        let mut scene = case.scene_with(201, SIZE, |server| server.limits = patient_for(3));
        scene.limits = patient_for(1);
        let scene = scene.rate(24 << 20);
        let client = scene.client(2);
        let mut transfer = scene.start(&client);
        wait_for_bytes(&mut transfer, SIZE / 4);
        // New channels fall into it too.
        scene
            .line
            .set_plan(Plan::up(|f| f.hang_after = Some(0)).and_down(|f| f.hang_after = Some(0)));
        for id in scene.line.live() {
            scene.line.hang(id);
        }
        let fault = finish(transfer).unwrap_err();
        // If its channels are given up one by one, it is lost with the last one.
        let is_told = matches!(fault.code, Code::DeadlineExceeded | Code::ConnectionLost);
        assert!(is_told && fault.retry != Retry::Never, "{fault}");
        scene.unpublished();
        drop(client);
        scene.line.set_plan(Plan::default());
        assert!(scene.again(2).resumed_bytes > 0);
        scene.arrived();
    });
}

/// A channel that is slow carries less: if it were given its share it would be cut, and what was
/// on it would go again.
#[test]
fn a_slow_channel_carries_less() {
    for way in WAYS {
        let scene = Scene::new(202, way, SIZE);
        scene.line.push_plan(Plan::default());
        scene.line.push_plan(scene.plan(|f| {
            f.rate = Some(2 << 20);
            f.cut_after = Some(SIZE / 5);
        }));
        let client = scene.client_with(|options| {
            options.channels = Some(4);
            options.strict = true;
            options.window = Some(256 << 10);
        });
        let result = scene.run(&client).unwrap();
        // On a busy machine loopback can look like a long path, where what a slow channel would
        // deliver much later is sent on another one too.
        let again = result.retransmitted_bytes;
        assert!(again < SIZE / 16, "{again} bytes were sent again");
        assert_eq!(scene.line.accepted(), 4, "the slow channel was cut");
        scene.arrived();
    }
}
