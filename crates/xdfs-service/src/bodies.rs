//! The bodies of requests, of bounded size, from clients that may be slow.

use std::time::Duration;

use axum::body::{Body, BodyDataStream, Bytes};
use axum::http::StatusCode;
use futures_util::StreamExt as _;
use tokio::time::timeout;
use xdfs::{Code, Fault};

use crate::problem::Problem;

/// Most bytes of a body that is kept in memory.
pub(crate) const BODY_BYTES_MAX: usize = 2 << 20;
/// Longest pause within a body.
const PATIENCE: Duration = Duration::from_secs(30);

/// The largest number up to which a float is one whole number.
const WHOLE_MAX: f64 = 9_007_199_254_740_992.0;

/// A body, part by part.
#[derive(Debug)]
pub(crate) struct Parts(BodyDataStream);

impl Parts {
    pub(crate) fn new(body: Body) -> Self {
        Self(body.into_data_stream())
    }

    /// The next part; `None` after the last one.
    ///
    /// # Errors
    /// It doesn't come in time, or the connection has ended before the body has.
    pub(crate) async fn next(&mut self) -> Result<Option<Bytes>, Problem> {
        match timeout(PATIENCE, self.0.next()).await {
            Ok(Some(Ok(part))) => Ok(Some(part)),
            Ok(None) => Ok(None),
            Ok(Some(Err(error))) => {
                let cause = format!("it ends too early: {error}");
                let fault = Fault::new(Code::InvalidArgument, "read the job", cause);
                Err(Problem::with_status(StatusCode::BAD_REQUEST, fault))
            }
            Err(_) => {
                let cause = format!("nothing came for {} seconds", PATIENCE.as_secs());
                let fault = Fault::new(Code::DeadlineExceeded, "read the job", cause);
                Err(Problem::with_status(StatusCode::REQUEST_TIMEOUT, fault))
            }
        }
    }
}

/// JSON with whole numbers as such, where they are written with a fraction or an exponent: to JSON
/// `3.0` and `3` are the same.
pub(crate) fn with_whole_numbers(text: &[u8]) -> Vec<u8> {
    let mut whole = Vec::with_capacity(text.len());
    let (mut rest, mut is_text) = (text, false);
    while let Some((&byte, after)) = rest.split_first() {
        let is_number = !is_text && (byte == b'-' || byte.is_ascii_digit());
        let length = match (is_text, byte) {
            (true, b'\\') => after.len().min(1) + 1,
            _ if is_number => rest
                .iter()
                .take_while(|byte| byte.is_ascii_digit() || b"+-.eE".contains(byte))
                .count(),
            _ => 1,
        };
        is_text ^= byte == b'"';
        let (part, after) = rest.split_at(length);
        match is_number.then(|| whole_number(part)).flatten() {
            Some(number) => whole.extend_from_slice(number.as_bytes()),
            None => whole.extend_from_slice(part),
        }
        rest = after;
    }
    whole
}

/// A number that isn't written as a whole one, and is one.
fn whole_number(text: &[u8]) -> Option<String> {
    let text = str::from_utf8(text).ok()?;
    // One that the grammar of JSON doesn't know is refused later, with its place.
    let number: serde_json::Number = serde_json::from_str(text).ok()?;
    let float = number.as_f64().filter(|_| number.is_f64())?;
    // Beyond, a float is several whole numbers.
    (float.fract() == 0.0 && float.abs() <= WHOLE_MAX).then(|| format!("{float:.0}"))
}

/// A body that is too large.
pub(crate) fn too_large(cause: &str) -> Problem {
    let fault = Fault::new(Code::LimitExceeded, "read the job", cause);
    Problem::with_status(StatusCode::PAYLOAD_TOO_LARGE, fault)
}

/// A whole body.
///
/// # Errors
/// As [`Parts::next`]; or it is too large.
pub(crate) async fn read(body: Body) -> Result<Vec<u8>, Problem> {
    let mut parts = Parts::new(body);
    let mut whole = Vec::new();
    while let Some(part) = parts.next().await? {
        if whole.len() + part.len() > BODY_BYTES_MAX {
            return Err(too_large("a job in one piece has at most 2 MiB")
                .hint("submit it as lines (application/x-ndjson)"));
        }
        whole.extend_from_slice(&part);
    }
    Ok(whole)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn whole_numbers_are_written_as_such() {
        for (text, whole) in [
            (r#"{"a":3.0,"b":[-1.50e1, 7]}"#, r#"{"a":3,"b":[-15, 7]}"#),
            (
                r#"{"3.0":"4.0 \"5.0","c":6.0}"#,
                r#"{"3.0":"4.0 \"5.0","c":6}"#,
            ),
            ("1e3", "1000"),
            ("1.5", "1.5"),
            ("1e300", "1e300"),
            ("18446744073709551615", "18446744073709551615"),
            // What is wrong stays wrong.
            ("03.0", "03.0"),
            ("[1.]", "[1.]"),
            ("\"\\", "\"\\"),
            ("-", "-"),
            ("", ""),
        ] {
            let read = with_whole_numbers(text.as_bytes());
            assert_eq!(String::from_utf8_lossy(&read), whole);
        }
    }
}
