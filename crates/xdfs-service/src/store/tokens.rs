//! API tokens.

use xdfs::{Code, Fault};

use super::rows::{damaged, text, time};
use super::{Row, Store, fault};
use crate::access::record::{Token, TokenRow};
use crate::time::Time;

/// Most tokens of a user.
const TOKENS_MAX: i64 = 200;

fn token(row: &Row) -> Result<TokenRow, Fault> {
    let at = |column| time(row, column)?.ok_or_else(|| damaged("a token without a time"));
    Ok(TokenRow {
        digest: text(row, "digest")?,
        info: Token {
            id: text(row, "id")?,
            owner: text(row, "owner")?,
            label: text(row, "label")?,
            scope: text(row, "scope")?.parse()?,
            created_at: at("created_at")?,
            ends_at: at("ends_at")?,
        },
    })
}

impl Store {
    /// Remembers a token, and forgets those that have ended.
    ///
    /// # Errors
    /// The user has too many.
    pub(crate) async fn add_token(
        &self,
        TokenRow { info, digest }: &TokenRow,
    ) -> Result<(), Fault> {
        let mut transaction = self.begin().await?;
        sqlx::query("DELETE FROM tokens WHERE ends_at < $1")
            .bind(Time::now().microseconds())
            .execute(&mut *transaction)
            .await
            .map_err(fault)?;
        let added = sqlx::query(
            "INSERT INTO tokens (id, digest, owner, label, scope, created_at, ends_at)
             SELECT $1, $2, $3, $4, $5, $6, $7
             WHERE (SELECT COUNT(*) FROM tokens WHERE owner = $3) < $8",
        )
        .bind(&info.id)
        .bind(digest)
        .bind(&info.owner)
        .bind(&info.label)
        .bind(info.scope.as_str())
        .bind(info.created_at.microseconds())
        .bind(info.ends_at.microseconds())
        .bind(TOKENS_MAX)
        .execute(&mut *transaction)
        .await
        .map_err(fault)?;
        if added.rows_affected() == 0 {
            let cause = format!("the user has {TOKENS_MAX} already");
            let fault = Fault::new(Code::LimitExceeded, "make a token", cause);
            return Err(fault.hint("revoke those that aren't used"));
        }
        transaction.commit().await
    }

    /// A token that hasn't ended.
    pub(crate) async fn token(&self, id: &str) -> Result<Option<TokenRow>, Fault> {
        let row = sqlx::query("SELECT * FROM tokens WHERE id = $1 AND ends_at >= $2")
            .bind(id)
            .bind(Time::now().microseconds())
            .fetch_optional(&self.pool)
            .await
            .map_err(fault)?;
        row.as_ref().map(token).transpose()
    }

    /// The tokens of a user, or of all, that haven't ended, the newest first.
    pub(crate) async fn tokens(&self, owner: Option<&str>) -> Result<Vec<Token>, Fault> {
        let rows = sqlx::query(
            "SELECT * FROM tokens WHERE ends_at >= $1 AND owner = COALESCE($2, owner)
             ORDER BY created_at DESC, id",
        )
        .bind(Time::now().microseconds())
        .bind(owner)
        .fetch_all(&self.pool)
        .await
        .map_err(fault)?;
        rows.iter().map(|row| Ok(token(row)?.info)).collect()
    }

    /// Revokes a token of a user, or of any.
    ///
    /// # Errors
    /// There is none.
    pub(crate) async fn revoke_token(&self, id: &str, owner: Option<&str>) -> Result<(), Fault> {
        let revoked = self
            .write(
                sqlx::query("DELETE FROM tokens WHERE id = $1 AND owner = COALESCE($2, owner)")
                    .bind(id)
                    .bind(owner),
            )
            .await?;
        match revoked.rows_affected() {
            0 => {
                let cause = "there is none with this id";
                Err(Fault::new(Code::NotFound, "revoke the token", cause).path(id))
            }
            _ => Ok(()),
        }
    }
}
