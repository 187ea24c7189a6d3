//! The table of a library, as C declares it, and the checks of all that can be checked.

use std::ffi::{c_char, c_void};
use std::io::{self, ErrorKind};
use std::path::Path;

use libloading::Library;

use super::{Moved, SharedAttribute, property};

/// The version of the interface.
const VERSION: u32 = 1;
/// The only role: a transform.
const TRANSFORM: u32 = 1;
/// Bytes of a text from a driver, with the NUL at its end.
const TEXT_BYTES: usize = 256;
/// Bytes of a driver's name.
const NAME_BYTES_MAX: usize = 32;
/// Attributes, and controls.
const ENTRIES_MAX: usize = 64;
/// The function that every library exports.
const SYMBOL: &[u8] = b"xdfs_xio_driver\0";

// Functions that unwind end the process, in a defined way, since nobody catches that.
type GetTable = unsafe extern "C-unwind" fn() -> *const RawTable;
type Check = unsafe extern "C-unwind" fn(*const c_char, *const c_char) -> i32;
type Open =
    unsafe extern "C-unwind" fn(*const Setting, usize, i32, *mut *mut c_void, *mut c_char) -> i32;
type Release = unsafe extern "C-unwind" fn(*mut c_void);
pub(super) type Is = unsafe extern "C-unwind" fn(*mut c_void) -> i32;
type Code = unsafe extern "C-unwind" fn(
    *mut c_void,
    *const u8,
    usize,
    *mut u8,
    usize,
    *mut Moved,
    *mut c_char,
) -> i32;
type End = unsafe extern "C-unwind" fn(*mut c_void, usize, *mut c_char) -> i32;
type Close =
    unsafe extern "C-unwind" fn(*mut c_void, *mut u8, usize, *mut usize, *mut c_char) -> i32;
type Control = unsafe extern "C-unwind" fn(*mut c_void, usize, *mut c_char) -> i32;

/// `struct xdfs_xio_setting`.
#[repr(C)]
pub(super) struct Setting {
    pub(super) name: *const c_char,
    pub(super) value: *const c_char,
}

/// `struct xdfs_xio_attribute`.
#[repr(C)]
#[derive(Clone, Copy)]
struct RawAttribute {
    name: *const c_char,
    takes: *const c_char,
}

/// The part of the table that every version has.
#[repr(C)]
#[derive(Clone, Copy)]
struct Head {
    version: u32,
    size: u32,
}

/// `struct xdfs_xio_driver`. A function that may be null is an `Option`.
#[repr(C)]
#[derive(Clone, Copy)]
struct RawTable {
    head: Head,
    role: u32,
    gives: u32,
    needs: u32,
    reserved: u32,
    name: *const c_char,
    attributes: *const RawAttribute,
    attribute_count: usize,
    controls: *const *const c_char,
    control_count: usize,
    check: Option<Check>,
    open: Option<Open>,
    release: Option<Release>,
    is_open: Option<Is>,
    encode: Option<Code>,
    decode: Option<Code>,
    is_ended: Option<Is>,
    end: Option<End>,
    close: Option<Close>,
    control: Option<Control>,
}

/// The table of a driver, with everything that the interface requires.
#[derive(Debug)]
pub(super) struct Table {
    pub(super) gives: u32,
    pub(super) needs: u32,
    pub(super) check: Option<Check>,
    pub(super) open: Open,
    pub(super) release: Release,
    pub(super) is_open: Option<Is>,
    pub(super) encode: Code,
    pub(super) decode: Code,
    pub(super) is_ended: Option<Is>,
    pub(super) end: Option<End>,
    pub(super) close: Option<Close>,
    pub(super) control: Option<Control>,
    raw: RawTable,
}

// SAFETY: the pointers in the table are those of constants and functions of a library that is never
// unloaded; the interface allows calls from any thread.
unsafe impl Send for RawTable {}
// SAFETY: as above.
unsafe impl Sync for RawTable {}

impl std::fmt::Debug for RawTable {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("RawTable").finish_non_exhaustive()
    }
}

impl Table {
    /// Loads the library at `path` for good, and checks its table.
    pub(super) fn load(path: &Path) -> io::Result<Self> {
        let library = open(path).map_err(|e| {
            let reason = reason(&e);
            wrong(format!("it is no library that can be loaded: {reason}"))
        })?;
        // Its functions are used as long as the process runs; those that it calls at its end too.
        let library = std::mem::ManuallyDrop::new(library);
        // SAFETY: a library with a symbol of this name declares it as the header does.
        let get = unsafe { library.get::<GetTable>(SYMBOL) };
        let get = get.map_err(|_| wrong("it exports no function xdfs_xio_driver"))?;
        // SAFETY: as above.
        let table = unsafe { get() };
        Self::read(table)
    }

