//! The check of a server's settings, which changes nothing.

use std::collections::BTreeSet;
use std::io::ErrorKind;
use std::ops::{Deref, DerefMut};
use std::path::Path;

use xdfs_access::Findings;
use xdfs_proto::{Code, Fault};
use xdfs_security::account::Accounts;
use xdfs_security::audit::Audit;
use xdfs_security::export::{ExportConfig, ExportsConfig, Roots};
use xdfs_security::grid::{GridMap, GridMapFile};
use xdfs_security::identity::{
    ClientCertificates, Fingerprint, ServerIdentity, Validity, read_certificates,
};
use xdfs_security::key::AuthorizedKeys;
use xdfs_security::password::UsersFile;
use xdfs_security::token::{Config as TokenConfig, Verifier};
use xdfs_security::trusted;

use super::settings::{OPEN_FOLDER, ServerSecurity, keep_apart};

/// The result of [`ServerBuilder::check`](crate::ServerBuilder::check): [`Findings`], and facts for
/// the person who asks.
#[derive(Clone, Debug, Default)]
pub struct SettingsReport {
    /// Faults and warnings.
    pub findings: Findings,
    /// The fingerprint of the server's key; `None` if there is none yet, or it can't be read.
    pub fingerprint: Option<Fingerprint>,
    /// The users with a password.
    pub password_users: Vec<String>,
    /// The users with a list of keys, and the number of keys in it.
    pub key_users: Vec<(String, usize)>,
    /// The end of the server's certificate, in seconds since 1970; `None` if there is none yet.
    pub certificate_ends_s: Option<i64>,
}

impl Deref for SettingsReport {
    type Target = Findings;

    fn deref(&self) -> &Findings {
        &self.findings
    }
}

impl DerefMut for SettingsReport {
    fn deref_mut(&mut self) -> &mut Findings {
        &mut self.findings
    }
}

impl ServerSecurity {
    /// Reads all files of the settings and creates none.
    pub(crate) fn check(&self, root: &Path, private: &[&Path], report: &mut SettingsReport) {
        self.check_places(root, private, report);
        if let Some(table) = &self.accounts {
            report.note("accounts", 0, Accounts::new(table.clone()));
        }
        let identity = self.check_identity(report);
        if let Some(group) = &self.group {
            let checked = group.check(report.fingerprint);
            report.note("", 0, checked);
        }
        self.check_clients(identity.as_ref(), report);
        self.check_tokens(report);
        if let Some(path) = &self.audit {
            report.note("audit", 0, Audit::check(path));
        }
        let map = self.client_authorities.as_ref().map(|(_, map)| map);
        let map = map.or(self.grid_map.as_ref());
        let mapped = map.and_then(|map| GridMapFile::open(map).ok());
        self.check_users(report);
        let mapped = mapped.map(|map| map.current(0));
        self.warn_of_unknown(mapped.as_deref(), report);
        self.warn_of_parents(report);
        self.warn_of_unreachable(root, report);
    }

    /// The same for a data node, which has exports and a key, and no users.
    pub(crate) fn check_node(&self, root: &Path, private: &[&Path], report: &mut SettingsReport) {
        self.check_places(root, private, report);
        self.check_identity(report);
    }

    /// The directories that are served, and the own folder.
    fn check_places(&self, root: &Path, private: &[&Path], report: &mut SettingsReport) {
        self.check_apart(root, private, report);
        if let Some(config) = &self.exports {
            for (number, fault) in config.faults() {
                report.note::<()>("export", number, Err(fault));
            }
        }
        if self.folder.exists() {
            let checked = trusted::check_folder(OPEN_FOLDER, &self.folder);
            report.note("folder", 0, checked);
        }
    }

    /// Users with rights who can't log in, which may be slips.
    fn warn_of_unknown(&self, mapped: Option<&GridMap>, report: &mut SettingsReport) {
        // Tokens may name anyone.
        let Some(config) = self.exports.as_ref().filter(|_| self.tokens.is_none()) else {
            return;
        };
        let mut known: BTreeSet<&str> = [self.owner.as_str(), "*"].into();
        known.extend(report.password_users.iter().map(String::as_str));
        known.extend(report.key_users.iter().map(|(user, _)| user.as_str()));
        known.extend(mapped.into_iter().flat_map(GridMap::users));
        let mut unknown = Vec::new();
        for export in &config.export {
            let name = export.name.trim_start_matches('/').escape_default();
            let granted = export.grant.iter().filter_map(|grant| grant.user.as_ref());
            let granted = granted.filter(|user| !known.contains(user.as_str()));
            unknown.extend(granted.map(|user| (user, format!("the export /{name}"))));
        }
        for (group, members) in &config.groups {
            let members = members.iter().filter(|user| !known.contains(user.as_str()));
            let group = group.escape_default();
            unknown.extend(members.map(|user| (user, format!("the group '{group}'"))));
        }
        report.warnings.extend(unknown.iter().map(|(user, place)| {
            let user = user.escape_default();
            format!("the user '{user}' of {place} can't log in: no password and no key is known")
        }));
    }

    /// Directories that are in a public one, by which everybody gets to them.
    fn warn_of_parents(&self, report: &mut SettingsReport) {
        let exports = self.exports.iter().flat_map(|config| &config.export);
        for public in exports.clone().filter(|export| export.public) {
            let Ok(root) = Roots::new([Path::new(&public.path)]) else {
                continue;
            };
            let shown = |export: &ExportConfig| {
                let name = export.name.trim_start_matches('/');
                name.escape_default().to_string()
            };
            for inner in exports.clone() {
                let has_less = !inner.public_rights().contains(public.public_rights());
                let is_within = || matches!(root.holding(&inner.fixed_path()), Ok(Some(_)));
                if !std::ptr::eq(inner, public) && has_less && is_within() {
                    report.warnings.push(format!(
                        "the directory of /{inner} is within that of /{public}, which is public: \
                         by /{public} everybody may {rights} there",
                        inner = shown(inner),
                        public = shown(public),
                        rights = public.public_rights(),
                    ));
                }
            }
        }
    }

