//! The client: one session with a server.

use std::net::ToSocketAddrs;
use std::path::Path;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::sync::{Arc, mpsc};
use std::thread;
use std::time::Duration;

use xdfs_engine::command::JobKind;
use xdfs_engine::kernel::Readiness;
use xdfs_engine::{Command, Commands, Dial, DownloadJob, Identity, Job, Pipeline, UploadJob};
use xdfs_proto::frame::{Resume, Start};
use xdfs_proto::{Code, DigestKind, Fault, FileId, Limits};
use xdfs_store::{LocalStore, Source, Store, StreamSource};
use xdfs_xio::Endpoint;

use crate::files::Line;
use crate::paths::Caller;
use crate::recognition::Ends;
use crate::remote::{Address, RemotePlace};
use crate::security::{ClientSecurity, Fingerprint, FirstUse, Level, SecureIdentity};
use crate::sinks::Nameless;
use crate::transfer::{LocalPlace, SessionEnd, Transfer, TransferOptions};

/// How a client opens its session.
#[derive(Clone, Debug, Default)]
pub struct ClientOptions {
    /// Number of channels; `None` picks it from the size of the file and the path.
    pub channels: Option<u32>,
    /// Size of a block in bytes, a power of two; `None` for the default.
    pub block_size: Option<u32>,
    /// Socket buffer of a channel in bytes; `None` leaves it to the system.
    pub window: Option<u32>,
    /// Start only when all channels have joined.
    pub strict: bool,
    /// What the peer may cost.
    pub limits: Limits,
    /// Which servers are believed and how this side shows who it is; `None` opens channels without
    /// protection, which only servers without it take.
    pub security: Option<ClientSecurity>,
}

/// A session with a server. Several transfers may run in it, back to back on the same channels,
/// and calls about paths at the same time. A session that is used for calls alone opens one channel
/// unless more are asked for.
#[derive(Debug)]
pub struct Client {
    commands: Commands,
    next_file: AtomicU32,
    caller: Caller,
    line: Arc<Line>,
    end: SessionEnd,
    path_bytes_max: usize,
    /// The server is on this machine.
    pub(crate) is_local: bool,
    identity: Option<Arc<SecureIdentity>>,
    /// Payload goes in the clear beside the protection.
    is_clear: AtomicBool,
    thread: Option<thread::JoinHandle<()>>,
}

