//! Events as lines of JSON.

use std::fmt::Write;

use serde::Serialize;

use super::{Event, time};

/// Maximum length of a line in bytes, including its end. Longer paths are truncated.
pub const LINE_BYTES_MAX: usize = 16_384;

/// Maximum length of a user and of an address, in bytes of their escaped form.
const NAME_BYTES_MAX: usize = 256;
/// Maximum length of the subject of a certificate, in bytes of its escaped form.
const SUBJECT_BYTES_MAX: usize = 512;
/// Maximum length of a path. JSON only doubles backslashes and quotes: other characters that it
/// would escape are escaped before.
const PATH_BYTES_MAX: usize = 3200;
/// Everything except the paths: field names, time, door, and numbers.
const OTHER_BYTES_MAX: usize = 640 + 2 * 2 * NAME_BYTES_MAX + 2 * SUBJECT_BYTES_MAX;
const _: () = assert!(OTHER_BYTES_MAX + 2 * 2 * PATH_BYTES_MAX < LINE_BYTES_MAX);

#[derive(Serialize)]
struct AuditRecord<'a> {
    time: &'a str,
    event: &'a str,
    #[serde(skip_serializing_if = "str::is_empty")]
    door: &'a str,
    #[serde(skip_serializing_if = "str::is_empty")]
    user: &'a str,
    #[serde(skip_serializing_if = "Option::is_none")]
    method: Option<&'a str>,
    #[serde(skip_serializing_if = "str::is_empty")]
    key: &'a str,
    #[serde(skip_serializing_if = "str::is_empty")]
    subject: &'a str,
    #[serde(skip_serializing_if = "str::is_empty")]
    from: &'a str,
    #[serde(skip_serializing_if = "str::is_empty")]
    operation: &'a str,
    #[serde(skip_serializing_if = "str::is_empty")]
    path: &'a str,
    #[serde(skip_serializing_if = "str::is_empty")]
    to: &'a str,
    /// A path, the user, the subject or the address was truncated.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    cut: bool,
    #[serde(skip_serializing_if = "Option::is_none")]
    bytes: Option<u64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    entries: Option<u64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    failed: Option<u64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    written: Option<u64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    seconds: Option<f64>,
    result: &'a str,
    #[serde(skip_serializing_if = "Option::is_none")]
    session: Option<&'a str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    repeats: Option<u64>,
}

/// Encodes an event as a line, including its end.
pub(super) fn encode(event: &Event<'_>) -> Vec<u8> {
    let mut cut = false;
    let user = shown(event.user.as_bytes(), NAME_BYTES_MAX, &mut cut);
    let from = shown(event.from.as_bytes(), NAME_BYTES_MAX, &mut cut);
    let subject = shown(event.subject.as_bytes(), SUBJECT_BYTES_MAX, &mut cut);
    let path = shown(event.path, PATH_BYTES_MAX, &mut cut);
    let to = shown(event.to, PATH_BYTES_MAX, &mut cut);
    let session = event.session.map(|session| session.to_string());
    let line = AuditRecord {
        time: &time::rfc3339(event.time),
        event: event.kind.as_str(),
        door: event.door,
        user: &user,
        method: event.method.map(|method| method.as_str()),
        key: event.key,
        subject: &subject,
        from: &from,
        operation: event.operation,
        path: &path,
        to: &to,
        cut,
        bytes: event.bytes,
        entries: event.entries,
        failed: event.failed,
        written: event.written,
        seconds: event
            .elapsed
            .map(|elapsed| (elapsed.as_secs_f64() * 1e3).round() / 1e3),
        result: event.result.map_or("ok", |code| code.as_str()),
        session: session.as_deref(),
        repeats: event.repeats,
    };
    // Text and numbers can always be serialised.
    let mut line = serde_json::to_vec(&line).unwrap_or_default();
    line.push(b'\n');
    line
}

/// The bytes as text of at most `most` bytes: bytes that aren't UTF-8 as `\xNN`, invisible
/// characters as `\u{N}`, and a backslash as two, so that the text is unambiguous.
fn shown(bytes: &[u8], most: usize, cut: &mut bool) -> String {
    let mut text = String::new();
    // No more than these bytes can be shown.
    for chunk in bytes[..bytes.len().min(most + 4)].utf8_chunks() {
        for c in chunk.valid().chars() {
            let before = text.len();
            // Writing to a string can't fail.
            let _ = match c {
                '\\' => text.write_str("\\\\"),
                c if is_visible(c) => text.write_char(c),
                c => write!(text, "{}", c.escape_unicode()),
            };
            if text.len() > most {
                text.truncate(before);
                *cut = true;
                return text;
            }
        }
        for byte in chunk.invalid() {
            if text.len() + 4 > most {
                *cut = true;
                return text;
            }
            let _ = write!(text, "\\x{byte:02x}");
        }
    }
    *cut |= bytes.len() > most + 4;
    text
}

/// Neither a control character, nor one that changes the text direction, nor a line separator.
fn is_visible(c: char) -> bool {
    !c.is_control()
        && !matches!(c, '\u{200b}'..='\u{200f}' | '\u{2028}'..='\u{202e}')
        && !matches!(c, '\u{2060}'..='\u{206f}' | '\u{feff}')
}
