//! Many channels, broken ones, and ends that are no ends.

use std::fs;
use std::path::PathBuf;

use xdfs::security::Credential;
use xdfs::{Code, Fault, LocalPlace, Transfer, TransferResult};
use xdfs_testkit::proxy::{FaultProxy, Plan};
use xdfs_testkit::wait;

use crate::world::{PATIENCE, Visit, World, assert_same, finish, wait_for_bytes};

const SIZE: usize = 24 << 20;
const RATE: u64 = 24 << 20;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Way {
    Up,
    Down,
}

const WAYS: [Way; 2] = [Way::Up, Way::Down];

/// A file that goes through a proxy, one way or the other.
struct Scene {
    world: World,
    proxy: FaultProxy,
    key: Credential,
    way: Way,
    source: PathBuf,
    target: PathBuf,
}

impl Scene {
    fn new(way: Way) -> Self {
        let world = World::new();
        let mut source = world.source(SIZE);
        let mut target = world.path("root/target");
        if way == Way::Down {
            let there = world.path("root/source");
            fs::rename(source, &there).unwrap();
            (source, target) = (there, world.path("client/target"));
        }
        Self {
            proxy: FaultProxy::new(world.addr).unwrap(),
            key: world.owner_key(),
            world,
            way,
            source,
            target,
        }
    }

    fn visit(&self, channels: u32) -> Visit {
        let mut visit = self.world.visit("", vec![self.key.clone()]);
        visit.options.block_size = Some(256 << 10);
        visit.at(self.proxy.addr()).rate(RATE).channels(channels)
    }

    fn start(&self, client: &xdfs::Client, visit: &Visit) -> Result<Transfer, Fault> {
        let local = |path: &PathBuf| LocalPlace::Path(path.clone());
        match self.way {
            Way::Up => client.upload(&local(&self.source), b"/target", &visit.transfer()),
            Way::Down => client.download(b"/source", &local(&self.target), &visit.transfer()),
        }
    }

    fn run(&self, visit: &Visit) -> Result<TransferResult, Fault> {
        let client = visit.connect()?;
        finish(self.start(&client, visit)?)
    }

    /// A further attempt: what was durable isn't sent again, and the content is right.
    fn go_on(&self, channels: u32) {
        assert!(!self.target.exists(), "an unfinished file was published");
        let visit = self.visit(channels);
        let mut result = self.run(&visit);
        // Until the other end has noticed, the target is taken.
        let free = wait::until(PATIENCE, || {
            let is_taken = result.as_ref().is_err_and(|fault| fault.code == Code::Busy);
            if is_taken {
                result = self.run(&visit);
            }
            !is_taken
        });
        assert!(free);
        let result = result.unwrap();
        assert!(result.resumed_bytes > 0, "{result:?}");
        assert_eq!(result.bytes, SIZE as u64);
        assert_same(&self.source, &self.target);
    }
}

/// Both an end without close_notify and a reset.
#[test]
fn the_only_channel_ends_in_the_middle() {
    for way in WAYS {
        for is_reset in [false, true] {
            let scene = Scene::new(way);
            let faults = |faults: &mut xdfs_testkit::proxy::Faults| {
                let at = Some(SIZE as u64 / 2);
                if is_reset {
                    faults.cut_after = at;
                } else {
                    faults.close_after = at;
                }
            };
            scene.proxy.push_plan(match way {
                Way::Up => Plan::up(faults),
                Way::Down => Plan::down(faults),
            });
            let fault = scene.run(&scene.visit(1)).unwrap_err();
            assert_eq!(fault.code, Code::ConnectionLost, "{way:?}: {fault}");
            scene.go_on(1);
        }
    }
}

#[test]
fn all_channels_end_in_the_middle() {
    for way in WAYS {
        let scene = Scene::new(way);
        let visit = scene.visit(4);
        let client = visit.connect().unwrap();
        let mut transfer = scene.start(&client, &visit).unwrap();
        wait_for_bytes(&mut transfer, SIZE as u64 / 2);
        scene.proxy.block_new(true);
        assert!(scene.proxy.cut_all() > 0);
        let fault = finish(transfer).unwrap_err();
        assert_eq!(fault.code, Code::ConnectionLost, "{way:?}: {fault}");
        drop(client);
        scene.proxy.block_new(false);
        scene.go_on(4);
    }
}

/// The end of a channel is cut off when everything of it was sent: nothing is taken for complete
/// that isn't.
#[test]
fn the_last_bytes_are_cut_off() {
    let mut causes = Vec::new();
    for missing in [1, 30, 300_000] {
        let scene = Scene::new(Way::Down);
        let at = Some(SIZE as u64 - missing);
        scene
            .proxy
            .push_plan(Plan::down(|faults| faults.close_after = at));
        let fault = scene.run(&scene.visit(1)).unwrap_err();
        assert_eq!(fault.code, Code::ConnectionLost, "{fault}");
        causes.push(fault.cause);
        scene.go_on(1);
    }
    // An end that could be faked is told from one that can't. (An acknowledgement that meets the
    // closed connection first may give another cause.)
    let is_told = causes.iter().any(|cause| cause.contains("close_notify"));
    assert!(is_told, "{causes:?}");
}

#[test]
fn eight_and_two_hundred_channels() {
    for (way, channels) in [
        (Way::Up, 8),
        (Way::Down, 8),
        (Way::Up, 200),
        (Way::Down, 200),
    ] {
        let scene = Scene::new(way);
        let mut visit = scene.visit(channels).at(scene.world.addr);
        visit.options.strict = true;
        visit.rate = None;
        let result = scene.run(&visit).unwrap();
        assert_eq!(result.channels, channels);
        assert_same(&scene.source, &scene.target);
    }
}

#[test]
fn broken_channels_are_replaced() {
    for way in WAYS {
        let scene = Scene::new(way);
        let mut visit = scene.visit(8);
        visit.options.strict = true;
        let client = visit.connect().unwrap();
        let mut transfer = scene.start(&client, &visit).unwrap();
        for step in 1..5 {
            wait_for_bytes(&mut transfer, step * SIZE as u64 / 8);
            // The first one, too.
            assert!(scene.proxy.cut_nth(0));
        }
        finish(transfer).unwrap();
        assert_same(&scene.source, &scene.target);
        let accepted = scene.proxy.accepted();
        assert!(accepted > 8, "{accepted} channels in all");
    }
}

/// A byte that is changed on the way breaks its channel, and never gets into the file.
#[test]
fn changed_bytes_break_their_channel() {
    for way in WAYS {
        let scene = Scene::new(way);
        let flip = |faults: &mut xdfs_testkit::proxy::Faults| {
            let byte = 1_000_000;
            faults.flip = Some(xdfs_testkit::proxy::Flip { byte, bit: 3 });
        };
        scene.proxy.push_plan(Plan::default());
        scene.proxy.push_plan(match way {
            Way::Up => Plan::up(flip),
            Way::Down => Plan::down(flip),
        });
        let mut visit = scene.visit(4);
        visit.options.strict = true;
        scene.run(&visit).unwrap();
        assert_same(&scene.source, &scene.target);
        assert!(scene.proxy.accepted() > 4, "no channel broke");
    }
}
