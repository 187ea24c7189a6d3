//! What a command is carried out in: a program of its own, or a shell that keeps its session.
//!
//! Commands ask here for sessions and for the user's wish to stop. By itself a command opens what
//! it needs, and a signal ends the program. In a shell the session with the shell's server is kept
//! from one command to the next, and a signal ends the command.

use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError, Weak};
use std::time::Duration;

use xdfs::security::FirstUse;
use xdfs::{Client, ClientOptions, Code, Fault, RemotePlace};

use crate::console::Console;
use crate::flags::{OutputFlags, SecurityFlags};
use crate::identity;
use crate::interrupt::{Interrupt, handle_signals};
use crate::session::Visit;

/// How long a command that was interrupted may take to see it, before its sessions are ended.
const GRACE: Duration = Duration::from_millis(300);

/// What a command is carried out in. Cheap to clone.
#[derive(Clone, Debug, Default)]
pub(crate) struct Context {
    shell: Option<Arc<Kept>>,
    /// The command said itself how its sessions are to be.
    own_sessions: bool,
}

impl Context {
    /// A command of a shell. With `own_sessions` it doesn't use the session that is kept.
    pub(crate) fn of_shell(kept: &Arc<Kept>, own_sessions: bool) -> Self {
        Self {
            shell: Some(Arc::clone(kept)),
            own_sessions,
        }
    }

    /// A session with the server of `place`: that of the shell, or another one with what `options`
    /// and `security` say. If that is one with the shell's server, it is as the shell's own where
    /// they say nothing.
    ///
    /// # Errors
    /// It can't be opened.
    pub(crate) fn visit(
        &self,
        place: &RemotePlace,
        options: ClientOptions,
        security: &SecurityFlags,
    ) -> Result<Visit, Fault> {
        let kept = self.shell.as_ref().filter(|kept| kept.serves(place));
        let client = match kept {
            Some(kept) if !self.own_sessions => return kept.visit(),
            Some(kept) => kept.other_session(options, security)?,
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
        if let Some(kept) = &self.shell {
            kept.state().others.push(Arc::downgrade(&client));
        }
        Ok(Visit::new(client))
    }

    /// How the command hears that the user wants to stop.
    ///
    /// # Errors
    /// The system refuses the handler.
    pub(crate) fn interrupt(&self) -> Result<Interrupt, Fault> {
        match &self.shell {
            Some(kept) => Ok(kept.state().running.clone().unwrap_or_default()),
            None => Interrupt::install(|| ()),
        }
    }
}

/// The session that a shell keeps, and the command that it carries out now.
#[derive(Debug)]
pub(crate) struct Kept {
    place: RemotePlace,
    options: ClientOptions,
    /// Signals while no command is carried out end the program.
    ends_when_idle: bool,
    state: Mutex<State>,
    changed: Condvar,
}

#[derive(Debug, Default)]
struct State {
    visit: Option<Visit>,
    /// Sessions that the command opened besides.
    others: Vec<Weak<Client>>,
    running: Option<Interrupt>,
    /// Counts the commands.
    count: u64,
}

impl Kept {
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
        let kept = Arc::new(Self {
            place,
            options,
            ends_when_idle,
            state: Mutex::default(),
            changed: Condvar::new(),
        });
        let seen = Arc::clone(&kept);
        handle_signals(move || seen.signal())?;
        Ok(kept)
    }

    fn state(&self) -> MutexGuard<'_, State> {
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
    pub(crate) fn visit(&self) -> Result<Visit, Fault> {
        let mut state = self.state();
        let ended = match &state.visit {
            Some(visit) => match visit.ended() {
                None => return Ok(visit.clone()),
                Some(fault) => Some(fault),
            },
            None => None,
        };
        let mut visit = Visit::new(Arc::new(Client::connect(
            &self.place,
            self.options.clone(),
        )?));
        if let Some(before) = &state.visit {
            visit.keep_told(before);
        }
        let before = state.visit.replace(visit.clone());
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
        Ok(visit)
    }

    /// The server, once, if nobody knew it and the session came to trust it.
    pub(crate) fn first_use(&self) -> Option<FirstUse> {
        self.state().visit.as_ref().and_then(Visit::first_use)
    }

    /// The session if it is open.
    pub(crate) fn open_visit(&self) -> Option<Visit> {
        let visit = self.state().visit.clone();
        visit.filter(|visit| visit.ended().is_none())
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
        let waiting = |state: &mut State| state.running.is_some() && state.count == count;
        let waited = self.changed.wait_timeout_while(state, GRACE, waiting);
        let (state, waited) = waited.unwrap_or_else(PoisonError::into_inner);
        if !waited.timed_out() {
            return;
        }
        if let Some(visit) = &state.visit {
            visit.stop();
        }
        for client in state.others.iter().filter_map(Weak::upgrade) {
            client.stop();
        }
    }
}
