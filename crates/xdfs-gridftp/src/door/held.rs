//! The memory that listings of trees hold until their rows are sent, at the pace of their
//! receivers: bounded for each user and for all, by bytes, so that no user keeps others from
//! listing.

use std::collections::HashMap;
use std::sync::{Arc, Mutex};

use xdfs_proto::{Code, Fault};

use super::locked;
use crate::segment::{CATALOGUE_BYTES_MAX, ENTRIES_MAX};

/// Bytes beside the name and the row of an entry, at most.
pub(super) const ENTRY_BYTES: usize = 128;
/// Bytes that a listing may hold in any case: what most trees take.
const FREE_BYTES: usize = 1 << 20;
/// Bytes that the listings of a user hold beyond those: the largest one, with a name in each row.
const USER_BYTES_MAX: usize = 2 * CATALOGUE_BYTES_MAX + ENTRIES_MAX * ENTRY_BYTES;
/// Likewise those of all users.
const ALL_BYTES_MAX: usize = 4 * USER_BYTES_MAX;

/// The bytes that all listings hold beyond those that are free.
#[derive(Clone, Debug, Default)]
pub(super) struct Listings(Arc<Mutex<Counts>>);

#[derive(Debug, Default)]
struct Counts {
    all: usize,
    users: HashMap<String, usize>,
}

/// The memory of one listing. Dropping it gives all back.
#[derive(Debug)]
pub(super) struct Held {
    listings: Listings,
    user: String,
    bytes: usize,
}

impl Listings {
    /// A new listing of `user`, which holds nothing.
    pub(super) fn begin(&self, user: &str) -> Held {
        Held {
            listings: self.clone(),
            user: user.to_owned(),
            bytes: 0,
        }
    }
}

impl Held {
    /// Holds more.
    ///
    /// # Errors
    /// The listings of the user, or of all, would hold too much.
    pub(super) fn grow(&mut self, bytes: usize) -> Result<(), Fault> {
        let before = counted(self.bytes);
        let more = counted(self.bytes + bytes) - before;
        if more > 0 {
            let mut counts = locked(&self.listings.0);
            let own = counts.users.get(&self.user).copied().unwrap_or_default();
            if own + more > USER_BYTES_MAX {
                return Err(full("this user's listings of trees", own));
            }
            if counts.all + more > ALL_BYTES_MAX {
                return Err(full("listings of trees", counts.all));
            }
            counts.all += more;
            counts.users.insert(self.user.clone(), own + more);
        }
        self.bytes += bytes;
        Ok(())
    }

    /// Holds less.
    pub(super) fn shrink(&mut self, bytes: usize) {
        let left = self.bytes.saturating_sub(bytes);
        let less = counted(self.bytes) - counted(left);
        self.bytes = left;
        if less > 0 {
            let mut counts = locked(&self.listings.0);
            counts.all -= less;
            if let Some(own) = counts.users.get_mut(&self.user) {
                *own -= less;
                if *own == 0 {
                    counts.users.remove(&self.user);
                }
            }
        }
    }
}

impl Drop for Held {
    fn drop(&mut self) {
        self.shrink(self.bytes);
    }
}

/// The bytes of a listing that count.
fn counted(bytes: usize) -> usize {
    bytes.saturating_sub(FREE_BYTES)
}

fn full(whose: &str, bytes: usize) -> Fault {
    let cause = format!("{whose} already hold {} MiB", bytes >> 20);
    let fault = Fault::new(Code::LimitExceeded, "list a tree", cause);
    fault.hint("try again later, or use MODE E")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_user_takes_no_more_than_its_share_and_gives_it_back() {
        let listings = Listings::default();
        let mut small: Vec<_> = (0..1000).map(|_| listings.begin("anonymous")).collect();
        for held in &mut small {
            held.grow(FREE_BYTES).unwrap();
        }
        let mut large = listings.begin("anonymous");
        large.grow(FREE_BYTES + USER_BYTES_MAX).unwrap();
        let mut second = listings.begin("anonymous");
        second.grow(FREE_BYTES).unwrap();
        let fault = second.grow(1).unwrap_err();
        assert_eq!(fault.code, Code::LimitExceeded, "{fault}");
        // Others list the largest trees meanwhile, up to a bound.
        let users = ["alice", "bob", "carol"];
        let mut others: Vec<_> = users.map(|user| listings.begin(user)).into();
        for held in &mut others {
            held.grow(FREE_BYTES + USER_BYTES_MAX).unwrap();
        }
        let mut dave = listings.begin("dave");
        dave.grow(FREE_BYTES).unwrap();
        dave.grow(1).unwrap_err();
        // Rows that were sent make room.
        large.shrink(2);
        second.grow(1).unwrap();
        dave.grow(1).unwrap();
        drop((large, second, others, dave, small));
        let counts = locked(&listings.0);
        assert_eq!((counts.all, counts.users.len()), (0, 0));
    }
}
