//! What was measured: rows of runs.
//!
//! A row is one workload done by one tool with one channel count; a run is one repetition of it.
//! Rows are what the JSON file holds and what verdicts and tables are computed from. Made by
//! `session`.

use serde::{Deserialize, Serialize};

use crate::{
    meter::Usage,
    options::Group,
    protection::Protection,
    statistics::Spread,
    tool::{Direction, Tool},
};

/// One workload by one tool.
#[derive(Clone, Debug, Serialize)]
pub(crate) struct Row {
    /// The group it belongs to.
    pub(crate) group: Group,
    /// Which way the payload goes.
    pub(crate) direction: Direction,
    /// Who moves it.
    pub(crate) tool: Tool,
    /// How its channels are protected.
    pub(crate) protection: Protection,
    /// Parallel channels or streams asked for; the tool's own choice when not given.
    pub(crate) channels: Option<u32>,
    /// Payload asked for, in bytes; zero where it was a time.
    pub(crate) bytes: u64,
    /// Who moves payload over the same link at the same time.
    pub(crate) beside: Option<Tool>,
    /// The client command of the first run.
    pub(crate) command: String,
    /// The server command of the first run.
    pub(crate) server: Option<String>,
    /// The runs that succeeded.
    pub(crate) runs: Vec<Run>,
    /// Why there are no further runs.
    pub(crate) failure: Option<String>,
}

/// One repetition.
#[derive(Clone, Debug, Serialize)]
pub(crate) struct Run {
    /// Which repetition, from zero.
    pub(crate) repetition: u32,
    /// Payload moved, in bytes.
    pub(crate) bytes: u64,
    /// Files of a tree, or calls; zero elsewhere.
    pub(crate) items: u64,
    /// Seconds that count for the rate: of the transfer alone where the tool reports them (memory
    /// to memory), else of the whole command and of making its work durable.
    pub(crate) seconds: f64,
    /// Seconds of the whole client command.
    pub(crate) command_seconds: f64,
    /// Seconds of making everything durable afterwards.
    pub(crate) sync_seconds: f64,
    /// CPU seconds of the client.
    pub(crate) client_cpu_seconds: f64,
    /// CPU seconds of the server.
    pub(crate) server_cpu_seconds: f64,
    /// CPU seconds of the rest of the machine.
    pub(crate) other_cpu_seconds: f64,
    /// Peak memory of the client in KiB.
    pub(crate) client_peak_kib: u64,
    /// Peak memory of the server in KiB.
    pub(crate) server_peak_kib: u64,
    /// Most channels that were there at once, where the tool says.
    pub(crate) channels_open: Option<u32>,
    /// Whether it was ended at the time limit of rivals; `bytes` are those moved until then.
    pub(crate) is_cut: bool,
    /// The part of the time that the last tenth of the bytes took, where it is looked at.
    pub(crate) tail: Option<f64>,
    /// Payload rate of who ran beside it, in GB a second.
    pub(crate) beside_rate: Option<f64>,
}

impl Run {
    /// Puts together what the meter saw and what the tool reported of itself.
    pub(crate) fn new(repetition: u32, bytes: u64, usage: Usage, own: Option<Timing>) -> Self {
        Self {
            repetition,
            bytes: own.map_or(bytes, |timing| timing.bytes),
            items: 0,
            seconds: own.map_or(usage.wall_s + usage.sync_s, |timing| timing.seconds),
            command_seconds: usage.wall_s,
            sync_seconds: usage.sync_s,
            client_cpu_seconds: usage.client_cpu_s,
            server_cpu_seconds: usage.server_cpu_s,
            other_cpu_seconds: usage.other_cpu_s,
            client_peak_kib: usage.client_peak_kib,
            server_peak_kib: usage.server_peak_kib,
            channels_open: own.and_then(|timing| timing.channels),
            is_cut: usage.is_cut,
            tail: None,
            beside_rate: None,
        }
    }

    /// Payload rate in GB (10^9 bytes) a second.
    pub(crate) fn rate(&self) -> f64 {
        self.bytes as f64 / 1e9 / self.seconds
    }

    /// The same run, which moved or asked for so many things.
    pub(crate) fn with_items(self, items: u64) -> Self {
        Self { items, ..self }
    }

    /// The same run, whose last tenth took this part of its time.
    pub(crate) fn with_tail(self, tail: Option<f64>) -> Self {
        Self { tail, ..self }
    }

