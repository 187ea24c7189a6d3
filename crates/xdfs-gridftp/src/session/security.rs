//! Who logs in, and what is protected (RFC 2228, RFC 4217, GFD.20).

use super::{Action, Gsi, LoginState, Pending, Session, TOKEN_LINE_BYTES_MAX, Tls};
use crate::command::{Command, DataPeer, Level, Password};

/// Bytes of the longest name of a user, as in xDFS.
const USER_BYTES_MAX: usize = 255;
/// The name of whom the certificate stands for, in globus-url-copy.
const MAPPED_USER: &[u8] = b":globus-mapping:";

/// The protection of data connections.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum Protection {
    /// None.
    #[default]
    Clear,
    /// A security context (GSI).
    Context {
        /// Whose other end it has to be; `None` for the user's own.
        subject: Option<String>,
        /// Content is protected too.
        seals: bool,
    },
    /// TLS with the server's certificate.
    Tls,
}

impl Protection {
    /// Whether nobody else can read or change what moves.
    pub(super) fn is_sealed(&self) -> bool {
        match self {
            Self::Clear => false,
            Self::Context { seals, .. } => *seals,
            Self::Tls => true,
        }
    }
}

impl Session {
    /// Whether a transfer to this side in stream mode, which has ended, may have been cut off by
    /// somebody in between. The tools of Globus don't tell the end of TLS (`is_told`), but they
    /// have told with ALLO how much comes, on the protected control connection.
    #[must_use]
    pub fn is_unproved(&self, is_told: bool) -> bool {
        self.needs_end && !is_told && self.expected != Some(self.moved)
    }

    /// Begins anew: what was said in clear doesn't count, since somebody in between may have said
    /// it (RFC 2228, section 3, and RFC 4217, section 4).
    fn forget(&mut self) {
        self.input.set_line_bytes_max(crate::line::LINE_BYTES_MAX);
        let input = std::mem::take(&mut self.input);
        let output = std::mem::take(&mut self.output);
        *self = Self {
            input,
            output,
            ..Self::new(self.config.clone())
        };
    }

    pub(super) fn start_tls(&mut self) -> Option<Action> {
        if self.config.tls == Tls::None {
            self.say(502, "There is no TLS here.");
        } else if self.is_secure {
            self.say(503, "The control connection is protected already.");
        } else if self.login == LoginState::In {
            self.say(503, "AUTH comes before USER.");
        } else if self.input.held() > 0 {
            // Somebody in between may have put them there, to have them taken for the client's.
            self.end("Commands came behind AUTH TLS, which nothing protects.");
        } else {
            self.forget();
            return self.wait_for(Pending::StartTls, Action::StartTls);
        }
        None
    }

    pub(super) fn start_gsi(&mut self) {
        if !self.config.gsi {
            self.say(504, "Not possible here: there is no GSI.");
        } else if self.is_secure {
            self.say(503, "The control connection is protected already.");
        } else if self.login == LoginState::In {
            self.say(503, "AUTH comes before USER.");
        } else if self.gsi == Gsi::Begun {
            self.say(503, "ADAT has to follow.");
        } else {
            self.forget();
            self.gsi = Gsi::Begun;
            self.input.set_line_bytes_max(TOKEN_LINE_BYTES_MAX);
            self.say(334, "Using authentication type; ADAT must follow.");
        }
    }

    /// Whether a command has to wait for the end of the exchange of tokens: what protects nothing
    /// and nobody has proved must not begin anything.
    pub(super) fn waits_for_token(&self, command: &Command) -> bool {
        let may_come = matches!(
            command,
            Command::Abort
                | Command::AuthGssapi
                | Command::AuthTls
                | Command::Nothing
                | Command::Quit
                | Command::SecurityData(_)
        );
        self.gsi == Gsi::Begun && !may_come
    }

    pub(super) fn take_token(&mut self, token: Vec<u8>) -> Option<Action> {
        match self.gsi {
            Gsi::Begun => return self.wait_for(Pending::Authenticate, Action::Authenticate(token)),
            _ => self.say(503, "AUTH GSSAPI comes first."),
        }
        None
    }

    /// The security context is established, and protects what comes from now on.
    pub(super) fn secured(&mut self, answer: &str) {
        if self.input.held() > 0 {
            // Somebody in between may have put them there.
            self.end("Commands came behind the last token, which nothing protects.");
            return;
        }
        self.forget();
        (self.gsi, self.is_secure) = (Gsi::Established, true);
        self.say(235, answer);
    }

    pub(super) fn data_authentication(&mut self, peer: DataPeer) {
        match (self.gsi, peer) {
            (Gsi::Established, DataPeer::Anybody) if self.needs_private() => {
                self.say(534, "Data connections have to be protected here.");
            }
            (Gsi::Established, peer) => {
                let text = match &peer {
                    DataPeer::Anybody => "DCAU N.",
                    DataPeer::Own => "DCAU A.",
                    DataPeer::Subject(_) => "DCAU S.",
                };
                self.data_peer = peer;
                self.say(200, text);
            }
            (_, DataPeer::Anybody) => self.say(200, "DCAU N."),
            (..) => self.say(503, "AUTH GSSAPI comes first."),
        }
    }

