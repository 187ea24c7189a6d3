//! The text of progress lines and of human-readable results.
//!
//! Pure: numbers in, text out. Used by [`crate::report`], which decides when a line is due.

use std::time::Duration;

use xdfs::{DigestValue, LimitedBy, TimeShares, TransferResult};

use crate::human;

/// The content of a progress line.
#[derive(Clone, Debug, Default)]
pub(crate) struct ProgressLine {
    /// Name of the file, or `total`.
    pub(crate) name: String,
    /// Files done, and their total number if known; only for the total, and for trees.
    pub(crate) files: Option<(u64, Option<u64>)>,
    /// The total number may still grow.
    pub(crate) is_counting: bool,
    /// Bytes that have arrived.
    pub(crate) bytes: u64,
    /// Total bytes, if known.
    pub(crate) bytes_total: Option<u64>,
    /// The current rate.
    pub(crate) bytes_per_second: f64,
    /// Estimated time left, if known.
    pub(crate) left: Option<Duration>,
    /// Open channels; only for a file.
    pub(crate) channels: Option<u32>,
    /// Entries in flight; only for a tree.
    pub(crate) in_flight: u64,
    /// Sessions that took the place of broken ones; only for a tree.
    pub(crate) reconnects: u64,
}

/// The share in whole percent, 100 only when complete.
fn percent(bytes: u64, total: u64) -> u64 {
    if bytes >= total {
        return 100;
    }
    // A u128 can't overflow here, and the quotient is below 100.
    u64::try_from(u128::from(bytes) * 100 / u128::from(total)).unwrap_or(99)
}

impl ProgressLine {
    fn fields(&self) -> Vec<String> {
        let mut fields = Vec::with_capacity(6);
        match self.files {
            Some((done, Some(all))) if self.is_counting => {
                fields.push(format!("{done} of {all}+ files"));
            }
            Some((done, Some(all))) => fields.push(format!("{done} of {all} files")),
            Some((done, None)) => fields.push(human::count(done, "file")),
            None => {}
        }
        match self.bytes_total {
            Some(total) => {
                fields.push(format!("{}%", percent(self.bytes, total)));
                fields.push(format!(
                    "{} of {}",
                    human::size(self.bytes),
                    human::size(total)
                ));
            }
            None => fields.push(human::size(self.bytes)),
        }
        fields.push(human::rate(self.bytes_per_second));
        if let Some(left) = self.left {
            fields.push(format!("{} left", human::clock(left)));
        }
        if let Some(channels) = self.channels {
            fields.push(human::count(channels.into(), "channel"));
        }
        if self.in_flight > 0 {
            fields.push(format!("{} in flight", self.in_flight));
        }
        if self.reconnects > 0 {
            fields.push(human::count(self.reconnects, "reconnect"));
        }
        fields
    }

    /// A line for a log: `name: 45%, 121 MB of 268 MB, ...`.
    pub(crate) fn plain(&self) -> String {
        format!("{}: {}", self.name, self.fields().join(", "))
    }

    /// A line for a terminal with this number of columns: the numbers take precedence, the name
    /// gets the rest.
    pub(crate) fn terminal(&self, columns: usize) -> String {
        let mut fields = self.fields();
        let mut numbers = fields.join("  ");
        while numbers.chars().count() + 10 > columns && fields.len() > 1 {
            fields.pop();
            numbers = fields.join("  ");
        }
        let room = columns.saturating_sub(numbers.chars().count() + 2);
        let name = shorten(&self.name, room);
        cut(&format!("{name:<0$}  {numbers}", room.min(24)), columns)
    }
}

/// The first `columns` characters.
fn cut(text: &str, columns: usize) -> String {
    text.chars().take(columns).collect()
}

/// Shortens a name to its end, which says more than its start: `...end/of/name`.
fn shorten(name: &str, columns: usize) -> String {
    let length = name.chars().count();
    if length <= columns {
        return name.to_owned();
    }
    if columns < 4 {
        return cut(name, columns);
    }
    let tail: String = name.chars().skip(length - (columns - 3)).collect();
    format!("...{tail}")
}

/// A cause that takes time in a transfer, as text.
fn cause(by: LimitedBy) -> &'static str {
    match by {
        LimitedBy::SourceRead => "reading the source",
        LimitedBy::SenderCpu => "the sender's CPU",
        LimitedBy::RateLimit => "the rate limit",
        LimitedBy::RoundTrips => "round trips",
        LimitedBy::Network => "the network",
        LimitedBy::ReceiverCpu => "the receiver's CPU",
        LimitedBy::TargetWrite => "writing the target",
        LimitedBy::Durability => "making the target durable",
        // Variants added later.
        _ => "something else",
    }
}

fn whole_percent(share: f64) -> String {
    format!("{:.0} %", share * 100.0)
}

/// The bottleneck and its share: `the network: 81 % of the time`.
pub(crate) fn share_of_largest(shares: &TimeShares) -> String {
    let by = shares.limited_by();
    format!(
        "{}: {} of the time",
        cause(by),
        whole_percent(shares.of(by))
    )
}

/// The verdict on a transfer, as a sentence.
pub(crate) fn verdict(shares: &TimeShares) -> String {
    format!("limited by {}", share_of_largest(shares))
}

