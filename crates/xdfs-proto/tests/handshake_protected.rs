//! The opening of a protected channel at both ends: the proof of who the initiator is, in its order
//! and in no other. The numbers are those of the specification.

use xdfs_proto::frame::{
    AuthOk, AuthRequest, Challenge, Exception, JoinRequest, Proof, Scope, SessionAccept,
    SessionRequest, Start,
};
use xdfs_proto::handshake::{Acceptor, AcceptorStep, Initiator, InitiatorStep, Purpose};
use xdfs_proto::opening::{Answer, Feature, Hello, Welcome};
use xdfs_proto::{ChannelIndex, Code, Fault, Frame, Limits, SessionId, SessionSecret, Side};

const PIECES: [usize; 5] = [1, 2, 7, 16, 1000];
const METHODS: [u8; 2] = [2, 3];

fn session() -> SessionRequest {
    SessionRequest {
        id: SessionId([7; 16]),
        channels: 4,
        block_size: 1 << 20,
        window: 0,
        start: Start::Elastic,
        user: String::new(),
    }
}

fn session_ok() -> Frame {
    Frame::SessionOk(SessionAccept {
        secret: SessionSecret([9; 16]),
        channels: 4,
        block_size: 4096,
        window: 0,
    })
}

fn join() -> JoinRequest {
    JoinRequest {
        id: SessionId([7; 16]),
        secret: SessionSecret([9; 16]),
        channel: ChannelIndex(1),
    }
}

fn auth() -> AuthRequest {
    AuthRequest {
        method: 2,
        user: "ada".into(),
        body: vec![1, 2, 3],
    }
}

fn auth_ok() -> Frame {
    Frame::AuthOk(AuthOk { user: "ada".into() })
}

fn bytes(frame: &Frame) -> Vec<u8> {
    let mut out = Vec::new();
    frame.encode(&mut out);
    out
}

fn feature(methods: &[u8]) -> Feature {
    Feature {
        id: 1,
        name: "authentication".into(),
        value: methods.to_vec(),
    }
}

fn clear() -> Feature {
    Feature {
        id: 2,
        name: "clear-payload".into(),
        value: Vec::new(),
    }
}

fn follow_links() -> Feature {
    Feature {
        id: 3,
        name: "follow-links".into(),
        value: Vec::new(),
    }
}

fn last_pack() -> Feature {
    Feature {
        id: 7,
        name: "last-pack".into(),
        value: Vec::new(),
    }
}

fn time_account() -> Feature {
    Feature {
        id: 4,
        name: "time-account".into(),
        value: Vec::new(),
    }
}

fn hello() -> Vec<u8> {
    let mut out = Vec::new();
    let features = vec![
        feature(&[]),
        clear(),
        follow_links(),
        time_account(),
        last_pack(),
    ];
    Hello {
        features,
        ..Hello::default()
    }
    .encode(&mut out);
    out
}

fn welcome(features: Vec<Feature>) -> Vec<u8> {
    let mut out = Vec::new();
    let version = 1;
    Answer::Welcome(Welcome { version, features }).encode(&mut out);
    out
}

#[track_caller]
fn refused<T>(result: Result<T, Fault>, code: Code) -> Fault {
    let Err(fault) = result else {
        panic!("it was taken");
    };
    assert_eq!(fault.code, code, "{fault}");
    fault
}

/// One end with the bytes that it hasn't used and those that it wrote.
struct End<M> {
    machine: M,
    unused: Vec<u8>,
    out: Vec<u8>,
}

impl<M> End<M> {
    fn new(machine: M) -> Self {
        Self {
            machine,
            unused: Vec::new(),
            out: Vec::new(),
        }
    }

    fn written(&mut self) -> Vec<u8> {
        std::mem::take(&mut self.out)
    }
}

/// What both machines have in common, for feeding them.
trait Machine {
    type Step;

