//! The settings of GridFTP at a server, and the door that they open.

#[cfg(unix)]
use std::net::IpAddr;
use std::net::{Ipv4Addr, TcpListener};
use std::ops::RangeInclusive;
#[cfg(unix)]
use std::os::fd::OwnedFd;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use xdfs_access::{
    Admit, Door, DoorAddress, DoorControl, Ended, Findings, HostPort, OpenDoor, Site, SystemClock,
};
use xdfs_proto::{Code, Fault};
use xdfs_security::grid::GridMapFile;
use xdfs_security::identity::{Fingerprint, Validity, read_certificates};
use xdfs_security::trust::mutual_client;
use xdfs_store::tally::Tally;
#[cfg(unix)]
use xdfs_store::{LocalStore, ServerStore};

use super::{DOOR, NodePeer, Options, Role, Sessions, SessionsConfig, SessionsControl};
use crate::node::{ALPN, NODE_PORT, NODES_MAX};

/// The port of GridFTP.
pub const GRIDFTP_PORT: u16 = 2811;
/// The protocol, for people.
const TITLE: &str = "GridFTP";

/// Reads the address of a server of GridFTP: `HOST`, `HOST:PORT`, `IPV6` or `[IPV6]:PORT`.
///
/// # Errors
/// [`Code::InvalidArgument`]: it is none.
pub fn server_address(text: &str) -> Result<HostPort, Fault> {
    HostPort::read(text, TITLE, GRIDFTP_PORT)
}

/// Reads the address of a data node, whose default port is another one.
///
/// # Errors
/// [`Code::InvalidArgument`]: it is none.
pub fn node_address(text: &str) -> Result<HostPort, Fault> {
    HostPort::read(text, TITLE, NODE_PORT)
}

/// Settings of GridFTP. Users, exports, rights, quotas, limits and the audit log are those of the
/// server, and so is its certificate for TLS. Without TLS users can only be anonymous: they reach
/// public exports, or at a server without users, where there is no TLS, what is served to
/// everybody.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct GridftpSettings {
    /// Where to listen for control connections.
    pub listen: HostPort,
    /// Ports of passive data connections; `None` for any free one.
    pub ports: Option<RangeInclusive<u16>>,
    /// The IPv4 address that clients get for passive data connections, if a translation of
    /// addresses stands between; `None` for the one at which they reached the server.
    pub address: Option<Ipv4Addr>,
    /// Data connections may go to, and come from, other hosts than the client's, as transfers
    /// between two servers need it.
    pub third_party: bool,
    /// Every control connection has to be protected by TLS before anybody logs in, anonymous users
    /// included.
    pub requires_tls: bool,
    /// Protected data connections have to resume the TLS session of their control connection, which
    /// proves that they are of the same client. Not every client does it.
    pub requires_resumption: bool,
    /// The data nodes, which send and take files in MODE E in place of this server.
    pub nodes: Vec<GridftpNode>,
    /// The files of GSI, with which clients prove by certificates and proxies who they are; `None`
    /// for no GSI.
    pub gsi: Option<GsiFiles>,
}

/// A data node of a server: `docs/gridftp/data-node.md`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct GridftpNode {
    /// The address on which it listens for control links.
    pub address: HostPort,
    /// Its key.
    pub key: Fingerprint,
}

/// The files of GSI. But for the grid map they are read for each session.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct GsiFiles {
    /// The certificate of the host, and those between it and its authority (PEM).
    pub certificate: PathBuf,
    /// Its key (PEM), which only its owner may read.
    pub key: PathBuf,
    /// The directory of authorities (`HASH.0`), with signing policies and lists of revoked
    /// certificates.
    pub authorities: PathBuf,
    /// The grid map; left out where the server has one for client certificates. The server's rules
    /// have to have it.
    pub grid_map: Option<PathBuf>,
    /// Limited proxies are taken, as Globus takes them for moving files.
    pub takes_limited: bool,
}

