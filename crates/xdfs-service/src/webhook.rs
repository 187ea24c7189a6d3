//! Webhooks: the end of a job is sent to a URL, signed, and again after growing pauses until it has
//! arrived.
//!
//! The headers are those of Standard Webhooks: `webhook-id`, `webhook-timestamp` and
//! `webhook-signature`, which is `v1,` and the HMAC-SHA256 of id, timestamp and body, joined by
//! dots, in base64. Receivers are strangers: they are connected to at public addresses only, have a
//! bounded time, and none of their answer is kept.

use std::fs::{self, OpenOptions};
use std::io::Write as _;
use std::net::IpAddr;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use aws_lc_rs::hmac::{self, HMAC_SHA256, Key};
use base64ct::{Base64, Encoding as _};
use serde::Serialize;
use ureq::Agent;
use ureq::config::Config;
use ureq::http::{StatusCode, Uri};
use ureq::unversioned::resolver::{DefaultResolver, ResolvedSocketAddrs, Resolver};
use ureq::unversioned::transport::{DefaultConnector, NextTimeout};
use xdfs::security::trusted::{self, Secrecy};
use xdfs::security::{Network, is_public};
use xdfs::{Code, Fault};

use crate::model::JobSummary;
use crate::spec::{check_url, invalid};
use crate::time::Time;
use crate::tls::tls;

pub(crate) const OPERATION: &str = "send the webhook";
/// Time for an attempt, from the look-up of the name to the head of the answer.
const TIMEOUT: Duration = Duration::from_secs(10);
/// The file of the secret, in the folder of the service.
const SECRET_FILE: &str = "webhook-secret";
const SECRET_BYTES: usize = 32;
const SECRET_BYTES_MIN: usize = 16;
const SECRET_FILE_MAX: u64 = 4096;
/// What the text of a secret in base64 begins with.
const SECRET_PREFIX: &str = "whsec_";

/// The settings of webhooks.
#[derive(Debug, Default)]
pub struct WebhookOptions {
    /// Networks whose addresses may be connected to, though they aren't public.
    pub allow: Vec<Network>,
    /// The secret by which they are signed; without one, that in the folder of the service, which
    /// is made once.
    pub secret: Option<WebhookSecret>,
}

/// The secret that a service shares with the receivers of its webhooks.
pub struct WebhookSecret(Vec<u8>);

impl std::fmt::Debug for WebhookSecret {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("WebhookSecret")
    }
}

impl WebhookSecret {
    /// Reads a secret: `whsec_` and base64, or any other text of 16 bytes or more, which is the
    /// secret itself.
    ///
    /// # Errors
    /// It is too short, or no base64.
    pub fn parse(text: &str) -> Result<Self, Fault> {
        let text = text.trim();
        let bytes = match text.strip_prefix(SECRET_PREFIX) {
            Some(text) => Base64::decode_vec(text).unwrap_or_default(),
            None => text.as_bytes().to_vec(),
        };
        if bytes.len() < SECRET_BYTES_MIN {
            let cause = format!("it has fewer than {SECRET_BYTES_MIN} bytes, or is no base64");
            let operation = "read the secret of webhooks";
            return Err(Fault::new(Code::InvalidArgument, operation, cause));
        }
        Ok(Self(bytes))
    }

    /// Reads a secret from a file.
    ///
    /// # Errors
    /// It can't be read, others can read it too, or it is none.
    pub fn read(path: &Path) -> Result<Self, Fault> {
        let operation = "read the secret of webhooks";
        let bytes = trusted::read(operation, path, SECRET_FILE_MAX, Secrecy::Secret)?;
        let named = |fault: Fault| fault.path(path.as_os_str().as_encoded_bytes());
        Self::parse(&String::from_utf8_lossy(&bytes)).map_err(named)
    }

    /// The secret in the folder of a service, which is made if there is none.
    fn of_folder(folder: &Path) -> Result<Self, Fault> {
        let path = folder.join(SECRET_FILE);
        match Self::read(&path) {
            Err(fault) if fault.code == Code::NotFound => make_secret(&path)?,
            secret => return secret,
        }
        Self::read(&path)
    }
}

