//! The client: one session with a server.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};

use xdfs_engine::command::TransferKind;
use xdfs_engine::mailbox::mailbox;
use xdfs_engine::{
    Command, DownloadSpec, PathDecision, TransferParameters, TransferSpec, UploadSpec,
};
use xdfs_gridftp::client::FtpStore;
use xdfs_proto::frame::Resume;
use xdfs_proto::{Code, DigestKind, Fault, FileId, Machine};
use xdfs_store::{LocalStore, Source, Store, StreamSource};
use xdfs_sys::standard::Input as StandardInput;
use xdfs_xio::PathSample;

use crate::between::Origin;
use crate::files::{OpenOptions, RemoteFile};
use crate::ftp::FtpGateway;
use crate::local_path::{file_name, path_bytes};
use crate::paths::{
    Account, Answer, Attributes, Call, Listing, PendingAccountNames, PendingCall, look_up,
};
use crate::recognition::ComparedPaths;
use crate::reconnecting_session::ReconnectingSession;
use crate::remote::RemotePlace;
use crate::security::{Fingerprint, FirstUse, Level, SecureIdentity, of_xdfs};
pub use crate::session::ClientOptions;
use crate::session::Session;
use crate::session_end::SessionEnd;
use crate::sinks::Nameless;
use crate::skip::Skip;
use crate::transfer::{LocalPlace, Replacement, Transfer, TransferOptions, TransferRoute};

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
}

impl Client {
    /// Starts to open a session with the server of `place`, whose path is not used. It does not
    /// wait for the answer, which saves a round trip: the first transfer or call fails if the
    /// server can't be reached or refuses. Only a server that ssh has to start, and one of FTP, is
    /// waited for.
    ///
    /// # Errors
    /// The address can't be resolved, a setting is invalid, the thread can't be started, or a
    /// server that is waited for can't be reached or refuses.
    pub fn connect(place: &RemotePlace, options: ClientOptions) -> Result<Self, Fault> {
        let level = options.security.as_ref().map(|security| security.level);
        let path_bytes_max = options.limits.path_bytes_max;
        let shared = Arc::new(Shared {
            sessions: ReconnectingSession::connect(place, options)?,
            next_file: AtomicU32::new(1),
            path_bytes_max,
            is_clear: AtomicBool::new(level.is_some_and(|level| !level.encrypts())),
        });
        Ok(Self { shared })
    }

    /// Starts to send `source` to `target`, a path on the server. In a target directory the file
    /// keeps its name. An existing target is skipped, replaced or refused, as
    /// [`TransferOptions::skip`] and [`TransferParameters::overwrite`] say.
    ///
    /// # Errors
    /// The source can't be opened, or the session has ended. [`Transfer::wait`] returns later
    /// faults.
    pub fn upload(
        &self,
        source: &LocalPlace,
        target: &[u8],
        options: &TransferOptions,
    ) -> Result<Transfer, Fault> {
        let place = source;
        let is_file = matches!(source, LocalPlace::Path(_));
        let (source, source_path, name): (Box<dyn Source>, Vec<u8>, Vec<u8>) = match source {
            LocalPlace::Server(file) => {
                let path = &file.place().path;
                let paths = [path.as_slice(), target, &last_part(path)];
                let here = Arc::new(Origin(file.clone()));
                let compared = self.compared_paths(true, here, paths, options);
                let refuses = TransferOptions {
                    parameters: TransferParameters {
                        overwrite: options.parameters.overwrite && !looks_first(&compared),
                        ..options.parameters
                    },
                    ..options.clone()
                };
                let transfer = self.start_between(file, target, last_part(path), &refuses)?;
                let route = TransferRoute::Upload {
                    from: place.clone(),
                    to: target.to_vec(),
                };
                return Ok(self.compare(transfer, compared, route, options));
            }
            LocalPlace::Path(path) => (
                LocalStore::unrooted().open_source(&path_bytes(path))?,
                path_bytes(path),
                file_name(path),
            ),
            LocalPlace::Standard => (
                Box::new(StreamSource::new(Box::new(StandardInput), "standard input")),
                b"-".to_vec(),
                Vec::new(),
            ),
            LocalPlace::Memory => (
                Box::new(xdfs_store::ZeroSource::new(options.length)),
                b"mem:zero".to_vec(),
                Vec::new(),
            ),
        };
        let paths = [&source_path, target, &name];
        let here = Arc::new(LocalStore::unrooted());
        let compared = self.compared_paths(true, here, paths, options);
        let compared = compared.filter(|_| is_file);
        let refuses = TransferOptions {
            parameters: TransferParameters {
                overwrite: options.parameters.overwrite && !looks_first(&compared),
                ..options.parameters
            },
            ..options.clone()
        };
        let transfer = self.start(
            &refuses,
            TransferKind::Upload(UploadSpec {
                source,
                source_path,
                target: target.to_vec(),
                name,
                pack: false,
                relaxed: false,
                last: None,
            }),
        )?;
        let route = TransferRoute::Upload {
            from: place.clone(),
            to: target.to_vec(),
        };
        Ok(self.compare(transfer, compared, route, options))
    }

