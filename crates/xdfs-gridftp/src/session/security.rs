//! Who logs in, and what is protected (RFC 4217).

use super::{Action, LoginState, Pending, Session, Tls};
use crate::command::Password;

/// Bytes of the longest name of a user, as in xDFS.
const USER_BYTES_MAX: usize = 255;

impl Session {
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
            // What was said in clear doesn't count.
            self.login = LoginState::None;
            return self.wait_for(Pending::StartTls, Action::StartTls);
        }
        None
    }

    pub(super) fn protection_buffer(&mut self) {
        if self.is_secure {
            self.has_buffer_size = true;
            self.say(200, "PBSZ=0");
        } else {
            self.say(503, "AUTH TLS comes first.");
        }
    }

    pub(super) fn protection(&mut self, is_private: bool) {
        // Clear data needs no buffer, and Python's ftplib sends PROT C without PBSZ.
        match self.has_buffer_size || self.is_secure && !is_private {
            false => self.say(503, "AUTH TLS and PBSZ come first."),
            true if !is_private && self.needs_private() => {
                self.say(534, "Data connections have to be protected here.");
            }
            true => {
                self.is_private = is_private;
                self.say(200, "The protection of data connections is set.");
            }
        }
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
        self.user = None;
        if self.config.tls == Tls::Required && !self.is_secure {
            self.say(530, "Use AUTH TLS first.");
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
