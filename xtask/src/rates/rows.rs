//! The rows of the table.

use std::fs;
use std::path::Path;

use super::site::{At, Sample, Site};
use super::tree;

/// Which program, and its options.
#[derive(Clone, Copy, Debug)]
enum Client {
    Globus(&'static [&'static str]),
    Xdfs(&'static [&'static str]),
}

/// A client at a server.
#[derive(Clone, Copy, Debug)]
struct Program {
    client: Client,
    at: At,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Way {
    Down,
    Up,
}

/// Programs that do the same; the first ones are the tools of Globus alone, of which the best one
/// of each turn is compared with.
#[derive(Clone, Copy, Debug)]
pub(super) struct Row {
    pub(super) name: &'static str,
    /// The ratio that is asked for, and of which programs.
    asked: &'static str,
    way: Way,
    pub(super) what: &'static str,
    pub(super) is_far: bool,
    is_protected: bool,
    /// It is about the memory of the server instead of time.
    is_memory: bool,
    programs: &'static [Program],
}

/// What came of a row.
#[derive(Debug)]
pub(super) struct Found {
    row: Row,
    /// By turn, then by program.
    turns: Vec<Vec<Sample>>,
    /// Why nothing was measured.
    cause: Option<String>,
}

const fn globus(options: &'static [&'static str]) -> Program {
    Program {
        client: Client::Globus(options),
        at: At::Globus,
    }
}

const fn globus_at_xdfs(options: &'static [&'static str]) -> Program {
    Program {
        client: Client::Globus(options),
        at: At::Xdfs,
    }
}

const fn xdfs(options: &'static [&'static str], at: At) -> Program {
    Program {
        client: Client::Xdfs(options),
        at,
    }
}

const fn row(
    name: &'static str,
    asked: &'static str,
    way: Way,
    what: &'static str,
    programs: &'static [Program],
) -> Row {
    Row {
        name,
        asked,
        way,
        what,
        is_far: false,
        is_protected: false,
        is_memory: false,
        programs,
    }
}

const fn far(of: Row) -> Row {
    Row { is_far: true, ..of }
}

const fn protected(of: Row) -> Row {
    Row {
        is_protected: true,
        ..of
    }
}

const fn memory(of: Row) -> Row {
    Row {
        is_memory: true,
        ..of
    }
}

const FILE_1: &[Program] = &[globus(&[]), globus_at_xdfs(&[])];
const FILE_4: &[Program] = &[globus(&["-p", "4"]), globus_at_xdfs(&["-p", "4"])];
const FILE_64: &[Program] = &[globus(&["-p", "64"]), globus_at_xdfs(&["-p", "64"])];
const NONE: &[&str] = &["--digest", "none"];
const PROTECTED: &[Program] = &[
    globus(&["-dcpriv"]),
    globus_at_xdfs(&["-dcpriv"]),
    xdfs(NONE, At::Globus),
    xdfs(NONE, At::Xdfs),
];
const COMPARED: &[Program] = &[
    globus(&["-verify-checksum"]),
    globus(&["-verify-checksum", "-p", "4"]),
    xdfs(&["-n", "1"], At::Globus),
    xdfs(&["-n", "4"], At::Globus),
];
const TREE_B: &[Program] = &[
    globus(&["-cc", "4"]),
    globus(&["-cc", "8"]),
    xdfs(&[], At::Xdfs),
];
const TREE_B_FAR: &[Program] = &[
    globus(&["-cc", "8"]),
    globus(&["-cc", "16"]),
    xdfs(&[], At::Xdfs),
];
const TREE_C: &[Program] = &[
    globus(&[]),
    globus(&["-cc", "4"]),
    xdfs(&[], At::Globus),
    xdfs(NONE, At::Globus),
];
const NOT_COMPARED: &[Program] = &[
    globus(&[]),
    globus(&["-p", "4"]),
    xdfs(&["--digest", "none", "-n", "1"], At::Globus),
    xdfs(&["--digest", "none", "-n", "4"], At::Globus),
];

