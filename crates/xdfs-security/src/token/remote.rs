//! Keys of an issuer that come from its web server.
//!
//! What is decided here is which keys are at hand and when others are due; somebody else fetches
//! them ([`KeyFetch`]). Tokens never wait for that: they are checked by the keys at hand.

use std::fmt;
use std::path::{Path, PathBuf};
use std::sync::mpsc::{Receiver, RecvTimeoutError, SyncSender, sync_channel};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use serde::Deserialize;
use xdfs_proto::{Code, Fault};

use super::keys::KeySet;
use super::url::KeyUrl;

/// The largest set of keys, and the largest document that says where they are, in bytes.
pub const MAX_FETCHED_BYTES: u64 = 1024 * 1024;
/// Seconds for which keys are fresh if the issuer doesn't say.
const FRESH_S: i64 = 3600;
/// The least and the most that an issuer may say.
const FRESH_BOUNDS_S: (i64, i64) = (300, 24 * 3600);
/// For so many seconds keys that aren't fresh any more are used, while no others can be fetched.
const STALE_S: i64 = 24 * 3600;
/// Seconds between two fetches, whatever tokens come. After failures it doubles.
const PAUSE_S: i64 = 30;
/// The longest pause after failures.
const PAUSE_MAX_S: i64 = 300;

/// Where keys come from.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum KeySource {
    /// The address of the set of keys.
    Keys(KeyUrl),
    /// The address of the document of the issuer that has the address of its keys (OpenID Connect
    /// Discovery 1.0, section 4).
    Discovery(KeyUrl),
}

/// The keys at hand.
pub(super) struct RemoteKeys {
    shared: Arc<Shared>,
    /// Wakes who fetches; its end tells that nobody needs keys any more.
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
    /// When `keys` came.
    fetched: i64,
    /// For how long they are fresh.
    fresh_s: i64,
    /// When the last fetch began; none before the first.
    attempted: Option<i64>,
    /// Fetches that failed since the last that did not.
    failures: u32,
    /// Whether a token came, since the last fetch began, whose key isn't at hand.
    key_missing: bool,
}

impl RemoteKeys {
    /// Without keys yet; and what fetches them.
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

    /// A token came whose key isn't at hand: fetches them again, but not too often.
    pub(super) fn request_fetch(&self) {
        let was_wished = std::mem::replace(&mut self.shared.state().key_missing, true);
        if !was_wished {
            // A channel that is full wakes as well.
            let _ = self.wake.try_send(());
        }
    }
}

impl Shared {
    fn state(&self) -> MutexGuard<'_, FetchState> {
        // The state is whole at every point where a panic could come.
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// The work of fetching the keys of one issuer, for a thread that may wait.
///
/// Its owner asks [`due_in`](Self::due_in), waits so long by [`wait`](Self::wait), and when nothing
/// is left to wait says [`begin`](Self::begin), fetches from [`source`](Self::source), and tells by
/// [`store`](Self::store) or [`failed`](Self::failed) what came of it. Times are in seconds since
/// 1970.
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

    /// Where its keys are.
    #[must_use]
    pub fn source(&self) -> &KeySource {
        &self.shared.source
    }

    /// The file (PEM) of the authorities that vouch for its web server; none for those of the
    /// system.
    #[must_use]
    pub fn authorities(&self) -> Option<&Path> {
        self.shared.authorities.as_deref()
    }

    /// How long it is until the next fetch; zero if it is due.
    #[must_use]
    pub fn due_in(&self, now_unix: i64) -> Duration {
        let state = self.shared.state();
        let due = match state.attempted {
            None => now_unix,
            // The clock was set back, so that no time from before it has a meaning.
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

    /// Waits so long, or until a token comes whose key isn't at hand. False when nobody needs the
    /// keys any more.
    #[must_use]
    pub fn wait(&self, longest: Duration) -> bool {
        self.woken.recv_timeout(longest) != Err(RecvTimeoutError::Disconnected)
    }

    /// A fetch begins now.
    pub fn begin(&self, now_unix: i64) {
        let mut state = self.shared.state();
        state.attempted = Some(now_unix);
        state.key_missing = false;
    }

    /// Takes a set of keys (RFC 7517) in place of those of before it. `max_age_s` is for how long
    /// the issuer says that it is fresh; between 5 minutes and a day it is believed.
    ///
    /// # Errors
    /// `InvalidArgument` if it isn't one, or over 1 MiB; the keys of before it stay then, as after
    /// [`failed`](Self::failed).
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

    /// The fetch failed. The keys stay for a day after they have stopped being fresh.
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

/// The address of keys in the document of `issuer` that came from `from` (OpenID Connect Discovery
/// 1.0, section 4.3).
///
/// # Errors
/// `InvalidArgument` if it isn't such a document, is over 1 MiB, belongs to another issuer, or
/// leads to an address that [`KeyUrl`] doesn't take or that is less protected than `from`.
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
    // What came protected doesn't lead to what isn't, and what is elsewhere not to this machine.
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
        // And is believed again when it comes back.
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
        // One while a fetch is under way counts for the next.
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