    pub(super) fn protection_buffer(&mut self, bytes: u64) {
        if self.gsi == Gsi::Established {
            self.has_buffer_size = true;
            self.say(200, format!("PBSZ={bytes}"));
        } else if self.is_secure {
            self.has_buffer_size = true;
            self.say(200, "PBSZ=0");
        } else {
            self.say(503, "AUTH comes first.");
        }
    }

    pub(super) fn protection(&mut self, level: Level) {
        // Clear data needs no buffer, and Python's ftplib sends PROT C without PBSZ.
        let has_buffer_size = self.has_buffer_size || self.is_secure && level == Level::Clear;
        match (has_buffer_size, level) {
            (false, _) => self.say(503, "AUTH and PBSZ come first."),
            (true, Level::Safe) if self.gsi != Gsi::Established => {
                self.say(536, "With TLS there are PROT C and PROT P.");
            }
            (true, Level::Clear) if self.needs_private() => {
                self.say(534, "Data connections have to be protected here.");
            }
            (true, _) => {
                self.level = level;
                self.say(200, "The protection of data connections is set.");
            }
        }
    }

    /// That of the next transfer.
    pub(super) fn data_protection(&self) -> Protection {
        let seals = self.level != Level::Clear;
        let subject = match (self.gsi, &self.data_peer) {
            (Gsi::Established, DataPeer::Anybody) => return Protection::Clear,
            (Gsi::Established, DataPeer::Own) => None,
            (Gsi::Established, DataPeer::Subject(subject)) => Some(subject.clone()),
            _ if seals => return Protection::Tls,
            _ => return Protection::Clear,
        };
        Protection::Context { subject, seals }
    }

    /// Whether the level of PROT needs what DCAU N leaves out.
    pub(super) fn is_torn(&self) -> bool {
        self.level != Level::Clear
    }

    /// Whether the user may not move files in clear.
    pub(super) fn needs_private(&self) -> bool {
        self.user.is_some() && !self.config.takes_clear
    }

    pub(super) fn user(&mut self, name: &[u8]) {
        if self.login == LoginState::In {
            self.say(503, "You are logged in already.");
            return;
        }
        // Names are refused before the client sends the password in clear.
        self.login = LoginState::None;
        (self.user, self.is_mapped) = (None, false);
        if self.config.tls == Tls::Required && !self.is_secure {
            self.say(530, "Use AUTH TLS first.");
            return;
        }
        if self.config.is_admitted {
            self.login = LoginState::Named;
            self.say(331, "Password required: anything will do.");
            return;
        }
        let mut anonymous = [&b"anonymous"[..], b"ftp"].into_iter();
        if anonymous.any(|known| name.eq_ignore_ascii_case(known)) {
            self.login = LoginState::Named;
            self.say(331, "Password required for anonymous: anything will do.");
            return;
        }
        if !self.is_secure {
            let text = match self.config.tls {
                Tls::None => "log in as anonymous, or use the xDFS protocol",
                _ => "use AUTH TLS, or log in as anonymous",
            };
            self.say(
                530,
                format!("Passwords are not taken without encryption: {text}."),
            );
            return;
        }
        if self.gsi == Gsi::Established {
            self.is_mapped = true;
            if name == MAPPED_USER {
                self.login = LoginState::Named;
                self.say(331, "Password required for :globus-mapping:, of any kind.");
                return;
            }
        }
        let name = std::str::from_utf8(name).ok();
        let Some(name) = name.filter(|name| name.len() <= USER_BYTES_MAX) else {
            self.say(
                501,
                format!("A name is UTF-8 of at most {USER_BYTES_MAX} bytes."),
            );
            return;
        };
        // Whether there is such a user is told to nobody.
        self.user = Some(name.to_owned());
        self.login = LoginState::Named;
        self.say(331, format!("Password required for {name}."));
    }

    pub(super) fn password(&mut self, password: Password) -> Option<Action> {
        match self.login {
            LoginState::Named => {
                let user = self.user.clone();
                if self.is_mapped {
                    return self.wait_for(Pending::LogIn, Action::LogInMapped { user });
                }
                return self.wait_for(Pending::LogIn, Action::LogIn { user, password });
            }
            LoginState::In => self.say(230, "You are logged in already."),
            LoginState::None => self.say(503, "USER comes first."),
        }
        None
    }

    /// Begins with an action.
    fn wait_for(&mut self, pending: Pending, action: Action) -> Option<Action> {
        self.pending = Some(pending);
        self.is_cancelled = false;
        Some(action)
    }
}