fn make_secret(path: &Path) -> Result<(), Fault> {
    let operation = "make the secret of webhooks";
    let mut bytes = [0; SECRET_BYTES];
    getrandom::fill(&mut bytes)
        .map_err(|error| Fault::new(Code::Internal, operation, error.to_string()))?;
    let text = format!("{SECRET_PREFIX}{}\n", Base64::encode_string(&bytes));
    let unfinished = path.with_extension("new");
    let write = || {
        let mut options = OpenOptions::new();
        options.write(true).create(true).truncate(true);
        #[cfg(unix)]
        std::os::unix::fs::OpenOptionsExt::mode(&mut options, 0o600);
        let mut file = options.open(&unfinished)?;
        file.write_all(text.as_bytes())?;
        file.sync_all()?;
        fs::rename(&unfinished, path)
    };
    write().map_err(|error| Fault::from_io(operation, path.as_os_str().as_encoded_bytes(), &error))
}

/// Sends the webhooks of a service.
#[derive(Debug)]
pub(crate) struct Webhooks {
    allow: Arc<[Network]>,
    key: Key,
    agent: Agent,
}

/// The addresses of names, without those that a webhook may not reach. No other address is
/// connected to.
#[derive(Debug)]
struct Allowed {
    allow: Arc<[Network]>,
    all: DefaultResolver,
}

fn is_allowed(allow: &[Network], address: IpAddr) -> bool {
    let address = address.to_canonical();
    is_public(address) || allow.iter().any(|network| network.contains(address))
}

/// The refusal of an address.
#[derive(Debug)]
struct NotPublic(IpAddr);

impl std::fmt::Display for NotPublic {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{} is no public address", self.0)
    }
}

impl std::error::Error for NotPublic {}

impl Resolver for Allowed {
    fn resolve(
        &self,
        uri: &Uri,
        config: &Config,
        timeout: NextTimeout,
    ) -> Result<ResolvedSocketAddrs, ureq::Error> {
        let all = self.all.resolve(uri, config, timeout)?;
        let mut allowed = self.empty();
        for address in all.iter().filter(|one| is_allowed(&self.allow, one.ip())) {
            allowed.push(*address);
        }
        match (allowed.is_empty(), all.first()) {
            (true, Some(refused)) => Err(ureq::Error::Other(Box::new(NotPublic(refused.ip())))),
            (true, None) => Err(ureq::Error::HostNotFound),
            (false, _) => Ok(allowed),
        }
    }
}

/// The body of a webhook.
#[derive(Serialize)]
struct Event<'a> {
    #[serde(rename = "type")]
    kind: String,
    timestamp: Option<Time>,
    data: &'a JobSummary,
}

impl Webhooks {
    /// # Errors
    /// The secret can't be read or made.
    pub(crate) fn new(options: WebhookOptions, folder: &Path) -> Result<Self, Fault> {
        let secret = match options.secret {
            Some(secret) => secret,
            None => WebhookSecret::of_folder(folder)?,
        };
        let allow: Arc<[Network]> = options.allow.into();
        let config = Agent::config_builder()
            .tls_config(tls(None))
            .http_status_as_error(false)
            .max_redirects(0)
            .max_redirects_will_error(false)
            .max_idle_connections(0)
            .timeout_global(Some(TIMEOUT))
            // It would connect to any address.
            .proxy(None)
            .user_agent(concat!("xdfs/", env!("CARGO_PKG_VERSION")))
            .build();
        let resolver = Allowed {
            allow: Arc::clone(&allow),
            all: DefaultResolver::default(),
        };
        Ok(Self {
            allow,
            key: Key::new(HMAC_SHA256, &secret.0),
            agent: Agent::with_parts(config, DefaultConnector::default(), resolver),
        })
    }

    /// Refuses a URL whose host is an address that would be refused.
    ///
    /// # Errors
    /// [`Code::InvalidArgument`] with the field.
    pub(crate) fn check(&self, url: Option<&str>) -> Result<(), Fault> {
        let Some(url) = url else { return Ok(()) };
        let uri = check_url(url)?;
        let host = uri.host().unwrap_or_default();
        let address = host.trim_start_matches('[').trim_end_matches(']').parse();
        match address {
            Ok(address) if !is_allowed(&self.allow, address) => {
                Err(invalid("webhook", &NotPublic(address).to_string()).hint(ALLOW))
            }
            _ => Ok(()),
        }
    }

    fn signature(&self, id: &str, timestamp: i64, body: &str) -> String {
        let signed = format!("{id}.{timestamp}.{body}");
        let tag = hmac::sign(&self.key, signed.as_bytes());
        format!("v1,{}", Base64::encode_string(tag.as_ref()))
    }

