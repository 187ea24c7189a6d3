//! The sessions of the agent, and their use by commands.

use std::path::Path;
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

use xdfs::security::Fingerprint;
use xdfs::settings::{Attendance, UserFolder};
use xdfs::{Address, Call, Client, ClientOptions, Fault, ServerBuilder, ServerHandle};

use super::message::{Answer, SessionStatus, SessionWish};

/// Most sessions with servers.
const SESSIONS_MAX: usize = 32;

/// A session that commands share.
#[derive(Debug)]
pub(super) struct KeptSession {
    wish: SessionWish,
    /// `None` before it is opened. The lock is held meanwhile, so that commands wait for it.
    client: Mutex<Option<OpenSession>>,
}

#[derive(Debug)]
struct OpenSession {
    client: Arc<Client>,
    /// The known keys of its server when it was opened.
    known: Vec<Fingerprint>,
}

/// All sessions, with the number of their users and the time of their last use.
#[derive(Debug, Default)]
pub(super) struct KeptSessions(Vec<(Arc<KeptSession>, usize, Instant)>);

impl KeptSessions {
    /// Adds a user to the session that is wished for; `None` if there are too many in use.
    pub(super) fn join(&mut self, wish: SessionWish) -> Option<Arc<KeptSession>> {
        let found = self.0.iter().position(|(kept, ..)| kept.wish == wish);
        let at = match found {
            Some(at) => at,
            None => {
                if self.0.len() >= SESSIONS_MAX {
                    let unused = self.0.iter().enumerate().filter(|(_, kept)| kept.1 == 0);
                    let oldest = unused.min_by_key(|(_, kept)| kept.2).map(|(at, _)| at)?;
                    let (oldest, ..) = self.0.swap_remove(oldest);
                    // Its end takes a moment.
                    thread::spawn(move || drop(oldest));
                }
                let client = Mutex::default();
                let kept = Arc::new(KeptSession { wish, client });
                self.0.push((kept, 0, Instant::now()));
                self.0.len() - 1
            }
        };
        let kept = &mut self.0[at];
        kept.1 += 1;
        Some(Arc::clone(&kept.0))
    }

    /// Removes a user of a session.
    pub(super) fn leave(&mut self, session: &Arc<KeptSession>) {
        let mut kept = self.0.iter_mut();
        if let Some(kept) = kept.find(|kept| Arc::ptr_eq(&kept.0, session)) {
            kept.1 -= 1;
            kept.2 = Instant::now();
        }
    }

    /// Takes out the sessions that nobody has used for `time`, to be dropped without a lock.
    pub(super) fn take_unused(&mut self, time: Duration) -> Vec<Arc<KeptSession>> {
        let is_unused = |kept: &mut (_, usize, Instant)| kept.1 == 0 && kept.2.elapsed() >= time;
        let unused = self.0.extract_if(.., is_unused);
        unused.map(|(session, ..)| session).collect()
    }

    /// Number of users of all sessions.
    pub(super) fn users(&self) -> usize {
        self.0.iter().map(|kept| kept.1).sum()
    }

    pub(super) fn status(&self) -> Vec<SessionStatus> {
        let status = self.0.iter().map(|(kept, users, _)| SessionStatus {
            url: kept.wish.url.clone(),
            users: *users,
        });
        status.collect()
    }
}

impl KeptSession {
    /// The session, opened if it isn't open. It is opened again after a change of the server's
    /// known keys, since the trust in it may have ended.
    ///
    /// # Errors
    /// The answer to the command.
    pub(super) fn client(&self) -> Result<Arc<Client>, Answer> {
        let mut kept = self.client.lock().unwrap_or_else(PoisonError::into_inner);
        let own = |reason| Answer::Own { reason };
        let (place, login) = self.wish.login().map_err(own)?;
        // The command says the same of its own files.
        let own_files = |fault: Fault| own(fault.to_string());
        let folder = UserFolder::find().map_err(own_files)?;
        let known = folder.known_keys(&place).map_err(own_files)?;
        if let Some(open) = kept.as_ref()
            && open.client.ended().is_none()
            && open.known == known
        {
            return Ok(Arc::clone(&open.client));
        }
        *kept = None;
        let failed = |fault: Fault| Answer::Failed(fault.into());
        let security = login.security(&place, Attendance::Shared);
        let security = security.map_err(own_files)?;
        let options = ClientOptions {
            channels: Some(1),
            security,
            ..ClientOptions::default()
        };
        let client = Client::connect(&place, options).map_err(failed)?;
        // The shortest call: only its answer shows whether the session is open.
        let asked = client.call(Call::Stat {
            path: b"/".to_vec(),
            follow: true,
        });
        if let Err(fault) = asked
            && let Some(end) = client
                .ended()
                .or_else(|| fault.ends_session.then_some(fault))
        {
            return Err(failed(end));
        }
        let client = Arc::new(client);
        *kept = Some(OpenSession {
            client: Arc::clone(&client),
            known,
        });
        Ok(client)
    }
}

/// A server for one command. Dropping it cancels its calls.
#[derive(Debug)]
pub(super) struct CommandServer {
    handle: ServerHandle,
    thread: Option<JoinHandle<Result<(), Fault>>>,
}

impl CommandServer {
    /// Listens at `socket`.
    ///
    /// # Errors
    /// The socket or the thread can't be made.
    pub(super) fn start(client: Arc<Client>, socket: &Path) -> Result<Self, Fault> {
        let builder = ServerBuilder {
            listen: vec![Address::Unix(socket.into()).into()],
            // One, and another one if its channel breaks.
            sessions_max: 2,
            grace: Duration::ZERO,
            ..ServerBuilder::default()
        };
        let server = builder.bind_forwarding(client)?;
        let handle = server.handle();
        let thread = thread::Builder::new()
            .name("xdfs-agent".into())
            .spawn(move || server.run())
            .map_err(|e| Fault::from_io("serve a command", "", &e))?;
        Ok(Self {
            handle,
            thread: Some(thread),
        })
    }
}

impl Drop for CommandServer {
    fn drop(&mut self) {
        self.handle.shutdown();
        if let Some(Ok(Err(fault))) = self.thread.take().map(JoinHandle::join) {
            tracing::warn!(%fault, "the server of a command failed");
        }
    }
}
