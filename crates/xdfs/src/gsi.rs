//! Proxies of the Grid Security Infrastructure: made, looked at and removed.

use std::fs::{self, OpenOptions};
use std::io::Write as _;
use std::path::{Path, PathBuf};

pub use xdfs_gsi::issue::ProxyOptions;
pub use xdfs_gsi::proxy::Form;
pub use xdfs_gsi::{Credential, Description, Trust, remove_proxy};
use xdfs_proto::{Code, Fault};

use crate::settings::user::user_name;

/// The directory of authorities, as the tools of Globus find it: X509_CERT_DIR,
/// `~/.globus/certificates` if it is there, or `/etc/grid-security/certificates`.
#[must_use]
pub fn authorities() -> PathBuf {
    let set = |name| std::env::var_os(name).filter(|value| !value.is_empty());
    if let Some(folder) = set("X509_CERT_DIR") {
        return folder.into();
    }
    let own = set("HOME").map(|home| Path::new(&home).join(".globus/certificates"));
    own.filter(|own| own.is_dir())
        .unwrap_or_else(|| "/etc/grid-security/certificates".into())
}

/// The files of this user's certificate and its key, as the tools of Globus find them: a proxy, or
/// else the user's own.
#[must_use]
pub fn user_files() -> (PathBuf, PathBuf) {
    let set = |name| std::env::var_os(name).filter(|value| !value.is_empty());
    if let Some(proxy) = set("X509_USER_PROXY").map(PathBuf::from) {
        return (proxy.clone(), proxy);
    }
    if let (Some(certificate), Some(key)) = (set("X509_USER_CERT"), set("X509_USER_KEY")) {
        return (certificate.into(), key.into());
    }
    let proxy = proxy_path();
    let (certificate, key) = (user_file("usercert.pem"), user_file("userkey.pem"));
    match !proxy.exists() && certificate.exists() && key.exists() {
        true => (certificate, key),
        false => (proxy.clone(), proxy),
    }
}

/// Where the proxy of this user is unless something else is said.
#[must_use]
pub fn proxy_path() -> PathBuf {
    match xdfs_sys::ids::real_user() {
        // The tools of Globus don't ask TMPDIR.
        Some(user) => Path::new("/tmp").join(format!("x509up_u{user}")),
        None => std::env::temp_dir().join(format!("x509up_u{}", user_name())),
    }
}

/// A file of this user's own, in `~/.globus`.
#[must_use]
pub fn user_file(name: &str) -> PathBuf {
    let home = std::env::var_os("HOME").unwrap_or_default();
    PathBuf::from(home).join(".globus").join(name)
}

/// Makes a proxy of `issuer` and writes it to `path`, which only this user can read. What was there
/// is replaced, also a symbolic link.
///
/// # Errors
/// It can't be made or written.
pub fn write_proxy(
    issuer: &Credential,
    options: &ProxyOptions,
    path: &Path,
) -> Result<Description, Fault> {
    let proxy = xdfs_gsi::issue::make_proxy(issuer, options)?;
    let fault = |error: std::io::Error| {
        Fault::from_io(
            "write the proxy",
            path.as_os_str().as_encoded_bytes(),
            &error,
        )
    };
    let mut random = [0; 8];
    getrandom::fill(&mut random).map_err(|_| {
        let cause = "the system has no randomness";
        Fault::new(Code::Internal, "write the proxy", cause)
    })?;
    let mut name = path.as_os_str().to_owned();
    name.push(format!(".{:016x}", u64::from_be_bytes(random)));
    // Others can write to the usual place, so the name must be a new one.
    let mut new = OpenOptions::new();
    new.write(true).create_new(true);
    #[cfg(unix)]
    std::os::unix::fs::OpenOptionsExt::mode(&mut new, 0o600);
    let mut file = new.open(&name).map_err(fault)?;
    let written = (|| {
        file.write_all(&proxy.to_pem()?).map_err(fault)?;
        fs::rename(&name, path).map_err(fault)
    })();
    if written.is_err() {
        // What is left has a key in it, and the first failure counts.
        let _ = fs::remove_file(&name);
    }
    written?;
    proxy.describe()
}

/// Reads the proxy of a file.
///
/// # Errors
/// It can't be read, others than its owner can read it, or it is none.
pub fn read_proxy(path: &Path) -> Result<Description, Fault> {
    let found = Credential::open(path, path)?.describe()?;
    if found.form.is_none() {
        let cause = "it is a certificate of a user or host, and no proxy";
        let fault = Fault::new(Code::InvalidArgument, "read the proxy", cause);
        return Err(fault.path(path.as_os_str().as_encoded_bytes()));
    }
    Ok(found)
}
