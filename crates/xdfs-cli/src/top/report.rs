//! What two readings say: the same for a server and a service, for the screen and for lines.

use std::collections::VecDeque;

use xdfs::LimitedBy;
use xdfs::metrics::Scrape;
use xdfs_service::{JobDetail, StateName, TransferState};

use super::source::Reading;
use crate::console::printable;
use crate::human::{clock, count, rate, seconds, size};

/// Rates that are kept: more than any terminal has columns.
const RATES_MAX: usize = 512;

/// The last readings.
#[derive(Debug, Default)]
pub(super) struct History {
    before: Option<Reading>,
    now: Option<Reading>,
    /// Bytes in a second, the oldest first.
    rates: VecDeque<u64>,
}

/// A table with a title.
#[derive(Clone, Debug, Default, PartialEq)]
pub(super) struct Table {
    pub(super) columns: Vec<&'static str>,
    pub(super) rows: Vec<Vec<String>>,
    /// What is shown without rows.
    pub(super) empty: &'static str,
}

/// See the module documentation.
#[derive(Clone, Debug, Default, PartialEq)]
pub(super) struct Report {
    /// What is watched.
    pub(super) title: String,
    /// Figures with their names, the most important first.
    pub(super) facts: Vec<(&'static str, String)>,
    /// The rates so far, with a name.
    pub(super) rates: Vec<u64>,
    pub(super) rates_title: String,
    pub(super) table: Table,
    /// Shares of what limits transfers, with their name; the largest first.
    pub(super) limits_title: &'static str,
    pub(super) limits: Vec<(String, f64)>,
    /// Failures by their kind, the most frequent first, with those since the last reading.
    pub(super) failures: Vec<(String, u64, u64)>,
}

impl History {
    /// Adds a reading.
    pub(super) fn add(&mut self, reading: Reading) {
        self.before = self.now.replace(reading);
        let change = self.change();
        // A counter that has become less is that of another process.
        let bytes = change.bytes_in().unwrap_or(0.0) + change.bytes_out().unwrap_or(0.0);
        self.rates.push_back(bytes.max(0.0) as u64);
        if self.rates.len() > RATES_MAX {
            self.rates.pop_front();
        }
    }

    fn change(&self) -> Change<'_> {
        let both = self.before.as_ref().zip(self.now.as_ref());
        Change {
            before: both.map(|(before, _)| &before.metrics),
            now: self.now.as_ref().map(|now| &now.metrics),
            seconds: both.map_or(0.0, |(before, now)| (now.at - before.at).as_secs_f64()),
        }
    }

    /// What the last readings say; `None` before the first one.
    pub(super) fn report(&self) -> Option<Report> {
        let now = self.now.as_ref()?;
        let change = self.change();
        let is_service = now.metrics.of("xdfs_service_jobs").next().is_some();
        let mut report = match is_service {
            true => of_service(now, &change),
            false => of_server(now, &change),
        };
        report.rates = self.rates.iter().copied().collect();
        Some(report)
    }
}

/// The difference of two readings.
struct Change<'a> {
    before: Option<&'a Scrape>,
    now: Option<&'a Scrape>,
    seconds: f64,
}

type Labels<'a> = &'a [(&'a str, &'a str)];