    fn receive(&mut self, bytes: &[u8], out: &mut Vec<u8>) -> Result<(Self::Step, usize), Fault>;
    fn waits(step: &Self::Step) -> bool;
}

impl Machine for Acceptor {
    type Step = AcceptorStep;

    fn receive(&mut self, bytes: &[u8], out: &mut Vec<u8>) -> Result<(AcceptorStep, usize), Fault> {
        Self::receive(self, bytes, &Limits::default(), out)
    }

    fn waits(step: &AcceptorStep) -> bool {
        matches!(step, AcceptorStep::Wait)
    }
}

impl Machine for Initiator {
    type Step = InitiatorStep;

    fn receive(
        &mut self,
        bytes: &[u8],
        out: &mut Vec<u8>,
    ) -> Result<(InitiatorStep, usize), Fault> {
        Self::receive(self, bytes, &Limits::default(), out)
    }

    fn waits(step: &InitiatorStep) -> bool {
        matches!(step, InitiatorStep::Wait)
    }
}

impl<M: Machine> End<M> {
    /// Goes on with what is there.
    fn go_on(&mut self) -> Result<M::Step, Fault> {
        loop {
            let (step, used) = self.machine.receive(&self.unused, &mut self.out)?;
            self.unused.drain(..used);
            if used == 0 || !M::waits(&step) {
                return Ok(step);
            }
        }
    }

    /// Feeds it in pieces up to its next step. What follows that stays for later.
    fn feed(&mut self, input: &[u8], piece: usize) -> Result<M::Step, Fault> {
        let mut step = self.go_on()?;
        for part in input.chunks(piece) {
            self.unused.extend_from_slice(part);
            if M::waits(&step) {
                step = self.go_on()?;
            }
        }
        Ok(step)
    }
}

fn acceptor() -> End<Acceptor> {
    End::new(Acceptor::protected(&METHODS, true))
}

fn initiator(purpose: Purpose) -> End<Initiator> {
    let mut out = Vec::new();
    let machine = Initiator::protected(purpose, false, &mut out);
    End {
        out,
        ..End::new(machine)
    }
}

/// An initiator that was welcomed and is to prove who it is.
fn asked() -> End<Initiator> {
    let mut end = initiator(Purpose::Session(session()));
    let step = end.feed(&welcome(vec![feature(&METHODS)]), 1000);
    assert!(matches!(step, Ok(InitiatorStep::Prove(m)) if m == METHODS));
    assert_eq!(end.written(), hello());
    end
}

/// What an initiator makes of the bytes that an acceptor sent before it closed.
fn reason(answered: &[u8]) -> Fault {
    let mut end = initiator(Purpose::Join(join()));
    let fault = end.feed(answered, 1000).expect_err("a reason");
    assert_eq!(fault.side, Side::Remote);
    fault
}

///
#[test]
fn a_method_of_one_step_costs_no_round_trip() {
    for piece in PIECES {
        let mut client = initiator(Purpose::Session(session()));
        let mut server = acceptor();
        let step = server.feed(&client.written(), piece);
        assert!(matches!(step, Ok(AcceptorStep::Wait)));
        let answer = server.written();
        let features = vec![
            feature(&METHODS),
            clear(),
            follow_links(),
            time_account(),
            last_pack(),
        ];
        assert_eq!(answer, welcome(features));

        let step = client.feed(&answer, piece);
        assert!(matches!(step, Ok(InitiatorStep::Prove(m)) if m == METHODS));
        let End { machine, out, .. } = &mut client;
        machine.prove(auth(), true, out);
        let asked = client.written();
        let expected = [
            bytes(&Frame::Auth(auth())),
            bytes(&Frame::Session(session())),
        ];
        assert_eq!(asked, expected.concat(), "both at once");

        let step = server.feed(&asked, piece);
        assert!(matches!(step, Ok(AcceptorStep::Auth(a)) if a == auth()));
        assert!(
            server.out.is_empty(),
            "nothing is said before the proof is checked"
        );
        server.machine.proved("ada".into(), &mut server.out);
        let step = server.go_on();
        assert!(matches!(step, Ok(AcceptorStep::Session(s)) if s == session()));
        session_ok().encode(&mut server.out);

        let step = client.feed(&server.written(), piece);
        assert!(matches!(step, Ok(InitiatorStep::Open(Some(a))) if a.channels == 4));
        assert!(client.out.is_empty() && client.unused.is_empty());
    }
}

