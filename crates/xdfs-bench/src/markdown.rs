//! The report as a page of Markdown.
//!
//! Called by `main`; computes nothing beside medians and spreads.

use std::fmt::Write as _;

use crate::{
    machine::Machine,
    options::{Group, Options},
    plan, private,
    profile::Profile,
    row::{Row, Run, megabytes},
    session::Note,
    statistics::Spread,
    tool::Tool,
    tree::Shape,
    verdict::{Bound, Outcome, Verdict},
};

/// Everything that a report says.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Report<'a> {
    /// Where it was measured.
    pub(crate) machine: &'a Machine,
    /// What was asked for.
    pub(crate) options: &'a Options,
    /// What was measured.
    pub(crate) rows: &'a [Row],
    /// What else there is to say of groups.
    pub(crate) notes: &'a [Note],
    /// What that means.
    pub(crate) verdicts: &'a [Verdict],
    /// Where the time goes in a private transfer, or why that isn't known.
    pub(crate) profile: Option<&'a Result<Vec<Profile>, String>>,
}

/// Writes the page.
pub(crate) fn render(report: Report<'_>) -> String {
    let mut page = String::new();
    head(&mut page, report.machine, report.options);
    verdict_table(&mut page, report.verdicts);
    for group in &report.options.groups {
        let rows: Vec<&Row> = report
            .rows
            .iter()
            .filter(|row| row.group == *group)
            .collect();
        section(&mut page, *group, &rows, report);
        if *group == Group::PrivateMem {
            profiles(&mut page, report.profile);
        }
    }
    failures(&mut page, report.rows);
    page
}

/// Adds a line; writing to a string can't fail.
macro_rules! line {
    ($page:expr) => { $page.push('\n') };
    ($page:expr, $($argument:tt)*) => {{ let _ = writeln!($page, $($argument)*); }};
}

fn head(page: &mut String, machine: &Machine, options: &Options) {
    line!(page, "# Benchmarks");
    line!(page);
    if options.quick {
        line!(
            page,
            "**A quick run: it shows that everything runs; its figures mean nothing.**"
        );
        line!(page);
    }
    let arguments = match machine.isolation.arguments.as_str() {
        "" => String::new(),
        words => format!(" -- {words}"),
    };
    line!(page, "    cargo run --release -p xdfs-bench{arguments}");
    line!(page);
    let congestion_control = machine
        .isolation
        .congestion_control
        .as_deref()
        .unwrap_or("unknown congestion control");
    line!(
        page,
        "Machine: {} cores, {}, {:.1} GiB, Linux {}; tmpfs folder on {}, disk folder on {}; \
         loopback with {congestion_control}{}, TCP buffers up to {} (receive) and {} (send) bytes.",
        machine.cores,
        machine.model,
        machine.memory_mib as f64 / 1024.0,
        machine.kernel,
        machine.shm_file_system,
        machine.disk_file_system,
        if machine.isolation.own_network {
            " in a network namespace of its own"
        } else {
            ""
        },
        machine.tcp_buffers_max[0],
        machine.tcp_buffers_max[1],
    );
    line!(page);
    line!(page, "Measured: {}.", machine.versions.join(", "));
    if machine.absent.is_empty() {
        line!(page, "No rival is absent.");
    } else {
        line!(
            page,
            "Absent on this machine, and so not compared: {}.",
            machine.absent.join(", ")
        );
    }
    line!(page);
    line!(
        page,
        "{} repetition(s), interleaved: each repetition runs every row of a group once (the tiny \
         groups {} times), every other one in reverse order. Every run gets a fresh server, but \
         for the tiny groups. {}Figures are medians, with smallest and largest in brackets. GB and \
         MB are 10^9 and 10^6 bytes of payload. CPU is user and system time of client and server; \
         memory is the peak resident size of each, the largest of all runs; \"other\" is the \
         largest CPU time that the rest of the machine took during a run: rows with much of it \
         were disturbed. n is the number of channels asked for, \"own\" the tool's own choice. The \
         first copy of every row is compared with its source byte by byte, but for trees.",
        options.repetitions,
        plan::runs_per_repetition(Group::Tiny, options.quick),
        if options.quick {
            ""
        } else {
            "Before it as much memory as the run needs is touched and freed. "
        },
    );
    line!(page);
}

