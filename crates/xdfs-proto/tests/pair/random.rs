//! Many seeds.

use std::panic::{AssertUnwindSafe, catch_unwind};

use crate::world::{Tally, World};

const SEEDS: u64 = 30_000;

fn number(variable: &str) -> Option<u64> {
    std::env::var(variable).ok()?.parse().ok()
}

#[test]
fn random_schedules_keep_every_promise() {
    if let Some(seed) = number("XDFS_SIM_SEED") {
        println!("{:?}", World::random(seed, true).run());
        return;
    }
    let seeds = number("XDFS_SIM_SEEDS").unwrap_or(SEEDS);
    let mut sum = Tally::default();
    for seed in 0..seeds {
        let run = catch_unwind(AssertUnwindSafe(|| World::random(seed, false).run()));
        let Ok(tally) = run else {
            panic!("seed {seed} fails; run it with XDFS_SIM_SEED={seed}");
        };
        sum.published += tally.published;
        sum.failed += tally.failed;
        sum.sessions += tally.sessions;
        sum.breaks += tally.breaks;
        sum.repeats += tally.repeats;
        sum.resumed += tally.resumed;
        sum.holes += tally.holes;
        sum.discarded += tally.discarded;
        sum.ahead += tally.ahead;
        sum.late += tally.late;
        sum.forgotten += tally.forgotten;
        sum.asked += tally.asked;
        sum.damaged += tally.damaged;
        sum.steps += tally.steps;
    }
    println!("{seeds} seeds: {sum:?}");
    // Schedules in which nothing happens would prove nothing.
    assert!(sum.published as u64 > seeds && sum.failed as u64 > seeds / 20);
    assert!(sum.sessions as u64 > seeds && sum.breaks as u64 > seeds);
    assert!(sum.repeats as u64 > seeds / 2 && sum.resumed > seeds);
    assert!(sum.forgotten > 0 || seeds < SEEDS);
    assert!(sum.damaged as u64 > seeds / 10 && sum.asked > 0);
    assert!(sum.ahead as u64 > seeds / 2);
    assert!(sum.late as u64 > seeds / 100);
    assert!(sum.holes as u64 > seeds / 2 && sum.discarded as u64 > seeds / 20);
}

/// The same seed is the same run, or a printed seed would be of no use.
#[test]
fn a_seed_is_one_schedule() {
    let run = || format!("{:?}", World::random(11, false).run());
    assert_eq!(run(), run());
}
