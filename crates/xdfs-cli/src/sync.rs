//! `xdfs sync`: makes one directory equal to another.

use std::ops::ControlFlow;
use std::path::PathBuf;

use xdfs::settings::ClientConfig;
use xdfs::{
    Code, DeletionConsent, DeletionRisk, Fault, RemotePlace, Resume, SyncOptions, SyncResult,
    TransferParameters, TreeEvent, TreeOptions,
};

use crate::console::Console;
use crate::context::Context;
use crate::cp::origins::Origins;
use crate::flags::{OutputFlags, SyncFlags};
use crate::interrupt::Interrupt;
use crate::log::start_log;
use crate::place::{Place, check_meant_here, lies_in, shown};
use crate::report::{Label, Reporter, Run};
use crate::session::{self, Connector, check_stripes, report_session};

/// The direction of a synchronisation.
#[derive(Debug)]
enum SyncDirection {
    Up(PathBuf, RemotePlace),
    Down(RemotePlace, PathBuf),
    /// From one server to another.
    Between(RemotePlace, RemotePlace),
}

/// Runs the command and returns the exit code.
pub(crate) fn run(context: &Context, flags: &SyncFlags) -> u8 {
    start_log(flags.output.log_level());
    let label = Label {
        source: shown(&flags.source),
        target: shown(&flags.target),
    };
    let mut reporter = Reporter::new(
        flags.output,
        Run {
            source: Some(label.source.clone()),
            target: label.target.clone(),
            files: 0,
            bytes: None,
            dry_run: flags.dry_run,
            stats: flags.stats,
            is_open: false,
        },
    );
    if let Err(fault) = reporter.log_transfers(flags.transfer_log.as_deref()) {
        reporter.failure(None, &fault);
        return reporter.finish();
    }
    match sync(context, flags, &label, &mut reporter) {
        Ok(result) => reporter.sync_done(&label, &result),
        Err(fault) => reporter.failure(None, &fault),
    }
    reporter.finish()
}

fn route(config: &ClientConfig, flags: &SyncFlags) -> Result<SyncDirection, Fault> {
    let words = [flags.source.as_os_str(), flags.target.as_os_str()];
    let [source, target] = words.map(|word| Place::parse(config, word));
    match (source?, target?) {
        (Place::Local(source), Place::Remote(target)) => Ok(SyncDirection::Up(source, target)),
        (Place::Remote(source), Place::Local(target)) => Ok(SyncDirection::Down(source, target)),
        (Place::Local(source), Place::Local(target)) => {
            check_meant_here(config, "plan the synchronisation", words)?;
            Ok(SyncDirection::Down(RemotePlace::here(&source)?, target))
        }
        (Place::Remote(source), Place::Remote(target)) => {
            check_between(flags, [&source, &target])?;
            Ok(SyncDirection::Between(source, target))
        }
        _ => {
            let cause = "both sides have to be directories, and no streams";
            let fault = Fault::new(Code::InvalidArgument, "plan the synchronisation", cause)
                .hint("write xdfs sync DIR xdfs://HOST/DIR, or the other way round");
            Err(config.hinted(fault, words))
        }
    }
}

