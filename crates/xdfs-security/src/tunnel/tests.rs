//! Rules, and what tries to get around them.

use std::collections::BTreeMap;

use super::*;
use crate::Scope;
use crate::export::Rights;

fn rule(user: &str, host: &str, ports: &str) -> RuleConfig {
    RuleConfig {
        user: Some(user.into()),
        host: host.into(),
        ports: (!ports.is_empty()).then(|| ports.into()),
        ..RuleConfig::default()
    }
}

fn rules(connect: &[RuleConfig]) -> TunnelRules {
    let config = TunnelsConfig {
        connect: connect.to_vec(),
        ..TunnelsConfig::default()
    };
    let groups = BTreeMap::from([("staff".to_owned(), vec!["bob".to_owned()])]);
    config.check(&groups).unwrap()
}

fn principal(user: &str, method: Method) -> Principal {
    Principal {
        user: user.into(),
        method,
        scopes: Vec::new(),
    }
}

/// Whether `user` gets to `target`, whose name stands for `address`.
fn reaches(rules: &TunnelRules, user: &str, target: &str, address: &str) -> bool {
    let who = principal(user, Method::Key);
    let target = target.parse().unwrap();
    let may = rules.may_allow(Some(&who), Action::Connect, &target);
    may && rules.allows(
        Some(&who),
        Action::Connect,
        &target,
        address.parse().unwrap(),
    )
}

#[test]
fn without_rules_nothing_is_allowed() {
    let none = TunnelRules::default();
    for target in ["a:1", "10.0.0.1:1", "unix:/x"] {
        let (who, target) = (principal("alice", Method::Key), target.parse().unwrap());
        assert!(!none.may_allow(Some(&who), Action::Connect, &target));
        assert!(!none.may_allow(None, Action::Listen, &target));
    }
}

#[test]
fn names_hold_for_any_address_that_is_not_special() {
    let rules = rules(&[
        rule("alice", "db.lab", "5432"),
        rule("alice", "*.dyn.lab", "80"),
    ]);
    assert!(reaches(&rules, "alice", "db.lab:5432", "10.0.0.1"));
    assert!(reaches(&rules, "alice", "DB.LAB.:5432", "2001:db8::1"));
    assert!(reaches(&rules, "alice", "a.b.dyn.lab:80", "10.0.0.1"));
    for (user, target, address) in [
        ("bob", "db.lab:5432", "10.0.0.1"),
        ("alice", "db.lab:5433", "10.0.0.1"),
        ("alice", "xdb.lab:5432", "10.0.0.1"),
        ("alice", "db.lab.evil:5432", "10.0.0.1"),
        ("alice", "dyn.lab:80", "10.0.0.1"),
        ("alice", "xdyn.lab:80", "10.0.0.1"),
        // The address alone isn't named by the rule.
        ("alice", "10.0.0.1:5432", "10.0.0.1"),
    ] {
        assert!(!reaches(&rules, user, target, address), "{user} {target}");
    }
}

/// Whoever controls a name that is allowed can't lead the server to itself or its cloud.
#[test]
fn a_name_that_is_led_to_a_special_address_is_refused() {
    let mut settings = vec![rule("alice", "*", "*"), rule("alice", "db.lab", "*")];
    let some = rules(&settings);
    let special = [
        "127.0.0.1",
        "127.9.9.9",
        "::1",
        "::",
        "0.0.0.0",
        "0.1.2.3",
        "169.254.169.254",
        "100.64.0.0",
        "100.100.100.200",
        "100.127.255.255",
        "192.0.0.192",
        "168.63.129.16",
        "fd00:ec2::254",
        "fd00:ec2::23",
        "fd20:ce::254",
        "fd00:100:100::200",
        "fd00:42::42",
        "::ffff:100.100.100.200",
        "fe80::1",
        "febf::1",
        "224.0.0.1",
        "255.255.255.255",
        "ff02::1",
        "::ffff:127.0.0.1",
        "::127.0.0.1",
        "64:ff9b::7f00:1",
        "64:ff9b:1::7f00:1",
        "2002:7f00:1::1",
        "::ffff:0:127.0.0.1",
        "240.0.0.1",
        "fec0::1",
        "::ffff:169.254.169.254",
    ];
    for address in special {
        assert!(!reaches(&some, "alice", "db.lab:80", address), "{address}");
        assert!(
            !reaches(&some, "alice", "localhost:80", address),
            "{address}"
        );
        let host = match address.contains(':') {
            true => format!("[{address}]:80"),
            false => format!("{address}:80"),
        };
        assert!(!reaches(&some, "alice", &host, address), "{host}");
    }
    assert!(reaches(&some, "alice", "8.8.8.8:80", "8.8.8.8"));
    for beside in [
        "100.63.255.255",
        "100.128.0.0",
        "192.0.1.0",
        "168.63.129.17",
        "fd00:ec3::1",
        "fd20:cf::1",
        "fd00:100:101::1",
        "fd00:43::1",
    ] {
        assert!(reaches(&some, "alice", "db.lab:80", beside), "{beside}");
    }
    // Unless a rule names them.
    settings.push(rule("alice", "169.254.0.0/16", "80"));
    settings.push(rule("alice", "localhost", "80"));
    let named = rules(&settings);
    assert!(reaches(
        &named,
        "alice",
        "169.254.169.254:80",
        "169.254.169.254"
    ));
    assert!(reaches(&named, "alice", "localhost:80", "127.0.0.1"));
    assert!(reaches(&named, "alice", "localhost:80", "::1"));
    assert!(!reaches(&named, "alice", "localhost:81", "127.0.0.1"));
    assert!(!reaches(&named, "alice", "127.0.0.1:80", "127.0.0.1"));
    assert!(!reaches(&named, "alice", "db.lab:80", "127.0.0.1"));
}

