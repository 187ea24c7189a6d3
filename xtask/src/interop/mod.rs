//! The matrix of clients and servers: every row is done by each client at each server, and
//! `docs/gridftp/interop.md` has what came of it.

mod clients;
mod nodes;
mod rows;
mod security;
mod servers;
mod tools;
mod witness;

use std::collections::BTreeMap;
use std::ffi::OsString;
use std::fs;
use std::path::{Path, PathBuf};
use std::sync::Mutex;
use std::sync::atomic::{AtomicUsize, Ordering};

use crate::grid::Grid;
use crate::process::has;
use crate::{Failure, OPTIONAL, Outcome as Ended, call, cargo, root};
use clients::Client;
use rows::{Cell, Outcome, Row, is_owed};
use servers::Server;
use tools::{Kind, Tools};

/// Where the tables are.
const PAGE: &str = "docs/gridftp/interop.md";
/// What has to be installed.
const PROGRAMS: [&str; 9] = [
    "curl",
    "globus-gridftp-server",
    "globus-url-copy",
    "grid-proxy-init",
    "lftp",
    "openssl",
    "python3",
    "strace",
    "vsftpd",
];
/// Clients at servers at the same time.
const THREADS: usize = 3;

/// The outcomes of a client at a server, in the order of the rows.
type Column = ((usize, usize), Vec<Outcome>);

/// Runs all cells and writes the page. With `--check`, fails if the page is another.
pub(crate) fn run(args: &[OsString]) -> Ended {
    let is_check = match args {
        [] => false,
        [only] if only == "--check" => true,
        _ => return Err(Failure::Message("interop [--check]".into())),
    };
    let missing: Vec<_> = PROGRAMS
        .into_iter()
        .filter(|program| !has(program))
        .collect();
    let no_v6 = std::net::TcpListener::bind("[::1]:0").is_err();
    let missing = match missing.as_slice() {
        [] if no_v6 => "IPv6".to_owned(),
        programs => programs.join(", "),
    };
    if !missing.is_empty() && is_check {
        println!("xtask: without {missing} the matrix of GridFTP is not checked");
        return Ok(());
    }
    if !missing.is_empty() {
        return Err(Failure::Message(format!("the matrix needs {missing}")));
    }
    // A check is made beside the tests, which come with the program: nothing is built twice.
    let build: &[&str] = match is_check {
        true => &["test", "--no-run", "--workspace"],
        false => &["build", "--package", "xdfs-cli"],
    };
    call(
        cargo()
            .args(build)
            .args(["--locked", "--features", OPTIONAL]),
    )?;
    let folder = std::env::temp_dir().join(format!("xdfs-interop-{}", std::process::id()));
    let is_run = |kind, client| !is_check || is_ours(kind, client) || is_model(kind, client);
    let found = columns(&folder, is_run);
    // What is left there after a failure is a few megabytes.
    let _ = fs::remove_dir_all(&folder);
    let found = found?;
    let path = root().join(PAGE);
    if is_check {
        let page = fs::read_to_string(&path).unwrap_or_default();
        compare(&found, &page)?;
    } else {
        fs::write(&path, page(&found)).map_err(|error| format!("can't write {PAGE}: {error}"))?;
    }
    owed(&found)
}

/// All rows, in the order of the tables.
fn rows() -> impl Iterator<Item = &'static Row> {
    rows::ROWS.iter().chain(security::ROWS)
}

/// Whether xdfs is at either end. What other programs do with each other is for the reader's
/// information: a race between two of them is no defect of this project.
fn is_ours(kind: Kind, client: Client) -> bool {
    client == Client::Xdfs || kind == Kind::Xdfs
}

/// Whether xdfs has to pass what passes there.
fn is_model(kind: Kind, client: Client) -> bool {
    client == Client::Globus && kind == Kind::Globus
}

/// The clients at the servers that are to be run.
fn columns(folder: &Path, is_run: impl Fn(Kind, Client) -> bool) -> Result<Vec<Column>, String> {
    fs::create_dir_all(folder.join("certificate")).map_err(|error| error.to_string())?;
    let target = std::env::var_os("CARGO_TARGET_DIR").map(PathBuf::from);
    let mut tools = Tools {
        xdfs: target
            .unwrap_or_else(|| root().join("target"))
            .join("debug/xdfs"),
        certificate: PathBuf::new(),
        grid: grid(&folder.join("grid"))?,
    };
    // A server makes itself a certificate, which vsftpd gets too.
    let maker = Server::start(Kind::Xdfs, &tools, &folder.join("certificate"), false)?;
    tools.certificate = folder.join("certificate/server");
    drop(maker);
    let pairs: Vec<_> = (0..Kind::ALL.len())
        .flat_map(|server| (0..Client::ALL.len()).map(move |client| (server, client)))
        .filter(|&(server, client)| is_run(Kind::ALL[server], Client::ALL[client]))
        .collect();
    let (next, found) = (AtomicUsize::new(0), Mutex::new(Vec::new()));
    let worker = || -> Result<(), String> {
        while let Some(&(server, client)) = pairs.get(next.fetch_add(1, Ordering::Relaxed)) {
            let at = folder.join(format!("{server}-{client}"));
            let outcomes = column(&tools, &at, Kind::ALL[server], Client::ALL[client])?;
            // What it has moved.
            let _ = fs::remove_dir_all(&at);
            let mut found = found.lock().map_err(|error| error.to_string())?;
            found.push(((server, client), outcomes));
        }
        Ok(())
    };
    std::thread::scope(|scope| {
        let workers: Vec<_> = (0..THREADS).map(|_| scope.spawn(worker)).collect();
        let ends = workers.into_iter().map(|worker| worker.join());
        let ends: Vec<_> = ends.collect();
        ends.into_iter()
            .try_for_each(|end| end.unwrap_or_else(|_| Err("a row panicked".into())))
    })?;
    let mut found = found.into_inner().map_err(|error| error.to_string())?;
    found.sort_by_key(|(pair, _)| *pair);
    Ok(found)
}

