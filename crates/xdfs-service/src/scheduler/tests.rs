//! The promises of the scheduler, in many situations that follow from a seed.

use super::*;

/// Numbers that follow from a seed.
struct Random(u64);

impl Random {
    fn below(&mut self, limit: u64) -> u64 {
        self.0 = self
            .0
            .wrapping_mul(6_364_136_223_846_793_005)
            .wrapping_add(1);
        (self.0 >> 33) % limit
    }

    fn small(&mut self, limit: u32) -> u32 {
        u32::try_from(self.below(limit.into())).unwrap_or(0)
    }

    fn is(&mut self) -> bool {
        self.below(2) == 0
    }
}

const NOW: i64 = 1_000_000;

fn time(microseconds: i64) -> Time {
    Time::from_microseconds(microseconds)
}

fn id(number: u64) -> JobId {
    let text = format!("00000000-0000-7000-8000-{number:012x}");
    text.parse().unwrap_or_else(|fault| panic!("{fault}"))
}

fn link(number: u64) -> Link {
    let (source, target) = [("", "a"), ("a", ""), ("a", "b"), ("", "b")][number as usize % 4];
    Link {
        source: source.to_owned(),
        target: target.to_owned(),
    }
}

fn owner(number: u64) -> String {
    ["ann", "bob", "cem"][number as usize % 3].to_owned()
}

fn job(number: u64) -> Waiting {
    Waiting {
        id: id(number),
        owner: owner(0),
        link: link(0),
        priority: 0,
        is_large: false,
        not_before: None,
    }
}

fn situation(limit: u32) -> Situation {
    Situation {
        now: time(NOW),
        limits: Limits {
            here: limit,
            all: limit,
            user: limit,
            link: limit,
        },
        links: HashMap::new(),
        outages: HashMap::new(),
        running: Vec::new(),
        waiting: Vec::new(),
    }
}

/// A job that has started.
fn started(job: &Waiting, since: i64) -> Running {
    Running {
        id: job.id,
        owner: job.owner.clone(),
        link: job.link.clone(),
        is_large: job.is_large,
        may_yield: true,
        is_here: true,
        since: time(since),
    }
}

fn any(random: &mut Random) -> Situation {
    let mut made = situation(1);
    made.limits = Limits {
        here: 1 + random.small(6),
        all: 1 + random.small(8),
        user: 1 + random.small(6),
        link: 1 + random.small(5),
    };
    for number in 0..4 {
        if random.below(3) == 0 {
            made.links.insert(link(number), 1 + random.small(5));
        }
    }
    for server in ["a", "b", "a -> b"] {
        if random.below(4) == 0 {
            let outage = Outage {
                try_at: time(NOW - 1 + 2 * i64::from(random.small(2))),
                cause: "it refuses".to_owned(),
            };
            made.outages.insert(server.to_owned(), outage);
        }
    }
    let mut number = 0;
    let mut next = |random: &mut Random| {
        number += 1;
        Waiting {
            owner: owner(random.below(3)),
            link: link(random.below(4)),
            priority: i64::from(random.small(3)) - 1,
            is_large: random.is(),
            not_before: (random.below(6) == 0).then(|| time(NOW + 1)),
            ..job(number)
        }
    };
    for _ in 0..random.below(8) {
        let mut running = started(&next(random), i64::from(random.small(1000)));
        running.may_yield = random.is();
        running.is_here = random.is();
        made.running.push(running);
    }
    for _ in 0..random.below(16) {
        let waiting = next(random);
        made.waiting.push(waiting);
    }
    made
}

/// Each limit with its number, and how many run of it, in all and large ones.
fn usage(situation: &Situation, running: &[Running]) -> BTreeMap<String, (u32, u32, u32)> {
    let mut usage = BTreeMap::new();
    let mut note = |name: String, limit, is_large| {
        let entry: &mut (u32, u32, u32) = usage.entry(name).or_insert((limit, 0, 0));
        entry.1 += 1;
        entry.2 += u32::from(is_large);
    };
    for job in running {
        let limits = situation.limits;
        if job.is_here {
            note("here".to_owned(), limits.here, job.is_large);
        }
        note("all".to_owned(), limits.all, job.is_large);
        note(format!("user {}", job.owner), limits.user, job.is_large);
        let link = situation.links.get(&job.link).copied();
        let link = link.unwrap_or(limits.link).min(limits.link);
        note(format!("link {}", job.link), link, job.is_large);
    }
    usage
}

