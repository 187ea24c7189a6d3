//! Stacks as text: `tcp:nodelay=false,tls`, the transport first and then what is pushed on it.
//!
//! ```text
//! stack     = driver *("," driver)
//! driver    = name *(":" name "=" value)
//! name      = a lower case letter, and then such letters, digits and "_"
//! value     = any text; "," ":" "%" and what isn't visible ASCII as "%" and two hex digits a byte
//! ```
//!
//! A specification is syntax alone: which drivers there are, and what their attributes take, is
//! known to a [`Registry`](crate::Registry).

use std::fmt;
use std::str::FromStr;

use crate::attribute::AttributeHelp;

/// The drivers of a stack by name, the transport first.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct StackSpec {
    transport: DriverSpec,
    transforms: Vec<DriverSpec>,
}

/// A driver by name, with the attributes that are set.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DriverSpec {
    name: String,
    attributes: Vec<(String, String)>,
}

/// Why a stack can't be had.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum SpecError {
    /// The text isn't a stack.
    #[error("expected {expected}, not '{text}'")]
    Syntax {
        /// The part that is wrong.
        text: String,
        /// What should stand there.
        expected: &'static str,
    },
    /// An attribute is set twice.
    #[error("the attribute '{attribute}' of the driver '{driver}' is set twice")]
    AttributeTwice {
        /// The driver.
        driver: String,
        /// Its attribute.
        attribute: String,
    },
    /// No such driver is registered.
    #[error("unknown driver '{name}'; there are {}", List(.known))]
    UnknownDriver {
        /// The name.
        name: String,
        /// The names that there are.
        known: Vec<&'static str>,
    },
    /// The driver has no such attribute.
    #[error("unknown attribute '{attribute}'; the driver '{driver}' has {}", help_list(.known))]
    UnknownAttribute {
        /// The driver.
        driver: String,
        /// The name.
        attribute: String,
        /// The attributes that it has.
        known: Vec<AttributeHelp>,
    },
    /// The attribute doesn't take the value.
    #[error("invalid value in '{driver}:{}={value}'; expected {}", .help.name, .help.takes)]
    WrongValue {
        /// The driver.
        driver: String,
        /// Its attribute.
        help: AttributeHelp,
        /// The value.
        value: String,
    },
    /// The first driver of a stack isn't a transport.
    #[error(
        "a stack begins with a transport ({}), and '{name}' is a transform",
        List(.transports)
    )]
    NoTransport {
        /// The first driver.
        name: String,
        /// The transports that there are.
        transports: Vec<&'static str>,
    },
    /// Another driver than the first is a transport.
    #[error("'{name}' is a transport, and only the first driver of a stack can be one")]
    TransportAbove {
        /// The driver.
        name: String,
    },
    /// A driver needs what nothing below it gives.
    #[error("the driver '{name}' needs {needs}, which no driver below it gives")]
    Unmet {
        /// The driver.
        name: String,
        /// What it needs.
        needs: &'static str,
    },
}

impl StackSpec {
    /// A stack of a transport alone.
    #[must_use]
    pub fn new(transport: DriverSpec) -> Self {
        let transforms = Vec::new();
        Self {
            transport,
            transforms,
        }
    }

    /// The same stack with one more driver on it.
    #[must_use]
    pub fn with(mut self, driver: DriverSpec) -> Self {
        self.transforms.push(driver);
        self
    }

    /// The driver at the bottom.
    #[must_use]
    pub fn transport(&self) -> &DriverSpec {
        &self.transport
    }

    /// The drivers above it, from below.
    #[must_use]
    pub fn transforms(&self) -> &[DriverSpec] {
        &self.transforms
    }
}

impl DriverSpec {
    /// The driver called `name`, with the default values of its attributes.
    ///
    /// # Errors
    /// [`SpecError::Syntax`] if that can't be a name.
    pub fn new(name: &str) -> Result<Self, SpecError> {
        Ok(Self {
            name: checked_name(name, "the name of a driver")?,
            attributes: Vec::new(),
        })
    }

    /// The driver that an `Endpoint` or a driver itself names.
    pub(crate) fn named(name: &str, attributes: Vec<(String, String)>) -> Self {
        Self {
            name: name.to_owned(),
            attributes,
        }
    }

