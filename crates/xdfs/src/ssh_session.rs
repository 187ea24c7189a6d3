//! The scheme of `ssh://` places: servers of xDFS that are started through ssh.

use std::sync::Arc;

use xdfs_engine::PathDecisions;
use xdfs_proto::Fault;
use xdfs_store::Traits;

use crate::paths::Call;
use crate::remote::{Address, Invitation, RemotePlace};
use crate::scheme::{
    LoginBy, Opening, Paths, PlaceRequest, RegisteredScheme, Scheme, StartServer, StartedServer,
};
use crate::security::{Level, check_of_xdfs};
use crate::session::{ClientOptions, Session, complete};
use crate::ssh::options::SshOptions;
use crate::ssh::server::SshServer;

/// The scheme `ssh`.
#[derive(Debug)]
pub(crate) struct SshScheme;

impl Scheme for SshScheme {
    fn name(&self) -> &'static str {
        "ssh"
    }

    fn traits(&self) -> Traits {
        Traits::FULL
    }

    fn port(&self) -> Option<u16> {
        // That of its configuration.
        None
    }

    fn paths(&self) -> Paths {
        Paths::RootOrHome
    }

    fn login(&self) -> LoginBy {
        LoginBy::Ssh
    }

    fn check_names(&self, host: &str, user: Option<&str>) -> Result<(), String> {
        SshOptions::check_names(host, user)
    }

    fn check_level(&self, level: Level, address: &str) -> Result<(), Fault> {
        check_of_xdfs(level, address)
    }

    fn opening(&self) -> Opening<'_> {
        Opening::Server(self)
    }
}

impl StartServer for SshScheme {
    fn start(&self, request: &PlaceRequest<'_>) -> Result<Arc<dyn StartedServer>, Fault> {
        let level = request.security.map_or(Level::Private, |own| own.level);
        self.check_level(level, request.address)?;
        let ssh: SshOptions = request.settings.get_or_default();
        let server = ssh.reach(request, level, &|server| open_once(request, server))?;
        Ok(server)
    }
}

/// Opens a session and ends it: whether sshd forwards anything shows in nothing less.
fn open_once(request: &PlaceRequest<'_>, server: &SshServer) -> Result<(), Fault> {
    let place = RemotePlace {
        user: request.user.map(str::to_owned),
        address: Address::Place {
            scheme: RegisteredScheme::new(&SshScheme),
            host: request.host.to_owned(),
            port: request.port,
        },
        stack: None,
        path: Vec::new(),
        invitation: Invitation::default(),
        profile: None,
    };
    let mut options = ClientOptions {
        channels: Some(1),
        ..ClientOptions::default()
    };
    complete(&mut options, server);
    let session = Session::connect(&place, options, PathDecisions::default())?;
    let path = b"/".to_vec();
    let follow = true;
    let asked = session.caller.start_pending(Call::Stat { path, follow })?;
    asked.wait().map(drop)
}
