//! `xdfs token` and `xdfs secret`: what a user has at the service.

use std::path::Path;

use xdfs::security::trusted::{self, Secrecy};
use xdfs::settings::Secret;
use xdfs::{Code, Fault};
use xdfs_service::{
    SecretInfo, SecretKind, SecretRequest, ServiceClient, ServiceLogin, Token, TokenRequest,
};

use crate::console::printable;
use crate::exit_codes::SUCCESS;
use crate::flags::{AccountFlags, SecretCommand, TokenCommand};
use crate::jobs::{client, client_of, exit_code, print_json};
use crate::report::print;
use crate::secret;

const READ_SECRET: &str = "read the secret";
const SECRET_BYTES_MAX: u64 = 64 << 10;

fn service(account: &AccountFlags) -> Result<ServiceClient, Fault> {
    let Some(user) = &account.user else {
        return client(&account.reach.way);
    };
    let password = secret::ask(&Secret {
        prompt: format!("Password of {user} at the service: "),
        operation: "read the password",
    })?;
    client_of(
        &account.reach.way,
        &ServiceLogin::Password(user.clone(), password),
    )
}

/// Runs `xdfs token` and returns the exit code.
pub(crate) fn token(command: &TokenCommand) -> u8 {
    exit_code(change_tokens(command).map(|()| SUCCESS))
}

fn change_tokens(command: &TokenCommand) -> Result<(), Fault> {
    match command {
        TokenCommand::Create {
            scope,
            label,
            days,
            account,
        } => {
            let made = service(account)?.make_token(&TokenRequest {
                label: label.clone(),
                scope: *scope,
                days: *days,
            })?;
            match account.reach.json {
                true => print_json(&made),
                false => print(format!("{}\n", made.token)),
            }
        }
        TokenCommand::List(account) => {
            let page = service(account)?.tokens()?;
            page.tokens
                .iter()
                .try_for_each(|token| match account.reach.json {
                    true => print_json(token),
                    false => print(token_line(token)),
                })
        }
        TokenCommand::Revoke { id, account } => service(account)?.revoke_token(id),
    }
}

fn token_line(token: &Token) -> String {
    let (owner, label) = (printable(&token.owner), printable(&token.label));
    let (id, scope, end) = (printable(&token.id), token.scope.as_str(), token.ends_at);
    let label = match token.label.is_empty() {
        true => String::new(),
        false => format!("  ({label})"),
    };
    format!("{id}  {scope:<6}  until {end}  {owner}{label}\n")
}

/// Runs `xdfs secret` and returns the exit code.
pub(crate) fn secret(command: &SecretCommand) -> u8 {
    exit_code(change_secrets(command).map(|()| SUCCESS))
}

/// The secret in a file: as it is, if it is a key, and else its first line.
fn read_file(file: &Path, kind: SecretKind) -> Result<String, Fault> {
    let text = trusted::read(READ_SECRET, file, SECRET_BYTES_MAX, Secrecy::Secret)?;
    let text = str::from_utf8(&text).map_err(|_| {
        let fault = Fault::new(Code::InvalidArgument, READ_SECRET, "it isn't UTF-8");
        fault.path(file.as_os_str().as_encoded_bytes())
    })?;
    Ok(match kind {
        SecretKind::Key => text.to_owned(),
        _ => text.lines().next().unwrap_or_default().to_owned(),
    })
}

fn change_secrets(command: &SecretCommand) -> Result<(), Fault> {
    match command {
        SecretCommand::Set {
            name,
            kind,
            server,
            file,
            account,
        } => {
            let client = service(account)?;
            let value = match file {
                Some(file) => read_file(file, *kind)?,
                None if *kind == SecretKind::Key => {
                    let cause = "a key has several lines";
                    let fault = Fault::new(Code::InvalidArgument, READ_SECRET, cause);
                    return Err(fault.hint("name its file with --file"));
                }
                None => secret::ask(&Secret {
                    prompt: format!("The {kind} {name}: "),
                    operation: READ_SECRET,
                })?,
            };
            let set = client.set_secret(
                name,
                &SecretRequest {
                    kind: *kind,
                    value,
                    server: server.clone(),
                },
            )?;
            match account.reach.json {
                true => print_json(&set),
                false => Ok(()),
            }
        }
        SecretCommand::List(account) => {
            let page = service(account)?.secrets()?;
            page.secrets
                .iter()
                .try_for_each(|secret| match account.reach.json {
                    true => print_json(secret),
                    false => print(secret_line(secret)),
                })
        }
        SecretCommand::Remove { name, account } => service(account)?.remove_secret(name),
    }
}

fn secret_line(secret: &SecretInfo) -> String {
    let (name, kind) = (printable(&secret.name), secret.kind.as_str());
    let server = secret.server.as_deref().map(printable);
    let server = server.as_deref().unwrap_or("any that a job names it for");
    format!("{name}  {kind:<8}  {server}\n")
}
