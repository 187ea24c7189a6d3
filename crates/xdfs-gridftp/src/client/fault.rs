//! Replies and broken connections as faults.

use std::io;

use xdfs_proto::{Code, Fault, Retry};
use xdfs_security::trust::client_fault;

use crate::reply::Reply;

/// Bytes of a server's text that are shown at most.
const TEXT_BYTES_MAX: usize = 300;
/// Time until the retry of what the server puts off.
const PUT_OFF_MS: u32 = 500;

/// What a server says, fit for a message.
fn text(reply: &Reply) -> String {
    let words: Vec<_> = reply.lines.iter().map(|line| line.trim_ascii()).collect();
    let joined = words.join(&b' ');
    let part = joined.get(..TEXT_BYTES_MAX).unwrap_or(&joined);
    let text = String::from_utf8_lossy(part);
    text.chars()
        .map(|c| if c.is_control() { '?' } else { c })
        .collect()
}

/// The words of a server, without those of the path that it repeats: they say nothing.
fn without(said: &str, path: &[u8]) -> String {
    let mut words = said.to_ascii_lowercase();
    let path = String::from_utf8_lossy(path).to_ascii_lowercase();
    let name = path.rsplit('/').next().unwrap_or_default();
    for part in [path.as_str(), name] {
        // A shorter one has none of the phrases.
        if part.len() >= 5 {
            words = words.replace(part, " ");
        }
    }
    words
}

/// The fault of a transfer that has come about and broke, which is no reason to go on in another
/// mode: it is tried again.
pub(super) fn broken(fault: Fault) -> Fault {
    match fault.code {
        Code::ConnectionRefused | Code::Unsupported => Fault {
            code: Code::ConnectionLost,
            ..fault
        }
        .retry(Retry::Now),
        _ => fault,
    }
}

/// Whether a refusal can mean that nothing is there, and doesn't say so: some servers have one text
/// for everything.
pub(super) fn is_unclear(reply: &Reply, fault: &Fault) -> bool {
    reply.code == 550 && fault.code == Code::Io
}

/// Whether a refusal to list a directory says that nothing is in it.
pub(super) fn says_empty(reply: &Reply, path: &[u8]) -> bool {
    let words = without(&text(reply), path);
    let says = [
        "no files",
        "no file found",
        "no entries",
        "empty directory",
        "directory empty",
        "directory is empty",
        "nothing found",
    ];
    let is_said = says.iter().any(|part| words.contains(part));
    matches!(reply.code, 450 | 550) && is_said && !words.contains("not empty")
}

/// What the Globus server says of a data connection that broke.
const CUT_OFF: [&str; 4] = [
    "end of file",
    "end-of-file",
    "connection reset",
    "broken pipe",
];

/// The fault for a reply that isn't the wanted one.
pub(super) fn refused(operation: &str, path: &[u8], reply: &Reply) -> Fault {
    let said = text(reply);
    let words = without(&said, path);
    let has = |part: &str| words.contains(part);
    let is_missing = has("no such file") || has("path_not_found");
    let code = match reply.code {
        421 | 426 => Code::ConnectionLost,
        425 => Code::ConnectionRefused,
        430 | 530 | 532 | 331 | 332 => Code::AuthenticationFailed,
        452 | 552 => Code::NoSpace,
        // By its policy (RFC 2228).
        534 => Code::ProtectionRefused,
        // A disk that fails will fail again.
        451 if has("input/output error") => Code::Io,
        400..500 => Code::Busy,
        // The Globus server says so about anything.
        500..=504 if has("no space left") => Code::NoSpace,
        500..=504 if has("denied") || has("not permitted") => Code::PermissionDenied,
        500..=504 if is_missing => Code::NotFound,
        500..=504 if CUT_OFF.iter().any(|words| has(words)) => Code::ConnectionLost,
        500..=504 => Code::Unsupported,
        _ if has("denied") || has("not permitted") || has("permission") => Code::PermissionDenied,
        _ if has("read-only") || has("read only") => Code::ReadOnly,
        _ if is_missing || has("not found") || has("doesn't exist") || has("does not exist") => {
            Code::NotFound
        }
        _ if has("not empty") => Code::NotEmpty,
        _ if has("file exists") || has("path_exists") || has("name is taken") => {
            Code::AlreadyExists
        }
        _ if has("is a directory") => Code::IsDirectory,
        _ if has("not a directory") => Code::NotDirectory,
        _ if has("no space") || has("quota") => Code::NoSpace,
        _ => Code::Io,
    };
    let retry = match reply.code {
        451 if code == Code::Io => Retry::Never,
        452 => Retry::Never,
        421 | 425 | 426 => Retry::Now,
        500..=504 if code == Code::ConnectionLost => Retry::Now,
        400..500 => Retry::AfterMs(PUT_OFF_MS),
        _ => Retry::Never,
    };
    let cause = format!("the server says {} {said}", reply.code);
    let fault = Fault::new(code, operation, cause).path(path).retry(retry);
    match code {
        Code::ProtectionRefused => fault.hint(
            "the server wants more protection: leave out --protect, or use ftps:// or gsiftp:// in \
             place of ftp://",
        ),
        _ => fault,
    }
}

