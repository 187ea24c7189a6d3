//! The flags of `xdfs shell`.

use std::ffi::OsString;

use clap::{ArgAction, Args, ValueHint};

use super::{OutputFlags, SessionFlags};

/// Work on a server in one session, command by command.
///
/// The commands are ls, stat, cat, find, sum, df, du, mkdir, rm, mv, ln, touch, chmod, chown,
/// truncate, put, get, cp and sync, with the flags that they have as commands of this program, and
/// cd, pwd, lcd, lpwd, help, history and exit. They take paths where the program takes URLs: those
/// on the server start from its working directory (pwd), those here from the local one (lpwd).
///
/// put takes local files and at the end a path on the server; get the other way round. With one
/// path alone the target is the working directory of the other side. cp and sync (and touch -r)
/// take either, so there a path on the server is written with a colon before it. URLs are taken
/// everywhere.
///
/// Words are quoted as in a shell: 'a b', "a b", a\ b, and $'\377' for bytes that can't be typed.
/// *, ? and [a-z] that aren't quoted stand for the names that match, there or here; as a target,
/// for one name. A # begins a comment. There are no variables, pipelines and redirections.
///
/// A command with flags of the session (-n, -b, -w, and those for security) gets a session of its
/// own, which is as that of the shell but for these flags.
///
/// On a terminal lines can be edited, the tabulator completes commands, flags and paths, and lines
/// are remembered for the next time unless they begin with a blank. Lines that are pasted are
/// carried out one after the other. Ctrl-C ends a command and not
/// the shell; Ctrl-D ends the shell. A connection that was lost is opened again for the next
/// command, unless it was opened with a ticket, which is good once.
///
/// Without a terminal, commands are read from standard input, a line each, up to the first that
/// fails, whose exit code is that of the shell.
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
    /// The server, and the directory to begin in.
    #[arg(value_name = "URL", value_hint = ValueHint::Url)]
    pub(crate) url: OsString,

    /// Go on after a command that failed, when commands aren't typed at a terminal.
    ///
    /// The exit code is still that of the first command that failed.
    #[arg(short, long)]
    pub(crate) keep_going: bool,

    #[command(flatten)]
    pub(crate) session: SessionFlags,

    /// Say more, on standard error: the log of the engine; twice or three times for more still.
    #[arg(short, long, action = ArgAction::Count)]
    pub(crate) verbose: u8,
}

impl ShellFlags {
    /// The same, as the console and the log know it.
    pub(crate) fn output(&self) -> OutputFlags {
        OutputFlags {
            json: false,
            quiet: false,
            verbose: self.verbose,
        }
    }
}
