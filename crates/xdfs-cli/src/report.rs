//! Reports the progress and the results of a run: text or JSON lines.
//!
//! Lines on a terminal are redrawn at most ten times a second; plain lines and JSON progress come
//! less often. Totals are summed up here.

#[cfg(test)]
mod tests;

use std::io::{IsTerminal as _, Write as _};
use std::path::Path;
use std::time::{Duration, Instant};

use xdfs::record::{Record, Totals};
use xdfs::security::FirstUse;
use xdfs::{
    Deletion, DigestValue, Fault, Passage, PathDecision, Progress, Quoting, RemotePlace,
    ReplicaSet, ReplicaShare, StandardOutput, SyncResult, SyncStep, TransferResult, TreeResult,
};

use crate::console::{Console, printable, wants_color, warning_text};
use crate::flags::OutputFlags;
use crate::human;
use crate::progress::{self, ProgressLine};
use crate::rate::RateMeter;
use crate::stats::Stats;
use crate::transfer_log::TransferLog;

/// Shortest interval between two drawings on a terminal.
const DRAW_STEP: Duration = Duration::from_millis(100);

/// Shortest interval between two plain progress lines.
const PLAIN_STEP: Duration = Duration::from_secs(5);

/// Shortest interval between two JSON progress objects.
const JSON_STEP: Duration = Duration::from_millis(500);

/// The names of a transfer, as the user wrote them.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Label {
    /// The source.
    pub(crate) source: String,
    /// The target of this file.
    pub(crate) target: String,
}

impl Label {
    /// The label of an entry of the tree that has this one.
    fn entry(&self, path: &[u8]) -> Self {
        let path = String::from_utf8_lossy(path);
        Self {
            source: format!("{}/{path}", self.source.trim_end_matches('/')),
            target: format!("{}/{path}", self.target.trim_end_matches('/')),
        }
    }

    /// The label of a tree that went to the path `target`, where the path `named` is that of the
    /// label's target: in an existing directory a tree keeps its name.
    pub(crate) fn landed(&self, named: &[u8], target: &[u8]) -> Self {
        let mut label = self.clone();
        if let Some(inside) = target.strip_prefix(named).filter(|rest| !rest.is_empty()) {
            let inside = String::from_utf8_lossy(inside);
            let inside = inside.trim_start_matches('/');
            label.target = format!("{}/{inside}", self.target.trim_end_matches('/'));
        }
        label
    }

    /// The source in messages about it: its path, on this side and on the server.
    pub(crate) fn name(&self) -> String {
        if let Some(Ok(places)) = ReplicaSet::listed(&self.source)
            && let Some(first) = places.first()
        {
            return Quoting::Plain.text(&first.path);
        }
        let place = Some(&self.source).filter(|source| RemotePlace::is_remote(source));
        match place.and_then(|url| url.parse::<RemotePlace>().ok()) {
            // The whole server.
            Some(place) if place.path.iter().all(|&b| b == b'/') => self.source.clone(),
            Some(place) => Quoting::Plain.text(&place.path),
            // The root of a named server: a colon follows the name in any case.
            None => match self.source.strip_suffix(':') {
                Some(name) => name.to_owned(),
                None => Quoting::Plain.text(self.source.as_bytes()),
            },
        }
    }
}

/// Description of a run.
#[derive(Clone, Debug, Default)]
pub(crate) struct Run {
    /// The source, if there is only one.
    pub(crate) source: Option<String>,
    /// The target as the user wrote it.
    pub(crate) target: String,
    /// Number of files.
    pub(crate) files: u64,
    /// Bytes of all files, if known.
    pub(crate) bytes: Option<u64>,
    /// It writes nothing.
    pub(crate) dry_run: bool,
    /// It ends with a table of statistics.
    pub(crate) stats: bool,
    /// The number of files shows in the end only.
    pub(crate) is_open: bool,
}

/// The file being followed.
#[derive(Debug)]
struct Current {
    label: Label,
    started: Instant,
    last: Progress,
    meter: RateMeter,
    reported: Option<Instant>,
}

