//! Rows of listings: facts of MLST and MLSD (RFC 3659, section 7), rows of LIST, names of NLST.

use xdfs_proto::path::{Attributes, FileKind};

use crate::reply::Reply;
use crate::time::{format_list_time, format_time};

/// What FEAT says of facts.
pub const FEATURE: &str =
    "MLST Type*;Size*;Modify*;UNIX.mode*;UNIX.uid*;UNIX.gid*;Unique*;UNIX.slink*;";

/// An entry as it is shown.
#[derive(Clone, Copy, Debug)]
pub struct Row<'a> {
    /// The name, or the path as the client gave it.
    pub name: &'a [u8],
    /// Its own attributes, or those of the file to which a link leads.
    pub attributes: &'a Attributes,
    /// Where a link leads.
    pub link: Option<&'a [u8]>,
    /// The type of a directory that isn't an entry of the listed one: `cdir` or `pdir`.
    pub role: Option<&'static str>,
}

/// Whether a name can stand in a row: one with an end of a line in it would look like two.
#[must_use]
pub fn can_be_listed(name: &[u8]) -> bool {
    !name.iter().any(|byte| matches!(byte, b'\r' | b'\n' | 0))
}

/// What the confirmation of a listing says of so many names that aren't in it; nothing if there are
/// none. Clients that don't know it read on.
#[must_use]
pub fn left_out_text(names: u64) -> String {
    match names {
        0 => String::new(),
        // In words that no client takes for those of a failure.
        _ => format!(" LeftOut={names}; names that hold ends of lines have no rows."),
    }
}

/// How many names a confirmation says are left out, in the form of [`left_out_text`].
#[must_use]
pub fn left_out(reply: &Reply) -> u64 {
    let key = b"LeftOut=";
    let number = |line: &Vec<u8>| {
        let start = line.windows(key.len()).position(|part| part == key)? + key.len();
        let rest = &line[start..];
        let end = rest.iter().position(|byte| *byte == b';')?;
        std::str::from_utf8(&rest[..end]).ok()?.parse().ok()
    };
    reply.lines.last().and_then(number).unwrap_or_default()
}

impl Row<'_> {
    /// Appends the facts, a space and the name, without an end of the line.
    pub fn facts(&self, out: &mut Vec<u8>) {
        let Attributes {
            kind,
            size,
            mode,
            uid,
            gid,
            device,
            inode,
            mtime_ns,
            ..
        } = self.attributes;
        let kind = self.role.unwrap_or(match kind {
            FileKind::File => "file",
            FileKind::Directory => "dir",
            FileKind::Symlink => "OS.unix=slink",
            _ => "OS.unix=other",
        });
        let modify = format_time(*mtime_ns);
        let text = format!(
            "Type={kind};Modify={modify};Size={size};UNIX.mode={mode:04o};UNIX.uid={uid};\
             UNIX.gid={gid};Unique={device:x}-{inode:x};"
        );
        out.extend_from_slice(text.as_bytes());
        if let Some(link) = self.link.filter(|link| is_fact(link)) {
            out.extend_from_slice(b"UNIX.slink=");
            out.extend_from_slice(link);
            out.push(b';');
        }
        out.push(b' ');
        out.extend_from_slice(self.name);
    }

    /// Appends the row of LIST, without an end of the line.
    pub fn list(&self, now_ns: i64, out: &mut Vec<u8>) {
        let a = self.attributes;
        let time = format_list_time(a.mtime_ns, now_ns);
        let text = format!(
            "{}{} {:3} {:8} {:8} {:12} {time} ",
            letter(a.kind),
            permissions(a.mode),
            a.links.max(1),
            a.uid,
            a.gid,
            a.size,
        );
        out.extend_from_slice(text.as_bytes());
        out.extend_from_slice(self.name);
        if let Some(link) = self.link.filter(|link| can_be_listed(link)) {
            out.extend_from_slice(b" -> ");
            out.extend_from_slice(link);
        }
    }
}

