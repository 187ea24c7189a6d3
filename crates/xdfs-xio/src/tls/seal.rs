//! One direction of the record protection of TLS 1.3 (RFC 8446, section 5.2).

use std::io::{self, ErrorKind};

use aws_lc_rs::aead::{
    AES_128_GCM, AES_256_GCM, Aad, Algorithm, CHACHA20_POLY1305, LessSafeKey, Nonce, UnboundKey,
};
use rustls::ConnectionTrafficSecrets;

/// Bytes of the header of a record.
pub(super) const HEADER_BYTES: usize = 5;
/// Bytes of the tag of a record, the same for all suites.
pub(super) const TAG_BYTES: usize = 16;
/// Largest content of a record, in bytes.
pub(super) const CONTENT_BYTES: usize = 16 << 10;
/// Largest body of a record: content, its type, padding, tag.
pub(super) const BODY_BYTES: usize = CONTENT_BYTES + 256;
/// What a record costs beside its content.
pub(super) const OVERHEAD_BYTES: usize = HEADER_BYTES + 1 + TAG_BYTES;

/// The type in the header of every protected record.
pub(super) const APPLICATION_DATA: u8 = 23;
/// An alert, the type inside.
pub(super) const ALERT: u8 = 21;
/// A message of the handshake, the type inside.
pub(super) const HANDSHAKE: u8 = 22;

/// Records that one key may protect. AES-GCM takes 2^24.5 full ones (RFC 8446, section 5.5).
const RECORDS_MAX: u64 = 1 << 24;

/// Key, nonce and count of one direction: secrets, which are never printed.
pub(super) struct Direction {
    keeper: Keeper,
    iv: [u8; 12],
    sequence: u64,
    records_max: u64,
}

/// Who makes the records. One key is never used by two.
enum Keeper {
    /// This crate; with what the kernel would need, as long as it may be asked.
    Own(LessSafeKey, Option<ConnectionTrafficSecrets>),
    Kernel,
}

impl Direction {
    /// Goes on at `sequence` with what rustls agreed on.
    pub(super) fn new((sequence, secrets): (u64, ConnectionTrafficSecrets)) -> io::Result<Self> {
        let (algorithm, key, iv): (&'static Algorithm, _, _) = match &secrets {
            ConnectionTrafficSecrets::Aes128Gcm { key, iv } => (&AES_128_GCM, key, iv),
            ConnectionTrafficSecrets::Aes256Gcm { key, iv } => (&AES_256_GCM, key, iv),
            ConnectionTrafficSecrets::Chacha20Poly1305 { key, iv } => (&CHACHA20_POLY1305, key, iv),
            _ => return Err(ErrorKind::Unsupported.into()),
        };
        let unbound = UnboundKey::new(algorithm, key.as_ref()).map_err(io::Error::other)?;
        let iv = iv.as_ref().try_into().map_err(io::Error::other)?;
        Ok(Self {
            keeper: Keeper::Own(LessSafeKey::new(unbound), Some(secrets)),
            iv,
            sequence,
            records_max: RECORDS_MAX,
        })
    }

    /// Whether three quarters of what the key may protect are used up.
    pub(super) fn is_worn(&self) -> bool {
        self.sequence >= self.records_max / 4 * 3
    }

    /// Lowers the count of records, for tests.
    #[cfg(test)]
    pub(super) fn wear(&mut self, records_max: u64) {
        self.records_max = records_max;
    }

    /// Whether the kernel makes the records.
    pub(super) fn is_offloaded(&self) -> bool {
        matches!(self.keeper, Keeper::Kernel)
    }

    /// Whether the kernel can still be asked to.
    pub(super) fn may_offload(&self) -> bool {
        matches!(self.keeper, Keeper::Own(_, Some(_)))
    }