impl Change<'_> {
    /// The present sum of these samples.
    fn value(&self, name: &str, labels: Labels<'_>) -> Option<f64> {
        self.now?.sum(name, labels)
    }

    /// A present number of things.
    fn number(&self, name: &str, labels: Labels<'_>) -> String {
        let value = self.value(name, labels);
        value.map_or_else(|| "-".to_owned(), |value| format!("{value:.0}"))
    }

    /// By how much the sum has grown; `None` before the second reading.
    fn growth(&self, name: &str, labels: Labels<'_>) -> Option<f64> {
        let now = self.now?.sum(name, labels)?;
        let before = self.before?.sum(name, labels).unwrap_or(0.0);
        Some((now - before).max(0.0))
    }

    /// The growth in a second.
    fn each_second(&self, name: &str, labels: Labels<'_>) -> Option<f64> {
        let growth = self.growth(name, labels)?;
        (self.seconds > 0.0).then(|| growth / self.seconds)
    }

    fn bytes_in(&self) -> Option<f64> {
        let of_server = self.each_second("xdfs_server_payload_bytes_total", &[("direction", "in")]);
        // Steps of whole blocks would show as a rate that jumps: the service has the mean of 5 s.
        of_server.or_else(|| self.value("xdfs_service_bytes_per_second", &[]))
    }

    fn bytes_out(&self) -> Option<f64> {
        self.each_second("xdfs_server_payload_bytes_total", &[("direction", "out")])
    }

    /// The shares of the growth of a counter by one of its labels, the largest first; of the whole
    /// count if nothing has grown.
    fn shares(&self, name: &str, label: &str, names: &[&'static str]) -> Vec<(String, f64)> {
        let grown = names.iter().map(|own| self.growth(name, &[(label, own)]));
        let mut values: Vec<f64> = grown.map(|growth| growth.unwrap_or(0.0)).collect();
        if values.iter().sum::<f64>() <= 0.0 {
            let counts = names.iter().map(|own| self.value(name, &[(label, own)]));
            values = counts.map(|count| count.unwrap_or(0.0)).collect();
        }
        let total: f64 = values.iter().sum();
        let shares = names.iter().zip(values);
        let mut shares: Vec<_> = shares
            .map(|(own, value)| {
                (
                    (*own).to_owned(),
                    if total > 0.0 { value / total } else { 0.0 },
                )
            })
            .filter(|(_, share)| *share >= 0.005)
            .collect();
        shares.sort_by(|(_, a), (_, b)| b.total_cmp(a));
        shares
    }

    /// Failures by their labels, the most frequent first.
    fn failures(&self, name: &str, labels: &[&str]) -> Vec<(String, u64, u64)> {
        let samples = self.now.into_iter().flat_map(|now| now.of(name));
        let mut failures: Vec<_> = samples
            .map(|sample| {
                let words = labels.iter().filter_map(|label| sample.labels.get(*label));
                let words: Vec<_> = words.map(String::as_str).collect();
                let own: Vec<_> = sample.labels.iter().map(|(a, b)| (&**a, &**b)).collect();
                let grown = self.growth(name, &own).unwrap_or(0.0);
                (
                    printable(&words.join(" ")),
                    sample.value as u64,
                    grown as u64,
                )
            })
            .collect();
        failures.sort_by(|(_, a, _), (_, b, _)| b.cmp(a));
        failures
    }

    /// What the process and the machine use.
    fn process(&self) -> Vec<(&'static str, String)> {
        let mut facts = Vec::new();
        if let Some(cpu) = self.each_second("process_cpu_seconds_total", &[]) {
            facts.push(("processor", format!("{:.0} %", cpu * 100.0)));
        }
        if let Some(memory) = self.value("process_resident_memory_bytes", &[]) {
            facts.push(("memory", size(memory as u64)));
        }
        if self.value("process_threads", &[]).is_some() {
            facts.push(("threads", self.number("process_threads", &[])));
        }
        if let Some(load) = self.value("xdfs_machine_load", &[]) {
            facts.push(("load", format!("{load:.2}")));
        }
        facts
    }
}

fn shown_rate(bytes: Option<f64>) -> String {
    bytes.map_or_else(|| "-".to_owned(), rate)
}

fn of_server(now: &Reading, change: &Change<'_>) -> Report {
    let most = change.number("xdfs_server_sessions_max", &[]);
    let sessions = change.number("xdfs_server_sessions", &[]);
    let channels = change.number("xdfs_server_channels", &[]);
    let mut facts = vec![
        ("sessions", format!("{sessions} of {most}")),
        ("channels", channels),
        ("in", shown_rate(change.bytes_in())),
        ("out", shown_rate(change.bytes_out())),
    ];
    let used = change.value("xdfs_server_memory_bytes", &[]);
    let of = change.value("xdfs_server_memory_max_bytes", &[]);
    if let Some((used, of)) = used.zip(of) {
        let text = format!("{} of {}", size(used as u64), size(of as u64));
        facts.push(("payload memory", text));
    }
    facts.extend(change.process());
    let doors = now.metrics.of("xdfs_server_sessions");
    let doors = doors.filter_map(|sample| sample.labels.get("door"));
    let rows = doors.flat_map(|door| {
        [("in", "from clients"), ("out", "to clients")].map(|(direction, words)| {
            let of_door = [("door", door.as_str())];
            let both = [("door", door.as_str()), ("direction", direction)];
            let ended = change.each_second("xdfs_server_transfers_total", &both);
            vec![
                printable(door),
                change.number("xdfs_server_sessions", &of_door),
                change.number("xdfs_server_channels", &of_door),
                words.to_owned(),
                change.number("xdfs_server_transfers_running", &both),
                ended.map_or_else(|| "-".to_owned(), |ended| format!("{ended:.1}/s")),
                shown_rate(change.each_second("xdfs_server_payload_bytes_total", &both)),
                size(
                    change
                        .value("xdfs_server_payload_bytes_total", &both)
                        .unwrap_or(0.0) as u64,
                ),
            ]
        })
    });
    let activities = ["work", "source", "target", "network", "rate-limit", "idle"];
    Report {
        title: format!("xdfs server at {}", printable(&now.url)),
        facts,
        rates: Vec::new(),
        rates_title: "in and out".to_owned(),
        table: Table {
            columns: vec![
                "door",
                "sessions",
                "channels",
                "direction",
                "running",
                "ended",
                "rate",
                "moved",
            ],
            rows: rows.collect(),
            empty: "no door",
        },
        limits_title: "what sessions do",
        limits: change.shares("xdfs_server_session_seconds_total", "activity", &activities),
        failures: change.failures("xdfs_server_failures_total", &["door", "what", "code"]),
    }
}

