//! The grid-map file, which maps certificate subjects to users.

use std::collections::HashMap;
use std::fmt;
use std::path::PathBuf;
use std::sync::Arc;

use xdfs_proto::{Code, Fault};

use super::name;
use crate::token::user;
use crate::token::watched::Watched;

/// Maximum size of a grid-map file in bytes.
pub const MAX_GRID_MAP_BYTES: usize = 4 * 1024 * 1024;
const OPERATION: &str = "read the grid map";
/// Malformed lines of one version that are logged each.
const LOGGED_LINES_MAX: usize = 10;

/// A map from certificate subjects to users.
///
/// ```text
/// # The format; spaces and tabs separate fields, and a comment may follow.
/// "/DC=org/DC=example/CN=Jane Doe" jane
/// "/DC=org/DC=example/CN=host\x2Fdata.example.org" transfer,backup
/// ```
///
/// Subjects have the form of [`distinguished_name`](super::distinguished_name). Between the quotes,
/// `\"`, `\\` and `\/` stand for the character itself within a value, and `\x` with two hexadecimal
/// digits for a byte; bytes outside ASCII may appear unescaped, in UTF-8. A `/` without a `\`
/// begins a component. A subject without spaces needs no quotes. Several lines for one subject
/// add up.
#[derive(Clone, Default, PartialEq, Eq)]
pub struct GridMap {
    users: HashMap<String, Vec<String>>,
}

impl GridMap {
    /// Parses the content of a file.
    ///
    /// # Errors
    /// [`Code::InvalidArgument`], with the line number, if a line is malformed or names an invalid
    /// user; also if there are more than [`MAX_GRID_MAP_BYTES`].
    pub fn parse(bytes: &[u8]) -> Result<Self, Fault> {
        Self::read(bytes, |line, what| {
            let cause = format!("line {line}: {what}");
            Err(Fault::new(Code::InvalidArgument, OPERATION, cause))
        })
    }

    /// The same, but lines that are malformed are logged and count as if they weren't there.
    fn parse_good_lines(bytes: &[u8]) -> Result<Self, Fault> {
        let mut bad = 0;
        let map = Self::read(bytes, |line, what| {
            bad += 1;
            if bad <= LOGGED_LINES_MAX {
                tracing::warn!(line, "a line of the grid map is left out: {what}");
            }
            Ok(())
        });
        if bad > LOGGED_LINES_MAX {
            tracing::warn!(lines = bad, "so many lines of the grid map are left out");
        }
        map
    }

    fn read(
        bytes: &[u8],
        mut malformed: impl FnMut(usize, &'static str) -> Result<(), Fault>,
    ) -> Result<Self, Fault> {
        if bytes.len() > MAX_GRID_MAP_BYTES {
            let cause = format!("it is longer than {MAX_GRID_MAP_BYTES} bytes");
            return Err(Fault::new(Code::InvalidArgument, OPERATION, cause));
        }
        let mut map = Self::default();
        for (n, line) in bytes.split(|&b| b == b'\n').enumerate() {
            let (subject, users) = match entry(line) {
                Ok(None) => continue,
                Ok(Some(entry)) => entry,
                Err(what) => {
                    malformed(n + 1, what)?;
                    continue;
                }
            };
            let known = map.users.entry(subject).or_default();
            for user in users {
                if !known.iter().any(|k| k == user) {
                    known.push(user.to_owned());
                }
            }
        }
        Ok(map)
    }

    /// The users of all subjects, some more than once.
    pub fn users(&self) -> impl Iterator<Item = &str> {
        self.users.values().flatten().map(String::as_str)
    }

    /// The user of `subject`: `wanted` if it is listed, and the first of the list if `wanted` is
    /// `None`.
    #[must_use]
    pub fn user_for(&self, subject: &str, wanted: Option<&str>) -> Option<&str> {
        let users = self.users.get(subject)?;
        let user = match wanted {
            None => users.first(),
            Some(wanted) => users.iter().find(|user| *user == wanted),
        };
        user.map(String::as_str)
    }
}

impl fmt::Debug for GridMap {
    /// Omits the subjects, which are personal names and may be many.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "GridMap({} subjects)", self.users.len())
    }
}

/// A grid-map file that is reloaded after changes.
///
/// Who was taken out of it must not come in because something else in it is wrong, so the version
/// of before doesn't stay in effect: lines that are malformed are left out, as Globus does it, and
/// a file that can't be read admits nobody until it can.
pub struct GridMapFile(Watched<GridMap>);

