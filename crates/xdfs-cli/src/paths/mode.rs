//! Parses and formats permissions: `750`, `u+x,go-w`, `drwxr-x---`.

use xdfs::FileKind;

/// Set-user-id and set-group-id.
const SET_IDS: u32 = 0o6000;

/// A change of permissions.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum ModeChange {
    /// These bits. With `keeps_ids` a directory keeps its set-id bits, the convention for short
    /// numbers.
    Octal { bits: u32, keeps_ids: bool },
    /// One after the other.
    Clauses(Vec<Clause>),
}

/// A part such as `go-w`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Clause {
    /// All bits of the classes (user, group, others) that it affects.
    who: u32,
    action: Action,
    rights: Rights,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Action {
    Add,
    Remove,
    Set,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Rights {
    /// These bits; `search` is `X`: execution for directories and files that are executable by
    /// anybody.
    Bits { bits: u32, search: bool },
    /// The bits of the owner (6), the group (3) or others (0), by their shift.
    Of(u32),
}

/// Parses permissions: octal, or changes.
///
/// # Errors
/// A message for the user.
pub(crate) fn parse_mode(text: &str) -> Result<ModeChange, String> {
    if text.starts_with(|c: char| c.is_ascii_digit()) {
        let bits = u32::from_str_radix(text, 8)
            .ok()
            .filter(|&bits| bits <= 0o7777);
        let bits = bits.ok_or("a mode is an octal number up to 7777, or such as u+x,go-w")?;
        return Ok(ModeChange::Octal {
            bits,
            keeps_ids: text.len() < 5,
        });
    }
    let mut clauses = Vec::new();
    for part in text.split(',') {
        read_part(part, &mut clauses)
            .ok_or_else(|| format!("'{part}' is not a mode, such as u+x or a=rX"))?;
    }
    Ok(ModeChange::Clauses(clauses))
}

/// Parses the text between two commas: classes, and one or more actions.
fn read_part(part: &str, clauses: &mut Vec<Clause>) -> Option<()> {
    let start = part.find(['+', '-', '='])?;
    let mut who = 0;
    for c in part[..start].chars() {
        who |= match c {
            'u' => 0o4700,
            'g' => 0o2070,
            'o' => 0o1007,
            'a' => 0o7777,
            _ => return None,
        };
    }
    if start == 0 {
        who = 0o7777;
    }
    let mut rest = &part[start..];
    while let Some(sign) = rest.chars().next() {
        let action = match sign {
            '+' => Action::Add,
            '-' => Action::Remove,
            _ => Action::Set,
        };
        let end = rest[1..]
            .find(['+', '-', '='])
            .map_or(rest.len(), |end| end + 1);
        let rights = match &rest[1..end] {
            "u" => Rights::Of(6),
            "g" => Rights::Of(3),
            "o" => Rights::Of(0),
            letters => {
                let (mut bits, mut search) = (0, false);
                for c in letters.chars() {
                    match c {
                        'r' => bits |= 0o444,
                        'w' => bits |= 0o222,
                        'x' => bits |= 0o111,
                        's' => bits |= SET_IDS,
                        't' => bits |= 0o1000,
                        'X' => search = true,
                        _ => return None,
                    }
                }
                Rights::Bits { bits, search }
            }
        };
        clauses.push(Clause {
            who,
            action,
            rights,
        });
        rest = &rest[end..];
    }
    Some(())
}

impl ModeChange {
    /// The permissions after the change.
    pub(crate) fn apply(&self, mode: u32, is_directory: bool) -> u32 {
        match self {
            Self::Octal { bits, keeps_ids } if *keeps_ids && is_directory => {
                bits | (mode & SET_IDS)
            }
            Self::Octal { bits, .. } => *bits,
            Self::Clauses(clauses) => clauses
                .iter()
                .fold(mode, |mode, clause| clause.apply(mode, is_directory)),
        }
    }
}

impl Clause {
    fn apply(&self, mode: u32, is_directory: bool) -> u32 {
        let bits = match self.rights {
            Rights::Bits { bits, search } => {
                let execute = search && (is_directory || mode & 0o111 != 0);
                bits | if execute { 0o111 } else { 0 }
            }
            Rights::Of(shift) => (mode >> shift & 0o7) * 0o111,
        } & self.who;
        match self.action {
            Action::Add => mode | bits,
            Action::Remove => mode & !bits,
            Action::Set => {
                // A directory keeps its set-id bits unless they are named.
                let kept = if is_directory { SET_IDS } else { 0 };
                mode & (!self.who | kept) | bits
            }
        }
    }
}

/// The letter of a kind, as in the first column of a long listing.
pub(crate) fn kind_letter(kind: FileKind) -> char {
    match kind {
        FileKind::File => '-',
        FileKind::Directory => 'd',
        FileKind::Symlink => 'l',
        FileKind::Fifo => 'p',
        FileKind::Socket => 's',
        FileKind::BlockDevice => 'b',
        FileKind::CharacterDevice => 'c',
        FileKind::Other => '?',
    }
}

/// Kind and permissions, as in `drwxr-x---`.
pub(crate) fn mode_text(kind: FileKind, mode: u32) -> String {
    let mut text = String::from(kind_letter(kind));
    for (shift, special, letter) in [(6, 0o4000, 's'), (3, 0o2000, 's'), (0, 0o1000, 't')] {
        let bits = mode >> shift;
        text.push(if bits & 4 == 0 { '-' } else { 'r' });
        text.push(if bits & 2 == 0 { '-' } else { 'w' });
        text.push(match (mode & special != 0, bits & 1 != 0) {
            (false, false) => '-',
            (false, true) => 'x',
            (true, false) => letter.to_ascii_uppercase(),
            (true, true) => letter,
        });
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[track_caller]
    fn change(text: &str, mode: u32, is_directory: bool) -> u32 {
        parse_mode(text).unwrap().apply(mode, is_directory)
    }

    #[test]
    fn numbers() {
        assert_eq!(change("640", 0o777, false), 0o640);
        assert_eq!(change("4755", 0, false), 0o4755);
        assert_eq!(change("755", 0o2700, true), 0o2755);
        assert_eq!(change("00755", 0o2700, true), 0o755);
        for bad in ["8", "10000", "7777777777777", "64a"] {
            assert!(parse_mode(bad).is_err(), "{bad}");
        }
    }

    #[test]
    fn changes() {
        for (text, before, after) in [
            ("u+x", 0o644, 0o744),
            ("u+x,go-w", 0o666, 0o744),
            ("+x", 0o644, 0o755),
            ("-x", 0o755, 0o644),
            ("a=r", 0o777, 0o444),
            ("go=", 0o755, 0o700),
            ("g=u", 0o640, 0o660),
            ("o+u-w", 0o640, 0o644),
            ("u=rwx,g=rx,o=", 0, 0o750),
            ("u+s,g+s,+t", 0o755, 0o7755),
            ("u-s", 0o4755, 0o755),
            ("a+X", 0o644, 0o644),
            ("a+X", 0o744, 0o755),
            ("ug+rw-x", 0o711, 0o661),
        ] {
            assert_eq!(change(text, before, false), after, "{text}");
        }
        assert_eq!(change("a+X", 0o644, true), 0o755);
        assert_eq!(change("g=rx", 0o2770, true), 0o2750);
        for bad in ["", "x", "u", "q+x", "u+q", "u+x,", ",", "u+xu"] {
            assert!(parse_mode(bad).is_err(), "{bad}");
        }
    }

    #[test]
    fn modes_as_text() {
        for (kind, mode, text) in [
            (FileKind::File, 0o644, "-rw-r--r--"),
            (FileKind::Directory, 0o1777, "drwxrwxrwt"),
            (FileKind::Symlink, 0o777, "lrwxrwxrwx"),
            (FileKind::File, 0o6711, "-rws--s--x"),
            (FileKind::File, 0o7600, "-rwS--S--T"),
            (FileKind::Fifo, 0, "p---------"),
        ] {
            assert_eq!(mode_text(kind, mode), text);
        }
    }
}