impl GsiFiles {
    /// Checks that they can be used.
    ///
    /// # Errors
    /// One can't, or this program is built without GSI.
    fn check(&self) -> Result<(), Fault> {
        #[cfg(feature = "gsi")]
        {
            self.host().load().map(drop)
        }
        #[cfg(not(feature = "gsi"))]
        {
            let cause = "this program is built without GSI";
            let fault = Fault::new(Code::Unsupported, "set up GSI", cause);
            Err(fault.hint("build it with `--features gsi`, or leave out [gridftp.gsi]"))
        }
    }

    /// Checks that users of certificates have one grid map, and that there are users.
    ///
    /// # Errors
    /// They don't, or there are none.
    fn check_users(&self, site: &Site) -> Result<(), Fault> {
        let refused =
            |cause: &str| Fault::new(Code::InvalidArgument, "read the configuration", cause);
        if !site.has_users {
            let cause = "[gridftp.gsi] is for users who log in, and there are none here";
            return Err(refused(cause).hint("leave out either [gridftp.gsi] or --insecure"));
        }
        if self.grid_map.is_some() == site.has_client_certificates {
            return Err(refused(
                "users of certificates have one grid map: that of [client_certificates] if there \
                 is one, and else that of [gridftp.gsi]",
            ));
        }
        Ok(())
    }

    #[cfg(feature = "gsi")]
    fn host(&self) -> super::GsiHost {
        super::GsiHost {
            certificate: self.certificate.clone(),
            key: self.key.clone(),
            authorities: self.authorities.clone(),
            takes_limited: self.takes_limited,
        }
    }
}

impl Default for GridftpSettings {
    fn default() -> Self {
        Self {
            listen: HostPort {
                host: "127.0.0.1".into(),
                port: GRIDFTP_PORT,
            },
            ports: None,
            address: None,
            third_party: false,
            requires_tls: false,
            requires_resumption: false,
            nodes: Vec::new(),
            gsi: None,
        }
    }
}

impl GridftpSettings {
    /// Checks that what is required of TLS can be had: the server has a certificate.
    ///
    /// # Errors
    /// It can't.
    fn check_tls(&self, site: &Site) -> Result<(), Fault> {
        if site.has_users || !(self.requires_tls || self.requires_resumption) {
            return Ok(());
        }
        let cause = "TLS is required of clients, and the server has no certificate";
        let fault = Fault::new(Code::InvalidArgument, "serve GridFTP", cause);
        Err(fault.hint("leave out either --insecure or what [gridftp] says of TLS"))
    }

    /// Checks that data nodes can be used: the server has a key, and does everything as its own
    /// user.
    ///
    /// # Errors
    /// They can't.
    fn check_nodes(&self, site: &Site) -> Result<(), Fault> {
        let refused = |cause: &str| Fault::new(Code::InvalidArgument, "use data nodes", cause);
        if self.nodes.is_empty() {
            return Ok(());
        }
        if !site.has_users {
            let cause = "there are no logins with --insecure";
            return Err(refused(cause).hint("leave out either --insecure or [[gridftp.node]]"));
        }
        if site.has_accounts {
            let cause = "they can't act as the accounts of [accounts]";
            return Err(refused(cause).hint("leave out either [accounts] or [[gridftp.node]]"));
        }
        if self.nodes.len() > NODES_MAX {
            return Err(refused(&format!("there may be {NODES_MAX} of them")));
        }
        let is_twice = |(at, node): &(usize, &GridftpNode)| {
            let mut earlier = self.nodes[..*at].iter();
            earlier.any(|own| own.address == node.address)
        };
        match self.nodes.iter().enumerate().find(is_twice) {
            Some((_, node)) => Err(refused(&format!("{} is there twice", node.address))),
            None => Ok(()),
        }
    }

    /// The data nodes, with TLS to each.
    ///
    /// # Errors
    /// The server's key can't be read.
    fn peers(&self, admit: &Admit) -> Result<Vec<NodePeer>, Fault> {
        let (Admit::Guarded(current), false) = (admit, self.nodes.is_empty()) else {
            return Ok(Vec::new());
        };
        let identity = current.identity()?;
        let peer = |node: &GridftpNode| {
            Ok(NodePeer {
                address: node.address.to_string(),
                tls: mutual_client(&identity, node.key, ALPN)?,
            })
        };
        self.nodes.iter().map(peer).collect()
    }

