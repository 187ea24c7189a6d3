//! The table for people.

use xdfs::PerfPattern;
use xdfs::record::Spread;

use super::{Row, value};
use crate::human;

/// One line for each stack and size, with the ratio to plain sockets where they were measured.
pub(super) fn table(rows: &[Row]) -> String {
    let width = rows.iter().map(|row| row.name.len()).max().unwrap_or(0);
    let mut text = String::new();
    for (index, row) in rows.iter().enumerate() {
        let before = index.checked_sub(1).and_then(|at| rows.get(at));
        if before.is_none_or(|before| before.case != row.case) {
            let size = human::size(row.case.message_bytes as u64);
            let title = match row.case.pattern {
                PerfPattern::OneWay => format!("{size} one way"),
                PerfPattern::PingPong => format!("{size} there and back"),
            };
            text.push_str(&format!("{title}\n"));
        }
        let values = row.samples.iter().map(|sample| value(&row.case, sample));
        let Some(spread) = Spread::of(values) else {
            continue;
        };
        let shown = |value: f64| match row.case.pattern {
            PerfPattern::OneWay => human::rate(value),
            PerfPattern::PingPong => format!("{:.1} us", value * 1e6),
        };
        let ratio = Spread::of(row.ratios.iter().copied());
        let ratio = ratio.map_or_else(String::new, |r| format!("  {:.3} of raw", r.median));
        text.push_str(&format!(
            "  {:width$}  {:>14}  ({} to {}){ratio}\n",
            row.name,
            shown(spread.median),
            shown(spread.least),
            shown(spread.greatest)
        ));
    }
    text
}
