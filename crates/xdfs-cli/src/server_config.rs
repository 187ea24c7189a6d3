//! The settings of `xdfs serve`: from flags and from the file of `--config`.

use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::num::{NonZeroU64, NonZeroUsize};
use std::path::{Path, PathBuf};
use std::time::Duration;

use serde::Deserialize;
use xdfs::doors::HostPort;
use xdfs::metrics::MetricsSettings;
use xdfs::security::{
    ExportConfig, ExportsConfig, GroupConfig, GuardLimits, IssuerConfig, Rights, RuleConfig,
    ServerSecurity, TokenConfig, TunnelsConfig,
};
use xdfs::settings::size::{parse_memory, parse_rate};
use xdfs::settings::{ConfigText, UserFolder, user_name};
use xdfs::{Address, Code, DataNodeSettings, Fault, Listen, ServerBuilder};

use crate::console::printable;
use crate::doors::{GridftpTable, door};
use crate::flags::{ServeFlags, ServeLevelFlag};
use crate::paths::criteria::parse_age;
use crate::state;

/// The hint of faults of the file.
const HINT: &str = "`xdfs serve --help` lists the settings";
/// The operation of a running server that reads its settings again.
pub(crate) const RELOAD: &str = "reload the settings";

/// The file of `--config`.
#[derive(Debug, Default, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub(crate) struct Config {
    listen: Vec<String>,
    drivers: Option<PathBuf>,
    root: Option<PathBuf>,
    read_only: Option<bool>,
    insecure: Option<bool>,
    protect: Option<ServeLevelFlag>,
    sessions_max: Option<NonZeroUsize>,
    memory_max: Option<Memory>,
    grace_seconds: Option<u32>,
    partial_expiry: Option<Age>,
    folder: Option<PathBuf>,
    owner: Option<String>,
    audit: Option<PathBuf>,
    certificate: Option<CertificateConfig>,
    client_certificates: Option<ClientCertificatesConfig>,
    issuers: Vec<IssuerConfig>,
    export: Vec<ExportConfig>,
    groups: BTreeMap<String, Vec<String>>,
    tunnel: TunnelsConfig,
    gridftp: Option<GridftpTable>,
    metrics: Option<MetricsConfig>,
    accounts: Option<BTreeMap<String, String>>,
    limits: LimitsConfig,
    service: ServiceConfig,
}

/// What `xdfs service` has in the file.
#[derive(Debug, Default, Deserialize)]
#[serde(deny_unknown_fields, default)]
struct ServiceConfig {
    administrators: Vec<String>,
    listen_tls: Option<SocketAddr>,
}

/// The settings of a service in the file.
#[cfg(feature = "service")]
#[derive(Debug)]
pub(crate) struct ServiceSettings {
    /// Its users, as servers with this file have them.
    pub(crate) security: ServerSecurity,
    /// The names of the administrators among them.
    pub(crate) administrators: Vec<String>,
    /// The address on which it listens for other machines.
    pub(crate) listen_tls: Option<SocketAddr>,
}

/// Limits for users, with the library's defaults.
#[derive(Debug, Default, Deserialize)]
#[serde(deny_unknown_fields, default)]
struct LimitsConfig {
    sessions_per_user_max: Option<NonZeroUsize>,
    channels_per_user_max: Option<NonZeroUsize>,
    connections_per_user_max: Option<NonZeroUsize>,
    bytes_per_second_per_user_max: Option<Rate>,
}

impl LimitsConfig {
    fn apply(&self, limits: &mut GuardLimits) {
        if let Some(most) = self.sessions_per_user_max {
            limits.sessions_per_user_max = most.get();
        }
        if let Some(most) = self.channels_per_user_max {
            limits.channels_per_user_max = most.get();
        }
        if let Some(most) = self.connections_per_user_max {
            limits.connections_per_user_max = most.get();
        }
        if let Some(Rate(rate)) = self.bytes_per_second_per_user_max {
            limits.bytes_per_second_per_user_max = Some(rate);
        }
    }
}

/// Bytes per second: a number, or text as in `--limit-rate`.
#[derive(Clone, Copy, Debug, Deserialize)]
#[serde(try_from = "RateText")]
struct Rate(NonZeroU64);

