//! Every check and chore of the workspace, the same at a desk and in continuous integration.
//!
//! `cargo xtask help` lists the verbs. Only the standard library is used, so that the first check
//! starts within seconds on a fresh machine.

#![forbid(unsafe_code)]

mod circles;
mod counting;
mod deny;
mod dist;
mod examples;
mod fuzz;
#[cfg(unix)]
mod grid;
#[cfg(unix)]
mod interop;
mod ktls;
mod powercut;
#[cfg(unix)]
mod process;
#[cfg(unix)]
mod ratchet;
mod rates;
mod seeded;
mod sim;
mod tidy;

use std::ffi::OsString;
use std::path::{Path, PathBuf};
use std::process::{Command, ExitCode};
use std::time::Instant;

const HELP: &str = "\
cargo xtask VERB

  ci                    everything below that checks, in order; the tests come last
  check                 format, clippy, documentation, other systems, tidy
  test [ARGS...]        cargo test over the workspace, and one line with the total count
  tidy                  the style rules that a program can check
  deny                  licences, sources and banned crates, by cargo-deny
  examples              the tests of examples that are crates of their own
  fuzz [--seconds S]    build every fuzz target and run it for S seconds (default 30)
  interop [--check]     the clients and servers of GridFTP with each other, into
                        docs/gridftp/interop.md; or whether xdfs still does as it says
  gridftp-rates [ROW...] [--turns N]
                        GridFTP with xdfs against the Globus tools alone, into
                        docs/gridftp/rates.md; or rows whose names have one of these words
  ktls                  the TLS tests on a kernel with kernel TLS, in User Mode Linux
  powercut [--release] [ARGS...]
                        cut the power of simulated disks during copies
                        (docs/power-cuts.md)
  seeded [--list] [NAME...]
                        which seeded bugs the tests catch: all, those of a list (proto,
                        store ...), or those whose names begin with NAME
  sim [--seeds N | --seed S]
                        simulated clients and servers, with faults, from N seeds (default
                        3000), or from one whose steps are printed
  bench [ARGS...]       the benchmarks, in release mode
  man                   manual pages into target/dist/man
  completions           shell completions into target/dist/completions
";

/// Why a verb failed: a message, or the exit status of a program that has printed its own.
enum Failure {
    Message(String),
    Status(u8),
}

impl From<String> for Failure {
    fn from(message: String) -> Self {
        Self::Message(message)
    }
}

/// What is off by default, as it needs the OpenSSL of the system or takes long to build, and is
/// tested all the same.
const OPTIONAL: &str = "xdfs-cli/gsi,xdfs-cli/service";

type Outcome = Result<(), Failure>;

fn main() -> ExitCode {
    let mut args = std::env::args_os().skip(1);
    let verb = args.next().unwrap_or_default();
    let rest: Vec<OsString> = args.collect();
    match run(&verb.to_string_lossy(), &rest) {
        Ok(()) => ExitCode::SUCCESS,
        Err(Failure::Message(message)) => {
            eprintln!("xtask: {message}");
            ExitCode::FAILURE
        }
        Err(Failure::Status(code)) => ExitCode::from(code),
    }
}

fn run(verb: &str, args: &[OsString]) -> Outcome {
    match verb {
        "bench" => bench(args),
        "test" => counting::test(args),
        "fuzz" => fuzz::run(args),
        #[cfg(unix)]
        "interop" => interop::run(args),
        #[cfg(unix)]
        "gridftp-rates" => rates::run(args),
        "powercut" => powercut::run(args),
        "seeded" => seeded::run(args),
        "sim" => sim::run(args),
        _ if !args.is_empty() => Err(Failure::Message(format!("{verb} takes no arguments"))),
        "check" => check(),
        "ci" => ci(),
        "completions" => dist::completions(),
        "deny" => deny::run(),
        "examples" => examples::run(),
        "ktls" => ktls::run(),
        "man" => dist::man(),
        "tidy" => tidy::run(),
        "help" | "--help" | "-h" => {
            print!("{HELP}");
            Ok(())
        }
        _ => Err(Failure::Message(format!("no verb {verb:?}\n\n{HELP}"))),
    }
}

fn ci() -> Outcome {
    timed("the checks", check)?;
    timed("the dependencies", deny::run)?;
    timed("fuzzing", || fuzz::run(&["--seconds".into(), "3".into()]))?;
    timed("the examples", examples::run)?;
    #[cfg(unix)]
    timed("the interoperation", || interop::run(&["--check".into()]))?;
    timed("the tests without GSI", test_without_gsi)?;
    counting::test(&[])
}

/// Runs a step and says how long it took.
fn timed(step: &str, run: impl FnOnce() -> Outcome) -> Outcome {
    let began = Instant::now();
    run()?;
    println!("xtask: {step} took {} s", began.elapsed().as_secs());
    Ok(())
}

