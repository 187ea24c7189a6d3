//! The flags of `xdfs shell`.

use std::ffi::OsString;

use clap::{ArgAction, Args, ValueHint};

use super::{OUTPUT, OutputFlags, SessionFlags};

/// Run commands on a server interactively, in one session.
///
/// The commands are ls, stat, cat, find, sum, df, du, mkdir, rm, mv, ln, touch, chmod, chown,
/// truncate, put, get, cp and sync, with the same flags as the commands of this program, and cd,
/// pwd, lcd, lpwd, help, history and exit. They take paths where the program takes URLs: server
/// paths are relative to the remote working directory (pwd), local ones to the local working
/// directory (lpwd).
///
/// put takes local files and last a server path; get takes server paths and last a local one. With
/// only one path, the target is the working directory of the other side. cp, sync and touch -r take
/// paths of either side, so there a server path has a colon before it. URLs are accepted
/// everywhere. With ftp:// and ftps://, / is the directory of the login and // the root; with
/// gsiftp:// and sshftp://, / is the root and /~ the directory of the login, as in their URLs.
///
/// Quoting works as in a POSIX shell: 'a b', "a b", a\ b, and $'\377' for bytes that can't be
/// typed. Unquoted *, ? and [a-z] expand to the matching names on the side of the operand; for a
/// target, exactly one name must match. A # starts a comment. There are no variables, pipelines or
/// redirections.
///
/// A command with session flags (-n, -b, -w, and those for security) gets a session of its own,
/// which otherwise has the shell's settings.
///
/// On a terminal there is line editing, completion of commands, flags and paths with Tab, and a
/// history that leaves out lines that start with a blank. Pasted lines run one after the other.
/// Ctrl-C ends a command and not the shell; Ctrl-D ends the shell. A lost connection is opened
/// again for the next command, unless it was opened with a ticket, which is valid only once.
///
/// Without a terminal, commands are read from standard input, one per line, up to the first that
/// fails; its exit code becomes that of the shell.
#[derive(Clone, Debug, Args)]
#[command(after_help = "\
Examples:
  xdfs shell xdfs://host/runs
  printf 'cd runs\\nput *.dat\\n' | xdfs shell xdfs://host/
  xdfs shell --keep-going xdfs://host/ < commands

In the shell:
  cd runs/2026
  ls -l
  get *.dat results/
  put 'a name with blanks.dat'
  sync --delete tree :tree")]
pub(crate) struct ShellFlags {
    /// The server, and the initial directory.
    #[arg(value_name = "URL", value_hint = ValueHint::Url)]
    pub(crate) url: OsString,

    /// Continue after a failed command when not on a terminal.
    ///
    /// The exit code is still that of the first failed command.
    #[arg(short, long)]
    pub(crate) keep_going: bool,

    #[command(flatten)]
    pub(crate) session: SessionFlags,

    /// Print the engine's log to standard error; repeat for more.
    #[arg(short, long, action = ArgAction::Count, help_heading = OUTPUT)]
    pub(crate) verbose: u8,
}

impl ShellFlags {
    /// The same, for the console and the log.
    pub(crate) fn output(&self) -> OutputFlags {
        OutputFlags {
            json: false,
            quiet: false,
            verbose: self.verbose,
        }
    }
}
