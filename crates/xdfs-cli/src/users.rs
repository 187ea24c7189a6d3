//! `xdfs whoami`, `keygen`, `trust` and `user`: who is who.

use xdfs::security::{KnownHosts, UsersFile, host_port};
use xdfs::{Address, Client, ClientOptions, Code, Fault, LocalPlace, TransferOptions};

use crate::console::{Console, printable};
use crate::exit_codes::SUCCESS;
use crate::flags::{KeygenFlags, OutputFlags, TrustCommand, UserCommand, WhoamiFlags};
use crate::identity;
use crate::perf::server_only;
use crate::report::print;
use crate::serve::server_folder;

fn done(result: Result<(), Fault>) -> u8 {
    match result {
        Ok(()) => SUCCESS,
        Err(fault) => {
            Console::new(OutputFlags::default()).error(&fault);
            fault.code.exit_code()
        }
    }
}

/// Carries out `xdfs whoami` and returns the exit code.
pub(crate) fn whoami(flags: &WhoamiFlags) -> u8 {
    done(ask_server(flags))
}

fn ask_server(flags: &WhoamiFlags) -> Result<(), Fault> {
    let place = server_only(&flags.server)?;
    let options = ClientOptions {
        channels: Some(1),
        security: identity::security(&flags.security, &place)?,
        ..ClientOptions::default()
    };
    let client = Client::connect(&place, options)?;
    // A session is open when something was transferred; nothing is enough.
    let nothing = TransferOptions {
        length: Some(0),
        overwrite: true,
        resume: false,
        dry_run: true,
        ..TransferOptions::default()
    };
    let transfer = client.upload(&LocalPlace::Memory, b"mem:null", &nothing)?;
    let outcome = transfer.wait();
    // Also if the server lets nobody in: it is known now.
    if let Some(server) = client.first_use() {
        Console::new(OutputFlags::default()).first_use(&server, true);
    }
    match (client.user(), client.server_fingerprint()) {
        (Some(user), Some(fingerprint)) => {
            print(format!("{}\nserver {fingerprint}\n", printable(&user)))
        }
        _ => {
            outcome?;
            print("nobody: the channel has no protection\n")
        }
    }
}

/// Carries out `xdfs keygen` and returns the exit code.
pub(crate) fn keygen(flags: KeygenFlags) -> u8 {
    done(make_key(flags))
}

fn make_key(flags: KeygenFlags) -> Result<(), Fault> {
    let path = match flags.file {
        Some(path) => path,
        None => identity::own_key(&identity::folder()?),
    };
    let public = identity::make_own_key(&path)?;
    let comment = format!("{} xdfs", identity::user_name());
    print(format!("{}\n", public.to_line(&comment).trim_end()))
}

/// Carries out `xdfs trust` and returns the exit code.
pub(crate) fn trust(command: TrustCommand) -> u8 {
    done(change_trust(command))
}

fn change_trust(command: TrustCommand) -> Result<(), Fault> {
    let mut hosts = KnownHosts::load(&identity::known_hosts(&identity::folder()?))?;
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

/// The name of a server in the file of those that are known.
fn known_name(text: &str) -> Result<String, Fault> {
    match text.parse()? {
        Address::Tcp { host, port } => host_port(&host, port),
        _ => Ok(text.to_owned()),
    }
}

/// Carries out `xdfs user` and returns the exit code.
pub(crate) fn user(command: UserCommand) -> u8 {
    done(change_users(command))
}

fn change_users(command: UserCommand) -> Result<(), Fault> {
    let folder = server_folder()?;
    identity::make_folder(&folder, "create the key directory")?;
    let users = UsersFile::new(folder.join("users"));
    match command {
        UserCommand::Add { name } => users.add(&name, &identity::ask_password("New password: ")?),
        UserCommand::Passwd { name } => {
            users.set_password(&name, &identity::ask_password("New password: ")?)
        }
        UserCommand::Remove { name } => users.remove(&name),
        UserCommand::List => {
            let mut text = users.list()?.join("\n");
            if !text.is_empty() {
                text.push('\n');
            }
            print(text)
        }
    }
}
