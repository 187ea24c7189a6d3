//! Channels that come and go by order, all of them or none, and very many.

use std::time::Duration;

use xdfs::{
    Code, Limits, LocalPlace, PathClass, PathDecision, TransferOptions, TransferParameters,
};
use xdfs_testkit::proxy::{FaultProxy, Plan};

use crate::scene::{everywhere, wait_for_bytes};
use crate::support::{Folders, Serving, client, download, finish, upload};

const SIZE: u64 = 24 << 20;

#[test]
fn a_strict_start_with_missing_channels() {
    everywhere(|case| {
        let limits = Limits {
            opening_timeout: Duration::from_millis(600),
            ..Limits::default()
        };
        let mut scene = case.scene_with(400, SIZE, |s| s.limits = limits.clone());
        scene.limits = limits;
        // Everything after the second connection is a black hole.
        for _ in 0..2 {
            scene.line.push_plan(Plan::default());
        }
        scene.line.set_plan(Plan::up(|f| f.hang_after = Some(0)));
        let fault = scene.run(&scene.client(4)).unwrap_err();
        assert_eq!(fault.code, Code::DeadlineExceeded, "{fault}");
        assert!(fault.cause.contains("of 4 channels"), "{fault}");
        scene.unpublished();
    });
}

/// The same with an elastic start goes on with those that it has.
#[test]
fn an_elastic_start_with_missing_channels() {
    everywhere(|case| {
        let scene = case.scene(401, SIZE);
        for _ in 0..2 {
            scene.line.push_plan(Plan::default());
        }
        scene.line.set_plan(Plan::up(|f| f.hang_after = Some(0)));
        let client = scene.client_with(|options| options.channels = Some(4));
        let result = scene.run(&client).unwrap();
        assert!(result.channels <= 2, "{result:?}");
        scene.arrived();
    });
}

#[test]
fn channels_leave_and_break_by_order() {
    everywhere(|case| {
        let scene = case.scene(402, SIZE).rate(24 << 20);
        let client = scene.client(4);
        let mut transfer = scene.start(&client);
        wait_for_bytes(&mut transfer, SIZE / 5);
        client.leave_channel();
        wait_for_bytes(&mut transfer, 2 * SIZE / 5);
        client.break_channel();
        wait_for_bytes(&mut transfer, 3 * SIZE / 5);
        client.leave_channel();
        let result = finish(transfer).unwrap();
        assert_eq!((result.bytes, result.channels), (SIZE, 4));
        scene.arrived();
    });
}

#[test]
fn the_only_channel_is_replaced() {
    everywhere(|case| {
        let scene = case.scene(404, SIZE).rate(24 << 20);
        let client = scene.client(1);
        let mut transfer = scene.start(&client);
        for fifth in 1..5 {
            wait_for_bytes(&mut transfer, fifth * SIZE / 5);
            client.leave_channel();
        }
        let result = finish(transfer).unwrap();
        assert_eq!((result.bytes, result.retransmitted_bytes), (SIZE, 0));
        scene.arrived();
    });
}

/// 2000 channels on one session: memory to memory, and a file, both ways.
#[test]
fn two_thousand_channels() {
    const CHANNELS: u32 = 2000;
    const BYTES: u64 = 256 << 20;
    let folders = Folders::new(403);
    let limits = Limits {
        // All of them open at once on a busy machine.
        opening_timeout: Duration::from_secs(60),
        ..Limits::default()
    };
    let server = Serving::start(&folders.root(), |s| s.limits = limits.clone());
    let client = client(server.addr, |options| {
        options.channels = Some(CHANNELS);
        options.strict = true;
        options.limits = limits.clone();
    });
    let memory = TransferOptions {
        length: Some(BYTES),
        ..TransferOptions::default()
    };
    let up = client.upload(&LocalPlace::Memory, b"mem:null", &memory);
    let up = finish(up.unwrap()).unwrap();
    assert_eq!((up.bytes, up.channels), (BYTES, CHANNELS));
    let down = client.download(b"mem:zero", &LocalPlace::Memory, &memory);
    let down = finish(down.unwrap()).unwrap();
    assert_eq!((down.bytes, down.digest), (BYTES, up.digest));
    let source = folders.make_here("source", 64 << 20);
    let options = TransferOptions::default();
    upload(&client, &source, "/file", &options).unwrap();
    crate::support::assert_equal(&source, &folders.there("file"));
    let back = folders.here("back");
    download(&client, "/file", &back, &options).unwrap();
    crate::support::assert_equal(&source, &back);
}

/// The address is that of this machine, and every answer comes from further away.
#[test]
fn behind_a_forwarder_the_path_is_a_long_one() {
    const DELAY: Duration = Duration::from_millis(20);
    let folders = Folders::new(410);
    let server = Serving::start(&folders.root(), |_| {});
    let source = folders.make_here("source", SIZE);
    let forwarder = FaultProxy::new(server.addr).unwrap();
    forwarder.set_plan(Plan::up(|f| f.delay = DELAY).and_down(|f| f.delay = DELAY));
    let options = TransferOptions::default();
    for downloads in [false, true] {
        let client = client(forwarder.addr(), |_| {});
        match downloads {
            false => upload(&client, &source, "/there", &options).unwrap(),
            true => download(&client, "/there", &folders.here("back"), &options).unwrap(),
        };
        let decisions = client.take_path_decisions();
        let is_long = |decision: &PathDecision| {
            matches!(decision, PathDecision::Class { class: PathClass::Long | PathClass::VeryLong,
                round_trip: Some(time) } if *time >= 2 * DELAY)
        };
        assert!(decisions.iter().any(is_long), "{decisions:?}");
    }
}

/// However early a transfer begins: the path is known when the first channel is open. On a machine
/// that is too busy for one answer within 10 ms it looks like one behind a forwarder; such rounds
/// don't count.
#[test]
fn within_one_machine_few_channels_are_picked() {
    let folders = Folders::new(409);
    let server = Serving::start(&folders.root(), |_| {});
    let source = folders.make_here("source", 100 << 20);
    let options = TransferOptions {
        parameters: TransferParameters {
            overwrite: true,
            ..TransferParameters::default()
        },
        ..TransferOptions::default()
    };
    let (mut near, mut rounds) = (0, 0);
    while near < 8 {
        rounds += 1;
        assert!(
            rounds <= 200,
            "{near} of {rounds} rounds found the machine near"
        );
        let client = client(server.addr, |_| {});
        let result = upload(&client, &source, "/there", &options).unwrap();
        let is_far = |decision: &PathDecision| match decision {
            PathDecision::Class { class, .. } => *class != PathClass::Local,
            _ => false,
        };
        if client.take_path_decisions().iter().any(is_far) {
            continue;
        }
        near += 1;
        assert!((1..=4).contains(&result.channels), "{result:?}");
    }
}
