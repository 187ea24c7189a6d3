//! What a command runs in: a program of its own, or a shell that keeps its session.
//!
//! Commands ask here for sessions and for the user's wish to stop. By itself a command opens what
//! it needs, and a signal ends the program. A shell keeps the session with its server from one
//! command to the next, and a signal ends the command.

use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError, Weak};
use std::time::Duration;

use xdfs::security::FirstUse;
use xdfs::{Client, ClientOptions, Code, Fault, RemotePlace};

use crate::client::SharedClient;
use crate::console::Console;
use crate::flags::{OutputFlags, SecurityFlags};
use crate::identity;
use crate::interrupt::{Interrupt, handle_signals};

/// How long a command that was interrupted may take to see it, before its sessions are ended.
const GRACE: Duration = Duration::from_millis(300);

/// What a command runs in. Cheap to clone.
#[derive(Clone, Debug, Default)]
pub(crate) struct Context {
    shell: Option<Arc<ShellSession>>,
    /// The command has session flags of its own.
    own_sessions: bool,
}

impl Context {
    /// A command of a shell. With `own_sessions` it doesn't use the shell's session.
    pub(crate) fn of_shell(shell: &Arc<ShellSession>, own_sessions: bool) -> Self {
        Self {
            shell: Some(Arc::clone(shell)),
            own_sessions,
        }
    }

    /// A session with the server of `place`: that of the shell, or another one with what `options`
    /// and `security` say. If that is one with the shell's server, it is as the shell's own where
    /// they say nothing.
    ///
    /// # Errors
    /// It can't be opened.
    pub(crate) fn connect(
        &self,
        place: &RemotePlace,
        options: ClientOptions,
        security: &SecurityFlags,
    ) -> Result<SharedClient, Fault> {
        let shell = self.shell.as_ref().filter(|shell| shell.serves(place));
        let client = match shell {
            Some(shell) if !self.own_sessions => return shell.session(),
            Some(shell) => shell.other_session(options, security)?,
            None => {
                let security = identity::security(security, place)?;
                Client::connect(
                    place,
                    ClientOptions {
                        security,
                        ..options
                    },
                )?
            }
        };
        let client = Arc::new(client);
        if let Some(shell) = &self.shell {
            shell.state().others.push(Arc::downgrade(&client));
        }
        Ok(SharedClient::new(client))
    }

    /// Asks for the secrets that a session with the server of `place` will need, if they are typed.
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
            _ => identity::ask_ahead(security, place),
        }
    }

    /// How the command hears that the user wants to stop.
    ///
    /// # Errors
    /// The system refuses the handler.
    pub(crate) fn interrupt(&self) -> Result<Interrupt, Fault> {
        match &self.shell {
            Some(shell) => Ok(shell.state().running.clone().unwrap_or_default()),
            None => Interrupt::install(|| ()),
        }
    }
}

/// The session of a shell, and the command that it runs now.
#[derive(Debug)]
pub(crate) struct ShellSession {
    place: RemotePlace,
    options: ClientOptions,
    /// Signals while no command is carried out end the program.
    ends_when_idle: bool,
    state: Mutex<ShellState>,
    changed: Condvar,
}

#[derive(Debug, Default)]
struct ShellState {
    client: Option<SharedClient>,
    /// Sessions that the command opened besides.
    others: Vec<Weak<Client>>,
    running: Option<Interrupt>,
    /// Counts the commands.
    count: u64,
}

impl ShellSession {
    /// A shell at the server of `place`, with no session yet. Listens for signals from now on;
    /// with `ends_when_idle` one that comes between two commands ends the program.
    ///
    /// # Errors
    /// The system refuses the handler.
    pub(crate) fn new(
        place: RemotePlace,
        options: ClientOptions,
        ends_when_idle: bool,
    ) -> Result<Arc<Self>, Fault> {
        let shell = Arc::new(Self {
            place,
            options,
            ends_when_idle,
            state: Mutex::default(),
            changed: Condvar::new(),
        });
        let seen = Arc::clone(&shell);
        handle_signals(move || seen.signal())?;
        Ok(shell)
    }

    fn state(&self) -> MutexGuard<'_, ShellState> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The server, and the path that the shell began with.
    pub(crate) fn place(&self) -> &RemotePlace {
        &self.place
    }

    /// Whether its session is one with the server of `place`, for the same user. A place without a
    /// ticket or a pin of its own takes what the shell was let in by.
    fn serves(&self, place: &RemotePlace) -> bool {
        let own = &self.place;
        let invited = place.invitation == own.invitation || place.invitation == Default::default();
        place.address == own.address && place.user == own.user && invited
    }

    /// A session besides, as the first one where `options` and `security` say nothing.
    fn other_session(
        &self,
        options: ClientOptions,
        security: &SecurityFlags,
    ) -> Result<Client, Fault> {
        let own = &self.options;
        // What the shell was invited by is in its place.
        let place = &self.place;
        let security = identity::security_of_command(own.security.as_ref(), security, place)?;
        let options = ClientOptions {
            channels: options.channels.or(own.channels),
            block_size: options.block_size.or(own.block_size),
            window: options.window.or(own.window),
            security,
            ..own.clone()
        };
        Client::connect(place, options)
    }

    /// The session; another one, and a word about it, if it has ended.
    ///
    /// # Errors
    /// It can't be opened.
    pub(crate) fn session(&self) -> Result<SharedClient, Fault> {
        let mut state = self.state();
        let ended = match &state.client {
            Some(client) => match client.ended() {
                None => return Ok(client.clone()),
                Some(fault) => Some(fault),
            },
            None => None,
        };
        let mut client = SharedClient::new(Arc::new(Client::connect(
            &self.place,
            self.options.clone(),
        )?));
        if let Some(before) = &state.client {
            client.keep_told(before);
        }
        let before = state.client.replace(client.clone());
        drop(state);
        // Its threads are waited for.
        drop(before);
        if let Some(fault) = ended {
            let text = match fault.code {
                // That is how a session ends that was stopped here.
                Code::ShuttingDown if fault.side == xdfs::Side::Local => {
                    "the session was stopped: opening another one".to_owned()
                }
                _ => format!("the connection was lost ({fault}): opening another one"),
            };
            Console::new(OutputFlags::default()).say(&text);
        }
        Ok(client)
    }

    /// The server, once, if nobody knew it and the session came to trust it.
    pub(crate) fn first_use(&self) -> Option<FirstUse> {
        self.state()
            .client
            .as_ref()
            .and_then(SharedClient::first_use)
    }

    /// The session if it is open.
    pub(crate) fn open_session(&self) -> Option<SharedClient> {
        let client = self.state().client.clone();
        client.filter(|client| client.ended().is_none())
    }

    /// A command begins; signals are for it from now on.
    pub(crate) fn begin(&self) -> Interrupt {
        let interrupt = Interrupt::default();
        let mut state = self.state();
        state.running = Some(interrupt.clone());
        state.count += 1;
        interrupt
    }

    /// The command has ended.
    pub(crate) fn end(&self) {
        let mut state = self.state();
        state.running = None;
        state.others.clear();
        self.changed.notify_all();
    }

    /// A signal asks for an end: the first for an orderly one, the second for one at once. What
    /// can't end in an orderly way has a moment to see it.
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
