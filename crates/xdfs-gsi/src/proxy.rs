//! Proxy certificates: which certificates are some, and what they say.
//!
//! A proxy of RFC 3820 has a critical extension, ProxyCertInfo. The older form of Globus has none:
//! its subject is that of its issuer, followed by `CN=proxy` or `CN=limited proxy`. The form of
//! drafts in between, with an extension of its own, is refused.

use x509_parser::asn1_rs::{Any, Class, FromDer as _, Integer, Oid, Tag};
use x509_parser::certificate::X509Certificate;
use x509_parser::x509::X509Name;
use xdfs_proto::Fault;

use crate::refused;

/// ProxyCertInfo (RFC 3820, section 3.8).
pub(crate) const PROXY_INFO: &str = "1.3.6.1.5.5.7.1.14";
/// ProxyCertInfo in drafts.
const DRAFT: &str = "1.3.6.1.4.1.3536.1.222";
/// A proxy with all rights of its issuer (RFC 3820, section 3.8.2).
pub(crate) const INHERIT_ALL: &str = "1.3.6.1.5.5.7.21.1";
/// A proxy without the rights of its issuer.
pub(crate) const INDEPENDENT: &str = "1.3.6.1.5.5.7.21.2";
/// A proxy that may move files and not start programs, in Globus.
pub(crate) const LIMITED: &str = "1.3.6.1.4.1.3536.1.1.1.9";
/// Bytes of the longest ProxyCertInfo that is read.
const INFO_BYTES_MAX: usize = 4096;

/// The form of a proxy.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Form {
    /// With ProxyCertInfo.
    Rfc3820,
    /// By its name alone.
    Legacy,
}

/// What a proxy says of itself.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Proxy {
    /// Its form.
    pub form: Form,
    /// It is limited: not to be taken for starting programs.
    pub is_limited: bool,
    /// Number of proxies that may be derived from it, one from the other; `None` for any.
    pub path_length: Option<u32>,
}

/// The content of ProxyCertInfo.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ProxyInfo {
    /// pCPathLenConstraint.
    pub path_length: Option<u32>,
    /// The policy language, as numbers with dots.
    pub language: String,
    /// There is a policy in that language.
    pub has_policy: bool,
}

impl ProxyInfo {
    /// Reads the DER of the extension's value.
    ///
    /// # Errors
    /// It is malformed, or longer than 4 KiB.
    pub fn parse(der: &[u8]) -> Result<Self, Fault> {
        let parsed = (der.len() <= INFO_BYTES_MAX).then(|| Self::read(der));
        parsed
            .flatten()
            .ok_or_else(|| refused("the proxy's ProxyCertInfo is malformed"))
    }

    fn read(der: &[u8]) -> Option<Self> {
        let mut fields = only(der, Tag::Sequence)?;
        let mut path_length = None;
        let (rest, first) = Any::from_der(fields).ok()?;
        if first.tag() == Tag::Integer && first.class() == Class::Universal {
            let length = Integer::try_from(first).ok()?;
            path_length = Some(length.as_u32().ok()?);
            fields = rest;
        }
        let fields = only(fields, Tag::Sequence)?;
        let (rest, language) = Oid::from_der(fields).ok()?;
        let has_policy = !rest.is_empty();
        if has_policy {
            only(rest, Tag::OctetString)?;
        }
        Some(Self {
            path_length,
            language: language.to_id_string(),
            has_policy,
        })
    }
}

/// The content of an object that is all there is.
fn only(der: &[u8], tag: Tag) -> Option<&[u8]> {
    let (rest, any) = Any::from_der(der).ok()?;
    let is_it = any.tag() == tag && any.class() == Class::Universal;
    (rest.is_empty() && is_it).then_some(any.data)
}

/// The text of the last component of a name, if it is one common name, and the bytes of those
/// before it.
pub(crate) fn last_common_name<'a>(name: &X509Name<'a>) -> Option<(&'a [u8], &'a str)> {
    let all = only(name.as_raw(), Tag::Sequence)?;
    let (mut rest, mut last) = (all, all);
    // Each step takes at least two bytes.
    while !rest.is_empty() {
        last = rest;
        (rest, _) = Any::from_der(rest).ok()?;
    }
    let attribute = only(only(last, Tag::Set)?, Tag::Sequence)?;
    let (value, kind) = Oid::from_der(attribute).ok()?;
    let (rest, value) = Any::from_der(value).ok()?;
    let is_name = kind.to_id_string() == "2.5.4.3" && rest.is_empty();
    let before = &all[..all.len() - last.len()];
    let text = std::str::from_utf8(value.data).ok()?;
    is_name.then_some((before, text))
}

/// Whether a subject is that of the issuer, followed by one common name.
pub(crate) fn follows_issuer(certificate: &X509Certificate<'_>) -> bool {
    let issuer = only(certificate.issuer().as_raw(), Tag::Sequence);
    let parts = last_common_name(certificate.subject());
    parts.is_some_and(|(before, _)| Some(before) == issuer && !before.is_empty())
}