fn verdict_table(page: &mut String, verdicts: &[Verdict]) {
    line!(page, "## Required and reached");
    line!(page);
    line!(
        page,
        "Ratios are taken within a repetition; their median is judged. Against GridFTP, xdfs runs \
         with its own choice of channels and GridFTP with the best of its settings in the tables."
    );
    line!(page);
    line!(page, "| what | required | measured | | figures |");
    line!(page, "|---|---:|---:|---|---|");
    for verdict in verdicts {
        let bound = match verdict.bound {
            Bound::AtLeast => "at least",
            Bound::AtMost => "at most",
        };
        let outcome = match verdict.outcome {
            Outcome::NotMeasured => "not measured",
            Outcome::Reached => "reached",
            Outcome::Reported => "reported",
            Outcome::Short => "**short**",
        };
        let unit = verdict.unit;
        let required = verdict.required.map_or_else(
            || format!("- {unit}"),
            |value| format!("{bound} {value} {unit}"),
        );
        line!(
            page,
            "| {} | {required} | {} | {outcome} | {} |",
            cell(&verdict.what),
            figure(verdict.measured, 2),
            cell(&verdict.detail),
        );
    }
    line!(page);
}

fn section(page: &mut String, group: Group, rows: &[&Row], report: Report<'_>) {
    let (title, note) = heading(group, report);
    line!(page, "## {title}");
    line!(page);
    line!(page, "{note}");
    line!(page);
    for note in report.notes.iter().filter(|note| note.group == group) {
        line!(page, "{}", note.text);
        line!(page);
    }
    match group {
        Group::Tiny | Group::PrivateTiny => tiny_table(page, rows),
        Group::Mem | Group::Channels | Group::PrivateMem => memory_table(page, rows),
        Group::Shm | Group::Disk | Group::Saturation | Group::PrivateShm => {
            file_table(page, rows);
        }
        Group::PrivateChannels => opening_table(page, rows),
        Group::Calls => item_table(page, rows, "calls/s"),
        Group::TreeA
        | Group::TreeB
        | Group::TreeC
        | Group::TreeWan
        | Group::TreeWanNarrow
        | Group::TreeEmpty => {
            item_table(page, rows, "files/s");
        }
    }
    line!(page);
    commands(page, rows);
}

fn heading(group: Group, report: Report<'_>) -> (String, String) {
    let options = report.options;
    let mib = |bytes: u64| bytes >> 20;
    let memory = "GB/s is payload received over the seconds of the transfer as iperf3 and `xdfs \
                  perf` report them: without opening the connections at iperf3, while xdfs opens \
                  all channels but the first within that time. GridFTP reports none, so its \
                  rate is that of the whole command, which stands beside it for everyone.";
    let source = if report.machine.cold_source {
        "From a source that is not cached"
    } else {
        "From a source that may be cached"
    };
    let durable = format!(
        "{source} to a copy that is durable: the time is that of the client command and of making \
         its file system durable (`sync -f`) after it, for everyone."
    );
    match group {
        Group::Mem => (
            format!("Memory to memory, {} MiB", mib(options.memory_bytes)),
            memory.to_owned(),
        ),
        Group::Shm => (
            format!("A file of {} MiB, tmpfs to tmpfs", mib(options.shm_bytes)),
            "The time is that of the whole client command. \"bare copies\" is no rival but a \
             ruler: two processes that read and send, receive and write 256 KiB at a time on one \
             connection, and do nothing else."
                .to_owned(),
        ),
        Group::Disk => (
            format!("A file of {} MiB, disk to disk", mib(options.disk_bytes)),
            durable,
        ),
        Group::Tiny => (
            "A file of 2 bytes, tmpfs to tmpfs".to_owned(),
            "Wall clock of the whole client command; the server is up.".to_owned(),
        ),
        Group::Saturation => (
            "A large file against a small one, on disk".to_owned(),
            durable,
        ),
        Group::Channels => (
            format!(
                "From few channels to many, memory to memory, {} MiB",
                mib(options.memory_bytes * plan::LONG)
            ),
            memory.to_owned(),
        ),
        Group::PrivateShm => (
            format!(
                "A file of {} MiB, tmpfs to tmpfs, over private channels",
                mib(options.private_bytes)
            ),
            format!("The time is that of the whole client command. {PROTECTIONS}"),
        ),
        Group::PrivateMem => (
            format!(
                "Memory to memory over private channels, {} MiB",
                mib(options.memory_bytes)
            ),
            format!("{memory} {PROTECTIONS}"),
        ),
        Group::PrivateTiny => (
            "A file of 2 bytes, tmpfs to tmpfs, over a private channel".to_owned(),
            format!("Wall clock of the whole client command; the server is up. {PROTECTIONS}"),
        ),
        Group::PrivateChannels => (
            format!("Opening {} channels", plan::MANY_CHANNELS),
            format!(
                "Wall clock of the whole command that opens them and moves {} MiB from memory to \
                 memory, which is enough that all channels are open before it is over. \
                 {PROTECTIONS}",
                mib(plan::OPENING_BYTES)
            ),
        ),
        Group::TreeA
        | Group::TreeB
        | Group::TreeC
        | Group::TreeWan
        | Group::TreeWanNarrow
        | Group::TreeEmpty => tree_heading(group, options),
        Group::Calls => (
            "Calls a second".to_owned(),
            "The library asks for the attributes of one path, many calls under way at once, over \
             one channel without protection: from the first to the last answer, the opening of \
             the session left out."
                .to_owned(),
        ),
    }
}

