//! System calls needed by xdfs and missing in the standard library.
//!
//! All `unsafe` code of the project is in this crate.

// They panic where the descriptor can't be written.
#![deny(clippy::print_stdout, clippy::print_stderr)]

pub mod boot;
pub mod driver;
pub mod fs;
pub mod ids;
pub mod limit;
pub mod memory;
pub mod mount;
pub mod poll;
pub mod process;
pub mod processor;
pub mod program;
pub mod standard;
pub mod tcp;
pub mod trusted;
