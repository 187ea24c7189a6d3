//! Proxies of the Grid Security Infrastructure: made, looked at and removed.

use std::fs::{self, OpenOptions};
use std::io::Write as _;
use std::path::{Path, PathBuf};

pub use xdfs_gsi::issue::ProxyOptions;
pub use xdfs_gsi::proxy::Form;
pub use xdfs_gsi::{Credential, Description, Trust, remove_proxy};
use xdfs_proto::{Code, Fault};

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
