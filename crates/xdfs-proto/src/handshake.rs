//! The exchange on a channel before it belongs to a session, for both ends.
//!
//! ```text
//! initiator                              acceptor
//!   HELLO, SESSION or JOIN  ----------->            (SESSION on channel 0 only)
//!                 <---------------------  WELCOME, or the reason why not
//!                 <---------------------  SESSION-OK or JOIN-OK, or an exception
//! ```
//!
//! TUNNEL may stand in the place of SESSION, and is answered with TUNNEL-OK; then the channel
//! belongs to no session.
//!
//! On a protected channel the initiator proves its identity before SESSION:
//!
//! ```text
//!   AUTH          --------------------->
//!                 <---------------------  CHALLENGE      (methods of two steps only)
//!   PROOF         --------------------->
//!                 <---------------------  AUTH-OK, or an exception
//! ```
//!
//! A one-step method costs no round trip: SESSION follows AUTH at once. The machines carry proofs
//! without interpreting them. Both take the bytes received so far and return how many they used.

use crate::fault::{Code, Fault};
use crate::frame::{
    AuthOk, AuthRequest, Challenge, Exception, FRAME_HEADER_BYTES, Frame, FrameHeader, JoinRequest,
    Proof, SessionAccept, SessionRequest, TunnelAccept, TunnelPurpose, TunnelRequest, kind,
};
use crate::limits::{Limits, PROOF_BYTES_MAX, TARGET_BYTES_MAX, USER_BYTES_MAX};
use crate::opening::{Answer, Feature, Hello};
use crate::wire::{DecodeError, FAULT_BYTES_MAX};

/// Decodes one frame other than BLOCK from the front of `bytes`; `Ok(None)` while it is incomplete.
///
/// # Errors
/// The frame can't be decoded, or is a BLOCK.
pub fn take_frame(bytes: &[u8], limits: &Limits) -> Result<Option<(Frame, usize)>, Fault> {
    let Some(header) = bytes.first_chunk::<FRAME_HEADER_BYTES>() else {
        return Ok(None);
    };
    let header = FrameHeader::decode(*header, limits).map_err(|e| e.fault())?;
    if header.is_block() {
        return Err(Fault::new(
            Code::ProtocolViolation,
            "open the channel",
            "a block came before the session was open",
        ));
    }
    let end = FRAME_HEADER_BYTES + header.length as usize;
    let Some(body) = bytes.get(FRAME_HEADER_BYTES..end) else {
        return Ok(None);
    };
    let frame = Frame::decode(header, body, limits).map_err(|e| e.fault())?;
    Ok(Some((frame, end)))
}

/// Size of the length of a text or proof.
const LENGTH: u32 = 2;
/// Maximum body of SESSION: its numbers, and the user's name.
const SESSION_BYTES_MAX: u32 = 16 + 3 * 4 + LENGTH + USER_BYTES_MAX as u32;
/// Size of the body of SESSION-OK.
const SESSION_OK_BYTES: u32 = 16 + 3 * 4;
/// Size of the body of JOIN.
const JOIN_BYTES: u32 = 16 + 16 + 4;
/// Maximum body of TUNNEL: its purpose, the target and two numbers.
const TUNNEL_BYTES_MAX: u32 = 1 + TUNNEL_OK_BYTES_MAX + 16;
/// Maximum body of TUNNEL-OK.
const TUNNEL_OK_BYTES_MAX: u32 = LENGTH + TARGET_BYTES_MAX as u32;
/// Maximum body of CHALLENGE and of PROOF.
const PROOF_FRAME_BYTES_MAX: u32 = LENGTH + PROOF_BYTES_MAX as u32;
/// Maximum body of AUTH-OK.
const AUTH_OK_BYTES_MAX: u32 = LENGTH + USER_BYTES_MAX as u32;
/// Maximum body of AUTH.
const AUTH_BYTES_MAX: u32 = 1 + AUTH_OK_BYTES_MAX + PROOF_FRAME_BYTES_MAX;
/// Maximum body of an exception: its scope, and a fault.
const EXCEPTION_BYTES_MAX: u32 = 1 + 4 + FAULT_BYTES_MAX;

