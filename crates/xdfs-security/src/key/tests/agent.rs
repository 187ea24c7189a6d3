//! The agent protocol, against threads that act as agents, correctly or not.

use std::io::{Read, Write};
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::Path;
use std::thread::{self, JoinHandle};
use std::time::Duration;

use aws_lc_rs::rand::SystemRandom;
use aws_lc_rs::rsa::{KeyPair as RsaKeyPair, KeySize};
use aws_lc_rs::signature::{KeyPair, RSA_PKCS1_SHA256, RSA_PKCS1_SHA512};
use xdfs_proto::fault::{Code, Fault};

use super::*;
use crate::key::public::signature;
use crate::key::wire::{Reader, put_positive, put_string};
use crate::key::{Agent, Algorithm, Signer, prove, verify};

/// An agent that serves one connection with `serve`, and the folder of its socket.
fn fake(serve: impl FnOnce(UnixStream) + Send + 'static) -> (TempDir, Agent, JoinHandle<()>) {
    let folder = TempDir::new().unwrap();
    let path = folder.path().join("agent");
    let listener = UnixListener::bind(&path).unwrap();
    let thread = thread::spawn(move || serve(listener.accept().unwrap().0));
    let agent = Agent::connect(&path).unwrap();
    (folder, agent, thread)
}

fn request(stream: &mut UnixStream) -> Option<Vec<u8>> {
    let mut length = [0; 4];
    stream.read_exact(&mut length).ok()?;
    let mut message = vec![0; u32::from_be_bytes(length) as usize];
    stream.read_exact(&mut message).ok()?;
    Some(message)
}

fn answer(stream: &mut UnixStream, message: &[u8]) {
    let mut out = Vec::new();
    put_string(&mut out, message);
    // The other end may be gone.
    let _ = stream.write_all(&out);
}

/// Responds with `bytes` unchanged, including the length, to the first request.
fn raw(bytes: Vec<u8>) -> (TempDir, Agent, JoinHandle<()>) {
    fake(move |mut stream| {
        request(&mut stream).unwrap();
        let _ = stream.write_all(&bytes);
    })
}

/// Serves an agent that holds one key.
fn serve(mut stream: UnixStream, blob: &[u8], mut sign: impl FnMut(&[u8], u32) -> Vec<u8>) {
    while let Some(message) = request(&mut stream) {
        let mut at = Reader(&message);
        match at.byte().unwrap() {
            11 => {
                let mut out = vec![12];
                out.extend(2_u32.to_be_bytes());
                put_string(&mut out, b"a key of the future");
                put_string(&mut out, b"left out");
                put_string(&mut out, blob);
                put_string(&mut out, b"of a test");
                answer(&mut stream, &out);
            }
            13 if at.string().unwrap() == blob => {
                let data = at.string().unwrap();
                let flags = at.number().unwrap();
                at.end().unwrap();
                let mut out = vec![14];
                put_string(&mut out, &sign(data, flags));
                answer(&mut stream, &out);
            }
            _ => answer(&mut stream, &[5]),
        }
    }
}

#[test]
fn a_key_of_an_agent_proves_who_the_user_is() {
    let mut key = key_of(P384);
    let public = key.public_key().clone();
    let blob = public.as_bytes().to_vec();
    let (_folder, mut agent, thread) = fake(move |stream| {
        serve(stream, &blob, |data, flags| {
            assert_eq!(flags, 0);
            key.sign(data).unwrap()
        });
    });
    let found = agent.identities().unwrap();
    assert_eq!(found.len(), 1);
    assert_eq!(found[0].key, public);
    assert_eq!(found[0].comment, "of a test");
    let body = prove(&mut agent.signer(public.clone()), "ada", &HERE).unwrap();
    assert_eq!(verify(&body, "ada", &HERE).unwrap(), public);
    verify(&body, "ada", &ELSEWHERE).unwrap_err();
    drop(agent);
    thread.join().unwrap();
}

#[test]
fn rsa_signs_with_sha2_only() {
    let pair = RsaKeyPair::generate(KeySize::Rsa2048).unwrap();
    let mut blob = Vec::new();
    put_string(&mut blob, b"ssh-rsa");
    let public = pair.public_key();
    put_positive(
        &mut blob,
        public.exponent().big_endian_without_leading_zero(),
    );
    put_positive(
        &mut blob,
        public.modulus().big_endian_without_leading_zero(),
    );
    let key = PublicKey::from_bytes(&blob).unwrap();
    assert_eq!(key.algorithm(), Algorithm::Rsa);
    let mut round = 0;
    let (_folder, mut agent, thread) = fake(move |stream| {
        serve(stream, &blob, |data, flags| {
            assert_eq!(flags, 4);
            round += 1;
            let (name, padding) = match round {
                1 => ("rsa-sha2-512", &RSA_PKCS1_SHA512),
                2 => ("rsa-sha2-256", &RSA_PKCS1_SHA256),
                // The name of one algorithm, the signature of the other.
                3 => ("rsa-sha2-512", &RSA_PKCS1_SHA256),
                _ => ("ssh-rsa", &RSA_PKCS1_SHA512),
            };
            let mut raw = vec![0; pair.public_modulus_len()];
            pair.sign(padding, &SystemRandom::new(), data, &mut raw)
                .unwrap();
            signature(name, &raw)
        });
    });
    for _ in 0..2 {
        let body = prove(&mut agent.signer(key.clone()), "ada", &HERE).unwrap();
        assert_eq!(verify(&body, "ada", &HERE).unwrap(), key);
        verify(&body, "bob", &HERE).unwrap_err();
        let last = body.len() - 1;
        let mut altered = body.clone();
        altered[last] ^= 1;
        verify(&altered, "ada", &HERE).unwrap_err();
    }
    let body = prove(&mut agent.signer(key.clone()), "ada", &HERE).unwrap();
    verify(&body, "ada", &HERE).unwrap_err();
    let fault = prove(&mut agent.signer(key), "ada", &HERE).unwrap_err();
    assert_eq!(fault.code, Code::AuthenticationFailed);
    drop(agent);
    thread.join().unwrap();
}

