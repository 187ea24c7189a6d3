//! The security settings of a server.

use std::collections::BTreeMap;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use xdfs_access::{Access, KeyLists, Parts, SystemClock};
use xdfs_proto::{Code, Fault};
use xdfs_security::account::Accounts;
use xdfs_security::audit::Audit;
use xdfs_security::export::{Exports, ExportsConfig, Rights, Roots};
use xdfs_security::grid::GridMapFile;
use xdfs_security::group::GroupConfig;
use xdfs_security::guard::Limits as GuardLimits;
use xdfs_security::identity::{ClientCertificates, Reloading, ServerIdentity, read_certificates};
use xdfs_security::password::UsersFile;
use xdfs_security::third_party::ThirdPartyRules;
use xdfs_security::token::{Config as TokenConfig, Verifier};
use xdfs_security::trusted;
use xdfs_security::tunnel::TunnelRules;

use super::https::HttpsTls;

/// The operation of faults about the server's folder.
pub(super) const OPEN_FOLDER: &str = "open the folder of the server";

/// The security settings of a server: its key, its users, and their rights.
///
/// All files are in `folder` unless stated otherwise: `server.key` and `server.crt` (created at the
/// first start), `users` (passwords), `authorized_keys` (keys of the owner), `keys/NAME` (keys of
/// the user NAME).
#[derive(Clone, Debug)]
pub struct ServerSecurity {
    /// The folder of the server's own files.
    pub folder: PathBuf,
    /// The user who runs the server. A client that authenticates with a key and gives no name is
    /// this user.
    pub owner: String,
    /// Further lists of the owner's keys, in OpenSSH's `authorized_keys` format. Missing files
    /// count as empty.
    pub owner_keys: Vec<PathBuf>,
    /// Certificate chain and key as PEM, instead of those in `folder`. Reloaded when they change.
    pub certificate: Option<(PathBuf, PathBuf)>,
    /// Names for the certificate created at the first start.
    pub names: Vec<String>,
    /// The exports; `None` to serve the whole root to every user.
    pub exports: Option<ExportsConfig>,
    /// The trusted issuers of bearer tokens.
    pub tokens: Option<TokenConfig>,
    /// The authorities of client certificates (PEM), and the grid map from certificates to users.
    pub client_authorities: Option<(PathBuf, PathBuf)>,
    /// The list of the group of servers that this one is a member of; `None` if it is in none.
    pub group: Option<GroupConfig>,
    /// The grid map for doors that verify certificates by themselves; not used where
    /// [`client_authorities`](Self::client_authorities) has one.
    pub grid_map: Option<PathBuf>,
    /// The audit log file; `None` for no log.
    pub audit: Option<PathBuf>,
    /// Limits for unauthenticated peers and for users.
    pub limits: GuardLimits,
    /// Accept clients that ask for unencrypted payload ([`super::Level::Clear`]); otherwise they
    /// are refused.
    pub takes_clear: bool,
    /// Local accounts by user: a session runs with the ids of its account, so that the kernel
    /// checks its access, and files belong to the account. The user `*` stands for every other
    /// authenticated user, `anonymous` for unauthenticated ones, and the account `{user}` for the
    /// account with the user's name. Other users are refused. `None` to do everything as the user
    /// who runs the server. Requires Linux, and a server started as root.
    pub accounts: Option<BTreeMap<String, String>>,
}

impl ServerSecurity {
    /// The default settings, with a folder and an owner.
    #[must_use]
    pub fn new(folder: PathBuf, owner: String) -> Self {
        Self {
            folder,
            owner,
            owner_keys: Vec::new(),
            certificate: None,
            names: vec!["localhost".into()],
            exports: None,
            tokens: None,
            client_authorities: None,
            group: None,
            grid_map: None,
            audit: None,
            accounts: None,
            limits: GuardLimits::default(),
            takes_clear: false,
        }
    }

