//! `--check-config` of `xdfs serve` and of `xdfs gridftp data-node`: what the server would do with
//! its settings, or all that is wrong with them. Changes nothing and opens no port.

use std::collections::BTreeMap;

use xdfs::security::{
    ExportConfig, Findings, ServerSecurity, SettingFault, SettingsReport, minute,
};
use xdfs::settings::ConfigText;
use xdfs::{Code, DataNodeSettings, Fault, ServerBuilder};

use crate::console::{Console, printable};
use crate::exit_codes::SUCCESS;
use crate::flags::{DataNodeFlags, OutputFlags, ServeFlags};
use crate::human::{count, size};
use crate::report::print;
use crate::server_config::{Bounds, Config, builder, read_text, served, warnings};

/// The last line about settings without faults.
const VALID: &str = "the settings are valid\n";

/// Settings that can be used, and what there is to say about them.
struct Usable {
    warnings: Vec<String>,
    unfit: Vec<SettingFault>,
    text: String,
}

impl Usable {
    fn new(mut warnings: Vec<String>, report: SettingsReport, text: String) -> Self {
        let Findings {
            unfit,
            warnings: more,
            ..
        } = report.findings;
        warnings.extend(more);
        Self {
            warnings,
            unfit,
            text,
        }
    }
}

/// Checks the settings of a server, and returns the exit code.
pub(crate) fn run(flags: ServeFlags) -> u8 {
    let read = flags.config.as_deref().map(read_text).transpose();
    let read = read.map_err(|fault| vec![fault]);
    show(read.and_then(|text| {
        let (builder, report, _) = checked(flags, text)?;
        let warnings = warnings(&builder, &builder.listens());
        let text = text_of_server(&builder, &report);
        Ok(Usable::new(warnings, report, text))
    }))
}

/// Checks the settings of a data node, and returns the exit code.
pub(crate) fn run_data_node(flags: &DataNodeFlags) -> u8 {
    let read = read_text(&flags.config).map_err(|fault| vec![fault]);
    show(read.and_then(|text| {
        let config: Config = text.parse()?;
        let settings = config.data_node(flags.listen.clone());
        let by_flag = [("gridftp.data_node.listen", flags.listen.is_some())];
        let check = |builder: &ServerBuilder| builder.check_data_node(&settings);
        let (builder, report) =
            checked_by(check, flags.as_server(), config, Some(&text), &by_flag)?;
        let text = text_of_node(&builder, &report, &settings);
        Ok(Usable::new(warnings(&builder, &[]), report, text))
    }))
}

/// Prints the outcome of a check, and returns the exit code.
fn show(checked: Result<Usable, Vec<Fault>>) -> u8 {
    let mut console = Console::new(OutputFlags::default());
    let usable = match checked {
        Ok(usable) => usable,
        Err(faults) => {
            faults.iter().for_each(|fault| console.error(fault));
            let found = count(faults.len() as u64, "error");
            console.info(&format!("the settings are unusable: {found}"));
            return Code::InvalidArgument.exit_code();
        }
    };
    for warning in &usable.warnings {
        console.info(&format!("warning: {warning}"));
    }
    if !usable.unfit.is_empty() {
        let unfit = usable.unfit.iter();
        unfit.for_each(|found| console.error(&found.fault));
        return Code::InvalidArgument.exit_code();
    }
    match print(usable.text) {
        Ok(()) => SUCCESS,
        Err(fault) => {
            console.error(&fault);
            fault.exit_code()
        }
    }
}

/// The settings of a server from flags and `text`, that of the file, checked; with what the file
/// restricts.
///
/// # Errors
/// Everything that is wrong with them.
pub(crate) fn checked(
    flags: ServeFlags,
    text: Option<ConfigText>,
) -> Result<(ServerBuilder, SettingsReport, Bounds), Vec<Fault>> {
    let config = match &text {
        Some(text) => text.parse()?,
        None => Config::default(),
    };
    let bounds = config.bounds();
    let by_flag = [
        ("listen", !flags.listen.is_empty()),
        ("root", flags.root.is_some()),
        ("gridftp", flags.gridftp.is_some()),
    ];
    let check = ServerBuilder::check;
    let (builder, report) = checked_by(check, flags, config, text.as_ref(), &by_flag)?;
    Ok((builder, report, bounds))
}

