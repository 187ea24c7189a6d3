//! Owners that the target can't give to files: without privileges a side makes files of its own
//! user only. That is no failure of an entry, but the user hears of how many the owner wasn't kept.

use std::collections::HashMap;

use xdfs_proto::path::{ACCOUNTS_MAX, Account};
use xdfs_store::local::SettableOwners;

use super::moving::Report;
use super::namespace::Namespace;
use super::run::TreeRun;
use crate::paths::{Answer, Call};

impl TreeRun<'_> {
    /// The owners that the target can give to files. A server that doesn't say is taken for one
    /// that can give any, and then reports what it couldn't do.
    pub(super) fn settable_owners(&self) -> &SettableOwners {
        self.settable_owners.get_or_init(|| {
            let path = self.target.root().to_vec();
            match self.target.start(Call::SettableOwners { path }).wait() {
                Ok(Answer::Accounts(accounts)) => SettableOwners::of(&accounts),
                _ => SettableOwners::Any,
            }
        })
    }

    /// Counts the moved entries whose owner the target couldn't keep.
    pub(super) fn count_unkept_owners(&self, report: &mut Report<'_>) {
        let moved = std::mem::take(&mut report.moved_owners);
        if moved.counts.is_empty() || report.is_stopped() {
            return;
        }
        let settable = self.settable_owners();
        if *settable == SettableOwners::Any {
            return;
        }
        let there = self.owners_there(moved.counts.keys().copied().collect());
        let result = &mut report.result;
        let (entries, set_id) = (moved.rest.entries, moved.rest.set_id);
        result.owners_unkept += entries;
        result.unkept += set_id;
        for (owner, count) in moved.counts {
            let (uid, gid) = there.get(&owner).copied().unwrap_or(owner);
            let is_kept = settable.contains(uid, gid);
            if !is_kept {
                result.owners_unkept += count.entries;
            }
            // A server that doesn't run as root gives these bits to no file.
            if !is_kept || self.target.is_remote() {
                result.unkept += count.set_id;
            }
        }
    }

    /// The numbers that owners of the source have at the target, where their names are known on
    /// both sides.
    fn owners_there(&self, owners: Vec<(u32, u32)>) -> HashMap<(u32, u32), (u32, u32)> {
        let ids = owners.iter();
        let mut asked: Vec<_> = ids
            .flat_map(|(uid, gid)| [Account::User(*uid), Account::Group(*gid)])
            .collect();
        asked.sort_by_key(|account| format!("{account:?}"));
        asked.dedup();
        let names = look_up(self.source, &asked);
        let (asked, named): (Vec<_>, Vec<_>) = asked
            .into_iter()
            .zip(names)
            .filter_map(|(account, name)| Some((account, name?)))
            .unzip();
        let numbers = look_up(self.target, &named);
        let known: HashMap<Account, Account> = asked
            .into_iter()
            .zip(numbers)
            .filter_map(|(account, number)| Some((account, number?)))
            .collect();
        let there = owners.into_iter().map(|(uid, gid)| {
            let user = match known.get(&Account::User(uid)) {
                Some(Account::User(there)) => *there,
                _ => uid,
            };
            let group = match known.get(&Account::Group(gid)) {
                Some(Account::Group(there)) => *there,
                _ => gid,
            };
            ((uid, gid), (user, group))
        });
        there.collect()
    }
}

/// Looks up accounts on the side of a tree; those that can't be looked up are unknown.
fn look_up(side: &Namespace<'_>, accounts: &[Account]) -> Vec<Option<Account>> {
    let mut found = Vec::with_capacity(accounts.len());
    for accounts in accounts.chunks(ACCOUNTS_MAX) {
        let call = Call::LookUp {
            path: side.root().to_vec(),
            accounts: accounts.to_vec(),
        };
        match side.start(call).wait() {
            Ok(Answer::Accounts(answer)) if answer.len() == accounts.len() => found.extend(answer),
            _ => found.extend(accounts.iter().map(|_| None)),
        }
    }
    found
}