fn of_service(now: &Reading, change: &Change<'_>) -> Report {
    let jobs = |state: StateName| change.number("xdfs_service_jobs", &[("state", state.as_str())]);
    let oldest = change.value("xdfs_service_queue_oldest_seconds", &[]);
    let mut facts = vec![
        ("running", jobs(StateName::Running)),
        ("queued", jobs(StateName::Queued)),
        ("retrying", jobs(StateName::Retrying)),
        ("failed", jobs(StateName::Failed)),
        ("succeeded", jobs(StateName::Succeeded)),
    ];
    if let Some(oldest) = oldest.filter(|oldest| *oldest > 0.0) {
        facts.push(("oldest waits", seconds(oldest)));
    }
    let files = change.each_second("xdfs_service_files_total", &[]);
    facts.push(("rate", shown_rate(change.bytes_in())));
    if let Some(files) = files {
        facts.push(("files", format!("{files:.1}/s")));
    }
    if let Some(time) = change.value("xdfs_service_database_seconds", &[]) {
        facts.push(("database", seconds(time)));
    }
    facts.extend(change.process());
    let limits = LimitedBy::ALL.map(LimitedBy::as_str);
    let is_own = now.jobs.is_some();
    Report {
        title: format!("xdfs service at {}", printable(&now.url)),
        facts,
        rates: Vec::new(),
        rates_title: "arriving".to_owned(),
        table: Table {
            columns: vec!["job", "state", "done", "rate", "left", "from", "to"],
            rows: now.jobs.iter().flatten().map(job_row).collect(),
            empty: match is_own {
                true => "no job runs",
                false => "jobs are shown to the user of the service: name its folder with --data",
            },
        },
        limits_title: "what limits transfers",
        limits: change.shares(
            "xdfs_service_transfers_limited_total",
            "limited_by",
            &limits,
        ),
        failures: change.failures("xdfs_service_failures_total", &["code"]),
    }
}

/// A job that runs.
fn job_row(detail: &JobDetail) -> Vec<String> {
    let job = &detail.job;
    let mut transfers = detail.transfers.iter();
    let running = transfers.find(|one| one.state == TransferState::Running);
    let bytes_per_s = running.and_then(|one| one.rate_bytes_per_s);
    let (bytes, total) = (job.counts.bytes, job.counts.bytes_total);
    let done = match total {
        Some(total @ 1..) => format!("{:.0} %", bytes as f64 / total as f64 * 100.0),
        _ => size(bytes),
    };
    let left = total.zip(bytes_per_s).filter(|(_, rate)| *rate > 0);
    let left = left.map(|(total, rate)| total.saturating_sub(bytes) / rate);
    let time = |seconds| clock(std::time::Duration::from_secs(seconds));
    let name = match job.label.is_empty() {
        true => job.id.to_string(),
        false => job.label.clone(),
    };
    let from_to = running.or_else(|| detail.transfers.first());
    let (from, to) = from_to.map_or(("", ""), |one| (&one.source, &one.target));
    vec![
        printable(&name),
        job.state.to_string(),
        done,
        bytes_per_s.map_or_else(|| "-".to_owned(), |rate_now| rate(rate_now as f64)),
        left.map_or_else(|| "-".to_owned(), time),
        printable(from),
        printable(to),
    ]
}

