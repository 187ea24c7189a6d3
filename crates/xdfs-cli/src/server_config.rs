//! The settings of `xdfs serve`: from flags and from the file of `--config`.

use std::collections::BTreeMap;
use std::num::{NonZeroU64, NonZeroUsize};
use std::path::{Path, PathBuf};
use std::time::Duration;

use serde::Deserialize;
use xdfs::security::{
    ExportConfig, ExportsConfig, GuardLimits, IssuerConfig, ServerSecurity, TokenConfig,
};
use xdfs::{Address, Code, Fault, ServerBuilder};

use crate::flags::{LevelFlag, ServeFlags};
use crate::identity;
use crate::size::parse_rate;
use crate::state;

/// The file of `--config`.
#[derive(Debug, Default, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub(crate) struct Config {
    listen: Vec<String>,
    root: Option<PathBuf>,
    read_only: Option<bool>,
    insecure: Option<bool>,
    protect: Option<LevelFlag>,
    sessions_max: Option<NonZeroUsize>,
    grace_seconds: Option<u32>,
    folder: Option<PathBuf>,
    owner: Option<String>,
    audit: Option<PathBuf>,
    certificate: Option<CertificateConfig>,
    client_certificates: Option<ClientCertificatesConfig>,
    issuers: Vec<IssuerConfig>,
    export: Vec<ExportConfig>,
    groups: BTreeMap<String, Vec<String>>,
    accounts: Option<BTreeMap<String, String>>,
    limits: LimitsConfig,
}

/// Limits for users, with the library's defaults.
#[derive(Debug, Default, Deserialize)]
#[serde(deny_unknown_fields, default)]
struct LimitsConfig {
    sessions_per_user_max: Option<NonZeroUsize>,
    channels_per_user_max: Option<NonZeroUsize>,
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

/// The default directory of this user's server.
pub(crate) fn server_folder() -> Result<PathBuf, Fault> {
    Ok(identity::folder()?.join("server"))
}

/// The folder of a server with this configuration file.
pub(crate) fn folder_of(config: &Path) -> Result<PathBuf, Fault> {
    match (read_config(config)?.folder, config.parent()) {
        (Some(folder), Some(base)) => Ok(base.join(folder)),
        (Some(folder), None) => Ok(folder),
        (None, _) => server_folder(),
    }
}

/// The server's security settings.
fn security(config: &mut Config, base: Option<&Path>) -> Result<ServerSecurity, Fault> {
    let beside = |path: PathBuf| base.map_or_else(|| path.clone(), |base| base.join(&path));
    let own = identity::folder()?;
    let folder = match config.folder.take() {
        Some(folder) => beside(folder),
        None => server_folder()?,
    };
    let owner = config.owner.take().unwrap_or_else(identity::user_name);
    let mut security = ServerSecurity::new(folder, owner);
    // The key that this user's `xdfs cp` presents, and those for logins by SSH.
    security
        .owner_keys
        .push(identity::own_key(&own).with_extension("pub"));
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
    let mut issuers = std::mem::take(&mut config.issuers);
    for issuer in &mut issuers {
        issuer.jwks_file = issuer.jwks_file.take().map(beside);
        issuer.jwks_authorities = issuer.jwks_authorities.take().map(beside);
    }
    security.tokens = (!issuers.is_empty()).then_some(TokenConfig { issuers });
    let export = std::mem::take(&mut config.export);
    let groups = std::mem::take(&mut config.groups);
    security.exports =
        (!export.is_empty() || !groups.is_empty()).then_some(ExportsConfig { export, groups });
    Ok(security)
}

/// Flags override the file, and the file overrides the defaults.
pub(crate) fn builder(flags: ServeFlags, mut config: Config) -> Result<ServerBuilder, Fault> {
    let insecure = flags.insecure.or(config.insecure).unwrap_or(false);
    let security = if insecure {
        if config.accounts.is_some() {
            let cause = "[accounts] needs users who prove who they are, and nobody does here";
            let fault = Fault::new(Code::InvalidArgument, "read the configuration", cause);
            return Err(fault.hint("leave out either [accounts] or --insecure"));
        }
        None
    } else {
        let base = flags.config.as_deref().and_then(Path::parent);
        let level = flags.protect.or(config.protect).unwrap_or_default();
        let mut security = security(&mut config, base)?;
        security.takes_clear = level == LevelFlag::Clear;
        Some(security)
    };
    let default = ServerBuilder::default();
    let listen = if flags.listen.is_empty() {
        let base = flags.config.as_deref().and_then(Path::parent);
        config
            .listen
            .iter()
            .map(|text| config_address(text, base))
            .collect::<Result<_, _>>()?
    } else {
        flags.listen
    };
    let base = flags.config.as_deref().and_then(Path::parent);
    let root = match (flags.root, config.root) {
        (Some(root), _) => root,
        (None, Some(root)) => base.map_or_else(|| root.clone(), |base| base.join(&root)),
        (None, None) => default.root,
    };
    let sessions_max = flags
        .sessions_max
        .or_else(|| config.sessions_max.map(NonZeroUsize::get));
    let grace = flags.grace.or(config.grace_seconds);
    // This user's keys, known servers, and state.
    let own = [
        identity::folder().ok(),
        server_folder().ok(),
        state::folder(),
    ];
    let private = own.into_iter().flatten().chain(flags.config).collect();
    Ok(ServerBuilder {
        listen,
        root,
        read_only: flags
            .read_only
            .or(config.read_only)
            .unwrap_or(default.read_only),
        insecure,
        sessions_max: sessions_max.unwrap_or(default.sessions_max),
        grace: grace.map_or(default.grace, |seconds| Duration::from_secs(seconds.into())),
        limits: default.limits,
        drivers: default.drivers,
        private,
        security,
    })
}

/// An address in the file. A relative Unix socket is relative to the file, as the root is.
fn config_address(text: &str, base: Option<&Path>) -> Result<Address, Fault> {
    match text.parse()? {
        Address::Unix(path) => Ok(Address::Unix(
            base.map_or_else(|| path.clone(), |base| base.join(&path)),
        )),
        address @ Address::Tcp { .. } => Ok(address),
        _ => Err(Fault::new(
            Code::InvalidArgument,
            "read the address",
            "can't listen on it",
        )
        .path(text)
        .hint("write HOST, HOST:PORT, [IPV6]:PORT or unix:PATH")),
    }
}

pub(crate) fn read_config(path: &Path) -> Result<Config, Fault> {
    let name = path.as_os_str().as_encoded_bytes();
    let text = std::fs::read_to_string(path)
        .map_err(|e| Fault::from_io("read the configuration", name, &e))?;
    parse_config(&text).map_err(|fault| fault.path(name))
}

fn parse_config(text: &str) -> Result<Config, Fault> {
    toml::from_str(text).map_err(|error: toml::de::Error| {
        let offset = error.span().map_or(0, |span| span.start);
        let line = text.bytes().take(offset).filter(|&b| b == b'\n').count() + 1;
        let cause = format!("line {line}: {}", error.message().replace('\n', " "));
        Fault::new(Code::InvalidArgument, "read the configuration", cause)
            .hint("`xdfs serve --help` lists the settings")
    })
}

#[cfg(test)]
mod tests {
    use clap::Parser as _;

