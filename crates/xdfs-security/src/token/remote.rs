//! An issuer's keys from its web server.
//!
//! This module decides which keys are valid and when to fetch others; the owner of [`KeyFetch`]
//! fetches them. Tokens never wait for a fetch: they are checked with the present keys.

use std::fmt;
use std::path::{Path, PathBuf};
use std::sync::mpsc::{Receiver, RecvTimeoutError, SyncSender, sync_channel};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use serde::Deserialize;
use xdfs_proto::{Code, Fault};

use super::keys::KeySet;
use super::url::KeyUrl;

/// Maximum size of a key set, and of a configuration document, in bytes.
pub const MAX_FETCHED_BYTES: u64 = 1024 * 1024;
/// Default lifetime of keys in seconds.
const FRESH_S: i64 = 3600;
/// Minimum and maximum of the lifetime that an issuer specifies.
const FRESH_BOUNDS_S: (i64, i64) = (300, 24 * 3600);
/// Seconds for which expired keys are used while no others can be fetched.
const STALE_S: i64 = 24 * 3600;
/// Minimum seconds between two fetches, whatever tokens arrive. Doubles after failures.
const PAUSE_S: i64 = 30;
/// Maximum pause after failures.
const PAUSE_MAX_S: i64 = 300;

/// Where to fetch keys.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum KeySource {
    /// The URL of the key set.
    Keys(KeyUrl),
    /// The URL of the issuer's configuration document, which contains that of its keys (OpenID
    /// Connect Discovery 1.0, section 4).
    Discovery(KeyUrl),
}

/// The present keys.
pub(super) struct RemoteKeys {
    shared: Arc<Shared>,
    /// Wakes the fetcher; it is disconnected when the keys are no longer needed.
    wake: SyncSender<()>,
}

struct Shared {
    issuer: String,
    source: KeySource,
    authorities: Option<PathBuf>,
    state: Mutex<FetchState>,
}

/// All times are in seconds since 1970.
#[derive(Default)]
struct FetchState {
    keys: Option<Arc<KeySet>>,
    /// When `keys` were fetched.
    fetched: i64,
    /// Their lifetime.
    fresh_s: i64,
    /// Start of the last fetch; `None` before the first.
    attempted: Option<i64>,
    /// Number of failed fetches since the last success.
    failures: u32,
    /// Whether a token with an unknown key has arrived since the start of the last fetch.
    key_missing: bool,
}

impl RemoteKeys {
    /// Without keys yet; returned with their fetcher.
    pub(super) fn new(
        issuer: String,
        source: KeySource,
        authorities: Option<PathBuf>,
    ) -> (Self, KeyFetch) {
        let (wake, woken) = sync_channel(1);
        let shared = Arc::new(Shared {
            issuer,
            source,
            authorities,
            state: Mutex::default(),
        });
        let fetch = KeyFetch {
            shared: Arc::clone(&shared),
            woken,
        };
        (Self { shared, wake }, fetch)
    }

    /// The keys, unless they are too old or there are none yet.
    pub(super) fn current(&self, now_unix: i64) -> Option<Arc<KeySet>> {
        let state = self.shared.state();
        let good_until = state.fetched.saturating_add(state.fresh_s + STALE_S);
        state
            .keys
            .as_ref()
            .filter(|_| now_unix < good_until)
            .map(Arc::clone)
    }

    /// Requests a fetch because of a token with an unknown key, limited in rate.
    pub(super) fn request_fetch(&self) {
        let was_wished = std::mem::replace(&mut self.shared.state().key_missing, true);
        if !was_wished {
            // A full channel wakes the fetcher as well.
            let _ = self.wake.try_send(());
        }
    }
}