/// The settings from flags and `config`, that of the file with this text, checked. `by_flag` has
/// the settings that a flag may give in place of the file, and whether it does.
///
/// # Errors
/// Everything that is wrong with them.
fn checked_by(
    check: impl FnOnce(&ServerBuilder) -> SettingsReport,
    flags: ServeFlags,
    mut config: Config,
    text: Option<&ConfigText>,
    by_flag: &[(&str, bool)],
) -> Result<(ServerBuilder, SettingsReport), Vec<Fault>> {
    let located = |setting: &str, number: usize, mut fault: Fault| {
        let is_flag = by_flag.contains(&(setting, true));
        let text = text.filter(|_| !is_flag);
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
    let mut report = check(&builder);
    for found in std::mem::take(&mut report.faults) {
        faults.push(located(found.setting, found.number, found.fault));
    }
    for found in &mut report.unfit {
        found.fault = located(found.setting, found.number, found.fault.clone());
    }
    if faults.is_empty() {
        Ok((builder, report))
    } else {
        Err(faults)
    }
}

/// Who may do what in an export, and its quota.
fn export_lines(export: &ExportConfig, groups: &BTreeMap<String, Vec<String>>) -> Vec<String> {
    let mut lines = Vec::new();
    if export.public {
        lines.push(format!("anyone: {}", export.public_rights()));
    }
    for grant in &export.grant {
        let whom = match (&grant.user, &grant.group) {
            (Some(user), _) if user == "*" => "every user".to_owned(),
            (Some(user), _) => printable(user),
            (None, group) => {
                let name = group.as_deref().unwrap_or_default();
                let members = groups.get(name).map_or(String::new(), |all| all.join(", "));
                printable(&format!("group {name} ({members})"))
            }
        };
        lines.push(format!("{whom}: {}", grant.rights));
    }
    let mut quota = Vec::new();
    quota.extend(
        export
            .quota_bytes
            .map(|most| format!("{} in all", size(most))),
    );
    quota.extend(
        export
            .quota_files
            .map(|most| format!("{most} files and directories")),
    );
    quota.extend(
        export
            .largest_file
            .map(|most| format!("{} a file", size(most))),
    );
    if !quota.is_empty() {
        lines.push(format!("at most {}", quota.join(", ")));
    }
    lines
}

fn text_of_server(builder: &ServerBuilder, report: &SettingsReport) -> String {
    let mut text = String::new();
    for listen in builder.listens() {
        text += &format!("would listen on {}\n", printable(&listen.to_string()));
    }
    for door in &builder.doors {
        for address in door.listens() {
            text += &format!("would listen for {} on {address}\n", door.title());
        }
    }
    if let Some(metrics) = &builder.metrics {
        text += &format!("would have metrics at http://{}/metrics\n", metrics.listen);
    }
    text += &served_lines(builder);
    if let Some(security) = &builder.security {
        for (user, account) in security.accounts.iter().flatten() {
            text += &format!(
                "sessions of {} run as {}\n",
                printable(user),
                printable(account)
            );
        }
        let limits = &security.limits;
        text += &format!(
            "limits of a user: {}, {}, {}",
            count(limits.sessions_per_user_max as u64, "session"),
            count(limits.channels_per_user_max as u64, "channel"),
            count(
                limits.connections_per_user_max as u64,
                "tunnelled connection"
            ),
        );
        if let Some(rate) = limits.bytes_per_second_per_user_max {
            text += &format!(", {}/s", size(rate.get()));
        }
        text += "\n";
        for issuer in security.tokens.iter().flat_map(|tokens| &tokens.issuers) {
            text += &format!("tokens of {} are taken\n", printable(&issuer.issuer));
        }
        text += &key_lines(security, report);
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
    text + VALID
}

fn text_of_node(
    builder: &ServerBuilder,
    report: &SettingsReport,
    settings: &DataNodeSettings,
) -> String {
    let mut text = format!("would be a data node on {}\n", settings.listen);
    text += &served_lines(builder);
    for key in &settings.obeys {
        text += &format!("would obey the server with the key {key}\n");
    }
    if let Some(security) = &builder.security {
        text += &key_lines(security, report);
    }
    text + VALID
}

/// The lines of the files that are served, and of the users and their rights.
fn served_lines(builder: &ServerBuilder) -> String {
    let mut text = String::new();
    let security = builder.security.as_ref();
    let exports = security.and_then(|own| own.exports.as_ref());
    for (number, line) in served(builder).iter().enumerate() {
        text += &format!("would serve {line}\n");
        if let Some(config) = exports
            && let Some(export) = config.export.get(number)
        {
            export_lines(export, &config.groups)
                .iter()
                .for_each(|line| text += &format!("  {line}\n"));
        }
    }
    text
}

/// The end of the certificate, and the fingerprint of the key.
fn key_lines(security: &ServerSecurity, report: &SettingsReport) -> String {
    let mut text = String::new();
    if let Some(end) = report.certificate_ends_s {
        text += &format!("the certificate ends on {}\n", minute(end));
    }
    text += &match &report.fingerprint {
        Some(fingerprint) => format!("fingerprint {fingerprint}\n"),
        None => {
            let folder = security.folder.to_string_lossy();
            format!("would make a key in {}\n", printable(&folder))
        }
    };
    text
}
