//! The registered schemes.

use std::sync::{PoisonError, RwLock};

use xdfs_proto::{Code, Fault};

use crate::ftp::FtpKind;
use crate::here::HERE;
use crate::scheme::{RegisteredScheme, Scheme};
use crate::ssh_session::SshScheme;

/// The schemes of this library.
static BUILT_IN: [&dyn Scheme; 5] = [
    &SshScheme,
    &FtpKind::Clear,
    &FtpKind::Tls,
    &FtpKind::Gsi,
    &FtpKind::Ssh,
];

/// The schemes of programs.
static ADDED: RwLock<Vec<RegisteredScheme>> = RwLock::new(Vec::new());

/// Registers a scheme for this process: from now on its URLs are places on servers. It can't be
/// taken back.
///
/// # Errors
/// The name is taken, or isn't one: lower-case ASCII letters and digits.
pub fn register_scheme(scheme: &'static dyn Scheme) -> Result<(), Fault> {
    let name = scheme.name();
    let refused = |cause: String| Fault::new(Code::InvalidArgument, "register the scheme", cause);
    let is_valid = |c: char| c.is_ascii_lowercase() || c.is_ascii_digit();
    if !name.starts_with(|c: char| c.is_ascii_lowercase()) || !name.chars().all(is_valid) {
        let name = name.escape_default();
        return Err(refused(format!("'{name}' is not the name of a scheme")));
    }
    let mut added = ADDED.write().unwrap_or_else(PoisonError::into_inner);
    let mut all = built_in().chain(added.iter().copied());
    let is_taken = name == "xdfs" || name == HERE.name() || all.any(|own| own.name() == name);
    drop(all);
    if is_taken {
        return Err(refused(format!("there are places of {name}:// already")));
    }
    added.push(RegisteredScheme::new(scheme));
    Ok(())
}

fn built_in() -> impl Iterator<Item = RegisteredScheme> {
    BUILT_IN.into_iter().map(RegisteredScheme::new)
}

/// Whether a scheme of this name is registered.
pub(crate) fn is_registered(name: &str) -> bool {
    let added = ADDED.read().unwrap_or_else(PoisonError::into_inner);
    let mut all = built_in().chain(added.iter().copied());
    all.any(|scheme| scheme.name() == name)
}

/// The registered scheme of a URL, and the rest of the URL.
pub(crate) fn scheme_of(text: &str) -> Option<(RegisteredScheme, &str)> {
    let (name, rest) = text.split_once("://")?;
    let added = ADDED.read().unwrap_or_else(PoisonError::into_inner);
    let mut all = built_in().chain(added.iter().copied());
    let found = all.find(|scheme| scheme.name() == name)?;
    Some((found, rest))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_checked_and_not_given_twice() {
        for scheme in built_in() {
            let fault = register_scheme(scheme.inner()).unwrap_err();
            assert!(fault.cause.contains("already"), "{fault}");
        }
        let fault = register_scheme(&HERE).unwrap_err();
        assert!(fault.cause.contains("already"), "{fault}");
        let found = |text| scheme_of(text).map(|(scheme, rest)| (scheme.name(), rest));
        assert_eq!(found("ftps://h/a://b"), Some(("ftps", "h/a://b")));
        assert_eq!(found("FTP://h/a"), None);
        assert_eq!(found("xdfs://h/a"), None);
        assert_eq!(found("/ftp://h"), None);
    }
}
