//! Whether a requirement was met.
//!
//! Every requirement is judged by the median of figures of the same run of the benchmark: ratios
//! are taken within a repetition. Those that could not be judged say why. Called by `requirements`.

use serde::Serialize;

use crate::{
    row::{Row, Run},
    statistics::{Spread, paired_ratios},
};

/// On which side of the required value a figure must be.
#[derive(Clone, Copy, Debug, Eq, PartialEq, Serialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum Bound {
    /// The figure may not be smaller.
    AtLeast,
    /// The figure may not be larger.
    AtMost,
}

/// How a requirement was met.
#[derive(Clone, Copy, Debug, Eq, PartialEq, Serialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum Outcome {
    /// Not at all: a figure is missing.
    NotMeasured,
    /// The median is on the right side.
    Reached,
    /// Nothing is asked for.
    Reported,
    /// The median is on the wrong side.
    Short,
}

/// One requirement.
#[derive(Clone, Debug, Serialize)]
pub(crate) struct Verdict {
    /// What is compared with what.
    pub(crate) what: String,
    /// The side of `required` that is asked for.
    pub(crate) bound: Bound,
    /// The value asked for; the figure is only reported where there is none.
    pub(crate) required: Option<f64>,
    /// Its unit; `x` is a ratio.
    pub(crate) unit: &'static str,
    /// What was measured.
    pub(crate) measured: Option<Spread>,
    /// Whether that is enough.
    pub(crate) outcome: Outcome,
    /// Medians that the ratio comes from, or why there is none.
    pub(crate) detail: String,
}

/// Judges the ratio of a figure of two rows.
pub(crate) fn ratio(
    what: String,
    (bound, required): (Bound, Option<f64>),
    (ours, theirs): (Option<&Row>, Option<&Row>),
    (unit, figure): (&str, fn(&Run) -> f64),
) -> Verdict {
    let figures = |row: Option<&Row>| row.map(|row| row.figures(figure)).unwrap_or_default();
    let measured = Spread::of(&paired_ratios(&figures(ours), &figures(theirs)));
    let medians = |row: Option<&Row>| row.and_then(|row| row.spread(figure));
    let detail = match (medians(ours), medians(theirs)) {
        (Some(our), Some(their)) => format!("{:.3} against {:.3} {unit}", our.median, their.median),
        (None, _) => missing(ours),
        (_, None) => missing(theirs),
    };
    judged(Verdict {
        what,
        bound,
        required,
        unit: "x",
        measured,
        outcome: Outcome::Short,
        detail,
    })
}

/// Judges a figure of one row by its median, or by its largest value where nothing is allowed.
pub(crate) fn absolute(
    what: String,
    (bound, required, unit): (Bound, Option<f64>, &'static str),
    row: Option<&Row>,
    figure: impl Fn(&Run) -> f64,
) -> Verdict {
    let measured = row.and_then(|row| row.spread(figure));
    let detail = if measured.is_some() {
        String::new()
    } else {
        missing(row)
    };
    judged(Verdict {
        what,
        bound,
        required,
        unit,
        measured,
        outcome: Outcome::Short,
        detail,
    })
}

fn missing(row: Option<&Row>) -> String {
    match row {
        Some(row) => {
            let reason = row.failure.as_deref().unwrap_or("was not run");
            format!("{}: {reason}", row.tool_name())
        }
        None => "no such row in this run".to_owned(),
    }
}

fn judged(mut verdict: Verdict) -> Verdict {
    verdict.outcome = match (verdict.measured, verdict.required, verdict.bound) {
        (None, _, _) => Outcome::NotMeasured,
        (Some(_), None, _) => Outcome::Reported,
        (Some(spread), Some(required), Bound::AtLeast) if spread.median >= required => {
            Outcome::Reached
        }
        // Where nothing at all is allowed no run may have it.
        (Some(spread), Some(0.0), Bound::AtMost) if spread.high > 0.0 => Outcome::Short,
        (Some(spread), Some(required), Bound::AtMost) if spread.median <= required => {
            Outcome::Reached
        }
        (Some(_), Some(_), _) => Outcome::Short,
    };
    verdict
}

#[cfg(test)]
pub(crate) mod tests {
    use super::*;
    use crate::{
        meter::Usage,
        options::Group,
        protection::Protection,
        tool::{Direction, Tool},
    };

    /// A row of runs that took `seconds` for a GB each.
    pub(crate) fn row(
        group: Group,
        direction: Direction,
        tool: Tool,
        channels: Option<u32>,
        seconds: &[f64],
    ) -> Row {
        let runs = (0..).zip(seconds).map(|(repetition, seconds)| {
            let usage = Usage {
                wall_s: *seconds,
                client_cpu_s: *seconds,
                client_peak_kib: 10_000,
                server_peak_kib: 20_000,
                ..Usage::default()
            };
            Run::new(repetition, 1_000_000_000, usage, None)
        });
        Row {
            group,
            direction,
            tool,
            protection: Protection::None,
            channels,
            bytes: 1_000_000_000,
            beside: None,
            command: "client DIR".to_owned(),
            server: Some("server DIR".to_owned()),
            runs: runs.collect(),
            failure: None,
        }
    }
}
