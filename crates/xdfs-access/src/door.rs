//! A door: one of the protocols by which a server is reached.
//!
//! ```text
//!  Door (settings) --check--> Findings, addresses
//!                  --open---> OpenDoor { addresses, run, control }
//!                                                       control: reload, review, drain
//! ```
//!
//! A server treats all of its doors alike, its own protocol's among them. They share users, rights,
//! quotas, limits and the audit log by one [`Admit`].

use std::any::Any;
use std::fmt;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use xdfs_proto::Fault;
use xdfs_store::tally::Tally;

use crate::admit::Admit;
use crate::door_address::{DoorAddress, HostPort};
use crate::findings::Findings;
use crate::site::Site;

/// One of the protocols by which a server is reached, with its settings.
pub trait Door: Any + Send + Sync + fmt::Debug {
    /// Name of the door: that of its table in a settings file, and in the audit log, where the one
    /// of xDFS is empty.
    fn name(&self) -> &'static str;

    /// Name of the protocol for people, as in `GridFTP on 127.0.0.1:2811`.
    fn title(&self) -> &'static str;

    /// The hosts and ports of its settings, as they are written there.
    fn listens(&self) -> Vec<HostPort>;

    /// The files and directories of its settings that must not be served: they hold secrets, or are
    /// trusted.
    fn private(&self) -> Vec<&Path>;

    /// Checks the settings as [`open`](Self::open) would, and reads all files that they name.
    /// Creates nothing and opens no port. Returns the addresses at which it would listen.
    fn check(&self, site: &Site, findings: &mut Findings) -> Vec<DoorAddress>;

    /// Listens. Peers are served once [`OpenDoor::run`] is called.
    ///
    /// # Errors
    /// An address can't be used, or the settings can't.
    fn open(&self, site: &Site, admit: Admit) -> Result<OpenDoor, Fault>;
}

/// A door that listens.
pub struct OpenDoor {
    /// The addresses, with their actual ports.
    pub addresses: Vec<String>,
    /// Reloads its settings, or drains it, from other threads.
    pub control: Arc<dyn DoorControl>,
    /// Serves, in the thread that calls it, until the door is drained.
    pub run: Box<dyn FnOnce() -> Result<(), Fault> + Send>,
}

/// Reloads the settings of an open door, or drains it, from other threads. It doesn't keep the
/// [`Admit`] of the door, so that the audit log is complete when the door ends.
pub trait DoorControl: Send + Sync + fmt::Debug {
    /// Takes what it can from the settings of the same door as they are now, which a server has
    /// checked. Returns the names of those that differ from the settings of the open door and take
    /// effect at its next start only.
    fn reload(&self, door: &dyn Door) -> Vec<&'static str>;

    /// Ends the sessions and tunnels of users whom the rules don't admit any more, with no less
    /// than they have. A server calls it when it has renewed its rules, whether or not the new
    /// settings have this door.
    fn review(&self) -> Ended;

    /// The figures of the sessions, for metrics; `None` if there are none, or the door has closed.
    fn tally(&self) -> Option<Arc<Tally>>;

    /// Accepts no more sessions. Idle ones end at once, others when they are done, and at the
    /// latest after `grace`, in a resumable state. May be called again with less time.
    fn drain(&self, grace: Duration);
}

/// The result of [`DoorControl::review`].
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Ended {
    /// Number of sessions that were ended.
    pub sessions: usize,
    /// Number of tunnels that were ended.
    pub tunnels: usize,
}

impl dyn Door {
    /// The settings of a door of a known kind.
    #[must_use]
    pub fn downcast_ref<D: Door>(&self) -> Option<&D> {
        (self as &dyn Any).downcast_ref()
    }
}

impl fmt::Debug for OpenDoor {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("OpenDoor")
            .field("addresses", &self.addresses)
            .finish_non_exhaustive()
    }
}
