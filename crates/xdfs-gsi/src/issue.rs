//! Proxies are made and signed here: for oneself, and for others (delegation).

use std::time::{Duration, SystemTime, UNIX_EPOCH};

use openssl::asn1::{Asn1Integer, Asn1Object, Asn1OctetString, Asn1Time};
use openssl::bn::BigNum;
use openssl::ec::{EcGroup, EcKey};
use openssl::hash::MessageDigest;
use openssl::nid::Nid;
use openssl::pkey::{HasPublic, PKey, PKeyRef, Private};
use openssl::rsa::Rsa;
use openssl::x509::extension::KeyUsage;
use openssl::x509::{X509, X509Extension, X509Name, X509NameRef, X509Req};
use x509_parser::certificate::X509Certificate;
use x509_parser::prelude::FromDer as _;
use xdfs_proto::{Code, Fault};

use crate::proxy::{self, Form};
use crate::{Credential, failure, refused};

/// Time by which clocks may differ: proxies are valid from so long ago.
const CLOCK_SKEW: Duration = Duration::from_secs(300);
/// The bounds of what is asked for.
const LIFETIME_MIN: Duration = Duration::from_secs(1);
const LIFETIME_MAX: Duration = Duration::from_secs(3653 * 86_400);
/// Bits of the keys of proxies.
pub const KEY_BITS: u32 = 2048;

/// What a proxy is to be.
#[derive(Clone, Debug)]
pub struct ProxyOptions {
    /// Its form; below a proxy it is that one's.
    pub form: Form,
    /// It is limited, as everything below a limited proxy is.
    pub is_limited: bool,
    /// Number of proxies that may be derived from it; `None` for any. Older ones can't tell.
    pub path_length: Option<u32>,
    /// How long it is valid, from a second to ten years; never longer than its issuer.
    pub lifetime: Duration,
    /// Bits of its key, from 2048 to 8192.
    pub key_bits: u32,
}

impl Default for ProxyOptions {
    fn default() -> Self {
        Self {
            form: Form::Rfc3820,
            is_limited: false,
            path_length: None,
            lifetime: Duration::from_secs(12 * 3600),
            key_bits: KEY_BITS,
        }
    }
}

/// Makes a proxy of `issuer`, with a key of its own.
///
/// # Errors
/// [`Code::InvalidArgument`]: the key or the lifetime is to be too short or too long, or the issuer
/// is a proxy that allows no others; or OpenSSL fails.
pub fn make_proxy(issuer: &Credential, options: &ProxyOptions) -> Result<Credential, Fault> {
    if !(KEY_BITS..=8192).contains(&options.key_bits) {
        let cause = "the key of a proxy has 2048 to 8192 bits";
        return Err(Fault::new(Code::InvalidArgument, "make a proxy", cause));
    }
    if !(LIFETIME_MIN..=LIFETIME_MAX).contains(&options.lifetime) {
        let cause = "a proxy is valid for at least a second and at most ten years";
        return Err(Fault::new(Code::InvalidArgument, "make a proxy", cause));
    }
    let key = new_key(options.key_bits)?;
    let certificate = sign(issuer, &key, options)?;
    let chain = std::iter::once(&issuer.certificate).chain(&issuer.chain);
    Ok(Credential {
        certificate,
        key,
        chain: chain.cloned().collect(),
    })
}

/// Signs a proxy for the key of a request (PKCS #10 in DER), of which nothing else counts. Returns
/// its DER.
///
/// # Errors
/// The request is malformed, not signed by its own key, or the key is weaker than RSA of 2048 bits;
/// or as for [`make_proxy`].
pub fn sign_request(
    issuer: &Credential,
    request: &[u8],
    options: &ProxyOptions,
) -> Result<Vec<u8>, Fault> {
    let malformed = |_| refused("the request for a delegated proxy is malformed");
    let request = X509Req::from_der(request).map_err(malformed)?;
    let key = request.public_key().map_err(malformed)?;
    if !request.verify(&key).map_err(malformed)? {
        return Err(refused(
            "the request for a delegated proxy isn't signed by its key",
        ));
    }
    if key.security_bits() < 112 {
        return Err(refused(
            "the key of the request is weaker than RSA of 2048 bits",
        ));
    }
    let certificate = sign(issuer, &key, options)?;
    certificate
        .to_der()
        .map_err(failure("encode a certificate"))
}

/// A key for a proxy, and the request for its certificate in DER.
pub(crate) fn request() -> Result<(PKey<Private>, Vec<u8>), Fault> {
    let fault = failure("ask for a delegated proxy");
    // Keys of RSA take 0.1 s of a processor to make, for each login.
    let curve = EcGroup::from_curve_name(Nid::X9_62_PRIME256V1).map_err(&fault)?;
    let key = EcKey::generate(&curve).and_then(PKey::from_ec_key);
    let key = key.map_err(&fault)?;
    let mut name = X509Name::builder().map_err(&fault)?;
    // The issuer chooses the name.
    name.append_entry_by_text("CN", "NULL SUBJECT NAME ENTRY")
        .map_err(&fault)?;
    let mut builder = X509Req::builder().map_err(&fault)?;
    builder.set_version(0).map_err(&fault)?;
    builder.set_subject_name(&name.build()).map_err(&fault)?;
    builder.set_pubkey(&key).map_err(&fault)?;
    builder
        .sign(&key, MessageDigest::sha256())
        .map_err(&fault)?;
    let der = builder.build().to_der().map_err(&fault)?;
    Ok((key, der))
}

