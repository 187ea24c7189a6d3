//! Controls: what an open stack answers about itself, by driver and name.
//!
//! An attribute is set before a stack is opened ([`Attribute`](crate::Attribute)), a control is
//! asked of an open one. In text it is the driver and the name with a dot between: `tcp.rtt`.

use std::fmt;
use std::time::Duration;

/// One answer of a driver.
#[derive(Clone, Debug, PartialEq)]
pub struct Control {
    /// The name of the driver.
    pub driver: &'static str,
    /// The name of the control among those of its driver: lower-case letters, digits and `_`.
    pub name: &'static str,
    /// Its present value.
    pub value: ControlValue,
}

/// The value of a [`Control`]. Its text is the number or the words alone, without a unit.
#[derive(Clone, Debug, PartialEq)]
#[non_exhaustive]
pub enum ControlValue {
    /// Yes or no: `true` or `false`.
    Flag(bool),
    /// A number, of bytes unless the driver's table says otherwise.
    Count(u64),
    /// A ratio of two numbers.
    Ratio(f64),
    /// A span of time, as seconds with a fraction.
    Time(Duration),
    /// A name or a description.
    Text(String),
}

impl Control {
    /// An answer of `driver`.
    pub fn new(driver: &'static str, name: &'static str, value: impl Into<ControlValue>) -> Self {
        Self {
            driver,
            name,
            value: value.into(),
        }
    }

    /// Whether `name` is its full name, `driver.name`.
    #[must_use]
    pub fn is_called(&self, name: &str) -> bool {
        name.split_once('.') == Some((self.driver, self.name))
    }
}

impl fmt::Display for Control {
    /// `driver.name=value`.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}.{}={}", self.driver, self.name, self.value)
    }
}

impl fmt::Display for ControlValue {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Flag(flag) => flag.fmt(f),
            Self::Count(count) => count.fmt(f),
            Self::Ratio(ratio) => write!(f, "{ratio:.4}"),
            Self::Time(time) => write!(f, "{:.9}", time.as_secs_f64()),
            Self::Text(text) => f.write_str(text),
        }
    }
}

impl From<bool> for ControlValue {
    fn from(flag: bool) -> Self {
        Self::Flag(flag)
    }
}

impl From<u64> for ControlValue {
    fn from(count: u64) -> Self {
        Self::Count(count)
    }
}

impl From<f64> for ControlValue {
    fn from(ratio: f64) -> Self {
        Self::Ratio(ratio)
    }
}

impl From<Duration> for ControlValue {
    fn from(time: Duration) -> Self {
        Self::Time(time)
    }
}

impl From<String> for ControlValue {
    fn from(text: String) -> Self {
        Self::Text(text)
    }
}
