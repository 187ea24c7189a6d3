//! How fast GridFTP is with xdfs, against the Globus tools alone: `docs/gridftp/rates.md`.
//!
//! Each row has two or more programs that do the same, one after the other, in turns; what counts
//! is the ratio of the times of one turn. It is run by hand, on a machine that does nothing else.

mod link;
mod rows;
mod site;
mod tree;

use std::ffi::OsString;
use std::fs;

use crate::process::has;
use crate::{Failure, Outcome, call, cargo, root};
use rows::{Found, ROWS, Row};
use site::Site;

/// Where the table is.
const PAGE: &str = "docs/gridftp/rates.md";
const PROGRAMS: [&str; 4] = [
    "globus-gridftp-server",
    "globus-url-copy",
    "grid-proxy-init",
    "openssl",
];
const TURNS: usize = 7;

/// Measures the rows whose names contain one of the words, or all; all are written to the page.
pub(crate) fn run(args: &[OsString]) -> Outcome {
    let args: Vec<_> = args.iter().map(|arg| arg.to_string_lossy()).collect();
    let mut args: Vec<&str> = args.iter().map(AsRef::as_ref).collect();
    let mut turns = TURNS;
    if let [.., "--turns", number] = args[..] {
        let number = number.parse().ok().filter(|&turns| turns > 0);
        turns = number.ok_or_else(|| Failure::Message("--turns takes a number".into()))?;
        args.truncate(args.len() - 2);
    }
    if let Some(program) = PROGRAMS.iter().find(|program| !has(program)) {
        return Err(Failure::Message(format!("{program} is not installed")));
    }
    let mut build = cargo();
    build.args(["build", "--release", "--locked", "--package", "xdfs-cli"]);
    call(build.args(["--features", "gsi"]))?;
    // In memory, so that no disk is measured.
    let folder = format!("/dev/shm/xdfs-rates-{}", std::process::id());
    let measured = measure(&args, turns, folder.as_ref());
    // It may not be there.
    let _ = fs::remove_dir_all(&folder);
    let found = measured?;
    if args.is_empty() {
        let path = root().join(PAGE);
        fs::write(&path, page(&found, turns)).map_err(|error| format!("write {PAGE}: {error}"))?;
    }
    Ok(())
}

fn measure(words: &[&str], turns: usize, folder: &std::path::Path) -> Result<Vec<Found>, Failure> {
    let is_asked =
        |row: &&Row| words.is_empty() || words.iter().any(|word| row.name.contains(word));
    let rows: Vec<_> = ROWS.iter().filter(is_asked).collect();
    let payloads: Vec<&str> = rows.iter().map(|row| row.what).collect();
    let is_far = rows.iter().any(|row| row.is_far);
    let xdfs = root().join("target/release/xdfs");
    let site = Site::new(xdfs, folder, &payloads, is_far)?;
    let mut all = Vec::new();
    for row in rows {
        println!("{}", row.name);
        let found = row.measure(&site, turns)?;
        for line in found.lines() {
            println!("  {line}");
        }
        all.push(found);
    }
    Ok(all)
}

fn page(found: &[Found], turns: usize) -> String {
    let mut text = format!(
        "# GridFTP: rates\n\n\
         Written by `cargo xtask gridftp-rates` on one machine: {}, everything in memory (tmpfs), \
         over loopback unless\nthe row says otherwise, with the congestion control `{}`. Programs \
         of a row take turns, {turns} of them. **s** is the median of\nthe seconds; **ratio** the \
         median and the range over the turns of the seconds of the best program with \
         globus-url-copy at\nglobus-gridftp-server, divided by those of the line: above 1 where \
         xdfs is faster. **CPU** is in seconds, of the client and the\nserver. Rows of memory \
         have the most of one process of the server in place of seconds, and its share as the \
         ratio.\n`-verify-checksum` is the option of globus-url-copy to compare; `xdfs cp` \
         compares unless `--digest none` says otherwise.\n\n\
         | row | program | s | ratio | CPU | asked |\n|---|---|---:|---|---:|---|\n",
        site::machine(),
        site::congestion_control(),
    );
    for row in found {
        for line in row.table() {
            text += &line;
            text.push('\n');
        }
    }
    text
}