/// Decodes one frame on a channel that doesn't belong to a session yet. `body_max` returns the
/// maximum body of a kind, and `None` for kinds that aren't allowed: so an unknown peer costs no
/// more than the expected frames, and is refused by the first eight bytes of others.
fn take_opening_frame(
    bytes: &[u8],
    limits: &Limits,
    body_max: impl FnOnce(u8) -> Option<u32>,
) -> Result<Option<(Frame, usize)>, Fault> {
    let Some(header) = bytes.first_chunk::<FRAME_HEADER_BYTES>() else {
        return Ok(None);
    };
    let header = FrameHeader::decode(*header, limits).map_err(|e| e.fault())?;
    let Some(limit) = body_max(header.kind) else {
        let cause = format!(
            "{} came before the channel was open",
            kind::name(header.kind)
        );
        return Err(violation(&cause));
    };
    if header.length > limit {
        let too_large = DecodeError::TooLarge {
            field: "length of a frame before the channel is open",
            actual: header.length.into(),
            limit: limit.into(),
        };
        return Err(too_large.fault());
    }
    take_frame(bytes, limits)
}

/// The frames with which an acceptor may answer.
fn answer_bytes_max(kind: u8) -> Option<u32> {
    match kind {
        kind::NOOP | kind::CONM | kind::JOIN_OK => Some(0),
        kind::SESSION_OK => Some(SESSION_OK_BYTES),
        kind::TUNNEL_OK => Some(TUNNEL_OK_BYTES_MAX),
        kind::CHALLENGE => Some(PROOF_FRAME_BYTES_MAX),
        kind::AUTH_OK => Some(AUTH_OK_BYTES_MAX),
        kind::EXCEPTION => Some(EXCEPTION_BYTES_MAX),
        _ => None,
    }
}

/// The purpose of a new channel.
#[derive(Clone, Debug)]
pub enum Purpose {
    /// Register a session.
    Session(SessionRequest),
    /// Join one.
    Join(JoinRequest),
    /// Have a tunnel instead of a session.
    Tunnel(TunnelRequest),
}

impl Purpose {
    /// Whether the initiator proves its identity on such a channel. One that joins others proves
    /// that it knows their secret.
    fn proves(&self) -> bool {
        match self {
            Self::Session(_) => true,
            Self::Join(_) => false,
            Self::Tunnel(request) => request.purpose != TunnelPurpose::Join,
        }
    }
}

/// The feature with which an acceptor lists its authentication methods: one byte per method.
const AUTHENTICATION: u16 = 1;
/// The feature with which both sides declare that payload may be unprotected.
const CLEAR_PAYLOAD: u16 = 2;
/// The feature with which both sides declare that requests for packs may follow symbolic links.
const FOLLOW_LINKS: u16 = 3;
/// The feature with which both sides declare that they report how they spend their time.
const TIME_ACCOUNT: u16 = 4;
/// The feature with which an acceptor declares that it has tunnels. An initiator names it on
/// channels for tunnels only.
const TUNNELS: u16 = 5;
/// The feature with which an initiator asks that what both sides send yields to others.
const YIELD: u16 = 6;
/// The feature with which both sides declare that they know the last pack of a tree.
const LAST_PACK: u16 = 7;

fn authentication(methods: &[u8]) -> Feature {
    Feature {
        id: AUTHENTICATION,
        name: "authentication".into(),
        value: methods.to_vec(),
    }
}

fn clear_payload() -> Feature {
    Feature {
        id: CLEAR_PAYLOAD,
        name: "clear-payload".into(),
        value: Vec::new(),
    }
}

fn follow_links() -> Feature {
    Feature {
        id: FOLLOW_LINKS,
        name: "follow-links".into(),
        value: Vec::new(),
    }
}

fn time_account() -> Feature {
    Feature {
        id: TIME_ACCOUNT,
        name: "time-account".into(),
        value: Vec::new(),
    }
}

fn last_pack() -> Feature {
    Feature {
        id: LAST_PACK,
        name: "last-pack".into(),
        value: Vec::new(),
    }
}

fn yield_feature() -> Feature {
    Feature {
        id: YIELD,
        name: "yield".into(),
        value: Vec::new(),
    }
}

fn tunnels() -> Feature {
    Feature {
        id: TUNNELS,
        name: "tunnels".into(),
        value: Vec::new(),
    }
}

/// The initiator's end of the handshake.
#[derive(Debug)]
pub struct Initiator {
    purpose: Purpose,
    hello: Hello,
    welcomed: bool,
    takes_clear: bool,
    follows_links: bool,
    reports_time: bool,
    takes_last_packs: bool,
    proof: ProofState,
    /// The method of a proof that was sent before the acceptor named those that it supports.
    proved_ahead: Option<u8>,
    /// The methods that the acceptor supports, once it has answered HELLO.
    methods: Vec<u8>,
    user: Option<String>,
}

