//! The parameters of GET and PUT (GFD.47): a path, and how its data connections come about.
//!
//! ```text
//!  GET path=/d/a;pasv;                     the server listens, and tells where by reply 127
//!  GET path=/d/a;port=127,0,0,1,135,225;   the server connects
//!  GET path=/d/a;                          as the last PASV or PORT says
//! ```
//!
//! A parameter is `name;` or `name=value;`, in any order and either case, and the last semicolon
//! may be left out. The protocol has no escapes, and clients send names as they are: so a semicolon
//! in a path is taken as part of it, but one before what reads as a parameter isn't taken there.

use std::net::SocketAddr;

use crate::address::parse_host_port;
use crate::command::{CommandError, Mode};

/// How the data connections of a transfer come about.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Route {
    /// This side connects there.
    Connect(SocketAddr),
    /// This side listens, and tells where once it knows that it can serve the transfer.
    Passive,
    /// As was told before, or over those of the last transfer.
    #[default]
    Told,
}

/// The parameters of a transfer.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Request {
    /// How bytes are laid on data connections in this transfer; `None` for what MODE has set.
    pub mode: Option<Mode>,
    /// The file, as the client wrote it.
    pub path: Vec<u8>,
    /// Its data connections.
    pub route: Route,
}

const FORM: CommandError =
    CommandError::Argument("path=PATH; and pasv; or port=h1,h2,h3,h4,p1,p2;");
const UNCLEAR: CommandError = CommandError::Parameter(
    "a parameter isn't known, or the name looks like some: use RETR or STOR for it",
);

/// What a part between two semicolons is.
enum Part<'a> {
    Mode(&'a [u8]),
    Passive,
    Path,
    Port(&'a [u8]),
    /// With a value, and a name that means nothing here.
    Unknown,
    /// No parameter: a piece of a path.
    Text,
}

impl Part<'_> {
    fn of(part: &[u8]) -> Part<'_> {
        let Some(at) = part.iter().position(|byte| *byte == b'=') else {
            return match part.eq_ignore_ascii_case(b"pasv") {
                true => Part::Passive,
                false => Part::Text,
            };
        };
        let (name, value) = (&part[..at], &part[at + 1..]);
        match name.to_ascii_lowercase().as_slice() {
            b"mode" => Part::Mode(value),
            b"path" => Part::Path,
            b"port" => Part::Port(value),
            name if !name.is_empty() && name.iter().all(u8::is_ascii_alphanumeric) => Part::Unknown,
            _ => Part::Text,
        }
    }
}

impl Request {
    /// Reads the parameters.
    ///
    /// # Errors
    /// There is no path, a parameter isn't known or comes twice, or its value makes no sense.
    pub fn parse(text: &[u8]) -> Result<Self, CommandError> {
        let parts: Vec<_> = text
            .strip_suffix(b";")
            .unwrap_or(text)
            .split(|b| *b == b';')
            .collect();
        let mut kinds = parts.iter().map(|part| Part::of(part));
        let start = kinds.position(|part| matches!(part, Part::Path));
        let start = start.ok_or(FORM)?;
        let is_text = |part: &&[u8]| matches!(Part::of(part), Part::Text);
        let last = parts[start + 1..].iter().rposition(is_text);
        let end = start + 1 + last.map_or(0, |last| last + 1);
        if !parts[start + 1..end].iter().all(is_text) {
            return Err(UNCLEAR);
        }
        let mut seen = Seen::default();
        for part in parts[..start].iter().chain(&parts[end..]) {
            seen.note(part)?;
        }
        let path = parts[start..end].join(&b';');
        let path = path[b"path=".len()..].to_vec();
        match path.is_empty() {
            true => Err(FORM),
            false => Ok(Self {
                mode: seen.mode,
                path,
                route: seen.route.unwrap_or_default(),
            }),
        }
    }
}

/// The parameters beside the path.
#[derive(Default)]
struct Seen {
    mode: Option<Mode>,
    route: Option<Route>,
}

impl Seen {
    fn note(&mut self, part: &[u8]) -> Result<(), CommandError> {
        let route = match Part::of(part) {
            Part::Mode(value) if self.mode.is_none() => {
                self.mode = Some(match value {
                    b"S" | b"s" => Mode::Stream,
                    b"E" | b"e" => Mode::Extended,
                    _ => return Err(CommandError::Parameter("there are mode=S; and mode=E;")),
                });
                return Ok(());
            }
            Part::Passive => Route::Passive,
            Part::Port(value) => Route::Connect(parse_host_port(value).ok_or(FORM)?),
            Part::Unknown => return Err(UNCLEAR),
            Part::Mode(_) | Part::Path | Part::Text => return Err(FORM),
        };
        match self.route.replace(route) {
            None => Ok(()),
            Some(_) => Err(FORM),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(text: &str) -> Result<(String, Route, Option<Mode>), CommandError> {
        let request = Request::parse(text.as_bytes())?;
        let path = String::from_utf8(request.path).unwrap();
        Ok((path, request.route, request.mode))
    }

    #[test]
    fn parameters_are_read_in_any_order() {
        let port = Route::Connect("127.0.0.1:258".parse().unwrap());
        for (text, path, route, mode) in [
            ("path=/d/a;pasv;", "/d/a", Route::Passive, None),
            ("path=/d/a;port=127,0,0,1,1,2;", "/d/a", port, None),
            ("PASV;Path=/d/a b", "/d/a b", Route::Passive, None),
            ("path=a;", "a", Route::Told, None),
            (
                "mode=E;path=a;pasv",
                "a",
                Route::Passive,
                Some(Mode::Extended),
            ),
            (
                "path=a;mode=s;pasv",
                "a",
                Route::Passive,
                Some(Mode::Stream),
            ),
            // Names with what separates.
            ("path=/a;1;pasv;", "/a;1", Route::Passive, None),
            ("path=/a=b;pasv;", "/a=b", Route::Passive, None),
            ("path=/a; =b;pasv;", "/a; =b", Route::Passive, None),
            ("path=/a;;pasv;", "/a;", Route::Passive, None),
        ] {
            assert_eq!(read(text), Ok((path.to_owned(), route, mode)), "{text}");
        }
    }

    #[test]
    fn nonsense_is_refused() {
        for text in [
            "",
            ";",
            "pasv;",
            "path=;pasv;",
            "path;pasv;",
            "/a",
            "path=/a;path=/b;pasv;",
            "path=/a;mode=E;mode=E;pasv;",
            "path=/a;mode=Q;pasv;",
            "path=/a;port=1,2,3;",
            "path=/a;port=127,0,0,1,1,2;port=127,0,0,1,1,2;",
            "pasv;path=/a;port=127,0,0,1,1,2;",
            "path=/a;pasv;port=127,0,0,1,1,2;",
            "path=/a;port=127,0,0,1,1,2;pasv;",
            "path=/a;pasv;x;pasv;",
            "path=/a;port=127,0,0,1,1,2;x;",
            "pasv;pasv;path=/a;",
            "path=/a;size=1;pasv;",
            "path=/a;size=1;b;pasv;",
            "x;path=/a;pasv;",
        ] {
            assert!(read(text).is_err(), "{text}: {:?}", read(text));
        }
        // As many parts as a line has room for.
        let many = format!("path={};pasv;", ";a".repeat(4000));
        assert_eq!(read(&many).unwrap().0.len(), 8000);
        let many = format!("path=/a;{}", "pasv;".repeat(1600));
        assert_eq!(read(&many), Err(FORM));
    }
}
