//! The token of the service's owner: a file in the state folder, which only its owner can read.

use std::fs::{self, OpenOptions};
use std::io::{self, Write as _};
use std::path::Path;

use xdfs::security::trusted::{self, Secrecy};
use xdfs::{Code, Fault};

use super::secret::{SECRET_BYTES, Secret};

/// The file of the token.
const TOKEN_FILE: &str = "token";
const TOKEN_BYTES_MAX: u64 = 1024;

/// Reads the token of a state folder.
///
/// # Errors
/// There is none, it isn't one, or other users could have written or may read it.
pub(crate) fn read_token(folder: &Path) -> Result<Secret, Fault> {
    const OPERATION: &str = "read the token of the service";
    let path = folder.join(TOKEN_FILE);
    let name = path.as_os_str().as_encoded_bytes();
    let text = trusted::read(OPERATION, &path, TOKEN_BYTES_MAX, Secrecy::Secret)?;
    let text = str::from_utf8(&text).unwrap_or_default().trim_end();
    let is_token = text.len() == 2 * SECRET_BYTES && text.bytes().all(|b| b.is_ascii_hexdigit());
    match is_token {
        true => Ok(Secret::from_text(text)),
        false => Err(Fault::new(Code::InvalidArgument, OPERATION, "it is none")
            .path(name)
            .hint("remove the file and start the service again")),
    }
}

/// Reads the token of a state folder, or makes it.
///
/// # Errors
/// It can't be made, or is there and can't be read.
pub(super) fn token(folder: &Path) -> Result<Secret, Fault> {
    match read_token(folder) {
        Err(fault) if fault.code == Code::NotFound => make_token(folder),
        token => token,
    }
}

/// Makes the token of a state folder.
fn make_token(folder: &Path) -> Result<Secret, Fault> {
    let secret = Secret::new()?;
    let text = format!("{}\n", secret.as_str());
    let path = folder.join(TOKEN_FILE);
    write_secret(&path, text.as_bytes()).map_err(|error| {
        let name = path.as_os_str().as_encoded_bytes();
        Fault::from_io("write the token of the service", name, &error)
    })?;
    Ok(secret)
}

/// Writes a file for this user only. It is there with all of its text, or not.
pub(crate) fn write_secret(path: &Path, text: &[u8]) -> io::Result<()> {
    let unfinished = path.with_extension("new");
    match fs::remove_file(&unfinished) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(error),
        _ => {}
    }
    let mut options = OpenOptions::new();
    options.write(true).create_new(true);
    #[cfg(unix)]
    std::os::unix::fs::OpenOptionsExt::mode(&mut options, 0o600);
    let mut file = options.open(&unfinished)?;
    file.write_all(text)?;
    file.sync_all()?;
    fs::rename(&unfinished, path)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_token_is_made_once_and_for_its_owner_only() {
        let folder = tempfile::tempdir().unwrap_or_else(|error| panic!("{error}"));
        let text = || token(folder.path()).map(|token| token.as_str().to_owned());
        let first = text();
        assert_eq!(first, text());
        assert_eq!(first.map(|token| token.len()), Ok(64));
        #[cfg(unix)]
        {
            use std::os::unix::fs::PermissionsExt as _;
            let mode = fs::metadata(folder.path().join(TOKEN_FILE)).map(|m| m.permissions().mode());
            assert_eq!(mode.ok().map(|mode| mode & 0o777), Some(0o600));
        }
        let _ = fs::write(folder.path().join(TOKEN_FILE), "short");
        assert!(text().is_err());
    }

    #[cfg(unix)]
    #[test]
    fn a_token_that_others_know_is_refused() {
        use std::os::unix::fs::PermissionsExt as _;
        let folder = tempfile::tempdir().unwrap_or_else(|error| panic!("{error}"));
        assert!(make_token(folder.path()).is_ok());
        assert!(read_token(folder.path()).is_ok());
        for mode in [0o640, 0o604, 0o620] {
            let path = folder.path().join(TOKEN_FILE);
            assert!(fs::set_permissions(path, fs::Permissions::from_mode(mode)).is_ok());
            let code = read_token(folder.path()).err().map(|fault| fault.code);
            assert_eq!(code, Some(Code::PermissionDenied), "{mode:o}");
        }
    }
}
