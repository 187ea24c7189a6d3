//! The client: one session with a server.

use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};

use xdfs_engine::command::TransferKind;
use xdfs_engine::mailbox::mailbox;
use xdfs_engine::{Command, DownloadSpec, TransferSpec, UploadSpec};
use xdfs_proto::frame::Resume;
use xdfs_proto::{Code, DigestKind, Fault, FileId};
use xdfs_store::{LocalStore, Source, Store, StreamSource};

use crate::files::{OpenOptions, ReconnectingSession, RemoteFile};
use crate::paths::{Answer, Call, Listing, PendingCall};
use crate::recognition::Ends;
use crate::remote::RemotePlace;
use crate::security::{Fingerprint, FirstUse, Level};
pub use crate::session::ClientOptions;
use crate::session::Session;
use crate::sinks::Nameless;
use crate::transfer::{LocalPlace, Transfer, TransferOptions, TransferRoute};

/// A session with a server. Several transfers may run in it, back to back on the same channels,
/// and calls about paths at the same time. A session that is used for calls alone opens one channel
/// unless more are asked for.
#[derive(Debug)]
pub struct Client {
    session: Session,
    next_file: AtomicU32,
    /// The session that open files use.
    of_files: Arc<ReconnectingSession>,
    path_bytes_max: usize,
    /// Payload goes in the clear beside the protection.
    is_clear: AtomicBool,
}

impl Client {
    /// Starts to open a session with the server of `place`, whose path is not used. It does not
    /// wait for the answer: that saves a round trip, and a server that can't be reached or refuses
    /// shows in the first transfer.
    ///
    /// # Errors
    /// The address can't be resolved, a setting has no meaning, or the system gives no thread.
    pub fn connect(place: &RemotePlace, options: ClientOptions) -> Result<Self, Fault> {
        let level = options.security.as_ref().map(|security| security.level);
        let path_bytes_max = options.limits.path_bytes_max;
        let session = Session::connect(place, options.clone())?;
        let caller = session.caller.clone();
        let of_files = ReconnectingSession::new(place.clone(), options, caller);
        Ok(Self {
            session,
            next_file: AtomicU32::new(1),
            of_files: Arc::new(of_files),
            path_bytes_max,
            is_clear: AtomicBool::new(level == Some(Level::Clear)),
        })
    }

