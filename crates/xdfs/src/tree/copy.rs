//! The beginning of a tree copy: where the tree goes, and what an earlier run left there.

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::thread;
use std::time::{Duration, Instant};

use xdfs_proto::{Code, Fault};
use xdfs_store::tree_journal::Root;

use super::announced::AnnouncedTree;
use super::apart::{self, Asked};
use super::ends::Ends;
use super::journal::{self, JournalWriter};
use super::moving::Report;
use super::namespace::{FoundName, Namespace};
use super::options::{PackSizes, TreeOptions};
use super::run::TreeRun;
use super::session::TreeSession;
use super::straight::TreeErrand;
use super::tracker::Claims;
use crate::events::{Observer, TreeResult};
use crate::paths::{FileKind, join};
use crate::skip::Skip;

/// Time until the source is counted: a copy that is over by then needs no total.
const COUNTED_AFTER: Duration = Duration::from_millis(500);

/// The directory that a tree goes to, if that is decided already.
#[derive(Clone, Copy, Debug)]
pub(crate) struct ExactRoot {
    /// It was there before, and keeps its metadata.
    pub(crate) keeps_root: bool,
    /// An earlier attempt may have left entries of the tree.
    pub(crate) again: bool,
}

/// Copies the tree `source` to `named`: into it if it is an existing directory and `source` doesn't
/// end in a slash, otherwise under that name. `session` is that with the server of the target or,
/// if the target is on this machine, of the source.
pub(super) fn copy(
    session: &TreeSession<'_>,
    source: &Namespace<'_>,
    named: &Namespace<'_>,
    options: &TreeOptions,
    observer: &mut dyn Observer,
) -> Result<TreeResult, Fault> {
    copy_to(session, (source, named, None), options, observer)
}

