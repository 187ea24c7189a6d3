//! The name of the current user.

use std::env;

/// The name of the current user, as the environment has it.
#[must_use]
pub fn user_name() -> String {
    ["USER", "LOGNAME", "USERNAME"]
        .iter()
        .find_map(|name| env::var(name).ok().filter(|value| !value.is_empty()))
        .unwrap_or_else(|| "owner".into())
}
