//! Records: the JSON form of what happens to copies, paths, sessions and tunnels. docs/json.md is
//! its contract.
//!
//! There is one definition for all programs that pass it on, be it as lines (`--json`), as answers
//! or in logs. Within a version of the schema ([`SCHEMA`]) fields are only ever added; a change of
//! meaning or a removal raises it.

mod copy;
mod detached;
mod digest;
mod measured;
mod path;
mod session;
mod shares;
#[cfg(test)]
mod tests;
mod tree;
mod tunnel;

use serde::{Serialize, Serializer};
use xdfs_engine::PathDecision;
use xdfs_proto::relay::ParcelStatus;
use xdfs_proto::third_party::CopyStatus;
use xdfs_proto::{ChecksumValue, DigestValue, Fault};

use self::copy::{FileBody, ProgressBody, ResultBody, SourceBody, TreeFileBody};
use self::detached::{DetachedBody, DetachedStatusBody, ParcelStatusBody};
use self::measured::{SampleBody, StackBody, TuneBody};
use self::path::{
    CheckBody, DifferenceBody, DoneBody, EntryBody, PartialBody, SpaceBody, SumBody, SummaryBody,
    UsageBody,
};
use self::session::{ErrorBody, IdentityBody, NetworkPathBody};
use self::tree::{DeletionBody, StepBody, SyncBody, TreeBody};
use self::tunnel::TunnelBody;
use crate::events::{Deletion, Progress, SyncStep, TransferResult, TreeResult};
use crate::paths::{Attributes, OwnerNames, PartialFile};
use crate::replicas::ReplicaShare;
use crate::security::Fingerprint;
use crate::stack_perf::{PerfCase, PerfSample};
use crate::tree::SyncResult;
use crate::tune::{TuneOptions, TuneReport, TuneSample};
use crate::tunnel::{TunnelNews, TunnelPort};

pub use self::copy::Totals;
pub use self::measured::Spread;
pub use self::path::{CheckCounts, SpaceCounts};

/// Version of the schema, which each record has as its first field.
pub const SCHEMA: u32 = 1;

/// An object with the fields `schema` and `type`, and those of its type.
///
/// Sources, targets, operands and servers are names for people: usually as the user wrote them.
#[derive(Debug)]
pub struct Record<'a>(Body<'a>);

