//! The columns of the tables of the report, and what stands in their cells.
//!
//! Called by `markdown`; computes nothing beside medians and spreads.

use crate::{
    link::WanLink,
    options::Group,
    requirements::private::unopened,
    row::{Row, Run, megabytes},
    statistics::Spread,
    tool::Tool,
};

/// A column of a table: its head, the rule below that, and what stands in a cell.
pub(super) type Column = (&'static str, &'static str, fn(&Row) -> String);

const LEFT: &str = "---";
const RIGHT: &str = "---:";

const WAY: Column = ("way", LEFT, |row| row.direction.name().to_owned());
const TOOL: Column = ("tool", LEFT, tool);
const CHANNELS: Column = ("n", RIGHT, channels);
const RUNS: Column = ("runs", RIGHT, |row| row.runs.len().to_string());
const RATE: Column = ("GB/s", RIGHT, |row| figure(row.spread(Run::rate), 2));
const CPU_PER_GB: Column = ("CPU s/GB", RIGHT, |row| {
    median(row.spread(Run::cpu_per_gb), 2)
});
const CLIENT_MB: Column = ("client MB", RIGHT, |row| {
    most(row, |run| megabytes(run.client_peak_kib), 1)
});
const SERVER_MB: Column = ("server MB", RIGHT, |row| {
    most(row, |run| megabytes(run.server_peak_kib), 1)
});
const CLIENT_CPU: Column = ("CPU s client", RIGHT, |row| {
    median(row.spread(|run| run.client_cpu_seconds), 2)
});
const SERVER_CPU: Column = ("CPU s server", RIGHT, |row| {
    median(row.spread(|run| run.server_cpu_seconds), 2)
});
const MEGABYTES_PER_S: Column = ("MB/s", RIGHT, |row| {
    figure(row.spread(|run| run.rate() * 1e3), 1)
});
const OTHER_CPU: Column = ("other s", RIGHT, |row| {
    most(row, |run| run.other_cpu_seconds, 2)
});

