//! Users and groups by name, each looked up once: the database may be on the network.

use std::collections::HashMap;
use std::collections::hash_map::Entry;
use std::hash::Hash;
use std::io;

use xdfs_proto::Code;
use xdfs_proto::pack::Owner;
use xdfs_sys::ids;

use super::Problem;

/// Maximum number of lookups of users, and of groups, per pack or tree. The peer chooses the names,
/// and each lookup may be slow.
const LOOKUPS_MAX: usize = 1024;

type Numbers = HashMap<Vec<u8>, Option<u32>>;
type Names = HashMap<u32, Vec<u8>>;

/// User and group ids by name.
#[derive(Debug, Default)]
pub(super) struct OwnerNumbers {
    users: Numbers,
    groups: Numbers,
}

impl OwnerNumbers {
    /// User and group id of an owner on this system: by name if known here, otherwise its own ids.
    pub(super) fn of(&mut self, owner: &Owner<'_>) -> Result<(u32, u32), Problem> {
        let Some((user, group)) = owner.names else {
            return Ok((owner.uid, owner.gid));
        };
        let user = look_up(&mut self.users, user, ids::user_of_name)?;
        let group = look_up(&mut self.groups, group, ids::group_of_name)?;
        Ok((user.unwrap_or(owner.uid), group.unwrap_or(owner.gid)))
    }
}

fn look_up(
    known: &mut Numbers,
    name: &[u8],
    ask: fn(&str) -> io::Result<Option<u32>>,
) -> Result<Option<u32>, Problem> {
    if let Some(number) = known.get(name) {
        return Ok(*number);
    }
    if known.len() >= LOOKUPS_MAX {
        let cause = "too many different owners are named in one pack";
        return Err(Problem::new(Code::LimitExceeded, cause));
    }
    let number = match str::from_utf8(name) {
        Ok(text) if !text.is_empty() => ask(text).map_err(|error| Problem::io(&error))?,
        _ => None,
    };
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
    /// Looks up the names of an owner for [`Self::of`]. An unknown id gets an empty name.
    pub(super) fn learn(&mut self, uid: u32, gid: u32) {
        learn(&mut self.users, uid, ids::name_of_user);
        learn(&mut self.groups, gid, ids::name_of_group);
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

fn learn<K: Copy + Eq + Hash>(
    known: &mut HashMap<K, Vec<u8>>,
    number: K,
    ask: fn(K) -> io::Result<Option<String>>,
) {
    if known.len() >= LOOKUPS_MAX {
        return;
    }
    if let Entry::Vacant(entry) = known.entry(number) {
        // If the database fails, the id alone is kept.
        let name = ask(number).ok().flatten().unwrap_or_default();
        entry.insert(name.into_bytes());
    }
}
