//! Power cuts while a spool is written.

use std::path::Path;
use std::process::Command;
use std::time::Duration;

use xdfs_testkit::powercut::{Disks, Image, Kind, Plan, Volume, confined, obstacle};
use xdfs_testkit::{skip, wait};

use crate::killed::{Process, Said};
use crate::scene::open;

const PATIENCE: Duration = Duration::from_secs(120);
const ROUNDS: &str = "XDFS_TEST_ROUNDS";

#[test]
fn what_was_promised_survives_a_power_cut() {
    if let Some(obstacle) = obstacle() {
        return skip::test(obstacle);
    }
    let mut command = Command::new(std::env::current_exe().unwrap());
    command.args(["power::act_confined", "--exact", "--ignored", "--nocapture"]);
    let output = confined(command).unwrap().output().unwrap();
    let text = String::from_utf8_lossy(&output.stdout);
    let errors = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{text}{errors}");
    assert!(text.contains("promises kept"), "{text}{errors}");
}

#[test]
#[ignore = "a part of the other test, in namespaces of its own"]
fn act_confined() {
    let folder = tempfile::tempdir().unwrap();
    let at = |name: &str| folder.path().join(name);
    for name in ["disks", "hot", "cold"] {
        std::fs::create_dir(at(name)).unwrap();
    }
    let disks = Disks::mount(&at("disks")).unwrap();
    let rounds = std::env::var(ROUNDS).map_or(8, |rounds| rounds.parse().unwrap());
    let kind = Kind::ALL.into_iter().find(|kind| kind.is_installed());
    let kind = kind.unwrap();
    kind.format(&at("image")).unwrap();
    let image = Image::load(&at("image")).unwrap();
    let mut promises = 0;
    for seed in 0..rounds {
        let disk = disks.add(&image, kind.superblocks());
        let volume = Volume::mount(kind, disk.path(), &at("hot")).unwrap();
        disk.begin(Plan {
            seed,
            cut_at: Some(40 + seed * 61 % 900),
            ..Plan::default()
        });
        let mut process = Process::start(&at("hot").join("spool"), 0);
        let is_over = || disk.is_cut() || process.child.try_wait().unwrap().is_some();
        assert!(wait::until(PATIENCE, is_over));
        disk.cut();
        process.kill();
        let after = disk.image();
        disk.release();
        let said = process.end();
        // What its system does from here on is on no disk any more.
        drop(volume);
        drop(disk);
        promises += said.count();
        check(&disks, &after, kind, &at("cold"), &said);
    }
    assert!(promises > 0);
    println!("{promises} promises kept");
}

fn check(disks: &Disks, image: &Image, kind: Kind, at: &Path, said: &Said) {
    let disk = disks.add(image, kind.superblocks());
    let volume = Volume::mount(kind, disk.path(), at).unwrap();
    let dir = at.join("spool");
    if said.count() > 0 {
        said.check(&open(&dir));
        // Once more, after what the first start has removed.
        said.check(&open(&dir));
    }
    volume.unmount().unwrap();
}
