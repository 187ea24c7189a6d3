//! Combines values of CRC-64/NVME without the bytes that they were computed from.
//!
//! A CRC is a remainder of polynomials over GF(2), so the value of two consecutive pieces is the
//! value of the first times x^(8n), for n bytes in the second, plus the value of the second.
//! Numbers have the representation of the algorithm: the lowest power of x in the highest bit. A
//! product takes 64 steps and x^(8n) one product per bit set in n, which is cheap enough for every
//! block.

/// The polynomial of CRC-64/NVME, lowest power in the highest bit.
const POLYNOMIAL: u64 = 0x9a6c_9329_ac4b_c9b5;
/// The polynomial 1.
const ONE: u64 = 1 << 63;
/// `POWERS[k]` is x^(8 * 2^k) modulo the polynomial.
static POWERS: [u64; 64] = powers();

const fn powers() -> [u64; 64] {
    let mut table = [0; 64];
    // x^8, and then its repeated squares.
    let mut power = ONE >> 8;
    let mut k = 0;
    while k < 64 {
        table[k] = power;
        power = multiply(power, power);
        k += 1;
    }
    table
}

/// The product of two polynomials, modulo the polynomial of the CRC.
const fn multiply(a: u64, mut b: u64) -> u64 {
    let mut product = 0;
    let mut bit = 64;
    // Without branches, since the bits of a CRC are unpredictable.
    while bit > 0 {
        bit -= 1;
        product ^= b & 0u64.wrapping_sub((a >> bit) & 1);
        b = (b >> 1) ^ (POLYNOMIAL & 0u64.wrapping_sub(b & 1));
    }
    product
}

/// x^(8 * `bytes`) modulo the polynomial.
fn shift(bytes: u64) -> u64 {
    let mut rest = bytes;
    let mut power = None;
    while rest != 0 {
        let factor = POWERS[rest.trailing_zeros() as usize];
        power = Some(power.map_or(factor, |p| multiply(p, factor)));
        rest &= rest - 1;
    }
    power.unwrap_or(ONE)
}

/// The CRC of two consecutive pieces, from their values and the length of the second.
pub(super) fn combine(first: u64, second: u64, second_bytes: u64) -> u64 {
    multiply(first, shift(second_bytes)) ^ second
}

/// The CRC of `bytes` zeros.
pub(super) fn zeros(bytes: u64) -> u64 {
    // The register starts with all bits set and is inverted at the end.
    !multiply(u64::MAX, shift(bytes))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crc_fast::{CrcAlgorithm, checksum, checksum_combine};

    #[test]
    fn combining_agrees_with_one_pass() {
        let bytes: Vec<u8> = (0..5000u32).map(|i| ((i * i) >> 3) as u8).collect();
        let whole = checksum(CrcAlgorithm::Crc64Nvme, &bytes);
        for cut in [0, 1, 7, 64, 1024, 4096, 4999, 5000] {
            let first = checksum(CrcAlgorithm::Crc64Nvme, &bytes[..cut]);
            let second = checksum(CrcAlgorithm::Crc64Nvme, &bytes[cut..]);
            assert_eq!(
                combine(first, second, (bytes.len() - cut) as u64),
                whole,
                "cut at {cut}"
            );
        }
    }

    #[test]
    fn combining_agrees_for_lengths_that_no_buffer_has() {
        for len in [u64::from(u32::MAX) + 1, (1 << 40) + 12_345, u64::MAX >> 1] {
            let expected = checksum_combine(CrcAlgorithm::Crc64Nvme, 0x1234_5678_9abc, 77, len);
            assert_eq!(combine(0x1234_5678_9abc, 77, len), expected, "length {len}");
        }
    }

    #[test]
    fn zeros_agree_with_hashing_them() {
        for len in [0usize, 1, 8, 1023, 1 << 16, (1 << 16) + 1] {
            let expected = checksum(CrcAlgorithm::Crc64Nvme, &vec![0; len]);
            assert_eq!(zeros(len as u64), expected, "{len} zeros");
        }
    }
}
