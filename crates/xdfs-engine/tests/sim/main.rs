//! Whole clients and servers in one thread, from one seed: their sessions, acceptor and workers
//! run on a clock that the simulation moves, over a network and on disks that fail.
//!
//! After each run these hold: a file that was told to be complete stands at its target, durable and
//! identical; no other file stands there unless it is identical too; all else that was asked for
//! has been told how it failed; both sides have ended, within a bounded number of steps; no range
//! was claimed to be durable that was not; and where nothing went wrong no file was tried twice.
//!
//! `XDFS_SIM_SEEDS=N` runs N seeds, and `XDFS_SIM_SEED=S` only that one.

#![expect(clippy::unwrap_used, reason = "a run that fails has failed")]

mod network;
mod random;
mod scenario;
mod store;
mod world;

use std::panic::{AssertUnwindSafe, catch_unwind};

use scenario::{Outcome, run};

/// Seeds of a run of the test.
const SEEDS: u64 = 300;

fn number(name: &str) -> Option<u64> {
    let text = std::env::var(name).ok()?;
    Some(
        text.parse()
            .unwrap_or_else(|_| panic!("{name} is no number")),
    )
}

/// Whether one run is looked at, and tells what happens in it.
fn shows_one() -> bool {
    std::env::var_os("XDFS_SIM_SEED").is_some()
}

/// Runs a seed, and says which one it was if it fails.
fn checked(seed: u64) -> Outcome {
    let result = catch_unwind(AssertUnwindSafe(|| run(seed)));
    let problem = match result {
        Ok(Ok(outcome)) => return outcome,
        Ok(Err(problem)) => problem,
        Err(_) => "it panicked".into(),
    };
    let again = format!("XDFS_SIM_SEED={seed} cargo test -p xdfs-engine --test sim");
    panic!("seed {seed}: {problem}\nto run it again: {again}");
}

#[test]
fn every_run_ends_well_or_says_why_not() {
    if let Some(seed) = number("XDFS_SIM_SEED") {
        println!("{:?}", checked(seed));
        return;
    }
    let seeds = number("XDFS_SIM_SEEDS").unwrap_or(SEEDS);
    let mut all = Outcome::default();
    for seed in 0..seeds {
        all.add(&checked(seed));
    }
    println!("{seeds} seeds: {all:?}");
    // It must not pass because nothing happened.
    assert!(all.calm > 0, "{all:?}");
    assert!(all.complete > seeds, "{all:?}");
    assert!(all.failed > 0 && all.retries > seeds / 4, "{all:?}");
    assert!(
        all.faults_met > seeds / 2 && all.sessions > seeds,
        "{all:?}"
    );
}

#[test]
fn a_seed_always_does_the_same() {
    for seed in 0..20 {
        let (one, other) = (checked(seed), checked(seed));
        assert_eq!(
            (one.trace, one.steps),
            (other.trace, other.steps),
            "seed {seed}"
        );
    }
}
