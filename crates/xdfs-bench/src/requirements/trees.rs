//! What trees of small files and calls must reach.
//!
//! Called by `requirements`. The rows without protection are judged, as
//! their rivals have none; those of private channels are reported beside them.

use crate::{
    options::Group,
    protection::Protection,
    row::{Row, Run},
    tool::{Direction, Tool},
    verdict::{Bound, Verdict, absolute, ratio},
};

/// The tools that distributions have for copying trees over a network.
const PACKAGED: [Tool; 3] = [Tool::GridFtp, Tool::Rclone, Tool::Rsync];

/// Judges the requirements of one group of trees, or of the calls.
pub(crate) fn verdicts(rows: &[Row], group: Group) -> Vec<Verdict> {
    let rows = Rows { rows, group };
    let plain = rows.find(Direction::Up, Tool::Xdfs, Protection::None);
    match group {
        Group::TreeEmpty => vec![
            absolute(
                "peak memory of both sides, empty files up".to_owned(),
                (Bound::AtMost, Some(300.0), "MB"),
                plain,
                Run::memory_mb,
            ),
            absolute(
                "time, empty files up".to_owned(),
                (Bound::AtMost, None, "s"),
                plain,
                |run| run.seconds,
            ),
        ],
        Group::Calls => vec![absolute(
            "stat calls a second, pipelined, one channel".to_owned(),
            (Bound::AtLeast, Some(100_000.0), "calls/s"),
            plain,
            Run::items_per_second,
        )],
        _ => Direction::BY_NETWORK
            .into_iter()
            .flat_map(|way| rows.way(way))
            .collect(),
    }
}

/// The rows of a group.
#[derive(Clone, Copy)]
struct Rows<'a> {
    rows: &'a [Row],
    group: Group,
}