/// Copies the tree likewise; with an exact root, to the path `named` and nowhere else.
pub(super) fn copy_to(
    session: &TreeSession<'_>,
    (source, named, exact): (&Namespace<'_>, &Namespace<'_>, Option<ExactRoot>),
    options: &TreeOptions,
    observer: &mut dyn Observer,
) -> Result<TreeResult, Fault> {
    let announced = AnnouncedTree::prepare([source, named], options);
    let mut round_trip = Duration::ZERO;
    let Some(attributes) = source.find_and_list(&mut round_trip)? else {
        let fault = Fault::new(Code::NotFound, "copy", "no such directory");
        return Err(source.fault(fault.path(source.root())));
    };
    let mut report = Report::new(observer, Ends::of(source, named));
    let began = Instant::now();
    // In a directory that exists it keeps its name. What is there is asked in the same round trip.
    let inside = match exact {
        Some(_) => named.with_root(named.root().to_vec()),
        None => named.with_root(join(named.root(), last_name(source.root()))),
    };
    let mut asked = None;
    if named.is_remote() && options.skip != Skip::Never {
        inside.begin_listing();
        let has_name = inside.root() != named.root() && options.journal.is_some();
        asked = has_name.then(|| inside.start_find(inside.root()));
    }
    let way = Asked::begin(&inside, source);
    let there = named.find_root();
    if named.is_remote() {
        round_trip = round_trip.max(began.elapsed());
        if let Err(fault) = there {
            return Err(fault);
        }
    }
    let is_inside = matches!(&there, Ok(Some(found)) if found.kind == FileKind::Directory);
    let place = if is_inside { &inside } else { named };
    let own = apart::check("copy", (source, &attributes), (place, way), &options.filter)?;
    // What an earlier run claims by size and time counts only where these are trusted.
    let compares = matches!(options.skip, Skip::Never | Skip::Identical | Skip::Content);
    let unclaimed = compares.then(|| TreeOptions {
        journal: None,
        ..options.clone()
    });
    let options = unclaimed.as_ref().unwrap_or(options);
    let mut writer = journal::open([source, named], options, &mut report)?;
    let source_inode = attributes.inode;
    let earlier = match &mut writer {
        Some(writer) => {
            let look = |path: &[u8]| match asked.filter(|_| path == inside.root()) {
                Some(asked) => Namespace::root_found(asked),
                None if path == named.root() => there.clone(),
                None => named.with_root(path.to_vec()).find_root(),
            };
            writer.earlier_root(source_inode, inside.root(), &mut report, look)?
        }
        None => None,
    };
    let mut root = Root {
        path: named.root().to_vec(),
        inode: 0,
        source_inode,
        was_there: false,
    };
    match (earlier, &there) {
        (Some(earlier), _) => root = earlier,
        (None, Ok(Some(found))) if found.kind == FileKind::Directory && exact.is_some() => {
            root.was_there = exact.is_some_and(|exact| exact.keeps_root);
        }
        (None, Ok(Some(found))) if found.kind == FileKind::Directory => {
            root.path = inside.root().to_vec();
            if named.is_remote() && root.path == named.root() {
                (root.inode, root.was_there) = (found.inode, true);
            }
        }
        (None, Ok(Some(_))) => return Err(named.not_a_directory()),
        // If a local lookup failed, creating the root fails too and reports why.
        (None, Ok(None) | Err(_)) => {}
    }
    let has_target = matches!(&there, Ok(Some(_)));
    report.begin(&root.path);
    let target = match root.path == inside.root() {
        true => inside,
        false => named.with_root(root.path.clone()),
    };
    let servers = [source, named].into_iter().filter_map(Namespace::session);
    let pack_sizes = PackSizes::new(servers.map(|server| server.client), round_trip);
    let mut run = TreeRun::new(session, source, &target, options, pack_sizes);
    run.keeps_root = root.was_there;
    run.own = own;
    run.is_by_size = announced
        .as_ref()
        .is_some_and(|announced| announced.is_by_size);
    // What --force replaces may look like what takes its place.
    run.follow_sessions(&mut report, !options.parameters.overwrite);
    let has_run_before = exact.is_some_and(|exact| exact.again);
    let (mut claims, mut has_run, mut has_doubts) = (false, has_run_before, false);
    let keeps_root = root.was_there;
    if let Some(writer) = &mut writer {
        writer.begin(root, &mut report);
        (claims, has_run) = (writer.is_usable, writer.index.has_run());
        has_doubts = writer.index.was_broken_off();
        run.resume = Some(writer.index.clone());
    }
    if !options.parameters.dry_run {
        report.track(claims, has_run);
    }
    let skips = match options.skip {
        Skip::Never => false,
        // Of what an interrupted run left, only its journal says what is durable.
        Skip::SizeAndTime => !has_doubts,
        _ => true,
    };
    run.skips_existing = has_target && skips;
    let errand = TreeErrand {
        session,
        source,
        target: &target,
        keeps_root,
        again: has_run,
        has_doubts: has_doubts && options.skip == Skip::SizeAndTime,
    };
    if exact.is_none()
        && let Some(ended) = errand.copy(options, &mut report)
    {
        if !report.is_stopped() {
            ended?;
        }
        return finish(writer, &target, report);
    }
    source.check_kept_alone(&target, options, "copy")?;
    if options.parameters.dry_run {
        run.has_root = target.find_root()?.is_some();
        if !run.has_root {
            run.check_root()?;
        }
    }
    let root = FoundName {
        path: Vec::new(),
        is_directory: true,
        attributes: source.is_remote().then_some(attributes),
        fault: None,
    };
    run.count = options.count_source.then(Arc::default);
    report.count.clone_from(&run.count);
    thread::scope(|scope| {
        let count = run.count.as_deref().filter(|_| !source.is_remote());
        let counting = count.map(|count| {
            let run = &run;
            scope.spawn(move || {
                thread::park_timeout(COUNTED_AFTER);
                run.count_source(count);
            })
        });
        let result = run.run(vec![root], None, writer, &mut report);
        // Ends the count.
        run.stop.store(true, Ordering::Relaxed);
        if let Some(counting) = counting {
            counting.thread().unpark();
        }
        result
    })
    .map_err(|fault| report.reason(fault))?;
    if options.parameters.dry_run {
        run.check_space(has_target && options.parameters.overwrite, &report)?;
    }
    run.count_unkept_owners(&mut report);
    report.finish(options.owner)
}

/// The end of a copy that the servers have made.
fn finish(
    writer: Option<JournalWriter>,
    target: &Namespace<'_>,
    mut report: Report<'_>,
) -> Result<TreeResult, Fault> {
    if let Some(mut writer) = writer.filter(|_| !report.is_stopped()) {
        let root = writer.ask_for_root(target);
        writer.learn_root(root)?;
        let is_whole = report.result.failed == 0;
        writer.finish(is_whole, Claims::default(), &mut report)?;
    }
    report.finish_of_others()
}

/// The last name of a path; empty if it ends in a slash, `.` or `..`.
fn last_name(path: &[u8]) -> &[u8] {
    match path.rsplit(|b| *b == b'/').next() {
        Some(b"." | b"..") | None => b"",
        Some(name) => name,
    }
}
