//! `xdfs tunnel`: ports, here and at a server, whose connections travel through that server.

use std::time::Duration;

use serde::Serialize;
use xdfs::{ClientOptions, Fault, Tunnel, TunnelNews, TunnelPlan};

use crate::console::{Console, printable};
use crate::context::Context;
use crate::exit_codes::SUCCESS;
use crate::flags::{OutputFlags, TunnelFlags};
use crate::interrupt::Interrupt;
use crate::json;
use crate::log::start_log;
use crate::perf::server_only;
use crate::report::print;

/// Interval of checks for an interrupt.
const TICK: Duration = Duration::from_millis(100);

/// A line of JSON.
#[derive(Serialize)]
struct Record<'a> {
    r#type: &'a str,
    #[serde(skip_serializing_if = "Option::is_none")]
    address: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    at_server: Option<bool>,
    #[serde(skip_serializing_if = "Option::is_none")]
    from: Option<&'a str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    target: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    sent: Option<u64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    received: Option<u64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    code: Option<&'a str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    message: Option<String>,
}

impl<'a> Record<'a> {
    fn new(r#type: &'a str) -> Self {
        Self {
            r#type,
            address: None,
            at_server: None,
            from: None,
            target: None,
            sent: None,
            received: None,
            code: None,
            message: None,
        }
    }

    fn fault(self, fault: Option<&'a Fault>) -> Self {
        Self {
            code: fault.map(|fault| fault.code.as_str()),
            message: fault.map(ToString::to_string),
            ..self
        }
    }
}

/// Runs the command and returns the exit code.
pub(crate) fn run(context: &Context, flags: &TunnelFlags) -> u8 {
    start_log(flags.output.log_level());
    match serve(context, flags) {
        Ok(()) => SUCCESS,
        Err(fault) => {
            if flags.output.json {
                // Standard error has it in any case.
                let _ = print(json::line(&Record::new("error").fault(Some(&fault))));
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
        let target = port.target.to_string();
        print(match output.json {
            true => json::line(&Record {
                address: Some(port.address.clone()),
                at_server: Some(port.at_server),
                target: Some(target),
                ..Record::new("listening")
            }),
            false => {
                let whose = if port.at_server { " of the server" } else { "" };
                let address = printable(&port.address);
                format!("listening on {address}{whose} for {target}\n")
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
        let record = match news {
            TunnelNews::Opened { from, target } => Record {
                from: Some(from),
                target: Some(target.to_string()),
                ..Record::new("connection")
            },
            TunnelNews::Failed {
                from,
                target,
                fault,
            } => Record {
                from: Some(from),
                target: Some(target.to_string()),
                ..Record::new("refused")
            }
            .fault(Some(fault)),
            TunnelNews::Lost { listen, fault } => Record {
                address: Some(listen.to_string()),
                at_server: Some(true),
                ..Record::new("lost")
            }
            .fault(Some(fault)),
            TunnelNews::Back { address } => Record {
                address: Some(address.clone()),
                at_server: Some(true),
                ..Record::new("back")
            },
            TunnelNews::Closed {
                from,
                target,
                sent,
                received,
                fault,
            } => Record {
                from: Some(from),
                target: Some(target.to_string()),
                sent: Some(*sent),
                received: Some(*received),
                ..Record::new("closed")
            }
            .fault(fault.as_ref()),
            _ => return,
        };
        // Nobody reads it any more: the tunnel goes on.
        let _ = print(json::line(&record));
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
