//! How a server protects itself.

use std::collections::BTreeMap;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use xdfs_access::{KeyLists, Parts, SystemClock};
use xdfs_proto::{Code, Fault};
use xdfs_security::account::Accounts;
use xdfs_security::audit::Audit;
use xdfs_security::export::{Exports, ExportsConfig, Rights, Roots};
use xdfs_security::grid::GridMapFile;
use xdfs_security::guard::Limits as GuardLimits;
use xdfs_security::identity::{ClientCertificates, Reloading, ServerIdentity, read_certificates};
use xdfs_security::password::UsersFile;
use xdfs_security::token::{Config as TokenConfig, Verifier};

/// How a server protects itself: its key, its users, and what each of them may do.
///
/// All files are beneath `folder` unless said otherwise: `server.key` and `server.crt` (made at the
/// first start), `users` (passwords), `authorized_keys` (keys of the owner), `keys/NAME` (keys of
/// the user NAME).
#[derive(Clone, Debug)]
pub struct ServerSecurity {
    /// The folder of the server's own files.
    pub folder: PathBuf,
    /// The user who runs the server: who gives no name with a key is that user.
    pub owner: String,
    /// Further lists of the owner's keys, in the form of OpenSSH's `authorized_keys`. Lists that
    /// aren't there are empty.
    pub owner_keys: Vec<PathBuf>,
    /// Certificate chain and key as PEM, in place of those in `folder`. They are loaded again when
    /// they change.
    pub certificate: Option<(PathBuf, PathBuf)>,
    /// Names for the certificate that is made at the first start.
    pub names: Vec<String>,
    /// What is served to whom; `None` for the whole root to every user.
    pub exports: Option<ExportsConfig>,
    /// The issuers whose bearer tokens are taken.
    pub tokens: Option<TokenConfig>,
    /// The authorities of client certificates (PEM), and the grid map that names their users.
    pub client_authorities: Option<(PathBuf, PathBuf)>,
    /// The file of the audit log; `None` for none.
    pub audit: Option<PathBuf>,
    /// What peers that aren't known yet, and users, may cost.
    pub limits: GuardLimits,
    /// Clients may ask for payload in the clear ([`super::Level::Clear`]); otherwise they are
    /// refused.
    pub takes_clear: bool,
    /// The local accounts that users have: each session runs with the ids of one, so that the
    /// kernel judges what it does, and files belong to the account. `*` stands for every other user
    /// who proved who it is, `anonymous` for those who prove nothing, and `{user}` in place of an
    /// account for the one with the name of the user; nobody else is served. `None` to do
    /// everything as the user who runs the server. Needs Linux, and a server that was started as
    /// root.
    pub accounts: Option<BTreeMap<String, String>>,
}

impl ServerSecurity {
    /// What a server has that was told nothing but its folder and who runs it.
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
            audit: None,
            accounts: None,
            // A session opens all its channels at once, and a thousand of them is normal.
            limits: GuardLimits {
                handshakes_max: 4096,
                handshakes_per_address_max: 2048,
                ..GuardLimits::default()
            },
            takes_clear: false,
        }
    }

    /// The files and folders by which somebody could take the server over, or learn what it keeps.
    fn own_paths(&self) -> Vec<&Path> {
        let mut own: Vec<&Path> = vec![&self.folder];
        own.extend(self.audit.as_deref());
        let pairs = [&self.certificate, &self.client_authorities];
        for (one, other) in pairs.into_iter().flatten() {
            own.extend([one.as_path(), other]);
        }
        for issuer in self.tokens.iter().flat_map(|tokens| &tokens.issuers) {
            own.extend(issuer.jwks_file.as_deref());
            own.extend(issuer.jwks_authorities.as_deref());
        }
        own
    }

    /// Makes sure that nobody is served what the server itself rests on. `root` is what is served
    /// without exports; `private` are further paths that must not be. Further lists of the owner's
    /// keys are left out instead: they aren't the server's, and others may need them there.
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

    /// Loads, or makes, what the settings name: what lets somebody in, and the server's own key.
    /// `root` and `read_only` say what is served without exports.
    pub(super) fn load(self, root: PathBuf, read_only: bool) -> Result<(Parts, Reloading), Fault> {
        // Before files are made that would belong to the wrong user.
        let accounts = self.accounts.map(Accounts::new).transpose()?;
        let (certificates, grid) = match &self.client_authorities {
            Some((authorities, map)) => (
                ClientCertificates::Optional(read_certificates(authorities)?),
                Some(GridMapFile::open(map)?),
            ),
            None => (ClientCertificates::None, None),
        };
        let folder = self.folder.as_os_str().as_encoded_bytes();
        std::fs::create_dir_all(&self.folder)
            .map_err(|e| Fault::from_io("make the folder of the server", folder, &e))?;
        let (chain, key) = match self.certificate {
            Some(files) => files,
            None => {
                ServerIdentity::load_or_make(&self.folder, &self.names)?;
                ServerIdentity::files(&self.folder)
            }
        };
        let identity = Reloading::new(chain, key, certificates)?;
        let rights = if read_only {
            Rights::READ | Rights::LIST
        } else {
            Rights::ALL
        };
        let exports = match self.exports {
            Some(config) => Exports::new(config)?,
            None => Exports::single(root, rights),
        };
        let mut owner_lists = self.owner_keys;
        owner_lists.push(self.folder.join("authorized_keys"));
        let parts = Parts {
            keys: KeyLists {
                owner: self.owner,
                owner_lists,
                folder: self.folder.join("keys"),
            },
            users: UsersFile::new(self.folder.join("users")),
            tokens: self.tokens.map(Verifier::new).transpose()?,
            grid,
            exports,
            accounts,
            limits: self.limits,
            audit: self.audit.as_deref().map(Audit::open).transpose()?,
            clock: Arc::new(SystemClock),
        };
        Ok((parts, identity))
    }
}

/// Makes sure that none of the paths `own` lies beneath one of `roots`.
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
                "{} lies beneath it, which the server or its owner rests on: whoever is let in \
                 could read it or write to it",
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
