//! `xdfs proxy`: proxies of the Grid Security Infrastructure.

use std::path::PathBuf;
use std::time::{SystemTime, UNIX_EPOCH};

use xdfs::gsi::{
    Credential, Description, Form, ProxyOptions, proxy_path, read_proxy, remove_proxy, user_file,
    write_proxy,
};
use xdfs::{Code, Fault};

use crate::console::{Console, printable};
use crate::exit_codes::SUCCESS;
use crate::flags::{OutputFlags, ProxyCommand, ProxyFile, ProxyInitFlags};
use crate::interrupt::read_hidden_line;
use crate::report::print;

/// Runs `xdfs proxy` and returns the exit code.
pub(crate) fn run(command: &ProxyCommand) -> u8 {
    let done = match command {
        ProxyCommand::Init(flags) => init(flags),
        ProxyCommand::Info { file } => info(file),
        ProxyCommand::Destroy { file } => remove_proxy(&path_of(file)),
    };
    match done {
        Ok(()) => SUCCESS,
        Err(fault) => {
            Console::new(OutputFlags::default()).error(&fault);
            fault.exit_code()
        }
    }
}

fn path_of(file: &ProxyFile) -> PathBuf {
    file.file.clone().unwrap_or_else(proxy_path)
}

fn init(flags: &ProxyInitFlags) -> Result<(), Fault> {
    let certificate = flags
        .cert
        .clone()
        .unwrap_or_else(|| user_file("usercert.pem"));
    let key = flags
        .key
        .clone()
        .unwrap_or_else(|| user_file("userkey.pem"));
    let ask = || {
        let line = read_hidden_line(&format!("Password of {}: ", key.display()));
        let line = line.map_err(|error| Fault::from_io("read the password", "", &error))?;
        Ok(line.trim_end_matches(['\r', '\n']).to_owned().into())
    };
    let issuer = Credential::open_with(&certificate, &key, ask)?;
    let options = ProxyOptions {
        form: if flags.legacy {
            Form::Legacy
        } else {
            Form::Rfc3820
        },
        is_limited: flags.limited,
        path_length: flags.path_length,
        lifetime: flags.valid,
        key_bits: flags.bits,
    };
    let path = path_of(&flags.file);
    let made = write_proxy(&issuer, &options, &path)?;
    print(shown(&made, &path))
}

fn info(file: &ProxyFile) -> Result<(), Fault> {
    let path = path_of(file);
    let found = read_proxy(&path)?;
    print(shown(&found, &path))?;
    if left_s(&found) == 0 {
        let fault = Fault::new(
            Code::AuthenticationFailed,
            "read the proxy",
            "it has expired",
        );
        return Err(fault.hint("make another one with `xdfs proxy init`"));
    }
    Ok(())
}

/// Seconds until it ends.
fn left_s(proxy: &Description) -> i64 {
    let now = SystemTime::now()
        .duration_since(UNIX_EPOCH)
        .unwrap_or_default();
    let now_s = i64::try_from(now.as_secs()).unwrap_or(i64::MAX);
    proxy.ends_s.saturating_sub(now_s).max(0)
}

fn shown(proxy: &Description, path: &std::path::Path) -> String {
    let form = match proxy.form {
        Some(Form::Legacy) => "before RFC 3820",
        _ => "RFC 3820",
    };
    let limited = if proxy.is_limited { ", limited" } else { "" };
    let length = proxy.path_length;
    let length = length.map_or(String::new(), |most| format!(", {most} more from it"));
    let identity = proxy.identity.as_deref().unwrap_or("unknown");
    let left_s = left_s(proxy);
    format!(
        "identity  {}\nsubject   {}\nkind      {form}{limited}{length}\nkey       {} bits\n\
         file      {}\nleft      {}:{:02}:{:02}\n",
        printable(identity),
        printable(&proxy.subject),
        proxy.key_bits,
        path.display(),
        left_s / 3600,
        left_s / 60 % 60,
        left_s % 60,
    )
}
