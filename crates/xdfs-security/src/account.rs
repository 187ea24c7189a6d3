//! Local accounts for sessions.
//!
//! The settings map users, or all other users, to accounts; the threads of a session then have the
//! ids of the account, and the kernel enforces its permissions. Users without an account are
//! refused. This module selects the account; the owner of the threads assumes its ids.

use std::collections::BTreeMap;
use std::path::Path;

use xdfs_proto::{Code, Fault};
use xdfs_sys::ids::{Ids, check_may_change};

use crate::{Method, Principal};

/// In place of a user in the settings: every authenticated user without a line of its own.
const EVERYBODY: &str = "*";
/// In place of an account: the one named like the user.
const USER: &str = "{user}";
/// In place of a user: anonymous users.
const ANONYMOUS: &str = "anonymous";

const READ: &str = "read the accounts";
const FIND: &str = "find the account of the user";

/// Maps users to accounts.
#[derive(Clone, Debug)]
pub struct Accounts {
    by_user: BTreeMap<String, Target>,
    /// For all other authenticated users.
    rest: Option<Target>,
}

#[derive(Clone, Debug, PartialEq, Eq)]
enum Target {
    /// Named in the settings.
    Named(String),
    /// Named like the user.
    Same,
}

impl Accounts {
    /// Creates the map from a table of the settings, from users to accounts: `*` stands for all
    /// other users, `anonymous` for unauthenticated ones, and `{user}` for the account named like
    /// the user.
    ///
    /// # Errors
    /// - [`Code::Unsupported`]: this system isn't Linux.
    /// - [`Code::PermissionDenied`]: the calling thread isn't root's.
    /// - [`Code::InvalidArgument`]: the table is empty, a named account doesn't exist, or everybody
    ///   would be root.
    pub fn new(table: BTreeMap<String, String>) -> Result<Self, Fault> {
        check_may_change().map_err(|error| {
            let fault = Fault::from_io("give sessions the ids of accounts", "", &error);
            fault.hint("run the server as root on Linux, or leave [accounts] out of the settings")
        })?;
        let accounts = Self::parse(table)?;
        for (user, target) in accounts.lines() {
            if let Target::Named(account) = target {
                let Some(ids) = look_up(READ, account)? else {
                    return Err(invalid(user, "no such account on this machine"));
                };
                // Every authenticated user would be root.
                if ids.is_root() && user == EVERYBODY {
                    return Err(invalid(user, "not everybody can be root"));
                }
            }
        }
        Ok(accounts)
    }

    fn parse(table: BTreeMap<String, String>) -> Result<Self, Fault> {
        if table.is_empty() {
            let cause = "the table is empty, so nobody could be served";
            return Err(Fault::new(Code::InvalidArgument, READ, cause));
        }
        let mut accounts = Self {
            by_user: BTreeMap::new(),
            rest: None,
        };
        for (user, account) in table {
            let target = match account.as_str() {
                USER if user == ANONYMOUS => {
                    return Err(invalid(
                        &user,
                        "they have no name that an account could have",
                    ));
                }
                USER => Target::Same,
                "" => return Err(invalid(&user, "the name of the account is empty")),
                text if text.contains(['{', '}', '\0']) => {
                    let cause = "an account is a name, or {user} for that of the user";
                    return Err(invalid(&user, cause));
                }
                _ => Target::Named(account),
            };
            match user.as_str() {
                "" => return Err(invalid(&user, "the name of the user is empty")),
                EVERYBODY => accounts.rest = Some(target),
                _ => {
                    accounts.by_user.insert(user, target);
                }
            }
        }
        Ok(accounts)
    }

    /// Whether one of the accounts may enter a directory and all above it, by their modes. Of users
    /// whose accounts aren't named in the settings, some account is assumed that isn't root.
    #[must_use]
    pub fn may_enter(&self, directory: &Path) -> bool {
        self.lines().any(|(_, target)| match target {
            Target::Same => may_enter(directory, None),
            Target::Named(account) => match look_up(FIND, account) {
                Ok(Some(ids)) => may_enter(directory, Some(&ids)),
                _ => false,
            },
        })
    }

    fn lines(&self) -> impl Iterator<Item = (&str, &Target)> {
        let rest = self.rest.iter().map(|target| (EVERYBODY, target));
        self.by_user
            .iter()
            .map(|(u, t)| (u.as_str(), t))
            .chain(rest)
    }

    /// The line for a principal, and whether it names this user.
    fn target(&self, principal: &Principal) -> Option<(&Target, bool)> {
        if principal.method == Method::Anonymous {
            return self.by_user.get(ANONYMOUS).map(|target| (target, true));
        }
        let own = self.by_user.get(&principal.user);
        own.map(|target| (target, true))
            .or_else(|| self.rest.as_ref().map(|target| (target, false)))
    }

    /// The ids for the sessions of a principal. They are looked up each time, so changes of the
    /// account apply from the next session on.
    ///
    /// # Errors
    /// [`Code::PermissionDenied`]: the user has no account, or would be root without being
    /// explicitly mapped to it. Other errors come from the system's databases.
    pub fn ids_for(&self, principal: &Principal) -> Result<Ids, Fault> {
        let refused = |cause| {
            Fault::new(Code::PermissionDenied, FIND, cause)
                .hint("the server's administrator can add one in [accounts]")
        };
        let none = "this user has no account on this machine";
        let (target, is_own) = self.target(principal).ok_or_else(|| refused(none))?;
        let name = match target {
            Target::Named(account) => account,
            Target::Same => &principal.user,
        };
        let ids = look_up(FIND, name)?.ok_or_else(|| refused(none))?;
        let is_written = is_own && matches!(target, Target::Named(_));
        if ids.is_root() && !is_written {
            return Err(refused("a name alone grants nobody the rights of root"));
        }
        Ok(ids)
    }
}