fn tree_heading(group: Group, options: &Options) -> (String, String) {
    let shape = Shape::of(group, options.quick);
    let files = shape.map_or(0, |shape| shape.files);
    let megabytes = shape.map_or(0, Shape::bytes) / 1_000_000;
    let command = "The time is that of the whole client command, into an empty folder that was \
                   made before. The number of files and bytes and the content of a sample are \
                   checked after every run.";
    let link = if group == Group::TreeWanNarrow {
        "adds 50 ms to each round trip, passes 1 Gbit/s each way and loses only what its queue of \
         one round trip can't hold"
    } else {
        "adds 50 ms to each round trip and loses nothing"
    };
    let far = format!(
        "Over an emulated link that {link}, between two hosts that are network namespaces."
    );
    let rivals = format!(
        "\"cp\" copies without any network. \"tar over nc\" is `tar | nc | tar`, up to the end of \
         the tar that unpacks. rclone sends by sftp to OpenSSH's server and fetches from nginx, or \
         from its own http server where nginx is not there. A rival whose run took more than \
         {} s is not run again.",
        plan::SLOW_TREE_S
    );
    let place = format!("{files} files, {megabytes} MB, tmpfs to tmpfs");
    match group {
        Group::TreeWan | Group::TreeWanNarrow => (
            format!(
                "{place}, far away{}",
                if group == Group::TreeWan {
                    ""
                } else {
                    " at 1 Gbit/s"
                }
            ),
            format!("{far} {command} {PROTECTIONS}"),
        ),
        Group::TreeEmpty => (
            format!("{files} empty files, tmpfs to tmpfs"),
            format!("{command} They are copied once, whatever number of repetitions is asked for."),
        ),
        _ => (place, format!("{command} {rivals} {PROTECTIONS}")),
    }
}

/// Runs by the number of things that they moved or asked for.
fn item_table(page: &mut String, rows: &[&Row], items: &str) {
    line!(
        page,
        "| way | tool | s | {items} | MB/s | CPU s client | CPU s server \
         | client MB | server MB | other s | runs |"
    );
    line!(
        page,
        "|---|---|---:|---:|---:|---:|---:|---:|---:|---:|---:|"
    );
    for row in rows {
        line!(
            page,
            "| {} | {} | {} | {} | {} | {} | {} | {} | {} | {} | {} |",
            row.direction.name(),
            tool(row),
            figure(row.spread(|run| run.seconds), 3),
            figure(row.spread(Run::items_per_second), 0),
            figure(row.spread(|run| run.rate() * 1e3), 1),
            median(row.spread(|run| run.client_cpu_seconds), 2),
            median(row.spread(|run| run.server_cpu_seconds), 2),
            most(row, |run| megabytes(run.client_peak_kib), 1),
            most(row, |run| megabytes(run.server_peak_kib), 1),
            most(row, |run| run.other_cpu_seconds, 2),
            row.runs.len(),
        );
    }
}

/// What the words beside xdfs mean, and how the rival is set up.
const PROTECTIONS: &str = "\"private\": xdfs as it is by default, TLS 1.3 and login by a key of \
                           its own; \"clear\": login likewise, the payload not encrypted \
                           (`--protect clear`); \"insecure\": neither. scp logs in by a key, \
                           too, and uses aes128-gcm.";

