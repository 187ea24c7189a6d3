//! The public keys of an issuer: a JWK set (RFC 7517).

use jsonwebtoken::crypto::aws_lc;
use jsonwebtoken::jwk::{
    AlgorithmParameters, EllipticCurve, Jwk, KeyAlgorithm, KeyOperations, PublicKeyUse,
};
use jsonwebtoken::{Algorithm, DecodingKey, DecodingKeyKind};
use serde::Deserialize;
use serde_json::Value;
use xdfs_proto::{Code, Fault};

/// The algorithms of an RSA key that doesn't specify one.
const RSA: &[Algorithm] = &[
    Algorithm::RS256,
    Algorithm::RS384,
    Algorithm::RS512,
    Algorithm::PS256,
    Algorithm::PS384,
    Algorithm::PS512,
];
/// Bytes of the modulus of an RSA key: 2048 to 8192 bits.
const RSA_BYTES: std::ops::RangeInclusive<usize> = 256..=1024;

/// The usable keys of a set.
pub(super) struct KeySet(Vec<Key>);

/// A key and its algorithms.
pub(super) struct Key {
    id: Option<String>,
    algorithms: Vec<Algorithm>,
    key: DecodingKey,
}

impl KeySet {
    /// Parses a set. Keys of other kinds or for other purposes are skipped (RFC 7517, section 5).
    pub(super) fn parse(bytes: &[u8]) -> Result<Self, Fault> {
        #[derive(Deserialize)]
        struct Set {
            keys: Vec<Value>,
        }

        let set: Set = serde_json::from_slice(bytes).map_err(|e| {
            // The parser's message may quote the file; the line number suffices.
            let cause = format!("line {}: it isn't a JWK set", e.line());
            Fault::new(Code::InvalidArgument, "read the keys", cause)
        })?;
        let all = set.keys.len();
        let keys: Vec<Key> = set.keys.into_iter().filter_map(Key::new).collect();
        if keys.is_empty() {
            tracing::warn!(all, "no key of the set can verify a token");
        }
        Ok(Self(keys))
    }

    /// The key with this id for the algorithm; without an id, the only key for the algorithm.
    /// `None` if there is none or it is ambiguous.
    pub(super) fn select(&self, id: Option<&str>, algorithm: Algorithm) -> Option<&Key> {
        let mut fitting = self.0.iter().filter(|key| {
            key.algorithms.contains(&algorithm) && (id.is_none() || key.id.as_deref() == id)
        });
        let key = fitting.next()?;
        fitting.next().is_none().then_some(key)
    }
}

impl Key {
    /// `None` for a key that is unusable or has another purpose.
    fn new(value: Value) -> Option<Self> {
        let jwk: Jwk = serde_json::from_value(value).ok()?;
        let common = &jwk.common;
        let purpose = &common.public_key_use;
        let operations = &common.key_operations;
        if purpose
            .as_ref()
            .is_some_and(|p| *p != PublicKeyUse::Signature)
            || operations
                .as_ref()
                .is_some_and(|o| !o.contains(&KeyOperations::Verify))
        {
            return None;
        }
        let of_type = of_type(&jwk.algorithm);
        let algorithms: Vec<Algorithm> = match common.key_algorithm {
            None => of_type.to_vec(),
            Some(only) => of_type
                .iter()
                .copied()
                .filter(|&a| KeyAlgorithm::from(a) == only)
                .collect(),
        };
        let first = *algorithms.first()?;
        let key = DecodingKey::from_jwk(&jwk).ok()?;
        has_right_size(first, &key).then_some(Self {
            id: jwk.common.key_id,
            algorithms,
            key,
        })
    }

    /// Whether `signature` is this key's signature of `message`.
    pub(super) fn verifies(
        &self,
        algorithm: Algorithm,
        message: &[u8],
        signature: &Vec<u8>,
    ) -> bool {
        // An explicit provider: the default of the process could be another.
        self.algorithms.contains(&algorithm)
            && (aws_lc::DEFAULT_PROVIDER.verifier_factory)(&algorithm, &self.key)
                .is_ok_and(|verifier| verifier.verify(message, signature).is_ok())
    }
}

/// The algorithms of a key, by its type and curve (RFC 7518, section 3.1; RFC 8037).
fn of_type(parameters: &AlgorithmParameters) -> &'static [Algorithm] {
    match parameters {
        AlgorithmParameters::RSA(_) => RSA,
        AlgorithmParameters::EllipticCurve(key) => match key.curve {
            EllipticCurve::P256 => &[Algorithm::ES256],
            EllipticCurve::P384 => &[Algorithm::ES384],
            _ => &[],
        },
        AlgorithmParameters::OctetKeyPair(key) => match key.curve {
            EllipticCurve::Ed25519 => &[Algorithm::EdDSA],
            _ => &[],
        },
        _ => &[],
    }
}

fn has_right_size(algorithm: Algorithm, key: &DecodingKey) -> bool {
    match (algorithm, key.kind()) {
        (Algorithm::ES256, DecodingKeyKind::SecretOrDer(point)) => point.len() == 65,
        (Algorithm::ES384, DecodingKeyKind::SecretOrDer(point)) => point.len() == 97,
        (Algorithm::EdDSA, DecodingKeyKind::SecretOrDer(point)) => point.len() == 32,
        (_, DecodingKeyKind::RsaModulusExponent { n, e }) => {
            let zeros = n.iter().take_while(|&&b| b == 0).count();
            RSA_BYTES.contains(&(n.len() - zeros)) && (1..=8).contains(&e.len())
        }
        _ => false,
    }
}
