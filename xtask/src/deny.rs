//! Licences, sources and banned crates, by cargo-deny where it is installed.
//!
//! Installing cargo-deny takes minutes, so without it this asks the same questions itself: it
//! reads the same `deny.toml`, asks cargo for the licences, and `Cargo.lock` for the sources. It
//! knows no advisories; neither does the call of cargo-deny here, which stays off the network.

use std::collections::BTreeSet;
use std::ffi::OsString;
use std::fs;
use std::process::{Command, Stdio};

use crate::{Failure, Outcome, call, cargo, licence, root};

/// The version that `deny.toml` was written for.
const VERSION: &str = "0.20.2";

/// Every kind of dependency: what builds or tests the program can harm it as well.
const EDGES: &str = "normal,build,dev";

pub(crate) fn run(args: &[OsString]) -> Outcome {
    let install = match args {
        [] => false,
        [one] if one == "--install" => true,
        _ => return Err(Failure::Said("deny takes only --install".into())),
    };
    let there = Command::new("cargo-deny")
        .arg("--version")
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .status()
        .is_ok_and(|status| status.success());
    if !there && install {
        call(cargo().args(["install", "cargo-deny", "--locked", "--version", VERSION]))?;
    }
    if there || install {
        return call(cargo().args(["deny", "--offline", "check", "bans", "licenses", "sources"]));
    }
    println!("xtask: cargo-deny is not installed (deny --install does it): own check instead");
    own_check()
}

fn own_check() -> Outcome {
    let read = |name: &str| {
        fs::read_to_string(root().join(name)).map_err(|e| format!("can't read {name}: {e}"))
    };
    let (rules, lock) = (read("deny.toml")?, read("Cargo.lock")?);
    let allowed = quoted(&rules, "licenses", "allow");
    let banned = quoted(&rules, "bans", "deny");
    if allowed.is_empty() || banned.is_empty() {
        return Err(Failure::Said(
            "deny.toml allows no licence or bans no crate".into(),
        ));
    }
    let mut faults = BTreeSet::new();
    faults.extend(foreign_sources(&lock));
    let tree = [
        "tree",
        "--workspace",
        "--target",
        "all",
        "--edges",
        EDGES,
        "--locked",
    ];
    let form = ["--prefix", "none", "--no-dedupe", "--format", "{p}\t{l}"];
    let output = cargo()
        .args(tree)
        .args(form)
        .stderr(Stdio::inherit())
        .output();
    let output = output.map_err(|e| format!("can't run cargo tree: {e}"))?;
    if !output.status.success() {
        return Err(Failure::Status(1));
    }
    let packages = String::from_utf8_lossy(&output.stdout);
    let packages: BTreeSet<&str> = packages.lines().filter(|line| !line.is_empty()).collect();
    for line in &packages {
        let (package, licences) = line.split_once('\t').unwrap_or((line, ""));
        let name = package.split(' ').next().unwrap_or_default();
        if banned.iter().any(|b| b == name) {
            faults.insert(format!("{package} is banned"));
        }
        match licence::is_allowed(licences, &allowed) {
            Ok(true) => {}
            Ok(false) => drop(faults.insert(format!("{package} is under {licences}"))),
            Err(e) => drop(faults.insert(format!("{package}: {e}"))),
        }
    }
    if faults.is_empty() {
        println!(
            "xtask: {} packages: licences, sources and bans are in order",
            packages.len()
        );
        return Ok(());
    }
    let list: Vec<String> = faults.into_iter().collect();
    Err(Failure::Said(format!(
        "deny.toml forbids:\n  {}",
        list.join("\n  ")
    )))
}

/// Packages of a lock file that come from elsewhere than the public registry. Those of the
/// workspace have no source.
fn foreign_sources(lock: &str) -> Vec<String> {
    let source = |line: &str| {
        let source = line.strip_prefix("source = \"")?.strip_suffix('"')?;
        let public = source.starts_with("registry+") && source.ends_with("/crates.io-index");
        (!public).then(|| format!("a package comes from {source}"))
    };
    lock.lines().filter_map(source).collect()
}

/// The quoted strings of the array `key` in the table `table` of a TOML file as plain as
/// `deny.toml`: one item a line, comments on lines of their own.
fn quoted(toml: &str, table: &str, key: &str) -> Vec<String> {
    let header = format!("[{table}]");
    let opening = format!("{key} = [");
    toml.lines()
        .map(str::trim)
        .skip_while(|line| *line != header)
        .skip_while(|line| *line != opening)
        .skip(1)
        .take_while(|line| *line != "]")
        .filter(|line| !line.starts_with('#'))
        .filter_map(|line| line.split('"').nth(1))
        .map(str::to_owned)
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn arrays_are_read() {
        let toml = "[a]\nx = [\n  \"no\",\n]\n[b]\nx = [\n  # \"not\"\n  \"one\",\n  \
                    { crate = \"two\", reason = \"r\" },\n]\ny = [\n\"three\"\n]\n";
        assert_eq!(quoted(toml, "b", "x"), ["one", "two"]);
        assert_eq!(quoted(toml, "b", "z"), [""; 0]);
    }

    #[test]
    fn only_the_public_registry_is_a_source() {
        let of = |source: &str| foreign_sources(&format!("name = \"x\"\nsource = \"{source}\"\n"));
        assert!(of("registry+https://host/rust-lang/crates.io-index").is_empty());
        assert_eq!(of("git+https://host/some/repo#abc").len(), 1);
        assert_eq!(of("registry+https://host/other-index").len(), 1);
        assert_eq!(of("sparse+https://host/index/").len(), 1);
        assert!(foreign_sources("name = \"ours\"\n").is_empty());
    }
}
