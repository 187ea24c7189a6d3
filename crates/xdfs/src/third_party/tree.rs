//! One tree that is copied or synchronised with another server, and the thread that does it.
//!
//! The library does what it does for any client between two servers. One of them is this one, whose
//! files are those of the user's store: so the order reaches nothing that the user doesn't.

use std::net::SocketAddr;
use std::ops::ControlFlow;
use std::sync::Arc;
use std::thread;
use std::time::{Duration, Instant};

use xdfs_proto::third_party::{
    EXAMPLES_MAX, RemovalQuestion, TreeFigures, TreeNews, TreeOrder, TreeStep, TreeTotals,
};
use xdfs_proto::{Code, Fault};
use xdfs_store::Store;

use super::state::Copy;
use super::watch::{EndGuard, Watch};
use super::way::Way;
use crate::between::{self, ServerFile};
use crate::client::{Client, ClientOptions};
use crate::events::{Observer, SyncStep, TreeCounts, TreeEvent, TreeResult};
use crate::here::{self, StoreOfUser};
use crate::paths::Call;
use crate::remote::{Invitation, RemotePlace};
use crate::scheme::PlaceSettings;
use crate::tree::{DeletionConsent, DeletionRisk, ExactRoot, SyncOptions, SyncResult, TreeOptions};

/// Longest wait for the end of an earlier order for the same trees: that of a session whose client
/// has died is noticed sooner.
const EARLIER_MAX: Duration = Duration::from_secs(30);
/// Interval of looks at it.
const TICK: Duration = Duration::from_millis(20);

/// The kind of work with the tree, and its options.
pub(super) enum Work {
    Copy(Box<TreeOptions>),
    Sync(Box<SyncOptions>),
}

/// The work of the thread.
pub(super) struct Run {
    pub(super) copy: Arc<Copy>,
    pub(super) order: TreeOrder,
    pub(super) work: Work,
    /// Earlier orders for the same trees that may still be running.
    pub(super) earlier: Vec<Arc<Copy>>,
    pub(super) store: Arc<dyn Store>,
    pub(super) way: Way,
}

/// Waits until nothing uses the store: what an ended session has begun to write may still get its
/// names, which the next order for the tree would find taken.
fn await_end(use_of_store: &Arc<()>) {
    let until = Instant::now() + EARLIER_MAX;
    while Arc::strong_count(use_of_store) > 1 && Instant::now() < until {
        thread::sleep(TICK);
    }
}

/// Reads the options of an order.
///
/// # Errors
/// [`Code::Unsupported`]: this version doesn't know all of them, or they aren't for a server.
pub(super) fn read(order: &TreeOrder) -> Result<Work, Fault> {
    let refused = |cause: String| Fault::new(Code::Unsupported, "start to copy", cause);
    let text = &order.options;
    if !text.trim_start().starts_with('{') {
        return Err(refused("its options are no object of JSON".into()));
    }
    let mut work = match order.synchronises {
        true => serde_json::from_str(text).map(Work::Sync),
        false => serde_json::from_str(text).map(Work::Copy),
    }
    .map_err(|error| refused(error.to_string()))?;
    let tree = match &mut work {
        Work::Copy(tree) => tree,
        Work::Sync(sync) => &mut sync.tree,
    };
    // Where the tree goes is decided by the user's side, which has the journal.
    if tree.journal.is_some() || tree.parameters.dry_run {
        return Err(refused("journals and dry runs are for clients".into()));
    }
    // A capability is for one session.
    tree.retry.retries_max = 0;
    Ok(work)
}

impl Run {
    /// Starts the thread.
    pub(super) fn spawn(self) -> Result<(), Fault> {
        let thread = thread::Builder::new().name("xdfs-tree".into());
        let started = thread.spawn(move || {
            let _end = EndGuard(Arc::clone(&self.copy));
            let use_of_store = Arc::new(());
            let by = |address| self.by(address, &use_of_store);
            let done = self.await_earlier();
            let done = done.and_then(|()| self.way.try_each(&self.copy, by));
            await_end(&use_of_store);
            if let Err(fault) = done {
                self.copy.fail(self.copy.check().err().unwrap_or(fault));
            }
        });
        started
            .map(drop)
            .map_err(|error| Fault::from_io("start the thread of a copy", "", &error))
    }

    /// Waits for the ends of earlier orders for the same two trees, whose client may have died: two
    /// at a time would undo each other's work.
    fn await_earlier(&self) -> Result<(), Fault> {
        let until = Instant::now() + EARLIER_MAX;
        while self
            .earlier
            .iter()
            .any(|earlier| earlier.ended_for().is_none())
        {
            self.copy.check()?;
            if Instant::now() >= until {
                let cause = "another copy of this user between these two trees is running";
                self.copy.moving(|_| {});
                return Err(Fault::new(Code::Busy, "copy", cause).path(&self.order.here));
            }
            thread::sleep(TICK);
        }
        Ok(())
    }