#[derive(Deserialize)]
#[serde(
    untagged,
    expecting = "expected bytes a second as a number, or text such as \"100M\""
)]
enum RateText {
    Number(u64),
    Text(String),
}

impl TryFrom<RateText> for Rate {
    type Error = String;

    fn try_from(text: RateText) -> Result<Self, String> {
        let rate = match text {
            RateText::Number(rate) => rate,
            RateText::Text(text) => parse_rate(&text)?,
        };
        let rate = NonZeroU64::new(rate).ok_or("a rate of 0 would never end")?;
        Ok(Self(rate))
    }
}

/// Bytes of memory, as in `--memory-max`.
#[derive(Clone, Copy, Debug, Deserialize)]
#[serde(try_from = "MemoryText")]
struct Memory(u64);

#[derive(Deserialize)]
#[serde(
    untagged,
    expecting = "expected a number of bytes, or text such as \"2G\""
)]
enum MemoryText {
    Number(u64),
    Text(String),
}

impl TryFrom<MemoryText> for Memory {
    type Error = String;

    fn try_from(text: MemoryText) -> Result<Self, String> {
        let text = match text {
            MemoryText::Number(bytes) => bytes.to_string(),
            MemoryText::Text(text) => text,
        };
        parse_memory(&text).map(Self)
    }
}

/// An age, as in `xdfs partial --older-than`.
#[derive(Clone, Copy, Debug, Deserialize)]
#[serde(try_from = "String")]
struct Age(Duration);

impl TryFrom<String> for Age {
    type Error = String;

    fn try_from(text: String) -> Result<Self, String> {
        match parse_age(&text)? {
            Duration::ZERO => Err("at an age of 0 nothing could be resumed".into()),
            age => Ok(Self(age)),
        }
    }
}

/// Metrics for readers.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct MetricsConfig {
    listen: Option<MetricsListen>,
    #[serde(default)]
    open: bool,
}

/// An address, as in `--metrics`.
#[derive(Clone, Debug, Deserialize)]
#[serde(try_from = "String")]
struct MetricsListen(Address);

impl TryFrom<String> for MetricsListen {
    type Error = String;

    fn try_from(text: String) -> Result<Self, String> {
        let address = MetricsSettings::address(&text);
        address.map(Self).map_err(|fault| fault.cause)
    }
}

impl MetricsConfig {
    /// The settings, with those of the flags if they are given.
    ///
    /// # Errors
    /// `open` without an address.
    fn settings(
        config: Option<Self>,
        flag: Option<Address>,
        open: bool,
    ) -> Result<Option<MetricsSettings>, Fault> {
        if config.is_none() && flag.is_none() {
            let cause = "--metrics-open says who may read metrics, and there are none";
            let fault = Fault::new(Code::InvalidArgument, "read the settings", cause);
            return match open {
                true => Err(fault.hint("give --metrics too")),
                false => Ok(None),
            };
        }
        let mut settings = MetricsSettings::default();
        if let Some(config) = config {
            settings.open = config.open;
            let listen = config.listen.map(|MetricsListen(own)| own);
            settings.listen = listen.unwrap_or(settings.listen);
        }
        settings.open |= open;
        settings.listen = flag.unwrap_or(settings.listen);
        Ok(Some(settings))
    }
}

/// The server's own certificate.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct CertificateConfig {
    chain: PathBuf,
    key: PathBuf,
}

/// Certificates of clients.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct ClientCertificatesConfig {
    authorities: PathBuf,
    grid_map: PathBuf,
}

/// The restrictions that are set. A reload doesn't remove them, since a file that was emptied or
/// cut off would do so too.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Bounds {
    /// They name what is served; otherwise that is the current directory, or that of `--root`.
    names_directories: bool,
    /// They name the accounts of users; otherwise all act as the server's own.
    names_accounts: bool,
}

impl Bounds {
    /// Fails if `new` settings restrict less.
    ///
    /// # Errors
    /// [`Code::InvalidArgument`], with what they lack.
    pub(crate) fn check(self, new: Self) -> Result<(), Fault> {
        let cause = if self.names_directories && !new.names_directories {
            "the file names no directory any more, neither [[export]] nor root, so the current one \
             would be served"
        } else if self.names_accounts && !new.names_accounts {
            "the file has no [accounts] any more, so all users would act as the server's own"
        } else {
            return Ok(());
        };
        let fault = Fault::new(Code::InvalidArgument, RELOAD, cause);
        Err(fault.hint("if that is meant, restart the server"))
    }
}

