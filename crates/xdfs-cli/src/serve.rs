//! `xdfs serve`: listeners and signals.

use std::fmt::Display;
use std::path::Path;
use std::time::Duration;

use xdfs::security::SettingsReport;
use xdfs::settings::{ConfigText, user_name};
use xdfs::ssh::bind_over_ssh;
use xdfs::{Address, Code, Fault, Listen, Server, ServerHandle};

use crate::check_config;
use crate::console::{Console, printable};
use crate::exit_codes::SUCCESS;
use crate::flags::{OutputFlags, ServeFlags, ServeLevelFlag};
use crate::interrupt::handle_signals;
use crate::log::start_log;
use crate::report::print;
use crate::server_config::{
    Bounds, Config, RELOAD, builder, missing_exports, read_config, read_text_again, served,
    warnings,
};
use crate::service::{self, Hangup, Notice};
#[cfg(unix)]
use crate::sshftp_server;

/// Lifetime of a ticket from `--ticket`.
const TICKET_LIFE: Duration = Duration::from_secs(24 * 3600);

/// Runs the command and returns the exit code.
pub(crate) fn run(flags: ServeFlags) -> u8 {
    if flags.check_config {
        return check_config::run(flags);
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

/// Serves the client of an `ssh://` URL until standard input ends.
fn over_ssh(socket: &Path, takes_clear: bool) -> Result<(), Fault> {
    let (server, line) = bind_over_ssh(socket, &user_name(), takes_clear)?;
    let handle = server.handle();
    handle_signals(move || handle.shutdown())?;
    print(line)?;
    let handle = server.handle();
    std::thread::Builder::new()
        .name("xdfs-ssh".into())
        .spawn(move || {
            // An error is an end too.
            let _ = std::io::copy(&mut std::io::stdin().lock(), &mut std::io::sink());
            handle.shutdown();
        })
        .map_err(|e| Fault::from_io("watch standard input", "", &e))?;
    server.run()
}

fn serve(flags: ServeFlags) -> Result<(), Fault> {
    if let Some(socket) = &flags.over_ssh {
        let takes_clear = flags.protect == Some(ServeLevelFlag::Clear);
        return over_ssh(socket, takes_clear);
    }
    #[cfg(unix)]
    if flags.gridftp_over_ssh {
        return sshftp_server::serve();
    }
    // Before there is another thread.
    let hangup = Hangup::hold()?;
    let sockets = service::sockets()?;
    let config = match &flags.config {
        Some(path) => read_config(path)?,
        None => Config::default(),
    };
    let mut bounds = config.bounds();
    let ticket = flags.ticket;
    let again = flags.clone();
    let builder = builder(flags, config)?;
    let grace = builder.grace;
    let served = served(&builder);
    let settings = builder.clone();
    let server = builder.bind_with(sockets)?;
    let handle = server.handle();
    let mut signals = 0_u32;
    handle_signals(move || {
        signals += 1;
        service::notify(Notice::Stopping);
        handle.shutdown();
        let mut console = Console::new(OutputFlags::default());
        match signals {
            1 => console.info(&format!(
                "no new sessions; running ones get {} s, another signal ends them at once",
                grace.as_secs()
            )),
            2 => console.info("ending all sessions; transfers can be resumed"),
            // Something hangs.
            _ => std::process::exit(i32::from(Code::Cancelled.exit_code())),
        }
    })?;
    let mut text = announcement(&server, &served);
    let missing = missing_exports(&settings);
    let report = settings.check();
    for warning in warnings(&settings, server.listening())
        .iter()
        .chain(&missing)
        .chain(&more_warnings(&report))
    {
        Console::new(OutputFlags::default()).info(&format!("warning: {warning}"));
    }
    if let Some(fingerprint) = server.fingerprint() {
        text.push_str(&format!("fingerprint {fingerprint}\n"));
        if let (true, Some(tickets), Some(listen)) =
            (ticket, server.tickets(), server.listening().first())
        {
            let secret = tickets.issue(TICKET_LIFE, 1)?;
            text.push_str(&invitation(listen, &fingerprint.to_string(), &secret));
        }
    }
    if let Err(fault) = print(text) {
        // It serves nevertheless.
        Console::new(OutputFlags::default()).error(&fault);
    }
    let handle = server.handle();
    hangup.watch(move || {
        service::notify(Notice::Reloading);
        reload(&again, &handle, &mut bounds);
        service::notify(Notice::Ready);
    })?;
    service::notify(Notice::Ready);
    server.run()
}

/// The warnings of the check of the settings, for a server that runs: what doesn't fit the time or
/// the machine doesn't keep it from serving.
fn more_warnings(report: &SettingsReport) -> Vec<String> {
    let unfit = report.unfit.iter().map(|found| found.fault.to_string());
    unfit.chain(report.warnings.iter().cloned()).collect()
}

/// Reads the settings again, and uses them if they are valid. `bounds` are those of the settings in
/// effect.
fn reload(flags: &ServeFlags, handle: &ServerHandle, bounds: &mut Bounds) {
    let checked = read_again(flags).and_then(|text| check_config::checked(flags.clone(), text));
    let reloaded = checked.and_then(|(builder, report, new)| {
        bounds.check(new).map_err(|fault| vec![fault])?;
        for warning in warnings(&builder, &builder.listens())
            .iter()
            .chain(&more_warnings(&report))
        {
            tracing::warn!("{warning}");
        }
        let reloaded = handle.reload(builder).map_err(|fault| vec![fault])?;
        *bounds = new;
        Ok(reloaded)
    });
    match reloaded {
        Ok(reloaded) => {
            for setting in &reloaded.unchanged {
                tracing::warn!(setting, "it takes effect at the next start only");
            }
            let sessions_ended = reloaded.sessions_ended;
            let tunnels_ended = reloaded.tunnels_ended;
            tracing::info!(sessions_ended, tunnels_ended, "the settings were reloaded");
        }
        Err(faults) => {
            for fault in &faults {
                let hint = Some(fault.hint.as_str()).filter(|hint| !hint.is_empty());
                tracing::error!(%fault, hint, "a setting can't be used");
            }
            let errors = faults.len();
            tracing::error!(
                errors,
                "the settings were not reloaded: the old ones stay in effect"
            );
        }
    }
}

/// The text of the settings file, if there is one. It has to have any settings: otherwise it was
/// emptied, or is being written.
fn read_again(flags: &ServeFlags) -> Result<Option<ConfigText>, Vec<Fault>> {
    let Some(path) = &flags.config else {
        return Ok(None);
    };
    let text = read_text_again(path).map_err(|fault| vec![fault])?;
    if text.is_empty() {
        let fault = Fault::new(Code::InvalidArgument, RELOAD, "the file has no settings");
        let path = path.as_os_str().as_encoded_bytes();
        let fault = fault
            .path(path)
            .hint("if that is meant, restart the server");
        return Err(vec![fault]);
    }
    Ok(Some(text))
}

/// The command to type on another machine, and the ticket to paste there when asked: on the command
/// line it would be visible in process lists and in the shell's history.
fn invitation(listen: &Listen, fingerprint: &str, secret: &str) -> String {
    let scheme = listen.scheme();
    let address = match &listen.address {
        // A machine doesn't know the name by which others reach it.
        Address::Host { host, port } if is_any(host) => format!("HOST:{port}"),
        other => printable(&other.to_string()),
    };
    format!(
        "ticket={secret}&pin={fingerprint}\n\
         to use it once, paste this line when asked by: xdfs cp --ticket-file - FILE \
         {scheme}://{address}/\n"
    )
}

fn is_any(host: &str) -> bool {
    host.parse::<std::net::IpAddr>()
        .is_ok_and(|address| address.is_unspecified())
}

/// The announcement: scripts read the port from it, and people what is served.
fn announcement(server: &Server, served: &[String]) -> String {
    let further = server.further_addresses();
    let further = further.map(|(protocol, address)| format!("{protocol} on {address}\n"));
    let metrics = server.metrics_addresses().iter();
    let metrics = metrics.map(|address| format!("http://{address}/metrics"));
    lines("listening on", server.listening())
        + &lines("serving", served)
        + &further.collect::<String>()
        + &lines("metrics at", &metrics.collect::<Vec<_>>())
}

/// A line for each, with this beginning.
fn lines(beginning: &str, all: &[impl Display]) -> String {
    let line = |one: &_| format!("{beginning} {}\n", printable(&format!("{one}")));
    all.iter().map(line).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_announcement_is_one_line_each() {
        let addresses = ["127.0.0.1:5", "[::1]:6"].map(|text| text.parse::<Listen>().unwrap());
        assert_eq!(
            lines("listening on", &addresses) + &lines("serving", &["/d, read only"]),
            "listening on 127.0.0.1:5\nlistening on [::1]:6\nserving /d, read only\n"
        );
    }
}
