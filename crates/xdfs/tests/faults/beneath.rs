//! Faults beneath the channels: of the connections that a bundle consists of, and of the datagrams
//! of QUIC. What the transport mends, the session doesn't notice; what it can't, is resumed.

use std::net::SocketAddr;
use std::thread;
use std::time::Duration;

use xdfs::{Address, Code, Retry, TransferResult};
use xdfs_testkit::proxy::{DatagramProxy, FaultProxy, Flip, Plan};
use xdfs_testkit::wait;

use crate::resume::{RATE, SIZE, resumed};
use crate::scene::{Case, DIGESTS, Scene, Transport, WAYS, wait_for_bytes};
use crate::support::{PATIENCE, finish};

fn socket(address: &Address) -> SocketAddr {
    let Address::Host { host, port } = address else {
        panic!("{address:?}")
    };
    SocketAddr::new(host.parse().unwrap(), *port)
}

/// Runs a test both ways at once.
fn both_ways(transport: Transport, seed: u64, test: impl Fn(Scene) + Sync) {
    thread::scope(|scope| {
        for (way, digest) in WAYS.into_iter().zip(DIGESTS) {
            let case = Case {
                transport,
                way,
                digest,
            };
            let test = &test;
            scope.spawn(move || test(case.scene(seed, SIZE).rate(RATE)));
        }
    });
}

/// Runs a test over bundles of three connections each.
fn bundles(seed: u64, test: impl Fn(Scene, FaultProxy) + Sync) {
    both_ways(Transport::Ptcp, seed, |mut scene| {
        let proxy = FaultProxy::new(socket(&scene.address)).unwrap();
        scene.address = proxy.addr().to_string().parse().unwrap();
        test(scene, proxy);
    });
}

fn quic(seed: u64, test: impl Fn(Scene, DatagramProxy) + Sync) {
    both_ways(Transport::Quic, seed, |mut scene| {
        let proxy = DatagramProxy::new(socket(&scene.address)).unwrap();
        scene.address = proxy.addr().to_string().parse().unwrap();
        test(scene, proxy);
    });
}

/// The session lost no channel. Blocks that one of them would deliver late, because its transport
/// needs longer to mend itself than that of another, may have been sent twice.
#[track_caller]
fn unnoticed(scene: &Scene, result: &TransferResult) {
    assert_eq!(result.bytes, SIZE);
    assert_eq!(scene.line.accepted(), 2, "a channel was replaced");
    scene.arrived();
}

/// A path that is gone ends the session, which can be resumed when it is there again.
fn gone(scene: &Scene, block: impl Fn(bool)) {
    let client = scene.client(2);
    let mut transfer = scene.start(&client);
    wait_for_bytes(&mut transfer, SIZE / 2);
    block(true);
    let fault = finish(transfer).unwrap_err();
    assert_eq!(fault.code, Code::ConnectionLost, "{fault}");
    assert_ne!(fault.retry, Retry::Never, "{fault}");
    scene.unpublished();
    drop(client);
    block(false);
    resumed(&scene.again(2));
    scene.arrived();
}

#[test]
fn connections_of_bundles_are_cut_again_and_again() {
    bundles(800, |scene, proxy| {
        let client = scene.client(2);
        let mut transfer = scene.start(&client);
        for step in 1..6 {
            wait_for_bytes(&mut transfer, step * SIZE / 8);
            // Those that were cut before may not be replaced yet.
            let nth = usize::try_from(step).unwrap() % 3;
            assert!(wait::until(PATIENCE, || proxy.cut_nth(nth)));
        }
        unnoticed(&scene, &finish(transfer).unwrap());
        assert!(proxy.accepted() > 2 * 3, "no connection was replaced");
    });
}

#[test]
fn all_connections_of_bundles_are_cut_at_once() {
    bundles(801, |scene, proxy| {
        let client = scene.client(2);
        let mut transfer = scene.start(&client);
        wait_for_bytes(&mut transfer, SIZE / 2);
        assert!(proxy.cut_all() >= 4);
        unnoticed(&scene, &finish(transfer).unwrap());
    });
}

#[test]
fn bundles_without_a_path_are_lost() {
    bundles(802, |scene, proxy| {
        gone(&scene, |is_blocked| {
            proxy.block_new(is_blocked);
            proxy.cut_all();
        });
    });
}

/// In frames the bundle finds it, in the payload of a piece the session does.
#[test]
fn bits_flip_beneath_a_bundle() {
    bundles(803, |scene, proxy| {
        for n in 0..6 {
            let byte = 300_000 + n * 100_003;
            proxy.push_plan(scene.plan(|f| f.flip = Some(Flip { byte, bit: 3 })));
        }
        assert_eq!(scene.run(&scene.client(2)).unwrap().bytes, SIZE);
        scene.arrived();
    });
}

#[test]
fn datagrams_are_lost() {
    quic(810, |scene, proxy| {
        let client = scene.client(2);
        let mut transfer = scene.start(&client);
        wait_for_bytes(&mut transfer, SIZE / 8);
        proxy.lose(20);
        unnoticed(&scene, &finish(transfer).unwrap());
    });
}

#[test]
fn the_address_of_a_client_changes() {
    quic(811, |scene, proxy| {
        let client = scene.client(2);
        let mut transfer = scene.start(&client);
        for step in 1..4 {
            wait_for_bytes(&mut transfer, step * SIZE / 4);
            proxy.rebind();
        }
        unnoticed(&scene, &finish(transfer).unwrap());
    });
}

/// For less time than a connection may be silent.
#[test]
fn a_path_is_gone_for_a_moment() {
    quic(812, |scene, proxy| {
        let client = scene.client(2);
        let mut transfer = scene.start(&client);
        wait_for_bytes(&mut transfer, SIZE / 4);
        proxy.lose(1000);
        thread::sleep(Duration::from_millis(300));
        proxy.lose(0);
        unnoticed(&scene, &finish(transfer).unwrap());
    });
}

#[test]
fn a_path_is_gone() {
    quic(813, |scene, proxy| {
        gone(&scene, |is_blocked| {
            proxy.lose(1000 * u64::from(is_blocked))
        });
    });
}

/// As if the server were killed: another one, which knows of no connection, has its address.
#[test]
fn a_server_forgets_its_connections() {
    quic(814, |mut scene, proxy| {
        let client = scene.client(2);
        let mut transfer = scene.start(&client);
        wait_for_bytes(&mut transfer, SIZE / 2);
        let door = scene.address.clone();
        proxy.lose(1000);
        scene.serve_again();
        proxy.set_target(socket(&scene.address));
        scene.address = door;
        proxy.lose(0);
        let fault = finish(transfer).unwrap_err();
        assert_ne!(fault.retry, Retry::Never, "{fault}");
        scene.unpublished();
        drop(client);
        resumed(&scene.again(2));
        scene.arrived();
    });
}

/// A bundle of which one connection lets nothing through any more goes on by the others.
#[test]
fn a_connection_of_a_bundle_hangs() {
    bundles(804, |scene, proxy| {
        proxy.push_plan(Plan::default());
        proxy.push_plan(scene.plan(|f| f.hang_after = Some(400_000)));
        unnoticed(&scene, &scene.run(&scene.client(2)).unwrap());
    });
}
