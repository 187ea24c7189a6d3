//! Tests of `config.rs`.

use super::*;

#[test]
fn the_settings_of_the_manual() {
    let dir = tempfile::tempdir().unwrap();
    let settings = r#"
        [[export]]
        name = "data"
        path = "ROOT"
        public = true
        anonymous = ["read"]
        quota_bytes = "10G"
        quota_files = 100000
        largest_file = 4096
        [[export.grant]]
        user = "alice"
        rights = ["read", "list", "create", "write", "delete"]
        [[export.grant]]
        group = "staff"
        rights = ["create"]
        [[export.grant]]
        user = "*"
        rights = ["list"]

        [[export]]
        name = "home"
        path = "ROOT/{user}"
        make = true
        [[export.grant]]
        user = "*"
        rights = "all"

        [groups]
        staff = ["alice", "bob"]
    "#;
    let exports = parse(dir.path(), settings).unwrap();
    let [data, home] = &*exports.shared.exports else {
        panic!("{exports:?}");
    };
    assert_eq!(data.quota.bytes, Some(10 << 30));
    assert_eq!(data.quota.files, Some(100_000));
    assert_eq!(data.largest_file, Some(4096));
    assert_eq!(data.rights_of(&anonymous()), Rights::READ);
    assert_eq!(data.rights_of(&user("alice")), Rights::ALL);
    // Grants add up, also with public rights.
    let bobs = Rights::READ | Rights::CREATE | Rights::LIST;
    assert_eq!(data.rights_of(&user("bob")), bobs);
    assert_eq!(data.rights_of(&user("eve")), Rights::READ | Rights::LIST);
    // The method determines who is anonymous, not the name.
    assert_eq!(home.rights_of(&user("anonymous")), Rights::ALL);
    assert_eq!(home.rights_of(&anonymous()), Rights::NONE);
}

#[test]
fn settings_without_meaning_name_the_export() {
    let dir = tempfile::tempdir().unwrap();
    let grant = "grant = [{ user = '*', rights = 'all' }]";
    for (settings, expected) in [
        ("name = 'x'\npath = 'ROOT'", "no grants"),
        ("name = 'x'\npath = 'relative'\nGRANT", "absolute"),
        ("name = 'x'\npath = ''\nGRANT", "absolute"),
        ("name = 'x'\npath = '~/x'\nGRANT", "absolute"),
        ("name = 'x'\npath = 'ROOT/{group}'\nGRANT", "braces"),
        ("name = 'x'\npath = 'ROOT/{user}/{'\nGRANT", "braces"),
        ("name = 'x'\npath = 'ROOT/}'\nGRANT", "braces"),
        ("name = 'x'\npath = 'ROOT/{{user}}'\nGRANT", "braces"),
        ("name = 'x'\npath = \"/\\u0000\"\nGRANT", "zero byte"),
        ("name = 'x/x'\npath = 'ROOT'\nGRANT", "one component"),
        ("name = '/x'\npath = 'ROOT'\nGRANT", "one component"),
        ("name = '..'\npath = 'ROOT'\nGRANT", "one component"),
        ("name = 'mem:x'\npath = 'ROOT'\nGRANT", "built in"),
        (
            "name = 'x'\npath = 'ROOT'\ngrant = [{ group = 'x', rights = 'all' }]",
            "no group 'x'",
        ),
        (
            "name = 'x'\npath = 'ROOT'\ngrant = [{ rights = 'all' }]",
            "either a user or a group",
        ),
        (
            "name = 'x'\npath = 'ROOT'\ngrant = [{ user = 'x', group = 'g', rights = 'all' }]",
            "either a user or a group",
        ),
        (
            "name = 'x'\npath = 'ROOT'\ngrant = [{ user = '', rights = 'all' }]",
            "without a name",
        ),
        (
            "name = 'x'\npath = 'ROOT'\ngrant = [{ user = 'x', rights = [] }]",
            "no rights",
        ),
        ("name = 'x'\npath = 'ROOT/{user}'\npublic = true", "{user}"),
        (
            "name = 'x'\npath = 'ROOT'\npublic = true\nanonymous = []",
            "no rights",
        ),
        (
            "name = 'x'\npath = 'ROOT'\nanonymous = ['read']\nGRANT",
            "isn't public",
        ),
        (
            "name = 'x'\npath = 'ROOT'\nGRANT\n[[export]]\nname = 'x'\npath = 'ROOT'\nGRANT",
            "same name",
        ),
        (
            "name = ''\npath = 'ROOT'\nGRANT\n[[export]]\nname = 'x'\npath = 'ROOT'\nGRANT",
            "only export",
        ),
        (
            "name = 'x'\npath = 'ROOT'\nGRANT\n[[export]]\nname = '/'\npath = 'ROOT'\nGRANT",
            "only export",
        ),
    ] {
        let settings = format!("[[export]]\n{settings}\n[groups]\ng = ['x']");
        let fault = parse(dir.path(), &settings.replace("GRANT", grant)).unwrap_err();
        assert_eq!(fault.code, Code::InvalidArgument, "{settings}");
        assert!(fault.cause.starts_with("export '"), "{fault}");
        assert!(fault.cause.contains(expected), "{fault}");
    }
}

