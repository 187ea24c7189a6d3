//! Sessions of browsers, and of clients that a key has logged in.

use sqlx::Row as _;
use xdfs::Fault;

use super::rows::text;
use super::{Store, fault};
use crate::time::Time;

/// Most sessions of a user. A further one ends the one that would end first.
const SESSIONS_MAX: i64 = 100;

/// A session of a browser or a client.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Session {
    pub(crate) owner: String,
    /// The version of the password that began it, or the key that did; `None` if a link did.
    pub(crate) password_version: Option<String>,
}

impl Store {
    /// Remembers the session of a browser, by the digest of its cookie, and forgets old ones.
    pub(crate) async fn add_session(
        &self,
        cookie_digest: &str,
        session: &Session,
        ends_at: Time,
    ) -> Result<(), Fault> {
        let mut transaction = self.begin().await?;
        sqlx::query("DELETE FROM sessions WHERE ends_at < $1")
            .bind(Time::now().microseconds())
            .execute(&mut *transaction)
            .await
            .map_err(fault)?;
        sqlx::query(
            "DELETE FROM sessions WHERE owner = $1 AND cookie_digest NOT IN
             (SELECT cookie_digest FROM sessions WHERE owner = $1 ORDER BY ends_at DESC LIMIT $2)",
        )
        .bind(&session.owner)
        .bind(SESSIONS_MAX - 1)
        .execute(&mut *transaction)
        .await
        .map_err(fault)?;
        sqlx::query(
            "INSERT INTO sessions (cookie_digest, owner, ends_at, password_version)
             VALUES ($1, $2, $3, $4)",
        )
        .bind(cookie_digest)
        .bind(&session.owner)
        .bind(ends_at.microseconds())
        .bind(&session.password_version)
        .execute(&mut *transaction)
        .await
        .map_err(fault)?;
        transaction.commit().await
    }

    /// A session that hasn't ended.
    pub(crate) async fn session(&self, cookie_digest: &str) -> Result<Option<Session>, Fault> {
        let row = sqlx::query(
            "SELECT owner, password_version FROM sessions
             WHERE cookie_digest = $1 AND ends_at >= $2",
        )
        .bind(cookie_digest)
        .bind(Time::now().microseconds())
        .fetch_optional(&self.pool)
        .await
        .map_err(fault)?;
        let Some(row) = row else { return Ok(None) };
        Ok(Some(Session {
            owner: text(&row, "owner")?,
            password_version: row.try_get("password_version").map_err(fault)?,
        }))
    }

    /// Ends a session, if there is one.
    pub(crate) async fn end_session(&self, cookie_digest: &str) -> Result<(), Fault> {
        self.write(
            sqlx::query("DELETE FROM sessions WHERE cookie_digest = $1").bind(cookie_digest),
        )
        .await?;
        Ok(())
    }
}
