//! The settings of exports, and their parsing.

use std::collections::{BTreeMap, BTreeSet};
use std::path::PathBuf;

use serde::{Deserialize, Deserializer, de};
use xdfs_proto::{Code, Fault};

use super::folder::{ExportLocation, Place, USER};
use super::quota::Quota;
use super::{Export, Grant, Rights};

/// Default rights of anonymous users in a public export.
const ANONYMOUS: [Rights; 2] = [Rights::READ, Rights::LIST];

/// The part of the settings about exports: the tables `[[export]]` and `[groups]` of `xdfs.toml`.
/// (A program that embeds it repeats both fields in its own structure: serde can't both flatten a
/// structure and reject unknown fields.)
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ExportsConfig {
    /// The exports.
    #[serde(default)]
    pub export: Vec<ExportConfig>,
    /// Named groups of users.
    #[serde(default)]
    pub groups: BTreeMap<String, Vec<String>>,
}

/// A served directory.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ExportConfig {
    /// First component of the paths used by clients. Empty or `/` for the root itself, which must
    /// then be the only export.
    pub name: String,
    /// The absolute path of the directory. `{user}` in it is replaced by the user's name.
    pub path: String,
    /// Create the directory on first use: the last component of the path, or those from the one
    /// with `{user}` on. Only the server's own user has access to it.
    #[serde(default)]
    pub make: bool,
    /// Refuse the export while the directory isn't a mount point: what lies beneath is never served
    /// in its place. With `{user}` in the path, that is the directory above those of users.
    #[serde(default)]
    pub mount: bool,
    /// Anonymous users have access.
    #[serde(default)]
    pub public: bool,
    /// Rights of anonymous users; reading and listing by default. Other users have these rights
    /// too.
    #[serde(default)]
    pub anonymous: Option<Rights>,
    /// Maximum total size of the files in the directory, in bytes. In the settings a number, or
    /// text ending in K, M, G or T for powers of 1024.
    #[serde(default, deserialize_with = "size")]
    pub quota_bytes: Option<u64>,
    /// Maximum number of files and directories in the directory.
    #[serde(default)]
    pub quota_files: Option<u64>,
    /// Maximum size of a file in bytes, written like `quota_bytes`.
    #[serde(default, deserialize_with = "size")]
    pub largest_file: Option<u64>,
    /// Rights of users.
    #[serde(default)]
    pub grant: Vec<GrantConfig>,
}

/// Rights of a user, a group, or all authenticated users. Rights from several grants add up.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct GrantConfig {
    /// The name of a user; `*` for all authenticated users.
    #[serde(default)]
    pub user: Option<String>,
    /// The name of a group, instead of a user.
    #[serde(default)]
    pub group: Option<String>,
    /// The rights.
    pub rights: Rights,
}

/// A number of bytes, with or without a unit.
fn size<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Option<u64>, D::Error> {
    #[derive(Deserialize)]
    #[serde(
        untagged,
        expecting = "expected a number of bytes, or text such as \"10G\""
    )]
    enum Size {
        Number(u64),
        Text(String),
    }
    match Size::deserialize(deserializer)? {
        Size::Number(number) => Ok(Some(number)),
        Size::Text(text) => parse_size(&text).map(Some).ok_or_else(|| {
            let cause = "sizes are digits and K, M, G, T or nothing, and below 2^64";
            de::Error::custom(format_args!("'{text}' is not a size: {cause}"))
        }),
    }
}

fn parse_size(text: &str) -> Option<u64> {
    let (digits, shift) = match text.as_bytes().split_last()? {
        (b'K', _) => (&text[..text.len() - 1], 10),
        (b'M', _) => (&text[..text.len() - 1], 20),
        (b'G', _) => (&text[..text.len() - 1], 30),
        (b'T', _) => (&text[..text.len() - 1], 40),
        _ => (text, 0),
    };
    // The standard library would accept a sign.
    if !digits.bytes().all(|b| b.is_ascii_digit()) {
        return None;
    }
    digits.parse::<u64>().ok()?.checked_mul(1 << shift)
}

impl ExportsConfig {
    /// Checks each export, and that its directory is there or can be created. Returns the faults
    /// with the number of the export in the settings, from 0. Creates nothing.
    #[must_use]
    pub fn faults(&self) -> Vec<(usize, Fault)> {
        let mut faults = Vec::new();
        for (number, export) in self.export.iter().enumerate() {
            let checked = export.clone().check(&self.groups);
            let found = checked.and_then(|checked| {
                let Some(place) = checked.place.directory() else {
                    return Ok(());
                };
                place.check().map_err(|error| {
                    let path = place.needed().as_os_str().as_encoded_bytes().to_vec();
                    let name = self.export[number].name.escape_default();
                    let operation = format!("open the directory of the export '{name}'");
                    let hint = match place.demands_mount() {
                        true => "mount its file system: it is served as soon as it is there",
                        false => "create the directory, or let `make = true` do it",
                    };
                    Fault::from_io(operation, path, &error).hint(hint)
                })
            });
            faults.extend(found.err().map(|fault| (number, fault)));
        }
        if faults.is_empty()
            && let Err(fault) = self.clone().check()
        {
            // Exports that don't go together: the last one is as good as any.
            faults.push((self.export.len().saturating_sub(1), fault));
        }
        faults
    }

