//! `xdfs relay ls`, `show`, `retry` and `drop`: the files at a relay.

use std::time::Duration;

use xdfs::record::Record;
use xdfs::{
    Client, ClientOptions, Code, CopyId, Fault, ListedParcel, ParcelEnd, ParcelName, ParcelQuery,
    ParcelState, ParcelStatus,
};

use crate::client::SharedClient;
use crate::console::{Console, printable};
use crate::context::Context;
use crate::exit_codes::SUCCESS;
use crate::flags::{
    AtRelayFlags, LOCAL, OutputFlags, RelayCommand, RelayEndFlags, RelayLsFlags, RelayShowFlags,
};
use crate::human;
use crate::log::start_log;
use crate::perf::server_only;
use crate::progress;
use crate::report::print;

/// Runs a command and returns the exit code.
pub(crate) fn run(context: &Context, command: &RelayCommand) -> u8 {
    start_log(None);
    let (at, server, done) = match command {
        RelayCommand::Ls(flags) => (&flags.at, flags.server.clone(), ls(context, flags)),
        RelayCommand::Show(flags) => (&flags.at, flags.server.clone(), show(context, flags)),
        RelayCommand::Retry(flags) => end(context, flags, ParcelEnd::Retry),
        RelayCommand::Drop(flags) => end(context, flags, ParcelEnd::Cancel),
    };
    let Err(fault) = done else { return SUCCESS };
    if at.json {
        // A failure to print is that of the command, which is reported below.
        let _ = print(Record::operand_error(Some(&server), &fault).line());
    }
    Console::new(OutputFlags::default()).error(&fault);
    fault.exit_code()
}

fn connect(context: &Context, server: &str, flags: &AtRelayFlags) -> Result<SharedClient, Fault> {
    let place = server_only(context.config()?, server)?;
    let options = ClientOptions {
        channels: Some(1),
        drivers: flags.stack.drivers()?,
        ..ClientOptions::default()
    };
    context.connect(&place, options, &flags.security)
}

/// Passes the parcels of a query on.
fn each(
    client: &Client,
    mut query: ParcelQuery,
    mut each: impl FnMut(ListedParcel) -> Result<(), Fault>,
) -> Result<(), Fault> {
    loop {
        let list = client.parcels(query)?;
        list.parcels.into_iter().try_for_each(&mut each)?;
        match list.next {
            Some(next) if next > query.from => query.from = next,
            Some(_) => {
                let cause = "its list doesn't end";
                let fault = Fault::new(Code::ProtocolViolation, "list the parcels", cause);
                return Err(client.fault_there(fault));
            }
            None => return Ok(()),
        }
    }
}

fn ls(context: &Context, flags: &RelayLsFlags) -> Result<(), Fault> {
    let client = connect(context, &flags.server, &flags.at)?;
    let states = match flags.state.as_slice() {
        [] => &[
            ParcelState::Arriving,
            ParcelState::Held,
            ParcelState::Delivering,
            ParcelState::Dead,
        ],
        states => states,
    };
    let bits = states.iter().map(|state| ParcelQuery::bit(*state));
    let query = ParcelQuery {
        all_users: flags.all_users,
        states: bits.fold(0, |all, bit| all | bit),
        from: 0,
    };
    let mut is_first = true;
    each(&client, query, |parcel| {
        let ListedParcel { id, user, status } = &parcel;
        if flags.at.json {
            let id = id.to_string();
            return print(Record::parcel_of(&flags.server, &id, user, status).line());
        }
        let user = flags.all_users.then_some(user.as_str());
        let head = if is_first {
            head(user.is_some())
        } else {
            String::new()
        };
        is_first = false;
        print(head + &row(*id, user, status))
    })
}

fn head(has_users: bool) -> String {
    let user = if has_users {
        format!("{:<12}  ", "USER")
    } else {
        String::new()
    };
    let (id, state, size, age) = ("ID", "STATE", "SIZE", "AGE");
    format!("{id:<32}  {user}{state:<10}  {size:>8}  {age:>9}  TRIES  TARGET\n")
}

/// A parcel in a line, and in another one why its last attempt failed.
fn row(id: CopyId, user: Option<&str>, status: &ParcelStatus) -> String {
    let user = user.map_or_else(String::new, |user| format!("{:<12}  ", printable(user)));
    let (state, size) = (status.state.as_str(), human::size(status.bytes));
    let age = human::clock(Duration::from_secs(status.age_s));
    let (tries, target) = (status.attempts, printable(&status.target));
    let mut text = format!("{id}  {user}{state:<10}  {size:>8}  {age:>9}  {tries:>5}  {target}\n");
    if let Some(fault) = &status.fault {
        text += &format!("  {fault}\n");
    }
    text
}