impl Config {
    /// The settings of a data node, with the address of the flag if it is given.
    pub(crate) fn data_node(&self, listen: Option<HostPort>) -> DataNodeSettings {
        let settings = self.gridftp.as_ref().map(GridftpTable::data_node);
        let mut settings = settings.unwrap_or_default();
        settings.listen = listen.unwrap_or(settings.listen);
        settings
    }

    /// The restrictions that are set.
    pub(crate) fn bounds(&self) -> Bounds {
        Bounds {
            names_directories: self.root.is_some() || !self.export.is_empty(),
            names_accounts: self.accounts.is_some(),
        }
    }
}

/// The default directory of this user's server.
pub(crate) fn server_folder() -> Result<PathBuf, Fault> {
    Ok(UserFolder::find()?.path().join("server"))
}

/// The folder of a server with this configuration file.
pub(crate) fn folder_of(config: &Path) -> Result<PathBuf, Fault> {
    match read_config(config)?.folder {
        Some(folder) => Ok(base_of(config)?.join(folder)),
        None => server_folder(),
    }
}

/// The settings of a service with this configuration file.
#[cfg(feature = "service")]
pub(crate) fn service_settings(path: &Path) -> Result<ServiceSettings, Fault> {
    let mut config = read_config(path)?;
    if config.insecure == Some(true) {
        let cause = "with `insecure` in the file there are no logins";
        let fault = Fault::new(Code::InvalidArgument, "read the configuration", cause);
        let name = path.as_os_str().as_encoded_bytes();
        return Err(fault
            .path(name)
            .hint("leave out either `insecure` or --config"));
    }
    let ServiceConfig {
        administrators,
        listen_tls,
    } = std::mem::take(&mut config.service);
    Ok(ServiceSettings {
        security: security(&mut config, Some(&base_of(path)?))?,
        administrators,
        listen_tls,
    })
}

/// The folder of a configuration file, on which relative paths in it are based.
pub(crate) fn base_of(config: &Path) -> Result<PathBuf, Fault> {
    let name = config.as_os_str().as_encoded_bytes();
    let mut path = std::path::absolute(config)
        .map_err(|e| Fault::from_io("read the configuration", name, &e))?;
    path.pop();
    Ok(path)
}

/// The server's security settings.
fn security(config: &mut Config, base: Option<&Path>) -> Result<ServerSecurity, Fault> {
    let beside = |path: PathBuf| base.map_or_else(|| path.clone(), |base| base.join(&path));
    let own = UserFolder::find()?;
    let folder = match config.folder.take() {
        Some(folder) => beside(folder),
        None => server_folder()?,
    };
    let owner = config.owner.take().unwrap_or_else(user_name);
    let mut security = ServerSecurity::new(folder, owner);
    // The key that this user's `xdfs cp` presents, and those for logins by SSH.
    security.owner_keys.push(own.key().with_extension("pub"));
    if let Some(home) = std::env::var_os("HOME") {
        let list = Path::new(&home).join(".ssh").join("authorized_keys");
        security.owner_keys.push(list);
    }
    security.accounts = config.accounts.take();
    config.limits.apply(&mut security.limits);
    security.audit = config.audit.take().map(beside);
    security.certificate = config
        .certificate
        .take()
        .map(|files| (beside(files.chain), beside(files.key)));
    security.client_authorities = config
        .client_certificates
        .take()
        .map(|files| (beside(files.authorities), beside(files.grid_map)));
    let map = config.gridftp.as_ref().and_then(GridftpTable::grid_map);
    security.grid_map = map.map(|map| beside(map.to_owned()));
    let mut issuers = std::mem::take(&mut config.issuers);
    for issuer in &mut issuers {
        issuer.jwks_file = issuer.jwks_file.take().map(beside);
        issuer.jwks_authorities = issuer.jwks_authorities.take().map(beside);
    }
    security.tokens = (!issuers.is_empty()).then_some(TokenConfig { issuers });
    let mut export = std::mem::take(&mut config.export);
    for export in &mut export {
        let path = beside(PathBuf::from(std::mem::take(&mut export.path)));
        export.path = path.into_os_string().into_string().map_err(|path| {
            let cause = "the path isn't UTF-8, as those of exports have to be";
            Fault::new(Code::InvalidArgument, "read the configuration", cause)
                .path(path.as_encoded_bytes())
        })?;
    }
    let groups = std::mem::take(&mut config.groups);
    security.exports =
        (!export.is_empty() || !groups.is_empty()).then_some(ExportsConfig { export, groups });
    Ok(security)
}

