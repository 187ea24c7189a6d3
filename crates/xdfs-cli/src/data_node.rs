//! `xdfs gridftp data-node`: listeners and signals.

use xdfs::{Code, Fault};

use crate::check_config;
use crate::console::Console;
use crate::exit_codes::SUCCESS;
use crate::flags::{DataNodeFlags, OutputFlags};
use crate::interrupt::handle_signals;
use crate::log::start_log;
use crate::report::print;
use crate::server_config::{builder, missing_exports, read_config, served, warnings};
use crate::service::{self, Notice};

/// Runs the command and returns the exit code.
pub(crate) fn run(flags: &DataNodeFlags) -> u8 {
    if flags.check_config {
        return check_config::run_data_node(flags);
    }
    start_log(flags.log_level());
    match serve(flags) {
        Ok(()) => SUCCESS,
        Err(fault) => {
            Console::new(OutputFlags::default()).error(&fault);
            fault.exit_code()
        }
    }
}

fn serve(flags: &DataNodeFlags) -> Result<(), Fault> {
    let config = read_config(&flags.config)?;
    let settings = config.data_node(flags.listen.clone());
    let builder = builder(flags.as_server(), config)?;
    let mut console = Console::new(OutputFlags::default());
    for warning in warnings(&builder, &[])
        .iter()
        .chain(&missing_exports(&builder))
    {
        console.info(&format!("warning: {warning}"));
    }
    let served = served(&builder);
    let node = builder.bind_data_node(&settings)?;
    let handle = node.handle();
    let mut signals = 0_u32;
    handle_signals(move || {
        signals += 1;
        service::notify(Notice::Stopping);
        match signals {
            1 | 2 => handle.shutdown(signals == 2),
            // Something hangs.
            _ => std::process::exit(i32::from(Code::Cancelled.exit_code())),
        }
    })?;
    let mut text = String::new();
    for address in node.addresses() {
        text.push_str(&format!("data node on {address}\n"));
    }
    for line in served {
        text.push_str(&format!("serving {line}\n"));
    }
    text.push_str(&format!("fingerprint {}\n", node.fingerprint()));
    if let Err(fault) = print(text) {
        // It serves nevertheless.
        console.error(&fault);
    }
    service::notify(Notice::Ready);
    node.run()
}
