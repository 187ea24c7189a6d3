//! Digests of the bytes of both directions, above any other driver, as controls.
//!
//! Guarantees: bytes pass unchanged and without a copy; `sent` covers exactly the bytes that the
//! stream below accepted, `received` those that it delivered. Asking for a control doesn't end the
//! digest. Limit: nothing is compared; whoever has both ends does that.

mod driver;
mod filter;
#[cfg(test)]
mod tests;

pub use driver::driver;
