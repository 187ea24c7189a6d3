//! Sessions with servers that are started through ssh: how their options follow from the server.

use std::sync::Arc;

use xdfs_engine::PathDecisions;
use xdfs_proto::Fault;

use crate::paths::Call;
use crate::remote::{Address, RemotePlace};
use crate::security::Level;
use crate::session::{ClientOptions, Session};
use crate::ssh::options::SshOptions;
use crate::ssh::server::SshServer;

/// Starts the server of an `ssh://` place, or finds the running one, and completes `options` for
/// sessions with it; `None` for other places, and if the options say where to connect to.
///
/// # Errors
/// The server can't be started or reached.
pub(crate) fn start_server(
    place: &RemotePlace,
    options: &mut ClientOptions,
) -> Result<Option<Arc<SshServer>>, Fault> {
    if !matches!(place.address, Address::Ssh { .. }) || options.via.is_some() {
        return Ok(None);
    }
    let level = options.security.as_ref().map(|own| own.level);
    let level = level.unwrap_or(Level::Private);
    let ssh: SshOptions = options.settings.get_or_default();
    let server = ssh.reach(place, level, &|server| open_once(place, server))?;
    complete(options, &server);
    Ok(Some(server))
}

fn complete(options: &mut ClientOptions, server: &SshServer) {
    options.via = Some(server.via().clone());
    options.security = Some(server.security().clone());
}

/// Opens a session and ends it: whether sshd forwards anything shows in nothing less.
fn open_once(place: &RemotePlace, server: &SshServer) -> Result<(), Fault> {
    let mut options = ClientOptions {
        channels: Some(1),
        ..ClientOptions::default()
    };
    complete(&mut options, server);
    let session = Session::connect(place, options, PathDecisions::default())?;
    let path = b"/".to_vec();
    let follow = true;
    let asked = session.caller.start_pending(Call::Stat { path, follow })?;
    asked.wait().map(drop)
}
