//! One direction of the record protection of TLS 1.3 (RFC 8446, section 5.2).

use std::fmt;
use std::io::{self, ErrorKind};

use aws_lc_rs::aead::{
    AES_128_GCM, AES_256_GCM, Aad, Algorithm, CHACHA20_POLY1305, LessSafeKey, Nonce, UnboundKey,
};
use rustls::ConnectionTrafficSecrets;

use crate::secret::TrafficSecret;

/// Size of a record's header.
pub const HEADER_BYTES: usize = 5;
/// Size of a record's tag, the same for all suites.
pub const TAG_BYTES: usize = 16;
/// Maximum content of a record in bytes.
pub const CONTENT_BYTES: usize = 16 << 10;
/// Maximum body of a record in bytes: content, its type, padding, tag.
pub const BODY_BYTES: usize = CONTENT_BYTES + 256;
/// Overhead of a record in bytes.
pub const OVERHEAD_BYTES: usize = HEADER_BYTES + 1 + TAG_BYTES;

/// The type in the header of each protected record.
pub const APPLICATION_DATA: u8 = 23;
/// Inner type of an alert.
pub const ALERT: u8 = 21;
/// Inner type of a handshake message.
pub const HANDSHAKE: u8 = 22;

/// Maximum number of records per key. AES-GCM allows 2^24.5 full ones (RFC 8446, section 5.5).
const RECORDS_MAX: u64 = 1 << 24;

/// Key, nonce and record count of one direction: secrets, which are never printed.
pub struct Direction {
    keeper: KeyOwner,
    iv: [u8; 12],
    sequence: u64,
    records_max: u64,
}

/// The owner of the key. No key is ever used by two.
enum KeyOwner {
    /// This crate, with the secrets for the kernel as long as it may still take over.
    Own(LessSafeKey, Option<ConnectionTrafficSecrets>),
    Kernel,
}

impl fmt::Debug for Direction {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Direction")
            .field("sequence", &self.sequence)
            .finish_non_exhaustive()
    }
}

impl Direction {
    /// The direction that a secret protects, from its first record on. The kernel doesn't take it
    /// over.
    ///
    /// # Errors
    /// The library fails.
    pub fn of(secret: &TrafficSecret) -> io::Result<Self> {
        let (key, iv) = secret.key()?;
        Ok(Self {
            keeper: KeyOwner::Own(LessSafeKey::new(key), None),
            iv,
            sequence: 0,
            records_max: RECORDS_MAX,
        })
    }

    /// Takes any number of records from now on. It is the sender who has to change a key before it
    /// is used up; a receiver stops at the first record that doesn't belong to it.
    pub fn lift_limit(&mut self) {
        self.records_max = u64::MAX;
    }

    /// Continues at `sequence` with the keys from rustls.
    ///
    /// # Errors
    /// There is no such suite here.
    pub fn new((sequence, secrets): (u64, ConnectionTrafficSecrets)) -> io::Result<Self> {
        let (algorithm, key, iv): (&'static Algorithm, _, _) = match &secrets {
            ConnectionTrafficSecrets::Aes128Gcm { key, iv } => (&AES_128_GCM, key, iv),
            ConnectionTrafficSecrets::Aes256Gcm { key, iv } => (&AES_256_GCM, key, iv),
            ConnectionTrafficSecrets::Chacha20Poly1305 { key, iv } => (&CHACHA20_POLY1305, key, iv),
            _ => return Err(ErrorKind::Unsupported.into()),
        };
        let unbound = UnboundKey::new(algorithm, key.as_ref()).map_err(io::Error::other)?;
        let iv = iv.as_ref().try_into().map_err(io::Error::other)?;
        Ok(Self {
            keeper: KeyOwner::Own(LessSafeKey::new(unbound), Some(secrets)),
            iv,
            sequence,
            records_max: RECORDS_MAX,
        })
    }

    /// Whether three quarters of the key's limit are used up.
    pub fn is_worn(&self) -> bool {
        self.sequence >= self.records_max / 4 * 3
    }

    /// Lowers the limit of records, for tests.
    pub fn wear(&mut self, records_max: u64) {
        self.records_max = records_max;
    }

    /// Whether the kernel protects this direction.
    pub fn is_offloaded(&self) -> bool {
        matches!(self.keeper, KeyOwner::Kernel)
    }