    use super::*;
    use crate::flags::{Cli, Command};

    fn flags(words: &[&str]) -> ServeFlags {
        let line = ["xdfs", "serve"].iter().chain(words);
        match Cli::try_parse_from(line).unwrap().command {
            Command::Serve(flags) => flags,
            other => panic!("{other:?}"),
        }
    }

    const FILE: &str = "listen = [\"[::1]:5\", \"unix:s\"]\nroot = \"data\"\nread_only = true\n\
                        insecure = true\nsessions_max = 7\ngrace_seconds = 3\n";

    #[test]
    fn the_file_sets_everything() {
        let flags = flags(&["--config", "/etc/x/xdfs.toml"]);
        let built = builder(flags, parse_config(FILE).unwrap()).unwrap();
        assert_eq!(built.listen[0].to_string(), "[::1]:5");
        assert_eq!(built.listen[1], Address::Unix("/etc/x/s".into()));
        assert_eq!(built.root, Path::new("/etc/x/data"));
        assert!(built.read_only && built.insecure);
        assert_eq!(
            (built.sessions_max, built.grace),
            (7, Duration::from_secs(3))
        );
    }

    #[test]
    fn flags_go_before_the_file() {
        let words = "--listen 127.0.0.1:0 --root r --read-only=false --insecure=false \
                     --sessions-max 9 --grace 4 --config /etc/xdfs.toml";
        let words: Vec<&str> = words.split_whitespace().collect();
        let built = builder(flags(&words), parse_config(FILE).unwrap()).unwrap();
        assert_eq!(built.listen.len(), 1);
        assert_eq!(built.root, Path::new("r"));
        assert!(!built.read_only && !built.insecure);
        assert_eq!(
            (built.sessions_max, built.grace),
            (9, Duration::from_secs(4))
        );
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
            ("\n\nread_only = \"yes\"", "line 3", "boolean"),
            ("sessions_max = 0", "line 1", ""),
            ("grace_seconds = -1", "line 1", ""),
            ("a\n", "line 1", ""),
        ] {
            let fault = parse_config(text).unwrap_err();
            assert!(fault.cause.starts_with(line), "{text:?}: {}", fault.cause);
            assert!(fault.cause.contains(word), "{text:?}: {}", fault.cause);
            assert_eq!(fault.code.exit_code(), 2);
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
