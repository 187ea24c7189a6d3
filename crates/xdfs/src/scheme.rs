//! Kinds of places on servers, by the schemes of their URLs.
//!
//! A kind is one value of [`Scheme`], which is entered in the [registry](crate::register_scheme).
//! Callers ask that value for the properties of its places, and never which one it is.

use std::any::Any;
use std::fmt;
use std::net::SocketAddr;
use std::path::PathBuf;
use std::sync::{Arc, Weak};

use xdfs_proto::Fault;
use xdfs_store::{Place, Traits};

use crate::security::{ClientSecurity, Level};

/// A kind of places, all with URLs of one scheme: `NAME://[user@]host[:port]/path`.
pub trait Scheme: Send + Sync + fmt::Debug {
    /// The name, in lower case, that URLs begin with.
    fn name(&self) -> &'static str;

    /// The traits of all of its places.
    fn traits(&self) -> Traits;

    /// The port of a URL without one; `None` if it has no default, and is left to
    /// [`Self::opening`].
    fn port(&self) -> Option<u16>;

    /// Where paths of URLs begin.
    fn paths(&self) -> Paths;

    /// How users log in.
    fn login(&self) -> LoginBy;

    /// Checks the names of the host and the user in a URL.
    ///
    /// # Errors
    /// Why they can't be used, as the cause of a fault.
    fn check_names(&self, host: &str, user: Option<&str>) -> Result<(), String> {
        let _ = (host, user);
        Ok(())
    }

    /// Checks that sessions with the server of this address can have a level of protection, before
    /// anything is sent.
    ///
    /// # Errors
    /// They can't.
    fn check_level(&self, level: Level, address: &str) -> Result<(), Fault>;

    /// Whether its places are the files of this machine: faults name no server then.
    fn is_here(&self) -> bool {
        false
    }

    /// How sessions with its servers begin.
    fn opening(&self) -> Opening<'_>;
}

/// The beginning of sessions with servers of a scheme.
#[derive(Clone, Copy, Debug)]
pub enum Opening<'a> {
    /// The servers speak another protocol, whose client is a place. Each session has one.
    Place(&'a dyn OpenPlace),
    /// The servers speak xDFS, and are started or found before a client connects to them.
    Server(&'a dyn StartServer),
}

/// A scheme whose servers speak another protocol.
pub trait OpenPlace: fmt::Debug {
    /// A place on a server, to which nothing is connected before [`Place::connect`].
    ///
    /// # Errors
    /// Sessions can't be protected as asked, or a file of the user can't be used.
    fn open(&self, request: &PlaceRequest<'_>) -> Result<Arc<dyn Place>, Fault>;
}

/// A scheme whose servers speak xDFS.
pub trait StartServer: fmt::Debug {
    /// Starts the server, or finds the running one.
    ///
    /// # Errors
    /// Sessions can't be protected as asked, or the server can't be started or reached.
    fn start(&self, request: &PlaceRequest<'_>) -> Result<Arc<dyn StartedServer>, Fault>;
}

/// A server of xDFS that was started for its clients: it runs as long as they hold this value.
pub trait StartedServer: Send + Sync + fmt::Debug {
    /// The way by which sessions reach it.
    fn route(&self) -> ServerRoute;

    /// Trust in this server, and the credentials for it.
    fn security(&self) -> &ClientSecurity;

    /// The path at the server, with one in the directory of the login made absolute.
    fn absolute(&self, path: &[u8]) -> Vec<u8>;

    /// Has `sessions` stopped if the server ends before them.
    fn watch_over(&self, sessions: Weak<dyn Stop>);
}

/// The way to a server that was started.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ServerRoute {
    /// Its port.
    Socket(SocketAddr),
    /// A Unix socket on this machine.
    Unix(PathBuf),
}

/// Sessions with a server that was started.
pub trait Stop: Send + Sync {
    /// Ends them at once.
    fn stop(&self);
}

/// Where the paths of URLs begin.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Paths {
    /// At the root.
    Root,
    /// In the directory of the login, and those with two slashes at the root (RFC 1738, section
    /// 3.2.2).
    Login,
    /// At the root, and those after `/~` in the directory of the login, which no path at all is
    /// itself.
    RootOrHome,
}

/// How users log in to servers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LoginBy {
    /// They don't.
    Nothing,
    /// By a password that is sent unencrypted, as everything else: a URL may have it too.
    ClearPassword,
    /// By a password over protected connections.
    Password,
    /// By a certificate or a proxy.
    Certificate,
    /// ssh logs in, and knows the hosts.
    Ssh,
}