///
#[test]
fn a_method_of_two_steps_goes_by_a_challenge() {
    for piece in PIECES {
        let (mut client, mut server) = (asked(), acceptor());
        let step = server.feed(&hello(), piece);
        assert!(matches!(step, Ok(AcceptorStep::Wait)));
        server.written();

        let End { machine, out, .. } = &mut client;
        machine.prove(auth(), false, out);
        let first = client.written();
        assert_eq!(first, bytes(&Frame::Auth(auth())), "SESSION waits");
        let step = server.feed(&first, piece);
        assert!(matches!(step, Ok(AcceptorStep::Auth(a)) if a == auth()));
        server.machine.challenge(vec![8; 60], &mut server.out);

        // A busy acceptor asks for patience.
        let challenge = [bytes(&Frame::Noop), server.written()].concat();
        let step = client.feed(&challenge, piece);
        assert!(matches!(step, Ok(InitiatorStep::Challenge(c)) if c == [8; 60]));
        let End { machine, out, .. } = &mut client;
        machine.answer(vec![9; 32], out);
        let proof = client.written();
        assert_eq!(proof, bytes(&Frame::Proof(Proof(vec![9; 32]))));

        let step = server.feed(&proof, piece);
        assert!(matches!(step, Ok(AcceptorStep::Proof(p)) if p == [9; 32]));
        server.machine.proved("ada".into(), &mut server.out);
        let step = client.feed(&server.written(), piece);
        assert!(matches!(step, Ok(InitiatorStep::Wait)));
        let request = client.written();
        assert_eq!(request, bytes(&Frame::Session(session())));
        let step = server.feed(&request, piece);
        assert!(matches!(step, Ok(AcceptorStep::Session(s)) if s == session()));
        let step = client.feed(&bytes(&session_ok()), piece);
        assert!(matches!(step, Ok(InitiatorStep::Open(Some(_)))));
    }
}

///
#[test]
fn a_proof_that_goes_ahead_saves_a_round_trip() {
    for piece in PIECES {
        let mut client = initiator(Purpose::Session(session()));
        let End { machine, out, .. } = &mut client;
        assert!(machine.awaits_proof() && !machine.has_requested());
        machine.prove_ahead(auth(), out);
        assert!(!machine.awaits_proof() && machine.has_requested());
        let ahead = client.written();
        let expected = [
            hello(),
            bytes(&Frame::Auth(auth())),
            bytes(&Frame::Session(session())),
        ];
        assert_eq!(ahead, expected.concat());
        let answer = [
            welcome(vec![feature(&METHODS)]),
            bytes(&Frame::AuthOk(AuthOk { user: "ada".into() })),
            bytes(&session_ok()),
        ];
        let step = client.feed(&answer.concat(), piece);
        assert!(matches!(step, Ok(InitiatorStep::Open(Some(a))) if a.channels == 4));
        assert_eq!(client.machine.methods(), METHODS);
    }
}

///
#[test]
fn a_proof_that_went_ahead_by_a_method_that_is_not_taken_is_a_mistake() {
    let mut client = initiator(Purpose::Session(session()));
    let End { machine, out, .. } = &mut client;
    machine.prove_ahead(auth(), out);
    let others: Vec<u8> = METHODS
        .into_iter()
        .filter(|m| *m != auth().method)
        .collect();
    let step = client.feed(&welcome(vec![feature(&others)]), 1000);
    assert!(matches!(step, Ok(InitiatorStep::Mistaken)), "{step:?}");
    // And without any methods it's no acceptor for protected channels.
    let mut client = initiator(Purpose::Session(session()));
    let End { machine, out, .. } = &mut client;
    machine.prove_ahead(auth(), out);
    client.feed(&welcome(Vec::new()), 1000).unwrap_err();
}