impl<'a> Rows<'a> {
    fn find(self, direction: Direction, tool: Tool, protection: Protection) -> Option<&'a Row> {
        self.rows.iter().find(|row| {
            (row.group, row.direction) == (self.group, direction)
                && (row.tool, row.protection) == (tool, protection)
        })
    }

    /// The packaged tool with the best median; where none has one, one that says why.
    fn best_packaged(self, way: Direction) -> Option<&'a Row> {
        let median = |row: &Row| row.spread(Run::rate).map_or(0.0, |spread| spread.median);
        PACKAGED
            .into_iter()
            .filter_map(|tool| self.find(way, tool, Protection::None))
            .max_by(|left, right| median(left).total_cmp(&median(right)))
    }

    fn way(self, way: Direction) -> Vec<Verdict> {
        let (name, place) = (self.group.name(), way.name());
        let plain = self.find(way, Tool::Xdfs, Protection::None);
        let private = self.find(way, Tool::Xdfs, Protection::Private);
        let compared = |ours: Option<&Row>, theirs: Option<&Row>, what: &str, required| {
            ratio(
                format!("{name} {place}, {what}"),
                (Bound::AtLeast, required),
                (ours, theirs),
                ("GB/s", Run::rate),
            )
        };
        let rival = |tool, what: &str, required| {
            let row = self.find(way, tool, Protection::None);
            compared(plain, row, &format!("against {what}"), Some(required))
        };
        let older = self.find(way, Tool::Previous, Protection::None);
        let older =
            older.map(|row| compared(plain, Some(row), "against the previous xdfs", Some(0.98)));
        if self.group.is_far() {
            let rsync = self.find(way, Tool::Rsync, Protection::None);
            let required = (self.group == Group::TreeWan).then_some(2.0);
            let mut verdicts = vec![
                compared(plain, rsync, "against the rsync daemon", required),
                compared(private, rsync, "private, against the rsync daemon", None),
            ];
            verdicts.extend(older);
            return verdicts;
        }
        let best = self.best_packaged(way);
        let which = best.map_or_else(String::new, |row| format!(" ({})", row.tool.name()));
        let packaged = format!("against the best packaged tool{which}");
        let copy = self.find(Direction::Local, Tool::Cp, Protection::None);
        if self.group == Group::TreeDisk {
            let mut verdicts = vec![
                compared(plain, best, &packaged, Some(1.2)),
                compared(plain, copy, "against cp -r and sync", Some(1.0)),
            ];
            verdicts.extend(older);
            return verdicts;
        }
        let ceiling = match self.group {
            Group::TreeA => 1.1,
            Group::TreeB => 1.25,
            _ => 1.5,
        };
        let mut verdicts = vec![
            compared(plain, best, &packaged, Some(2.5)),
            compared(private, best, &format!("private, {packaged}"), None),
            rival(Tool::Tar, "tar over nc", 1.4),
            compared(plain, copy, "against cp -r", Some(ceiling)),
            compared(private, plain, "private, against insecure", Some(0.8)),
        ];
        if self.group == Group::TreeC {
            verdicts.push(rival(Tool::GridFtp, "GridFTP", 10.0));
        }
        verdicts.extend(older);
        verdicts
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::verdict::{Outcome, tests::row};

    fn found<'a>(verdicts: &'a [Verdict], what: &str) -> &'a Verdict {
        verdicts
            .iter()
            .find(|verdict| verdict.what.contains(what))
            .unwrap_or_else(|| panic!("{what:?} is not in {verdicts:?}"))
    }

    fn private(row: Row) -> Row {
        Row {
            protection: Protection::Private,
            ..row
        }
    }

    #[test]
    fn the_best_packaged_tool_counts_and_no_other() {
        let up = |tool, seconds: &[f64]| row(Group::TreeC, Direction::Up, tool, None, seconds);
        let rows = [
            private(up(Tool::Xdfs, &[0.1])),
            up(Tool::Xdfs, &[1.0]),
            up(Tool::GridFtp, &[9.0]),
            up(Tool::Rclone, &[20.0]),
            up(Tool::Rsync, &[3.0]),
            up(Tool::Tar, &[1.5]),
            row(Group::TreeC, Direction::Local, Tool::Cp, None, &[1.3]),
        ];
        let verdicts = verdicts(&rows, Group::TreeC);
        assert_eq!(verdicts.len(), 2 * 6);
        for (what, measured, outcome) in [
            (
                "up, against the best packaged tool (rsync",
                3.0,
                Outcome::Reached,
            ),
            ("up, private, against the best", 30.0, Outcome::Reported),
            ("up, against tar over nc", 1.5, Outcome::Reached),
            ("up, against cp -r", 1.3, Outcome::Short),
            ("up, against GridFTP", 9.0, Outcome::Short),
        ] {
            let verdict = found(&verdicts, what);
            let median = verdict.measured.unwrap().median;
            assert!((median - measured).abs() < 1e-9, "{what}: {median}");
            assert_eq!(verdict.outcome, outcome, "{what}");
        }
        let down = found(&verdicts, "tree-c down, against cp -r");
        assert_eq!(down.outcome, Outcome::NotMeasured);
    }

    #[test]
    fn the_smaller_the_files_the_more_than_cp() {
        for (group, required) in [(Group::TreeA, 1.1), (Group::TreeB, 1.25)] {
            let rows = [
                row(group, Direction::Down, Tool::Xdfs, None, &[1.0]),
                row(group, Direction::Local, Tool::Cp, None, &[1.2]),
            ];
            let verdicts = verdicts(&rows, group);
            assert_eq!(verdicts.len(), 2 * 5);
            let copy = found(&verdicts, "down, against cp -r");
            let outcome = match group {
                Group::TreeA => Outcome::Reached,
                _ => Outcome::Short,
            };
            assert_eq!((copy.required, copy.outcome), (Some(required), outcome));
        }
    }

    #[test]
    fn far_away_rsync_alone_is_the_rival() {
        let down = |tool, s: &[f64]| row(Group::TreeWan, Direction::Down, tool, None, s);
        let rows = [down(Tool::Xdfs, &[1.0]), down(Tool::Rsync, &[1.9])];
        let verdicts = verdicts(&rows, Group::TreeWan);
        assert_eq!(verdicts.len(), 2 * 2);
        let rsync = found(&verdicts, "tree-wan down, against the rsync daemon");
        assert_eq!(rsync.outcome, Outcome::Short);
    }

    #[test]
    fn an_older_program_is_judged_where_it_was_run() {
        let up = |tool, seconds: &[f64]| row(Group::TreeA, Direction::Up, tool, None, seconds);
        let rows = [up(Tool::Xdfs, &[1.1]), up(Tool::Previous, &[1.0])];
        let verdicts = verdicts(&rows, Group::TreeA);
        let older = verdicts.iter().filter(|v| v.what.contains("previous"));
        let older: Vec<_> = older.map(|v| (&v.what[..], v.outcome)).collect();
        let what = "tree-a up, against the previous xdfs";
        assert_eq!(older, [(what, Outcome::Short)]);
    }

    #[test]
    fn empty_files_are_a_matter_of_memory() {
        let mut empty = row(Group::TreeEmpty, Direction::Up, Tool::Xdfs, None, &[20.0]);
        empty.runs[0].bytes = 0;
        let verdicts = verdicts(&[empty.clone()], Group::TreeEmpty);
        assert_eq!(found(&verdicts, "memory").outcome, Outcome::Reached);
        assert_eq!(found(&verdicts, "time").outcome, Outcome::Reported);
        empty.runs[0].server_peak_kib = 300_000;
        let verdicts = super::verdicts(&[empty], Group::TreeEmpty);
        assert_eq!(found(&verdicts, "memory").outcome, Outcome::Short);
    }

    #[test]
    fn calls_are_counted_by_the_second() {
        let mut calls = row(Group::Calls, Direction::Up, Tool::Xdfs, None, &[2.0]);
        calls.runs[0].items = 199_999;
        let short = verdicts(std::slice::from_ref(&calls), Group::Calls);
        assert_eq!(short[0].outcome, Outcome::Short);
        calls.runs[0].items = 200_000;
        assert_eq!(
            verdicts(&[calls], Group::Calls)[0].outcome,
            Outcome::Reached
        );
    }
}
