//! The one definition of commands and flags: help, man pages and completions come from it.
//!
//! Nothing here acts. Each command has a file here with its flags and one beside `main.rs` that
//! carries it out. Values are checked as far as that needs neither files nor the network.

mod change;
mod cp;
mod demo;
mod filter;
mod look;
mod perf;
mod serve;
mod shell;
mod sync;
mod users;

use std::path::PathBuf;

use clap::{ArgAction, Args, Parser, Subcommand, ValueEnum, ValueHint};
use serde::Deserialize;
use tracing::Level;

pub(crate) use change::{
    ChmodFlags, ChownFlags, LnFlags, MkdirFlags, MvFlags, RmFlags, TouchFlags, TruncateFlags,
};
pub(crate) use cp::{CpFlags, DurabilityFlag};
pub(crate) use demo::DemoFlags;
pub(crate) use filter::FilterFlags;
pub(crate) use look::{
    CatFlags, DfFlags, DuFlags, FindFlags, LsFlags, PathFlags, StatFlags, SumFlags, is_find_test,
    words,
};
pub(crate) use perf::PerfFlags;
pub(crate) use serve::ServeFlags;
pub(crate) use shell::ShellFlags;
pub(crate) use sync::SyncFlags;
pub(crate) use users::{KeygenFlags, TrustCommand, UserCommand, WhoamiFlags};

use crate::size;

/// The end of the help of the program.
const EXAMPLES: &str = "\
Examples:
  xdfs demo                                 see it work on this machine
  xdfs serve --root /srv/data               offer a directory on 127.0.0.1:2799
  xdfs cp big.img xdfs://localhost/big.img  upload
  xdfs cp xdfs://localhost/big.img .        download
  xdfs ls -l xdfs://localhost/              look at what is there

See 'xdfs COMMAND --help' for the flags of a command.";

/// Move files between machines over many parallel channels, resumable and verified.
///
/// `xdfs serve` offers a directory, `xdfs cp` copies files to and from it. A copy that was
/// interrupted goes on where it stopped when the same command runs again, and a target appears
/// under its name only when it is complete and its digest has been verified.
#[derive(Debug, Parser)]
#[command(
    name = "xdfs",
    version,
    max_term_width = 100,
    disable_help_subcommand = true,
    subcommand_required = true,
    arg_required_else_help = true,
    after_help = EXAMPLES,
    after_long_help = format!("{EXAMPLES}\n\n{}", crate::exit_codes::help_section()),
)]
pub(crate) struct Cli {
    /// The command.
    #[command(subcommand)]
    pub(crate) command: Command,
}