    /// Hands the key over to the kernel by `take_over`, which gets the count of records so far: if
    /// it takes the key, it makes the records from the next one on. It is asked once.
    pub(super) fn hand_over(
        &mut self,
        take_over: impl FnOnce(u64, &ConnectionTrafficSecrets) -> io::Result<()>,
    ) -> io::Result<()> {
        if let Keeper::Own(_, secrets) = &mut self.keeper
            && let Some(secrets) = secrets.take()
        {
            take_over(self.sequence, &secrets)?;
            self.keeper = Keeper::Kernel;
        }
        Ok(())
    }

    /// Gives up asking the kernel.
    pub(super) fn keep(&mut self) {
        if let Keeper::Own(_, secrets) = &mut self.keeper {
            *secrets = None;
        }
    }

    /// Refuses to go on with a key that is used up.
    pub(super) fn check(&self) -> io::Result<()> {
        if self.sequence >= self.records_max {
            return Err(io::Error::other(
                "the key of the channel has protected as many records as it may",
            ));
        }
        Ok(())
    }

    /// Counts records that the kernel has made.
    pub(super) fn count(&mut self, records: usize) {
        let records = u64::try_from(records).unwrap_or(u64::MAX);
        self.sequence = self.sequence.saturating_add(records);
    }

    /// The nonce of the next record (RFC 8446, section 5.3). No nonce is used twice: the count
    /// ends long before it would wrap.
    fn nonce(&mut self) -> io::Result<Nonce> {
        self.check()?;
        let mut nonce = self.iv;
        for (n, s) in nonce[4..].iter_mut().zip(self.sequence.to_be_bytes()) {
            *n ^= s;
        }
        self.sequence += 1;
        Ok(Nonce::assume_unique_for_key(nonce))
    }

    /// The key, while it is used here.
    fn key(&self) -> io::Result<&LessSafeKey> {
        match &self.keeper {
            Keeper::Own(key, _) => Ok(key),
            Keeper::Kernel => Err(ErrorKind::Unsupported.into()),
        }
    }

    /// Writes a record with `content` to the front of `out`, which has room for it, and returns its
    /// length. `content` has at most [`CONTENT_BYTES`].
    pub(super) fn seal(&mut self, kind: u8, content: &[u8], out: &mut [u8]) -> io::Result<usize> {
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

    /// Decrypts a record into `out`, which has room for all of its body but the tag, and returns
    /// the type and the length of the content.
    pub(super) fn open(
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
        // The type is the last byte that isn't zero; what follows is padding.
        let Some(end) = out.iter().rposition(|&byte| byte != 0) else {
            return Err(damaged("a record has no type"));
        };
        if end > CONTENT_BYTES {
            return Err(damaged("the content of a record is too long"));
        }
        Ok((out[end], end))
    }
}

/// The header of a record whose body has `length` bytes.
fn header(length: usize) -> [u8; HEADER_BYTES] {
    // A body is at most [`BODY_BYTES`] long.
    let [high, low] = u16::try_from(length).unwrap_or(u16::MAX).to_be_bytes();
    [APPLICATION_DATA, 3, 3, high, low]
}

/// What came is no record that the peer sent.
pub(super) fn damaged(why: &'static str) -> io::Error {
    io::Error::new(ErrorKind::InvalidData, why)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn direction(sequence: u64) -> Direction {
        let secrets = ConnectionTrafficSecrets::Chacha20Poly1305 {
            key: [7; 32].into(),
            iv: [9; 12].into(),
        };
        Direction::new((sequence, secrets)).unwrap()
    }

    /// The zeros behind the type are no content, and a record of nothing else has no type.
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

    /// A key protects 2^24 records: the last of them goes through, and the one after it doesn't.
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
        // The one that a peer without this bound would send.
        let mut lax = direction(RECORDS_MAX);
        lax.records_max += 1;
        lax.seal(APPLICATION_DATA, b"c", &mut record).unwrap();
        let header = *record.first_chunk().unwrap();
        open.open(header, &record[HEADER_BYTES..n], &mut content)
            .unwrap_err();
    }
}
