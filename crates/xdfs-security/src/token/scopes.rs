//! Scopes of tokens, as limits of a principal.

use super::Profile;
use crate::Scope;
use crate::export::Rights;

/// Maximum number of paths per token: each request is compared with all of them.
const MAX_SCOPES: usize = 256;

/// The storage scopes of a space-separated list (RFC 6749, section 3.3), with paths beneath `base`,
/// which is normalised. Scopes for other services are skipped; an invalid storage scope refuses the
/// whole token, as the WLCG profile requires. The error is the cause.
pub(super) fn read(profile: Profile, list: &str, base: &str) -> Result<Vec<Scope>, &'static str> {
    let mut scopes: Vec<Scope> = Vec::new();
    for item in list.split(' ') {
        let (name, path) = item
            .split_once(':')
            .map_or((item, None), |(name, path)| (name, Some(path)));
        let Some(rights) = rights(profile, name) else {
            continue;
        };
        let path = path
            .and_then(normalised)
            .ok_or("a scope of the token has no proper path")?;
        let path = match (base, path) {
            ("", path) => path.as_bytes().to_vec(),
            (base, "") => base.as_bytes().to_vec(),
            (base, path) => [base.as_bytes(), b"/", path.as_bytes()].concat(),
        };
        // Rights for one path are combined, so that an operation that needs two of them finds both.
        if let Some(same) = scopes.iter_mut().find(|s| s.path == path) {
            same.rights = same.rights | rights;
        } else if scopes.len() == MAX_SCOPES {
            return Err("the token has too many scopes");
        } else {
            scopes.push(Scope::new(path, rights));
        }
    }
    Ok(scopes)
}

/// The rights of a scope; `None` if it isn't about storage.
fn rights(profile: Profile, name: &str) -> Option<Rights> {
    let look = Rights::READ | Rights::LIST;
    let change = Rights::CREATE | Rights::WRITE | Rights::DELETE;
    match (profile, name) {
        (Profile::Wlcg, "storage.read" | "storage.stage") => Some(look),
        (Profile::Wlcg, "storage.create") => Some(Rights::CREATE),
        (Profile::Wlcg, "storage.modify") => Some(change),
        (Profile::SciTokens, "read") => Some(look),
        (Profile::SciTokens, "write") => Some(change),
        _ => None,
    }
}

/// An absolute path without slashes at its ends; empty for the root. `None` if it isn't absolute or
/// has an empty component, `.` or `..`, a control character, or one that RFC 6749 doesn't allow in
/// a scope (`"` and `\`).
///
/// Nothing is decoded, here or later: `%2e%2e` is a file name of six characters.
pub(super) fn normalised(path: &str) -> Option<&str> {
    let path = path.strip_prefix('/')?;
    if path.is_empty() {
        return Some(path);
    }
    let path = path.strip_suffix('/').unwrap_or(path);
    let whole = path.split('/').all(|c| !matches!(c, "" | "." | ".."));
    let plain = !path
        .chars()
        .any(|c| c.is_control() || matches!(c, '"' | '\\'));
    (whole && plain).then_some(path)
}

#[cfg(test)]
mod tests {
    use super::*;

    const LOOK: u8 = 0;
    const CREATE: u8 = 1;
    const CHANGE: u8 = 2;

    fn scope(path: &str, kind: u8) -> Scope {
        let rights = match kind {
            LOOK => Rights::READ | Rights::LIST,
            CREATE => Rights::CREATE,
            _ => Rights::CREATE | Rights::WRITE | Rights::DELETE,
        };
        Scope::new(path.into(), rights)
    }

    #[test]
    fn wlcg() {
        let read = |list| read(Profile::Wlcg, list, "");
        assert_eq!(
            read("openid storage.read:/a/b  storage.create:/c/ storage.modify:/d"),
            Ok(vec![
                scope("a/b", LOOK),
                scope("c", CREATE),
                scope("d", CHANGE)
            ])
        );
        assert_eq!(read("storage.stage:/"), Ok(vec![scope("", LOOK)]));
        assert_eq!(
            read("compute.read read:/a write:/ storage.poll:/a STORAGE.READ:/"),
            Ok(Vec::new())
        );
        assert_eq!(read(""), Ok(Vec::new()));
    }

    #[test]
    fn scitokens() {
        let read = |list| read(Profile::SciTokens, list, "");
        assert_eq!(
            read("read:/a write:/a/b queue"),
            Ok(vec![scope("a", LOOK), scope("a/b", CHANGE)])
        );
        assert_eq!(read("storage.read:/a"), Ok(Vec::new()));
    }

    #[test]
    fn one_path_has_its_rights_together() {
        let scopes = read(Profile::SciTokens, "read:/a write:/a/", "").unwrap();
        assert_eq!(scopes.len(), 1);
        assert_eq!(scopes[0].rights, Rights::ALL);
    }

    #[test]
    fn paths_are_beneath_the_base() {
        let read = |list| read(Profile::SciTokens, list, "store/vo");
        assert_eq!(read("read:/"), Ok(vec![scope("store/vo", LOOK)]));
        assert_eq!(read("read:/a:b"), Ok(vec![scope("store/vo/a:b", LOOK)]));
    }

    #[test]
    fn odd_paths_refuse_the_token() {
        for path in [
            "",
            ":",
            ":a",
            ":a/b",
            ":./a",
            ":/..",
            ":/a/..",
            ":/a/../b",
            ":/a/./b",
            ":/.",
            ":/./",
            "://",
            "://a",
            ":/a//b",
            ":/a//",
            ":/a/../",
            ":/a\0",
            ":/a\n",
            ":/a\tb",
            ":/a\\..\\b",
            ":/a\"",
            ":\u{2215}a",
            ":/\u{85}",
        ] {
            for (profile, name) in [
                (Profile::Wlcg, "storage.read"),
                (Profile::Wlcg, "storage.create"),
                (Profile::Wlcg, "storage.modify"),
                (Profile::Wlcg, "storage.stage"),
                (Profile::SciTokens, "read"),
                (Profile::SciTokens, "write"),
            ] {
                let list = format!("{name}:/good {name}{path}");
                assert!(read(profile, &list, "").is_err(), "{list:?}");
            }
        }
    }

    #[test]
    fn nothing_is_decoded() {
        for path in ["%2e%2e/a", "a%2fb", "...", "..a", "a..", "a.b"] {
            let list = format!("read:/{path}");
            let expected = Ok(vec![scope(path, LOOK)]);
            assert_eq!(read(Profile::SciTokens, &list, ""), expected);
        }
    }

    #[test]
    fn the_number_is_bounded() {
        let list = |n: usize| (0..n).map(|i| format!("read:/{i} ")).collect::<String>();
        assert_eq!(
            read(Profile::SciTokens, &list(256), "").map(|s| s.len()),
            Ok(256)
        );
        assert!(read(Profile::SciTokens, &list(257), "").is_err());
    }
}
