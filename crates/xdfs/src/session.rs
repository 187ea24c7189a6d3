//! One session with a server: its thread, and the handles to it.

use std::sync::Arc;
use std::thread;
use std::time::Duration;

use xdfs_engine::kernel::Readiness;
use xdfs_engine::{Command, Commands, Dial, Identity, PathDecisions, Pipeline};
use xdfs_proto::frame::Start;
use xdfs_proto::{Code, Fault, Limits, Retry};
use xdfs_store::Place;
use xdfs_store::rate::SharedRate;

use crate::drivers::Drivers;
use crate::gateway::{self, Gateway};
use crate::paths::Caller;
use crate::remote::{Address, RemotePlace};
use crate::scheme::{Opening, PlaceRequest, PlaceSettings, RegisteredScheme, StartedServer};
use crate::security::{ClientSecurity, SecureIdentity, of_xdfs};
use crate::session_end::SessionEnd;
use crate::stack::routes_to;

/// Options of a client's session.
#[derive(Clone, Debug, Default)]
pub struct ClientOptions {
    /// Number of channels; `None` chooses it by the size of the file and the network path.
    pub channels: Option<u32>,
    /// Size of a block in bytes, a power of two; `None` for the default.
    pub block_size: Option<u32>,
    /// Socket buffer of a channel in bytes; `None` leaves it to the system.
    pub window: Option<u32>,
    /// Start only when all channels have joined.
    pub strict: bool,
    /// Send only what others on the path leave, in both directions, where the server can do so.
    pub yields: bool,
    /// A rate limit for payload in both directions, shared with other sessions; `None` for none.
    pub rate: Option<Arc<SharedRate>>,
    /// Limits for the resources that a peer may use.
    pub limits: Limits,
    /// Trust in servers, and the credentials of this side. `None` opens unprotected channels, which
    /// only servers without protection accept. For `ssh://` and `sshftp://` places only the level
    /// counts, since ssh logs in and knows the hosts; those of `ssh://` are always protected.
    pub security: Option<ClientSecurity>,
    /// The drivers of channels; the server needs the same ones.
    pub drivers: Drivers,
    /// Connect to this address, while that of the place only names the server: for a server with
    /// another address each time. `None` for that of the place.
    pub via: Option<Address>,
    /// Settings of single schemes, such as [`SshOptions`](crate::ssh::SshOptions) for how ssh is
    /// run, [`FtpSettings`](crate::FtpSettings), and [`Stripes`](crate::Stripes).
    pub settings: PlaceSettings,
}

/// A session whose thread runs. Dropping it ends the session in an orderly way.
#[derive(Debug)]
pub(crate) struct Session {
    pub(crate) commands: Commands,
    pub(crate) caller: Caller,
    pub(crate) end: SessionEnd,
    pub(crate) identity: Option<Arc<SecureIdentity>>,
    /// Whether the server is on this machine.
    pub(crate) is_local: bool,
    thread: Option<thread::JoinHandle<()>>,
    /// To a server of another protocol. Dropped after the thread has ended.
    gateway: Option<Gateway>,
}

impl Session {
    /// Starts to open a session with the server of `place`, which adds to `decisions`.
    ///
    /// # Errors
    /// The address can't be resolved, a setting is invalid, or the thread can't be started.
    pub(crate) fn connect(
        place: &RemotePlace,
        options: ClientOptions,
        decisions: PathDecisions,
    ) -> Result<Self, Fault> {
        xdfs_sys::limit::raise_descriptor_limit();
        let mut options = options;
        if let Some(security) = &options.security {
            place.address.check_level(security.level)?;
        }
        let opened = open_place(place, &options)?;
        let gateway = opened.map(Gateway::start).transpose()?;
        if let Some(gateway) = &gateway {
            // The gateway is in this process.
            options.security = None;
            options.via = Some(gateway.address().clone());
            // The other server gets the number that is asked for.
            options.channels = Some(1);
            options.block_size.get_or_insert(gateway::BLOCK_BYTES);
        }
        let level = options.security.as_ref().map(|own| of_xdfs(own.level));
        let level = level.transpose()?;
        let address = options.via.as_ref().unwrap_or(&place.address);
        // A host is known by its name, whichever of its addresses is connected to.
        let named = match &place.address {
            Address::Host { .. } => &place.address,
            _ => address,
        };
        let identity = match options.security {
            Some(security) => Some(Arc::new(SecureIdentity::new(
                security,
                &named.known_host(),
                place.user.as_deref(),
            )?)),
            None => None,
        };
        let tls = identity.as_ref().map(|own| own.tls());
        let routes = routes_to(place, address, &options.drivers, tls.as_ref())?;
        let dial = Dial {
            routes,
            channels: options.channels,
            block_size: options.block_size,
            window: options.window,
            start: if options.strict {
                Start::Strict
            } else {
                Start::Elastic
            },
            user: place.user.clone().unwrap_or_default(),
            identity: identity.clone().map(|own| own as Arc<dyn Identity>),
            level: level.unwrap_or_default(),
            yields: options.yields,
            rate: options.rate,
        };
        let listed_bytes_max = options.limits.listed_bytes_max;
        let is_local = dial.is_local();
        let kernel = Readiness::new().map_err(|e| Fault::from_io("open a session", "", &e))?;
        let (mut pipeline, commands) = Pipeline::initiate(kernel, dial, options.limits)?;
        // There is no network path to this machine itself.
        if !place.address.is_here() {
            pipeline.tell_decisions(decisions);
        }
        let end = SessionEnd::of(place.address.machine());
        let end_reporter = end.end_reporter();
        let thread = thread::Builder::new()
            .name("xdfs-client".into())
            .spawn(move || {
                let result = pipeline.run();
                if let Err(fault) = &result {
                    tracing::debug!(%fault, "the session ended");
                }
                end_reporter.report(result);
            })
            .map_err(|e| Fault::from_io("start the session's thread", "", &e))?;
        Ok(Self {
            caller: Caller::new(commands.clone(), end.clone(), listed_bytes_max),
            commands,
            end,
            identity,
            is_local,
            thread: Some(thread),
            gateway,
        })
    }

