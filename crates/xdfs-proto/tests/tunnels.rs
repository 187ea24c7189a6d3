//! The handshake of channels that are tunnels, between both machines and against older peers.

use xdfs_proto::frame::{AuthRequest, Frame, TunnelAccept, TunnelPurpose, TunnelRequest};
use xdfs_proto::handshake::{Acceptor, AcceptorStep, Initiator, InitiatorStep, Purpose};
use xdfs_proto::{Code, Fault, Limits};

const METHODS: [u8; 1] = [2];

fn request() -> TunnelRequest {
    TunnelRequest {
        purpose: TunnelPurpose::Connect,
        target: "db.lab:5432".into(),
        number: 0,
        bundle: 0,
    }
}

fn auth() -> AuthRequest {
    AuthRequest {
        method: 2,
        user: "alice".into(),
        body: b"proof".to_vec(),
    }
}

/// Gives bytes to an acceptor until it needs more, accepting proofs; returns its last step.
fn accept(
    acceptor: &mut Acceptor,
    mut input: &[u8],
    out: &mut Vec<u8>,
) -> Result<AcceptorStep, Fault> {
    loop {
        let (step, used) = acceptor.receive(input, &Limits::default(), out)?;
        input = &input[used..];
        match step {
            AcceptorStep::Wait if used > 0 => {}
            AcceptorStep::Auth(_) => acceptor.proved("alice".into(), out),
            step => return Ok(step),
        }
    }
}

#[test]
fn a_tunnel_takes_the_place_of_a_session() {
    for is_protected in [false, true] {
        let (mut out, mut answer) = (Vec::new(), Vec::new());
        let purpose = Purpose::Tunnel(request());
        let (mut initiator, mut acceptor) = match is_protected {
            false => (Initiator::new(purpose, false, &mut out), Acceptor::new()),
            true => {
                let mut initiator = Initiator::protected(purpose, false, &mut out);
                initiator.prove_ahead(auth(), &mut out);
                (initiator, Acceptor::protected(&METHODS, false))
            }
        };
        assert!(initiator.has_requested());
        acceptor = acceptor.with_tunnels();
        let step = accept(&mut acceptor, &out, &mut answer).unwrap();
        assert!(matches!(step, AcceptorStep::Tunnel(asked) if asked == request()));
        let accept = TunnelAccept {
            address: "192.0.2.1:5432".into(),
        };
        Frame::TunnelOk(accept.clone()).encode(&mut answer);
        let end = answer.len();
        answer.extend(b"bytes of the target");
        let mut used = 0;
        let step = loop {
            let rest = &answer[used..];
            let (step, n) = initiator
                .receive(rest, &Limits::default(), &mut out)
                .unwrap();
            used += n;
            match step {
                InitiatorStep::Wait if n > 0 => {}
                step => break step,
            }
        };
        assert!(matches!(step, InitiatorStep::Tunnel(got) if got == accept));
        assert_eq!(used, end);
    }
}

#[test]
fn a_channel_that_joins_a_bundle_needs_no_login() {
    let mut out = Vec::new();
    let join = TunnelRequest {
        purpose: TunnelPurpose::Join,
        bundle: 9,
        ..request()
    };
    let mut initiator = Initiator::protected(Purpose::Tunnel(join.clone()), false, &mut out);
    assert!(initiator.has_requested() && !initiator.awaits_proof());
    let mut answer = Vec::new();
    let mut acceptor = Acceptor::protected(&METHODS, false).with_tunnels();
    let step = accept(&mut acceptor, &out, &mut answer).unwrap();
    assert!(matches!(step, AcceptorStep::Tunnel(asked) if asked == join));
    let address = String::new();
    Frame::TunnelOk(TunnelAccept { address }).encode(&mut answer);
    let step = initiator.receive(&answer, &Limits::default(), &mut out);
    assert!(matches!(step.unwrap().0, InitiatorStep::Tunnel(_)));
    // Without tunnels it is refused as any other.
    let mut acceptor = Acceptor::protected(&METHODS, false);
    assert!(accept(&mut acceptor, &out, &mut answer).is_err());
}

#[test]
fn no_tunnel_comes_before_the_proof() {
    let mut out = Vec::new();
    let initiator = Initiator::new(Purpose::Tunnel(request()), false, &mut out);
    assert!(initiator.has_requested());
    let mut answer = Vec::new();
    let mut acceptor = Acceptor::protected(&METHODS, false).with_tunnels();
    let fault = accept(&mut acceptor, &out, &mut answer).unwrap_err();
    assert_eq!(fault.code, Code::AuthenticationFailed);
}

#[test]
fn an_acceptor_without_tunnels_refuses_them_and_the_initiator_says_so() {
    let mut out = Vec::new();
    let mut initiator = Initiator::protected(Purpose::Tunnel(request()), false, &mut out);
    initiator.prove_ahead(auth(), &mut out);
    let mut answer = Vec::new();
    let mut acceptor = Acceptor::protected(&METHODS, false);
    let fault = accept(&mut acceptor, &out, &mut answer).unwrap_err();
    assert_eq!(fault.code, Code::FeatureUnsupported);
    let fault = initiator
        .receive(&answer, &Limits::default(), &mut out)
        .unwrap_err();
    assert_eq!(fault.code, Code::FeatureUnsupported);
    assert!(fault.cause.contains("no tunnels"), "{fault}");
}

#[test]
fn a_session_is_never_answered_with_a_tunnel_nor_the_reverse() {
    let mut out = Vec::new();
    let mut initiator = Initiator::new(Purpose::Tunnel(request()), false, &mut out);
    let mut answer = Vec::new();
    accept(&mut Acceptor::new().with_tunnels(), &out, &mut answer).unwrap();
    Frame::JoinOk.encode(&mut answer);
    let fault = initiator
        .receive(&answer, &Limits::default(), &mut out)
        .unwrap_err();
    assert_eq!(fault.code, Code::ProtocolViolation);
}