///
#[test]
fn what_is_sent_ahead_is_taken_in_its_order() {
    for piece in PIECES {
        let mut server = acceptor();
        let ahead = [
            hello(),
            bytes(&Frame::Auth(auth())),
            bytes(&Frame::Proof(Proof(vec![5]))),
            bytes(&Frame::Session(session())),
        ];
        let step = server.feed(&ahead.concat(), piece);
        assert!(matches!(step, Ok(AcceptorStep::Auth(_))));
        server.machine.challenge(Vec::new(), &mut server.out);
        let step = server.go_on();
        assert!(matches!(step, Ok(AcceptorStep::Proof(p)) if p == [5]));
        server.machine.proved(String::new(), &mut server.out);
        let step = server.go_on();
        assert!(matches!(step, Ok(AcceptorStep::Session(_))));
    }
}

///
#[test]
fn joining_needs_no_proof_and_one_round_trip() {
    for piece in PIECES {
        let mut client = initiator(Purpose::Join(join()));
        let asked = client.written();
        assert_eq!(asked, [hello(), bytes(&Frame::Join(join()))].concat());
        let mut server = acceptor();
        let step = server.feed(&asked, piece);
        assert!(matches!(step, Ok(AcceptorStep::Join(j)) if j == join()));
        Frame::JoinOk.encode(&mut server.out);
        let step = client.feed(&server.written(), piece);
        assert!(matches!(step, Ok(InitiatorStep::Open(None))));
    }
}

///
#[test]
fn a_session_before_its_proof_is_refused() {
    for piece in PIECES {
        let session = bytes(&Frame::Session(session()));
        let mut server = acceptor();
        let step = server.feed(&[hello(), session.clone()].concat(), piece);
        refused(step, Code::AuthenticationFailed);
        assert_eq!(reason(&server.out).code, Code::AuthenticationFailed);

        // Nor with the proof half done.
        let mut server = acceptor();
        let step = server.feed(&[hello(), bytes(&Frame::Auth(auth()))].concat(), piece);
        assert!(matches!(step, Ok(AcceptorStep::Auth(_))));
        server.machine.challenge(vec![1], &mut server.out);
        let step = server.feed(&session, piece);
        refused(step, Code::AuthenticationFailed);

        // An initiator that doesn't know of proofs learns the same.
        let mut plain = Vec::new();
        Hello::default().encode(&mut plain);
        let mut server = acceptor();
        let step = server.feed(&[plain, session].concat(), piece);
        refused(step, Code::AuthenticationFailed);
        assert_eq!(server.out[..16], welcome(Vec::new())[..], "no feature");
    }
}

/// Feeds an acceptor after `prepare` and expects a violation, of which the peer is told.
#[track_caller]
fn out_of_place(prepare: impl Fn(&mut End<Acceptor>), frame: &Frame) {
    for piece in [1, 1000] {
        let mut server = acceptor();
        let step = server.feed(&hello(), piece);
        assert!(matches!(step, Ok(AcceptorStep::Wait)));
        prepare(&mut server);
        let before = server.out.len();
        let step = server.feed(&bytes(frame), piece);
        let fault = refused(step, Code::ProtocolViolation);
        assert!(fault.cause.starts_with(frame.name()), "{fault}");
        let told = Frame::Exception(Exception {
            scope: Scope::Channel,
            fault,
        });
        assert_eq!(server.out[before..], bytes(&told));
    }
}

fn greeted(_: &mut End<Acceptor>) {}

fn challenged(server: &mut End<Acceptor>) {
    let step = server.feed(&bytes(&Frame::Auth(auth())), 1000);
    assert!(matches!(step, Ok(AcceptorStep::Auth(_))));
    server.machine.challenge(vec![1], &mut server.out);
}

