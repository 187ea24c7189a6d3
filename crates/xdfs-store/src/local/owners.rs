//! Users and groups of this system, each looked up once: the database may be on the network. Packs
//! and calls share it.

use std::collections::HashMap;
use std::collections::hash_map::Entry;
use std::hash::Hash;
use std::io;
use std::iter;

use xdfs_proto::pack::Owner;
use xdfs_proto::path::{ACCOUNTS_MAX, Account};
use xdfs_proto::{Code, Fault};
use xdfs_sys::ids;

/// Maximum number of lookups of users, and of groups, per pack, tree or call. The peer chooses the
/// names, and each lookup may be slow.
const LOOKUPS_MAX: usize = 1024;

/// The id that the system reads as "unchanged": nobody's.
const NO_ID: u32 = u32::MAX;

type Numbers = HashMap<Vec<u8>, Option<u32>>;
type Names = HashMap<u32, Vec<u8>>;

/// User and group ids by name.
#[derive(Debug, Default)]
pub(super) struct OwnerNumbers {
    users: Numbers,
    groups: Numbers,
    /// The owners that can be set, once they are needed.
    settable: Option<SettableOwners>,
}

impl OwnerNumbers {
    /// The id of the user with this name; `None` if there is none.
    fn user(&mut self, name: &[u8]) -> Result<Option<u32>, Fault> {
        number_of(&mut self.users, name, ids::user_of_name)
    }

    /// The id of the group with this name.
    fn group(&mut self, name: &[u8]) -> Result<Option<u32>, Fault> {
        number_of(&mut self.groups, name, ids::group_of_name)
    }

    /// The owners that the calling thread can give to files.
    pub(super) fn settable(&mut self) -> io::Result<&SettableOwners> {
        if self.settable.is_none() {
            self.settable = Some(settable()?);
        }
        Ok(self.settable.get_or_insert(SettableOwners::Any))
    }

    /// User and group id of an owner on this system: by name if known here, otherwise its own ids.
    pub(super) fn of(&mut self, owner: &Owner<'_>) -> Result<(u32, u32), Fault> {
        let Some((user, group)) = owner.names else {
            return Ok((owner.uid, owner.gid));
        };
        let (user, group) = (self.user(user)?, self.group(group)?);
        Ok((user.unwrap_or(owner.uid), group.unwrap_or(owner.gid)))
    }
}

fn number_of(
    known: &mut Numbers,
    name: &[u8],
    ask: fn(&str) -> io::Result<Option<u32>>,
) -> Result<Option<u32>, Fault> {
    if let Some(number) = known.get(name) {
        return Ok(*number);
    }
    if known.len() >= LOOKUPS_MAX {
        let cause = "too many different owners are named at once";
        return Err(Fault::new(Code::LimitExceeded, "", cause));
    }
    let number = match str::from_utf8(name) {
        Ok(text) if !text.is_empty() => {
            ask(text).map_err(|error| Fault::from_io("", b"", &error))?
        }
        _ => None,
    };
    let number = number.filter(|number| *number != NO_ID);
    known.insert(name.to_vec(), number);
    Ok(number)
}

/// User and group names by id.
#[derive(Debug, Default)]
pub(super) struct OwnerNames {
    users: Names,
    groups: Names,
}

impl OwnerNames {
    /// The name of the user with this id; empty if it has none.
    fn user(&mut self, uid: u32) -> &[u8] {
        name_of(&mut self.users, uid, ids::name_of_user)
    }

    /// The name of the group with this id; empty if it has none.
    fn group(&mut self, gid: u32) -> &[u8] {
        name_of(&mut self.groups, gid, ids::name_of_group)
    }

    /// Looks up the names of an owner for [`Self::of`]. An unknown id gets an empty name.
    pub(super) fn learn(&mut self, uid: u32, gid: u32) {
        self.user(uid);
        self.group(gid);
    }

    pub(super) fn of(&self, uid: u32, gid: u32) -> Owner<'_> {
        let user = self.users.get(&uid).map_or(&b""[..], |name| name);
        let group = self.groups.get(&gid).map_or(&b""[..], |name| name);
        Owner {
            uid,
            gid,
            names: Some((user, group)),
        }
    }
}

fn name_of<K: Copy + Eq + Hash>(
    known: &mut HashMap<K, Vec<u8>>,
    number: K,
    ask: fn(K) -> io::Result<Option<String>>,
) -> &[u8] {
    let is_full = known.len() >= LOOKUPS_MAX;
    match known.entry(number) {
        Entry::Occupied(entry) => entry.into_mut(),
        Entry::Vacant(_) if is_full => b"",
        Entry::Vacant(entry) => {
            // If the database fails, the id alone is kept.
            let name = ask(number).ok().flatten().unwrap_or_default();
            entry.insert(name.into_bytes())
        }
    }
}

/// The owners that a side can give to the files that it creates.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum SettableOwners {
    /// Any.
    Any,
    /// The owners that one user can give.
    Own {
        /// The user.
        uid: u32,
        /// The groups that it can give.
        gids: Vec<u32>,
    },
}

impl SettableOwners {
    /// As an answer to
    /// [`Call::SettableOwners`](xdfs_proto::path::Call::SettableOwners).
    pub(super) fn accounts(&self) -> Vec<Option<Account>> {
        match self {
            Self::Any => vec![None],
            Self::Own { uid, gids } => {
                let groups = gids.iter().copied().map(Account::Group);
                let all = iter::once(Account::User(*uid)).chain(groups);
                all.map(Some).take(ACCOUNTS_MAX).collect()
            }
        }
    }

    /// From such an answer.
    #[must_use]
    pub fn of(accounts: &[Option<Account>]) -> Self {
        let Some(Some(Account::User(uid))) = accounts.first() else {
            return Self::Any;
        };
        let gids = accounts.iter().filter_map(|account| match account {
            Some(Account::Group(gid)) => Some(*gid),
            _ => None,
        });
        Self::Own {
            uid: *uid,
            gids: gids.collect(),
        }
    }

    /// Whether it can give this owner and this group.
    #[must_use]
    pub fn contains(&self, uid: u32, gid: u32) -> bool {
        match self {
            Self::Any => true,
            Self::Own { uid: own, gids } => *own == uid && gids.contains(&gid),
        }
    }
}

/// The owners that the calling thread can give to files.
///
/// # Errors
/// Any error of the system call.
pub(super) fn settable() -> io::Result<SettableOwners> {
    Ok(match ids::settable_owners()? {
        None => SettableOwners::Any,
        Some((uid, gids)) => SettableOwners::Own { uid, gids },
    })
}

/// Looks up accounts, each by name instead of number or by number instead of name. `None` for those
/// unknown here, and for a name that isn't one to a peer.
///
/// # Errors
/// A name can't be looked up. A number then has no name.
pub(super) fn look_up(accounts: &[Account]) -> Result<Vec<Option<Account>>, Fault> {
    let mut numbers = OwnerNumbers::default();
    let mut names = OwnerNames::default();
    let text = |name: &[u8]| {
        let text = str::from_utf8(name)
            .ok()
            .filter(|text| Account::is_name(text));
        text.map(str::to_owned)
    };
    let found = accounts.iter().map(|account| {
        Ok(match account {
            Account::User(uid) => text(names.user(*uid)).map(Account::UserNamed),
            Account::Group(gid) => text(names.group(*gid)).map(Account::GroupNamed),
            Account::UserNamed(name) => numbers.user(name.as_bytes())?.map(Account::User),
            Account::GroupNamed(name) => numbers.group(name.as_bytes())?.map(Account::Group),
        })
    });
    found.collect()
}
