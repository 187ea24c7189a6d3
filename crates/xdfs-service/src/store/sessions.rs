//! Sessions of browsers.

use xdfs::Fault;

use super::rows::text;
use super::{Store, fault};
use crate::time::Time;

impl Store {
    /// Remembers the session of a browser, by the digest of its cookie, and forgets old ones.
    pub(crate) async fn add_session(
        &self,
        cookie_digest: &str,
        owner: &str,
        ends_at: Time,
    ) -> Result<(), Fault> {
        let mut transaction = self.begin().await?;
        sqlx::query("DELETE FROM sessions WHERE ends_at < $1")
            .bind(Time::now().microseconds())
            .execute(&mut *transaction)
            .await
            .map_err(fault)?;
        sqlx::query("INSERT INTO sessions (cookie_digest, owner, ends_at) VALUES ($1, $2, $3)")
            .bind(cookie_digest)
            .bind(owner)
            .bind(ends_at.microseconds())
            .execute(&mut *transaction)
            .await
            .map_err(fault)?;
        transaction.commit().await.map_err(fault)
    }

    /// The owner of a session that hasn't ended.
    pub(crate) async fn session(&self, cookie_digest: &str) -> Result<Option<String>, Fault> {
        let row =
            sqlx::query("SELECT owner FROM sessions WHERE cookie_digest = $1 AND ends_at >= $2")
                .bind(cookie_digest)
                .bind(Time::now().microseconds())
                .fetch_optional(&self.pool)
                .await
                .map_err(fault)?;
        row.map(|row| text(&row, "owner")).transpose()
    }
}
