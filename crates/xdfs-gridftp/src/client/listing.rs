//! Rows of MLSD and MLST (RFC 3659, section 7), read; and listings split into rows, also those of
//! LIST ([`long_row`](super::long_row)).
//!
//! A name that is no name of an entry is refused together with its listing: it could lead out of
//! the directory of a copy.

use xdfs_proto::path::{Attributes, FileKind, NO_TIME_NS};

use super::listed::{Listed, RowError, is_entry_name};
use super::long_row::{is_total, parse_long_row};
use crate::reply::Reply;
use crate::time::parse_time;

/// Bytes of the longest row.
pub const ROW_BYTES_MAX: usize = 64 << 10;

/// Reads a row of MLSD, without its end.
///
/// # Errors
/// The row makes no sense, or its name is none of an entry.
pub fn parse_row(row: &[u8]) -> Result<Listed, RowError> {
    let listed = parse_facts(row)?;
    match listed.is_own || is_entry_name(&listed.name) {
        true => Ok(listed),
        false => Err(RowError::BadName(listed.name)),
    }
}

/// Facts of RFC 3659 and of the registry of RFC 5797 that are not of one system.
const FACTS: [&[u8]; 9] = [
    b"type",
    b"size",
    b"modify",
    b"create",
    b"unique",
    b"perm",
    b"lang",
    b"media-type",
    b"charset",
];

/// Whether further facts follow behind the first space: a value before it has a space then, and it
/// is unknown where the name begins.
fn goes_on(name: &[u8]) -> bool {
    let is_fact = |part: &[u8]| {
        let key = part.split(|byte| *byte == b'=').next().unwrap_or(part);
        let key = key.to_ascii_lowercase();
        part.contains(&b'=') && (FACTS.contains(&key.as_slice()) || key.starts_with(b"unix."))
    };
    let mut parts = name.split(|byte| *byte == b';').skip(1).peekable();
    while let Some(part) = parts.next() {
        // The last one is a name.
        if parts.peek().is_some() && is_fact(part) {
            return true;
        }
    }
    false
}

/// Reads the row of MLST, in which any path stands in place of the name.
///
/// # Errors
/// The row makes no sense.
pub fn parse_facts(row: &[u8]) -> Result<Listed, RowError> {
    let space = row.iter().position(|byte| *byte == b' ');
    let (facts, name) = row.split_at(space.ok_or(RowError::NoName)?);
    // Each fact ends with a semicolon.
    let is_cut = !facts.is_empty() && !facts.ends_with(b";") && name.contains(&b';');
    if is_cut || goes_on(name) {
        return Err(RowError::Unknown(row.to_vec()));
    }
    // The rest of a name with an end of a line in it has no facts.
    let is_fact = |fact: &[u8]| fact.contains(&b'=');
    let mut all = facts
        .strip_suffix(b";")
        .unwrap_or(facts)
        .split(|byte| *byte == b';');
    if !facts.is_empty() && !all.all(is_fact) {
        return Err(RowError::Unknown(row.to_vec()));
    }
    let name = name.get(1..).unwrap_or_default().to_vec();
    let mut listed = Listed {
        attributes: Attributes {
            kind: FileKind::Other,
            size: 0,
            allocated: 0,
            mode: 0,
            uid: 0,
            gid: 0,
            links: 1,
            device: 0,
            inode: 0,
            atime_ns: 0,
            mtime_ns: NO_TIME_NS,
            ctime_ns: 0,
        },
        name,
        link: None,
        is_own: false,
        has_size: false,
        has_mode: false,
    };
    let (mut mode, mut has_kind) = (None, false);
    for fact in facts.split(|byte| *byte == b';') {
        let Some(equals) = fact.iter().position(|byte| *byte == b'=') else {
            continue;
        };
        let (key, value) = (&fact[..equals], &fact[equals + 1..]);
        let attributes = &mut listed.attributes;
        match key.to_ascii_lowercase().as_slice() {
            b"type" => {
                has_kind = true;
                let value = value.to_ascii_lowercase();
                (attributes.kind, listed.is_own) = match value.as_slice() {
                    b"file" => (FileKind::File, false),
                    b"dir" => (FileKind::Directory, false),
                    b"cdir" | b"pdir" => (FileKind::Directory, true),
                    link if link.starts_with(b"os.unix=slink")
                        || link.starts_with(b"os.unix=symlink") =>
                    {
                        (FileKind::Symlink, false)
                    }
                    _ => (FileKind::Other, false),
                };
            }
            // Some servers say so of what has none.
            b"size" if value.is_empty() => {}
            b"size" => {
                let size = number(value, 10).filter(|size| i64::try_from(*size).is_ok());
                attributes.size = size.ok_or_else(|| RowError::BadSize(listed.name.clone()))?;
                listed.has_size = true;
            }
            b"modify" => attributes.mtime_ns = parse_time(value).unwrap_or(NO_TIME_NS),
            // With a prefix from pyftpdlib.
            b"unix.mode" => mode = number(value.strip_prefix(b"0o").unwrap_or(value), 8),
            b"unix.uid" => attributes.uid = small(value),
            b"unix.gid" => attributes.gid = small(value),
            b"unix.slink" => listed.link = Some(value.to_vec()),
            _ => {}
        }
    }
    if !has_kind {
        return Err(RowError::NoKind);
    }
    let usual = match listed.attributes.kind {
        FileKind::Directory => 0o755,
        _ => 0o644,
    };
    let mode = mode.and_then(|mode| u32::try_from(mode).ok());
    listed.has_mode = mode.is_some();
    listed.attributes.mode = mode.map_or(usual, |mode| mode & 0o7777);
    Ok(listed)
}