/// Flags override the file, and the file overrides the defaults.
pub(crate) fn builder(flags: ServeFlags, mut config: Config) -> Result<ServerBuilder, Fault> {
    let insecure = flags.insecure.or(config.insecure).unwrap_or(false);
    let base = flags.config.as_deref().map(base_of).transpose()?;
    let security = if insecure {
        if config.accounts.is_some() {
            let cause = "[accounts] needs users who log in, and there are none here";
            let fault = Fault::new(Code::InvalidArgument, "read the configuration", cause);
            return Err(fault.hint("leave out either [accounts] or --insecure"));
        }
        if flags.group.is_some() {
            let cause = "a group needs servers whose keys are proved, and there is none here";
            let fault = Fault::new(Code::InvalidArgument, "read the configuration", cause);
            return Err(fault.hint("leave out either --group or `insecure`"));
        }
        None
    } else {
        let level = flags.protect.or(config.protect).unwrap_or_default();
        let mut security = security(&mut config, base.as_deref())?;
        security.group = flags.group.as_deref().map(group).transpose()?;
        security.takes_clear = level == ServeLevelFlag::Clear;
        Some(security)
    };
    let default = ServerBuilder::default();
    let listen = if flags.listen.is_empty() {
        config
            .listen
            .iter()
            .map(|text| config_address(text, base.as_deref()))
            .collect::<Result<_, _>>()?
    } else {
        flags.listen
    };
    let mut drivers = default.drivers;
    flags
        .driver
        .iter()
        .try_for_each(|file| drivers.load(file))?;
    if let Some(folder) = config.drivers.take() {
        let folder = base
            .as_deref()
            .map_or_else(|| folder.clone(), |base| base.join(&folder));
        drivers.load_all(&folder)?;
    }
    let root = match (flags.root, config.root) {
        (Some(root), _) => root,
        (None, Some(root)) => base
            .as_deref()
            .map_or_else(|| root.clone(), |base| base.join(&root)),
        (None, None) => default.root,
    };
    // Further protocols: each has a table, and a flag if it listens somewhere without one.
    let doors = [door(config.gridftp, flags.gridftp, base.as_deref())];
    let sessions_max = flags
        .sessions_max
        .or_else(|| config.sessions_max.map(NonZeroUsize::get));
    let grace = flags.grace.or(config.grace_seconds);
    // This user's keys, known servers, and state.
    let own = [
        UserFolder::find().ok().map(|own| own.path().to_owned()),
        server_folder().ok(),
        state::folder(),
    ];
    let files = flags.config.into_iter().chain(flags.group);
    let private = own.into_iter().flatten().chain(files).collect();
    Ok(ServerBuilder {
        listen,
        root,
        read_only: flags
            .read_only
            .or(config.read_only)
            .unwrap_or(default.read_only),
        insecure,
        sessions_max: sessions_max.unwrap_or(default.sessions_max),
        memory_bytes_max: flags
            .memory_max
            .or_else(|| config.memory_max.map(|Memory(bytes)| bytes)),
        grace: grace.map_or(default.grace, |seconds| Duration::from_secs(seconds.into())),
        partial_expiry: config.partial_expiry.map(|Age(age)| age),
        tunnels: with_servers(config.tunnel, &flags.connect_to),
        doors: doors.into_iter().flatten().collect(),
        metrics: MetricsConfig::settings(config.metrics, flags.metrics, flags.metrics_open)?,
        limits: default.limits,
        drivers,
        private,
        security,
        relay: flags.relay,
    })
}

/// The list of the file of --group.
fn group(path: &Path) -> Result<GroupConfig, Fault> {
    let text = ConfigText::read(path, "`xdfs serve --help` shows such a file at --group")?;
    // The first error is enough for a file of a few lines.
    text.parse().map_err(|mut faults| faults.remove(0))
}

