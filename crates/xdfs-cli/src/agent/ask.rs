//! The side of commands: asks the agent, and starts one where the configuration wants it.

use std::io;
use std::net::Shutdown;
use std::os::unix::net::UnixStream;
use std::process::{Command, Stdio};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Weak};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

use xdfs::settings::{AMBIENT_SECRETS, Login};
use xdfs::{Address, Client, ClientOptions, Code, Fault, RemotePlace};

use super::folder::{AgentFolder, check_peer};
use super::message::{self, Answer, Ask, Question, Reply, SessionWish};
use crate::secret::may_ask_password;

/// Time for the agent to open a session: more than opening one may take.
const OPENING: Duration = Duration::from_secs(30);
/// Time for other answers.
const ANSWER: Duration = Duration::from_secs(5);
/// Time for an agent to start.
const STARTING: Duration = Duration::from_secs(3);
/// Time for an agent to end: more than it gives to running commands, and to servers.
const ENDING: Duration = Duration::from_secs(20);
/// Interval between two attempts to connect.
const PAUSE: Duration = Duration::from_millis(10);
/// Time between the end of a channel and that of the connection to the agent, if it was killed.
const NEWS: Duration = Duration::from_millis(500);

/// Whether to start an agent that isn't there.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Start {
    No,
    Yes,
}

/// A part in a session of the agent. The agent ends its use when this is dropped.
#[derive(Debug)]
pub(crate) struct AgentLease {
    stream: UnixStream,
    has_ended: Arc<AtomicBool>,
    thread: Option<JoinHandle<()>>,
}

impl AgentLease {
    /// Watches the connection. If the agent ends, so does the session of `client`.
    fn new(stream: UnixStream, client: Weak<Client>) -> io::Result<Self> {
        let has_ended = Arc::new(AtomicBool::new(false));
        let (watched, ended) = (stream.try_clone()?, Arc::clone(&has_ended));
        let thread = thread::Builder::new().name("xdfs-lease".into());
        let thread = thread.spawn(move || {
            // The agent says nothing more.
            while io::Read::read(&mut &watched, &mut [0]).is_ok_and(|count| count > 0) {}
            ended.store(true, Ordering::SeqCst);
            if let Some(client) = client.upgrade() {
                client.stop();
            }
        })?;
        Ok(Self {
            stream,
            has_ended,
            thread: Some(thread),
        })
    }

    /// What `fault`, which came with the end of the session, means if the agent has ended: this
    /// connection shows it a moment before or after.
    pub(crate) fn explained(&self, fault: &Fault) -> Option<Fault> {
        let end = Instant::now() + NEWS;
        while !self.has_ended.load(Ordering::SeqCst) {
            if Instant::now() > end {
                return None;
            }
            thread::sleep(PAUSE);
        }
        let cause = "the agent that shares the session has ended";
        let lost = Fault::new(Code::ConnectionLost, &fault.operation, cause).path(&fault.path);
        Some(lost.hint("check what was done, and run the command again"))
    }
}

