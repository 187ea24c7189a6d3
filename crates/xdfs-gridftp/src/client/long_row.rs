//! Rows of LIST, read: those of `ls -l`, as Unix servers write them, and those of IIS.
//!
//! No standard says how they look. What isn't in one of these two forms is refused together with
//! its listing, since a guess could take one file for another. Times in them have no zone and no
//! seconds, and are left out.

use xdfs_proto::path::{Attributes, FileKind};

use super::listing::{Listed, RowError, is_entry_name};

/// Words of a row before its name, at most; a group may have several.
const WORDS_MAX: usize = 16;
/// Spaces between `<DIR>` and a name in rows of IIS.
const DOS_SPACES: usize = 10;

const MONTHS: [&[u8]; 12] = [
    b"jan", b"feb", b"mar", b"apr", b"may", b"jun", b"jul", b"aug", b"sep", b"oct", b"nov", b"dec",
];

/// Reads a row, without its end.
///
/// # Errors
/// It has another form, or its name is none of an entry.
pub fn parse_long_row(row: &[u8]) -> Result<Listed, RowError> {
    let listed = match row.first() {
        Some(byte) if byte.is_ascii_digit() => of_dos(row),
        _ => of_unix(row),
    };
    let mut listed = listed.ok_or_else(|| RowError::Unknown(row.to_vec()))?;
    listed.is_own = matches!(listed.name.as_slice(), b"." | b"..");
    match listed.is_own || is_entry_name(&listed.name) {
        true => Ok(listed),
        false => Err(RowError::BadName(listed.name)),
    }
}

/// Whether a row tells the blocks of a directory (`total 12`), as the first one may.
pub(super) fn is_total(row: &[u8]) -> bool {
    let rest = row.strip_prefix(b"total ").map(<[u8]>::trim_ascii);
    rest.is_some_and(|rest| !rest.is_empty() && rest.iter().all(u8::is_ascii_digit))
}

/// Words separated by spaces, each with the place where it ends.
fn words(row: &[u8]) -> Vec<(&[u8], usize)> {
    let mut words = Vec::new();
    let mut at = 0;
    while words.len() < WORDS_MAX {
        at += row[at..].iter().take_while(|byte| **byte == b' ').count();
        let length = row[at..].iter().take_while(|byte| **byte != b' ').count();
        if length == 0 {
            break;
        }
        words.push((&row[at..at + length], at + length));
        at += length;
    }
    words
}

fn number(text: &[u8]) -> Option<u64> {
    let is_number = !text.is_empty() && text.iter().all(u8::is_ascii_digit);
    let text = std::str::from_utf8(text).ok().filter(|_| is_number)?;
    text.parse().ok()
}

/// The size of a file; `None` for what can't be one.
fn size_of(text: &[u8]) -> Option<u64> {
    number(text).filter(|size| i64::try_from(*size).is_ok())
}

fn is_month(word: &[u8]) -> bool {
    MONTHS.iter().any(|month| word.eq_ignore_ascii_case(month))
}

fn is_day(word: &[u8]) -> bool {
    word.len() <= 2 && number(word).is_some_and(|day| (1..=31).contains(&day))
}

/// `HH:MM`.
fn is_clock(word: &[u8]) -> bool {
    let at = word.iter().position(|byte| *byte == b':');
    let parts = at.map(|at| (&word[..at], &word[at + 1..]));
    parts.is_some_and(|(hour, minute)| {
        let (is_short, is_two) = (hour.len() <= 2, minute.len() == 2);
        let in_day = number(hour).is_some_and(|hour| hour < 24);
        is_short && is_two && in_day && number(minute).is_some_and(|minute| minute < 60)
    })
}

fn is_year(word: &[u8]) -> bool {
    word.len() == 4 && number(word).is_some()
}

/// Whether words tell a date or a time, in any form. Where they are those before the size, the row
/// may have another form, and what looks like a size and a date be in the name.
fn tells_time(words: &[(&[u8], usize)]) -> bool {
    let is_date = |word: &[u8]| {
        let parts = || word.split(|byte| b"-./:".contains(byte));
        parts().count() > 1 && parts().all(|part| number(part).is_some())
    };
    let is_recent =
        |word: &[u8]| is_year(word) && matches!(word, [b'1', b'9', ..] | [b'2', b'0', ..]);
    words.iter().enumerate().any(|(at, (word, _))| {
        let mut after = words[at + 1..].iter().take(2);
        is_date(word) || is_month(word) && after.any(|(word, _)| is_recent(word))
    })
}