impl GridMapFile {
    /// Loads the file.
    ///
    /// # Errors
    /// Those of [`GridMap::parse`], and any error of reading the file.
    pub fn open(path: impl Into<PathBuf>) -> Result<Self, Fault> {
        let max_bytes = MAX_GRID_MAP_BYTES as u64;
        let file = Watched::open(path.into(), max_bytes, OPERATION, GridMap::parse)?;
        Ok(Self(
            file.later(GridMap::parse_good_lines, GridMap::default),
        ))
    }

    /// The present content. `now_unix` is the time in seconds since 1970; when it has changed, the
    /// file is checked. What is malformed is logged.
    #[must_use]
    pub fn current(&self, now_unix: i64) -> Arc<GridMap> {
        self.0.current(now_unix)
    }
}

impl fmt::Debug for GridMapFile {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("GridMapFile").finish_non_exhaustive()
    }
}

/// Parses the subject and users of a line; `None` for an empty line or a comment. The error is the
/// cause.
fn entry(line: &[u8]) -> Result<Option<(String, Vec<&str>)>, &'static str> {
    let line = line.trim_ascii();
    let line = match line.first() {
        None | Some(b'#') => return Ok(None),
        Some(b'"') => quoted(&line[1..])?,
        Some(b'/') => bare(line)?,
        Some(_) => return Err("the subject isn't in quotes"),
    };
    let (subject, rest) = line;
    let spaces = rest.iter().take_while(|b| b" \t".contains(b)).count();
    if spaces == 0 {
        return Err("no user follows the subject");
    }
    let rest = &rest[spaces..];
    let end = rest.iter().position(|b| b" \t".contains(b));
    let (users, after) = rest.split_at(end.unwrap_or(rest.len()));
    if !matches!(after.trim_ascii().first(), None | Some(b'#')) {
        return Err("something follows the users");
    }
    let users: Option<Vec<&str>> = users
        .split(|&b| b == b',')
        .map(|u| std::str::from_utf8(u).ok().filter(|u| user::is_name(u)))
        .collect();
    let users = users.ok_or("a user name is invalid")?;
    Ok(Some((subject, users)))
}

/// Parses a subject without quotes, which has no spaces, and returns the rest.
fn bare(line: &[u8]) -> Result<(String, &[u8]), &'static str> {
    let end = line.iter().position(|b| b" \t".contains(b));
    let (subject, rest) = line.split_at(end.unwrap_or(line.len()));
    match quoted(&[subject, b"\""].concat())? {
        (subject, []) => Ok((subject, rest)),
        _ => Err("the subject has a quote"),
    }
}

/// Parses a subject up to the closing quote, into the form of `distinguished_name`, and returns the
/// rest.
fn quoted(mut line: &[u8]) -> Result<(String, &[u8]), &'static str> {
    let control = "the subject has a control character";
    let mut subject = String::new();
    loop {
        let (&byte, rest) = line.split_first().ok_or("the quote isn't closed")?;
        line = rest;
        let byte = match byte {
            b'"' => break,
            b'/' => {
                subject.push('/');
                continue;
            }
            b'\\' => {
                let (byte, rest) = escape(line).ok_or("the subject has an unknown escape")?;
                line = rest;
                byte
            }
            byte => byte,
        };
        name::push_value(&mut subject, byte).ok_or(control)?;
    }
    let mut components = subject.split('/');
    let begins = components.next() == Some("");
    let proper = |component: &str| {
        component.split_once('=').is_some_and(|(kind, _)| {
            !kind.is_empty() && kind.bytes().all(|b| b.is_ascii_alphanumeric() || b == b'.')
        })
    };
    if begins && subject.len() > 1 && components.all(proper) {
        Ok((subject, line))
    } else {
        Err("the subject isn't of the form \"/type=value/type=value\"")
    }
}

/// Parses an escape after its `\`: the byte, and the rest.
fn escape(line: &[u8]) -> Option<(u8, &[u8])> {
    let digit = |b: u8| {
        char::from(b)
            .to_digit(16)
            .and_then(|d| u8::try_from(d).ok())
    };
    match line {
        [b'x' | b'X', high, low, rest @ ..] => Some((digit(*high)? << 4 | digit(*low)?, rest)),
        [byte @ (b'"' | b'\\' | b'/'), rest @ ..] => Some((*byte, rest)),
        _ => None,
    }
}
