//! Draws a report. Nothing is shown by colour alone, and no row is wider than the terminal.

use ratatui::Frame;
use ratatui::layout::{Constraint, Layout, Rect};
use ratatui::style::{Modifier, Style};
use ratatui::text::{Line, Span};
use ratatui::widgets::{Cell, Paragraph, Row, Sparkline, Table, Wrap};
use xdfs::Fault;

use super::report::Report;
use crate::console::printable;
use crate::human::rate;

/// Rows of the curve.
const CURVE: u16 = 3;
/// Rows of shares and of failures.
const LISTED: u16 = 7;

fn bold() -> Style {
    Style::default().add_modifier(Modifier::BOLD)
}

fn dim() -> Style {
    Style::default().add_modifier(Modifier::DIM)
}

/// Draws a report, or what is left of it while a problem keeps it from being read.
pub(super) fn draw(frame: &mut Frame<'_>, report: &Report, problem: Option<&Fault>) {
    let facts = facts(report);
    let width = usize::from(frame.area().width).max(1);
    let fact_rows = facts.width().div_ceil(width).clamp(1, 4);
    let listed = report.limits.len().max(report.failures.len()) + 1;
    let listed = u16::try_from(listed).unwrap_or(LISTED).clamp(2, LISTED);
    let [head, figures, curve_title, curve, table, lists, foot] = Layout::vertical([
        Constraint::Length(1),
        // Words that don't fit at the end of a row take one more.
        Constraint::Length(u16::try_from(fact_rows).unwrap_or(1) + 1),
        Constraint::Length(1),
        Constraint::Length(CURVE),
        Constraint::Min(3),
        Constraint::Length(listed),
        Constraint::Length(1),
    ])
    .areas(frame.area());
    frame.render_widget(Line::styled(report.title.clone(), bold()), head);
    let facts = Paragraph::new(facts).wrap(Wrap { trim: true });
    frame.render_widget(facts, figures);
    draw_curve(frame, report, curve_title, curve);
    draw_table(frame, report, table);
    let [left, right] =
        Layout::horizontal([Constraint::Percentage(45), Constraint::Percentage(55)]).areas(lists);
    draw_limits(frame, report, left);
    draw_failures(frame, report, right);
    let foot_line = match problem {
        Some(fault) => Line::styled(printable(&format!("! {fault}")), bold()),
        None => Line::styled("q quits", dim()),
    };
    frame.render_widget(foot_line, foot);
}

/// The figures in one line, which is broken where it has to be.
fn facts(report: &Report) -> Line<'static> {
    let mut spans = Vec::new();
    for (name, value) in &report.facts {
        // No break within a name and its value.
        let name = name.replace(' ', "\u{a0}");
        let value = value.replace(' ', "\u{a0}");
        spans.push(Span::styled(format!("{name}\u{a0}"), dim()));
        spans.push(Span::styled(value, bold()));
        spans.push(Span::raw("   "));
    }
    Line::from(spans)
}

fn draw_curve(frame: &mut Frame<'_>, report: &Report, title: Rect, area: Rect) {
    let columns = usize::from(area.width);
    let first = report.rates.len().saturating_sub(columns);
    let shown = &report.rates[first..];
    let most = shown.iter().copied().max().unwrap_or(0);
    let text = format!("{}, at most {}", report.rates_title, rate(most as f64));
    frame.render_widget(Line::styled(text, dim()), title);
    // The newest at the right.
    let width = u16::try_from(shown.len())
        .unwrap_or(area.width)
        .min(area.width);
    let right = Rect {
        x: area.x + (area.width - width),
        width,
        ..area
    };
    frame.render_widget(Sparkline::default().data(shown.to_vec()), right);
}

fn draw_table(frame: &mut Frame<'_>, report: &Report, area: Rect) {
    let table = &report.table;
    if table.rows.is_empty() {
        let empty = Paragraph::new(table.empty).wrap(Wrap { trim: true });
        return frame.render_widget(empty, area);
    }
    // Each as wide as it needs, and the last ones what is left.
    let widths: Vec<usize> = (0..table.columns.len())
        .map(|at| {
            let cells = table.rows.iter().filter_map(|row| row.get(at));
            let widest = cells.map(|cell| cell.chars().count()).max().unwrap_or(0);
            widest.max(table.columns[at].len()).min(40)
        })
        .collect();
    let widths = widths.into_iter().enumerate().map(|(at, width)| {
        let width = u16::try_from(width).unwrap_or(u16::MAX);
        match at + 2 < table.columns.len() {
            true => Constraint::Length(width),
            false => Constraint::Min(width.min(8)),
        }
    });
    let header = Row::new(table.columns.iter().map(|name| Cell::from(*name))).style(dim());
    let rows = table
        .rows
        .iter()
        .map(|row| Row::new(row.iter().map(|cell| Cell::from(&**cell))));
    let drawn = Table::new(rows, widths).header(header).column_spacing(2);
    frame.render_widget(drawn, area);
}

