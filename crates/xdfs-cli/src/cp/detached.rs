//! Copies that go on at a server: `xdfs cp --detach`, and `status`, `wait`, `cancel` and `retry` of
//! these and of files at a relay.

use std::thread;
use std::time::{Duration, Instant};

use xdfs::record::Record;
use xdfs::{
    Client, ClientOptions, Code, CopyId, CopyStatus, Fault, LocalPlace, ParcelEnd, ParcelState,
    ParcelStatus, TransferOptions,
};

use super::origins::Origins;
use super::plan::PlannedCopy;
use crate::console::{Console, printable};
use crate::context::Context;
use crate::exit_codes::SUCCESS;
use crate::flags::{DetachedFlags, OutputFlags};
use crate::human;
use crate::log::start_log;
use crate::perf::server_only;
use crate::report::print;

/// Shortest and longest pause between two looks at a copy that is waited for.
const LOOKS: [Duration; 2] = [Duration::from_millis(20), Duration::from_millis(500)];

/// The pause before the next look at a copy that is waited for since then: a part of that time, so
/// that the end of a short one is soon seen.
fn look_pause(since: Instant) -> Duration {
    (since.elapsed() / 8).clamp(LOOKS[0], LOOKS[1])
}

/// The command about a copy.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Asked {
    Status,
    Wait,
    Cancel,
    Retry,
}

/// Has servers copy these files, and leaves them to it. Prints the identifier of each copy.
///
/// # Errors
/// A file isn't on a server, or neither of its servers may connect to the other.
pub(super) fn detach(
    origins: &Origins,
    copies: &[PlannedCopy],
    options: &TransferOptions,
    is_json: bool,
) -> Result<(), Fault> {
    for copy in copies {
        let LocalPlace::OtherServer(file) = copy.route.local() else {
            let cause = "only a copy from one server to another can go on without this machine";
            return Err(Fault::new(Code::InvalidArgument, "detach the copy", cause)
                .hint("leave out --detach, or name two URLs"));
        };
        let target = origins.connect(&copy.server)?;
        let path = &copy.server.path;
        let detached = target.client().detach_copy(file, path, options)?;
        let id = detached.id;
        let at = match detached.is_at_source {
            true => file.place(),
            false => &copy.server,
        };
        let server = at.at(Vec::new()).to_string();
        if is_json {
            let (id, label) = (id.to_string(), &copy.label);
            print(Record::detached(&id, &server, &label.source, &label.target).line())?;
        } else {
            print(format!("{id}\n"))?;
            Console::new(OutputFlags::default()).info(&format!("xdfs status {id} {server}"));
        }
    }
    Ok(())
}

/// The exit code of a detached copy, or of the fault that has prevented it.
pub(super) fn ended(result: Result<(), Fault>, output: OutputFlags) -> u8 {
    let Err(fault) = result else { return SUCCESS };
    if output.json {
        // A failure to print is that of the command, which is reported below.
        let _ = print(Record::error(None, &fault).line());
    }
    Console::new(output).error(&fault);
    fault.exit_code()
}

/// Runs `xdfs status`, `wait` or `cancel` and returns the exit code.
pub(crate) fn run(context: &Context, flags: &DetachedFlags, asked: Asked) -> u8 {
    start_log(None);
    match ask(context, flags, asked) {
        Ok(()) => SUCCESS,
        Err(fault) => {
            if flags.json {
                // A failure to print is that of the command, which is reported below.
                let _ = print(Record::operand_error(Some(&flags.server), &fault).line());
            }
            Console::new(OutputFlags::default()).error(&fault);
            fault.exit_code()
        }
    }
}

