//! Many rounds, and what came of them.

use std::collections::BTreeMap;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::time::Instant;

use xdfs_testkit::tree::Random;

use crate::options::{Form, Options};
use crate::round::{Problem, Report, Round};
use crate::scene::Scene;
use crate::work::Work;

/// Paths that are named of a round with many problems of one kind.
const NAMED: usize = 3;

/// Rounds of one work, and how many of them had which problem.
#[derive(Clone, Debug, Default)]
struct Count {
    rounds: u32,
    middle: u32,
    late: u32,
    errors: u32,
    hidden: usize,
    problems: BTreeMap<Problem, u32>,
}

/// Runs all rounds, prints what failed and a table at the end; whether nothing did.
pub(crate) fn run(options: &Options) -> bool {
    let (start, mut failed) = (Instant::now(), 0);
    let mut scene = Scene::new(&options.program);
    let mut counts: BTreeMap<Work, Count> = BTreeMap::new();
    let mut lengths: BTreeMap<(Work, bool), u64> = BTreeMap::new();
    for number in 0..options.rounds {
        let seed = options.seed + u64::from(number);
        let mut random = Random::new(seed);
        // A thing of a list, by chance.
        let mut pick = |length: usize| usize::try_from(random.below(length as u64)).unwrap_or(0);
        let kind = options.kinds[pick(options.kinds.len())];
        let form = options.forms[pick(options.forms.len())];
        // In turn, so that few rounds have all of them.
        let turn = usize::try_from(seed).unwrap_or(0) % options.works.len();
        let work = options.works[turn];
        let length = lengths
            .entry((work, form == Form::Disk))
            .or_insert(options.length);
        let expected = *length;
        let round = Round {
            scene: &mut scene,
            work,
            kind,
            form,
            seed,
            length: expected,
            errors: options.errors,
        };
        let began = Instant::now();
        let report = catch_unwind(AssertUnwindSafe(|| round.run())).unwrap_or_else(|panic| {
            let said = panic.downcast_ref::<String>().cloned().unwrap_or_default();
            Report {
                problems: vec![(Problem::Bench, said)],
                ..Report::default()
            }
        });
        if let Some(seen) = report.length {
            *length = (*length + seen).div_ceil(2);
        }
        failed += u32::from(!report.problems.is_empty());
        if options.verbose || !report.problems.is_empty() {
            let (name, fs, form) = (work.name(), kind.name(), form.name());
            let time = began.elapsed().as_millis();
            // With these arguments the same is tried again.
            println!(
                "--rounds 1 --seed {seed} --work {name} --fs {fs} --form {form} \
                 --length {expected}, {time} ms"
            );
            println!("    {}", report.story.join("; "));
            show(&report);
        }
        if report
            .problems
            .iter()
            .any(|(problem, _)| *problem == Problem::Bench)
        {
            // Whatever is still mounted there.
            drop(std::mem::replace(&mut scene, Scene::new(&options.program)));
        }
        counts.entry(work).or_default().add(&report);
    }
    table(&counts);
    println!(
        "{} rounds in {} s, {failed} of them failed",
        options.rounds,
        start.elapsed().as_secs()
    );
    failed == 0
}

fn show(report: &Report) {
    let mut shown: BTreeMap<Problem, usize> = BTreeMap::new();
    for (problem, what) in &report.problems {
        let count = shown.entry(*problem).or_default();
        *count += 1;
        if *count <= NAMED {
            println!("    {problem:?}: {what}");
        }
    }
    for (problem, count) in shown.into_iter().filter(|(_, count)| *count > NAMED) {
        println!("    {problem:?}: {count} in all");
    }
}

impl Count {
    fn add(&mut self, report: &Report) {
        self.rounds += 1;
        self.middle += report.middle;
        self.late += report.late;
        self.errors += report.errors;
        self.hidden += report.hidden;
        let mut kinds: Vec<Problem> = report.problems.iter().map(|(kind, _)| *kind).collect();
        kinds.sort_unstable();
        kinds.dedup();
        for kind in kinds {
            *self.problems.entry(kind).or_default() += 1;
        }
    }
}

fn table(counts: &BTreeMap<Work, Count>) {
    println!(
        "{:12}{:>8}{:>8}{:>8}{:>8} | {:>8}{:>8}{:>8}{:>8}{:>8}{:>8} | {:>8}",
        "work",
        "rounds",
        "middle",
        "after",
        "errors",
        "torn",
        "claimed",
        "not 0",
        "wrong",
        "attr",
        "bench",
        "hidden"
    );
    for (work, count) in counts {
        let of = |problem| count.problems.get(&problem).copied().unwrap_or(0);
        println!(
            "{:12}{:>8}{:>8}{:>8}{:>8} | {:>8}{:>8}{:>8}{:>8}{:>8}{:>8} | {:>8}",
            work.name(),
            count.rounds,
            count.middle,
            count.late,
            count.errors,
            of(Problem::Torn),
            of(Problem::Claimed),
            of(Problem::Ended),
            of(Problem::Wrong),
            of(Problem::Attributes),
            of(Problem::Bench),
            count.hidden
        );
    }
}
