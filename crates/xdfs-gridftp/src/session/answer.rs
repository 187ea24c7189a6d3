//! What the machine says when an action has ended, and about itself.

use xdfs_proto::path::{Answer, Attributes, FileKind};
use xdfs_proto::{Code, Fault, RangeSet};

use base64ct::{Base64, Encoding as _};

use super::{Config, LoginState, Outcome, Pending, Session, Tls, extended};
use crate::address::format_host_port;
use crate::archive::Compression;
use crate::checksum::Algorithm;
use crate::facts::{self, Row, left_out_text};
use crate::reply::Reply;
use crate::restart::{EXCLUSIVE, format_ranges};
use crate::segment::failure_rows;
use crate::time::format_time;
use crate::xmode::{self, Sum};

/// Most ranges of one line of markers.
const MARKER_RANGES_MAX: usize = 256;

const COMMANDS: [&str; 60] = [
    "ABOR", "ABUF", "ADAT", "ALLO", "APPE", "AUTH", "CCC", "CDUP", "CKSM", "CONF", "CWD", "DCAU",
    "DELE", "ENC", "EPRT", "EPSV", "ERET", "ESTO", "FEAT", "GET", "HELP", "LIST", "MDTM", "MFMT",
    "MIC", "MKD", "MLSC", "MLSD", "MLSR", "MLST", "MODE", "NLST", "NOOP", "OPTS", "PASS", "PASV",
    "PBSZ", "PORT", "PROT", "PUT", "PWD", "QUIT", "REST", "RETR", "RMD", "RNFR", "RNTO", "SBUF",
    "SCKS", "SITE", "SIZE", "SPAS", "SPOR", "STAT", "STOR", "STOU", "STRU", "SYST", "TYPE", "USER",
];

/// A path in quotes, with quotes in it doubled (RFC 959, appendix II).
pub(super) fn quoted(path: &[u8]) -> Vec<u8> {
    let mut text = vec![b'"'];
    for byte in path {
        text.push(*byte);
        if *byte == b'"' {
            text.push(b'"');
        }
    }
    text.push(b'"');
    text
}

impl Session {
    /// The running action has ended. Without one, this does nothing.
    pub fn complete(&mut self, result: Result<Outcome, Fault>) {
        let Some(pending) = self.pending.take() else {
            return;
        };
        match result {
            Ok(outcome) => self.succeeded(pending, outcome),
            Err(fault) => self.failed(&pending, &fault),
        }
    }

    fn failed(&mut self, pending: &Pending, fault: &Fault) {
        let mut reply = Reply::of_fault(fault);
        match pending {
            Pending::Authenticate => {
                // A client that has shown what isn't taken has nothing else to show.
                reply.code = 535;
                self.reply(&reply);
                self.is_closing = true;
                return;
            }
            Pending::LogIn if fault.code == Code::Busy => {
                reply.code = 421;
                self.reply(&reply);
                self.is_closing = true;
                return;
            }
            Pending::LogIn => {
                reply.code = 530;
                self.login = LoginState::None;
                self.user = None;
            }
            Pending::Passive | Pending::PassiveExtended | Pending::PassiveStriped => {
                reply.code = 425;
            }
            // Clients read it as the end of the session.
            _ if reply.code == 421 => reply.code = 426,
            _ => {}
        }
        self.reply(&reply);
    }

    fn succeeded(&mut self, pending: Pending, outcome: Outcome) {
        match (pending, outcome) {
            (Pending::LogIn, Outcome::Done) => {
                self.login = LoginState::In;
                let text = match (&self.user, self.config.is_admitted) {
                    (Some(name), _) => format!("User {name} logged in."),
                    (None, true) => "Logged in.".to_owned(),
                    (None, false) => "User anonymous logged in.".to_owned(),
                };
                self.say(230, text);
            }
            (Pending::LogIn, Outcome::User(name)) => {
                self.login = LoginState::In;
                self.say(230, format!("User {name} logged in."));
                self.user = Some(name);
            }
            (Pending::Authenticate, Outcome::Token(token)) => {
                self.say(335, format!("ADAT={}", Base64::encode_string(&token)));
            }
            (Pending::Authenticate, Outcome::Secured(token)) if token.is_empty() => {
                self.secured("GSSAPI Authentication successful.");
            }
            (Pending::Authenticate, Outcome::Secured(token)) => {
                self.secured(&format!("ADAT={}", Base64::encode_string(&token)));
            }
            (Pending::StartTls, Outcome::Done) => {
                self.is_secure = true;
                self.say(234, "Beginning with TLS.");
            }
            (Pending::Transfer, Outcome::Receipt(text)) => self.say(226, text),
            (Pending::Transfer, Outcome::Partly(failures)) => {
                let first = "Not all of the segment is stored:";
                self.reply(&Reply::of_lines(
                    550,
                    first,
                    failure_rows(&failures),
                    "End.",
                ));
            }
            (Pending::Transfer, Outcome::Done) => self.say(226, "Transfer complete."),
            (Pending::Transfer, Outcome::Listed(left_out)) => {
                self.say(
                    226,
                    format!("Transfer complete.{}", left_out_text(left_out)),
                );
            }
            (Pending::Connect, Outcome::Done) => self.say(200, "PORT command successful."),
            (Pending::DelayPassive, Outcome::Done) => self.say(200, "Passive delayed."),
            (Pending::Checksum, Outcome::Digest(digits)) => self.say(213, digits),
            (Pending::ListHere, Outcome::Rows(rows, left_out)) => {
                let last = format!("End.{}", left_out_text(left_out));
                self.reply(&Reply::of_lines(250, "Listing", rows, &last));
            }
            (Pending::Facts(given), Outcome::Facts(attributes, link)) => {
                let mut row = Vec::new();
                let facts = Row {
                    name: if given.is_empty() { b"." } else { &given },
                    attributes: &attributes,
                    link: link.as_deref(),
                    role: None,
                };
                facts.facts(&mut row);
                self.reply(&Reply::of_lines(250, "Facts", [row], "End."));
            }
            (Pending::Passive, Outcome::Listening(address)) => match format_host_port(address) {
                Some(text) => self.say(227, format!("Entering Passive Mode ({text})")),
                None => self.say(522, "Use EPSV, which can tell an IPv6 address."),
            },
            (Pending::PassiveExtended, Outcome::Listening(address)) => {
                self.say(229, extended(address));
            }
            (Pending::PassiveStriped, Outcome::Listening(address)) => self.say_striped(&[address]),
            (Pending::PassiveStriped, Outcome::ListeningStriped(addresses)) => {
                self.say_striped(&addresses);
            }
            (Pending::Plain(text), Outcome::Answer(_)) => self.say(250, text),
            (Pending::MakeDirectory(path), Outcome::Answer(_)) => {
                self.say(257, [quoted(&path), b" was made.".to_vec()].concat());
            }
            (Pending::SetTime(given, time), Outcome::Answer(_)) => {
                self.say(
                    213,
                    [format!("Modify={time}; ").into_bytes(), given].concat(),
                );
            }
            (pending, Outcome::Answer(Answer::Attributes(attributes))) => {
                self.found(pending, &attributes);
            }
            // The driver answered something else than was asked.
            (_, _) => self.say(451, "Internal error."),
        }
    }

