//! Lists of revoked certificates (RFC 5280, section 5). They have up to millions of entries, so a
//! file is read once for all who look into it, and again after it has changed. What is kept of it
//! are the serial numbers.

use std::fmt;
use std::fs;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, SystemTime};

use openssl::pkey::{PKey, Public};
use openssl::x509::X509Ref;
use x509_parser::asn1_rs::{Any, Class, FromDer as _, Tag};
use x509_parser::certificate::X509Certificate;
use x509_parser::extensions::X509Extension;
use x509_parser::pem::Pem;
use x509_parser::time::ASN1Time;
use x509_parser::x509::AlgorithmIdentifier;
use xdfs_proto::Fault;

use crate::authority_file::{read, unusable};
use crate::signature::Signature;
use crate::{failure, refused};

/// Bytes of the longest file.
const FILE_BYTES_MAX: u64 = 64 << 20;
/// Files that are kept.
const KEPT_MAX: usize = 256;
/// Bytes of serial numbers that are kept, of all files together.
const KEPT_BYTES_MAX: usize = 256 << 20;
/// Bytes of the longest serial number (RFC 5280, section 4.1.2.2).
const SERIAL_BYTES: usize = 20;
/// Time after a change within which another one may not be seen by the times of the file.
const UNSETTLED: Duration = Duration::from_secs(2);
/// Extensions that say that a list isn't one of everything (deltaCRLIndicator,
/// issuingDistributionPoint).
const PARTIAL: [&str; 2] = ["2.5.29.27", "2.5.29.28"];

/// Without leading zeros, and with some here.
type Serial = [u8; SERIAL_BYTES];

/// A list whose name and signature are those of its authority.
#[derive(PartialEq, Eq)]
pub(crate) struct List {
    /// In seconds since 1970.
    issued_s: i64,
    /// In seconds since 1970.
    ends_s: i64,
    /// In order.
    revoked: Vec<Serial>,
}

impl List {
    /// Whether it is one of now.
    ///
    /// # Errors
    /// It isn't.
    pub(crate) fn check_time(&self, now: SystemTime) -> Result<(), &'static str> {
        let now = now.duration_since(SystemTime::UNIX_EPOCH);
        let now_s = i64::try_from(now.unwrap_or_default().as_secs()).unwrap_or(i64::MAX);
        match now_s {
            now_s if now_s < self.issued_s => {
                Err("the list of revoked certificates is of the future")
            }
            now_s if now_s >= self.ends_s => Err("the list of revoked certificates has expired"),
            _ => Ok(()),
        }
    }

    /// Whether it has a certificate of its authority.
    pub(crate) fn has(&self, certificate: &X509Ref) -> Result<bool, Fault> {
        let der = certificate
            .to_der()
            .map_err(failure("read a certificate"))?;
        let (_, parsed) = X509Certificate::from_der(&der)
            .map_err(|_| refused("a certificate of the peer is malformed"))?;
        // A longer one is in no list that is taken.
        let serial = serial(parsed.raw_serial());
        Ok(serial.is_some_and(|serial| self.revoked.binary_search(&serial).is_ok()))
    }
}

impl fmt::Debug for List {
    /// Without the serial numbers.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "List({} revoked)", self.revoked.len())
    }
}

/// What a file has of one authority, or why it is of no use.
type Content = Result<Arc<[List]>, String>;

/// The files that have been read.
#[derive(Debug, Default)]
pub(crate) struct Lists {
    /// The last used one last.
    kept: Mutex<Vec<Kept>>,
    /// Files are read one at a time.
    turn: Mutex<()>,
}

#[derive(Debug)]
struct Kept {
    path: PathBuf,
    authority: Authority,
    version: Version,
    content: Content,
}

/// Who has to have signed a list.
#[derive(Debug, PartialEq, Eq)]
struct Authority {
    /// The subject in DER.
    name: Vec<u8>,
    /// The key in DER.
    key: Vec<u8>,
}

/// What differs after a change.
#[derive(Debug, PartialEq, Eq)]
struct Version {
    bytes: u64,
    changed: Option<SystemTime>,
    #[cfg(unix)]
    inode: (u64, u64, i64, i64),
}

