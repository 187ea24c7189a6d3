//! `xdfs serve --check-config`: what the server would do with its settings, or all that is wrong
//! with them. Changes nothing and opens no port.

use xdfs::security::SettingsReport;
use xdfs::{Code, Fault, ServerBuilder};

use crate::console::{Console, printable};
use crate::exit_codes::SUCCESS;
use crate::flags::{OutputFlags, ServeFlags};
use crate::human::count;
use crate::report::print;
use crate::server_config::{Config, builder, read_text, served, warnings};

/// Runs the command and returns the exit code.
pub(crate) fn run(flags: ServeFlags) -> u8 {
    let mut console = Console::new(OutputFlags::default());
    let config = flags.config.clone();
    let (builder, report) = match checked(flags) {
        Ok(checked) => checked,
        Err(faults) => {
            faults.iter().for_each(|fault| console.error(fault));
            let found = count(faults.len() as u64, "error");
            console.info(&format!("the settings are unusable: {found}"));
            return Code::InvalidArgument.exit_code();
        }
    };
    for warning in warnings(&builder, &builder.listens(), config.as_deref()) {
        console.info(&format!("warning: {warning}"));
    }
    match print(text(&builder, &report)) {
        Ok(()) => SUCCESS,
        Err(fault) => {
            console.error(&fault);
            fault.exit_code()
        }
    }
}

/// The settings from flags and file, checked.
///
/// # Errors
/// Everything that is wrong with them.
pub(crate) fn checked(flags: ServeFlags) -> Result<(ServerBuilder, SettingsReport), Vec<Fault>> {
    let text = match &flags.config {
        Some(path) => Some(read_text(path).map_err(|fault| vec![fault])?),
        None => None,
    };
    let mut config = match &text {
        Some(text) => text.parse()?,
        None => Config::default(),
    };
    let by_flag = [
        ("listen", !flags.listen.is_empty()),
        ("root", flags.root.is_some()),
    ];
    let located = |setting: &str, number: usize, mut fault: Fault| {
        let is_flag = by_flag.contains(&(setting, true));
        let text = text.as_ref().filter(|_| !is_flag);
        if let Some(text) = text
            && let Some(line) = text.line_of(setting, number)
        {
            fault.cause += &format!(" ({} line {line})", text.name());
        }
        fault
    };
    let wrong = match &flags.config {
        Some(path) if flags.listen.is_empty() => config.take_wrong_addresses(path),
        _ => Vec::new(),
    };
    let mut faults: Vec<Fault> = wrong
        .into_iter()
        .map(|(number, fault)| located("listen", number, fault))
        .collect();
    let builder = match builder(flags, config) {
        Ok(builder) => builder,
        Err(fault) => {
            faults.push(fault);
            return Err(faults);
        }
    };
    let mut report = builder.check();
    for found in std::mem::take(&mut report.faults) {
        faults.push(located(found.setting, found.number, found.fault));
    }
    if faults.is_empty() {
        Ok((builder, report))
    } else {
        Err(faults)
    }
}

fn text(builder: &ServerBuilder, report: &SettingsReport) -> String {
    let mut text = String::new();
    for listen in builder.listens() {
        text += &format!("would listen on {}\n", printable(&listen.to_string()));
    }
    if let Some(gridftp) = &builder.gridftp {
        text += &format!("would listen for GridFTP on {}\n", gridftp.listen);
    }
    for line in served(builder) {
        text += &format!("would serve {line}\n");
    }
    if let Some(security) = &builder.security {
        text += &match &report.fingerprint {
            Some(fingerprint) => format!("fingerprint {fingerprint}\n"),
            None => {
                let folder = security.folder.to_string_lossy();
                format!("would make a key in {}\n", printable(&folder))
            }
        };
        let mut list_users = |what: &str, names: Vec<String>| {
            let names = match names.is_empty() {
                true => "nobody".to_owned(),
                false => printable(&names.join(", ")),
            };
            text += &format!("users with {what}: {names}\n");
        };
        list_users("a password", report.password_users.clone());
        let keys = report.key_users.iter();
        let keys = keys.map(|(user, keys)| format!("{user} ({})", count(*keys as u64, "key")));
        list_users("keys", keys.collect());
    }
    text + "the settings are valid\n"
}
