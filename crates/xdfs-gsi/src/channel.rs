//! TLS over memory, between a side with a credential and a peer that shows its chain.

use std::fmt;
use std::io::{self, ErrorKind, Read, Write};
use std::sync::{Arc, Mutex};

use openssl::ssl::{
    ErrorCode, Ssl, SslContext, SslMethod, SslOptions, SslSessionCacheMode, SslStream,
    SslVerifyMode, SslVersion,
};
use openssl::x509::X509;
use xdfs_proto::{Code, Fault};

use crate::chain::{Peer, verify};
use crate::records::{Found, Records, Side, Told, violated};
use crate::trust::CHAIN_MAX;
use crate::{Credential, Trust, failure, refused, text_of};

/// Bytes that a peer can have put in before a record is taken out: more is for later.
const HELD_BYTES_MAX: usize = 256 << 10;
/// Bytes that are read from a connection at once.
const READ_BYTES: usize = 128 << 10;
/// The types that a record in clear can have: of a handshake, or an alert (RFC 8446, section 5.1).
const RECORD_TYPES: [u8; 2] = [21, 22];
/// Bytes of the handshake of a peer: its certificates, and what else there is.
const HANDSHAKE_BYTES_MAX: usize = 128 << 10;

/// What came: the bytes of `buffer` from `start` to `end`. Those behind are room for more.
#[derive(Default)]
struct Incoming {
    buffer: Vec<u8>,
    start: usize,
    end: usize,
}

impl Incoming {
    fn bytes(&self) -> &[u8] {
        &self.buffer[self.start..self.end]
    }

    /// Room for `most` bytes.
    fn room(&mut self, most: usize) -> &mut [u8] {
        if self.start > 0 {
            // Mostly nothing, else a part of a record.
            self.buffer.copy_within(self.start..self.end, 0);
            self.end -= self.start;
            self.start = 0;
        }
        if self.buffer.len() < self.end + most {
            self.buffer.resize(self.end + most, 0);
        }
        &mut self.buffer[self.end..self.end + most]
    }
}

/// What came, and what is to be sent.
#[derive(Default)]
struct Memory {
    incoming: Incoming,
    outgoing: Vec<u8>,
}

impl Read for Memory {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        match self.incoming.bytes().read(buffer)? {
            0 if !buffer.is_empty() => Err(ErrorKind::WouldBlock.into()),
            read => {
                self.incoming.start += read;
                Ok(read)
            }
        }
    }
}