fn opening_table(page: &mut String, rows: &[&Row]) {
    line!(
        page,
        "| way | tool | n | ms | not opened | CPU s | client MB | server MB | other s | runs |"
    );
    line!(page, "|---|---|---:|---:|---:|---:|---:|---:|---:|---:|");
    for row in rows {
        let cpu = |run: &Run| run.client_cpu_seconds + run.server_cpu_seconds;
        line!(
            page,
            "| {} | {} | {} | {} | {} | {} | {} | {} | {} | {} |",
            row.direction.name(),
            tool(row),
            channels(row),
            figure(row.spread(|run| run.command_seconds * 1e3), 0),
            most(row, private::unopened, 0),
            median(row.spread(cpu), 2),
            most(row, |run| megabytes(run.client_peak_kib), 1),
            most(row, |run| megabytes(run.server_peak_kib), 1),
            most(row, |run| run.other_cpu_seconds, 2),
            row.runs.len(),
        );
    }
}

/// Where the time goes in a private transfer.
fn profiles(page: &mut String, profile: Option<&Result<Vec<Profile>, String>>) {
    line!(page, "### Where the time goes in a private transfer");
    line!(page);
    match profile {
        None => line!(page, "Not sampled."),
        Some(Err(reason)) => line!(page, "Not sampled: {}.", cell(reason)),
        Some(Ok(profiles)) => {
            line!(
                page,
                "Samples of `perf` while n = {} channels move memory to memory, in percent of \
                 those of the process.",
                plan::FEW_CHANNELS
            );
            line!(page);
            line!(page, "| way | side | % | in | symbol |");
            line!(page, "|---|---|---:|---|---|");
            for profile in profiles {
                for share in &profile.shares {
                    line!(
                        page,
                        "| {} | {} | {:.1} | {} | {} |",
                        profile.direction.name(),
                        profile.side,
                        share.percent,
                        cell(&share.object),
                        cell(&share.symbol),
                    );
                }
            }
        }
    }
    line!(page);
}

fn memory_table(page: &mut String, rows: &[&Row]) {
    line!(
        page,
        "| way | tool | n | GB/s | GB/s, whole command | CPU s/GB \
         | client MB | server MB | other s |"
    );
    line!(page, "|---|---|---:|---:|---:|---:|---:|---:|---:|");
    for row in rows {
        line!(
            page,
            "| {} | {} | {} | {} | {} | {} |",
            row.direction.name(),
            tool(row),
            channels(row),
            figure(row.spread(Run::rate), 2),
            median(row.spread(Run::command_rate), 2),
            cost(row),
        );
    }
}

fn file_table(page: &mut String, rows: &[&Row]) {
    line!(
        page,
        "| way | MB | tool | n | GB/s | of that sync s | CPU s/GB \
         | client MB | server MB | other s |"
    );
    line!(page, "|---|---:|---|---:|---:|---:|---:|---:|---:|---:|");
    for row in rows {
        line!(
            page,
            "| {} | {} | {} | {} | {} | {} | {} |",
            row.direction.name(),
            row.bytes / 1_000_000,
            tool(row),
            channels(row),
            figure(row.spread(Run::rate), 2),
            median(row.spread(|run| run.sync_seconds), 2),
            cost(row),
        );
    }
}

fn tiny_table(page: &mut String, rows: &[&Row]) {
    line!(page, "| way | tool | ms | runs |");
    line!(page, "|---|---|---:|---:|");
    for row in rows {
        let wall = row.spread(|run| run.command_seconds * 1e3);
        line!(
            page,
            "| {} | {} | {} | {} |",
            row.direction.name(),
            tool(row),
            figure(wall, 1),
            row.runs.len(),
        );
    }
}

/// CPU, memory of both sides and disturbance: the last columns of a table.
fn cost(row: &Row) -> String {
    format!(
        "{} | {} | {} | {}",
        median(row.spread(Run::cpu_per_gb), 2),
        most(row, |run| megabytes(run.client_peak_kib), 1),
        most(row, |run| megabytes(run.server_peak_kib), 1),
        most(row, |run| run.other_cpu_seconds, 2),
    )
}

/// The largest value of a figure.
fn most(row: &Row, figure: fn(&Run) -> f64, digits: usize) -> String {
    row.spread(figure).map_or_else(
        || "-".to_owned(),
        |spread| format!("{:.digits$}", spread.high),
    )
}