/// Reports a run to people or programs.
#[derive(Debug)]
pub(crate) struct Reporter {
    console: Console,
    json: bool,
    run: Run,
    started: Instant,
    totals: Totals,
    only: Option<TransferResult>,
    current: Option<Current>,
    meter: RateMeter,
    /// Time of the latest progress report of a tree.
    drawn: Option<Instant>,
    /// Trees were copied, so the number of files wasn't known in advance.
    trees: bool,
    stats: Stats,
    /// Files whose time could not be kept.
    times_cut: u64,
    /// The fault of standard output, reported at the end.
    unwritten: Option<Fault>,
    transfers: Option<TransferLog>,
}

impl Reporter {
    /// A reporter of a run that starts now.
    pub(crate) fn new(flags: OutputFlags, run: Run) -> Self {
        let totals = Totals {
            dry_run: run.dry_run,
            ..Totals::default()
        };
        Self {
            console: Console::new(flags),
            json: flags.json,
            run,
            started: Instant::now(),
            totals,
            only: None,
            current: None,
            meter: RateMeter::default(),
            drawn: None,
            trees: false,
            stats: Stats::default(),
            times_cut: 0,
            unwritten: None,
            transfers: None,
        }
    }

    /// Appends a line for each transferred file to a file from now on, if one is named.
    ///
    /// # Errors
    /// It can't be opened.
    pub(crate) fn log_transfers(&mut self, path: Option<&Path>) -> Result<(), Fault> {
        self.transfers = path.map(TransferLog::open).transpose()?;
        Ok(())
    }

    fn log_transfer(&mut self, label: &Label, bytes: u64, digest: &DigestValue) {
        if let Some(log) = &mut self.transfers
            && let Err(fault) = log.add(&label.source, &label.target, bytes, digest)
        {
            self.failure(None, &fault);
        }
    }

    /// Reports a file of a tree that was moved.
    pub(crate) fn tree_file(
        &mut self,
        label: &Label,
        path: &[u8],
        bytes: u64,
        digest: &DigestValue,
    ) {
        if !self.json && !self.console.is_verbose() && self.transfers.is_none() {
            return;
        }
        let entry = label.entry(path);
        if self.json {
            self.print(&Record::tree_file(&entry.source, &entry.target, bytes, digest).line());
        } else {
            let size = human::size(bytes);
            self.console.detail(&format!("{}: {size}", entry.name()));
        }
        self.log_transfer(&entry, bytes, digest);
    }

    /// Standard error, for messages.
    pub(crate) fn console(&mut self) -> &mut Console {
        &mut self.console
    }

    /// Writes to standard output; a failure is reported at the end.
    pub(crate) fn print(&mut self, text: &str) {
        if let Err(fault) = print(text) {
            self.unwritten.get_or_insert(fault);
        }
    }

    /// Reports a problem that doesn't stop the run.
    pub(crate) fn warn(&mut self, fault: &Fault) {
        self.console.info(&warning_text(fault));
    }

    /// Reports that a source of a file that has several isn't used any more.
    pub(crate) fn source_dropped(&mut self, source: &RemotePlace, fault: &Fault) {
        let fault = warning_text(fault);
        let reason = fault.strip_prefix("warning: ").unwrap_or(&fault);
        let text = format!("warning: {source} is not used any more: {reason}");
        self.console.info(&printable(&text));
    }

    /// Reports what came from a source of a file that has several, or was written by a member of a
    /// group (`is_writer`).
    pub(crate) fn source_share(&mut self, label: &Label, share: &ReplicaShare, is_writer: bool) {
        if self.json {
            self.print(&Record::source(&label.target, share).line());
        } else {
            let size = human::size(share.bytes);
            let word = if is_writer { "by" } else { "from" };
            self.console
                .info(&format!("{word} {}: {size}", share.place));
        }
    }

    /// Starts to follow a file.
    pub(crate) fn begin(&mut self, label: &Label) {
        self.current = Some(Current {
            label: label.clone(),
            started: Instant::now(),
            last: Progress {
                bytes: 0,
                bytes_total: None,
                resumed_bytes: 0,
                channels: 0,
            },
            meter: RateMeter::default(),
            reported: None,
        });
    }

