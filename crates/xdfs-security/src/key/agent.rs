//! A client of `ssh-agent`: which keys it holds, and signatures by them. The agent's socket is what
//! `SSH_AUTH_SOCK` names.

use std::io::{ErrorKind, Read, Write};
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::time::{Duration, Instant};

use xdfs_proto::fault::{Code, Fault};

use super::file;
use super::public::{Algorithm, PublicKey};
use super::signer::{Signer, is_signature_name};
use super::wire::{Reader, put_string};

/// The most bytes of an answer.
const ANSWER_BYTES_MAX: u32 = 256 * 1024;
/// The longest that sending a request or waiting for its answer may take.
const PATIENCE: Duration = Duration::from_secs(5);

const IDENTITIES_REQUEST: u8 = 11;
const IDENTITIES_ANSWER: u8 = 12;
const SIGN_REQUEST: u8 = 13;
const SIGN_ANSWER: u8 = 14;
/// Asks for SHA-512 from an RSA key.
const FLAG_RSA_SHA2_512: u32 = 4;

/// A connection to an agent.
#[derive(Debug)]
pub struct Agent {
    /// `None` once an exchange failed: what comes then may be the answer to something else.
    stream: Option<UnixStream>,
    patience: Duration,
}

/// A key that an agent holds.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Identity {
    /// The public key.
    pub key: PublicKey,
    /// What the agent says about it, usually the file it came from.
    pub comment: String,
}

impl Agent {
    /// Connects to the socket of an agent. Each exchange then ends within 5 s.
    ///
    /// # Errors
    /// Faults of the system, `ConnectionRefused` or `NotFound` if no agent is there.
    pub fn connect(path: &Path) -> Result<Self, Fault> {
        Self::connect_with(path, PATIENCE)
    }

    pub(super) fn connect_with(path: &Path, patience: Duration) -> Result<Self, Fault> {
        let stream = UnixStream::connect(path).map_err(|e| {
            Fault::from_io("connect to the agent", file::bytes_of(path), &e)
                .hint("check SSH_AUTH_SOCK, or start an agent: `ssh-agent`")
        })?;
        Ok(Self {
            stream: Some(stream),
            patience,
        })
    }

    /// The keys that the agent holds and that are of a supported type.
    ///
    /// # Errors
    /// `DeadlineExceeded` if the agent is silent; `AuthenticationFailed` if it doesn't answer in
    /// its protocol, or with more than 256 KiB. The connection is of no use any more after that.
    pub fn identities(&mut self) -> Result<Vec<Identity>, Fault> {
        let operation = "list the keys of the agent";
        let answer = self.exchange(operation, &[IDENTITIES_REQUEST])?;
        let found = decode_identities(&answer).ok_or_else(|| odd_answer(operation));
        if found.is_err() {
            self.stream = None;
        }
        found
    }

    /// A signer by a key that the agent holds.
    pub fn signer(&mut self, key: PublicKey) -> AgentKey<'_> {
        AgentKey { agent: self, key }
    }

    fn sign(&mut self, key: &PublicKey, data: &[u8]) -> Result<Vec<u8>, Fault> {
        let operation = "sign by the agent";
        let flags = match key.algorithm() {
            Algorithm::Rsa => FLAG_RSA_SHA2_512,
            _ => 0,
        };
        let mut request = vec![SIGN_REQUEST];
        put_string(&mut request, key.as_bytes());
        put_string(&mut request, data);
        request.extend(flags.to_be_bytes());
        let answer = self.exchange(operation, &request)?;
        if answer.first() != Some(&SIGN_ANSWER) {
            return Err(Fault::new(
                Code::AuthenticationFailed,
                operation,
                "the agent refuses to sign",
            )
            .hint("check by `ssh-add -l` that the agent holds the key and isn't locked"));
        }
        decode_signature(&answer, key.algorithm()).ok_or_else(|| {
            self.stream = None;
            odd_answer(operation)
        })
    }

    fn exchange(&mut self, operation: &str, request: &[u8]) -> Result<Vec<u8>, Fault> {
        let Some(mut stream) = self.stream.take() else {
            let cause = "an earlier exchange with the agent failed";
            return Err(Fault::new(Code::ConnectionLost, operation, cause));
        };
        let answer = converse(&mut stream, request, self.patience).map_err(|e| match e.kind() {
            ErrorKind::WouldBlock | ErrorKind::TimedOut => Fault::new(
                Code::DeadlineExceeded,
                operation,
                "the agent doesn't answer",
            )
            .hint("if the agent asks for a confirmation, give it sooner"),
            ErrorKind::InvalidData => odd_answer(operation),
            _ => Fault::from_io(operation, b"", &e).hint("check the agent by `ssh-add -l`"),
        })?;
        self.stream = Some(stream);
        Ok(answer)
    }
}

