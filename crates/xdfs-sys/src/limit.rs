//! Limits of the process, and the boot number of the system.

/// Raises the descriptor limit of the process to the permitted maximum, since a session may have
/// thousands of channels. Returns the resulting limit, if known.
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

/// The descriptor limit of the process, if known.
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

/// The most descriptors that the process may have after [`raise_descriptor_limit`], if known.
#[must_use]
pub fn descriptor_limit_max() -> Option<u64> {
    #[cfg(unix)]
    {
        use rustix::process::{Resource, getrlimit};
        getrlimit(Resource::Nofile).maximum
    }
    #[cfg(not(unix))]
    None
}

/// A number that differs between boots of the system; `None` where the system provides none.
#[must_use]
pub fn boot_number() -> Option<u64> {
    // All of it is random; half suffices to distinguish boots.
    let half = *crate::boot::boot_id()?.first_chunk()?;
    Some(u64::from_be_bytes(half))
}
