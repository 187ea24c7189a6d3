//! Sources of `xdfs cp --stripe` that all members of a group of servers send together, and its
//! target that they write together.

use std::ffi::OsString;

use xdfs::{Address, Code, Fault, RemotePlace, ReplicaSet};

use super::plan::Groups;
use super::several::SeveralFile;
use crate::flags::CpFlags;
use crate::place::{Place, shown};
use crate::session::Connector;

/// Takes the files of groups from the sources of the command. Words that name no file stay, so that
/// the copy says what is wrong with them.
///
/// # Errors
/// A server can't be reached or is in no group, or the command can't be done with stripes.
pub(super) fn take(connector: &Connector, flags: &mut CpFlags) -> Result<Vec<SeveralFile>, Fault> {
    if !flags.stripe.stripe {
        return Ok(Vec::new());
    }
    let config = connector.context.config()?;
    // Then it is the target that has stripes.
    if let Place::Remote(target) = Place::parse(config, &flags.places.target)?
        && target.address.traits().stripes
    {
        return Ok(Vec::new());
    }
    let mut files = Vec::new();
    let mut rest = Vec::new();
    for word in std::mem::take(&mut flags.places.sources) {
        let set = match Place::parse(config, &word)? {
            Place::Remote(place) if matches!(place.address, Address::Host { .. }) => {
                set_of(connector, &place)?
            }
            _ => None,
        };
        match set {
            Some(set) => files.push(SeveralFile {
                text: shown(&word),
                set,
            }),
            None => rest.push(word),
        }
    }
    flags.places.sources = rest;
    if !files.is_empty() {
        check(flags)?;
    }
    Ok(files)
}

/// The servers that write the files of the command together; `None` if its target is elsewhere.
///
/// # Errors
/// As those of [`take`].
pub(super) fn target(connector: &Connector, flags: &CpFlags) -> Result<Option<ReplicaSet>, Fault> {
    if !flags.stripe.stripe {
        return Ok(None);
    }
    let config = connector.context.config()?;
    let place = match Place::parse(config, &flags.places.target)? {
        Place::Remote(place) if matches!(place.address, Address::Host { .. }) => place,
        _ => return Ok(None),
    };
    // Then it is the source that has stripes.
    let has_nodes = |word: &OsString| {
        let place = Place::parse(config, word);
        matches!(place, Ok(Place::Remote(place)) if place.address.traits().stripes)
    };
    let words = &flags.places.sources;
    if !words.is_empty() && words.iter().all(has_nodes) {
        return Ok(None);
    }
    check(flags)?;
    if flags.dry_run {
        return Err(refusal("--dry-run"));
    }
    let client = connector.connect(&place)?;
    let set = ReplicaSet::of_target(client.client(), &place);
    connector.leave(&place, client);
    let set = set?;
    connector.flags.security.login().share_password(&set.places);
    Ok(Some(set))
}

/// The groups of the servers of a list, or of the files beside trees.
///
/// # Errors
/// The command can't be done with stripes.
pub(super) fn groups<'a>(connector: &'a Connector, flags: &CpFlags) -> Result<Groups<'a>, Fault> {
    if !flags.stripe.stripe || flags.dry_run {
        return Ok(Groups::None);
    }
    let config = connector.context.config()?;
    let mut words = flags.places.sources.iter().chain([&flags.places.target]);
    let is_host = |word: &OsString| {
        let place = Place::parse(config, word);
        matches!(place, Ok(Place::Remote(place)) if matches!(place.address, Address::Host { .. }))
    };
    if words.any(is_host) {
        check(flags)?;
    }
    Ok(Groups::Any(connector))
}

/// The file at the members of the group of a server; `None` if there is no such file.
fn set_of(connector: &Connector, place: &RemotePlace) -> Result<Option<ReplicaSet>, Fault> {
    if place.path.is_empty() || place.path.ends_with(b"/") {
        return Ok(None);
    }
    let client = connector.connect(place)?;
    let set = ReplicaSet::of_group(client.client(), place);
    connector.leave(place, client);
    let set = set?;
    if let Some(set) = &set {
        connector.flags.security.login().share_password(&set.places);
    }
    Ok(set)
}

/// Refuses what makes no sense with stripes.
///
/// # Errors
/// The command has such a flag.
pub(super) fn check(flags: &CpFlags) -> Result<(), Fault> {
    let refused = [
        (flags.remove_source, "--remove-source"),
        (flags.servers.detach, "--detach"),
        (
            flags.stripe.stripe_block_size.is_some(),
            "--stripe-block-size",
        ),
    ];
    match refused.iter().find(|(is_wanted, _)| *is_wanted) {
        Some((_, flag)) => Err(refusal(flag)),
        None => Ok(()),
    }
}

fn refusal(flag: &str) -> Fault {
    let cause = format!("{flag} can't be done with a file that a group of servers moves");
    let fault = Fault::new(Code::InvalidArgument, "plan the copy", cause);
    fault.hint("leave out --stripe")
}