pub(super) const ROWS: &[Row] = &[
    row("1 GiB down", "1.1", Way::Down, "file", FILE_1),
    row("1 GiB down, -p 4", "1.1", Way::Down, "file", FILE_4),
    row("1 GiB up", "1.1", Way::Up, "file", FILE_1),
    row("1 GiB up, -p 4", "1.1", Way::Up, "file", FILE_4),
    memory(row(
        "memory, 1 GiB down, -p 64",
        "a quarter",
        Way::Down,
        "file",
        FILE_64,
    )),
    memory(row(
        "memory, 1 GiB up, -p 64",
        "a quarter",
        Way::Up,
        "file",
        FILE_64,
    )),
    row("1 GiB down, compared", "1.1", Way::Down, "file", COMPARED),
    row("1 GiB up, compared", "1.1", Way::Up, "file", COMPARED),
    row(
        "1 GiB down, not compared",
        "1.1",
        Way::Down,
        "file",
        NOT_COMPARED,
    ),
    row(
        "1 GiB up, not compared",
        "1.1",
        Way::Up,
        "file",
        NOT_COMPARED,
    ),
    row("2874 files down, MODE T", "3", Way::Down, "b", TREE_B),
    row("2874 files up, MODE T", "3", Way::Up, "b", TREE_B),
    far(row(
        "2874 files down, MODE T, 50 ms",
        "3",
        Way::Down,
        "b",
        TREE_B_FAR,
    )),
    far(row(
        "2874 files up, MODE T, 50 ms",
        "3",
        Way::Up,
        "b",
        TREE_B_FAR,
    )),
    row("100,000 files down", "1.5", Way::Down, "c", TREE_C),
    protected(row(
        "1 GiB down, PROT P",
        "1.5",
        Way::Down,
        "file",
        PROTECTED,
    )),
    protected(row("1 GiB up, PROT P", "1.5", Way::Up, "file", PROTECTED)),
];

impl Row {
    /// Does it in turns.
    ///
    /// # Errors
    /// A program has failed, or has not moved the bytes.
    pub(super) fn measure(self, site: &Site, turns: usize) -> Result<Found, String> {
        let mut found = Found {
            row: self,
            turns: Vec::new(),
            cause: None,
        };
        if self.is_far && !site.has_far() {
            found.cause = Some("no long link here".into());
            return Ok(found);
        }
        for turn in 0..turns {
            let mut samples = Vec::new();
            for program in self.programs {
                let sample = self.run(site, *program, turn == 0);
                samples.push(sample.map_err(|cause| format!("{}: {cause}", self.title(program)))?);
            }
            found.turns.push(samples);
        }
        Ok(found)
    }

    fn run(self, site: &Site, program: Program, compares: bool) -> Result<Sample, String> {
        let Some(server) = site.server(program.at, self.is_far, self.is_protected) else {
            return Err("no such server".into());
        };
        let is_tree = self.what != "file";
        let here = match self.way {
            Way::Down => site.path("here", "copy"),
            Way::Up => site.path("here", self.what),
        };
        let name = match self.way {
            Way::Down => self.what,
            Way::Up => "copy",
        };
        let there = site.path("there", name);
        let copy = match self.way {
            Way::Down => &here,
            Way::Up => &there,
        };
        remove(copy)?;
        let port = server.address().port();
        let host = match self.is_protected {
            true => "localhost".to_owned(),
            false => server.address().ip().to_string(),
        };
        let path = match program.at {
            At::Globus => there.display().to_string(),
            At::Xdfs => format!("/drop/{name}"),
        };
        let scheme = if self.is_protected { "gsiftp" } else { "ftp" };
        let slash = if is_tree { "/" } else { "" };
        let (mut command, near, far) = match program.client {
            Client::Globus(options) => {
                let mut command = site.command(Path::new("globus-url-copy"), self.is_far);
                command.arg("-fast").args(options);
                if is_tree {
                    command.args(["-r", "-cd"]);
                }
                let near = format!("file://{}{slash}", here.display());
                let far = format!("{scheme}://{host}:{port}{path}{slash}");
                (command, near, far)
            }
            Client::Xdfs(options) => {
                let mut command = site.command(&site.xdfs, self.is_far);
                command.args(["cp", "-q"]).args(options);
                if !self.is_protected {
                    command.arg("--insecure");
                }
                if is_tree {
                    command.arg("-r");
                }
                let near = here.display().to_string();
                (command, near, format!("{scheme}://{host}:{port}/{path}"))
            }
        };
        match self.way {
            Way::Down => command.args([far, near]),
            Way::Up => command.args([near, far]),
        };
        let sample = site.time(command, server)?;
        let source = match self.way {
            Way::Down => there.clone(),
            Way::Up => here.clone(),
        };
        if compares && !tree::is_same(&source, copy).map_err(|error| error.to_string())? {
            return Err("the copy differs".into());
        }
        remove(copy)?;
        Ok(sample)
    }

