//! The current boot of the system: [`boot_id`].

use std::sync::OnceLock;

/// Identifies the current boot of the system. `None` where the system provides no such id.
#[must_use]
pub fn boot_id() -> Option<[u8; 16]> {
    static BOOT: OnceLock<Option<[u8; 16]>> = OnceLock::new();
    *BOOT.get_or_init(read)
}

#[cfg(target_os = "linux")]
fn read() -> Option<[u8; 16]> {
    parse(&std::fs::read("/proc/sys/kernel/random/boot_id").ok()?)
}

#[cfg(not(target_os = "linux"))]
fn read() -> Option<[u8; 16]> {
    None
}

/// Parses a UUID: 32 hexadecimal digits, possibly with hyphens. The nil UUID is rejected.
#[cfg(any(target_os = "linux", test))]
fn parse(text: &[u8]) -> Option<[u8; 16]> {
    let mut id = [0; 16];
    let mut digits = 0;
    for byte in text.trim_ascii().iter().filter(|byte| **byte != b'-') {
        let digit = char::from(*byte).to_digit(16)?;
        let place = id.get_mut(digits / 2)?;
        *place = *place << 4 | u8::try_from(digit).ok()?;
        digits += 1;
    }
    (digits == 32 && id != [0; 16]).then_some(id)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn uuids_are_read() {
        let id = parse(b"01020304-0506-0708-090a-0b0c0d0e0fff\n").unwrap();
        assert_eq!(
            id[..],
            [1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15, 255]
        );
        for bad in [
            &b""[..],
            b"0102",
            b"01020304-0506-0708-090a-0b0c0d0e0f",
            b"01020304-0506-0708-090a-0b0c0d0e0fff00",
            b"g1020304-0506-0708-090a-0b0c0d0e0fff",
            b"00000000-0000-0000-0000-000000000000",
        ] {
            assert_eq!(parse(bad), None, "{}", bad.escape_ascii());
        }
    }

    #[cfg(target_os = "linux")]
    #[test]
    fn it_stays_the_same() {
        assert!(boot_id().is_some());
        assert_eq!(boot_id(), read());
    }
}
