//! `xdfs sync`: makes one directory equal to another.

use std::ops::ControlFlow;
use std::path::PathBuf;

use xdfs::{Code, Fault, RemotePlace, SyncOptions, SyncResult, TreeEvent, TreeOptions};

use crate::context::Context;
use crate::flags::SyncFlags;
use crate::interrupt::Interrupt;
use crate::place::Place;
use crate::report::{Label, Reporter, Run};
use crate::serve::start_log;
use crate::session::{self, Connector, report_first_use};

/// The direction of a synchronisation.
#[derive(Debug)]
enum SyncDirection {
    Up(PathBuf, RemotePlace),
    Down(RemotePlace, PathBuf),
}

/// Runs the command and returns the exit code.
pub(crate) fn run(context: &Context, flags: &SyncFlags) -> u8 {
    start_log(flags.output.log_level());
    let label = Label {
        source: flags.source.to_string_lossy().into_owned(),
        target: flags.target.to_string_lossy().into_owned(),
    };
    let mut reporter = Reporter::new(
        flags.output,
        Run {
            source: Some(label.source.clone()),
            target: label.target.clone(),
            files: 0,
            bytes: None,
            dry_run: flags.dry_run,
        },
    );
    match sync(context, flags, &label, &mut reporter) {
        Ok(result) => reporter.sync_done(&label, &result),
        Err(fault) => reporter.failure(None, &fault),
    }
    reporter.finish()
}

fn route(flags: &SyncFlags) -> Result<SyncDirection, Fault> {
    match (Place::parse(&flags.source)?, Place::parse(&flags.target)?) {
        (Place::Local(source), Place::Remote(target)) => Ok(SyncDirection::Up(source, target)),
        (Place::Remote(source), Place::Local(target)) => Ok(SyncDirection::Down(source, target)),
        _ => {
            let cause = "one side has to be a directory here, and the other one on a server";
            Err(
                Fault::new(Code::InvalidArgument, "plan the synchronisation", cause)
                    .hint("write xdfs sync DIR xdfs://HOST/DIR, or the other way round"),
            )
        }
    }
}

fn options(flags: &SyncFlags, interrupt: &Interrupt) -> Result<SyncOptions, Fault> {
    let all = flags.archive;
    Ok(SyncOptions {
        tree: TreeOptions {
            overwrite: true,
            owner: all || flags.owner,
            xattrs: all || flags.xattrs,
            hard_links: all || flags.hard_links,
            filter: flags.filter.filter()?,
            dry_run: flags.dry_run,
            durability: flags.durability.into(),
            digest: flags.digest.map(Into::into),
            rate_bytes_per_s_max: flags.limit_rate,
            verify_resumed: flags.verify_resumed,
            retry: flags.retry.policy(),
            reconnect_observer: session::reconnect_observer(
                flags.output,
                flags.retry.policy().retries_max,
                interrupt,
            ),
            ..TreeOptions::default()
        },
        compare: flags.compare.into(),
        delete: flags.delete,
        delete_max: flags.max_delete,
        force: flags.force,
        delta: flags.delta,
    })
}

fn sync(
    context: &Context,
    flags: &SyncFlags,
    label: &Label,
    reporter: &mut Reporter,
) -> Result<SyncResult, Fault> {
    let route = route(flags)?;
    let (SyncDirection::Up(_, server) | SyncDirection::Down(server, _)) = &route;
    let connector = Connector {
        context: context.clone(),
        flags: flags.session.clone(),
    };
    let client = connector.connect(server)?;
    let interrupt = context.interrupt()?;
    interrupt.orderly(true);
    let options = options(flags, &interrupt)?;
    let mut observer = |event: TreeEvent<'_>| {
        report_first_use(&client, reporter);
        match event {
            TreeEvent::Progress(result) => reporter.tree_progress(label, result),
            TreeEvent::Failed { path, fault } => reporter.tree_failure(label, path, fault),
            TreeEvent::Step { step, path, from } => reporter.sync_step(step, path, from),
            _ => {}
        }
        if interrupt.requested() {
            ControlFlow::Break(())
        } else {
            ControlFlow::Continue(())
        }
    };
    let result = match &route {
        SyncDirection::Up(source, target) => {
            client.sync_to(source, &target.path, &options, &mut observer)
        }
        SyncDirection::Down(source, target) => {
            client.sync_from(&source.path, target, &options, &mut observer)
        }
    };
    report_first_use(&client, reporter);
    result
}
