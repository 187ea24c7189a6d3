//! The connection that a request came by: whether it is protected, and who is at its other
//! end by a certificate.

use std::sync::{Arc, OnceLock};

use crate::strangers::Stranger;

/// The certificates of a client in DER, its own first.
pub(crate) type Chain = Arc<Vec<Vec<u8>>>;

/// The connection that a request came by.
#[derive(Clone, Debug, Default)]
pub(crate) struct Channel(Option<Arc<Protected>>);

/// A connection with TLS.
#[derive(Debug)]
struct Protected {
    stranger: Arc<Stranger>,
    certificates: Option<Chain>,
    /// The user of the certificates, once they have logged in.
    user: OnceLock<String>,
}

impl Channel {
    /// One with TLS, whose client has shown these certificates.
    pub(crate) fn protected(stranger: Arc<Stranger>, certificates: Vec<Vec<u8>>) -> Self {
        Self(Some(Arc::new(Protected {
            stranger,
            certificates: (!certificates.is_empty()).then(|| Arc::new(certificates)),
            user: OnceLock::new(),
        })))
    }

    /// Whether it has TLS, and may come from another machine.
    pub(crate) fn is_protected(&self) -> bool {
        self.0.is_some()
    }

    /// The certificates of the client.
    pub(crate) fn certificates(&self) -> Option<&Chain> {
        self.0.as_ref()?.certificates.as_ref()
    }

    /// The user that its certificates have logged in.
    pub(crate) fn user(&self) -> Option<&str> {
        Some(self.0.as_ref()?.user.get()?.as_str())
    }

    /// Its certificates have logged in a user.
    pub(crate) fn logged_in(&self, user: &str) {
        if let Some(protected) = &self.0 {
            // Of two at the same time, both are by the same certificates.
            let _ = protected.user.set(user.to_owned());
        }
    }

    /// A user has sent a request by it.
    pub(crate) fn is_known(&self) {
        if let Some(protected) = &self.0 {
            protected.stranger.leave();
        }
    }
}