    /// Checks that the settings fit each other and the server.
    ///
    /// # Errors
    /// They don't.
    fn check_all(&self, site: &Site) -> Result<(), Fault> {
        self.check_tls(site)?;
        self.check_nodes(site)?;
        let Some(gsi) = &self.gsi else { return Ok(()) };
        gsi.check_users(site)?;
        gsi.check()
    }
}

impl Door for GridftpSettings {
    fn name(&self) -> &'static str {
        DOOR
    }

    fn title(&self) -> &'static str {
        TITLE
    }

    fn listens(&self) -> Vec<HostPort> {
        vec![self.listen.clone()]
    }

    fn private(&self) -> Vec<&Path> {
        let Some(gsi) = &self.gsi else {
            return Vec::new();
        };
        let mut private = vec![gsi.certificate.as_path(), &gsi.key, &gsi.authorities];
        private.extend(gsi.grid_map.as_deref());
        private
    }

    fn check(&self, site: &Site, findings: &mut Findings) -> Vec<DoorAddress> {
        let addresses = findings.note(DOOR, 0, self.listen.addresses(TITLE, site));
        findings.note("gridftp.tls", 0, self.check_tls(site));
        findings.note("gridftp.node", 0, self.check_nodes(site));
        if let Some(gsi) = &self.gsi {
            const SETTING: &str = "gridftp.gsi";
            let users = findings.note(SETTING, 0, gsi.check_users(site));
            if users.is_some() {
                findings.note(SETTING, 0, gsi.check());
                let chain = read_certificates(&gsi.certificate).ok();
                let validity = chain.as_deref().and_then(Validity::of);
                findings.check_time(DOOR, &gsi.certificate, validity);
            }
            if let Some(map) = &gsi.grid_map {
                findings.note("gridftp.gsi.grid_map", 0, GridMapFile::open(map));
            }
        }
        let addresses = addresses.unwrap_or_default().into_iter();
        addresses.map(|at| DoorAddress::tcp(DOOR, at)).collect()
    }

    fn open(&self, site: &Site, admit: Admit) -> Result<OpenDoor, Fault> {
        self.check_all(site)?;
        let nodes = self.peers(&admit)?;
        let listeners = self.listen.listen(TITLE, site)?;
        let fault = |error| Fault::from_io("listen for GridFTP", "", &error);
        let addresses = listeners.iter().map(TcpListener::local_addr);
        let addresses = addresses.map(|address| address.map(|address| address.to_string()));
        let addresses = addresses.collect::<Result<_, _>>().map_err(fault)?;
        let options = Options {
            ports: self.ports.clone(),
            address: self.address,
            third_party: self.third_party,
            requires_tls: self.requires_tls,
            requires_resumption: self.requires_resumption,
            ..Options::default()
        };
        let (sessions, control) = Sessions::new(SessionsConfig {
            listeners,
            role: Role::Server(admit),
            sessions_max: site.sessions_max,
            options,
            clock: Arc::new(SystemClock),
            #[cfg(feature = "gsi")]
            gsi: self.gsi.as_ref().map(GsiFiles::host),
            nodes,
        })?;
        Ok(OpenDoor {
            addresses,
            control: Arc::new(Control {
                control,
                settings: self.clone(),
            }),
            run: Box::new(move || sessions.run()),
        })
    }
}

/// Controls an open door.
#[derive(Debug)]
struct Control {
    control: SessionsControl,
    /// The settings that it was opened with.
    settings: GridftpSettings,
}

impl DoorControl for Control {
    fn reload(&self, door: &dyn Door) -> Vec<&'static str> {
        let own = &self.settings;
        let mut unchanged = Vec::new();
        if let Some(new) = door.downcast_ref::<GridftpSettings>() {
            unchanged.extend((new.gsi != own.gsi).then_some("gridftp.gsi"));
            let with_own = GridftpSettings {
                gsi: own.gsi.clone(),
                ..new.clone()
            };
            unchanged.extend((with_own != *own).then_some(DOOR));
        }
        unchanged
    }

    fn review(&self) -> Ended {
        Ended {
            sessions: self.control.review(),
            tunnels: 0,
        }
    }

    fn tally(&self) -> Option<Arc<Tally>> {
        self.control.tally()
    }

    fn drain(&self, grace: Duration) {
        self.control.drain(grace);
    }
}

