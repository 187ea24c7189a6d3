//! The scheduler: which jobs start, which one makes place for a smaller one, and why each other one
//! waits. No input or output, and no clock.
//!
//! A job starts if every limit has a place for it: that in all, of its user, and of its link, which
//! is the pair of servers between which it copies. Of those for which there is a place the first is
//! one of the user with the fewest jobs that run, then the one with the highest priority, then the
//! oldest.
//!
//! The size of a job is known once it has begun. Of two or more places the last one is not for jobs
//! that are known to be large. One that took it before that was known gives it up when a smaller
//! one waits for it, once in its life.
//!
//! A server that is down has no job until its pause is over, and then one.

use std::collections::{BTreeMap, HashMap};
use std::fmt;

use crate::id::JobId;
use crate::time::Time;

/// The two servers of a copy; no name for the machine of the service.
#[derive(Clone, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) struct Link {
    pub(crate) source: String,
    pub(crate) target: String,
}

/// What was carried on a link, since it was stored last.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Carried {
    pub(crate) bytes: u64,
    /// The bytes of the largest transfer that has ended, and the limit of its rate.
    pub(crate) largest: Option<(u64, &'static str)>,
}

impl Link {
    /// The name under which it is noted that it is down: that of its only server, or of both, since
    /// no one knows which of them it is.
    pub(crate) fn outage(&self) -> String {
        match (&*self.source, &*self.target) {
            ("", server) | (server, "") => server.to_owned(),
            (source, target) => format!("{source} -> {target}"),
        }
    }

    /// The names under which it may be noted that it is down.
    pub(crate) fn outages(&self) -> [String; 3] {
        [self.source.clone(), self.target.clone(), self.outage()]
    }
}

impl fmt::Display for Link {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let shown = |server: &str| match server {
            "" => "this machine".to_owned(),
            server => server.to_owned(),
        };
        write!(f, "{} -> {}", shown(&self.source), shown(&self.target))
    }
}

/// A job that waits.
#[derive(Clone, Debug)]
pub(crate) struct Waiting {
    pub(crate) id: JobId,
    pub(crate) owner: String,
    pub(crate) link: Link,
    /// A greater one comes first.
    pub(crate) priority: i64,
    pub(crate) is_large: bool,
    pub(crate) not_before: Option<Time>,
}

/// A job that runs.
#[derive(Clone, Debug)]
pub(crate) struct Running {
    pub(crate) id: JobId,
    pub(crate) owner: String,
    pub(crate) link: Link,
    pub(crate) is_large: bool,
    /// It may be asked to make place: it never was, and isn't stopping.
    pub(crate) may_yield: bool,
    /// This process runs it.
    pub(crate) is_here: bool,
    pub(crate) since: Time,
}

/// A server that is down.
#[derive(Clone, Debug)]
pub(crate) struct Outage {
    /// When it is tried again.
    pub(crate) try_at: Time,
    /// Why it is said to be down.
    pub(crate) cause: String,
}

/// Most jobs that run at the same time.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Limits {
    /// In this process.
    pub(crate) here: u32,
    /// In all processes.
    pub(crate) all: u32,
    pub(crate) user: u32,
    /// Where nothing better is known of a link.
    pub(crate) link: u32,
}

/// What a decision is made from.
#[derive(Clone, Debug)]
pub(crate) struct Situation {
    pub(crate) now: Time,
    pub(crate) limits: Limits,
    /// The limits of links.
    pub(crate) links: HashMap<Link, u32>,
    /// The servers that are down, by their name.
    pub(crate) outages: HashMap<String, Outage>,
    pub(crate) running: Vec<Running>,
    pub(crate) waiting: Vec<Waiting>,
}

/// Why a job waits.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Wait {
    /// It is tried again later.
    Until(Time),
    /// Its server is down until it is tried again.
    Down(String, Time, String),
    /// Its server is down, and another job tries it.
    Tried(String),
    /// A limit is reached: of whom, and its number.
    Limit(String, u32),
    /// A place is left, and kept for a smaller job.
    Kept(String, u32),
}

