//! Chains of certificates with proxies: who a peer is.
//!
//! ```text
//!  proxy -> proxy -> certificate of the user -> (authority ->) authority in the directory
//!  '------- here (RFC 3820, section 4) -----'   '------- Trust (RFC 5280) ---------------'
//! ```
//!
//! What is checked of each proxy, beyond what [`proxy_of`] takes:
//!
//! - its issuer's name is that of the next certificate, and its own follows by one common name;
//! - the next certificate's key has signed it, and that one is no authority;
//! - it is valid now, as each of the chain is; of version 3; with a key of 112 bits of strength or
//!   more, and a signature by SHA-224 or better;
//! - it is no authority, may sign (key usage, of its issuer too), and has no other names;
//! - it has no critical extensions but these;
//! - there are no more proxies below it than it allows; all are of one form; and below a limited
//!   one the chain is limited.

use openssl::asn1::Asn1Time;
use openssl::x509::{X509, X509Ref};
use x509_parser::certificate::X509Certificate;
use x509_parser::extensions::ParsedExtension;
use x509_parser::prelude::FromDer as _;
use x509_parser::x509::X509Version;
use xdfs_proto::Fault;
use xdfs_security::grid::distinguished_name;

use crate::proxy::{PROXY_INFO, Proxy, follows_issuer, proxy_of};
use crate::signature::Signature;
use crate::trust::{CHAIN_MAX, Trust, name_of};
use crate::{failure, refused};

/// Least strength of the keys of proxies, in bits: RSA of 2048.
const SECURITY_BITS_MIN: u32 = 112;
/// Critical extensions that proxies and users may have: ProxyCertInfo, key usage, basic
/// constraints, extended key usage.
const KNOWN: [&str; 4] = [PROXY_INFO, "2.5.29.15", "2.5.29.19", "2.5.29.37"];
/// Alternative names of the subject and of the issuer.
const ALTERNATIVE_NAMES: [&str; 2] = ["2.5.29.17", "2.5.29.18"];

/// A verified peer.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Peer {
    /// The subject of the user's certificate, without what proxies add, as
    /// [`distinguished_name`] writes it.
    pub name: String,
    /// The user's certificate in DER.
    pub certificate: Vec<u8>,
    /// One of the proxies is limited.
    pub is_limited: bool,
    /// Number of proxies.
    pub proxies: usize,
    /// When the first of the proxies and the user's certificate ends, in seconds since 1970.
    pub ends_s: i64,
}

/// Verifies the certificates that a peer has shown, its own first. That it has the key of the first
/// one is for others to see.
///
/// # Errors
/// [`AuthenticationFailed`](xdfs_proto::Code::AuthenticationFailed): there is none, or more than
/// 20; or what of the rules isn't kept.
pub fn verify(chain: &[X509], trust: &Trust) -> Result<Peer, Fault> {
    if chain.is_empty() {
        return Err(refused("the peer has shown no certificate"));
    }
    if chain.len() > CHAIN_MAX {
        return Err(refused("the peer has shown more than 20 certificates"));
    }
    let mut ders = Vec::new();
    for certificate in chain {
        ders.push(
            certificate
                .to_der()
                .map_err(failure("read a certificate"))?,
        );
    }
    let mut parsed = Vec::new();
    for der in &ders {
        let (_, certificate) = X509Certificate::from_der(der)
            .map_err(|_| refused("a certificate of the peer is malformed"))?;
        parsed.push(certificate);
    }
    let mut proxies: Vec<Proxy> = Vec::new();
    for (at, certificate) in parsed.iter().enumerate() {
        let Some(proxy) = proxy_of(certificate)? else {
            break;
        };
        let Some(issuer) = parsed.get(at + 1) else {
            return Err(refused(
                "the certificate that the proxy was made from is missing",
            ));
        };
        check_link(certificate, issuer)?;
        Signature::of(&certificate.signature_algorithm)
            .map_err(|cause| refused(format!("the proxy {cause}")))?;
        check_signature(&chain[at], &chain[at + 1])?;
        if proxy.path_length.is_some_and(|most| (most as usize) < at) {
            let cause = format!("a proxy allows less than the {at} proxies that follow it");
            return Err(refused(cause));
        }
        if proxies.last().is_some_and(|last| last.form != proxy.form) {
            return Err(refused("the chain has proxies of RFC 3820 and older ones"));
        }
        proxies.push(proxy);
    }
    let user = proxies.len();
    // The loop above has seen that it is there.
    let (certificate, own) = (&chain[user], &parsed[user]);
    check_user(own)?;
    check_critical(own)?;
    trust.verify(certificate, &chain[user + 1..])?;
    Ok(Peer {
        name: distinguished_name(&ders[user])?,
        certificate: ders[user].clone(),
        is_limited: proxies.iter().any(|proxy| proxy.is_limited),
        proxies: user,
        ends_s: parsed[..=user]
            .iter()
            .map(|certificate| certificate.validity().not_after.timestamp())
            .min()
            .unwrap_or(0),
    })
}