    /// Reports progress of the followed file.
    pub(crate) fn progress(&mut self, label: &Label, progress: &Progress) {
        let now = Instant::now();
        let Some(current) = &mut self.current else {
            return;
        };
        let moved = progress.bytes.saturating_sub(progress.resumed_bytes);
        current.meter.record(now - current.started, moved);
        let moved_before = self.totals.bytes.saturating_sub(self.totals.resumed_bytes);
        self.meter
            .record(now - self.started, moved_before.saturating_add(moved));
        current.last = progress.clone();
        if self.json {
            if current.reported.is_none_or(|last| now - last >= JSON_STEP) {
                current.reported = Some(now);
                let seconds = (now - current.started).as_secs_f64();
                self.print(
                    &Record::progress(&label.source, &label.target, progress, seconds).line(),
                );
            }
        } else {
            self.tick();
        }
    }

    /// Redraws progress as time passes.
    pub(crate) fn tick(&mut self) {
        if self.json || self.console.is_quiet() {
            return;
        }
        let now = Instant::now();
        let terminal = self.console.is_terminal();
        let Some(current) = &mut self.current else {
            return;
        };
        let (step, since) = if terminal {
            (DRAW_STEP, current.reported)
        } else {
            (
                PLAIN_STEP,
                Some(current.reported.unwrap_or(current.started)),
            )
        };
        if since.is_some_and(|since| now - since < step) {
            return;
        }
        current.reported = Some(now);
        let line = file_line(current, now);
        let total = self.total_line(now);
        if terminal {
            self.console.draw(|columns| {
                let mut lines = vec![line.terminal(columns)];
                lines.extend(total.map(|total| total.terminal(columns)));
                lines
            });
        } else {
            self.console.info(&line.plain());
            if let Some(total) = total {
                self.console.info(&total.plain());
            }
        }
    }

    /// The progress line of all files; `None` for a single file.
    fn total_line(&self, now: Instant) -> Option<ProgressLine> {
        if self.run.files < 2 {
            return None;
        }
        let here = self
            .current
            .as_ref()
            .map_or(0, |current| current.last.bytes);
        let bytes = self.totals.bytes.saturating_add(here);
        let elapsed = now - self.started;
        let left = self
            .run
            .bytes
            .and_then(|all| self.meter.time_left(elapsed, all.saturating_sub(bytes)));
        Some(ProgressLine {
            name: "total".into(),
            files: Some((self.totals.files + self.totals.failed, Some(self.run.files))),
            bytes,
            bytes_total: self.run.bytes,
            bytes_per_second: self.meter.bytes_per_second(elapsed),
            left,
            ..ProgressLine::default()
        })
    }

    /// Reports a completed file (in a dry run, one that would be copied).
    pub(crate) fn file_done(&mut self, label: &Label, result: TransferResult) {
        let Label { source, target } = label;
        if self.run.dry_run {
            if !self.json && !self.console.is_quiet() {
                self.console.clear();
                self.print(&dry_run_line(label, &result));
            }
        } else if !self.json {
            let result = progress::result(&result);
            self.console.info(&format!("{}: {result}", label.name()));
        }
        if self.console.is_verbose() && !self.run.dry_run {
            let how = match &result.passage {
                Some(Passage::Direct) => "straight from one server to the other".to_owned(),
                Some(Passage::Client(why)) => {
                    let verdict = progress::verdict(&result.time_shares);
                    format!("through this machine ({why}), {verdict}")
                }
                None => progress::verdict(&result.time_shares),
            };
            self.console.detail(&format!("{source} to {target}: {how}"));
            if let Some(digest) = progress::digest(&result.digest, " ") {
                self.console.detail(&format!("{}: {digest}", label.name()));
            }
        }
        self.file_measured(label, result);
    }

