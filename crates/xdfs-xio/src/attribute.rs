//! Attributes of drivers: fields of a type of options, and their form as text.
//!
//! A driver lists its attributes in one table. The parser of stacks, the messages that list what
//! there is, and the text of options that were set in a program are all made from it.

/// One attribute of a driver with options of the type `T`.
pub struct Attribute<T: 'static> {
    /// Its name in the text of a stack: lower case letters, digits and `_`.
    pub name: &'static str,
    /// The values it takes, for messages: `true or false`.
    pub takes: &'static str,
    /// Sets it from text; `None` if the text isn't such a value.
    pub set: fn(&mut T, &str) -> Option<()>,
    /// Its text; `None` if it has its default value.
    pub text: fn(&T) -> Option<String>,
}

/// What is known of an attribute whatever its type.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct AttributeHelp {
    /// Its name.
    pub name: &'static str,
    /// The values it takes.
    pub takes: &'static str,
}

impl<T> Attribute<T> {
    /// What is known of it whatever its type.
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

/// The options that are given as text, and those that aren't by their defaults; or the place of the
/// first that can't be set, and what is known of it if there is such an attribute.
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

/// The options that don't have their default values, as text.
pub(crate) fn print<T>(table: &[Attribute<T>], options: &T) -> Vec<(String, String)> {
    let text = |attribute: &Attribute<T>| {
        (attribute.text)(options).map(|value| (attribute.name.to_owned(), value))
    };
    table.iter().filter_map(text).collect()
}
