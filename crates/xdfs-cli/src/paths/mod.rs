//! The commands about paths on servers, some of which take local paths too ([`side`]).
//!
//! [`command`] has the common parts: sessions, output, failures. Related commands share a file.
//! Operations such as walks are the library's ([`xdfs::operations`]). Small pure parts: permissions
//! ([`mode`]), times ([`time`]), wildcards ([`wildcards`]), values of flags
//! ([`criteria`]), lines of `stat` ([`format`]).

mod access;
mod change;
mod check;
mod command;
pub(crate) mod criteria;
mod find;
pub(crate) mod format;
mod look;
pub(crate) mod mode;
pub(crate) mod operand;
mod partial;
pub(crate) mod side;
mod space;
mod sum;
mod text;
pub(crate) mod time;
#[cfg(feature = "service")]
mod verify;
pub(crate) mod wildcards;

pub(crate) use access::{chmod, chown};
pub(crate) use change::{check_name, ln, mkdir, mv, rm, touch, truncate};
pub(crate) use check::check;
pub(crate) use find::find;
pub(crate) use look::{ls, stat};
pub(crate) use partial::partial;
pub(crate) use space::{cat, df, du};
pub(crate) use sum::sum;
#[cfg(feature = "service")]
pub(crate) use verify::verify_manifest;
