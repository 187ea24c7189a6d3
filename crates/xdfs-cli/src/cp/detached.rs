//! Copies that go on at a server: `xdfs cp --detach`, `status`, `wait` and `cancel`.

use std::thread;
use std::time::Duration;

use xdfs::record::Record;
use xdfs::{Client, ClientOptions, Code, CopyId, CopyStatus, Fault, LocalPlace, TransferOptions};

use super::origins::Origins;
use super::plan::PlannedCopy;
use crate::console::Console;
use crate::context::Context;
use crate::exit_codes::SUCCESS;
use crate::flags::{DetachedFlags, OutputFlags};
use crate::human;
use crate::log::start_log;
use crate::perf::server_only;
use crate::report::print;

/// Interval of looks at a copy that is waited for.
const LOOK: Duration = Duration::from_millis(500);

/// The command about a copy.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Asked {
    Status,
    Wait,
    Cancel,
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
            .hint("it is what `xdfs cp --detach` has printed")
    })?;
    let place = server_only(context.config()?, &flags.server)?;
    let options = ClientOptions {
        channels: Some(1),
        drivers: flags.stack.drivers()?,
        ..ClientOptions::default()
    };
    let client = context.connect(&place, options, &flags.security)?;
    if asked == Asked::Cancel {
        return client.cancel_copy(id);
    }
    let status = look(&client, id, asked == Asked::Wait)?;
    match flags.json {
        true => print(Record::detached_status(&flags.server, &flags.id, &status).line())?,
        false => print(line(&status))?,
    }
    match status.fault {
        Some(fault) if asked == Asked::Wait => Err(fault),
        _ => Ok(()),
    }
}

/// The status of a copy; at its end if that is waited for.
fn look(client: &Client, id: CopyId, waits: bool) -> Result<CopyStatus, Fault> {
    loop {
        let status = client.copy_status(id)?;
        if !waits || status.state.is_end() {
            return Ok(status);
        }
        thread::sleep(LOOK);
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
