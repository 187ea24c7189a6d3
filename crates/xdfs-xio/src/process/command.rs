//! Command lines as words.

/// Splits a command line at blanks. Single quotes keep everything, double quotes everything but a
/// backslash before a double quote or a backslash, and a backslash outside of quotes keeps the
/// next character. `None` if a quote or a backslash has no end, or there is no word.
pub(super) fn split(line: &str) -> Option<Vec<String>> {
    let mut words = Vec::new();
    let mut word: Option<String> = None;
    let mut chars = line.chars().peekable();
    while let Some(c) = chars.next() {
        match c {
            ' ' | '\t' | '\n' => words.extend(word.take()),
            '\'' => {
                let word = word.get_or_insert_default();
                loop {
                    match chars.next()? {
                        '\'' => break,
                        c => word.push(c),
                    }
                }
            }
            '"' => {
                let word = word.get_or_insert_default();
                loop {
                    match chars.next()? {
                        '"' => break,
                        '\\' => match chars.next()? {
                            c @ ('"' | '\\') => word.push(c),
                            c => word.extend(['\\', c]),
                        },
                        c => word.push(c),
                    }
                }
            }
            '\\' => word.get_or_insert_default().push(chars.next()?),
            c => word.get_or_insert_default().push(c),
        }
    }
    words.extend(word);
    (!words.is_empty()).then_some(words)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn words_are_those_of_a_shell() {
        for (line, words) in [
            ("sort -n", &["sort", "-n"][..]),
            ("  a \t b\n", &["a", "b"]),
            ("'a b' \"c d\"", &["a b", "c d"]),
            ("a'b'\"c\"d", &["abcd"]),
            ("'' \"\"", &["", ""]),
            (r#""a\"b\\c\d""#, &[r#"a"b\c\d"#]),
            (r"a\ b \'", &["a b", "'"]),
            (r"'a\'", &[r"a\"]),
            ("$HOME; `x` | y", &["$HOME;", "`x`", "|", "y"]),
        ] {
            let wanted: Vec<String> = words.iter().map(|w| (*w).to_owned()).collect();
            assert_eq!(split(line), Some(wanted), "{line}");
        }
        for line in ["", "  ", "'a", "\"a", "\"a\\", "a\\"] {
            assert_eq!(split(line), None, "{line}");
        }
    }
}
