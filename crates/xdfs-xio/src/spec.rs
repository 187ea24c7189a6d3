//! Stacks as text: `tcp:nodelay=false,tls`, the transport first and then the transforms pushed on
//! it.
//!
//! ```text
//! stack     = driver *("," driver)
//! driver    = name *(":" name "=" value)
//! name      = a lower case letter, and then such letters, digits and "_"
//! value     = any text; "," ":" "%" and what isn't visible ASCII as "%" and two hex digits a byte
//! ```
//!
//! A specification is only syntax: a [`Registry`](crate::Registry) knows the drivers and the values
//! of their attributes.

use std::fmt;
use std::str::FromStr;

use crate::attribute::AttributeHelp;

/// The drivers of a stack, by name, the transport first.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct StackSpec {
    transport: DriverSpec,
    transforms: Vec<DriverSpec>,
}

/// A driver's name and the attributes set.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DriverSpec {
    name: String,
    attributes: Vec<(String, String)>,
}

/// Why a stack can't be built.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum SpecError {
    /// The text does not have the syntax of a stack.
    #[error("expected {expected}, not '{text}'")]
    Syntax {
        /// The invalid part.
        text: String,
        /// What was expected instead.
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
        /// The registered names.
        known: Vec<&'static str>,
    },
    /// The driver has no such attribute.
    #[error("unknown attribute '{attribute}'; the driver '{driver}' has {}", help_list(.known))]
    UnknownAttribute {
        /// The driver.
        driver: String,
        /// The name.
        attribute: String,
        /// The driver's attributes.
        known: Vec<AttributeHelp>,
    },
    /// The value of an attribute is invalid.
    #[error("invalid value in '{driver}:{}={value}'; expected {}", .help.name, .help.takes)]
    WrongValue {
        /// The driver.
        driver: String,
        /// The attribute.
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
        /// The registered transports.
        transports: Vec<&'static str>,
    },
    /// A transport that is not the first driver.
    #[error("'{name}' is a transport, and only the first driver of a stack can be one")]
    TransportAbove {
        /// The driver.
        name: String,
    },
    /// Nothing below a driver gives what it needs.
    #[error("the driver '{name}' needs {needs}, which no driver below it gives")]
    Unmet {
        /// The driver.
        name: String,
        /// The property.
        needs: &'static str,
    },
}

impl StackSpec {
    /// A stack of only a transport.
    #[must_use]
    pub fn new(transport: DriverSpec) -> Self {
        let transforms = Vec::new();
        Self {
            transport,
            transforms,
        }
    }

    /// Pushes a driver on the stack.
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

    /// The drivers above it, bottom first.
    #[must_use]
    pub fn transforms(&self) -> &[DriverSpec] {
        &self.transforms
    }
}

impl DriverSpec {
    /// The driver called `name`, with default attributes.
    ///
    /// # Errors
    /// [`SpecError::Syntax`] if that is not a valid name.
    pub fn new(name: &str) -> Result<Self, SpecError> {
        Ok(Self {
            name: checked_name(name, "the name of a driver")?,
            attributes: Vec::new(),
        })
    }

    /// A driver named by an `Endpoint` or by the driver itself.
    pub(crate) fn named(name: &str, attributes: Vec<(String, String)>) -> Self {
        Self {
            name: name.to_owned(),
            attributes,
        }
    }

    /// Sets an attribute.
    ///
    /// # Errors
    /// [`SpecError::Syntax`] if the name is not valid, or [`SpecError::AttributeTwice`].
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

    /// Names and values of the attributes set.
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

/// A value, encoded for the text of a stack.
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

/// Decodes a value; `None` if it isn't UTF-8 or a `%` lacks digits.
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

/// Prints names separated by commas.
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

    /// Random-looking texts, with and without special characters: none panics, and printing a
    /// parsed stack gives a text that parses to the same.
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