    /// Whether the kernel may still take over.
    pub fn may_offload(&self) -> bool {
        matches!(self.keeper, KeyOwner::Own(_, Some(_)))
    }

    /// Offers the key to the kernel by `take_over`, which gets the record count so far: if it
    /// accepts, the kernel protects records from the next one on. Offered once.
    pub fn hand_over(
        &mut self,
        take_over: impl FnOnce(u64, &ConnectionTrafficSecrets) -> io::Result<()>,
    ) -> io::Result<()> {
        if let KeyOwner::Own(_, secrets) = &mut self.keeper
            && let Some(secrets) = secrets.take()
        {
            take_over(self.sequence, &secrets)?;
            self.keeper = KeyOwner::Kernel;
        }
        Ok(())
    }

    /// Keeps the key for good.
    pub fn keep(&mut self) {
        if let KeyOwner::Own(_, secrets) = &mut self.keeper {
            *secrets = None;
        }
    }

    /// Fails if the key is used up.
    pub fn check(&self) -> io::Result<()> {
        if self.sequence >= self.records_max {
            return Err(io::Error::other(
                "the key of the channel has protected as many records as it may",
            ));
        }
        Ok(())
    }

    /// Counts records protected by the kernel.
    pub fn count(&mut self, records: usize) {
        let records = u64::try_from(records).unwrap_or(u64::MAX);
        self.sequence = self.sequence.saturating_add(records);
    }

    /// The nonce of the next record (RFC 8446, section 5.3). No nonce is used twice: the limit is
    /// reached long before the count could wrap.
    fn nonce(&mut self) -> io::Result<Nonce> {
        self.check()?;
        let mut nonce = self.iv;
        for (n, s) in nonce[4..].iter_mut().zip(self.sequence.to_be_bytes()) {
            *n ^= s;
        }
        self.sequence += 1;
        Ok(Nonce::assume_unique_for_key(nonce))
    }

    /// The key, unless the kernel has taken over.
    fn key(&self) -> io::Result<&LessSafeKey> {
        match &self.keeper {
            KeyOwner::Own(key, _) => Ok(key),
            KeyOwner::Kernel => Err(ErrorKind::Unsupported.into()),
        }
    }

    /// Writes a record with `content` to the front of `out`, which must have room for it, and
    /// returns its length. `content` is at most [`CONTENT_BYTES`].
    pub fn seal(&mut self, kind: u8, content: &[u8], out: &mut [u8]) -> io::Result<usize> {
        let header = header(content.len() + 1 + TAG_BYTES);
        let total = content.len() + OVERHEAD_BYTES;
        let Some(record) = out.get_mut(..total) else {
            return Err(ErrorKind::InvalidInput.into());
        };
        let (head, body) = record.split_at_mut(HEADER_BYTES);
        head.copy_from_slice(&header);
        let (encrypted, rest) = body.split_at_mut(content.len());
        let nonce = self.nonce()?;
        self.key()?
            .seal_out_of_place_scatter(nonce, Aad::from(header), content, encrypted, &[kind], rest)
            .map_err(io::Error::other)?;
        Ok(total)
    }

    /// Decrypts a record into `out`, which must have room for its body without the tag, and returns
    /// the type and the length of the content.
    pub fn open(
        &mut self,
        header: [u8; HEADER_BYTES],
        body: &[u8],
        out: &mut [u8],
    ) -> io::Result<(u8, usize)> {
        let Some((encrypted, tag)) = body.split_last_chunk::<TAG_BYTES>() else {
            return Err(damaged("a record is shorter than its tag"));
        };
        let Some(out) = out.get_mut(..encrypted.len()) else {
            return Err(ErrorKind::InvalidInput.into());
        };
        let nonce = self.nonce()?;
        self.key()?
            .open_separate_gather(nonce, Aad::from(header), encrypted, tag, out)
            .map_err(|_| damaged("a record was changed on the way, or is out of its order"))?;
        // The type is the last non-zero byte; padding follows it.
        let Some(end) = out.iter().rposition(|&byte| byte != 0) else {
            return Err(damaged("a record has no type"));
        };
        if end > CONTENT_BYTES {
            return Err(damaged("the content of a record is too long"));
        }
        Ok((out[end], end))
    }
}