    /// The same run, with the rate of the one beside it.
    pub(crate) fn beside(self, other: &Self) -> Self {
        let beside_rate = Some(other.rate());
        Self {
            beside_rate,
            ..self
        }
    }

    /// The part that it has of what it and the one beside it move; not a number without one.
    pub(crate) fn share(&self) -> f64 {
        self.rate() / (self.rate() + self.beside_rate.unwrap_or(f64::NAN))
    }

    /// Files or calls a second.
    pub(crate) fn items_per_second(&self) -> f64 {
        self.items as f64 / self.seconds
    }

    /// Payload rate over the whole client command, in GB a second.
    pub(crate) fn command_rate(&self) -> f64 {
        self.bytes as f64 / 1e9 / self.command_seconds
    }

    /// CPU seconds of both sides for a GB of payload.
    pub(crate) fn cpu_per_gb(&self) -> f64 {
        (self.client_cpu_seconds + self.server_cpu_seconds) / (self.bytes as f64 / 1e9)
    }

    /// Peak memory of both sides in MB (10^6 bytes).
    pub(crate) fn memory_mb(&self) -> f64 {
        megabytes(self.client_peak_kib + self.server_peak_kib)
    }
}

impl Row {
    /// The tool, with how it protects its channels where a group has several kinds.
    pub(crate) fn tool_name(&self) -> String {
        let name = self.tool.name();
        if let Some(other) = self.beside {
            format!("{name} beside {}", other.name())
        } else if self.group.has_protections() && self.tool == Tool::Xdfs {
            format!("{name} {}", self.protection.name())
        } else {
            name.to_owned()
        }
    }

    /// One figure of every run, with its repetition.
    pub(crate) fn figures(&self, figure: impl Fn(&Run) -> f64) -> Vec<(u32, f64)> {
        self.runs
            .iter()
            .map(|run| (run.repetition, figure(run)))
            .collect()
    }

    /// Median and spread of one figure.
    pub(crate) fn spread(&self, figure: impl Fn(&Run) -> f64) -> Option<Spread> {
        Spread::of(&self.runs.iter().map(figure).collect::<Vec<_>>())
    }
}

/// KiB as MB (10^6 bytes).
pub(crate) fn megabytes(kib: u64) -> f64 {
    kib as f64 * 1024.0 / 1e6
}

/// What a tool says of its own transfer, connection set-up left out.
#[derive(Clone, Copy, Debug, Deserialize, PartialEq)]
pub(crate) struct Timing {
    /// Payload received, in bytes.
    pub(crate) bytes: u64,
    /// Seconds it took.
    pub(crate) seconds: f64,
    /// Most channels that were there at once, where it says.
    #[serde(default)]
    pub(crate) channels: Option<u32>,
}

impl Timing {
    /// Reads the received sum from the output of `iperf3 -J`.
    pub(crate) fn from_iperf3(text: &str) -> Result<Self, String> {
        #[derive(Deserialize)]
        struct Output {
            end: Option<End>,
            error: Option<String>,
        }
        #[derive(Deserialize)]
        struct End {
            sum_received: Option<Timing>,
        }
        let output: Output =
            serde_json::from_str(text).map_err(|error| format!("output of iperf3: {error}"))?;
        if let Some(error) = output.error {
            return Err(error);
        }
        let timing = output.end.and_then(|end| end.sum_received);
        timing
            .ok_or_else(|| "output of iperf3: no end.sum_received".to_owned())?
            .checked()
    }