/// The row of facts in a reply to MLST.
pub(super) fn row_of(reply: &Reply) -> &[u8] {
    let row = reply.lines.get(1).map(|line| line.trim_ascii_start());
    row.unwrap_or_default()
}

fn number(text: &[u8], radix: u32) -> Option<u64> {
    let text = std::str::from_utf8(text).ok()?;
    let is_number = !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_digit());
    is_number
        .then(|| u64::from_str_radix(text, radix).ok())
        .flatten()
}

fn small(text: &[u8]) -> u32 {
    number(text, 10)
        .and_then(|id| u32::try_from(id).ok())
        .unwrap_or_default()
}

/// Splits a listing into rows, from any pieces.
#[derive(Debug, Default)]
pub struct Rows {
    bytes: Vec<u8>,
    taken: usize,
    has_begun: bool,
    /// The rows are those of LIST.
    is_long: bool,
}

impl Rows {
    /// Those of LIST.
    #[must_use]
    pub fn long() -> Self {
        Self {
            is_long: true,
            ..Self::default()
        }
    }

    /// Adds bytes of the listing.
    pub fn push(&mut self, bytes: &[u8]) {
        self.bytes.drain(..std::mem::take(&mut self.taken));
        self.bytes.extend_from_slice(bytes);
    }

    /// The next entry; `None` if more bytes are needed. At the end of the listing, `is_last` takes
    /// what is left for a row.
    ///
    /// # Errors
    /// As [`parse_row`], and for a row without end.
    pub fn next_row(&mut self, is_last: bool) -> Result<Option<Listed>, RowError> {
        loop {
            let rest = &self.bytes[self.taken..];
            let end = rest.iter().position(|byte| *byte == b'\n');
            let (row, used) = match end {
                Some(end) => (&rest[..end], end + 1),
                None if rest.len() > ROW_BYTES_MAX => return Err(RowError::TooLong),
                None if is_last && !rest.is_empty() => (rest, rest.len()),
                None => return Ok(None),
            };
            self.taken += used;
            let row = row.strip_suffix(b"\r").unwrap_or(row);
            let is_first = !std::mem::replace(&mut self.has_begun, true);
            return match self.is_long {
                // The rest of a name with an end of a line in it could be one, or look so.
                _ if row.is_empty() => Err(RowError::Empty),
                true if is_first && is_total(row) => continue,
                true => parse_long_row(row).map(Some),
                false => parse_row(row).map(Some),
            };
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rows_of_known_servers_are_read() {
        let row = b"Type=file;Modify=20261121192331;Size=100;UNIX.mode=0640;UNIX.uid=7; a b";
        let listed = parse_row(row).unwrap();
        assert_eq!(listed.name, b"a b");
        let found = &listed.attributes;
        assert_eq!((found.size, found.mode, found.uid), (100, 0o640, 7));
        assert_eq!(found.mtime_ns, 1_795_289_011_000_000_000);
        assert_eq!(found.kind, FileKind::File);
        let own = parse_row(b"type=cdir;modify=20261121192331; .").unwrap();
        assert!(own.is_own);
        let link = parse_row(b"Type=file;UNIX.slink=x/y; l").unwrap();
        assert_eq!(link.link.as_deref(), Some(&b"x/y"[..]));
    }

    #[test]
    fn names_that_lead_elsewhere_are_refused() {
        for name in ["..", ".", "", "a/b", "/etc/passwd", "../x", "a\0b", "a\rb"] {
            let row = format!("Type=file;Size=1; {name}");
            let error = parse_row(row.as_bytes()).unwrap_err();
            assert!(matches!(error, RowError::BadName(_)), "{name:?}");
        }
        assert_eq!(parse_row(b"Type=file;"), Err(RowError::NoName));
        for row in [
            &b"of two lines"[..],
            b"a;b c",
            b"Type=file;; a",
            b"Type=file;x; a",
        ] {
            let error = parse_row(row).unwrap_err();
            assert_eq!(error, RowError::Unknown(row.to_vec()));
        }
        for row in [&b" name"[..], b"Size=1;Modify=20261121192331; name"] {
            assert_eq!(parse_row(row), Err(RowError::NoKind));
        }
        assert!(!parse_row(b"Type=dir;Size=; d").unwrap().has_size);
        let listed = parse_row(b"type=file;unix.mode=0o640; f").unwrap();
        assert!(listed.has_mode && listed.attributes.mode == 0o640);
        for size in ["-1", "99999999999999999999", "9223372036854775808", "x"] {
            let row = format!("Type=file;Size={size}; n");
            let error = parse_row(row.as_bytes()).unwrap_err();
            assert_eq!(error, RowError::BadSize(b"n".to_vec()), "{size}");
        }
    }

    #[test]
    fn a_space_in_a_value_is_no_begin_of_a_name() {
        for row in [
            "Type=file;Size=3;UNIX.groupname=domain users;UNIX.mode=0644; b.txt",
            "Type=file;Size=3;UNIX.groupname=domain users; b.txt",
            "Type=file;UNIX.owner=a b;Size=3; b.txt",
            "type=file;unix.owner=a; b;size=3; b.txt",
            "type=file;x=a; b;perm=r;x=c; b.txt",
        ] {
            let error = parse_row(row.as_bytes()).unwrap_err();
            assert_eq!(error, RowError::Unknown(row.as_bytes().to_vec()));
        }
        for (row, name) in [
            ("Type=file;Size=3; a;b=c; d", "a;b=c; d"),
            ("Type=file;Size=3; a; b;size=3", "a; b;size=3"),
            ("Type=file;Size=3 a b", "a b"),
            ("TYPE=file;SIZE=3; size=4; a", "size=4; a"),
        ] {
            assert_eq!(parse_row(row.as_bytes()).unwrap().name, name.as_bytes());
        }
    }

    #[test]
    fn a_time_of_zero_is_a_time() {
        let time = |row: &str| parse_row(row.as_bytes()).unwrap().attributes.mtime();
        assert_eq!(time("Type=file;Modify=19700101000000; a"), Some(0));
        for row in [
            "Type=file; a",
            "Type=file;Modify=; a",
            "Type=file;Modify=0; a",
        ] {
            assert_eq!(time(row), None, "{row}");
        }
    }

    #[test]
    fn pieces_do_not_matter() {
        let text = b"Type=dir; a\r\nType=file;Size=3; b\r\nType=file; c";
        for piece in 1..text.len() {
            let (mut rows, mut names) = (Rows::default(), Vec::new());
            for part in text.chunks(piece) {
                rows.push(part);
                while let Some(row) = rows.next_row(false).unwrap() {
                    names.push(row.name);
                }
            }
            names.push(rows.next_row(true).unwrap().unwrap().name);
            assert_eq!(names, [b"a", b"b", b"c"]);
        }
        let mut rows = Rows::default();
        rows.push(&[b'x'; ROW_BYTES_MAX + 1]);
        assert_eq!(rows.next_row(false), Err(RowError::TooLong));
    }

    /// The last error of rows, and the names before it.
    fn broken(mut rows: Rows, text: &str) -> (Vec<Vec<u8>>, Option<RowError>) {
        rows.push(text.as_bytes());
        let mut names = Vec::new();
        loop {
            match rows.next_row(true) {
                Ok(Some(row)) => names.push(row.name),
                Ok(None) => return (names, None),
                Err(error) => return (names, Some(error)),
            }
        }
    }

    #[test]
    fn names_with_ends_of_lines_are_no_others() {
        let facts = "Type=file;Size=1; ";
        let long = "-rw-r--r-- 1 0 0 5 Nov 21 19:23 ";
        for end in ["\r\n", "\n"] {
            let text = format!("{facts}end\n{end}{facts}b{end}");
            let found = broken(Rows::default(), &text);
            assert_eq!(found, (vec![b"end".to_vec()], Some(RowError::Empty)));
            let text = format!("total 8{end}{long}end\n{end}");
            let found = broken(Rows::long(), &text);
            assert_eq!(found, (vec![b"end".to_vec()], Some(RowError::Empty)));
            let text = format!("{long}end\ntotal 8{end}");
            let total = RowError::Unknown(b"total 8".to_vec());
            let found = broken(Rows::long(), &text);
            assert_eq!(found, (vec![b"end".to_vec()], Some(total)));
        }
        let found = broken(Rows::long(), "total 8\r\n");
        assert_eq!(found, (Vec::new(), None));
    }
}
