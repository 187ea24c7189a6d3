//! The file of [`Users`]: access checks and updates.
//!
//! An update takes a lock on a file beside it (`NAME.lock`), writes a hidden file durably and
//! renames it, so that readers see either the old file or the new one.

use std::ffi::OsString;
use std::fs::{self, File, OpenOptions, TryLockError};
use std::path::{Path, PathBuf};
use std::thread;
use std::time::{Duration, Instant};

use xdfs_proto::fault::{Code, Fault, Retry};
use zeroize::Zeroizing;

use super::derive::Parameters;
use super::users::{Entry, Users, is_name};
use crate::key::file as guarded;
use crate::trusted::{self, Secrecy};

/// Maximum size of the file: some 30 000 users.
const FILE_BYTES_MAX: u64 = 4 * 1024 * 1024;
/// Maximum wait for another update.
const PATIENCE: Duration = Duration::from_secs(10);
const BETWEEN_TRIES: Duration = Duration::from_millis(10);

const LOAD: &str = "load the users";
const CHANGE: &str = "change the users";

/// The file of users with passwords.
#[derive(Clone, Debug)]
pub struct UsersFile {
    path: PathBuf,
    parameters: Parameters,
}

impl UsersFile {
    /// The file at `path`, which need not exist, with default [`Parameters`].
    #[must_use]
    pub fn new(path: impl Into<PathBuf>) -> Self {
        Self {
            path: path.into(),
            parameters: Parameters::default(),
        }
    }

    /// Uses other [`Parameters`] for passwords set from now on, and for challenges of nonexistent
    /// users. Users whose passwords were set with others can be distinguished from nonexistent ones
    /// until their passwords are set again.
    #[must_use]
    pub fn with_parameters(mut self, parameters: Parameters) -> Self {
        self.parameters = parameters;
        self
    }

    /// The path of the file.
    #[must_use]
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Loads the file, of at most 4 MiB.
    ///
    /// # Errors
    /// Those of [`trusted::read`], for a secret; `InvalidArgument` with the line number if it is
    /// malformed or has a duplicate user.
    pub fn load(&self) -> Result<Users, Fault> {
        self.load_for(LOAD)
    }

    /// The names of the users, in order.
    ///
    /// # Errors
    /// Those of [`UsersFile::load`].
    pub fn list(&self) -> Result<Vec<String>, Fault> {
        Ok(self.load()?.names().map(str::to_owned).collect())
    }

    /// Creates the file, without users, if it doesn't exist.
    ///
    /// # Errors
    /// Those of [`UsersFile::load`]; `Busy` if another process updates the file for more than 10 s.
    pub fn init(&self) -> Result<(), Fault> {
        self.change(|_| Ok(()))
    }

    /// Adds a user, creating the file if necessary.
    ///
    /// # Errors
    /// `AlreadyExists` if the user exists; `InvalidArgument` if the name isn't 1 to 64 characters
    /// of `a`-`z`, `0`-`9` and `._-@` that don't start with `-` or `.`, or the password is empty or
    /// longer than 1024 bytes; those of [`UsersFile::init`].
    pub fn add(&self, name: &str, password: &str) -> Result<(), Fault> {
        check_name(name)?;
        let entry = Entry::new(password, self.parameters, CHANGE)?;
        self.change(|users| {
            if users.put(name, entry) {
                let cause = format!("there is a user '{name}'");
                return Err(Fault::new(Code::AlreadyExists, CHANGE, cause)
                    .hint("set the password of the user instead"));
            }
            Ok(())
        })
    }

    /// Changes the password of a user.
    ///
    /// # Errors
    /// `NotFound` if there is no such user; those of [`UsersFile::add`].
    pub fn set_password(&self, name: &str, password: &str) -> Result<(), Fault> {
        check_name(name)?;
        let entry = Entry::new(password, self.parameters, CHANGE)?;
        self.change(|users| {
            if users.put(name, entry) {
                Ok(())
            } else {
                Err(no_user(name))
            }
        })
    }

