//! A server with or without protection, and calls.

use std::net::SocketAddr;
use std::path::{Path, PathBuf};

use xdfs::security::{
    ClientSecurity, Credential, ExportConfig, ExportsConfig, GrantConfig, Level, NewHosts, Rights,
    ServerSecurity, TrustPolicy, make_key,
};
use xdfs::{
    Address, Answer, Attributes, Call, Client, ClientOptions, Entry, Invitation, RemotePlace,
};

use crate::support::{Folders, Serving, client};

/// A server that serves a folder, and how to come in.
pub(crate) struct Place {
    pub(crate) serving: Serving,
    pub(crate) folders: Folders,
    /// What a client needs that comes in by a key of its own; `None` without protection.
    security: Option<ClientSecurity>,
}

impl Place {
    pub(crate) fn new(seed: u64, is_protected: bool) -> Self {
        if is_protected {
            return Self::protected(seed, None);
        }
        let folders = Folders::new(seed);
        Self {
            serving: Serving::start(&folders.root(), |_| {}),
            folders,
            security: None,
        }
    }

    /// A protected server; with `rights`, to one export "e" for a user who isn't its owner.
    pub(crate) fn protected(seed: u64, rights: Option<Rights>) -> Self {
        let folders = Folders::new(seed);
        let state = folders.here("server");
        std::fs::create_dir_all(state.join("keys")).unwrap();
        let key = folders.here("key");
        let line = make_key(&key, "test").unwrap().to_line("test") + "\n";
        let mut security = ServerSecurity::new(state.clone(), "owner".into());
        match rights {
            None => std::fs::write(state.join("authorized_keys"), line).unwrap(),
            Some(rights) => {
                std::fs::write(state.join("keys/guest"), line).unwrap();
                security.exports = Some(ExportsConfig {
                    export: vec![ExportConfig {
                        name: "e".into(),
                        path: folders.root().to_str().unwrap().into(),
                        grant: vec![GrantConfig {
                            user: Some("*".into()),
                            rights,
                            ..GrantConfig::default()
                        }],
                        ..ExportConfig::default()
                    }],
                    ..ExportsConfig::default()
                });
            }
        }
        let trust = TrustPolicy {
            known_hosts: folders.here("known_hosts"),
            pins: Vec::new(),
            roots: Vec::new(),
            system_roots: false,
            new_hosts: NewHosts::Accept,
        };
        Self {
            serving: Serving::start(&folders.root(), |builder| builder.security = Some(security)),
            security: Some(ClientSecurity {
                trust,
                credentials: vec![Credential::Key(key)],
                level: Level::Private,
            }),
            folders,
        }
    }

    pub(crate) fn client(&self, channels: Option<u32>) -> Client {
        self.client_at(self.serving.addr, channels)
    }

    /// A client that comes by way of another address.
    pub(crate) fn client_at(&self, addr: SocketAddr, channels: Option<u32>) -> Client {
        let Some(security) = &self.security else {
            return client(addr, |options| options.channels = channels);
        };
        let is_guest = !self.folders.here("server/authorized_keys").exists();
        let place = RemotePlace {
            user: is_guest.then(|| "guest".to_owned()),
            address: Address::Host {
                host: addr.ip().to_string(),
                port: addr.port(),
            },
            path: Vec::new(),
            invitation: Invitation::default(),
            profile: None,
            stack: None,
        };
        let options = ClientOptions {
            channels,
            security: Some(security.clone()),
            ..ClientOptions::default()
        };
        Client::connect(&place, options).unwrap()
    }

    pub(crate) fn there(&self, name: &str) -> PathBuf {
        self.folders.there(name)
    }
}

pub(crate) fn stat(path: &str) -> Call {
    Call::Stat {
        path: path.into(),
        follow: false,
    }
}

pub(crate) fn list(path: &str, entries_max: u32) -> Call {
    Call::List {
        path: path.into(),
        cursor: Vec::new(),
        entries_max,
    }
}

pub(crate) fn make(path: &str) -> Call {
    Call::MakeDirectory {
        path: path.into(),
        mode: None,
        parents: false,
    }
}

pub(crate) fn rename(from: &str, to: &str) -> Call {
    Call::Rename {
        from: from.into(),
        to: to.into(),
        overwrite: false,
    }
}

/// An answer without what differs between two folders with the same content, names in order.
pub(crate) fn comparable(answer: Answer) -> Answer {
    match answer {
        Answer::Attributes(attributes) => Answer::Attributes(plain(&attributes)),
        Answer::Entries { entries, cursor } => {
            let plain = |entry: Entry| Entry {
                attributes: plain(&entry.attributes),
                name: entry.name,
            };
            let mut entries: Vec<Entry> = entries.into_iter().map(plain).collect();
            entries.sort_by(|a, b| a.name.cmp(&b.name));
            // What a cursor says is known to its store alone.
            let cursor = cursor.map(|_| Vec::new());
            Answer::Entries { entries, cursor }
        }
        answer => answer,
    }
}

fn plain(attributes: &Attributes) -> Attributes {
    let is_directory = attributes.kind == xdfs::FileKind::Directory;
    Attributes {
        // Directories are as large as the file system likes.
        size: if is_directory { 0 } else { attributes.size },
        allocated: 0,
        inode: 0,
        atime_ns: 0,
        mtime_ns: 0,
        ctime_ns: 0,
        ..attributes.clone()
    }
}

/// Makes empty files, with names that tell their number.
pub(crate) fn make_files(folder: &Path, count: u32) {
    std::fs::create_dir_all(folder).unwrap();
    for i in 0..count {
        std::fs::File::create(folder.join(format!("file {i:06}"))).unwrap();
    }
}