/// The mode in `rwxr-xr-x`.
fn mode_of(letters: &[u8]) -> Option<u32> {
    let mut mode = 0;
    for (at, byte) in letters.iter().enumerate() {
        let bit = 0o400 >> at;
        let special = [0o4000, 0o2000, 0o1000][at / 3];
        let (is_set, is_special) = match (at % 3, byte) {
            (_, b'-') => (false, false),
            (0, b'r') | (1, b'w') | (2, b'x') => (true, false),
            (2, b's') if at < 8 => (true, true),
            (2, b'S') if at < 8 => (false, true),
            (2, b't') if at == 8 => (true, true),
            (2, b'T') if at == 8 => (false, true),
            _ => return None,
        };
        mode |= if is_set { bit } else { 0 } | if is_special { special } else { 0 };
    }
    Some(mode)
}

/// `-rw-r--r-- 1 owner group 100 Nov 21 19:23 name`, also without the owner, the group or the
/// links, or with more words in the group.
fn of_unix(row: &[u8]) -> Option<Listed> {
    let words = words(row);
    let (&kind, rest) = words.first()?.0.split_first()?;
    let kind = match kind {
        b'-' => FileKind::File,
        b'd' => FileKind::Directory,
        b'l' => FileKind::Symlink,
        b'p' => FileKind::Fifo,
        b's' => FileKind::Socket,
        b'b' => FileKind::BlockDevice,
        b'c' => FileKind::CharacterDevice,
        _ => return None,
    };
    let (letters, more) = rest.split_at_checked(9)?;
    let mode = mode_of(letters).filter(|_| matches!(more, [] | [b'+' | b'@' | b'.']))?;
    // The first place where a size and a time stand: what follows is the name.
    let date = (2..words.len().saturating_sub(2)).find(|at| {
        let [month, day, time] = [0, 1, 2].map(|more| words[at + more].0);
        let is_time = is_clock(time) || is_year(time);
        is_month(month) && is_day(day) && is_time && number(words[at - 1].0).is_some()
    })?;
    if tells_time(&words[1..date - 1]) {
        return None;
    }
    let name = row.get(words[date + 2].1..)?.strip_prefix(b" ")?;
    let is_file = matches!(
        kind,
        FileKind::File | FileKind::Directory | FileKind::Symlink
    );
    let size = size_of(words[date - 1].0).filter(|_| is_file);
    if is_file && size.is_none() {
        return None;
    }
    let mut listed = entry(name.to_vec(), kind, size.unwrap_or_default());
    listed.attributes.mode = mode;
    listed.has_mode = true;
    if let [links, owner, group] = words[1..date - 1] {
        let small = |(word, _): (&[u8], usize)| u32::try_from(number(word)?).ok();
        listed.attributes.uid = small(owner).unwrap_or_default();
        listed.attributes.gid = small(group).unwrap_or_default();
        listed.attributes.links = number(links.0).unwrap_or(1);
    }
    if kind == FileKind::Symlink {
        let arrow = b" -> ";
        let mut places = name.windows(arrow.len()).enumerate();
        let mut places = places.by_ref().filter(|(_, part)| part == arrow);
        match (places.next(), places.next()) {
            (Some((at, _)), None) => {
                listed.name = name[..at].to_vec();
                listed.link = Some(name[at + arrow.len()..].to_vec());
            }
            (None, _) => {}
            // Which of them belongs to the name?
            (Some(_), Some(_)) => return None,
        }
    }
    Some(listed)
}

/// `11-21-26  07:23PM                  100 name`, with `<DIR>` in place of the size of a directory.
fn of_dos(row: &[u8]) -> Option<Listed> {
    let words = words(row);
    let [(date, _), (time, _), (what, end), ..] = words[..] else {
        return None;
    };
    let parts: Vec<_> = date.split(|byte| *byte == b'-').collect();
    let [month, day, year] = parts[..] else {
        return None;
    };
    let is_date = month.len() == 2
        && number(month).is_some_and(|month| (1..=12).contains(&month))
        && day.len() == 2
        && is_day(day)
        && matches!(year.len(), 2 | 4)
        && number(year).is_some();
    let clock = [&b"AM"[..], b"PM"].into_iter();
    let clock = clock.filter_map(|half| time.strip_suffix(half)).next();
    if !is_date || !is_clock(clock.unwrap_or(time)) {
        return None;
    }
    let rest = &row[end..];
    if what != b"<DIR>" {
        let name = rest.strip_prefix(b" ")?;
        return Some(entry(name.to_vec(), FileKind::File, size_of(what)?));
    }
    let spaces = rest.iter().take_while(|byte| **byte == b' ').count();
    // A name may begin with a space itself.
    let name = &rest[spaces.min(DOS_SPACES)..];
    Some(entry(name.to_vec(), FileKind::Directory, 0))
}

