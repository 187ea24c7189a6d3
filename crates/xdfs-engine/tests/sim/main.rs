//! Whole clients and servers in one thread, from one seed: their sessions, acceptor and workers
//! run on a clock that the simulation moves, over a network and on disks that fail, and either side
//! may end at any moment and begin anew.
//!
//! After each run these hold: a file that was told to be complete stands at its target, durable and
//! identical; no other file stands there unless it is identical too; all else that was asked for
//! has been told how it failed; every answer to a call is the one of a model, and what nobody knows
//! of is as before the call or as after it; both sides have ended, within a bounded time, and left
//! nothing open; nobody had work that nobody had woken them for; no range was claimed to be durable
//! that was not; and where nothing went wrong nothing was tried twice.
//!
//! `XDFS_SIM_SEEDS=N` runs N seeds, and `XDFS_SIM_SEED=S` only that one: `cargo xtask sim` does.

#![expect(clippy::unwrap_used, reason = "a run that fails has failed")]

mod log;
mod scenario;
mod setup;
mod transfers;
mod users;

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::atomic::{AtomicU64, Ordering};
use std::thread;

use scenario::{Outcome, run};

/// Seeds of a run of the test.
const SEEDS: u64 = 500;

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

/// Runs a seed; if it fails, says which one it was.
fn checked(seed: u64) -> Result<Outcome, String> {
    let result = catch_unwind(AssertUnwindSafe(|| run(seed)));
    let problem = match result {
        Ok(Ok(outcome)) => return Ok(outcome),
        Ok(Err(problem)) => problem,
        Err(_) => "it panicked".into(),
    };
    let again = format!("cargo xtask sim --seed {seed}");
    Err(format!("seed {seed}: {problem}\nto run it again: {again}"))
}

/// Runs seeds in as many threads as there are processors, which have nothing in common.
fn all(seeds: u64) -> Outcome {
    let next = AtomicU64::new(0);
    let work = || {
        let mut sum = Outcome::default();
        let mut problems = Vec::new();
        loop {
            let seed = next.fetch_add(1, Ordering::Relaxed);
            if seed >= seeds {
                return (sum, problems);
            }
            match checked(seed) {
                Ok(outcome) => sum.add(&outcome),
                Err(problem) => problems.push(problem),
            }
        }
    };
    let threads = thread::available_parallelism().map_or(1, usize::from);
    let mut sum = Outcome::default();
    let mut problems = Vec::new();
    thread::scope(|scope| {
        let workers: Vec<_> = (0..threads).map(|_| scope.spawn(work)).collect();
        for worker in workers {
            let (part, failed) = worker.join().unwrap();
            sum.add(&part);
            problems.extend(failed);
        }
    });
    let count = problems.len();
    assert!(
        problems.is_empty(),
        "{count} of {seeds} seeds fail\n{}",
        problems.join("\n\n")
    );
    sum
}

#[test]
fn every_run_ends_well_or_says_why_not() {
    if let Some(seed) = number("XDFS_SIM_SEED") {
        tracing::subscriber::set_global_default(log::Log).unwrap();
        println!(
            "{:#?}",
            checked(seed).unwrap_or_else(|problem| panic!("{problem}"))
        );
        return;
    }
    let seeds = number("XDFS_SIM_SEEDS").unwrap_or(SEEDS);
    let all = all(seeds);
    println!("{seeds} seeds: {all:#?}");
    if seeds < 100 {
        return;
    }
    // It must not pass because nothing happened.
    assert!(all.calm > 0 && all.recovered > seeds / 4, "{all:?}");
    assert!(all.complete > seeds && all.failed > 0, "{all:?}");
    assert!(all.retries > seeds / 4 && all.sessions > seeds, "{all:?}");
    assert!(all.faults_met() > seeds && all.answers > seeds, "{all:?}");
    assert!(all.faults.len() > 15, "{all:?}");
}

#[test]
fn a_seed_always_does_the_same() {
    for seed in 0..20 {
        let run = || checked(seed).unwrap_or_else(|problem| panic!("{problem}"));
        let (one, other) = (run(), run());
        assert_eq!(
            (one.trace, one.steps),
            (other.trace, other.steps),
            "seed {seed}"
        );
    }
}