impl fmt::Display for Wait {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Until(time) => write!(f, "it is not to start before {time}"),
            Self::Down(server, time, cause) => {
                write!(f, "{server} is down and is tried again at {time}: {cause}")
            }
            Self::Tried(server) => write!(f, "{server} is down, and another job tries it"),
            Self::Limit(whose, limit) => write!(f, "{limit} jobs run {whose}, which is the limit"),
            Self::Kept(whose, limit) => write!(
                f,
                "the last of {limit} places {whose} is for jobs that are not large"
            ),
        }
    }
}

/// What is to be done.
#[derive(Clone, Debug, Default)]
pub(crate) struct Plan {
    /// Jobs that start, and why, in their order.
    pub(crate) start: Vec<(JobId, String)>,
    /// A job that makes place for a smaller one, and why.
    pub(crate) makes_place: Option<(JobId, String)>,
    /// Why each other job waits.
    pub(crate) waits: BTreeMap<JobId, Wait>,
}

/// Those that run, of one limit.
#[derive(Clone, Copy, Default)]
struct Count {
    all: u32,
    large: u32,
}

impl Count {
    fn add(&mut self, is_large: bool) {
        self.all += 1;
        self.large += u32::from(is_large);
    }

    fn remove(&mut self, is_large: bool) {
        self.all -= 1;
        self.large -= u32::from(is_large);
    }
}

/// The jobs that run, counted by all that has a limit.
#[derive(Clone, Default)]
struct Counts<'a> {
    here: Count,
    all: Count,
    users: HashMap<&'a str, Count>,
    links: HashMap<&'a Link, Count>,
    servers: HashMap<String, u32>,
}

impl<'a> Counts<'a> {
    fn add(&mut self, is_here: bool, owner: &'a str, link: &'a Link, is_large: bool) {
        if is_here {
            self.here.add(is_large);
        }
        self.all.add(is_large);
        self.users.entry(owner).or_default().add(is_large);
        self.links.entry(link).or_default().add(is_large);
        for name in link.outages() {
            *self.servers.entry(name).or_default() += 1;
        }
    }

    fn remove(&mut self, job: &Running) {
        if job.is_here {
            self.here.remove(job.is_large);
        }
        self.all.remove(job.is_large);
        if let Some(count) = self.users.get_mut(&*job.owner) {
            count.remove(job.is_large);
        }
        if let Some(count) = self.links.get_mut(&job.link) {
            count.remove(job.is_large);
        }
        for name in job.link.outages() {
            if let Some(count) = self.servers.get_mut(&name) {
                *count -= 1;
            }
        }
        self.servers.retain(|_, count| *count > 0);
    }

    fn user(&self, owner: &str) -> Count {
        self.users.get(owner).copied().unwrap_or_default()
    }

    fn link(&self, link: &Link) -> Count {
        self.links.get(link).copied().unwrap_or_default()
    }
}

/// The limit of a link, in words.
fn on(link: &Link) -> String {
    format!("on {link}")
}

impl Situation {
    /// What is to be done.
    pub(crate) fn plan(&self) -> Plan {
        let mut plan = Plan::default();
        let mut counts = Counts::default();
        for job in &self.running {
            counts.add(job.is_here, &job.owner, &job.link, job.is_large);
        }
        let mut waiting: Vec<_> = self.waiting.iter().collect();
        waiting.sort_by_key(|job| (-job.priority, job.id));
        loop {
            // Of equal users the sorted order decides.
            let first = waiting
                .iter()
                .enumerate()
                .filter(|(_, job)| self.wait(job, &counts).is_none())
                .min_by_key(|(_, job)| counts.user(&job.owner).all);
            let Some((index, _)) = first else { break };
            let job = waiting.remove(index);
            let (own, all) = (counts.user(&job.owner).all, counts.all.all);
            let reason = format!(
                "its turn: {own} other jobs of {} run, {all} in all",
                job.owner
            );
            plan.start.push((job.id, reason));
            counts.add(true, &job.owner, &job.link, job.is_large);
        }
        for job in &waiting {
            if let Some(wait) = self.wait(job, &counts) {
                if plan.makes_place.is_none() && !job.is_large {
                    plan.makes_place = self.place_for(job, &wait, &counts);
                }
                plan.waits.insert(job.id, wait);
            }
        }
        plan
    }

