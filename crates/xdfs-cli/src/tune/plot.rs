//! The rate over channels and windows: a heat map, and the surface in three dimensions.
//!
//! Both axes are logarithmic, as their values double or more: a coordinate is the index of a
//! value. Between the samples the surface is interpolated, and so are the cells without a number.

use plotters::chart::{ChartBuilder, LabelAreaPosition};
use plotters::coord::Shift;
use plotters::drawing::{DrawingArea, DrawingAreaErrorKind};
use plotters::element::{Circle, Rectangle, Text};
use plotters::prelude::DrawingBackend;
use plotters::series::SurfaceSeries;
use plotters::style::colors::colormaps::ViridisRGB;
use plotters::style::text_anchor::{HPos, Pos, VPos};
use plotters::style::{BLACK, Color as _, IntoFont as _, RGBColor, TextStyle, WHITE};
use xdfs::{TuneOptions, TuneSample, TuneSetting};

use super::table;
use crate::console::printable;
use crate::human;

/// Width and height of the picture in pixels.
pub(super) const SIZE: (u32, u32) = (1160, 500);
/// Steps of the surface between two values of an axis.
const STEPS: usize = 4;
/// Space for the labels of the heat map.
const LABELS: u32 = 60;
/// Font sizes of titles and labels.
const TITLE: u32 = 20;
const LABEL: u32 = 14;

/// The rates to draw.
#[derive(Debug)]
pub(super) struct Surface {
    title: String,
    channels: Vec<u32>,
    windows: Vec<Option<u32>>,
    /// The mean rate of each sampled setting, by its indices on both axes.
    rates: Vec<((usize, usize), f64)>,
}

impl Surface {
    /// The surface of `samples`, which were taken of `server` with `options`.
    pub(super) fn new(server: &str, options: &TuneOptions, samples: &[TuneSample]) -> Self {
        let mean = |setting: TuneSetting| {
            let rates = samples.iter().filter(|s| s.setting == setting);
            let rates: Vec<f64> = rates.map(|sample| sample.bytes_per_second).collect();
            (!rates.is_empty()).then(|| rates.iter().sum::<f64>() / rates.len() as f64)
        };
        let mut sampled = Vec::new();
        for (x, channels) in options.channels.iter().enumerate() {
            for (y, window) in options.windows.iter().enumerate() {
                let rate = mean(TuneSetting {
                    channels: Some(*channels),
                    window: *window,
                });
                sampled.extend(rate.map(|rate| ((x, y), rate)));
            }
        }
        let way = if options.download { "from" } else { "to" };
        let default = mean(options.default).map(|rate| format!(", default {}", human::rate(rate)));
        Self {
            title: format!(
                "Rate {way} {}{}",
                printable(server),
                default.unwrap_or_default()
            ),
            channels: options.channels.clone(),
            windows: options.windows.clone(),
            rates: sampled,
        }
    }

    /// The rate at a point: that of a sample, or a mean of all, the nearer ones weighing more.
    fn rate(&self, x: f64, y: f64) -> f64 {
        let (mut sum, mut weights) = (0.0, 0.0);
        for ((column, row), rate) in &self.rates {
            let distance = (*column as f64 - x).powi(2) + (*row as f64 - y).powi(2);
            if distance < 1e-9 {
                return *rate;
            }
            let weight = 1.0 / distance.powf(1.5);
            sum += rate * weight;
            weights += weight;
        }
        if weights > 0.0 { sum / weights } else { 0.0 }
    }

    /// The highest sampled rate, and at least one byte per second.
    fn rate_max(&self) -> f64 {
        self.rates.iter().map(|(_, rate)| *rate).fold(1.0, f64::max)
    }

    fn color(&self, rate: f64) -> RGBColor {
        ViridisRGB::get_color_normalized(rate, 0.0, self.rate_max())
    }

    fn channels_label(&self, index: usize) -> String {
        self.channels
            .get(index)
            .map(u32::to_string)
            .unwrap_or_default()
    }

    fn window_label(&self, index: usize) -> String {
        let window = self.windows.get(index);
        window
            .map(|window| table::window(*window))
            .unwrap_or_default()
    }
}

/// Draws the picture.
///
/// # Errors
/// Those of the backend.
pub(super) fn draw<B: DrawingBackend>(
    area: &DrawingArea<B, Shift>,
    surface: &Surface,
) -> Result<(), DrawingAreaErrorKind<B::ErrorType>> {
    area.fill(&WHITE)?;
    let title = TextStyle::from(("sans-serif", TITLE).into_font());
    let area = area.titled(&surface.title, title)?;
    // An axis of one value spans no surface.
    if surface.channels.len() == 1 || surface.windows.len() == 1 {
        draw_heat_map(&area, surface)?;
    } else {
        let (left, right) = area.split_horizontally(SIZE.0 / 2);
        draw_heat_map(&left, surface)?;
        draw_surface(&right, surface)?;
    }
    area.present()
}