    /// Reads the result object, the last such line, from the output of `xdfs perf --json`.
    pub(crate) fn from_perf(text: &str) -> Result<Self, String> {
        #[derive(Deserialize)]
        struct Event {
            r#type: String,
        }
        let line = text
            .lines()
            .rev()
            .find(|line| {
                serde_json::from_str::<Event>(line).is_ok_and(|event| event.r#type == "result")
            })
            .ok_or("output of xdfs perf: no result object")?;
        serde_json::from_str::<Self>(line)
            .map_err(|error| format!("result of xdfs perf: {error}"))?
            .checked()
    }

    /// Reads the line that the group `calls` is answered with, after `calls` calls.
    pub(crate) fn from_calls(text: &str, calls: u64) -> Result<Self, String> {
        #[derive(Deserialize)]
        struct Output {
            calls: u64,
            seconds: f64,
            channels: u32,
        }
        let output: Output =
            serde_json::from_str(text).map_err(|error| format!("output of the calls: {error}"))?;
        if output.calls != calls || !output.seconds.is_finite() || output.seconds <= 0.0 {
            let (calls, seconds) = (output.calls, output.seconds);
            return Err(format!("impossible result: {calls} calls in {seconds} s"));
        }
        Ok(Self {
            bytes: 0,
            seconds: output.seconds,
            channels: Some(output.channels),
        })
    }

    fn checked(self) -> Result<Self, String> {
        if self.bytes > 0 && self.seconds.is_finite() && self.seconds > 0.0 {
            Ok(self)
        } else {
            Err(format!(
                "impossible result: {} bytes in {} s",
                self.bytes, self.seconds
            ))
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn iperf3_output() {
        let text = r#"{"start": {"connected": []}, "intervals": [], "end": {
            "sum_sent": {"seconds": 0.5, "bytes": 1100, "bits_per_second": 1.0},
            "sum_received": {"start": 0, "end": 0.4, "seconds": 0.4, "bytes": 1000,
                "bits_per_second": 20000.0, "sender": false}}}"#;
        assert_eq!(
            Timing::from_iperf3(text),
            Ok(Timing {
                bytes: 1000,
                seconds: 0.4,
                channels: None
            })
        );
        let refused = r#"{"start": {}, "intervals": [], "end": {}, "error": "server is busy"}"#;
        assert_eq!(
            Timing::from_iperf3(refused),
            Err("server is busy".to_owned())
        );
        assert!(Timing::from_iperf3("{}").is_err());
        assert!(Timing::from_iperf3("iperf3: error").is_err());
        let idle = r#"{"end": {"sum_received": {"seconds": 0, "bytes": 0}}}"#;
        assert!(Timing::from_iperf3(idle).is_err());
    }

    #[test]
    fn perf_output() {
        let text = "{\"type\":\"progress\",\"bytes\":5}\n\
                    {\"type\":\"result\",\"bytes\":1000,\"seconds\":0.25,\
                    \"bytes_per_second\":4000.0,\"channels\":4}\n";
        assert_eq!(
            Timing::from_perf(text),
            Ok(Timing {
                bytes: 1000,
                seconds: 0.25,
                channels: Some(4)
            })
        );
        assert!(Timing::from_perf("{\"type\":\"progress\",\"bytes\":5,\"seconds\":1}").is_err());
        assert!(Timing::from_perf("{\"type\":\"result\",\"bytes\":5}").is_err());
        assert!(Timing::from_perf("").is_err());
    }

    #[test]
    fn output_of_calls() {
        let text = |calls: u64, seconds: f64| {
            format!(
                "{{\"type\":\"result\",\"calls\":{calls},\"seconds\":{seconds},\"channels\":1}}\n"
            )
        };
        let timing = Timing::from_calls(&text(8, 0.5), 8).unwrap();
        let run = Run::new(0, 0, Usage::default(), Some(timing)).with_items(8);
        assert!((run.items_per_second() - 16.0).abs() < 1e-9);
        assert_eq!(run.channels_open, Some(1));
        for bad in [text(7, 0.5), text(8, 0.0), String::new()] {
            assert!(Timing::from_calls(&bad, 8).is_err(), "{bad}");
        }
    }

    #[test]
    fn rates_of_a_run() {
        let usage = Usage {
            wall_s: 2.0,
            sync_s: 3.0,
            client_cpu_s: 1.0,
            server_cpu_s: 3.0,
            client_peak_kib: 500_000,
            server_peak_kib: 476_562,
            ..Usage::default()
        };
        let file = Run::new(0, 10_000_000_000, usage, None);
        assert!((file.rate() - 2.0).abs() < 1e-9, "durable");
        assert!((file.command_rate() - 5.0).abs() < 1e-9);
        assert!((file.cpu_per_gb() - 0.4).abs() < 1e-9);
        assert!((file.memory_mb() - 1000.0).abs() < 0.01);
        let own = Timing {
            bytes: 8_000_000_000,
            seconds: 1.0,
            channels: Some(4),
        };
        let memory = Run::new(0, 10_000_000_000, usage, Some(own));
        assert!((memory.rate() - 8.0).abs() < 1e-9);
        assert!((memory.command_rate() - 4.0).abs() < 1e-9);
        assert_eq!((file.channels_open, memory.channels_open), (None, Some(4)));
    }
}