impl Report {
    /// The report as lines.
    pub(super) fn text(&self) -> String {
        let mut lines = vec![self.title.clone()];
        lines.extend(
            self.facts
                .iter()
                .map(|(name, value)| format!("{name}: {value}")),
        );
        let columns = self.table.columns.iter().map(|name| (*name).to_owned());
        match self.table.rows.is_empty() {
            true => lines.push(self.table.empty.to_owned()),
            false => {
                lines.push(columns.collect::<Vec<_>>().join("\t"));
                lines.extend(self.table.rows.iter().map(|row| row.join("\t")));
            }
        }
        if !self.limits.is_empty() {
            let shares = self.limits.iter();
            let shares = shares.map(|(name, share)| format!("{name} {:.0} %", share * 100.0));
            let shares: Vec<_> = shares.collect();
            lines.push(format!("{}: {}", self.limits_title, shares.join(", ")));
        }
        for (what, all, _) in &self.failures {
            lines.push(format!("{}: {what}", count(*all, "failure")));
        }
        lines.join("\n") + "\n"
    }
}

#[cfg(test)]
pub(super) mod tests {
    use std::time::{Duration, Instant};

    use super::*;

    fn reading(at: Instant, text: &str) -> Reading {
        Reading {
            at,
            url: "http://127.0.0.1:2798".to_owned(),
            metrics: Scrape::read(text).unwrap(),
            jobs: None,
        }
    }

    /// A server that has received 3 MB within a second.
    pub(in crate::top) fn server() -> Report {
        let text = |bytes: u64, busy: f64, failed: u64| {
            format!(
                "xdfs_server_sessions{{door=\"xdfs\"}} 2\nxdfs_server_sessions_max 256\n\
                 xdfs_server_channels{{door=\"xdfs\"}} 8\n\
                 xdfs_server_payload_bytes_total{{door=\"xdfs\",direction=\"in\"}} {bytes}\n\
                 xdfs_server_payload_bytes_total{{door=\"xdfs\",direction=\"out\"}} 0\n\
                 xdfs_server_transfers_running{{door=\"xdfs\",direction=\"in\"}} 1\n\
                 xdfs_server_transfers_running{{door=\"xdfs\",direction=\"out\"}} 0\n\
                 xdfs_server_session_seconds_total{{activity=\"target\"}} {busy}\n\
                 xdfs_server_session_seconds_total{{activity=\"work\"}} 5\n\
                 xdfs_server_failures_total{{door=\"xdfs\",what=\"login\",\
                 code=\"authentication-failed\"}} {failed}\n\
                 process_cpu_seconds_total {busy}\nxdfs_machine_load 0.5\n"
            )
        };
        let mut history = History::default();
        let at = Instant::now();
        history.add(reading(at, &text(1_000_000, 1.0, 1)));
        history.add(reading(
            at + Duration::from_secs(1),
            &text(4_000_000, 1.5, 3),
        ));
        history.report().unwrap()
    }

    #[test]
    fn rates_are_those_between_two_readings() {
        let report = server();
        let fact = |name| {
            let mut facts = report.facts.iter();
            facts
                .find(|(own, _)| *own == name)
                .map(|(_, value)| value.as_str())
        };
        assert_eq!(fact("sessions"), Some("2 of 256"));
        assert_eq!(fact("in"), Some("3.00 MB/s"));
        assert_eq!(fact("out"), Some("0 B/s"));
        assert_eq!(fact("processor"), Some("50 %"));
        assert_eq!(report.rates, [0, 3_000_000]);
        assert_eq!(report.limits, [("target".to_owned(), 1.0)]);
        let failure = "xdfs login authentication-failed".to_owned();
        assert_eq!(report.failures, [(failure, 3, 2)]);
        assert_eq!(report.table.rows.len(), 2);
        let text = report.text();
        assert!(text.contains("\nin: 3.00 MB/s\n"), "{text}");
        assert!(text.contains("\n3 failures: xdfs login"), "{text}");
    }

    /// The server was started again.
    #[test]
    fn counters_that_become_less_are_no_rate() {
        let name = "xdfs_server_payload_bytes_total{direction=\"in\"}";
        let line = |bytes| format!("xdfs_server_sessions 1\n{name} {bytes}");
        let mut history = History::default();
        let at = Instant::now();
        for (second, bytes) in [(0, 50), (1, 10), (1, 20)] {
            history.add(reading(at + Duration::from_secs(second), &line(bytes)));
            assert!(history.report().is_some());
        }
        assert_eq!(history.rates, [0, 0, 0]);
        assert!(History::default().report().is_none());
    }
}
