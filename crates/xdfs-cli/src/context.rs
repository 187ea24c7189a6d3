//! The context of a command: its own process, or a shell that keeps a session.
//!
//! It provides sessions and interrupts. A command in its own process opens the sessions that it
//! needs, and a signal ends the program. A shell keeps the session with its server between
//! commands, and a signal ends the command.

use std::sync::{Arc, Condvar, LazyLock, Mutex, MutexGuard, PoisonError, Weak};
use std::time::Duration;

use xdfs::security::FirstUse;
use xdfs::settings::{Attendance, ClientConfig, Login};
use xdfs::ssh::{SshOptions, SshServers};
use xdfs::{Client, ClientOptions, Code, Fault, RemotePlace, Stripes};

use crate::agent::{self, Start};
use crate::client::SharedClient;
use crate::console::Console;
use crate::flags::{OutputFlags, SecurityFlags, SessionFlags};
use crate::interrupt::{Interrupt, handle_signals};
use crate::secret;

/// Time that an interrupted command has to react before its sessions are ended.
const GRACE: Duration = Duration::from_millis(300);

/// The context of a command. Cheap to clone.
#[derive(Clone, Debug)]
pub(crate) struct Context {
    shell: Option<Arc<ShellSession>>,
    /// The command has its own session flags.
    own_sessions: bool,
    ssh: SshServers,
    /// Read when it is first needed.
    config: Arc<LazyLock<Result<ClientConfig, Fault>>>,
}

impl Context {
    /// The context of a command from the command line.
    pub(crate) fn new(quiet: bool) -> Self {
        Self {
            shell: None,
            own_sessions: false,
            ssh: ssh_servers(quiet),
            config: Arc::new(LazyLock::new(ClientConfig::read)),
        }
    }

    /// The context of a command in a shell. With `own_sessions` it doesn't use the shell's session.
    pub(crate) fn of_shell(shell: &Arc<ShellSession>, own_sessions: bool) -> Self {
        Self {
            shell: Some(Arc::clone(shell)),
            own_sessions,
            ..shell.own.clone()
        }
    }

    /// The client's configuration.
    ///
    /// # Errors
    /// It can't be read, or has a mistake.
    pub(crate) fn config(&self) -> Result<&ClientConfig, Fault> {
        LazyLock::force(&self.config).as_ref().map_err(Clone::clone)
    }

    /// A session with the server of `place`: the shell's, or another one with these `options` and
    /// `security`, completed by the settings of the place. For another session with the shell's
    /// server, the shell's settings are the defaults.
    ///
    /// # Errors
    /// The session can't be opened.
    pub(crate) fn connect(
        &self,
        place: &RemotePlace,
        options: ClientOptions,
        security: &SecurityFlags,
    ) -> Result<SharedClient, Fault> {
        let shell = self.shell.as_ref().filter(|shell| shell.serves(place));
        let client = match shell {
            Some(shell) if !self.own_sessions => return shell.session(),
            Some(shell) => {
                let login = security.login().for_place(place)?;
                Arc::new(shell.other_session(options, &login)?)
            }
            None => self.open(place, options, security)?.0,
        };
        if let Some(shell) = &self.shell {
            shell.state().others.push(Arc::downgrade(&client));
        }
        Ok(SharedClient::new(client))
    }

    /// A session with the server of `place` that the agent shares; `None` if it shares none, the
    /// settings of the place are against it, or this is a shell, which keeps its own.
    ///
    /// # Errors
    /// The session can't be opened, by the agent or otherwise.
    pub(crate) fn shared_session(
        &self,
        place: &RemotePlace,
        security: &SecurityFlags,
    ) -> Result<Option<SharedClient>, Fault> {
        let config = self.config()?;
        let start = match config.session(place).share() {
            _ if self.shell.is_some() => return Ok(None),
            Some(false) => return Ok(None),
            Some(true) => Start::Yes,
            None => Start::No,
        };
        let login = config.login(place, &security.login())?;
        let shared = agent::shared_session(place, &login, start)?;
        Ok(shared.map(|(client, lease)| SharedClient::shared(client, lease)))
    }

    /// Whether wildcards in a path of `place` are a shell's, which has expanded them.
    pub(crate) fn has_expanded(&self, place: &RemotePlace) -> bool {
        self.shell.as_ref().is_some_and(|shell| shell.serves(place))
    }

    /// Asks for secrets that have to be typed for a session with the server of `place`.
    ///
    /// # Errors
    /// Nothing can be read, or nothing was typed.
    pub(crate) fn ask_ahead(
        &self,
        place: &RemotePlace,
        security: &SecurityFlags,
    ) -> Result<(), Fault> {
        let shell = self.shell.as_ref().filter(|shell| shell.serves(place));
        match shell {
            Some(_) if !self.own_sessions => Ok(()),
            _ if place.address.is_of_ssh() => Ok(()),
            Some(_) => security.login().ask_ahead(place, &secret::ask),
            None => {
                let login = self.config()?.login(place, &security.login())?;
                login.ask_ahead(place, &secret::ask)
            }
        }
    }

