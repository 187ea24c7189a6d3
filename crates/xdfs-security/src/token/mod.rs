//! Method 5: a bearer token, a JSON Web Token (RFC 7519) that an issuer signed.
//!
//! The body of AUTH is the compact form of the token. A bearer token isn't bound to a channel:
//! whoever obtains it can use it until it expires. It may be sent only over TLS, and it is never
//! logged.
//!
//! The checks, in this order: size, form, algorithm, issuer, key, signature, time, audience, user,
//! scopes. Before the signature is verified, nothing in the token is trusted; issuer and key id
//! only select among the keys that the settings trust.
//!
//! The peer learns the class of an error, but nothing about the token or the settings. It follows
//! RFC 8725: only asymmetric signatures, an algorithm that fits the key, no `crit`, no duplicate
//! names in objects, and every configured claim is checked.

mod compact;
#[cfg(test)]
mod fetched_tests;
mod keys;
mod remote;
mod scopes;
#[cfg(test)]
mod tests;
mod url;
pub(crate) mod user;
pub(crate) mod watched;

use std::collections::BTreeMap;
use std::fmt;
use std::path::PathBuf;
use std::sync::{Arc, Mutex, PoisonError};

use serde::Deserialize;
use xdfs_proto::{Code, Fault, Retry};

use crate::{Method, Principal, Scope};
use compact::{Compact, Object};
use keys::{Key, KeySet};
use remote::RemoteKeys;
pub use remote::{KeyFetch, KeySource, MAX_FETCHED_BYTES, discovered};
pub use url::KeyUrl;
use watched::Watched;

/// Maximum size of a token in bytes.
pub const MAX_TOKEN_BYTES: usize = 16 * 1024;
/// Maximum size of a key file in bytes.
const MAX_JWKS_BYTES: u64 = 1024 * 1024;
/// Maximum number of issuers in the settings.
const MAX_ISSUERS: usize = 256;
/// Default tolerance for clock differences, in seconds.
const LEEWAY_S: u32 = 60;
/// Maximum configurable tolerance.
const MAX_LEEWAY_S: u32 = 300;
/// Default maximum lifetime of a token with a profile, in seconds: a day.
const LONGEST_S: u64 = 24 * 60 * 60;

/// The path of an issuer's configuration document (OpenID Connect Discovery 1.0, section 4).
const DISCOVERY: &str = ".well-known/openid-configuration";
/// Retry delay for a token whose key is not available yet, in milliseconds.
const RETRY_MS: u32 = 3000;

/// The accepted issuers.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Config {
    /// The issuers, each at most once.
    pub issuers: Vec<IssuerConfig>,
}

/// An issuer, and how its tokens are used.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct IssuerConfig {
    /// The claim `iss`, byte by byte.
    pub issuer: String,
    /// The names of this server; the claim `aud` must contain one of them. A name that stands for
    /// every server, such as `https://wlcg.cern.ch/jwt/v1/any`, counts only if it is listed.
    pub audience: Vec<String>,
    /// The file of the issuer's public keys, a JWK set (RFC 7517) of at most 1 MiB. It is reloaded
    /// after changes; a malformed version is logged, and the previous keys stay valid. To withdraw
    /// all keys, write a set without keys.
    #[serde(default)]
    pub jwks_file: Option<PathBuf>,
    /// The URL of that set, instead of the file, as accepted by [`KeyUrl`]. The keys are fetched
    /// again when they expire or a token names an unknown one; if that fails, the present keys stay
    /// valid for a day after their expiry.
    ///
    /// If neither is set, the URL is looked up at `issuer`, which must be a URL in that case
    /// (OpenID Connect Discovery 1.0).
    #[serde(default)]
    pub jwks_url: Option<String>,
    /// The file (PEM) of the authorities for the web server of the keys, instead of those of the
    /// system.
    #[serde(default)]
    pub jwks_authorities: Option<PathBuf>,
    /// The claim that identifies the user.
    #[serde(default = "default_user_claim")]
    pub user_claim: String,
    /// Maps values of that claim to local users.
    ///
    /// Without this table and `default_user`, the value is the user's name. Two issuers may give
    /// one name to two persons: in that case, configure a table for each.
    #[serde(default)]
    pub map: Option<BTreeMap<String, String>>,
    /// The local user for values that are not in `map`.
    #[serde(default)]
    pub default_user: Option<String>,
    /// The base of paths in scopes, from the root of the exports.
    #[serde(default = "default_base_path")]
    pub base_path: String,
    /// Tolerance for clock differences in seconds, up to 300.
    #[serde(default = "default_leeway_s")]
    pub leeway_s: u32,
    /// Maximum lifetime of a token in seconds. By default a day, and no limit for
    /// [`Profile::Plain`].
    #[serde(default)]
    pub longest_s: Option<u64>,
    /// The interpretation of scopes.
    pub profile: Profile,
}