/// What a proxy and its issuer say.
fn check_link(proxy: &X509Certificate<'_>, issuer: &X509Certificate<'_>) -> Result<(), Fault> {
    if proxy.version() != X509Version::V3 {
        return Err(refused("the proxy isn't a certificate of version 3"));
    }
    if proxy.issuer().as_raw() != issuer.subject().as_raw() {
        let cause = "the proxy's issuer isn't the certificate that follows it";
        return Err(refused(cause));
    }
    if !follows_issuer(proxy) {
        let cause = "the proxy's name isn't that of its issuer and one common name";
        return Err(refused(cause));
    }
    if is_authority(issuer)? {
        return Err(refused("an authority has signed the proxy, and not a user"));
    }
    if is_authority(proxy)? {
        return Err(refused("the proxy says that it is an authority"));
    }
    for (whose, certificate) in [("proxy", proxy), ("proxy's issuer", issuer)] {
        if !may_sign(certificate)? {
            return Err(refused(format!("the {whose} may not make signatures")));
        }
    }
    let usage = proxy.key_usage().ok().flatten();
    if usage.is_some_and(|usage| usage.value.key_cert_sign()) {
        return Err(refused("the proxy says that it signs certificates"));
    }
    // Also one that is malformed.
    let is_name = |oid: &str| ALTERNATIVE_NAMES.contains(&oid);
    let mut extensions = proxy.extensions().iter();
    if extensions.any(|extension| is_name(&extension.oid.to_id_string())) {
        return Err(refused("the proxy has an alternative name"));
    }
    check_critical(proxy)
}

fn check_critical(certificate: &X509Certificate<'_>) -> Result<(), Fault> {
    let unknown = certificate.iter_extensions().find(|extension| {
        let oid = extension.oid.to_id_string();
        // What OpenSSL knows of users it checks.
        let is_name = matches!(
            extension.parsed_extension(),
            ParsedExtension::SubjectAlternativeName(_)
                | ParsedExtension::CertificatePolicies(_)
                | ParsedExtension::NameConstraints(_)
        );
        extension.critical && !is_name && !KNOWN.contains(&oid.as_str())
    });
    match unknown {
        None => Ok(()),
        Some(extension) => Err(refused(format!(
            "a certificate has the critical extension {}, which isn't known",
            extension.oid.to_id_string()
        ))),
    }
}

/// The rules of the user's own certificate that Trust doesn't know.
fn check_user(certificate: &X509Certificate<'_>) -> Result<(), Fault> {
    // Others don't tell whether they are those of authorities.
    if certificate.version() != X509Version::V3 {
        let cause = "the peer's certificate isn't one of version 3";
        return Err(refused(cause));
    }
    // No policy would be asked about it, if it is in the directory.
    if certificate.subject().as_raw() == certificate.issuer().as_raw() {
        return Err(refused("the peer's certificate is its own authority"));
    }
    if is_authority(certificate)? {
        return Err(refused("the peer's certificate is that of an authority"));
    }
    if !may_sign(certificate)? {
        return Err(refused("the peer's certificate may not make signatures"));
    }
    // Users are TLS servers on data connections, and hosts TLS clients, so one of them is enough.
    let usage = certificate
        .extended_key_usage()
        .map_err(|_| refused("the certificate's extended key usage is malformed"))?;
    let usage = usage.map(|usage| usage.value);
    if usage.is_some_and(|usage| !(usage.any || usage.client_auth || usage.server_auth)) {
        return Err(refused("the certificate is for other purposes than TLS"));
    }
    Ok(())
}

fn is_authority(certificate: &X509Certificate<'_>) -> Result<bool, Fault> {
    let constraints = certificate.basic_constraints();
    let constraints =
        constraints.map_err(|_| refused("the certificate's basic constraints are malformed"))?;
    Ok(constraints.is_some_and(|constraints| constraints.value.ca))
}

/// Whether the key usage, if there is one, has digital signatures.
fn may_sign(certificate: &X509Certificate<'_>) -> Result<bool, Fault> {
    let usage = certificate.key_usage();
    let usage = usage.map_err(|_| refused("the certificate's key usage is malformed"))?;
    Ok(usage.is_none_or(|usage| usage.value.digital_signature()))
}

/// What only OpenSSL can tell of a proxy: times, keys and signatures.
fn check_signature(proxy: &X509Ref, issuer: &X509Ref) -> Result<(), Fault> {
    let fault = failure("verify a proxy");
    let now = Asn1Time::days_from_now(0).map_err(&fault)?;
    if proxy.not_before().compare(&now).map_err(&fault)?.is_gt() {
        return Err(refused("the proxy isn't valid yet").hint("compare the clocks"));
    }
    if !proxy.not_after().compare(&now).map_err(&fault)?.is_gt() {
        let fault = refused("the proxy has expired");
        return Err(fault.hint("make another one with `xdfs proxy init` or grid-proxy-init"));
    }
    let malformed = |_| refused("the key of a proxy is malformed");
    let (own, signer) = (
        proxy.public_key().map_err(malformed)?,
        issuer.public_key().map_err(malformed)?,
    );
    if own.security_bits() < SECURITY_BITS_MIN {
        let cause = "the proxy's key is weaker than RSA of 2048 bits";
        return Err(refused(cause).hint("make a proxy with a longer key"));
    }
    if !proxy.verify(&signer).unwrap_or(false) {
        let name = name_of(issuer).unwrap_or_default();
        return Err(refused(format!(
            "the proxy's signature isn't by the key of {name}"
        )));
    }
    Ok(())
}
