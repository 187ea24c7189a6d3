//! Which database a service uses: a file of SQLite in its folder, or PostgreSQL.

use std::fmt;
use std::path::Path;
use std::str::FromStr;

use sqlx::any::AnyConnectOptions;
use xdfs::security::trusted::{self, Secrecy};
use xdfs::{Code, Fault};

const OPERATION: &str = "read the URL of the database";
/// Most bytes of a file with a URL.
const BYTES_MAX: u64 = 8192;
/// Parameters after the `?`; any other one is refused, since it may be a mistake for one of these.
const PARAMETERS: [&str; 11] = [
    "application_name",
    "dbname",
    "host",
    "hostaddr",
    "options",
    "password",
    "port",
    "sslcert",
    "sslkey",
    "sslmode",
    "sslrootcert",
];

/// The URL of a database of PostgreSQL: `postgres://[user[:password]@]host[:port]/database`. Its
/// password is never shown.
#[derive(Clone)]
pub struct DatabaseUrl(AnyConnectOptions);

impl DatabaseUrl {
    /// Reads the first line of a file, which may hold a password: it has to be for its owner alone.
    ///
    /// # Errors
    /// The file can't be read, others can read or write it, or it holds no such URL.
    pub fn read(path: &Path) -> Result<Self, Fault> {
        let bytes = trusted::read(OPERATION, path, BYTES_MAX, Secrecy::Secret)?;
        let text = std::str::from_utf8(&bytes).unwrap_or_default();
        text.lines().next().unwrap_or_default().trim().parse()
    }

    /// Whether it has a password.
    #[must_use]
    pub fn has_password(&self) -> bool {
        let url = &self.0.database_url;
        url.password().is_some() || url.query_pairs().any(|(key, _)| key == "password")
    }

    pub(crate) fn options(&self) -> AnyConnectOptions {
        self.0.clone()
    }
}

impl FromStr for DatabaseUrl {
    type Err = Fault;

    fn from_str(text: &str) -> Result<Self, Fault> {
        // No part of the text is shown: it may hold a password.
        let bad = |cause: &str| {
            Fault::new(Code::InvalidArgument, OPERATION, cause)
                .hint("write postgres://USER@HOST:PORT/DATABASE")
        };
        let options: AnyConnectOptions = text.parse().map_err(|_| bad("it is no URL"))?;
        let url = &options.database_url;
        if !matches!(url.scheme(), "postgres" | "postgresql") {
            return Err(bad("it isn't of PostgreSQL"));
        }
        for (key, _) in url.query_pairs() {
            if !PARAMETERS.contains(&&*key) {
                return Err(bad("it has a parameter that isn't known")
                    .hint(format!("known are {}", PARAMETERS.join(", "))));
            }
        }
        Ok(Self(options))
    }
}

impl fmt::Display for DatabaseUrl {
    /// The URL without its password and its parameters.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut url = self.0.database_url.clone();
        // It has a host, or no password.
        let _ = url.set_password(None);
        url.set_query(None);
        url.set_fragment(None);
        write!(f, "{url}")
    }
}

impl fmt::Debug for DatabaseUrl {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "DatabaseUrl({self})")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_password_is_used_and_never_shown() {
        for text in [
            "postgres://me:secret@host:5433/jobs?sslmode=require",
            "postgresql://me@host/jobs?password=secret",
        ] {
            let url: DatabaseUrl = text.parse().unwrap_or_else(|fault| panic!("{fault}"));
            assert!(url.has_password());
            let shown = format!("{url} {url:?}");
            assert!(
                shown.contains("me@host") && !shown.contains("secret"),
                "{shown}"
            );
        }
        for text in [
            "secret",
            "postgres:secret",
            "mysql://me:secret@host/jobs",
            "sqlite://secret",
            "postgres://me:secret@host:port/jobs",
            "postgres://me:secret@host/jobs?passwrd=secret",
        ] {
            match text.parse::<DatabaseUrl>() {
                Ok(url) => assert!(
                    text.starts_with("postgres:") && !url.has_password(),
                    "{text}"
                ),
                Err(fault) => assert!(!format!("{fault:?}").contains("secret"), "{fault:?}"),
            }
        }
    }
}