/// Tests what differs in a program without GSI, which is the default. All of the workspace is
/// chosen, and the service that those tests don't use: cargo gives dependencies the features that
/// the chosen packages ask for together, and with another choice it would build a hundred again.
fn test_without_gsi() -> Outcome {
    let tests = [
        "--workspace",
        "--features",
        "xdfs-cli/service",
        "--test",
        "gridftp",
        "--",
    ];
    let parts = ["places::", "plain::", "security::"];
    let args: Vec<_> = tests.into_iter().chain(parts).map(Into::into).collect();
    counting::test(&args)
}

fn check() -> Outcome {
    // The quick ones first.
    tidy::run()?;
    call(cargo().args(["fmt", "--all", "--check"]))?;
    let clippy = [
        "clippy",
        "--workspace",
        "--all-targets",
        "--features",
        OPTIONAL,
        "--locked",
        "--",
        "-D",
        "warnings",
    ];
    call(cargo().args(clippy))?;
    // Without it the program has less code, which has to fit too. Of the whole workspace, as the
    // documentation is: both look at the same dependencies then.
    let plain = ["clippy", "--workspace", "--locked"];
    call(cargo().args(plain).args(["--", "-D", "warnings"]))?;
    // Libraries only: the doc comments of a program are its help texts, which are no Markdown.
    let doc = ["doc", "--workspace", "--lib", "--no-deps", "--locked"];
    call(cargo().env("RUSTDOCFLAGS", "-D warnings").args(doc))?;
    other_systems()
}

/// Checks the product for the systems whose standard library is installed here. Nothing is linked,
/// so neither their linkers nor their C compilers are needed.
fn other_systems() -> Outcome {
    let installed = Command::new("rustup")
        .args(["target", "list", "--installed"])
        .output();
    let installed = installed.map(|o| String::from_utf8_lossy(&o.stdout).into_owned());
    let installed = installed.unwrap_or_default();
    for target in ["x86_64-pc-windows-gnu", "aarch64-apple-darwin"] {
        if !installed.lines().any(|line| line == target) {
            println!("xtask: {target} is not installed, so it is not checked");
            continue;
        }
        // The variable is how cargo tells BLAKE3's build script to leave its assembly out.
        let mut check = cargo();
        check.env("CARGO_FEATURE_PURE", "1");
        // Nor does C of others have to be compiled to see whether our Rust fits the system.
        let of = target.replace('-', "_");
        check
            .env(format!("CC_{of}"), "true")
            .env(format!("AR_{of}"), "true");
        check.args(["clippy", "--locked", "--target", target]);
        for package in ["xdfs-cli", "xdfs-testkit"] {
            check.args(["--package", package]);
        }
        check.args(["--", "-D", "warnings"]);
        call(&mut check)?;
    }
    Ok(())
}

fn bench(args: &[OsString]) -> Outcome {
    let run = [
        "run",
        "--quiet",
        "--release",
        "--locked",
        "--package",
        "xdfs-bench",
        "--",
    ];
    call(cargo().args(run).args(args))
}

/// The root of the workspace.
fn root() -> &'static Path {
    // Not the folder of the compiler's run: the checkout may have moved since.
    static ROOT: std::sync::LazyLock<PathBuf> = std::sync::LazyLock::new(|| {
        let here = std::env::var_os("CARGO_MANIFEST_DIR").map(PathBuf::from);
        here.and_then(|here| here.parent().map(Path::to_owned))
            .unwrap_or_else(|| ".".into())
    });
    &ROOT
}

/// Cargo, in the root of the workspace.
fn cargo() -> Command {
    let mut cargo = Command::new(std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into()));
    cargo.current_dir(root());
    cargo
}

/// Runs `command`, tells how long it took, and passes its failure on.
fn call(command: &mut Command) -> Outcome {
    println!("xtask: {}", shown(command));
    let began = Instant::now();
    let status = command
        .status()
        .map_err(|e| format!("can't run {}: {e}", shown(command)))?;
    println!("xtask: {} s", began.elapsed().as_secs());
    if status.success() {
        Ok(())
    } else {
        Err(Failure::Status(code(status)))
    }
}

/// The exit code to end with; 1 if a signal ended it.
fn code(status: std::process::ExitStatus) -> u8 {
    status
        .code()
        .and_then(|code| u8::try_from(code).ok())
        .unwrap_or(1)
}

/// A command as one would type it, without the folder of the program.
fn shown(command: &Command) -> String {
    let program = Path::new(command.get_program());
    let name = program.file_name().unwrap_or(program.as_os_str());
    std::iter::once(name)
        .chain(command.get_args())
        .map(|part| part.to_string_lossy())
        .collect::<Vec<_>>()
        .join(" ")
}
