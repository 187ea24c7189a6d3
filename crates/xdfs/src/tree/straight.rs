//! A tree that two servers move between themselves: what it is for the observer of this side.

use xdfs_proto::Fault;
use xdfs_proto::third_party::{
    CopyState, RemovalQuestion, TreeFigures, TreeNews, TreeStatus, TreeStep, TreeTotals,
};

use super::errand::{Errand, Reply};
use super::moving::{Report, is_away};
use super::namespace::Namespace;
use super::options::{Durability, TreeOptions};
use super::session::TreeSession;
use crate::between::{ServerFile, Way};
use crate::events::{Deletion, Passage, SyncStep, TreeCounts, TreeEvent};
use crate::skip::Skip;

/// A tree that may go straight from one server to another.
pub(super) struct TreeErrand<'a> {
    /// The session with the server of the target.
    pub(super) session: &'a TreeSession<'a>,
    pub(super) source: &'a Namespace<'a>,
    pub(super) target: &'a Namespace<'a>,
    pub(super) keeps_root: bool,
    /// An earlier run may have left entries of the tree.
    pub(super) again: bool,
    /// It may have left files that only look complete.
    pub(super) has_doubts: bool,
}

/// The order for a tree.
pub(super) struct TreeRequest<'r> {
    /// The options as JSON.
    pub(super) options: String,
    pub(super) synchronises: bool,
    /// The server of the source may have it sent.
    pub(super) may_send: bool,
    /// Asks whether there is consent to a removal.
    pub(super) consents: &'r dyn Fn(&RemovalQuestion) -> bool,
}

impl TreeErrand<'_> {
    /// Has the servers copy the tree; `None` if it has to go through this process.
    pub(super) fn copy(
        &self,
        options: &TreeOptions,
        report: &mut Report<'_>,
    ) -> Option<Result<(), Fault>> {
        let request = TreeRequest {
            options: serde_json::to_string(&Self::ordered(options)).ok()?,
            synchronises: false,
            // A holder that sends gets no digests of parts of files.
            may_send: !options.owner && !matches!(options.skip, Skip::Identical | Skip::Content),
            consents: &|_| false,
        };
        let ended = self.run(options, &request, report)?;
        Some(ended.map(drop))
    }

    /// The options as the servers get them. The journal is this side's, and so are retries.
    pub(super) fn ordered(options: &TreeOptions) -> TreeOptions {
        TreeOptions {
            journal: None,
            ..options.clone()
        }
    }

    /// Why the servers aren't asked; `None` if they are.
    fn obstacle(&self, options: &TreeOptions, file: &ServerFile) -> Option<&'static str> {
        if file.way() == Way::Client {
            return Some("it isn't wanted");
        }
        if options.parameters.dry_run {
            return Some("nothing is copied in a dry run");
        }
        // Servers would skip by size and time what a power cut has damaged.
        if self.has_doubts && options.durability == Durability::None {
            return Some("files of the interrupted copy may be damaged");
        }
        if options.stripes.are_any() {
            return Some("its files are striped");
        }
        // They may lead out of the tree.
        options
            .follow_links
            .then_some("symbolic links are followed")
    }

    /// Has the servers carry out an order; `None` if the tree has to go through this process.
    pub(super) fn run(
        &self,
        options: &TreeOptions,
        request: &TreeRequest<'_>,
        report: &mut Report<'_>,
    ) -> Option<Result<TreeFigures, Fault>> {
        let (file, there) = self.source.server().zip(self.source.session())?;
        let target = self.session.client.place();
        let speak = target.address.speaks_xdfs() && file.place().address.speaks_xdfs();
        if !speak || target.shares_session(file.place()) {
            return None;
        }
        if let Some(why) = self.obstacle(options, file) {
            report.result.passage = by_client(file, why.to_owned());
            return None;
        }
        let mut again = self.again;
        let mut count = 0;
        // The servers have begun, so that nothing else takes it over.
        let mut has_begun = false;
        loop {
            let generations = [there.generation(), self.session.generation()];
            let errand = Errand {
                source: there.client,
                target: self.session.client,
                file,
                path: self.target.root(),
                synchronises: request.synchronises,
                keeps_root: self.keeps_root,
                again,
                may_send: request.may_send,
                options: request.options.clone(),
            };
            let mut best = TreeFigures::default();
            let had_begun = has_begun;
            let ended = errand.run(&mut |status, acts_at_source| {
                has_begun |= status.state == CopyState::Moving;
                // One that was refused before it moved anything may have been seen moving.
                if status
                    .fault
                    .as_ref()
                    .is_some_and(|fault| errand.is_narrow(status, fault))
                {
                    has_begun = had_begun;
                }
                if moved(&status.figures) > moved(&best) {
                    (best, count) = (status.figures, 0);
                }
                Self::show(&errand, (status, acts_at_source), request, report)
            });
            let fault = match ended {
                Ok(Ok(status)) => {
                    set_figures(report, &status);
                    report.result.passage = Some(Passage::Direct);
                    return Some(Ok(status.figures));
                }
                Ok(Err(fault)) => fault,
                Err(why) if !has_begun => {
                    tracing::info!(%why, "a tree goes through this machine");
                    let why = match &why.machine {
                        Some(_) => why.to_string(),
                        None => why.cause,
                    };
                    report.result.passage = by_client(file, why);
                    return None;
                }
                // One of the servers may be restarting.
                Err(why) => why,
            };
            if report.is_stopped() || !is_away(&fault) {
                return Some(Err(fault));
            }
            if let Err(fault) = self.recover(there, generations, &fault, &mut count) {
                return Some(Err(fault));
            }
            report.result.reconnects += 1;
            again = true;
        }
    }

    /// Waits until both servers answer again.
    fn recover(
        &self,
        there: &TreeSession<'_>,
        generations: [u64; 2],
        fault: &Fault,
        count: &mut u32,
    ) -> Result<(), Fault> {
        let mut has_ended = false;
        for (session, generation) in [there, self.session].into_iter().zip(generations) {
            if let Some(ended) = session.client.ended() {
                has_ended = true;
                session.recover(generation, &ended.ending_session())?;
            }
        }
        match has_ended {
            true => Ok(()),
            false => self.session.pause(count, fault),
        }
    }

    /// Shows a state to the observer.
    fn show(
        errand: &Errand<'_>,
        (status, acts_at_source): (&TreeStatus, bool),
        request: &TreeRequest<'_>,
        report: &mut Report<'_>,
    ) -> Reply {
        let mut reply = Reply::default();
        let named =
            |fault: &Fault, is_there: bool| errand.at(acts_at_source != is_there, fault.clone());
        for news in &status.news {
            match news {
                TreeNews::File {
                    path,
                    bytes,
                    digest,
                } => report.pass(TreeEvent::File {
                    path,
                    bytes: *bytes,
                    digest,
                    pace: None,
                }),
                TreeNews::Failed {
                    path,
                    fault,
                    is_there,
                } => report.pass(TreeEvent::Failed {
                    path,
                    fault: &named(fault, *is_there),
                }),
                TreeNews::Warning { fault, is_there } => {
                    report.pass(TreeEvent::Warning(&named(fault, *is_there)));
                }
                TreeNews::Step { step, path, from } => report.pass(TreeEvent::Step {
                    step: match step {
                        TreeStep::Copy => SyncStep::Copy,
                        TreeStep::Delete => SyncStep::Delete,
                        TreeStep::Rename => SyncStep::Rename,
                        TreeStep::Replace => SyncStep::Replace,
                        TreeStep::Set => SyncStep::Set,
                    },
                    path,
                    from: (!from.is_empty()).then_some(from),
                }),
                TreeNews::Removal {
                    names,
                    names_at_target,
                    examples,
                } => report.pass(TreeEvent::Deletion(&Deletion {
                    names: *names,
                    names_at_target: *names_at_target,
                    examples: examples.clone(),
                })),
                TreeNews::Question(question) => {
                    reply.consent = Some((request.consents)(question));
                }
            }
        }
        set_figures(report, status);
        report.progress();
        reply.cancels = report.is_stopped();
        reply
    }
}