fn after(situation: &Situation, plan: &Plan) -> Vec<Running> {
    let mut running = situation.running.clone();
    for (id, _) in &plan.start {
        let job = situation.waiting.iter().find(|job| job.id == *id);
        running.push(started(job.unwrap_or_else(|| panic!("it waited")), NOW));
    }
    running
}

fn on_server<'a>(running: &'a [Running], server: &'a str) -> impl Iterator<Item = &'a Running> {
    let names = move |job: &&Running| {
        let both = format!("{} -> {}", job.link.source, job.link.target);
        job.link.source == server || job.link.target == server || both == server
    };
    running.iter().filter(names)
}

#[test]
fn what_is_promised_holds_in_every_situation() {
    let mut seen = BTreeMap::<&str, u32>::new();
    for seed in 0..20_000 {
        let situation = any(&mut Random(seed));
        let plan = situation.plan();
        let running = after(&situation, &plan);
        let (before, used) = (
            usage(&situation, &situation.running),
            usage(&situation, &running),
        );
        // No limit is passed, and the last of several places isn't for large ones.
        for (name, (limit, all, large)) in &used {
            let (_, all_before, large_before) = before.get(name).copied().unwrap_or_default();
            assert!(*all <= (*limit).max(all_before), "{seed} {name}");
            let large_max = if *limit >= 2 { limit - 1 } else { *limit };
            assert!(*large <= large_max.max(large_before), "{seed} {name}");
        }
        // Each job that waits starts or has a reason.
        for job in &situation.waiting {
            let starts = plan.start.iter().any(|(id, _)| *id == job.id);
            assert!(starts != plan.waits.contains_key(&job.id), "{seed}");
        }
        // The reason is true.
        for (id, wait) in &plan.waits {
            let job = situation.waiting.iter().find(|job| job.id == *id).unwrap();
            let kind = match wait {
                Wait::Until(at) => {
                    assert!(*at > situation.now);
                    "until"
                }
                Wait::Down(server, ..) => {
                    assert!(situation.outages[server].try_at > situation.now);
                    "down"
                }
                Wait::Tried(server) => {
                    assert!(on_server(&running, server).count() > 0, "{seed}");
                    "tried"
                }
                Wait::Limit(_, number) | Wait::Kept(_, number) => {
                    let mut full = used.values().filter(|(limit, ..)| limit == number);
                    let is_kept = matches!(wait, Wait::Kept(..));
                    assert!(!is_kept || job.is_large);
                    assert!(
                        full.any(|(limit, all, large)| {
                            all >= limit || is_kept && large + 1 >= *limit
                        }),
                        "{seed} {wait}"
                    );
                    if is_kept { "kept" } else { "limit" }
                }
            };
            *seen.entry(kind).or_default() += 1;
        }
        // A server that is down has one job at most that starts, and none before its time.
        for (server, outage) in &situation.outages {
            let at_once = on_server(&situation.running, server).count();
            let new = on_server(&running, server).count() - at_once;
            let max = usize::from(outage.try_at <= situation.now && at_once == 0);
            assert!(new <= max, "{seed} {server}");
        }
        // One that makes place is large, may do so, and lets a smaller one start.
        if let Some((id, _)) = &plan.makes_place {
            *seen.entry("place").or_default() += 1;
            let index = running.iter().position(|job| job.id == *id).unwrap();
            assert!(
                running[index].is_large && running[index].may_yield,
                "{seed}"
            );
            let mut without = situation.clone();
            without.running = running;
            without.running.remove(index);
            let waiting = without
                .waiting
                .iter()
                .filter(|job| plan.waits.contains_key(&job.id));
            without.waiting = waiting.cloned().collect();
            let next = without.plan();
            let starts = next.start.iter().any(|(id, _)| {
                let job = without.waiting.iter().find(|job| job.id == *id);
                job.is_some_and(|job| !job.is_large)
            });
            assert!(starts, "{seed}");
        }
        // The same situation has the same plan, whatever the order of its rows.
        let mut turned = situation.clone();
        turned.waiting.reverse();
        turned.running.reverse();
        let again = turned.plan();
        assert_eq!(again.start, plan.start, "{seed}");
        assert_eq!(again.waits, plan.waits, "{seed}");
    }
    for kind in ["until", "down", "tried", "limit", "kept", "place"] {
        assert!(
            seen.get(kind).is_some_and(|count| *count > 20),
            "{kind} {seen:?}"
        );
    }
}

