//! The client's half of a control connection, without I/O: commands out, replies in.
//!
//! Commands may be sent ahead, and the server answers in order, so that a reply belongs to the
//! oldest command without a final one. Preliminary replies (1xx) announce a transfer or report on
//! it; any other reply is the final one of its command (RFC 959, section 4.2).

use std::collections::VecDeque;

use xdfs_proto::{Code, Fault};

use crate::line::LINE_BYTES_MAX;
use crate::reply::{Reply, ReplyReader};

/// Most commands without a final reply.
pub const COMMANDS_AHEAD_MAX: usize = 256;
/// Most preliminary replies to a command. A server sends markers every few seconds.
pub const PRELIMINARY_MAX: u32 = 100_000;

/// Bytes of the longest token in a line, in base64.
const TOKEN_BYTES_MAX: usize = 64 << 10;
/// Bytes of a command beside a path, and of a hidden name beside a name, at most.
const PATH_ROOM: usize = 128;
/// Bytes of the longest reply, and of the longest line of one. Only markers may be longer.
const REPLY_BYTES_MAX: usize = 1 << 20;
/// Bytes of the longest marker, which are dropped. 16 KiB of a file of 40 GiB take so many.
const MARKER_BYTES_MAX: usize = 64 << 20;

/// What a server says about the oldest command.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Event {
    /// It has more to say.
    Preliminary(Reply),
    /// It has nothing more to say.
    Final(Reply),
}

/// See the module documentation.
#[derive(Debug)]
pub struct Dialogue {
    replies: ReplyReader,
    /// Commands without a final reply; the greeting answers none, and counts as one.
    pending: VecDeque<&'static str>,
    preliminary: u32,
    /// Bytes in a row that were dropped.
    dropped: usize,
    /// The password, until the login is over.
    secret: Vec<u8>,
    out: Vec<u8>,
}

impl Default for Dialogue {
    fn default() -> Self {
        Self::new()
    }
}

impl Dialogue {
    /// A new connection, whose greeting is awaited.
    #[must_use]
    pub fn new() -> Self {
        let mut replies = ReplyReader::new();
        replies.set_line_bytes_max(REPLY_BYTES_MAX);
        Self {
            replies,
            pending: VecDeque::from(["connect"]),
            preliminary: 0,
            dropped: 0,
            secret: Vec::new(),
            out: Vec::new(),
        }
    }

    /// Queues a command with its argument, which may be empty.
    ///
    /// # Errors
    /// [`Code::InvalidArgument`] if the argument can't be part of a line,
    /// [`Code::LimitExceeded`] beyond [`COMMANDS_AHEAD_MAX`].
    pub fn command(&mut self, verb: &'static str, argument: &[u8]) -> Result<(), Fault> {
        let bad = |code, cause: &str| Err(Fault::new(code, format!("send {verb}"), cause));
        let most = match verb {
            "ADAT" => TOKEN_BYTES_MAX,
            _ => LINE_BYTES_MAX,
        };
        check(argument, verb.len() + 1, most).map_err(|fault| match verb {
            // Neither a name, nor to be shown.
            "ACCT" | "ADAT" | "PASS" => Fault {
                operation: format!("send {verb}"),
                ..fault
            },
            _ if NAMING.contains(&verb) => fault.path(argument),
            _ => fault,
        })?;
        if self.pending.len() >= COMMANDS_AHEAD_MAX {
            return bad(
                Code::LimitExceeded,
                "too many commands wait for their replies",
            );
        }
        self.out.extend_from_slice(verb.as_bytes());
        if !argument.is_empty() {
            self.out.push(b' ');
            self.out.extend_from_slice(argument);
        }
        self.out.extend_from_slice(b"\r\n");
        self.pending.push_back(verb);
        Ok(())
    }

    /// Has a password left out of what the server says while it refuses a login, which may repeat
    /// the command. An empty one ends that.
    pub fn hide(&mut self, secret: &[u8]) {
        self.secret = secret.to_vec();
    }

    /// Bytes for the server; the caller removes those that it has sent.
    pub fn output(&mut self) -> &mut Vec<u8> {
        &mut self.out
    }

    /// Adds bytes from the server.
    pub fn input(&mut self, bytes: &[u8]) {
        self.dropped = match self.replies.skips() {
            true => self.dropped + bytes.len(),
            false => 0,
        };
        self.replies.push(bytes);
    }

    /// Whether bytes have come behind the last reply.
    #[must_use]
    pub fn has_input(&self) -> bool {
        self.replies.has_more()
    }

    /// Number of commands without a final reply.
    #[must_use]
    pub fn pending(&self) -> usize {
        self.pending.len()
    }

