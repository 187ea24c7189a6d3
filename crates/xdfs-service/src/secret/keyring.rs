//! The secrets of one job, and to which servers they are shown.

use std::sync::Arc;

use xdfs::security::Credential;
use xdfs::{Code, Fault, RemotePlace};

use super::{SealingKey, SecretRow};
use crate::whose::Whose;

/// The credentials of a job: its user, and the secrets that it may use.
#[derive(Clone, Debug)]
pub(crate) struct Keyring {
    pub(crate) whose: Whose,
    secrets: Vec<UsableSecret>,
    /// The key of the secrets; none of a keyring without secrets.
    key: Option<Arc<SealingKey>>,
}

#[derive(Clone, Debug)]
struct UsableSecret {
    row: SecretRow,
    server: Option<RemotePlace>,
    /// The job names it.
    is_named: bool,
}

/// Whether a secret for `server` is for the server of `place`: for the user that the place names,
/// unless the secret is for any.
fn is_for(server: &RemotePlace, place: &RemotePlace) -> bool {
    let is_same_user = server.user.is_none() || server.user == place.user;
    server.address == place.address && is_same_user
}

impl Keyring {
    /// That of the user of the process, without secrets.
    #[cfg(test)]
    pub(crate) fn own() -> Self {
        Self {
            whose: Whose::Own,
            secrets: Vec::new(),
            key: None,
        }
    }

    /// That of a job which names these secrets of its user, who has `rows`.
    ///
    /// # Errors
    /// One of them is gone, or a row is damaged.
    pub(crate) fn new(
        whose: Whose,
        key: Arc<SealingKey>,
        rows: Vec<SecretRow>,
        named: &[String],
    ) -> Result<Self, Fault> {
        let is_there = |name: &&String| rows.iter().any(|row| row.info.name == **name);
        if let Some(missing) = named.iter().find(|name| !is_there(name)) {
            let fault = Fault::new(
                Code::NotFound,
                "use the secret",
                "there is none of this name",
            );
            return Err(fault.path(missing).hint("set it, and retry the job"));
        }
        let secrets = rows.into_iter().map(|row| {
            Ok(UsableSecret {
                server: row.server()?,
                is_named: named.contains(&row.info.name),
                row,
            })
        });
        Ok(Self {
            whose,
            secrets: secrets.collect::<Result<_, Fault>>()?,
            key: Some(key),
        })
    }

    /// The secret for the server of a place: one that the job names before others, and one for
    /// this server before one for any.
    fn find(&self, place: &RemotePlace) -> Option<&SecretRow> {
        let fitting = self.secrets.iter().filter(|secret| match &secret.server {
            Some(server) => is_for(server, place),
            None => secret.is_named,
        });
        let rank = |secret: &&UsableSecret| {
            let has_user = secret.server.as_ref().map(|server| server.user.is_some());
            (secret.is_named, has_user)
        };
        fitting.max_by_key(rank).map(|secret| &secret.row)
    }

    /// The id of the secret for the server of a place: sessions that were opened with another one
    /// are none for this job.
    pub(crate) fn secret_id(&self, place: &RemotePlace) -> Option<&str> {
        self.find(place).map(|row| row.id.as_str())
    }

    /// The credential for the server of a place; `None` if there is no secret for it.
    ///
    /// # Errors
    /// The secret can't be opened.
    pub(crate) fn credential(&self, place: &RemotePlace) -> Result<Option<Credential>, Fault> {
        let (Some(row), Some(key)) = (self.find(place), &self.key) else {
            return Ok(None);
        };
        let value = key.open(&row.text(), &row.sealed).map_err(|fault| {
            let name = row.info.name.as_bytes();
            fault.path(name)
        })?;
        Ok(Some(row.info.kind.credential(&value)))
    }
}

