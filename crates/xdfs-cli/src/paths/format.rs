//! The output of `stat`: the usual description, or lines in a format of the user's.

use std::fmt::Write as _;

use jiff::tz::TimeZone;
use xdfs::{Attributes, FileKind, OwnerNames, Quoting};

use super::mode::mode_text;
use super::time;

/// Bytes of a block in the output of `stat`, by convention.
const BLOCK_BYTES: u64 = 512;

const SECOND_NS: i64 = 1_000_000_000;

/// A part of a format.
#[derive(Clone, Debug, PartialEq, Eq)]
enum Part {
    Text(String),
    /// The letter of a field.
    Field(char),
}

/// The format of a line, with the fields of GNU stat.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct StatFormat(Vec<Part>);

/// The letters of all fields.
const FIELDS: &str = "nNFsbaAfuUgGhidxyzXYZ";

/// In place of a name that isn't known, as stat(1) writes it.
const UNKNOWN: &str = "UNKNOWN";

impl StatFormat {
    /// Parses a format.
    ///
    /// # Errors
    /// A message for the user: a field is unknown.
    pub(crate) fn parse(text: &str) -> Result<Self, String> {
        let mut parts = Vec::new();
        let mut literal = String::new();
        let mut chars = text.chars();
        while let Some(c) = chars.next() {
            match c {
                '%' => match chars.next() {
                    Some('%') => literal.push('%'),
                    Some(field) if FIELDS.contains(field) => {
                        parts.push(Part::Text(std::mem::take(&mut literal)));
                        parts.push(Part::Field(field));
                    }
                    Some(other) => {
                        let fields: Vec<String> = FIELDS.chars().map(|f| format!("%{f}")).collect();
                        let fields = fields.join(" ");
                        return Err(format!("there is no field %{other}, but {fields} and %%"));
                    }
                    None => return Err("after % stands the letter of a field, or %".into()),
                },
                c => literal.push(c),
            }
        }
        parts.push(Part::Text(literal));
        Ok(Self(parts))
    }

    /// Whether it has a field for the name of an owner or a group.
    pub(super) fn has_owner_names(&self) -> bool {
        let is_one = |part: &Part| matches!(part, Part::Field('U' | 'G'));
        self.0.iter().any(is_one)
    }

    /// The line of a path, with its line end: `names` are the name, and the name with the target of
    /// a link.
    pub(super) fn line(
        &self,
        names: [&str; 2],
        a: &Attributes,
        owner: &OwnerNames,
        zone: &TimeZone,
    ) -> String {
        let mut line = String::new();
        for part in &self.0 {
            match part {
                Part::Text(text) => line.push_str(text),
                Part::Field(letter) => {
                    let field = Field {
                        letter: *letter,
                        names,
                        owner,
                        zone,
                    };
                    field.write(a, &mut line);
                }
            }
        }
        line.push('\n');
        line
    }
}

/// A field of a line.
struct Field<'a> {
    letter: char,
    names: [&'a str; 2],
    owner: &'a OwnerNames,
    zone: &'a TimeZone,
}

