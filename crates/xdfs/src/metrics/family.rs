//! A metric with its samples, and the text of several.

use std::fmt;

use prometheus_client::collector::Collector;
use prometheus_client::encoding::text::encode;
use prometheus_client::encoding::{DescriptorEncoder, EncodeMetric as _, MetricEncoder};
use prometheus_client::metrics::MetricType;
use prometheus_client::metrics::counter::ConstCounter;
use prometheus_client::metrics::gauge::ConstGauge;
use prometheus_client::registry::{Registry, Unit};

/// The type of the text of metrics, for answers of HTTP.
pub const CONTENT_TYPE: &str = "application/openmetrics-text; version=1.0.0; charset=utf-8";

/// The value of a sample.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Value {
    /// A number of things.
    Whole(u64),
    /// Any other figure, such as seconds.
    Real(f64),
}

impl From<u64> for Value {
    fn from(number: u64) -> Self {
        Self::Whole(number)
    }
}

impl From<f64> for Value {
    fn from(number: f64) -> Self {
        Self::Real(number)
    }
}

/// What a value means over time.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Kind {
    Counter,
    Gauge,
}

type Labels = Vec<(&'static str, String)>;

/// A metric with its samples.
#[derive(Clone, Debug)]
pub struct Family {
    name: &'static str,
    help: &'static str,
    kind: Kind,
    samples: Vec<(Labels, Value)>,
}

impl Family {
    /// A count that only grows while the process runs. Its samples have the ending `_total`. The
    /// unit, if it has one, ends the name: `_bytes`, `_seconds`. `help` is a sentence without its
    /// full stop.
    #[must_use]
    pub fn counter(name: &'static str, help: &'static str) -> Self {
        Self::new(name, help, Kind::Counter)
    }

    /// A figure that goes up and down; see [`Self::counter`] for its name.
    #[must_use]
    pub fn gauge(name: &'static str, help: &'static str) -> Self {
        Self::new(name, help, Kind::Gauge)
    }

    fn new(name: &'static str, help: &'static str, kind: Kind) -> Self {
        Self {
            name,
            help,
            kind,
            samples: Vec::new(),
        }
    }

    /// With one more sample, which has these labels; a family without labels has one sample. Their
    /// values have to be of a fixed set: never what a user has chosen.
    #[must_use]
    pub fn with(mut self, labels: &[(&'static str, &str)], value: impl Into<Value>) -> Self {
        let labels = labels.iter();
        let labels = labels.map(|(name, value)| (*name, (*value).to_owned()));
        self.samples.push((labels.collect(), value.into()));
        self
    }

    /// The unit at the end of the name, and the name without it.
    fn unit(&self) -> (Option<Unit>, &'static str) {
        for (ending, unit) in [("_bytes", Unit::Bytes), ("_seconds", Unit::Seconds)] {
            if let Some(name) = self.name.strip_suffix(ending) {
                return (Some(unit), name);
            }
        }
        (None, self.name)
    }

    fn encode(&self, encoder: &mut DescriptorEncoder<'_>) -> fmt::Result {
        let kind = match self.kind {
            Kind::Counter => MetricType::Counter,
            Kind::Gauge => MetricType::Gauge,
        };
        let (unit, name) = self.unit();
        let mut metric = encoder.encode_descriptor(name, self.help, unit.as_ref(), kind)?;
        match self.samples.as_slice() {
            [(labels, value)] if labels.is_empty() => self.sample(*value, metric),
            samples => samples.iter().try_for_each(|(labels, value)| {
                self.sample(*value, metric.encode_family(&labels.as_slice())?)
            }),
        }
    }

    fn sample(&self, value: Value, encoder: MetricEncoder<'_>) -> fmt::Result {
        match (self.kind, value) {
            (Kind::Counter, Value::Whole(value)) => ConstCounter::new(value).encode(encoder),
            (Kind::Counter, Value::Real(value)) => ConstCounter::new(value).encode(encoder),
            (Kind::Gauge, Value::Whole(value)) => {
                let value = i64::try_from(value).unwrap_or(i64::MAX);
                ConstGauge::new(value).encode(encoder)
            }
            (Kind::Gauge, Value::Real(value)) => ConstGauge::new(value).encode(encoder),
        }
    }
}

#[derive(Debug)]
struct Families(Vec<Family>);

impl Collector for Families {
    fn encode(&self, mut encoder: DescriptorEncoder<'_>) -> fmt::Result {
        let mut families = self.0.iter();
        families.try_for_each(|family| family.encode(&mut encoder))
    }
}

/// The text of several metrics.
#[must_use]
pub fn text(families: Vec<Family>) -> String {
    let mut registry = Registry::default();
    registry.register_collector(Box::new(Families(families)));
    let mut text = String::new();
    // A string takes everything.
    let _ = encode(&mut text, &registry);
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_text_is_that_of_openmetrics() {
        let text = text(vec![
            Family::counter("a_bytes", "Bytes")
                .with(&[("way", "in"), ("door", "x\"\n")], 3)
                .with(&[("way", "out")], u64::MAX),
            Family::gauge("b", "Things").with(&[], 7),
            Family::gauge("c_seconds", "Time").with(&[], 0.5),
            Family::counter("none", "Nothing"),
        ]);
        let expected = "# HELP a_bytes Bytes\n# TYPE a_bytes counter\n# UNIT a_bytes bytes\n\
                        a_bytes_total{way=\"in\",door=\"x\\\"\\n\"} 3\n\
                        a_bytes_total{way=\"out\"} 18446744073709551615\n\
                        # HELP b Things\n# TYPE b gauge\nb 7\n\
                        # HELP c_seconds Time\n# TYPE c_seconds gauge\n# UNIT c_seconds seconds\n\
                        c_seconds 0.5\n\
                        # HELP none Nothing\n# TYPE none counter\n# EOF\n";
        assert_eq!(text, expected);
    }
}
