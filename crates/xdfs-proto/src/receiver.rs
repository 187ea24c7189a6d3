//! The machine that receives files.
