//! Bandwidth and latency over the size of messages, both axes logarithmic.

use plotters::backend::SVGBackend;
use plotters::chart::{ChartBuilder, SeriesLabelPosition};
use plotters::coord::Shift;
use plotters::coord::combinators::IntoLogRange as _;
use plotters::drawing::{DrawingArea, IntoDrawingArea as _};
use plotters::element::{Circle, PathElement};
use plotters::series::LineSeries;
use plotters::style::{BLACK, Color as _, IntoFont as _, Palette as _, Palette99, WHITE};
use xdfs::record::Spread;
use xdfs::{Code, Fault, PerfPattern};

use super::{Row, value};
use crate::human;

/// Width and height in pixels of each chart.
const SIZE: (u32, u32) = (560, 420);

/// The picture: a chart for each pattern.
///
/// # Errors
/// It can't be drawn.
pub(super) fn svg(rows: &[Row]) -> Result<Vec<u8>, Fault> {
    let patterns = [PerfPattern::PingPong, PerfPattern::OneWay];
    let is_there = |pattern: &PerfPattern| rows.iter().any(|row| row.case.pattern == *pattern);
    let patterns: Vec<PerfPattern> = patterns.into_iter().filter(is_there).collect();
    let count = u32::try_from(patterns.len()).unwrap_or(1).max(1);
    let mut text = String::new();
    {
        let area = SVGBackend::with_string(&mut text, (SIZE.0 * count, SIZE.1)).into_drawing_area();
        area.fill(&WHITE).map_err(undrawn)?;
        let parts = area.split_evenly((1, count as usize));
        for (part, pattern) in parts.iter().zip(patterns) {
            draw(part, rows, pattern)?;
        }
        area.present().map_err(undrawn)?;
    }
    Ok(text.into_bytes())
}

fn draw(
    area: &DrawingArea<SVGBackend<'_>, Shift>,
    rows: &[Row],
    pattern: PerfPattern,
) -> Result<(), Fault> {
    let mut lines: Vec<(&str, Vec<(f64, f64)>)> = Vec::new();
    for row in rows.iter().filter(|row| row.case.pattern == pattern) {
        let values = row.samples.iter().map(|sample| value(&row.case, sample));
        let Some(spread) = Spread::of(values) else {
            continue;
        };
        let point = (row.case.message_bytes as f64, spread.median.max(1e-9));
        match lines.iter_mut().find(|(name, _)| *name == row.name) {
            Some((_, points)) => points.push(point),
            None => lines.push((&row.name, vec![point])),
        }
    }
    let points = || lines.iter().flat_map(|(_, points)| points);
    let around = |numbers: &mut dyn Iterator<Item = f64>| {
        let (mut least, mut most) = (f64::MAX, f64::MIN_POSITIVE);
        for number in numbers {
            (least, most) = (least.min(number), most.max(number));
        }
        (least / 1.5)..(most * 1.5)
    };
    let across = around(&mut points().map(|point| point.0));
    let up = around(&mut points().map(|point| point.1));
    let (title, unit): (_, fn(&f64) -> String) = match pattern {
        PerfPattern::OneWay => ("Bandwidth over message size", |rate| human::rate(*rate)),
        PerfPattern::PingPong => ("Round trip over message size", |s| {
            format!("{:.1} us", s * 1e6)
        }),
    };
    let mut chart = ChartBuilder::on(area)
        .caption(title, ("sans-serif", 18).into_font())
        .margin(12)
        .x_label_area_size(36)
        .y_label_area_size(90)
        .build_cartesian_2d(across.log_scale(), up.log_scale())
        .map_err(undrawn)?;
    chart
        .configure_mesh()
        .x_label_formatter(&|size| human::size(*size as u64))
        .y_label_formatter(&unit)
        .draw()
        .map_err(undrawn)?;
    for (index, (name, points)) in lines.iter().enumerate() {
        let color = Palette99::pick(index).to_rgba();
        chart
            .draw_series(LineSeries::new(
                points.iter().copied(),
                color.stroke_width(2),
            ))
            .map_err(undrawn)?
            .label(*name)
            .legend(move |(x, y)| PathElement::new([(x, y), (x + 16, y)], color));
        let dots = points
            .iter()
            .map(|point| Circle::new(*point, 3, color.filled()));
        chart.draw_series(dots).map_err(undrawn)?;
    }
    chart
        .configure_series_labels()
        .position(SeriesLabelPosition::UpperLeft)
        .background_style(WHITE.mix(0.8))
        .border_style(BLACK.mix(0.3))
        .draw()
        .map_err(undrawn)
}

fn undrawn(error: impl std::fmt::Display) -> Fault {
    Fault::new(Code::Internal, "draw the picture", error.to_string())
}
