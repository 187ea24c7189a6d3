//! A directory of authorities, with their signing policies and lists of revoked certificates.

use std::path::PathBuf;
use std::sync::Arc;
use std::time::SystemTime;

use openssl::stack::Stack;
use openssl::x509::store::{X509Store, X509StoreBuilder};
use openssl::x509::verify::X509VerifyParam;
use openssl::x509::{X509, X509Ref, X509StoreContext};
use xdfs_proto::Fault;
use xdfs_security::grid::distinguished_name;
use xdfs_security::trusted;

use crate::authority_file::{read, unusable};
use crate::policy::{self, POLICY_BYTES_MAX};
use crate::revocation::Lists;
use crate::{failure, refused, text_of};

/// Most certificates of a chain, and so of a file.
pub(crate) const CHAIN_MAX: usize = 20;
/// Files with the same hash that are looked at: `HASH.0` to `HASH.9`, and ten of `HASH.r`.
const SAME_HASH_MAX: usize = 10;
/// Bytes of the longest file of a certificate.
const CERTIFICATE_BYTES_MAX: u64 = 1 << 20;
/// Least strength of keys and signatures in OpenSSL's levels: 112 bits, RSA of 2048.
const LEVEL: i32 = 2;

/// A directory of authorities. Its files are read when they are needed, so that changes, such as
/// new lists of revoked certificates, take effect at once. Clones share the lists that have been
/// read, so that each is held once.
#[derive(Clone, Debug)]
pub struct Trust {
    directory: PathBuf,
    lists: Arc<Lists>,
}

impl Trust {
    /// The authorities in `directory`: for each the certificate (`HASH.0`, with OpenSSL's hash of
    /// its subject), the signing policy (`HASH.signing_policy`), and lists of revoked certificates
    /// (`HASH.r0`) if it has some.
    ///
    /// # Errors
    /// It is no directory that can be read, or others may change what is in it.
    pub fn open(directory: impl Into<PathBuf>) -> Result<Self, Fault> {
        let directory = directory.into();
        let operation = "read the directory of authorities";
        let name = directory.as_os_str().as_encoded_bytes();
        std::fs::read_dir(&directory).map_err(|error| Fault::from_io(operation, name, &error))?;
        trusted::check_folder(operation, &directory)?;
        Ok(Self {
            directory,
            lists: Arc::default(),
        })
    }

    /// Verifies a certificate that is no proxy, by RFC 5280: there is a chain to an authority of
    /// the directory, all of it is valid now, the policies of the authorities allow the names, and
    /// nothing is revoked. An authority with a list has to have one of now.
    ///
    /// # Errors
    /// [`Code::AuthenticationFailed`]: what isn't so.
    pub(crate) fn verify(&self, certificate: &X509, more: &[X509]) -> Result<(), Fault> {
        let path = self.path_to(certificate, more)?;
        for pair in path.windows(2) {
            let [subject, issuer] = pair else { continue };
            self.check_policy(subject, issuer)?;
            self.check_revoked(subject, issuer)?;
        }
        Ok(())
    }

    /// The path from a certificate to a self-signed one of the directory, both included.
    fn path_to(&self, certificate: &X509, more: &[X509]) -> Result<Vec<X509>, Fault> {
        let fault = failure("verify a certificate");
        let store = self.store_for(certificate, more)?;
        let mut others = Stack::new().map_err(&fault)?;
        for other in more {
            others.push(other.clone()).map_err(&fault)?;
        }
        let mut context = X509StoreContext::new().map_err(&fault)?;
        let verified = context.init(&store, certificate, &others, |context| {
            let is_valid = context.verify_cert()?;
            let path: Vec<X509> = context
                .chain()
                .map(|chain| chain.iter().map(ToOwned::to_owned).collect())
                .unwrap_or_default();
            Ok((is_valid, context.error(), context.error_depth(), path))
        });
        let (is_valid, error, depth, path) = verified.map_err(&fault)?;
        if is_valid {
            return Ok(path);
        }
        let whose = match (depth, path.get(depth as usize)) {
            (0, _) | (_, None) => String::new(),
            (_, Some(at)) => format!(" (of {})", shown(at)),
        };
        let fault = refused(format!(
            "the certificate of {} isn't verified: {}{whose}",
            shown(certificate),
            error.error_string()
        ));
        Err(fault.hint("its authority has to be in the directory of authorities, and valid"))
    }