/// The rules of the file, and those of --connect-to, which are for all users and both directions.
fn with_servers(mut config: TunnelsConfig, connect_to: &[String]) -> TunnelsConfig {
    for pattern in connect_to {
        let (host, ports) = split_ports(pattern);
        let rule = RuleConfig {
            user: Some("*".into()),
            host: host.into(),
            ports: Some(ports.into()),
            ..RuleConfig::default()
        };
        config.fetch_from.push(rule.clone());
        config.send_to.push(rule);
    }
    config
}

/// A pattern of hosts, and the ports behind it; all ports if it has none.
fn split_ports(pattern: &str) -> (&str, &str) {
    match pattern.rsplit_once(':') {
        // An IPv6 address has colons of its own, and brackets where a port follows.
        Some((host, ports)) if !host.contains(':') => (host, ports),
        Some((host, ports)) if host.ends_with(']') => (host.trim_matches(['[', ']']), ports),
        _ => (pattern.trim_matches(['[', ']']), "*"),
    }
}

impl Config {
    /// Removes the addresses to listen on that can't be read, and returns the faults with their
    /// numbers. `path` is that of the file.
    pub(crate) fn take_wrong_addresses(&mut self, path: &Path) -> Vec<(usize, Fault)> {
        let base = base_of(path).ok();
        let mut wrong = Vec::new();
        let mut number = 0;
        self.listen.retain(|text| {
            let read = config_address(text, base.as_deref());
            let is_right = read.is_ok();
            wrong.extend(read.err().map(|fault| (number, fault)));
            number += 1;
            is_right
        });
        wrong
    }
}

/// What is served, one line for each directory.
pub(crate) fn served(builder: &ServerBuilder) -> Vec<String> {
    let mode = if builder.read_only { ", read only" } else { "" };
    let mut served = match exports(builder) {
        None if builder.relay.is_some() => Vec::new(),
        None => {
            let root = &builder.root;
            let root = root.canonicalize().unwrap_or_else(|_| root.clone());
            vec![format!("{}{mode}", printable(&root.to_string_lossy()))]
        }
        Some(exports) => {
            let line = |export: &ExportConfig| {
                let name = export.name.trim_start_matches('/');
                // With {user} in it, there is no such path.
                let path = Path::new(&export.path).canonicalize();
                let path = path.unwrap_or_else(|_| PathBuf::from(&export.path));
                let path = printable(&path.to_string_lossy());
                format!("/{} from {path}{mode}", printable(name))
            };
            exports.export.iter().map(line).collect()
        }
    };
    if let Some(relay) = &builder.relay {
        let spool = relay.spool.display().to_string();
        served.push(format!("parcels from {}", printable(&spool)));
        let routes = relay.routes.iter();
        served.extend(routes.map(|route| {
            let to = route.to.to_string();
            format!("/{} to {}", printable(&route.name), printable(&to))
        }));
    }
    served
}

fn exports(builder: &ServerBuilder) -> Option<&ExportsConfig> {
    builder.security.as_ref()?.exports.as_ref()
}

/// The exports that nobody can use at present, since a directory is missing.
pub(crate) fn missing_exports(builder: &ServerBuilder) -> Vec<String> {
    let faults = exports(builder).map(ExportsConfig::faults);
    let faults = faults.into_iter().flatten();
    faults.map(|(_, fault)| fault.to_string()).collect()
}