/// How each tool was run, once for each way.
fn commands(page: &mut String, rows: &[&Row]) {
    let mut said = Vec::new();
    for row in rows.iter().filter(|row| !row.command.is_empty()) {
        let kind = (row.tool, row.protection, row.direction);
        if said.contains(&kind) {
            continue;
        }
        if said.is_empty() {
            line!(page, "Run as, for instance:");
            line!(page);
        }
        said.push(kind);
        line!(page, "    {}", row.command);
        if let Some(server) = &row.server {
            line!(page, "        against {server}");
        }
    }
    if !said.is_empty() {
        line!(page);
    }
}

fn failures(page: &mut String, rows: &[Row]) {
    let failed: Vec<&Row> = rows.iter().filter(|row| row.failure.is_some()).collect();
    if failed.is_empty() {
        return;
    }
    line!(page, "## Failed");
    line!(page);
    for row in failed {
        line!(
            page,
            "- {} {} {}, n = {}, {} bytes, after {} run(s): {}",
            row.group.name(),
            row.direction.name(),
            row.tool_name(),
            channels(row),
            row.bytes,
            row.runs.len(),
            row.failure.as_deref().unwrap_or_default(),
        );
    }
    line!(page);
}

fn tool(row: &Row) -> String {
    let name = row.tool_name();
    if row.tool == Tool::Xdfs {
        format!("**{name}**")
    } else {
        name
    }
}

fn channels(row: &Row) -> String {
    row.channels
        .map_or_else(|| "own".to_owned(), |count| count.to_string())
}

