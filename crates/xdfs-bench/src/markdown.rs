//! The report as a page of Markdown: the text of `report.md.jinja`, with cells made here.
//!
//! Called by `main`; computes nothing beside medians and spreads.

mod columns;

use minijinja::{
    Environment, UndefinedBehavior, Value, context, syntax::SyntaxConfig, value::Serde,
};

use self::columns::{channels, columns, figure};
use crate::{
    link::WanLink,
    machine::Machine,
    options::{Group, Options},
    plan,
    profile::Profile,
    row::Row,
    session::Note,
    tree::Shape,
    verdict::{Bound, Outcome, Verdict},
};

/// The page, without figures.
const TEMPLATE: &str = include_str!("report.md.jinja");

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
///
/// # Errors
/// The template asks for something that isn't there.
pub(crate) fn render(report: Report<'_>) -> Result<String, minijinja::Error> {
    let mut environment = Environment::new();
    environment.set_undefined_behavior(UndefinedBehavior::Strict);
    let mut syntax = SyntaxConfig::builder();
    syntax.trim_blocks(true).lstrip_blocks(true);
    environment.set_syntax(syntax.keep_trailing_newline(true).build()?);
    environment.add_filter("mib", |bytes: u64| bytes >> 20);
    environment.add_filter("cell", cell);
    environment.add_filter("join", |parts: Vec<String>, between: &str| {
        parts.join(between)
    });
    let Report {
        machine, options, ..
    } = report;
    let groups = options.groups.iter().map(|group| section(*group, report));
    let failed = report.rows.iter().filter(|row| row.failure.is_some());
    environment.render_str(
        TEMPLATE,
        context! {
            machine => Serde(machine),
            memory_gib => format!("{:.1}", machine.memory_mib as f64 / 1024.0),
            quick => options.quick,
            repetitions => options.repetitions,
            tiny_runs => plan::runs_per_repetition(Group::Tiny, options.quick),
            shm_bytes => options.shm_bytes,
            disk_bytes => options.disk_bytes,
            memory_bytes => options.memory_bytes,
            long_bytes => options.memory_bytes * plan::LONG,
            private_bytes => options.private_bytes,
            opening_bytes => plan::OPENING_BYTES,
            few_channels => plan::FEW_CHANNELS,
            many_channels => plan::MANY_CHANNELS,
            fair_s => plan::fair_seconds(options.quick),
            slow_tree_s => plan::SLOW_TREE_S.to_string(),
            verdicts => report.verdicts.iter().map(verdict).collect::<Vec<_>>(),
            groups => groups.collect::<Vec<_>>(),
            profile => report.profile.map(profile),
            failed => failed.map(failure).collect::<Vec<_>>(),
        },
    )
}

fn verdict(verdict: &Verdict) -> Value {
    let bound = match verdict.bound {
        Bound::AtLeast => "at least",
        Bound::AtMost => "at most",
    };
    let unit = verdict.unit;
    context! {
        what => &verdict.what,
        required => verdict.required.map_or_else(
            || format!("- {unit}"),
            |value| format!("{bound} {value} {unit}"),
        ),
        measured => figure(verdict.measured, 2),
        outcome => match verdict.outcome {
            Outcome::NotMeasured => "not measured",
            Outcome::Reached => "reached",
            Outcome::Reported => "reported",
            Outcome::Short => "**short**",
        },
        detail => &verdict.detail,
    }
}

fn section(group: Group, report: Report<'_>) -> Value {
    let rows: Vec<&Row> = report.rows.iter().filter(|r| r.group == group).collect();
    let columns = columns(group);
    let cells = |row: &&Row| columns.iter().map(|column| (column.2)(row)).collect();
    let notes = report.notes.iter().filter(|note| note.group == group);
    let shape = Shape::of(group, report.options.quick);
    context! {
        name => group.name(),
        link => group.link().map(WanLink::description),
        bbr => group.link().is_some_and(|link| link.properties().allows_bbr),
        fair => group.is_fair(),
        link_megabytes => group.link().map(|link| report.options.bytes_over(link) / 1_000_000),
        files => shape.map_or(0, |shape| shape.files),
        megabytes => shape.map_or(0, Shape::bytes) / 1_000_000,
        notes => notes.map(|note| note.text.clone()).collect::<Vec<_>>(),
        heads => columns.iter().map(|column| column.0).collect::<Vec<_>>(),
        rules => columns.iter().map(|column| column.1).collect::<Vec<_>>(),
        rows => rows.iter().map(cells).collect::<Vec<Vec<String>>>(),
        commands => commands(&rows),
    }
}

