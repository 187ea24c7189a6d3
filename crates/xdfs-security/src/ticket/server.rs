//! The tickets issued by a server.

use std::collections::HashMap;
use std::fmt;

use subtle::ConstantTimeEq;
use xdfs_proto::fault::{Code, Fault};
use zeroize::Zeroizing;

use super::capability::{Capability, Opens, is_held_by};
use super::{ID_BYTES, Id, SECRET_BYTES, Secret, tag, to_text};
use crate::export::Rights;
use crate::{Binding, NOT_ACCEPTED, Scope};

/// Maximum number of valid tickets.
const TICKETS_MAX: usize = 1024;
/// Maximum lifetime of a ticket in seconds: 30 days.
const LIFE_S_MAX: u64 = 30 * 24 * 3600;
/// Number of wrong proofs after which a ticket is revoked.
const WRONG_PROOFS_MAX: u32 = 8;
/// Bounds on the content of a ticket.
const USER_BYTES_MAX: usize = 256;
const SCOPES_MAX: usize = 64;
const PATH_BYTES_MAX: usize = 4096;

const ISSUE: &str = "issue a ticket";

/// Issued and unused tickets, at most 1024, in memory only.
#[derive(Default)]
pub struct TicketBox {
    tickets: HashMap<Id, Ticket>,
}

struct Ticket {
    secret: Secret,
    granted: Redeemed,
    /// Expiry in seconds since 1970; it isn't valid from this second on.
    expires_unix: u64,
    uses_left: u32,
    wrong_proofs: u32,
}

/// The rights of a ticket.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Redeemed {
    /// The user for whom it was issued.
    pub user: String,
    /// Limits of the user's rights; empty for none.
    pub scopes: Vec<Scope>,
    /// The further limits of a capability; `None` for any other ticket.
    pub capability: Option<Capability>,
}

