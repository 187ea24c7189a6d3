//! The tests of the Python package, by pytest, as one of cargo's test programs: cargo has built the
//! compiled part before this runs, with the features that the rest of the workspace has.
//!
//! It makes a virtual environment in the target folder once, lays the package out as pip would, and
//! runs pytest, whose last line is that of Rust's test harness (`tests/conftest.py`).

use std::env;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, ExitCode, Stdio};

fn main() -> ExitCode {
    let mut filters = Vec::new();
    let mut args = env::args().skip(1);
    while let Some(arg) = args.next() {
        match arg.as_str() {
            "--list" => return ExitCode::SUCCESS,
            "--skip" | "--test-threads" | "--color" | "--format" => drop(args.next()),
            flag if flag.starts_with('-') => {}
            // A test is named by a module of Rust too, as by `cargo test -- files::`.
            _ => filters.push(arg),
        }
    }
    let crate_folder = Path::new(env!("CARGO_MANIFEST_DIR"));
    let tests = crate_folder.join("tests");
    if !filters.is_empty() && !filters.iter().any(|filter| is_named(&tests, filter)) {
        return ExitCode::SUCCESS;
    }
    match run(crate_folder, &filters) {
        Ok(true) => ExitCode::SUCCESS,
        Ok(false) => ExitCode::FAILURE,
        Err(Unable::ToPrepare(reason)) => {
            xdfs_testkit::skip::test(reason);
            println!("test result: ok. 1 passed; 0 failed; 0 ignored; 0 measured");
            ExitCode::SUCCESS
        }
        Err(Unable::ToRun(reason)) => {
            eprintln!("{reason}");
            ExitCode::FAILURE
        }
    }
}

enum Unable {
    /// This machine lacks something that is not ours.
    ToPrepare(String),
    ToRun(String),
}

/// Whether a test has a name with this text.
fn is_named(tests: &Path, filter: &str) -> bool {
    let files = fs::read_dir(tests).into_iter().flatten().flatten();
    files.into_iter().any(|file| {
        let text = fs::read_to_string(file.path()).unwrap_or_default();
        let is_test = file.file_name().to_string_lossy().starts_with("test_");
        is_test
            && text
                .lines()
                .any(|line| line.contains("def test_") && line.contains(filter))
    })
}

fn run(crate_folder: &Path, filters: &[String]) -> Result<bool, Unable> {
    let program = env::current_exe().map_err(|error| Unable::ToRun(error.to_string()))?;
    // target/PROFILE/deps/PROGRAM
    let deps = program.parent().unwrap_or_else(|| Path::new("."));
    let target = deps.ancestors().nth(2).unwrap_or(deps);
    let python = environment(crate_folder, target)?;
    let site = target.join("python-site");
    let mut install = Command::new(&python);
    install
        .arg(crate_folder.join("tests/lay_out.py"))
        .arg(crate_folder)
        .arg(deps)
        .arg(&site)
        .arg(env!("CARGO_PKG_VERSION"));
    if !succeeds(&mut install).map_err(Unable::ToRun)? {
        return Err(Unable::ToRun("the package can't be laid out".into()));
    }
    let mut pytest = Command::new(&python);
    pytest
        .args(["-m", "pytest", "-q", "-p", "no:cacheprovider"])
        .arg("--rootdir")
        .arg(crate_folder)
        .arg(crate_folder.join("tests"))
        .env("PYTHONPATH", &site)
        // For what ssh starts; it is there if the whole workspace is tested.
        .env("XDFS_PROGRAM", deps.with_file_name(program_name()))
        .env("PYTHONDONTWRITEBYTECODE", "1");
    if !filters.is_empty() {
        pytest.args(["-k", &filters.join(" or ")]);
    }
    let status = pytest.status();
    let status = status.map_err(|error| Unable::ToRun(format!("can't run pytest: {error}")))?;
    // No test has such a name.
    Ok(status.success() || status.code() == Some(5))
}

fn program_name() -> &'static str {
    match cfg!(windows) {
        true => "xdfs.exe",
        false => "xdfs",
    }
}

/// The interpreter of an environment with what the tests need, which is made if it isn't there, or
/// needs something else by now.
fn environment(crate_folder: &Path, target: &Path) -> Result<PathBuf, Unable> {
    let list = crate_folder.join("tests/requirements.txt");
    let wanted = fs::read_to_string(&list).map_err(|error| Unable::ToRun(error.to_string()))?;
    let folder = target.join("python-venv");
    let python = folder.join(match cfg!(windows) {
        true => "Scripts/python.exe",
        false => "bin/python",
    });
    let stamp = folder.join("installed.txt");
    let is_there = fs::read_to_string(&stamp).is_ok_and(|installed| installed == wanted);
    if is_there && succeeds(Command::new(&python).args(["-c", ""])).unwrap_or(false) {
        return Ok(python);
    }
    let _ = fs::remove_dir_all(&folder);
    let made = succeeds(Command::new("python3").args(["-m", "venv"]).arg(&folder));
    if !made.unwrap_or(false) {
        let reason = "python3 makes no virtual environment here (package python3-venv)";
        return Err(Unable::ToPrepare(reason.into()));
    }
    let supported = "import sys; sys.exit(sys.version_info < (3, 11))";
    if !succeeds(Command::new(&python).args(["-c", supported])).unwrap_or(false) {
        return Err(Unable::ToPrepare("python3 is older than 3.11".into()));
    }
    let mut install = Command::new(&python);
    install
        .args([
            "-m",
            "pip",
            "install",
            "--quiet",
            "--disable-pip-version-check",
        ])
        .arg("-r")
        .arg(&list);
    if !succeeds(&mut install).unwrap_or(false) {
        return Err(Unable::ToPrepare(
            "pip can't install what the tests need".into(),
        ));
    }
    fs::write(&stamp, wanted).map_err(|error| Unable::ToRun(error.to_string()))?;
    Ok(python)
}

fn succeeds(command: &mut Command) -> Result<bool, String> {
    let status = command.stdin(Stdio::null()).status();
    match status {
        Ok(status) => Ok(status.success()),
        Err(error) => Err(format!("can't run {command:?}: {error}")),
    }
}