    /// The same driver with one more attribute set.
    ///
    /// # Errors
    /// [`SpecError::Syntax`] if that can't be the name of an attribute, or
    /// [`SpecError::AttributeTwice`].
    pub fn set(mut self, attribute: &str, value: &str) -> Result<Self, SpecError> {
        let attribute = checked_name(attribute, "the name of an attribute")?;
        if self.attributes.iter().any(|(name, _)| *name == attribute) {
            return Err(SpecError::AttributeTwice {
                driver: self.name,
                attribute,
            });
        }
        self.attributes.push((attribute, value.to_owned()));
        Ok(self)
    }

    /// Its name.
    #[must_use]
    pub fn name(&self) -> &str {
        &self.name
    }

    /// Names and values of the attributes that are set.
    #[must_use]
    pub fn attributes(&self) -> &[(String, String)] {
        &self.attributes
    }
}

impl FromStr for StackSpec {
    type Err = SpecError;

    fn from_str(text: &str) -> Result<Self, SpecError> {
        let mut drivers = text.split(',').map(str::parse);
        let transport = drivers.next().unwrap_or_else(|| DriverSpec::new(""))?;
        let transforms = drivers.collect::<Result<_, _>>()?;
        Ok(Self {
            transport,
            transforms,
        })
    }
}

impl FromStr for DriverSpec {
    type Err = SpecError;

    fn from_str(text: &str) -> Result<Self, SpecError> {
        let mut parts = text.split(':');
        let mut driver = Self::new(parts.next().unwrap_or_default())?;
        for part in parts {
            let syntax = || SpecError::Syntax {
                text: part.to_owned(),
                expected: "an attribute as NAME=VALUE",
            };
            let (attribute, value) = part.split_once('=').ok_or_else(syntax)?;
            driver = driver.set(attribute, &decode(value).ok_or_else(syntax)?)?;
        }
        Ok(driver)
    }
}

impl fmt::Display for StackSpec {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}", self.transport)?;
        self.transforms
            .iter()
            .try_for_each(|driver| write!(f, ",{driver}"))
    }
}

impl fmt::Display for DriverSpec {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.name)?;
        for (name, value) in &self.attributes {
            write!(f, ":{name}={}", Encoded(value))?;
        }
        Ok(())
    }
}

fn checked_name(name: &str, expected: &'static str) -> Result<String, SpecError> {
    let is_inner = |c: char| c.is_ascii_lowercase() || c.is_ascii_digit() || c == '_';
    let starts = name.starts_with(|c: char| c.is_ascii_lowercase());
    if starts && name.chars().all(is_inner) {
        Ok(name.to_owned())
    } else {
        Err(SpecError::Syntax {
            text: name.to_owned(),
            expected,
        })
    }
}

/// A value, as it stands in the text of a stack.
struct Encoded<'a>(&'a str);

impl fmt::Display for Encoded<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for byte in self.0.bytes() {
            match byte {
                b',' | b':' | b'%' => write!(f, "%{byte:02X}")?,
                b'!'..=b'~' => write!(f, "{}", char::from(byte))?,
                _ => write!(f, "%{byte:02X}")?,
            }
        }
        Ok(())
    }
}

/// The value that stands as `text` in a stack; `None` if it isn't UTF-8 or a `%` lacks digits.
fn decode(text: &str) -> Option<String> {
    let mut bytes = Vec::with_capacity(text.len());
    let mut rest = text.as_bytes();
    while let Some((&byte, after)) = rest.split_first() {
        rest = after;
        if byte != b'%' {
            bytes.push(byte);
            continue;
        }
        let (digits, after) = rest.split_first_chunk::<2>()?;
        let [high, low] = digits.map(|digit| char::from(digit).to_digit(16));
        bytes.push(u8::try_from(high? * 16 + low?).ok()?);
        rest = after;
    }
    String::from_utf8(bytes).ok()
}

/// Names with commas between.
struct List<'a>(&'a [&'static str]);

impl fmt::Display for List<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0.join(", "))
    }
}

