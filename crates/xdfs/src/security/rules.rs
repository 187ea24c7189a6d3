//! The rules of a server as they are now: all of its doors ask them.

use std::path::PathBuf;
use std::sync::{Arc, PoisonError, RwLock};

use rustls::ServerConfig;
use xdfs_access::{Access, CurrentAccess, Ongoing, Parts, StoreLayer, Tickets};
use xdfs_proto::Fault;
use xdfs_security::export::Exports;
use xdfs_security::identity::{Fingerprint, Reloading, ServerIdentity};
use xdfs_security::third_party::ThirdPartyRules;
use xdfs_security::tunnel::TunnelRules;

use super::settings::ServerSecurity;

/// The rules in use; [`reload`](Self::reload) replaces them.
#[derive(Debug)]
pub(crate) struct CurrentRules(RwLock<Arc<Rules>>);

#[derive(Debug)]
struct Rules {
    takes_clear: bool,
    access: Arc<Access>,
    exports: Exports,
    identity: Reloading,
}

/// The rules about other machines that users reach through a server.
#[derive(Clone, Debug, Default)]
pub(crate) struct Reach {
    /// The targets of tunnels.
    pub(crate) tunnels: TunnelRules,
    /// Servers to copy files with.
    pub(crate) third_party: ThirdPartyRules,
}

impl Reach {
    fn give(self, parts: &mut Parts) {
        parts.tunnels = self.tunnels;
        parts.third_party = self.third_party;
    }
}

impl CurrentRules {
    /// Loads or creates the files of the settings. `root` is served if there are no exports,
    /// restricted by `read_only`.
    pub(crate) fn new(
        settings: ServerSecurity,
        root: PathBuf,
        read_only: bool,
        reach: Reach,
    ) -> Result<Self, Fault> {
        let takes_clear = settings.takes_clear;
        let (mut parts, identity) = settings.load(root, read_only)?;
        reach.give(&mut parts);
        let exports = parts.exports.clone();
        Ok(Self(RwLock::new(Arc::new(Rules {
            takes_clear,
            access: Arc::new(Access::new(parts)?),
            exports,
            identity,
        }))))
    }

    fn rules(&self) -> Arc<Rules> {
        // It is replaced in one step, so a panic elsewhere leaves it consistent.
        Arc::clone(&self.0.read().unwrap_or_else(PoisonError::into_inner))
    }

    /// What is served now.
    pub(crate) fn exports(&self) -> Exports {
        self.rules().exports.clone()
    }

    /// Uses other settings from now on, with the folder and the audit log of before. Sessions stay
    /// as they are: their [`Standing`](xdfs_access::Standing)s say which ones the new settings
    /// admit.
    ///
    /// # Errors
    /// The settings can't be used. The old ones stay in effect.
    pub(crate) fn reload(
        &self,
        mut settings: ServerSecurity,
        root: PathBuf,
        read_only: bool,
        reach: Reach,
    ) -> Result<(), Fault> {
        settings.audit = None;
        let takes_clear = settings.takes_clear;
        let (mut parts, identity) = settings.load(root, read_only)?;
        reach.give(&mut parts);
        let exports = parts.exports.clone();
        let access = self.rules().access.renewed(parts)?;
        let renewed = Arc::new(Rules {
            takes_clear,
            access: Arc::new(access),
            exports,
            identity,
        });
        *self.0.write().unwrap_or_else(PoisonError::into_inner) = renewed;
        Ok(())
    }

    /// Fingerprint of the server's key.
    pub(crate) fn fingerprint(&self) -> Fingerprint {
        self.rules().identity.fingerprint()
    }

    /// Lays something over the stores of all users.
    pub(crate) fn lay(&self, layer: Arc<dyn StoreLayer>) {
        self.rules().access.lay(layer);
    }

    /// Issues tickets.
    pub(crate) fn tickets(&self) -> Tickets {
        self.rules().access.tickets()
    }

    /// The calls of file systems that are going on.
    pub(crate) fn ongoing(&self) -> Arc<Ongoing> {
        self.rules().access.ongoing()
    }
}

impl CurrentAccess for CurrentRules {
    fn access(&self) -> Arc<Access> {
        Arc::clone(&self.rules().access)
    }

    fn takes_clear(&self) -> bool {
        self.rules().takes_clear
    }

    fn tls(&self) -> Arc<ServerConfig> {
        self.rules().identity.current()
    }

    fn signer(&self) -> Arc<ServerIdentity> {
        self.rules().identity.loaded()
    }

    fn identity(&self) -> Result<ServerIdentity, Fault> {
        self.rules().identity.identity()
    }
}