    /// The place behind the session, if the server is one of another protocol.
    pub(crate) fn place(&self) -> Option<&Arc<dyn Place>> {
        self.gateway.as_ref().map(Gateway::place)
    }

    /// Ends the session at once.
    pub(crate) fn stop(&self) {
        if let Some(place) = self.place() {
            place.close();
        }
        // A session that has ended needs no command.
        let _ = self.commands.send(Command::Drain(Duration::ZERO));
    }
}

impl Drop for Session {
    fn drop(&mut self) {
        let _ = self.commands.send(Command::Close);
        if let Some(thread) = self.thread.take() {
            // After a panic the transfers report that the session has ended.
            let _ = thread.join();
        }
    }
}

/// Starts the server of `place` if its scheme has servers started, or finds the running one, and
/// completes `options` for sessions with it; `None` for other places, and if the options say where
/// to connect to.
///
/// # Errors
/// The server can't be started or reached.
pub(crate) fn start_server(
    place: &RemotePlace,
    options: &mut ClientOptions,
) -> Result<Option<Arc<dyn StartedServer>>, Fault> {
    if options.via.is_some() {
        return Ok(None);
    }
    let name = place.address.to_string();
    let Some((scheme, request)) = request(place, options, &name) else {
        return Ok(None);
    };
    let Opening::Server(starter) = scheme.opening() else {
        return Ok(None);
    };
    let server = starter.start(&request)?;
    complete(options, &*server);
    Ok(Some(server))
}

/// Completes the options of sessions with a server that was started.
pub(crate) fn complete(options: &mut ClientOptions, server: &dyn StartedServer) {
    options.via = Some(server.route().into());
    options.security = Some(server.security().clone());
}

/// The request to the scheme of `place`, if it has a registered one.
fn request<'a>(
    place: &'a RemotePlace,
    options: &'a ClientOptions,
    address: &'a str,
) -> Option<(RegisteredScheme, PlaceRequest<'a>)> {
    let Address::Place { scheme, host, port } = &place.address else {
        return None;
    };
    let request = PlaceRequest {
        address,
        host,
        port: *port,
        user: place.user.as_deref(),
        password: place.invitation.password.as_deref(),
        security: options.security.as_ref(),
        channels: options.channels,
        settings: &options.settings,
    };
    Some((*scheme, request))
}

/// Connects to the server of `place`, if it is one of another protocol.
fn open_place(
    place: &RemotePlace,
    options: &ClientOptions,
) -> Result<Option<Arc<dyn Place>>, Fault> {
    let name = place.address.to_string();
    let Some((scheme, request)) = request(place, options, &name) else {
        return Ok(None);
    };
    let Opening::Place(opener) = scheme.opening() else {
        return Ok(None);
    };
    let opened = opener.open(&request)?;
    // As with other servers: one that never answered isn't tried again.
    opened.connect().map_err(|fault| Fault {
        retry: match fault.code {
            Code::ConnectionRefused | Code::DeadlineExceeded => Retry::Never,
            _ => fault.retry,
        },
        ..fault.at(&place.address.machine()).ending_session()
    })?;
    Ok(Some(opened))
}
