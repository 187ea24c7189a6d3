//! Logins by keys. The service gives a challenge; the user's key signs it, with the name under
//! which the client has reached the service, by the proof that servers take as well.
//!
//! A challenge carries its age and a tag that only this process can make, so that nothing is stored
//! of those that strangers ask for; only those that were used are remembered until they end.

use std::collections::HashMap;
use std::net::SocketAddr;
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

use aws_lc_rs::hmac::{HMAC_SHA256, Key, sign, verify};
use axum::http::HeaderMap;
use axum::http::header::HOST;
use serde::{Deserialize, Serialize};
use sha2::{Digest as _, Sha256};
use xdfs::{Code, Fault};

use super::secret::{Secret, digest, hex};
use super::{Access, header};
use crate::listed::bytes_of;
use crate::store::{Session, Store};
use crate::time::Time;

/// Time in which a challenge can be used.
const CHALLENGE_SECONDS: u64 = 60;
/// Time until a client has to log in again.
const SESSION_LIFE: Duration = Duration::from_secs(60 * 60);
/// The beginning of each token of a session.
pub(super) const SESSION_PREFIX: &str = "xdfs_session_";
/// The beginning of what is stored of a session that a key began; the key follows in hex.
pub(super) const KEY_PREFIX: &str = "key ";
const NONCE_BYTES: usize = 16;
const BODY_BYTES: usize = 8 + NONCE_BYTES;
const LOG_IN: &str = "log in by a key";

/// A challenge for the login by a key.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, utoipa::ToSchema)]
pub struct Challenge {
    /// The text to sign.
    pub challenge: String,
    /// Seconds in which it can be used, once.
    pub seconds: u64,
}

/// The login of a user by a key.
#[derive(Clone, Debug, Serialize, Deserialize, utoipa::ToSchema)]
#[serde(deny_unknown_fields)]
pub struct KeyLogin {
    /// The user.
    #[schema(min_length = 1, max_length = 64)]
    pub user: String,
    /// A challenge of this service.
    pub challenge: String,
    /// The proof in hex: the body of AUTH with the method `key`, bound to the SHA-256 of
    /// `xdfs transfer service`, the service's host and port as in its URL, and the challenge, each
    /// followed by a line feed.
    pub proof: String,
}

/// The session of a client.
#[derive(Clone, Serialize, Deserialize, utoipa::ToSchema)]
pub struct KeySession {
    /// The user.
    pub user: String,
    /// The value for `Authorization: Bearer`.
    pub token: String,
    /// When it ends.
    pub ends_at: Time,
}

impl std::fmt::Debug for KeySession {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("KeySession")
            .field("user", &self.user)
            .field("ends_at", &self.ends_at)
            .finish_non_exhaustive()
    }
}

/// The challenges of a process.
#[derive(Debug)]
pub(super) struct Challenges {
    key: Key,
    began: Instant,
    /// The used ones, with the time of their use.
    used: Mutex<HashMap<String, Instant>>,
}

/// The binding of a proof: a digest of the host and the challenge.
pub(crate) fn binding(host: &str, challenge: &str) -> [u8; 32] {
    let text = format!("xdfs transfer service\n{host}\n{challenge}\n");
    Sha256::digest(text.as_bytes()).into()
}

/// Host and port of a URL, as in the header of requests to it; `None` if it is no URL of HTTP.
pub(crate) fn host_of(url: &str) -> Option<String> {
    let (scheme, rest) = url.split_once("://")?;
    let port = match scheme {
        "http" => ":80",
        "https" => ":443",
        _ => return None,
    };
    let host = rest.split('/').next().unwrap_or_default();
    let host = host.strip_suffix(port).unwrap_or(host).to_ascii_lowercase();
    (!host.is_empty() && !host.contains('@')).then_some(host)
}

impl Challenges {
    pub(super) fn new() -> Result<Self, Fault> {
        let mut key = [0; 32];
        fill(&mut key)?;
        Ok(Self {
            key: Key::new(HMAC_SHA256, &key),
            began: Instant::now(),
            used: Mutex::default(),
        })
    }

    fn make(&self) -> Result<String, Fault> {
        let mut body = [0; BODY_BYTES];
        let (age, nonce) = body.split_at_mut(8);
        age.copy_from_slice(&self.began.elapsed().as_secs().to_be_bytes());
        fill(nonce)?;
        let tag = sign(&self.key, &body);
        Ok(hex(&body) + &hex(tag.as_ref()))
    }

    /// The name of a challenge that can be used; `None` of what is none, and of one that has ended.
    fn name(&self, challenge: &str) -> Option<String> {
        let bytes = Some(challenge)
            .filter(|text| text.len() == 2 * (BODY_BYTES + 32))
            .and_then(bytes_of);
        let (body, tag) = bytes.as_deref()?.split_at_checked(BODY_BYTES)?;
        let made = u64::from_be_bytes(body[..8].try_into().ok()?);
        let age = self.began.elapsed().as_secs().saturating_sub(made);
        let is_good = verify(&self.key, body, tag).is_ok() && age < CHALLENGE_SECONDS;
        // The same bytes have several texts.
        is_good.then(|| hex(body))
    }

