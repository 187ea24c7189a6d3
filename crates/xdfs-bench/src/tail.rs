//! How long the last tenth of a file took, from what `xdfs cp --json` says.
//!
//! A transfer whose last blocks hang on one slow channel is done late although its rate was good.
//! Progress comes twice a second (docs/json.md); between two objects bytes count as evenly spread.
//! Called by `session`.

use serde::Deserialize;

/// The part of the bytes after which the tail begins.
const BEFORE: f64 = 0.9;

/// The objects that matter, of one file.
#[derive(Clone, Copy, Debug, Deserialize)]
struct Event {
    bytes: u64,
    seconds: f64,
}

/// The time from nine tenths of the bytes to the end as a part of the whole, from 0 to 1.
///
/// # Errors
/// The output names no file that was copied; one line for the report.
pub(crate) fn share(text: &str) -> Result<f64, String> {
    #[derive(Deserialize)]
    struct Kind {
        r#type: String,
    }
    let (mut events, mut whole) = (vec![(0.0, 0.0)], None);
    for line in text.lines() {
        let failed = |error| format!("output of xdfs cp: {error}");
        let kind: Kind = serde_json::from_str(line).map_err(failed)?;
        if kind.r#type == "progress" || kind.r#type == "file" {
            let Event { bytes, seconds } = serde_json::from_str(line).map_err(failed)?;
            events.push((seconds, bytes as f64));
            if kind.r#type == "file" {
                whole = Some((seconds, bytes as f64));
            }
        }
    }
    let (seconds, bytes) = whole.ok_or("output of xdfs cp: no file object")?;
    let aim = bytes * BEFORE;
    let begins = events.windows(2).find_map(|pair| {
        let [(from, had), (to, has)] = [pair[0], pair[1]];
        (has >= aim).then(|| from + (to - from) * (aim - had) / (has - had).max(1.0))
    });
    match begins {
        Some(begins) if seconds > 0.0 => Ok((seconds - begins) / seconds),
        _ => Err(format!("impossible result: {bytes} bytes in {seconds} s")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn output(events: &[(&str, u64, f64)]) -> String {
        let line = |(kind, bytes, seconds): &(&str, u64, f64)| {
            format!("{{\"type\":\"{kind}\",\"bytes\":{bytes},\"seconds\":{seconds}}}\n")
        };
        events.iter().map(line).collect()
    }

    #[test]
    fn between_two_objects_bytes_are_spread_evenly() {
        let text = output(&[
            ("progress", 0, 0.5),
            ("progress", 800, 4.0),
            ("progress", 1000, 5.0),
            ("file", 1000, 6.0),
            ("result", 1000, 6.0),
        ]);
        assert!((share(&text).unwrap() - 1.5 / 6.0).abs() < 1e-9);
    }

    #[test]
    fn without_progress_the_tail_is_a_tenth() {
        assert!((share(&output(&[("file", 1000, 3.0)])).unwrap() - 0.1).abs() < 1e-9);
    }

    #[test]
    fn no_file_no_tail() {
        for text in [
            output(&[("progress", 900, 1.0), ("error", 0, 1.0)]),
            output(&[("file", 1000, 0.0)]),
            "copied\n".to_owned(),
            String::new(),
        ] {
            assert!(share(&text).is_err(), "{text}");
        }
    }
}