fn label_style<'a>() -> TextStyle<'a> {
    TextStyle::from(("sans-serif", LABEL).into_font())
}

fn draw_heat_map<B: DrawingBackend>(
    area: &DrawingArea<B, Shift>,
    surface: &Surface,
) -> Result<(), DrawingAreaErrorKind<B::ErrorType>> {
    let (columns, rows) = (surface.channels.len(), surface.windows.len());
    let chart = ChartBuilder::on(area)
        .margin(10)
        .set_label_area_size(LabelAreaPosition::Left, LABELS)
        .set_label_area_size(LabelAreaPosition::Bottom, LABELS)
        .build_cartesian_2d(0.0..columns as f64, 0.0..rows as f64)?;
    let plane = chart.plotting_area();
    let centred = Pos::new(HPos::Center, VPos::Center);
    for column in 0..columns {
        for row in 0..rows {
            let (x, y) = (column as f64, row as f64);
            let rate = surface.rate(x, y);
            let corners = [(x, y), (x + 1.0, y + 1.0)];
            plane.draw(&Rectangle::new(corners, surface.color(rate).filled()))?;
            let is_sampled = surface.rates.iter().any(|(at, _)| *at == (column, row));
            if is_sampled {
                // The colours of high rates are light.
                let ink = match rate > 0.6 * surface.rate_max() {
                    true => BLACK,
                    false => WHITE,
                };
                let style = label_style().color(&ink).pos(centred);
                plane.draw(&Text::new(human::rate(rate), (x + 0.5, y + 0.5), style))?;
            }
        }
    }
    // Labels stand outside of the plane, in the pixels of the area.
    let (across, down) = plane.get_pixel_range();
    let (left, top) = area.get_base_pixel();
    let place = |x: i32, y: i32| (x - left, y - top);
    let cell = |index: usize, count: usize, pixels: i32| {
        let middle = (index as f64 + 0.5) / count as f64 * f64::from(pixels);
        middle.round() as i32
    };
    let (width, height) = (across.end - across.start, down.end - down.start);
    let below = label_style().pos(Pos::new(HPos::Center, VPos::Top));
    let beside = label_style().pos(Pos::new(HPos::Right, VPos::Center));
    for column in 0..columns {
        let at = place(across.start + cell(column, columns, width), down.end + 6);
        area.draw(&Text::new(
            surface.channels_label(column),
            at,
            below.clone(),
        ))?;
    }
    for row in 0..rows {
        let at = place(across.start - 6, down.end - cell(row, rows, height));
        area.draw(&Text::new(surface.window_label(row), at, beside.clone()))?;
    }
    let at = place(across.start + width / 2, down.end + 28);
    let name = "channels across, window up; cells without a number are interpolated";
    area.draw(&Text::new(name, at, below))
}

fn draw_surface<B: DrawingBackend>(
    area: &DrawingArea<B, Shift>,
    surface: &Surface,
) -> Result<(), DrawingAreaErrorKind<B::ErrorType>> {
    let last = |length: usize| (length - 1) as f64;
    let (columns, rows) = (last(surface.channels.len()), last(surface.windows.len()));
    let top = surface.rate_max() * 1.05;
    // Half a step more, so that the labels of both axes don't meet at the corner.
    let depth = rows + 0.5;
    let mut chart =
        ChartBuilder::on(area)
            .margin(20)
            .build_cartesian_3d(0.0..columns, 0.0..top, 0.0..depth)?;
    chart.with_projection(|mut projection| {
        projection.pitch = 0.35;
        projection.yaw = 0.6;
        projection.scale = 0.8;
        projection.into_matrix()
    });
    let index = |at: &f64| ((at - at.round()).abs() < 1e-6).then(|| at.round() as usize);
    let channels = |at: &f64| index(at).map_or(String::new(), |at| surface.channels_label(at));
    let windows = |at: &f64| index(at).map_or(String::new(), |at| surface.window_label(at));
    chart
        .configure_axes()
        .light_grid_style(BLACK.mix(0.1))
        .max_light_lines(1)
        .label_style(label_style())
        .x_labels(surface.channels.len())
        .z_labels(surface.windows.len())
        .y_labels(5)
        .x_formatter(&channels)
        .z_formatter(&windows)
        .y_formatter(&|rate| human::rate(*rate))
        .draw()?;
    let steps = |last: f64| {
        let count = last as usize * STEPS;
        (0..=count).map(|step| step as f64 / STEPS as f64)
    };
    let color = |rate: &f64| surface.color(*rate).mix(0.9).filled();
    let series = SurfaceSeries::xoz(steps(columns), steps(rows), |x, z| surface.rate(x, z));
    chart.draw_series(series.style_func(&color))?;
    let sampled = surface.rates.iter();
    chart.draw_series(sampled.map(|((column, row), rate)| {
        Circle::new((*column as f64, *rate, *row as f64), 2, BLACK.filled())
    }))?;
    Ok(())
}
