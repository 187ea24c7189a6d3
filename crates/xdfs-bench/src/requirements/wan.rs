//! What files over long paths must reach, and what is reported of two transfers at once.
//!
//! Called by `requirements`.

use super::selection::{best_gridftp, find};
use crate::{
    link::WanLink,
    options::Group,
    plan::FEW_CHANNELS,
    row::{Row, Run},
    tool::{Direction, Tool},
    verdict::{Bound, Verdict, absolute, ratio},
};

/// The most that the last tenth of a file may take of the time, in percent.
const TAIL_PERCENT: f64 = 15.0;
/// The least ratio to iperf3 with bbr, where both may use it and the link loses packets.
const BBR_RATIO: f64 = 1.0;
/// The least ratio to GridFTP, where nobody may use bbr.
const CUBIC_RATIO: f64 = 2.0;

/// Judges the requirements of a link.
pub(super) fn verdicts(rows: &[Row], link: WanLink) -> Vec<Verdict> {
    let ways = Direction::BY_NETWORK;
    ways.into_iter()
        .flat_map(|way| one_way(rows, link, way))
        .collect()
}

fn one_way(rows: &[Row], link: WanLink, way: Direction) -> Vec<Verdict> {
    let group = Group::Wan(link);
    let ours = find(rows, group, way, Tool::Xdfs, None, None);
    let label = format!("{} {}", group.name(), way.name());
    let limit = link.payload_limit();
    let mut verdicts = vec![absolute(
        format!(
            "{label}, against the payload limit of {:.2} MB/s",
            limit * 1e3
        ),
        (Bound::AtLeast, link.properties().required, "x"),
        ours,
        |run| run.rate() / limit,
    )];
    let mut against = |(rival, name): (Option<&Row>, &str), required, figure| {
        verdicts.push(ratio(
            format!("{label}, against {name}"),
            (Bound::AtLeast, required),
            (ours, rival),
            ("GB/s", figure),
        ));
    };
    match link {
        WanLink::Lossy => {
            let channels = Some(FEW_CHANNELS);
            let iperf3 = find(rows, group, way, Tool::Iperf3Bbr, channels, None);
            let name = format!("iperf3 with bbr, n = {FEW_CHANNELS}");
            against((iperf3, &name), Some(BBR_RATIO), Run::rate);
            // Its own figure leaves out opening and closing, which a file can't be moved without.
            let whole = format!("{name}, whole commands");
            against((iperf3, &whole), None, Run::command_rate);
        }
        WanLink::LossyCubic => {
            let (best, name) = best_gridftp(rows, group, way, None);
            against((best, &name), Some(CUBIC_RATIO), Run::rate);
        }
        WanLink::Clean | WanLink::Far | WanLink::Slow | WanLink::Shallow => {}
    }
    verdicts.push(absolute(
        format!("{label}, time of the last tenth"),
        (Bound::AtMost, Some(TAIL_PERCENT), "%"),
        ours,
        |run| run.tail.unwrap_or(f64::NAN) * 100.0,
    ));
    verdicts
}

/// Reports the shares of two transfers at once.
pub(super) fn shares(rows: &[Row], group: Group) -> Vec<Verdict> {
    let rows = rows.iter().filter(|row| row.group == group);
    rows.map(|row| {
        absolute(
            format!("{}, share of the first: {}", group.name(), row.tool_name()),
            (Bound::AtLeast, None, "%"),
            Some(row),
            |run| run.share() * 100.0,
        )
    })
    .collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::verdict::{Outcome, tests::row};

    /// A row of GB that took so long, with a tail of so much of it.
    fn up(link: WanLink, tool: Tool, channels: Option<u32>, seconds: f64, tail: f64) -> Row {
        let mut row = row(Group::Wan(link), Direction::Up, tool, channels, &[seconds]);
        row.runs[0].tail = Some(tail);
        row
    }

    fn outcomes(rows: &[Row], link: WanLink) -> Vec<(String, Outcome)> {
        let up = verdicts(rows, link)
            .into_iter()
            .filter(|verdict| verdict.what.contains(" up,"));
        up.map(|verdict| (verdict.what, verdict.outcome)).collect()
    }

    #[test]
    fn the_payload_limit_and_the_tail_count() {
        // A GB in 8.29 s is the limit of 1 Gbit/s.
        for (link, seconds, tail, reached) in [
            (WanLink::Lossy, 9.7, 0.15, [true, true]),
            (WanLink::Lossy, 9.8, 0.16, [false, false]),
            (WanLink::Clean, 9.2, 0.1, [true, true]),
            (WanLink::Clean, 9.3, 0.1, [false, true]),
            (WanLink::Far, 11.8, 0.1, [true, true]),
            (WanLink::Far, 11.9, 0.1, [false, true]),
            (WanLink::Slow, 427.0, 0.1, [true, true]),
            (WanLink::Slow, 428.0, 0.1, [false, true]),
            (WanLink::Shallow, 92.0, 0.1, [true, true]),
            (WanLink::Shallow, 92.2, 0.1, [false, true]),
        ] {
            let found = outcomes(&[up(link, Tool::Xdfs, None, seconds, tail)], link);
            let (first, last) = (found.first().unwrap(), found.last().unwrap());
            let is_reached = [first, last].map(|(_, outcome)| *outcome == Outcome::Reached);
            assert_eq!(is_reached, reached, "{link:?} {seconds} {tail}");
            assert!(last.0.ends_with("time of the last tenth"));
        }
    }

    #[test]
    fn rivals_count_where_they_must_be_reached() {
        let link = WanLink::Lossy;
        let rows = [
            up(link, Tool::Xdfs, None, 9.0, 0.1),
            up(link, Tool::Iperf3Bbr, Some(1), 1.0, 0.0),
            up(link, Tool::Iperf3Bbr, Some(4), 9.1, 0.0),
            up(link, Tool::Iperf3, Some(4), 1.0, 0.0),
        ];
        let found = outcomes(&rows, link);
        let what = "wan-lossy up, against iperf3 with bbr, n = 4".to_owned();
        assert_eq!(found[1], (what, Outcome::Reached));
        let what = "wan-lossy up, against iperf3 with bbr, n = 4, whole commands".to_owned();
        assert_eq!(found[2], (what, Outcome::Reported));
        let link = WanLink::LossyCubic;
        let rows = [
            up(link, Tool::Xdfs, None, 9.0, 0.1),
            up(link, Tool::GridFtp, Some(1), 100.0, 0.0),
            up(link, Tool::GridFtp, Some(16), 17.0, 0.0),
        ];
        let found = outcomes(&rows, link);
        assert_eq!(found[0].1, Outcome::Reported);
        let what = "wan-lossy-cubic up, against the best GridFTP (-p 16)".to_owned();
        assert_eq!(found[1], (what, Outcome::Short));
    }

    #[test]
    fn shares_are_reported() {
        let group = Group::WanFairClean;
        let mut row = row(group, Direction::Up, Tool::Xdfs, None, &[4.0]);
        row.beside = Some(Tool::Iperf3Bbr);
        row.runs[0].beside_rate = Some(0.75);
        let verdicts = shares(&[row], group);
        assert_eq!(verdicts.len(), 1);
        assert!(verdicts[0].what.ends_with("xdfs beside iperf3 bbr"));
        assert!((verdicts[0].measured.unwrap().median - 25.0).abs() < 1e-9);
        assert_eq!(verdicts[0].outcome, Outcome::Reported);
    }
}
