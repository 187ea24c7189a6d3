//! The check of a server's settings, which changes nothing.

use std::io::ErrorKind;
use std::path::Path;

use xdfs_proto::Fault;
use xdfs_security::account::Accounts;
use xdfs_security::audit::Audit;
use xdfs_security::export::ExportsConfig;
use xdfs_security::grid::GridMapFile;
use xdfs_security::identity::{ClientCertificates, Fingerprint, ServerIdentity, read_certificates};
use xdfs_security::key::AuthorizedKeys;
use xdfs_security::password::UsersFile;
use xdfs_security::token::{Config as TokenConfig, Verifier};

use super::settings::{ServerSecurity, keep_apart};

/// A setting that can't be used as it is.
#[derive(Clone, Debug)]
pub struct SettingFault {
    /// Name of the setting, as in the configuration file of `xdfs serve`; empty for the files in
    /// the server's folder.
    pub setting: &'static str,
    /// Its number, from 0, among those that may occur more than once.
    pub number: usize,
    /// The reason.
    pub fault: Fault,
}

/// The result of [`ServerBuilder::check`](crate::ServerBuilder::check).
#[derive(Clone, Debug, Default)]
pub struct SettingsReport {
    /// Everything that would keep the server from starting, or users from what they are granted.
    pub faults: Vec<SettingFault>,
    /// The fingerprint of the server's key; `None` if there is none yet, or it can't be read.
    pub fingerprint: Option<Fingerprint>,
    /// The users with a password.
    pub password_users: Vec<String>,
    /// The users with a list of keys, and the number of keys in it.
    pub key_users: Vec<(String, usize)>,
}

impl SettingsReport {
    pub(crate) fn note<T>(
        &mut self,
        setting: &'static str,
        number: usize,
        result: Result<T, Fault>,
    ) -> Option<T> {
        match result {
            Ok(value) => Some(value),
            Err(fault) => {
                self.faults.push(SettingFault {
                    setting,
                    number,
                    fault,
                });
                None
            }
        }
    }
}

impl ServerSecurity {
    /// Reads all files of the settings and creates none.
    pub(crate) fn check(&self, root: &Path, private: &[&Path], report: &mut SettingsReport) {
        self.check_apart(root, private, report);
        if let Some(config) = &self.exports {
            for (number, fault) in config.faults() {
                report.note::<()>("export", number, Err(fault));
            }
        }
        if let Some(table) = &self.accounts {
            report.note("accounts", 0, Accounts::new(table.clone()));
        }
        self.check_identity(report);
        self.check_tokens(report);
        if let Some(path) = &self.audit {
            report.note("audit", 0, Audit::check(path));
        }
        self.check_users(report);
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

    fn check_identity(&self, report: &mut SettingsReport) {
        let clients = match &self.client_authorities {
            None => Some(ClientCertificates::None),
            Some((authorities, map)) => {
                const SETTING: &str = "client_certificates";
                report.note(SETTING, 0, GridMapFile::open(map));
                let read = report.note(SETTING, 0, read_certificates(authorities));
                read.map(ClientCertificates::Optional)
            }
        };
        if let Some(gsi) = &self.gsi {
            report.note("gridftp.gsi", 0, gsi.check());
            if let Some(map) = &gsi.grid_map {
                report.note("gridftp.gsi.grid_map", 0, GridMapFile::open(map));
            }
        }
        let (setting, identity) = match &self.certificate {
            Some((chain, key)) => (
                "certificate",
                ServerIdentity::from_pem(chain, key).map(Some),
            ),
            None => ("folder", ServerIdentity::load_if_made(&self.folder)),
        };
        let identity = report.note(setting, 0, identity).flatten();
        report.fingerprint = identity.as_ref().map(ServerIdentity::fingerprint);
        if let (Some(identity), Some(clients)) = (identity, clients) {
            report.note("client_certificates", 0, identity.config(clients));
        }
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
        Err(fault) if fault.code == xdfs_proto::Code::NotFound => Ok(None),
        result => result.map(Some),
    }
}