/// The interpretation of a token's scopes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Deserialize)]
#[serde(rename_all = "lowercase")]
#[non_exhaustive]
pub enum Profile {
    /// The WLCG profile: `storage.read:/path`, `storage.create:`, `storage.modify:`,
    /// `storage.stage:` (as reading).
    Wlcg,
    /// SciTokens: `read:/path` and `write:/path`.
    SciTokens,
    /// Scopes are ignored: the token only identifies the user.
    Plain,
}

fn default_user_claim() -> String {
    "sub".into()
}

fn default_base_path() -> String {
    "/".into()
}

fn default_leeway_s() -> u32 {
    LEEWAY_S
}

/// Verifies tokens. One instance is shared by all threads of a server.
pub struct Verifier {
    config: Config,
    issuers: Vec<Issuer>,
    /// The lock only makes the verifier shareable.
    fetches: Mutex<Vec<KeyFetch>>,
}

impl Verifier {
    /// Validates the settings and loads the key files. Keys to be fetched aren't available before
    /// [`take_fetches`](Self::take_fetches) is served.
    ///
    /// # Errors
    /// [`Code::InvalidArgument`] for invalid settings or a malformed key file, and any error of
    /// reading one.
    pub fn new(config: Config) -> Result<Self, Fault> {
        if config.issuers.is_empty() || config.issuers.len() > MAX_ISSUERS {
            return Err(setting(format!(
                "tokens need between 1 and {MAX_ISSUERS} issuers"
            )));
        }
        let mut issuers: Vec<Issuer> = Vec::with_capacity(config.issuers.len());
        let mut fetches = Vec::new();
        for config in config.issuers.iter().cloned() {
            if issuers.iter().any(|i| i.name == config.issuer) {
                return Err(setting(format!("issuer '{}' occurs twice", config.issuer)));
            }
            issuers.push(Issuer::new(config, &mut fetches)?);
        }
        let fetches = Mutex::new(fetches);
        Ok(Self {
            config,
            issuers,
            fetches,
        })
    }

    /// The settings.
    #[must_use]
    pub fn config(&self) -> &Config {
        &self.config
    }

    /// The key fetches, one per issuer whose keys don't come from a file; empty at the second call.
    #[must_use]
    pub fn take_fetches(&self) -> Vec<KeyFetch> {
        std::mem::take(&mut self.fetches.lock().unwrap_or_else(PoisonError::into_inner))
    }

    /// Verifies `token`, and returns the principal with the scopes of the token. `now_unix` is the
    /// time in seconds since 1970; when it has changed, key files are checked for changes.
    ///
    /// # Errors
    /// [`Code::AuthenticationFailed`], with the class of the error. A retry is advised only if
    /// matching keys may be fetched soon.
    pub fn verify(&self, token: &[u8], now_unix: i64) -> Result<Principal, Fault> {
        if token.len() > MAX_TOKEN_BYTES {
            return Err(refused("the token is longer than 16 KiB"));
        }
        let token = Compact::parse(token)?;
        let issuer = token
            .claims
            .text("iss")
            .and_then(|name| self.issuers.iter().find(|i| i.name == name))
            .ok_or_else(|| refused("the issuer of the token isn't trusted here"))?;
        issuer.check_signature(&token, now_unix)?;
        issuer.check_time(&token.claims, now_unix)?;
        issuer.check_audience(&token.claims)?;
        Ok(Principal {
            user: issuer.user(&token.claims)?,
            method: Method::Token,
            scopes: issuer.scopes(&token.claims)?,
        })
    }
}