    /// Whether opening a session with the server of `place` may ask for a password.
    ///
    /// # Errors
    /// The settings of the place forbid the session.
    pub(crate) fn may_ask(
        &self,
        place: &RemotePlace,
        security: &SecurityFlags,
    ) -> Result<bool, Fault> {
        let is_of_shell = self.shell.as_ref().is_some_and(|shell| shell.serves(place));
        let login = self.config()?.login(place, &security.login())?;
        Ok(!is_of_shell && secret::may_ask_password(&login, place))
    }

    /// Opens a session, and returns its options too. If the server refuses this user's keys and
    /// takes passwords, asks for one.
    fn open(
        &self,
        place: &RemotePlace,
        options: ClientOptions,
        security: &SecurityFlags,
    ) -> Result<(Arc<Client>, ClientOptions), Fault> {
        let config = self.config()?;
        let login = config.login(place, &security.login())?;
        let mut options = config.session(place).options(options);
        config.load_drivers(&mut options.drivers)?;
        loop {
            let options = self.secured(place, options.clone(), &login)?;
            let client = Arc::new(Client::connect(place, options.clone())?);
            if !secret::asks_password(&login, place, &client)? {
                return Ok((client, options));
            }
        }
    }

    /// The options of a tunnel through the server of `place`. Asks for a password if the server
    /// refuses this user's keys and takes passwords.
    ///
    /// # Errors
    /// The server can't be started through ssh, a file that is named by a flag can't be used, or
    /// nothing was typed.
    pub(crate) fn tunnel_options(
        &self,
        place: &RemotePlace,
        options: ClientOptions,
        security: &SecurityFlags,
    ) -> Result<ClientOptions, Fault> {
        let config = self.config()?;
        let options = config.session(place).options(options);
        let login = config.login(place, &security.login())?;
        if secret::may_ask_password(&login, place) {
            // What is typed is kept in the flags. Its session is not needed.
            drop(self.open(place, options.clone(), security)?);
        }
        self.secured(place, options, &login)
    }

    /// The options with trust and credentials for the server of `place`.
    fn secured(
        &self,
        place: &RemotePlace,
        options: ClientOptions,
        login: &Login,
    ) -> Result<ClientOptions, Fault> {
        let mut options = options;
        let ssh = SshOptions {
            servers: self.ssh.clone(),
            ..options.settings.get_or_default()
        };
        options.settings = options.settings.with(ssh);
        login.options(place, options, Attendance::Attended(&secret::ask))
    }

    /// The interrupt of the command.
    ///
    /// # Errors
    /// The signal handler can't be installed.
    pub(crate) fn interrupt(&self) -> Result<Interrupt, Fault> {
        match &self.shell {
            Some(shell) => Ok(shell.state().running.clone().unwrap_or_default()),
            None => Interrupt::install(|| ()),
        }
    }
}

/// The servers that a command starts through ssh. What happens to them is printed unless it is
/// `quiet`.
fn ssh_servers(quiet: bool) -> SshServers {
    SshServers::new(move |news| {
        let flags = OutputFlags {
            quiet,
            ..OutputFlags::default()
        };
        Console::new(flags).info(&news.to_string());
    })
}

/// The session of a shell, and its current command.
#[derive(Debug)]
pub(crate) struct ShellSession {
    place: RemotePlace,
    options: ClientOptions,
    /// The context of the shell itself.
    own: Context,
    /// Signals between commands end the program.
    ends_when_idle: bool,
    state: Mutex<ShellState>,
    changed: Condvar,
}

#[derive(Debug, Default)]
struct ShellState {
    client: Option<SharedClient>,
    /// Other sessions opened by the command.
    others: Vec<Weak<Client>>,
    running: Option<Interrupt>,
    /// Number of commands so far.
    count: u64,
}

impl ShellSession {
    /// A shell at the server of `place`. Handles signals from now on; with `ends_when_idle`, a
    /// signal between two commands ends the program.
    ///
    /// # Errors
    /// A file that is named by a flag can't be used, the session can't be opened, or the signal
    /// handler can't be installed.
    pub(crate) fn new(
        own: Context,
        mut place: RemotePlace,
        flags: &SessionFlags,
        ends_when_idle: bool,
    ) -> Result<Arc<Self>, Fault> {
        let (client, options) = own.open(&place, flags.client_options()?, &flags.security)?;
        place.path = client.absolute(&place.path);
        let state = ShellState {
            client: Some(SharedClient::new(client)),
            ..ShellState::default()
        };
        let shell = Arc::new(Self {
            place,
            options,
            own,
            ends_when_idle,
            state: Mutex::new(state),
            changed: Condvar::new(),
        });
        let seen = Arc::clone(&shell);
        handle_signals(move || seen.signal())?;
        Ok(shell)
    }