fn draw_limits(frame: &mut Frame<'_>, report: &Report, area: Rect) {
    let mut lines = vec![Line::styled(report.limits_title, dim())];
    for (name, share) in &report.limits {
        let cells = (share * 10.0).round().clamp(0.0, 10.0) as usize;
        let bar = format!("{}{}", "#".repeat(cells), ".".repeat(10 - cells));
        lines.push(Line::from(format!(
            "{name:<13} {bar} {:>3.0} %",
            share * 100.0
        )));
    }
    if report.limits.is_empty() {
        lines.push(Line::from("nothing yet"));
    }
    frame.render_widget(Paragraph::new(lines), area);
}

fn draw_failures(frame: &mut Frame<'_>, report: &Report, area: Rect) {
    let mut lines = vec![Line::styled("failures", dim())];
    for (what, all, new) in &report.failures {
        let new = match new {
            0 => String::new(),
            new => format!(" (+{new})"),
        };
        lines.push(Line::from(format!("{all:>6}{new} {what}")));
    }
    if report.failures.is_empty() {
        lines.push(Line::from("none"));
    }
    frame.render_widget(Paragraph::new(lines), area);
}

#[cfg(test)]
mod tests {
    use ratatui::Terminal;
    use ratatui::backend::TestBackend;
    use xdfs::Code;

    use super::*;
    use crate::top::report::tests::server;

    fn drawn(width: u16, height: u16, report: &Report, problem: Option<&Fault>) -> Vec<String> {
        let mut terminal = Terminal::new(TestBackend::new(width, height)).unwrap();
        terminal.draw(|frame| draw(frame, report, problem)).unwrap();
        let buffer = terminal.backend().buffer();
        let rows = (0..height).map(|y| {
            let row = (0..width).map(|x| buffer[(x, y)].symbol());
            row.collect::<String>()
                .replace('\u{a0}', " ")
                .trim_end()
                .to_owned()
        });
        rows.collect()
    }

    #[test]
    fn everything_is_on_a_screen_of_80_by_24() {
        let rows = drawn(80, 24, &server(), None);
        let all = rows.join("\n");
        assert_eq!(rows[0], "xdfs server at http://127.0.0.1:2798");
        for words in [
            "sessions 2 of 256",
            "channels 8",
            "in 3.00 MB/s",
            "processor 50 %",
            "load 0.50",
            "in and out, at most 3.00 MB/s",
            "door",
            "from clients",
            "what sessions do",
            "target        ########## 100 %",
            "     3 (+2) xdfs login authentication-failed",
        ] {
            assert!(all.contains(words), "{words}\n{all}");
        }
        assert_eq!(rows[23], "q quits");
        let curve = &rows[4..8].join("");
        assert!(curve.contains('\u{2588}'), "{all}");
    }

    #[test]
    fn no_size_and_no_report_is_a_panic() {
        let mut long = server();
        for number in 0..200 {
            long.facts.push(("fact", "x".repeat(number)));
            long.table.rows.push(vec!["\u{1f600}".repeat(number); 8]);
            long.limits.push(("limit".to_owned(), number as f64));
            long.failures.push(("y".repeat(number), u64::MAX, u64::MAX));
            long.rates.push(u64::MAX);
        }
        let fault = Fault::new(Code::ConnectionRefused, "ask", "it\n is down").path("x");
        for (width, height) in [(1, 1), (1, 24), (80, 1), (5, 3), (20, 10), (300, 100)] {
            for report in [&Report::default(), &server(), &long] {
                let rows = drawn(width, height, report, Some(&fault));
                assert_eq!(rows.len(), usize::from(height));
            }
        }
    }

    #[test]
    fn a_problem_is_told_below_the_last_figures() {
        let fault = Fault::new(Code::ConnectionRefused, "ask the server", "it is down");
        let rows = drawn(80, 24, &server(), Some(&fault));
        assert!(rows[23].starts_with("! cannot ask the server"), "{rows:?}");
        assert!(rows.join("\n").contains("sessions 2 of 256"));
    }
}
