//! Rows of LIST, read: those of `ls -l`, as Unix servers write them, and those of IIS.
//!
//! No standard says how they look. Rows of `ls` may begin with an inode and blocks, and their dates
//! be of several languages and of ISO 8601. What isn't in one of these forms is refused together
//! with its listing, since a guess could take one file for another. Times in them mostly have no
//! zone and no seconds, and are left out.

use xdfs_proto::path::{Attributes, FileKind, NO_TIME_NS};

use super::listed::{Listed, RowError, is_entry_name};

/// Words of a row before its name, at most; a group may have several.
const WORDS_MAX: usize = 16;
/// Spaces between `<DIR>` and a name in rows of IIS.
const DOS_SPACES: usize = 10;

const ENGLISH: [&[u8]; 12] = [
    b"jan", b"feb", b"mar", b"apr", b"may", b"jun", b"jul", b"aug", b"sep", b"oct", b"nov", b"dec",
];
/// Months as `ls` writes them, without a dot behind, in lower case: in English, and then only those
/// that other languages write in another way.
const MONTHS: [&str; 12] = [
    "jan janv ene gen ian led sty tammi oca \u{44f}\u{43d}\u{432} \u{441}\u{456}\u{447}",
    "feb febr fev f\u{e9}v f\u{e9}vr \u{fa}no lut helmi \u{15f}ub \u{444}\u{435}\u{432} \
     \u{43b}\u{44e}\u{442}",
    "mar mars m\u{e4}r mrz mrt m\u{e1}rc b\u{159}e maalis \u{43c}\u{430}\u{440} \
     \u{431}\u{435}\u{440}",
    "apr april avr avril abr \u{e1}pr dub kwi huhti nis \u{430}\u{43f}\u{440} \
     \u{43a}\u{432}\u{456}",
    "may mai maj mei mag m\u{e1}j kv\u{11b} touko \u{43c}\u{430}\u{439} \u{43c}\u{430}\u{44f} \
     \u{442}\u{440}\u{430}",
    "jun juin juni giu iun j\u{fa}n \u{10d}en cze kes\u{e4} haz \u{438}\u{44e}\u{43d} \
     \u{447}\u{435}\u{440}",
    "jul jui juil juli lug iul j\u{fa}l \u{10d}ec lip hein\u{e4} tem \u{438}\u{44e}\u{43b} \
     \u{43b}\u{438}\u{43f}",
    "aug ago ao\u{fb} ao\u{fb}t srp sie elo a\u{11f}u \u{430}\u{432}\u{433} \u{441}\u{435}\u{440}",
    "sep sept set szept z\u{e1}\u{159} wrz syys eyl \u{441}\u{435}\u{43d} \u{432}\u{435}\u{440}",
    "oct okt ott out \u{159}\u{ed}j pa\u{17a} loka eki \u{43e}\u{43a}\u{442} \u{436}\u{43e}\u{432}",
    "nov noi lis marras kas \u{43d}\u{43e}\u{44f} \u{43b}\u{438}\u{441}",
    "dec dez des dic d\u{e9}c pro gru joulu ara \u{434}\u{435}\u{43a} \u{433}\u{440}\u{443}",
];
/// `total`, as `ls` says it in several languages, in lower case.
const TOTALS: [&str; 16] = [
    "total",
    "insgesamt",
    "gesamt",
    "totale",
    "totaal",
    "totalt",
    "razem",
    "celkem",
    "yhteens\u{e4}",
    "\u{f6}sszesen",
    "toplam",
    "\u{438}\u{442}\u{43e}\u{433}\u{43e}",
    "\u{437}\u{430}\u{433}\u{430}\u{43b}\u{43e}\u{43c}",
    "\u{603b}\u{7528}\u{91cf}",
    "\u{5408}\u{8a08}",
    "\u{d569}\u{acc4}",
];
/// Behind the number of a month, in Chinese and Japanese, and in Korean.
const MONTH_SIGNS: [char; 2] = ['\u{6708}', '\u{c6d4}'];
/// Behind the number of a day.
const DAY_SIGNS: [char; 3] = ['.', '\u{65e5}', '\u{c77c}'];
/// Numbers before the mode in a row, at most: the inode and the blocks.
const NUMBERS_MAX: usize = 2;

/// Reads a row, without its end.
///
/// # Errors
/// It has another form, or its name is none of an entry.
pub fn parse_long_row(row: &[u8]) -> Result<Listed, RowError> {
    let listed = match row.first() {
        Some(byte) if byte.is_ascii_digit() => of_dos(row).or_else(|| of_unix(behind_numbers(row))),
        Some(b' ') => of_unix(behind_numbers(row)),
        _ => of_unix(row),
    };
    let mut listed = listed.ok_or_else(|| RowError::Unknown(row.to_vec()))?;
    listed.is_own = matches!(listed.name.as_slice(), b"." | b"..");
    match listed.is_own || is_entry_name(&listed.name) {
        true => Ok(listed),
        false => Err(RowError::BadName(listed.name)),
    }
}

