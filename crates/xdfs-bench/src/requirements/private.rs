//! What private channels must reach.
//!
//! Called by `requirements`.

use crate::{
    options::{Group, Options},
    plan::{FEW_CHANNELS, MANY_CHANNELS, PREVIOUS_CHANNELS},
    protection::Protection,
    row::{Row, Run},
    tool::{Direction, Tool},
    verdict::{Bound, Verdict, absolute, ratio},
};

/// Judges the requirements of one group of private channels.
pub(crate) fn verdicts(rows: &[Row], group: Group, options: &Options) -> Vec<Verdict> {
    let rows = Rows { rows, group };
    let mut verdicts = Vec::new();
    for way in Direction::BY_NETWORK {
        match group {
            Group::PrivateMem => memory(rows, way, options, &mut verdicts),
            Group::PrivateTiny => {
                let name = way.name();
                let row = rows.xdfs(way, Protection::Private, None);
                verdicts.push(absolute(
                    format!("a 2-byte file {name}, private, by key, whole command"),
                    (Bound::AtMost, Some(25.0), "ms"),
                    row,
                    |run| run.command_seconds * 1e3,
                ));
            }
            Group::PrivateChannels => opening(rows, way, &mut verdicts),
            _ => files(rows, way, &mut verdicts),
        }
    }
    verdicts
}

/// The rows of a group.
#[derive(Clone, Copy)]
struct Rows<'a> {
    rows: &'a [Row],
    group: Group,
}

impl<'a> Rows<'a> {
    fn find(
        self,
        direction: Direction,
        (tool, protection): (Tool, Protection),
        channels: Option<u32>,
    ) -> Option<&'a Row> {
        self.rows.iter().find(|row| {
            (row.group, row.direction, row.channels) == (self.group, direction, channels)
                && (row.tool, row.protection) == (tool, protection)
        })
    }

    fn xdfs(self, way: Direction, kind: Protection, channels: Option<u32>) -> Option<&'a Row> {
        self.find(way, (Tool::Xdfs, kind), channels)
    }
}

fn files(rows: Rows<'_>, way: Direction, verdicts: &mut Vec<Verdict>) {
    let name = way.name();
    let ours = rows.xdfs(way, Protection::Private, None);
    let rival = rows.find(way, (Tool::Scp, Protection::Private), None);
    verdicts.push(ratio(
        format!("tmpfs to tmpfs {name}, private, against scp"),
        (Bound::AtLeast, Some(3.0)),
        (ours, rival),
        ("GB/s", Run::rate),
    ));
    verdicts.push(ratio(
        format!("CPU for a GB, tmpfs to tmpfs {name}, private, against the same"),
        (Bound::AtMost, None),
        (ours, rival),
        ("s/GB", Run::cpu_per_gb),
    ));
}

fn memory(rows: Rows<'_>, way: Direction, options: &Options, verdicts: &mut Vec<Verdict>) {
    let name = way.name();
    let few = |kind| rows.xdfs(way, kind, Some(FEW_CHANNELS));
    let (private, clear, none) = (
        few(Protection::Private),
        few(Protection::Clear),
        few(Protection::None),
    );
    let compared = format!("memory to memory {name}, n = {FEW_CHANNELS}, private against");
    // A program that can't leave the payload clear is held against channels without protection.
    let required = Some(0.5);
    if clear.is_some() {
        verdicts.push(ratio(
            format!("{compared} clear"),
            (Bound::AtLeast, required),
            (private, clear),
            ("GB/s", Run::rate),
        ));
    }
    verdicts.push(ratio(
        format!("{compared} no protection"),
        (Bound::AtLeast, required.filter(|_| clear.is_none())),
        (private, none),
        ("GB/s", Run::rate),
    ));
    let (kind, other) = match clear {
        Some(row) => ("clear", Some(row)),
        None => ("no protection", none),
    };
    verdicts.push(ratio(
        format!("CPU for a GB, {compared} {kind}"),
        (Bound::AtMost, None),
        (private, other),
        ("s/GB", Run::cpu_per_gb),
    ));
    if options.previous.is_none() {
        return;
    }
    for count in PREVIOUS_CHANNELS {
        verdicts.push(ratio(
            format!("memory to memory {name}, n = {count}, clear against the previous xdfs"),
            (Bound::AtLeast, Some(0.98)),
            (
                rows.xdfs(way, Protection::Clear, Some(count)),
                rows.find(way, (Tool::Previous, Protection::None), Some(count)),
            ),
            ("GB/s", Run::rate),
        ));
    }
}

