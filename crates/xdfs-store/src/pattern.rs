//! Patterns of names and paths, with the meaning that gitignore files give them: the only engine,
//! for filters, `find`, wildcards on command lines and in listings of the GridFTP door.
//!
//! `*` is any text without a slash, `?` any character but a slash, `[a-z]`, `[!a-z]` and `[^a-z]`
//! are sets with ranges and the classes of POSIX (`[[:digit:]]`, ASCII only), and `\` makes the
//! next character literal. Braces are characters. A pattern that is malformed (an open bracket, an
//! unknown class, a `\` at its end) matches nothing.

/// One position of a pattern.
#[derive(Clone, Debug)]
enum Item {
    /// Any text without a slash, even empty.
    Any,
    /// Any text, even empty.
    Deep,
    /// Nothing, or any text that ends in a slash.
    Folders,
    /// Any character but a slash.
    One,
    /// This character.
    Is(Unit),
    /// A character in (or, if `not`, outside) a set, but no slash.
    In { not: bool, set: Vec<Member> },
}

/// Members of a set.
#[derive(Clone, Debug)]
enum Member {
    /// A range with both its ends.
    Range(Unit, Unit),
    /// A class of ASCII characters.
    Class(fn(u8) -> bool),
}

/// A character, or a stray byte, numbered above all characters; in patterns of paths a byte.
type Unit = u32;

/// Offset of stray bytes.
const STRAY: u32 = 0x0011_0000;
const SLASH: Unit = '/' as Unit;

fn units(name: &[u8]) -> Vec<Unit> {
    let mut units = Vec::with_capacity(name.len());
    for chunk in name.utf8_chunks() {
        units.extend(chunk.valid().chars().map(u32::from));
        units.extend(chunk.invalid().iter().map(|&byte| STRAY + u32::from(byte)));
    }
    units
}

/// A pattern of single names, as shells and `find -name` take them: where a name is UTF-8, `?` and
/// sets match its characters, and elsewhere bytes.
#[derive(Clone, Debug)]
pub struct NamePattern(Option<Vec<Item>>);

impl NamePattern {
    /// Parses a pattern.
    #[must_use]
    pub fn new(pattern: &[u8]) -> Self {
        Self(parse(&units(pattern), Kind::Name))
    }

    /// Whether the whole name matches. Takes time by the product of both lengths at most.
    #[must_use]
    pub fn matches(&self, name: &[u8]) -> bool {
        let holds = |items: &Vec<Item>| match name.is_ascii() {
            true => matches(items, name),
            false => matches(items, &units(name)),
        };
        self.0.as_ref().is_some_and(holds)
    }

    /// Whether a wildcard stands for a name: as [`matches`](Self::matches), except that a dot at
    /// the beginning of a name has to be written.
    #[must_use]
    pub fn stands_for(&self, name: &[u8]) -> bool {
        let first = self.0.as_ref().and_then(|items| items.first());
        let has_dot = matches!(first, Some(Item::Is(unit)) if *unit == u32::from('.'));
        (has_dot || !name.starts_with(b".")) && self.matches(name)
    }

    /// Whether a text has a special character without a `\` before it.
    #[must_use]
    pub fn is_wildcard(text: &[u8]) -> bool {
        let mut bytes = text.iter();
        while let Some(byte) = bytes.next() {
            match byte {
                b'\\' => {
                    bytes.next();
                }
                b'*' | b'?' | b'[' => return true,
                _ => {}
            }
        }
        false
    }
}

/// A pattern of a gitignore file, without `!`, and without the slash at its end. As for git, `?`
/// and sets match bytes.
#[derive(Clone, Debug)]
pub struct PathPattern {
    items: Option<Vec<Item>>,
    /// It has no slash, and matches the last part of a path.
    is_name: bool,
}

impl PathPattern {
    /// Parses a pattern.
    #[must_use]
    pub fn new(pattern: &[u8]) -> Self {
        let is_name = !pattern.contains(&b'/');
        let kind = if is_name { Kind::Name } else { Kind::Path };
        let bytes = pattern.strip_prefix(b"/").unwrap_or(pattern);
        let bytes: Vec<Unit> = bytes.iter().map(|&byte| byte.into()).collect();
        Self {
            items: parse(&bytes, kind),
            is_name,
        }
    }