/// What is dangerous about the settings of a server that listens there.
pub(crate) fn warnings(builder: &ServerBuilder, listening: &[Listen]) -> Vec<String> {
    let mut warnings = Vec::new();
    let verbs = if builder.read_only {
        "read"
    } else {
        "read and write"
    };
    for Listen { address, .. } in listening {
        if let Address::Host { host, .. } = address
            && builder.insecure
            && !is_local(host)
        {
            warnings.push(format!(
                "without authentication, anyone who can reach {address} can {verbs} what is served"
            ));
        }
    }
    let further = builder.doors.iter().flat_map(|door| door.listens());
    let further = further.filter(|at| builder.insecure && !is_local(&at.host));
    warnings.extend(further.map(|at| {
        format!("without authentication, anyone who can reach {at} can {verbs} what is served")
    }));
    let changes = Rights::CREATE | Rights::WRITE | Rights::DELETE;
    for export in exports(builder).iter().flat_map(|config| &config.export) {
        let rights = export
            .anonymous
            .filter(|_| export.public && !builder.read_only);
        if rights.is_some_and(|rights| rights & changes != Rights::NONE) {
            let name = export.name.trim_start_matches('/');
            warnings.push(format!(
                "anyone who can reach the server can change /{name} without a login: it is public, \
                 and 'anonymous' has more rights than read and list"
            ));
        }
    }
    let accounts = builder.security.as_ref().and_then(|s| s.accounts.as_ref());
    // A relay serves nothing.
    if is_root() && accounts.is_none() && builder.relay.is_none() {
        warnings.push(format!(
            "the server runs as root without [accounts], so all clients {verbs} as root: start it \
             as another user"
        ));
    }
    warnings
}

fn is_local(host: &str) -> bool {
    host == "localhost"
        || host
            .parse::<std::net::IpAddr>()
            .is_ok_and(|address| address.is_loopback())
}

#[cfg(unix)]
fn is_root() -> bool {
    rustix::process::geteuid().is_root()
}

#[cfg(not(unix))]
fn is_root() -> bool {
    false
}

/// An address in the file. A relative Unix socket is relative to the file, as the root is.
fn config_address(text: &str, base: Option<&Path>) -> Result<Listen, Fault> {
    let Listen { stack, address } = text.parse()?;
    match address {
        Address::Unix(path) => {
            let path = base.map_or_else(|| path.clone(), |base| base.join(&path));
            let address = Address::Unix(path);
            Ok(Listen { stack, address })
        }
        address @ Address::Host { .. } => Ok(Listen { stack, address }),
        _ => Err(Fault::new(
            Code::InvalidArgument,
            "read the address",
            "can't listen on it",
        )
        .path(text)
        .hint("write HOST, HOST:PORT, [IPV6]:PORT or unix:PATH")),
    }
}

/// The text of the file at the start, which may come through a pipe.
///
/// # Errors
/// It can't be read.
pub(crate) fn read_text(path: &Path) -> Result<ConfigText, Fault> {
    ConfigText::read_any(path, HINT)
}

/// The text of the file for a running server.
///
/// # Errors
/// It can't be read, or isn't a regular file, as what was a pipe at the start: that is empty then.
pub(crate) fn read_text_again(path: &Path) -> Result<ConfigText, Fault> {
    ConfigText::read(path, HINT).map_err(|fault| match fault.code {
        Code::NotRegularFile => {
            fault.hint("a running server reads settings again from a regular file only")
        }
        _ => fault,
    })
}

pub(crate) fn read_config(path: &Path) -> Result<Config, Fault> {
    let text = read_text(path)?;
    // The first error is enough: --check-config prints all.
    text.parse().map_err(|mut faults| faults.remove(0))
}

#[cfg(test)]
mod tests {
    use clap::Parser as _;

    use super::*;
    use crate::flags::{Cli, Command};

    fn parse_config(text: &str) -> Result<Config, Fault> {
        let config = ConfigText::new(b"xdfs.toml", text.to_owned(), HINT);
        config.parse().map_err(|mut faults| faults.remove(0))
    }

    fn flags(words: &[&str]) -> ServeFlags {
        let line = ["xdfs", "serve"].iter().chain(words);
        match Cli::try_parse_from(line).unwrap().command {
            Command::Serve(flags) => flags,
            other => panic!("{other:?}"),
        }
    }

    const FILE: &str = "listen = [\"[::1]:5\", \"unix:s\"]\nroot = \"data\"\nread_only = true\n\
                        insecure = true\nsessions_max = 7\nmemory_max = \"3M\"\n\
                        grace_seconds = 3\npartial_expiry = \"36h\"\n";

