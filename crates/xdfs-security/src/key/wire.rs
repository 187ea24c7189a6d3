//! SSH's encoding of strings and numbers (RFC 4251, section 5).

/// Takes fields off the front of a slice, without allocation.
pub(super) struct Reader<'a>(pub(super) &'a [u8]);

impl<'a> Reader<'a> {
    /// One byte.
    #[cfg(unix)]
    pub(super) fn byte(&mut self) -> Option<u8> {
        let (first, rest) = self.0.split_first()?;
        self.0 = rest;
        Some(*first)
    }

    /// A 32-bit number.
    pub(super) fn number(&mut self) -> Option<u32> {
        let (field, rest) = self.0.split_first_chunk()?;
        self.0 = rest;
        Some(u32::from_be_bytes(*field))
    }

    /// A length-prefixed string.
    pub(super) fn string(&mut self) -> Option<&'a [u8]> {
        let length = usize::try_from(self.number()?).ok()?;
        let (field, rest) = self.0.split_at_checked(length)?;
        self.0 = rest;
        Some(field)
    }

    /// A positive number of any size, as its bytes without leading zeros. Non-canonical encodings
    /// are refused, so that equal keys have equal bytes.
    pub(super) fn positive(&mut self) -> Option<&'a [u8]> {
        match self.string()? {
            [0, rest @ ..] if rest.first().is_some_and(|b| b & 0x80 != 0) => Some(rest),
            whole @ [1..0x80, ..] => Some(whole),
            _ => None,
        }
    }

    /// Checks that nothing is left.
    pub(super) fn end(&self) -> Option<()> {
        self.0.is_empty().then_some(())
    }
}

/// Appends a length-prefixed string. All strings written here are far below 4 GiB.
pub(super) fn put_string(out: &mut Vec<u8>, bytes: &[u8]) {
    out.extend((bytes.len() as u32).to_be_bytes());
    out.extend(bytes);
}

/// Appends a non-negative number, from its bytes in network order.
pub(super) fn put_positive(out: &mut Vec<u8>, bytes: &[u8]) {
    let zeros = bytes.iter().take_while(|b| **b == 0).count();
    let digits = &bytes[zeros..];
    let sign = usize::from(digits.first().is_some_and(|b| b & 0x80 != 0));
    out.extend(((digits.len() + sign) as u32).to_be_bytes());
    out.extend(&[0][..sign]);
    out.extend(digits);
}
