//! The client: one session with a server.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};

use xdfs_engine::{Command, PathDecision};
use xdfs_proto::{DigestKind, Fault, Machine};
use xdfs_store::{Place, Traits};
use xdfs_xio::PathSample;

use crate::files::{FileRange, OpenOptions, PendingRanges, RemoteFile};
use crate::paths::{
    Account, Answer, Attributes, Call, Listing, PendingAccountNames, PendingCall, look_up,
};
use crate::reconnecting_session::ReconnectingSession;
use crate::remote::RemotePlace;
use crate::security::{Fingerprint, FirstUse, Level, SecureIdentity, of_xdfs};
pub use crate::session::ClientOptions;
use crate::session::Session;
use crate::session_end::SessionEnd;

mod transfers;

/// A session with a server. It runs any number of transfers, back to back on the same channels, and
/// calls at the same time. A session without transfers opens one channel, unless
/// [`ClientOptions::channels`] asks for more.
///
/// A transfer or call fails if the session breaks. Open files and trees open another session then,
/// which all later transfers and calls of the client use.
#[derive(Debug)]
pub struct Client {
    shared: Arc<Shared>,
}

/// The parts of a client that transfers need to start again.
#[derive(Debug)]
struct Shared {
    sessions: Arc<ReconnectingSession>,
    next_file: AtomicU32,
    path_bytes_max: usize,
    /// Payload is sent unencrypted.
    is_clear: AtomicBool,
    /// The server has refused to copy files with other servers, or can't reach them.
    refuses_copies: AtomicBool,
    /// It has refused to copy trees with other servers, or can't reach them.
    refuses_trees: AtomicBool,
    /// Number of channels that the user wants; `None` to have it chosen.
    channels: Option<u32>,
}

impl Client {
    /// Starts to open a session with the server of `place`, whose path is not used. It does not
    /// wait for the answer, which saves a round trip: the first transfer or call fails if the
    /// server can't be reached or refuses. Only a server that ssh has to start, and one of another
    /// protocol, is waited for.
    ///
    /// # Errors
    /// The address can't be resolved, a setting is invalid, the thread can't be started, or a
    /// server that is waited for can't be reached or refuses.
    pub fn connect(place: &RemotePlace, options: ClientOptions) -> Result<Self, Fault> {
        let level = options.security.as_ref().map(|security| security.level);
        let path_bytes_max = options.limits.path_bytes_max;
        let channels = options.channels;
        let shared = Arc::new(Shared {
            sessions: ReconnectingSession::connect(place, options)?,
            next_file: AtomicU32::new(1),
            path_bytes_max,
            is_clear: AtomicBool::new(level.is_some_and(|level| !level.encrypts())),
            refuses_copies: AtomicBool::new(false),
            refuses_trees: AtomicBool::new(false),
            channels,
        });
        Ok(Self { shared })
    }

    /// Another handle to the same client.
    pub(crate) fn share(&self) -> Self {
        Self {
            shared: Arc::clone(&self.shared),
        }
    }

    /// The end of the present session.
    pub(crate) fn session_end(&self) -> Result<SessionEnd, Fault> {
        Ok(self.session()?.end.clone())
    }

    /// Number of channels that the user wants, for an order; 0 to have it chosen.
    pub(crate) fn channels(&self) -> u16 {
        let wanted = self.shared.channels.unwrap_or(0);
        u16::try_from(wanted).unwrap_or(u16::MAX)
    }

    /// Whether the server has refused to copy files with other servers.
    pub(crate) fn refuses_copies(&self) -> bool {
        self.shared.refuses_copies.load(Ordering::Relaxed)
    }

    /// Notes that the server has refused that, so that it isn't asked for each file of many.
    pub(crate) fn refuse_copies(&self) {
        self.shared.refuses_copies.store(true, Ordering::Relaxed);
    }

    /// Whether the server has refused to copy trees with other servers.
    pub(crate) fn refuses_trees(&self) -> bool {
        self.shared.refuses_trees.load(Ordering::Relaxed)
    }

    /// Notes that the server has refused that.
    pub(crate) fn refuse_trees(&self) {
        self.shared.refuses_trees.store(true, Ordering::Relaxed);
    }

    /// The traits of the places on the server.
    pub(crate) fn traits(&self) -> Traits {
        self.place().address.traits()
    }

    /// The place behind the session, if the server is one of another protocol.
    pub(crate) fn behind(&self) -> Option<Arc<dyn Place>> {
        self.session().ok()?.place().cloned()
    }