    #[test]
    fn the_file_sets_everything() {
        let flags = flags(&["--config", "/etc/x/xdfs.toml"]);
        let built = builder(flags, parse_config(FILE).unwrap()).unwrap();
        assert_eq!(built.listen[0].to_string(), "[::1]:5");
        assert_eq!(built.listen[1], Address::Unix("/etc/x/s".into()).into());
        assert_eq!(built.root, Path::new("/etc/x/data"));
        assert!(built.read_only && built.insecure);
        assert_eq!(
            (built.sessions_max, built.grace),
            (7, Duration::from_secs(3))
        );
        assert_eq!(built.memory_bytes_max, Some(3 << 20));
        assert_eq!(built.partial_expiry, Some(Duration::from_secs(36 * 3600)));
    }

    #[test]
    fn flags_go_before_the_file() {
        let words = "--listen 127.0.0.1:0 --root r --read-only=false --insecure=false \
                     --sessions-max 9 --memory-max 5M --grace 4 --config /etc/xdfs.toml";
        let words: Vec<&str> = words.split_whitespace().collect();
        let built = builder(flags(&words), parse_config(FILE).unwrap()).unwrap();
        assert_eq!(built.listen.len(), 1);
        assert_eq!(built.root, Path::new("r"));
        assert!(!built.read_only && !built.insecure);
        assert_eq!(
            (built.sessions_max, built.grace),
            (9, Duration::from_secs(4))
        );
        assert_eq!(built.memory_bytes_max, Some(5 << 20));
    }

    #[test]
    fn without_anything_the_defaults_of_the_library_hold() {
        let built = builder(flags(&[]), Config::default()).unwrap();
        let default = ServerBuilder::default();
        assert!(built.listen.is_empty() && !built.insecure && !built.read_only);
        assert_eq!((built.root, built.grace), (default.root, default.grace));
    }

    #[test]
    fn mistakes_are_named_with_their_line() {
        for (text, line, word) in [
            ("root = \"x\"\nrot = 1\n", "line 2", "rot"),
            ("\n\nread_only = \"yes\"", "line 3", "true or false"),
            ("sessions_max = 0", "line 1", ""),
            ("memory_max = 512", "line 1", "at least 1M"),
            ("memory_max = \"lots\"", "line 1", "number"),
            ("memory_max = true", "line 1", "\"2G\""),
            ("grace_seconds = -1", "line 1", ""),
            ("a\n", "line 1", ""),
        ] {
            let fault = parse_config(text).unwrap_err();
            assert!(fault.cause.starts_with(line), "{text:?}: {}", fault.cause);
            assert!(fault.cause.contains(word), "{text:?}: {}", fault.cause);
            assert_eq!(fault.exit_code(), 2);
        }
        let config = parse_config("listen = [\"1:2:3\"]").unwrap();
        assert!(builder(flags(&[]), config).is_err());
        let config = parse_config("listen = [\"memory:x\"]").unwrap();
        assert!(builder(flags(&[]), config).is_err());
        assert_eq!(
            read_config(Path::new("/none/x.toml")).unwrap_err().code,
            Code::NotFound
        );
    }

    #[test]
    fn limits_of_users_are_numbers_or_rates() {
        let limits = |text: &str| {
            let config = parse_config(text)?;
            Ok::<_, Fault>(builder(flags(&[]), config)?.security.unwrap().limits)
        };
        let some = "[limits]\nsessions_per_user_max = 3\nchannels_per_user_max = 5\n";
        let set = limits(some).unwrap();
        assert_eq!(
            (set.sessions_per_user_max, set.channels_per_user_max),
            (3, 5)
        );
        assert_eq!(set.bytes_per_second_per_user_max, None);
        for (text, bytes) in [
            ("5000", 5000),
            ("\"100M\"", 100_000_000),
            ("\"1KiB/s\"", 1024),
        ] {
            let text = format!("[limits]\nbytes_per_second_per_user_max = {text}");
            let rate = limits(&text).unwrap().bytes_per_second_per_user_max;
            assert_eq!(rate.map(NonZeroU64::get), Some(bytes));
        }
        for text in ["0", "-1", "\"0\"", "\"fast\"", "true", "1.5"] {
            let fault = limits(&format!("[limits]\nbytes_per_second_per_user_max = {text}"));
            let fault = fault.unwrap_err();
            assert!(fault.cause.starts_with("line 2"), "{text}: {}", fault.cause);
        }
        limits("[limits]\nsessions_per_user_max = 0").unwrap_err();
        limits("[limits]\nsessions = 5").unwrap_err();
    }
}
