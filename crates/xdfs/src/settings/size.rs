//! Parses sizes and rates: `123`, `64K`, `1.5G`, `10MiB`, `400MB`.
//!
//! A bare letter follows convention: powers of 1024 for sizes,
//! powers of 1000 for rates. `KiB` and `kB` are explicit and mean the same everywhere.

/// The meaning of a bare unit letter (`K`, `M`, `G`, `T`, `P`).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum UnitConvention {
    /// Powers of 1024, as for sizes.
    Binary,
    /// Powers of 1000, as for rates.
    Decimal,
}

/// Smallest block size that can be set, in bytes.
const BLOCK_BYTES_MIN: u64 = 4 << 10;

/// Largest block size that can be set, in bytes: the default limit of a peer.
const BLOCK_BYTES_MAX: u64 = 16 << 20;

/// Smallest and largest socket buffer that can be set, in bytes.
const WINDOW_BYTES: (u64, u64) = (4 << 10, 1 << 30);

/// Smallest memory of a server that can be set, in bytes: smaller values are a forgotten unit.
const MEMORY_BYTES_MIN: u64 = 1 << 20;

/// Parses a number of bytes; a bare letter is a power of 1024.
///
/// # Errors
/// A message for the user.
pub fn parse_size(text: &str) -> Result<u64, String> {
    parse(text, UnitConvention::Binary)
}

/// Parses bytes per second; a bare letter is a power of 1000, and a trailing `/s` is accepted.
///
/// # Errors
/// A message for the user.
pub fn parse_rate(text: &str) -> Result<u64, String> {
    match parse(
        text.strip_suffix("/s").unwrap_or(text),
        UnitConvention::Decimal,
    )? {
        0 => Err("a rate of 0 would never end".into()),
        rate => Ok(rate),
    }
}

/// Parses a block size: a power of two from 4K to 16M.
///
/// # Errors
/// A message for the user.
pub fn parse_block_size(text: &str) -> Result<u32, String> {
    let size = parse_size(text)?;
    if !size.is_power_of_two() || !(BLOCK_BYTES_MIN..=BLOCK_BYTES_MAX).contains(&size) {
        return Err("a block is a power of two from 4K to 16M".into());
    }
    u32::try_from(size).map_err(|_| "the block is too large".into())
}

/// Parses the size of a socket buffer: 4K to 1G.
///
/// # Errors
/// A message for the user.
pub fn parse_window(text: &str) -> Result<u32, String> {
    let size = parse_size(text)?;
    if !(WINDOW_BYTES.0..=WINDOW_BYTES.1).contains(&size) {
        return Err("a window is from 4K to 1G".into());
    }
    u32::try_from(size).map_err(|_| "the window is too large".into())
}

/// Parses the memory of a server: at least 1M.
///
/// # Errors
/// A message for the user.
pub fn parse_memory(text: &str) -> Result<u64, String> {
    match parse_size(text)? {
        size if size < MEMORY_BYTES_MIN => Err("it has to be at least 1M".into()),
        size => Ok(size),
    }
}

/// Parses the size of a transfer, which can't be zero.
///
/// # Errors
/// A message for the user.
pub fn parse_size_above_zero(text: &str) -> Result<u64, String> {
    match parse_size(text)? {
        0 => Err("it has to be more than 0 bytes".into()),
        size => Ok(size),
    }
}

fn multiplier(unit: &str, letters: UnitConvention) -> Option<u128> {
    let base = match letters {
        UnitConvention::Binary => 1024_u128,
        UnitConvention::Decimal => 1000,
    };
    let (letter, base) = match unit.as_bytes() {
        [] | [b'b' | b'B'] => return Some(1),
        [letter] => (*letter, base),
        [letter, b'B'] => (*letter, 1000),
        [letter, b'i'] | [letter, b'i', b'B'] => (*letter, 1024),
        _ => return None,
    };
    let power = match letter.to_ascii_uppercase() {
        b'K' => 1,
        b'M' => 2,
        b'G' => 3,
        b'T' => 4,
        b'P' => 5,
        _ => return None,
    };
    Some(base.pow(power))
}