/// Whether an account, or any but root for `None`, may enter a directory and all above it. Those
/// that can't be looked at may be entered.
#[cfg(unix)]
fn may_enter(directory: &Path, ids: Option<&Ids>) -> bool {
    use std::os::unix::fs::MetadataExt as _;
    let may_enter = |place: &Path| {
        let Ok(found) = std::fs::metadata(place) else {
            return true;
        };
        let (uid, gid, mode) = (found.uid(), found.gid(), found.mode());
        match ids {
            Some(ids) if ids.is_root() => true,
            Some(ids) if ids.uid() == uid => mode & 0o100 != 0,
            Some(ids) if ids.has_group(gid) => mode & 0o010 != 0,
            Some(_) => mode & 0o001 != 0,
            None => {
                mode & 0o001 != 0
                    || (uid != 0 && mode & 0o100 != 0)
                    || (gid != 0 && mode & 0o010 != 0)
            }
        }
    };
    directory.ancestors().all(may_enter)
}

#[cfg(not(unix))]
fn may_enter(_: &Path, _: Option<&Ids>) -> bool {
    true
}

fn look_up(operation: &str, account: &str) -> Result<Option<Ids>, Fault> {
    Ids::of_account(account).map_err(|error| {
        let account = account.escape_default();
        tracing::warn!(%account, %error, "an account can't be looked up");
        Fault::from_io(operation, "", &error).hint("tell the server's administrator")
    })
}

fn invalid(user: &str, cause: &str) -> Fault {
    let cause = format!("'{}': {cause}", user.escape_default());
    Fault::new(Code::InvalidArgument, READ, cause)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn table(lines: &[(&str, &str)]) -> BTreeMap<String, String> {
        let lines = lines.iter();
        lines.map(|(u, a)| ((*u).into(), (*a).into())).collect()
    }

    fn principal(user: &str, method: Method) -> Principal {
        Principal {
            user: user.into(),
            method,
            scopes: Vec::new(),
        }
    }

    #[test]
    fn a_line_of_ones_own_goes_first() {
        let lines = [("alice", "games"), ("bob", "{user}"), ("*", "nobody")];
        let accounts = Accounts::parse(table(&lines)).unwrap();
        let target = |user| accounts.target(&principal(user, Method::Key)).unwrap();
        let named = |name: &str| Target::Named(name.into());
        assert_eq!(target("alice"), (&named("games"), true));
        assert_eq!(target("bob"), (&Target::Same, true));
        assert_eq!(target("carol"), (&named("nobody"), false));
        // `*` can't be a user's name.
        assert_eq!(target("*"), (&named("nobody"), false));
    }

    #[test]
    fn who_proves_nothing_needs_a_line_too() {
        let nobody = principal("anonymous", Method::Anonymous);
        let accounts = Accounts::parse(table(&[("*", "{user}")])).unwrap();
        assert_eq!(accounts.target(&nobody), None);
        let accounts = Accounts::parse(table(&[("anonymous", "nobody")])).unwrap();
        assert!(accounts.target(&nobody).is_some());
        assert_eq!(accounts.target(&principal("alice", Method::Key)), None);
    }

    #[test]
    fn mistakes_are_named() {
        for (lines, word) in [
            (&[][..], "empty"),
            (&[("", "games")], "empty"),
            (&[("alice", "")], "'alice'"),
            (&[("alice", "x{user}")], "{user}"),
            (&[("alice", "{group}")], "'alice'"),
            (&[("*", "a\0b")], "'*'"),
            (&[("anonymous", "{user}")], "'anonymous'"),
        ] {
            let fault = Accounts::parse(table(lines)).unwrap_err();
            assert_eq!(fault.code, Code::InvalidArgument);
            assert!(fault.cause.contains(word), "{lines:?}: {fault}");
        }
    }

    #[cfg(target_os = "linux")]
    #[test]
    fn root_has_to_be_written_down_for_one_user() {
        let ids = |lines: &[(&str, &str)], user: &str| {
            let accounts = Accounts::parse(table(lines)).unwrap();
            accounts.ids_for(&principal(user, Method::Password))
        };
        for lines in [
            &[("*", "{user}")][..],
            &[("root", "{user}")],
            &[("*", "root")],
        ] {
            let fault = ids(lines, "root").unwrap_err();
            assert_eq!(fault.code, Code::PermissionDenied, "{lines:?}");
        }
        assert!(ids(&[("alice", "root")], "alice").unwrap().is_root());
        assert!(!ids(&[("*", "{user}")], "nobody").unwrap().is_root());
        for user in ["no such account", "", "a\0b", "0", "*", "{user}"] {
            let fault = ids(&[("*", "{user}")], user).unwrap_err();
            assert_eq!(fault.code, Code::PermissionDenied, "{user:?}");
        }
    }

    #[test]
    fn accounts_are_checked_before_anybody_comes() {
        if let Err(error) = check_may_change() {
            let fault = Accounts::new(table(&[("alice", "nobody")])).unwrap_err();
            let reason = format_args!("ids can't be changed: {error}; it says so: {fault}");
            return xdfs_testkit::skip::test(reason);
        }
        Accounts::new(table(&[("alice", "nobody"), ("*", "{user}")])).unwrap();
        for lines in [&[("alice", "no such account")][..], &[("*", "root")]] {
            let fault = Accounts::new(table(lines)).unwrap_err();
            assert_eq!(fault.code, Code::InvalidArgument, "{fault}");
        }
    }
}
