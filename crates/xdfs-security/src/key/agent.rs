//! A client of `ssh-agent`: lists its keys and requests signatures. `SSH_AUTH_SOCK` names the
//! agent's socket.

use std::io::{ErrorKind, Read, Write};
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::time::{Duration, Instant};

use xdfs_proto::fault::{Code, Fault};

use super::file;
use super::public::{Algorithm, PublicKey};
use super::signer::{Signer, is_signature_name};
use super::wire::{Reader, put_string};

/// Maximum size of a response.
const ANSWER_BYTES_MAX: u32 = 256 * 1024;
/// Deadline for sending a request, and for receiving its response.
const PATIENCE: Duration = Duration::from_secs(5);

const IDENTITIES_REQUEST: u8 = 11;
const IDENTITIES_ANSWER: u8 = 12;
const SIGN_REQUEST: u8 = 13;
const SIGN_ANSWER: u8 = 14;
/// Requests SHA-512 from an RSA key.
const FLAG_RSA_SHA2_512: u32 = 4;

/// A connection to an agent.
#[derive(Debug)]
pub struct Agent {
    /// `None` after a failed exchange: later input might be the response to another request.
    stream: Option<UnixStream>,
    patience: Duration,
}

/// A key held by an agent.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Identity {
    /// The public key.
    pub key: PublicKey,
    /// The agent's comment on it, usually the file that it came from.
    pub comment: String,
}

impl Agent {
    /// Connects to the socket of an agent. Each exchange is limited to 5 s.
    ///
    /// # Errors
    /// Any error of the system, such as `ConnectionRefused` or `NotFound` if there is no agent.
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

    /// The agent's keys of supported types.
    ///
    /// # Errors
    /// `DeadlineExceeded` if the agent doesn't respond; `AuthenticationFailed` if the response is
    /// malformed or larger than 256 KiB. After that the connection is unusable.
    pub fn identities(&mut self) -> Result<Vec<Identity>, Fault> {
        let operation = "list the keys of the agent";
        let answer = self.exchange(operation, &[IDENTITIES_REQUEST])?;
        let found = decode_identities(&answer).ok_or_else(|| odd_answer(operation));
        if found.is_err() {
            self.stream = None;
        }
        found
    }

    /// A signer for one of the agent's keys.
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

/// A key held by an agent, ready to sign.
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

/// Fills `room` before `deadline`, however slowly the bytes arrive.
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

/// Decodes the keys of a response, without those of unsupported types.
fn decode_identities(answer: &[u8]) -> Option<Vec<Identity>> {
    let mut at = Reader(answer);
    if at.byte()? != IDENTITIES_ANSWER {
        return None;
    }
    let mut found = Vec::new();
    // The bytes would run out long before a forged count is reached.
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