fn new_key(bits: u32) -> Result<PKey<Private>, Fault> {
    let rsa = Rsa::generate(bits).and_then(PKey::from_rsa);
    rsa.map_err(failure("make a key"))
}

fn sign<T: HasPublic>(
    issuer: &Credential,
    key: &PKeyRef<T>,
    options: &ProxyOptions,
) -> Result<X509, Fault> {
    let fault = failure("make a proxy");
    let der = issuer.certificate.to_der().map_err(&fault)?;
    let (_, parsed) = X509Certificate::from_der(&der)
        .map_err(|_| refused("the issuer's certificate is malformed"))?;
    let above = proxy::proxy_of(&parsed)?;
    let is_limited = options.is_limited || above.is_some_and(|above| above.is_limited);
    let form = above.map_or(options.form, |above| above.form);
    if above.is_some_and(|above| above.path_length == Some(0)) {
        let cause = "the proxy doesn't allow others that are made from it";
        return Err(Fault::new(Code::InvalidArgument, "make a proxy", cause));
    }
    if form == Form::Legacy && options.path_length.is_some() {
        let cause = "proxies of the old form have no path length";
        return Err(Fault::new(Code::InvalidArgument, "make a proxy", cause));
    }
    let mut random = [0; 4];
    getrandom::fill(&mut random).map_err(|_| {
        let cause = "the system has no randomness";
        Fault::new(Code::Internal, "make a proxy", cause)
    })?;
    // RFC 3820, section 3.4: the name is unique among those of the issuer.
    let number = u32::from_be_bytes(random) >> 1;
    let common_name = match form {
        Form::Rfc3820 => number.to_string(),
        Form::Legacy if is_limited => "limited proxy".to_owned(),
        Form::Legacy => "proxy".to_owned(),
    };
    let mut builder = X509::builder().map_err(&fault)?;
    builder.set_version(2).map_err(&fault)?;
    let serial = BigNum::from_u32(number).and_then(|n| Asn1Integer::from_bn(&n));
    let serial = serial.map_err(&fault)?;
    builder.set_serial_number(&serial).map_err(&fault)?;
    let above_name = issuer.certificate.subject_name();
    builder.set_issuer_name(above_name).map_err(&fault)?;
    let name = extended(above_name, &common_name).map_err(&fault)?;
    builder.set_subject_name(&name).map_err(&fault)?;
    let (from, until) = times(issuer, options.lifetime).map_err(&fault)?;
    builder.set_not_before(&from).map_err(&fault)?;
    builder.set_not_after(&until).map_err(&fault)?;
    builder.set_pubkey(key).map_err(&fault)?;
    // Those of the old form have no extensions: the tools of Globus make none from one whose key
    // usage doesn't let it sign certificates.
    if form == Form::Rfc3820 {
        let usage = KeyUsage::new()
            .critical()
            .digital_signature()
            .key_encipherment()
            .build();
        let usage = usage.map_err(&fault)?;
        builder.append_extension2(&usage).map_err(&fault)?;
        let info = proxy::encode_info(is_limited, options.path_length);
        let info = Asn1OctetString::new_from_bytes(&info).map_err(&fault)?;
        let oid = Asn1Object::from_str(proxy::PROXY_INFO).map_err(&fault)?;
        let info = X509Extension::new_from_der(&oid, true, &info).map_err(&fault)?;
        builder.append_extension2(&info).map_err(&fault)?;
    }
    // Keys such as Ed25519 have a digest of their own.
    let digest = match issuer.key.rsa().is_ok() || issuer.key.ec_key().is_ok() {
        true => MessageDigest::sha256(),
        false => MessageDigest::null(),
    };
    builder.sign(&issuer.key, digest).map_err(&fault)?;
    Ok(builder.build())
}

/// A name, followed by a common name.
fn extended(name: &X509NameRef, common_name: &str) -> Result<X509Name, openssl::error::ErrorStack> {
    let mut builder = X509Name::builder()?;
    for entry in name.entries() {
        builder.append_entry(entry)?;
    }
    builder.append_entry_by_nid(Nid::COMMONNAME, common_name)?;
    Ok(builder.build())
}

/// From when until when a proxy is valid: within the times of its issuer.
fn times(
    issuer: &Credential,
    lifetime: Duration,
) -> Result<(Asn1Time, Asn1Time), openssl::error::ErrorStack> {
    let now = SystemTime::now()
        .duration_since(UNIX_EPOCH)
        .unwrap_or_default();
    let at = |time: Duration| {
        let seconds = i64::try_from(time.as_secs()).unwrap_or(i64::MAX);
        Asn1Time::from_unix(seconds)
    };
    let end = now.saturating_add(lifetime);
    let (mut from, mut until) = (at(now.saturating_sub(CLOCK_SKEW))?, at(end)?);
    let (first, last) = (
        issuer.certificate.not_before(),
        issuer.certificate.not_after(),
    );
    if first.compare(&from)?.is_gt() {
        from = copy(first)?;
    }
    if last.compare(&until)?.is_lt() {
        until = copy(last)?;
    }
    Ok((from, until))
}

fn copy(time: &openssl::asn1::Asn1TimeRef) -> Result<Asn1Time, openssl::error::ErrorStack> {
    let epoch = Asn1Time::from_unix(0)?;
    let since = epoch.diff(time)?;
    Asn1Time::from_unix(i64::from(since.days) * 86_400 + i64::from(since.secs))
}