impl Write for Memory {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.outgoing.extend_from_slice(bytes);
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

/// Where records end, which OpenSSL doesn't tell.
#[derive(Debug, Default)]
struct Framing {
    /// Bytes of the next header that came, of 5.
    header: usize,
    /// The length that the header tells, as far as it came.
    length: usize,
    /// Bytes of the body that are still to come.
    body: usize,
    /// The first record had no type of TLS.
    is_foreign: bool,
    has_begun: bool,
}

impl Framing {
    fn take(&mut self, mut bytes: &[u8]) {
        if let (false, Some(first)) = (self.has_begun, bytes.first()) {
            self.has_begun = true;
            self.is_foreign = !RECORD_TYPES.contains(first);
        }
        while let Some((&byte, rest)) = bytes.split_first() {
            if self.body > 0 {
                let skipped = self.body.min(bytes.len());
                self.body -= skipped;
                bytes = &bytes[skipped..];
                continue;
            }
            bytes = rest;
            // Behind a type and a version.
            if self.header >= 3 {
                self.length = self.length << 8 | usize::from(byte);
            }
            self.header += 1;
            if self.header == 5 {
                (self.body, self.length, self.header) = (self.length, 0, 0);
            }
        }
    }
}

/// A TLS connection in memory.
pub(crate) struct Channel {
    tls: SslStream<Memory>,
    side: Side,
    trust: Trust,
    framing: Framing,
    /// Bytes of the handshake that came.
    shaken: usize,
    /// The peer, once the handshake is done and its chain is verified.
    peer: Option<Peer>,
    /// The peer's chain.
    pub(crate) chain: Vec<X509>,
    /// What OpenSSL tells of a connection that is to be [taken over](Self::take_over).
    told: Option<Arc<Mutex<Told>>>,
    /// What has taken over from OpenSSL.
    records: Option<Box<Records>>,
}

impl Channel {
    /// A connection that hasn't begun. `name` is what the initiator tells as the name of the
    /// acceptor (SNI). If it `moves_content`, its records are made here once the handshake is done,
    /// with TLS 1.3.
    ///
    /// # Errors
    /// The credential can't be used, such as with a key that is too weak for OpenSSL.
    pub(crate) fn new(
        side: Side,
        credential: &Credential,
        trust: &Trust,
        name: Option<&str>,
        moves_content: bool,
    ) -> Result<Self, Fault> {
        let fault = failure("begin a security context");
        let mut builder = SslContext::builder(SslMethod::tls()).map_err(&fault)?;
        builder
            .set_min_proto_version(Some(SslVersion::TLS1_2))
            .map_err(&fault)?;
        builder
            .set_cipher_list("ECDHE+AESGCM:ECDHE+CHACHA20:!aNULL:!eNULL")
            .map_err(&fault)?;
        // Large groups would let strangers have this side compute for a tenth of a second each.
        builder
            .set_groups_list("X25519:P-256:P-384")
            .map_err(&fault)?;
        // A session that is resumed wouldn't show a chain, and one that is negotiated anew would
        // show another one.
        builder.set_session_cache_mode(SslSessionCacheMode::OFF);
        builder.set_num_tickets(0).map_err(&fault)?;
        builder.set_options(
            SslOptions::NO_TICKET | SslOptions::NO_RENEGOTIATION | SslOptions::NO_COMPRESSION,
        );
        // TLS sees that the peer has the key of its certificate. What the certificate is worth is
        // seen in `advance`, before anything of the peer counts: OpenSSL has no rules for older
        // proxies, and takes users for clients only.
        let mode = SslVerifyMode::PEER | SslVerifyMode::FAIL_IF_NO_PEER_CERT;
        builder.set_verify_callback(mode, |_, _| true);
        builder.set_verify_depth(u32::try_from(CHAIN_MAX).unwrap_or(u32::MAX));
        builder
            .set_certificate(&credential.certificate)
            .map_err(&fault)?;
        builder.set_private_key(&credential.key).map_err(&fault)?;
        for certificate in &credential.chain {
            builder
                .add_extra_chain_cert(certificate.clone())
                .map_err(&fault)?;
        }
        // What follows the handshake has to be left for who takes over.
        builder.set_read_ahead(false);
        let told = moves_content.then(|| Told::by(&mut builder));
        let mut ssl = Ssl::new(&builder.build()).map_err(&fault)?;
        match side {
            Side::Acceptor => ssl.set_accept_state(),
            Side::Initiator => ssl.set_connect_state(),
        }
        if let Some(name) = name {
            ssl.set_hostname(name).map_err(&fault)?;
        }
        Ok(Self {
            tls: SslStream::new(ssl, Memory::default()).map_err(&fault)?,
            side,
            trust: trust.clone(),
            framing: Framing::default(),
            shaken: 0,
            peer: None,
            chain: Vec::new(),
            told,
            records: None,
        })
    }

    /// Bytes that may be put in now.
    pub(crate) fn room(&self) -> usize {
        HELD_BYTES_MAX.saturating_sub(self.held())
    }

    /// Puts in what came from the peer.
    pub(crate) fn put(&mut self, mut bytes: &[u8]) {
        while let Ok(1..) = self.fill_from(&mut bytes) {}
    }

    /// Reads once from what the peer sends, as far as there is [room](Self::room).
    ///
    /// # Errors
    /// Those of the reader.
    pub(crate) fn fill_from(&mut self, reader: &mut impl Read) -> io::Result<usize> {
        let most = self.room().min(READ_BYTES);
        let incoming = &mut self.tls.get_mut().incoming;
        let read = reader.read(incoming.room(most))?;
        let start = incoming.end;
        incoming.end += read;
        self.framing.take(&incoming.buffer[start..][..read]);
        Ok(read)
    }

    /// Bytes that came and that OpenSSL hasn't taken.
    fn held(&self) -> usize {
        self.tls.get_ref().incoming.bytes().len()
    }

    /// Whether what came ends with a record, and not within one.
    pub(crate) fn is_between_records(&self) -> bool {
        self.framing.header == 0 && self.framing.body == 0
    }

    /// What is to be sent, in the order in which it was made.
    pub(crate) fn outgoing(&mut self) -> &mut Vec<u8> {
        &mut self.tls.get_mut().outgoing
    }

    pub(crate) fn is_flushed(&self) -> bool {
        self.tls.get_ref().outgoing.is_empty()
    }

    /// What came and isn't taken as records.
    pub(crate) fn take_rest(&mut self) -> Vec<u8> {
        std::mem::take(&mut self.tls.get_mut().incoming)
            .bytes()
            .to_vec()
    }

    pub(crate) fn has_rest(&self) -> bool {
        self.held() > 0
    }

    pub(crate) fn is_tls13(&self) -> bool {
        self.tls.ssl().version2() == Some(SslVersion::TLS1_3)
    }

    /// The peer, once the handshake is done.
    pub(crate) fn peer(&self) -> Option<&Peer> {
        self.peer.as_ref()
    }

