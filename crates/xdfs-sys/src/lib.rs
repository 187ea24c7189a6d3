//! System calls that xdfs needs beyond the standard library.
//!
//! Every `unsafe` line of the project is in this crate.

pub mod boot;
pub mod fs;
pub mod ids;
pub mod limit;
pub mod poll;
