//! The line by which a server that was started through ssh hands over its address and ticket, on
//! its standard output.
//!
//! ```text
//! xdfs-over-ssh 1 {"addresses":["192.0.2.7:40123"],"socket":true,"pin":"SHA256:...",...}
//! ```
//!
//! The line holds the server's ticket, and so it travels within ssh and nowhere else. What the
//! user's shell there prints before it is ignored.

use std::io::{BufRead, BufReader, Read};
use std::sync::mpsc;
use std::thread;
use std::time::Duration;

use serde::{Deserialize, Serialize};
use xdfs_proto::{Code, Fault};

/// The operation in faults.
const OPERATION: &str = "start the server through ssh";
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

/// The messages of the thread that reads.
enum Heard<R> {
    Something,
    All(Result<Option<Handover>, Fault>, BufReader<R>),
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

    /// Reads up to the handover, and returns it with the rest of the input; `None` if the input
    /// ends before. Waits without bound for the first byte, since somebody may have to type a
    /// password, and then for `patience`.
    ///
    /// # Errors
    /// The errors of [`Self::read`], or the handover took longer.
    pub(super) fn wait<R: Read + Send + 'static>(
        input: R,
        patience: Duration,
    ) -> Result<Option<(Self, BufReader<R>)>, Fault> {
        let (sender, heard) = mpsc::channel();
        // It ends with the input, whether it is waited for or not.
        let reading = move || {
            let mut input = BufReader::new(input);
            // The receiver is gone after its patience. What can't be read is reported below.
            if input.fill_buf().is_ok_and(|bytes| !bytes.is_empty()) {
                let _ = sender.send(Heard::Something);
            }
            let read = Self::read(&mut input);
            let _ = sender.send(Heard::All(read, input));
        };
        thread::Builder::new()
            .name("xdfs-ssh".into())
            .spawn(reading)
            .map_err(|e| Fault::from_io(OPERATION, "", &e))?;
        let all = match heard.recv() {
            Ok(Heard::Something) => heard.recv_timeout(patience),
            all => all.map_err(mpsc::RecvTimeoutError::from),
        };
        if let Ok(Heard::All(read, input)) = all {
            return Ok(read?.map(|handover| (handover, input)));
        }
        let seconds = patience.as_secs();
        let cause =
            format!("the shell there prints something, but no program began within {seconds} s");
        Err(Fault::new(Code::DeadlineExceeded, OPERATION, cause)
            .hint("let its start-up files end, and print nothing to commands of ssh"))
    }

    /// Reads up to the handover; `None` if the input ends before.
    ///
    /// # Errors
    /// The input can't be read, is too long, or the handover is of another version.
    fn read(input: &mut impl BufRead) -> Result<Option<Self>, Fault> {
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
            // Output before it may have no line end.
            let places = line.windows(START.len()).enumerate();
            let places = places.filter(|(_, window)| *window == START.as_bytes());
            let mut rests = places.map(|(at, _)| &line[at + START.len()..]).peekable();
            if rests.peek().is_none() {
                continue;
            }
            let found = rests.find_map(|rest| {
                let text = rest.strip_prefix(VERSION.as_bytes())?;
                serde_json::from_slice(text).ok()
            });
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
    use std::io::Write as _;

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
        for before in [
            "",
            "welcome\n",
            "\n\u{1b}[1mhello\n",
            "hello",
            "a\nxdfs-over-ssh ",
        ] {
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
    fn a_shell_that_prints_and_starts_nothing_is_not_waited_for() {
        let (mut shell, read) = std::io::pipe().map(|(read, write)| (write, read)).unwrap();
        shell.write_all(b"hello").unwrap();
        let fault = Handover::wait(read, Duration::ZERO).unwrap_err();
        assert_eq!(fault.code, Code::DeadlineExceeded);
        // The output that it would have printed.
        drop(shell);
        let (mut shell, read) = std::io::pipe().map(|(read, write)| (write, read)).unwrap();
        let line = handover().line().unwrap();
        shell.write_all(format!("hello{line}").as_bytes()).unwrap();
        let (found, _) = Handover::wait(read, Duration::from_secs(60))
            .unwrap()
            .unwrap();
        assert_eq!(found.ticket, "secret");
        assert!(
            Handover::wait(std::io::empty(), Duration::ZERO)
                .unwrap()
                .is_none()
        );
    }

    #[test]
    fn other_versions_and_endless_greetings_are_refused() {
        let cut = handover().line().unwrap().replace('}', "");
        for text in ["xdfs-over-ssh 2 {}\n", "xdfs-over-ssh 1 {}\n", &cut] {
            let fault = Handover::read(&mut text.as_bytes()).unwrap_err();
            assert_eq!(fault.code, Code::Unsupported, "{text}");
            assert!(!fault.to_string().contains("secret"));
        }
        let mut endless = BufReader::new(std::io::repeat(b'x'));
        let fault = Handover::read(&mut endless).unwrap_err();
        assert_eq!(fault.code, Code::LimitExceeded);
    }
}
