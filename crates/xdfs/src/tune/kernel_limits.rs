//! The limits of this machine's kernel on the rate of a connection. Only Linux tells them.

use std::fs;

/// Windows to choose from, before the limits of the system.
const WINDOWS: [u32; 5] = [64 << 10, 256 << 10, 1 << 20, 4 << 20, 16 << 20];
/// Largest window to choose where the system doesn't tell its limits.
const WINDOW_UNKNOWN_MAX: u32 = 4 << 20;

/// The limits of this machine's kernel. A field is `None`, or empty, where the system doesn't tell.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct KernelLimits {
    /// Largest automatic receive buffer in bytes (`net.ipv4.tcp_rmem`).
    pub receive_automatic_max: Option<u64>,
    /// Largest automatic send buffer in bytes (`net.ipv4.tcp_wmem`).
    pub send_automatic_max: Option<u64>,
    /// Largest receive buffer in bytes that a program may set (`net.core.rmem_max`).
    pub receive_set_max: Option<u64>,
    /// Largest send buffer in bytes that a program may set (`net.core.wmem_max`).
    pub send_set_max: Option<u64>,
    /// Congestion controls that are loaded.
    pub congestion_available: Vec<String>,
    /// Congestion controls that users may choose.
    pub congestion_allowed: Vec<String>,
}

impl KernelLimits {
    /// Reads them.
    #[must_use]
    pub fn read() -> Self {
        Self::of(|name| {
            let path = format!("/proc/sys/net/{}", name.replace('.', "/"));
            fs::read_to_string(path).unwrap_or_default()
        })
    }

    /// The limits in the settings that `read` returns by their names below `net`.
    fn of(read: impl Fn(&str) -> String) -> Self {
        // Of three numbers the largest is the last; of one it is that one.
        let largest = |name: &str| read(name).split_whitespace().last()?.parse().ok();
        let names = |name: &str| read(name).split_whitespace().map(str::to_owned).collect();
        Self {
            receive_automatic_max: largest("ipv4.tcp_rmem"),
            send_automatic_max: largest("ipv4.tcp_wmem"),
            receive_set_max: largest("core.rmem_max"),
            send_set_max: largest("core.wmem_max"),
            congestion_available: names("ipv4.tcp_available_congestion_control"),
            congestion_allowed: names("ipv4.tcp_allowed_congestion_control"),
        }
    }

    /// Largest window that a program may set: what is above is cut down to it.
    #[must_use]
    pub fn window_max(&self) -> Option<u32> {
        let limits = [self.receive_set_max, self.send_set_max];
        let least = limits.into_iter().flatten().min()?;
        Some(u32::try_from(least).unwrap_or(u32::MAX))
    }

    /// Windows that can be set, ascending, and the automatic one.
    pub(super) fn windows(&self) -> Vec<Option<u32>> {
        let max = self.window_max().unwrap_or(WINDOW_UNKNOWN_MAX);
        let mut windows: Vec<u32> = WINDOWS.into_iter().filter(|w| *w <= max).collect();
        // The limit itself, if it is much above the last and not far from the next.
        let last = windows.last().copied().unwrap_or(0);
        if max / 2 >= last && max <= WINDOWS[WINDOWS.len() - 1] {
            windows.push(max);
        }
        windows.into_iter().map(Some).chain([None]).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_settings_are_read_by_their_names() {
        let limits = KernelLimits::of(|name| {
            match name {
                "ipv4.tcp_rmem" => "4096\t131072\t6291456\n",
                "core.wmem_max" => "212992\n",
                "ipv4.tcp_allowed_congestion_control" => "reno cubic\n",
                "core.rmem_max" => "not a number",
                _ => "",
            }
            .to_owned()
        });
        assert_eq!(limits.receive_automatic_max, Some(6_291_456));
        assert_eq!(limits.window_max(), Some(212_992));
        assert_eq!(limits.congestion_allowed, ["reno", "cubic"]);
        assert_eq!(
            (limits.send_automatic_max, limits.receive_set_max),
            (None, None)
        );
        assert!(limits.congestion_available.is_empty());
    }

    #[test]
    fn no_window_is_offered_that_would_be_cut_down() {
        let windows = |max| {
            let limits = KernelLimits {
                send_set_max: Some(max),
                ..KernelLimits::default()
            };
            limits.windows()
        };
        assert_eq!(windows(212_992), [Some(65_536), Some(212_992), None]);
        assert_eq!(windows(4096), [Some(4096), None]);
        assert_eq!(windows(300_000), [Some(65_536), Some(262_144), None]);
        assert_eq!(windows(u64::MAX).len(), 6);
        assert_eq!(KernelLimits::default().windows().len(), 5);
    }
}
