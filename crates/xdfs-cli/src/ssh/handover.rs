//! What a server that was started through ssh tells the command that started it: one line on its
//! standard output.
//!
//! ```text
//! xdfs-over-ssh 1 {"addresses":["192.0.2.7:40123"],"socket":true,"pin":"SHA256:...",...}
//! ```
//!
//! The line holds the server's ticket, and so it travels within ssh and nowhere else. What the
//! user's shell there prints before it is ignored.

use std::io::{BufRead, Read as _};

use serde::{Deserialize, Serialize};
use xdfs::{Code, Fault};

/// The beginning of the line, before its version.
const START: &str = "xdfs-over-ssh ";
/// The version of the line, from which the other one can tell that it won't understand the rest.
const VERSION: &str = "1 ";
/// Most bytes before the end of the line: what shells print at the beginning is not long.
const BYTES_MAX: u64 = 256 << 10;

/// The content of the line.
#[derive(Debug, Deserialize, Serialize)]
pub(super) struct Handover {
    /// The TCP addresses at which it listens.
    pub(super) addresses: Vec<String>,
    /// Whether it listens at the socket that it was given.
    pub(super) socket: bool,
    /// The fingerprint of its key.
    pub(super) pin: String,
    /// The ticket, valid for any number of sessions.
    pub(super) ticket: String,
    /// The directory in which relative paths begin; `None` if it isn't UTF-8.
    pub(super) home: Option<String>,
}

impl Handover {
    /// The line, with its end.
    ///
    /// # Errors
    /// Never with the types above.
    pub(super) fn line(&self) -> Result<String, Fault> {
        let text = serde_json::to_string(self)
            .map_err(|e| Fault::new(Code::Internal, "write the handover", e.to_string()))?;
        Ok(format!("{START}{VERSION}{text}\n"))
    }

    /// Reads lines up to the handover; `None` if the input ends before.
    ///
    /// # Errors
    /// The input can't be read, is too long, or the handover is of another version.
    pub(super) fn read(input: &mut impl BufRead) -> Result<Option<Self>, Fault> {
        const OPERATION: &str = "start the server through ssh";
        let mut input = input.take(BYTES_MAX);
        let mut line = Vec::new();
        loop {
            line.clear();
            let read = input
                .read_until(b'\n', &mut line)
                .map_err(|e| Fault::from_io(OPERATION, "", &e))?;
            if read == 0 && input.limit() == 0 {
                let cause = "the shell there prints too much before the program begins";
                return Err(Fault::new(Code::LimitExceeded, OPERATION, cause)
                    .hint("let its start-up files print nothing to commands of ssh"));
            }
            if read == 0 {
                return Ok(None);
            }
            let Some(rest) = line.strip_prefix(START.as_bytes()) else {
                continue;
            };
            let found = rest
                .strip_prefix(VERSION.as_bytes())
                .and_then(|text| serde_json::from_slice(text).ok());
            return found.map(Some).ok_or_else(|| {
                let cause = "the xdfs there is of another version";
                Fault::new(Code::Unsupported, OPERATION, cause)
                    .hint("install the same version on both machines")
            });
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn handover() -> Handover {
        Handover {
            addresses: vec!["192.0.2.7:1".into()],
            socket: true,
            pin: "SHA256:x".into(),
            ticket: "secret".into(),
            home: Some("/home/me".into()),
        }
    }

    #[test]
    fn it_is_found_after_what_a_shell_prints() {
        let line = handover().line().unwrap();
        for before in ["", "welcome\n", "\n\u{1b}[1mhello\n"] {
            let text = format!("{before}{line}more");
            let found = Handover::read(&mut text.as_bytes()).unwrap().unwrap();
            assert_eq!(found.ticket, "secret");
            assert_eq!(found.addresses, ["192.0.2.7:1"]);
        }
        for none in ["", "no such program\n", "xdfs-over-ss"] {
            assert!(Handover::read(&mut none.as_bytes()).unwrap().is_none());
        }
    }

    #[test]
    fn other_versions_and_endless_greetings_are_refused() {
        let cut = handover().line().unwrap().replace('}', "");
        for text in ["xdfs-over-ssh 2 {}\n", "xdfs-over-ssh 1 {}\n", &cut] {
            let fault = Handover::read(&mut text.as_bytes()).unwrap_err();
            assert_eq!(fault.code, Code::Unsupported, "{text}");
            assert!(!fault.to_string().contains("secret"));
        }
        let mut endless = std::io::BufReader::new(std::io::repeat(b'x'));
        let fault = Handover::read(&mut endless).unwrap_err();
        assert_eq!(fault.code, Code::LimitExceeded);
    }
}
