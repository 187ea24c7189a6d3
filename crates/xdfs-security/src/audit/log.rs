//! Events in the program's log: logins and transfers at the level info, refused logins at warn,
//! changes and files opened in place at debug.
//!
//! A transfer is one line, written at its end, and so is a pack of small files: nothing is
//! formatted while payload moves. Values are quoted and escaped by the log.

use tracing::{Level, debug, enabled, info, warn};

use super::{Event, Kind};

/// Where the lines come from, for whoever reads them.
const TARGET: &str = "xdfs::server";
/// Longest text of a peer in a line, in bytes.
const TEXT_BYTES_MAX: usize = 1024;

pub(super) fn log(event: &Event<'_>) {
    let is_wanted = match event.kind {
        Kind::Authenticate if event.result.is_some() => enabled!(target: TARGET, Level::WARN),
        Kind::Authenticate
        | Kind::Download
        | Kind::Refuse
        | Kind::ThirdParty
        | Kind::Tunnel
        | Kind::TunnelEnd
        | Kind::Upload => {
            enabled!(target: TARGET, Level::INFO)
        }
        Kind::Change | Kind::Close | Kind::Open => enabled!(target: TARGET, Level::DEBUG),
        _ => false,
    };
    if !is_wanted {
        return;
    }
    // Empty texts are left out, as are fields without a value.
    let [user, key, from, door, operation] = [
        event.user,
        event.key,
        event.from,
        event.door,
        event.operation,
    ]
    .map(|text| shown(text.as_bytes()));
    let [user, key, from] = [user.as_deref(), key.as_deref(), from.as_deref()];
    let [door, operation] = [door.as_deref(), operation.as_deref()];
    let (path, to) = (shown(event.path), shown(event.to));
    let (path, to) = (path.as_deref(), to.as_deref());
    let method = event.method.map(|method| method.as_str());
    let outcome = event.result.map_or("ok", |code| code.as_str());
    let elapsed = event.elapsed.map(|elapsed| elapsed.as_secs_f64());
    let seconds = elapsed.map(|seconds| (seconds * 1e3).round() / 1e3);
    let (bytes, written) = (event.bytes, event.written);
    let (entries, failed, repeats) = (event.entries, event.failed, event.repeats);
    let kind = event.kind.as_str();
    match (event.kind, event.result) {
        (Kind::Authenticate, None) => {
            let subject = shown(event.subject.as_bytes());
            let subject = subject.as_deref();
            info!(target: TARGET, user, method, key, subject, from, door, "login");
        }
        (Kind::Authenticate, Some(_)) => {
            warn!(
                target: TARGET,
                user, method, key, from, door, outcome, repeats, "login refused"
            );
        }
        (Kind::Refuse, _) => {
            info!(target: TARGET, operation, path, outcome, user, key, from, door, "refused");
        }
        (Kind::ThirdParty, _) => {
            info!(target: TARGET, operation, path, to, user, key, from, door, "{kind}");
        }
        (Kind::Tunnel | Kind::TunnelEnd, _) => {
            info!(
                target: TARGET,
                operation, path, bytes, written, seconds, outcome, user, key, from, door, "{kind}"
            );
        }
        (Kind::Download | Kind::Upload, _) => {
            info!(
                target: TARGET,
                path, bytes, seconds, entries, failed, outcome, user, key, from, door, "{kind}"
            );
        }
        _ => {
            debug!(
                target: TARGET,
                operation, path, to, bytes, written, outcome, user, key, from, door, "{kind}"
            );
        }
    }
}

/// The beginning of a text; `None` if it is empty.
fn shown(text: &[u8]) -> Option<String> {
    let text = &text[..text.len().min(TEXT_BYTES_MAX)];
    (!text.is_empty()).then(|| String::from_utf8_lossy(text).into_owned())
}