/// The fault of a session in which the Globus server has lost a data node: it then says something
/// like this to every command about files, until there is a new session. `None` if it doesn't say
/// so.
pub(super) fn node_lost(reply: &Reply, is_striped: bool) -> Option<Fault> {
    let operation = "use the data nodes of the server";
    let fault = Some(reply).filter(|reply| reply.code == 500)?;
    let fault = refused(operation, b"", fault);
    let words = text(reply).to_ascii_lowercase();
    let words = words.strip_prefix("command failed").unwrap_or(&words);
    let words = words.trim_start_matches(['.', ':', ' ']);
    let is_node = words.starts_with("ipc failed") || words.starts_with("invalid parameter: ipc");
    // Without stripes it can also mean that the server can't connect to this machine.
    let is_lost = is_node || is_striped && words.starts_with("callback failed");
    // A cause of another kind follows in it, if there is one.
    let is_lost = is_lost && fault.code == Code::Unsupported;
    let code = Code::ConnectionLost;
    is_lost.then(|| Fault { code, ..fault }.retry(Retry::Now))
}

/// The fault of a server that says that it closes the connection.
pub(super) fn closing(reply: &Reply) -> Fault {
    refused("use the control connection", b"", reply)
}

/// The fault of a server that refuses protection: nothing is done without.
pub(super) fn unprotected(operation: &str, command: &str, reply: &Reply) -> Fault {
    let cause = format!(
        "the server refuses {command}: {} {}",
        reply.code,
        text(reply)
    );
    Fault::new(Code::ProtectionRefused, operation, cause).hint(
        "ftp:// with --insecure uses this server without protection: whoever is on the way then \
         reads and changes passwords, names and data",
    )
}

/// The fault of TLS; `None` if it is none.
fn of_tls(operation: &str, error: &io::Error) -> Option<Fault> {
    let error = error.get_ref()?.downcast_ref::<rustls::Error>()?;
    let fault = client_fault(error);
    let floor = "after AUTH TLS, and not from the first byte on, the server has to speak TLS 1.3, \
        or 1.2 with ECDHE, with AES-GCM or ChaCha20, and with the extended master secret; or it \
        wants a certificate (--cert)";
    let fault = match fault.code {
        Code::ProtectionRefused => fault.hint(floor),
        _ => fault,
    };
    Some(match fault.code {
        // Who refuses the server says which operation that is.
        Code::ServerUntrusted => fault,
        _ => Fault {
            operation: operation.to_owned(),
            ..fault
        },
    })
}

/// A fault by which this side refuses a server, or what it sends, by GSI.
pub(super) fn untrusted(fault: Fault, server: &str) -> Fault {
    let fault = match fault.code {
        // In the words of both sides of GSI.
        Code::AuthenticationFailed if fault.operation == "verify the peer" => Fault {
            code: Code::ServerUntrusted,
            operation: format!("verify the server {server}"),
            ..fault
        },
        // A file of an authority can't be used.
        Code::AuthenticationFailed if !fault.path.is_empty() => Fault {
            code: Code::ServerUntrusted,
            ..fault
        },
        _ => fault,
    };
    fault.local()
}

/// The fault of a broken connection.
pub(super) fn lost(operation: &str, error: &io::Error) -> Fault {
    if let Some(fault) = of_tls(operation, error) {
        // An alert is the server's, and whoever transfers files here has no part in it.
        return fault.local();
    }
    if let Some(fault) = error
        .get_ref()
        .and_then(|inner| inner.downcast_ref::<Fault>())
    {
        // What protects the connection refuses what came, at this side.
        return untrusted(fault.clone(), "at the other end of a data connection");
    }
    if error.kind() == io::ErrorKind::PermissionDenied && error.get_ref().is_some() {
        // Another one than the server may have answered; the next time it may be the server.
        let fault = Fault::new(Code::ServerUntrusted, operation, error.to_string());
        return fault.hint("another machine or program may have taken the server's place");
    }
    let fault = Fault::from_io(operation, "", error);
    let code = match fault.code {
        Code::ConnectionRefused | Code::DeadlineExceeded => fault.code,
        _ => Code::ConnectionLost,
    };
    Fault {
        code,
        hint: String::new(),
        retry: Retry::Now,
        ..fault
    }
}

/// The fault of a server that breaks the protocol. Trying again may meet one that doesn't.
pub(super) fn violation(operation: &str, cause: impl Into<String>) -> Fault {
    Fault::new(Code::ProtocolViolation, operation, cause)
}

/// The fault of a connection that ended too early.
pub(super) fn ended(operation: &str, cause: &str) -> Fault {
    Fault::new(Code::ConnectionLost, operation, cause).retry(Retry::Now)
}

/// The fault of a server that does nothing for too long.
pub(super) fn stalled(operation: &str, seconds: u64) -> Fault {
    let cause = format!("the server did nothing for {seconds} s");
    Fault::new(Code::DeadlineExceeded, operation, cause).retry(Retry::Now)
}

/// A fault of the opening of a session, which is the server's, unless this side gives up.
pub(super) fn of_opening(fault: Fault) -> Fault {
    match fault.code {
        Code::ServerUntrusted | Code::Cancelled | Code::InvalidArgument => fault,
        _ => fault.remote(),
    }
}

/// The fault of something that FTP, or this server, has no command for.
pub(super) fn lacking(operation: &str, path: &[u8], cause: &str) -> Fault {
    Fault::new(Code::Unsupported, operation, cause).path(path)
}

/// The fault of a user without the password that the server asks for.
pub(super) fn lacks_password(name: &str) -> Fault {
    let cause = "the server asks for a password";
    let fault = Fault::new(
        Code::AuthenticationFailed,
        format!("log in as {name}"),
        cause,
    );
    fault.hint("--password-file - asks for it, and --password-file FILE reads it")
}