    /// Starts to fetch `source`, a path on the server, to `target`. An existing target is treated
    /// as by [`Self::upload`].
    ///
    /// # Errors
    /// The session has ended. [`Transfer::wait`] returns later faults.
    pub fn download(
        &self,
        source: &[u8],
        target: &LocalPlace,
        options: &TransferOptions,
    ) -> Result<Transfer, Fault> {
        let name = last_part(source);
        let place = target;
        let is_file = matches!(target, LocalPlace::Path(_));
        let (store, target): (Arc<dyn Store>, Vec<u8>) = match target {
            LocalPlace::Path(path) => {
                let store = match options.exact_mode {
                    true => LocalStore::unrooted(),
                    false => LocalStore::unrooted().masking_modes(),
                };
                (Arc::new(store), path_bytes(path))
            }
            LocalPlace::Standard => (Arc::new(Nameless::StandardOutput), b"-".to_vec()),
            LocalPlace::Memory => (Arc::new(Nameless::Null), b"mem:null".to_vec()),
            LocalPlace::Server(_) => {
                let cause = "a file goes to another server by an upload there";
                return Err(Fault::new(Code::InvalidArgument, "download", cause).path(source));
            }
        };
        let paths = [source, &target, &name];
        let here = Arc::new(LocalStore::unrooted());
        let compared = self.compared_paths(false, here, paths, options);
        let compared = compared.filter(|_| is_file);
        let refuses = TransferOptions {
            parameters: TransferParameters {
                overwrite: options.parameters.overwrite && !looks_first(&compared),
                ..options.parameters
            },
            ..options.clone()
        };
        let transfer = self.start(
            &refuses,
            TransferKind::Download(DownloadSpec {
                source: source.to_vec(),
                store,
                target,
                name,
                pack_request: None,
            }),
        )?;
        let route = TransferRoute::Download {
            from: source.to_vec(),
            to: place.clone(),
        };
        Ok(self.compare(transfer, compared, route, options))
    }

    /// Starts to send `source`, a path in a store of the caller, to `target`, a path on the server.
    /// In a target directory the file keeps the last component of `source` as its name.
    ///
    /// # Errors
    /// As [`Self::upload`].
    pub fn upload_from(
        &self,
        store: &dyn Store,
        source: &[u8],
        target: &[u8],
        options: &TransferOptions,
    ) -> Result<Transfer, Fault> {
        self.start(
            options,
            TransferKind::Upload(UploadSpec {
                source: store.open_source(source)?,
                source_path: source.to_vec(),
                target: target.to_vec(),
                name: last_part(source),
                pack: false,
                relaxed: false,
                last: None,
            }),
        )
    }