    pub(super) fn check(self) -> Result<Vec<Export>, Fault> {
        let Self { export, groups } = self;
        let count = export.len();
        let mut names = BTreeSet::new();
        let mut exports = Vec::new();
        for config in export {
            let name = if config.name == "/" { "" } else { &config.name };
            if name.is_empty() && count > 1 {
                return Err(config.fault("the root must be the only export"));
            }
            if !names.insert(name.to_owned()) {
                return Err(config.fault("another export has the same name"));
            }
            exports.push(config.check(&groups)?);
        }
        Ok(exports)
    }
}

impl ExportConfig {
    /// The directory, or the part of its path before the first component with `{user}`.
    #[must_use]
    pub fn fixed_path(&self) -> PathBuf {
        let names = PathBuf::from(&self.path);
        let names = names.components();
        names
            .take_while(|name| !name.as_os_str().to_string_lossy().contains(USER))
            .collect()
    }

    /// The rights of users who don't log in, which all others have too.
    #[must_use]
    pub fn public_rights(&self) -> Rights {
        let default = || ANONYMOUS.into_iter().fold(Rights::NONE, |all, r| all | r);
        match self.public {
            true => self.anonymous.unwrap_or_else(default),
            false => Rights::NONE,
        }
    }

    fn fault(&self, cause: impl std::fmt::Display) -> Fault {
        let name = self.name.escape_default();
        let cause = format!("export '{name}': {cause}");
        Fault::new(Code::InvalidArgument, "read the exports", cause)
    }

    fn check(self, groups: &BTreeMap<String, Vec<String>>) -> Result<Export, Fault> {
        let name = self.check_name()?.to_owned().into_bytes();
        let place = Place::Directory(self.check_path()?);
        let public = self.public_rights();
        if self.public && public == Rights::NONE {
            return Err(self.fault("it is public, and 'anonymous' has no rights"));
        }
        if !self.public && self.anonymous.is_some() {
            return Err(self.fault("it has rights for 'anonymous' and isn't public"));
        }
        if self.grant.is_empty() && !self.public {
            return Err(self.fault("nobody may use it: it has no grants and isn't public"));
        }
        let grants = self
            .grant
            .iter()
            .map(|grant| self.check_grant(grant, groups));
        Ok(Export {
            grants: grants.collect::<Result<_, _>>()?,
            name,
            place,
            public,
            quota: Quota {
                bytes: self.quota_bytes,
                files: self.quota_files,
            },
            largest_file: self.largest_file,
        })
    }

    fn check_name(&self) -> Result<&str, Fault> {
        let name = match self.name.as_str() {
            "/" => "",
            name => name,
        };
        if name == "." || name == ".." || name.contains(['/', '\\', '\0']) {
            return Err(self.fault("a name is one component of a path"));
        }
        if name.starts_with("mem:") {
            return Err(self.fault("names with 'mem:' at the start are built in"));
        }
        Ok(name)
    }

    fn check_path(&self) -> Result<ExportLocation, Fault> {
        let rest = self.path.replace(USER, "");
        if rest.contains(['{', '}']) {
            return Err(self.fault("braces may occur in a path only as {user}"));
        }
        if self.path.contains('\0') {
            return Err(self.fault("the path has a zero byte"));
        }
        let path = PathBuf::from(&self.path);
        if !path.is_absolute() {
            return Err(self.fault("the path isn't absolute"));
        }
        if rest == self.path {
            if self.make && self.mount {
                return Err(self.fault("a mount point isn't made: leave out `make` or `mount`"));
            }
            return Ok(ExportLocation::fixed(path, self.make, self.mount));
        }
        if self.public {
            return Err(self.fault("it is public, but anonymous users have no {user}"));
        }
        Ok(ExportLocation::template(path, self.make, self.mount))
    }

    fn check_grant(
        &self,
        grant: &GrantConfig,
        groups: &BTreeMap<String, Vec<String>>,
    ) -> Result<Grant, Fault> {
        let users = match (grant.user.as_deref(), grant.group.as_deref()) {
            (Some(""), None) => return Err(self.fault("a grant is to a user without a name")),
            (Some("*"), None) => None,
            (Some(user), None) => Some(BTreeSet::from([user.to_owned()])),
            (None, Some(group)) => match groups.get(group) {
                Some(users) => Some(users.iter().cloned().collect()),
                None => return Err(self.fault(format_args!("there is no group '{group}'"))),
            },
            _ => return Err(self.fault("a grant is to either a user or a group")),
        };
        if grant.rights == Rights::NONE {
            return Err(self.fault("a grant has no rights"));
        }
        Ok(Grant {
            users,
            rights: grant.rights,
        })
    }
}
