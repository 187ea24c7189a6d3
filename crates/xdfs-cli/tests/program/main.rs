//! Tests of the real program: processes, sockets, files and signals on this machine.
//!
//! Each test has a fresh temporary directory and servers on port 0; nothing is shared, and every
//! wait has a bound.

mod copy;
mod demo;
mod generated;
mod json;
mod many;
mod perf;
mod resume;
mod serve;
mod support;
mod usage;
