//! Benchmarks of xdfs with its rivals in the same run.
//!
//! Measures on loopback, in interleaved repetitions, with the CPU time and peak memory of both
//! sides, and says which of the required ratios were reached. Rivals are found on the machine and
//! named as absent when they are not there; nothing is downloaded. It is not a test: slowness fails
//! nothing. It ends only processes that it started and leaves no files behind.
//!
//! `main` builds the program under test, becomes a copy of itself with a network of its own
//! (`isolation`), finds the tools (`tool`), runs the groups (`session`, which follows `plan` and
//! measures with `meter`), samples a transfer (`profile`) and writes the report (`requirements`,
//! `markdown`).

#![forbid(unsafe_code)]

mod bare;
mod calls;
mod command_line;
mod congestion;
mod content;
mod isolation;
mod link;
mod machine;
mod markdown;
mod meter;
mod options;
mod overlap;
mod plan;
mod procfs;
mod profile;
mod program;
mod protection;
mod requirements;
mod row;
mod scratch;
mod server;
mod service;
mod session;
mod statistics;
mod strangers;
mod tail;
mod tool;
mod tree;
mod tree_tool;
mod verdict;
mod wan;

use std::{
    fs,
    path::{Path, PathBuf},
    process::ExitCode,
};

use crate::{
    machine::Machine,
    markdown::Report,
    options::{Group, Options, Program},
    profile::Profile,
    row::Row,
    scratch::{Guard, Scratch},
    session::{Note, Session},
    tool::{Tool, Toolbox},
    verdict::Verdict,
};

/// Exit status when xdfs or the benchmark itself failed.
const FAILED: u8 = 1;
/// Exit status after a wrong command line.
const USAGE: u8 = 2;

/// What the JSON file holds.
#[derive(Debug, serde::Serialize)]
struct Document<'a> {
    schema: &'static str,
    machine: &'a Machine,
    verdicts: &'a [Verdict],
    rows: &'a [Row],
    /// What there is to say of groups besides.
    notes: &'a [Note],
    /// Samples of a private transfer, where the group was asked for.
    profiles: &'a [Profile],
    /// Why there are none.
    profiles_missing: Option<&'a str>,
}

fn main() -> ExitCode {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    if let Some((bare::COMMAND, rest)) = arguments.split_first().map(|(w, r)| (w.as_str(), r)) {
        return bare::main(rest);
    }
    if let Some((overlap::COMMAND, rest)) = arguments.split_first().map(|(w, r)| (w.as_str(), r)) {
        return overlap::main(rest);
    }
    if let Some((calls::COMMAND, rest)) = arguments.split_first().map(|(w, r)| (w.as_str(), r)) {
        return calls::main(rest);
    }
    if let Some((strangers::COMMAND, rest)) = arguments.split_first().map(|(w, r)| (w.as_str(), r))
    {
        return strangers::main(rest);
    }
    if let Some((service::COMMAND, rest)) = arguments.split_first().map(|(w, r)| (w.as_str(), r)) {
        return service::main(rest);
    }
    let options = match Options::parse(&arguments) {
        Ok(options) => options,
        Err(error) => {
            eprintln!("xdfs-bench: {error}\n\n{}", options::USAGE);
            return ExitCode::from(USAGE);
        }
    };
    if options.help {
        print!("{}", options::USAGE);
        return ExitCode::SUCCESS;
    }
    let result = if isolation::is_inside() {
        run(&options)
    } else {
        begin(&options, &arguments)
    };
    match result {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("xdfs-bench: {error}");
            ExitCode::from(FAILED)
        }
    }
}

/// Builds the program under test, then becomes the copy that measures.
fn begin(options: &Options, arguments: &[String]) -> Result<(), String> {
    let extra = match options.program {
        Program::Build => {
            let path = program::build()?;
            vec!["--xdfs".to_owned(), path.to_string_lossy().into_owned()]
        }
        Program::None | Program::Path(_) => Vec::new(),
    };
    Err(isolation::enter(arguments, &extra))
}

/// Measures and reports.
fn run(options: &Options) -> Result<(), String> {
    let shm = Scratch::new(&options.shm)
        .map_err(|error| format!("folder {}: {error}", options.shm.display()))?;
    let disk = Scratch::new(&options.disk)
        .map_err(|error| format!("folder {}: {error}", options.disk.display()))?;
    let guard = Guard::start(&[shm.path(), disk.path()])
        .map_err(|error| format!("starting the guard: {error}"))?;
    let isolation = isolation::set_up(shm.path());
    let previous = options.previous.as_deref().map(absolute).transpose()?;
    let toolbox = Toolbox::new(
        program_path(options)?,
        previous,
        isolation.congestion_control.clone(),
    );
    let machine = Machine::look(isolation, &toolbox, options, [shm.path(), disk.path()]);

    let session = Session {
        options,
        toolbox: &toolbox,
        shm: &shm,
        disk: &disk,
        guard: &guard,
    };
    let (mut rows, mut notes) = (Vec::new(), Vec::new());
    for group in &options.groups {
        let measured = session
            .run(*group)
            .map_err(|error| format!("group {}: {error}", group.name()))?;
        rows.extend(measured.rows);
        notes.extend(measured.notes);
    }

    let wants_profile = options.groups.contains(&Group::PrivateMem);
    let profile = wants_profile.then(|| profile::take(&session));

    let verdicts = requirements::verdicts(&rows, options);
    let report = Report {
        machine: &machine,
        options,
        rows: &rows,
        notes: &notes,
        verdicts: &verdicts,
        profile: profile.as_ref(),
    };
    let page = markdown::render(report).map_err(|error| format!("writing the report: {error}"))?;
    match &options.markdown {
        Some(path) => {
            fs::write(path, page).map_err(|error| format!("{}: {error}", path.display()))?;
        }
        None => print!("{page}"),
    }
    if let Some(path) = &options.json {
        let document = Document {
            schema: "xdfs-bench/1",
            machine: &machine,
            verdicts: &verdicts,
            rows: &rows,
            notes: &notes,
            profiles: profile.iter().flatten().next().map_or(&[], Vec::as_slice),
            profiles_missing: profile
                .as_ref()
                .and_then(|profile| Some(profile.as_ref().err()?.as_str())),
        };
        let text = serde_json::to_string_pretty(&document)
            .map_err(|error| format!("writing JSON: {error}"))?;
        fs::write(path, text + "\n").map_err(|error| format!("{}: {error}", path.display()))?;
    }
    let failed = rows
        .iter()
        .filter(|row| row.tool == Tool::Xdfs && row.failure.is_some())
        .count();
    if failed > 0 {
        return Err(format!("xdfs failed in {failed} row(s), see the report"));
    }
    Ok(())
}

/// The program under test as an absolute path, so that it can be run from anywhere.
fn program_path(options: &Options) -> Result<Option<PathBuf>, String> {
    match &options.program {
        Program::Path(path) => absolute(path).map(Some),
        Program::Build | Program::None => Ok(None),
    }
}

fn absolute(path: &Path) -> Result<PathBuf, String> {
    path.canonicalize()
        .map_err(|error| format!("program {}: {error}", path.display()))
}
