//! The table of GridFTP.

use std::net::Ipv4Addr;
use std::ops::RangeInclusive;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use serde::Deserialize;
use xdfs::doors::{Door, HostPort};
use xdfs::security::{Fingerprint, GsiFiles};
use xdfs::{DataNodeSettings, GridftpNode, GridftpSettings, gridftp_address, gridftp_node_address};

use super::DoorTable;

/// The table `[gridftp]`.
#[derive(Debug, Default, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct GridftpTable {
    listen: Option<GridftpListen>,
    ports: Option<Ports>,
    address: Option<Ipv4Addr>,
    #[serde(default)]
    third_party: bool,
    tls: Option<TlsNeed>,
    tls_resumption: Option<TlsNeed>,
    gsi: Option<GsiConfig>,
    #[serde(default)]
    node: Vec<NodeConfig>,
    data_node: Option<DataNodeConfig>,
}

/// A data node of this server.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct NodeConfig {
    address: NodeAddress,
    key: Key,
}

/// The settings file of `xdfs gridftp data-node`.
#[derive(Debug, Default, Deserialize)]
#[serde(deny_unknown_fields)]
struct DataNodeConfig {
    listen: Option<NodeAddress>,
    #[serde(default)]
    obeys: Vec<Key>,
}

/// A fingerprint.
#[derive(Clone, Copy, Debug, Deserialize)]
#[serde(try_from = "String")]
struct Key(Fingerprint);

impl TryFrom<String> for Key {
    type Error = String;

    fn try_from(text: String) -> Result<Self, String> {
        let read = text.parse::<Fingerprint>();
        read.map(Self)
            .map_err(|fault| format!("{}; {}", fault.cause, fault.hint))
    }
}

/// An address of a data node.
#[derive(Clone, Debug, Deserialize)]
#[serde(try_from = "String")]
struct NodeAddress(HostPort);

impl TryFrom<String> for NodeAddress {
    type Error = String;

    fn try_from(text: String) -> Result<Self, String> {
        let address = gridftp_node_address(&text);
        address.map(Self).map_err(|fault| fault.cause)
    }
}

/// GSI at the door of GridFTP.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct GsiConfig {
    certificate: PathBuf,
    key: PathBuf,
    authorities: PathBuf,
    grid_map: Option<PathBuf>,
    limited_proxies: Option<LimitedProxies>,
}

/// The treatment of users with limited proxies.
#[derive(Clone, Copy, Debug, Deserialize, PartialEq, Eq)]
#[serde(rename_all = "lowercase")]
enum LimitedProxies {
    /// They are as others.
    Accepted,
    /// They don't log in.
    Refused,
}

/// The need for TLS.
#[derive(Clone, Copy, Debug, Deserialize)]
#[serde(rename_all = "lowercase")]
enum TlsNeed {
    /// Clients may use it.
    Optional,
    /// Clients without it are refused.
    Required,
}

/// An address, as in `--gridftp`.
#[derive(Clone, Debug, Deserialize)]
#[serde(try_from = "String")]
struct GridftpListen(HostPort);

impl TryFrom<String> for GridftpListen {
    type Error = String;

    fn try_from(text: String) -> Result<Self, String> {
        let address = gridftp_address(&text);
        address.map(Self).map_err(|fault| fault.cause)
    }
}

/// A range of ports: "50000-51000".
#[derive(Clone, Debug, Deserialize)]
#[serde(try_from = "String")]
struct Ports(RangeInclusive<u16>);

impl TryFrom<String> for Ports {
    type Error = String;

    fn try_from(text: String) -> Result<Self, String> {
        let (first, last) = text.split_once('-').unwrap_or((&text, &text));
        match (first.trim().parse(), last.trim().parse()) {
            (Ok(first @ 1..), Ok(last)) if first <= last => Ok(Self(first..=last)),
            _ => Err("expected a range of ports such as \"50000-51000\"".into()),
        }
    }
}

impl GridftpTable {
    /// The grid map of GSI, as it is written.
    pub(crate) fn grid_map(&self) -> Option<&Path> {
        self.gsi.as_ref()?.grid_map.as_deref()
    }

    /// The settings of a data node.
    pub(crate) fn data_node(&self) -> DataNodeSettings {
        let mut settings = DataNodeSettings {
            ports: self.ports.as_ref().map(|Ports(range)| range.clone()),
            address: self.address,
            ..DataNodeSettings::default()
        };
        if let Some(own) = &self.data_node {
            let at = own.listen.as_ref();
            settings.listen = at.map_or(settings.listen, |NodeAddress(at)| at.clone());
            settings.obeys = own.obeys.iter().map(|Key(key)| *key).collect();
        }
        settings
    }
}

impl DoorTable for GridftpTable {
    const HELP: &'static str = "  [gridftp]                # as --gridftp
  listen = \"127.0.0.1:2811\"
  ports = \"50000-51000\"    # of passive data connections; left out: any free one
  address = \"192.0.2.1\"    # for clients behind a NAT, instead of the one above
  third_party = true       # data connections go to other hosts than the client's too
  tls = \"required\"         # no login without AUTH TLS
  tls_resumption = \"required\"   # data connections resume the session of the control connection
  [[gridftp.node]]         # a data node, and its key: `xdfs gridftp data-node --help`
  address = \"192.0.2.11:2812\"
  key = \"SHA256:...\"
  [gridftp.gsi]            # logins by certificates and proxies, where GSI is built in
  certificate = \"hostcert.pem\"
  key = \"hostkey.pem\"
  authorities = \"/etc/grid-security/certificates\"
  grid_map = \"grid-mapfile\"           # unless [client_certificates] has one
  limited_proxies = \"accepted\"       # or \"refused\"
";

    fn door(self, flag: Option<HostPort>, base: Option<&Path>) -> Arc<dyn Door> {
        let beside = |path: PathBuf| base.map_or_else(|| path.clone(), |base| base.join(&path));
        let default = GridftpSettings::default();
        let written = self.listen.map(|GridftpListen(own)| own);
        let is_required = |need| matches!(need, Some(TlsNeed::Required));
        let nodes = self.node.into_iter().map(|node| GridftpNode {
            address: node.address.0,
            key: node.key.0,
        });
        Arc::new(GridftpSettings {
            listen: flag.or(written).unwrap_or(default.listen),
            ports: self.ports.map(|Ports(range)| range),
            address: self.address,
            third_party: self.third_party,
            requires_tls: is_required(self.tls),
            requires_resumption: is_required(self.tls_resumption),
            nodes: nodes.collect(),
            gsi: self.gsi.map(|gsi| GsiFiles {
                certificate: beside(gsi.certificate),
                key: beside(gsi.key),
                authorities: beside(gsi.authorities),
                grid_map: gsi.grid_map.map(beside),
                takes_limited: gsi.limited_proxies != Some(LimitedProxies::Refused),
            }),
        })
    }
}