impl fmt::Debug for Verifier {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let names = self.issuers.iter().map(|i| i.name.as_str());
        f.debug_list().entries(names).finish()
    }
}

/// An issuer with validated settings.
struct Issuer {
    name: String,
    audience: Vec<String>,
    keys: Keys,
    user_claim: String,
    map: Option<BTreeMap<String, String>>,
    default_user: Option<String>,
    /// Normalised: without slashes at its ends; empty for the root.
    base_path: String,
    leeway_s: i64,
    longest_s: Option<i64>,
    profile: Profile,
}

/// The source of an issuer's keys.
enum Keys {
    File(Watched<KeySet>),
    Remote(RemoteKeys),
}

impl Issuer {
    fn new(mut config: IssuerConfig, fetches: &mut Vec<KeyFetch>) -> Result<Self, Fault> {
        let keys = Keys::new(&mut config, fetches);
        let name = config.issuer;
        let wrong = |what: &str| setting(format!("issuer '{name}': {what}"));
        if name.is_empty() {
            return Err(setting("the name of an issuer is empty"));
        }
        if config.audience.is_empty() || config.audience.iter().any(String::is_empty) {
            return Err(wrong(
                "audience needs at least one name, and none may be empty",
            ));
        }
        if config.user_claim.is_empty() {
            return Err(wrong("user_claim is empty"));
        }
        let mapped = config.map.iter().flat_map(BTreeMap::values);
        if let Some(user) = mapped
            .chain(&config.default_user)
            .find(|user| !user::is_name(user))
        {
            return Err(wrong(&format!("'{user}' can't be the name of a user")));
        }
        let Some(base_path) = scopes::normalised(&config.base_path) else {
            return Err(wrong(
                "base_path must be absolute, without '.', '..' or '//'",
            ));
        };
        if config.leeway_s > MAX_LEEWAY_S {
            return Err(wrong("leeway_s is more than 300"));
        }
        let longest_s = config.longest_s.or(match config.profile {
            Profile::Wlcg | Profile::SciTokens => Some(LONGEST_S),
            Profile::Plain => None,
        });
        if longest_s == Some(0) {
            return Err(wrong("longest_s is 0"));
        }
        Ok(Self {
            audience: config.audience,
            keys: keys?,
            user_claim: config.user_claim,
            map: config.map,
            default_user: config.default_user,
            base_path: base_path.to_owned(),
            leeway_s: i64::from(config.leeway_s),
            longest_s: longest_s.map(|s| i64::try_from(s).unwrap_or(i64::MAX)),
            profile: config.profile,
            name,
        })
    }

    fn check_signature(&self, token: &Compact<'_>, now_unix: i64) -> Result<(), Fault> {
        let set = match &self.keys {
            Keys::File(file) => Some(file.current(now_unix)),
            Keys::Remote(remote) => remote.current(now_unix),
        };
        let select = |set: &Arc<KeySet>| {
            let key: Option<&Key> = set.select(token.key_id.as_deref(), token.algorithm);
            key.map(|key| key.verifies(token.algorithm, token.signed, &token.signature))
        };
        let cause = match (set.as_ref().map(select), &token.key_id) {
            (Some(Some(true)), _) => return Ok(()),
            // The named key exists and doesn't match.
            (Some(Some(false)), Some(_)) => {
                return Err(refused("the signature of the token is wrong"));
            }
            (Some(Some(false)), None) => "the signature of the token is wrong",
            (Some(None), _) => "the issuer has no such key for the token",
            (None, _) => "the keys of the issuer aren't at hand",
        };
        let fault = refused(cause);
        Err(match &self.keys {
            Keys::File(_) => fault,
            Keys::Remote(remote) => {
                remote.request_fetch();
                fault
                    .hint("try again in half a minute: the issuer's keys are being fetched")
                    .retry(Retry::AfterMs(RETRY_MS))
            }
        })
    }

