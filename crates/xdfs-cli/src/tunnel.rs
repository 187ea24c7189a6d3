//! `xdfs tunnel`: ports, here and at a server, whose connections travel through that server.

use std::time::Duration;

use xdfs::record::Record;
use xdfs::{ClientOptions, Fault, Tunnel, TunnelNews, TunnelPlan};

use crate::console::{Console, printable};
use crate::context::Context;
use crate::exit_codes::SUCCESS;
use crate::flags::{OutputFlags, TunnelFlags};
use crate::interrupt::Interrupt;
use crate::log::start_log;
use crate::perf::server_only;
use crate::report::print;

/// Interval of checks for an interrupt.
const TICK: Duration = Duration::from_millis(100);

/// Runs the command and returns the exit code.
pub(crate) fn run(context: &Context, flags: &TunnelFlags) -> u8 {
    start_log(flags.output.log_level());
    match serve(context, flags) {
        Ok(()) => SUCCESS,
        Err(fault) => {
            if flags.output.json {
                // Standard error has it in any case.
                let _ = print(Record::tunnel_error(&fault).line());
            }
            Console::new(flags.output).error(&fault);
            fault.exit_code()
        }
    }
}

fn serve(context: &Context, flags: &TunnelFlags) -> Result<(), Fault> {
    let place = server_only(context.config()?, &flags.server)?;
    let interrupt = Interrupt::install(|| ())?;
    let options = ClientOptions {
        drivers: flags.stack.drivers()?,
        ..ClientOptions::default()
    };
    let options = context.tunnel_options(&place, options, &flags.security)?;
    let output = flags.output;
    let plan = TunnelPlan {
        local: flags.local.clone(),
        remote: flags.remote.clone(),
        channels: flags.channels,
    };
    let tunnel = Tunnel::open(&place, options, &plan, move |news| tell(output, &news))?;
    if let Some(server) = tunnel.first_use() {
        Console::new(output).first_use(&server, true);
    }
    for port in tunnel.ports() {
        print(match output.json {
            true => Record::listening(port).line(),
            false => {
                let whose = if port.at_server { " of the server" } else { "" };
                let address = printable(&port.address);
                format!("listening on {address}{whose} for {}\n", port.target)
            }
        })?;
    }
    interrupt.orderly(true);
    while !interrupt.requested() {
        std::thread::sleep(TICK);
    }
    Ok(())
}

/// Tells what has happened: connections at -v, failures always.
fn tell(output: OutputFlags, news: &TunnelNews) {
    if output.json {
        // Nobody reads it any more: the tunnel goes on.
        let _ = print(Record::tunnel(news).line());
        return;
    }
    let mut console = Console::new(output);
    match news {
        TunnelNews::Opened { from, target } => {
            console.detail(&printable(&format!("{from} is connected to {target}")));
        }
        TunnelNews::Failed { fault, .. } => console.error(fault),
        TunnelNews::Lost { fault, .. } => console.error(fault),
        TunnelNews::Back { address } => {
            let line = format!("the server listens on {address} again");
            console.detail(&printable(&line));
        }
        TunnelNews::Closed {
            from,
            target,
            sent,
            received,
            fault,
        } => {
            let why = match fault {
                Some(fault) => format!(": {}", fault.cause),
                None => String::new(),
            };
            let line =
                format!("{from} to {target} ended, {sent} B sent, {received} B received{why}");
            console.detail(&printable(&line));
        }
        _ => {}
    }
}