/// Certificates, and proxies of which each is what it has to be.
fn grid(folder: &Path) -> Result<Grid, String> {
    let grid = Grid::new(folder.to_owned())?;
    for (name, flag, words) in security::PROXIES {
        grid.add_proxy(name, &[flag])?;
        if !grid.described(name)?.contains(words) {
            return Err(format!("grid-proxy-init {flag} doesn't make such a proxy"));
        }
    }
    Ok(grid)
}

/// One client at one server.
fn column(tools: &Tools, at: &Path, kind: Kind, client: Client) -> Result<Vec<Outcome>, String> {
    let mut server = Server::start(kind, tools, &at.join("server"), false)?;
    let other = Server::start(Kind::Globus, tools, &at.join("other"), false)?;
    let help = client.help(tools, &at.join("help"));
    let mut outcomes = Vec::new();
    for (number, row) in rows().enumerate() {
        let here = at.join(format!("row{number}"));
        fs::create_dir_all(&here).map_err(|error| error.to_string())?;
        let mut cell = Cell {
            tools,
            client,
            help: &help,
            server: &mut server,
            other: &other,
            here: here.clone(),
        };
        let began = std::time::Instant::now();
        let outcome = (row.run)(&mut cell);
        let took = began.elapsed().as_secs_f64();
        println!(
            "{} at {}: {}: {outcome:?} {took:.1} s",
            client.name(),
            kind.name(),
            row.name
        );
        outcomes.push(outcome);
    }
    Ok(outcomes)
}

/// Fails unless xdfs passes in either place what passes between the Globus tools, and fails
/// nowhere.
fn owed(found: &[Column]) -> Ended {
    let mut broken = Vec::new();
    for (number, row) in rows().enumerate() {
        let outcome = |client, kind| {
            let is_pair = |(server, at): &(usize, usize)| {
                Kind::ALL[*server] == kind && Client::ALL[*at] == client
            };
            let column = found.iter().find(|(pair, _)| is_pair(pair));
            column.map(|(_, outcomes)| outcomes[number].clone())
        };
        let passes = outcome(Client::Globus, Kind::Globus) == Some(Outcome::Pass);
        for client in Client::ALL {
            for kind in Kind::ALL {
                let is_broken = match outcome(client, kind) {
                    Some(Outcome::Pass) => false,
                    Some(Outcome::Fail(_)) => is_ours(kind, client),
                    _ => passes && is_owed(client, kind),
                };
                if is_broken {
                    broken.push(format!(
                        "{}: {} at {}",
                        row.name,
                        client.name(),
                        kind.name()
                    ));
                }
            }
        }
    }
    match broken.is_empty() {
        true => Ok(()),
        false => Err(Failure::Message(format!(
            "xdfs has to pass:\n{}",
            broken.join("\n")
        ))),
    }
}

