//! Validity of local user names that come from outside or from a table.

/// The longest name in bytes.
const MAX_BYTES: usize = 128;

/// Whether `name` is a valid user name: ASCII letters, digits and `._@+-`, beginning with a letter,
/// a digit or `_`, at most 128 bytes. `anonymous` isn't: it stands for unauthenticated users.
pub(crate) fn is_name(name: &str) -> bool {
    let plain = |b: u8| b.is_ascii_alphanumeric() || b == b'_';
    name.len() <= MAX_BYTES
        && name.bytes().next().is_some_and(plain)
        && name.bytes().all(|b| plain(b) || b".@+-".contains(&b))
        && name != "anonymous"
}

#[cfg(test)]
mod tests {
    use super::is_name;

    #[test]
    fn names() {
        for good in ["jane", "_x", "0b5e-11", "jane.doe+1@example.org"] {
            assert!(is_name(good), "{good}");
        }
        let long = "a".repeat(129);
        for bad in [
            "",
            "anonymous",
            ".",
            "..",
            "-x",
            "a/b",
            "a b",
            "a\0",
            "a\n",
            "\u{e9}",
            "a:b",
            &long,
        ] {
            assert!(!is_name(bad), "{bad:?}");
        }
        assert!(is_name(&long[1..]));
    }
}