#[derive(Debug, Serialize)]
#[serde(tag = "type", rename_all = "kebab-case")]
enum Body<'a> {
    Back(TunnelBody<'a>),
    Check(CheckBody<'a>),
    Closed(TunnelBody<'a>),
    Connection(TunnelBody<'a>),
    Deletion(DeletionBody),
    Detached(DetachedBody<'a>),
    DetachedStatus(DetachedStatusBody<'a>),
    ParcelStatus(ParcelStatusBody<'a>),
    Difference(DifferenceBody),
    Done(DoneBody<'a>),
    Entry(EntryBody<'a>),
    Error(ErrorBody<'a>),
    File(FileBody<'a>),
    Identity(IdentityBody<'a>),
    Listening(TunnelBody<'a>),
    Lost(TunnelBody<'a>),
    Partial(PartialBody<'a>),
    Path(NetworkPathBody<'a>),
    Progress(ProgressBody<'a>),
    Refused(TunnelBody<'a>),
    Result(ResultBody<'a>),
    Sample(SampleBody<'a>),
    Source(SourceBody<'a>),
    Space(SpaceBody<'a>),
    Stack(StackBody<'a>),
    Step(StepBody),
    Sum(SumBody<'a>),
    Summary(SummaryBody),
    Sync(SyncBody<'a>),
    Tree(TreeBody<'a>),
    #[serde(rename = "file")]
    TreeFile(TreeFileBody<'a>),
    TreeProgress(TreeBody<'a>),
    Tune(TuneBody<'a>),
    #[serde(rename = "error")]
    TunnelError(TunnelBody<'a>),
    Usage(UsageBody<'a>),
}

impl Serialize for Record<'_> {
    fn serialize<S: Serializer>(&self, to: S) -> Result<S::Ok, S::Error> {
        #[derive(Serialize)]
        struct Versioned<'a> {
            schema: u32,
            #[serde(flatten)]
            body: &'a Body<'a>,
        }
        let (schema, body) = (SCHEMA, &self.0);
        Versioned { schema, body }.serialize(to)
    }
}

impl<'a> Record<'a> {
    /// The record as JSON in one line, with its line end.
    #[must_use]
    pub fn line(&self) -> String {
        // Strings, numbers and options always have a JSON form.
        let mut text = serde_json::to_string(self).unwrap_or_default();
        text.push('\n');
        text
    }

    /// `progress`: of a file, `seconds` after its start.
    #[must_use]
    pub fn progress(source: &'a str, target: &'a str, progress: &Progress, seconds: f64) -> Self {
        let body = ProgressBody::new(source, target, progress, seconds);
        Self(Body::Progress(body))
    }

    /// `source`: the share that one of several sources had in a file.
    #[must_use]
    pub fn source(target: &'a str, share: &'a ReplicaShare) -> Self {
        Self(Body::Source(SourceBody::new(target, share)))
    }

    /// `file`: the result of a file.
    #[must_use]
    pub fn file(source: &'a str, target: &'a str, result: &TransferResult, dry_run: bool) -> Self {
        Self(Body::File(FileBody::new(source, target, result, dry_run)))
    }

    /// `file`: a file of a tree that was moved.
    #[must_use]
    pub fn tree_file(source: &'a str, target: &'a str, bytes: u64, digest: &DigestValue) -> Self {
        let body = TreeFileBody::new(source, target, bytes, digest);
        Self(Body::TreeFile(body))
    }

    /// `tree-progress`: of a tree.
    #[must_use]
    pub fn tree_progress(source: &'a str, target: &'a str, result: &TreeResult) -> Self {
        let body = TreeBody::new(source, target, result, false);
        Self(Body::TreeProgress(body))
    }

    /// `tree`: the result of a tree.
    #[must_use]
    pub fn tree(source: &'a str, target: &'a str, result: &TreeResult, dry_run: bool) -> Self {
        Self(Body::Tree(TreeBody::new(source, target, result, dry_run)))
    }

    /// `deletion`: the names that a synchronisation is about to delete.
    #[must_use]
    pub fn deletion(deletion: &Deletion) -> Self {
        Self(Body::Deletion(deletion.into()))
    }

    /// `step`: a step of a synchronisation at a path relative to it; `from` is the path before, of
    /// a renamed entry.
    #[must_use]
    pub fn step(step: SyncStep, path: &[u8], from: Option<&[u8]>, dry_run: bool) -> Self {
        Self(Body::Step(StepBody::new(step, path, from, dry_run)))
    }

    /// `sync`: the result of a synchronisation.
    #[must_use]
    pub fn sync(source: &'a str, target: &'a str, result: &SyncResult, dry_run: bool) -> Self {
        Self(Body::Sync(SyncBody::new(source, target, result, dry_run)))
    }

    /// `result`: the end of a run. `only` is the result of a run with a single file.
    #[must_use]
    pub fn result(
        source: Option<&'a str>,
        target: &'a str,
        totals: &Totals,
        only: Option<&TransferResult>,
    ) -> Self {
        let body = ResultBody::new(source, target, totals, only);
        Self(Body::Result(body))
    }

    /// `path`: a decision about the network path to a server.
    #[must_use]
    pub fn network_path(server: &'a str, decision: &'a PathDecision) -> Self {
        Self(Body::Path(NetworkPathBody::new(server, decision)))
    }

    /// `detached`: a copy that `server` continues by itself.
    #[must_use]
    pub fn detached(id: &'a str, server: &'a str, source: &'a str, target: &'a str) -> Self {
        Self(Body::Detached(DetachedBody {
            id,
            server,
            source,
            target,
        }))
    }

    /// `detached-status`: the state of such a copy.
    #[must_use]
    pub fn detached_status(server: &'a str, id: &'a str, status: &'a CopyStatus) -> Self {
        Self(Body::DetachedStatus(DetachedStatusBody::new(
            server, id, status,
        )))
    }

    /// `parcel-status`: the state of a file at a relay.
    #[must_use]
    pub fn parcel_status(server: &'a str, id: &'a str, status: &'a ParcelStatus) -> Self {
        let body = ParcelStatusBody::new(server, (id, None), status);
        Self(Body::ParcelStatus(body))
    }

    /// `parcel-status`: the state of a file of this user at a relay.
    #[must_use]
    pub fn parcel_of(
        server: &'a str,
        id: &'a str,
        user: &'a str,
        status: &'a ParcelStatus,
    ) -> Self {
        let body = ParcelStatusBody::new(server, (id, Some(user)), status);
        Self(Body::ParcelStatus(body))
    }

    /// `identity`: how a server identifies the user, and its own key; both are `None` on a channel
    /// without protection.
    #[must_use]
    pub fn identity(
        server: &'a str,
        user: Option<&'a str>,
        fingerprint: Option<Fingerprint>,
    ) -> Self {
        Self(Body::Identity(IdentityBody {
            server,
            user,
            fingerprint: fingerprint.map(|fingerprint| fingerprint.to_string()),
        }))
    }

    /// `error`: a failure of the file with these `places` (source and target), or of the run.
    #[must_use]
    pub fn error(places: Option<(&'a str, &'a str)>, fault: &'a Fault) -> Self {
        let (source, target) = (places.map(|p| p.0), places.map(|p| p.1));
        Self(Body::Error(ErrorBody::new(source, target, fault)))
    }

    /// `error`: a failure of an operand of a command about paths, or of the command.
    #[must_use]
    pub fn operand_error(operand: Option<&'a str>, fault: &'a Fault) -> Self {
        Self(Body::Error(ErrorBody::new(operand, None, fault)))
    }

    /// `entry`: a found entry. `owner` are the names that are known; `target` is that of a symbolic
    /// link, if it was asked for.
    #[must_use]
    pub fn entry(
        operand: &'a str,
        path: &[u8],
        attributes: &Attributes,
        owner: &'a OwnerNames,
        target: Option<&[u8]>,
    ) -> Self {
        let body = EntryBody::new(operand, path, attributes, owner, target);
        Self(Body::Entry(body))
    }

    /// `sum`: the checksum of a file of so many bytes, and whether it is the expected one, if one
    /// was.
    #[must_use]
    pub fn sum(
        operand: &'a str,
        path: &[u8],
        bytes: u64,
        value: &ChecksumValue,
        matches: Option<bool>,
    ) -> Self {
        let body = SumBody::new(operand, path, bytes, value, matches);
        Self(Body::Sum(body))
    }

    /// `difference`: an entry that differs, or that one of two trees lacks: `None` stands for that
    /// one.
    #[must_use]
    pub fn difference(
        path: &[u8],
        source: Option<&Attributes>,
        target: Option<&Attributes>,
    ) -> Self {
        let body = DifferenceBody::new(path, source, target);
        Self(Body::Difference(body))
    }

    /// `difference`: a file of a list, of this size, that isn't there (`None`), or not the same: of
    /// the size that was found, or no file.
    #[must_use]
    pub fn file_difference(path: &[u8], size: u64, found: Option<Option<u64>>) -> Self {
        Self(Body::Difference(DifferenceBody::of_file(path, size, found)))
    }

    /// `check`: the result of a comparison of two trees.
    #[must_use]
    pub fn check(source: &'a str, target: &'a str, counts: CheckCounts) -> Self {
        Self(Body::Check(CheckBody {
            source,
            target,
            counts,
        }))
    }

    /// `space`: the space of the file system of a path.
    #[must_use]
    pub fn space(operand: &'a str, path: &[u8], counts: SpaceCounts) -> Self {
        Self(Body::Space(SpaceBody::new(operand, path, counts)))
    }

    /// `partial`: an unfinished transfer to a path.
    #[must_use]
    pub fn partial(operand: &'a str, path: &[u8], file: &PartialFile) -> Self {
        Self(Body::Partial(PartialBody::new(operand, path, file)))
    }

    /// `usage`: the bytes of a path and all below it.
    #[must_use]
    pub fn usage(operand: &'a str, path: &[u8], bytes: u64) -> Self {
        Self(Body::Usage(UsageBody::new(operand, path, bytes)))
    }

    /// `done`: success for an operand.
    #[must_use]
    pub fn done(operand: &'a str, path: &[u8]) -> Self {
        Self(Body::Done(DoneBody::new(operand, path)))
    }

    /// `summary`: the end of a command about paths.
    #[must_use]
    pub fn summary(command: &'static str, operands: u64, failed: u64, exit_code: u8) -> Self {
        Self(Body::Summary(SummaryBody {
            command,
            operands,
            failed,
            exit_code,
        }))
    }

    /// `listening`: a port of a tunnel.
    #[must_use]
    pub fn listening(port: &TunnelPort) -> Self {
        Self(Body::Listening(port.into()))
    }

    /// `connection`, `refused`, `closed`, `lost` or `back`: an event of a tunnel.
    #[must_use]
    pub fn tunnel(news: &'a TunnelNews) -> Self {
        let body = news.into();
        Self(match news {
            TunnelNews::Opened { .. } => Body::Connection(body),
            TunnelNews::Failed { .. } => Body::Refused(body),
            TunnelNews::Lost { .. } => Body::Lost(body),
            TunnelNews::Back { .. } => Body::Back(body),
            TunnelNews::Closed { .. } => Body::Closed(body),
        })
    }

    /// `error`: the failure that ends a tunnel.
    #[must_use]
    pub fn tunnel_error(fault: &Fault) -> Self {
        Self(Body::TunnelError(fault.into()))
    }

    /// `sample`: a measurement of [`tune()`](crate::tune()).
    #[must_use]
    pub fn sample(sample: &'a TuneSample) -> Self {
        Self(Body::Sample(sample.into()))
    }

    /// `tune`: the result of [`tune()`](crate::tune()) with these options.
    #[must_use]
    pub fn tune(report: &'a TuneReport, options: &TuneOptions) -> Self {
        Self(Body::Tune(TuneBody::new(report, options)))
    }

    /// `stack`: the measurements of a driver stack with one case. `ratios` are those to plain
    /// sockets, of bandwidth or of the round trip.
    #[must_use]
    pub fn stack(stack: &'a str, case: &PerfCase, samples: &[PerfSample], ratios: &[f64]) -> Self {
        Self(Body::Stack(StackBody::new(stack, case, samples, ratios)))
    }
}
