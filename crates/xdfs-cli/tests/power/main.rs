//! The power is cut, at moments and with losses that follow from a seed: while the program copies
//! to, from and on disks that forget what was not flushed. Afterwards the file system recovers,
//! each name has to have its old content or its new one, and the same command has to end with 0
//! and everything right.
//!
//! `cargo xtask powercut` runs many more rounds of it. What a round is, is told in
//! docs/power-cuts.md.

#![cfg(target_os = "linux")]
#![expect(clippy::unwrap_used, reason = "a step that fails is a failed test")]

mod bench;
mod content;
mod inplace;
mod options;
mod round;
mod scene;
mod stage;
mod work;

use std::process::Command;

use options::{Form, Options};
use xdfs_testkit::powercut::Kind;

/// Set for the copy of this program that has its own namespaces.
const INSIDE: &str = "XDFS_POWERCUT_INSIDE";
/// The arguments of `cargo xtask powercut`.
const ARGUMENTS: &str = "XDFS_POWERCUT";

/// Runs the test `name` again, confined, or `run` if it is that already.
fn confined(name: &str, run: impl FnOnce()) {
    if std::env::var_os(INSIDE).is_some() {
        return run();
    }
    if let Some(obstacle) = xdfs_testkit::powercut::obstacle() {
        return xdfs_testkit::skip::test(obstacle);
    }
    for kind in Kind::ALL.into_iter().filter(|kind| !kind.is_installed()) {
        xdfs_testkit::skip::part(format_args!("there is no mkfs.{}", kind.name()));
    }
    let mut again = Command::new(std::env::current_exe().unwrap());
    again.args(["--exact", name, "--nocapture", "--include-ignored"]);
    again.env(INSIDE, "1");
    let output = xdfs_testkit::powercut::confined(again).and_then(|mut again| {
        if std::env::var_os(ARGUMENTS).is_some() {
            // By hand: lines are seen as they come.
            again.status().map(|status| (status, Vec::new()))
        } else {
            again
                .output()
                .map(|o| (o.status, [o.stdout, o.stderr].concat()))
        }
    });
    let (status, said) = output.unwrap();
    println!("{}", String::from_utf8_lossy(&said));
    assert!(status.success(), "see above");
}

fn rounds(form: Form, rounds: u32) {
    let options = Options {
        forms: vec![form],
        rounds,
        ..Options::default()
    };
    let works = options.works.len();
    assert!(
        rounds as usize >= works,
        "{works} works don't all have their turn"
    );
    assert!(bench::run(&options), "see above");
}

#[test]
fn disks_that_forget() {
    confined("disks_that_forget", || rounds(Form::Disk, 102));
}

#[test]
fn copies_of_a_mounted_image() {
    confined("copies_of_a_mounted_image", || rounds(Form::Loop, 17));
}

#[test]
#[ignore = "run by `cargo xtask powercut`, with its arguments"]
fn by_hand() {
    confined("by_hand", || {
        let arguments = std::env::var(ARGUMENTS).unwrap_or_default();
        let options = match Options::parse(arguments.split_whitespace()) {
            Ok(options) => options,
            Err(error) => panic!("{error}\n\n{}", options::HELP),
        };
        assert!(bench::run(&options), "see above");
    });
}
