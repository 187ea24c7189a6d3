//! Values of the flags of path commands: tests of `find`, owners, new lengths.

use std::time::Duration;

use clap::ValueEnum;
use xdfs::operations::{DaysTest, SizeTest};
use xdfs::{Account, Fault, FileKind};

use xdfs::settings::size;

/// Parses a test of sizes.
///
/// # Errors
/// A message for the user.
pub(crate) fn parse_size_test(text: &str) -> Result<SizeTest, String> {
    text.parse().map_err(|fault: Fault| fault.cause)
}

/// Parses a test of days.
///
/// # Errors
/// A message for the user.
pub(crate) fn parse_days(text: &str) -> Result<DaysTest, String> {
    text.parse().map_err(|fault: Fault| fault.cause)
}

/// Parses an age: a whole number and s, m, h or d.
///
/// # Errors
/// A message for the user.
pub(crate) fn parse_age(text: &str) -> Result<Duration, String> {
    let wrong = || "an age is a whole number and a unit: 90s, 30m, 12h, 7d".to_owned();
    let unit = text.chars().next_back().ok_or_else(wrong)?;
    let seconds = match unit {
        's' => 1,
        'm' => 60,
        'h' => 3600,
        'd' => 86_400,
        _ => return Err(wrong()),
    };
    let number = text.strip_suffix(unit).and_then(whole).ok_or_else(wrong)?;
    let seconds = number.checked_mul(seconds).ok_or_else(wrong)?;
    Ok(Duration::from_secs(seconds))
}

/// Parses a number of digits only.
fn whole(text: &str) -> Option<u64> {
    let digits = !text.is_empty() && text.bytes().all(|b| b.is_ascii_digit());
    digits.then(|| text.parse().ok()).flatten()
}

/// The test of `find -type`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum FindKind {
    /// A regular file.
    F,
    /// A directory.
    D,
    /// A symbolic link.
    L,
    /// A named pipe.
    P,
    /// A socket.
    S,
    /// A block device.
    B,
    /// A character device.
    C,
}

impl From<FindKind> for FileKind {
    fn from(kind: FindKind) -> Self {
        match kind {
            FindKind::F => Self::File,
            FindKind::D => Self::Directory,
            FindKind::L => Self::Symlink,
            FindKind::P => Self::Fifo,
            FindKind::S => Self::Socket,
            FindKind::B => Self::BlockDevice,
            FindKind::C => Self::CharacterDevice,
        }
    }
}

/// The owner and group set by `chown`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Owner {
    /// The user.
    pub(crate) user: Option<Account>,
    /// The group.
    pub(crate) group: Option<Account>,
}

/// Parses an owner: `USER`, `USER:GROUP` or `:GROUP`.
///
/// # Errors
/// A message for the user.
pub(crate) fn parse_owner(text: &str) -> Result<Owner, String> {
    let (user, group) = match text.split_once(':') {
        Some((user, group)) => (user, Some(group)),
        None => (text, None),
    };
    let user = match user {
        "" if group.is_some() => None,
        user => Some(parse_account(user, Account::User, Account::UserNamed)?),
    };
    let group = group.map(|group| parse_account(group, Account::Group, Account::GroupNamed));
    let group = group.transpose()?;
    Ok(Owner { user, group })
}

fn parse_account(
    text: &str,
    by_number: fn(u32) -> Account,
    by_name: fn(String) -> Account,
) -> Result<Account, String> {
    if text.bytes().all(|b| b.is_ascii_digit()) && !text.is_empty() {
        let number = text.parse().ok();
        // The largest number means "unchanged" to the system, and is not an id.
        return match number.filter(|&number| number != u32::MAX) {
            Some(number) => Ok(by_number(number)),
            None => Err(format!(
                "'{text}' is no name or number of an owner: it is too large"
            )),
        };
    }
    // A dash begins no name; it is a slip.
    if !Account::is_name(text) || text.starts_with('-') {
        return Err(format!("'{text}' is no name or number of an owner"));
    }
    Ok(by_name(text.to_owned()))
}

/// The new length of `truncate -s`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum NewLength {
    /// This number of bytes.
    Exactly(u64),
    /// This many bytes more.
    More(u64),
    /// This many bytes less, down to zero.
    Less(u64),
}

impl NewLength {
    /// The new length of a file of `bytes`; `None` on overflow.
    pub(crate) fn of(self, bytes: u64) -> Option<u64> {
        match self {
            Self::Exactly(length) => Some(length),
            Self::More(more) => bytes.checked_add(more),
            Self::Less(less) => Some(bytes.saturating_sub(less)),
        }
    }
}

/// Parses a new length.
///
/// # Errors
/// A message for the user.
pub(crate) fn parse_new_length(text: &str) -> Result<NewLength, String> {
    let (length, rest): (fn(u64) -> NewLength, &str) = match text.as_bytes().first() {
        Some(b'+') => (NewLength::More, &text[1..]),
        Some(b'-') => (NewLength::Less, &text[1..]),
        _ => (NewLength::Exactly, text),
    };
    Ok(length(size::parse_size(rest)?))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ages() {
        for (text, seconds) in [("0s", 0), ("90s", 90), ("30m", 1800), ("7d", 604_800)] {
            assert_eq!(parse_age(text), Ok(Duration::from_secs(seconds)));
        }
        for wrong in [
            "",
            "7",
            "d",
            "1w",
            "-1d",
            "1.5h",
            "7 d",
            "18446744073709551615d",
        ] {
            assert!(parse_age(wrong).is_err(), "{wrong}");
        }
    }

    #[test]
    fn owners() {
        use Account::{Group, GroupNamed, User, UserNamed};
        let owner = |user, group| Ok(Owner { user, group });
        assert_eq!(parse_owner("0"), owner(Some(User(0)), None));
        assert_eq!(parse_owner("10:20"), owner(Some(User(10)), Some(Group(20))));
        assert_eq!(parse_owner(":20"), owner(None, Some(Group(20))));
        let named = (UserNamed("al.ice".into()), GroupNamed("a b".into()));
        let (alice, staff) = (Some(named.0), Some(named.1));
        assert_eq!(parse_owner("al.ice"), owner(alice.clone(), None));
        assert_eq!(
            parse_owner("al.ice:a b"),
            owner(alice.clone(), staff.clone())
        );
        assert_eq!(parse_owner("7:a b"), owner(Some(User(7)), staff));
        assert_eq!(parse_owner("al.ice:7"), owner(alice, Some(Group(7))));
        let long = "x".repeat(256);
        for bad in [
            "",
            ":",
            "1:",
            "alice:",
            "4294967295",
            "99999999999",
            "-1",
            "a\n",
            &long,
        ] {
            assert!(parse_owner(bad).is_err(), "{bad}");
        }
    }

    #[test]
    fn lengths() {
        assert_eq!(parse_new_length("1K").unwrap().of(7), Some(1024));
        assert_eq!(parse_new_length("+1K").unwrap().of(7), Some(1031));
        assert_eq!(parse_new_length("-1K").unwrap().of(7), Some(0));
        assert_eq!(parse_new_length("+1").unwrap().of(u64::MAX), None);
        assert!(parse_new_length("").is_err() && parse_new_length("+-1").is_err());
    }
}