/// Median and, when there is more than one value, the spread.
fn figure(spread: Option<Spread>, digits: usize) -> String {
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

/// Text that may stand in a cell of a table.
fn cell(text: &str) -> String {
    text.replace('|', "\\|").replace('\n', " ")
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{
        isolation::Isolation,
        profile::Share,
        protection::Protection,
        tool::Direction,
        verdict::{tests::row, verdicts},
    };

    fn page() -> String {
        let options = Options::parse(&["mem".to_owned(), "tiny".to_owned()]).unwrap();
        let mut failed = row(Group::Mem, Direction::Down, Tool::GridFtp, Some(4), &[]);
        failed.failure = Some("no | server".to_owned());
        let rows = [
            row(
                Group::Mem,
                Direction::Up,
                Tool::Xdfs,
                Some(4),
                &[0.25, 0.5, 0.2],
            ),
            row(
                Group::Mem,
                Direction::Up,
                Tool::Iperf3,
                Some(4),
                &[0.5, 0.5, 0.5],
            ),
            row(Group::Tiny, Direction::Up, Tool::Xdfs, None, &[0.004]),
            failed,
        ];
        let machine = Machine {
            cores: 2,
            model: "Fast 9000".to_owned(),
            isolation: Isolation {
                own_network: true,
                congestion_control: Some("cubic".to_owned()),
                arguments: "mem tiny".to_owned(),
            },
            absent: vec!["rclone"],
            ..Machine::default()
        };
        let verdicts = verdicts(&rows, &options);
        render(Report {
            machine: &machine,
            options: &options,
            rows: &rows,
            notes: &[],
            verdicts: &verdicts,
            profile: None,
        })
    }

    /// A page of the groups of private channels.
    fn private_page(profile: &Result<Vec<Profile>, String>) -> String {
        let options = Options::parse(&["private".to_owned()]).unwrap();
        let row = |group, protection, channels, seconds: &[f64]| Row {
            protection,
            ..row(group, Direction::Up, Tool::Xdfs, channels, seconds)
        };
        let rows = [
            row(Group::PrivateShm, Protection::Private, None, &[2.0]),
            row(Group::PrivateMem, Protection::Private, Some(4), &[0.5]),
            row(Group::PrivateMem, Protection::None, Some(4), &[0.25]),
            row(Group::PrivateTiny, Protection::Private, None, &[0.004]),
            row(
                Group::PrivateChannels,
                Protection::Private,
                Some(1000),
                &[0.3],
            ),
        ];
        let verdicts = verdicts(&rows, &options);
        render(Report {
            machine: &Machine::default(),
            options: &options,
            rows: &rows,
            notes: &[],
            verdicts: &verdicts,
            profile: Some(profile),
        })
    }

    #[test]
    fn private_groups_say_how_their_rows_are_protected() {
        let share = Share {
            percent: 31.25,
            object: "xdfs".to_owned(),
            symbol: "a|b".to_owned(),
        };
        let page = private_page(&Ok(vec![Profile {
            direction: Direction::Up,
            side: "client",
            shares: vec![share],
        }]));
        for wanted in [
            "| up | 1000 | **xdfs private** | own | 0.50 |",
            "| up | **xdfs private** | 4 | 2.00 | 2.00 | 0.50 | 10.2 | 20.5 | 0.00 |",
            "| up | **xdfs insecure** | 4 | 4.00 |",
            "| up | **xdfs private** | 4.0 | 1 |",
            "| up | **xdfs private** | 1000 | 300 | 1000 |",
            "| up | client | 31.2 | xdfs | a\\|b |",
            "private against no protection | at least 0.5 x | 0.50 | reached |",
            "| - x | 2.00 | reported |",
        ] {
            assert!(page.contains(wanted), "{wanted:?} is not in:\n{page}");
        }
        assert_even_tables(&page);
        let page = private_page(&Err("perf is not on this machine".to_owned()));
        assert!(page.contains("Not sampled: perf is not on this machine."));
    }

    #[test]
    fn trees_are_counted_in_files() {
        let options = Options::parse(&["trees".to_owned()]).unwrap();
        let mut rows = [
            row(Group::TreeA, Direction::Up, Tool::Xdfs, None, &[0.5]),
            row(Group::TreeA, Direction::Up, Tool::Tar, None, &[2.0]),
            row(Group::Calls, Direction::Up, Tool::Xdfs, Some(1), &[2.0]),
        ];
        for row in &mut rows {
            row.runs[0].items = 1000;
        }
        rows[2].runs[0].bytes = 0;
        let notes = [Note {
            group: Group::TreeWan,
            text: "Skipped: no emulated network.".to_owned(),
        }];
        let page = render(Report {
            machine: &Machine::default(),
            options: &options,
            rows: &rows,
            notes: &notes,
            verdicts: &verdicts(&rows, &options),
            profile: None,
        });
        for wanted in [
            "## 2874 files, 147 MB, tmpfs to tmpfs, far away\n",
            "## 1000000 empty files",
            "| up | **xdfs insecure** | 0.500 | 2000 | 2000.0 | 0.50 | 0.00 | 10.2 | 20.5 | 0.00 \
             | 1 |",
            "| up | tar over nc | 2.000 | 500 |",
            "| tree-a up, against tar over nc | at least 1.4 x | 4.00 | reached |",
            "\n\nSkipped: no emulated network.\n\n",
            "| up | **xdfs insecure** | 2.000 | 500 | 0.0 |",
        ] {
            assert!(page.contains(wanted), "{wanted:?} is not in:\n{page}");
        }
        assert_even_tables(&page);
    }

    #[test]
    fn the_page_says_it_all() {
        let page = page();
        for wanted in [
            "    cargo run --release -p xdfs-bench -- mem tiny\n",
            "2 cores, Fast 9000",
            "loopback with cubic in a network namespace of its own",
            "not compared: rclone.",
            "| up | **xdfs** | 4 | 4.00 [2.00-5.00] | 4.00 | 0.25 | 10.2 | 20.5 | 0.00 |",
            "| up | **xdfs** | 4.0 | 1 |",
            "| down | GridFTP | 4 | - | - | - | - | - | - |",
            "| memory to memory up, n = 4, against iperf3 | at least 1 x | 2.00 [1.00-2.50] \
             | reached | 4.000 against 2.000 GB/s |",
            "    client DIR\n        against server DIR\n",
            "- mem down GridFTP, n = 4, 1000000000 bytes, after 0 run(s): no | server",
        ] {
            assert!(page.contains(wanted), "{wanted:?} is not in:\n{page}");
        }
    }

    #[test]
    fn tables_have_as_many_cells_as_their_heads() {
        assert_even_tables(&page());
    }

    fn assert_even_tables(page: &str) {
        let mut columns = None;
        for line in page.lines() {
            let line = line.replace("\\|", "");
            let cells = line.starts_with('|').then(|| line.matches('|').count());
            assert!(
                cells.is_none() || columns.is_none() || cells == columns,
                "{line}"
            );
            columns = cells;
        }
    }

    #[test]
    fn cells_hold_no_bars() {
        assert_eq!(cell("a|b\nc"), "a\\|b c");
    }
}
