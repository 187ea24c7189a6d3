//! The table of `--stats`.

use xdfs::TimeSum;
use xdfs::record::Totals;

use crate::human;
use crate::progress;

/// The contents of the table besides the totals of a run.
#[derive(Debug, Default)]
pub(crate) struct Stats {
    /// Files that were copied.
    pub(crate) copied: u64,
    /// Files that were skipped, since they exist at the target.
    pub(crate) skipped: u64,
    /// Their bytes.
    pub(crate) skipped_bytes: u64,
    /// Bytes of large files in trees that the target had already.
    pub(crate) matched_bytes: u64,
    /// Retries of files, and sessions that took the place of broken ones.
    pub(crate) retries: u64,
    /// Where the time of the transfers went.
    pub(crate) time: TimeSum,
}

impl Stats {
    /// The table, after `seconds` since the command began.
    #[expect(clippy::cast_precision_loss, reason = "a rate for people")]
    pub(crate) fn table(&self, totals: &Totals, seconds: f64) -> Vec<String> {
        let there = totals.resumed_bytes + self.matched_bytes;
        let moved = totals.bytes.saturating_sub(there);
        let rate = if seconds > 0.0 {
            moved as f64 / seconds
        } else {
            0.0
        };
        let shares = self.time.shares();
        let rows = [
            ("files copied", self.copied.to_string()),
            ("files skipped", self.skipped.to_string()),
            ("failed", totals.failed.to_string()),
            ("bytes sent", human::size(moved)),
            ("there already", human::size(there + self.skipped_bytes)),
            ("sent again", human::size(totals.retransmitted_bytes)),
            ("time", human::seconds(seconds)),
            ("rate", human::rate(rate)),
            ("retries", self.retries.to_string()),
            (
                "limited by",
                match &shares {
                    Some(shares) => progress::share_of_largest(shares),
                    None => "nothing was sent".into(),
                },
            ),
        ];
        let line = |(name, value): &(&str, String)| format!("{name:<14} {value}");
        let mut lines: Vec<String> = rows.iter().map(line).collect();
        if let Some(shares) = shares {
            let text = progress::shares(&shares);
            lines.push(line(&("time went to", text)));
        }
        lines
    }
}
