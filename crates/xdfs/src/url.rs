//! URLs of places on servers.

use std::str::FromStr;

use xdfs_proto::{Code, Fault};
use xdfs_xio::{DriverSpec, SpecError, StackSpec};

use crate::address::{Address, DEFAULT_PORT, host_and_port};
use crate::registry;
use crate::remote::{Invitation, RemotePlace, percent_decode};
use crate::scheme::{LoginBy, RegisteredScheme};

#[cfg(test)]
mod tests;

/// The beginning of a URL.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum UrlScheme<'a> {
    Plain,
    /// The names of drivers.
    Stack(&'a str),
    /// A registered one.
    Place(RegisteredScheme),
}

/// The scheme of a URL of a remote place, and the rest of the URL.
fn scheme_of(text: &str) -> Option<(UrlScheme<'_>, &str)> {
    if let Some((scheme, rest)) = registry::scheme_of(text) {
        return Some((UrlScheme::Place(scheme), rest));
    }
    let (scheme, rest) = text.strip_prefix("xdfs")?.split_once("://")?;
    match scheme.strip_prefix('+') {
        None => scheme.is_empty().then_some((UrlScheme::Plain, rest)),
        // A slash would be one of a local path.
        Some(names) => (!names.contains('/')).then_some((UrlScheme::Stack(names), rest)),
    }
}

/// The stack in the scheme of a URL: names with `+` between them, or with commas as elsewhere.
/// Schemes have no characters for attributes.
fn stack_of(names: &str) -> Result<StackSpec, String> {
    let mut drivers = names.split(['+', ',']).map(DriverSpec::new);
    let invalid =
        |error: SpecError| format!("'{names}' names no drivers such as tcp+tls+zstd: {error}");
    let transport = drivers.next().ok_or("it names no driver")?;
    let mut stack = StackSpec::new(transport.map_err(invalid)?);
    for driver in drivers {
        stack = stack.with(driver.map_err(invalid)?);
    }
    Ok(stack)
}

impl RemotePlace {
    /// Whether `text` is meant as a remote place, well formed or not.
    #[must_use]
    pub fn is_remote(text: &str) -> bool {
        scheme_of(text).is_some()
    }

    /// A text that looks like a URL, valid or not, as it may be shown: without a password, which
    /// URLs of FTP servers can have. Other text stays as it is.
    #[must_use]
    pub fn without_password(text: &str) -> String {
        let same = || text.to_owned();
        let Some((scheme, slashes)) = text.split_once(":/") else {
            return same();
        };
        let is_scheme = |c: char| c.is_ascii_alphanumeric() || matches!(c, '+' | '-' | '.');
        let is_url = scheme.chars().all(is_scheme)
            && (slashes.starts_with('/') || scheme.to_ascii_lowercase().contains("ftp"));
        let rest = slashes.trim_start_matches('/');
        if !is_url {
            return same();
        }
        let authority = rest.split('/').next().unwrap_or(rest);
        let start = &text[..text.len() - rest.len()];
        if let Some((user, host)) = authority.rsplit_once('@') {
            let encoded = || user.to_ascii_lowercase().find("%3a");
            let (colon, end) = (user.find(':').or_else(encoded), &rest[authority.len()..]);
            return colon.map_or_else(same, |at| format!("{start}{}@{host}{end}", &user[..at]));
        }
        // A password may have a slash that isn't encoded, and a path an '@'.
        match (authority.split_once(':'), rest.rsplit_once('@')) {
            (Some((user, begin)), Some((_, after)))
                if !authority.starts_with('[')
                    && (begin.is_empty() || !begin.bytes().all(|byte| byte.is_ascii_digit())) =>
            {
                format!("{start}{user}@{after}")
            }
            _ => same(),
        }
    }
}

impl FromStr for RemotePlace {
    type Err = Fault;

