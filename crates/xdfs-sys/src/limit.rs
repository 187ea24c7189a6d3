//! Limits of the process, and what tells a run of the system from others.

/// Raises the number of descriptors that the process may have to the most it is allowed, since a
/// session may have thousands of channels. Returns the number now in force, where it is known.
pub fn raise_descriptor_limit() -> Option<u64> {
    #[cfg(unix)]
    {
        use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
        let limit = getrlimit(Resource::Nofile);
        let raised = Rlimit {
            current: limit.maximum,
            maximum: limit.maximum,
        };
        match setrlimit(Resource::Nofile, raised) {
            Ok(()) => limit.maximum,
            Err(_) => limit.current,
        }
    }
    #[cfg(not(unix))]
    None
}

/// The number of descriptors that the process may have, where it is known.
#[must_use]
pub fn descriptor_limit() -> Option<u64> {
    #[cfg(unix)]
    {
        use rustix::process::{Resource, getrlimit};
        getrlimit(Resource::Nofile).current
    }
    #[cfg(not(unix))]
    None
}

/// A number that is another one after the system was started anew; `None` where it doesn't tell.
#[must_use]
pub fn boot_number() -> Option<u64> {
    if !cfg!(target_os = "linux") {
        return None;
    }
    let id = std::fs::read_to_string("/proc/sys/kernel/random/boot_id").ok()?;
    let digits: String = id.chars().filter(char::is_ascii_hexdigit).collect();
    // All of it is random; half is enough to tell runs apart.
    u64::from_str_radix(digits.get(..16)?, 16).ok()
}