/// The state of the proof of the initiator's identity.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum ProofState {
    /// None is needed, or it was accepted.
    Done,
    /// It must be started.
    Due,
    /// A step was sent (at the acceptor: requested).
    Open,
}

/// A step of the initiator's end.
#[derive(Debug)]
pub enum InitiatorStep {
    /// More bytes are needed.
    Wait,
    /// The channel is open; for the first channel, with the accepted parameters.
    Open(Option<SessionAccept>),
    /// The tunnel is granted. What follows on the channel are the bytes of its connection, or the
    /// frames of its listener.
    Tunnel(TunnelAccept),
    /// The acceptor supports these methods: continue with [`Initiator::prove`].
    Prove(Vec<u8>),
    /// The acceptor requests the next step: continue with [`Initiator::answer`].
    Challenge(Vec<u8>),
    /// The acceptor doesn't support the method of the proof that went ahead, and refuses it.
    /// Another channel has to wait for the methods.
    Mistaken,
}

impl Initiator {
    /// Starts on a channel without protection, and appends the first bytes to `out`. With `yields`,
    /// what both sides send in the session is to yield to others on the path.
    #[must_use]
    pub fn new(purpose: Purpose, yields: bool, out: &mut Vec<u8>) -> Self {
        let mut hello = Hello {
            features: vec![follow_links(), time_account(), last_pack()],
            ..Hello::default()
        };
        hello.features.extend(yields.then(yield_feature));
        Self::begin(purpose, hello, ProofState::Done, out)
    }

    /// Starts on a protected channel, where a session begins with a proof of the initiator's
    /// identity.
    #[must_use]
    pub fn protected(purpose: Purpose, yields: bool, out: &mut Vec<u8>) -> Self {
        let mut hello = Hello {
            features: vec![
                authentication(&[]),
                clear_payload(),
                follow_links(),
                time_account(),
                last_pack(),
            ],
            ..Hello::default()
        };
        hello.features.extend(yields.then(yield_feature));
        let proof = match purpose.proves() {
            true => ProofState::Due,
            false => ProofState::Done,
        };
        Self::begin(purpose, hello, proof, out)
    }

    fn begin(purpose: Purpose, mut hello: Hello, proof: ProofState, out: &mut Vec<u8>) -> Self {
        if let Purpose::Tunnel(_) = &purpose {
            hello.features.push(tunnels());
        }
        hello.encode(out);
        let initiator = Self {
            purpose,
            hello,
            welcomed: false,
            takes_clear: false,
            follows_links: false,
            reports_time: false,
            takes_last_packs: false,
            proof,
            proved_ahead: None,
            methods: Vec::new(),
            user: None,
        };
        // A request without a proof follows at once: it doesn't depend on the answer to HELLO, and
        // this saves a round trip.
        match &initiator.purpose {
            Purpose::Join(join) => Frame::Join(join.clone()).encode(out),
            _ if proof == ProofState::Done => initiator.request(out),
            _ => {}
        }
        initiator
    }

    /// The user's name at the acceptor, once it is proved.
    #[must_use]
    pub fn user(&self) -> Option<&str> {
        self.user.as_deref()
    }

    /// Whether a proof is needed, and none was sent.
    #[must_use]
    pub fn awaits_proof(&self) -> bool {
        self.proof == ProofState::Due
    }

    /// Whether SESSION or TUNNEL was sent.
    #[must_use]
    pub fn has_requested(&self) -> bool {
        !matches!(self.purpose, Purpose::Join(_)) && self.proof == ProofState::Done
    }

    /// Whether the acceptor accepts unprotected payload, once it has answered HELLO.
    #[must_use]
    pub fn takes_clear(&self) -> bool {
        self.takes_clear
    }

    /// Whether the acceptor follows symbolic links where a request for a pack says so, once it has
    /// answered HELLO.
    #[must_use]
    pub fn follows_links(&self) -> bool {
        self.follows_links
    }

    /// Whether both sides report how they spend their time, once the acceptor has answered HELLO.
    #[must_use]
    pub fn reports_time(&self) -> bool {
        self.reports_time
    }

    /// Whether the acceptor knows the last pack of a tree, once it has answered HELLO.
    #[must_use]
    pub fn takes_last_packs(&self) -> bool {
        self.takes_last_packs
    }

