//! Browsers: logins by a link or by a password, and the cookies of their sessions.

use std::collections::HashMap;
use std::net::SocketAddr;
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

use axum::http::HeaderMap;
use axum::http::header::{COOKIE, HOST, ORIGIN};
use xdfs::Fault;

use super::challenge::KEY_PREFIX;
use super::secret::{Secret, digest};
use super::{Access, Proof, Scope, User, header};
use crate::channel::Channel;
use crate::listed::bytes_of;
use crate::store::{Session, Store};
use crate::time::Time;

/// Time in which a link can be used.
const LINK_LIFE: Duration = Duration::from_secs(24 * 60 * 60);
/// Time until a browser has to log in again.
const SESSION_LIFE: Duration = Duration::from_secs(30 * 24 * 60 * 60);
/// Most links that wait to be used.
const LINKS_MAX: usize = 16;

/// The digests of links that wait to be used.
#[derive(Debug, Default)]
pub(super) struct Links(Mutex<HashMap<String, Instant>>);

/// Whether a request comes from a page of the service itself: by the header that browsers send with
/// requests that change something. A proxy in front may speak TLS with the browser.
pub(crate) fn is_of_own_page(headers: &HeaderMap) -> bool {
    let origin = header(headers, ORIGIN).unwrap_or_default();
    let host = ["http://", "https://"]
        .iter()
        .find_map(|scheme| origin.strip_prefix(scheme));
    host.is_some() && host == header(headers, HOST)
}

/// A path of this service that a login may lead to, from a place that anybody could have written;
/// `/` for everything else.
pub(crate) fn local_path(text: &str) -> &str {
    // A second slash, or a backslash, which browsers take for one, would begin a host.
    let is_local = text.starts_with('/')
        && !text[1..].starts_with(['/', '\\'])
        && text
            .bytes()
            .all(|byte| byte.is_ascii_alphanumeric() || b"/-._~:?=&%".contains(&byte));
    match is_local {
        true => text,
        false => "/",
    }
}

impl Access {
    /// The secret of a link that logs in a browser of the owner once.
    ///
    /// # Errors
    /// The system has no random numbers.
    pub(crate) fn link(&self) -> Result<Secret, Fault> {
        let secret = Secret::new()?;
        let mut links = self.links.0.lock().unwrap_or_else(PoisonError::into_inner);
        links.retain(|_, made| made.elapsed() < LINK_LIFE);
        if links.len() >= LINKS_MAX {
            links.clear();
        }
        links.insert(digest(secret.as_str()), Instant::now());
        Ok(secret)
    }

    /// Uses a link up. Returns the value of the header that gives the browser its cookie; `None` if
    /// it is no link, or was used.
    ///
    /// # Errors
    /// The session can't be stored.
    pub(crate) async fn log_in_by_link(
        &self,
        store: &Store,
        headers: &HeaderMap,
        channel: &Channel,
        secret: &str,
    ) -> Result<Option<String>, Fault> {
        let made = {
            let mut links = self.links.0.lock().unwrap_or_else(PoisonError::into_inner);
            links.remove(&digest(secret))
        };
        if made.is_none_or(|made| made.elapsed() >= LINK_LIFE) {
            return Ok(None);
        }
        let owner = self.people.owner.clone();
        self.begin_session(store, headers, channel, owner, None)
            .await
            .map(Some)
    }

    /// Checks a password. Returns the value of the header that gives the browser its cookie; `None`
    /// if it is wrong.
    ///
    /// # Errors
    /// [`Code::LimitExceeded`](xdfs::Code::LimitExceeded) with a time to wait, after wrong ones; or
    /// the session can't be stored.
    pub(crate) async fn log_in_by_password(
        &self,
        store: &Store,
        (peer, channel): (SocketAddr, &Channel),
        headers: &HeaderMap,
        user: String,
        password: String,
    ) -> Result<Option<String>, Fault> {
        let checked = self.people.check(peer, user.clone(), password).await?;
        let Some(version) = checked else {
            return Ok(None);
        };
        self.begin_session(store, headers, channel, user, Some(version))
            .await
            .map(Some)
    }

    /// Begins a session, always with a new cookie, and ends the one that the browser has.
    async fn begin_session(
        &self,
        store: &Store,
        headers: &HeaderMap,
        channel: &Channel,
        owner: String,
        password_version: Option<String>,
    ) -> Result<String, Fault> {
        if let Some(before) = self.cookie(headers) {
            store.end_session(&digest(before)).await?;
        }
        let cookie = Secret::new()?;
        let session = Session {
            owner,
            password_version,
        };
        let ends_at = Time::now().after(SESSION_LIFE);
        store
            .add_session(&digest(cookie.as_str()), &session, ends_at)
            .await?;
        Ok(self.set_cookie(headers, channel, cookie.as_str(), SESSION_LIFE))
    }