fn locked<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    // Each change leaves what is kept consistent.
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Lists {
    /// The lists of a file that are named for `issuer` and signed by it; there may be none.
    ///
    /// # Errors
    /// The file can't be read; something in it is no list; or a list of the issuer isn't one of all
    /// certificates, doesn't tell when it ends, or is signed too weakly.
    pub(crate) fn of(&self, path: &Path, issuer: &X509Ref) -> Result<Arc<[List]>, Fault> {
        let fault = failure("read a certificate");
        let key = issuer.public_key().map_err(&fault)?;
        let authority = Authority {
            name: issuer.subject_name().to_der().map_err(&fault)?,
            key: key.public_key_to_der().map_err(&fault)?,
        };
        let wrong = |cause: String| unusable(path, &cause);
        if let Some(found) = self.find(path, &authority, &Version::of(path).map_err(wrong)?) {
            return found.map_err(wrong);
        }
        let _turn = locked(&self.turn);
        // Before the content, so that a change in between is seen.
        let now = SystemTime::now();
        let version = Version::of(path).map_err(wrong)?;
        if let Some(found) = self.find(path, &authority, &version) {
            return found.map_err(wrong);
        }
        let Some(bytes) = read(path, FILE_BYTES_MAX)? else {
            return Err(wrong("it is gone".to_owned()));
        };
        let content = lists(&bytes, &authority, &key).map(Arc::from);
        let content = content.map_err(str::to_owned);
        if version.is_settled(now) {
            self.keep(Kept {
                path: path.to_owned(),
                authority,
                version,
                content: content.clone(),
            });
        }
        content.map_err(wrong)
    }

    fn find(&self, path: &Path, authority: &Authority, version: &Version) -> Option<Content> {
        let mut kept = locked(&self.kept);
        let of_it = |kept: &Kept| kept.path == path && kept.authority == *authority;
        let found = kept.iter().position(of_it)?;
        let found = kept.remove(found);
        if found.version != *version {
            return None;
        }
        let content = found.content.clone();
        kept.push(found);
        Some(content)
    }

    fn keep(&self, new: Kept) {
        let mut kept = locked(&self.kept);
        kept.push(new);
        let bytes = |kept: &[Kept]| kept.iter().map(Kept::bytes).sum::<usize>();
        while kept.len() > KEPT_MAX || bytes(&kept) > KEPT_BYTES_MAX {
            kept.remove(0);
        }
    }
}

impl Kept {
    fn bytes(&self) -> usize {
        let lists = self.content.as_deref().unwrap_or_default();
        lists
            .iter()
            .map(|list| list.revoked.len() * SERIAL_BYTES)
            .sum()
    }
}

impl Version {
    fn of(path: &Path) -> Result<Self, String> {
        let metadata = fs::metadata(path).map_err(|error| error.to_string())?;
        // Opening a pipe would wait for its other end.
        if !metadata.is_file() {
            return Err("it isn't a regular file".to_owned());
        }
        #[cfg(unix)]
        {
            use std::os::unix::fs::MetadataExt as _;
            let (seconds, nanoseconds) = (metadata.ctime(), metadata.ctime_nsec());
            let since = Duration::from_secs(u64::try_from(seconds).unwrap_or(0));
            Ok(Self {
                bytes: metadata.len(),
                // The time of the content can be set back.
                changed: SystemTime::UNIX_EPOCH.checked_add(since),
                inode: (metadata.dev(), metadata.ino(), seconds, nanoseconds),
            })
        }
        #[cfg(not(unix))]
        Ok(Self {
            bytes: metadata.len(),
            changed: metadata.modified().ok(),
        })
    }

    /// Whether a change after `now` makes another version.
    fn is_settled(&self, now: SystemTime) -> bool {
        let since = self.changed.map(|changed| now.duration_since(changed));
        since.is_some_and(|since| since.is_ok_and(|since| since > UNSETTLED))
    }
}

/// The lists of a file, in PEM or DER, that are of an authority.
fn lists(
    bytes: &[u8],
    authority: &Authority,
    key: &PKey<Public>,
) -> Result<Vec<List>, &'static str> {
    let mut found = Vec::new();
    if bytes.first() == Some(&0x30) {
        found.extend(list(bytes, authority, key)?);
        return Ok(found);
    }
    let mut is_empty = true;
    for pem in Pem::iter_from_buffer(bytes) {
        let pem = pem.map_err(|_| "it is neither PEM nor DER")?;
        if pem.label != "X509 CRL" {
            return Err("it has something that is no list of revoked certificates");
        }
        is_empty = false;
        found.extend(list(&pem.contents, authority, key)?);
    }
    match is_empty {
        true => Err("it has no list of revoked certificates"),
        false => Ok(found),
    }
}

