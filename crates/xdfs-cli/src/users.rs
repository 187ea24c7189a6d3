//! `xdfs whoami`, `keygen`, `trust` and `user`: identities and trust.

use std::io::IsTerminal as _;
use std::path::Path;

use xdfs::record::Record;
use xdfs::security::{KnownHosts, UsersFile, host_port, trusted};
use xdfs::settings::{Secret, UserFolder, make_user_key, user_name};
use xdfs::{
    Address, ClientOptions, Code, Fault, LocalPlace, Resume, TransferOptions, TransferParameters,
};

use crate::console::{Console, printable};
use crate::context::Context;
use crate::exit_codes::SUCCESS;
use crate::flags::{KeygenFlags, OutputFlags, TrustCommand, UserCommand, WhoamiFlags};
use crate::log::start_log;
use crate::perf::server_only;
use crate::report::print;
use crate::secret;
use crate::server_config::{folder_of, server_folder};

/// Characters that a new password has at least.
const PASSWORD_CHARS_MIN: usize = 8;

fn done(result: Result<(), Fault>) -> u8 {
    match result {
        Ok(()) => SUCCESS,
        Err(fault) => {
            Console::new(OutputFlags::default()).error(&fault);
            fault.exit_code()
        }
    }
}

/// Runs `xdfs whoami` and returns the exit code.
pub(crate) fn whoami(context: &Context, flags: &WhoamiFlags) -> u8 {
    start_log(None);
    let outcome = ask_server(context, flags);
    if let (true, Err(fault)) = (flags.json, &outcome) {
        // A failure to print is that of the command, which is reported below.
        let _ = print(Record::operand_error(Some(&flags.server), fault).line());
    }
    done(outcome)
}

fn ask_server(context: &Context, flags: &WhoamiFlags) -> Result<(), Fault> {
    let place = server_only(context.config()?, &flags.server)?;
    let options = ClientOptions {
        channels: Some(1),
        drivers: flags.stack.drivers()?,
        ..ClientOptions::default()
    };
    let client = context.connect(&place, options, &flags.security)?;
    // A session is open once a transfer has ended, even one of no bytes.
    let nothing = TransferOptions {
        parameters: TransferParameters {
            overwrite: true,
            resume: Resume::Never,
            dry_run: true,
            ..TransferParameters::default()
        },
        length: Some(0),
        ..TransferOptions::default()
    };
    let transfer = client.upload(&LocalPlace::Memory, b"mem:null", &nothing)?;
    let outcome = transfer.wait();
    // Even after a refusal the server is trusted now.
    if let Some(server) = client.first_use() {
        Console::new(OutputFlags::default()).first_use(&server, !flags.json);
    }
    let (user, fingerprint) = (client.user(), client.server_fingerprint());
    if flags.json {
        if user.is_none() || fingerprint.is_none() {
            outcome?;
        }
        let identity = Record::identity(&flags.server, user.as_deref(), fingerprint);
        return print(identity.line());
    }
    match (user, fingerprint) {
        (Some(user), Some(fingerprint)) => {
            print(format!("{}\nserver {fingerprint}\n", printable(&user)))
        }
        _ => {
            outcome?;
            print("nobody: the channel has no protection\n")
        }
    }
}

/// Runs `xdfs keygen` and returns the exit code.
pub(crate) fn keygen(flags: KeygenFlags) -> u8 {
    done(make_key(flags))
}

fn make_key(flags: KeygenFlags) -> Result<(), Fault> {
    let path = match flags.file {
        Some(path) => path,
        None => {
            let own = UserFolder::find()?.key();
            // An earlier connection may have made it.
            if let Ok(line) = std::fs::read_to_string(own.with_extension("pub")) {
                let shown = own.display();
                Console::new(OutputFlags::default()).info(&format!("the key {shown} exists"));
                return print(format!("{}\n", line.trim_end()));
            }
            own
        }
    };
    let public = make_user_key(&path)?;
    let comment = format!("{} xdfs", user_name());
    print(format!("{}\n", public.to_line(&comment).trim_end()))
}

/// Runs `xdfs trust` and returns the exit code.
pub(crate) fn trust(command: TrustCommand) -> u8 {
    done(change_trust(command))
}

fn change_trust(command: TrustCommand) -> Result<(), Fault> {
    let mut hosts = KnownHosts::load(&UserFolder::find()?.known_hosts())?;
    match command {
        TrustCommand::List => {
            let lines: String = hosts
                .list()
                .map(|known| format!("{} {}\n", printable(&known.host), known.fingerprint))
                .collect();
            print(lines)?;
        }
        TrustCommand::Add { host, fingerprint } => {
            hosts.add(&known_name(&host)?, fingerprint, "")?;
        }
        TrustCommand::Remove { host } => {
            let host = known_name(&host)?;
            if hosts.remove(&host)? == 0 {
                let cause = "it isn't known";
                return Err(Fault::new(Code::NotFound, "forget the server", cause)
                    .path(host)
                    .hint("`xdfs trust list` prints those that are"));
            }
        }
    }
    Ok(())
}

/// The name of a server in the known hosts file.
fn known_name(text: &str) -> Result<String, Fault> {
    match text.parse()? {
        Address::Host { host, port } => host_port(&host, port),
        _ => Ok(text.to_owned()),
    }
}

/// Runs `xdfs user` and returns the exit code.
pub(crate) fn user(command: UserCommand, config: Option<&Path>) -> u8 {
    done(change_users(command, config))
}

/// Asks for a new password: on a terminal twice.
fn new_password() -> Result<String, Fault> {
    let ask = |prompt: &str| {
        secret::ask(&Secret {
            prompt: prompt.into(),
            operation: "read the password",
        })
    };
    let password = ask("New password: ")?;
    let refused = |cause: &str| Fault::new(Code::InvalidArgument, "set the password", cause);
    if password.chars().count() < PASSWORD_CHARS_MIN {
        let cause = format!("it has less than {PASSWORD_CHARS_MIN} characters");
        return Err(refused(&cause));
    }
    let is_typed = std::io::stdin().is_terminal();
    if is_typed && ask("The same again: ")? != password {
        return Err(refused("the two are not the same"));
    }
    Ok(password)
}

/// The names of all users: none while there is no file of them.
fn names(users: &UsersFile) -> Result<Vec<String>, Fault> {
    match users.list() {
        Err(fault) if fault.code == Code::NotFound => Ok(Vec::new()),
        names => names,
    }
}

fn change_users(command: UserCommand, config: Option<&Path>) -> Result<(), Fault> {
    let folder = match config {
        Some(config) => folder_of(config)?,
        None => server_folder()?,
    };
    trusted::make_folder("create the key directory", &folder)?;
    trusted::check_folder("open the folder of the server", &folder)?;
    let users = UsersFile::new(folder.join("users"));
    match command {
        UserCommand::Add { name } => {
            // Before the password is typed.
            if names(&users)?.contains(&name) {
                let cause = "there is a user of this name";
                return Err(Fault::new(Code::AlreadyExists, "add the user", cause)
                    .path(&name)
                    .hint("change the password with `xdfs user passwd`"));
            }
            users.add(&name, &new_password()?)
        }
        UserCommand::Passwd { name } => users.set_password(&name, &new_password()?),
        UserCommand::Remove { name } => users.remove(&name),
        UserCommand::List => {
            let mut text = names(&users)?.join("\n");
            if !text.is_empty() {
                text.push('\n');
            }
            print(text)
        }
    }
}
