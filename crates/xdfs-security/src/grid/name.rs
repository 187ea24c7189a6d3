//! The subject of a certificate as one line, in the form of OpenSSL and Globus.
//!
//! Different subjects give different lines, because the format is unambiguous:
//!
//! - A component is `/`, a type, `=` and a value. Within values `/` is written as `\x2F`, so each
//!   `/` of the line begins a component.
//! - A type has no `=`: it is a name of the table below or an OID, and no name looks like an OID.
//!   So the first `=` of a component ends the type, and later ones belong to the value.
//! - Within values `\` is written as `\x5C`, so each `\` of the line begins an escape of four
//!   characters. `"` and bytes outside ASCII are escaped too.
//! - Certificates with control characters, including NUL, are refused: no honest subject has them.
//! - A component of several attributes (a set) would look like several components, so it is
//!   refused.
//! - The components have to be the whole subject, in DER: a part that the parser skips would make
//!   two subjects of one line.
//! - Values must have types whose bytes are ASCII or UTF-8. Others (T61, BMP, universal, and
//!   anything but text) are refused: one text must not have two encodings.
//!
//! Names are compared by character, although RFC 5280, section 7.1, considers names equal that
//! differ only in case or spaces. The string type (UTF-8, printable, IA5) doesn't matter.

use x509_parser::asn1_rs::{Class, Tag};
use x509_parser::certificate::X509Certificate;
use x509_parser::prelude::FromDer;
use x509_parser::x509::AttributeTypeAndValue;
use xdfs_proto::Fault;

use super::refused;

/// Maximum size of a certificate in bytes.
const MAX_CERTIFICATE_BYTES: usize = 64 * 1024;
/// Maximum number of components in a subject.
const MAX_COMPONENTS: usize = 64;
/// Tags of DER.
const SEQUENCE: u8 = 0x30;
const SET: u8 = 0x31;
/// proxyCertInfo (RFC 3820) and its draft in early Globus.
const PROXY: [&str; 2] = ["1.3.6.1.5.5.7.1.14", "1.3.6.1.4.1.3536.1.222"];

/// Short names of subject attributes in OpenSSL. Others are written as OIDs.
const NAMES: [(&str, &str); 22] = [
    ("0.9.2342.19200300.100.1.1", "UID"),
    ("0.9.2342.19200300.100.1.25", "DC"),
    ("1.2.840.113549.1.9.1", "emailAddress"),
    ("1.2.840.113549.1.9.2", "unstructuredName"),
    ("2.5.4.3", "CN"),
    ("2.5.4.4", "SN"),
    ("2.5.4.5", "serialNumber"),
    ("2.5.4.6", "C"),
    ("2.5.4.7", "L"),
    ("2.5.4.8", "ST"),
    ("2.5.4.9", "street"),
    ("2.5.4.10", "O"),
    ("2.5.4.11", "OU"),
    ("2.5.4.12", "title"),
    ("2.5.4.13", "description"),
    ("2.5.4.15", "businessCategory"),
    ("2.5.4.17", "postalCode"),
    ("2.5.4.42", "GN"),
    ("2.5.4.43", "initials"),
    ("2.5.4.44", "generationQualifier"),
    ("2.5.4.46", "dnQualifier"),
    ("2.5.4.65", "pseudonym"),
];

/// Whether proxy certificates are accepted here.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Proxies {
    Named,
    Refused,
}

/// The subject of a certificate as one line: `/DC=org/DC=example/CN=Jane Doe`.
///
/// `/`, `\`, `"` and bytes outside ASCII within values are written like `\x2F`, so that different
/// subjects never give the same line. The line can be used between the quotes of a
/// [`GridMap`](super::GridMap).
///
/// # Errors
/// [`AuthenticationFailed`](xdfs_proto::Code::AuthenticationFailed) unless it is one certificate of
/// at most 64 KiB, and for a subject that is empty, or has a control character, a set of several
/// attributes, a part that isn't understood, or a value that is neither ASCII nor UTF-8.
pub fn distinguished_name(der: &[u8]) -> Result<String, Fault> {
    subject(der, Proxies::Named)
}

/// [`distinguished_name`], with a choice about proxy certificates.
pub(super) fn subject(der: &[u8], proxies: Proxies) -> Result<String, Fault> {
    if der.len() > MAX_CERTIFICATE_BYTES {
        return Err(refused("the certificate is longer than 64 KiB"));
    }
    let (rest, certificate) =
        X509Certificate::from_der(der).map_err(|_| refused("the certificate is malformed"))?;
    if !rest.is_empty() {
        return Err(refused("bytes follow the certificate"));
    }
    let is_proxy = certificate
        .iter_extensions()
        .any(|e| dotted(e.oid.as_bytes()).is_some_and(|oid| PROXY.contains(&oid.as_str())));
    if is_proxy && proxies == Proxies::Refused {
        return Err(refused("proxy certificates aren't accepted")
            .hint("use the certificate that the proxy was made from, or a token"));
    }
    let mut line = String::new();
    let mut encoded = Vec::new();
    for (n, component) in certificate.subject().iter_rdn().enumerate() {
        let mut attributes = component.iter();
        let (Some(attribute), None, true) =
            (attributes.next(), attributes.next(), n < MAX_COMPONENTS)
        else {
            return Err(refused(
                "the subject has a set of attributes, or too many components",
            ));
        };
        push_component(&mut line, attribute)
            .ok_or_else(|| refused("the subject has a component that can't be a text"))?;
        let (oid, value) = (attribute.attr_type().as_bytes(), attribute.attr_value());
        let tag = value.header.tag().0 as u8;
        let parts = [element(6, oid), element(tag, value.data)].concat();
        encoded.extend(element(SET, &element(SEQUENCE, &parts)));
    }
    // The parser stops in silence where it understands no more, and what comes behind would be
    // missing in the line.
    if certificate.subject().as_raw() != element(SEQUENCE, &encoded) {
        return Err(refused(
            "the subject has a part that isn't understood, or another encoding than DER",
        ));
    }
    if line.is_empty() {
        return Err(refused("the subject of the certificate is empty"));
    }
    Ok(line)
}