/// What a certificate says of itself as a proxy; `None` if it is no proxy.
///
/// # Errors
/// It claims to be a proxy of a kind that isn't taken: one of drafts, one with rights of its own
/// (independent), or one with a policy, which nothing here could apply.
pub fn proxy_of(certificate: &X509Certificate<'_>) -> Result<Option<Proxy>, Fault> {
    let mut found = None;
    for extension in certificate.iter_extensions() {
        match extension.oid.to_id_string().as_str() {
            DRAFT => {
                let cause = "the proxy has the form of a draft before RFC 3820";
                return Err(refused(cause).hint("make one with `grid-proxy-init -rfc`"));
            }
            PROXY_INFO if found.is_some() => {
                return Err(refused("the proxy has two extensions ProxyCertInfo"));
            }
            PROXY_INFO if !extension.critical => {
                return Err(refused("the proxy's ProxyCertInfo isn't critical"));
            }
            PROXY_INFO => found = Some(ProxyInfo::parse(extension.value)?),
            _ => {}
        }
    }
    let Some(info) = found else {
        return Ok(legacy(certificate));
    };
    let is_limited = match info.language.as_str() {
        INHERIT_ALL => false,
        LIMITED => true,
        INDEPENDENT => {
            let cause = "the proxy is independent: it doesn't stand for its issuer";
            return Err(refused(cause).hint("make one that inherits the rights"));
        }
        other => {
            let cause = format!("the proxy restricts its rights in the language {other}");
            return Err(refused(cause).hint("make one that inherits the rights, or a limited one"));
        }
    };
    if info.has_policy {
        return Err(refused("the proxy has a policy, and its kind has none"));
    }
    Ok(Some(Proxy {
        form: Form::Rfc3820,
        is_limited,
        path_length: info.path_length,
    }))
}

/// What a certificate in DER says of itself as a proxy; `None` if it is no proxy.
///
/// # Errors
/// It is malformed, or as for [`proxy_of`].
pub fn parse(der: &[u8]) -> Result<Option<Proxy>, Fault> {
    let (_, certificate) =
        X509Certificate::from_der(der).map_err(|_| refused("the certificate is malformed"))?;
    proxy_of(&certificate)
}

fn legacy(certificate: &X509Certificate<'_>) -> Option<Proxy> {
    let (_, name) = last_common_name(certificate.subject())?;
    let is_limited = match name {
        "proxy" => false,
        "limited proxy" => true,
        _ => return None,
    };
    // Else it is somebody with this name, for whom an authority speaks.
    follows_issuer(certificate).then_some(Proxy {
        form: Form::Legacy,
        is_limited,
        path_length: None,
    })
}

/// The DER of a ProxyCertInfo without a policy.
pub(crate) fn encode_info(is_limited: bool, path_length: Option<u32>) -> Vec<u8> {
    let tlv = |tag: u8, content: &[u8]| {
        // All lengths here are below 128.
        let mut der = vec![tag, u8::try_from(content.len()).unwrap_or(0)];
        der.extend_from_slice(content);
        der
    };
    let language: &[u8] = match is_limited {
        true => &[0x2b, 6, 1, 4, 1, 0x9b, 0x50, 1, 1, 1, 9],
        false => &[0x2b, 6, 1, 5, 5, 7, 0x15, 1],
    };
    let mut content = Vec::new();
    if let Some(length) = path_length {
        let bytes = length.to_be_bytes();
        let zeros = bytes.iter().take(3).take_while(|byte| **byte == 0).count();
        let mut number = bytes[zeros..].to_vec();
        if number[0] >= 0x80 {
            number.insert(0, 0);
        }
        content = tlv(0x02, &number);
    }
    content.extend(tlv(0x30, &tlv(0x06, language)));
    tlv(0x30, &content)
}

#[cfg(test)]
mod unit_tests {
    use super::*;

    #[test]
    fn what_is_written_is_read() {
        for length in [None, Some(0), Some(1), Some(127), Some(128), Some(70_000)] {
            for is_limited in [false, true] {
                let der = encode_info(is_limited, length);
                let info = ProxyInfo::parse(&der).unwrap();
                assert_eq!(info.path_length, length);
                assert_eq!(info.language == LIMITED, is_limited);
                assert!(!info.has_policy);
                // Each byte that is missing or too many is noticed.
                for end in 0..der.len() {
                    assert!(ProxyInfo::parse(&der[..end]).is_err());
                }
                assert!(ProxyInfo::parse(&[&der[..], &[0]].concat()).is_err());
            }
        }
        // Those that globus-url-copy and grid-proxy-init make.
        assert_eq!(encode_info(true, None)[..4], [0x30, 0x0f, 0x30, 0x0d]);
        assert_eq!(encode_info(false, None)[..4], [0x30, 0x0c, 0x30, 0x0a]);
        // A negative length.
        assert!(ProxyInfo::parse(&[0x30, 8, 2, 1, 0xff, 0x30, 3, 6, 1, 0x2b]).is_err());
    }
}