/// How each tool was run, once for each way.
fn commands(rows: &[&Row]) -> Vec<Value> {
    let mut seen = Vec::new();
    let mut commands = Vec::new();
    for row in rows.iter().filter(|row| !row.command.is_empty()) {
        let kind = (row.tool, row.protection, row.direction);
        if !seen.contains(&kind) {
            seen.push(kind);
            commands.push(context! { client => &row.command, server => row.server.as_deref() });
        }
    }
    commands
}

/// The shares of a profile, or why there are none.
fn profile(profile: &Result<Vec<Profile>, String>) -> Value {
    let profiles = match profile {
        Ok(profiles) => profiles,
        Err(reason) => return context! { reason => reason, shares => () },
    };
    let shares = profiles.iter().flat_map(|profile| {
        profile.shares.iter().map(|share| {
            context! {
                direction => profile.direction.name(),
                side => profile.side,
                percent => format!("{:.1}", share.percent),
                object => &share.object,
                symbol => &share.symbol,
            }
        })
    });
    context! { reason => (), shares => shares.collect::<Vec<_>>() }
}

fn failure(row: &Row) -> Value {
    context! {
        group => row.group.name(),
        direction => row.direction.name(),
        tool => row.tool_name(),
        channels => channels(row),
        bytes => row.bytes,
        runs => row.runs.len(),
        reason => row.failure.as_deref(),
    }
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
        requirements::verdicts,
        tool::{Direction, Tool},
        verdict::tests::row,
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
        .unwrap()
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
        .unwrap()
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
        })
        .unwrap();
        for wanted in [
            "## 2874 files, 147 MB, tmpfs to tmpfs, over a long path\n",
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
    fn links_are_described_and_cut_rivals_marked() {
        let options = Options::parse(&["wan-lossy-cubic", "wan-fair-clean"].map(str::to_owned));
        let options = options.unwrap();
        let up = |group, tool, seconds| row(group, Direction::Up, tool, None, &[seconds]);
        let group = Group::Wan(WanLink::LossyCubic);
        let mut rows = [
            up(group, Tool::Xdfs, 10.0),
            up(group, Tool::GridFtp, 33.0),
            up(Group::WanFairClean, Tool::Xdfs, 20.0),
        ];
        rows[0].runs[0].tail = Some(0.125);
        rows[1].runs[0].is_cut = true;
        rows[2].beside = Some(Tool::Iperf3Bbr);
        rows[2].runs[0].beside_rate = Some(0.05);
        let page = render(Report {
            machine: &Machine::default(),
            options: &options,
            rows: &rows,
            notes: &[],
            verdicts: &verdicts(&rows, &options),
            profile: None,
        })
        .unwrap();
        for wanted in [
            "## A file of 1000 MB, tmpfs to tmpfs: 1 Gbit/s, 100 ms round trip, 0.1 % loss, ",
            "The system forbids bbr to all programs. ",
            "| up | **xdfs** | own | 10.00 | 100.0 | 100.0 | 82.9 | 12.5 | 10.00 | 0.00 |",
            "| up | GridFTP | own | 33.00* | 30.3 | 30.3 | 25.1 | - |",
            "## Two transfers at once, memory to memory: 1 Gbit/s, 100 ms round trip, no random",
            "each ends after 20 s",
            "| **xdfs beside iperf3 bbr** | 50.0 | 50.0 | 50.0 | 82.9 | 1 |",
            "share of the first: xdfs beside iperf3 bbr | - % | 50.00 | reported |",
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
