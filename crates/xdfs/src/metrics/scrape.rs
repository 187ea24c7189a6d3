//! Reads the text of metrics.

use std::collections::BTreeMap;

use xdfs_proto::{Code, Fault};

/// Samples beyond these are refused, since they are kept in memory.
const SAMPLES_MAX: usize = 100_000;

/// A sample of a metric.
#[derive(Clone, Debug, PartialEq)]
pub struct Sample {
    /// The name, with the ending `_total` of a counter.
    pub name: String,
    /// The labels.
    pub labels: BTreeMap<String, String>,
    /// The value.
    pub value: f64,
}

/// The samples of a text in the formats of OpenMetrics and Prometheus.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Scrape {
    /// In the order of the text.
    pub samples: Vec<Sample>,
}

impl Scrape {
    /// Reads a text. Comments, times and exemplars are skipped.
    ///
    /// # Errors
    /// [`Code::ProtocolViolation`]: a line is no sample.
    pub fn read(text: &str) -> Result<Self, Fault> {
        let mut samples = Vec::new();
        for (number, line) in text.lines().enumerate() {
            let line = line.trim();
            if line.is_empty() || line.starts_with('#') {
                continue;
            }
            let sample = sample(line);
            let sample = sample.filter(|_| samples.len() < SAMPLES_MAX);
            samples.push(sample.ok_or_else(|| {
                let cause = format!("line {} isn't one of metrics", number + 1);
                Fault::new(Code::ProtocolViolation, "read metrics", cause)
                    .hint("is it the address of `xdfs serve --metrics`?")
            })?);
        }
        Ok(Self { samples })
    }

    /// The sum of the samples of this name that have these labels, among others; `None` if there
    /// are none.
    #[must_use]
    pub fn sum(&self, name: &str, labels: &[(&str, &str)]) -> Option<f64> {
        let has = |sample: &&Sample| {
            let mut wanted = labels.iter();
            sample.name == name
                && wanted.all(|(name, value)| {
                    sample.labels.get(*name).map(String::as_str) == Some(*value)
                })
        };
        let found: Vec<f64> = self.samples.iter().filter(has).map(|s| s.value).collect();
        (!found.is_empty()).then(|| found.iter().sum())
    }

    /// The samples of this name.
    pub fn of(&self, name: &str) -> impl Iterator<Item = &Sample> {
        self.samples.iter().filter(move |s| s.name == name)
    }
}

fn sample(line: &str) -> Option<Sample> {
    let is_of_name = |c: char| c.is_ascii_alphanumeric() || c == '_' || c == ':';
    let end = line.find(|c| !is_of_name(c))?;
    let (name, mut rest) = line.split_at(end);
    let mut labels = BTreeMap::new();
    if let Some(inner) = rest.strip_prefix('{') {
        rest = read_labels(inner, &mut labels)?;
    }
    let value = rest.split_whitespace().next()?;
    let starts_well = !name.is_empty() && !name.starts_with(|c: char| c.is_ascii_digit());
    starts_well.then_some(Sample {
        name: name.to_owned(),
        labels,
        value: value.parse().ok()?,
    })
}

/// Reads labels up to their closing brace. Returns what follows.
fn read_labels<'a>(mut text: &'a str, labels: &mut BTreeMap<String, String>) -> Option<&'a str> {
    loop {
        text = text.trim_start_matches([',', ' ']);
        if let Some(rest) = text.strip_prefix('}') {
            return Some(rest);
        }
        let (name, rest) = text.split_once("=\"")?;
        let (mut value, mut is_escaped, mut end) = (String::new(), false, None);
        for (at, c) in rest.char_indices() {
            match (is_escaped, c) {
                (false, '"') => {
                    end = Some(at + 1);
                    break;
                }
                (false, '\\') => is_escaped = true,
                (false, c) => value.push(c),
                (true, c) => {
                    is_escaped = false;
                    value.push(if c == 'n' { '\n' } else { c });
                }
            }
        }
        labels.insert(name.trim().to_owned(), value);
        text = rest.get(end?..)?;
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::metrics::{Family, text};

    #[test]
    fn the_text_of_metrics_is_read() {
        let text = text(vec![
            Family::counter("a_bytes", "Bytes, {with} \"marks\"")
                .with(&[("way", "a\"b\\c\nd}"), ("door", "x")], 3)
                .with(&[("way", "out"), ("door", "x")], 4),
            Family::gauge("b", "Things").with(&[], 0.25),
        ]);
        let scrape = Scrape::read(&text).unwrap();
        assert_eq!(scrape.samples.len(), 3);
        assert_eq!(scrape.samples[0].labels["way"], "a\"b\\c\nd}");
        assert_eq!(scrape.sum("a_bytes_total", &[("door", "x")]), Some(7.0));
        assert_eq!(scrape.sum("a_bytes_total", &[("way", "out")]), Some(4.0));
        assert_eq!(scrape.sum("b", &[]), Some(0.25));
        assert_eq!(scrape.sum("b", &[("way", "out")]), None);
        assert_eq!(scrape.of("b").count(), 1);
        // Times and exemplars.
        let scrape = Scrape::read("a 1 123\nb_total 2 # {x=\"y\"} 1\n\n").unwrap();
        assert_eq!(scrape.sum("b_total", &[]), Some(2.0));
    }

    #[test]
    fn other_texts_are_refused() {
        for text in [
            "<html>",
            "a",
            "a{",
            "a{b=\"",
            "a{b=\"c\"",
            "a{b=\"c\"} x",
            "1a 2",
            "a{b} 1",
            "a{b=\"\\",
        ] {
            let fault = Scrape::read(text).unwrap_err();
            assert_eq!(fault.code, Code::ProtocolViolation, "{text}");
        }
    }
}