/// All shares of at least half a percent, the largest first.
pub(crate) fn shares(shares: &TimeShares) -> String {
    let mut all: Vec<_> = shares.iter().filter(|(_, share)| *share >= 0.005).collect();
    all.sort_by(|a, b| b.1.total_cmp(&a.1));
    let texts = all
        .into_iter()
        .map(|(by, share)| format!("{} {}", cause(by), whole_percent(share)));
    texts.collect::<Vec<_>>().join(", ")
}

/// A digest as text, `NAME SEPARATOR VALUE`; `None` if there is none.
pub(crate) fn digest(value: &DigestValue, separator: &str) -> Option<String> {
    let checksum = value.checksum()?;
    let kind = checksum.kind().as_str();
    Some(format!("{kind}{separator}{}", checksum.hex()))
}

/// The result of one file: `268 MB in 134 ms, 1.91 GB/s, 4 channels`.
pub(crate) fn result(result: &TransferResult) -> String {
    if result.is_skipped {
        return match result.resumed_bytes {
            0 => "skipped, it exists already".to_owned(),
            bytes => format!("skipped, its {} were there already", human::size(bytes)),
        };
    }
    let mut text = format!(
        "{} in {}, {}, {}",
        human::size(result.bytes),
        human::seconds(result.seconds),
        human::rate(result.bytes_per_second()),
        human::count(result.channels.into(), "channel"),
    );
    if result.resumed_bytes > 0 {
        text.push_str(&format!(
            ", {} were there already",
            human::size(result.resumed_bytes)
        ));
    }
    if result.retransmitted_bytes > 0 {
        text.push_str(&format!(
            ", {} sent again",
            human::size(result.retransmitted_bytes)
        ));
    }
    text
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;

    fn line() -> ProgressLine {
        ProgressLine {
            name: "dir/big.img".into(),
            files: None,
            bytes: 115 << 20,
            bytes_total: Some(256 << 20),
            bytes_per_second: 1.91e9,
            left: Some(Duration::from_secs(61)),
            channels: Some(4),
            ..ProgressLine::default()
        }
    }

    #[test]
    fn a_plain_line_says_everything() {
        assert_eq!(
            line().plain(),
            "dir/big.img: 44%, 121 MB of 268 MB, 1.91 GB/s, 1:01 left, 4 channels"
        );
        let unknown = ProgressLine {
            bytes_total: None,
            left: None,
            ..line()
        };
        assert_eq!(
            unknown.plain(),
            "dir/big.img: 121 MB, 1.91 GB/s, 4 channels"
        );
        let total = ProgressLine {
            name: "total".into(),
            files: Some((2, Some(5))),
            channels: None,
            ..line()
        };
        assert!(total.plain().starts_with("total: 2 of 5 files, 44%"));
        let tree = ProgressLine {
            files: Some((174, None)),
            ..total
        };
        assert!(tree.plain().starts_with("total: 174 files, "));
        let first = ProgressLine {
            files: Some((1, None)),
            ..tree
        };
        assert!(first.plain().starts_with("total: 1 file, "));
    }

    #[test]
    fn a_terminal_line_fits_whatever_the_width() {
        let long = ProgressLine {
            name: "a/very/long/name/of/a/file/".repeat(9),
            ..line()
        };
        for columns in 1..200 {
            assert!(
                long.terminal(columns).chars().count() <= columns,
                "{columns}"
            );
            assert!(
                line().terminal(columns).chars().count() <= columns,
                "{columns}"
            );
        }
        assert_eq!(
            line().terminal(79),
            format!(
                "{:<22}  {}",
                "dir/big.img", "44%  121 MB of 268 MB  1.91 GB/s  1:01 left  4 channels"
            )
        );
        assert!(long.terminal(79).starts_with("..."));
        // On a narrow terminal the share stays.
        assert!(line().terminal(24).contains("44%"));
    }

    #[test]
    fn the_share_never_lies() {
        assert_eq!(percent(0, 0), 100);
        assert_eq!(percent(999_999, 1_000_000), 99);
        assert_eq!(percent(u64::MAX - 1, u64::MAX), 99);
        assert_eq!(percent(7, 7), 100);
    }

    #[test]
    fn digests() {
        assert_eq!(digest(&DigestValue::None, " "), None);
        let shown = digest(&DigestValue::Crc64Nvme(0xab), " ");
        assert_eq!(shown.unwrap(), "crc64nvme 00000000000000ab");
        let shown = digest(&DigestValue::Blake3([0x0f; 32]), ":");
        assert_eq!(shown.unwrap(), format!("blake3:{}", "0f".repeat(32)));
    }

    #[test]
    fn every_cause_has_a_text_of_its_own() {
        let texts: BTreeSet<_> = LimitedBy::ALL.into_iter().map(cause).collect();
        assert_eq!(texts.len(), LimitedBy::ALL.len());
        assert!(!texts.contains("something else"));
    }

    #[test]
    fn results() {
        let mut done = TransferResult {
            bytes: 256 << 20,
            seconds: 0.134,
            channels: 1,
            resumed_bytes: 0,
            retransmitted_bytes: 0,
            digest: DigestValue::None,
            target: b"/x".to_vec(),
            time_shares: TimeShares::only(LimitedBy::Network),
            is_skipped: false,
            passage: None,
            has_cut_time: false,
        };
        assert_eq!(result(&done), "268 MB in 134 ms, 2.00 GB/s, 1 channel");
        done.resumed_bytes = 1 << 20;
        done.retransmitted_bytes = 2048;
        assert!(result(&done).ends_with("1.05 MB were there already, 2.05 kB sent again"));
    }
}
