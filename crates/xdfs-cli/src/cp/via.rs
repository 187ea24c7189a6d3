//! `xdfs cp --via`: a file that is left to a relay.

use std::fs;
use std::path::Path;

use xdfs::operations::PlannedFile;
use xdfs::record::Record;
use xdfs::{
    Client, Code, CopyId, DigestValue, Fault, GatheredTree, PARCEL_LIFE_S_MAX, ParcelOrder,
    ParcelState, RELAYS_MAX, RemotePlace, new_parcel_id, parcel_path,
};

use super::detached::wait_for_parcel;
use super::origins::Origins;
use super::plan::PlannedCopy;
use super::{connector, copy_files, tree};
use crate::console::Console;
use crate::context::Context;
use crate::exit_codes::SUCCESS;
use crate::flags::{CpFlags, PARCEL_LIFE_S};
use crate::perf::server_only;
use crate::place::{Place, shown};
use crate::report::{Label, Reporter, Run, print};

/// The file and its way.
struct Parcel {
    relay: RemotePlace,
    label: Label,
    /// One for each target; the file comes with the first.
    orders: Vec<ParcelOrder>,
    /// `None` for a file.
    tree: Option<GatheredTree>,
}

fn invalid(cause: &str) -> Fault {
    Fault::new(Code::InvalidArgument, "leave the file to the relay", cause)
}

/// Runs the command for the relay with this name, behind which come others, and returns the exit
/// code.
pub(super) fn run(context: &Context, flags: &CpFlags, via: (&str, &[String])) -> u8 {
    let label = Label {
        source: flags
            .places
            .sources
            .first()
            .map_or_else(String::new, |word| shown(word)),
        target: shown(&flags.places.target),
    };
    let mut reporter = Reporter::new(
        flags.output,
        Run {
            source: Some(label.source.clone()),
            target: label.target.clone(),
            files: 1,
            stats: flags.stats,
            ..Run::default()
        },
    );
    let parcel = match plan(context, flags, via, label) {
        Ok(parcel) => parcel,
        Err(fault) => {
            reporter.failure(None, &fault);
            return reporter.finish();
        }
    };
    match leave(context, flags, &parcel, &mut reporter) {
        Ok(true) => {}
        Ok(false) => return reporter.finish(),
        Err(fault) => {
            reporter.failure(Some(&parcel.label), &fault);
            return reporter.finish();
        }
    }
    let code = reporter.finish();
    if code != SUCCESS && !is_taken(context, flags, &parcel) {
        return code;
    }
    match taken(context, flags, &parcel) {
        Ok(()) => SUCCESS,
        Err(fault) => {
            if flags.output.json {
                // A failure to print is that of the command, which is reported below.
                let _ = print(Record::error(None, &fault).line());
            }
            Console::new(flags.output).error(&fault);
            fault.exit_code()
        }
    }
}

/// The relay with this name or URL.
fn relay_of(context: &Context, via: &str) -> Result<RemotePlace, Fault> {
    let config = context.config()?;
    match RemotePlace::is_remote(via) || config.place(via.as_ref()).is_some() {
        true => server_only(config, via),
        false => server_only(config, &format!("xdfs://{via}")),
    }
}

