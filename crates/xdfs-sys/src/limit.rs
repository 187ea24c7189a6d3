//! Limits of the process.

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