    /// Ends the session of a browser. Returns the value of the header that takes its cookie away.
    ///
    /// # Errors
    /// The session can't be removed.
    pub(crate) async fn log_out(
        &self,
        store: &Store,
        headers: &HeaderMap,
        channel: &Channel,
    ) -> Result<String, Fault> {
        if let Some(cookie) = self.cookie(headers) {
            store.end_session(&digest(cookie)).await?;
        }
        Ok(self.set_cookie(headers, channel, "", Duration::ZERO))
    }

    fn set_cookie(
        &self,
        headers: &HeaderMap,
        channel: &Channel,
        value: &str,
        life: Duration,
    ) -> String {
        let (name, life) = (&self.cookie, life.as_secs());
        let is_https = channel.is_protected()
            // A proxy in front has it.
            || header(headers, ORIGIN).is_some_and(|origin| origin.starts_with("https://"))
            // A link has no origin.
            || self.tls_host.as_deref().is_some_and(|host| header(headers, HOST) == Some(host));
        let secure = if is_https { "; Secure" } else { "" };
        format!("{name}={value}; HttpOnly; SameSite=Strict; Path=/; Max-Age={life}{secure}")
    }

    /// The cookie of a request.
    fn cookie<'a>(&self, headers: &'a HeaderMap) -> Option<&'a str> {
        let texts = headers.get_all(COOKIE).into_iter();
        let texts = texts.filter_map(|value| value.to_str().ok());
        let cookies = texts.flat_map(|text| text.split(';'));
        let mut cookies = cookies.filter_map(|cookie| cookie.trim().split_once('='));
        let (_, cookie) = cookies.find(|(name, _)| *name == self.cookie)?;
        Some(cookie)
    }

    pub(super) async fn user_of_session(
        &self,
        store: &Store,
        headers: &HeaderMap,
    ) -> Result<Option<User>, Fault> {
        let Some(cookie) = self.cookie(headers) else {
            return Ok(None);
        };
        self.user_by_session(store, digest(cookie)).await
    }

    /// The user of the session with this digest.
    pub(super) async fn user_by_session(
        &self,
        store: &Store,
        digest: String,
    ) -> Result<Option<User>, Fault> {
        let owner = self.owner_of_session(store, &digest).await?;
        Ok(owner.map(|owner| self.proved(owner, Scope::Admin, Proof::Session(digest))))
    }

    /// The owner of a session that is good still: its password or its key is.
    pub(super) async fn owner_of_session(
        &self,
        store: &Store,
        digest: &str,
    ) -> Result<Option<String>, Fault> {
        let Some(session) = store.session(digest).await? else {
            return Ok(None);
        };
        let is_good = match &session.password_version {
            // By a link, which is the owner's.
            None => session.owner == self.people.owner,
            Some(version) => match version.strip_prefix(KEY_PREFIX) {
                Some(key) => {
                    let key = bytes_of(key).unwrap_or_default();
                    self.people.has_key(&session.owner, &key)
                }
                None => self.people.has_password(&session.owner, version)?,
            },
        };
        Ok(is_good.then_some(session.owner))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_login_leads_to_pages_of_the_service_alone() {
        for path in ["/", "/jobs/0", "/jobs?state=failed&after=x", "/a%20b"] {
            assert_eq!(local_path(path), path);
        }
        for path in [
            "",
            "x",
            "//evil.example",
            "/\\evil.example",
            "\\\\evil.example",
            "https://evil.example",
            "/@evil.example",
            "/a\r\nSet-Cookie: x=y",
            "/\t/evil.example",
            "javascript:alert(1)",
        ] {
            assert_eq!(local_path(path), "/", "{path}");
        }
    }

    #[test]
    fn pages_of_others_are_told_by_their_origin() {
        let is_own = |origin: Option<&str>, host: &str| {
            let mut headers = HeaderMap::new();
            let value = |text: &str| text.parse().unwrap_or_else(|error| panic!("{error}"));
            headers.insert(HOST, value(host));
            if let Some(origin) = origin {
                headers.insert(ORIGIN, value(origin));
            }
            is_of_own_page(&headers)
        };
        assert!(is_own(Some("http://127.0.0.1:2780"), "127.0.0.1:2780"));
        assert!(is_own(Some("https://copies.example"), "copies.example"));
        for origin in [
            None,
            Some("null"),
            Some(""),
            Some("http://"),
            Some("http://127.0.0.1:1"),
            Some("http://127.0.0.1"),
            Some("ftp://127.0.0.1:2780"),
            Some("https://evil.example"),
        ] {
            assert!(!is_own(origin, "127.0.0.1:2780"), "{origin:?}");
        }
    }
}