impl Shared {
    fn state(&self) -> MutexGuard<'_, FetchState> {
        // No code panics in the middle of a change, so the state is consistent.
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Fetches the keys of one issuer, in a thread that may block.
///
/// Its owner loops: waits with [`wait`](Self::wait) for the time of [`due_in`](Self::due_in) and,
/// once that is zero, calls [`begin`](Self::begin), fetches from [`source`](Self::source), and
/// reports by [`store`](Self::store) or [`failed`](Self::failed). Times are in seconds since 1970.
pub struct KeyFetch {
    shared: Arc<Shared>,
    woken: Receiver<()>,
}

impl KeyFetch {
    /// The name of the issuer.
    #[must_use]
    pub fn issuer(&self) -> &str {
        &self.shared.issuer
    }

    /// The source of its keys.
    #[must_use]
    pub fn source(&self) -> &KeySource {
        &self.shared.source
    }

    /// The file (PEM) of the authorities for its web server; `None` for those of the system.
    #[must_use]
    pub fn authorities(&self) -> Option<&Path> {
        self.shared.authorities.as_deref()
    }

    /// Time until the next fetch; zero if it is due.
    #[must_use]
    pub fn due_in(&self, now_unix: i64) -> Duration {
        let state = self.shared.state();
        let due = match state.attempted {
            None => now_unix,
            // The clock was set back, so earlier times are meaningless.
            Some(attempted) if attempted > now_unix => now_unix,
            Some(attempted) => {
                let pause = PAUSE_S << state.failures.saturating_sub(1).min(8);
                let planned = match state.failures {
                    0 => state.fetched.saturating_add(state.fresh_s),
                    _ => attempted.saturating_add(pause.min(PAUSE_MAX_S)),
                };
                let key_missing = attempted.saturating_add(PAUSE_S);
                if state.key_missing {
                    planned.min(key_missing)
                } else {
                    planned
                }
            }
        };
        Duration::from_secs(u64::try_from(due.saturating_sub(now_unix)).unwrap_or_default())
    }

    /// Waits at most `longest`, or until a token with an unknown key arrives. False when the keys
    /// are no longer needed.
    #[must_use]
    pub fn wait(&self, longest: Duration) -> bool {
        self.woken.recv_timeout(longest) != Err(RecvTimeoutError::Disconnected)
    }

    /// Records the start of a fetch.
    pub fn begin(&self, now_unix: i64) {
        let mut state = self.shared.state();
        state.attempted = Some(now_unix);
        state.key_missing = false;
    }

    /// Replaces the keys by a fetched set (RFC 7517). `max_age_s` is its lifetime specified by the
    /// issuer, limited to 5 minutes to a day.
    ///
    /// # Errors
    /// `InvalidArgument` if it isn't a key set or is larger than 1 MiB; the previous keys stay, as
    /// after [`failed`](Self::failed).
    pub fn store(&self, set: &[u8], max_age_s: Option<u64>, now_unix: i64) -> Result<(), Fault> {
        let parsed = bounded(set).and_then(KeySet::parse);
        let keys = parsed.inspect_err(|_| self.failed())?;
        let fresh_s = max_age_s.map_or(FRESH_S, |s| i64::try_from(s).unwrap_or(i64::MAX));
        let mut state = self.shared.state();
        state.keys = Some(Arc::new(keys));
        state.fetched = now_unix;
        state.fresh_s = fresh_s.clamp(FRESH_BOUNDS_S.0, FRESH_BOUNDS_S.1);
        state.failures = 0;
        Ok(())
    }

    /// Records a failed fetch. The keys stay valid for a day after their expiry.
    pub fn failed(&self) {
        let mut state = self.shared.state();
        state.failures = state.failures.saturating_add(1);
    }
}

impl fmt::Debug for KeyFetch {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("KeyFetch")
            .field("issuer", &self.shared.issuer)
            .field("source", &self.shared.source)
            .finish_non_exhaustive()
    }
}