    /// The files and folders that would give control over the server, or access to its secrets.
    pub(super) fn own_paths(&self) -> Vec<&Path> {
        let mut own: Vec<&Path> = vec![&self.folder];
        own.extend(self.audit.as_deref());
        let pairs = [&self.certificate, &self.client_authorities];
        for (one, other) in pairs.into_iter().flatten() {
            own.extend([one.as_path(), other]);
        }
        own.extend(self.grid_map.as_deref());
        for issuer in self.tokens.iter().flat_map(|tokens| &tokens.issuers) {
            own.extend(issuer.jwks_file.as_deref());
            own.extend(issuer.jwks_authorities.as_deref());
        }
        own
    }

    /// Refuses settings that would serve the server's own files or the `private` paths. `root` is
    /// served if there are no exports. `owner_keys` within a served directory are dropped instead:
    /// they aren't the server's own files, and may be needed there.
    pub(crate) fn keep_apart(&mut self, root: &Path, private: &[PathBuf]) -> Result<(), Fault> {
        let paths: Vec<&Path> = match &self.exports {
            Some(config) => config.export.iter().map(|e| Path::new(&e.path)).collect(),
            None => vec![root],
        };
        let keys = self.folder.join("keys");
        let own = self.own_paths().into_iter().chain([keys.as_path()]);
        let own = own.chain(private.iter().map(PathBuf::as_path));
        keep_apart(paths.iter().copied(), own)?;
        self.owner_keys.retain(|list| {
            let apart = keep_apart(paths.iter().copied(), [list.as_path()]);
            if apart.is_err() {
                let list = list.display();
                tracing::warn!(%list, "a list of keys is not used, as it is served itself");
            }
            apart.is_ok()
        });
        Ok(())
    }

    /// Loads or creates the server's key and certificate.
    pub(crate) fn identity(&self) -> Result<ServerIdentity, Fault> {
        match &self.certificate {
            Some((chain, key)) => ServerIdentity::from_pem(chain, key),
            None => ServerIdentity::load_or_make(&self.folder, &self.names),
        }
    }

    /// The access of a door that serves no files and has no TLS, for the same users with the same
    /// passwords and keys, limits and audit log. Tokens of issuers aren't accepted there: they give
    /// rights to files.
    ///
    /// # Errors
    /// The folder or a file in it can't be made or read, or other users could have written it.
    pub fn access_without_files(self) -> Result<Access, Fault> {
        self.access_of_grid(None)
    }

    /// The same for a door that speaks HTTP over TLS, which users of client certificates come in by
    /// as well, with that TLS: the certificate and the authorities are those of the server.
    ///
    /// # Errors
    /// Those of [`access_without_files`](Self::access_without_files); or the certificate, the
    /// authorities or the grid map can't be used.
    pub fn access_over_https(mut self) -> Result<(Access, HttpsTls), Fault> {
        let (certificates, grid) = match self.client_authorities.take() {
            Some((authorities, map)) => (
                ClientCertificates::Optional(read_certificates(&authorities)?),
                Some(GridMapFile::open(map)?),
            ),
            None => (ClientCertificates::None, None),
        };
        trusted::make_folder(OPEN_FOLDER, &self.folder)?;
        trusted::check_folder(OPEN_FOLDER, &self.folder)?;
        let (chain, key) = self.certificate_files()?;
        let tls = HttpsTls(Reloading::new(chain, key, certificates)?);
        Ok((self.access_of_grid(grid)?, tls))
    }

    fn access_of_grid(self, grid: Option<GridMapFile>) -> Result<Access, Fault> {
        trusted::make_folder(OPEN_FOLDER, &self.folder)?;
        trusted::check_folder(OPEN_FOLDER, &self.folder)?;
        Access::new(Parts {
            keys: key_lists(&self.folder, self.owner, self.owner_keys),
            users: UsersFile::new(self.folder.join("users")),
            tokens: None,
            grid,
            exports: Exports::single(PathBuf::new(), Rights::NONE),
            tunnels: TunnelRules::default(),
            third_party: ThirdPartyRules::default(),
            group: None,
            accounts: None,
            limits: self.limits,
            audit: self.audit.as_deref().map(Audit::open).transpose()?,
            clock: Arc::new(SystemClock),
        })
    }

