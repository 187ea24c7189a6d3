//! The agent itself: it listens, answers, and ends when nobody needs it.
//!
//! Each connection has a thread, which costs little while it waits. Their number is bounded, as is
//! the time for a question; whoever gets no answer opens a session without the agent.

use std::fs::{self, File, Permissions, TryLockError};
use std::io::{self, Read as _};
use std::os::unix::fs::PermissionsExt as _;
use std::os::unix::net::{UnixListener, UnixStream};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::thread;
use std::time::{Duration, Instant};

use xdfs::{Code, Fault};

use super::folder::{AgentFolder, check_peer};
use super::keep::{CommandServer, KeptSession, KeptSessions};
use super::message::{self, Answer, Ask, Question, Reply, SessionWish, Status};
use crate::console::Console;
use crate::flags::{AgentRunFlags, OutputFlags};
use crate::interrupt::handle_signals;
use crate::log::start_log;

/// Most connections at a time.
const CONNECTIONS_MAX: usize = 64;
/// Time for a question to arrive.
const QUESTION: Duration = Duration::from_secs(5);
/// Time for an answer to be read.
const ANSWER: Duration = Duration::from_secs(5);
/// Time for running commands to end when the agent is stopped.
const GRACE: Duration = Duration::from_secs(10);
/// Pause after a failure to accept, such as for lack of descriptors.
const ACCEPT_PAUSE: Duration = Duration::from_millis(100);

/// Shortest and longest interval between two looks at unused sessions.
const TICK_MIN: Duration = Duration::from_millis(100);
const TICK_MAX: Duration = Duration::from_secs(60);

#[derive(Debug)]
struct Agent {
    folder: AgentFolder,
    idle: Duration,
    state: Mutex<State>,
    /// Signalled when the agent is to end, and when a session is no longer used.
    changed: Condvar,
}

#[derive(Debug)]
struct State {
    sessions: KeptSessions,
    connections: usize,
    /// Number of the next socket.
    next: u64,
    /// When the agent was asked for a session, or one was last used.
    used: Instant,
    is_ending: bool,
}

/// Runs the agent up to its end.
///
/// # Errors
/// Another one runs, or it can't listen.
pub(super) fn run(flags: &AgentRunFlags) -> Result<(), Fault> {
    if flags.detached {
        detach()?;
    }
    start_log(flags.output().log_level());
    let folder = AgentFolder::make()?;
    // Released by the kernel at the end of the process, however that comes.
    let _lock = lock(&folder)?;
    let socket = folder.socket();
    let name = socket.as_os_str().as_encoded_bytes().to_vec();
    let failed = |e: io::Error| Fault::from_io("listen for commands", name.clone(), &e);
    folder.clear().map_err(failed)?;
    let listener = UnixListener::bind(&socket).map_err(failed)?;
    fs::set_permissions(&socket, Permissions::from_mode(0o600)).map_err(failed)?;
    let agent = Arc::new(Agent {
        folder,
        idle: flags.idle,
        state: Mutex::new(State {
            sessions: KeptSessions::default(),
            connections: 0,
            next: 1,
            used: Instant::now(),
            is_ending: false,
        }),
        changed: Condvar::new(),
    });
    let signalled = Arc::clone(&agent);
    handle_signals(move || signalled.end())?;
    let accepting = Arc::clone(&agent);
    thread::Builder::new()
        .name("xdfs-agent".into())
        .spawn(move || accepting.accept(&listener))
        .map_err(failed)?;
    if !flags.detached {
        let text = format!("listening at {}", socket.display());
        Console::new(OutputFlags::default()).info(&text);
    }
    agent.wait_for_end();
    fs::remove_file(&socket).map_err(failed)?;
    agent.close();
    Ok(())
}

/// Leaves the session of the terminal, the current directory, and what was inherited.
fn detach() -> Result<(), Fault> {
    let failed = |e: io::Error| Fault::from_io("detach the agent", "", &e);
    // A pipe of a script would stay open otherwise.
    let inherited = fs::read_dir("/dev/fd").into_iter().flatten().flatten();
    let numbers = inherited.filter_map(|entry| entry.file_name().to_str()?.parse::<i32>().ok());
    for number in numbers.filter(|&number| number > 2).collect::<Vec<_>>() {
        // The one of the directory that was read is closed already.
        let _ = nix::unistd::close(number);
    }
    rustix::process::setsid().map_err(|e| failed(e.into()))?;
    std::env::set_current_dir("/").map_err(failed)
}

fn lock(folder: &AgentFolder) -> Result<File, Fault> {
    let path = folder.lock();
    let name = path.as_os_str().as_encoded_bytes();
    let failed = |e: io::Error| Fault::from_io("lock the agent's directory", name, &e);
    let mut options = File::options();
    std::os::unix::fs::OpenOptionsExt::mode(options.create(true).append(true), 0o600);
    let file = options.open(&path).map_err(failed)?;
    match file.try_lock() {
        Ok(()) => Ok(file),
        Err(TryLockError::Error(error)) => Err(failed(error)),
        Err(TryLockError::WouldBlock) => {
            let cause = "another agent of this user is running";
            Err(Fault::new(Code::Busy, "start the agent", cause)
                .hint("run `xdfs agent stop` to end it"))
        }
    }
}