    /// Like [`Self::file_done`], without text output.
    pub(crate) fn file_measured(&mut self, label: &Label, result: TransferResult) {
        self.current = None;
        let totals = &mut self.totals;
        totals.files += 1;
        totals.bytes = totals.bytes.saturating_add(result.bytes);
        totals.resumed_bytes = totals.resumed_bytes.saturating_add(result.resumed_bytes);
        totals.retransmitted_bytes = totals
            .retransmitted_bytes
            .saturating_add(result.retransmitted_bytes);
        totals.channels = totals.channels.max(result.channels);
        if result.is_skipped {
            self.stats.skipped += 1;
        } else {
            if !self.run.dry_run {
                self.log_transfer(label, result.bytes, &result.digest);
            }
            self.times_cut += u64::from(result.has_cut_time);
            self.stats.copied += 1;
            let time = Duration::from_secs_f64(result.seconds);
            self.stats.time.add(&result.time_shares, time);
        }
        if self.json {
            let dry_run = self.run.dry_run;
            self.print(&Record::file(&label.source, &label.target, &result, dry_run).line());
        }
        self.only = (self.run.files == 1).then_some(result);
    }

    /// Counts a source file that was removed.
    pub(crate) fn source_removed(&mut self) {
        self.totals.removed += 1;
    }

    /// Reports a server trusted on first use.
    pub(crate) fn first_use(&mut self, server: &FirstUse) {
        self.console.first_use(server, !self.json);
    }

    /// Reports a decision about the network path to a server. For people it is in the log, except
    /// that another driver stack is used.
    pub(crate) fn path_decision(&mut self, server: &RemotePlace, decision: &PathDecision) {
        if let PathDecision::Fallback { from, to, cause } = decision {
            let text = format!("not reached with {from} ({cause}): going on with {to}");
            self.console.info(&text);
        }
        if self.json {
            let server = RemotePlace {
                path: Vec::new(),
                ..server.clone()
            };
            self.print(&Record::network_path(&server.to_string(), decision).line());
        }
    }

    /// Reports progress of a tree.
    pub(crate) fn tree_progress(&mut self, label: &Label, result: &TreeResult) {
        let now = Instant::now();
        let terminal = self.console.is_terminal();
        let step = match (self.json, terminal) {
            (true, _) => JSON_STEP,
            (false, true) => DRAW_STEP,
            (false, false) => PLAIN_STEP,
        };
        let activity = &result.activity;
        let moved = result.bytes.saturating_add(activity.in_flight_bytes);
        self.meter.record(result.elapsed, moved);
        let last = self.drawn.unwrap_or(self.started);
        if now - last < step || self.console.is_quiet() {
            return;
        }
        self.drawn = Some(now);
        if self.json {
            self.print(&Record::tree_progress(&label.source, &label.target, result).line());
            return;
        }
        // What was there already is done too. The total is known once everything is counted.
        let bytes = moved.saturating_add(result.resumed.bytes);
        let counted = &activity.counted;
        let total = activity.is_counted.then_some(counted.bytes.max(bytes));
        let files = (activity.is_counted || counted.files > 0).then_some(counted.files);
        let line = ProgressLine {
            name: printable(&label.name()),
            files: Some((result.files + result.resumed.files, files)),
            is_counting: !activity.is_counted,
            bytes,
            bytes_total: total,
            bytes_per_second: self.meter.bytes_per_second(result.elapsed),
            left: total.and_then(|total| {
                let rest = total.saturating_sub(bytes);
                self.meter.time_left(result.elapsed, rest)
            }),
            channels: None,
            in_flight: activity.in_flight,
            reconnects: result.reconnects,
        };
        if terminal {
            self.console.draw(|columns| vec![line.terminal(columns)]);
        } else {
            self.console.info(&line.plain());
        }
    }

    fn count_tree(&mut self, result: &TreeResult) {
        self.totals.files += result.files;
        self.totals.bytes = self.totals.bytes.saturating_add(result.bytes);
        self.trees = true;
        self.stats.copied += result.files;
        self.stats.skipped += result.resumed.files;
        self.stats.matched_bytes += result.matched_bytes;
        self.stats.skipped_bytes += result.resumed.bytes;
        self.stats.retries += result.reconnects;
        if let Some(shares) = &result.time_shares {
            self.stats.time.add(shares, result.elapsed);
        }
    }

