//! Attributes of drivers: fields of an options type with a text form.
//!
//! A driver lists its attributes in one table. From it come the parser of stacks, the messages that
//! list attributes, and the text form of options set in a program.

/// An attribute of a driver with options of type `T`.
pub struct Attribute<T: 'static> {
    /// Its name in the text of a stack: lower-case letters, digits and `_`.
    pub name: &'static str,
    /// The accepted values, for messages: `true or false`.
    pub takes: &'static str,
    /// Parses and sets a value; `None` if the text isn't valid.
    pub set: fn(&mut T, &str) -> Option<()>,
    /// The value as text; `None` for the default.
    pub text: fn(&T) -> Option<String>,
}

/// The description of an attribute, independent of the options type.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct AttributeHelp {
    /// Its name.
    pub name: &'static str,
    /// The accepted values, for messages.
    pub takes: &'static str,
}

impl<T> Attribute<T> {
    /// The description of the attribute.
    #[must_use]
    pub fn help(&self) -> AttributeHelp {
        AttributeHelp {
            name: self.name,
            takes: self.takes,
        }
    }
}

impl<T> std::fmt::Debug for Attribute<T> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        self.help().fmt(f)
    }
}

/// Parses options, with defaults for those not given. On failure, the index of the first attribute
/// that can't be set, and its description if it exists.
pub(crate) fn parse<T: Default>(
    table: &[Attribute<T>],
    given: &[(String, String)],
) -> Result<T, (usize, Option<AttributeHelp>)> {
    let mut options = T::default();
    for (index, (name, value)) in given.iter().enumerate() {
        let attribute = table.iter().find(|attribute| attribute.name == name);
        let attribute = attribute.ok_or((index, None))?;
        (attribute.set)(&mut options, value).ok_or_else(|| (index, Some(attribute.help())))?;
    }
    Ok(options)
}

/// The options that differ from their defaults, as text.
pub(crate) fn print<T>(table: &[Attribute<T>], options: &T) -> Vec<(String, String)> {
    let text = |attribute: &Attribute<T>| {
        (attribute.text)(options).map(|value| (attribute.name.to_owned(), value))
    };
    table.iter().filter_map(text).collect()
}

/// Parses a number of bytes; the units `K`, `M`, `G` and `T` are powers of 1024.
pub(crate) fn bytes(text: &str) -> Option<u64> {
    number(text, 1024)
}

/// Parses bytes a second; the units `K`, `M`, `G` and `T` are powers of 1000.
pub(crate) fn rate(text: &str) -> Option<u64> {
    number(text, 1000)
}

fn number(text: &str, unit: u64) -> Option<u64> {
    let end = text.find(|c: char| !c.is_ascii_digit());
    let (digits, letter) = text.split_at(end.unwrap_or(text.len()));
    let power = ["", "K", "M", "G", "T"].iter().position(|l| *l == letter)?;
    let power = u32::try_from(power).ok()?;
    digits.parse::<u64>().ok()?.checked_mul(unit.pow(power))
}
