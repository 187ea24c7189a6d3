//! The service: its state folder, its listener, and what its parts share.

use std::fs::{self, File, TryLockError};
use std::io::Write as _;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use tokio::net::TcpListener;
use tokio::runtime::Runtime;
use tokio::sync::{Notify, watch};
use xdfs::security::{HttpsTls, trusted};
use xdfs::{Code, Fault, raise_descriptor_limit};

use crate::access::{Access, People, ServiceUsers};
use crate::database::DatabaseUrl;
use crate::lease::Lease;
use crate::lines::Incoming;
use crate::listen;
use crate::live::Live;
use crate::manifest::ManifestKey;
use crate::places::Places;
use crate::routes::router;
use crate::scheduler::Limits;
use crate::secret::SealingKey;
use crate::sessions::Sessions;
use crate::shared::Shared;
use crate::state::ProcessId;
use crate::store::{self, Store};
use crate::webhook::{WebhookOptions, Webhooks};
use crate::worker::{Means, Workers};
use crate::{deliveries, upkeep};

const START: &str = "start the service";
/// The file with the URL of the running service.
pub(crate) const URL_FILE: &str = "url";

/// The file of SQLite.
const DATABASE_FILE: &str = "service.db";

/// The settings of a service.
#[derive(Debug)]
pub struct ServiceOptions {
    /// The address to listen on, of this machine only: there is no TLS.
    pub listen: SocketAddr,
    /// The listener for other machines, by TLS; `None` for none.
    pub tls: Option<TlsListener>,
    /// The state folder, made if missing: database, token, journals. One service has it at a time.
    pub data: PathBuf,
    /// A database of PostgreSQL, which several services may share; `None` for SQLite in the folder.
    pub database: Option<DatabaseUrl>,
    /// The directory of the journals of trees, made if missing; `None` for one in the folder.
    /// Services that share a database share this directory.
    pub journals: Option<PathBuf>,
    /// Time after which other services take over the jobs of one that shares its database and
    /// neither lives nor reaches the database any more.
    pub lease: Duration,
    /// Jobs that this process runs at the same time.
    pub workers: usize,
    /// Jobs that run at the same time on all services with the same database.
    pub limits: JobLimits,
    /// The URL under which others reach it, if a proxy with TLS is in front of it.
    pub public_url: Option<String>,
    /// How long jobs are kept after they have ended, unless they have a time of their own; `None`
    /// for ever.
    pub keep: Option<Duration>,
    /// The settings of webhooks.
    pub webhooks: WebhookOptions,
    /// The users who may log in, beside its owner; `None` for none.
    pub users: Option<ServiceUsers>,
    /// The file of the key that secrets are sealed by: 64 hexadecimal digits. `None` for the one in
    /// the environment (`XDFS_SERVICE_SECRETS_KEY`), in systemd's credentials
    /// (`xdfs-secrets-key`), or in the state folder, which is made there.
    pub secrets_key: Option<PathBuf>,
    /// The sessions with servers.
    pub sessions: Sessions,
}

/// Where a service listens for other machines.
#[derive(Debug)]
pub struct TlsListener {
    /// The address.
    pub listen: SocketAddr,
    /// Its TLS: that of [`ServiceUsers::with_certificates`].
    pub tls: HttpsTls,
}

/// Most jobs that run at the same time on all services with the same database.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct JobLimits {
    /// In all.
    pub all: usize,
    /// Of one user.
    pub user: usize,
    /// Between the same two servers. How many do so is found out within this limit.
    pub link: usize,
}

impl Default for JobLimits {
    /// Eight between two servers, and no other limit.
    fn default() -> Self {
        Self {
            all: usize::MAX,
            user: usize::MAX,
            link: 8,
        }
    }
}

fn number(limit: usize) -> u32 {
    u32::try_from(limit).unwrap_or(u32::MAX).max(1)
}

/// A service that listens and has its database, but runs no job yet.
#[derive(Debug)]
pub struct Service {
    runtime: Runtime,
    listener: TcpListener,
    address: SocketAddr,
    protected: Option<(TcpListener, SocketAddr, HttpsTls)>,
    shared: Arc<Shared>,
    public_url: Option<String>,
    keep: Option<Duration>,
    data: PathBuf,
    /// Held as long as the service has the state folder.
    _lock: File,
}

/// Ends a service from another thread. Clones end the same one.
#[derive(Clone, Debug)]
pub struct ServiceHandle {
    closing: watch::Sender<bool>,
}

impl ServiceHandle {
    /// Ends the service in an orderly way, and doesn't wait for that: running jobs are stopped and
    /// wait for the next start.
    pub fn shutdown(&self) {
        self.closing.send_replace(true);
    }
}

