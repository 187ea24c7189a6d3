//! `xdfs cp`: plans the files, copies them back to back, reports.

mod chosen;
pub(crate) mod detached;
mod expand;
mod list;
pub(crate) mod origins;
mod pairs;
mod plan;
mod queue;
mod removal;
mod several;
mod striped;
mod tree;
mod via;

use std::path::Path;

use xdfs::settings::ClientConfig;
use xdfs::{Code, Fault, Filter, RetryPolicy, TransferOptions, TransferParameters};

use crate::context::Context;
use crate::flags::CpFlags;
use crate::interrupt::Interrupt;
use crate::log::start_log;
use crate::place::shown;
use crate::report::{Label, Reporter, Run};
use crate::session::{Connector, check_stripes};
use origins::Origins;
use plan::{Groups, PlannedCopy};

/// Runs the command and returns the exit code.
pub(crate) fn run(context: &Context, flags: &CpFlags) -> u8 {
    start_log(flags.output.log_level());
    let words = flags.places.sources.iter().chain([&flags.places.target]);
    let connector = connector(context, flags).for_words(words);
    if let Some((relay, next)) = flags.servers.via.via.split_first() {
        return via::run(context, flags, (relay, next));
    }
    if let Some(list) = &flags.from_file {
        return run_list(&connector, context, flags, list);
    }
    let mut expanded = flags.clone();
    let several = several::take(&mut expanded);
    let files = several.as_deref().unwrap_or_default();
    let connector = several::connector(connector, &expanded, files);
    let words = (&flags.places.sources[..], &*flags.places.target);
    let is_tree = flags.recursive || flags.archive || flags.files_from.is_some();
    let sources = check_stripes(context, &flags.stripe, words);
    let sources = sources.and_then(|()| expand::expand_sources(&connector, &mut expanded));
    let count = expanded.places.sources.len() + files.len();
    let many = count > 1;
    let sources = sources.and_then(|()| chosen::leave_out_files(&connector, &mut expanded));
    let striped = match &sources {
        Ok(()) if !is_tree => striped::take(&connector, &mut expanded),
        _ => Ok(Vec::new()),
    };
    let target = match &sources {
        Ok(()) if !is_tree => striped::target(&connector, &expanded),
        _ => Ok(None),
    };
    let several = several.and_then(|several| {
        let is_target_striped = matches!(&target, Ok(Some(_)));
        several::joined(several, striped?, is_target_striped)
    });
    let several = target.and_then(|target| Ok((several?, target)));
    let (connector, several) = match several {
        Ok((files, target)) if connector.several().is_none() => {
            (several::sending(connector, &files, target), Ok(files))
        }
        Ok((files, _)) => (connector, Ok(files)),
        Err(fault) => (connector, Err(fault)),
    };
    let flags = &expanded;
    if is_tree {
        let sources = several.and(sources);
        return run_trees(&connector.with_groups(), context, flags, many, sources);
    }
    let origins = Origins::new(&connector, flags.servers.between.into());
    let planned = several.and_then(|several| {
        sources?;
        let places = connector.several().into_iter().flat_map(|own| own.places());
        let several: Vec<_> = several.iter().zip(places).collect();
        let target = connector.several().and_then(|own| own.target());
        let groups = target.map_or(Groups::None, Groups::Target);
        let config = context.config()?;
        plan::plan(config, flags, (many, &several), &groups, &origins)
    });
    let bytes = planned.as_ref().ok().and_then(|jobs| {
        jobs.iter()
            .try_fold(0_u64, |sum, job| sum.checked_add(job.bytes?))
    });
    let source = match planned.as_deref() {
        Ok([only]) => Some(only.label.source.clone()),
        Ok(_) => None,
        Err(_) => flags
            .places
            .sources
            .first()
            .filter(|_| !many)
            .map(|word| shown(word)),
    };
    let mut reporter = Reporter::new(
        flags.output,
        Run {
            source,
            target: shown(&flags.places.target),
            files: count as u64,
            bytes,
            dry_run: flags.dry_run,
            stats: flags.stats,
            ..Run::default()
        },
    );
    if let Err(fault) = reporter.log_transfers(flags.transfer_log.as_deref()) {
        reporter.failure(None, &fault);
        return reporter.finish();
    }
    if flags.servers.detach {
        let detached = planned.and_then(|jobs| {
            detached::detach(&origins, &jobs, &transfer_options(flags), flags.output.json)
        });
        return detached::ended(detached, flags.output);
    }
    let copied = planned.and_then(|jobs| {
        let interrupt = context.interrupt()?;
        copy_files(&connector, flags, jobs, &origins, &interrupt, &mut reporter)
    });
    if let Err(fault) = copied {
        reporter.failure(None, &fault);
    }
    reporter.finish()
}

fn connector(context: &Context, flags: &CpFlags) -> Connector {
    let connector = Connector::new(context.clone(), flags.session.comparing(flags.digest));
    connector.striped(flags.stripe.stripes(flags.offset > 0))
}

/// Like [`run`], for the pairs of a list.
fn run_list(connector: &Connector, context: &Context, flags: &CpFlags, list: &Path) -> u8 {
    let mut reporter = Reporter::new(
        flags.output,
        Run {
            target: shown(list.as_os_str()),
            is_open: true,
            dry_run: flags.dry_run,
            stats: flags.stats,
            ..Run::default()
        },
    );
    if let Err(fault) = reporter.log_transfers(flags.transfer_log.as_deref()) {
        reporter.failure(None, &fault);
        return reporter.finish();
    }
    let connector = &connector.clone().with_groups();
    let copied = pairs::run(connector, context, flags, list, &mut reporter);
    let all = Label {
        source: String::new(),
        target: shown(list.as_os_str()),
    };
    connector.report_groups(&all, &mut reporter);
    if let Err(fault) = copied {
        reporter.failure(None, &fault);
    }
    reporter.finish()
}