impl Agent {
    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Asks the agent to end.
    fn end(&self) {
        self.state().is_ending = true;
        self.changed.notify_all();
    }

    /// Waits until the agent is asked to end, or nothing was used for a while. Closes the sessions
    /// that nobody uses meanwhile.
    fn wait_for_end(&self) {
        let mut state = self.state();
        while !state.is_ending {
            let unused = state.sessions.take_unused(self.idle);
            if !unused.is_empty() {
                drop(state);
                drop(unused);
                state = self.state();
                continue;
            }
            let since = state.used.elapsed();
            if state.sessions.users() == 0 && since >= self.idle {
                // Under the lock: who asks from now on is sent away.
                state.is_ending = true;
                return;
            }
            let time = match state.sessions.users() {
                0 => self.idle - since,
                // Another one may be unused.
                _ => self.idle,
            };
            let time = time.clamp(TICK_MIN, TICK_MAX);
            let waited = self.changed.wait_timeout(state, time);
            state = waited.unwrap_or_else(PoisonError::into_inner).0;
        }
    }

    /// Lets the running commands end, and closes all sessions.
    fn close(&self) {
        let waiting = |state: &mut State| state.sessions.users() > 0;
        let waited = self
            .changed
            .wait_timeout_while(self.state(), GRACE, waiting);
        let mut state = waited.unwrap_or_else(PoisonError::into_inner).0;
        let sessions = std::mem::take(&mut state.sessions);
        drop(state);
        drop(sessions);
    }

    fn accept(self: Arc<Self>, listener: &UnixListener) {
        loop {
            match listener.accept() {
                Ok((stream, _)) => self.begin(stream),
                Err(error) => {
                    tracing::warn!(%error, "a connection could not be accepted");
                    thread::sleep(ACCEPT_PAUSE);
                }
            }
        }
    }

    /// Starts a thread for a connection, unless there are too many.
    fn begin(self: &Arc<Self>, stream: UnixStream) {
        if let Err(error) = check_peer(&stream) {
            tracing::warn!(%error, "a connection is refused");
            return;
        }
        let mut state = self.state();
        if state.is_ending || state.connections >= CONNECTIONS_MAX {
            return;
        }
        state.connections += 1;
        drop(state);
        let connection = Connection(Arc::clone(self));
        let thread = thread::Builder::new().name("xdfs-agent".into());
        let started = thread.spawn(move || {
            if let Err(error) = connection.serve(&stream) {
                tracing::debug!(%error, "a connection ended");
            }
        });
        if let Err(error) = started {
            tracing::warn!(%error, "a thread could not be started");
        }
    }
}

/// A connection, which is counted.
struct Connection(Arc<Agent>);

impl Drop for Connection {
    fn drop(&mut self) {
        self.0.state().connections -= 1;
    }
}

impl Connection {
    /// Reads a question and answers it.
    fn serve(&self, stream: &UnixStream) -> io::Result<()> {
        let question: Question = message::read(stream, QUESTION)?;
        stream.set_write_timeout(Some(ANSWER))?;
        let reply = |answer| message::write(stream, &Reply::new(answer));
        match question.ask {
            Ask::Status => reply(Answer::Status(self.status())),
            Ask::Stop => {
                reply(Answer::Stopping)?;
                self.0.end();
                wait_for_close(stream)
            }
            Ask::Session => match question.wish() {
                Ok(wish) => self.serve_command(stream, wish),
                Err(reason) => reply(Answer::Own { reason }),
            },
        }
    }

    fn status(&self) -> Status {
        Status {
            process: std::process::id(),
            idle_s: self.0.idle.as_secs(),
            sessions: self.0.state().sessions.status(),
        }
    }

    /// Serves a command until it closes the connection.
    fn serve_command(&self, stream: &UnixStream, wish: SessionWish) -> io::Result<()> {
        let reply = |answer| message::write(stream, &Reply::new(answer));
        let own = |reason: &str| Answer::Own {
            reason: reason.into(),
        };
        let mut state = self.0.state();
        state.used = Instant::now();
        if state.is_ending {
            return reply(own("the agent is ending"));
        }
        let Some(session) = state.sessions.join(wish) else {
            return reply(own("the agent has too many sessions"));
        };
        let number = state.next;
        state.next += 1;
        drop(state);
        let user = User {
            agent: &self.0,
            session,
        };
        let client = match user.session.client() {
            Ok(client) => client,
            Err(answer) => return reply(answer),
        };
        let socket = self.0.folder.numbered(number);
        match CommandServer::start(client, &socket) {
            Ok(_server) => {
                reply(Answer::Session { socket })?;
                wait_for_close(stream)
            }
            Err(fault) => reply(own(&fault.to_string())),
        }
    }
}

/// A user of a session.
struct User<'a> {
    agent: &'a Agent,
    session: Arc<KeptSession>,
}

impl Drop for User<'_> {
    fn drop(&mut self) {
        let mut state = self.agent.state();
        state.sessions.leave(&self.session);
        state.used = Instant::now();
        self.agent.changed.notify_all();
    }
}

/// Waits until the other end closes the connection; it has nothing more to say.
fn wait_for_close(stream: &UnixStream) -> io::Result<()> {
    let mut stream = stream;
    loop {
        match stream.read(&mut [0]) {
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            read => return read.map(drop),
        }
    }
}