    /// Sends the first step of the proof and, if it is the `only` one, the request too.
    pub fn prove(&mut self, request: AuthRequest, only: bool, out: &mut Vec<u8>) {
        Frame::Auth(request).encode(out);
        self.proof = if only {
            self.request(out);
            ProofState::Done
        } else {
            ProofState::Open
        };
    }

    /// Sends a proof of one step, and the request, before the acceptor has answered HELLO.
    pub fn prove_ahead(&mut self, request: AuthRequest, out: &mut Vec<u8>) {
        self.proved_ahead = Some(request.method);
        self.prove(request, true, out);
    }

    /// The methods that the acceptor supports, once it has answered HELLO on a channel that
    /// registers a session.
    #[must_use]
    pub fn methods(&self) -> &[u8] {
        &self.methods
    }

    /// Sends the next step of the proof.
    pub fn answer(&mut self, proof: Vec<u8>, out: &mut Vec<u8>) {
        Frame::Proof(Proof(proof)).encode(out);
    }

    /// Whether this channel begins with a proof: a protected one that doesn't join a session.
    fn proves(&self) -> bool {
        let is_protected = self.hello.features.iter().any(|f| f.id == AUTHENTICATION);
        is_protected && self.purpose.proves()
    }

    fn request(&self, out: &mut Vec<u8>) {
        match &self.purpose {
            Purpose::Session(request) => Frame::Session(request.clone()).encode(out),
            Purpose::Tunnel(request) => Frame::Tunnel(request.clone()).encode(out),
            Purpose::Join(_) => {}
        }
    }

    /// Processes received bytes; returns the step and the number of bytes used. Output is appended
    /// to `out`.
    ///
    /// # Errors
    /// The acceptor refused, or violated the protocol.
    pub fn receive(
        &mut self,
        bytes: &[u8],
        limits: &Limits,
        out: &mut Vec<u8>,
    ) -> Result<(InitiatorStep, usize), Fault> {
        let mut used = 0;
        if !self.welcomed {
            let Some((answer, n)) = Answer::decode(bytes).map_err(|e| foreign(bytes, &e))? else {
                return Ok((InitiatorStep::Wait, 0));
            };
            used = n;
            match answer {
                Answer::Refused(fault) => return Err(fault.remote()),
                Answer::Welcome(welcome) => {
                    self.hello.check(&welcome)?;
                    self.welcomed = true;
                    let has = |id| welcome.features.iter().any(|f| f.id == id);
                    self.takes_clear = has(CLEAR_PAYLOAD);
                    self.follows_links = has(FOLLOW_LINKS);
                    self.reports_time = has(TIME_ACCOUNT);
                    self.takes_last_packs = has(LAST_PACK);
                    if matches!(self.purpose, Purpose::Tunnel(_)) && !has(TUNNELS) {
                        return Err(no_tunnels().remote());
                    }
                    if self.proves() {
                        let offered = welcome
                            .features
                            .into_iter()
                            .find(|f| f.id == AUTHENTICATION);
                        let Some(offered) = offered else {
                            return Err(violation("the acceptor supports no authentication"));
                        };
                        self.methods = offered.value;
                        match self.proved_ahead {
                            None => return Ok((InitiatorStep::Prove(self.methods.clone()), used)),
                            Some(method) if !self.methods.contains(&method) => {
                                return Ok((InitiatorStep::Mistaken, used));
                            }
                            Some(_) => {}
                        }
                    }
                }
            }
        }
        let frame = loop {
            let rest = bytes.get(used..).unwrap_or(&[]);
            let Some((frame, n)) = take_opening_frame(rest, limits, answer_bytes_max)? else {
                return Ok((InitiatorStep::Wait, used));
            };
            used += n;
            // A busy acceptor may refuse for now. After a one-step proof, AUTH-OK comes together
            // with the answer.
            let proved = self.proof == ProofState::Done && self.proves();
            match frame {
                Frame::Noop | Frame::Conm => {}
                Frame::AuthOk(AuthOk { user }) if proved && self.user.is_none() => {
                    self.user = Some(user)
                }
                frame => break frame,
            }
        };
        match (frame, &self.purpose) {
            (Frame::SessionOk(_), Purpose::Session(_)) if self.proves() && self.user.is_none() => {
                Err(violation("SESSION-OK came before AUTH-OK"))
            }
            (Frame::TunnelOk(_), Purpose::Tunnel(_)) if self.proves() && self.user.is_none() => {
                Err(violation("TUNNEL-OK came before AUTH-OK"))
            }
            (Frame::TunnelOk(accept), Purpose::Tunnel(_)) => {
                Ok((InitiatorStep::Tunnel(accept), used))
            }
            (Frame::SessionOk(accept), Purpose::Session(request)) => {
                if accept.channels == 0 || accept.channels > request.channels {
                    return Err(violation("SESSION-OK raises the number of channels"));
                }
                if request.block_size != 0 && accept.block_size > request.block_size {
                    return Err(violation("SESSION-OK raises the block size"));
                }
                Ok((InitiatorStep::Open(Some(accept)), used))
            }
            (Frame::JoinOk, Purpose::Join(_)) => Ok((InitiatorStep::Open(None), used)),
            (Frame::Challenge(Challenge(body)), _) if self.proof == ProofState::Open => {
                Ok((InitiatorStep::Challenge(body), used))
            }
            (Frame::AuthOk(AuthOk { user }), Purpose::Session(_) | Purpose::Tunnel(_))
                if self.proof == ProofState::Open =>
            {
                self.proof = ProofState::Done;
                self.user = Some(user);
                self.request(out);
                Ok((InitiatorStep::Wait, used))
            }
            (Frame::Exception(Exception { fault, .. }), _) => Err(fault.remote()),
            (other, _) => Err(violation(&format!(
                "{} came instead of an answer",
                other.name()
            ))),
        }
    }
}

