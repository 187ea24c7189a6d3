//! Fetches the keys of token issuers, with a thread per issuer whose keys come from the web.
//!
//! Authentication never waits for these threads, and a slow issuer delays no other. Each fetch has
//! a deadline, redirects aren't followed, and the connection is encrypted or stays on this machine
//! ([`KeyUrl`]).

use std::path::Path;
use std::sync::Arc;
use std::thread;
use std::time::Duration;

use ureq::Agent;
use ureq::http::header::CACHE_CONTROL;
use ureq::http::{HeaderMap, StatusCode};
use ureq::tls::{Certificate, RootCerts, TlsConfig};
use xdfs_proto::{Code, Fault};
use xdfs_security::identity::read_certificates;
use xdfs_security::token::{KeyFetch, KeySource, KeyUrl, MAX_FETCHED_BYTES, discovered};

use crate::clock::Clock;

#[cfg(test)]
mod tests;

const FETCH: &str = "fetch the keys of an issuer";
/// Deadline of a request, from the host lookup to the end of the response.
const DEADLINE: Duration = Duration::from_secs(10);
/// Interval between checks whether keys have expired: setting the clock shortens the wait.
const TICK: Duration = Duration::from_secs(60);
/// Maximum number of characters of untrusted text in the log.
const FOREIGN_CHARS_MAX: usize = 400;

/// Starts to fetch keys, at once and whenever they are due, until their verifiers are dropped. A
/// thread may outlive them by the two deadlines of a fetch in progress.
///
/// # Errors
/// A file of authorities can't be read, or a thread can't be started.
pub(crate) fn start(fetches: Vec<KeyFetch>, clock: &Arc<dyn Clock>) -> Result<(), Fault> {
    for authorities in fetches.iter().filter_map(KeyFetch::authorities) {
        read_certificates(authorities)?;
    }
    for fetch in fetches {
        let clock = Arc::clone(clock);
        thread::Builder::new()
            .name("issuer-keys".into())
            .spawn(move || run(&fetch, &*clock))
            .map_err(|e| Fault::from_io(FETCH, "", &e))?;
    }
    Ok(())
}

fn run(fetch: &KeyFetch, clock: &dyn Clock) {
    loop {
        let wait = step(fetch, clock.unix_s_signed(), DEADLINE);
        if !fetch.wait(wait.min(TICK)) {
            return;
        }
    }
}

/// Fetches keys if they are due; returns the time until the next step.
fn step(fetch: &KeyFetch, now_unix: i64, deadline: Duration) -> Duration {
    if fetch.due_in(now_unix).is_zero() {
        fetch.begin(now_unix);
        let issuer = fetch.issuer();
        let stored = match fetch_set(fetch, deadline) {
            Ok(set) => fetch.store(&set.body, set.max_age_s, now_unix),
            Err(fault) => {
                fetch.failed();
                Err(fault)
            }
        };
        match stored {
            Ok(()) => tracing::info!(issuer, "fetched its keys"),
            Err(fault) => tracing::warn!(issuer, %fault, "keeping the keys of before, if any"),
        }
    }
    fetch.due_in(now_unix)
}

/// A document from an issuer.
struct Document {
    body: Vec<u8>,
    /// Lifetime in seconds, if the issuer specifies it.
    max_age_s: Option<u64>,
}

fn fetch_set(fetch: &KeyFetch, deadline: Duration) -> Result<Document, Fault> {
    let get = |url: &KeyUrl| get(url, fetch.authorities(), deadline);
    match fetch.source() {
        KeySource::Keys(url) => get(url),
        // Looked up each time, as the keys may move.
        KeySource::Discovery(url) => {
            let document = get(url)?;
            get(&discovered(&document.body, fetch.issuer(), url)?)
        }
        _ => {
            Err(Fault::new(Code::Internal, FETCH, "where they are isn't known").path(issuer(fetch)))
        }
    }
}

fn issuer(fetch: &KeyFetch) -> &[u8] {
    fetch.issuer().as_bytes()
}