    fn state(&self) -> MutexGuard<'_, ShellState> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The server and the initial path of the shell.
    pub(crate) fn place(&self) -> &RemotePlace {
        &self.place
    }

    /// The client's configuration, which was read for the shell's own session.
    pub(crate) fn config(&self) -> Option<&ClientConfig> {
        self.own.config().ok()
    }

    /// Whether its session is with the server of `place`, for the same user. A place without a
    /// ticket or a pin uses those of the shell.
    fn serves(&self, place: &RemotePlace) -> bool {
        let own = &self.place;
        let invited = place.invitation == own.invitation || place.invitation == Default::default();
        let is_same = (&place.address, &place.user, &place.profile)
            == (&own.address, &own.user, &own.profile);
        let stack = place.stack.is_none() || place.stack == own.stack;
        is_same && invited && stack
    }

    /// Another session with the server; the shell's settings are the defaults.
    fn other_session(&self, options: ClientOptions, login: &Login) -> Result<Client, Fault> {
        let own = &self.options;
        // The shell's invitation is in its place.
        let place = &self.place;
        if place.address.is_of_ssh() {
            login.check_for_ssh(place)?;
        }
        let security = login.security_beside(own.security.as_ref(), place, &secret::ask)?;
        let settings = own.settings.clone();
        let settings = match options.settings.get::<Stripes>() {
            Some(stripes) => settings.with(stripes.clone()),
            None => settings,
        };
        let options = ClientOptions {
            channels: options.channels.or(own.channels),
            block_size: options.block_size.or(own.block_size),
            window: options.window.or(own.window),
            settings,
            drivers: match options.drivers.stacks.is_empty() {
                true => own.drivers.clone(),
                false => options.drivers,
            },
            security,
            ..own.clone()
        };
        Client::connect(place, options)
    }

    /// The session. If it has ended, opens another one with a message.
    ///
    /// # Errors
    /// The session can't be opened.
    pub(crate) fn session(&self) -> Result<SharedClient, Fault> {
        let mut state = self.state();
        let ended = match &state.client {
            Some(client) => match client.ended() {
                None => return Ok(client.clone()),
                Some(fault) => Some(fault),
            },
            None => None,
        };
        // A server that was started through ssh may have ended; then another one is started.
        let client = Arc::new(Client::connect(&self.place, self.options.clone())?);
        let mut client = SharedClient::new(client);
        if let Some(before) = &state.client {
            client.share_reported(before);
        }
        let before = state.client.replace(client.clone());
        drop(state);
        // Without the lock, since this waits for its threads.
        drop(before);
        if let Some(fault) = ended {
            let text = match fault.code {
                // The end of a session stopped on this side.
                Code::ShuttingDown if fault.side == xdfs::Side::Local => {
                    "the session was stopped: opening another session".to_owned()
                }
                _ => format!("{fault}: opening another session"),
            };
            Console::new(OutputFlags::default()).info(&text);
        }
        Ok(client)
    }

    /// The server if this session trusted it on first use. Returned once.
    pub(crate) fn first_use(&self) -> Option<FirstUse> {
        self.state()
            .client
            .as_ref()
            .and_then(SharedClient::first_use)
    }

    /// Ends the session, and the servers that were started through ssh. The handler of signals
    /// holds this value up to the end of the program.
    pub(crate) fn close(&self) {
        let client = self.state().client.take();
        // Without the lock, since this waits for its threads.
        drop(client);
        self.own.ssh.close();
    }

    /// The session if it is open.
    pub(crate) fn open_session(&self) -> Option<SharedClient> {
        let client = self.state().client.clone();
        client.filter(|client| client.ended().is_none())
    }

    /// Starts a command, which receives signals from now on.
    pub(crate) fn begin(&self) -> Interrupt {
        let interrupt = Interrupt::default();
        let mut state = self.state();
        state.running = Some(interrupt.clone());
        state.count += 1;
        interrupt
    }

    /// Ends the command.
    pub(crate) fn end(&self) {
        let mut state = self.state();
        state.running = None;
        state.others.clear();
        self.changed.notify_all();
    }

    /// Handles a signal: the first asks the command to end in an orderly way, the second ends its
    /// sessions. A command that can't end in an orderly way has a moment to react.
    fn signal(&self) {
        let state = self.state();
        let Some(running) = state.running.clone() else {
            if self.ends_when_idle {
                std::process::exit(i32::from(Code::Cancelled.exit_code()));
            }
            return;
        };
        let first = running.request();
        if first && running.is_orderly() {
            return;
        }
        let count = state.count;
        let waiting = |state: &mut ShellState| state.running.is_some() && state.count == count;
        let waited = self.changed.wait_timeout_while(state, GRACE, waiting);
        let (state, waited) = waited.unwrap_or_else(PoisonError::into_inner);
        if !waited.timed_out() {
            return;
        }
        if let Some(client) = &state.client {
            client.stop();
        }
        for client in state.others.iter().filter_map(Weak::upgrade) {
            client.stop();
        }
    }
}
