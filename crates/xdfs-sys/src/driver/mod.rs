//! Drivers in shared libraries: the C interface of `include/xdfs_xio_driver.h` behind safe calls.
//!
//! [`SharedDriver::load`] maps a library and checks its table; a [`Channel`] is one end of one of
//! its channels. Every length, code and text that a driver returns is checked here. What it does
//! with memory can't be: a library is trusted as the program itself is.

mod table;
#[cfg(all(test, unix))]
mod tests;

use std::ffi::{CStr, CString, c_void};
use std::fmt;
use std::io::{self, ErrorKind};
use std::path::{Path, PathBuf};
use std::sync::{Mutex, PoisonError};

use table::{Setting, Table, Text};

/// Most bytes that a library may decode before it says that the channel is open.
const OPENING_BYTES_MAX: usize = 1 << 20;

/// Bits of properties: [`SharedDriver::gives`], [`SharedDriver::needs`].
pub mod property {
    /// Bytes arrive once and in order.
    pub const ORDER: u32 = 1;
    /// No byte is changed in transit unnoticed.
    pub const INTEGRITY: u32 = 2;
    /// Nobody else can read the bytes.
    pub const PROTECTION: u32 = 4;
}

/// A driver in a shared library, which stays loaded up to the end of the process.
#[derive(Debug)]
pub struct SharedDriver {
    table: Table,
    name: String,
    attributes: Vec<SharedAttribute>,
    controls: Vec<String>,
}

/// The description of an attribute.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SharedAttribute {
    /// Its name.
    pub name: String,
    /// The accepted values, for messages.
    pub takes: String,
}

/// The bytes that a call has moved.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[repr(C)]
pub struct Moved {
    /// Bytes used of the input.
    pub used: usize,
    /// Bytes written to the output.
    pub filled: usize,
}

/// The libraries that were loaded, by path. They stay loaded, so that the list is as long as there
/// are files that were named.
static LOADED: Mutex<Vec<(PathBuf, &'static SharedDriver)>> = Mutex::new(Vec::new());

impl SharedDriver {
    /// Loads the library at `path`, which is absolute, and checks its table. A file that was loaded
    /// before is not loaded again, even if it has changed.
    ///
    /// This runs code of the library. Whoever calls it has to trust the file and all who may change
    /// it.
    ///
    /// # Errors
    /// [`ErrorKind::InvalidData`] if it is no library, or not one with a driver in the version and
    /// form of this interface.
    pub fn load(path: &Path) -> io::Result<&'static Self> {
        let mut loaded = LOADED.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some((_, known)) = loaded.iter().find(|(known, _)| known == path) {
            return Ok(known);
        }
        let table = Table::load(path)?;
        let driver = &*Box::leak(Box::new(Self {
            name: table.name()?,
            attributes: table.attributes()?,
            controls: table.controls()?,
            table,
        }));
        loaded.push((path.to_owned(), driver));
        Ok(driver)
    }

    /// Its name: a lower case letter, then lower case letters, digits and `_`.
    #[must_use]
    pub fn name(&self) -> &str {
        &self.name
    }

    /// Its attributes.
    #[must_use]
    pub fn attributes(&self) -> &[SharedAttribute] {
        &self.attributes
    }

    /// The names of its controls.
    #[must_use]
    pub fn controls(&self) -> &[String] {
        &self.controls
    }

    /// The properties that it gives, of [`property`].
    #[must_use]
    pub fn gives(&self) -> u32 {
        self.table.gives
    }

    /// The properties that it needs, of [`property`].
    #[must_use]
    pub fn needs(&self) -> u32 {
        self.table.needs
    }

    /// Whether it accepts this value of one of its attributes.
    #[must_use]
    pub fn accepts(&self, attribute: &CStr, value: &CStr) -> bool {
        let Some(check) = self.table.check else {
            return false;
        };
        // SAFETY: both are texts with a NUL at their end, and live longer than the call.
        let code = unsafe { check(attribute.as_ptr(), value.as_ptr()) };
        code == 0
    }

    /// Creates one end of a channel, that of the acceptor or of the initiator, with the attributes
    /// `settings`.
    ///
    /// # Errors
    /// The driver's reason.
    pub fn open(
        &'static self,
        settings: &[(CString, CString)],
        is_acceptor: bool,
    ) -> io::Result<Channel> {
        let settings: Vec<Setting> = settings
            .iter()
            .map(|(name, value)| Setting {
                name: name.as_ptr(),
                value: value.as_ptr(),
            })
            .collect();
        let mut state = std::ptr::null_mut();
        let mut message = Text::default();
        // SAFETY: the settings are as many as is said, and like the other arguments they live
        // longer than the call; the message has the size that the interface promises.
        let code = unsafe {
            (self.table.open)(
                settings.as_ptr(),
                settings.len(),
                i32::from(is_acceptor),
                &raw mut state,
                message.as_mut_ptr(),
            )
        };
        self.check_code("open a channel", code, &message)?;
        let mut channel = Channel {
            driver: self,
            state,
            is_open: false,
            is_ended: false,
            has_failed: false,
            opening_bytes: 0,
        };
        channel.look();
        Ok(channel)
    }

    /// The result of a call: `Ok` for 0, and else an error with the driver's message.
    fn check_code(&self, operation: &str, code: i32, message: &Text) -> io::Result<()> {
        let kind = match code {
            0 => return Ok(()),
            2 => ErrorKind::InvalidData,
            3 => ErrorKind::UnexpectedEof,
            4 => ErrorKind::Unsupported,
            5 => ErrorKind::OutOfMemory,
            _ => ErrorKind::Other,
        };
        let why = match message.read() {
            why if why.is_empty() => format!("its code is {code}"),
            why => why,
        };
        Err(self.error(kind, &format!("failed to {operation}: {why}")))
    }

    fn error(&self, kind: ErrorKind, what: &str) -> io::Error {
        io::Error::new(kind, format!("the driver '{}' {what}", self.name))
    }
}

