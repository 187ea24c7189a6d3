//! Users and groups of the answering side's system, as calls name them.

use crate::wire::{DecodeError, Reader, Writer, check_most};

/// Maximum number of accounts in a call: the answer fits into a frame whatever their names are, and
/// a call takes a bounded number of look-ups. More are asked for by several calls.
pub const ACCOUNTS_MAX: usize = 128;
/// Maximum length of the name of a user or group, in bytes.
pub const ACCOUNT_NAME_BYTES_MAX: usize = 255;

/// In place of an account: none is known.
const UNKNOWN: u8 = 0;
const USER: u8 = 1;
const GROUP: u8 = 2;
const USER_NAMED: u8 = 3;
const GROUP_NAMED: u8 = 4;

/// Size of the form.
const FORM_BYTES: usize = 1;
/// Size of an account by its number.
const NUMBER_BYTES: usize = FORM_BYTES + 4;
/// Size of an account by its name, without the name.
const NAME_FIXED_BYTES: usize = FORM_BYTES + 2;

/// Maximum size of the accounts that can be set as owners, each by its number.
pub(super) const SETTABLE_BYTES_MAX: usize = ACCOUNTS_MAX * NUMBER_BYTES;

const NAME: &str = "name of an account";
const COUNT: &str = "number of accounts";

/// A user or a group, by its number or by its name. A name has 1 to [`ACCOUNT_NAME_BYTES_MAX`]
/// bytes and no control characters.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum Account {
    /// The user with this number.
    User(u32),
    /// The group with this number.
    Group(u32),
    /// The user of this name.
    UserNamed(String),
    /// The group of this name.
    GroupNamed(String),
}

impl Account {
    /// Whether text can be the name of an account.
    #[must_use]
    pub fn is_name(text: &str) -> bool {
        check_name(text).is_ok()
    }

    /// Whether this can answer a question for `asked`: a user for a user and a group for a group,
    /// by name for a number and by number for a name.
    #[must_use]
    pub fn answers(&self, asked: &Self) -> bool {
        matches!(
            (asked, self),
            (Self::User(_), Self::UserNamed(_))
                | (Self::UserNamed(_), Self::User(_))
                | (Self::Group(_), Self::GroupNamed(_))
                | (Self::GroupNamed(_), Self::Group(_))
        )
    }

    /// Size in a call or an answer.
    fn bytes(&self) -> usize {
        match self {
            Self::User(_) | Self::Group(_) => NUMBER_BYTES,
            Self::UserNamed(name) | Self::GroupNamed(name) => NAME_FIXED_BYTES + name.len(),
        }
    }

    /// Maximum size of what answers it.
    pub(super) fn answer_bytes_max(&self) -> usize {
        match self {
            Self::User(_) | Self::Group(_) => NAME_FIXED_BYTES + ACCOUNT_NAME_BYTES_MAX,
            Self::UserNamed(_) | Self::GroupNamed(_) => NUMBER_BYTES,
        }
    }

    fn check(&self) -> Result<(), DecodeError> {
        match self {
            Self::User(_) | Self::Group(_) => Ok(()),
            Self::UserNamed(name) | Self::GroupNamed(name) => check_name(name),
        }
    }

    fn encode(&self, w: &mut Writer<'_>) {
        match self {
            Self::User(number) => {
                w.u8(USER);
                w.u32(*number);
            }
            Self::Group(number) => {
                w.u8(GROUP);
                w.u32(*number);
            }
            Self::UserNamed(name) => {
                w.u8(USER_NAMED);
                w.bytes(name.as_bytes(), usize::from(u16::MAX));
            }
            Self::GroupNamed(name) => {
                w.u8(GROUP_NAMED);
                w.bytes(name.as_bytes(), usize::from(u16::MAX));
            }
        }
    }

    /// Decodes an account; `None` for an unknown one.
    fn decode(r: &mut Reader<'_>) -> Result<Option<Self>, DecodeError> {
        let name = |r: &mut Reader<'_>| r.text(ACCOUNT_NAME_BYTES_MAX, NAME);
        let account = match r.u8("form of an account")? {
            UNKNOWN => return Ok(None),
            USER => Self::User(r.u32("number of an account")?),
            GROUP => Self::Group(r.u32("number of an account")?),
            USER_NAMED => Self::UserNamed(name(r)?),
            GROUP_NAMED => Self::GroupNamed(name(r)?),
            _ => return Err(DecodeError::Invalid("form of an account")),
        };
        account.check()?;
        Ok(Some(account))
    }
}

fn check_name(name: &str) -> Result<(), DecodeError> {
    check_most(NAME, name.len(), ACCOUNT_NAME_BYTES_MAX)?;
    if name.is_empty() || name.contains(char::is_control) {
        return Err(DecodeError::Invalid(NAME));
    }
    Ok(())
}

/// Checks the accounts of a call.
pub(super) fn check_asked(accounts: &[Account]) -> Result<(), DecodeError> {
    check_count(accounts.len())?;
    accounts.iter().try_for_each(Account::check)
}

/// Checks the accounts of an answer.
pub(super) fn check_found(accounts: &[Option<Account>]) -> Result<(), DecodeError> {
    check_count(accounts.len())?;
    accounts.iter().flatten().try_for_each(Account::check)
}

fn check_count(count: usize) -> Result<(), DecodeError> {
    if count == 0 {
        return Err(DecodeError::Invalid(COUNT));
    }
    check_most(COUNT, count, ACCOUNTS_MAX)
}

/// Size of the accounts of an answer.
pub(super) fn found_bytes(accounts: &[Option<Account>]) -> usize {
    let bytes = |account: &Option<Account>| account.as_ref().map_or(FORM_BYTES, Account::bytes);
    accounts.iter().map(bytes).sum()
}

/// Appends the accounts of a call.
pub(super) fn encode_asked(accounts: &[Account], w: &mut Writer<'_>) {
    w.u16(u16::try_from(accounts.len()).unwrap_or(u16::MAX));
    accounts.iter().for_each(|account| account.encode(w));
}

/// Appends the accounts of an answer.
pub(super) fn encode_found(accounts: &[Option<Account>], w: &mut Writer<'_>) {
    w.u16(u16::try_from(accounts.len()).unwrap_or(u16::MAX));
    for account in accounts {
        match account {
            Some(account) => account.encode(w),
            None => w.u8(UNKNOWN),
        }
    }
}

/// Decodes the accounts of a call.
pub(super) fn decode_asked(r: &mut Reader<'_>) -> Result<Vec<Account>, DecodeError> {
    let accounts = decode_found(r)?.into_iter();
    accounts
        .map(|account| account.ok_or(DecodeError::Invalid("form of an account")))
        .collect()
}

/// Decodes the accounts of an answer.
pub(super) fn decode_found(r: &mut Reader<'_>) -> Result<Vec<Option<Account>>, DecodeError> {
    let count = usize::from(r.u16(COUNT)?);
    check_count(count)?;
    (0..count).map(|_| Account::decode(r)).collect()
}