impl Drop for AgentLease {
    fn drop(&mut self) {
        // An agent that has ended needs no message.
        let _ = self.stream.shutdown(Shutdown::Both);
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}

/// A session with the server of `place` by the agent; `None` if the command has to open its own.
///
/// # Errors
/// The agent could not open the session, and neither could the command.
pub(crate) fn shared_session(
    place: &RemotePlace,
    login: &Login,
    start: Start,
) -> Result<Option<(Arc<Client>, AgentLease)>, Fault> {
    let own = |reason: &str| {
        tracing::info!(%reason, "the session is not shared");
        Ok(None)
    };
    let wish = match SessionWish::new(place, login) {
        Ok(wish) => wish,
        Err(reason) => return own(reason),
    };
    let Some(question) = Question::session(&wish) else {
        return own("a path is not UTF-8");
    };
    let stream = match connect(start) {
        Ok(stream) => stream,
        Err(fault) if fault.code == Code::NotFound => return Ok(None),
        Err(fault) => return own(&fault.to_string()),
    };
    let reply = match exchange(&stream, &question, OPENING) {
        Ok(reply) => reply,
        Err(fault) => return own(&fault.to_string()),
    };
    if !reply.is_of_this_version() {
        let reason = format!(
            "the agent is xdfs {}: stop it to start another",
            reply.program
        );
        return own(&reason);
    }
    let socket = match reply.answer {
        Answer::Session { socket } => socket,
        Answer::Own { reason } => return own(&reason),
        Answer::Failed(text) => {
            let fault = Fault::from(text);
            // The command may trust a new server, or ask for a password.
            return match fault.code == Code::ServerUntrusted || may_ask_password(login, place) {
                true => own(&fault.to_string()),
                false => Err(fault),
            };
        }
        _ => return own("the agent gave a strange answer"),
    };
    let options = ClientOptions {
        channels: Some(1),
        via: Some(Address::Unix(socket)),
        ..ClientOptions::default()
    };
    // The stack is that of the agent's session.
    let server = RemotePlace {
        stack: None,
        ..place.clone()
    };
    let client = Arc::new(Client::connect(&server, options)?);
    let lease = AgentLease::new(stream, Arc::downgrade(&client));
    let lease = lease.map_err(|e| Fault::from_io("watch the agent", "", &e))?;
    tracing::info!("the session is shared");
    Ok(Some((client, lease)))
}

/// Asks the agent something else than for a session.
///
/// # Errors
/// There is none, or it doesn't answer.
pub(super) fn control(ask: Ask) -> Result<Reply, Fault> {
    exchange(&connect(Start::No)?, &Question::new(ask), ANSWER)
}

/// Ends the agent, and waits for that.
///
/// # Errors
/// There is none, or it doesn't end.
pub(super) fn stop() -> Result<(), Fault> {
    const OPERATION: &str = "stop the agent";
    let stream = connect(Start::No)?;
    let reply = exchange(&stream, &Question::new(Ask::Stop), ANSWER)?;
    if !matches!(reply.answer, Answer::Stopping) {
        return Err(strange(OPERATION));
    }
    let failed = |e: io::Error| Fault::from_io(OPERATION, "", &e);
    stream.set_read_timeout(Some(ENDING)).map_err(failed)?;
    match io::Read::read(&mut &stream, &mut [0]) {
        Ok(_) => Ok(()),
        Err(error) if error.kind() == io::ErrorKind::ConnectionReset => Ok(()),
        Err(_) => {
            let cause = format!("it did not end in {} s", ENDING.as_secs());
            Err(Fault::new(Code::DeadlineExceeded, OPERATION, cause))
        }
    }
}

/// The fault of an answer that doesn't fit.
pub(super) fn strange(operation: &str) -> Fault {
    let cause = "it gave an answer of another kind";
    Fault::new(Code::ProtocolViolation, operation, cause)
}

fn exchange(stream: &UnixStream, question: &Question, time: Duration) -> Result<Reply, Fault> {
    let failed = |e: io::Error| Fault::from_io("ask the agent", "", &e);
    stream.set_write_timeout(Some(ANSWER)).map_err(failed)?;
    message::write(stream, question).map_err(failed)?;
    message::read(stream, time).map_err(failed)
}

/// Connects to the agent.
///
/// # Errors
/// [`Code::NotFound`] if there is none; its directory or its user can't be trusted.
fn connect(start: Start) -> Result<UnixStream, Fault> {
    match (try_connect(), start) {
        (Err(fault), Start::Yes) if fault.code == Code::NotFound => {}
        (connected, _) => return connected,
    }
    let program = std::env::current_exe();
    let failed = |e: io::Error| Fault::from_io("start the agent", "", &e);
    let mut command = Command::new(program.map_err(failed)?);
    command.args(["agent", "run", "--detached"]);
    // It has no use for them, and shall not keep them.
    for name in AMBIENT_SECRETS {
        command.env_remove(name);
    }
    let streams = command.stdin(Stdio::null()).stdout(Stdio::null());
    let mut agent = streams.stderr(Stdio::null()).spawn().map_err(failed)?;
    let mut end = Instant::now() + STARTING;
    loop {
        match try_connect() {
            Err(fault) if fault.code == Code::NotFound && Instant::now() < end => {}
            Err(fault) if fault.code == Code::NotFound => {
                let cause = "it does not listen";
                return Err(Fault::new(Code::DeadlineExceeded, "start the agent", cause)
                    .hint("run `xdfs agent run` to see why"));
            }
            connected => return connected,
        }
        // One that isn't the first ends too; then the first is about to listen.
        let second = i32::from(Code::Busy.exit_code());
        if let Ok(Some(status)) = agent.try_wait()
            && status.code() != Some(second)
        {
            end = Instant::now();
        }
        thread::sleep(PAUSE);
    }
}

fn try_connect() -> Result<UnixStream, Fault> {
    const OPERATION: &str = "connect to the agent";
    let absent = || {
        Fault::new(Code::NotFound, OPERATION, "none is running")
            .hint("`xdfs agent --help` tells how one starts")
    };
    let folder = match AgentFolder::open() {
        Err(fault) if fault.code == Code::NotFound => return Err(absent()),
        folder => folder?,
    };
    let stream = match UnixStream::connect(folder.socket()) {
        // A socket that is left of an agent that was killed refuses.
        Err(e)
            if matches!(
                e.kind(),
                io::ErrorKind::NotFound | io::ErrorKind::ConnectionRefused
            ) =>
        {
            return Err(absent());
        }
        connected => connected.map_err(|e| Fault::from_io(OPERATION, "", &e))?,
    };
    check_peer(&stream).map_err(|e| Fault::from_io(OPERATION, "", &e))?;
    Ok(stream)
}