    /// The authorities that may be on a path from these certificates.
    fn store_for(&self, certificate: &X509, more: &[X509]) -> Result<X509Store, Fault> {
        let fault = failure("verify a certificate");
        let mut builder = X509StoreBuilder::new().map_err(&fault)?;
        let mut parameters = X509VerifyParam::new().map_err(&fault)?;
        parameters.set_auth_level(LEVEL);
        parameters.set_depth(i32::try_from(CHAIN_MAX).unwrap_or(i32::MAX));
        builder.set_param(&parameters).map_err(&fault)?;
        let mut wanted: Vec<X509> = std::iter::once(certificate).chain(more).cloned().collect();
        let mut seen = Vec::new();
        while let Some(next) = wanted.pop() {
            let hash = next.issuer_name_hash();
            if seen.contains(&hash) || seen.len() > 2 * CHAIN_MAX {
                continue;
            }
            seen.push(hash);
            for number in 0..SAME_HASH_MAX {
                let path = self.directory.join(format!("{hash:08x}.{number}"));
                let Some(bytes) = read(&path, CERTIFICATE_BYTES_MAX)? else {
                    break;
                };
                let authority = X509::from_pem(&bytes)
                    .or_else(|_| X509::from_der(&bytes))
                    .map_err(|error| unusable(&path, &text_of(&error)))?;
                wanted.push(authority.clone());
                builder.add_cert(authority).map_err(&fault)?;
            }
        }
        Ok(builder.build())
    }

    fn check_policy(&self, subject: &X509Ref, issuer: &X509Ref) -> Result<(), Fault> {
        let path = self.policy_path(subject);
        let (name, authority) = (name_of(subject)?, name_of(issuer)?);
        let Some(bytes) = read(&path, POLICY_BYTES_MAX)? else {
            let cause = format!("the authority {authority} has no signing policy");
            let name = path.file_name().unwrap_or_default().display();
            return Err(refused(cause).hint(format!("it belongs to {name}, beside the authority")));
        };
        let text = String::from_utf8_lossy(&bytes);
        match policy::allows(&text, &authority, &name) {
            Ok(true) => Ok(()),
            Ok(false) => Err(refused(format!(
                "the signing policy of {authority} doesn't allow {name}"
            ))),
            Err(cause) => Err(unusable(&path, &cause)),
        }
    }

    fn policy_path(&self, subject: &X509Ref) -> PathBuf {
        let hash = subject.issuer_name_hash();
        self.directory.join(format!("{hash:08x}.signing_policy"))
    }

    fn check_revoked(&self, subject: &X509, issuer: &X509Ref) -> Result<(), Fault> {
        let files = self.lists_of(subject.issuer_name_hash())?;
        // Lists of other authorities may have the same hash, and not hide this one's.
        let mut is_listed = false;
        for path in &files {
            for list in self.lists.of(path, issuer)?.iter() {
                is_listed = true;
                let is_now = list.check_time(SystemTime::now());
                is_now.map_err(|cause| unusable(path, cause))?;
                if list.has(subject)? {
                    return Err(refused(format!(
                        "the certificate of {} is revoked",
                        shown(subject)
                    )));
                }
            }
        }
        match files.first() {
            Some(path) if !is_listed => Err(unusable(
                path,
                "it has no list with the name and the signature of the authority",
            )),
            _ => Ok(()),
        }
    }

    /// The files of revoked certificates of the authorities with this hash: `HASH.r` and a number.
    fn lists_of(&self, hash: u32) -> Result<Vec<PathBuf>, Fault> {
        let fault = |error: std::io::Error| unusable(&self.directory, &error.to_string());
        let beginning = format!("{hash:08x}.r");
        let mut files = Vec::new();
        for entry in std::fs::read_dir(&self.directory).map_err(fault)? {
            let name = entry.map_err(fault)?.file_name();
            let name = name.to_str().unwrap_or_default();
            let number = name.strip_prefix(&beginning).unwrap_or_default();
            if !number.is_empty() && number.bytes().all(|byte| byte.is_ascii_digit()) {
                files.push(self.directory.join(name));
            }
        }
        files.sort();
        match files.get(SAME_HASH_MAX) {
            Some(path) => Err(unusable(path, "there are more than 10 of them")),
            None => Ok(files),
        }
    }
}

/// The subject as one line.
pub(crate) fn name_of(certificate: &X509Ref) -> Result<String, Fault> {
    let der = certificate
        .to_der()
        .map_err(failure("encode a certificate"))?;
    distinguished_name(&der)
}

/// The subject for people; names that can't be text are told as such.
fn shown(certificate: &X509Ref) -> String {
    name_of(certificate).unwrap_or_else(|_| "somebody whose name isn't text".to_owned())
}
