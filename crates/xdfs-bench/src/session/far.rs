//! What runs over long paths need besides: their hosts, what the link between them can carry, and
//! runs of two transfers at once.
//!
//! Called by `session`.

use std::{fs, thread};

use super::{Place, Servers, Session, empty_row};
use crate::{
    link::WanLink,
    options::Group,
    plan::{self, Job},
    row::{Row, Run},
    tool::Tool,
    wan::WanHosts,
};

impl Session<'_> {
    /// The hosts of a group; `note` takes what is to be said of their link.
    ///
    /// The error says in one line why there are none.
    pub(super) fn hosts(
        &self,
        group: Group,
        note: &mut impl FnMut(String),
    ) -> Result<WanHosts, String> {
        if let Some(link) = group.link() {
            note(self.ceiling(group, link)?);
        }
        WanHosts::new(group)
    }

    /// What the link of a group can carry and what its emulator could, in a sentence.
    fn ceiling(&self, group: Group, link: WanLink) -> Result<String, String> {
        let hosts = WanHosts::unbounded(group)?;
        let job = plan::ceiling(group, self.options.quick);
        let place = Place {
            base: self.shm.path(),
            work: self.shm.path(),
            far: Some(&hosts),
        };
        let mut row = empty_row(&job);
        let emulator = match self.run_once(&job, 0, place, &mut Servers::new(), &mut row) {
            Ok(run) => format!("{:.0} MB/s", run.rate() * 1e3),
            Err(error) => format!("not measured ({error})"),
        };
        Ok(format!(
            "The payload limit is {:.2} MB/s: the bandwidth without the headers of full packets. \
             What the emulator passes when it slows nothing down: {emulator} ({} streams of \
             iperf3).",
            link.payload_limit() * 1e3,
            plan::FEW_CHANNELS
        ))
    }

    /// Runs a job beside `tool`, which does the same.
    pub(super) fn run_two(
        &self,
        job: &Job,
        tool: Tool,
        repetition: u32,
        place: Place<'_>,
        row: &mut Row,
    ) -> Result<Run, String> {
        let work = place.work.join("beside");
        fs::create_dir_all(&work).map_err(|error| format!("the benchmark itself: {error}"))?;
        let beside = Place {
            work: &work,
            ..place
        };
        let theirs = Job { tool, ..*job };
        let (run, other) = thread::scope(|scope| {
            let other = scope.spawn(|| {
                let (mut servers, mut row) = (Servers::new(), empty_row(&theirs));
                self.run_once(&theirs, repetition, beside, &mut servers, &mut row)
            });
            let run = self.run_once(job, repetition, place, &mut Servers::new(), row);
            (run, other.join())
        });
        let other = other.unwrap_or_else(|panic| std::panic::resume_unwind(panic));
        let other = other.map_err(|error| format!("beside it, {}: {error}", tool.name()))?;
        Ok(run?.beside(&other))
    }
}
