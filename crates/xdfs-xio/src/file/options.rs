//! How a file is opened.

use crate::attribute::Attribute;

/// The options of the driver `file`; its attributes are the fields.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct FileOptions {
    /// The directions. Reading alone by default.
    pub access: FileAccess,
    /// Where both directions begin, in bytes; 0 by default.
    pub offset: u64,
    /// The bytes that each direction may move; no limit by default.
    pub length: Option<u64>,
    /// Writes go to the end of the file, wherever that is at the time.
    pub append: bool,
    /// The file is emptied first.
    pub truncate: bool,
    /// The file is made if it doesn't exist.
    pub create: bool,
    /// Bytes pass the system's page cache (`O_DIRECT`), on Linux: for large files that nobody reads
    /// soon. In one direction only, and not at the end with `append`; writing begins at a multiple
    /// of 4096 bytes, and up to 1 MiB is written at a flush or later.
    pub direct: bool,
}

/// The directions in which a file is opened.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum FileAccess {
    /// Reading and writing.
    Both,
    /// Reading.
    #[default]
    Read,
    /// Writing.
    Write,
}

pub(super) const ATTRIBUTES: &[Attribute<FileOptions>] = &[
    Attribute {
        name: "access",
        takes: "read, write or both",
        set: |options, text| {
            options.access = match text {
                "both" => FileAccess::Both,
                "read" => FileAccess::Read,
                "write" => FileAccess::Write,
                _ => return None,
            };
            Some(())
        },
        text: |options| match options.access {
            FileAccess::Both => Some("both".to_owned()),
            FileAccess::Read => None,
            FileAccess::Write => Some("write".to_owned()),
        },
    },
    Attribute {
        name: "offset",
        takes: "bytes from 0 to 9223372036854775807",
        set: |options, text| {
            options.offset = bytes(text)?;
            Some(())
        },
        text: |options| (options.offset > 0).then(|| options.offset.to_string()),
    },
    Attribute {
        name: "length",
        takes: "bytes from 0 to 9223372036854775807",
        set: |options, text| {
            options.length = Some(bytes(text)?);
            Some(())
        },
        text: |options| options.length.map(|length| length.to_string()),
    },
    Attribute {
        name: "append",
        takes: "true or false",
        set: |options, text| {
            options.append = text.parse().ok()?;
            Some(())
        },
        text: |options| options.append.then(|| "true".to_owned()),
    },
    Attribute {
        name: "truncate",
        takes: "true or false",
        set: |options, text| {
            options.truncate = text.parse().ok()?;
            Some(())
        },
        text: |options| options.truncate.then(|| "true".to_owned()),
    },
    Attribute {
        name: "create",
        takes: "true or false",
        set: |options, text| {
            options.create = text.parse().ok()?;
            Some(())
        },
        text: |options| options.create.then(|| "true".to_owned()),
    },
    #[cfg(target_os = "linux")]
    Attribute {
        name: "direct",
        takes: "true or false",
        set: |options, text| {
            options.direct = text.parse().ok()?;
            Some(())
        },
        text: |options| options.direct.then(|| "true".to_owned()),
    },
];

/// A number of bytes that the system's signed offsets can hold.
fn bytes(text: &str) -> Option<u64> {
    text.parse()
        .ok()
        .filter(|bytes| i64::try_from(*bytes).is_ok())
}
