//! Authentication and access control of servers, and the credentials of clients.
//!
//! [`ServerSecurity`] becomes the gate of a server's acceptor, [`ClientSecurity`] the identity of a
//! client's session. All channels of both are TLS 1.3.

mod check;
mod gate;
mod https;
mod identity;
mod level;
mod personal;
mod rules;
mod settings;
mod tunnels;

pub use check::SettingsReport;
pub(crate) use gate::{SecureGate, server_tls};
pub use https::HttpsTls;
pub(crate) use identity::SecureIdentity;
pub use identity::{ClientSecurity, Credential, FirstUse};
pub(crate) use level::{check_of_xdfs, of_xdfs};
pub(crate) use personal::PersonalGate;
pub(crate) use rules::{CurrentRules, Reach};
pub use settings::ServerSecurity;
pub(crate) use settings::keep_apart;
pub(crate) use tunnels::TunnelsWithoutUsers;
pub use xdfs_access::{Access, Evidence, Findings, Login, Peer, SettingFault, Tickets};
pub use xdfs_gridftp::door::GsiFiles;
pub use xdfs_security::Level;
pub use xdfs_security::export::{ExportConfig, ExportsConfig, GrantConfig, Rights};
pub use xdfs_security::group::{GroupConfig, MemberConfig, StorageConfig};
pub use xdfs_security::guard::Limits as GuardLimits;
pub use xdfs_security::identity::{Fingerprint, minute, read_certificates};
pub use xdfs_security::key::{
    PublicKey, Signer, SigningKey, claimed as claimed_key, make_key, prove as prove_key,
    sign_message, signer_of_message,
};
pub use xdfs_security::password::UsersFile;
pub use xdfs_security::token::{Config as TokenConfig, IssuerConfig};
pub use xdfs_security::trust::{KnownHost, KnownHosts, NewHosts, TrustPolicy, host_port};
pub use xdfs_security::trusted;
pub use xdfs_security::tunnel::{Network, RuleConfig, TunnelsConfig, is_public};