fn plan(
    context: &Context,
    flags: &CpFlags,
    (via, next): (&str, &[String]),
    label: Label,
) -> Result<Parcel, Fault> {
    let config = context.config()?;
    let relay = relay_of(context, via)?;
    let next = next
        .iter()
        .map(|via| Ok(relay_of(context, via)?.to_string()));
    let next = next.collect::<Result<Vec<_>, Fault>>()?;
    if next.len() >= RELAYS_MAX {
        let cause = format!("a file goes by {RELAYS_MAX} relays at most");
        return Err(invalid(&cause));
    }
    let [source] = &flags.places.sources[..] else {
        return Err(invalid("a relay takes one file or tree at a time"));
    };
    let Place::Local(source) = Place::parse(config, source)? else {
        return Err(invalid("the source has to be on this machine"));
    };
    let targets = [&flags.places.target]
        .into_iter()
        .chain(&flags.servers.via.also_to);
    let targets = targets.map(|word| match Place::parse(config, word)? {
        Place::Remote(target) => Ok(target.to_string()),
        _ => Err(invalid("the target is no URL of a server").hint("write xdfs://HOST/PATH")),
    });
    let targets = targets.collect::<Result<Vec<_>, Fault>>()?;
    let name = source
        .file_name()
        .ok_or_else(|| invalid("the source has no name"))?;
    let tree = match source.is_dir() && (flags.recursive || flags.archive) {
        true => Some(list(context, flags, &source, &relay)?),
        false => None,
    };
    let life = flags.servers.via.expire.map(|life| life.as_secs());
    let life_s = life.map_or(PARCEL_LIFE_S, |life| {
        u32::try_from(life).unwrap_or(u32::MAX)
    });
    if !(1..=PARCEL_LIFE_S_MAX).contains(&life_s) {
        return Err(invalid(
            "the time of --expire has to be from 1 s to 30 days",
        ));
    }
    let id = match flags.servers.via.parcel {
        Some(id) => id,
        None => new_parcel_id()?,
    };
    let order = ParcelOrder {
        id,
        overwrite: flags.overwrites(),
        tree: tree.is_some(),
        bytes: match &tree {
            Some(tree) => tree.bytes(),
            None => length_of(&source)?,
        },
        life_s,
        target: String::new(),
        name: name.as_encoded_bytes().to_vec(),
        digest: DigestValue::None,
        next,
        passed: Vec::new(),
        of: None,
        in_order: flags.servers.via.in_order.clone(),
        ahead: false,
    };
    let orders = (0_u128..).zip(targets).map(|(number, target)| ParcelOrder {
        id: CopyId(u128::from_be_bytes(id.0).wrapping_add(number).to_be_bytes()),
        target,
        of: (number > 0).then_some(id),
        ..order.clone()
    });
    Ok(Parcel {
        relay,
        label,
        orders: orders.collect(),
        tree,
    })
}

/// Lists a tree, which goes as one file.
fn list(
    context: &Context,
    flags: &CpFlags,
    source: &Path,
    relay: &RemotePlace,
) -> Result<GatheredTree, Fault> {
    if flags.overwrites() {
        let hint = "leave out --force, and give it a name that isn't taken";
        return Err(invalid("a tree that goes by a relay replaces nothing").hint(hint));
    }
    if source.as_os_str().as_encoded_bytes().ends_with(b"/") {
        let cause = "a tree that goes by a relay is no part of another directory";
        return Err(invalid(cause).hint("leave out the slash at the end of the source"));
    }
    let settings = context.config()?.session(relay);
    let filter = flags.filter.filter()?;
    let interrupt = context.interrupt()?;
    GatheredTree::list(source, &tree::options(settings, flags, &filter, &interrupt))
}

fn length_of(source: &Path) -> Result<u64, Fault> {
    let path = source.as_os_str().as_encoded_bytes();
    let meta = fs::metadata(source);
    let meta = meta.map_err(|error| Fault::from_io("open the source", path, &error))?;
    match meta.is_file() {
        true => Ok(meta.len()),
        false => {
            let cause = "it is no file";
            let fault = Fault::new(Code::InvalidArgument, "open the source", cause);
            Err(fault.path(path).hint("directories need --recursive"))
        }
    }
}