/// Like [`run`], for sources that may be directories.
fn run_trees(
    connector: &Connector,
    context: &Context,
    flags: &CpFlags,
    many: bool,
    sources: Result<(), Fault>,
) -> u8 {
    let mut files = flags.clone();
    let origins = Origins::new(connector, flags.servers.between.into());
    let trees = sources.and_then(|()| match many && flags.files_from.is_none() {
        true => plan::check_several(context.config()?, flags),
        false => Ok(()),
    });
    let trees = trees.and_then(|()| tree::take_trees(connector, &mut files, &origins));
    let trees = trees.and_then(|trees| only_one_if_listed(flags, trees));
    let trees = trees.and_then(|trees| match many && !trees.is_empty() {
        true => tree::check_target(connector, flags).map(|()| trees),
        false => Ok(trees),
    });
    let planned = trees.and_then(|trees| {
        let jobs = if files.places.sources.is_empty() {
            Vec::new()
        } else {
            let groups = striped::groups(connector, &files)?;
            let config = context.config()?;
            plan::plan(config, &files, (many, &[]), &groups, &origins)?
        };
        Ok((trees, jobs))
    });
    let count = planned.as_ref().map_or(0, |(_, jobs)| jobs.len() as u64);
    let mut reporter = Reporter::new(
        flags.output,
        Run {
            source: None,
            target: shown(&flags.places.target),
            files: count,
            bytes: None,
            dry_run: flags.dry_run,
            stats: flags.stats,
            ..Run::default()
        },
    );
    if let Err(fault) = reporter.log_transfers(flags.transfer_log.as_deref()) {
        reporter.failure(None, &fault);
        return reporter.finish();
    }
    let copied = planned.and_then(|(trees, jobs)| {
        let interrupt = context.interrupt()?;
        interrupt.orderly(true);
        tree::copy(
            connector,
            flags,
            &trees,
            &origins,
            &interrupt,
            &mut reporter,
        );
        if jobs.is_empty() {
            return Ok(());
        }
        copy_files(connector, &files, jobs, &origins, &interrupt, &mut reporter)
    });
    let all = Label {
        source: String::new(),
        target: shown(&flags.places.target),
    };
    connector.report_groups(&all, &mut reporter);
    if let Err(fault) = copied {
        reporter.failure(None, &fault);
    }
    reporter.finish()
}

/// Copies files, and removes their sources if that is wanted.
fn copy_files(
    connector: &Connector,
    flags: &CpFlags,
    jobs: Vec<PlannedCopy>,
    origins: &Origins,
    interrupt: &Interrupt,
    reporter: &mut Reporter,
) -> Result<(), Fault> {
    let options = transfer_options(flags);
    let retry = retry_policy(connector, flags, &jobs)?;
    let copied = queue::run(connector, &options, retry, jobs, interrupt, reporter);
    origins.report(reporter);
    let copied = copied?;
    if !flags.remove_source || flags.dry_run {
        return Ok(());
    }
    for job in copied {
        match removal::of_file(connector, &job, origins, interrupt) {
            Ok(Some(removal)) => removal.run(&Filter::default(), reporter),
            Ok(None) => {}
            Err(fault) => reporter.failure(Some(&job.label), &fault),
        }
        if interrupt.requested() {
            break;
        }
    }
    Ok(())
}

/// The retries of all copies, which are those of their servers.
///
/// # Errors
/// They have different ones.
fn retry_policy(
    connector: &Connector,
    flags: &CpFlags,
    jobs: &[PlannedCopy],
) -> Result<RetryPolicy, Fault> {
    let config = connector.context.config()?;
    let mut retries = jobs.iter().map(|job| retries_of(config, flags, job));
    let retries_max = retries.next().unwrap_or_default();
    if retries.any(|other| other != retries_max) {
        let cause = "the settings of the servers have different numbers of retries";
        return Err(Fault::new(Code::InvalidArgument, "plan the copy", cause)
            .hint("--retries sets that of the command"));
    }
    Ok(RetryPolicy {
        retries_max,
        ..flags.retry.policy()
    })
}

/// The retries of a copy.
fn retries_of(config: &ClientConfig, flags: &CpFlags, job: &PlannedCopy) -> u32 {
    let settings = config.session(&job.server);
    settings.retry(flags.retry.retries).retries_max
}

/// The trees, if they suit --files-from.
fn only_one_if_listed(flags: &CpFlags, trees: Vec<tree::Tree>) -> Result<Vec<tree::Tree>, Fault> {
    if flags.files_from.is_none() || trees.len() == 1 && flags.places.sources.len() == 1 {
        return Ok(trees);
    }
    let cause = "--files-from lists paths of one directory";
    let fault = Fault::new(Code::InvalidArgument, "plan the copy", cause);
    Err(fault.hint("name a single directory as the source"))
}

fn transfer_options(flags: &CpFlags) -> TransferOptions {
    TransferOptions {
        parameters: TransferParameters {
            rate_bytes_per_s_max: flags.limit_rate,
            resume: flags.resume(),
            digest: flags.digest.map(Into::into),
            overwrite: flags.overwrites(),
            dry_run: flags.dry_run,
        },
        offset: flags.offset,
        length: flags.length,
        duration: None,
        skip: flags.skip(),
        exact_mode: flags.archive || flags.owner || flags.xattrs,
    }
}