/// One end of a channel of a driver in a shared library.
pub struct Channel {
    driver: &'static SharedDriver,
    state: *mut c_void,
    is_open: bool,
    is_ended: bool,
    has_failed: bool,
    /// Bytes decoded before it was open.
    opening_bytes: usize,
}

// SAFETY: the interface allows calls for a channel from any thread as long as they don't overlap.
// They can't, since a `Channel` isn't `Sync`.
unsafe impl Send for Channel {}

impl Channel {
    /// Its driver.
    #[must_use]
    pub fn driver(&self) -> &'static SharedDriver {
        self.driver
    }

    /// Whether content can pass. It stays so.
    #[must_use]
    pub fn is_open(&self) -> bool {
        self.is_open
    }

    /// Whether the peer's end of content was decoded. It stays so.
    #[must_use]
    pub fn is_ended(&self) -> bool {
        self.is_ended
    }

    /// Encodes from the front of `content` into `out`.
    ///
    /// # Errors
    /// The driver's reason, or lengths that can't be right. The channel has failed then, and so do
    /// all further calls.
    pub fn encode(&mut self, content: &[u8], out: &mut [u8]) -> io::Result<Moved> {
        let mut moved = Moved::default();
        let mut message = Text::default();
        self.check_usable()?;
        // SAFETY: the buffers have the lengths that are said, don't overlap, and live longer than
        // the call; the message has the size that the interface promises.
        let code = unsafe {
            (self.driver.table.encode)(
                self.state,
                content.as_ptr(),
                content.len(),
                out.as_mut_ptr(),
                out.len(),
                &raw mut moved,
                message.as_mut_ptr(),
            )
        };
        self.check_moved("encode", code, &message, moved, content.len(), out.len())
    }

    /// Decodes from the front of `encoded` into `content`.
    ///
    /// # Errors
    /// As [`Channel::encode`].
    pub fn decode(&mut self, encoded: &[u8], content: &mut [u8]) -> io::Result<Moved> {
        let mut moved = Moved::default();
        let mut message = Text::default();
        self.check_usable()?;
        let (length, room) = (encoded.len(), content.len());
        // SAFETY: as in `encode`.
        let code = unsafe {
            (self.driver.table.decode)(
                self.state,
                encoded.as_ptr(),
                length,
                content.as_mut_ptr(),
                room,
                &raw mut moved,
                message.as_mut_ptr(),
            )
        };
        let was_open = self.is_open;
        let moved = self.check_moved("decode", code, &message, moved, length, room)?;
        if !was_open {
            self.opening_bytes += moved.used;
            if self.opening_bytes > OPENING_BYTES_MAX {
                return Err(self.failed("doesn't come to the end of its opening exchange"));
            }
        }
        Ok(moved)
    }

    /// The encoded bytes have ended, with `held` of them unused. Without a function for it, that is
    /// in order if there are none.
    ///
    /// # Errors
    /// The end is premature.
    pub fn end(&mut self, held: usize) -> io::Result<()> {
        self.check_usable()?;
        let Some(end) = self.driver.table.end else {
            return match held {
                0 => Ok(()),
                _ => Err(ErrorKind::UnexpectedEof.into()),
            };
        };
        let mut message = Text::default();
        // SAFETY: the message has the size that the interface promises, and lives longer.
        let code = unsafe { end(self.state, held, message.as_mut_ptr()) };
        let result = self.driver.check_code("end a channel", code, &message);
        self.has_failed |= result.is_err();
        result
    }

    /// Writes the end of content to `out`, and returns the number of bytes.
    ///
    /// # Errors
    /// As [`Channel::encode`].
    pub fn close(&mut self, out: &mut [u8]) -> io::Result<usize> {
        self.check_usable()?;
        let Some(close) = self.driver.table.close else {
            return Ok(0);
        };
        let mut moved = Moved::default();
        let mut message = Text::default();
        // SAFETY: as in `encode`.
        let code = unsafe {
            close(
                self.state,
                out.as_mut_ptr(),
                out.len(),
                &raw mut moved.filled,
                message.as_mut_ptr(),
            )
        };
        let moved = self.check_moved("close a channel", code, &message, moved, 0, out.len())?;
        Ok(moved.filled)
    }

    /// The present value of a control, by its index; `None` if there is none.
    #[must_use]
    pub fn control(&self, index: usize) -> Option<String> {
        let control = self.driver.table.control?;
        if self.has_failed || index >= self.driver.controls.len() {
            return None;
        }
        let mut value = Text::default();
        // SAFETY: the value has the size that the interface promises, and lives longer.
        let code = unsafe { control(self.state, index, value.as_mut_ptr()) };
        (code == 0).then(|| value.read())
    }

    fn check_usable(&self) -> io::Result<()> {
        match self.has_failed {
            true => Err(self.driver.error(ErrorKind::Other, "has failed before")),
            false => Ok(()),
        }
    }

    /// Checks the result of a call with buffers of these lengths.
    fn check_moved(
        &mut self,
        operation: &str,
        code: i32,
        message: &Text,
        moved: Moved,
        length: usize,
        room: usize,
    ) -> io::Result<Moved> {
        if let Err(error) = self.driver.check_code(operation, code, message) {
            self.has_failed = true;
            return Err(error);
        }
        let Moved { used, filled } = moved;
        if used > length {
            let what = format!("claims to have used {used} of {length} bytes in {operation}");
            return Err(self.failed(&what));
        }
        if filled > room {
            let what = format!("claims to have filled {filled} of {room} bytes in {operation}");
            return Err(self.failed(&what));
        }
        self.look();
        Ok(moved)
    }

    /// The error of a driver that doesn't keep to the interface.
    fn failed(&mut self, what: &str) -> io::Error {
        self.has_failed = true;
        self.driver.error(ErrorKind::InvalidData, what)
    }

    /// Marks the channel as failed: a driver that breaks its promises in a way that only the caller
    /// can see. Returns the error.
    pub fn give_up(&mut self, what: &str) -> io::Error {
        self.failed(what)
    }

    /// Asks for the state, as far as it can still change.
    fn look(&mut self) {
        let state = self.state;
        // SAFETY: the state is that of an open channel of this driver.
        let ask = |is: Option<table::Is>| is.map(|is| unsafe { is(state) } != 0);
        if !self.is_open {
            self.is_open = ask(self.driver.table.is_open).unwrap_or(true);
        }
        if !self.is_ended {
            self.is_ended = ask(self.driver.table.is_ended).unwrap_or(false);
        }
    }
}

impl Drop for Channel {
    fn drop(&mut self) {
        // SAFETY: the state comes from `open`, and nothing uses it afterwards.
        unsafe { (self.driver.table.release)(self.state) }
    }
}

impl fmt::Debug for Channel {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Channel")
            .field("driver", &self.driver.name)
            .field("is_open", &self.is_open)
            .finish_non_exhaustive()
    }
}