    /// Reports that a file is tried again.
    pub(crate) fn retry(&mut self, text: &str) {
        self.stats.retries += 1;
        self.console.info(text);
    }

    /// Reports a failed entry of a tree.
    pub(crate) fn tree_failure(&mut self, label: &Label, path: &[u8], fault: &Fault) {
        if path.is_empty() {
            return self.failure(Some(label), fault);
        }
        self.failure(Some(&label.entry(path)), fault);
    }

    /// Shows how a tree got from one server to another.
    fn passage(&mut self, label: &Label, result: &TreeResult) {
        let how = match &result.passage {
            Some(Passage::Direct) => "straight from one server to the other".to_owned(),
            Some(Passage::Client(why)) => format!("through this machine ({why})"),
            None => return,
        };
        if self.console.is_verbose() && !self.run.dry_run {
            let Label { source, target } = label;
            self.console.detail(&format!("{source} to {target}: {how}"));
        }
    }

    /// Reports a completed tree (in a dry run, one that would be copied), possibly with failed
    /// entries.
    pub(crate) fn tree_done(&mut self, label: &Label, result: &TreeResult) {
        self.console.end_errors();
        self.count_tree(result);
        if self.json {
            let dry_run = self.run.dry_run;
            self.print(&Record::tree(&label.source, &label.target, result, dry_run).line());
            return;
        }
        self.passage(label, result);
        let seconds = result.elapsed.as_secs_f64();
        let verb = if self.run.dry_run { "would copy " } else { "" };
        let rates = if self.run.dry_run || seconds <= 0.0 {
            String::new()
        } else {
            format!(
                " in {}, {}, {:.0} {}/s",
                human::seconds(seconds),
                human::rate(result.bytes.saturating_sub(result.matched_bytes) as f64 / seconds),
                result.files as f64 / seconds,
                if (result.files as f64 / seconds).round() == 1.0 {
                    "file"
                } else {
                    "files"
                },
            )
        };
        let moved = entries(result.files, result.directories, result.others);
        let resumed = &result.resumed;
        let there = match resumed.files + resumed.directories + resumed.others {
            0 => String::new(),
            count => format!(
                "; {} ({}) {} there already",
                entries(resumed.files, resumed.directories, resumed.others),
                human::size(resumed.bytes),
                if count == 1 { "was" } else { "were" },
            ),
        };
        let failed = match result.failed {
            0 => String::new(),
            failed => format!("; {failed} failed"),
        };
        let matched = match result.matched_bytes {
            0 => String::new(),
            bytes => format!(" ({} of it were there already)", human::size(bytes)),
        };
        self.console.info(&format!(
            "{}: {verb}{moved}, {}{matched}{rates}{there}{failed}",
            printable(&label.name()),
            human::size(result.bytes),
        ));
    }

    /// Reports the deletions that a synchronisation is about to make.
    pub(crate) fn sync_deletion(&mut self, label: &Label, deletion: &Deletion) {
        if self.json {
            self.print(&Record::deletion(deletion).line());
            return;
        }
        let shown: Vec<_> = deletion
            .examples
            .iter()
            .map(|path| Quoting::Plain.text(path))
            .collect();
        let rest = match deletion.names - deletion.examples.len() as u64 {
            0 => String::new(),
            rest => format!(" and {rest} more"),
        };
        self.console.info(&format!(
            "{}: about to delete {} of {}: {}{rest}",
            label.target,
            deletion.names,
            human::count(deletion.names_at_target, "name"),
            shown.join(", "),
        ));
    }

    /// Reports a step of a tree: in a dry run any step, otherwise a completed rename or removal of
    /// a synchronisation.
    pub(crate) fn tree_step(&mut self, step: SyncStep, path: &[u8], from: Option<&[u8]>) {
        if self.json {
            self.print(&Record::step(step, path, from, self.run.dry_run).line());
            return;
        }
        let verb = match step {
            SyncStep::Set => "set attributes of",
            step => step.as_str(),
        };
        let shown = |path: &[u8]| match path {
            b"" => "the target directory itself".to_owned(),
            path => Quoting::Plain.text(path),
        };
        let line = match from {
            Some(from) => format!("{verb} {} to {}", shown(from), shown(path)),
            None => format!("{verb} {}", shown(path)),
        };
        if !self.run.dry_run {
            self.console.detail(&line);
        } else if !self.console.is_quiet() {
            self.console.clear();
            self.print(&format!("{line}\n"));
        }
    }