    fn by(&self, address: SocketAddr, use_of_store: &Arc<()>) -> Result<(), Fault> {
        let client = Arc::new(self.way.connect(address)?);
        let _watch = Watch::over(&self.copy, &client)?;
        let order = &self.order;
        let look = Call::Stat {
            path: order.there.clone(),
            follow: true,
        };
        match client.call(look) {
            Err(fault) if client.user().is_none() => return Err(fault),
            Err(fault) if fault.code != Code::NotFound => {
                self.copy.moving(|_| {});
                return Err(fault.remote());
            }
            _ => self.copy.moving(|status| {
                status.channels = 1;
            }),
        }
        let own = self.own_place();
        let options = ClientOptions {
            settings: PlaceSettings::default().with(StoreOfUser {
                inner: Arc::clone(&self.store),
                _use: Arc::clone(use_of_store),
            }),
            ..ClientOptions::default()
        };
        let here = Arc::new(Client::connect(&own, options)?);
        let other = RemotePlace {
            path: order.there.clone(),
            ..self.way.place(address)
        };
        let session = Arc::clone(&client);
        let (from, source, target, path) = match order.sends {
            true => (own, Arc::clone(&here), client, &order.there),
            false => (other, client, here, &order.here),
        };
        let source = ServerFile::new(from, move |_| Ok(Arc::clone(&source)));
        let source = source.by(between::Way::Client);
        // After its end everything fails, and another order repeats what did.
        let mut lost = None;
        let mut observer = |event: TreeEvent<'_>| {
            if let TreeEvent::Failed { fault, .. } = &event
                && is_of_session(fault)
            {
                lost.get_or_insert_with(|| (*fault).clone());
            }
            match lost.is_some() || session.ended().is_some() {
                true => ControlFlow::Break(()),
                false => self.observe(event),
            }
        };
        let done = self.work(&target, &source, path, &mut observer);
        if let Some(ended) = session.ended().or(lost) {
            return Err(ended.remote());
        }
        let (figures, is_counted) = done?;
        if let Some(news) = &self.copy.news {
            news.count(figures, is_counted);
        }
        self.copy.tree_done(&figures, path);
        Ok(())
    }

    /// Does what the order says. Returns the figures, and whether the source was counted.
    fn work(
        &self,
        target: &Client,
        source: &ServerFile,
        path: &[u8],
        observer: &mut dyn Observer,
    ) -> Result<(TreeFigures, bool), Fault> {
        let order = &self.order;
        match &self.work {
            Work::Copy(options) => {
                let exact = ExactRoot {
                    keeps_root: order.keeps_root,
                    again: order.again,
                };
                let copied = target.copy_tree_exactly(source, path, options, exact, observer)?;
                Ok((figures(&copied), copied.activity.is_counted))
            }
            Work::Sync(options) => {
                let options = SyncOptions {
                    consent: self.consent(),
                    ..(**options).clone()
                };
                let synced = target.sync_between(source, path, &options, observer)?;
                Ok((sync_figures(&synced), false))
            }
        }
    }

    fn own_place(&self) -> RemotePlace {
        RemotePlace {
            user: None,
            address: here::address(),
            stack: None,
            path: self.order.here.clone(),
            invitation: Invitation::default(),
            profile: None,
        }
    }

    fn consent(&self) -> DeletionConsent {
        let copy = Arc::clone(&self.copy);
        DeletionConsent::new(move |risk| {
            let agrees = copy
                .news
                .as_ref()
                .is_some_and(|news| news.ask(question(risk), || copy.is_cancelled()));
            match agrees {
                true => Ok(()),
                false => Err(risk.refusal()),
            }
        })
    }

    fn observe(&self, event: TreeEvent<'_>) -> ControlFlow<()> {
        let Some(news) = &self.copy.news else {
            return ControlFlow::Break(());
        };
        if let TreeEvent::Progress(result) = &event {
            let figures = figures(result);
            news.count(figures, result.activity.is_counted);
            self.copy.moving(|status| {
                status.bytes = figures.moved.bytes + figures.in_flight_bytes;
            });
        }
        if let Some(event) = shown(event) {
            news.add(event, || self.copy.is_cancelled());
        }
        match self.copy.is_cancelled() {
            true => ControlFlow::Break(()),
            false => ControlFlow::Continue(()),
        }
    }
}

/// Whether an entry has failed since the session with the other server has ended.
fn is_of_session(fault: &Fault) -> bool {
    let codes = [
        Code::ConnectionLost,
        Code::ShuttingDown,
        Code::SessionUnknown,
    ];
    of_machine(fault).1 && (fault.fails_login || codes.contains(&fault.code))
}

/// A fault for the user, and whether it is one of the other server.
fn of_machine(fault: &Fault) -> (Fault, bool) {
    let is_there = fault
        .machine
        .as_ref()
        .is_some_and(|machine| !machine.is_here());
    (fault.clone(), is_there)
}