/// The columns of the table of a group.
pub(super) fn columns(group: Group) -> Vec<Column> {
    match group {
        Group::Tiny | Group::PrivateTiny => vec![
            WAY,
            TOOL,
            ("ms", RIGHT, |row| {
                figure(row.spread(|run| run.command_seconds * 1e3), 1)
            }),
            RUNS,
        ],
        Group::Mem | Group::Channels | Group::PrivateMem => vec![
            WAY,
            TOOL,
            CHANNELS,
            RATE,
            ("GB/s, whole command", RIGHT, |row| {
                median(row.spread(Run::command_rate), 2)
            }),
            CPU_PER_GB,
            CLIENT_MB,
            SERVER_MB,
            OTHER_CPU,
        ],
        Group::Shm | Group::Disk | Group::Saturation | Group::PrivateShm => vec![
            WAY,
            ("MB", RIGHT, |row| (row.bytes / 1_000_000).to_string()),
            TOOL,
            CHANNELS,
            RATE,
            ("of that sync s", RIGHT, |row| {
                median(row.spread(|run| run.sync_seconds), 2)
            }),
            CPU_PER_GB,
            CLIENT_MB,
            SERVER_MB,
            OTHER_CPU,
        ],
        Group::PrivateChannels => vec![
            WAY,
            TOOL,
            CHANNELS,
            ("ms", RIGHT, |row| {
                figure(row.spread(|run| run.command_seconds * 1e3), 0)
            }),
            ("not opened", RIGHT, |row| most(row, unopened, 0)),
            ("CPU s", RIGHT, |row| {
                let both = |run: &Run| run.client_cpu_seconds + run.server_cpu_seconds;
                median(row.spread(both), 2)
            }),
            CLIENT_MB,
            SERVER_MB,
            OTHER_CPU,
            RUNS,
        ],
        Group::Calls
        | Group::TreeA
        | Group::TreeB
        | Group::TreeC
        | Group::TreeDisk
        | Group::TreeWan
        | Group::TreeWanNarrow
        | Group::TreeEmpty => {
            let items = match group {
                Group::Calls => "calls/s",
                _ => "files/s",
            };
            vec![
                WAY,
                TOOL,
                ("s", RIGHT, |row| figure(row.spread(|run| run.seconds), 3)),
                (items, RIGHT, |row| {
                    figure(row.spread(Run::items_per_second), 0)
                }),
                MEGABYTES_PER_S,
                CLIENT_CPU,
                SERVER_CPU,
                CLIENT_MB,
                SERVER_MB,
                OTHER_CPU,
                RUNS,
            ]
        }
        Group::Wan(_) => vec![
            WAY,
            TOOL,
            CHANNELS,
            ("s", RIGHT, |row| {
                let cut = row.runs.iter().any(|run| run.is_cut);
                let seconds = figure(row.spread(|run| run.command_seconds), 2);
                if cut { format!("{seconds}*") } else { seconds }
            }),
            MEGABYTES_PER_S,
            ("MB/s, whole command", RIGHT, |row| {
                median(row.spread(|run| run.command_rate() * 1e3), 1)
            }),
            ("% of the limit", RIGHT, |row| {
                median(row.spread(|run| of_limit(row, run.rate())), 1)
            }),
            ("last tenth %", RIGHT, |row| {
                let percent = |run: &Run| run.tail.unwrap_or(f64::NAN) * 100.0;
                figure(row.spread(percent), 1)
            }),
            CLIENT_CPU,
            SERVER_CPU,
            CLIENT_MB,
            SERVER_MB,
            OTHER_CPU,
            RUNS,
        ],
        Group::WanFairLossy | Group::WanFairClean => vec![
            TOOL,
            MEGABYTES_PER_S,
            ("the other MB/s", RIGHT, |row| {
                let other = |run: &Run| run.beside_rate.unwrap_or(f64::NAN) * 1e3;
                figure(row.spread(other), 1)
            }),
            ("share of the first %", RIGHT, |row| {
                figure(row.spread(|run| run.share() * 100.0), 1)
            }),
            ("both % of the limit", RIGHT, |row| {
                let both = |run: &Run| run.rate() / run.share();
                figure(row.spread(|run| of_limit(row, both(run))), 1)
            }),
            RUNS,
        ],
    }
}

/// A rate in GB a second in percent of what the link of the row can carry.
fn of_limit(row: &Row, rate: f64) -> f64 {
    let limit = row.group.link().map(WanLink::payload_limit);
    rate / limit.unwrap_or(f64::NAN) * 100.0
}

/// The largest value of a figure.
fn most(row: &Row, figure: fn(&Run) -> f64, digits: usize) -> String {
    row.spread(figure).map_or_else(
        || "-".to_owned(),
        |spread| format!("{:.digits$}", spread.high),
    )
}

fn tool(row: &Row) -> String {
    let name = row.tool_name();
    if row.tool == Tool::Xdfs {
        format!("**{name}**")
    } else {
        name
    }
}

/// The channels asked for, or that the tool chose them.
pub(super) fn channels(row: &Row) -> String {
    row.channels
        .map_or_else(|| "own".to_owned(), |count| count.to_string())
}

/// Median and, when there is more than one value, the spread.
pub(super) fn figure(spread: Option<Spread>, digits: usize) -> String {
    match spread {
        None => "-".to_owned(),
        Some(spread) if spread.low == spread.high => format!("{:.digits$}", spread.median),
        Some(Spread { median, low, high }) => {
            format!("{median:.digits$} [{low:.digits$}-{high:.digits$}]")
        }
    }
}

fn median(spread: Option<Spread>, digits: usize) -> String {
    spread.map_or_else(
        || "-".to_owned(),
        |spread| format!("{:.digits$}", spread.median),
    )
}
