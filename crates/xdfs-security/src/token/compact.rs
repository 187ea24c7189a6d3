//! The compact form of a signed token (RFC 7515, section 7.1) and the JSON objects in it.

use std::collections::BTreeMap;
use std::fmt;

use base64::Engine;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use jsonwebtoken::Algorithm;
use serde::Deserialize;
use serde::de::{Deserializer, Error, MapAccess, Visitor};
use serde_json::Value;
use xdfs_proto::Fault;
use zeroize::Zeroizing;

use super::refused;

/// A decoded token. Nothing is verified yet.
///
/// It has no `Debug`: header, claims and signature together are the token.
pub(super) struct Compact<'a> {
    /// The signed bytes.
    pub(super) signed: &'a [u8],
    pub(super) algorithm: Algorithm,
    pub(super) key_id: Option<String>,
    pub(super) claims: Object,
    pub(super) signature: Zeroizing<Vec<u8>>,
}

impl<'a> Compact<'a> {
    /// Decodes a token and checks its header.
    pub(super) fn parse(token: &'a [u8]) -> Result<Self, Fault> {
        let malformed = || refused("the token is malformed");
        let mut parts = token.split(|&b| b == b'.');
        let (Some(header), Some(claims), Some(signature), None) =
            (parts.next(), parts.next(), parts.next(), parts.next())
        else {
            return Err(malformed());
        };
        let signed = &token[..header.len() + 1 + claims.len()];
        let header = Object::decode(header).ok_or_else(malformed)?;
        // No critical extension is supported here, so the token must be refused (RFC 7515, section
        // 4.1.11).
        if header.0.contains_key("crit") {
            return Err(refused("the token has a critical header that isn't known"));
        }
        let algorithm = header
            .text("alg")
            .and_then(algorithm)
            .ok_or_else(|| refused("the algorithm of the token isn't allowed"))?;
        let key_id = match header.0.get("kid") {
            None => None,
            Some(Value::String(key_id)) => Some(key_id.clone()),
            Some(_) => return Err(malformed()),
        };
        let claims = Object::decode(claims).ok_or_else(malformed)?;
        let signature = decode(signature).ok_or_else(malformed)?;
        Ok(Self {
            signed,
            algorithm,
            key_id,
            claims,
            signature: Zeroizing::new(signature),
        })
    }
}

/// The accepted algorithms: asymmetric signatures. `none` proves nothing, and with HS256 and the
/// like the public key would be the secret.
fn algorithm(name: &str) -> Option<Algorithm> {
    Some(match name {
        "RS256" => Algorithm::RS256,
        "RS384" => Algorithm::RS384,
        "RS512" => Algorithm::RS512,
        "PS256" => Algorithm::PS256,
        "PS384" => Algorithm::PS384,
        "PS512" => Algorithm::PS512,
        "ES256" => Algorithm::ES256,
        "ES384" => Algorithm::ES384,
        "EdDSA" => Algorithm::EdDSA,
        _ => return None,
    })
}

/// Decodes base64url without padding; only the canonical encoding is accepted.
fn decode(text: &[u8]) -> Option<Vec<u8>> {
    URL_SAFE_NO_PAD.decode(text).ok()
}

/// A JSON object without duplicate names: parsers differ in which one counts (RFC 7519, section 4).
pub(super) struct Object(BTreeMap<String, Value>);

impl Object {
    fn decode(text: &[u8]) -> Option<Self> {
        serde_json::from_slice(&decode(text)?).ok()
    }

    /// A string; `None` if it is missing or of another type.
    pub(super) fn text(&self, name: &str) -> Option<&str> {
        self.0.get(name)?.as_str()
    }

    /// A string or a list of strings; `None` if it is missing or of another type.
    pub(super) fn texts(&self, name: &str) -> Option<Vec<&str>> {
        match self.0.get(name)? {
            Value::String(text) => Some(vec![text]),
            Value::Array(list) => list.iter().map(Value::as_str).collect(),
            _ => None,
        }
    }

    /// A time in seconds since 1970 (NumericDate of RFC 7519, possibly with a fraction), rounded
    /// down.
    pub(super) fn time(&self, name: &str) -> Result<Option<i64>, ()> {
        // Integers up to here are exact in floating point.
        const LAST: f64 = 9_007_199_254_740_992.0;
        match self.0.get(name) {
            None => Ok(None),
            Some(Value::Number(number)) => match (number.as_i64(), number.as_f64()) {
                (Some(whole), _) => Ok(Some(whole)),
                (None, Some(part)) if part.abs() <= LAST => Ok(Some(part.floor() as i64)),
                _ => Err(()),
            },
            Some(_) => Err(()),
        }
    }
}

impl<'de> Deserialize<'de> for Object {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct Unique;

        impl<'de> Visitor<'de> for Unique {
            type Value = Object;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("an object")
            }

            fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Object, A::Error> {
                let mut out = BTreeMap::new();
                while let Some((name, value)) = map.next_entry::<String, Value>()? {
                    if out.insert(name, value).is_some() {
                        return Err(A::Error::custom("a name occurs twice"));
                    }
                }
                Ok(Object(out))
            }
        }

        deserializer.deserialize_map(Unique)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn object(json: &str) -> Option<Object> {
        Object::decode(URL_SAFE_NO_PAD.encode(json).as_bytes())
    }

    #[test]
    fn base64_has_one_form() {
        assert_eq!(decode(b"AQ"), Some(vec![1]));
        for other in [&b"AR"[..], b"AQ==", b"AQ=", b"A", b"+/8", b"A Q", b"AQ\n"] {
            assert_eq!(decode(other), None, "{}", other.escape_ascii());
        }
    }

    #[test]
    fn objects() {
        assert!(object(r#"{"a":1,"b":2}"#).is_some());
        for bad in [
            r#"{"a":1,"a":2}"#,
            "[]",
            "1",
            "",
            "{}{}",
            "{",
            "\u{feff}{}",
            r#"{"a":1e999}"#,
        ] {
            assert!(object(bad).is_none(), "{bad}");
        }
        let deep = format!("{{\"a\":{}{}}}", "[".repeat(5000), "]".repeat(5000));
        assert!(object(&deep).is_none());
    }

    #[test]
    fn times() {
        let time = |json: &str| object(json).unwrap().time("t");
        assert_eq!(time(r#"{"t":17}"#), Ok(Some(17)));
        assert_eq!(time(r#"{"t":17.9}"#), Ok(Some(17)));
        assert_eq!(time(r#"{"t":-17.5}"#), Ok(Some(-18)));
        assert_eq!(time(r#"{"t":1.7e3}"#), Ok(Some(1700)));
        assert_eq!(time("{}"), Ok(None));
        for bad in [
            "\"17\"",
            "null",
            "true",
            "1e300",
            "-1e300",
            "18446744073709551615",
            "[1]",
        ] {
            assert_eq!(time(&format!("{{\"t\":{bad}}}")), Err(()), "{bad}");
        }
    }
}