    /// Reports a completed synchronisation (or its dry run), possibly with failed entries.
    pub(crate) fn sync_done(&mut self, label: &Label, result: &SyncResult) {
        let tree = &result.tree;
        self.console.end_errors();
        self.count_tree(tree);
        if self.json {
            let dry_run = self.run.dry_run;
            self.print(&Record::sync(&label.source, &label.target, result, dry_run).line());
            return;
        }
        self.passage(label, tree);
        let mut parts = vec![entries(tree.files, tree.directories, tree.others)];
        let words = match self.run.dry_run {
            true => [
                "with attributes to be set",
                "to be renamed",
                "to be deleted",
            ],
            false => ["with new attributes", "renamed", "deleted"],
        };
        let counts = [
            (result.set, words[0]),
            (result.renamed, words[1]),
            (result.deleted, words[2]),
            (tree.failed, "failed"),
        ];
        let seen = counts.iter().filter(|(count, _)| *count > 0);
        parts.extend(seen.map(|(count, what)| format!("{count} {what}")));
        let matched = match tree.matched_bytes {
            0 => String::new(),
            bytes => format!(" ({} of it were there already)", human::size(bytes)),
        };
        parts.push(human::size(tree.bytes) + &matched);
        if result.kept > 0 {
            parts.push(format!("{} not deleted", result.kept));
        }
        let verb = if self.run.dry_run { "would copy " } else { "" };
        let time = match self.run.dry_run {
            true => String::new(),
            false => format!(" in {}", human::seconds(tree.elapsed.as_secs_f64())),
        };
        let source = printable(&label.name());
        let changed = [
            tree.files,
            tree.directories,
            tree.others,
            tree.failed,
            result.kept,
        ];
        let changed = changed.iter().chain(counts.iter().map(|(count, _)| count));
        let parts = match changed.sum::<u64>() {
            0 => format!("up to date ({})", parts.join(", ")),
            _ => format!("{verb}{}", parts.join(", ")),
        };
        self.console.info(&format!("{source}: {parts}{time}"));
    }

    /// Reports the failure of a file, or of the run if `label` is `None`.
    pub(crate) fn failure(&mut self, label: Option<&Label>, fault: &Fault) {
        self.current = None;
        if self.totals.exit_code == 0 {
            self.totals.exit_code = fault.exit_code();
        }
        if label.is_some() {
            self.totals.failed += 1;
        }
        if self.json {
            let places = label.map(|l| (l.source.as_str(), l.target.as_str()));
            self.print(&Record::error(places, fault).line());
        }
        self.console.one_error(fault);
    }

    /// The program that reads standard output has ended before a file was printed to it, which is
    /// no failure.
    pub(crate) fn file_unread(&mut self) {
        self.current = None;
        self.run.files = self.run.files.saturating_sub(1);
    }

    /// Ends the run; all files that were not copied count as failed.
    pub(crate) fn finish(&mut self) -> u8 {
        self.console.clear();
        if let Some(fault) = xdfs::time_warning(self.times_cut) {
            self.warn(&fault);
        }
        if self.trees || self.run.is_open {
            self.run.files = self.totals.files + self.totals.failed;
        } else {
            self.totals.failed = self.run.files.saturating_sub(self.totals.files);
        }
        self.totals.seconds = match &self.only {
            Some(result) => result.seconds,
            None => self.started.elapsed().as_secs_f64(),
        };
        let totals = &self.totals;
        if self.json {
            let source = self.run.source.as_deref();
            let record = Record::result(source, &self.run.target, totals, self.only.as_ref());
            let line = record.line();
            self.print(&line);
        } else if self.run.files > 1 && !self.run.dry_run && !self.trees {
            let failed = match totals.failed {
                0 => String::new(),
                failed => format!(", {failed} failed"),
            };
            let text = format!(
                "total: {} of {} files, {} in {}, {}{failed}",
                totals.files,
                self.run.files,
                human::size(totals.bytes),
                human::seconds(totals.seconds),
                human::rate(totals.bytes_per_second()),
            );
            self.console.info(&text);
        }
        if self.run.stats && !self.json && !self.run.dry_run {
            let elapsed = self.started.elapsed().as_secs_f64();
            for line in self.stats.table(&self.totals, elapsed) {
                self.console.info(&line);
            }
        }
        if !self.json && self.totals.removed > 0 {
            let removed = human::count(self.totals.removed, "source file");
            self.console.info(&format!("removed {removed}"));
        }
        if let Some(fault) = self.unwritten.take() {
            if self.totals.exit_code == 0 {
                self.totals.exit_code = fault.exit_code();
            }
            self.console.error(&fault);
        }
        self.totals.exit_code
    }

