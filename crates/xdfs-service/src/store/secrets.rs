//! Secrets, sealed, and the jobs that name them.

use sqlx::Row as _;
use xdfs::{Code, Fault};

use super::rows::{damaged, text, time};
use super::{Connection, Row, Store, fault};
use crate::id::JobId;
use crate::secret::{SecretInfo, SecretRow};

/// Most secrets of a user.
const SECRETS_MAX: i64 = 100;

fn secret(row: &Row) -> Result<SecretRow, Fault> {
    Ok(SecretRow {
        id: text(row, "id")?,
        owner: text(row, "owner")?,
        sealed: text(row, "sealed")?,
        info: SecretInfo {
            name: text(row, "name")?,
            kind: text(row, "kind")?.parse()?,
            server: row.try_get("server").map_err(fault)?,
            changed_at: time(row, "changed_at")?
                .ok_or_else(|| damaged("a secret without a time"))?,
        },
    })
}

/// Stores which secrets a new job names.
pub(super) async fn name_secrets(
    connection: &mut Connection,
    id: JobId,
    names: &[String],
) -> Result<(), Fault> {
    for name in names {
        sqlx::query("INSERT INTO job_secrets (job_id, name) VALUES ($1, $2)")
            .bind(id.to_string())
            .bind(name)
            .execute(&mut *connection)
            .await
            .map_err(fault)?;
    }
    Ok(())
}

impl Store {
    /// Sets a secret of a user, in the place of one of the same name.
    ///
    /// # Errors
    /// The user has too many.
    pub(crate) async fn set_secret(&self, row: &SecretRow) -> Result<(), Fault> {
        let mut transaction = self.begin().await?;
        sqlx::query("DELETE FROM secrets WHERE owner = $1 AND name = $2")
            .bind(&row.owner)
            .bind(&row.info.name)
            .execute(&mut *transaction)
            .await
            .map_err(fault)?;
        let added = sqlx::query(
            "INSERT INTO secrets (id, owner, name, kind, server, sealed, changed_at)
             SELECT $1, $2, $3, $4, $5, $6, $7
             WHERE (SELECT COUNT(*) FROM secrets WHERE owner = $2) < $8",
        )
        .bind(&row.id)
        .bind(&row.owner)
        .bind(&row.info.name)
        .bind(row.info.kind.as_str())
        .bind(&row.info.server)
        .bind(&row.sealed)
        .bind(row.info.changed_at.microseconds())
        .bind(SECRETS_MAX)
        .execute(&mut *transaction)
        .await
        .map_err(fault)?;
        if added.rows_affected() == 0 {
            let cause = format!("the user has {SECRETS_MAX} already");
            let fault = Fault::new(Code::LimitExceeded, "set the secret", cause);
            return Err(fault.hint("remove those that aren't used"));
        }
        transaction.commit().await
    }

    /// The secrets of a user, by name.
    pub(crate) async fn secrets(&self, owner: &str) -> Result<Vec<SecretRow>, Fault> {
        let rows = sqlx::query("SELECT * FROM secrets WHERE owner = $1 ORDER BY name")
            .bind(owner)
            .fetch_all(&self.pool)
            .await
            .map_err(fault)?;
        rows.iter().map(secret).collect()
    }

    /// What was sealed last, of any user.
    pub(crate) async fn last_sealed(&self) -> Result<Option<String>, Fault> {
        let row = sqlx::query("SELECT sealed FROM secrets ORDER BY changed_at DESC LIMIT 1")
            .fetch_optional(&self.pool)
            .await
            .map_err(fault)?;
        row.map(|row| text(&row, "sealed")).transpose()
    }

    /// Removes a secret of a user.
    ///
    /// # Errors
    /// There is none.
    pub(crate) async fn remove_secret(&self, owner: &str, name: &str) -> Result<(), Fault> {
        let removed = self
            .write(
                sqlx::query("DELETE FROM secrets WHERE owner = $1 AND name = $2")
                    .bind(owner)
                    .bind(name),
            )
            .await?;
        match removed.rows_affected() {
            0 => {
                let cause = "there is none of this name";
                Err(Fault::new(Code::NotFound, "remove the secret", cause).path(name))
            }
            _ => Ok(()),
        }
    }

    /// The names of the secrets that a job uses.
    pub(crate) async fn named_secrets(&self, id: JobId) -> Result<Vec<String>, Fault> {
        let rows = sqlx::query("SELECT name FROM job_secrets WHERE job_id = $1 ORDER BY name")
            .bind(id.to_string())
            .fetch_all(&self.pool)
            .await
            .map_err(fault)?;
        rows.iter().map(|row| text(row, "name")).collect()
    }
}
