//! The one notation of names and paths for people: in errors, results and listings.
//!
//! It is that of a shell, as in ls(1), so that a shown name can be pasted, and can't move a cursor.
//! Control characters and bytes that aren't UTF-8 are always written as `$'\n'` or `$'\377'`, so
//! that each name stays on one line. Messages quote every path ([`quoted`]), results and listings
//! only where it is needed ([`Quoting`]).

use std::fmt::Write as _;

/// The quoting of names.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Quoting {
    /// Unquoted bytes, for other programs that read zero-terminated names.
    Raw,
    /// Quoted only if a character can't be shown.
    Plain,
    /// Also quoted if a shell would interpret a character.
    Shell,
}

/// Whether the character is literal to a shell anywhere in a word.
fn is_ordinary(c: char) -> bool {
    c.is_alphanumeric() || "%+,-./:@_".contains(c) || (!c.is_ascii() && is_shown(c))
}

/// Whether the character can be shown: it isn't a control, and doesn't change the direction of
/// text.
#[must_use]
pub fn is_shown(c: char) -> bool {
    !c.is_control()
        && !matches!(c, '\u{200e}' | '\u{200f}' | '\u{2028}'..='\u{202e}' | '\u{2066}'..='\u{2069}')
}

impl Quoting {
    /// The quoted name.
    #[must_use]
    pub fn write(self, name: &[u8]) -> Vec<u8> {
        let text = std::str::from_utf8(name).ok();
        let as_it_is = match self {
            Self::Raw => true,
            Self::Plain => text.is_some_and(|text| text.chars().all(is_shown)),
            Self::Shell => {
                text.is_some_and(|text| !text.is_empty() && text.chars().all(is_ordinary))
            }
        };
        if as_it_is {
            return name.to_vec();
        }
        quoted(name).into_bytes()
    }

    /// The quoted name as text; not for [`Self::Raw`].
    #[must_use]
    pub fn text(self, name: &[u8]) -> String {
        String::from_utf8_lossy(&self.write(name)).into_owned()
    }
}

/// The name in quotes, with unprintable characters in `$''`.
#[must_use]
pub fn quoted(name: &[u8]) -> String {
    // A single quote is fine within double quotes, if the other characters are harmless there.
    if let Ok(text) = std::str::from_utf8(name)
        && text.contains('\'')
        && text.chars().all(|c| is_shown(c) && !"\"$`\\!".contains(c))
    {
        return format!("\"{text}\"");
    }
    let mut out = String::from("'");
    let mut escaping = false;
    let mut change = |out: &mut String, to: bool| {
        if escaping != to {
            out.push_str(if to { "'$'" } else { "''" });
            escaping = to;
        }
    };
    for chunk in name.utf8_chunks() {
        for c in chunk.valid().chars() {
            if is_shown(c) {
                change(&mut out, false);
                match c {
                    '\'' => out.push_str("'\\''"),
                    _ => out.push(c),
                }
                continue;
            }
            change(&mut out, true);
            match c {
                '\n' => out.push_str("\\n"),
                '\r' => out.push_str("\\r"),
                '\t' => out.push_str("\\t"),
                _ => octal(&mut out, c.encode_utf8(&mut [0; 4]).as_bytes()),
            }
        }
        if !chunk.invalid().is_empty() {
            change(&mut out, true);
            octal(&mut out, chunk.invalid());
        }
    }
    out.push('\'');
    out
}

fn octal(out: &mut String, bytes: &[u8]) {
    for byte in bytes {
        // Writing to a string can't fail.
        let _ = write!(out, "\\{byte:03o}");
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ordinary_names_stay_as_they_are() {
        for name in [
            "a",
            "big.img",
            "runs/2026-01",
            "gr\u{fc}n",
            "\u{65e5}\u{672c}",
        ] {
            for quoting in [Quoting::Raw, Quoting::Plain, Quoting::Shell] {
                assert_eq!(quoting.text(name.as_bytes()), name);
            }
        }
    }

    #[test]
    fn what_a_shell_takes_apart_is_quoted_on_a_terminal() {
        for (name, shown) in [
            ("a b", "'a b'"),
            ("it's", "\"it's\""),
            ("it's $5", "'it'\\''s $5'"),
            ("*", "'*'"),
            ("", "''"),
        ] {
            assert_eq!(Quoting::Shell.text(name.as_bytes()), shown);
            assert_eq!(Quoting::Plain.text(name.as_bytes()), name);
        }
    }

    #[test]
    fn what_cannot_be_shown_is_always_escaped() {
        for (name, shown) in [
            (&b"a\nb"[..], "'a'$'\\n''b'"),
            (b"\x1b[2J", "''$'\\033''[2J'"),
            (b"\xff", "''$'\\377'"),
            (b"a\xffb", "'a'$'\\377''b'"),
            (b"\xe2\x80\xaex", "''$'\\342\\200\\256''x'"),
            (b"\xc2\x9b", "''$'\\302\\233'"),
        ] {
            assert_eq!(Quoting::Shell.text(name), shown);
            assert_eq!(Quoting::Plain.text(name), shown);
            assert_eq!(Quoting::Raw.write(name), name);
        }
    }
}
