//! Transfers that end early and go on later.

use std::time::Duration;

use xdfs::{Code, Resume, TransferResult};

use crate::scene::{DIGESTS, Scene, Way, everywhere, wait_for_bytes};
use crate::support::finish;

pub(crate) const SIZE: u64 = 24 << 20;
pub(crate) const RATE: u64 = 24 << 20;

/// Cancels a transfer in the middle.
pub(crate) fn interrupted(scene: &Scene) {
    let client = scene.client(2);
    let mut transfer = scene.start(&client);
    wait_for_bytes(&mut transfer, SIZE / 2);
    transfer.cancel();
    let fault = finish(transfer).unwrap_err();
    assert_eq!(fault.code, Code::Cancelled, "{fault}");
    scene.unpublished();
}

#[track_caller]
pub(crate) fn resumed(result: &TransferResult) {
    assert!(result.resumed_bytes >= SIZE / 8, "{result:?}");
    assert!(result.resumed_bytes < SIZE, "{result:?}");
    assert_eq!(result.bytes, SIZE);
}

#[test]
fn after_a_cancel() {
    everywhere(|case| {
        let scene = case.scene(300, SIZE).rate(RATE);
        interrupted(&scene);
        resumed(&scene.again(2));
        scene.arrived();
    });
}

#[test]
fn with_another_number_of_channels() {
    everywhere(|case| {
        let scene = case.scene(301, SIZE).rate(RATE);
        interrupted(&scene);
        resumed(&scene.again(7));
        scene.arrived();
    });
}

/// What is durable isn't sent again: the bytes on the wire tell.
#[test]
fn sends_only_what_is_missing() {
    everywhere(|case| {
        let scene = case.scene(302, SIZE).rate(RATE);
        interrupted(&scene);
        let before = scene.line.forwarded();
        let result = scene.again(2);
        let after = scene.line.forwarded();
        let (up, down) = (after.0 - before.0, after.1 - before.1);
        let sent = if case.way == Way::Up { up } else { down };
        let missing = SIZE - result.resumed_bytes;
        assert!(sent < missing + (1 << 20), "{sent} bytes for {missing}");
        scene.arrived();
    });
}

#[test]
fn a_changed_source_starts_over() {
    everywhere(|case| {
        let scene = case.scene(303, SIZE).rate(RATE);
        interrupted(&scene);
        // Another version of the same length.
        let mut content = std::fs::read(&scene.source).unwrap();
        content[5] ^= 1;
        std::fs::write(&scene.source, content).unwrap();
        assert_eq!(scene.again(2).resumed_bytes, 0);
        scene.arrived();
    });
}

#[test]
fn another_digest_or_no_resume_starts_over() {
    everywhere(|case| {
        let mut scene = case.scene(304, SIZE).rate(RATE);
        interrupted(&scene);
        scene.options.parameters.resume = Resume::Never;
        assert_eq!(scene.again(2).resumed_bytes, 0);
        scene.arrived();
        std::fs::remove_file(&scene.target).unwrap();
        scene.options.parameters.resume = Resume::Trust;
        interrupted(&scene);
        let [crc, blake] = DIGESTS;
        let scene = scene.digest(if case.digest == crc { blake } else { crc });
        assert_eq!(scene.again(2).resumed_bytes, 0);
        scene.arrived();
    });
}

/// Another part of the same source is another source.
#[test]
fn another_part_starts_over() {
    everywhere(|case| {
        let mut scene = case.scene(305, SIZE).rate(RATE);
        interrupted(&scene);
        scene.options.offset = 1;
        let result = scene.again(2);
        assert_eq!((result.resumed_bytes, result.bytes), (0, SIZE - 1));
        let whole = std::fs::read(&scene.source).unwrap();
        assert!(std::fs::read(&scene.target).unwrap() == whole[1..]);
    });
}

/// Of the same length and version, and from another offset.
#[test]
fn another_part_of_the_same_length_starts_over() {
    const LENGTH: u64 = SIZE / 2;
    everywhere(|case| {
        let mut scene = case.scene(308, SIZE).rate(RATE / 2);
        scene.options.length = Some(LENGTH);
        let client = scene.client(2);
        let mut transfer = scene.start(&client);
        wait_for_bytes(&mut transfer, LENGTH / 2);
        transfer.cancel();
        finish(transfer).unwrap_err();
        drop(client);
        scene.options.offset = 1 << 20;
        let result = scene.again(2);
        assert_eq!((result.resumed_bytes, result.bytes), (0, LENGTH));
        let whole = std::fs::read(&scene.source).unwrap();
        let part = &whole[1 << 20..(1 << 20) + LENGTH as usize];
        assert!(std::fs::read(&scene.target).unwrap() == part);
    });
}

#[test]
fn after_the_server_was_stopped() {
    everywhere(|case| {
        let mut scene = case
            .scene_with(306, SIZE, |s| s.grace = Duration::ZERO)
            .rate(RATE);
        let client = scene.client(2);
        let mut transfer = scene.start(&client);
        wait_for_bytes(&mut transfer, SIZE / 2);
        scene.server.stop();
        let fault = finish(transfer).unwrap_err();
        assert!(
            matches!(fault.code, Code::ShuttingDown | Code::ConnectionLost),
            "{fault}"
        );
        assert_ne!(fault.retry, xdfs::Retry::Never, "{fault}");
        scene.unpublished();
        drop(client);
        scene.serve_again();
        resumed(&scene.again(2));
        scene.arrived();
    });
}

/// A server that is asked to end lets what runs go on for its time of grace.
#[test]
fn a_draining_server_lets_it_end() {
    everywhere(|case| {
        let mut scene = case.scene(307, SIZE).rate(RATE);
        let client = scene.client(2);
        let mut transfer = scene.start(&client);
        wait_for_bytes(&mut transfer, SIZE / 4);
        scene.server.handle.shutdown();
        let late = scene.start(&client);
        assert_eq!(finish(transfer).unwrap().bytes, SIZE);
        let fault = finish(late).unwrap_err();
        // Which of the two it meets first is a matter of time.
        assert!(
            matches!(
                fault.code,
                Code::ShuttingDown | Code::ConnectionLost | Code::Busy | Code::AlreadyExists
            ),
            "{fault}"
        );
        drop(client);
        scene.server.stop();
        scene.arrived();
    });
}