impl Field<'_> {
    fn write(&self, a: &Attributes, line: &mut String) {
        // Writing to a string can't fail.
        let _ = match self.letter {
            'N' => write!(line, "{}", self.names[1]),
            'F' => write!(line, "{}", kind_text(a)),
            's' => write!(line, "{}", a.size),
            'b' => write!(line, "{}", a.allocated.div_ceil(BLOCK_BYTES)),
            'a' => write!(line, "{:o}", a.mode),
            'A' => write!(line, "{}", mode_text(a.kind, a.mode)),
            'f' => write!(line, "{:x}", kind_bits(a.kind) | a.mode),
            'u' => write!(line, "{}", a.uid),
            'g' => write!(line, "{}", a.gid),
            'U' => write!(line, "{}", known(self.owner.user.as_deref())),
            'G' => write!(line, "{}", known(self.owner.group.as_deref())),
            'h' => write!(line, "{}", a.links),
            'i' => write!(line, "{}", a.inode),
            'd' => write!(line, "{}", a.device),
            'x' => write!(line, "{}", time::full(a.atime_ns, self.zone)),
            'y' => write!(line, "{}", time::full(a.mtime_ns, self.zone)),
            'z' => write!(line, "{}", time::full(a.ctime_ns, self.zone)),
            'X' => write!(line, "{}", a.atime_ns.div_euclid(SECOND_NS)),
            'Y' => match a.mtime() {
                Some(time) => write!(line, "{}", time.div_euclid(SECOND_NS)),
                None => write!(line, "?"),
            },
            'Z' => write!(line, "{}", a.ctime_ns.div_euclid(SECOND_NS)),
            // Only 'n' is left of the letters that `parse` accepts.
            _ => write!(line, "{}", self.names[0]),
        };
    }
}

/// The words of stat(1) for the kind of a path.
fn kind_text(a: &Attributes) -> &'static str {
    match a.kind {
        FileKind::File if a.size == 0 => "regular empty file",
        FileKind::File => "regular file",
        FileKind::Symlink => "symbolic link",
        FileKind::BlockDevice => "block special file",
        FileKind::CharacterDevice => "character special file",
        kind => kind.as_str(),
    }
}

/// The kind in the bits above the permissions, by POSIX systems' common numbers.
fn kind_bits(kind: FileKind) -> u32 {
    match kind {
        FileKind::Fifo => 0o010_000,
        FileKind::CharacterDevice => 0o020_000,
        FileKind::Directory => 0o040_000,
        FileKind::BlockDevice => 0o060_000,
        FileKind::File => 0o100_000,
        FileKind::Symlink => 0o120_000,
        FileKind::Socket => 0o140_000,
        FileKind::Other => 0,
    }
}

/// The name of an owner or a group as it is shown.
pub(super) fn shown_name(name: &str) -> String {
    Quoting::Plain.text(name.as_bytes())
}

fn known(name: Option<&str>) -> String {
    name.map_or_else(|| UNKNOWN.to_owned(), shown_name)
}

/// The attributes of a path, in the format of stat(1).
pub(super) fn description(
    name: &str,
    a: &Attributes,
    owner: &OwnerNames,
    zone: &TimeZone,
) -> String {
    let account = |number: u32, name: Option<&str>| match name {
        Some(name) => format!("({number}/{})", shown_name(name)),
        None => number.to_string(),
    };
    format!(
        "  File: {name}\n  Size: {:<15} Blocks: {:<10} {}\nDevice: {:<15} Inode: {:<11} \
         Links: {}\nAccess: ({:04o}/{})  Uid: {}  Gid: {}\nAccess: {}\nModify: {}\nChange: {}\n",
        a.size,
        a.allocated.div_ceil(BLOCK_BYTES),
        kind_text(a),
        a.device,
        a.inode,
        a.links,
        a.mode,
        mode_text(a.kind, a.mode),
        account(a.uid, owner.user.as_deref()),
        account(a.gid, owner.group.as_deref()),
        time::full(a.atime_ns, zone),
        time::full(a.mtime_ns, zone),
        time::full(a.ctime_ns, zone),
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn unknown_fields_are_refused() {
        for (bad, words) in [("%q", "%q"), ("a%", "after %"), ("%5s", "%5")] {
            let message = StatFormat::parse(bad).unwrap_err();
            assert!(message.contains(words), "{bad}: {message}");
        }
        for good in ["", "%%", "a b", "%n", "%s%Y", "%U:%G"] {
            assert!(StatFormat::parse(good).is_ok(), "{good}");
        }
        for (format, has) in [("%u%g%%U", false), ("%U", true), ("a %G", true)] {
            let format = StatFormat::parse(format).unwrap();
            assert_eq!(format.has_owner_names(), has, "{format:?}");
        }
    }
}