    /// The next reply; `None` if more bytes are needed.
    ///
    /// # Errors
    /// What came is no reply, or the reply to no command: nothing after it can be understood.
    /// [`Code::ConnectionLost`] if the server says that it closes the connection.
    pub fn next_event(&mut self) -> Result<Option<Event>, Fault> {
        let broken =
            |cause: String| Fault::new(Code::ProtocolViolation, "read the server's reply", cause);
        let reply = self.replies.next_reply().map_err(|error| {
            let said = without(error.to_string().as_bytes(), &self.secret);
            broken(String::from_utf8_lossy(&said).into_owned())
        })?;
        let Some(mut reply) = reply else {
            let is_too_long =
                self.replies.held() > REPLY_BYTES_MAX || self.dropped > MARKER_BYTES_MAX;
            return match is_too_long {
                true => Err(broken("a reply is too long".to_owned())),
                false => Ok(None),
            };
        };
        // Others have what is needed, such as a directory.
        if reply.code >= 300 || self.pending.front() == Some(&"PASS") {
            for line in &mut reply.lines {
                *line = without(line, &self.secret);
            }
        }
        if self.pending.is_empty() {
            return match reply.code {
                421 => Err(super::fault::closing(&reply)),
                code => Err(broken(format!("the reply {code} answers no command"))),
            };
        }
        if reply.code < 200 {
            self.preliminary += 1;
            if self.preliminary > PRELIMINARY_MAX {
                return Err(broken(format!(
                    "there were more than {PRELIMINARY_MAX} replies to a command"
                )));
            }
            return Ok(Some(Event::Preliminary(reply)));
        }
        self.preliminary = 0;
        self.pending.pop_front();
        if reply.code == 421 {
            return Err(super::fault::closing(&reply));
        }
        Ok(Some(Event::Final(reply)))
    }
}

/// Commands whose argument is a path.
const NAMING: [&str; 16] = [
    "CWD", "DELE", "LIST", "MDTM", "MKD", "MLSD", "MLSR", "MLST", "NLST", "RETR", "RMD", "RNFR",
    "RNTO", "SIZE", "STAT", "STOR",
];

/// The text with stars for each `secret`.
fn without(text: &[u8], secret: &[u8]) -> Vec<u8> {
    let mut left = text;
    let mut shown = Vec::new();
    while let Some((first, rest)) = left.split_first() {
        match left.strip_prefix(secret).filter(|_| !secret.is_empty()) {
            Some(behind) => {
                shown.extend_from_slice(b"***");
                left = behind;
            }
            None => {
                shown.push(*first);
                left = rest;
            }
        }
    }
    shown
}

fn check(argument: &[u8], others: usize, most: usize) -> Result<(), Fault> {
    let bad = |code, cause: &str| Err(Fault::new(code, "use the name", cause));
    let is_odd = |byte: &u8| matches!(byte, b'\r' | b'\n' | 0 | 0xff);
    if argument.iter().any(is_odd) {
        let cause = "FTP can't carry names with an end of a line, a zero byte or a byte 255";
        return bad(Code::InvalidArgument, cause);
    }
    if others + argument.len() > most {
        return bad(Code::NameTooLong, "the command is too long for FTP");
    }
    Ok(())
}