fn ask(context: &Context, flags: &DetachedFlags, asked: Asked) -> Result<(), Fault> {
    let id = flags.id.parse::<CopyId>().map_err(|cause| {
        Fault::new(Code::InvalidArgument, "read the identifier", cause)
            .hint("it is what `xdfs cp` has printed")
    })?;
    let place = server_only(context.config()?, &flags.server)?;
    let options = ClientOptions {
        channels: Some(1),
        drivers: flags.stack.drivers()?,
        ..ClientOptions::default()
    };
    let client = context.connect(&place, options, &flags.security)?;
    let done = match asked {
        Asked::Cancel => Some(client.cancel_copy(id)),
        // Copies between servers are never put back.
        Asked::Retry => return client.end_parcel(id, ParcelEnd::Retry),
        Asked::Status | Asked::Wait => None,
    };
    let looked = match done {
        Some(Ok(())) => return Ok(()),
        Some(Err(fault)) => Err(fault),
        None => look(&client, id, asked == Asked::Wait),
    };
    let status = match looked {
        Ok(status) => status,
        // It may be a file at a relay.
        Err(fault) if matches!(fault.code, Code::NotFound | Code::Unsupported) => {
            return ask_relay(&client, flags, (id, asked)).map_err(|other| match other.code {
                Code::Unsupported => fault,
                _ => other,
            });
        }
        Err(fault) => return Err(fault),
    };
    match flags.json {
        true => print(Record::detached_status(&flags.server, &flags.id, &status).line())?,
        false => print(line(&status))?,
    }
    match status.fault {
        Some(fault) if asked == Asked::Wait => Err(fault),
        _ => Ok(()),
    }
}

/// Asks a relay about a file that was left there.
fn ask_relay(
    client: &Client,
    flags: &DetachedFlags,
    (id, asked): (CopyId, Asked),
) -> Result<(), Fault> {
    if asked == Asked::Cancel {
        return client.end_parcel(id, ParcelEnd::Cancel);
    }
    let status = match asked == Asked::Wait {
        true => wait_for_parcel(client, id)?,
        false => client.parcel_status(id)?,
    };
    match flags.json {
        true => print(Record::parcel_status(&flags.server, &flags.id, &status).line())?,
        false => print(parcel_line(&status))?,
    }
    match (status.state, status.fault) {
        (ParcelState::Dead, Some(fault)) if asked == Asked::Wait => Err(fault),
        (ParcelState::Cancelled, _) if asked == Asked::Wait => {
            Err(Fault::new(Code::Cancelled, "deliver", "it was cancelled"))
        }
        _ => Ok(()),
    }
}

/// Waits until a file at a relay is delivered, or never will be.
///
/// # Errors
/// The relay can't be asked.
pub(super) fn wait_for_parcel(client: &Client, id: CopyId) -> Result<ParcelStatus, Fault> {
    let began = Instant::now();
    loop {
        let status = client.parcel_status(id)?;
        if status.state.is_end() {
            return Ok(status);
        }
        thread::sleep(look_pause(began));
    }
}

fn parcel_line(status: &ParcelStatus) -> String {
    let total = human::size(status.bytes);
    let state = status.state.as_str();
    let mut line = match status.state {
        ParcelState::Arriving => format!("{state}: {} of {total}", human::size(status.arrived)),
        ParcelState::Delivering => {
            format!("{state}: {} of {total}", human::size(status.delivered))
        }
        _ => format!("{state}: {total}"),
    };
    if let Some(holder) = &status.holder {
        line += &format!(" at {}", printable(holder));
    }
    line += &format!(" to {}", printable(&status.target));
    match status.attempts {
        0 => {}
        1 => line += ", 1 attempt",
        attempts => line += &format!(", {attempts} attempts"),
    }
    if let Some(next_ms) = status.next_ms {
        line += &format!(", next in {:.1} s", next_ms as f64 / 1e3);
    }
    if let Some(fault) = &status.fault {
        line += &format!(": {fault}");
    }
    line + "\n"
}

/// The status of a copy; at its end if that is waited for.
fn look(client: &Client, id: CopyId, waits: bool) -> Result<CopyStatus, Fault> {
    let began = Instant::now();
    loop {
        let status = client.copy_status(id)?;
        if !waits || status.state.is_end() {
            return Ok(status);
        }
        thread::sleep(look_pause(began));
    }
}

fn line(status: &CopyStatus) -> String {
    let moved = match status.bytes_total {
        Some(total) => format!("{} of {}", human::size(status.bytes), human::size(total)),
        None => human::size(status.bytes),
    };
    let seconds = status.elapsed_ms as f64 / 1e3;
    let state = status.state.as_str();
    let mut line = format!("{state}: {moved} in {seconds:.1} s");
    if let Some(fault) = &status.fault {
        line += &format!(": {fault}");
    }
    line + "\n"
}