/// What the program can do.
#[derive(Debug, Subcommand)]
pub(crate) enum Command {
    /// Serve a directory.
    Serve(ServeFlags),
    /// Copy files to or from a server.
    #[command(visible_aliases = ["put", "get"])]
    Cp(CpFlags),
    /// Make a directory on one side equal to one on the other.
    Sync(SyncFlags),
    /// Work on a server in one session, command by command.
    Shell(ShellFlags),
    /// List what is in directories on a server.
    Ls(LsFlags),
    /// Show what is known of paths on a server.
    Stat(StatFlags),
    /// Print files on a server.
    Cat(CatFlags),
    /// Find paths under directories on a server.
    Find(FindFlags),
    /// Compute digests of files on a server, there.
    Sum(SumFlags),
    /// Show the space of the file systems that hold paths on a server.
    Df(DfFlags),
    /// Show how much space trees on a server take.
    Du(DuFlags),
    /// Make directories on a server.
    Mkdir(MkdirFlags),
    /// Remove files, and with -r trees, on a server.
    Rm(RmFlags),
    /// Give paths on a server other names.
    Mv(MvFlags),
    /// Give a file on a server a further name, or make a symbolic link.
    Ln(LnFlags),
    /// Set the times of paths on a server; make files that are missing.
    Touch(TouchFlags),
    /// Set permissions of paths on a server.
    Chmod(ChmodFlags),
    /// Set the owner and the group of paths on a server.
    Chown(ChownFlags),
    /// Set the length of files on a server.
    Truncate(TruncateFlags),
    /// Measure the rate to or from a server, memory to memory.
    Perf(PerfFlags),
    /// Show on this machine that it works, and how fast.
    Demo(DemoFlags),
    /// Say who you are at a server.
    Whoami(WhoamiFlags),
    /// Make a key to show who you are.
    Keygen(KeygenFlags),
    /// List, add and remove the servers that are believed.
    Trust {
        /// What to do.
        #[command(subcommand)]
        command: TrustCommand,
    },
    /// Add, list and remove users who have passwords, on the machine of the server.
    User {
        /// What to do.
        #[command(subcommand)]
        command: UserCommand,
    },
    /// Print a completion script for a shell.
    #[command(after_help = "\
Examples:
  xdfs completions bash > ~/.local/share/bash-completion/completions/xdfs
  xdfs completions zsh > ~/.zfunc/_xdfs
  xdfs completions fish > ~/.config/fish/completions/xdfs.fish")]
    Completions {
        /// The shell.
        #[arg(value_enum)]
        shell: clap_complete::Shell,
    },
    /// Write the manual pages into a directory.
    #[command(after_help = "\
Examples:
  xdfs man ~/.local/share/man/man1          then: man xdfs-cp")]
    Man {
        /// The directory, which is made if it is missing.
        #[arg(value_name = "DIR", value_hint = clap::ValueHint::DirPath)]
        dir: PathBuf,
    },
}

/// How much is printed. Shared by the commands that move bytes.
#[derive(Clone, Copy, Debug, Default, Args)]
pub(crate) struct OutputFlags {
    /// Print JSON lines on standard output instead of progress.
    ///
    /// One object a line with `"schema": 1` and a `type`: `progress` while it goes on, `file` for
    /// each file, `error` for each failure, and at the end exactly one `result`. docs/json.md
    /// describes them all.
    #[arg(long)]
    pub(crate) json: bool,

    /// Print nothing but errors.
    #[arg(short, long, conflicts_with = "verbose")]
    pub(crate) quiet: bool,

    /// Say more, on standard error; twice or three times for more still.
    ///
    /// Once: retries, digests and what limited the rate, and the log of the engine at level info.
    /// Twice: level debug. Three times: level trace.
    #[arg(short, long, action = ArgAction::Count)]
    pub(crate) verbose: u8,
}

impl OutputFlags {
    /// The level of the log; `None` if there is none.
    pub(crate) fn log_level(self) -> Option<Level> {
        match self.verbose {
            0 => None,
            1 => Some(Level::INFO),
            2 => Some(Level::DEBUG),
            _ => Some(Level::TRACE),
        }
    }
}

/// How a session is opened. Shared by the commands that move bytes.
#[derive(Clone, Debug, Default, Args)]
pub(crate) struct SessionFlags {
    /// Number of parallel channels, 1 to 4096; picked by itself unless given.
    #[arg(
        short = 'n',
        long,
        value_name = "N",
        value_parser = clap::value_parser!(u32).range(1..=4096)
    )]
    pub(crate) channels: Option<u32>,

    /// Size of a block, a power of two from 4K to 16M; picked by itself unless given.
    ///
    /// A block is what is checked, sent again and resumed as one. The server may lower it.
    #[arg(short, long, value_name = "SIZE", value_parser = size::parse_block_size)]
    pub(crate) block_size: Option<u32>,

    /// Socket buffer of each channel, 4K to 1G; left to the system unless given.
    ///
    /// Systems tune it by themselves. A value of your own is useful where they stop below the
    /// product of rate and round-trip time, divided by the number of channels.
    #[arg(short, long, value_name = "SIZE", value_parser = size::parse_window)]
    pub(crate) window: Option<u32>,

    #[command(flatten)]
    pub(crate) security: SecurityFlags,
}

impl SessionFlags {
    /// The same, for the library; who is who is decided for each server.
    pub(crate) fn client_options(&self) -> xdfs::ClientOptions {
        xdfs::ClientOptions {
            channels: self.channels,
            block_size: self.block_size,
            window: self.window,
            ..xdfs::ClientOptions::default()
        }
    }
}

