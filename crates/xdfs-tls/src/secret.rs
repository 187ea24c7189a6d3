//! The schedule of keys after the handshake (RFC 8446, sections 7.2 and 7.3).

use std::fmt;
use std::io::{self, ErrorKind};

use aws_lc_rs::aead::{AES_128_GCM, AES_256_GCM, CHACHA20_POLY1305, NONCE_LEN, UnboundKey};
use aws_lc_rs::hkdf::{HKDF_SHA256, HKDF_SHA384, KeyType, Prk};
use zeroize::Zeroizing;

/// The cipher suites of TLS 1.3 that there are here.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Suite {
    /// `TLS_AES_128_GCM_SHA256`.
    Aes128Gcm,
    /// `TLS_AES_256_GCM_SHA384`.
    Aes256Gcm,
    /// `TLS_CHACHA20_POLY1305_SHA256`.
    ChaCha20Poly1305,
}

impl Suite {
    /// The suite with this name (RFC 8446, appendix B.4).
    #[must_use]
    pub fn named(name: &str) -> Option<Self> {
        match name {
            "TLS_AES_128_GCM_SHA256" => Some(Self::Aes128Gcm),
            "TLS_AES_256_GCM_SHA384" => Some(Self::Aes256Gcm),
            "TLS_CHACHA20_POLY1305_SHA256" => Some(Self::ChaCha20Poly1305),
            _ => None,
        }
    }

    fn hash_bytes(self) -> usize {
        match self {
            Self::Aes128Gcm | Self::ChaCha20Poly1305 => 32,
            Self::Aes256Gcm => 48,
        }
    }
}

/// The secret that protects one direction, until the next one takes its place. It is never printed,
/// and is wiped when it is dropped.
pub struct TrafficSecret {
    suite: Suite,
    bytes: Zeroizing<Vec<u8>>,
}

impl TrafficSecret {
    /// The secret that a handshake has agreed on; `None` if it isn't as long as the hash of its
    /// suite.
    #[must_use]
    pub fn new(suite: Suite, bytes: Zeroizing<Vec<u8>>) -> Option<Self> {
        (bytes.len() == suite.hash_bytes()).then_some(Self { suite, bytes })
    }

    /// The key of its records, and what their nonces are made of.
    pub(crate) fn key(&self) -> io::Result<(UnboundKey, [u8; NONCE_LEN])> {
        let algorithm = match self.suite {
            Suite::Aes128Gcm => &AES_128_GCM,
            Suite::Aes256Gcm => &AES_256_GCM,
            Suite::ChaCha20Poly1305 => &CHACHA20_POLY1305,
        };
        let key = self.expand("key", algorithm.key_len())?;
        let key = UnboundKey::new(algorithm, &key).map_err(io::Error::other)?;
        let mut iv = [0; NONCE_LEN];
        iv.copy_from_slice(&self.expand("iv", NONCE_LEN)?);
        Ok((key, iv))
    }

    /// The secret after a KeyUpdate.
    ///
    /// # Errors
    /// The library fails.
    pub fn next(&self) -> io::Result<Self> {
        let bytes = self.expand("traffic upd", self.bytes.len())?;
        let suite = self.suite;
        Ok(Self { suite, bytes })
    }

    /// HKDF-Expand-Label without a context (RFC 8446, section 7.1).
    fn expand(&self, label: &str, length: usize) -> io::Result<Zeroizing<Vec<u8>>> {
        let failed = |error| io::Error::other(error);
        let algorithm = match self.suite {
            Suite::Aes128Gcm | Suite::ChaCha20Poly1305 => HKDF_SHA256,
            Suite::Aes256Gcm => HKDF_SHA384,
        };
        let short = u16::try_from(length).map_err(|_| ErrorKind::InvalidInput)?;
        let label_length = u8::try_from("tls13 ".len() + label.len());
        let label_length = label_length.map_err(|_| ErrorKind::InvalidInput)?;
        let info: [&[u8]; 5] = [
            &short.to_be_bytes(),
            &[label_length],
            b"tls13 ",
            label.as_bytes(),
            &[0],
        ];
        let secret = Prk::new_less_safe(algorithm, &self.bytes);
        let expanded = secret.expand(&info, Length(length)).map_err(failed)?;
        let mut bytes = Zeroizing::new(vec![0; length]);
        expanded.fill(&mut bytes).map_err(failed)?;
        Ok(bytes)
    }
}

impl fmt::Debug for TrafficSecret {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("TrafficSecret")
            .field("suite", &self.suite)
            .finish_non_exhaustive()
    }
}

struct Length(usize);

impl KeyType for Length {
    fn len(&self) -> usize {
        self.0
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn hex(text: &str) -> Vec<u8> {
        let digit = |at| u8::from_str_radix(&text[at..at + 2], 16).unwrap();
        (0..text.len()).step_by(2).map(digit).collect()
    }

    fn secret(suite: Suite, text: &str) -> TrafficSecret {
        TrafficSecret::new(suite, Zeroizing::new(hex(text))).unwrap()
    }

    /// The example of RFC 8448, section 3: the server's first record with content.
    #[test]
    fn the_example_of_the_rfc_comes_out() {
        let server = secret(
            Suite::Aes128Gcm,
            "a11af9f05531f856ad47116b45a950328204b4f44bfb6b3a4b4f1f3fcb631643",
        );
        assert_eq!(
            *server.expand("key", 16).unwrap(),
            hex("9f02283b6c9c07efc26bb9f2ac92e356")
        );
        assert_eq!(
            *server.expand("iv", 12).unwrap(),
            hex("cf782b88dd83549aadf1e984")
        );
    }
}