/// Takes the state folder for this process.
fn lock(folder: &Path) -> Result<File, Fault> {
    let path = folder.join("lock");
    let name = path.as_os_str().as_encoded_bytes();
    let file = File::options()
        .create(true)
        .truncate(false)
        .write(true)
        .open(&path);
    let file = file.map_err(|error| Fault::from_io(START, name, &error))?;
    match file.try_lock() {
        Ok(()) => Ok(file),
        Err(TryLockError::WouldBlock) => {
            let cause = "another service uses this folder";
            let fault =
                Fault::new(Code::Busy, START, cause).path(folder.as_os_str().as_encoded_bytes());
            Err(fault.hint("end it, or name another folder with --data"))
        }
        Err(TryLockError::Error(error)) => Err(Fault::from_io(START, name, &error)),
    }
}

/// Writes the database of SQLite in a state folder to a new file, whether a service uses it or not.
///
/// # Errors
/// There is no database, the file exists, or it can't be written.
pub fn backup(data: &Path, target: &Path) -> Result<(), Fault> {
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build();
    let runtime = runtime.map_err(|error| Fault::from_io("back up the database", "", &error))?;
    runtime.block_on(store::backup(&data.join(DATABASE_FILE), target))
}

/// Refuses a database that is a link to another place, whose folder may have a service too.
fn refuse_link(path: &Path) -> Result<(), Fault> {
    match path.symlink_metadata() {
        Ok(found) if found.is_symlink() => {
            let cause = "it is a link, and another service may use the same database";
            Err(Fault::new(Code::InvalidArgument, START, cause)
                .path(path.as_os_str().as_encoded_bytes())
                .hint("name the folder that it is in with --data"))
        }
        _ => Ok(()),
    }
}

fn write_url(folder: &Path, address: SocketAddr) -> Result<(), Fault> {
    let (path, unfinished) = (folder.join(URL_FILE), folder.join("url.new"));
    let write = || {
        let mut file = File::create(&unfinished)?;
        file.write_all(format!("http://{address}\n").as_bytes())?;
        fs::rename(&unfinished, &path)
    };
    write().map_err(|error| Fault::from_io(START, path.as_os_str().as_encoded_bytes(), &error))
}

impl Service {
    /// Takes the state folder, opens the database and listens.
    ///
    /// # Errors
    /// The address is not of this machine alone, or in use; another service has the folder, or
    /// other users may change it; or the database can't be used.
    pub fn bind(options: ServiceOptions) -> Result<Self, Fault> {
        let ServiceOptions {
            listen,
            tls,
            data,
            database,
            journals,
            lease,
            workers,
            limits,
            public_url,
            keep,
            webhooks,
            users,
            secrets_key,
            sessions,
        } = options;
        let public_url = public_url.map(|url| url.trim_end_matches('/').to_owned());
        let limits = Limits {
            here: number(workers),
            all: number(limits.all),
            user: number(limits.user),
            link: number(limits.link),
        };
        if !listen.ip().is_loopback() {
            let cause = "without TLS it listens on this machine only";
            return Err(Fault::new(Code::InvalidArgument, START, cause)
                .path(listen.to_string())
                .hint("name 127.0.0.1 or [::1], and --listen-tls for other machines"));
        }
        // A browser that watches a job holds a connection.
        raise_descriptor_limit();
        trusted::make_folder(START, &data)?;
        // Others could put their own token there, and have this user's files copied.
        trusted::check_folder(START, &data)?;
        let lock = lock(&data)?;
        refuse_link(&data.join(DATABASE_FILE))?;
        let journals = journals.unwrap_or_else(|| data.join("journals"));
        let sealing = SealingKey::find(&data, secrets_key.as_deref())?;
        trusted::make_folder(START, &journals)?;
        let incoming = Incoming::new(data.join("incoming"))?;
        let runtime = tokio::runtime::Builder::new_multi_thread()
            .worker_threads(2)
            .thread_name("xdfs-service")
            .enable_all()
            .build()
            .map_err(|error| Fault::from_io(START, "", &error))?;
        let (store, process, (listener, address), protected) = runtime.block_on(async {
            let store = match &database {
                Some(url) => Store::open_shared(url).await?,
                None => Store::open(&data.join(DATABASE_FILE)).await?,
            };
            let process = ProcessId::new()?;
            store.register(&process, lease).await?;
            for id in store.take_over().await? {
                tracing::info!(job = %id, "took over a job of a service that had ended");
            }
            let sealed = store.last_sealed().await?;
            if sealed.is_some_and(|sealed| !sealing.has_sealed(&sealed)) {
                tracing::warn!("another key has sealed the secrets: jobs can't use them");
            }
            let protected = match tls {
                Some(TlsListener { listen, tls }) => {
                    let (listener, address) = bind(listen).await?;
                    Some((listener, address, tls))
                }
                None => None,
            };
            Ok::<_, Fault>((store, process, bind(listen).await?, protected))
        })?;
        let manifest_key = ManifestKey::new(&data)?;
        let webhooks = Webhooks::new(webhooks, &data)?;
        let (people, sealing) = (Arc::new(People::new(users)), Arc::new(sealing));
        let access = Access::new(
            &data,
            address.port(),
            protected.as_ref().map(|(_, address, _)| *address),
            public_url.as_deref(),
            Arc::clone(&people),
        )?;
        write_url(&data, address)?;
        let live = Arc::new(Live::new());
        let sessions = Arc::new(sessions);
        let places = Places::new(Arc::clone(&sessions));
        let all = Workers::new(
            store.clone(),
            Arc::clone(&live),
            Means {
                sessions,
                people,
                sealing,
                journals,
            },
            Lease::new(process, lease),
            limits,
        );
        let shared = Shared {
            store,
            live,
            workers: Arc::new(all),
            upkeep: Notify::new(),
            access,
            manifest_key,
            webhooks,
            places,
            incoming,
            closing: watch::Sender::new(false),
        };
        Ok(Self {
            runtime,
            listener,
            address,
            protected,
            shared: Arc::new(shared),
            public_url,
            keep,
            data,
            _lock: lock,
        })
    }