/// Which servers are believed, and how the user shows who it is.
#[derive(Clone, Debug, Default, Args)]
#[command(next_help_heading = "Security")]
pub(crate) struct SecurityFlags {
    /// Show who you are with this OpenSSH private key. Default: a key of xdfs's own.
    #[arg(long, value_name = "FILE", value_hint = ValueHint::FilePath)]
    pub(crate) key: Option<PathBuf>,

    /// Show who you are with the first key of the ssh-agent.
    #[arg(long, conflicts_with = "key")]
    pub(crate) agent: bool,

    /// Show who you are with the password in the first line of a file; '-' asks for it.
    #[arg(long, value_name = "FILE", value_hint = ValueHint::FilePath)]
    pub(crate) password_file: Option<PathBuf>,

    /// Show who you are with the bearer token in a file.
    ///
    /// Without it, the variables BEARER_TOKEN and BEARER_TOKEN_FILE are looked at. What they say is
    /// shown to servers only that are known, pinned or vouched for.
    #[arg(long, value_name = "FILE", value_hint = ValueHint::FilePath)]
    pub(crate) token_file: Option<PathBuf>,

    /// Come in by the ticket in the first line of a file; '-' asks for it.
    ///
    /// It is what `xdfs serve --ticket` printed: ticket=SECRET&pin=FINGERPRINT. Without the flag,
    /// the variable XDFS_TICKET is looked at, whose pin has to be right, or the server known.
    #[arg(long, value_name = "FILE", value_hint = ValueHint::FilePath)]
    pub(crate) ticket_file: Option<PathBuf>,

    /// Show nothing: for what is open to everybody. The same as xdfs://anonymous@HOST/.
    #[arg(long, conflicts_with_all = ["key", "agent", "password_file", "token_file", "ticket_file",
        "cert"])]
    pub(crate) anonymous: bool,

    /// Show who you are with the X.509 certificate chain in a PEM file.
    #[arg(long, value_name = "FILE", requires = "cert_key", value_hint = ValueHint::FilePath)]
    pub(crate) cert: Option<PathBuf>,

    /// The private key of --cert, as PEM.
    #[arg(long, value_name = "FILE", requires = "cert", value_hint = ValueHint::FilePath)]
    pub(crate) cert_key: Option<PathBuf>,

    /// Believe servers whose certificates these authorities (PEM) vouch for, and no new ones.
    #[arg(long, value_name = "FILE", value_hint = ValueHint::FilePath)]
    pub(crate) ca: Option<PathBuf>,

    /// Believe the server with this key and no other, as printed by `xdfs serve`.
    #[arg(long, value_name = "FINGERPRINT")]
    pub(crate) pin: Option<xdfs::security::Fingerprint>,

    /// Refuse servers that are not known yet, instead of remembering their keys.
    #[arg(long)]
    pub(crate) known_only: bool,

    /// How payload travels: private (as by default), or clear beside the protection.
    ///
    /// With `clear`, who you are and everything but the content of large files is protected as
    /// ever; that can be read by who listens on the way, and is guarded by BLAKE3 unless --digest
    /// names another digest, which somebody in between can forge. Only servers that were started
    /// with `--protect clear` take it.
    #[arg(long, value_name = "LEVEL", value_enum)]
    pub(crate) protect: Option<LevelFlag>,

    /// Open channels without encryption and authentication.
    ///
    /// Only servers that were started with --insecure take them.
    #[arg(long, conflicts_with_all = ["key", "agent", "password_file", "token_file",
        "ticket_file", "anonymous", "cert", "ca", "pin", "known_only", "protect"])]
    pub(crate) insecure: bool,
}

impl SecurityFlags {
    /// Whether one of those was given that show who the user is.
    pub(crate) fn names_credentials(&self) -> bool {
        let files = [
            &self.key,
            &self.password_file,
            &self.token_file,
            &self.ticket_file,
            &self.cert,
        ];
        self.agent || self.anonymous || files.iter().any(|file| file.is_some())
    }
}