/// Whether the value of a fact can be told: it ends at a semicolon, and all facts at a space (RFC
/// 3659, section 7.2).
fn is_fact(value: &[u8]) -> bool {
    can_be_listed(value) && !value.contains(&b';') && !value.contains(&b' ')
}

fn letter(kind: FileKind) -> char {
    match kind {
        FileKind::Directory => 'd',
        FileKind::Symlink => 'l',
        FileKind::Fifo => 'p',
        FileKind::Socket => 's',
        FileKind::BlockDevice => 'b',
        FileKind::CharacterDevice => 'c',
        FileKind::File | FileKind::Other => '-',
    }
}

fn permissions(mode: u32) -> String {
    let special = [(0o4000, 's', 'S'), (0o2000, 's', 'S'), (0o1000, 't', 'T')];
    let mut text = String::with_capacity(9);
    for (shift, (bit, set, lone)) in [6, 3, 0].into_iter().zip(special) {
        let bits = mode >> shift;
        text.push(if bits & 4 != 0 { 'r' } else { '-' });
        text.push(if bits & 2 != 0 { 'w' } else { '-' });
        text.push(match (mode & bit != 0, bits & 1 != 0) {
            (false, true) => 'x',
            (false, false) => '-',
            (true, true) => set,
            (true, false) => lone,
        });
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    fn attributes(kind: FileKind) -> Attributes {
        Attributes {
            kind,
            size: 100,
            allocated: 0,
            mode: 0o4755,
            uid: 1,
            gid: 2,
            links: 1,
            device: 16,
            inode: 255,
            atime_ns: 0,
            mtime_ns: 1_795_289_011_000_000_000,
            ctime_ns: 0,
        }
    }

    fn rows(row: Row<'_>) -> [String; 2] {
        let (mut facts, mut list) = (Vec::new(), Vec::new());
        row.facts(&mut facts);
        row.list(row.attributes.mtime_ns, &mut list);
        [facts, list].map(|bytes| String::from_utf8(bytes).unwrap())
    }

    #[test]
    fn rows_have_the_form_that_clients_read() {
        let row = Row {
            name: b"a b",
            attributes: &attributes(FileKind::File),
            link: None,
            role: None,
        };
        let facts = "Type=file;Modify=20261121192331;Size=100;UNIX.mode=4755;UNIX.uid=1;UNIX.gid=2;\
                     Unique=10-ff; a b";
        let list = "-rwsr-xr-x   1        1        2          100 Nov 21 19:23 a b";
        assert_eq!(rows(row), [facts, list]);
        let attributes = &attributes(FileKind::Symlink);
        let link: Option<&[u8]> = Some(b"x;Type=dir");
        let [facts, list] = rows(Row {
            attributes,
            link,
            ..row
        });
        assert!(!facts.contains("slink=x"), "{facts}");
        assert!(list.ends_with(" a b -> x;Type=dir"), "{list}");
        assert_eq!(permissions(0o1640), "rw-r----T");
    }

    #[test]
    fn a_confirmation_tells_what_is_left_out() {
        for names in [0, 1, 70_000, u64::MAX] {
            let text = format!("Transfer complete.{}", left_out_text(names));
            assert_eq!(left_out(&Reply::new(226, text)), names);
        }
        for text in [
            "LeftOut=",
            "LeftOut=;",
            "LeftOut=x;",
            "LeftOut=-1;",
            "LeftOut=1",
        ] {
            assert_eq!(left_out(&Reply::new(226, text)), 0, "{text}");
        }
    }

    #[test]
    fn names_that_look_like_two_rows_are_known() {
        for name in [&b"a\r\nb"[..], b"a\nb", b"\0"] {
            assert!(!can_be_listed(name));
        }
        assert!(can_be_listed("grüße \t".as_bytes()));
    }
}
