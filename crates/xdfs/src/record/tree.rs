//! The records of copies of trees and of synchronisations.

use serde::Serialize;

use super::shares::{Shares, limited_by};
use crate::events::{Deletion, Passage, SyncStep, TreeResult};
use crate::tree::SyncResult;

#[derive(Debug, Serialize)]
pub(super) struct TreeBody<'a> {
    source: &'a str,
    target: &'a str,
    files: u64,
    directories: u64,
    others: u64,
    failed: u64,
    without_special_bits: u64,
    without_owner: u64,
    without_time: u64,
    bytes: u64,
    resumed_files: u64,
    resumed_directories: u64,
    resumed_others: u64,
    resumed_bytes: u64,
    files_total: Option<u64>,
    bytes_total: Option<u64>,
    in_flight: u64,
    in_flight_bytes: u64,
    reconnects: u64,
    limited_by: Option<&'static str>,
    time_shares: Option<Shares>,
    seconds: f64,
    dry_run: bool,
    way: Option<&'static str>,
}

impl<'a> TreeBody<'a> {
    pub(super) fn new(
        source: &'a str,
        target: &'a str,
        result: &TreeResult,
        dry_run: bool,
    ) -> Self {
        let activity = &result.activity;
        Self {
            source,
            target,
            files: result.files,
            directories: result.directories,
            others: result.others,
            failed: result.failed,
            without_special_bits: result.unkept,
            without_owner: result.owners_unkept,
            without_time: result.times_cut,
            bytes: result.bytes,
            resumed_files: result.resumed.files,
            resumed_directories: result.resumed.directories,
            resumed_others: result.resumed.others,
            resumed_bytes: result.resumed.bytes,
            files_total: activity.is_counted.then_some(activity.counted.files),
            bytes_total: activity.is_counted.then_some(activity.counted.bytes),
            in_flight: activity.in_flight,
            in_flight_bytes: activity.in_flight_bytes,
            reconnects: result.reconnects,
            limited_by: result.time_shares.as_ref().map(limited_by),
            time_shares: result.time_shares.map(Shares::from),
            seconds: result.elapsed.as_secs_f64(),
            dry_run,
            way: result.passage.as_ref().map(|passage| match passage {
                Passage::Direct => "direct",
                Passage::Client(_) => "client",
            }),
        }
    }
}

#[derive(Debug, Serialize)]
pub(super) struct SyncBody<'a> {
    #[serde(flatten)]
    tree: TreeBody<'a>,
    replaced: u64,
    set: u64,
    renamed: u64,
    deleted: u64,
    kept: u64,
    matched_bytes: u64,
}

impl<'a> SyncBody<'a> {
    pub(super) fn new(
        source: &'a str,
        target: &'a str,
        result: &SyncResult,
        dry_run: bool,
    ) -> Self {
        Self {
            tree: TreeBody::new(source, target, &result.tree, dry_run),
            replaced: result.replaced,
            set: result.set,
            renamed: result.renamed,
            deleted: result.deleted,
            kept: result.kept,
            matched_bytes: result.tree.matched_bytes,
        }
    }
}

#[derive(Debug, Serialize)]
pub(super) struct DeletionBody {
    names: u64,
    names_at_target: u64,
    examples: Vec<String>,
}

impl From<&Deletion> for DeletionBody {
    fn from(deletion: &Deletion) -> Self {
        let text = |path: &Vec<u8>| String::from_utf8_lossy(path).into_owned();
        Self {
            names: deletion.names,
            names_at_target: deletion.names_at_target,
            examples: deletion.examples.iter().map(text).collect(),
        }
    }
}

#[derive(Debug, Serialize)]
pub(super) struct StepBody {
    step: &'static str,
    path: String,
    from: Option<String>,
    dry_run: bool,
}

impl StepBody {
    pub(super) fn new(step: SyncStep, path: &[u8], from: Option<&[u8]>, dry_run: bool) -> Self {
        let text = |path: &[u8]| match path {
            b"" => ".".to_owned(),
            path => String::from_utf8_lossy(path).into_owned(),
        };
        Self {
            step: step.as_str(),
            path: text(path),
            from: from.map(text),
            dry_run,
        }
    }
}