/// Fails unless every command about a path, and about the hidden name beside it, can be sent.
///
/// # Errors
/// As [`Dialogue::command`].
pub fn check_path(path: &[u8]) -> Result<(), Fault> {
    check(path, PATH_ROOM, LINE_BYTES_MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn replies_answer_the_oldest_command() {
        let mut dialogue = Dialogue::new();
        dialogue.input(b"220 hello\r\n");
        let greeting = dialogue.next_event().unwrap();
        assert!(!dialogue.has_input());
        assert_eq!(greeting, Some(Event::Final(Reply::new(220, "hello"))));
        dialogue.command("RETR", b"a b").unwrap();
        dialogue.command("NOOP", b"").unwrap();
        assert_eq!(dialogue.output(), b"RETR a b\r\nNOOP\r\n");
        dialogue.input(b"150 x\r\n226 y\r\n200 z\r\n200 none\r\n");
        let next = |dialogue: &mut Dialogue| dialogue.next_event().unwrap();
        let event = next(&mut dialogue);
        assert_eq!(event, Some(Event::Preliminary(Reply::new(150, "x"))));
        assert!(dialogue.has_input());
        assert_eq!(dialogue.pending(), 2);
        assert_eq!(
            next(&mut dialogue),
            Some(Event::Final(Reply::new(226, "y")))
        );
        assert_eq!(
            next(&mut dialogue),
            Some(Event::Final(Reply::new(200, "z")))
        );
        let fault = dialogue.next_event().unwrap_err();
        assert_eq!(fault.code, Code::ProtocolViolation);
    }

    #[test]
    fn a_password_is_left_out_of_what_refuses_a_login() {
        let mut dialogue = Dialogue::new();
        dialogue.hide(b"secret");
        dialogue.input(b"220 hello\r\n500-'PASS secret'?\r\n 'secret''secret'\r\n500 no\r\n");
        dialogue.next_event().unwrap();
        dialogue.command("PASS", b"secret").unwrap();
        let Some(Event::Final(reply)) = dialogue.next_event().unwrap() else {
            panic!("there is a reply");
        };
        let said = reply.lines.join(&b'|');
        assert_eq!(
            said.escape_ascii().to_string(),
            "\\'PASS ***\\'?|\\'***\\'\\'***\\'|no"
        );
        // A directory keeps its name, and everything does after the login.
        dialogue.command("PWD", b"").unwrap();
        dialogue.input(b"257 /secret\r\n");
        let event = dialogue.next_event().unwrap();
        assert_eq!(event, Some(Event::Final(Reply::new(257, "/secret"))));
        dialogue.hide(b"");
        dialogue.command("CWD", b"x").unwrap();
        dialogue.input(b"550 secret\r\n");
        let event = dialogue.next_event().unwrap();
        assert_eq!(event, Some(Event::Final(Reply::new(550, "secret"))));
        // No reply at all, or the end.
        for said in ["'PASS secret' what\r\n", "421 no secret\r\n"] {
            let mut dialogue = Dialogue::new();
            dialogue.hide(b"secret");
            dialogue.input(said.as_bytes());
            let fault = dialogue.next_event().unwrap_err();
            assert!(fault.cause.contains("***"), "{fault}");
            assert!(!fault.cause.contains("secret"), "{fault}");
        }
    }

    #[test]
    fn no_argument_is_a_second_command() {
        let mut dialogue = Dialogue::new();
        for name in [&b"a\r\nDELE b"[..], b"a\n", b"\0", b"\xff\xf4"] {
            let fault = dialogue.command("RETR", name).unwrap_err();
            assert_eq!(fault.code, Code::InvalidArgument);
        }
        let long = vec![b'x'; LINE_BYTES_MAX];
        let fault = dialogue.command("RETR", &long).unwrap_err();
        assert_eq!(fault.code, Code::NameTooLong);
        assert!(dialogue.output().is_empty());
    }

    #[test]
    fn markers_of_stripes_may_be_long_and_are_bounded() {
        let mut dialogue = Dialogue::new();
        let mut told = |bytes: &[u8]| {
            let mut seen = Vec::new();
            for piece in bytes.chunks(16 << 10) {
                dialogue.input(piece);
                while let Some(event) = dialogue.next_event()? {
                    seen.push(event);
                }
                assert!(dialogue.replies.held() <= REPLY_BYTES_MAX);
            }
            Ok::<_, Fault>(seen)
        };
        // Every other MiB of a file.
        let ranges = |count: u64| {
            let range = |n: u64| format!("{}-{}", n << 21, (n << 21) + (1 << 20));
            let all: Vec<_> = (0..count).map(range).collect();
            format!("111 Range Marker {}\r\n", all.join(","))
        };
        let seen = told(ranges(20_000).as_bytes()).unwrap();
        let [Event::Preliminary(marker)] = seen.as_slice() else {
            panic!("{} events", seen.len());
        };
        let mut markers = crate::client::markers::Markers::default();
        assert!(markers.take(marker, u64::MAX));
        assert_eq!(markers.stored().len(), 20_000);
        // A longer one says nothing, and what comes behind it is understood.
        let empty = Event::Preliminary(Reply::new(111, ""));
        let longer = ranges(200_000);
        assert!(longer.len() > 2 * REPLY_BYTES_MAX);
        let behind = format!("{longer}112-x\r\n y\r\n112 z\r\n{longer}220 fine\r\n");
        let seen = told(behind.as_bytes()).unwrap();
        assert_eq!(seen.len(), 4, "{seen:?}");
        assert_eq!((&seen[0], &seen[2]), (&empty, &empty));
        assert_eq!(seen[3], Event::Final(Reply::new(220, "fine")));
        // Nothing else may be so long, and a marker has to end.
        let endless = [
            b"111 ".as_slice(),
            &vec![b'1'; MARKER_BYTES_MAX + (2 << 20)],
        ]
        .concat();
        assert!(told(&endless).is_err());
        for start in ["113 ", "200 ", "111-", "111-a\r\n111 "] {
            let long = [start.as_bytes(), &vec![b'1'; 2 << 20]].concat();
            let mut other = Dialogue::new();
            let failed = long.chunks(16 << 10).any(|piece| {
                other.input(piece);
                other.next_event().is_err()
            });
            assert!(failed, "{start}");
        }
    }

    #[test]
    fn endless_preliminary_replies_end() {
        let mut dialogue = Dialogue::new();
        let mut faults = 0;
        for _ in 0..=PRELIMINARY_MAX {
            dialogue.input(b"112 x\r\n");
            faults += u32::from(dialogue.next_event().is_err());
        }
        assert_eq!(faults, 1);
    }
}