    /// Starts to fetch `source`, a path on the server, to `target`, a path in a store of the
    /// caller. A resumed transfer continues from the ranges that the store reports as durable.
    ///
    /// # Errors
    /// As [`Self::download`].
    pub fn download_to(
        &self,
        source: &[u8],
        store: Arc<dyn Store>,
        target: &[u8],
        options: &TransferOptions,
    ) -> Result<Transfer, Fault> {
        self.start(
            options,
            TransferKind::Download(DownloadSpec {
                source: source.to_vec(),
                store,
                target: target.to_vec(),
                name: last_part(source),
                pack_request: None,
            }),
        )
    }

    /// Starts a transfer by its route, as [`Self::upload`] and [`Self::download`] do.
    ///
    /// # Errors
    /// As [`Self::upload`] and [`Self::download`].
    pub fn transfer(
        &self,
        route: &TransferRoute,
        options: &TransferOptions,
    ) -> Result<Transfer, Fault> {
        match route {
            TransferRoute::Upload { from, to } => self.upload(from, to, options),
            TransferRoute::Download { from, to } => self.download(from, to, options),
        }
    }

    /// Source and target, to be compared if the target exists; `None` if nothing is skipped.
    fn compared_paths(
        &self,
        is_upload: bool,
        here: Arc<dyn Store>,
        [source, target, name]: [&[u8]; 3],
        options: &TransferOptions,
    ) -> Option<ComparedPaths> {
        let is_part = options.offset > 0 || options.length.is_some();
        let skip = match options.skip {
            // Parts of a file differ in nothing but their content.
            Skip::SizeAndTime | Skip::NotOlder if is_part => Skip::Identical,
            skip => skip,
        };
        let is_sent_again = skip == Skip::Identical && options.parameters.resume == Resume::Never;
        (skip != Skip::Never && !is_sent_again).then(|| ComparedPaths {
            caller: self.shared.sessions.caller().1,
            here,
            is_upload,
            source: source.to_vec(),
            target: target.to_vec(),
            name: name.to_vec(),
            offset: options.offset,
            length: options.length,
            digest: self.digest(options.parameters.digest),
            dry_run: options.parameters.dry_run,
            skip,
            masks_mode: !is_upload && !options.exact_mode,
        })
    }

    /// Has a transfer that doesn't replace its target compare it, once it was refused, and replace
    /// it then if `options` ask for that.
    fn compare(
        &self,
        transfer: Transfer,
        compared: Option<ComparedPaths>,
        route: TransferRoute,
        options: &TransferOptions,
    ) -> Transfer {
        let Some(compared) = compared else {
            return transfer;
        };
        let shared = Arc::downgrade(&self.shared);
        let replaces = options.parameters.overwrite && compared.skip != Skip::Identical;
        let options = TransferOptions {
            skip: Skip::Never,
            ..options.clone()
        };
        let replace = move || {
            let closed = || Fault::new(Code::Cancelled, "use a session", "the client was closed");
            let shared = shared.upgrade().ok_or_else(closed)?;
            Self { shared }.transfer(&route, &options)
        };
        let replace: Option<Replacement> = match replaces {
            true => Some(Box::new(replace)),
            false => None,
        };
        transfer.with_comparison(compared, replace)
    }

