//! Wildcards in the last part of a path of LIST and NLST, as shells have them: `*`, `?`, `[a-z]`.

/// The directory and the pattern of a path whose last part has a wildcard.
#[must_use]
pub(crate) fn split(path: &[u8]) -> Option<(&[u8], &[u8])> {
    let slash = path.iter().rposition(|byte| *byte == b'/')?;
    let (folder, pattern) = (&path[..slash], &path[slash + 1..]);
    let is_wild = pattern
        .iter()
        .any(|byte| matches!(byte, b'*' | b'?' | b'['));
    let folder: &[u8] = if folder.is_empty() { b"/" } else { folder };
    is_wild.then_some((folder, pattern))
}

/// Whether a name matches a pattern. A wildcard at its beginning doesn't match a dot there. Takes
/// time by the product of both lengths at most.
#[must_use]
pub(crate) fn matches(pattern: &[u8], name: &[u8]) -> bool {
    if name.first() == Some(&b'.') && pattern.first() != Some(&b'.') {
        return false;
    }
    let (mut at, mut taken) = (0, 0);
    // Behind the last star, and how much of the name it has taken so far.
    let mut star = None;
    loop {
        let rest = pattern.get(at..).unwrap_or_default();
        match (rest, name.get(taken)) {
            ([b'*', ..], _) => {
                at += 1;
                star = Some((at, taken));
                continue;
            }
            ([], None) => return true,
            (_, Some(byte)) => {
                if let Some(used) = one(rest, *byte) {
                    (at, taken) = (at + used, taken + 1);
                    continue;
                }
            }
            (_, None) => return false,
        }
        let Some((behind, from)) = star else {
            return false;
        };
        star = Some((behind, from + 1));
        (at, taken) = (behind, from + 1);
    }
}

/// The bytes of a pattern's first part, if that matches a byte.
fn one(pattern: &[u8], byte: u8) -> Option<usize> {
    match pattern {
        [b'?', ..] => Some(1),
        [b'[', set @ ..] => match set_end(set) {
            Some(end) => is_in(&set[..end], byte).then_some(end + 2),
            // Without an end it stands for itself.
            None => (byte == b'[').then_some(1),
        },
        [own, ..] => (*own == byte).then_some(1),
        [] => None,
    }
}

/// Where a set ends. A bracket at its beginning belongs to it.
fn set_end(set: &[u8]) -> Option<usize> {
    let start = usize::from(matches!(set.first(), Some(b'!' | b'^'))) + 1;
    let end = set.get(start..)?.iter().position(|byte| *byte == b']')?;
    Some(start + end)
}

fn is_in(set: &[u8], byte: u8) -> bool {
    let (is_other, mut set) = match set {
        [b'!' | b'^', rest @ ..] => (true, rest),
        set => (false, set),
    };
    let mut is_found = false;
    loop {
        set = match set {
            [first, b'-', last, rest @ ..] => {
                is_found |= (*first..=*last).contains(&byte);
                rest
            }
            [own, rest @ ..] => {
                is_found |= *own == byte;
                rest
            }
            [] => return is_found != is_other,
        };
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_match_as_in_shells() {
        for (pattern, name) in [
            ("*", "a"),
            ("*.txt", "a.txt"),
            ("a*b*c", "abxbc"),
            ("?", "x"),
            ("[a-c]1", "b1"),
            ("[!a-c]1", "d1"),
            ("[]x]", "]"),
            ("[a", "[a"),
            ("a**", "a"),
            (".*", ".hidden"),
            ("[a-]", "-"),
            ("a\\*", "a\\b"),
        ] {
            assert!(
                matches(pattern.as_bytes(), name.as_bytes()),
                "{pattern} {name}"
            );
        }
        for (pattern, name) in [
            ("*", ".hidden"),
            ("?hidden", ".hidden"),
            ("[.]hidden", ".hidden"),
            ("*.txt", "a.txt2"),
            ("?", ""),
            ("?", "ab"),
            ("[a-c]", "d"),
            ("[!a-c]", "b"),
            ("a", "ab"),
            ("ab", "a"),
            ("", "a"),
        ] {
            assert!(
                !matches(pattern.as_bytes(), name.as_bytes()),
                "{pattern} {name}"
            );
        }
    }

    #[test]
    fn the_worst_pattern_takes_little_time() {
        let (pattern, name) = ("*a".repeat(4000) + "b", "a".repeat(255));
        assert!(!matches(pattern.as_bytes(), name.as_bytes()));
    }

    #[test]
    fn only_the_last_part_has_wildcards() {
        assert_eq!(split(b"/a/*.c"), Some((&b"/a"[..], &b"*.c"[..])));
        assert_eq!(split(b"/x[1]"), Some((&b"/"[..], &b"x[1]"[..])));
        for path in [&b"/*/a"[..], b"/a", b"/", b""] {
            assert_eq!(split(path), None);
        }
    }
}