/// An event as news; `None` if it is none.
fn shown(event: TreeEvent<'_>) -> Option<TreeNews> {
    Some(match event {
        TreeEvent::File {
            path,
            bytes,
            digest,
            ..
        } => TreeNews::File {
            path: path.to_vec(),
            bytes,
            digest: *digest,
        },
        TreeEvent::Failed { path, fault } => {
            let (fault, is_there) = of_machine(fault);
            TreeNews::Failed {
                path: path.to_vec(),
                fault,
                is_there,
            }
        }
        TreeEvent::Warning(fault) => {
            let (fault, is_there) = of_machine(fault);
            TreeNews::Warning { fault, is_there }
        }
        TreeEvent::Step { step, path, from } => TreeNews::Step {
            step: match step {
                SyncStep::Copy => TreeStep::Copy,
                SyncStep::Delete => TreeStep::Delete,
                SyncStep::Rename => TreeStep::Rename,
                SyncStep::Replace => TreeStep::Replace,
                SyncStep::Set => TreeStep::Set,
            },
            path: path.to_vec(),
            from: from.unwrap_or_default().to_vec(),
        },
        TreeEvent::Deletion(deletion) => TreeNews::Removal {
            names: deletion.names,
            names_at_target: deletion.names_at_target,
            examples: deletion
                .examples
                .iter()
                .take(EXAMPLES_MAX)
                .cloned()
                .collect(),
        },
        _ => return None,
    })
}

fn question(risk: &DeletionRisk) -> RemovalQuestion {
    match risk {
        DeletionRisk::NamedLikeSource { name } => RemovalQuestion::NamedLikeSource(name.clone()),
        DeletionRisk::NothingInCommon { entries } => RemovalQuestion::NothingInCommon(*entries),
        DeletionRisk::Root { names } => RemovalQuestion::Root(*names),
        DeletionRisk::Share {
            names,
            names_at_target,
        } => RemovalQuestion::Share(*names, *names_at_target),
    }
}

fn totals(counts: &TreeCounts) -> TreeTotals {
    TreeTotals {
        files: counts.files,
        directories: counts.directories,
        others: counts.others,
        bytes: counts.bytes,
    }
}

fn figures(result: &TreeResult) -> TreeFigures {
    TreeFigures {
        moved: TreeTotals {
            files: result.files,
            directories: result.directories,
            others: result.others,
            bytes: result.bytes,
        },
        resumed: totals(&result.resumed),
        counted: totals(&result.activity.counted),
        matched_bytes: result.matched_bytes,
        failed: result.failed,
        unkept: result.unkept,
        owners_unkept: result.owners_unkept,
        times_cut: result.times_cut,
        in_flight: result.activity.in_flight,
        in_flight_bytes: result.activity.in_flight_bytes,
        ..TreeFigures::default()
    }
}

fn sync_figures(result: &SyncResult) -> TreeFigures {
    TreeFigures {
        replaced: result.replaced,
        set: result.set,
        renamed: result.renamed,
        deleted: result.deleted,
        kept: result.kept,
        ..figures(&result.tree)
    }
}

#[cfg(test)]
mod tests {
    use xdfs_proto::third_party::CopyId;

    use super::*;

    #[track_caller]
    fn code(synchronises: bool, options: &str) -> Result<(), Code> {
        let order = TreeOrder {
            copy: CopyId([1; 16]),
            synchronises,
            sends: false,
            detached: false,
            keeps_root: false,
            again: false,
            channels: 0,
            key: [2; 32],
            capability: String::new(),
            addresses: Vec::new(),
            here: Vec::new(),
            there: Vec::new(),
            options: options.to_owned(),
        };
        read(&order).map(drop).map_err(|fault| fault.code)
    }

    #[test]
    fn options_that_are_unknown_or_for_clients_are_refused() {
        let text = serde_json::to_string(&TreeOptions::default()).unwrap();
        assert_eq!(code(false, &text), Ok(()));
        assert_eq!(code(false, "{}"), Ok(()));
        let text = serde_json::to_string(&SyncOptions::default()).unwrap();
        assert_eq!(code(true, &text), Ok(()));
        let journal = serde_json::to_string(&TreeOptions {
            journal: Some("/etc/journals".into()),
            ..TreeOptions::default()
        });
        let listed = |bytes: usize| {
            let path = "a/".repeat(bytes / 2);
            format!(r#"{{"filter": {{"only": ["{path}"]}}}}"#)
        };
        assert_eq!(code(false, &listed(4096)), Ok(()));
        assert_eq!(code(false, &listed(4098)), Err(Code::Unsupported));
        assert_eq!(code(false, &listed(32_000)), Err(Code::Unsupported));
        let mut dry = TreeOptions::default();
        dry.parameters.dry_run = true;
        let dry = serde_json::to_string(&dry).unwrap();
        for text in ["", "[]", r#"{"later": 1}"#, &journal.unwrap(), &dry] {
            assert_eq!(code(false, text), Err(Code::Unsupported), "{text}");
        }
        assert_eq!(
            code(true, r#"{"tree": {"journal": "/x"}}"#),
            Err(Code::Unsupported)
        );
    }
}