/// The acceptor's end of the handshake.
#[derive(Debug)]
pub struct Acceptor {
    greeted: bool,
    reports_time: bool,
    yields: bool,
    proof: ProofState,
    features: Vec<Feature>,
}

/// A step of the acceptor's end.
#[derive(Debug)]
pub enum AcceptorStep {
    /// More bytes are needed.
    Wait,
    /// The peer registers a session: answer with SESSION-OK or an exception.
    Session(SessionRequest),
    /// The peer joins a session: answer with JOIN-OK or an exception.
    Join(JoinRequest),
    /// The peer asks for a tunnel: answer with TUNNEL-OK or an exception.
    Tunnel(TunnelRequest),
    /// The peer begins its proof: continue with [`Acceptor::challenge`] or [`Acceptor::proved`], or
    /// answer with an exception.
    Auth(AuthRequest),
    /// The next step of the proof: continue as for `Auth`.
    Proof(Vec<u8>),
}

impl Acceptor {
    /// A new channel without protection.
    #[must_use]
    pub fn new() -> Self {
        Self {
            greeted: false,
            reports_time: false,
            yields: false,
            proof: ProofState::Done,
            features: vec![follow_links(), time_account(), yield_feature(), last_pack()],
        }
    }

    /// A new protected channel: a session needs a proof by one of `methods`, and payload may be
    /// unprotected if `clear`.
    #[must_use]
    pub fn protected(methods: &[u8], clear: bool) -> Self {
        let mut features = vec![authentication(methods)];
        if clear {
            features.push(clear_payload());
        }
        features.extend([follow_links(), time_account(), yield_feature(), last_pack()]);
        Self {
            greeted: false,
            reports_time: false,
            yields: false,
            proof: ProofState::Due,
            features,
        }
    }

    /// The same, for an acceptor that has tunnels.
    #[must_use]
    pub fn with_tunnels(mut self) -> Self {
        self.features.push(tunnels());
        self
    }

    /// Whether both sides report how they spend their time, once HELLO has come.
    #[must_use]
    pub fn reports_time(&self) -> bool {
        self.reports_time
    }

    /// Whether the initiator asks that what is sent yields to others, once HELLO has come.
    #[must_use]
    pub fn yields(&self) -> bool {
        self.yields
    }

    /// Requests the next step of the proof.
    pub fn challenge(&mut self, body: Vec<u8>, out: &mut Vec<u8>) {
        self.proof = ProofState::Open;
        Frame::Challenge(Challenge(body)).encode(out);
    }

    /// Accepts the proof.
    pub fn proved(&mut self, user: String, out: &mut Vec<u8>) {
        self.proof = ProofState::Done;
        Frame::AuthOk(AuthOk { user }).encode(out);
    }

    /// The maximum body of each kind allowed now.
    fn request_bytes_max(&self, kind: u8) -> Option<u32> {
        match kind {
            kind::SESSION => Some(SESSION_BYTES_MAX),
            kind::JOIN => Some(JOIN_BYTES),
            kind::TUNNEL => Some(TUNNEL_BYTES_MAX),
            kind::AUTH if self.proof == ProofState::Due => Some(AUTH_BYTES_MAX),
            kind::PROOF if self.proof == ProofState::Open => Some(PROOF_FRAME_BYTES_MAX),
            _ => None,
        }
    }