fn get(url: &KeyUrl, authorities: Option<&Path>, deadline: Duration) -> Result<Document, Fault> {
    let fault = |error: ureq::Error| fault(url, &error);
    let agent = agent(url, authorities, deadline)?;
    let mut response = agent
        .get(url.as_str())
        .header("accept", "application/json, application/jwk-set+json")
        .call()
        .map_err(fault)?;
    let status = response.status();
    if status != StatusCode::OK {
        let what = if status.is_redirection() {
            "a redirect isn't followed"
        } else {
            "it isn't there"
        };
        let cause = format!("the answer is {}: {what}", status.as_u16());
        return Err(Fault::new(Code::NotFound, FETCH, cause)
            .path(url.as_str())
            .hint("set jwks_url to where the keys are"));
    }
    let max_age_s = max_age_s(response.headers());
    // Bodies at the limit are refused.
    let body = response
        .body_mut()
        .with_config()
        .limit(MAX_FETCHED_BYTES + 1)
        .read_to_vec()
        .map_err(fault)?;
    Ok(Document { body, max_age_s })
}

/// Without connection reuse: fetches are rare.
fn agent(url: &KeyUrl, authorities: Option<&Path>, deadline: Duration) -> Result<Agent, Fault> {
    let roots = match authorities {
        None => RootCerts::PlatformVerifier,
        Some(path) => {
            let certificates = read_certificates(path)?;
            let all = certificates
                .iter()
                .map(|der| Certificate::from_der(der).to_owned());
            RootCerts::new_with_certs(&all.collect::<Vec<_>>())
        }
    };
    // An explicit provider: the default of the process could be another, or none.
    let provider = Arc::new(rustls::crypto::aws_lc_rs::default_provider());
    let tls = TlsConfig::builder()
        .root_certs(roots)
        .unversioned_rustls_crypto_provider(provider)
        .build();
    let mut config = Agent::config_builder()
        .tls_config(tls)
        .https_only(url.is_secure())
        .http_status_as_error(false)
        .max_redirects(0)
        .max_redirects_will_error(false)
        .max_idle_connections(0)
        .timeout_global(Some(deadline))
        .user_agent(concat!("xdfs/", env!("CARGO_PKG_VERSION")));
    if url.is_local() {
        // A proxy on another machine couldn't reach it.
        config = config.proxy(None);
    }
    Ok(config.build().new_agent())
}

fn fault(url: &KeyUrl, error: &ureq::Error) -> Fault {
    use ureq::Error as E;
    let text: String = error
        .to_string()
        .chars()
        .take(FOREIGN_CHARS_MAX)
        .map(|c| if c.is_control() { '?' } else { c })
        .collect();
    let untrusted = || {
        Fault::new(Code::ServerUntrusted, FETCH, text.as_str())
            .hint("jwks_authorities names the authorities that vouch for an issuer")
    };
    let fault = match error {
        // TLS handshake failures are reported as connection errors.
        E::Io(error) if error.get_ref().is_some_and(|e| e.is::<rustls::Error>()) => untrusted(),
        E::Io(error) => Fault::from_io(FETCH, "", error).hint(""),
        E::Timeout(_) => {
            let cause = "the answer didn't come in time";
            Fault::new(Code::DeadlineExceeded, FETCH, cause)
        }
        E::HostNotFound | E::ConnectionFailed => Fault::new(Code::ConnectionRefused, FETCH, text),
        E::Tls(_) | E::Rustls(_) => untrusted(),
        E::BodyExceedsLimit(_) => {
            let cause = format!("it is longer than {MAX_FETCHED_BYTES} bytes");
            Fault::new(Code::LimitExceeded, FETCH, cause)
        }
        _ => Fault::new(Code::Io, FETCH, text),
    };
    fault.path(url.as_str())
}

/// Lifetime of a response in seconds (RFC 9111, section 5.2.2); `None` if unspecified.
fn max_age_s(headers: &HeaderMap) -> Option<u64> {
    let lines = headers.get_all(CACHE_CONTROL).iter();
    lines
        .filter_map(|line| line.to_str().ok())
        .flat_map(|line| line.split(','))
        .filter_map(|directive| {
            let (name, value) = directive.split_once('=').unwrap_or((directive, ""));
            match name.trim().to_ascii_lowercase().as_str() {
                "no-store" | "no-cache" => Some(0),
                "max-age" => {
                    let digits = value.trim().trim_matches('"');
                    let is_number =
                        !digits.is_empty() && digits.bytes().all(|b| b.is_ascii_digit());
                    // A number out of range is a long time.
                    is_number.then(|| digits.parse().unwrap_or(u64::MAX))
                }
                _ => None,
            }
        })
        .min()
}