fn opening(rows: Rows<'_>, way: Direction, verdicts: &mut Vec<Verdict>) {
    let name = way.name();
    let many = |kind| rows.xdfs(way, kind, Some(MANY_CHANNELS));
    let (private, none) = (many(Protection::Private), many(Protection::None));
    verdicts.push(ratio(
        format!("opening {MANY_CHANNELS} channels {name}, private against no protection"),
        (Bound::AtMost, Some(3.0)),
        (private, none),
        ("s", |run| run.command_seconds),
    ));
    verdicts.push(absolute(
        format!("of {MANY_CHANNELS} private channels {name}, those that were not opened"),
        (Bound::AtMost, Some(0.0), "channels"),
        private,
        unopened,
    ));
}

/// How many of `MANY_CHANNELS` a run did not open; all of them where it doesn't say.
pub(crate) fn unopened(run: &Run) -> f64 {
    let open = run.channels_open.unwrap_or_default();
    f64::from(MANY_CHANNELS.saturating_sub(open))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::verdict::{Outcome, tests::row};

    fn options(words: &[&str]) -> Options {
        let words: Vec<String> = words.iter().map(|word| (*word).to_owned()).collect();
        Options::parse(&words).unwrap()
    }

    fn protected(group: Group, kind: Protection, channels: Option<u32>, seconds: &[f64]) -> Row {
        Row {
            protection: kind,
            ..row(group, Direction::Up, Tool::Xdfs, channels, seconds)
        }
    }

    fn found<'a>(verdicts: &'a [Verdict], what: &str) -> &'a Verdict {
        verdicts
            .iter()
            .find(|verdict| verdict.what.contains(what))
            .unwrap_or_else(|| panic!("{what:?} is not in {verdicts:?}"))
    }

    #[test]
    fn private_is_held_against_clear_where_there_is_such_a_row() {
        let group = Group::PrivateMem;
        let mut rows = vec![
            protected(group, Protection::Private, Some(4), &[1.0]),
            protected(group, Protection::None, Some(4), &[0.4]),
        ];
        let before = verdicts(&rows, group, &options(&[]));
        let fallback = found(&before, "up, n = 4, private against no protection");
        assert_eq!(fallback.required, Some(0.5));
        assert_eq!(fallback.outcome, Outcome::Short);
        rows.push(protected(group, Protection::Clear, Some(4), &[0.5]));
        let after = verdicts(&rows, group, &options(&[]));
        let clear = found(&after, "up, n = 4, private against clear");
        assert_eq!(clear.outcome, Outcome::Reached);
        let reported = found(&after, "up, n = 4, private against no protection");
        assert_eq!(reported.outcome, Outcome::Reported);
        assert!(
            after
                .iter()
                .all(|verdict| !verdict.what.contains("previous"))
        );
    }

    #[test]
    fn an_older_program_is_compared_when_it_is_named() {
        let group = Group::PrivateMem;
        let mut old = protected(group, Protection::None, Some(1), &[1.0]);
        old.tool = Tool::Previous;
        let rows = [protected(group, Protection::Clear, Some(1), &[1.1]), old];
        let verdicts = verdicts(&rows, group, &options(&["--previous", "/old/xdfs"]));
        let one = found(&verdicts, "up, n = 1, clear against the previous xdfs");
        assert_eq!(one.outcome, Outcome::Short);
        let four = found(&verdicts, "down, n = 4, clear against the previous xdfs");
        assert_eq!(four.outcome, Outcome::NotMeasured);
    }

    #[test]
    fn scp_is_not_mistaken_for_other_rows() {
        let group = Group::PrivateShm;
        let mut scp = protected(group, Protection::Private, None, &[4.0]);
        scp.tool = Tool::Scp;
        let rows = [
            protected(group, Protection::None, None, &[0.1]),
            scp,
            protected(group, Protection::Private, None, &[1.0]),
        ];
        let verdicts = verdicts(&rows, group, &options(&[]));
        let rate = found(&verdicts, "tmpfs to tmpfs up, private, against scp");
        assert!((rate.measured.unwrap().median - 4.0).abs() < 1e-9);
        assert_eq!(found(&verdicts, "CPU").outcome, Outcome::Reported);
    }

    #[test]
    fn channels_that_were_not_opened_are_counted() {
        let group = Group::PrivateChannels;
        let mut private = protected(group, Protection::Private, Some(1000), &[2.0, 2.0]);
        let none = protected(group, Protection::None, Some(1000), &[1.0, 1.0]);
        private.runs[0].channels_open = Some(1000);
        private.runs[1].channels_open = Some(998);
        let verdicts = verdicts(&[private, none], group, &options(&[]));
        assert_eq!(found(&verdicts, "opening").outcome, Outcome::Reached);
        let lost = found(&verdicts, "up, those that were not opened");
        assert!((lost.measured.unwrap().high - 2.0).abs() < 1e-9);
        assert_eq!(lost.outcome, Outcome::Short);
    }
}