/// How payload travels.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, ValueEnum, Deserialize)]
#[serde(rename_all = "lowercase")]
pub(crate) enum LevelFlag {
    /// Protected like everything else.
    #[default]
    Private,
    /// Beside the protection, with check values.
    Clear,
}

impl From<LevelFlag> for xdfs::security::Level {
    fn from(flag: LevelFlag) -> Self {
        match flag {
            LevelFlag::Private => Self::Private,
            LevelFlag::Clear => Self::Clear,
        }
    }
}

#[cfg(test)]
mod tests {
    use std::ffi::OsString;

    use clap::CommandFactory;

    use super::cp::DigestFlag;
    use super::*;

    fn parse(line: &str) -> Result<Cli, clap::Error> {
        Cli::try_parse_from(line.split(' '))
    }

    #[test]
    fn the_definition_is_consistent() {
        Cli::command().debug_assert();
    }

    #[test]
    fn every_flag_and_command_has_a_help_text() {
        let mut command = Cli::command();
        command.build();
        for sub in command.get_subcommands() {
            assert!(sub.get_about().is_some(), "{}", sub.get_name());
            for arg in sub.get_arguments() {
                let help = arg.get_help().map(ToString::to_string).unwrap_or_default();
                assert!(help.len() > 8, "{} {}", sub.get_name(), arg.get_id());
            }
        }
    }

    #[test]
    fn cp_takes_the_words_of_its_contract() {
        let line = "xdfs cp -n 8 -b 1M -w 4M --offset 1K --length 2K --limit-rate 400M --no-resume \
                    --digest blake3 -f --dry-run --json -v a b xdfs://h/d/";
        let line = line.split_whitespace().collect::<Vec<_>>().join(" ");
        let Command::Cp(cp) = parse(&line).unwrap().command else {
            panic!("not cp")
        };
        assert_eq!(cp.session.channels, Some(8));
        assert_eq!(cp.session.block_size, Some(1 << 20));
        assert_eq!(cp.session.window, Some(4 << 20));
        assert_eq!((cp.offset, cp.length), (1024, Some(2048)));
        assert_eq!(cp.limit_rate, Some(400_000_000));
        assert!(cp.no_resume && cp.force && cp.dry_run && cp.output.json);
        assert_eq!(cp.output.verbose, 1);
        assert_eq!(cp.digest, Some(DigestFlag::Blake3));
        assert_eq!(cp.places.sources, ["a", "b"].map(OsString::from));
        assert_eq!(cp.places.target, OsString::from("xdfs://h/d/"));
        for long in ["--channels 3", "--block-size 64K", "--window 1M", "--force"] {
            assert!(
                parse(&format!("xdfs cp {long} a xdfs://h/b")).is_ok(),
                "{long}"
            );
        }
    }

    #[test]
    fn every_command_shows_examples_and_its_help() {
        let mut command = Cli::command();
        command.build();
        for sub in command.get_subcommands() {
            let groups = ["trust", "user"].contains(&sub.get_name());
            let after = sub.get_after_help().map(ToString::to_string);
            let shows = after.is_some_and(|text| text.contains("Examples:"));
            assert!(groups || shows, "{}", sub.get_name());
            let line = format!("xdfs {} --help", sub.get_name());
            let help = parse(&line).unwrap_err();
            assert_eq!(help.kind(), clap::error::ErrorKind::DisplayHelp, "{line}");
        }
    }

    #[test]
    fn put_and_get_are_cp() {
        for line in ["xdfs put a xdfs://h/b", "xdfs get xdfs://h/b ."] {
            assert!(
                matches!(parse(line).unwrap().command, Command::Cp(_)),
                "{line}"
            );
        }
    }