    fn from_str(text: &str) -> Result<Self, Fault> {
        let bad = |cause: &str| {
            // Without a possible secret.
            let shown = Self::without_password(text);
            let shown = match shown.split_once("?ticket=") {
                Some((shown, _)) => shown.to_owned(),
                None => shown,
            };
            let scheme = match scheme_of(text) {
                Some((UrlScheme::Place(scheme), _)) => scheme.name(),
                _ => "xdfs",
            };
            Fault::new(Code::InvalidArgument, "read the URL", cause)
                .path(shown)
                .hint(format!("write {scheme}://[user@]host[:port]/path"))
        };
        let Some((scheme, rest)) = scheme_of(text) else {
            return Err(bad("it does not start with xdfs://"));
        };
        let stack = match scheme {
            UrlScheme::Stack(names) => Some(stack_of(names).map_err(|cause| bad(&cause))?),
            _ => None,
        };
        let transport = stack.as_ref().map(|stack| stack.transport().name());
        let unix = transport == Some("unix");
        let registered = match scheme {
            UrlScheme::Place(scheme) => Some(scheme),
            _ => None,
        };
        let speaks_xdfs = registered.is_none_or(|scheme| scheme.speaks_xdfs());
        let login = registered.map(|scheme| scheme.login());
        let ssh = login == Some(LoginBy::Ssh);
        // The address says it.
        let stack = stack.filter(|stack| !unix || !stack.transforms().is_empty());
        let (authority, path) = match rest.find('/') {
            Some(i) => rest.split_at(i),
            None => (rest, ""),
        };
        let mut password = None;
        let (user, host) = match authority.rsplit_once('@') {
            Some((user, host)) => {
                let (user, secret) = match user.split_once(':') {
                    Some((user, secret)) => (user, Some(secret)),
                    None => (user, None),
                };
                if secret.is_some() && login != Some(LoginBy::ClearPassword) {
                    let cause = "a password in a URL can be seen by others on this machine";
                    let begin = &text[..text.len() - rest.len()];
                    let instead = match login {
                        Some(LoginBy::Ssh) => "ssh asks for the password",
                        Some(LoginBy::Certificate) => "a certificate logs in, not a password",
                        _ => "--password-file FILE or - gives the password",
                    };
                    return Err(bad(cause).hint(format!("write {begin}USER@HOST/PATH; {instead}")));
                }
                if let Some(secret) = secret {
                    let secret = percent_decode(secret).and_then(|p| String::from_utf8(p).ok());
                    password = Some(secret.ok_or_else(|| bad("the password is not valid"))?);
                }
                let user = percent_decode(user).and_then(|u| String::from_utf8(u).ok());
                let user = user.ok_or_else(|| bad("the user name is not valid"))?;
                if user.is_empty() {
                    return Err(bad("no user stands before the '@'"));
                }
                if speaks_xdfs && user.contains(':') {
                    return Err(bad("the name of a user has no ':'"));
                }
                (Some(user), host)
            }
            None => (None, authority),
        };
        let address = if unix {
            let path = percent_decode(host).ok_or_else(|| bad("a percent sign is misused"))?;
            let path = String::from_utf8(path).map_err(|_| bad("the socket is not UTF-8"))?;
            if path.is_empty() {
                return Err(bad("it names no socket"));
            }
            Address::Unix(path.into())
        } else {
            if host.is_empty() {
                return Err(bad("it names no host"));
            }
            // Addresses without a scheme begin with it.
            if !ssh && (host == "unix" || host.starts_with("unix:")) {
                return Err(bad("the host is not a name or an IP address"));
            }
            let parsed =
                host_and_port(host).map_err(|f| match !speaks_xdfs && rest.contains('@') {
                    // It may be the beginning of a password.
                    true => {
                        bad("the host or its port is not valid; write a '/' in a password as %2F")
                    }
                    false => bad(&f.cause),
                })?;
            let (host, port) = parsed;
            match registered {
                Some(scheme) => {
                    let names = scheme.check_names(host, user.as_deref());
                    names.map_err(|cause| bad(&cause))?;
                    Address::Place {
                        host: host.to_owned(),
                        port: port.or_else(|| scheme.port()),
                        scheme,
                    }
                }
                None => Address::Host {
                    host: host.to_owned(),
                    port: port.unwrap_or(DEFAULT_PORT),
                },
            }
        };
        let (path, invitation) = match path.rsplit_once('?') {
            Some((path, query))
                if login.is_none()
                    && (query.starts_with("ticket=") || query.starts_with("pin=")) =>
            {
                let invitation = Invitation::parse(query)
                    .ok_or_else(|| bad("neither a ticket nor a pin follows the question mark"))?;
                (path, invitation)
            }
            _ => (path, Invitation::default()),
        };
        let invitation = Invitation {
            password,
            ..invitation
        };
        let path = percent_decode(path).ok_or_else(|| bad("a percent sign is misused"))?;
        let server = Self {
            user,
            address,
            stack: stack.map(Box::new),
            path: Vec::new(),
            invitation,
            profile: None,
        };
        Ok(server.at(path))
    }
}