/// One list (RFC 5280, section 5.1); `None` if it is of another authority.
fn list(
    der: &[u8],
    authority: &Authority,
    key: &PKey<Public>,
) -> Result<Option<List>, &'static str> {
    let malformed = "a list of revoked certificates is malformed";
    let mut all = Elements(Elements(der).only(Tag::Sequence).ok_or(malformed)?);
    let (signed, content) = all.next_of(Tag::Sequence).ok_or(malformed)?;
    let (algorithm, _) = all.next_of(Tag::Sequence).ok_or(malformed)?;
    let signature = all.only(Tag::BitString).ok_or(malformed)?;
    let mut fields = Elements(content);
    // The version, which lists of version 1 don't have.
    fields.next_of(Tag::Integer);
    let (algorithm_within, _) = fields.next_of(Tag::Sequence).ok_or(malformed)?;
    let (issuer, _) = fields.next_of(Tag::Sequence).ok_or(malformed)?;
    if issuer != authority.name {
        return Ok(None);
    }
    let (_, parsed) = AlgorithmIdentifier::from_der(algorithm).map_err(|_| malformed)?;
    let way = Signature::of(&parsed).map_err(|_| {
        "the list of revoked certificates is signed in a way that isn't known, or with a digest \
         that is too weak"
    })?;
    let [0, signature @ ..] = signature else {
        return Err(malformed);
    };
    if algorithm != algorithm_within || !way.fits(key, signed, signature) {
        // There may be another authority with this name and another key.
        return Ok(None);
    }
    let issued_s = fields.time().ok_or(malformed)?;
    let no_end = "the list of revoked certificates doesn't tell when the next one comes";
    let ends_s = fields.time().ok_or(no_end)?;
    let mut revoked = Vec::new();
    if let Some((_, entries)) = fields.next_of(Tag::Sequence) {
        let mut entries = Elements(entries);
        while !entries.0.is_empty() {
            let (_, entry) = entries.next_of(Tag::Sequence).ok_or(malformed)?;
            revoked.push(self::entry(Elements(entry))?);
        }
    }
    if !fields.0.is_empty() {
        let extensions = fields.tagged(0).ok_or(malformed)?;
        check_extensions(Elements(extensions).only(Tag::Sequence).ok_or(malformed)?)?;
    }
    revoked.sort_unstable();
    revoked.shrink_to_fit();
    Ok(Some(List {
        issued_s,
        ends_s,
        revoked,
    }))
}

/// Whatever the reason of an entry is: those on hold aren't valid until they come back.
fn entry(mut entry: Elements<'_>) -> Result<Serial, &'static str> {
    let malformed = "an entry of the list of revoked certificates is malformed";
    let (_, number) = entry.next_of(Tag::Integer).ok_or(malformed)?;
    let serial = serial(number).ok_or(malformed)?;
    entry.time().ok_or(malformed)?;
    if !entry.0.is_empty() {
        let extensions = entry.only(Tag::Sequence).ok_or(malformed)?;
        // Such as the one for a certificate of another authority.
        check_extensions(extensions)?;
    }
    Ok(serial)
}

fn check_extensions(extensions: &[u8]) -> Result<(), &'static str> {
    let mut rest = extensions;
    while !rest.is_empty() {
        let extension;
        (rest, extension) = X509Extension::from_der(rest)
            .map_err(|_| "an extension of the list of revoked certificates is malformed")?;
        if PARTIAL.contains(&extension.oid.to_id_string().as_str()) {
            return Err("the list isn't one of all revoked certificates");
        }
        if extension.critical {
            return Err("the list has a critical extension, so it isn't one of all certificates");
        }
    }
    Ok(())
}

/// `None` if it is too long.
fn serial(number: &[u8]) -> Option<Serial> {
    let zeros = number.iter().take_while(|byte| **byte == 0).count();
    let digits = &number[zeros..];
    let mut serial = [0; SERIAL_BYTES];
    let from = SERIAL_BYTES.checked_sub(digits.len())?;
    serial[from..].copy_from_slice(digits);
    Some(serial)
}

/// Elements of DER that follow each other.
#[derive(Clone, Copy)]
struct Elements<'a>(&'a [u8]);

impl<'a> Elements<'a> {
    /// All of the next element and its content, if it is one of this kind.
    fn next_of(&mut self, tag: Tag) -> Option<(&'a [u8], &'a [u8])> {
        let (rest, any) = Any::from_der(self.0).ok()?;
        if any.tag() != tag || any.class() != Class::Universal {
            return None;
        }
        let whole = &self.0[..self.0.len() - rest.len()];
        self.0 = rest;
        Some((whole, any.data))
    }

    /// The content of the next element, if it is the last and of this kind.
    fn only(mut self, tag: Tag) -> Option<&'a [u8]> {
        let (_, content) = self.next_of(tag)?;
        self.0.is_empty().then_some(content)
    }

    /// The content of the last element, which has a tag of its context.
    fn tagged(self, number: u32) -> Option<&'a [u8]> {
        let (rest, any) = Any::from_der(self.0).ok()?;
        let is_it = any.class() == Class::ContextSpecific && any.tag().0 == number;
        (is_it && rest.is_empty()).then_some(any.data)
    }

    /// A time in seconds since 1970.
    fn time(&mut self) -> Option<i64> {
        let (rest, time) = ASN1Time::from_der(self.0).ok()?;
        self.0 = rest;
        Some(time.timestamp())
    }
}