#[test]
fn what_is_not_known_is_refused() {
    for settings in [
        "[[exports]]",
        "[[export]]\nname = 'x'\npath = '/x'\nquota = 1",
        "[[export]]\nname = 'x'",
        "[[export]]\nname = 'x'\npath = '/x'\nquota_bytes = -1",
        "[[export]]\nname = 'x'\npath = '/x'\nquota_bytes = 1.5",
        "[[export]]\nname = 'x'\npath = '/x'\nquota_files = '1K'",
        "[[export]]\nname = 'x'\npath = '/x'\ngrant = [{ user = 'x' }]",
        "[[export]]\nname = 'x'\npath = '/x'\ngrant = [{ user = 'x', rights = ['all', 'x'] }]",
        "[[export]]\nname = 'x'\npath = '/x'\ngrant = [{ user = 'x', rights = 'READ' }]",
        "[[export]]\nname = 'x'\npath = '/x'\ngrant = [{ user = 'x', rights = 31 }]",
        "[[export]]\nname = 'x'\npath = '/x'\ngrant = [{ user = 'x', rights = 'all', for = 1 }]",
    ] {
        toml::from_str::<ExportsConfig>(settings).unwrap_err();
    }
}

#[test]
fn sizes() {
    let parse = |size: &str| {
        let settings = format!("[[export]]\nname = 'x'\npath = '/x'\nquota_bytes = {size}");
        let config = toml::from_str::<ExportsConfig>(&settings).ok()?;
        config.export[0].quota_bytes
    };
    for (size, expected) in [
        ("0", 0),
        ("1024", 1024),
        ("'1024'", 1024),
        ("'1K'", 1 << 10),
        ("'3M'", 3 << 20),
        ("'10G'", 10 << 30),
        ("'2T'", 2 << 40),
        ("'16777215T'", 16_777_215 << 40),
    ] {
        assert_eq!(parse(size), Some(expected), "{size}");
    }
    for size in [
        "''",
        "'K'",
        "'1k'",
        "'1KB'",
        "'+1'",
        "'-1'",
        "' 1'",
        "'1 G'",
        "'1.5G'",
        "'16777216T'",
        "'99999999999999999999'",
        "'1é'",
        "'é'",
    ] {
        assert_eq!(parse(size), None, "{size}");
    }
}

#[test]
fn rights_are_words_and_bits() {
    for bits in 0..=31 {
        let rights = Rights::from_bits(bits).unwrap();
        assert_eq!(rights.bits(), bits);
    }
    assert_eq!(Rights::from_bits(32), None);
    assert_eq!(Rights::from_bits(255), None);
    let rights = Rights::READ | Rights::DELETE;
    assert_eq!(rights.to_string(), "read, delete");
    assert_eq!(Rights::NONE.to_string(), "none");
    assert_eq!(Rights::from_word("all"), Some(Rights::ALL));
    assert_eq!(Rights::from_word(""), None);
    assert_eq!(Rights::ALL & rights, rights);
}