    /// Sends a webhook once. Blocks for at most [`TIMEOUT`].
    ///
    /// # Errors
    /// The receiver can't be reached, or doesn't accept it.
    pub(crate) fn send(&self, url: &str, job: &JobSummary) -> Result<(), Fault> {
        let event = Event {
            kind: format!("job.{}", job.state),
            timestamp: job.ended_at,
            data: job,
        };
        let body = serde_json::to_string(&event)
            .map_err(|error| Fault::new(Code::Internal, OPERATION, error.to_string()))?;
        // The same for each attempt, and another one when a job that was retried ends again.
        let ended_at = job.ended_at.map_or(0, Time::microseconds);
        let id = format!("{}-{ended_at}", job.id);
        let timestamp = Time::now().microseconds() / 1_000_000;
        let request = self.agent.post(url);
        let answer = request
            .header("Content-Type", "application/json")
            .header("webhook-signature", self.signature(&id, timestamp, &body))
            .header("webhook-id", id)
            .header("webhook-timestamp", timestamp.to_string())
            .send(body);
        let status = answer.map_err(|error| unsent(url, &error))?.status();
        if status.is_success() {
            return Ok(());
        }
        let (code, words) = match status {
            StatusCode::GONE => (Code::NotFound, ""),
            status if status.is_redirection() => (Code::NotFound, ": a redirect isn't followed"),
            _ => (Code::Busy, ""),
        };
        let cause = format!("the answer is {}{words}", status.as_u16());
        Err(Fault::new(code, OPERATION, cause).path(url))
    }
}

const ALLOW: &str = "the operator of the service can allow it: xdfs service --webhook-allow";

fn unsent(url: &str, error: &ureq::Error) -> Fault {
    let refused = match error {
        ureq::Error::Other(other) => other.downcast_ref::<NotPublic>(),
        _ => None,
    };
    let fault = match (refused, error) {
        (Some(refused), _) => {
            Fault::new(Code::PermissionDenied, OPERATION, refused.to_string()).hint(ALLOW)
        }
        (None, ureq::Error::Timeout(_)) => {
            let cause = format!("there was no answer within {} seconds", TIMEOUT.as_secs());
            Fault::new(Code::DeadlineExceeded, OPERATION, cause)
        }
        (None, error) => {
            let text: String = error.to_string().chars().take(200).collect();
            Fault::new(Code::ConnectionRefused, OPERATION, text)
        }
    };
    fault.path(url)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_signature_is_that_of_standard_webhooks() {
        // The example of its specification.
        let secret = WebhookSecret::parse("whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw");
        let options = WebhookOptions {
            allow: Vec::new(),
            secret: secret.ok(),
        };
        let webhooks = Webhooks::new(options, Path::new("/nowhere"));
        let webhooks = webhooks.unwrap_or_else(|fault| panic!("{fault}"));
        let body = r#"{"test": 2432232314}"#;
        let signature = webhooks.signature("msg_p5jXN8AQM9LWM0D4loKWxJek", 1_614_265_330, body);
        assert_eq!(signature, "v1,g0hM9SsE+OTPJTGt/tmIKtSyZlE3uFJELVlNIOLJ1OE=");
        for short in ["", "short", "whsec_", "whsec_!", "whsec_c2hvcnQ="] {
            assert!(WebhookSecret::parse(short).is_err(), "{short}");
        }
    }

    #[test]
    fn a_secret_is_made_once_and_for_its_owner_only() {
        let folder = tempfile::tempdir().unwrap_or_else(|error| panic!("{error}"));
        let first = WebhookSecret::of_folder(folder.path()).map(|secret| secret.0);
        let again = WebhookSecret::of_folder(folder.path()).map(|secret| secret.0);
        assert_eq!(first, again);
        assert_eq!(first.map(|secret| secret.len()), Ok(SECRET_BYTES));
        #[cfg(unix)]
        {
            use std::os::unix::fs::PermissionsExt as _;
            let path = folder.path().join(SECRET_FILE);
            let mode = fs::metadata(&path).map(|found| found.permissions().mode() & 0o777);
            assert_eq!(mode.ok(), Some(0o600));
            assert!(fs::set_permissions(&path, fs::Permissions::from_mode(0o604)).is_ok());
            assert!(WebhookSecret::of_folder(folder.path()).is_err());
        }
    }
}