    /// Whether it is well-formed; otherwise it matches nothing.
    #[must_use]
    pub fn is_valid(&self) -> bool {
        self.items.is_some()
    }

    /// Whether a path matches, relative to the directory of the gitignore file.
    #[must_use]
    pub fn matches(&self, path: &[u8]) -> bool {
        let path = match self.is_name {
            true => path.rsplit(|&byte| byte == b'/').next().unwrap_or(path),
            false => path,
        };
        self.items
            .as_ref()
            .is_some_and(|items| matches(items, path))
    }
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Kind {
    Name,
    Path,
}

/// The items of a pattern; `None` if it is malformed.
fn parse(pattern: &[Unit], kind: Kind) -> Option<Vec<Item>> {
    let is = |unit: Option<&Unit>, c: char| unit == Some(&u32::from(c));
    let mut items = Vec::new();
    let mut at = 0;
    while let Some(&unit) = pattern.get(at) {
        at += 1;
        items.push(match char::from_u32(unit) {
            Some('*') => {
                let start = at - 1;
                while is(pattern.get(at), '*') {
                    at += 1;
                }
                // Git compares the part before the first special character by itself, so that
                // stars behind it are at a beginning.
                let is_first = items.iter().all(|item| matches!(item, Item::Is(_)))
                    && !pattern[..start].contains(&u32::from('\\'));
                let is_part = is_first || is(pattern[..start].last(), '/');
                let before_slash = is(pattern.get(at), '/');
                let is_last = at == pattern.len()
                    || before_slash
                    || is(pattern.get(at), '\\') && is(pattern.get(at + 1), '/');
                if kind == Kind::Name || at - start == 1 || !is_part || !is_last {
                    Item::Any
                } else if before_slash {
                    at += 1;
                    Item::Folders
                } else {
                    Item::Deep
                }
            }
            Some('?') => Item::One,
            Some('[') => {
                let (item, after) = set(pattern, at)?;
                at = after;
                item
            }
            Some('\\') => {
                let unit = *pattern.get(at)?;
                at += 1;
                Item::Is(unit)
            }
            _ => Item::Is(unit),
        });
    }
    Some(items)
}

/// The set whose first member is at `at`, and where the pattern continues.
fn set(pattern: &[Unit], mut at: usize) -> Option<(Item, usize)> {
    let is = |at: usize, c: char| pattern.get(at) == Some(&u32::from(c));
    let not = is(at, '!') || is(at, '^');
    at += usize::from(not);
    let start = at;
    let mut set = Vec::new();
    // The beginning of a range, if a dash follows.
    let mut first = None;
    // A closing bracket in first place is a member.
    while at == start || !is(at, ']') {
        let unit = *pattern.get(at)?;
        if is(at, '-')
            && let Some(from) = first.take()
            && pattern.get(at + 1).is_some()
            && !is(at + 1, ']')
        {
            at += 1 + usize::from(is(at + 1, '\\'));
            set.push(Member::Range(from, *pattern.get(at)?));
            at += 1;
            continue;
        }
        if is(at, '[') && is(at + 1, ':') {
            let name = at + 2;
            let length = pattern[name..].iter().position(|&u| u == u32::from(']'))?;
            let end = name + length;
            if length > 0 && is(end - 1, ':') {
                set.push(Member::Class(class(&pattern[name..end - 1])?));
                first = None;
                at = end + 1;
                continue;
            }
        }
        at += usize::from(unit == u32::from('\\'));
        let unit = *pattern.get(at)?;
        set.push(Member::Range(unit, unit));
        first = Some(unit);
        at += 1;
    }
    Some((Item::In { not, set }, at + 1))
}

/// The class of this name.
fn class(name: &[Unit]) -> Option<fn(u8) -> bool> {
    let name: Option<String> = name.iter().map(|&unit| char::from_u32(unit)).collect();
    Some(match name?.as_str() {
        "alnum" => |byte| byte.is_ascii_alphanumeric(),
        "alpha" => |byte| byte.is_ascii_alphabetic(),
        "blank" => |byte| matches!(byte, b' ' | b'\t'),
        "cntrl" => |byte| byte.is_ascii_control(),
        "digit" => |byte| byte.is_ascii_digit(),
        "graph" => |byte| byte.is_ascii_graphic(),
        "lower" => |byte| byte.is_ascii_lowercase(),
        "print" => |byte| matches!(byte, b' '..=b'~'),
        "punct" => |byte| byte.is_ascii_punctuation(),
        // Git's own; in C two more belong to it.
        "space" => |byte| matches!(byte, b' ' | b'\t' | b'\n' | b'\r'),
        "upper" => |byte| byte.is_ascii_uppercase(),
        "xdigit" => |byte| byte.is_ascii_hexdigit(),
        _ => return None,
    })
}

impl Item {
    /// Whether it stands for this one character.
    fn holds(&self, unit: Unit) -> bool {
        match self {
            Self::Any | Self::Deep | Self::Folders => false,
            Self::One => unit != SLASH,
            Self::Is(wanted) => *wanted == unit,
            Self::In { not, set } => {
                unit != SLASH && set.iter().any(|member| member.holds(unit)) != *not
            }
        }
    }

