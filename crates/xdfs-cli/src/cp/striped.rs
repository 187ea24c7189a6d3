//! Sources of `xdfs cp --stripe` that all members of a group of servers send together, and its
//! target that they write together.

use xdfs::{Address, Code, Fault, RemotePlace, ReplicaSet};

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
    check(flags)?;
    if flags.dry_run {
        return Err(refusal("--dry-run"));
    }
    let client = connector.connect(&place)?;
    let set = ReplicaSet::of_target(client.client(), &place);
    connector.leave(&place, client);
    set.map(Some)
}

/// The file at the members of the group of a server; `None` if there is no such file.
fn set_of(connector: &Connector, place: &RemotePlace) -> Result<Option<ReplicaSet>, Fault> {
    if place.path.is_empty() || place.path.ends_with(b"/") {
        return Ok(None);
    }
    let client = connector.connect(place)?;
    let set = ReplicaSet::of_group(client.client(), place);
    connector.leave(place, client);
    set
}

/// Refuses what makes no sense with stripes.
fn check(flags: &CpFlags) -> Result<(), Fault> {
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