#[test]
fn networks_hold_for_every_name_of_their_addresses() {
    let rules = rules(&[
        rule("*", "10.0.0.0/8", "8000-8100, 9000"),
        rule("*", "2001:db8::/33", "1"),
        rule("*", "192.0.2.7", "*"),
    ]);
    assert!(reaches(&rules, "alice", "10.255.0.1:8100", "10.255.0.1"));
    assert!(reaches(&rules, "alice", "x.lab:9000", "10.0.0.1"));
    assert!(reaches(&rules, "alice", "[2001:db8::7]:1", "2001:db8::7"));
    assert!(reaches(
        &rules,
        "alice",
        "[::ffff:192.0.2.7]:5",
        "192.0.2.7"
    ));
    for (target, address) in [
        ("11.0.0.1:9000", "11.0.0.1"),
        ("10.0.0.1:8101", "10.0.0.1"),
        ("x.lab:9000", "11.0.0.1"),
        ("[2001:db8:8000::]:1", "2001:db8:8000::"),
        ("192.0.2.6:5", "192.0.2.6"),
        ("[a00:1::]:9000", "a00:1::"),
    ] {
        assert!(!reaches(&rules, "alice", target, address), "{target}");
    }
}

#[test]
fn everybody_has_the_rules_that_are_public() {
    let public = RuleConfig {
        user: None,
        public: true,
        ..rule("", "pub.lab", "1")
    };
    let group = RuleConfig {
        user: None,
        group: Some("staff".into()),
        ..rule("", "staff.lab", "1")
    };
    let rules = rules(&[public, group, rule("*", "known.lab", "1")]);
    let anonymous = principal("anonymous", Method::Anonymous);
    let mut scoped = principal("bob", Method::Token);
    scoped.scopes.push(Scope::new(Vec::new(), Rights::ALL));
    let (alice, bob) = (
        principal("alice", Method::Key),
        principal("bob", Method::Key),
    );
    for (who, names) in [
        (None, ["pub.lab"].as_slice()),
        (Some(&anonymous), &["pub.lab"]),
        (Some(&alice), &["pub.lab", "known.lab"]),
        (Some(&bob), &["pub.lab", "known.lab", "staff.lab"]),
        // Its scopes are about paths.
        (Some(&scoped), &[]),
    ] {
        for name in ["pub.lab", "known.lab", "staff.lab"] {
            let target: Target = format!("{name}:1").parse().unwrap();
            let may = rules.may_allow(who, Action::Connect, &target);
            assert_eq!(may, names.contains(&name), "{who:?} {name}");
            let address = "10.0.0.1".parse().unwrap();
            assert_eq!(may, rules.allows(who, Action::Connect, &target, address));
            assert!(!rules.may_allow(who, Action::Listen, &target));
        }
    }
}

#[test]
fn sockets_have_exact_paths() {
    let rules = rules(&[rule("*", "unix:/run/x.sock", ""), rule("*", "*", "*")]);
    let who = principal("alice", Method::Key);
    let may = |target: &str| {
        let target = target.parse().unwrap();
        rules.may_allow(Some(&who), Action::Connect, &target)
    };
    assert!(may("unix:/run/x.sock"));
    for other in [
        "unix:/run/x.sock2",
        "unix:/run/../run/x.sock",
        "unix:/run/X.sock",
    ] {
        assert!(!may(other), "{other}");
    }
}

#[test]
fn wrong_rules_are_named() {
    let groups = BTreeMap::new();
    let group = RuleConfig {
        user: None,
        group: Some("none".into()),
        ..rule("", "a", "1")
    };
    let both = RuleConfig {
        public: true,
        ..rule("alice", "a", "1")
    };
    for wrong in [
        rule("", "a", "1"),
        rule("a", "", "1"),
        rule("a", "a b", "1"),
        rule("a", "**", "1"),
        rule("a", "a.*", "1"),
        rule("a", "*.10.0.0.1", "1"),
        rule("a", "10.0.0.1/8", "1"),
        rule("a", "10.0.0.0/33", "1"),
        rule("a", "unix:x", ""),
        rule("a", "unix:/x", "1"),
        rule("a", "a", ""),
        rule("a", "a", "1-"),
        rule("a", "a", "2-1"),
        rule("a", "a", "65536"),
        rule("a", "a", "+1"),
        rule("a", "a", "1,,2"),
        group,
        both,
    ] {
        let config = TunnelsConfig {
            connect: vec![rule("a", "a", "1"), wrong.clone()],
            ..TunnelsConfig::default()
        };
        let fault = config.check(&groups).expect_err(&format!("{wrong:?}"));
        assert!(fault.cause.contains("rule 2 of tunnel.connect"), "{fault}");
    }
}
