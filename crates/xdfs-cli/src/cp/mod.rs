//! `xdfs cp`: plans the files, copies them back to back, reports.

mod plan;
mod queue;

use std::time::Duration;

use xdfs::{Fault, TransferOptions};

use crate::flags::CpFlags;
use crate::interrupt::Interrupt;
use crate::report::{Reporter, Run};
use crate::serve::start_log;
use crate::session::Connector;

/// Carries out the command and returns the exit code.
pub(crate) fn run(flags: &CpFlags) -> u8 {
    start_log(flags.output.log_level());
    let planned = plan::plan(flags);
    let bytes = planned.as_ref().ok().and_then(|jobs| {
        jobs.iter()
            .try_fold(0_u64, |sum, job| sum.checked_add(job.bytes?))
    });
    let source = match flags.sources.as_slice() {
        [only] => Some(only.to_string_lossy().into_owned()),
        _ => None,
    };
    let mut reporter = Reporter::new(
        flags.output,
        Run {
            source,
            target: flags.target.to_string_lossy().into_owned(),
            files: flags.sources.len() as u64,
            bytes,
            dry_run: flags.dry_run,
        },
    );
    if let Err(fault) = planned.and_then(|jobs| copy(flags, jobs, &mut reporter)) {
        reporter.failure(None, &fault);
    }
    reporter.finish()
}

/// Copies all files. What happens to a single file is reported, not returned.
///
/// # Errors
/// The run could not begin.
fn copy(flags: &CpFlags, jobs: Vec<plan::Job>, reporter: &mut Reporter) -> Result<(), Fault> {
    let interrupt = Interrupt::install(|| ())?;
    let connector = Connector(flags.session.clone());
    let pause = |time: Duration| {
        let mut left = time;
        while !left.is_zero() && !interrupt.requested() {
            let step = left.min(Duration::from_millis(50));
            std::thread::sleep(step);
            left -= step;
        }
    };
    queue::Queue::new(&connector, transfer_options(flags), &interrupt, &pause).run(jobs, reporter);
    Ok(())
}

fn transfer_options(flags: &CpFlags) -> TransferOptions {
    TransferOptions {
        offset: flags.offset,
        length: flags.length,
        duration: None,
        rate_bytes_per_s_max: flags.limit_rate,
        resume: !flags.no_resume,
        digest: flags.digest.into(),
        overwrite: flags.force,
        dry_run: flags.dry_run,
    }
}