    /// The result of a run's only file, if it was copied.
    pub(crate) fn only_result(&self) -> Option<&TransferResult> {
        self.only.as_ref()
    }
}

/// Numbers of entries, without those that are zero unless there are no others.
fn entries(files: u64, directories: u64, others: u64) -> String {
    let mut parts = vec![human::count(files, "file")];
    if directories > 0 {
        let noun = if directories == 1 {
            "directory"
        } else {
            "directories"
        };
        parts.push(format!("{directories} {noun}"));
    }
    if others > 0 {
        let nouns = if others == 1 {
            "other entry"
        } else {
            "other entries"
        };
        parts.push(format!("{others} {nouns}"));
    }
    parts.join(", ")
}

fn file_line(current: &Current, now: Instant) -> ProgressLine {
    let last = &current.last;
    let elapsed = now - current.started;
    let missing = last
        .bytes_total
        .map(|total| total.saturating_sub(last.bytes));
    ProgressLine {
        name: printable(&current.label.name()),
        files: None,
        bytes: last.bytes,
        bytes_total: last.bytes_total,
        bytes_per_second: current.meter.bytes_per_second(elapsed),
        left: missing.and_then(|missing| current.meter.time_left(elapsed, missing)),
        channels: Some(last.channels),
        ..ProgressLine::default()
    }
}

fn dry_run_line(label: &Label, result: &TransferResult) -> String {
    let there = match result.resumed_bytes {
        0 => String::new(),
        bytes => format!(", of which {} are there already", human::size(bytes)),
    };
    let size = human::size(result.bytes);
    let (source, target) = (printable(&label.source), printable(&label.target));
    format!("would copy {source} to {target}: {size}{there}\n")
}

/// Writes to standard output, and flushes it. A closed pipe isn't a failure.
///
/// # Errors
/// Any other failed write.
pub(crate) fn print(text: impl AsRef<[u8]>) -> Result<(), Fault> {
    let mut out = StandardOutput;
    let written = out.write_all(text.as_ref()).and_then(|()| out.flush());
    match written.err().and_then(|error| unwritten(&error)) {
        None => Ok(()),
        Some(fault) => Err(fault),
    }
}

/// Prints an answer of the parser of command lines: help or the version to standard output, an
/// error to standard error. Returns the exit code.
///
/// # Errors
/// Help or the version can't be written.
pub(crate) fn print_parsed(answer: &clap::Error) -> Result<u8, Fault> {
    let exit_code = u8::try_from(answer.exit_code()).unwrap_or(2);
    if answer.use_stderr() {
        // There is no other place to say so.
        let _ = answer.print();
        return Ok(exit_code);
    }
    let text = answer.render();
    match std::io::stdout().is_terminal() && wants_color() {
        true => print(text.ansi().to_string())?,
        false => print(text.to_string())?,
    }
    Ok(exit_code)
}

/// The fault of a failed write to standard output; `None` for a closed pipe.
pub(crate) fn unwritten(error: &std::io::Error) -> Option<Fault> {
    let is_unread = error.kind() == std::io::ErrorKind::BrokenPipe;
    (!is_unread).then(|| Fault::from_io("write to standard output", "", error).hint(""))
}