    /// The files of the certificate chain and the key, which are made if none are named.
    fn certificate_files(&self) -> Result<(PathBuf, PathBuf), Fault> {
        match &self.certificate {
            Some(files) => Ok(files.clone()),
            None => {
                ServerIdentity::load_or_make(&self.folder, &self.names)?;
                Ok(ServerIdentity::files(&self.folder))
            }
        }
    }

    /// Loads or creates the files of the settings, including the server's own key. `root` is served
    /// if there are no exports; either is restricted by `read_only`.
    ///
    /// The rules about other machines aren't among the settings.
    pub(super) fn load(
        mut self,
        root: PathBuf,
        read_only: bool,
    ) -> Result<(Parts, Reloading), Fault> {
        // Before files are created that would belong to the wrong user.
        let accounts = self.accounts.take().map(Accounts::new).transpose()?;
        let (certificates, grid) = match &self.client_authorities {
            Some((authorities, map)) => (
                ClientCertificates::Optional(read_certificates(authorities)?),
                Some(GridMapFile::open(map)?),
            ),
            None => {
                let map = self.grid_map.as_ref();
                let map = map.map(GridMapFile::open).transpose()?;
                (ClientCertificates::None, map)
            }
        };
        trusted::make_folder(OPEN_FOLDER, &self.folder)?;
        trusted::check_folder(OPEN_FOLDER, &self.folder)?;
        let (chain, key) = self.certificate_files()?;
        let identity = Reloading::new(chain, key, certificates)?;
        let own = Some(identity.fingerprint());
        let group = self.group.map(|group| group.check(own)).transpose()?;
        let group = group.map(Arc::new);
        let mut exports = match self.exports {
            Some(config) => Exports::new(config)?,
            None => Exports::single(root, Rights::ALL),
        };
        if read_only {
            exports = exports.restricted(Rights::READ | Rights::LIST);
        }
        let parts = Parts {
            keys: key_lists(&self.folder, self.owner, self.owner_keys),
            users: UsersFile::new(self.folder.join("users")),
            tokens: self.tokens.map(Verifier::new).transpose()?,
            grid,
            exports,
            tunnels: TunnelRules::default(),
            third_party: ThirdPartyRules::default(),
            group,
            accounts,
            limits: self.limits,
            audit: self.audit.as_deref().map(Audit::open).transpose()?,
            clock: Arc::new(SystemClock),
        };
        Ok((parts, identity))
    }
}

/// The lists of keys of a server with this folder.
fn key_lists(folder: &Path, owner: String, mut owner_lists: Vec<PathBuf>) -> KeyLists {
    owner_lists.push(folder.join("authorized_keys"));
    KeyLists {
        owner,
        owner_lists,
        folder: folder.join("keys"),
    }
}

/// Fails if one of the paths `own` lies beneath one of `roots`.
pub(crate) fn keep_apart<'a>(
    roots: impl IntoIterator<Item = &'a Path>,
    own: impl IntoIterator<Item = &'a Path>,
) -> Result<(), Fault> {
    const OPERATION: &str = "open the root";
    let io = |e: io::Error| Fault::from_io(OPERATION, "", &e);
    let roots = Roots::new(roots).map_err(io)?;
    for path in own {
        if let Some(root) = roots.holding(path).map_err(io)? {
            let cause = format!(
                "it contains {}, which the server or its owner trusts: clients could read or \
                 change it",
                path.display()
            );
            return Err(Fault::new(Code::InvalidArgument, OPERATION, cause)
                .path(root.as_os_str().as_encoded_bytes())
                .hint(
                    "serve another directory, or keep those files elsewhere: by `folder` in the \
                     settings, or for all of them by XDFS_CONFIG_DIR",
                ));
        }
    }
    Ok(())
}
