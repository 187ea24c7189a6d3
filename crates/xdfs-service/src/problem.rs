//! Faults as answers: `application/problem+json` (RFC 9457), with the fields of the record `error`.

use axum::http::StatusCode;
use axum::http::header::{CONTENT_TYPE, RETRY_AFTER, WWW_AUTHENTICATE};
use axum::response::{IntoResponse, Response};
use serde::Serialize;
use xdfs::{Code, Fault, Retry};

use crate::failure::Failure;

/// A fault as an answer.
#[derive(Debug)]
pub(crate) struct Problem {
    pub(crate) status: StatusCode,
    fault: Box<Fault>,
}

/// The body of a problem.
#[derive(Serialize, utoipa::ToSchema)]
pub(crate) struct ProblemBody {
    /// `about:blank`: the title is that of the status.
    #[serde(rename = "type")]
    kind: &'static str,
    /// The meaning of the status.
    title: String,
    /// The status.
    status: u16,
    /// The fault as a sentence.
    detail: String,
    #[serde(flatten)]
    failure: Failure,
}

impl Problem {
    /// The refusal of a request without credentials.
    pub(crate) fn unauthorized(has_users: bool) -> Self {
        let (cause, hint) = match has_users {
            true => (
                "the request has neither a valid token nor the right password",
                "send 'Authorization: Bearer TOKEN', or name and password as 'Basic'",
            ),
            false => (
                "the request has no valid token",
                "send the token in the service's folder as 'Authorization: Bearer TOKEN'",
            ),
        };
        let fault = Fault::new(Code::AuthenticationFailed, "use the service", cause);
        Self::with_status(StatusCode::UNAUTHORIZED, fault.hint(hint))
    }

    /// A fault with the status of HTTP that another part has chosen.
    pub(crate) fn with_status(status: StatusCode, fault: Fault) -> Self {
        Self {
            status,
            fault: Box::new(fault),
        }
    }

    /// Seconds until the request may be answered.
    pub(crate) fn retry_after(&self) -> Option<u32> {
        match self.fault.retry {
            Retry::AfterMs(pause) => Some(pause.div_ceil(1000)),
            _ => None,
        }
    }

    /// Sets the hint of the fault.
    pub(crate) fn hint(mut self, hint: &str) -> Self {
        *self.fault = self.fault.clone().hint(hint);
        self
    }

    pub(crate) fn fault(&self) -> &Fault {
        &self.fault
    }
}

impl From<Fault> for Problem {
    fn from(fault: Fault) -> Self {
        let status = match fault.code {
            Code::InvalidArgument | Code::Unsupported => StatusCode::UNPROCESSABLE_ENTITY,
            Code::NotFound => StatusCode::NOT_FOUND,
            Code::AlreadyExists | Code::Stale => StatusCode::CONFLICT,
            Code::AuthenticationFailed => StatusCode::UNAUTHORIZED,
            Code::PermissionDenied => StatusCode::FORBIDDEN,
            Code::LimitExceeded if matches!(fault.retry, Retry::AfterMs(_)) => {
                StatusCode::TOO_MANY_REQUESTS
            }
            Code::LimitExceeded => StatusCode::UNPROCESSABLE_ENTITY,
            Code::Busy | Code::ShuttingDown => StatusCode::SERVICE_UNAVAILABLE,
            // The database is away.
            _ if fault.retry != Retry::Never => StatusCode::SERVICE_UNAVAILABLE,
            _ => StatusCode::INTERNAL_SERVER_ERROR,
        };
        Self::with_status(status, fault)
    }
}

impl IntoResponse for Problem {
    fn into_response(self) -> Response {
        if self.status.is_server_error() {
            tracing::error!(fault = %self.fault, "a request failed");
        }
        let body = ProblemBody {
            kind: "about:blank",
            title: self
                .status
                .canonical_reason()
                .unwrap_or("failure")
                .to_owned(),
            status: self.status.as_u16(),
            detail: self.fault.to_string(),
            failure: (&*self.fault).into(),
        };
        let text = serde_json::to_string(&body).unwrap_or_default();
        let mut response = (self.status, text).into_response();
        let headers = response.headers_mut();
        let json = axum::http::HeaderValue::from_static("application/problem+json");
        headers.insert(CONTENT_TYPE, json);
        if let Some(seconds) = self.retry_after() {
            headers.insert(RETRY_AFTER, seconds.into());
        }
        if self.status == StatusCode::UNAUTHORIZED {
            let bearer = axum::http::HeaderValue::from_static("Bearer");
            headers.insert(WWW_AUTHENTICATE, bearer);
        }
        response
    }
}