#[test]
fn a_refusal_can_be_followed_by_another_request() {
    let (_folder, mut agent, thread) = fake(|stream| serve(stream, b"none", |_, _| Vec::new()));
    let key = key_of(P256).public_key().clone();
    let fault = agent.signer(key).sign(b"data").unwrap_err();
    assert_eq!(fault.code, Code::AuthenticationFailed);
    assert_eq!(fault.cause, "the agent refuses to sign");
    assert!(agent.identities().unwrap().is_empty());
    drop(agent);
    thread.join().unwrap();
}

fn fault_of_identities(bytes: Vec<u8>) -> Fault {
    let (_folder, mut agent, thread) = raw(bytes);
    let fault = agent.identities().unwrap_err();
    assert_eq!(agent.identities().unwrap_err().code, Code::ConnectionLost);
    thread.join().unwrap();
    fault
}

#[test]
fn an_answer_that_is_too_long_isnt_read() {
    for length in [256 * 1024 + 1, u32::MAX] {
        let fault = fault_of_identities(length.to_be_bytes().to_vec());
        assert_eq!(fault.code, Code::AuthenticationFailed);
    }
}

#[test]
fn the_longest_answer_is_read() {
    let comment = 256 * 1024 - 1 - 4 - 4 - 4 - 1;
    let mut message = vec![12, 0, 0, 0, 1];
    put_string(&mut message, b"x");
    put_string(&mut message, &vec![b'c'; comment]);
    assert_eq!(message.len(), 256 * 1024);
    let mut bytes = Vec::new();
    put_string(&mut bytes, &message);
    let (_folder, mut agent, thread) = raw(bytes);
    assert!(agent.identities().unwrap().is_empty());
    thread.join().unwrap();
}

#[test]
fn a_truncated_answer_is_a_fault() {
    // The connection ends before the length, within it, and before the announced end.
    for bytes in [vec![], vec![0, 0], vec![0, 0, 0, 9, 12, 0]] {
        assert_eq!(fault_of_identities(bytes).code, Code::ConnectionLost);
    }
}

#[test]
fn an_answer_with_odd_content_is_a_fault() {
    for message in [
        &[][..],
        &[12],
        &[5],
        &[14, 0, 0, 0, 0],
        &[12, 0, 0, 0, 1],
        &[12, 0xff, 0xff, 0xff, 0xff],
        &[12, 0, 0, 0, 1, 0, 0, 0, 9, 1],
        &[12, 0, 0, 0, 0, 0],
    ] {
        let mut bytes = Vec::new();
        put_string(&mut bytes, message);
        let fault = fault_of_identities(bytes);
        assert_eq!(fault.code, Code::AuthenticationFailed, "{message:?}");
    }
}

#[test]
fn an_odd_signature_is_a_fault() {
    let mut of_another_type = vec![14];
    put_string(&mut of_another_type, &signature("ssh-ed25519", &[0; 64]));
    for message in [
        &[14][..],
        &[14, 0, 0, 0, 0],
        &[14, 0, 0, 0, 9, 0],
        &of_another_type,
    ] {
        let mut bytes = Vec::new();
        put_string(&mut bytes, message);
        let (_folder, mut agent, thread) = raw(bytes);
        let key = key_of(P256).public_key().clone();
        let fault = agent.signer(key).sign(b"data").unwrap_err();
        assert_eq!(fault.code, Code::AuthenticationFailed);
        assert_eq!(agent.identities().unwrap_err().code, Code::ConnectionLost);
        thread.join().unwrap();
    }
}

#[test]
fn a_silent_agent_is_given_up() {
    let folder = TempDir::new().unwrap();
    let path = folder.path().join("agent");
    // The system accepts connections, but nobody responds.
    let _listener = UnixListener::bind(&path).unwrap();
    let mut agent = Agent::connect_with(&path, Duration::from_millis(20)).unwrap();
    let fault = agent.identities().unwrap_err();
    assert_eq!(fault.code, Code::DeadlineExceeded);
}

#[test]
fn no_agent_is_a_fault_with_advice() {
    let fault = Agent::connect(Path::new("nothing-here/agent")).unwrap_err();
    assert_eq!(fault.code, Code::NotFound);
    assert!(fault.hint.contains("SSH_AUTH_SOCK"));
}