/// An element of DER (X.690).
fn element(tag: u8, content: &[u8]) -> Vec<u8> {
    let mut bytes = vec![tag];
    match content.len() {
        short @ 0..0x80 => bytes.push(short as u8),
        long => {
            let length = long.to_be_bytes();
            let zeros = length.iter().take_while(|&&byte| byte == 0).count();
            bytes.push(0x80 | (length.len() - zeros) as u8);
            bytes.extend(&length[zeros..]);
        }
    }
    bytes.extend(content);
    bytes
}

fn push_component(line: &mut String, attribute: &AttributeTypeAndValue<'_>) -> Option<()> {
    let oid = dotted(attribute.attr_type().as_bytes())?;
    let known = NAMES.iter().find(|(known, _)| *known == oid);
    line.push('/');
    line.push_str(known.map_or(oid.as_str(), |(_, name)| name));
    line.push('=');
    let value = attribute.attr_value();
    if value.class() != Class::Universal || value.header.is_constructed() {
        return None;
    }
    let text = match value.tag() {
        Tag::Utf8String => std::str::from_utf8(value.data).is_ok(),
        Tag::PrintableString | Tag::Ia5String | Tag::NumericString => value.data.is_ascii(),
        _ => false,
    };
    if !text {
        return None;
    }
    value.data.iter().try_for_each(|&b| push_value(line, b))
}

/// Adds a byte of a value to a line. `None` for a control character.
pub(super) fn push_value(line: &mut String, byte: u8) -> Option<()> {
    const HEX: &[u8; 16] = b"0123456789ABCDEF";
    match byte {
        0..=0x1f | 0x7f => return None,
        b'/' | b'\\' | b'"' | 0x80.. => {
            line.push_str("\\x");
            line.push(char::from(HEX[usize::from(byte >> 4)]));
            line.push(char::from(HEX[usize::from(byte & 15)]));
        }
        _ => line.push(char::from(byte)),
    }
    Some(())
}

/// The numbers of an OID (X.690, section 8.19), separated by dots. `None` if the encoding isn't
/// canonical, or a number exceeds 64 bits.
fn dotted(bytes: &[u8]) -> Option<String> {
    if bytes.is_empty() {
        return None;
    }
    let mut text = String::new();
    let mut number: Option<u64> = None;
    for &byte in bytes {
        let low = u64::from(byte & 0x7f);
        let so_far = match number {
            // Numbers have no leading zeros.
            None if byte == 0x80 => return None,
            None => low,
            Some(high) => high.checked_mul(128)? | low,
        };
        if byte & 0x80 != 0 {
            number = Some(so_far);
            continue;
        }
        number = None;
        // The first number encodes two.
        let last = if text.is_empty() {
            let first = (so_far / 40).min(2);
            text.push_str(&first.to_string());
            so_far - 40 * first
        } else {
            so_far
        };
        text.push('.');
        text.push_str(&last.to_string());
    }
    number.is_none().then_some(text)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn oids() {
        let text = |bytes: &[u8]| dotted(bytes);
        assert_eq!(text(&[0x55, 4, 3]).as_deref(), Some("2.5.4.3"));
        assert_eq!(text(&[0x88, 0x37, 3]).as_deref(), Some("2.999.3"));
        assert_eq!(
            text(&[0x2a, 0x86, 0x48, 0x86, 0xf7, 0x0d, 1, 9, 1]).as_deref(),
            Some("1.2.840.113549.1.9.1")
        );
        let most = [0x2a, 0x81, 255, 255, 255, 255, 255, 255, 255, 255, 127];
        assert_eq!(text(&most).as_deref(), Some("1.2.18446744073709551615"));
        // Empty, truncated, with leading zeros, and over 64 bits.
        let over = [
            0x2a, 0x82, 0x80, 0x80, 0x80, 0x80, 0x80, 0x80, 0x80, 0x80, 0,
        ];
        for bad in [
            &[][..],
            &[0x55, 0x84],
            &[0x55, 0x80, 4],
            &[0x80, 0x55],
            &over,
        ] {
            assert_eq!(text(bad), None, "{bad:?}");
        }
    }

    #[test]
    fn short_names_are_unique() {
        for (i, (oid, name)) in NAMES.iter().enumerate() {
            assert!(name.bytes().all(|b| b.is_ascii_alphabetic()));
            for (other_oid, other_name) in &NAMES[i + 1..] {
                assert!(oid != other_oid && name != other_name, "{name}");
            }
        }
    }
}