    /// Starts to send `source` to `target`, a path on the server. If `target` is a directory the
    /// file keeps its name in it. A target that exists is replaced or refused; but with
    /// [`TransferOptions::resume`] one that is the source already, as after an attempt of which
    /// nobody heard that it was published, is a success.
    ///
    /// # Errors
    /// The source can't be opened, or the session has ended. What fails later comes from
    /// [`Transfer::wait`].
    pub fn upload(
        &self,
        source: &LocalPlace,
        target: &[u8],
        options: &TransferOptions,
    ) -> Result<Transfer, Fault> {
        let is_file = matches!(source, LocalPlace::Path(_));
        let (source, source_path, name): (Box<dyn Source>, Vec<u8>, Vec<u8>) = match source {
            LocalPlace::Path(path) => (
                LocalStore::unrooted().open_source(&path_bytes(path))?,
                path_bytes(path),
                file_name(path),
            ),
            LocalPlace::Standard => (
                Box::new(StreamSource::new(
                    Box::new(std::io::stdin()),
                    "standard input",
                )),
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
        let ends = (is_file && options.resume).then(|| self.ends(true, paths, options));
        let transfer = self.start(
            options,
            TransferKind::Upload(UploadSpec {
                source,
                source_path,
                target: target.to_vec(),
                name,
                pack: false,
                relaxed: false,
            }),
        )?;
        Ok(transfer.between(ends))
    }

    /// Starts to fetch `source`, a path on the server, to `target`. With one that exists it is as
    /// in [`Self::upload`].
    ///
    /// # Errors
    /// The session has ended. What fails later comes from [`Transfer::wait`].
    pub fn download(
        &self,
        source: &[u8],
        target: &LocalPlace,
        options: &TransferOptions,
    ) -> Result<Transfer, Fault> {
        let name = last_part(source);
        let is_file = matches!(target, LocalPlace::Path(_));
        let (store, target): (Arc<dyn Store>, Vec<u8>) = match target {
            LocalPlace::Path(path) => (Arc::new(LocalStore::unrooted()), path_bytes(path)),
            LocalPlace::Standard => (Arc::new(Nameless::StandardOutput), b"-".to_vec()),
            LocalPlace::Memory => (Arc::new(Nameless::Null), b"mem:null".to_vec()),
        };
        let paths = [source, &target, &name];
        let ends = (is_file && options.resume).then(|| self.ends(false, paths, options));
        let transfer = self.start(
            options,
            TransferKind::Download(DownloadSpec {
                source: source.to_vec(),
                store,
                target,
                name,
                pack_request: None,
            }),
        )?;
        Ok(transfer.between(ends))
    }

    /// Starts to send `source`, a path in a store of the program's own, to `target`, a path on the
    /// server. If `target` is a directory the last part of `source` is its name there.
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
            }),
        )
    }

    /// Starts to fetch `source`, a path on the server, to `target`, a path in a store of the
    /// program's own. With resuming, that goes on from what the store gives as durable.
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
    /// Likewise.
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

    /// What is compared where the target of a single file exists.
    fn ends(
        &self,
        is_upload: bool,
        [source, target, name]: [&[u8]; 3],
        options: &TransferOptions,
    ) -> Ends {
        Ends {
            caller: self.session.caller.clone(),
            is_upload,
            source: source.to_vec(),
            target: target.to_vec(),
            name: name.to_vec(),
            offset: options.offset,
            length: options.length,
            digest: self.digest(options.digest),
            dry_run: options.dry_run,
        }
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
        if remote.len() > self.path_bytes_max {
            let cause = format!("it is longer than {} bytes", self.path_bytes_max);
            return Err(
                Fault::new(Code::NameTooLong, "name a file on the server", cause)
                    .path(remote)
                    .hint("use a shorter path"),
            );
        }
        let file = FileId(self.next_file.fetch_add(1, Ordering::Relaxed));
        if remote.contains(&0) {
            let cause = "the path has a zero byte";
            return Err(
                Fault::new(Code::InvalidArgument, "name a file on the server", cause).path(remote),
            );
        }
        let (events, mailbox) = mailbox();
        let spec = TransferSpec {
            file,
            offset: options.offset,
            length: options.length,
            duration: options.duration,
            rate_bytes_per_s_max: options.rate_bytes_per_s_max,
            digest: self.digest(options.digest),
            overwrite: options.overwrite,
            resume: match (options.resume, options.verify_resumed) {
                (false, _) => Resume::Never,
                (true, false) => Resume::Trust,
                (true, true) => Resume::Verify,
            },
            dry_run: options.dry_run,
            kind,
            events,
        };
        let Session { commands, end, .. } = &self.session;
        let started = commands.send(Command::Start(Box::new(spec)));
        started.map_err(|_| end.fault())?;
        let commands = commands.clone();
        let cancel = move || {
            // A session that has ended has nothing to cancel.
            let _ = commands.send(Command::Cancel(file));
        };
        Ok(Transfer::new(cancel, mailbox, end.clone()))
    }

    /// Makes a call and waits for its end. The parts of a listing are put together; where there
    /// may be many names [`Client::list`] needs less memory.
    ///
    /// # Errors
    /// As [`PendingCall::wait`].
    pub fn call(&self, call: Call) -> Result<Answer, Fault> {
        self.start_call(call)?.wait()
    }

    /// Starts a call without waiting; many may be under way at once. Those that are too many for
    /// the session wait in this process. What the session doesn't need for calls it uses for
    /// transfers at the same time.
    ///
    /// # Errors
    /// The session has ended. What fails later comes from [`PendingCall::wait`].
    pub fn start_call(&self, call: Call) -> Result<PendingCall, Fault> {
        self.session.caller.start_pending(call)
    }

    /// The names in a directory on the server as they come, in bounded memory. Errors come as
    /// items. A listing that isn't read to its end takes one of the 128 places for calls that a
    /// session has until it is dropped. Nothing is asked before the first name is wanted, unless
    /// [`Listing::begin`] does.
    #[must_use]
    pub fn list(&self, path: &[u8]) -> Listing {
        Listing::new(self.session.caller.clone(), path)
    }

    /// Opens a file on the server to work on it in place: a regular file or a named pipe. Links are
    /// followed.
    ///
    /// The file uses the session of this client, beside transfers and calls, and sessions of its
    /// own after that has broken. It has to be closed before the client is.
    ///
    /// # Errors
    /// What the server says, or why there is no session. With `create_new` the hint of the second
    /// says that the file may have been made.
    pub fn open_file(&self, path: &[u8], options: &OpenOptions) -> Result<RemoteFile, Fault> {
        RemoteFile::open_in(&self.of_files, path, options)
    }

    /// The server, as it was named.
    pub(crate) fn place(&self) -> &RemotePlace {
        self.of_files.place()
    }

    /// Whether the server is on this machine.
    pub(crate) fn is_local(&self) -> bool {
        self.session.is_local
    }

    /// The name that this side has at the server; `None` before the session is open, and on
    /// channels without protection.
    #[must_use]
    pub fn user(&self) -> Option<String> {
        self.session.identity.as_ref().and_then(|own| own.user())
    }

    /// What is seen of the server's key; `None` likewise.
    #[must_use]
    pub fn server_fingerprint(&self) -> Option<Fingerprint> {
        self.session.identity.as_ref().and_then(|own| own.server())
    }

    /// The server, if nobody knew it and this session came to trust it; `None` before the server is
    /// checked, for one that is known, pinned or vouched for, and without protection. A program
    /// should show it to its user.
    #[must_use]
    pub fn first_use(&self) -> Option<FirstUse> {
        self.session
            .identity
            .as_ref()
            .and_then(|own| own.first_use())
    }

    /// Breaks one of the channels, as a failing network would. For demonstrations and tests.
    pub fn break_channel(&self) {
        let _ = self.session.commands.send(Command::BreakChannel);
    }

    /// Changes how the payload of this session travels from now on, in both directions, also that
    /// of transfers that are under way. Only for protected sessions; one whose server doesn't take
    /// [`Level::Clear`] ends with `protection-refused`. A transfer keeps the digest that it began
    /// with: one that began at [`Level::Private`] without naming any is checked by one that
    /// somebody in between can forge.
    pub fn protect(&self, level: Level) {
        self.is_clear
            .store(level == Level::Clear, Ordering::Relaxed);
        let _ = self.session.commands.send(Command::Protect(level));
    }

    /// The digest of whole files where none is named: the cheap one that finds accidents; BLAKE3
    /// where payload goes in the clear, so that nobody in between changes what is published.
    #[must_use]
    pub fn default_digest(&self) -> DigestKind {
        if self.is_clear.load(Ordering::Relaxed) {
            DigestKind::Blake3
        } else {
            DigestKind::default()
        }
    }

    pub(crate) fn digest(&self, named: Option<DigestKind>) -> DigestKind {
        named.unwrap_or_else(|| self.default_digest())
    }

    /// Packs are going to be moved: opens the channels for them meanwhile.
    pub(crate) fn prepare_packs(&self) {
        let _ = self.session.commands.send(Command::PreparePacks);
    }

    /// Takes one channel out of the session in an orderly way; another takes its place.
    pub fn leave_channel(&self) {
        let _ = self.session.commands.send(Command::Leave);
    }

    /// Why the session has ended; `None` as long as it has not. Nothing more can be done with it
    /// then, but another client can be connected.
    #[must_use]
    pub fn ended(&self) -> Option<Fault> {
        self.session.end.known()
    }

    /// Ends the session at once, without waiting for transfers, calls and files: they fail soon
    /// after, also those that other threads wait for. What has become durable of a transfer stays
    /// and can be resumed.
    pub fn stop(&self) {
        self.of_files.stop();
        self.session.stop();
    }

    /// Ends the session in an orderly way, when its transfers and calls have ended; listings end at
    /// once. Dropping the client does the same.
    pub fn close(self) {}
}

impl Drop for Client {
    fn drop(&mut self) {
        self.of_files.close();
        // The session is closed next.
    }
}

#[cfg(unix)]
fn os_bytes(text: &std::ffi::OsStr) -> Vec<u8> {
    use std::os::unix::ffi::OsStrExt as _;
    text.as_bytes().to_vec()
}

#[cfg(not(unix))]
fn os_bytes(text: &std::ffi::OsStr) -> Vec<u8> {
    text.to_string_lossy().into_owned().into_bytes()
}

pub(crate) fn path_bytes(path: &Path) -> Vec<u8> {
    os_bytes(path.as_os_str())
}

fn last_part(path: &[u8]) -> Vec<u8> {
    path.rsplit(|b| *b == b'/').next().unwrap_or(&[]).to_vec()
}

fn file_name(path: &Path) -> Vec<u8> {
    path.file_name().map(os_bytes).unwrap_or_default()
}
