//! New keys.

use std::ffi::OsString;
use std::fs;
use std::path::{Path, PathBuf};

use aws_lc_rs::signature::{Ed25519KeyPair, KeyPair};
use ssh_key::private::{Ed25519Keypair, Ed25519PrivateKey, KeypairData};
use ssh_key::public::Ed25519PublicKey;
use ssh_key::{LineEnding, PrivateKey};
use xdfs_proto::fault::{Code, Fault};
use zeroize::Zeroizing;

use super::file;
use super::public::PublicKey;

const MAKE: &str = "make the key";
/// Maximum size of a comment.
const COMMENT_BYTES_MAX: usize = 256;

/// Creates an Ed25519 key in OpenSSH format, without a passphrase: the private key at `path`,
/// accessible only to the owner, and the public key beside it with the suffix `.pub`. `comment`,
/// one line of at most 256 bytes, is stored in both.
///
/// # Errors
/// `AlreadyExists` if either file exists: nothing is ever overwritten. `InvalidArgument` for the
/// comment. Errors of the system.
pub fn make_key(path: &Path, comment: &str) -> Result<PublicKey, Fault> {
    if comment.len() > COMMENT_BYTES_MAX || comment.chars().any(char::is_control) {
        let cause = "the comment isn't one line of at most 256 bytes";
        return Err(Fault::new(Code::InvalidArgument, MAKE, cause));
    }
    let (private, public) = generate(comment)?;
    let beside = beside(path);
    // Checked first, so that usually nothing must be removed again.
    if beside.symlink_metadata().is_ok() {
        return Err(exists(&beside));
    }
    file::create(path, MAKE, private.as_bytes(), 0o600).map_err(|f| no_force(f, path))?;
    let line = public.to_line(comment) + "\n";
    if let Err(fault) = file::create(&beside, MAKE, line.as_bytes(), 0o644) {
        // The private key was created just now; the first failure is reported.
        let _ = fs::remove_file(path);
        return Err(no_force(fault, &beside));
    }
    file::sync_folder(path, MAKE)?;
    Ok(public)
}

fn generate(comment: &str) -> Result<(Zeroizing<String>, PublicKey), Fault> {
    let internal = || Fault::new(Code::Internal, MAKE, "no key could be made");
    let mut seed = Zeroizing::new([0; 32]);
    getrandom::fill(&mut *seed).map_err(|_| internal())?;
    let pair = Ed25519KeyPair::from_seed_unchecked(&*seed).map_err(|_| internal())?;
    let public = pair.public_key().as_ref().try_into();
    let data = KeypairData::from(Ed25519Keypair {
        public: Ed25519PublicKey(public.map_err(|_| internal())?),
        private: Ed25519PrivateKey::from_bytes(&seed),
    });
    let key = PrivateKey::new(data, comment).map_err(|_| internal())?;
    let blob = key.public_key().to_bytes().map_err(|_| internal())?;
    let public = PublicKey::decode(&blob).ok_or_else(internal)?;
    let text = key.to_openssh(LineEnding::LF).map_err(|_| internal())?;
    Ok((text, public))
}

fn beside(path: &Path) -> PathBuf {
    let mut name = OsString::from(path);
    name.push(".pub");
    name.into()
}

fn exists(path: &Path) -> Fault {
    Fault::new(Code::AlreadyExists, MAKE, "a file of this name is there")
        .path(file::bytes_of(path))
        .hint("name another file; a key is never overwritten")
}

fn no_force(fault: Fault, path: &Path) -> Fault {
    match fault.code {
        Code::AlreadyExists => exists(path),
        _ => fault,
    }
}