    /// Checks the times (RFC 7519, sections 4.1.4 to 4.1.6).
    fn check_time(&self, claims: &Object, now_unix: i64) -> Result<(), Fault> {
        let malformed = || refused("a time in the token is malformed");
        let time = |name| claims.time(name).map_err(|()| malformed());
        let expires = time("exp")?.ok_or_else(|| refused("the token never expires"))?;
        let not_before = time("nbf")?;
        let issued = time("iat")?;
        if now_unix >= expires.saturating_add(self.leeway_s) {
            return Err(refused("the token has expired").hint("get a new token"));
        }
        let soon = now_unix.saturating_add(self.leeway_s);
        if not_before.is_some_and(|t| t > soon) {
            return Err(refused("the token isn't valid yet").hint("check the clocks"));
        }
        if issued.is_some_and(|t| t > soon) {
            return Err(refused("the token was issued in the future").hint("check the clocks"));
        }
        // A token without a start time counts as issued now.
        let began = issued.or(not_before).unwrap_or(now_unix);
        if self
            .longest_s
            .is_some_and(|longest| expires.saturating_sub(began) > longest)
        {
            return Err(refused("the token lives longer than is allowed here"));
        }
        Ok(())
    }

    fn check_audience(&self, claims: &Object) -> Result<(), Fault> {
        let named = claims.texts("aud").unwrap_or_default();
        if named.iter().any(|n| self.audience.iter().any(|a| a == n)) {
            Ok(())
        } else {
            Err(refused("the audience of the token isn't this server")
                .hint("ask the issuer for a token for this server"))
        }
    }

    fn user(&self, claims: &Object) -> Result<String, Fault> {
        let value = claims
            .text(&self.user_claim)
            .filter(|value| !value.is_empty())
            .ok_or_else(|| refused("the token doesn't say who the user is"))?;
        let mapped = self.map.as_ref().and_then(|map| map.get(value));
        match (mapped.or(self.default_user.as_ref()), &self.map) {
            (Some(user), _) => Ok(user.clone()),
            (None, None) if user::is_name(value) => Ok(value.to_owned()),
            (None, None) => Err(refused("the token's user name isn't valid here")),
            (None, Some(_)) => Err(refused("the user of the token isn't known here")),
        }
    }

    fn scopes(&self, claims: &Object) -> Result<Vec<Scope>, Fault> {
        if self.profile == Profile::Plain {
            return Ok(Vec::new());
        }
        let text = claims.text("scope").unwrap_or_default();
        let scopes = scopes::read(self.profile, text, &self.base_path).map_err(refused)?;
        // An empty list of scopes would mean no limit.
        if scopes.is_empty() {
            return Err(refused("the token has no scope for storage"));
        }
        Ok(scopes)
    }
}

impl Keys {
    fn new(config: &mut IssuerConfig, fetches: &mut Vec<KeyFetch>) -> Result<Self, Fault> {
        let issuer = &config.issuer;
        let wrong = |what: &str| setting(format!("issuer '{issuer}': {what}"));
        let named = |fault: Fault| {
            let hint = fault.hint.clone();
            wrong(&fault.cause).hint(hint)
        };
        let authorities = config.jwks_authorities.take();
        let source = match (config.jwks_file.take(), config.jwks_url.take()) {
            (Some(_), Some(_)) => return Err(wrong("jwks_file and jwks_url are both there")),
            (Some(_), None) if authorities.is_some() => {
                return Err(wrong("jwks_authorities makes no sense with jwks_file"));
            }
            (Some(path), None) => {
                let file = Watched::open(path, MAX_JWKS_BYTES, "read the keys", KeySet::parse)?;
                return Ok(Self::File(file));
            }
            (None, Some(url)) => KeySource::Keys(KeyUrl::parse(&url).map_err(named)?),
            (None, None) => {
                let document = format!("{}/{DISCOVERY}", issuer.trim_end_matches('/'));
                let url = KeyUrl::parse(&document)
                    .ok()
                    .filter(|_| !issuer.contains('?'));
                KeySource::Discovery(url.ok_or_else(|| {
                    wrong("its name is not a URL to fetch its keys from")
                        .hint("set jwks_url or jwks_file")
                })?)
            }
        };
        let (keys, fetch) = RemoteKeys::new(issuer.clone(), source, authorities);
        fetches.push(fetch);
        Ok(Self::Remote(keys))
    }
}

/// A refusal that may be shown to the peer.
fn refused(cause: &str) -> Fault {
    Fault::new(Code::AuthenticationFailed, "verify the token", cause)
}

fn setting(cause: impl Into<String>) -> Fault {
    Fault::new(Code::InvalidArgument, "read the settings of tokens", cause)
}