/// Uploads the file to the relay, unless that has it. Returns `false` if it failed, which the
/// report says.
fn leave(
    context: &Context,
    flags: &CpFlags,
    parcel: &Parcel,
    reporter: &mut Reporter,
) -> Result<bool, Fault> {
    let connector = connector(context, flags).for_places([&parcel.relay]);
    let client = connector.connect(&parcel.relay)?;
    for order in &parcel.orders {
        client.open_parcel(order.clone())?;
    }
    let id = parcel.orders[0].id;
    let status = client.parcel_status(id)?;
    match status.state {
        ParcelState::Arriving => {}
        ParcelState::Cancelled => {
            let cause = format!("parcel {id} was cancelled");
            return Err(
                Fault::new(Code::Cancelled, "leave the file to the relay", cause)
                    .hint("another --parcel has it taken again"),
            );
        }
        // It may never have arrived as a whole.
        ParcelState::Dead => {
            let gone = || {
                Fault::new(
                    Code::NotFound,
                    "leave the file to the relay",
                    "it was given up",
                )
            };
            let hint =
                "`xdfs retry` puts back a file that has arrived; another --parcel sends it again";
            return Err(status.fault.unwrap_or_else(gone).hint(hint));
        }
        _ => return Ok(true),
    }
    connector.leave(&parcel.relay, client);
    let at_relay = RemotePlace {
        path: parcel_path(id),
        ..parcel.relay.clone()
    };
    let source = Path::new(&flags.places.sources[0]);
    let planned = PlannedCopy {
        label: parcel.label.clone(),
        copy: match &parcel.tree {
            Some(tree) => PlannedFile::upload_made(&tree.file(), &at_relay),
            None => PlannedFile::upload(source, &at_relay, false, (0, None)),
        },
    };
    let interrupt = context.interrupt()?;
    let origins = Origins::new(&connector, flags.servers.between.into());
    copy_files(
        &connector,
        flags,
        vec![planned],
        &origins,
        &interrupt,
        reporter,
    )?;
    Ok(true)
}

fn connect(
    context: &Context,
    flags: &CpFlags,
    parcel: &Parcel,
) -> Result<crate::client::SharedClient, Fault> {
    connector(context, flags)
        .for_places([&parcel.relay])
        .connect(&parcel.relay)
}

/// Whether the relay has the file, although this side didn't hear of it.
fn is_taken(context: &Context, flags: &CpFlags, parcel: &Parcel) -> bool {
    let id = parcel.orders[0].id;
    let status = connect(context, flags, parcel).and_then(|client| client.parcel_status(id));
    status.is_ok_and(|status| status.state.is_taken())
}

/// Prints the identifiers of a file that the relay has, and waits for its delivery if that is
/// wanted.
fn taken(context: &Context, flags: &CpFlags, parcel: &Parcel) -> Result<(), Fault> {
    let relay = parcel.relay.at(Vec::new()).to_string();
    for ParcelOrder { id, target, .. } in &parcel.orders {
        let id = id.to_string();
        if flags.output.json {
            print(Record::detached(&id, &relay, &parcel.label.source, target).line())?;
        } else {
            print(format!("{id}\n"))?;
            Console::new(flags.output).info(&format!("xdfs status {id} {relay}"));
        }
    }
    if !flags.servers.via.wait {
        return Ok(());
    }
    let client = connect(context, flags, parcel)?;
    // All of them end, and then the first failure is that of the command.
    let delivered = parcel.orders.iter();
    let delivered = delivered.map(|order| wait(flags, client.client(), &relay, order.id));
    let delivered: Vec<_> = delivered.collect();
    delivered.into_iter().collect()
}

/// Waits for the delivery to one target.
fn wait(flags: &CpFlags, client: &Client, relay: &str, id: CopyId) -> Result<(), Fault> {
    let status = wait_for_parcel(client, id)?;
    let id = id.to_string();
    if flags.output.json {
        print(Record::parcel_status(relay, &id, &status).line())?;
    }
    match (status.state, status.fault) {
        (ParcelState::Cancelled, _) => {
            Err(Fault::new(Code::Cancelled, "deliver", "it was cancelled"))
        }
        (_, Some(fault)) => Err(fault),
        (_, None) => Ok(()),
    }
}
