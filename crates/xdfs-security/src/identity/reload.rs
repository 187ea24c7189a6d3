//! A server's configuration that follows its files.

use std::fmt;
use std::fs::{self, Metadata};
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant, SystemTime};

use rustls::ServerConfig;
use xdfs_proto::fault::Fault;

use super::{ClientCertificates, Fingerprint, ServerIdentity, Timeliness, Validity};

/// Minimum interval between checks of the files.
const PERIOD: Duration = Duration::from_secs(1);

/// The TLS configuration of a server, reloaded when its certificate is renewed.
///
/// Open channels keep their configuration; new ones use [`current`](Self::current).
pub struct Reloading {
    chain: PathBuf,
    key: PathBuf,
    clients: ClientCertificates,
    state: Mutex<LoadedConfig>,
}

struct LoadedConfig {
    config: Arc<ServerConfig>,
    identity: Arc<ServerIdentity>,
    fingerprint: Fingerprint,
    validity: Option<Validity>,
    /// The last day, since 1970, on which the log said that it ends.
    warned_day: Option<i64>,
    stamps: [FileVersion; 2],
    /// Time of the last check of the files.
    looked: Instant,
}

impl Reloading {
    /// Loads the files. The parameters are those of [`ServerIdentity::from_pem`] and
    /// [`ServerIdentity::config`].
    ///
    /// # Errors
    /// Those of both functions.
    pub fn new(chain: PathBuf, key: PathBuf, clients: ClientCertificates) -> Result<Self, Fault> {
        // Before reading, so that a change in between is detected by the next check.
        let stamps = [FileVersion::of(&chain), FileVersion::of(&key)];
        let identity = ServerIdentity::from_pem(&chain, &key)?;
        let state = LoadedConfig {
            config: identity.config(clients.clone())?,
            fingerprint: identity.fingerprint(),
            validity: identity.validity(),
            identity: Arc::new(identity),
            warned_day: None,
            stamps,
            looked: Instant::now(),
        };
        Ok(Self {
            chain,
            key,
            clients,
            state: Mutex::new(state),
        })
    }

    /// The configuration for the next channel. At most once a second, checks the time, length and
    /// inode of both files, and reloads them after a change. A failure is logged once per change,
    /// and the old configuration stays in effect.
    #[must_use]
    pub fn current(&self) -> Arc<ServerConfig> {
        self.warn_of_end(SystemTime::now());
        self.current_at(Instant::now())
    }

    /// Says in the log, once a day, that the certificate ends soon or isn't valid.
    pub(super) fn warn_of_end(&self, now: SystemTime) {
        let seconds = now.duration_since(SystemTime::UNIX_EPOCH);
        let seconds = seconds.map_or(0, |since| since.as_secs().cast_signed());
        let mut state = self.state.lock().unwrap_or_else(PoisonError::into_inner);
        let day = Some(seconds / (24 * 3600));
        if state.warned_day == day {
            return;
        }
        if let Some(validity) = &state.validity
            && let Timeliness::EndsSoon(what) | Timeliness::Invalid(what) = validity.at(seconds)
        {
            let chain = self.chain.display();
            tracing::warn!(%chain, "the server needs a new certificate: {what}");
            state.warned_day = day;
        }
    }

    /// The fingerprint of the last configuration returned by [`current`](Self::current).
    #[must_use]
    pub fn fingerprint(&self) -> Fingerprint {
        self.state
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .fingerprint
    }

    /// The key and the certificate of the last configuration returned by
    /// [`current`](Self::current).
    #[must_use]
    pub fn loaded(&self) -> Arc<ServerIdentity> {
        let state = self.state.lock().unwrap_or_else(PoisonError::into_inner);
        Arc::clone(&state.identity)
    }

    /// The key and the certificate, read again.
    ///
    /// # Errors
    /// Those of [`ServerIdentity::from_pem`].
    pub fn identity(&self) -> Result<ServerIdentity, Fault> {
        ServerIdentity::from_pem(&self.chain, &self.key)
    }

    pub(super) fn current_at(&self, now: Instant) -> Arc<ServerConfig> {
        let mut state = self.state.lock().unwrap_or_else(PoisonError::into_inner);
        if now.saturating_duration_since(state.looked) >= PERIOD {
            state.looked = now;
            let stamps = [FileVersion::of(&self.chain), FileVersion::of(&self.key)];
            if stamps != state.stamps {
                // Also if loading fails: the next attempt follows the next change, not a second
                // later.
                state.stamps = stamps;
                self.load(&mut state);
            }
        }
        Arc::clone(&state.config)
    }

    fn load(&self, state: &mut LoadedConfig) {
        let loaded = ServerIdentity::from_pem(&self.chain, &self.key).and_then(|identity| {
            let config = identity.config(self.clients.clone())?;
            Ok((identity, config))
        });
        match loaded {
            Ok((identity, config)) => {
                let fingerprint = identity.fingerprint();
                state.validity = identity.validity();
                state.warned_day = None;
                tracing::info!(%fingerprint, "the server's certificate was loaded again");
                state.fingerprint = fingerprint;
                state.identity = Arc::new(identity);
                state.config = config;
            }
            Err(fault) => {
                tracing::warn!(
                    %fault,
                    hint = fault.hint,
                    "the server's certificate changed and can't be loaded; the old one stays"
                );
            }
        }
    }
}

impl fmt::Debug for Reloading {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Reloading")
            .field("chain", &self.chain)
            .field("key", &self.key)
            .finish_non_exhaustive()
    }
}

/// Distinguishes versions of a file; `None` if it can't be read.
#[derive(PartialEq, Eq)]
struct FileVersion(Option<(u64, Option<SystemTime>, u64)>);

impl FileVersion {
    fn of(path: &Path) -> Self {
        Self(
            fs::metadata(path)
                .ok()
                .map(|m| (m.len(), m.modified().ok(), inode(&m))),
        )
    }
}

/// A renewed certificate often has the length of the old one and, with a coarse clock, the same
/// time.
#[cfg(unix)]
fn inode(metadata: &Metadata) -> u64 {
    std::os::unix::fs::MetadataExt::ino(metadata)
}

#[cfg(not(unix))]
fn inode(_metadata: &Metadata) -> u64 {
    0
}