impl TicketBox {
    /// A box without tickets.
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }

    /// Issues a ticket that is valid once, from `now_unix` (seconds since 1970) for `life_s`
    /// seconds, at most 30 days. Whoever redeems it acts as `user` within `scopes`. Returns the
    /// text for the link, which must be kept secret.
    ///
    /// # Errors
    /// `LimitExceeded` if 1024 tickets are valid already; `InvalidArgument` for a lifetime out of
    /// range, a name of more than 256 bytes, more than 64 scopes, or a path of more than 4096
    /// bytes; `Internal` if the system has no randomness.
    pub fn issue(
        &mut self,
        user: &str,
        scopes: Vec<Scope>,
        now_unix: u64,
        life_s: u64,
    ) -> Result<Zeroizing<String>, Fault> {
        self.issue_for_uses(user, scopes, now_unix, life_s, 1)
    }

    /// [`Self::issue`] for a ticket that is valid `uses` times, at least once.
    ///
    /// # Errors
    /// Those of [`TicketBox::issue`].
    pub fn issue_for_uses(
        &mut self,
        user: &str,
        scopes: Vec<Scope>,
        now_unix: u64,
        life_s: u64,
        uses: u32,
    ) -> Result<Zeroizing<String>, Fault> {
        let granted = Redeemed {
            user: user.to_owned(),
            scopes,
            capability: None,
        };
        self.issue_granted(granted, now_unix, life_s, uses)
    }

    /// Issues a capability of `user`, valid once, from `now_unix` for `life_s` seconds.
    ///
    /// # Errors
    /// Those of [`TicketBox::issue`].
    pub fn issue_capability(
        &mut self,
        user: &str,
        capability: Capability,
        now_unix: u64,
        life_s: u64,
    ) -> Result<Zeroizing<String>, Fault> {
        let rights = match (capability.opens, capability.writes) {
            (Opens::File { .. }, true) => Rights::CREATE | Rights::WRITE,
            (Opens::File { .. }, false) => Rights::READ,
            (Opens::Tree, true) => Rights::ALL,
            (Opens::Tree, false) => Rights::READ | Rights::LIST,
        };
        let scope = Scope {
            makes_links: capability.opens == Opens::Tree,
            ..Scope::new(capability.path.clone(), rights)
        };
        let granted = Redeemed {
            user: user.to_owned(),
            scopes: vec![scope],
            capability: Some(capability),
        };
        self.issue_granted(granted, now_unix, life_s, 1)
    }

    fn issue_granted(
        &mut self,
        granted: Redeemed,
        now_unix: u64,
        life_s: u64,
        uses: u32,
    ) -> Result<Zeroizing<String>, Fault> {
        let Redeemed { user, scopes, .. } = &granted;
        let is_sane = (1..=LIFE_S_MAX).contains(&life_s)
            && uses > 0
            && user.len() <= USER_BYTES_MAX
            && scopes.len() <= SCOPES_MAX
            && scopes.iter().all(|s| s.path.len() <= PATH_BYTES_MAX);
        if !is_sane {
            let cause = "its life, its uses, its user or its scopes are out of range";
            return Err(Fault::new(Code::InvalidArgument, ISSUE, cause)
                .hint("take a life of 1 s to 30 days, and at most 64 scopes"));
        }
        self.tickets.retain(|_, t| now_unix < t.expires_unix);
        if self.tickets.len() >= TICKETS_MAX {
            let cause = format!("there are {TICKETS_MAX} unused tickets");
            return Err(Fault::new(Code::LimitExceeded, ISSUE, cause)
                .hint("issue tickets with a shorter life"));
        }
        let random = |_| Fault::new(Code::Internal, ISSUE, "the system has no randomness");
        let mut id = Id::default();
        let mut secret = Zeroizing::new([0; SECRET_BYTES]);
        getrandom::fill(&mut id).map_err(random)?;
        getrandom::fill(&mut *secret).map_err(random)?;
        let text = to_text(&id, &secret);
        let ticket = Ticket {
            secret,
            granted,
            expires_unix: now_unix.saturating_add(life_s),
            uses_left: uses,
            wrong_proofs: 0,
        };
        // A collision of 64 random bits is less likely than any other failure.
        self.tickets.insert(id, ticket);
        Ok(text)
    }

    /// Checks the body of AUTH from the channel of `binding`, and returns the rights of its ticket,
    /// of which one use is consumed. A wrong proof consumes no use, but after 8 of them the ticket
    /// is revoked.
    ///
    /// # Errors
    /// `AuthenticationFailed`, always with the same text.
    pub fn redeem(
        &mut self,
        body: &[u8],
        binding: &Binding,
        now_unix: u64,
    ) -> Result<Redeemed, Fault> {
        let (id, rest) = body.split_first_chunk::<ID_BYTES>().ok_or_else(refusal)?;
        // A proof that is cut is a wrong one.
        let (proof, signed) = rest.split_at(rest.len().min(SECRET_BYTES));
        let Some(ticket) = self.tickets.get_mut(id) else {
            // The same work as for an existing ticket.
            let secret = Zeroizing::new([0; SECRET_BYTES]);
            let _ = tag(&secret, binding, id).as_ref().ct_eq(proof);
            return Err(refusal());
        };
        let is_held = match &ticket.granted.capability {
            Some(capability) => is_held_by(body, capability.holder, binding),
            None => signed.is_empty(),
        };
        let is_right =
            bool::from(tag(&ticket.secret, binding, id).as_ref().ct_eq(proof)) && is_held;
        if now_unix >= ticket.expires_unix {
            self.tickets.remove(id);
            return Err(refusal());
        }
        if !is_right {
            ticket.wrong_proofs += 1;
            if ticket.wrong_proofs >= WRONG_PROOFS_MAX {
                self.tickets.remove(id);
            }
            return Err(refusal());
        }
        let granted = ticket.granted.clone();
        ticket.uses_left -= 1;
        if ticket.uses_left == 0 {
            self.tickets.remove(id);
        }
        Ok(granted)
    }

    /// Number of tickets with uses left; expired ones are included until the next is issued.
    #[must_use]
    pub fn len(&self) -> usize {
        self.tickets.len()
    }

    /// Whether there are none.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.tickets.is_empty()
    }
}

impl fmt::Debug for TicketBox {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("TicketBox")
            .field("tickets", &self.tickets.len())
            .finish_non_exhaustive()
    }
}

fn refusal() -> Fault {
    Fault::new(
        Code::AuthenticationFailed,
        "authenticate the user",
        NOT_ACCEPTED,
    )
    .hint("ask for a new ticket: each can be used once, and for a limited time")
}