    fn title(self, program: &Program) -> String {
        let server = match program.at {
            At::Globus => "globus-gridftp-server",
            At::Xdfs => "xdfs serve",
        };
        let (name, options) = match program.client {
            Client::Globus(options) => ("globus-url-copy -fast", options),
            Client::Xdfs(options) => ("xdfs cp", options),
        };
        let recursive = if self.what == "file" { "" } else { " -r" };
        let options: String = options.iter().map(|option| format!(" {option}")).collect();
        format!("`{name}{recursive}{options}`, {server}")
    }
}

fn remove(path: &Path) -> Result<(), String> {
    let removed = match path.is_dir() {
        true => fs::remove_dir_all(path),
        false if path.exists() => fs::remove_file(path),
        false => Ok(()),
    };
    removed.map_err(|error| format!("remove {}: {error}", path.display()))
}

fn median(mut numbers: Vec<f64>) -> (f64, f64, f64) {
    numbers.sort_by(f64::total_cmp);
    let middle = numbers.len() / 2;
    match (numbers.first(), numbers.get(middle), numbers.last()) {
        (Some(least), Some(middle), Some(most)) => (*least, *middle, *most),
        _ => (0.0, 0.0, 0.0),
    }
}

impl Found {
    /// The least time of the tools of Globus alone in a turn.
    fn best(&self, turn: &[Sample]) -> f64 {
        let both = self.row.programs.iter().zip(turn);
        let alone = both.filter(|(program, _)| {
            matches!(program.client, Client::Globus(_)) && program.at == At::Globus
        });
        let seconds = alone.map(|(_, sample)| sample.seconds);
        seconds.fold(f64::INFINITY, f64::min)
    }

    fn cells(&self, number: usize) -> [String; 3] {
        let of = |pick: fn(&Sample) -> f64| -> Vec<f64> {
            self.turns.iter().map(|turn| pick(&turn[number])).collect()
        };
        let cpu = format!(
            "{:.2} + {:.2}",
            median(of(|sample| sample.client_cpu)).1,
            median(of(|sample| sample.server_cpu)).1,
        );
        if self.row.is_memory {
            let megabytes = |kib: f64| kib * 1024.0 / 1e6;
            let resident = median(of(|sample| sample.resident as f64)).1;
            let anonymous = median(of(|sample| sample.anonymous as f64)).1;
            let first = |pick: fn(&Sample) -> u64| {
                median(
                    self.turns
                        .iter()
                        .map(|turn| pick(&turn[0]) as f64)
                        .collect(),
                )
                .1
            };
            let shown = format!("{:.1} MB", megabytes(resident));
            let ratio = format!(
                "{:.2}; {:.1} MB without mapped files: {:.2}",
                resident / first(|sample| sample.resident),
                megabytes(anonymous),
                anonymous / first(|sample| sample.anonymous),
            );
            return [shown, ratio, cpu];
        }
        let seconds = format!("{:.2}", median(of(|sample| sample.seconds)).1);
        let ratios = self.turns.iter();
        let ratios = ratios.map(|turn| self.best(turn) / turn[number].seconds);
        let (least, middle, most) = median(ratios.collect());
        [seconds, format!("{middle:.2} [{least:.2}-{most:.2}]"), cpu]
    }

    /// A line for each program.
    pub(super) fn lines(&self) -> Vec<String> {
        if let Some(cause) = &self.cause {
            return vec![cause.clone()];
        }
        let programs = self.row.programs.iter().enumerate();
        let line = |(number, program)| {
            let [seconds, ratio, cpu] = self.cells(number);
            format!("{} | {seconds} | {ratio} | {cpu}", self.row.title(program))
        };
        programs.map(line).collect()
    }

    /// The lines of the table.
    pub(super) fn table(&self) -> Vec<String> {
        let lines = self.lines().into_iter().enumerate();
        let line = |(number, line): (usize, String)| {
            let name = if number == 0 { self.row.name } else { "" };
            let asked = if number == 0 { self.row.asked } else { "" };
            format!("| {name} | {line} | {asked} |")
        };
        lines.map(line).collect()
    }
}
