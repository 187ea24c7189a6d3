//! Sets of rights.

use std::fmt;
use std::ops::{BitAnd, BitOr};

use serde::{Deserialize, Deserializer, de};

/// A set of rights. In the settings a list of the words `read`, `list`, `create`, `write` and
/// `delete`, or the single word `all`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Rights(u8);

impl Rights {
    /// None.
    pub const NONE: Self = Self(0);
    /// Reading files.
    pub const READ: Self = Self(1);
    /// Listing directories.
    pub const LIST: Self = Self(2);
    /// Creating files and directories.
    pub const CREATE: Self = Self(4);
    /// Changing existing files and directories.
    pub const WRITE: Self = Self(8);
    /// Removing.
    pub const DELETE: Self = Self(16);
    /// All rights.
    pub const ALL: Self = Self(31);

    const WORDS: [(&'static str, Self); 5] = [
        ("read", Self::READ),
        ("list", Self::LIST),
        ("create", Self::CREATE),
        ("write", Self::WRITE),
        ("delete", Self::DELETE),
    ];

    /// Whether all rights of `other` are included.
    #[must_use]
    pub fn contains(self, other: Self) -> bool {
        self.0 & other.0 == other.0
    }

    /// Parses a right from its word in the settings.
    #[must_use]
    pub fn from_word(word: &str) -> Option<Self> {
        if word == "all" {
            return Some(Self::ALL);
        }
        let known = Self::WORDS.into_iter().find(|(known, _)| *known == word);
        known.map(|(_, rights)| rights)
    }

    /// The set as a number: the sum of 1 for reading, 2 for listing, 4 for creating, 8 for writing
    /// and 16 for deleting.
    #[must_use]
    pub fn bits(self) -> u8 {
        self.0
    }

    /// The set for a number; `None` if it has an undefined bit.
    #[must_use]
    pub fn from_bits(bits: u8) -> Option<Self> {
        (bits & !Self::ALL.0 == 0).then_some(Self(bits))
    }
}

impl BitOr for Rights {
    type Output = Self;

    fn bitor(self, other: Self) -> Self {
        Self(self.0 | other.0)
    }
}

impl BitAnd for Rights {
    type Output = Self;

    fn bitand(self, other: Self) -> Self {
        Self(self.0 & other.0)
    }
}

impl fmt::Display for Rights {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let words = Self::WORDS.into_iter();
        let mut words = words.filter(|(_, rights)| self.contains(*rights));
        let Some((first, _)) = words.next() else {
            return f.write_str("none");
        };
        f.write_str(first)?;
        words.try_for_each(|(word, _)| write!(f, ", {word}"))
    }
}

impl<'de> Deserialize<'de> for Rights {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        #[derive(Deserialize)]
        #[serde(untagged, expecting = "expected a list of rights, or \"all\"")]
        enum Words {
            One(String),
            Several(Vec<String>),
        }
        let words = match Words::deserialize(deserializer)? {
            Words::One(word) => vec![word],
            Words::Several(words) => words,
        };
        words.iter().try_fold(Self::NONE, |rights, word| {
            Self::from_word(word)
                .map(|more| rights | more)
                .ok_or_else(|| {
                    let cause = "rights are read, list, create, write, delete, or all";
                    de::Error::custom(format_args!("'{word}' is not a right: {cause}"))
                })
        })
    }
}