    fn session(&self) -> Result<Arc<Session>, Fault> {
        self.shared.sessions.session().map(|(_, session)| session)
    }

    fn command(&self, command: Command) {
        if let Ok(session) = self.session() {
            // A session that has ended has nothing left to do.
            let _ = session.commands.send(command);
        }
    }

    /// The sessions of this client.
    pub(crate) fn sessions(&self) -> &ReconnectingSession {
        &self.shared.sessions
    }

    /// Makes a call and waits for its end. The parts of a listing are joined; for large directories
    /// [`Client::list`] needs less memory.
    ///
    /// # Errors
    /// As [`PendingCall::wait`].
    pub fn call(&self, call: Call) -> Result<Answer, Fault> {
        self.start_call(call)?.wait()
    }

    /// Starts a call without waiting. Any number may be pending; those beyond the slots of the
    /// session wait in this process. Transfers continue at the same time.
    ///
    /// # Errors
    /// The session has ended. [`PendingCall::wait`] returns later faults.
    pub fn start_call(&self, call: Call) -> Result<PendingCall, Fault> {
        self.shared.sessions.caller().1.start_pending(call)
    }

    /// Lists a directory on the server in bounded memory. Errors come as items. An unfinished
    /// listing occupies one of the session's 128 slots for calls until it is dropped. The call is
    /// made when the first name is read, or by [`Listing::begin`].
    #[must_use]
    pub fn list(&self, path: &[u8]) -> Listing {
        Listing::new(self.shared.sessions.caller().1, path)
    }