/// A client that came through ssh, which has admitted it as the user of this process.
#[cfg(unix)]
#[derive(Debug)]
pub struct GridftpOverSsh {
    /// Its control connection: a stream socket of any kind.
    pub control: OwnedFd,
    /// Where its passive data connections come to.
    pub local: IpAddr,
    /// Where its data connections come from, and the only place where they go to.
    pub peer: IpAddr,
}

#[cfg(unix)]
impl GridftpOverSsh {
    /// Serves all files that this process reaches until the session ends. The first current
    /// directory is that of the process.
    ///
    /// # Errors
    /// The connection can't be used.
    pub fn serve(self) -> Result<(), Fault> {
        xdfs_sys::limit::raise_descriptor_limit();
        let home = std::env::current_dir()
            .map_err(|error| Fault::from_io("find the current directory", "", &error))?;
        let (sessions, _control) = Sessions::new(SessionsConfig {
            listeners: Vec::new(),
            role: Role::Server(Admit::Open(Arc::new(ServerStore::new(
                LocalStore::unrooted(),
            )))),
            sessions_max: 1,
            options: Options::default(),
            clock: Arc::new(SystemClock),
            #[cfg(feature = "gsi")]
            gsi: None,
            nodes: Vec::new(),
        })?;
        let home = home.into_os_string().into_encoded_bytes();
        sessions.serve_one(self.control.into(), self.local, self.peer, home)
    }
}

#[cfg(test)]
mod tests {
    use xdfs_store::MemStore;

    use super::*;

    const HERE: Site = Site {
        has_users: false,
        is_insecure: false,
        has_accounts: false,
        has_client_certificates: false,
        sessions_max: 1,
    };

    fn gsi() -> GsiFiles {
        GsiFiles {
            certificate: "certificate".into(),
            key: "key".into(),
            authorities: "authorities".into(),
            grid_map: Some("map".into()),
            takes_limited: false,
        }
    }

    fn settings() -> GridftpSettings {
        GridftpSettings {
            listen: server_address("127.0.0.1:0").unwrap(),
            ..GridftpSettings::default()
        }
    }

    #[test]
    fn a_reload_names_settings_that_stay() {
        let admit = Admit::Open(Arc::new(MemStore::new()));
        let open = settings().open(&HERE, admit).unwrap();
        let unchanged = |door: &GridftpSettings| open.control.reload(door);
        assert!(unchanged(&settings()).is_empty());
        let mut other = settings();
        other.gsi = Some(gsi());
        assert_eq!(unchanged(&other), ["gridftp.gsi"]);
        other.third_party = true;
        assert_eq!(unchanged(&other), ["gridftp.gsi", "gridftp"]);
    }

    #[test]
    fn what_needs_users_is_refused_without() {
        let without = |change: &dyn Fn(&mut GridftpSettings)| {
            let mut settings = settings();
            change(&mut settings);
            let mut findings = Findings::default();
            settings.check(&HERE, &mut findings);
            let opened = settings.open(&HERE, Admit::Open(Arc::new(MemStore::new())));
            assert_eq!(opened.is_ok(), findings.faults.is_empty());
            findings
                .faults
                .first()
                .map_or("", |found| found.setting)
                .to_owned()
        };
        assert_eq!(without(&|_| ()), "");
        assert_eq!(without(&|own| own.requires_tls = true), "gridftp.tls");
        assert_eq!(without(&|own| own.gsi = Some(gsi())), "gridftp.gsi");
        let node = || GridftpNode {
            address: node_address("localhost").unwrap(),
            key: Fingerprint([0; 32]),
        };
        assert_eq!(without(&|own| own.nodes = vec![node()]), "gridftp.node");
    }

    #[test]
    fn secrets_are_private() {
        let settings = GridftpSettings {
            gsi: Some(gsi()),
            ..settings()
        };
        let private = ["certificate", "key", "authorities", "map"].map(Path::new);
        assert_eq!(settings.private(), private);
    }
}