/// Refuses what can't be done between servers, and two sides of which one is in the other.
fn check_between(flags: &SyncFlags, [source, target]: [&RemotePlace; 2]) -> Result<(), Fault> {
    let refused = |cause: String, hint: &str| {
        let fault = Fault::new(Code::InvalidArgument, "plan the synchronisation", cause);
        Err(fault.path(&target.path).hint(hint))
    };
    let traits = [source, target].map(|server| server.address.traits());
    let keeps_all = traits.iter().all(|there| there.packs);
    let has_links = traits.iter().all(|there| there.hard_links);
    let wanted = [
        (flags.archive && !(keeps_all && has_links), "--archive"),
        (flags.owner && !keeps_all, "--owner"),
        (flags.xattrs && !keeps_all, "--xattrs"),
        (flags.hard_links && !has_links, "--hard-links"),
    ];
    if let Some((_, flag)) = wanted.iter().find(|(is_wanted, _)| *is_wanted) {
        let cause = format!("{flag} can't be done between servers of these kinds");
        return refused(cause, "modes and modification times are kept without it");
    }
    if flags.delta {
        let cause = "--delta can't be done between servers: changed files are sent whole";
        return refused(cause.to_owned(), "leave out --delta");
    }
    let leads_up = |place: &RemotePlace| {
        place
            .path
            .split(|byte| *byte == b'/')
            .any(|part| part == b"..")
    };
    if source.shares_session(target) && (leads_up(source) || leads_up(target)) {
        let cause = "with '..' in a path it isn't known whether one directory is in the other";
        return refused(cause.to_owned(), "name both directories without it");
    }
    if lies_in(source, target) || lies_in(target, source) {
        let cause = "one of the two directories is the other one, or in it";
        return refused(
            cause.to_owned(),
            "name two directories apart from each other",
        );
    }
    let login = flags.session.security.login();
    login.check_one_password([source, target])
}

fn options(
    config: &ClientConfig,
    server: &RemotePlace,
    flags: &SyncFlags,
    label: &Label,
    interrupt: &Interrupt,
) -> Result<SyncOptions, Fault> {
    let all = flags.archive;
    let settings = config.session(server);
    let retry = settings.retry(flags.retry.retries);
    Ok(SyncOptions {
        tree: TreeOptions {
            parameters: TransferParameters {
                overwrite: true,
                dry_run: flags.dry_run,
                digest: flags.digest.map(Into::into),
                rate_bytes_per_s_max: settings.rate(flags.limit_rate),
                resume: match flags.verify_resumed {
                    true => Resume::Verify,
                    false => Resume::Trust,
                },
            },
            owner: all || flags.owner,
            xattrs: all || flags.xattrs,
            hard_links: all || flags.hard_links,
            follow_links: flags.copy_links,
            filter: flags.filter.filter()?,
            durability: flags.durability.into(),
            file_digests: (flags.output.json || flags.transfer_log.is_some())
                .then(|| flags.digest.map(Into::into).unwrap_or_default()),
            reconnect_observer: session::reconnect_observer(
                flags.output,
                retry.retries_max,
                interrupt,
            ),
            retry,
            ..TreeOptions::default()
        },
        compare: flags.compare.into(),
        delete: flags.delete,
        delete_max: flags.max_delete,
        consent: consent(flags.output, label, interrupt),
        force: flags.force,
        backup: backup_dir(config, flags)?,
        delta: flags.delta,
    })
}

/// The backup directory, as a path on the target's side.
fn backup_dir(config: &ClientConfig, flags: &SyncFlags) -> Result<Option<Vec<u8>>, Fault> {
    let Some(word) = &flags.backup_dir else {
        return Ok(None);
    };
    let target = Place::parse(config, &flags.target)?;
    match (Place::parse(config, word)?, target) {
        (Place::Local(path), _) => Ok(Some(path.as_os_str().as_encoded_bytes().to_vec())),
        (Place::Remote(place), Place::Remote(target)) if place.address == target.address => {
            Ok(Some(place.path))
        }
        _ => {
            let cause = "the backup directory has to be on the target's side";
            Err(
                Fault::new(Code::InvalidArgument, "plan the synchronisation", cause)
                    .path(shown(word))
                    .hint("name a path there: it is relative to the target, unless it is absolute"),
            )
        }
    }
}