    /// Answers about an entry that is there.
    fn found(&mut self, pending: Pending, attributes: &Attributes) {
        match (pending, attributes.kind) {
            (Pending::ChangeDirectory(path), FileKind::Directory) => {
                self.directory = path;
                self.say(250, "The directory is changed.");
            }
            (Pending::ChangeDirectory(_), _) => self.say(550, "It is not a directory."),
            (Pending::ModificationTime, _) => self.say(213, format_time(attributes.mtime_ns)),
            (Pending::RenameFrom(path), _) => {
                self.rename_from = Some(path);
                self.say(350, "RNTO has to follow.");
            }
            (Pending::Size, FileKind::File) => self.say(213, attributes.size.to_string()),
            (Pending::Size, _) => self.say(550, "It is not a file."),
            (_, _) => self.say(451, "Internal error."),
        }
    }

    /// Tells durable ranges.
    pub(super) fn markers(&mut self, durable: &RangeSet) {
        for ranges in durable.as_slice().chunks(MARKER_RANGES_MAX) {
            self.say(111, format!("Range Marker {}", format_ranges(ranges)));
        }
    }

    pub(super) fn features(&mut self) {
        let sums = Algorithm::ALL.iter();
        let sums: String = sums
            .map(|(_, name, rank)| format!("{name}:{rank};"))
            .collect();
        let sums = ["CKSM", "SCKS"].map(|command| format!("{command} {sums}"));
        let mut lines = Vec::from(sums);
        lines.push(facts::FEATURE.to_owned());
        let others = [
            "EPRT",
            "EPSV",
            "ERET",
            "ESTO",
            "MDTM",
            "MFMT",
            "MLSC",
            "MLSR",
            "PARALLEL",
            "PASV AllowDelayed;",
            "REST STREAM",
            "SBUF",
            "SIZE",
            "SPAS",
            "SPOR",
            "STRIPELAYOUT Blocked;Partitioned;None;",
            "UTF8",
        ];
        lines.extend(others.map(str::to_owned));
        // globus-url-copy 10.12 crashes in transfers between two servers with `-pp` if one of them
        // lists it; and it asks for no stripes by these commands.
        let Config {
            peer,
            third_party,
            is_striped,
            ..
        } = &self.config;
        if !peer.is_ipv6() && !third_party && !is_striped {
            lines.push("GETPUT".to_owned());
        }
        // After a crash of this server nobody waits for nodes that still write.
        if !is_striped {
            lines.push(EXCLUSIVE.to_owned());
        }
        let compressions = Compression::ALL.iter();
        let compressions: String = compressions.map(|(_, name)| format!("{name};")).collect();
        lines.push(format!("MODE T {compressions}"));
        let sums: String = Sum::ALL
            .iter()
            .map(|(_, name)| format!("{name};"))
            .collect();
        lines.push(format!("MODE X {} {sums}", xmode::VERSION));
        if self.config.tls != Tls::None {
            lines.extend(["AUTH TLS", "PBSZ", "PROT"].map(str::to_owned));
        }
        if self.config.gsi {
            lines.extend(["AUTH GSSAPI", "DCAU"].map(str::to_owned));
        }
        let lines = lines.into_iter().map(String::into_bytes);
        self.reply(&Reply::of_lines(211, "Extensions supported", lines, "End."));
    }

    pub(super) fn help(&mut self) {
        let rows = COMMANDS.chunks(8);
        let rows = rows.map(|row| format!("   {}", row.join("  ")).into_bytes());
        let first = "The following commands are recognized:";
        self.reply(&Reply::of_lines(214, first, rows, "End"));
    }
}
