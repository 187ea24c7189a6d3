//! The settings of exports, from any text: no panic, and what is accepted has a meaning: paths that
//! tell the exports apart, rights for somebody, no place that depends on a user who has no name.
#![no_main]

use libfuzzer_sys::fuzz_target;
use xdfs_proto::Code;
use xdfs_security::export::{ExportConfig, Exports, ExportsConfig, Rights};
use xdfs_security::{Method, Principal};

fn check(config: &ExportsConfig, export: &ExportConfig) {
    let name = export.name.as_str();
    assert!(name == "/" || !name.contains(['/', '\\', '\0']));
    assert!(name != "." && name != ".." && !name.starts_with("mem:"));
    if matches!(name, "" | "/") {
        assert_eq!(config.export.len(), 1);
    }
    let same = config.export.iter().filter(|e| e.name == name);
    assert_eq!(same.count(), 1);
    assert!(export.path.starts_with('/') && !export.path.contains('\0'));
    let rest = export.path.replace("{user}", "");
    assert!(!rest.contains(['{', '}']));
    assert!(!export.public || rest == export.path);
    assert!(export.public || export.anonymous.is_none());
    assert!(export.public || !export.grant.is_empty());
    for grant in &export.grant {
        assert!(grant.rights != Rights::NONE);
        assert!(grant.user.is_some() != grant.group.is_some());
        assert!(grant.user.as_deref() != Some(""));
        let group = grant.group.as_ref();
        assert!(group.is_none_or(|g| config.groups.contains_key(g)));
    }
}

fuzz_target!(|text: &str| {
    let Ok(config) = toml::from_str::<ExportsConfig>(text) else {
        return;
    };
    let exports = match Exports::new(config.clone()) {
        Ok(exports) => exports,
        Err(fault) => {
            assert_eq!(fault.code, Code::InvalidArgument);
            return;
        }
    };
    for export in &config.export {
        check(&config, export);
    }
    let store = |user: &str, method| {
        exports.store_for(&Principal {
            user: user.to_owned(),
            method,
            scopes: Vec::new(),
        })
    };
    let is_public = config.export.iter().any(|e| e.public);
    assert_eq!(store("anonymous", Method::Anonymous).is_ok(), is_public);
    // Nothing is opened before it is used.
    assert!(store("jane", Method::Key).is_ok());
});