/// Asks the user about deletions that might be a surprise, if there is a terminal to ask at.
fn consent(output: OutputFlags, label: &Label, interrupt: &Interrupt) -> DeletionConsent {
    let (label, interrupt) = (label.clone(), interrupt.clone());
    DeletionConsent::new(move |risk| {
        if output.json || !Console::can_ask() {
            return Err(refusal(&label, risk));
        }
        let question = match risk.is_wrong_target() {
            true => format!("{risk}; go on with {}?", label.target),
            false => format!("{risk}; delete them?"),
        };
        // Nothing is under way that would have to end in an orderly way.
        interrupt.orderly(false);
        let confirmed = Console::new(output).confirm(&question);
        interrupt.orderly(true);
        if confirmed? {
            return Ok(());
        }
        let refused = refusal(&label, risk);
        let (cause, hint) = match risk.is_wrong_target() {
            true => (
                "nothing copied or deleted: it was not confirmed",
                refused.hint,
            ),
            false => ("nothing deleted: it was not confirmed", String::new()),
        };
        Err(Fault::new(Code::Cancelled, refused.operation, cause).hint(hint))
    })
}

/// The fault without consent, with the target that may have been meant.
fn refusal(label: &Label, risk: &DeletionRisk) -> Fault {
    let fault = risk.refusal();
    if !risk.is_wrong_target() {
        return fault;
    }
    let name = label.source.trim_end_matches('/');
    let name = name.rsplit('/').next().unwrap_or_default();
    if matches!(name, "" | "." | "..") {
        return fault;
    }
    let target = label.target.trim_end_matches('/');
    fault.hint(format!(
        "the contents of SOURCE go into TARGET; did you mean {target}/{name}? --force accepts \
         {} as it is",
        label.target,
    ))
}

fn sync(
    context: &Context,
    flags: &SyncFlags,
    label: &Label,
    reporter: &mut Reporter,
) -> Result<SyncResult, Fault> {
    let config = context.config()?;
    let words = (std::slice::from_ref(&flags.source), &*flags.target);
    check_stripes(context, &flags.stripe, words)?;
    let connector = Connector::new(context.clone(), flags.session.comparing(flags.digest));
    let connector = connector.striped(flags.stripe.stripes(false));
    let connector = connector.for_words([&flags.source, &flags.target]);
    let connector = connector.with_groups();
    let flags = &SyncFlags {
        source: connector.word_of(&flags.source)?,
        ..flags.clone()
    };
    let route = route(config, flags)?;
    let (SyncDirection::Up(_, server)
    | SyncDirection::Down(server, _)
    | SyncDirection::Between(_, server)) = &route;
    let client = connector.connect(server)?;
    let origins = Origins::new(&connector, flags.between.into());
    let interrupt = context.interrupt()?;
    interrupt.orderly(true);
    let mut options = options(config, server, flags, label, &interrupt)?;
    if !flags.dry_run {
        options.tree.stripes = match &route {
            SyncDirection::Up(_, target) => connector.tree_stripes(None, Some(target)),
            SyncDirection::Down(source, _) => connector.tree_stripes(Some(source), None),
            SyncDirection::Between(source, target) => {
                connector.tree_stripes(Some(source), Some(target))
            }
        }?;
    }
    let mut observer = |event: TreeEvent<'_>| {
        report_session(&client, reporter);
        connector.report_members(reporter);
        match event {
            TreeEvent::Progress(result) => reporter.tree_progress(label, result),
            TreeEvent::Failed { path, fault } => reporter.tree_failure(label, path, fault),
            TreeEvent::File {
                path,
                bytes,
                digest,
                ..
            } => reporter.tree_file(label, path, bytes, digest),
            TreeEvent::Warning(fault) => reporter.warn(fault),
            TreeEvent::Deletion(deletion) => reporter.sync_deletion(label, deletion),
            TreeEvent::Step { step, path, from } => reporter.tree_step(step, path, from),
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
        SyncDirection::Between(source, target) => {
            let source = origins.file(source);
            client.sync_between(&source, &target.path, &options, &mut observer)
        }
    };
    origins.report(reporter);
    report_session(&client, reporter);
    connector.report_groups(label, reporter);
    result.map_err(|fault| session::lost_with_ssh(fault, &interrupt))
}