/// The URL of the keys in the configuration document of `issuer`, fetched from `from` (OpenID
/// Connect Discovery 1.0, section 4.3).
///
/// # Errors
/// `InvalidArgument` if it isn't such a document, is larger than 1 MiB, belongs to another issuer,
/// or names a URL that [`KeyUrl`] doesn't accept or that is less protected than `from`.
pub fn discovered(document: &[u8], issuer: &str, from: &KeyUrl) -> Result<KeyUrl, Fault> {
    #[derive(Deserialize)]
    struct Document {
        issuer: String,
        jwks_uri: String,
    }

    let wrong = |cause: &str| Fault::new(Code::InvalidArgument, "find the keys", cause);
    let document: Document = serde_json::from_slice(bounded(document)?)
        .map_err(|_| wrong("it isn't a document with an issuer and its jwks_uri"))?;
    if document.issuer != issuer {
        return Err(wrong("the document belongs to another issuer"));
    }
    let url = KeyUrl::parse(&document.jwks_uri)?;
    // A protected document must not lead to an unprotected URL, nor a remote one to this machine.
    if from.is_secure() && !url.is_secure() || url.is_local() && !from.is_local() {
        return Err(wrong("the document leads to an address of this machine"));
    }
    Ok(url)
}

fn bounded(bytes: &[u8]) -> Result<&[u8], Fault> {
    if bytes.len() as u64 > MAX_FETCHED_BYTES {
        let cause = format!("it is longer than {MAX_FETCHED_BYTES} bytes");
        return Err(Fault::new(Code::InvalidArgument, "read the keys", cause));
    }
    Ok(bytes)
}

#[cfg(test)]
mod tests {
    use super::*;

    const NOW: i64 = 1_800_000_000;
    const SET: &[u8] = b"{\"keys\": []}";

    fn remote() -> (RemoteKeys, KeyFetch) {
        let url = KeyUrl::parse("https://issuer.example.org/jwks").unwrap();
        RemoteKeys::new("x".into(), KeySource::Keys(url), None)
    }

    fn due(fetch: &KeyFetch, now: i64) -> u64 {
        fetch.due_in(now).as_secs()
    }

    #[test]
    fn keys_are_fetched_at_once_and_again_when_they_are_old() {
        for (max_age, fresh) in [
            (None, 3600),
            (Some(0), 300),
            (Some(299), 300),
            (Some(4000), 4000),
            (Some(u64::MAX), 86400),
        ] {
            let (keys, fetch) = remote();
            assert_eq!(due(&fetch, NOW), 0);
            assert!(keys.current(NOW).is_none());
            fetch.begin(NOW);
            fetch.store(SET, max_age, NOW + 1).unwrap();
            assert!(keys.current(NOW + 1).is_some());
            assert_eq!(due(&fetch, NOW + 1), fresh, "{max_age:?}");
            assert_eq!(due(&fetch, NOW + 1 + fresh as i64), 0);
        }
    }

    #[test]
    fn a_failing_issuer_keeps_its_keys_for_a_day() {
        let (keys, fetch) = remote();
        fetch.begin(NOW);
        fetch.store(SET, Some(600), NOW).unwrap();
        let mut now = NOW + 600;
        let last = now + STALE_S;
        let mut pauses = Vec::new();
        while now < last {
            assert_eq!(due(&fetch, now), 0);
            assert!(keys.current(now).is_some());
            fetch.begin(now);
            fetch.failed();
            pauses.push(due(&fetch, now));
            now += i64::try_from(*pauses.last().unwrap()).unwrap();
        }
        assert_eq!(pauses[..6], [30, 60, 120, 240, 300, 300]);
        assert!(pauses[6..].iter().all(|&p| p == 300));
        assert!(keys.current(last - 1).is_some());
        assert!(keys.current(last).is_none());
        // And it is accepted again when it returns.
        fetch.begin(now);
        fetch.store(SET, Some(600), now).unwrap();
        assert!(keys.current(now).is_some());
        assert_eq!(due(&fetch, now), 600);
    }