/// Checks the secrets that a job with these servers names, of those that its user has: each has to
/// be there and fit a server, and one that is for any server may be shown to one server only.
///
/// # Errors
/// [`Code::InvalidArgument`] with the field.
pub(crate) fn check_named(
    named: &[String],
    rows: &[SecretRow],
    places: &[&RemotePlace],
) -> Result<(), Fault> {
    let invalid = |index: usize, cause: &str| {
        let field = format!("secrets[{index}]");
        Fault::new(Code::InvalidArgument, "accept the field", cause).path(field)
    };
    let mut for_any = 0;
    for (index, name) in named.iter().enumerate() {
        if named[..index].contains(name) {
            return Err(invalid(index, "it is there twice"));
        }
        let row = rows.iter().find(|row| row.info.name == *name);
        let row = row.ok_or_else(|| invalid(index, "there is no secret of this name"))?;
        match row.server()? {
            Some(server) if places.iter().any(|place| is_for(&server, place)) => {}
            Some(_) => {
                return Err(invalid(
                    index,
                    "it is for a server that the job doesn't use",
                ));
            }
            None => for_any += 1,
        }
        let first = places.first();
        let is_one = first.is_some_and(|first| {
            let mut places = places.iter();
            places.all(|place| place.address == first.address && place.user == first.user)
        });
        if for_any > 0 && (for_any > 1 || !is_one) {
            let cause = "it is for any server, and would be shown to several";
            return Err(invalid(index, cause).hint("set it with the server that it is for"));
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::super::{SecretInfo, SecretKind};
    use super::*;
    use crate::time::Time;

    fn row(name: &str, server: Option<&str>) -> SecretRow {
        SecretRow {
            id: name.to_owned(),
            owner: "me".to_owned(),
            info: SecretInfo {
                name: name.to_owned(),
                kind: SecretKind::Password,
                server: server.map(str::to_owned),
                changed_at: Time::from_microseconds(0),
            },
            sealed: String::new(),
        }
    }

    fn place(text: &str) -> RemotePlace {
        text.parse()
            .unwrap_or_else(|fault| panic!("{text}: {fault}"))
    }

    #[test]
    fn a_server_gets_the_secret_that_is_for_it() {
        let rows = vec![
            row("any", None),
            row("host", Some("xdfs://host")),
            row("alice", Some("xdfs://alice@host")),
            row("other", Some("xdfs://host:5")),
        ];
        let find = |named: &[&str], text: &str| {
            let named: Vec<_> = named.iter().map(|name| (*name).to_owned()).collect();
            let key = SealingKey::find(
                tempfile::tempdir().unwrap_or_else(|e| panic!("{e}")).path(),
                None,
            );
            let key = Arc::new(key.unwrap_or_else(|fault| panic!("{fault}")));
            let keyring = Keyring::new(Whose::Own, key, rows.clone(), &named);
            let keyring = keyring.unwrap_or_else(|fault| panic!("{fault}"));
            keyring.secret_id(&place(text)).map(str::to_owned)
        };
        for (named, text, found) in [
            (&[][..], "xdfs://host/a", Some("host")),
            (&[], "xdfs://alice@host/a", Some("alice")),
            (&[], "xdfs://bob@host/a", Some("host")),
            (&["host"], "xdfs://alice@host/a", Some("host")),
            (&["any"], "xdfs://host/a", Some("any")),
            (&[], "xdfs://elsewhere/a", None),
            (&["any"], "xdfs://elsewhere/a", Some("any")),
            (&["host"], "xdfs://elsewhere/a", None),
            (&[], "ftps://host/a", None),
            (&[], "xdfs://host:5/a", Some("other")),
        ] {
            assert_eq!(find(named, text).as_deref(), found, "{named:?} {text}");
        }
    }

    #[test]
    fn a_secret_for_any_server_is_shown_to_one() {
        let rows = [
            row("any", None),
            row("more", None),
            row("host", Some("xdfs://host")),
        ];
        let check = |named: &[&str], servers: &[&str]| {
            let named: Vec<_> = named.iter().map(|name| (*name).to_owned()).collect();
            let places: Vec<_> = servers.iter().map(|text| place(text)).collect();
            let places: Vec<_> = places.iter().collect();
            check_named(&named, &rows, &places).is_ok()
        };
        assert!(check(&["any"], &["xdfs://h/a", "xdfs://h/b"]));
        assert!(check(&["host"], &["xdfs://host/a", "xdfs://other/b"]));
        for (named, servers) in [
            (&["none"][..], &["xdfs://h/a"][..]),
            (&["host", "host"], &["xdfs://host/a"]),
            (&["any"], &["xdfs://h/a", "xdfs://other/b"]),
            (&["any"], &["xdfs://a@h/a", "xdfs://b@h/b"]),
            (&["any", "more"], &["xdfs://h/a"]),
            (&["host"], &["xdfs://other/b"]),
            (&["any", "host"], &["xdfs://host/a", "xdfs://other/b"]),
        ] {
            assert!(!check(named, servers), "{named:?} {servers:?}");
        }
    }
}