    /// Starts to look up the names of owners and groups on the server, for entries of a directory
    /// that this user may list, or for such a path itself. Names that this session knows already
    /// aren't asked for again; the others are in one round trip, at the same time as other calls.
    #[must_use]
    pub fn account_names<'a>(
        &self,
        path: &[u8],
        of: impl IntoIterator<Item = &'a Attributes>,
    ) -> PendingAccountNames {
        PendingAccountNames::start(self.shared.sessions.caller().1, path, of)
    }

    /// Looks up users and groups of the server's system, by a path that this user may list: each
    /// one by name instead of number, or by number instead of name. The answers are in the order of
    /// the accounts; `None` is unknown there, or isn't told to this user.
    ///
    /// # Errors
    /// As [`PendingCall::wait`]; [`Code::Unsupported`](crate::Code::Unsupported) from a server that
    /// can't look up accounts.
    pub fn look_up(
        &self,
        path: &[u8],
        accounts: &[Account],
    ) -> Result<Vec<Option<Account>>, Fault> {
        look_up(&self.shared.sessions.caller().1, path, accounts)
    }

    /// Opens a file on the server for access in place: a regular file or a named pipe. Symbolic
    /// links are followed.
    ///
    /// The file shares the session of this client, and opens sessions of its own after that has
    /// broken. Close it before the client.
    ///
    /// # Errors
    /// The fault of the server or of the session. With `create_new` the hint of a session's fault
    /// says that the file may have been created.
    pub fn open_file(&self, path: &[u8], options: &OpenOptions) -> Result<RemoteFile, Fault> {
        RemoteFile::open_in(&self.shared.sessions, path, options)
    }

    /// Starts to read ranges of a regular file on the server, all of them at the same time.
    /// Symbolic links are followed. The file is open only meanwhile.
    ///
    /// # Errors
    /// The session has ended. The future returns later faults; it opens no other session.
    pub fn read_ranges(&self, path: &[u8], ranges: &[FileRange]) -> Result<PendingRanges, Fault> {
        PendingRanges::start(self.shared.sessions.caller().1, path, ranges.to_vec())
    }

    /// The server, as the user named it.
    #[must_use]
    pub fn place(&self) -> &RemotePlace {
        self.shared.sessions.place()
    }

    /// A path on the server, with one in the home of a user of ssh (which begins with `./`) made
    /// absolute if the home is known.
    #[must_use]
    pub fn absolute(&self, path: &[u8]) -> Vec<u8> {
        self.shared.sessions.absolute(path)
    }

    /// A fault about a path of the server that this side found: it names the server.
    #[must_use]
    pub fn fault_there(&self, fault: Fault) -> Fault {
        fault.remote().at(&self.machine())
    }

    /// The server, as messages name it.
    pub(crate) fn machine(&self) -> Machine {
        self.place().address.machine()
    }

    /// Whether the server is on this machine.
    pub(crate) fn is_local(&self) -> bool {
        self.session().is_ok_and(|session| session.is_local)
    }

    /// The user's name at the server; `None` before the session is open, and on channels without
    /// protection.
    #[must_use]
    pub fn user(&self) -> Option<String> {
        self.session().ok()?.identity.as_ref()?.user()
    }

    /// The fingerprint of the server's key; `None` in the same cases as [`Self::user`].
    #[must_use]
    pub fn server_fingerprint(&self) -> Option<Fingerprint> {
        self.session().ok()?.identity.as_ref()?.server()
    }

    /// The server, if this session was the first to trust it. `None` if the server is known, pinned
    /// or vouched for, before it is checked, and without protection. A program should show it to
    /// its user.
    #[must_use]
    pub fn first_use(&self) -> Option<FirstUse> {
        self.session().ok()?.identity.as_ref()?.first_use()
    }

    /// Takes the decisions about the network path that were made since the last time, for a program
    /// that shows or records them. The first are made while the session opens.
    #[must_use]
    pub fn take_path_decisions(&self) -> Vec<PathDecision> {
        self.shared.sessions.decisions().take()
    }

    /// Whether the server takes passwords, so that a program may ask its user for one after a
    /// refused login. `false` before the server has said so, and without protection.
    #[must_use]
    pub fn takes_password(&self) -> bool {
        let Ok(session) = self.session() else {
            return false;
        };
        let of_identity = |own: &Arc<SecureIdentity>| own.takes_password();
        session.identity.as_ref().is_some_and(of_identity)
            || session.place().is_some_and(|place| place.takes_password())
    }

    /// Breaks one of the channels, as a failing network would. For demonstrations and tests.
    pub fn break_channel(&self) {
        self.command(Command::BreakChannel);
    }

    /// Changes the protection of payload from now on, in both directions and for running transfers
    /// too. Only for protected sessions. If the server refuses [`Level::Clear`], the session ends
    /// with `protection-refused`. A running transfer keeps its digest: the default digest of
    /// [`Level::Private`] can be forged by an attacker on the path.
    ///
    /// # Errors
    /// The level is one of GridFTP servers; nothing has changed.
    pub fn protect(&self, level: Level) -> Result<(), Fault> {
        let told = of_xdfs(level)?;
        self.shared
            .is_clear
            .store(!level.encrypts(), Ordering::Relaxed);
        self.shared.sessions.set_level(level);
        self.command(Command::Protect(told));
        Ok(())
    }

    /// The default digest of whole files: CRC-64/NVME, which is cheap and detects accidents. For
    /// unencrypted payload it is BLAKE3, which also detects an attacker on the path.
    #[must_use]
    pub fn default_digest(&self) -> DigestKind {
        if self.shared.is_clear.load(Ordering::Relaxed) {
            DigestKind::Blake3
        } else {
            DigestKind::default()
        }
    }

    pub(crate) fn digest(&self, named: Option<DigestKind>) -> DigestKind {
        named.unwrap_or_else(|| self.default_digest())
    }

    /// Opens the channels that packs will need.
    pub(crate) fn prepare_packs(&self) {
        self.command(Command::PreparePacks);
    }

    /// Measures the network path of each open channel. There are none where the system measures
    /// nothing (it does on Linux, for TCP), and before the session is open.
    ///
    /// # Errors
    /// The session has ended.
    pub fn measure_channels(&self) -> Result<Vec<PathSample>, Fault> {
        let session = self.session()?;
        let (reply, samples) = std::sync::mpsc::channel();
        let sent = session.commands.send(Command::Measure(reply));
        sent.map_err(|_| session.end.fault())?;
        samples.recv().map_err(|_| session.end.fault())
    }

    /// Takes one channel out of the session in an orderly way; another takes its place.
    pub fn leave_channel(&self) {
        self.command(Command::Leave);
    }

    /// The reason of the session's end; `None` while it runs. After the end, connect another
    /// client.
    #[must_use]
    pub fn ended(&self) -> Option<Fault> {
        self.session()
            .map_or_else(Some, |session| session.end.known())
    }

    /// Ends the session at once. Its transfers, calls and files fail soon after, even if other
    /// threads wait for them. Durable data stays for a resume.
    pub fn stop(&self) {
        self.shared.sessions.stop();
    }

    /// Ends the session once its transfers and calls have ended; listings end at once. Dropping the
    /// client does the same.
    pub fn close(self) {}
}

impl Drop for Shared {
    fn drop(&mut self) {
        self.sessions.close();
    }
}
