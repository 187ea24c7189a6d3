//! Entity tags (RFC 9110, 8.8.3): an answer that a client has isn't sent again, and a change is
//! made only of the job that the client has seen.
//!
//! The tag of a job has two parts, `"REVISION.DIGEST"`. The revision stays while only the counts
//! grow, so that a condition on a change of a running job can be met.

use std::fmt::Write as _;

use axum::body::{Body, to_bytes};
use axum::extract::Request;
use axum::http::header::{
    CACHE_CONTROL, CONTENT_LENGTH, CONTENT_TYPE, ETAG, IF_MATCH, IF_NONE_MATCH,
};
use axum::http::{HeaderMap, HeaderName, HeaderValue, Method, StatusCode};
use axum::middleware::Next;
use axum::response::{IntoResponse as _, Response};
use sha2::{Digest as _, Sha256};
use xdfs::{Code, Fault};

use crate::model::{Counts, JobSummary};
use crate::problem::Problem;

/// Most bytes of an answer: all are written to memory anyway.
const BODY_BYTES_MAX: usize = 256 << 20;
/// Bytes of a digest in a tag.
const TAG_BYTES: usize = 12;

fn short_digest(bytes: &[u8]) -> String {
    let digest = Sha256::digest(bytes);
    digest[..TAG_BYTES]
        .iter()
        .fold(String::new(), |mut text, byte| {
            // Text in memory takes everything.
            let _ = write!(text, "{byte:02x}");
            text
        })
}

/// The part of a job's tag that stays while only its counts grow.
pub(crate) fn revision(job: &JobSummary) -> String {
    let job = JobSummary {
        counts: Counts::default(),
        ..job.clone()
    };
    // It has no map with keys that aren't text.
    let text = serde_json::to_vec(&job).unwrap_or_default();
    short_digest(&text)
}

/// The revision for the tag of an answer, until the answer has one.
#[derive(Clone, Debug)]
pub(crate) struct Revision(pub(crate) String);

/// The condition of a change.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Condition {
    /// None, or that the job exists.
    None,
    /// The job has one of these revisions.
    Revisions(Vec<String>),
}

impl Condition {
    /// The condition of a request.
    ///
    /// # Errors
    /// Its header isn't one.
    pub(crate) fn read(headers: &HeaderMap) -> Result<Self, Problem> {
        let Some(tags) = tags(headers, &IF_MATCH)? else {
            return Ok(Self::None);
        };
        if tags.iter().any(|tag| tag == "*") {
            return Ok(Self::None);
        }
        // Weak ones never match.
        let strong = tags.iter().filter(|tag| !tag.starts_with("W/"));
        let revisions = strong.map(|tag| tag.trim_matches('"').split('.').next());
        Ok(Self::Revisions(
            revisions.flatten().map(str::to_owned).collect(),
        ))
    }

    /// Whether a job is as the client has seen it.
    pub(crate) fn is_met(&self, job: &JobSummary) -> bool {
        match self {
            Self::None => true,
            Self::Revisions(revisions) => revisions.contains(&revision(job)),
        }
    }
}

/// The tags of a header; `None` without it.
fn tags(headers: &HeaderMap, name: &HeaderName) -> Result<Option<Vec<String>>, Problem> {
    let mut values = headers.get_all(name).iter().peekable();
    if values.peek().is_none() {
        return Ok(None);
    }
    let mut tags = Vec::new();
    for value in values {
        let text = value.to_str().unwrap_or("\u{fffd}");
        for tag in text.split(',').map(str::trim).filter(|tag| !tag.is_empty()) {
            let opaque = tag.strip_prefix("W/").unwrap_or(tag);
            let is_tag =
                tag == "*" || opaque.len() >= 2 && opaque.starts_with('"') && opaque.ends_with('"');
            if !is_tag {
                return Err(no_tags(name));
            }
            tags.push(tag.to_owned());
        }
    }
    match tags.is_empty() {
        true => Err(no_tags(name)),
        false => Ok(Some(tags)),
    }
}

fn no_tags(name: &HeaderName) -> Problem {
    let cause = "it is no list of entity tags in quotes";
    let fault = Fault::new(Code::InvalidArgument, "read the header", cause);
    Problem::with_status(StatusCode::BAD_REQUEST, fault.path(name.as_str()))
}

/// Gives answers in JSON their tags, and sends none that the client has.
pub(crate) async fn conditional(request: Request, next: Next) -> Response {
    let is_read = matches!(*request.method(), Method::GET | Method::HEAD);
    let known = match tags(request.headers(), &IF_NONE_MATCH) {
        Ok(known) => known.unwrap_or_default(),
        Err(problem) if is_read => return problem.into_response(),
        Err(_) => Vec::new(),
    };
    let response = next.run(request).await;
    let kind = response.headers().get(CONTENT_TYPE);
    let is_json = kind.is_some_and(|kind| kind == "application/json");
    if !response.status().is_success() || !is_json {
        return response;
    }
    let (mut head, body) = response.into_parts();
    let body = match to_bytes(body, BODY_BYTES_MAX).await {
        Ok(body) => body,
        Err(error) => {
            let fault = Fault::new(Code::Internal, "write the answer", error.to_string());
            return Problem::from(fault).into_response();
        }
    };
    let digest = short_digest(&body);
    let tag = match head.extensions.remove::<Revision>() {
        Some(Revision(revision)) => format!("\"{revision}.{digest}\""),
        None => format!("\"{digest}\""),
    };
    let is_known = |one: &String| one == "*" || one.trim_start_matches("W/") == tag;
    let is_known = is_read && known.iter().any(is_known);
    // Hexadecimal digits.
    if let Ok(tag) = HeaderValue::from_str(&tag) {
        head.headers.insert(ETAG, tag);
    }
    let private = HeaderValue::from_static("private, no-cache");
    head.headers.insert(CACHE_CONTROL, private);
    if is_known {
        head.status = StatusCode::NOT_MODIFIED;
        head.headers.remove(CONTENT_TYPE);
        head.headers.remove(CONTENT_LENGTH);
        return Response::from_parts(head, Body::empty());
    }
    Response::from_parts(head, Body::from(body))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn condition(text: &str) -> Option<Condition> {
        let mut headers = HeaderMap::new();
        let value = HeaderValue::from_str(text).ok()?;
        headers.insert(IF_MATCH, value);
        Condition::read(&headers).ok()
    }

    #[test]
    fn a_condition_has_the_revisions_of_strong_tags() {
        let revisions = |all: &[&str]| {
            let all = all.iter().map(|one| (*one).to_owned());
            Some(Condition::Revisions(all.collect()))
        };
        assert_eq!(condition("\"a.b\""), revisions(&["a"]));
        assert_eq!(
            condition("\"a.b\", W/\"c.d\" ,\"e\""),
            revisions(&["a", "e"])
        );
        assert_eq!(condition("*"), Some(Condition::None));
        for bad in ["a.b", "\"", "W/a", "\"a\" \"b"] {
            assert_eq!(condition(bad), None, "{bad}");
        }
        assert_eq!(
            Condition::read(&HeaderMap::new()).ok(),
            Some(Condition::None)
        );
    }
}
