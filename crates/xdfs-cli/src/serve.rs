//! `xdfs serve`: listeners and signals.

use std::path::Path;
use std::time::Duration;

use tracing::Level;
use xdfs::{Address, Code, Fault, ServerBuilder};

use crate::console::{Console, printable};
use crate::exit_codes::SUCCESS;
use crate::flags::{OutputFlags, ServeFlags};
use crate::interrupt::handle_signals;
use crate::report::print;
use crate::server_config::{Config, builder, read_config};

/// Lifetime of a ticket from `--ticket`.
const TICKET_LIFE: Duration = Duration::from_secs(24 * 3600);

/// Starts logging to standard error, if a level is given.
pub(crate) fn start_log(level: Option<Level>) {
    if let Some(level) = level {
        let log = tracing_subscriber::fmt()
            .compact()
            .with_ansi(false)
            .with_writer(std::io::stderr)
            .with_max_level(level);
        // In a shell, logging may have been started already.
        let _ = log.try_init();
    }
}

/// Runs the command and returns the exit code.
pub(crate) fn run(flags: ServeFlags) -> u8 {
    start_log(flags.log_level());
    match serve(flags) {
        Ok(()) => SUCCESS,
        Err(fault) => {
            Console::new(OutputFlags::default()).error(&fault);
            fault.code.exit_code()
        }
    }
}

fn serve(flags: ServeFlags) -> Result<(), Fault> {
    let config = match &flags.config {
        Some(path) => read_config(path)?,
        None => Config::default(),
    };
    let ticket = flags.ticket;
    let builder = builder(flags, config)?;
    let (root, read_only, grace) = (builder.root.clone(), builder.read_only, builder.grace);
    let insecure = builder.insecure;
    let exports = exports_of(&builder);
    let server = builder.bind()?;
    let handle = server.handle();
    let mut signals = 0_u32;
    handle_signals(move || {
        signals += 1;
        handle.shutdown();
        let mut console = Console::new(OutputFlags::default());
        match signals {
            1 => console.say(&format!(
                "no new sessions; running ones get {} s, another signal ends them at once",
                grace.as_secs()
            )),
            2 => console.say("ending all sessions; transfers can be resumed"),
            // Something hangs.
            _ => std::process::exit(i32::from(Code::Cancelled.exit_code())),
        }
    })?;
    let root = root.canonicalize().unwrap_or(root);
    let exports = exports.as_deref();
    let mut text = announcement(&server.addresses(), &root, exports, read_only);
    if insecure {
        warn_insecure(&server.addresses(), read_only);
    }
    if let Some(fingerprint) = server.fingerprint() {
        text.push_str(&format!("fingerprint {fingerprint}\n"));
        if let (true, Some(tickets), Some(address)) =
            (ticket, server.tickets(), server.addresses().first())
        {
            let secret = tickets.issue(TICKET_LIFE, 1)?;
            text.push_str(&invitation(address, &fingerprint.to_string(), &secret));
        }
    }
    if let Err(fault) = print(text) {
        // It serves nevertheless.
        Console::new(OutputFlags::default()).error(&fault);
    }
    server.run()
}

/// The command to type on another machine, and the ticket to paste there when asked: on the command
/// line it would be visible in process lists and in the shell's history.
fn invitation(address: &Address, fingerprint: &str, secret: &str) -> String {
    let address = match address {
        // A machine doesn't know the name by which others reach it.
        Address::Tcp { host, port } if is_any(host) => format!("HOST:{port}"),
        other => printable(&other.to_string()),
    };
    format!(
        "ticket={secret}&pin={fingerprint}\n\
         to use it once, paste this line when asked by: xdfs cp --ticket-file - FILE \
         xdfs://{address}/\n"
    )
}

fn is_any(host: &str) -> bool {
    host.parse::<std::net::IpAddr>()
        .is_ok_and(|address| address.is_unspecified())
}

/// The exports of a server that has any: their names and directories.
fn exports_of(builder: &ServerBuilder) -> Option<Vec<(String, String)>> {
    let exports = &builder.security.as_ref()?.exports.as_ref()?.export;
    let named = exports.iter();
    Some(
        named
            .map(|export| (export.name.clone(), export.path.clone()))
            .collect(),
    )
}

/// Warns of addresses that others reach without a credential.
fn warn_insecure(addresses: &[Address], read_only: bool) {
    let is_local = |host: &str| {
        host == "localhost"
            || host
                .parse::<std::net::IpAddr>()
                .is_ok_and(|address| address.is_loopback())
    };
    let verbs = if read_only { "read" } else { "read and write" };
    for address in addresses {
        if let Address::Tcp { host, .. } = address
            && !is_local(host)
        {
            Console::new(OutputFlags::default()).say(&format!(
                "warning: without authentication, anyone who can reach {address} can {verbs} \
                 what is served"
            ));
        }
    }
}

/// The announcement: scripts read the port from it, and people what is served.
fn announcement(
    addresses: &[Address],
    root: &Path,
    exports: Option<&[(String, String)]>,
    read_only: bool,
) -> String {
    let mut text = String::new();
    for address in addresses {
        text.push_str(&format!(
            "listening on {}\n",
            printable(&address.to_string())
        ));
    }
    let mode = if read_only { ", read only" } else { "" };
    let path = |path: &Path| printable(&path.to_string_lossy());
    match exports {
        None => text.push_str(&format!("serving {}{mode}\n", path(root))),
        Some(exports) => {
            for (name, root) in exports {
                text.push_str(&format!(
                    "serving /{} from {}{mode}\n",
                    printable(name),
                    printable(root)
                ));
            }
        }
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_announcement_is_one_line_each() {
        let addresses = ["127.0.0.1:5".parse().unwrap(), "[::1]:6".parse().unwrap()];
        assert_eq!(
            announcement(&addresses, Path::new("/d\n"), None, true),
            "listening on 127.0.0.1:5\nlistening on [::1]:6\nserving /d\\n, read only\n"
        );
    }
}