    /// Whether the server of a link is known to be down.
    pub(crate) fn is_down(&self, link: &Link) -> bool {
        let mut names = link.outages().into_iter();
        names.any(|name| self.outages.contains_key(&name))
    }

    /// The jobs that run on a link.
    pub(crate) fn running_on(&self, link: &Link) -> u32 {
        let running = self.running.iter().filter(|job| job.link == *link);
        u32::try_from(running.count()).unwrap_or(u32::MAX)
    }

    /// Whether a job waits for a place on a link, and for nothing else.
    pub(crate) fn is_waited_for(&self, link: &Link) -> bool {
        let mut counts = Counts::default();
        for job in &self.running {
            counts.add(job.is_here, &job.owner, &job.link, job.is_large);
        }
        let on_link = on(link);
        let mut waiting = self.waiting.iter().filter(|job| job.link == *link);
        waiting.any(|job| match self.wait(job, &counts) {
            // The limit of the link is looked at last.
            Some(Wait::Limit(whose, _) | Wait::Kept(whose, _)) => whose == on_link,
            Some(_) => false,
            None => true,
        })
    }

    /// The limit of a link.
    fn limit(&self, link: &Link) -> u32 {
        let limit = self.links.get(link).copied();
        limit.unwrap_or(self.limits.link).min(self.limits.link)
    }

    /// The limits that a job has: of whom, the number, and those that run.
    fn limits_of(
        &self,
        owner: &str,
        link: &Link,
        counts: &Counts<'_>,
    ) -> [(String, u32, Count); 4] {
        let limits = self.limits;
        [
            ("in this process".to_owned(), limits.here, counts.here),
            ("in all".to_owned(), limits.all, counts.all),
            (format!("for {owner}"), limits.user, counts.user(owner)),
            (on(link), self.limit(link), counts.link(link)),
        ]
    }

    /// Why a job waits; `None` if it can start.
    fn wait(&self, job: &Waiting, counts: &Counts<'_>) -> Option<Wait> {
        if let Some(time) = job.not_before.filter(|time| *time > self.now) {
            return Some(Wait::Until(time));
        }
        for server in job.link.outages() {
            if let Some(outage) = self.outages.get(&server) {
                if outage.try_at > self.now {
                    return Some(Wait::Down(server, outage.try_at, outage.cause.clone()));
                }
                if counts.servers.contains_key(&server) {
                    return Some(Wait::Tried(server));
                }
            }
        }
        for (whose, limit, count) in self.limits_of(&job.owner, &job.link, counts) {
            if count.all >= limit {
                return Some(Wait::Limit(whose, limit));
            }
            if job.is_large && limit >= 2 && count.large + 1 >= limit {
                return Some(Wait::Kept(whose, limit));
            }
        }
        None
    }

    /// The job that makes place for one that isn't large and waits for this reason.
    fn place_for(
        &self,
        job: &Waiting,
        wait: &Wait,
        counts: &Counts<'_>,
    ) -> Option<(JobId, String)> {
        let Wait::Limit(limit_of, _) = wait else {
            return None;
        };
        // Large jobs have all of its places, so none of them takes the one that becomes free.
        let is_beyond = |other: &Running| {
            let limits = self.limits_of(&other.owner, &other.link, counts);
            limits.iter().any(|(whose, limit, count)| {
                whose == limit_of && *limit >= 2 && count.large >= *limit
            })
        };
        let helps = |other: &&Running| {
            let mut less = counts.clone();
            less.remove(other);
            // One of another process helps nothing in this one, and so on.
            self.wait(job, &less).is_none()
        };
        let candidates = self
            .running
            .iter()
            .filter(|other| other.is_large && other.may_yield && is_beyond(other));
        let chosen = candidates
            .filter(helps)
            .max_by_key(|other| (other.since, other.id))?;
        let reason = format!("it makes place for the smaller job {}", job.id);
        Some((chosen.id, reason))
    }
}

#[cfg(test)]
mod tests;