/// The passage of a tree that its servers don't move as one; `None` if each of its files goes
/// without this process all the same.
fn by_client(file: &ServerFile, why: String) -> Option<Passage> {
    (file.way() != Way::Direct).then_some(Passage::Client(why))
}

/// Something that grows with everything that is done.
fn moved(figures: &TreeFigures) -> u64 {
    let TreeFigures { moved, resumed, .. } = figures;
    let entries = |totals: &TreeTotals| [totals.files, totals.directories, totals.others];
    let bytes = [moved.bytes, figures.in_flight_bytes];
    // A server may say anything.
    [&entries(moved)[..], &entries(resumed), &bytes]
        .into_iter()
        .flatten()
        .fold(0, |sum: u64, count| sum.saturating_add(*count))
}

fn counts(totals: &TreeTotals) -> TreeCounts {
    TreeCounts {
        files: totals.files,
        directories: totals.directories,
        others: totals.others,
        bytes: totals.bytes,
    }
}

fn set_figures(report: &mut Report<'_>, status: &TreeStatus) {
    let figures = &status.figures;
    let result = &mut report.result;
    result.files = figures.moved.files;
    result.directories = figures.moved.directories;
    result.others = figures.moved.others;
    result.bytes = figures.moved.bytes;
    result.resumed = counts(&figures.resumed);
    result.matched_bytes = figures.matched_bytes;
    result.failed = figures.failed;
    result.unkept = figures.unkept;
    result.owners_unkept = figures.owners_unkept;
    result.times_cut = figures.times_cut;
    result.activity.counted = counts(&figures.counted);
    result.activity.is_counted = status.is_counted;
    result.activity.in_flight = figures.in_flight;
    result.activity.in_flight_bytes = figures.in_flight_bytes;
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn figures_of_any_size_have_a_sum() {
        let totals = |count| TreeTotals {
            files: count,
            directories: count,
            others: count,
            bytes: count,
        };
        let figures = |count| TreeFigures {
            moved: totals(count),
            resumed: totals(count),
            in_flight_bytes: count,
            ..TreeFigures::default()
        };
        assert_eq!(moved(&figures(1)), 8);
        assert_eq!(moved(&figures(u64::MAX)), u64::MAX);
    }
}
