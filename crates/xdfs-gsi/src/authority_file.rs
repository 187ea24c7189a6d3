//! Files of a directory of authorities.

use std::fs::File;
use std::io::{ErrorKind, Read as _};
use std::path::Path;

use xdfs_proto::{Code, Fault};

/// A file of the directory that fails whoever needs it.
pub(crate) fn unusable(path: &Path, cause: &str) -> Fault {
    let fault = Fault::new(
        Code::AuthenticationFailed,
        "read a file of an authority",
        cause,
    );
    fault
        .path(path.as_os_str().as_encoded_bytes())
        .hint("get the files of the authorities anew, such as with fetch-crl")
}

/// The bytes of a file; `None` if it isn't there.
pub(crate) fn read(path: &Path, most: u64) -> Result<Option<Vec<u8>>, Fault> {
    let file = match File::open(path) {
        Err(error) if error.kind() == ErrorKind::NotFound => return Ok(None),
        Err(error) => return Err(unusable(path, &error.to_string())),
        Ok(file) => file,
    };
    let mut bytes = Vec::new();
    let read = file.take(most + 1).read_to_end(&mut bytes);
    read.map_err(|error| unusable(path, &error.to_string()))?;
    match bytes.len() as u64 > most {
        true => Err(unusable(path, "it is too long")),
        false => Ok(Some(bytes)),
    }
}
