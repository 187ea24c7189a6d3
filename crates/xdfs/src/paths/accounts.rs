//! Users and groups of the server's system, by name: those of owners in listings, and others that a
//! caller names.

use std::collections::{HashMap, HashSet};
use std::fmt;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use xdfs_proto::path::{ACCOUNTS_MAX, Account, Answer, Attributes, Call};
use xdfs_proto::{Code, Fault};

use super::{Caller, PendingCall};

/// Number of accounts that a session remembers; beyond it, it begins anew. They take some MiB.
const REMEMBERED_MAX: usize = 1 << 16;

/// Users and groups by number, with their names. Only numbers are keys.
type Names = HashMap<Account, Option<Arc<str>>>;

/// What a session has learnt. Numbers without a name are remembered too, so that no server is asked
/// for them twice.
#[derive(Debug, Default)]
pub(super) struct KnownNames {
    names: Names,
    /// The server knows no such call.
    is_unsupported: bool,
}

fn lock(known: &Mutex<KnownNames>) -> MutexGuard<'_, KnownNames> {
    known.lock().unwrap_or_else(PoisonError::into_inner)
}

/// The calls for some accounts.
fn calls<'a>(path: &'a [u8], accounts: &'a [Account]) -> impl Iterator<Item = Call> + 'a {
    accounts.chunks(ACCOUNTS_MAX).map(|accounts| Call::LookUp {
        path: path.to_vec(),
        accounts: accounts.to_vec(),
    })
}

fn found(answer: Answer) -> Vec<Option<Account>> {
    match answer {
        Answer::Accounts(found) => found,
        // The engine lets nothing else through.
        _ => Vec::new(),
    }
}

/// Looks up accounts, all at once.
///
/// # Errors
/// That of the first call that fails.
pub(crate) fn look_up(
    caller: &Caller,
    path: &[u8],
    accounts: &[Account],
) -> Result<Vec<Option<Account>>, Fault> {
    let pending: Vec<_> = calls(path, accounts)
        .map(|call| caller.start_pending(call))
        .collect();
    let mut all = Vec::with_capacity(accounts.len());
    for call in pending {
        all.extend(found(call?.wait()?));
    }
    Ok(all)
}

/// Names of owners and groups that are being looked up, by
/// [`Client::account_names`](crate::Client::account_names).
pub struct PendingAccountNames {
    known: Arc<Mutex<KnownNames>>,
    /// Those that are known already.
    names: Names,
    asked: Vec<Account>,
    calls: Vec<Result<PendingCall, Fault>>,
}

impl PendingAccountNames {
    pub(crate) fn start<'a>(
        caller: Caller,
        path: &[u8],
        of: impl IntoIterator<Item = &'a Attributes>,
    ) -> Self {
        let owners = of.into_iter();
        let wanted: HashSet<Account> = owners
            .flat_map(|a| [Account::User(a.uid), Account::Group(a.gid)])
            .collect();
        let mut names = Names::new();
        let mut asked = Vec::new();
        {
            let known = lock(&caller.names);
            for account in wanted {
                match known.names.get(&account) {
                    Some(name) => {
                        names.insert(account, name.clone());
                    }
                    None if known.is_unsupported => {}
                    None => asked.push(account),
                }
            }
        }
        let calls = calls(path, &asked);
        let calls = calls.map(|call| caller.start_pending(call)).collect();
        Self {
            known: caller.names,
            names,
            asked,
            calls,
        }
    }

    /// Waits for the names. A server that can't look up accounts, and one that refuses, leave
    /// owners without a name.
    #[must_use]
    pub fn wait(self) -> AccountNames {
        let mut names = self.names;
        let mut learnt = Names::new();
        let mut is_unsupported = false;
        for (asked, call) in self.asked.chunks(ACCOUNTS_MAX).zip(self.calls) {
            match call.and_then(PendingCall::wait) {
                Ok(answer) => learnt.extend(
                    asked
                        .iter()
                        .cloned()
                        .zip(found(answer).into_iter().map(name_of)),
                ),
                Err(fault) => is_unsupported |= fault.code == Code::Unsupported,
            }
        }
        let mut known = lock(&self.known);
        known.is_unsupported |= is_unsupported;
        if known.names.len() + learnt.len() > REMEMBERED_MAX {
            known.names.clear();
        }
        known.names.extend(learnt.clone());
        names.extend(learnt);
        AccountNames(names)
    }
}

fn name_of(account: Option<Account>) -> Option<Arc<str>> {
    match account? {
        Account::UserNamed(name) | Account::GroupNamed(name) => Some(name.into()),
        _ => None,
    }
}

impl fmt::Debug for PendingAccountNames {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("PendingAccountNames")
            .field("asked", &self.asked.len())
            .finish_non_exhaustive()
    }
}

/// Names of users and groups of the server, those of some entries.
#[derive(Clone, Debug, Default)]
pub struct AccountNames(Names);

impl AccountNames {
    /// The names of the owner and the group of one of these entries.
    #[must_use]
    pub fn of(&self, attributes: &Attributes) -> OwnerNames {
        let name = |account| self.0.get(&account).cloned().flatten();
        OwnerNames {
            user: name(Account::User(attributes.uid)),
            group: name(Account::Group(attributes.gid)),
        }
    }
}

/// The names of an owner and a group, on the system of the server; `None` if unknown.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct OwnerNames {
    /// The owner.
    pub user: Option<Arc<str>>,
    /// The group.
    pub group: Option<Arc<str>>,
}