fn show(context: &Context, flags: &RelayShowFlags) -> Result<(), Fault> {
    let client = connect(context, &flags.server, &flags.at)?;
    let status = client.parcel_status(ParcelName {
        id: flags.id,
        user: flags.user.clone(),
    })?;
    if flags.at.json {
        let id = flags.id.to_string();
        let record = match &flags.user {
            Some(user) => Record::parcel_of(&flags.server, &id, user, &status),
            None => Record::parcel_status(&flags.server, &id, &status),
        };
        return print(record.line());
    }
    print(details(flags.id, &status))
}

/// All that is known of a parcel, a line for each.
fn details(id: CopyId, status: &ParcelStatus) -> String {
    let clock = |seconds| human::clock(Duration::from_secs(seconds));
    let total = human::size(status.bytes);
    let part = |bytes| format!("{} of {total}", human::size(bytes));
    let next = |ms| format!("in {}", human::seconds(ms as f64 / 1e3));
    let digest = progress::digest(&status.digest, " ");
    let lines = [
        ("parcel", Some(id.to_string())),
        ("state", Some(status.state.as_str().to_owned())),
        ("target", Some(printable(&status.target))),
        ("at the relay", Some(part(status.arrived))),
        ("at the target", Some(part(status.delivered))),
        ("digest", digest),
        ("age", Some(clock(status.age_s))),
        ("attempts", Some(status.attempts.to_string())),
        ("next attempt", status.next_ms.map(next)),
        ("last fault", status.fault.as_ref().map(ToString::to_string)),
    ];
    let lines = lines.into_iter();
    lines
        .filter_map(|(name, value)| Some(format!("{name:<14} {}\n", value?)))
        .collect()
}

/// Ends parcels in this way. Returns the relay too.
fn end<'a>(
    context: &Context,
    flags: &'a RelayEndFlags,
    way: ParcelEnd,
) -> (&'a AtRelayFlags, String, Result<(), Fault>) {
    let (mut ids, mut servers) = (Vec::new(), Vec::new());
    for word in &flags.words {
        match word.parse::<CopyId>() {
            Ok(id) => ids.push(id),
            Err(_) => servers.push(word.as_str()),
        }
    }
    let server = servers.first().copied().unwrap_or(LOCAL);
    let invalid = |cause: &str, hint: &str| {
        let fault = Fault::new(Code::InvalidArgument, "read the command line", cause);
        Err(fault.hint(hint))
    };
    let done = if servers.len() > 1 {
        invalid(
            "there are two relays",
            "an identifier has 32 hexadecimal digits",
        )
    } else if ids.is_empty() != flags.dead {
        invalid(
            "no file is named, or too many",
            "name identifiers, or give --dead",
        )
    } else {
        end_at(context, flags, server, &ids, way)
    };
    (&flags.at, server.to_owned(), done)
}

fn end_at(
    context: &Context,
    flags: &RelayEndFlags,
    server: &str,
    ids: &[CopyId],
    way: ParcelEnd,
) -> Result<(), Fault> {
    let client = connect(context, server, &flags.at)?;
    for id in ids {
        let name = ParcelName {
            id: *id,
            user: flags.user.clone(),
        };
        client.end_parcel(name, way)?;
    }
    if !flags.dead {
        return Ok(());
    }
    let query = ParcelQuery {
        all_users: flags.all_users,
        states: ParcelQuery::bit(ParcelState::Dead),
        from: 0,
    };
    each(&client, query, |parcel| {
        let name = ParcelName {
            id: parcel.id,
            user: flags.all_users.then(|| parcel.user.clone()),
        };
        match client.end_parcel(name, way) {
            Ok(()) => {}
            // Somebody has put it back meanwhile, or it was forgotten.
            Err(fault) if matches!(fault.code, Code::NotFound | Code::InvalidArgument) => {
                return Ok(());
            }
            Err(fault) => return Err(fault),
        }
        match flags.at.json {
            true => {
                let (id, user) = (parcel.id.to_string(), &parcel.user);
                print(Record::parcel_of(server, &id, user, &parcel.status).line())
            }
            false => print(format!("{}\n", parcel.id)),
        }
    })
}
