//! The security context of GSI, with which a control connection begins.

use base64ct::{Base64, Encoding as _};
use xdfs_gsi::Step;
use xdfs_proto::{Code, Fault};

use super::super::fault::{of_opening, refused, unprotected, untrusted, violation};
use super::super::protection::{Established, Gsi, subject_of};
use super::Link;
use crate::layer::{Layer, Side};

/// The operation of the handshake.
const ESTABLISH: &str = "establish a security context";

impl Link {
    /// Proves who both sides are by GSI (RFC 2228), and delegates a proxy if data connections are
    /// authenticated, on which the server acts for the user by it.
    ///
    /// # Errors
    /// The server refuses, or isn't the one of the host. Then the connection has to end.
    pub(super) fn negotiate(&mut self, gsi: &Gsi, host: &str) -> Result<(), Fault> {
        let expected = xdfs_gsi::Expected::Host(host.to_owned());
        let delegates = gsi.authenticates_data();
        let mut initiator =
            xdfs_gsi::Initiator::new(&gsi.credential, &gsi.trust, expected, delegates)?;
        self.begin_context().map_err(of_opening)?;
        let mut token = Vec::new();
        loop {
            // It takes a bounded number. What this side refuses is its own fault.
            let step = initiator
                .step(&token)
                .map_err(|fault| untrusted(fault, host))?;
            let (next, is_last) = match step {
                Step::Next(next) => (next, false),
                Step::Done(next) => (next, true),
            };
            match self.send_token(&next, is_last).map_err(of_opening)? {
                Some(next) => token = next,
                None => break,
            }
        }
        let context = initiator
            .established()
            .ok_or_else(|| violation(ESTABLISH, "the context isn't established").remote())?;
        self.control
            .protect_by(Layer::control(Box::new(context), Side::Client));
        self.can_read = true;
        self.protection = Established::Gsi {
            subject: subject_of(&gsi.credential)?,
            own: gsi.clone(),
        };
        Ok(())
    }

    fn begin_context(&mut self) -> Result<(), Fault> {
        self.check_no_input(ESTABLISH, "the greeting")?;
        let reply = self.exchange("AUTH", b"GSSAPI")?;
        match reply.code {
            334 => Ok(()),
            _ => Err(unprotected(ESTABLISH, "AUTH GSSAPI", &reply)),
        }
    }

    /// Sends a token of a security context, and returns that of the server; `None` if the token
    /// `is_last`, which the server has confirmed.
    fn send_token(&mut self, token: &[u8], is_last: bool) -> Result<Option<Vec<u8>>, Fault> {
        let reply = self.exchange("ADAT", Base64::encode_string(token).as_bytes())?;
        let text = reply.lines.first().map(|line| line.trim_ascii());
        match (reply.code, is_last, text) {
            (235, true, _) => {
                self.check_no_input(ESTABLISH, "the last reply to ADAT")?;
                Ok(None)
            }
            (335, false, Some(text)) => {
                let text = text.strip_prefix(b"ADAT=").unwrap_or_default();
                let text = std::str::from_utf8(text).unwrap_or_default();
                let token = Base64::decode_vec(text);
                token
                    .map(Some)
                    .map_err(|_| violation(ESTABLISH, "a token isn't base64"))
            }
            (400.., _, _) => Err(Fault {
                code: Code::AuthenticationFailed,
                ..refused(ESTABLISH, b"", &reply)
            }),
            (code, _, _) => Err(violation(ESTABLISH, format!("the server answers {code}"))),
        }
    }
}