    pub(crate) fn start(
        &self,
        options: &TransferOptions,
        kind: TransferKind,
    ) -> Result<Transfer, Fault> {
        let remote = match &kind {
            TransferKind::Download(spec) => &spec.source,
            TransferKind::Upload(spec) => &spec.target,
        };
        if remote.len() > self.shared.path_bytes_max {
            let cause = format!("it is longer than {} bytes", self.shared.path_bytes_max);
            return Err(Fault::new(Code::NameTooLong, "use the name", cause)
                .path(remote)
                .hint("use a shorter path"));
        }
        let file = FileId(self.shared.next_file.fetch_add(1, Ordering::Relaxed));
        if remote.contains(&0) {
            let cause = "the path has a zero byte";
            return Err(Fault::new(Code::InvalidArgument, "use the name", cause).path(remote));
        }
        let session = self.session()?;
        let kind = match (kind, session.gateway()) {
            (TransferKind::Download(spec), Some(gateway)) if spec.pack_request.is_none() => {
                let store = gateway.store().comparing(&spec.source, spec.store);
                TransferKind::Download(DownloadSpec { store, ..spec })
            }
            (kind, _) => kind,
        };
        let (events, mailbox) = mailbox();
        let spec = TransferSpec {
            file,
            offset: options.offset,
            length: options.length,
            duration: options.duration,
            parameters: TransferParameters {
                digest: Some(self.digest(options.parameters.digest)),
                ..options.parameters
            },
            kind,
            events,
        };
        let Session { commands, end, .. } = &*session;
        let started = commands.send(Command::Start(Box::new(spec)));
        started.map_err(|_| end.fault())?;
        let commands = commands.clone();
        let cancel = move || {
            // A session that has ended has nothing to cancel.
            let _ = commands.send(Command::Cancel(file));
        };
        Ok(Transfer::new(cancel, mailbox, end.clone()).numbered(file))
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

    /// Whether a transfer of so many bytes that is interrupted resumes where it was when it is
    /// started again. With servers of FTP that is so only where they compute checksums, and promise
    /// more for uploads; with others always.
    #[must_use]
    pub fn resumes(&self, route: &TransferRoute, bytes: Option<u64>) -> bool {
        self.ftp_store().is_none_or(|store| match route {
            TransferRoute::Upload { .. } => store.resumes_upload(bytes),
            TransferRoute::Download { .. } => store.resumes_downloads(),
        })
    }

    /// The files of the server, if it is one of FTP.
    pub(crate) fn ftp_store(&self) -> Option<FtpStore> {
        let session = self.session().ok()?;
        session.gateway().map(FtpGateway::store)
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
    /// As [`PendingCall::wait`]; [`Code::Unsupported`] from a server that can't look up accounts.
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
            || session.gateway().is_some_and(FtpGateway::takes_password)
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

    /// Connects again to the server behind a gateway; `None` without a gateway.
    pub(crate) fn reconnect_behind(&self) -> Option<Result<(), Fault>> {
        let session = self.session().ok()?;
        session.gateway().map(|gateway| gateway.store().reconnect())
    }

    /// Whether the path to the server behind a gateway is long; `None` without a gateway.
    pub(crate) fn is_gateway_far(&self) -> Option<bool> {
        let session = self.session().ok()?;
        session.gateway().map(FtpGateway::is_far)
    }

    /// Announces that all of a tree on the server will be listed, and files of it read. Returns
    /// whether these are best asked for in the order of their sizes. Ends with [`Self::end_tree`].
    pub(crate) fn begin_tree(&self, path: &[u8]) -> bool {
        let session = self.session();
        session.is_ok_and(|session| session.gateway().is_some_and(|own| own.begin_tree(path)))
    }

    /// Takes back what [`Self::begin_tree`] has announced.
    pub(crate) fn end_tree(&self) {
        if let Ok(session) = self.session()
            && let Some(gateway) = session.gateway()
        {
            gateway.end_tree();
        }
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

/// Whether a target that may be replaced is compared first.
fn looks_first(compared: &Option<ComparedPaths>) -> bool {
    let skip = compared.as_ref().map(|compared| compared.skip);
    skip.is_some_and(|skip| skip != Skip::Identical)
}

impl Drop for Shared {
    fn drop(&mut self) {
        self.sessions.close();
    }
}

pub(crate) fn last_part(path: &[u8]) -> Vec<u8> {
    path.rsplit(|b| *b == b'/').next().unwrap_or(&[]).to_vec()
}