    /// Uses up the challenge with this name. Whether it was not used before.
    fn use_up(&self, name: String) -> bool {
        let mut used = self.used.lock().unwrap_or_else(PoisonError::into_inner);
        used.retain(|_, at| at.elapsed().as_secs() <= CHALLENGE_SECONDS);
        used.insert(name, Instant::now()).is_none()
    }
}

fn fill(bytes: &mut [u8]) -> Result<(), Fault> {
    getrandom::fill(bytes)
        .map_err(|error| Fault::new(Code::Internal, "make a challenge", error.to_string()))
}

impl Access {
    /// A challenge for the login by a key.
    ///
    /// # Errors
    /// The system has no random numbers.
    pub(crate) fn challenge(&self) -> Result<Challenge, Fault> {
        Ok(Challenge {
            challenge: self.challenges.make()?,
            seconds: CHALLENGE_SECONDS,
        })
    }

    /// Checks the proof of a key, and begins a session.
    ///
    /// # Errors
    /// [`Code::AuthenticationFailed`]; [`Code::LimitExceeded`] with a time to wait, after wrong
    /// ones; [`Code::InvalidArgument`] if the client calls the service by a name that it doesn't
    /// know; or the session can't be stored.
    pub(crate) async fn log_in_by_key(
        &self,
        store: &Store,
        peer: SocketAddr,
        headers: &HeaderMap,
        login: KeyLogin,
    ) -> Result<KeySession, Fault> {
        let host = header(headers, HOST).unwrap_or_default();
        let host = host.to_ascii_lowercase();
        if !self.hosts.contains(&host) {
            // Otherwise another service could pass on what it is sent.
            let cause = "the service doesn't know itself by this name";
            return Err(Fault::new(Code::InvalidArgument, LOG_IN, cause)
                .path(host)
                .hint("start it with --public-url, with the URL that clients use"));
        }
        let refused = |cause| Fault::new(Code::AuthenticationFailed, LOG_IN, cause);
        let over = || {
            let fault = refused("the challenge isn't one of this process, has ended, or was used");
            fault.hint("ask for another one")
        };
        let name = self.challenges.name(&login.challenge).ok_or_else(over)?;
        let proof = bytes_of(&login.proof).unwrap_or_default();
        let binding = binding(&host, &login.challenge);
        let checked = self.people.check_key(peer, login.user, proof, binding);
        let Some((user, key)) = checked.await? else {
            return Err(refused(
                "the proof isn't valid, or the key isn't listed for this user",
            ));
        };
        // Only now, so that nothing is kept of those who prove nothing.
        if !self.challenges.use_up(name) {
            return Err(over());
        }
        let token = format!("{SESSION_PREFIX}{}", Secret::new()?.as_str());
        let session = Session {
            owner: user.clone(),
            password_version: Some(format!("{KEY_PREFIX}{}", hex(&key))),
        };
        let ends_at = Time::now().after(SESSION_LIFE);
        store
            .add_session(&digest(&token), &session, ends_at)
            .await?;
        Ok(KeySession {
            user,
            token,
            ends_at,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_challenge_is_used_once_and_can_t_be_made_up() {
        let new = || Challenges::new().unwrap_or_else(|fault| panic!("{fault}"));
        let (one, other) = (new(), new());
        let make = || one.make().unwrap_or_else(|fault| panic!("{fault}"));
        let challenge = make();
        assert_ne!(challenge, make());
        assert_eq!(other.name(&challenge), None);
        let last = if challenge.ends_with('0') { "1" } else { "0" };
        let changed = format!("{}{last}", &challenge[..challenge.len() - 1]);
        assert_eq!(one.name(&changed), None);
        let name = one.name(&challenge).unwrap_or_default();
        assert!(one.use_up(name.clone()) && !one.use_up(name.clone()));
        assert_eq!(one.name(&challenge.to_uppercase()), Some(name));
        for text in ["", "00", "\u{e9}", &"0".repeat(112), &"x".repeat(112)] {
            assert_eq!(one.name(text), None, "{text}");
        }
    }

    #[test]
    fn a_host_is_that_of_requests() {
        for (url, host) in [
            ("http://127.0.0.1:2780", Some("127.0.0.1:2780")),
            ("https://Copies.Example/", Some("copies.example")),
            ("https://copies.example:443/x", Some("copies.example")),
            ("http://copies.example:443", Some("copies.example:443")),
            ("http://[::1]:1", Some("[::1]:1")),
            ("https://user@host", None),
            ("ftp://host", None),
            ("https:///", None),
            ("host", None),
        ] {
            assert_eq!(host_of(url).as_deref(), host, "{url}");
        }
    }
}