    /// Reads and checks a table.
    fn read(table: *const RawTable) -> io::Result<Self> {
        if table.is_null() || !table.is_aligned() {
            return Err(wrong("its function xdfs_xio_driver returns no table"));
        }
        // SAFETY: every version of the table begins with these fields; the pointer isn't null, is
        // aligned, and by the interface it is that of a table that stays.
        let head = unsafe { *table.cast::<Head>() };
        if head.version != VERSION {
            let version = head.version;
            return Err(wrong(format!(
                "it has version {version} of the interface of drivers, not {VERSION}"
            )));
        }
        let size = head.size as usize;
        if size < size_of::<RawTable>() {
            let wanted = size_of::<RawTable>();
            return Err(wrong(format!("its table has {size} bytes, not {wanted}")));
        }
        // SAFETY: as above, and the table says that it is long enough.
        let raw = unsafe { *table };
        if raw.role != TRANSFORM {
            return Err(wrong("its role is not that of a transform"));
        }
        let all = property::ORDER | property::INTEGRITY | property::PROTECTION;
        if raw.gives & !all != 0 || raw.needs & !all != 0 || raw.reserved != 0 {
            return Err(wrong("its table has bits that this version doesn't know"));
        }
        if raw.gives & property::PROTECTION != 0 {
            let cause = "it claims to give protection, which a driver in a library can't";
            return Err(wrong(cause));
        }
        let needed = |name: &str| wrong(format!("its table has no function '{name}'"));
        if raw.attribute_count > 0 && raw.check.is_none() {
            return Err(needed("check"));
        }
        if raw.control_count > 0 && raw.control.is_none() {
            return Err(needed("control"));
        }
        Ok(Self {
            gives: raw.gives,
            needs: raw.needs,
            check: raw.check,
            open: raw.open.ok_or_else(|| needed("open"))?,
            release: raw.release.ok_or_else(|| needed("release"))?,
            is_open: raw.is_open,
            encode: raw.encode.ok_or_else(|| needed("encode"))?,
            decode: raw.decode.ok_or_else(|| needed("decode"))?,
            is_ended: raw.is_ended,
            end: raw.end,
            close: raw.close,
            control: raw.control,
            raw,
        })
    }

    /// The name of the driver.
    pub(super) fn name(&self) -> io::Result<String> {
        checked_name(self.raw.name, "the name of the driver")
    }

    /// Its attributes.
    pub(super) fn attributes(&self) -> io::Result<Vec<SharedAttribute>> {
        let entries = entries(self.raw.attributes, self.raw.attribute_count, "attributes")?;
        let mut attributes: Vec<SharedAttribute> = Vec::new();
        for entry in entries {
            let name = checked_name(entry.name, "the name of an attribute")?;
            let takes = text(entry.takes, TEXT_BYTES)
                .filter(|takes| !takes.is_empty() && !takes.contains(char::is_control))
                .ok_or_else(|| {
                    wrong(format!("the values of its attribute '{name}' are no text"))
                })?;
            if attributes.iter().any(|other| other.name == name) {
                return Err(wrong(format!("it has two attributes '{name}'")));
            }
            attributes.push(SharedAttribute { name, takes });
        }
        Ok(attributes)
    }

    /// The names of its controls.
    pub(super) fn controls(&self) -> io::Result<Vec<String>> {
        let entries = entries(self.raw.controls, self.raw.control_count, "controls")?;
        let mut controls = Vec::new();
        for entry in entries {
            let name = checked_name(entry, "the name of a control")?;
            if controls.contains(&name) {
                return Err(wrong(format!("it has two controls '{name}'")));
            }
            controls.push(name);
        }
        Ok(controls)
    }
}

/// Opens a library. All its symbols have to be found now, instead of ending the process later.
#[cfg(unix)]
fn open(path: &Path) -> Result<Library, libloading::Error> {
    use libloading::os::unix;
    let flags = unix::RTLD_NOW | unix::RTLD_LOCAL;
    // SAFETY: code of the library runs, which the caller has chosen to trust.
    unsafe { unix::Library::open(Some(path), flags) }.map(Library::from)
}