/// Whether a row tells the blocks of a directory (`total 12`), as the first one may, in any
/// language.
pub(super) fn is_total(row: &[u8]) -> bool {
    match words(row)[..] {
        [(word, _), (count, _)] => {
            let word = text_of(word);
            let word = word.strip_suffix(':').unwrap_or(&word);
            TOTALS.contains(&word) && number(count).is_some()
        }
        _ => false,
    }
}

/// A row without the numbers before the mode, if there are any.
fn behind_numbers(row: &[u8]) -> &[u8] {
    let mut rest = row;
    for _ in 0..NUMBERS_MAX {
        let begun = rest.trim_ascii_start();
        let digits = begun
            .iter()
            .take_while(|byte| byte.is_ascii_digit())
            .count();
        match &begun[digits..] {
            [b' ', behind @ ..] if digits > 0 => rest = behind.trim_ascii_start(),
            _ => break,
        }
    }
    rest
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

/// A word of a date. Servers write it in UTF-8, or in Latin-1.
fn text_of(word: &[u8]) -> String {
    let text = match std::str::from_utf8(word) {
        Ok(text) => text.to_owned(),
        Err(_) => word.iter().copied().map(char::from).collect(),
    };
    text.to_lowercase()
}

fn is_month(word: &[u8]) -> bool {
    // Nearly all words and months of long listings.
    if word.is_ascii() && !word.first().is_some_and(u8::is_ascii_alphabetic) {
        return false;
    }
    if ENGLISH.iter().any(|month| word.eq_ignore_ascii_case(month)) {
        return true;
    }
    let text = text_of(word);
    if let Some(count) = text.strip_suffix(MONTH_SIGNS) {
        return number(count.as_bytes()).is_some_and(|month| (1..=12).contains(&month));
    }
    let text = text.strip_suffix('.').unwrap_or(&text);
    let mut all = MONTHS.iter().flat_map(|names| names.split(' '));
    all.any(|name| name == text)
}

fn is_day(word: &[u8]) -> bool {
    if word.is_ascii() && !word.ends_with(b".") {
        return word.len() <= 2 && number(word).is_some_and(|day| (1..=31).contains(&day));
    }
    let text = text_of(word);
    let text = text.strip_suffix(DAY_SIGNS).unwrap_or(&text);
    text.len() <= 2 && number(text.as_bytes()).is_some_and(|day| (1..=31).contains(&day))
}

/// `YYYY-MM-DD`.
fn is_iso_date(word: &[u8]) -> bool {
    let parts: Vec<_> = word.split(|byte| *byte == b'-').collect();
    let [year, month, day] = parts[..] else {
        return false;
    };
    is_year(year) && is_two(month, 1..=12) && is_two(day, 1..=31)
}

/// Two digits of a number in a range.
fn is_two(word: &[u8], range: std::ops::RangeInclusive<u64>) -> bool {
    word.len() == 2 && number(word).is_some_and(|count| range.contains(&count))
}

/// `HH:MM:SS`, also with a fraction behind.
fn is_long_clock(word: &[u8]) -> bool {
    let (whole, fraction) = match word.iter().position(|byte| *byte == b'.') {
        Some(dot) => (&word[..dot], &word[dot + 1..]),
        None => (word, &b"0"[..]),
    };
    let end = whole.len().saturating_sub(3);
    let (clock, seconds) = whole.split_at(end);
    let seconds = seconds.strip_prefix(b":").unwrap_or_default();
    is_clock(clock) && is_two(seconds, 0..=60) && fraction.iter().all(u8::is_ascii_digit)
}

/// `+HHMM`.
fn is_zone(word: &[u8]) -> bool {
    let digits = word.strip_prefix(b"+").or_else(|| word.strip_prefix(b"-"));
    digits.is_some_and(|digits| digits.len() == 4 && number(digits).is_some())
}

/// The number of words that tell a date at the beginning of some words of a row.
fn date_words(row: &[u8], words: &[(&[u8], usize)]) -> Option<usize> {
    let word = |at: usize| words.get(at).map_or(&b""[..], |(word, _)| word);
    let is_time = |word: &[u8]| is_clock(word) || is_year(word);
    let (first, second, third) = (word(0), word(1), word(2));
    let is_either = is_month(first) && is_day(second) || is_day(first) && is_month(second);
    if is_either && is_time(third) {
        return Some(3);
    }
    if !is_iso_date(first) {
        // `MM-DD`
        let parts: Vec<_> = first.split(|byte| *byte == b'-').collect();
        let is_recent = matches!(parts[..], [month, day]
            if is_two(month, 1..=12) && is_two(day, 1..=31));
        return (is_recent && is_clock(second)).then_some(2);
    }
    // Where the time is left out, a blank stands for it.
    let (_, end) = words.first()?;
    if row.get(*end..)?.starts_with(b"  ") {
        return Some(1);
    }
    match is_long_clock(second) {
        true if is_zone(third) => Some(3),
        true => Some(2),
        false => is_clock(second).then_some(2),
    }
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
    let (date, count) = (2..words.len()).find_map(|at| {
        number(words[at - 1].0)?;
        date_words(row, &words[at..]).map(|count| (at, count))
    })?;
    if tells_time(&words[1..date - 1]) {
        return None;
    }
    let blanks = if count == 1 { &b"  "[..] } else { b" " };
    let name = row.get(words[date + count - 1].1..)?.strip_prefix(blanks)?;
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

/// `11-21-26  07:23PM                  100 name`, with `<DIR>` in place of the size of a directory;
/// also with the date of ISO 8601.
fn of_dos(row: &[u8]) -> Option<Listed> {
    let words = words(row);
    let [(date, _), (time, _), (what, end), ..] = words[..] else {
        return None;
    };
    let parts: Vec<_> = date.split(|byte| *byte == b'-').collect();
    let [month, day, year] = parts[..] else {
        return None;
    };
    let is_date = is_two(month, 1..=12)
        && is_two(day, 1..=31)
        && matches!(year.len(), 2 | 4)
        && number(year).is_some()
        || is_iso_date(date);
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
            mtime_ns: NO_TIME_NS,
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
            assert_eq!(found.mtime(), None);
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
    fn dates_of_other_languages_and_forms_are_read() {
        let (name, size) = ("a b 7 Nov 21 19:23 c", 12);
        for date in [
            "21. Okt 19:23",
            "M\u{e4}r 21 19:23",
            "21 d\u{e9}c.  2020",
            "ao\u{fb}t  1 19:23",
            "21 \u{43d}\u{43e}\u{44f} 19:23",
            "11\u{6708} 21 19:23",
            "11\u{c6d4} 21\u{c77c} 2020",
            "\u{15e}ub 21 19:23",
            "2026-11-21 19:23",
            "2026-11-21 19:23:11",
            "2026-11-21 19:23:11.123456789 +0100",
            "11-21 19:23",
            "2020-11-21 ",
        ] {
            for before in ["", "1234 ", "  1234   8 "] {
                let row = format!("{before}-rw-r----- 1 me us {size} {date} {name}");
                let listed = read(&row);
                assert_eq!(listed.name, name.as_bytes(), "{row}");
                let found = &listed.attributes;
                assert_eq!((found.size, found.mode), (size, 0o640), "{row}");
            }
        }
        // In Latin-1.
        let row = b"-rw-r--r-- 1 0 0 5 21 f\xe9vr. 19:23 a";
        assert_eq!(parse_long_row(row).unwrap().name, b"a");
        for name in ["19:23 a", " a", "+0100", "2020"] {
            let row = format!("-rw-r--r-- 1 0 0 5 2020-11-21  {name}");
            assert_eq!(read(&row).name, name.as_bytes(), "{row}");
        }
        for (row, name) in [
            (
                "-rw-r--r-- 1 0 0 5 2026-11-21 19:23 100 Nov 21 19:23 a",
                "100 Nov 21 19:23 a",
            ),
            (
                "-rw-r--r-- 1 0 0 5 21 Nov 2026 100 Nov 21 19:23 a",
                "100 Nov 21 19:23 a",
            ),
            ("-rw-r--r-- 1 0 0 5 2026-11-21 19:23 +0100", "+0100"),
            ("2026-11-21  07:23                12 x y", "x y"),
            ("2026-11-21  07:23PM       <DIR>          x", "x"),
        ] {
            assert_eq!(read(row).name, name.as_bytes(), "{row}");
        }
        for row in [
            "total 12",
            "insgesamt 12",
            "\u{603b}\u{7528}\u{91cf} 12",
            "total: 0",
        ] {
            assert!(is_total(row.as_bytes()), "{row}");
        }
        for row in ["total", "total 1 2", "total -1", "1 2", "-rw 5", "file 5"] {
            assert!(!is_total(row.as_bytes()), "{row}");
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
            "2026-11-21 07:23 x",
            "2026-21-11 07:23 12 x",
            "21-11-26  07:23 12 x",
            "-rw-r--r-- 1 0 0 5 2026-13-21 19:23 a",
            "-rw-r--r-- 1 0 0 5 2026-11-21 a",
            "-rw-r--r-- 1 0 0 5 2026-11-21 19:23",
            "-rw-r--r-- 1 0 0 5 21-11 19:23 a",
            "-rw-r--r-- 1 0 0 5 13\u{6708} 21 19:23 a",
            "1 2 3 -rw-r--r-- 1 0 0 5 Nov 21 19:23 a",
            "12 Nov 21 19:23 a",
            "R F  0  me 1 Nov 21 19:23 a",
            // Dates of other forms, and names that look like a size and a date.
            "-rw-r--r-- 1 0 0 5 21.11.2026 100 Nov 21 19:23 a",
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