    /// The address that it listens on.
    #[must_use]
    pub fn address(&self) -> SocketAddr {
        self.address
    }

    /// Its URL.
    #[must_use]
    pub fn url(&self) -> String {
        format!("http://{}", self.address)
    }

    /// The URL at which it listens for other machines, if it does.
    #[must_use]
    pub fn tls_url(&self) -> Option<String> {
        let (_, address, _) = self.protected.as_ref()?;
        Some(format!("https://{address}"))
    }

    /// The URL under which others reach it.
    #[must_use]
    pub fn public_url(&self) -> String {
        self.public_url.clone().unwrap_or_else(|| self.url())
    }

    /// Whether users log in by their passwords.
    #[must_use]
    pub fn has_users(&self) -> bool {
        self.shared.access.people.has_users()
    }

    /// A link that logs in one browser of the owner, once, within a day.
    ///
    /// # Errors
    /// The system has no random numbers.
    pub fn login_link(&self) -> Result<String, Fault> {
        let secret = self.shared.access.link()?;
        Ok(format!(
            "{}/login?link={}",
            self.public_url(),
            secret.as_str()
        ))
    }

    /// A handle that ends it.
    #[must_use]
    pub fn handle(&self) -> ServiceHandle {
        ServiceHandle {
            closing: self.shared.closing.clone(),
        }
    }

    /// Answers requests and runs jobs until a handle ends it.
    ///
    /// # Errors
    /// The listener fails.
    pub fn run(self) -> Result<(), Fault> {
        let Self {
            runtime,
            listener,
            protected,
            shared,
            keep,
            data,
            _lock: lock,
            ..
        } = self;
        let result = runtime.block_on(serve(listener, protected, Arc::clone(&shared), keep));
        runtime.block_on(shared.store.close());
        let _ = fs::remove_file(data.join(URL_FILE));
        // The folder is free once nothing uses it any more.
        drop(runtime);
        drop(lock);
        result
    }
}

/// Listens, and returns the address, whose port may have been free to choose.
async fn bind(listen: SocketAddr) -> Result<(TcpListener, SocketAddr), Fault> {
    let bound = async {
        let listener = TcpListener::bind(listen).await?;
        let address = listener.local_addr()?;
        Ok::<_, std::io::Error>((listener, address))
    };
    let bound = bound.await;
    bound.map_err(|error| Fault::from_io("listen on", listen.to_string(), &error))
}

async fn serve(
    listener: TcpListener,
    protected: Option<(TcpListener, SocketAddr, HttpsTls)>,
    shared: Arc<Shared>,
    keep: Option<Duration>,
) -> Result<(), Fault> {
    let closing = shared.closing.subscribe();
    let working = tokio::spawn(Arc::clone(&shared.workers).run(closing));
    let closing = shared.closing.subscribe();
    let keeping = tokio::spawn(upkeep::run(Arc::clone(&shared), keep, closing));
    let closing = shared.closing.subscribe();
    let sending = tokio::spawn(deliveries::run(Arc::clone(&shared), closing));
    let closing = shared.closing.subscribe();
    let router = router(Arc::clone(&shared));
    let for_others = async {
        let Some((listener, address, tls)) = protected else {
            return Ok(());
        };
        let closing = shared.closing.subscribe();
        let tls = listen::Tls::new(tls, address);
        listen::serve(listener, Some(tls), router.clone(), closing).await
    };
    let here = listen::serve(listener, None, router.clone(), closing);
    let (served, for_others) = tokio::join!(here, for_others);
    let served = served.and(for_others);
    // After a failure of the listener too.
    shared.closing.send_replace(true);
    if let Err(error) = working.await {
        tracing::error!(%error, "the workers have failed");
    }
    if let Err(error) = keeping.await {
        tracing::error!(%error, "the upkeep has failed");
    }
    if let Err(error) = sending.await {
        tracing::error!(%error, "the sender of webhooks has failed");
    }
    served.map_err(|error| Fault::from_io("serve", "", &error))
}
