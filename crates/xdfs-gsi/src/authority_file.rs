//! Files of a directory of authorities.

use std::path::Path;

use xdfs_proto::{Code, Fault};
use xdfs_security::trusted::{self, Secrecy};
use zeroize::Zeroizing;

const READ: &str = "read a file of an authority";

/// A file of the directory that fails whoever needs it.
pub(crate) fn unusable(path: &Path, cause: &str) -> Fault {
    let fault = Fault::new(Code::AuthenticationFailed, READ, cause);
    fault
        .path(path.as_os_str().as_encoded_bytes())
        .hint("get the files of the authorities anew, such as with fetch-crl")
}

/// The bytes of a file; `None` if it isn't there.
pub(crate) fn read(path: &Path, most: u64) -> Result<Option<Zeroizing<Vec<u8>>>, Fault> {
    match trusted::read(READ, path, most, Secrecy::Public) {
        Ok(bytes) => Ok(Some(bytes)),
        Err(fault) if fault.code == Code::NotFound => Ok(None),
        Err(fault) if fault.code == Code::PermissionDenied => Err(Fault {
            code: Code::AuthenticationFailed,
            ..fault
        }),
        Err(fault) => Err(unusable(path, &fault.cause)),
    }
}