    #[test]
    fn find_takes_its_tests_with_one_dash() {
        let line = "xdfs find xdfs://h -name *.x -type f -size +1k -mtime -2 -maxdepth 3 -print0";
        let words = line.split(' ').map(OsString::from);
        let cli = Cli::try_parse_from(super::words(words)).unwrap();
        let Command::Find(find) = cli.command else {
            panic!("not find")
        };
        assert_eq!(find.name, Some("*.x".into()));
        assert!(find.kind.is_some() && find.size.is_some() && find.mtime.is_some());
        assert_eq!((find.maxdepth, find.print0), (Some(3), true));
        // Elsewhere nothing is changed.
        let words: Vec<OsString> = ["xdfs", "ls", "-name"].map(OsString::from).into();
        assert_eq!(super::words(words.clone().into_iter()), words);
    }

    #[test]
    fn cp_takes_options_between_its_places() {
        for line in [
            "xdfs cp xdfs://h/a --digest none b",
            "xdfs cp --digest none xdfs://h/a b",
            "xdfs cp xdfs://h/a b --digest none",
        ] {
            let Command::Cp(cp) = parse(line).unwrap().command else {
                panic!("not cp")
            };
            assert_eq!(cp.places.sources, [OsString::from("xdfs://h/a")], "{line}");
            assert_eq!(cp.places.target, OsString::from("b"), "{line}");
            assert_eq!(cp.digest, Some(DigestFlag::None), "{line}");
        }
        for line in ["xdfs cp", "xdfs cp a", "xdfs cp a --digest none"] {
            let error = parse(line).map(|_| ()).unwrap_err();
            assert_eq!(error.exit_code(), 2, "{line}");
        }
    }

    #[test]
    fn standard_streams_are_places() {
        let Command::Cp(cp) = parse("xdfs cp - xdfs://h/x").unwrap().command else {
            panic!()
        };
        assert_eq!(cp.places.sources, [OsString::from("-")]);
        let Command::Cp(cp) = parse("xdfs cp xdfs://h/x -").unwrap().command else {
            panic!()
        };
        assert_eq!(cp.places.target, OsString::from("-"));
    }

    #[test]
    fn bad_values_are_refused() {
        for line in [
            "xdfs cp a",
            "xdfs cp -n 0 a xdfs://h/b",
            "xdfs cp -n 5000 a xdfs://h/b",
            "xdfs cp -b 3000 a xdfs://h/b",
            "xdfs cp --limit-rate fast a xdfs://h/b",
            "xdfs cp --digest md5 a xdfs://h/b",
            "xdfs cp -q -v a xdfs://h/b",
            "xdfs perf",
            "xdfs perf xdfs://h --upload --download",
            "xdfs perf xdfs://h --bytes 1G --seconds 2",
            "xdfs perf xdfs://h --seconds 0",
            "xdfs perf xdfs://h --seconds nan",
            "xdfs serve --listen",
            "xdfs serve --listen 1:2:3",
            "xdfs demo --size 0",
            "xdfs completions tcsh",
            "xdfs",
            "xdfs mv a",
            "xdfs rm",
            "xdfs chmod xdfs://h/a",
            "xdfs chmod 9 xdfs://h/a",
            "xdfs touch -d never xdfs://h/a",
            "xdfs find xdfs://h -type x",
            "xdfs sync a",
            "xdfs sync --compare magic a xdfs://h/b",
            "xdfs sync --max-delete 3 a xdfs://h/b",
            "xdfs sync --delete --max-delete few a xdfs://h/b",
            "xdfs sync --force a xdfs://h/b",
        ] {
            assert!(parse(line).is_err(), "{line} was accepted");
        }
    }

    #[test]
    fn serve_takes_many_addresses_and_switches_with_values() {
        let line = "xdfs serve --listen [::1]:0 --listen unix:/tmp/s --read-only=false";
        let Command::Serve(serve) = parse(line).unwrap().command else {
            panic!()
        };
        assert_eq!(serve.listen.len(), 2);
        assert_eq!(serve.read_only, Some(false));
        assert_eq!(serve.insecure, None);
        let Command::Serve(serve) = parse("xdfs serve --read-only --insecure").unwrap().command
        else {
            panic!()
        };
        assert_eq!((serve.read_only, serve.insecure), (Some(true), Some(true)));
    }
}
