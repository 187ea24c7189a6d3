//! The outcome of checking a server.

use std::path::{Path, PathBuf};
use std::sync::{Mutex, MutexGuard, PoisonError};

use xdfs_proto::fault::Fault;

use super::{KnownHosts, fault};
use crate::identity::Fingerprint;

/// Maximum number of keys of concurrent handshakes. Beyond it, the oldest is dropped, and its
/// handshake fails.
const CANDIDATES_MAX: usize = 64;

/// Why a server is trusted or refused.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum TrustReason {
    /// An authority vouches for its name.
    Authority,
    /// It is unknown, and new hosts are accepted. [`TrustOutcome::commit`] remembers the key.
    FirstUse(Fingerprint),
    /// Its key is in the known hosts file.
    Known,
    /// The user pinned its key.
    Pinned,
    /// It is refused.
    Refused(Fault),
}

/// The outcome for all channels of one configuration.
#[derive(Debug)]
pub struct TrustOutcome {
    host: String,
    known_hosts: PathBuf,
    state: Mutex<CheckState>,
}

#[derive(Debug, Default)]
struct CheckState {
    /// Accepted certificates for whose keys there is no proof yet.
    candidates: Vec<(Fingerprint, TrustReason)>,
    /// The key that the server proved to have.
    proved: Option<(Fingerprint, TrustReason)>,
    /// The outcome of the last check.
    last: Option<TrustReason>,
}

impl TrustOutcome {
    pub(super) fn new(host: String, known_hosts: PathBuf) -> Self {
        Self {
            host,
            known_hosts,
            state: Mutex::default(),
        }
    }

    /// The server, as in the known hosts file.
    #[must_use]
    pub fn host(&self) -> &str {
        &self.host
    }

    /// The known hosts file.
    #[must_use]
    pub fn known_hosts(&self) -> &Path {
        &self.known_hosts
    }

    /// The outcome of the last full handshake; `None` before the first. Resumed sessions don't
    /// change it. If several channels are being opened, a failed one gets its own reason from
    /// [`client_fault`](super::client_fault).
    #[must_use]
    pub fn reason(&self) -> Option<TrustReason> {
        self.state().last.clone()
    }

    /// The key that the server proved to have.
    #[must_use]
    pub fn fingerprint(&self) -> Option<Fingerprint> {
        self.state().proved.as_ref().map(|(shown, _)| *shown)
    }

    /// Writes the key of a first use to the known hosts file, and returns whether it was new there.
    /// To be called when a handshake is complete; without a proven first use, or at a second call,
    /// it does nothing.
    ///
    /// # Errors
    /// Those of [`KnownHosts::add`]; `ServerUntrusted` if another process has recorded another key
    /// for the host in the meantime.
    pub fn commit(&self) -> Result<bool, Fault> {
        let first = match &self.state().proved {
            Some((_, TrustReason::FirstUse(shown))) => *shown,
            _ => return Ok(false),
        };
        KnownHosts::load(&self.known_hosts)?.add_first(&self.host, first)
    }

    /// Whether the server has proved a key that was trusted before.
    #[must_use]
    pub fn is_known(&self) -> bool {
        let state = self.state();
        state
            .proved
            .as_ref()
            .is_some_and(|(_, reason)| !is_first(reason))
    }

    /// Accepts a certificate, subject to proof of its key.
    pub(super) fn consider(&self, shown: Fingerprint, reason: TrustReason) {
        let mut state = self.state();
        state.candidates.retain(|(other, _)| *other != shown);
        if state.candidates.len() >= CANDIDATES_MAX {
            state.candidates.remove(0);
        }
        state.candidates.push((shown, reason));
    }

    /// Records the proof of a certificate's key. With a first use, all channels must present one
    /// key: otherwise a man in the middle could take some of them over.
    pub(super) fn prove(&self, shown: Fingerprint) -> Result<(), Fault> {
        let mut state = self.state();
        let reason = state
            .candidates
            .iter()
            .find(|(other, _)| *other == shown)
            .map(|(_, reason)| reason.clone());
        let result = match (reason, &state.proved) {
            (None, _) => Err(fault::unknown(&self.host, shown)),
            (Some(reason), Some((before, reason_before)))
                if *before != shown && (is_first(&reason) || is_first(reason_before)) =>
            {
                Err(fault::inconsistent(&self.host, shown, *before))
            }
            (Some(reason), _) => Ok(reason),
        };
        match result {
            Ok(reason) => {
                state.last = Some(reason.clone());
                state.proved = Some((shown, reason));
                Ok(())
            }
            Err(fault) => {
                state.last = Some(TrustReason::Refused(fault.clone()));
                Err(fault)
            }
        }
    }

    pub(super) fn refuse(&self, fault: Fault) {
        self.state().last = Some(TrustReason::Refused(fault));
    }

    fn state(&self) -> MutexGuard<'_, CheckState> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

fn is_first(reason: &TrustReason) -> bool {
    matches!(reason, TrustReason::FirstUse(_))
}
