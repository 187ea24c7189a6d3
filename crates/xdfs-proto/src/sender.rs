//! The machine that sends files.
