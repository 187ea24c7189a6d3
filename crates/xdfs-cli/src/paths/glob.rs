//! Patterns of names: `*`, `?`, `[a-z]`, `[!a]`, and `\` before a literal character.
//!
//! Names are bytes; valid UTF-8 in them is matched by characters. The semantics are those of
//! fnmatch(3) without flags, but without classes such as `[:alpha:]`.

/// One position of a pattern.
#[derive(Clone, Debug, PartialEq, Eq)]
enum Item {
    /// Any text, even empty.
    Any,
    /// Any character.
    One,
    /// This character.
    Is(Unit),
    /// A character within (or, if `not`, outside) these inclusive ranges.
    In {
        not: bool,
        ranges: Vec<(Unit, Unit)>,
    },
}

/// A character, or a stray byte, numbered above all characters.
type Unit = u32;

/// Offset of stray bytes.
const STRAY: u32 = 0x0011_0000;

fn units(name: &[u8]) -> Vec<Unit> {
    let mut units = Vec::with_capacity(name.len());
    for chunk in name.utf8_chunks() {
        units.extend(chunk.valid().chars().map(u32::from));
        units.extend(chunk.invalid().iter().map(|&byte| STRAY + u32::from(byte)));
    }
    units
}

/// A pattern of names.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Glob(Vec<Item>);

impl Glob {
    /// Parses a pattern. An unclosed bracket is literal.
    pub(crate) fn new(pattern: &[u8]) -> Self {
        let pattern = units(pattern);
        let is = |unit: Unit, c: char| unit == u32::from(c);
        let mut items = Vec::new();
        let mut rest = pattern.as_slice();
        while let Some((&unit, after)) = rest.split_first() {
            rest = after;
            items.push(if is(unit, '*') {
                Item::Any
            } else if is(unit, '?') {
                Item::One
            } else if is(unit, '\\') && !after.is_empty() {
                rest = &after[1..];
                Item::Is(after[0])
            } else if is(unit, '[')
                && let Some((item, after)) = bracket(after)
            {
                rest = after;
                item
            } else {
                Item::Is(unit)
            });
        }
        Self(items)
    }

    /// Whether the whole name matches. The number of steps is at most the product of the lengths of
    /// name and pattern.
    pub(crate) fn matches(&self, name: &[u8]) -> bool {
        let (items, name) = (&self.0, units(name));
        let (mut item, mut at) = (0, 0);
        // Where to backtrack if the rest doesn't match: only the last `*` can help.
        let mut again = None;
        loop {
            match items.get(item) {
                None if at == name.len() => return true,
                Some(Item::Any) => {
                    again = Some((item, at));
                    item += 1;
                    continue;
                }
                Some(wanted) if name.get(at).is_some_and(|&unit| wanted.holds(unit)) => {
                    item += 1;
                    at += 1;
                    continue;
                }
                _ => {}
            }
            match again {
                Some((star, from)) if from < name.len() => {
                    again = Some((star, from + 1));
                    item = star + 1;
                    at = from + 1;
                }
                _ => return false,
            }
        }
    }
}

impl Item {
    fn holds(&self, unit: Unit) -> bool {
        match self {
            Self::Any => false,
            Self::One => true,
            Self::Is(wanted) => *wanted == unit,
            Self::In { not, ranges } => {
                let found = ranges
                    .iter()
                    .any(|&(first, last)| (first..=last).contains(&unit));
                found != *not
            }
        }
    }
}

/// Parses the text after an opening bracket, and returns the text after the closing one.
fn bracket(text: &[Unit]) -> Option<(Item, &[Unit])> {
    let is = |at: usize, c: char| text.get(at) == Some(&u32::from(c));
    let not = is(0, '!') || is(0, '^');
    let start = usize::from(not);
    let mut at = start;
    let mut ranges = Vec::new();
    // A closing bracket in first place is literal.
    while at == start || !is(at, ']') {
        if is(at, '\\') {
            at += 1;
        }
        let first = *text.get(at)?;
        at += 1;
        let mut last = first;
        if is(at, '-') && !is(at + 1, ']') {
            at += 1 + usize::from(is(at + 1, '\\'));
            last = *text.get(at)?;
            at += 1;
        }
        ranges.push((first, last));
    }
    Some((Item::In { not, ranges }, &text[at + 1..]))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn matches(pattern: &str, name: impl AsRef<[u8]>) -> bool {
        Glob::new(pattern.as_bytes()).matches(name.as_ref())
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
            ("\\*", "*"),
            ("[", "["),
            ("[a", "[a"),
            ("a\\", "a\\"),
            ("{a,b}", "{a,b}"),
            ("!a", "!a"),
            ("**", "x"),
        ] {
            assert!(matches(pattern, name), "{pattern} {name}");
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
            ("\\*", "x"),
            ("a*b", "a"),
        ] {
            assert!(!matches(pattern, name), "{pattern} {name}");
        }
    }

    #[test]
    fn bytes_that_are_no_text_are_one_each() {
        assert!(matches("?", b"\xff") && matches("a*", b"a\xff\xfe") && !matches("?", b"\xff\xfe"));
        assert!(Glob::new(b"\xff*").matches(b"\xffx") && !Glob::new(b"\xff").matches(b"\xfe"));
        assert!(!matches("[a-z]", b"\xff") && matches("[!a-z]", b"\xff"));
    }

    #[test]
    fn a_pattern_of_many_stars_ends_soon() {
        let pattern = "*a".repeat(200);
        assert!(!matches(&pattern, "a".repeat(199)));
        assert!(matches(&pattern, "a".repeat(255)));
    }
}