#[test]
fn users_have_equal_shares_whoever_has_submitted_more() {
    for seed in 0..200 {
        let mut random = Random(seed);
        let mut situation = situation(12);
        for number in 0..200 {
            // Two have submitted much before the third one.
            let who = if number < 180 { random.below(2) } else { 2 };
            situation.waiting.push(Waiting {
                owner: owner(who),
                ..job(number)
            });
        }
        let plan = situation.plan();
        let running = after(&situation, &plan);
        for who in 0..3 {
            let count = running.iter().filter(|job| job.owner == owner(who));
            assert_eq!(count.count(), 4, "{seed}");
        }
    }
}

#[test]
fn of_one_user_priority_comes_first_and_then_age() {
    let mut situation = situation(3);
    for (number, priority) in [(1, 0), (2, 5), (3, 0), (4, 5)] {
        situation.waiting.push(Waiting {
            priority,
            ..job(number)
        });
    }
    let started: Vec<_> = situation
        .plan()
        .start
        .into_iter()
        .map(|(id, _)| id)
        .collect();
    assert_eq!(started, [id(2), id(4), id(1)]);
}

#[test]
fn a_small_job_waits_for_no_large_one() {
    let mut situation = situation(3);
    // Their size wasn't known when they started.
    for number in 1..=3 {
        let large = Waiting {
            is_large: true,
            ..job(number)
        };
        situation
            .running
            .push(started(&large, i64::try_from(number).unwrap()));
    }
    // No large one makes place for another large one.
    situation.waiting.push(Waiting {
        is_large: true,
        ..job(4)
    });
    assert_eq!(situation.plan().makes_place, None);
    situation.waiting.push(job(5));
    let plan = situation.plan();
    // The one that has begun last loses least.
    assert_eq!(plan.makes_place.map(|(id, _)| id), Some(id(3)));
    situation.running.pop();
    let plan = situation.plan();
    assert_eq!(plan.start.len(), 1);
    assert_eq!(plan.start[0].0, id(5));
    assert!(matches!(plan.waits[&id(4)], Wait::Limit(..)));
    // Once in its life.
    situation.running[1].may_yield = false;
    situation.running[0].may_yield = false;
    assert_eq!(situation.plan().makes_place, None);
}

#[test]
fn a_server_that_is_down_is_tried_by_one_job() {
    let mut situation = situation(8);
    for number in 1..=4 {
        situation.waiting.push(job(number));
    }
    situation.waiting.push(Waiting {
        link: link(3),
        ..job(5)
    });
    let outage = |try_at| Outage {
        try_at: time(try_at),
        cause: "it refuses".to_owned(),
    };
    situation.outages.insert("a".to_owned(), outage(NOW + 1));
    let plan = situation.plan();
    assert_eq!(plan.start.len(), 1);
    assert_eq!(plan.start[0].0, id(5));
    assert!(matches!(&plan.waits[&id(1)], Wait::Down(server, ..) if server == "a"));
    situation.outages.insert("a".to_owned(), outage(NOW));
    let plan = situation.plan();
    let started: Vec<_> = plan.start.iter().map(|(id, _)| *id).collect();
    assert_eq!(started, [id(1), id(5)]);
    assert_eq!(plan.waits[&id(2)], Wait::Tried("a".to_owned()));
}