/// A key that an agent holds, ready to sign.
#[derive(Debug)]
pub struct AgentKey<'a> {
    agent: &'a mut Agent,
    key: PublicKey,
}

impl Signer for AgentKey<'_> {
    fn public_key(&self) -> &PublicKey {
        &self.key
    }

    fn sign(&mut self, data: &[u8]) -> Result<Vec<u8>, Fault> {
        self.agent.sign(&self.key, data)
    }
}

fn converse(
    stream: &mut UnixStream,
    request: &[u8],
    patience: Duration,
) -> std::io::Result<Vec<u8>> {
    let mut message = Vec::with_capacity(4 + request.len());
    put_string(&mut message, request);
    stream.set_write_timeout(Some(patience))?;
    stream.write_all(&message)?;
    let deadline = Instant::now() + patience;
    let mut length = [0; 4];
    read_exact(stream, &mut length, deadline)?;
    let length = u32::from_be_bytes(length);
    if !(1..=ANSWER_BYTES_MAX).contains(&length) {
        return Err(ErrorKind::InvalidData.into());
    }
    let mut answer = vec![0; length as usize];
    read_exact(stream, &mut answer, deadline)?;
    Ok(answer)
}

/// Fills `room` before `deadline`, however slowly the bytes come.
fn read_exact(
    stream: &mut UnixStream,
    mut room: &mut [u8],
    deadline: Instant,
) -> std::io::Result<()> {
    while !room.is_empty() {
        let left = deadline.saturating_duration_since(Instant::now());
        if left.is_zero() {
            return Err(ErrorKind::TimedOut.into());
        }
        stream.set_read_timeout(Some(left))?;
        match stream.read(room) {
            Ok(0) => return Err(ErrorKind::UnexpectedEof.into()),
            Ok(count) => room = room.get_mut(count..).unwrap_or_default(),
            Err(e) if e.kind() == ErrorKind::Interrupted => {}
            Err(e) => return Err(e),
        }
    }
    Ok(())
}

/// The keys of an answer; those of types that aren't supported are left out.
fn decode_identities(answer: &[u8]) -> Option<Vec<Identity>> {
    let mut at = Reader(answer);
    if at.byte()? != IDENTITIES_ANSWER {
        return None;
    }
    let mut found = Vec::new();
    // The bytes end long before a number that is made up.
    for _ in 0..at.number()? {
        let (key, comment) = (at.string()?, at.string()?);
        found.extend(PublicKey::decode(key).map(|key| Identity {
            key,
            comment: String::from_utf8_lossy(comment).into_owned(),
        }));
    }
    at.end()?;
    Some(found)
}

fn decode_signature(answer: &[u8], algorithm: Algorithm) -> Option<Vec<u8>> {
    let mut at = Reader(answer);
    at.byte()?;
    let signature = at.string()?;
    at.end()?;
    let name = Reader(signature).string()?;
    is_signature_name(algorithm, name).then(|| signature.to_vec())
}

fn odd_answer(operation: &str) -> Fault {
    Fault::new(
        Code::AuthenticationFailed,
        operation,
        "the agent's answer isn't one of its protocol",
    )
    .hint("check by `ssh-add -l` what SSH_AUTH_SOCK names")
}