fn entry(name: Vec<u8>, kind: FileKind, size: u64) -> Listed {
    let mode = match kind {
        FileKind::Directory => 0o755,
        _ => 0o644,
    };
    Listed {
        attributes: Attributes {
            kind,
            size,
            allocated: 0,
            mode,
            uid: 0,
            gid: 0,
            links: 1,
            device: 0,
            inode: 0,
            atime_ns: 0,
            mtime_ns: 0,
            ctime_ns: 0,
        },
        name,
        link: None,
        is_own: false,
        has_size: true,
        has_mode: false,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(row: &str) -> Listed {
        let listed = parse_long_row(row.as_bytes());
        listed.unwrap_or_else(|error| panic!("{row}: {error}"))
    }

    #[test]
    fn rows_of_unix_servers_are_read() {
        for (row, name, kind, size, mode) in [
            (
                "-rw-r--r--    1 14       50          1024 Nov 21 19:23 a b",
                "a b",
                FileKind::File,
                1024,
                0o644,
            ),
            (
                "drwxr-sr-t 2 root Domain Users 4096 Jan  1  2020  name",
                " name",
                FileKind::Directory,
                4096,
                0o3755,
            ),
            (
                "-rwS--x--T+ 1 me 5368709120 Feb 29 2024 x",
                "x",
                FileKind::File,
                5 << 30,
                0o5610,
            ),
            (
                "---------- 1 Jan 7 12 Jan 07 0:00 Jan 1 2020 y",
                "Jan 1 2020 y",
                FileKind::File,
                12,
                0,
            ),
            (
                "-rw------- 1 jan 1000 12 Nov 21 2026 12 Jan 1 2020 y",
                "12 Jan 1 2020 y",
                FileKind::File,
                12,
                0o600,
            ),
            (
                "crw-rw-rw- 1 0 0 1, 3 Nov 21 19:23 null",
                "null",
                FileKind::CharacterDevice,
                0,
                0o666,
            ),
            (
                "prw-r--r-- 1 0 0 0 Nov 21 19:23 pipe",
                "pipe",
                FileKind::Fifo,
                0,
                0o644,
            ),
            (
                "drwx------   1 owner 0 Nov 21 19:23 .",
                ".",
                FileKind::Directory,
                0,
                0o700,
            ),
        ] {
            let listed = read(row);
            let found = &listed.attributes;
            assert_eq!(listed.name, name.as_bytes(), "{row}");
            assert_eq!(
                (found.kind, found.size, found.mode),
                (kind, size, mode),
                "{row}"
            );
            assert_eq!(listed.is_own, name == ".", "{row}");
            assert_eq!(found.mtime_ns, 0);
        }
        let link = read("lrwxrwxrwx 1 7 8 3 Nov 21 19:23 l -> x/y z");
        assert_eq!(
            (link.name.as_slice(), link.link.as_deref()),
            (&b"l"[..], Some(&b"x/y z"[..]))
        );
        assert_eq!((link.attributes.uid, link.attributes.gid), (7, 8));
        assert_eq!(read("lrwxrwxrwx 1 7 8 3 Nov 21 19:23 l").link, None);
        for row in ["total 0", "total 18446744073709551615"] {
            assert!(is_total(row.as_bytes()));
        }
    }

    #[test]
    fn rows_of_iis_are_read() {
        for (row, name, kind, size) in [
            (
                "11-21-26  07:23PM       <DIR>          a b",
                "a b",
                FileKind::Directory,
                0,
            ),
            (
                "11-21-2026  07:23AM       <DIR>          x",
                "x",
                FileKind::Directory,
                0,
            ),
            (
                "11-21-26  07:23PM       <DIR>           x",
                " x",
                FileKind::Directory,
                0,
            ),
            (
                "11-21-26  07:23PM           5368709120 c d.txt",
                "c d.txt",
                FileKind::File,
                5 << 30,
            ),
            (
                "11-21-26  19:23                    7  e",
                " e",
                FileKind::File,
                7,
            ),
        ] {
            let listed = read(row);
            let found = &listed.attributes;
            assert_eq!(listed.name, name.as_bytes(), "{row}");
            assert_eq!((found.kind, found.size), (kind, size), "{row}");
            assert!(!listed.has_mode && !listed.is_own);
        }
    }

    #[test]
    fn what_is_not_understood_is_an_error_that_names_it() {
        for row in [
            "",
            "x",
            "total",
            "total -1",
            "total 1 2",
            "Nov 21 19:23 a",
            "-rw-r--r-- 1 0 0 5 Nov 21 19:23",
            "-rw-r--r-- 1 0 0 5 Nov 21 19:23 ",
            "-rw-r--r-- 1 0 0 5 Nov 32 19:23 a",
            "-rw-r--r-- 1 0 0 5 Nov 21 24:00 a",
            "-rw-r--r-- 1 0 0 5 Non 21 19:23 a",
            "-rw-r--r-- 1 0 0 -5 Nov 21 19:23 a",
            "-rw-r--r-- 1 0 0 9223372036854775808 Nov 21 19:23 a",
            "-rw-r--r-- 1 0 0 99999999999999999999999 Nov 21 19:23 a",
            "-rw-r--r 1 0 0 5 Nov 21 19:23 a",
            "-rw-r--r-q 1 0 0 5 Nov 21 19:23 a",
            "-rw-r--r--xx 1 0 0 5 Nov 21 19:23 a",
            "?rw-r--r-- 1 0 0 5 Nov 21 19:23 a",
            "lrwxrwxrwx 1 0 0 5 Nov 21 19:23 a -> b -> c",
            "-rw-r--r-- 1 me us Nov 21 19:23 a",
            "13-21-26  07:23PM       <DIR>          x",
            "11-21-26  07:23PM       <JUNCTION>     x [C:\\y]",
            "11-21-26  07:23PM       1,024 x",
            "11-21-26  7PM  12 x",
            "2026-11-21 07:23 12 x",
            "-rw-r--r-- 1 0 0 5 2026-11-21 19:23 a",
            "R F  0  me 1 Nov 21 19:23 a",
            // Dates of other forms, and names that look like a size and a date.
            "-rw-r--r-- 1 0 0 5 2026-11-21 19:23 100 Nov 21 19:23 a",
            "-rw-r--r-- 1 0 0 5 21.11.2026 100 Nov 21 19:23 a",
            "-rw-r--r-- 1 0 0 5 21 Nov 2026 100 Nov 21 19:23 a",
            "-rw-r--r-- 1 0 0 5 21 Nov 19:23 100 Nov 21 19:23 a",
            "-rw-r--r-- 1 0 0 5 19:23:11 100 Nov 21 19:23 a",
        ] {
            let error = parse_long_row(row.as_bytes()).unwrap_err();
            let is_named = match &error {
                RowError::Unknown(named) => named == row.as_bytes(),
                RowError::BadName(name) => name.is_empty(),
                _ => false,
            };
            assert!(is_named, "{row}: {error:?}");
        }
    }

    #[test]
    fn names_that_lead_elsewhere_are_refused() {
        for name in ["a/b", "/etc/passwd", "../x", "a\0b", "a\rb"] {
            for before in ["-rw-r--r-- 1 0 0 5 Nov 21 19:23 ", "11-21-26  07:23PM   5 "] {
                let row = format!("{before}{name}");
                let error = parse_long_row(row.as_bytes()).unwrap_err();
                assert!(matches!(error, RowError::BadName(_)), "{row:?}: {error:?}");
            }
        }
    }

    /// Rows from pieces of rows: whatever they make, a name is one, and nothing panics.
    #[test]
    fn no_mixture_of_rows_makes_a_name_that_is_none() {
        let rows: [&[u8]; 5] = [
            b"-rw-r--r-- 1 0 0 5 Nov 21 19:23 ../a",
            b"lrwxrwxrwx 1 0 0 5 Nov 21 19:23 a -> b",
            b"11-21-26  07:23PM       <DIR>          x",
            b"11-21-26  07:23PM   99999999999999 \xff\x00",
            b"total 12 -> <DIR> \r\n Nov 1 2020",
        ];
        for a in rows {
            for b in rows {
                for cut in 0..=a.len() {
                    for from in 0..b.len() {
                        let row = [&a[..cut], &b[from..]].concat();
                        if let Ok(listed) = parse_long_row(&row) {
                            assert!(listed.is_own || is_entry_name(&listed.name), "{row:?}");
                            assert!(i64::try_from(listed.attributes.size).is_ok());
                        }
                    }
                }
            }
        }
    }
}