fn proved(server: &mut End<Acceptor>) {
    let step = server.feed(&bytes(&Frame::Auth(auth())), 1000);
    assert!(matches!(step, Ok(AcceptorStep::Auth(_))));
    server.machine.proved("ada".into(), &mut server.out);
}

///
#[test]
fn an_acceptor_takes_the_steps_in_their_order_only() {
    let again = Frame::Auth(auth());
    let proof = Frame::Proof(Proof(vec![1]));
    out_of_place(greeted, &proof);
    out_of_place(challenged, &again);
    out_of_place(proved, &again);
    out_of_place(proved, &proof);
    for prepare in [greeted, challenged, proved] {
        for frame in [
            Frame::Challenge(Challenge(vec![1])),
            auth_ok(),
            session_ok(),
            Frame::Noop,
        ] {
            out_of_place(prepare, &frame);
        }
    }
}

///
#[test]
fn without_protection_there_is_no_proof() {
    let mut plain = Vec::new();
    Hello::default().encode(&mut plain);
    for frame in [Frame::Auth(auth()), Frame::Proof(Proof(vec![1]))] {
        for first in [hello(), plain.clone()] {
            let mut server = End::new(Acceptor::new());
            let step = server.feed(&[first, bytes(&frame)].concat(), 1);
            refused(step, Code::ProtocolViolation);
            assert_eq!(reason(&server.out).code, Code::ProtocolViolation);
        }
    }
    // Nor does an initiator take part in one.
    for frame in [auth_ok(), Frame::Challenge(Challenge(vec![1]))] {
        for purpose in [Purpose::Session(session()), Purpose::Join(join())] {
            let mut client = End::new(Initiator::new(purpose, false, &mut Vec::new()));
            let step = client.feed(&[welcome(Vec::new()), bytes(&frame)].concat(), 1);
            refused(step, Code::ProtocolViolation);
        }
    }
}

///
#[test]
fn an_acceptor_that_asks_for_no_proof_is_not_believed() {
    let other = Feature {
        id: 2,
        name: "authentication".into(),
        value: vec![2],
    };
    for features in [Vec::new(), vec![other]] {
        let mut client = initiator(Purpose::Session(session()));
        client.written();
        let step = client.feed(&welcome(features), 1);
        refused(step, Code::ProtocolViolation);
        assert!(client.out.is_empty(), "SESSION isn't sent");
    }
    // And one that wasn't asked may not name the feature (O-13).
    let mut client = End::new(Initiator::new(
        Purpose::Join(join()),
        false,
        &mut Vec::new(),
    ));
    let step = client.feed(&welcome(vec![feature(&METHODS)]), 1);
    refused(step, Code::ProtocolViolation);
}

///
#[test]
fn an_initiator_takes_the_steps_in_their_order_only() {
    // Before it has said anything.
    for frame in [auth_ok(), Frame::Challenge(Challenge(vec![1]))] {
        let step = asked().feed(&bytes(&frame), 1);
        refused(step, Code::ProtocolViolation);
    }
    // One step, and no other is asked for.
    let mut client = asked();
    client.machine.prove(auth(), true, &mut client.out);
    let step = client.feed(&bytes(&Frame::Challenge(Challenge(vec![1]))), 1);
    refused(step, Code::ProtocolViolation);
    // What an acceptor doesn't send.
    for frame in [
        Frame::Auth(auth()),
        Frame::Proof(Proof(vec![1])),
        Frame::JoinOk,
        Frame::Eoft,
    ] {
        for only in [true, false] {
            let mut client = asked();
            client.machine.prove(auth(), only, &mut client.out);
            let step = client.feed(&bytes(&frame), 1);
            refused(step, Code::ProtocolViolation);
        }
    }
    // A channel that joins isn't asked.
    let mut client = initiator(Purpose::Join(join()));
    let challenge = bytes(&Frame::Challenge(Challenge(vec![1])));
    let step = client.feed(&[welcome(vec![feature(&METHODS)]), challenge].concat(), 1);
    refused(step, Code::ProtocolViolation);
}