    /// Processes received bytes; returns the step and the number of bytes used. Output is appended
    /// to `out`, even when the result is an error: in that case send it and close.
    ///
    /// # Errors
    /// The initiator can't be served, or violated the protocol.
    pub fn receive(
        &mut self,
        bytes: &[u8],
        limits: &Limits,
        out: &mut Vec<u8>,
    ) -> Result<(AcceptorStep, usize), Fault> {
        let mut used = 0;
        if !self.greeted {
            let hello = match Hello::decode(bytes) {
                Ok(Some(hello)) => hello,
                Ok(None) => return Ok((AcceptorStep::Wait, 0)),
                Err(error) => {
                    let fault = error.fault();
                    Answer::Refused(fault.clone()).encode(out);
                    return Err(fault);
                }
            };
            used = hello.1;
            let answer = hello.0.answer(&self.features);
            answer.encode(out);
            if let Answer::Refused(fault) = answer {
                return Err(fault);
            }
            self.greeted = true;
            let has = |id| hello.0.features.iter().any(|f| f.id == id);
            self.reports_time = has(TIME_ACCOUNT);
            self.yields = has(YIELD);
        }
        let refuse = |fault: Fault, out: &mut Vec<u8>| {
            let scope = crate::frame::Scope::Channel;
            Frame::Exception(Exception {
                scope,
                fault: fault.clone(),
            })
            .encode(out);
            fault
        };
        let rest = bytes.get(used..).unwrap_or(&[]);
        let taken = take_opening_frame(rest, limits, |kind| self.request_bytes_max(kind));
        let Some((frame, n)) = taken.map_err(|f| refuse(f, out))? else {
            return Ok((AcceptorStep::Wait, used));
        };
        used += n;
        let has_tunnels = self.features.iter().any(|f| f.id == TUNNELS);
        match frame {
            Frame::Auth(request) if self.proof == ProofState::Due => {
                Ok((AcceptorStep::Auth(request), used))
            }
            Frame::Proof(Proof(body)) if self.proof == ProofState::Open => {
                Ok((AcceptorStep::Proof(body), used))
            }
            Frame::Tunnel(ref request) if request.purpose == TunnelPurpose::Join && has_tunnels => {
                // The secret of the bundle, which follows, is its proof.
                Ok((AcceptorStep::Tunnel(request.clone()), used))
            }
            Frame::Session(_) | Frame::Tunnel(_) if self.proof != ProofState::Done => {
                let cause = format!("{} came before authentication", frame.name());
                let fault = Fault::new(Code::AuthenticationFailed, "open the channel", cause);
                Err(refuse(fault, out))
            }
            Frame::Session(request) => Ok((AcceptorStep::Session(request), used)),
            Frame::Tunnel(_) if !has_tunnels => Err(refuse(no_tunnels(), out)),
            Frame::Tunnel(request) => Ok((AcceptorStep::Tunnel(request), used)),
            // The secret of the session is its proof.
            Frame::Join(request) => Ok((AcceptorStep::Join(request), used)),
            other => {
                let fault = violation(&format!("{} came before SESSION or JOIN", other.name()));
                Err(refuse(fault, out))
            }
        }
    }
}

impl Default for Acceptor {
    fn default() -> Self {
        Self::new()
    }
}

/// The first byte of a TLS alert record: the answer of a TLS server to a plain HELLO.
const TLS_ALERT: u8 = 0x15;

/// The fault of an acceptor whose first bytes aren't those of the protocol.
fn foreign(bytes: &[u8], error: &DecodeError) -> Fault {
    if bytes.first() == Some(&TLS_ALERT) {
        let cause = "the server requires encryption";
        return Fault::new(Code::ProtectionRefused, "open the connection", cause)
            .hint("leave out --insecure");
    }
    error.fault()
}

/// The fault of an acceptor without tunnels.
fn no_tunnels() -> Fault {
    let cause = "the server has no tunnels";
    Fault::new(Code::FeatureUnsupported, "open the tunnel", cause)
        .hint("it is too old for them, or its settings allow none")
}

fn violation(cause: &str) -> Fault {
    Fault::new(Code::ProtocolViolation, "open the channel", cause)
}