    #[test]
    fn tokens_ask_for_keys_once_in_half_a_minute() {
        let (keys, fetch) = remote();
        fetch.begin(NOW);
        fetch.store(SET, None, NOW).unwrap();
        assert!(fetch.wait(Duration::ZERO));
        assert_eq!(due(&fetch, NOW + 10), 3590);
        for _ in 0..1000 {
            keys.request_fetch();
        }
        assert_eq!(due(&fetch, NOW + 10), 20);
        assert_eq!(due(&fetch, NOW + 30), 0);
        // A request during a fetch counts for the next one.
        fetch.begin(NOW + 30);
        keys.request_fetch();
        fetch.store(SET, None, NOW + 31).unwrap();
        assert_eq!(due(&fetch, NOW + 31), 29);
        // Also while fetches fail.
        fetch.begin(NOW + 60);
        fetch.failed();
        fetch.failed();
        keys.request_fetch();
        assert_eq!(due(&fetch, NOW + 60), 30);
        fetch.begin(NOW + 90);
        assert_eq!(due(&fetch, NOW + 90), 60);
    }

    #[test]
    fn a_clock_that_was_set_back_makes_a_fetch_due() {
        let (keys, fetch) = remote();
        fetch.begin(NOW);
        fetch.store(SET, None, NOW).unwrap();
        assert_eq!(due(&fetch, NOW - 100_000), 0);
        fetch.begin(NOW - 100_000);
        fetch.store(SET, None, NOW - 100_000).unwrap();
        assert_eq!(due(&fetch, NOW - 100_000), 3600);
        assert!(keys.current(NOW - 100_000).is_some());
    }

    #[test]
    fn the_end_of_the_keys_ends_their_fetch() {
        let (keys, fetch) = remote();
        assert!(fetch.wait(Duration::ZERO));
        keys.request_fetch();
        assert!(fetch.wait(Duration::from_secs(60)), "it was woken");
        drop(keys);
        assert!(!fetch.wait(Duration::from_secs(60)));
    }

    #[test]
    fn what_is_no_set_of_keys_changes_nothing() {
        let (keys, fetch) = remote();
        fetch.begin(NOW);
        fetch.store(SET, None, NOW).unwrap();
        let long = vec![b' '; 1024 * 1024 + 1];
        for bad in [&b""[..], b"<html>", b"[]", b"{\"keys\": 1}", &long] {
            let fault = fetch.store(bad, None, NOW).unwrap_err();
            assert_eq!(fault.code, Code::InvalidArgument);
        }
        assert!(keys.current(NOW).is_some());
        assert_eq!(due(&fetch, NOW), 300);
    }

    #[test]
    fn documents_of_issuers() {
        let find = |from: &str, document: &str| {
            let from = KeyUrl::parse(from).unwrap();
            discovered(document.as_bytes(), "https://a.example", &from)
                .map(|url| url.to_string())
                .map_err(|fault| fault.cause)
        };
        let document = |issuer: &str, uri: &str| {
            format!("{{\"issuer\": \"{issuer}\", \"jwks_uri\": \"{uri}\", \"more\": [1]}}")
        };
        let (far, near) = ("https://a.example/x", "http://127.0.0.1:1/x");
        let good = document("https://a.example", "https://b.example/keys");
        assert_eq!(find(far, &good).unwrap(), "https://b.example/keys");
        assert_eq!(find(near, &good).unwrap(), "https://b.example/keys");
        let local = document("https://a.example", "http://127.0.0.1:2/keys");
        assert_eq!(find(near, &local).unwrap(), "http://127.0.0.1:2/keys");
        assert!(find(far, &local).unwrap_err().contains("this machine"));
        let inside = document("https://a.example", "https://127.0.0.1/keys");
        assert!(find(far, &inside).unwrap_err().contains("this machine"));
        let other = document("https://a.example/", "https://b.example/keys");
        assert!(find(far, &other).unwrap_err().contains("another issuer"));
        let plain = document("https://a.example", "http://b.example/keys");
        assert!(find(far, &plain).unwrap_err().contains("isn't protected"));
        for bad in ["", "{}", "[]", "{\"issuer\": \"https://a.example\"}"] {
            assert!(find(far, bad).unwrap_err().contains("jwks_uri"), "{bad}");
        }
    }
}