///
#[test]
fn a_refusal_comes_through_at_every_step() {
    let exception = Frame::Exception(Exception {
        scope: Scope::Channel,
        fault: Fault::new(Code::AuthenticationFailed, "authenticate", "no"),
    });
    for only in [true, false] {
        for piece in PIECES {
            let mut client = asked();
            client.machine.prove(auth(), only, &mut client.out);
            let fault = refused(
                client.feed(&bytes(&exception), piece),
                Code::AuthenticationFailed,
            );
            assert_eq!(fault.side, Side::Remote);
        }
    }
    let mut client = asked();
    client.machine.prove(auth(), false, &mut client.out);
    let step = client.feed(&bytes(&Frame::Challenge(Challenge(vec![1]))), 1);
    assert!(matches!(step, Ok(InitiatorStep::Challenge(_))));
    client.machine.answer(vec![1], &mut client.out);
    refused(
        client.feed(&bytes(&exception), 1),
        Code::AuthenticationFailed,
    );
}

/// [F-3], [F-18]
#[test]
fn a_proof_over_the_limit_is_refused() {
    let whole = AuthRequest {
        body: vec![0; 16 << 10],
        ..auth()
    };
    let mut server = acceptor();
    let step = server.feed(
        &[hello(), bytes(&Frame::Auth(whole.clone()))].concat(),
        1000,
    );
    assert!(matches!(step, Ok(AcceptorStep::Auth(a)) if a == whole));
    // One byte more, by hand: the encoder doesn't write it.
    let mut frame = bytes(&Frame::Auth(whole));
    frame.push(0);
    let length = u32::try_from(frame.len() - 8).expect("short");
    frame[4..8].copy_from_slice(&length.to_be_bytes());
    frame[14..16].copy_from_slice(&0x4001u16.to_be_bytes());
    let mut server = acceptor();
    let step = server.feed(&[hello(), frame].concat(), 1000);
    refused(step, Code::FrameTooLarge);
    assert_eq!(reason(&server.out).code, Code::FrameTooLarge);
}

/// Clear payload is known to both only where both want it.
#[test]
fn clear_payload_needs_the_acceptors_policy() {
    for takes_clear in [false, true] {
        let mut out = Vec::new();
        let mut initiator = Initiator::protected(Purpose::Session(session()), false, &mut out);
        assert!(!initiator.takes_clear());
        let mut acceptor = Acceptor::protected(&METHODS, takes_clear);
        let mut answer = Vec::new();
        acceptor
            .receive(&out, &Limits::default(), &mut answer)
            .unwrap();
        let step = initiator.receive(&answer, &Limits::default(), &mut Vec::new());
        assert!(matches!(step, Ok((InitiatorStep::Prove(_), _))), "{step:?}");
        assert_eq!(initiator.takes_clear(), takes_clear);
    }
}

/// The header of a frame.
fn header(kind: u8, length: u32) -> Vec<u8> {
    let mut out = vec![kind, 0, 0, 0];
    out.extend(length.to_be_bytes());
    out
}

