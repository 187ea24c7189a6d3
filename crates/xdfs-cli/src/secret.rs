//! Asks the user for passwords and tickets.

use std::io::IsTerminal as _;

use xdfs::settings::{Login, Secret};
use xdfs::{Client, Code, Fault, RemotePlace};

use crate::console::{Console, printable};
use crate::flags::OutputFlags;
use crate::interrupt::read_hidden_line;

/// Asks on the terminal without echo, or reads a line of standard input.
///
/// # Errors
/// Nothing can be read, or nothing was typed.
pub(crate) fn ask(secret: &Secret) -> Result<String, Fault> {
    let operation = secret.operation;
    let fault = |e: std::io::Error| Fault::from_io(operation, "", &e);
    let line = if std::io::stdin().is_terminal() {
        read_hidden_line(&printable(&secret.prompt))
    } else {
        let mut line = String::new();
        std::io::stdin().read_line(&mut line).map(|_| line)
    };
    let password = line.map_err(fault)?;
    let password = password.trim_end_matches(['\r', '\n']).to_owned();
    if password.is_empty() {
        return Err(Fault::new(Code::InvalidArgument, operation, "it is empty"));
    }
    Ok(password)
}

/// Whether a password may be asked for if the server refuses the keys, and somebody is there to
/// ask.
pub(crate) fn may_ask_password(login: &Login, place: &RemotePlace) -> bool {
    login.may_ask_password(place) && Console::can_ask()
}

/// Asks for a password if the server has refused the login of `client`, and takes passwords.
/// Returns whether to open another session, with it or after a pause.
///
/// # Errors
/// Nothing can be read, or nothing was typed.
pub(crate) fn asks_password(
    login: &Login,
    place: &RemotePlace,
    client: &Client,
) -> Result<bool, Fault> {
    if !may_ask_password(login, place) {
        return Ok(false);
    }
    login.retry(place, client, |secret, is_again| {
        let mut console = Console::new(OutputFlags::default());
        // The user should know to whom the password goes.
        if let Some(server) = client.first_use() {
            console.first_use(&server, true);
        }
        if is_again {
            console.info("the login was refused: try again");
        }
        ask(secret)
    })
}