/// The header of a record with a body of `length` bytes.
fn header(length: usize) -> [u8; HEADER_BYTES] {
    // A body has at most [`BODY_BYTES`].
    let [high, low] = u16::try_from(length).unwrap_or(u16::MAX).to_be_bytes();
    [APPLICATION_DATA, 3, 3, high, low]
}

/// The error for a record that the peer can't have sent.
pub fn damaged(why: &'static str) -> io::Error {
    io::Error::new(ErrorKind::InvalidData, why)
}

#[cfg(test)]
mod tests {
    use zeroize::Zeroizing;

    use super::*;
    use crate::secret::Suite;

    fn direction(sequence: u64) -> Direction {
        let secrets = ConnectionTrafficSecrets::Chacha20Poly1305 {
            key: [7; 32].into(),
            iv: [9; 12].into(),
        };
        Direction::new((sequence, secrets)).unwrap()
    }

    /// The zeros after the type are no content, and a record with nothing else has no type.
    #[test]
    fn padding_is_left_out() {
        let (mut seal, mut open) = (direction(0), direction(0));
        let (mut record, mut content) = ([0; 64], [0; 64]);
        let mut opened = |padded: &[u8]| {
            let (last, rest) = padded.split_last().unwrap();
            let n = seal.seal(*last, rest, &mut record).unwrap();
            let header = *record.first_chunk().unwrap();
            open.open(header, &record[HEADER_BYTES..n], &mut content)
        };
        for padding in [&[][..], &[0], &[0; 9]] {
            let record = [b"a\0b", &[APPLICATION_DATA][..], padding].concat();
            assert_eq!(opened(&record).unwrap(), (APPLICATION_DATA, 3));
        }
        opened(&[0; 9]).unwrap_err();
    }

    /// A key protects 2^24 records: the last one succeeds, and the next fails.
    #[test]
    fn a_key_protects_as_many_records_as_it_may_and_no_more() {
        let (mut seal, mut open) = (direction(RECORDS_MAX - 2), direction(RECORDS_MAX - 2));
        let (mut record, mut content) = ([0; 64], [0; 64]);
        for byte in [b'a', b'b'] {
            let n = seal.seal(APPLICATION_DATA, &[byte], &mut record).unwrap();
            let header = *record.first_chunk().unwrap();
            let body = &record[HEADER_BYTES..n];
            let opened = open.open(header, body, &mut content).unwrap();
            assert_eq!((opened, content[0]), ((APPLICATION_DATA, 1), byte));
        }
        let n = OVERHEAD_BYTES + 1;
        seal.seal(APPLICATION_DATA, b"c", &mut record).unwrap_err();
        // A record from a peer without this limit.
        let mut lax = direction(RECORDS_MAX);
        lax.records_max += 1;
        lax.seal(APPLICATION_DATA, b"c", &mut record).unwrap();
        let header = *record.first_chunk().unwrap();
        open.open(header, &record[HEADER_BYTES..n], &mut content)
            .unwrap_err();
        // Without a limit its records are taken.
        open.lift_limit();
        let opened = open.open(header, &record[HEADER_BYTES..n], &mut content);
        assert_eq!((opened.unwrap(), content[0]), ((APPLICATION_DATA, 1), b'c'));
    }

    /// A secret for each suite seals what its like opens, and its next one doesn't.
    #[test]
    fn each_suite_seals_and_its_next_secret_is_another() {
        for (suite, length) in [
            (Suite::Aes128Gcm, 32),
            (Suite::Aes256Gcm, 48),
            (Suite::ChaCha20Poly1305, 32),
        ] {
            let first = TrafficSecret::new(suite, Zeroizing::new(vec![7; length])).unwrap();
            let next = first.next().unwrap();
            let mut record = [0; 64];
            let mut seal = Direction::of(&first).unwrap();
            let sealed = seal
                .seal(APPLICATION_DATA, b"content", &mut record)
                .unwrap();
            let header = *record.first_chunk().unwrap();
            let body = &record[HEADER_BYTES..sealed];
            let mut out = [0; 64];
            let opened = Direction::of(&first).unwrap().open(header, body, &mut out);
            assert_eq!(opened.unwrap(), (APPLICATION_DATA, 7));
            let mut other = Direction::of(&next).unwrap();
            other.open(header, body, &mut out).unwrap_err();
            let short = Zeroizing::new(vec![7; length - 1]);
            assert!(TrafficSecret::new(suite, short).is_none());
        }
    }
}