/// eight bytes are enough to refuse what may not come, and what is too long.
#[test]
fn a_stranger_is_refused_by_the_header_of_a_frame() {
    const SESSION: u8 = 0x01;
    const JOIN: u8 = 0x03;
    const AUTH: u8 = 0x06;
    const PROOF: u8 = 0x08;
    const TUNNEL: u8 = 0x0b;
    let welcomed = |challenged: bool| {
        let mut end = End::new(Acceptor::protected(&METHODS, false));
        let (step, used) = Machine::receive(&mut end.machine, &hello(), &mut end.out).unwrap();
        assert!(matches!(step, AcceptorStep::Wait) && used == hello().len());
        if challenged {
            let auth = bytes(&Frame::Auth(auth()));
            Machine::receive(&mut end.machine, &auth, &mut end.out).unwrap();
            end.machine.challenge(vec![1; 60], &mut end.out);
        }
        end.machine
    };
    let take = |challenged: bool, kind: u8, length: u32| {
        let mut machine = welcomed(challenged);
        Machine::receive(&mut machine, &header(kind, length), &mut Vec::new())
    };
    for challenged in [false, true] {
        for kind in 0..=u8::MAX {
            let most = match kind {
                SESSION => Some(285),
                JOIN => Some(36),
                TUNNEL => Some(531),
                AUTH if !challenged => Some(16_644),
                PROOF if challenged => Some(16_386),
                _ => None,
            };
            // The longest that every side takes of other frames, and one byte too much.
            for (length, is_taken) in [
                (most.unwrap_or(20), most.is_some()),
                (most.map_or(64 << 10, |most| most + 1), false),
            ] {
                let taken = take(challenged, kind, length);
                match taken {
                    Ok((step, 0)) => {
                        assert!(is_taken && matches!(step, AcceptorStep::Wait), "{kind}")
                    }
                    Ok(other) => panic!("{kind}: {other:?}"),
                    Err(fault) => assert!(!is_taken, "{kind}, {length}: {fault}"),
                }
            }
        }
    }
    // Whole frames of the longest kind go through.
    let longest = AuthRequest {
        method: 3,
        user: "u".repeat(255),
        body: vec![1; 16 << 10],
    };
    let frame = bytes(&Frame::Auth(longest));
    assert_eq!(frame.len(), 8 + 16_644);
    let mut machine = welcomed(false);
    let (step, _) = Machine::receive(&mut machine, &frame, &mut Vec::new()).unwrap();
    assert!(matches!(step, AcceptorStep::Auth(_)));
}

/// The same for who called: an acceptor that nobody verified is a stranger, too.
/// A feature counts only if both sides name it, whatever the channel.
#[test]
fn acceptors_welcome_the_same_features_with_and_without_protection() {
    let welcomed = |mut acceptor: Acceptor| {
        let mut out = Vec::new();
        let step = acceptor.receive(&hello(), &Limits::default(), &mut out);
        assert!(matches!(step, Ok((AcceptorStep::Wait, _))));
        match Answer::decode(&out).unwrap().unwrap().0 {
            Answer::Welcome(welcome) => welcome.features,
            Answer::Refused(fault) => panic!("{fault}"),
        }
    };
    let mut protected = welcomed(Acceptor::protected(&[1], true));
    protected.retain(|feature| feature.id > 2);
    assert_eq!(protected, welcomed(Acceptor::new()));
    assert_eq!(protected, [follow_links(), time_account(), last_pack()]);
}

#[test]
fn an_acceptor_is_refused_by_the_header_of_a_frame() {
    for kind in 0..=u8::MAX {
        let most = match kind {
            0x02 => Some(28),
            // Without a body the frame is whole, and out of place.
            0x04 => continue,
            0x16 | 0x17 => Some(0),
            0x07 => Some(16_386),
            0x09 => Some(257),
            0x0c => Some(514),
            0x7f => Some(4116),
            _ => None,
        };
        for (length, is_taken) in [
            (most.unwrap_or(20), most.is_some()),
            (most.map_or(64 << 10, |most| most + 1), false),
        ] {
            let purpose = Purpose::Session(session());
            let mut machine = Initiator::protected(purpose, false, &mut Vec::new());
            let answer = welcome(vec![feature(&METHODS)]);
            Machine::receive(&mut machine, &answer, &mut Vec::new()).unwrap();
            machine.prove(auth(), true, &mut Vec::new());
            let taken = Machine::receive(&mut machine, &header(kind, length), &mut Vec::new());
            assert_eq!(taken.is_ok(), is_taken, "{kind}, {length}: {taken:?}");
        }
    }
}