    /// Removes a user.
    ///
    /// # Errors
    /// `NotFound` if there is no such user; those of [`UsersFile::init`].
    pub fn remove(&self, name: &str) -> Result<(), Fault> {
        check_name(name)?;
        self.change(|users| {
            if users.remove(name) {
                Ok(())
            } else {
                Err(no_user(name))
            }
        })
    }

    fn load_for(&self, operation: &str) -> Result<Users, Fault> {
        let bytes = trusted::read(operation, &self.path, FILE_BYTES_MAX, Secrecy::Secret)?;
        let named = |f: Fault| f.path(guarded::bytes_of(&self.path));
        let text = str::from_utf8(&bytes)
            .map_err(|_| Fault::new(Code::InvalidArgument, operation, "it isn't text"))
            .map_err(named)?;
        Users::parse(text, self.parameters, operation).map_err(named)
    }

    /// Loads, changes and writes the file under a lock. If the change fails, nothing is written.
    fn change(&self, change: impl FnOnce(&mut Users) -> Result<(), Fault>) -> Result<(), Fault> {
        let _lock = lock(&self.sibling("", ".lock"))?;
        let mut users = match self.load_for(CHANGE) {
            Err(fault) if fault.code == Code::NotFound => Users::empty(self.parameters, CHANGE)?,
            loaded => loaded?,
        };
        change(&mut users).map_err(|f| f.path(guarded::bytes_of(&self.path)))?;
        self.publish(&users.to_text())
    }

    fn publish(&self, text: &Zeroizing<String>) -> Result<(), Fault> {
        if text.len() as u64 > FILE_BYTES_MAX {
            return Err(Fault::new(
                Code::LimitExceeded,
                CHANGE,
                "there would be too many users for one file",
            )
            .path(guarded::bytes_of(&self.path)));
        }
        // A fixed name suffices under the lock; an existing file is a leftover of a crash.
        let hidden = self.sibling(".", ".new");
        let _ = fs::remove_file(&hidden);
        guarded::create(&hidden, CHANGE, text.as_bytes(), 0o600)?;
        fs::rename(&hidden, &self.path).map_err(|e| {
            let _ = fs::remove_file(&hidden);
            Fault::from_io(CHANGE, guarded::bytes_of(&self.path), &e)
        })?;
        guarded::sync_folder(&self.path, CHANGE)
    }

    fn sibling(&self, before: &str, after: &str) -> PathBuf {
        let mut name = OsString::from(before);
        name.push(self.path.file_name().unwrap_or_default());
        name.push(after);
        self.path.with_file_name(name)
    }
}

/// The lock is held until the file is dropped.
fn lock(path: &Path) -> Result<File, Fault> {
    let io = |e: &std::io::Error| Fault::from_io(CHANGE, guarded::bytes_of(path), e);
    let mut options = OpenOptions::new();
    options.read(true).write(true).create(true).truncate(false);
    guarded::set_mode(&mut options, 0o600);
    let file = options.open(path).map_err(|e| io(&e))?;
    let deadline = Instant::now() + PATIENCE;
    loop {
        match file.try_lock() {
            Ok(()) => return Ok(file),
            Err(TryLockError::Error(e)) => return Err(io(&e)),
            Err(TryLockError::WouldBlock) if Instant::now() < deadline => {
                thread::sleep(BETWEEN_TRIES);
            }
            Err(TryLockError::WouldBlock) => {
                return Err(
                    Fault::new(Code::Busy, CHANGE, "somebody else is changing the users")
                        .path(guarded::bytes_of(path))
                        .retry(Retry::AfterMs(1000)),
                );
            }
        }
    }
}

fn check_name(name: &str) -> Result<(), Fault> {
    if is_name(name) {
        return Ok(());
    }
    Err(Fault::new(
        Code::InvalidArgument,
        CHANGE,
        "this can't be the name of a user",
    )
    .hint("take 1 to 64 of a-z, 0-9, '.', '_', '-' and '@'; not '-' or '.' first"))
}

fn no_user(name: &str) -> Fault {
    Fault::new(Code::NotFound, CHANGE, format!("there is no user '{name}'"))
}
