//! Signing policies: for which names an authority may speak (`HASH.signing_policy`).
//!
//! ```text
//! access_id_CA   X509    '/O=Grid/CN=Test CA'
//! pos_rights     globus  CA:sign
//! cond_subjects  globus  '"/O=Grid/*" "/O=Other/*"'
//! ```
//!
//! Everything that isn't understood makes the whole policy useless: an authority without a policy
//! isn't trusted.

/// Bytes of the longest file.
pub(crate) const POLICY_BYTES_MAX: u64 = 1 << 20;

/// Whether the policy lets `authority` sign for `subject`, both in the form of OpenSSL's one line.
///
/// # Errors
/// The policy is malformed: why.
pub(crate) fn allows(text: &str, authority: &str, subject: &str) -> Result<bool, String> {
    let mut is_about_it = false;
    let mut may_sign = false;
    let mut is_allowed = false;
    for (number, line) in text.lines().enumerate() {
        let wrong = |what: &str| format!("line {}: {what}", number + 1);
        let line = line.trim();
        if line.is_empty() || line.starts_with('#') {
            continue;
        }
        let (keyword, rest) = word(line).ok_or_else(|| wrong("no keyword"))?;
        let (kind, rest) = word(rest).ok_or_else(|| wrong("two more words have to follow"))?;
        let (value, rest) = word(rest).ok_or_else(|| wrong("a value has to follow"))?;
        if !rest.is_empty() && !rest.starts_with('#') {
            return Err(wrong("something follows the value"));
        }
        match (keyword, kind) {
            ("access_id_CA", "X509") => {
                (is_about_it, may_sign) = (value == authority, false);
            }
            ("pos_rights", "globus") if value == "CA:sign" => may_sign = true,
            ("cond_subjects", "globus") => {
                let mut patterns = value;
                let mut matches = false;
                while let Some((pattern, rest)) = word(patterns) {
                    matches |= is_match(pattern, subject);
                    patterns = rest;
                }
                if !patterns.is_empty() {
                    return Err(wrong("a quote isn't closed"));
                }
                is_allowed |= is_about_it && may_sign && matches;
            }
            _ => return Err(wrong("the line is of a kind that isn't known")),
        }
    }
    Ok(is_allowed)
}

/// The next word, without its quotes, and what follows it.
fn word(text: &str) -> Option<(&str, &str)> {
    let text = text.trim_start();
    let quote = text.chars().next()?;
    if quote == '\'' || quote == '"' {
        let (word, rest) = text[1..].split_once(quote)?;
        return Some((word, rest.trim_start()));
    }
    let end = text.find(char::is_whitespace).unwrap_or(text.len());
    Some((&text[..end], text[end..].trim_start()))
}

/// Whether a pattern with `*`, for any characters, is the text. Bounded by the product of their
/// lengths.
fn is_match(pattern: &str, text: &str) -> bool {
    let (pattern, text) = (pattern.as_bytes(), text.as_bytes());
    let (mut at, mut from) = (0, 0);
    let mut star = None;
    while from < text.len() {
        match pattern.get(at) {
            Some(b'*') => {
                star = Some((at, from));
                at += 1;
            }
            Some(byte) if *byte == text[from] => (at, from) = (at + 1, from + 1),
            _ => {
                let Some((star_at, star_from)) = star else {
                    return false;
                };
                star = Some((star_at, star_from + 1));
                (at, from) = (star_at + 1, star_from + 1);
            }
        }
    }
    pattern[at..].iter().all(|byte| *byte == b'*')
}

#[cfg(test)]
mod unit_tests {
    use super::*;

    const POLICY: &str = "# Of a test.\n access_id_CA X509 '/O=Grid/CN=Test CA' # comment\n\
        pos_rights globus CA:sign\n\
        cond_subjects globus '\"/O=Grid/*\" \"/O=Other/CN=*x\"'\n\n\
        access_id_CA X509 \"/O=Second\"\npos_rights globus CA:sign\n\
        cond_subjects globus '/O=Second/*'\n";

    #[test]
    fn names_within_the_policy_are_allowed() {
        let allowed = |authority, subject| allows(POLICY, authority, subject).unwrap();
        assert!(allowed("/O=Grid/CN=Test CA", "/O=Grid/CN=a"));
        assert!(allowed("/O=Grid/CN=Test CA", "/O=Other/CN=axbx"));
        assert!(!allowed("/O=Grid/CN=Test CA", "/O=Other/CN=axb"));
        assert!(!allowed("/O=Grid/CN=Test CA", "/O=Gri"));
        assert!(!allowed("/O=Grid/CN=Test CA", "/O=Second/CN=a"));
        assert!(allowed("/O=Second", "/O=Second/CN=a"));
        assert!(!allowed("/O=Third", "/O=Grid/CN=a"));
        assert!(!allowed("/O=Second", "/o=second/CN=a"));
    }

    #[test]
    fn what_is_not_understood_allows_nothing() {
        let about = "access_id_CA X509 '/CN=A'\n";
        for more in [
            "neg_rights globus CA:sign\ncond_subjects globus '*'",
            "pos_rights globus CA:sing\ncond_subjects globus '*'",
            "pos_rights globus CA:sign\ncond_subjects globus '*",
            "pos_rights globus CA:sign\ncond_subjects globus '\"*'",
            "pos_rights globus CA:sign\ncond_subjects globus '*' '*'",
            "pos_rights globus CA:sign\ncond_subjects",
            "what is this",
        ] {
            assert!(
                allows(&format!("{about}{more}"), "/CN=A", "/CN=b").is_err(),
                "{more}"
            );
        }
        // The right has to come before the names, and for each authority anew.
        let late = format!("{about}cond_subjects globus '*'\npos_rights globus CA:sign\n");
        assert_eq!(allows(&late, "/CN=A", "/CN=b"), Ok(false));
        assert_eq!(allows("", "/CN=A", "/CN=b"), Ok(false));
    }
}
