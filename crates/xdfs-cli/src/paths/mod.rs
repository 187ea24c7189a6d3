//! The commands about paths on servers.
//!
//! [`command`] has the common parts: sessions, output, failures. [`walk`] walks trees. Related
//! commands share a file. Small pure parts: quoting ([`quote`]), permissions ([`mode`]), times
//! ([`time`]), patterns ([`glob`]), values of flags ([`criteria`]), lines of `stat` ([`format`]).

mod access;
mod change;
mod command;
pub(crate) mod criteria;
mod find;
pub(crate) mod format;
pub(crate) mod glob;
pub(crate) mod json;
mod look;
pub(crate) mod mode;
pub(crate) mod operand;
pub(crate) mod quote;
mod space;
mod text;
pub(crate) mod time;
mod walk;

pub(crate) use access::{chmod, chown};
pub(crate) use change::{ln, mkdir, mv, rm, touch, truncate};
pub(crate) use find::find;
pub(crate) use look::{ls, stat};
pub(crate) use space::{cat, df, du, sum};