#[cfg(not(unix))]
fn open(path: &Path) -> Result<Library, libloading::Error> {
    // SAFETY: code of the library runs, which the caller has chosen to trust.
    unsafe { Library::new(path) }
}

/// The system's reason, which the error itself doesn't print.
fn reason(error: &libloading::Error) -> String {
    let cause = std::error::Error::source(error);
    let text = cause.map_or_else(|| error.to_string(), ToString::to_string);
    text.replace(char::is_control, " ")
}

fn wrong(cause: impl Into<String>) -> io::Error {
    io::Error::new(ErrorKind::InvalidData, cause.into())
}

/// Copies of `count` entries.
fn entries<T: Copy>(first: *const T, count: usize, what: &str) -> io::Result<Vec<T>> {
    if count == 0 {
        return Ok(Vec::new());
    }
    if first.is_null() || !first.is_aligned() || count > ENTRIES_MAX {
        return Err(wrong(format!(
            "its list of {count} {what} is missing or too long"
        )));
    }
    // SAFETY: the pointer isn't null and is aligned, the number is bounded, and by the interface
    // there are as many entries.
    Ok(unsafe { std::slice::from_raw_parts(first, count) }.to_vec())
}

/// A name as the text of stacks has it.
fn checked_name(name: *const c_char, what: &str) -> io::Result<String> {
    let name = text(name, NAME_BYTES_MAX + 1).unwrap_or_default();
    let fits = |b: u8| b.is_ascii_lowercase() || b.is_ascii_digit() || b == b'_';
    if name.starts_with(|c: char| c.is_ascii_lowercase()) && name.bytes().all(fits) {
        return Ok(name);
    }
    Err(wrong(format!(
        "{what} isn't a lower case letter and then up to {} of them, digits and '_'",
        NAME_BYTES_MAX - 1
    )))
}

/// A text in UTF-8 with a NUL within `bytes_max` bytes; `None` if there is none.
fn text(first: *const c_char, bytes_max: usize) -> Option<String> {
    if first.is_null() {
        return None;
    }
    let mut bytes = Vec::new();
    for at in 0..bytes_max {
        // SAFETY: the pointer isn't null, and by the interface it is that of a text with a NUL at
        // its end, which was not seen yet.
        let byte = unsafe { *first.cast::<u8>().add(at) };
        if byte == 0 {
            return String::from_utf8(bytes).ok();
        }
        bytes.push(byte);
    }
    None
}

/// The place of a text that a driver writes.
pub(super) struct Text([u8; TEXT_BYTES]);

impl Default for Text {
    fn default() -> Self {
        Self([0; TEXT_BYTES])
    }
}

impl Text {
    pub(super) fn as_mut_ptr(&mut self) -> *mut c_char {
        self.0.as_mut_ptr().cast()
    }

    /// The text up to its NUL, without anything that a terminal would obey.
    pub(super) fn read(&self) -> String {
        let bytes = self.0.split(|&b| b == 0).next().unwrap_or_default();
        let text = String::from_utf8_lossy(bytes);
        text.replace(char::is_control, " ").trim().to_owned()
    }
}

/// What must hold in C for its declarations to be the same, with the names of what is compared.
#[cfg(all(test, unix))]
pub(super) fn layout() -> Vec<(String, &'static str)> {
    use std::mem::offset_of;

    let mut all = Vec::new();
    macro_rules! same {
        ($type:ty, $c:literal, $($field:ident)*) => {
            let size = size_of::<$type>();
            all.push((format!("sizeof(struct {}) == {size}", $c), $c));
            $(
                let offset = offset_of!($type, $field);
                let field = stringify!($field);
                all.push((format!("offsetof(struct {}, {field}) == {offset}", $c), field));
            )*
        };
    }
    same!(Setting, "xdfs_xio_setting", name value);
    same!(RawAttribute, "xdfs_xio_attribute", name takes);
    same!(Moved, "xdfs_xio_moved", used filled);
    same!(RawTable, "xdfs_xio_driver", role gives needs reserved name attributes attribute_count
        controls control_count check open release is_open encode decode is_ended end close control);
    let version = format!("XDFS_XIO_VERSION == {VERSION} && XDFS_XIO_TRANSFORM == {TRANSFORM}");
    all.push((version, "version"));
    all.push((format!("XDFS_XIO_TEXT_BYTES == {TEXT_BYTES}"), "text"));
    let head = "offsetof(struct xdfs_xio_driver, version) == 0 \
                && offsetof(struct xdfs_xio_driver, size) == 4";
    all.push((head.to_owned(), "head"));
    all
}