    /// Directories that no account can enter.
    fn warn_of_unreachable(&self, root: &Path, report: &mut SettingsReport) {
        let Some(Ok(accounts)) = self.accounts.clone().map(Accounts::new) else {
            return;
        };
        let paths = match &self.exports {
            Some(config) => config.export.iter().map(ExportConfig::fixed_path).collect(),
            None => vec![root.to_owned()],
        };
        for path in paths {
            if let Ok(path) = path.canonicalize()
                && !accounts.may_enter(&path)
            {
                report.warnings.push(format!(
                    "none of the [accounts] may enter {}: look at the modes of it and the \
                     directories above",
                    path.display()
                ));
            }
        }
    }

    fn check_apart(&self, root: &Path, private: &[&Path], report: &mut SettingsReport) {
        let keys = self.folder.join("keys");
        let own = || {
            let own = self.own_paths().into_iter().chain([keys.as_path()]);
            own.chain(private.iter().copied())
        };
        match &self.exports {
            None => {
                report.note("root", 0, keep_apart([root], own()));
            }
            Some(ExportsConfig { export, .. }) => {
                for (number, export) in export.iter().enumerate() {
                    let path = Path::new(&export.path);
                    report.note("export", number, keep_apart([path], own()));
                }
            }
        }
    }

    /// The certificates of clients, together with the server's own.
    fn check_clients(&self, identity: Option<&ServerIdentity>, report: &mut SettingsReport) {
        let clients = match &self.client_authorities {
            None => Some(ClientCertificates::None),
            Some((authorities, map)) => {
                const SETTING: &str = "client_certificates";
                report.note(SETTING, 0, GridMapFile::open(map));
                let read = report.note(SETTING, 0, read_certificates(authorities));
                // One by one: the others serve without it.
                for one in read.iter().flatten() {
                    let validity = Validity::of(std::slice::from_ref(one));
                    report.check_time(SETTING, authorities, validity);
                }
                read.map(ClientCertificates::Optional)
            }
        };
        if let (Some(identity), Some(clients)) = (identity, clients) {
            report.note("client_certificates", 0, identity.config(clients));
        }
    }

    /// The server's key and certificate, if there are any yet.
    fn check_identity(&self, report: &mut SettingsReport) -> Option<ServerIdentity> {
        let (setting, identity) = match &self.certificate {
            Some((chain, key)) => (
                "certificate",
                ServerIdentity::from_pem(chain, key).map(Some),
            ),
            None => ("folder", ServerIdentity::load_if_made(&self.folder)),
        };
        let identity = report.note(setting, 0, identity).flatten();
        report.fingerprint = identity.as_ref().map(ServerIdentity::fingerprint);
        if let Some(identity) = &identity {
            let validity = identity.validity();
            report.certificate_ends_s = validity.map(|time| time.not_after());
            let own = ServerIdentity::files(&self.folder).0;
            let chain = self.certificate.as_ref().map_or(&own, |(chain, _)| chain);
            report.check_time(setting, chain, validity);
        }
        identity
    }

    fn check_tokens(&self, report: &mut SettingsReport) {
        let Some(TokenConfig { issuers }) = &self.tokens else {
            return;
        };
        let before = report.faults.len();
        for (number, issuer) in issuers.iter().enumerate() {
            let issuers = vec![issuer.clone()];
            report.note("issuers", number, Verifier::new(TokenConfig { issuers }));
        }
        if report.faults.len() == before {
            let last = issuers.len().saturating_sub(1);
            let issuers = issuers.clone();
            report.note("issuers", last, Verifier::new(TokenConfig { issuers }));
        }
    }

    fn check_users(&self, report: &mut SettingsReport) {
        let users = UsersFile::new(self.folder.join("users"));
        let names = if_there(users.list());
        report.password_users = report.note("", 0, names).flatten().unwrap_or_default();
        let own = self.folder.join("authorized_keys");
        let mut lists = vec![(self.owner.clone(), own)];
        lists.extend(
            self.owner_keys
                .iter()
                .map(|l| (self.owner.clone(), l.clone())),
        );
        const OPERATION: &str = "list the keys of users";
        let folder = self.folder.join("keys");
        match std::fs::read_dir(&folder) {
            Ok(entries) => {
                for entry in entries.flatten() {
                    let name = entry.file_name().to_string_lossy().into_owned();
                    // No user has such a name; editors and backups have.
                    if !name.starts_with('.') {
                        lists.push((name, entry.path()));
                    }
                }
            }
            Err(error) if error.kind() == ErrorKind::NotFound => {}
            Err(error) => {
                let path = folder.as_os_str().as_encoded_bytes();
                let fault = Fault::from_io(OPERATION, path, &error);
                report.note::<()>("", 0, Err(fault));
            }
        }
        lists.sort();
        for (user, list) in lists {
            let keys = report.note("", 0, if_there(AuthorizedKeys::load(&list)));
            let Some(keys) = keys.flatten().filter(|keys| !keys.is_empty()) else {
                continue;
            };
            match report.key_users.last_mut() {
                Some((last, count)) if *last == user => *count += keys.len(),
                _ => report.key_users.push((user, keys.len())),
            }
        }
    }
}

/// Files that don't exist are empty.
fn if_there<T>(result: Result<T, Fault>) -> Result<Option<T>, Fault> {
    match result {
        Err(fault) if fault.code == Code::NotFound => Ok(None),
        result => result.map(Some),
    }
}