fn help_list(known: &[AttributeHelp]) -> String {
    if known.is_empty() {
        return "no attributes".to_owned();
    }
    let text = |help: &AttributeHelp| format!("{} ({})", help.name, help.takes);
    known.iter().map(text).collect::<Vec<_>>().join(", ")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parsed(text: &str) -> StackSpec {
        text.parse().unwrap()
    }

    #[test]
    fn the_text_of_a_stack_is_read_from_the_bottom() {
        let spec = parsed("tcp:nodelay=false:buffer=65536,tls");
        let (tcp, tls) = (spec.transport(), &spec.transforms()[0]);
        assert_eq!((tcp.name(), tls.name()), ("tcp", "tls"));
        let attributes = [("nodelay", "false"), ("buffer", "65536")];
        let attributes = attributes.map(|(name, value)| (name.to_owned(), value.to_owned()));
        assert_eq!(tcp.attributes(), attributes);
        assert_eq!(tls.attributes(), []);
        let made = StackSpec::new(
            DriverSpec::new("tcp")
                .and_then(|tcp| tcp.set("nodelay", "false"))
                .and_then(|tcp| tcp.set("buffer", "65536"))
                .unwrap(),
        );
        assert_eq!(made.with(DriverSpec::new("tls").unwrap()), spec);
    }

    #[test]
    fn a_value_may_hold_anything() {
        for value in ["", "a,b:c%d=e", "%41", " ", "\u{e4}\0\n", "::1", "-_.~/"] {
            let driver = DriverSpec::new("d").and_then(|d| d.set("k", value));
            let spec = StackSpec::new(driver.unwrap());
            let text = spec.to_string();
            assert!(text.is_ascii() && !text.contains(' '), "{text}");
            assert_eq!(parsed(&text), spec, "{text}");
        }
        assert_eq!(parsed("d:k=%3a%2C").to_string(), "d:k=%3A%2C");
    }

    #[test]
    fn what_is_no_stack_is_refused_and_named() {
        for (text, wrong) in [
            ("", ""),
            (",tcp", ""),
            ("tcp,", ""),
            ("Tcp", "Tcp"),
            ("tcp tls", "tcp tls"),
            ("9p", "9p"),
            ("tcp:", ""),
            ("tcp:nodelay", "nodelay"),
            ("tcp:=1", ""),
            ("tcp:a b=1", "a b"),
            ("tcp:a=%", "a=%"),
            ("tcp:a=%f", "a=%f"),
            ("tcp:a=%+1", "a=%+1"),
            ("tcp:a=%ff", "a=%ff"),
        ] {
            match text.parse::<StackSpec>() {
                Err(SpecError::Syntax { text, .. }) => assert_eq!(text, wrong),
                other => panic!("{text}: {other:?}"),
            }
        }
        let twice = "tcp:a=1:a=1".parse::<StackSpec>().unwrap_err();
        assert_eq!(
            twice.to_string(),
            "the attribute 'a' of the driver 'tcp' is set twice"
        );
    }

    /// Texts that look random, of the characters that mean something and some that don't: none
    /// panics, and the text of what was read reads as the same.
    #[test]
    fn any_text_is_a_stack_or_an_error() {
        const PARTS: [&str; 18] = [
            ",",
            ":",
            "=",
            "%",
            "tcp",
            "tls",
            "a",
            "_",
            "0",
            "4",
            "%2C",
            "%25",
            "%c3%a4",
            "%80",
            " ",
            "\u{e4}",
            "\u{1f980}",
            "\0",
        ];
        let mut state = 0x9e37_79b9_7f4a_7c15_u64;
        let mut below = |bound: usize| {
            state ^= state << 13;
            state ^= state >> 7;
            state ^= state << 17;
            usize::try_from(state >> 33).unwrap() % bound
        };
        let mut stacks = 0;
        for _ in 0..200_000 {
            let parts = 1 + below(12);
            let text: String = (0..parts).map(|_| PARTS[below(PARTS.len())]).collect();
            if let Ok(spec) = text.parse::<StackSpec>() {
                let text = spec.to_string();
                assert_eq!(parsed(&text), spec);
                assert_eq!(parsed(&text).to_string(), text);
                stacks += 1;
            }
        }
        assert!(stacks > 1000, "{stacks}");
    }
}
