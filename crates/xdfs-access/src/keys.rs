//! The accepted public keys of users.

use std::path::{Path, PathBuf};

use xdfs_proto::{Code, Fault};
use xdfs_security::Binding;
use xdfs_security::key::{self, AuthorizedKeys, PublicKey};

/// The key lists of a server's users.
#[derive(Clone, Debug)]
pub struct KeyLists {
    /// The owner: the user who runs the server.
    pub owner: String,
    /// The owner's lists. Missing ones are empty.
    pub owner_lists: Vec<PathBuf>,
    /// A folder with a list per user, named after the user.
    pub folder: PathBuf,
}

impl KeyLists {
    /// Checks the proof, and returns the user. An empty name means the owner.
    pub(crate) fn admit(
        &self,
        body: &[u8],
        user: &str,
        binding: &Binding,
        now_unix: u64,
    ) -> Result<String, Fault> {
        let name = if user.is_empty() { &self.owner } else { user };
        let key = key::verify(body, user, binding)?;
        if self.list(name, &key, now_unix) {
            return Ok(name.to_owned());
        }
        // Unknown users are refused at the same cost as those with a list.
        key::admit(body, user, binding, None, now_unix).map(|_| name.to_owned())
    }

    /// Whether the user `name` has a list of its own with a key.
    pub(crate) fn has_list(&self, name: &str) -> bool {
        let list = is_plain(name).then(|| load(&self.folder.join(name)));
        list.flatten().is_some_and(|keys| !keys.is_empty())
    }

    /// Whether a key is in one of the lists of the user `name`.
    pub(crate) fn list(&self, name: &str, key: &PublicKey, now_unix: u64) -> bool {
        let mut lists = Vec::new();
        if is_plain(name) {
            lists.push(self.folder.join(name));
        }
        if name == self.owner {
            lists.extend(self.owner_lists.iter().cloned());
        }
        lists
            .iter()
            .filter_map(|path| load(path))
            .any(|list| list.contains(key, now_unix))
    }
}

/// An unusable list admits nobody, and the log has the reason.
fn load(path: &Path) -> Option<AuthorizedKeys> {
    match AuthorizedKeys::load(path) {
        Ok(list) => Some(list),
        Err(fault) => {
            if fault.code != Code::NotFound {
                tracing::warn!(%fault, "a list of keys is not used");
            }
            None
        }
    }
}

/// Whether a user name can safely be a file name.
fn is_plain(name: &str) -> bool {
    (1..=64).contains(&name.len())
        && !name.starts_with(['.', '-'])
        && name
            .bytes()
            .all(|b| b.is_ascii_alphanumeric() || b"._-@".contains(&b))
}

#[cfg(test)]
mod tests {
    use super::is_plain;

    #[test]
    fn names_stay_in_their_folder() {
        for name in ["alice", "a.b", "a@b", "A-1_2"] {
            assert!(is_plain(name), "{name}");
        }
        for name in ["", ".", "..", "../x", "a/b", "-a", "a b", "\u{e4}", "a\0"] {
            assert!(!is_plain(name), "{name:?}");
        }
    }
}