impl Client {
    /// Starts to open a session with the server of `place`, whose path is not used. It does not
    /// wait for the answer: that saves a round trip, and a server that can't be reached or refuses
    /// shows in the first transfer.
    ///
    /// # Errors
    /// The address can't be resolved, a setting has no meaning, or the system gives no thread.
    pub fn connect(place: &RemotePlace, options: ClientOptions) -> Result<Self, Fault> {
        xdfs_sys::limit::raise_descriptor_limit();
        let again = options.clone();
        let level = options.security.as_ref().map(|s| s.level);
        let identity = match options.security {
            Some(security) => Some(Arc::new(SecureIdentity::new(
                security,
                &place.address,
                place.user.as_deref(),
            )?)),
            None => None,
        };
        let dial = Dial {
            endpoints: resolve(&place.address)?,
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
        };
        let path_bytes_max = options.limits.path_bytes_max;
        let listed_bytes_max = options.limits.listed_bytes_max;
        let is_local = dial.is_local();
        let kernel = Readiness::new().map_err(|e| Fault::from_io("open a session", "", &e))?;
        let (pipeline, commands) = Pipeline::initiate(kernel, dial, options.limits)?;
        let end = SessionEnd::default();
        let teller = end.teller();
        let thread = thread::Builder::new()
            .name("xdfs-client".into())
            .spawn(move || {
                let result = pipeline.run();
                if let Err(fault) = &result {
                    tracing::debug!(%fault, "the session ended");
                }
                teller.tell(result);
            })
            .map_err(|e| Fault::from_io("start the session's thread", "", &e))?;
        let caller = Caller::new(commands.clone(), end.clone(), listed_bytes_max);
        Ok(Self {
            line: Arc::new(Line::new(place.clone(), again, caller.clone())),
            caller,
            commands,
            next_file: AtomicU32::new(1),
            end,
            path_bytes_max,
            is_local,
            identity,
            is_clear: AtomicBool::new(level == Some(Level::Clear)),
            thread: Some(thread),
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
            JobKind::Upload(UploadJob {
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
        let name = source.rsplit(|b| *b == b'/').next().unwrap_or(&[]).to_vec();
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
            JobKind::Download(DownloadJob {
                source: source.to_vec(),
                store,
                target,
                name,
                wish: None,
            }),
        )?;
        Ok(transfer.between(ends))
    }

    /// What is compared where the target of a single file exists.
    fn ends(
        &self,
        is_upload: bool,
        [source, target, name]: [&[u8]; 3],
        options: &TransferOptions,
    ) -> Ends {
        Ends {
            caller: self.caller.clone(),
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
        kind: JobKind,
    ) -> Result<Transfer, Fault> {
        let remote = match &kind {
            JobKind::Download(job) => &job.source,
            JobKind::Upload(job) => &job.target,
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
        let (events, receiver) = mpsc::channel();
        let job = Job {
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
        self.commands
            .send(Command::Start(Box::new(job)))
            .map_err(|_| self.end.fault())?;
        let (commands, end) = (self.commands.clone(), self.end.clone());
        Ok(Transfer::new(file, commands, receiver, end))
    }

    pub(crate) fn caller(&self) -> &Caller {
        &self.caller
    }

    pub(crate) fn line(&self) -> &Arc<Line> {
        &self.line
    }

    /// The name that this side has at the server; `None` before the session is open, and on
    /// channels without protection.
    #[must_use]
    pub fn user(&self) -> Option<String> {
        self.identity.as_ref().and_then(|own| own.user())
    }

    /// What is seen of the server's key; `None` likewise.
    #[must_use]
    pub fn server_fingerprint(&self) -> Option<Fingerprint> {
        self.identity.as_ref().and_then(|own| own.server())
    }

    /// The server, if nobody knew it and this session came to trust it; `None` before the server is
    /// checked, for one that is known, pinned or vouched for, and without protection. A program
    /// should show it to its user.
    #[must_use]
    pub fn first_use(&self) -> Option<FirstUse> {
        self.identity.as_ref().and_then(|own| own.first_use())
    }

    /// Breaks one of the channels, as a failing network would. For demonstrations and tests.
    pub fn break_channel(&self) {
        let _ = self.commands.send(Command::BreakChannel);
    }

    /// Changes how the payload of this session travels from now on, in both directions, also that
    /// of transfers that are under way. Only for protected sessions; one whose server doesn't take
    /// [`Level::Clear`] ends with `protection-refused`. A transfer keeps the digest that it began
    /// with: one that began at [`Level::Private`] without naming any is checked by one that
    /// somebody in between can forge.
    pub fn protect(&self, level: Level) {
        self.is_clear
            .store(level == Level::Clear, Ordering::Relaxed);
        let _ = self.commands.send(Command::Protect(level));
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
        let _ = self.commands.send(Command::PreparePacks);
    }

    /// Takes one channel out of the session in an orderly way; another takes its place.
    pub fn leave_channel(&self) {
        let _ = self.commands.send(Command::Leave);
    }

    /// Why the session has ended; `None` as long as it has not. Nothing more can be done with it
    /// then, but another client can be connected.
    #[must_use]
    pub fn ended(&self) -> Option<Fault> {
        self.end.known()
    }

    /// Ends the session at once, without waiting for transfers, calls and files: they fail soon
    /// after, also those that other threads wait for. What has become durable of a transfer stays
    /// and can be resumed.
    pub fn stop(&self) {
        self.line.stop();
        self.stop_session();
    }

    pub(crate) fn stop_session(&self) {
        // A session that has ended needs no order.
        let _ = self.commands.send(Command::Drain(Duration::ZERO));
    }

    /// Ends the session in an orderly way, when its transfers and calls have ended; listings end at
    /// once. Dropping the client does the same.
    pub fn close(self) {}
}

impl Drop for Client {
    fn drop(&mut self) {
        self.line.close();
        let _ = self.commands.send(Command::Close);
        if let Some(thread) = self.thread.take() {
            // A panic of the session was reported by its transfers' silence.
            let _ = thread.join();
        }
    }
}

/// The endpoints of an address, in the order in which the system prefers them.
pub(crate) fn resolve(address: &Address) -> Result<Vec<Endpoint>, Fault> {
    match address {
        Address::Memory(name) => Ok(vec![Endpoint::Memory(name.clone())]),
        Address::Unix(path) => Ok(vec![Endpoint::Unix(path.clone())]),
        Address::Tcp { host, port } => {
            let fault = |cause: String| {
                Fault::new(Code::ConnectionRefused, format!("look up '{host}'"), cause)
                    .hint("check the name of the host")
            };
            let found: Vec<Endpoint> = (host.as_str(), *port)
                .to_socket_addrs()
                .map_err(|e| fault(e.to_string()))?
                .map(Endpoint::Tcp)
                .collect();
            if found.is_empty() {
                Err(fault("it has no address".into()))
            } else {
                Ok(found)
            }
        }
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

fn file_name(path: &Path) -> Vec<u8> {
    path.file_name().map(os_bytes).unwrap_or_default()
}
