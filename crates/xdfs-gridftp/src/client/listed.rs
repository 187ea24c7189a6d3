//! An entry of a listing, whatever form its row has, and the causes for which a row is refused.

use std::fmt;

use xdfs_proto::path::Attributes;

use crate::facts::can_be_listed;

/// Bytes of a row that are shown.
const SHOWN_BYTES: usize = 200;

/// An entry of a listing.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Listed {
    /// The name in MLSD, or the path that MLST repeats.
    pub name: Vec<u8>,
    /// The facts of the entry, or of the file to which a link leads; the others are as in
    /// [`Attributes`].
    pub attributes: Attributes,
    /// Where it leads, if it is a symbolic link.
    pub link: Option<Vec<u8>>,
    /// The listed directory itself, or its parent.
    pub is_own: bool,
    /// The facts have the size.
    pub has_size: bool,
    /// The facts have the mode.
    pub has_mode: bool,
}

/// The reason why a row can't be read.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum RowError {
    /// There is no space between facts and name.
    NoName,
    /// The facts don't say what it is.
    NoKind,
    /// The name isn't one of an entry.
    BadName(Vec<u8>),
    /// The size isn't one of a file.
    BadSize(Vec<u8>),
    /// The row has no end.
    TooLong,
    /// The row has no known form.
    Unknown(Vec<u8>),
    /// There is nothing in the row.
    Empty,
}

impl fmt::Display for RowError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::NoName => f.write_str("a row of the listing has no name"),
            Self::NoKind => f.write_str("a row of the listing doesn't say what it is"),
            Self::BadName(name) => {
                let name = name.escape_ascii();
                write!(f, "the listing has '{name}', which is no name of an entry")
            }
            Self::BadSize(name) => {
                let name = name.escape_ascii();
                write!(f, "the listing has an impossible size for '{name}'")
            }
            Self::TooLong => f.write_str("a row of the listing is too long"),
            Self::Unknown(row) => {
                let shown = &row[..row.len().min(SHOWN_BYTES)];
                let shown = shown.escape_ascii();
                write!(f, "a row of the listing isn't understood: '{shown}'")
            }
            Self::Empty => f.write_str(
                "the listing has an empty row, as a name would make it that ends with a line",
            ),
        }
    }
}

impl std::error::Error for RowError {}

/// Whether a name can be one of an entry.
#[must_use]
pub fn is_entry_name(name: &[u8]) -> bool {
    !matches!(name, b"" | b"." | b"..") && !name.contains(&b'/') && can_be_listed(name)
}