/// The whole page.
fn page(found: &[Column]) -> String {
    let mut text = String::from(
        "# GridFTP: which clients work with which servers\n\n\
         Written by `cargo xtask interop`, which runs every cell with the real programs and \
         compares the bytes; continuous\nintegration checks that the cells of xdfs are still so. \
         **yes**: what was moved is the same at both ends. **no**: either\nside doesn't offer it. \
         **fail**: both offer it, and it doesn't work. The numbers lead to the reasons below. What \
         passes\nbetween both Globus tools has to pass with xdfs in either place, and nothing may \
         fail with xdfs.\n\n\
         With TLS and GSI `strace` looks at the connections of the client, and of a third party's \
         globus-gridftp-server: a **yes**\nsays that the control connection has this version of \
         TLS, which data connections have it too, and that the file can be\nread there with PROT C \
         and DCAU N, and can't with PROT P and S; which of these two it is, the commands tell,\nin \
         `globus-url-copy -dbg` and the log of xdfs. GSI is with TLS 1.3 and a proxy of RFC 3820 \
         where nothing else is said.\nThe version is told to curl by `--tls-max`, to lftp by \
         `ssl:priority`, to ftplib by its context, to globus-url-copy\nby \
         `GLOBUS_GSSAPI_MAX_TLS_PROTOCOL`, to vsftpd and the GSI of xdfs by `OPENSSL_CONF`; the \
         `ftps://` of xdfs takes\nthe newest that the server has. globus-url-copy has no option \
         for DCAU S.\n",
    );
    let mut notes: BTreeMap<String, usize> = BTreeMap::new();
    let mut order = Vec::new();
    for (server, kind) in Kind::ALL.into_iter().enumerate() {
        text += &format!("\n## At {}\n\n|", kind.name());
        for client in Client::ALL {
            text += &format!(" | {}", client.name());
        }
        text += &format!(" |\n|---|{}\n", "---|".repeat(Client::ALL.len()));
        for (number, row) in rows().enumerate() {
            text += &format!("| {}", row.name);
            for (_, outcomes) in found.iter().filter(|((of, _), _)| *of == server) {
                let (word, note) = outcomes[number].words();
                text += &format!(" | {word}");
                if let Some(note) = note {
                    let next = notes.len() + 1;
                    let number = *notes.entry(note.clone()).or_insert_with(|| {
                        order.push(note.clone());
                        next
                    });
                    text += &format!(" [{number}](#reasons)");
                }
            }
            text += " |\n";
        }
    }
    text += "\n## Reasons\n\n";
    for (number, note) in order.iter().enumerate() {
        text += &format!("{}. {note}\n", number + 1);
    }
    text
}

/// Fails unless the cells of xdfs are as the page has them.
fn compare(found: &[Column], page: &str) -> Ended {
    let cells = cells(page);
    let mut others = Vec::new();
    for ((server, client), outcomes) in found {
        let (kind, client) = (Kind::ALL[*server], Client::ALL[*client]);
        for (row, outcome) in rows().zip(outcomes) {
            let (word, note) = outcome.words();
            let now = (word.to_owned(), note.cloned());
            let place = (
                kind.name().to_owned(),
                row.name.to_owned(),
                client.name().to_owned(),
            );
            if is_ours(kind, client) && cells.get(&place) != Some(&now) {
                let before = cells.get(&place);
                others.push(format!(
                    "{}: {} at {}: {now:?}, not {before:?}",
                    row.name,
                    client.name(),
                    kind.name(),
                ));
            }
        }
    }
    match others.is_empty() {
        true => Ok(()),
        false => Err(Failure::Message(format!(
            "{PAGE} is not what the tools show: run `cargo xtask interop`\n{}",
            others.join("\n")
        ))),
    }
}

/// The word and the reason of each cell of a page, by server, row and client.
fn cells(page: &str) -> BTreeMap<(String, String, String), (String, Option<String>)> {
    let (tables, reasons) = page.split_once("\n## Reasons\n").unwrap_or((page, ""));
    let reasons: BTreeMap<&str, &str> = reasons
        .lines()
        .filter_map(|line| line.split_once(". "))
        .collect();
    let mut cells = BTreeMap::new();
    for table in tables.split("\n## At ").skip(1) {
        let mut lines = table.lines();
        let server = lines.next().unwrap_or_default();
        let mut rows = lines
            .filter(|line| !line.starts_with("|-"))
            .filter_map(|line| line.strip_prefix('|')?.strip_suffix('|'))
            .map(|row| row.split('|').map(str::trim));
        let clients: Vec<&str> = rows.next().into_iter().flatten().skip(1).collect();
        for mut row in rows {
            let name = row.next().unwrap_or_default();
            for (client, cell) in clients.iter().zip(row) {
                let (word, link) = cell.split_once(" [").unwrap_or((cell, ""));
                let number = link.split(']').next().unwrap_or_default();
                let reason = reasons.get(number).map(ToString::to_string);
                let place = (server.to_owned(), name.to_owned(), (*client).to_owned());
                cells.insert(place, (word.to_owned(), reason));
            }
        }
    }
    cells
}

#[cfg(test)]
mod tests {
    use super::*;

    /// What a page says is read back as it was written, with its reasons.
    #[test]
    fn a_page_is_read_as_it_was_written() {
        let outcome = |number: usize| match number % 3 {
            0 => Outcome::Pass,
            1 => Outcome::Fail("it says `a | b`. No.".to_owned()),
            _ => Outcome::NotOffered(format!("reason {}", number % 5)),
        };
        let pairs = (0..Kind::ALL.len())
            .flat_map(|server| (0..Client::ALL.len()).map(move |client| (server, client)));
        let column = |pair: (usize, usize)| {
            let rows = (0..rows().count()).map(|row| outcome(pair.0 + pair.1 + row));
            (pair, rows.collect())
        };
        let mut found: Vec<Column> = pairs.map(column).collect();
        let page = page(&found);
        assert_eq!(compare(&found, &page).err().map(|_| ()), None);
        let ours = Client::ALL.iter().position(|&at| at == Client::Xdfs);
        let is_ours = |pair: (usize, usize)| Some(pair.1) == ours;
        for (pair, outcomes) in &mut found {
            if is_ours(*pair) {
                outcomes[1] = Outcome::Fail("something else".to_owned());
            }
        }
        assert!(compare(&found, &page).is_err());
    }
}