    fn is_star(&self) -> bool {
        matches!(self, Self::Any | Self::Deep | Self::Folders)
    }
}

impl Member {
    fn holds(&self, unit: Unit) -> bool {
        match self {
            Self::Range(first, last) => (*first..=*last).contains(&unit),
            Self::Class(class) => {
                u8::try_from(unit).is_ok_and(|byte| byte.is_ascii() && class(byte))
            }
        }
    }
}

/// Whether the whole text matches.
fn matches<T: Copy + Into<Unit>>(items: &[Item], text: &[T]) -> bool {
    // The part behind the last star decides most often.
    let tail = items.iter().rev().take_while(|item| !item.is_star());
    if !tail
        .zip(text.iter().rev())
        .all(|(item, &unit)| item.holds(unit.into()))
    {
        return false;
    }
    let (mut item, mut at) = (0, 0);
    // Where to begin again if the rest doesn't match: it suffices that the last star of each kind
    // takes more. Each is behind an item, with where the text behind it began.
    let mut any: Option<(usize, usize)> = None;
    let mut deep: Option<(usize, usize)> = None;
    loop {
        match items.get(item) {
            None if at == text.len() => return true,
            Some(star @ (Item::Any | Item::Deep | Item::Folders)) => {
                item += 1;
                match star {
                    Item::Any => any = Some((item, at)),
                    _ => (any, deep) = (None, Some((item, at))),
                }
                continue;
            }
            Some(wanted) if text.get(at).is_some_and(|&unit| wanted.holds(unit.into())) => {
                item += 1;
                at += 1;
                continue;
            }
            _ => {}
        }
        let takes_more = |from: &(usize, usize)| {
            let next = text.get(from.1);
            next.is_some_and(|&unit| unit.into() != SLASH)
        };
        if let Some((behind, from)) = any.filter(takes_more) {
            any = Some((behind, from + 1));
            (item, at) = (behind, from + 1);
            continue;
        }
        let Some((behind, from)) = deep else {
            return false;
        };
        let rest = text.get(from..).unwrap_or_default();
        let is_deep = matches!(items.get(behind - 1), Some(Item::Deep));
        let is_end = |&unit: &T| is_deep || unit.into() == SLASH;
        let Some(taken) = rest.iter().position(is_end) else {
            return false;
        };
        any = None;
        deep = Some((behind, from + taken + 1));
        (item, at) = (behind, from + taken + 1);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn is_name(pattern: &str, name: impl AsRef<[u8]>) -> bool {
        NamePattern::new(pattern.as_bytes()).matches(name.as_ref())
    }

    #[test]
    fn patterns_match_whole_names() {
        for (pattern, name) in [
            ("", ""),
            ("a", "a"),
            ("*", ""),
            ("*", "a.b"),
            ("*.dat", "x.dat"),
            ("*.dat", ".dat"),
            ("a*b*c", "aXbYbZc"),
            ("?", "\u{e9}"),
            ("[a-c]x", "bx"),
            ("[!a-c]x", "dx"),
            ("[^a]", "b"),
            ("[]]", "]"),
            ("[a-]", "-"),
            ("[\\]]", "]"),
            ("[a-c-e]", "-"),
            ("[[:digit:]-z]", "-"),
            ("file[[:digit:]]", "file7"),
            ("[[:upper:][:space:]_]", "_"),
            ("[[:]", ":"),
            ("[[:]", "["),
            ("[[:x]", "x"),
            ("[\u{e0}-\u{ff}]", "\u{e9}"),
            ("\\*", "*"),
            ("{a,b}", "{a,b}"),
            ("!a", "!a"),
            ("**", "x"),
        ] {
            assert!(is_name(pattern, name), "{pattern} {name}");
        }
        for (pattern, name) in [
            ("", "a"),
            ("a", "ab"),
            ("*.dat", "x.data"),
            ("?", ""),
            ("?", "ab"),
            ("[a-c]", "d"),
            ("[!a]", "a"),
            ("[a-c]", ""),
            ("[[:digit:]]", "a"),
            ("[[:alpha:]]", "\u{e9}"),
            ("[c-a]", "b"),
            ("\\*", "x"),
            ("a*b", "a"),
            ("{a,b}", "a"),
            // Malformed.
            ("[", "["),
            ("[a", "[a"),
            ("[]", "[]"),
            ("[[:digit:]", "1"),
            ("[[:number:]]", "1"),
            ("a\\", "a\\"),
        ] {
            assert!(!is_name(pattern, name), "{pattern} {name}");
        }
    }

    #[test]
    fn bytes_that_are_no_text_are_one_each() {
        assert!(is_name("?", b"\xff") && is_name("a*", b"a\xff\xfe") && !is_name("?", b"\xff\xfe"));
        let pattern = NamePattern::new(b"\xff*");
        assert!(pattern.matches(b"\xffx") && !NamePattern::new(b"\xff").matches(b"\xfe"));
        assert!(!is_name("[a-z]", b"\xff") && is_name("[!a-z]", b"\xff"));
    }

    #[test]
    fn wildcards_stand_for_hidden_names_only_with_their_dot() {
        let stands = |text: &str, name: &str| {
            assert!(NamePattern::is_wildcard(text.as_bytes()), "{text}");
            NamePattern::new(text.as_bytes()).stands_for(name.as_bytes())
        };
        for (text, name) in [(".*", ".a"), ("\\.?", ".a"), ("[ab]", "a"), ("*", "a.b")] {
            assert!(stands(text, name), "{text} {name}");
        }
        for (text, name) in [("*", ".a"), ("?a", ".a"), ("[.]a*", ".a"), ("[!b]a", ".a")] {
            assert!(!stands(text, name), "{text} {name}");
        }
        for text in ["a", "\\*", "a\\", "{a,b}", "]"] {
            assert!(!NamePattern::is_wildcard(text.as_bytes()), "{text}");
        }
    }

    #[test]
    fn patterns_of_paths() {
        let is_path = |pattern: &str, path: &str| {
            PathPattern::new(pattern.as_bytes()).matches(path.as_bytes())
        };
        for (pattern, path) in [
            ("a", "x/a"),
            ("/a", "a"),
            ("x/a", "x/a"),
            ("x/*", "x/a"),
            ("**/a", "a"),
            ("**/a", "x/y/a"),
            ("x/**", "x/y/a"),
            ("x/**/a", "x/a"),
            ("x/**/y/*a", "x/1/y/2/y/3a"),
            ("*/**/c*/d", "a/b/c/c1/d"),
            ("a**/b", "ax/y/b"),
        ] {
            assert!(is_path(pattern, path), "{pattern} {path}");
        }
        for (pattern, path) in [
            ("/a", "x/a"),
            ("x/*", "x/y/a"),
            ("x?a", "x/a"),
            ("x[/]a", "x/a"),
            ("x[!b]a", "x/a"),
            ("x/**", "x"),
            ("?a**/b", "xax/y/b"),
            ("x/**/a", "xx/a"),
        ] {
            assert!(!is_path(pattern, path), "{pattern} {path}");
        }
    }

    #[test]
    fn patterns_of_many_stars_end_soon() {
        let pattern = "*a".repeat(200);
        assert!(!is_name(&pattern, "a".repeat(199)));
        assert!(is_name(&pattern, "a".repeat(255)));
        let pattern = "*a".repeat(4000) + "b*c";
        assert!(!is_name(&pattern, "a".repeat(254) + "c"));
        let pattern = "**/a*".repeat(100) + "/b";
        assert!(!PathPattern::new(pattern.as_bytes()).matches("a/".repeat(1000).as_bytes()));
    }
}