/// Parses with exact integers: the decimal fraction is rounded down to a whole byte.
fn parse(text: &str, letters: UnitConvention) -> Result<u64, String> {
    let number_end = text
        .find(|c: char| !c.is_ascii_digit() && c != '.')
        .unwrap_or(text.len());
    let (number, unit) = text.split_at(number_end);
    let missing = || "a number is missing, as in 64K".to_owned();
    if number.is_empty() {
        return Err(missing());
    }
    let unit = unit.trim_start_matches(' ');
    let multiplier = multiplier(unit, letters)
        .ok_or_else(|| format!("'{unit}' is not a unit (K, M, G, T, P, KiB..., kB...)"))?;
    let (whole, fraction) = match number.split_once('.') {
        Some((_, fraction)) if multiplier == 1 || fraction.is_empty() => {
            return Err("a fraction needs a unit, as in 1.5G".into());
        }
        Some((whole, fraction)) => (whole, fraction),
        None => (number, ""),
    };
    if whole.is_empty() {
        return Err(missing());
    }
    let too_large = || "the number is too large".to_owned();
    if fraction.contains('.') {
        return Err("there are two decimal points".into());
    }
    // Sixteen decimals resolve single bytes of the largest unit.
    if fraction.len() > 16 {
        return Err("there are too many digits after the point".into());
    }
    let digits: u128 = format!("{whole}{fraction}")
        .parse()
        .map_err(|_| too_large())?;
    let scale = 10_u128.pow(u32::try_from(fraction.len()).map_err(|_| too_large())?);
    let bytes = digits.checked_mul(multiplier).ok_or_else(too_large)? / scale;
    u64::try_from(bytes).map_err(|_| too_large())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sizes_are_binary_unless_said_otherwise() {
        for (text, bytes) in [
            ("0", 0),
            ("123", 123),
            ("7B", 7),
            ("64K", 64 << 10),
            ("64k", 64 << 10),
            ("1M", 1 << 20),
            ("1.5G", 3 << 29),
            ("2T", 2 << 40),
            ("3Mi", 3 << 20),
            ("3MiB", 3 << 20),
            ("3 MiB", 3 << 20),
            ("3MB", 3_000_000),
            ("5kB", 5_000),
            ("1.0001kB", 1_000),
            ("18446744073709551615", u64::MAX),
        ] {
            assert_eq!(parse_size(text), Ok(bytes), "{text}");
        }
    }

    #[test]
    fn the_memory_of_a_server_has_a_unit() {
        assert_eq!(parse_memory("1M"), Ok(1 << 20));
        assert_eq!(parse_memory("2G"), Ok(2 << 30));
        assert!(parse_memory("1023K").is_err() && parse_memory("0").is_err());
        assert!(parse_memory("256").is_err());
    }

    #[test]
    fn rates_are_decimal_unless_said_otherwise() {
        for (text, rate) in [
            ("400M", 400_000_000),
            ("400M/s", 400_000_000),
            ("400MB/s", 400_000_000),
            ("400MiB", 400 << 20),
            ("1.25G", 1_250_000_000),
            ("5", 5),
        ] {
            assert_eq!(parse_rate(text), Ok(rate), "{text}");
        }
        assert!(parse_rate("0").is_err());
    }

    #[test]
    fn nonsense_is_refused() {
        for text in [
            "",
            "K",
            ".5G",
            "1.5",
            "1.",
            "1.G",
            "-1",
            "+1",
            "1e3",
            "1X",
            "1KK",
            "1.5.2G",
            "0x10",
            "1Kb",
            "18446744073709551616",
            "99999999999P",
            "1.00000000000000001G",
            "64 K x",
            "340282366920938463463374607431768211456",
        ] {
            assert!(parse_size(text).is_err(), "{text} was accepted");
        }
    }

    #[test]
    fn blocks_and_windows_have_bounds() {
        assert_eq!(parse_block_size("4K"), Ok(4096));
        assert_eq!(parse_block_size("16M"), Ok(16 << 20));
        for text in ["2K", "32M", "1000", "3M", "0", "8G"] {
            assert!(parse_block_size(text).is_err(), "{text} was accepted");
        }
        assert_eq!(parse_window("1M"), Ok(1 << 20));
        assert!(parse_window("1").is_err() && parse_window("2G").is_err());
        assert!(parse_size_above_zero("0").is_err());
    }
}
