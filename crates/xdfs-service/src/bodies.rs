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