    /// Goes on with the handshake. Returns the peer once it is done and verified; before, nothing
    /// is read or written.
    ///
    /// # Errors
    /// The handshake fails, or the chain isn't verified. What is to be sent then is an alert or
    /// nothing.
    pub(crate) fn advance(&mut self) -> Result<Option<&Peer>, Fault> {
        if self.peer.is_some() {
            return Ok(self.peer.as_ref());
        }
        let before = self.held();
        let result = self.tls.do_handshake();
        self.shaken += before.saturating_sub(self.held());
        if self.shaken > HANDSHAKE_BYTES_MAX {
            return Err(refused("the peer's handshake is too long"));
        }
        match result {
            Ok(()) => {}
            Err(error) if error.code() == ErrorCode::WANT_READ => return Ok(None),
            Err(error) => {
                let told = error.ssl_error().filter(|_| !self.framing.is_foreign);
                let reason = told.map(text_of);
                let reason = reason.unwrap_or_else(|| "the peer has sent no TLS".to_owned());
                return Err(refused(format!("the TLS handshake fails: {reason}")));
            }
        }
        let ssl = self.tls.ssl();
        // OpenSSL leaves the acceptor's peer itself out of the chain.
        let mut chain: Vec<X509> = ssl.peer_certificate().into_iter().collect();
        if let Some(more) = ssl.peer_cert_chain() {
            let skipped = usize::from(self.side == Side::Initiator);
            chain.extend(more.iter().skip(skipped).map(ToOwned::to_owned));
        }
        match verify(&chain, &self.trust) {
            Ok(peer) => {
                self.take_over()?;
                self.chain = chain;
                Ok(Some(self.peer.insert(peer)))
            }
            Err(fault) => {
                // The peer must not get what would tell it that it is done.
                self.outgoing().clear();
                Err(fault)
            }
        }
    }

    /// Takes the records over from OpenSSL, which has read none behind its handshake: it takes no
    /// more than one record at a time.
    fn take_over(&mut self) -> Result<(), Fault> {
        if let Some(told) = self.told.take().filter(|_| self.is_tls13()) {
            let suite = self.tls.ssl().current_cipher();
            let suite = suite.map_or("", openssl::ssl::SslCipherRef::name);
            self.records = Records::new(self.side, suite, &told)?.map(Box::new);
        }
        Ok(())
    }

    /// What has taken over, and what is to be sent.
    #[cfg(test)]
    pub(crate) fn records(&mut self) -> Option<(&mut Records, &mut Vec<u8>)> {
        let records = self.records.as_deref_mut()?;
        Some((records, &mut self.tls.get_mut().outgoing))
    }

    /// Takes content of records that came.
    ///
    /// # Errors
    /// A record is none of this connection.
    pub(crate) fn read(&mut self, buffer: &mut [u8]) -> Result<Found, Fault> {
        if self.peer.is_none() {
            return Ok(Found::Nothing);
        }
        if let Some(records) = &mut self.records {
            let Memory { incoming, outgoing } = self.tls.get_mut();
            let (found, used) = records.read(incoming.bytes(), buffer, outgoing)?;
            incoming.start += used;
            return Ok(found);
        }
        match self.tls.ssl_read(buffer) {
            Ok(read) => Ok(Found::Bytes(read)),
            Err(error) if error.code() == ErrorCode::ZERO_RETURN => Ok(Found::End),
            Err(error) if error.code() == ErrorCode::WANT_READ => Ok(Found::Nothing),
            Err(error) => Err(broken(&error)),
        }
    }

    /// Puts bytes into records.
    ///
    /// # Errors
    /// The handshake isn't done, or OpenSSL fails.
    pub(crate) fn write(&mut self, mut bytes: &[u8]) -> Result<(), Fault> {
        if self.peer.is_none() {
            let cause = "the handshake isn't done";
            return Err(Fault::new(Code::Internal, "protect bytes", cause));
        }
        if let Some(records) = &mut self.records {
            return records.write(bytes, &mut self.tls.get_mut().outgoing);
        }
        while !bytes.is_empty() {
            match self.tls.ssl_write(bytes) {
                // Memory takes everything.
                Ok(written) => bytes = &bytes[written.min(bytes.len())..],
                Err(error) => return Err(broken(&error)),
            }
        }
        Ok(())
    }

    /// Tells the peer that nothing more comes.
    pub(crate) fn close(&mut self) {
        if let Some(records) = &mut self.records {
            return records.close(&mut self.tls.get_mut().outgoing);
        }
        // If it can't be sent, the peer sees the end of the connection.
        let _ = self.tls.shutdown();
    }
}

impl fmt::Debug for Channel {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Channel")
            .field("side", &self.side)
            .field("peer", &self.peer)
            .finish_non_exhaustive()
    }
}

fn broken(error: &openssl::ssl::Error) -> Fault {
    let reason = error.ssl_error().map(text_of);
    violated(&reason.unwrap_or_else(|| "the records are broken off".to_owned()))
}