/// A server to connect to, and how.
#[derive(Clone, Copy)]
pub struct PlaceRequest<'a> {
    /// The server, as messages name it.
    pub address: &'a str,
    /// The host of the URL.
    pub host: &'a str,
    /// The port of the URL, or that of the scheme.
    pub port: Option<u16>,
    /// The user of the URL.
    pub user: Option<&'a str>,
    /// The password of the URL.
    pub password: Option<&'a str>,
    /// Trust in servers, and the user's credentials; `None` for sessions without protection.
    pub security: Option<&'a ClientSecurity>,
    /// The channels that the user asks for.
    pub channels: Option<u32>,
    /// Settings of this and of other schemes.
    pub settings: &'a PlaceSettings,
}

impl fmt::Debug for PlaceRequest<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("PlaceRequest")
            .field("address", &self.address)
            .field("user", &self.user)
            .field("password", &self.password.map(|_| "..."))
            .finish_non_exhaustive()
    }
}

/// A registered scheme. Two are equal if they have the same name.
#[derive(Clone, Copy)]
pub struct RegisteredScheme(&'static dyn Scheme);

impl RegisteredScheme {
    /// Only those of the registry are passed around.
    pub(crate) const fn new(scheme: &'static dyn Scheme) -> Self {
        Self(scheme)
    }

    /// Whether its servers speak xDFS.
    #[must_use]
    pub fn speaks_xdfs(&self) -> bool {
        matches!(self.opening(), Opening::Server(_))
    }

    /// The scheme itself.
    #[cfg(test)]
    pub(crate) fn inner(self) -> &'static dyn Scheme {
        self.0
    }
}

impl std::ops::Deref for RegisteredScheme {
    type Target = dyn Scheme + 'static;

    fn deref(&self) -> &Self::Target {
        self.0
    }
}

impl PartialEq for RegisteredScheme {
    fn eq(&self, other: &Self) -> bool {
        self.name() == other.name()
    }
}

impl Eq for RegisteredScheme {}

impl fmt::Debug for RegisteredScheme {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

/// Settings of a scheme, in a type of its own.
pub trait PlaceSetting: Any + Send + Sync + fmt::Debug {}

impl<T: Any + Send + Sync + fmt::Debug> PlaceSetting for T {}

/// The settings of schemes, at most one value of each type. Cheap to clone.
#[derive(Clone, Debug, Default)]
pub struct PlaceSettings(Vec<Arc<dyn PlaceSetting>>);

impl PlaceSettings {
    /// The same settings with this value, in place of an earlier one of its type.
    #[must_use]
    pub fn with<T: PlaceSetting>(mut self, value: T) -> Self {
        self.0.retain(|own| cast::<T>(own).is_none());
        self.0.push(Arc::new(value));
        self
    }

    /// The value of a type.
    #[must_use]
    pub fn get<T: PlaceSetting>(&self) -> Option<&T> {
        self.0.iter().find_map(cast)
    }

    /// The value of a type, or its default.
    #[must_use]
    pub fn get_or_default<T: PlaceSetting + Clone + Default>(&self) -> T {
        self.get().cloned().unwrap_or_default()
    }
}

fn cast<T: PlaceSetting>(setting: &Arc<dyn PlaceSetting>) -> Option<&T> {
    // The value and not the pointer, which is a setting by the blanket implementation too.
    let value: &dyn PlaceSetting = &**setting;
    let value: &dyn Any = value;
    value.downcast_ref()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn settings_have_one_value_of_each_type() {
        let settings = PlaceSettings::default();
        assert_eq!(settings.get::<u32>(), None);
        let settings = settings.with(1_u32).with("a".to_owned()).with(2_u32);
        assert_eq!(settings.get::<u32>(), Some(&2));
        assert_eq!(settings.get_or_default::<String>(), "a");
        assert_eq!(settings.get_or_default::<u64>(), 0);
        assert_eq!(settings.0.len(), 2);
    }
}
