//! The flags of the commands that change paths on servers: `mkdir`, `rm`, `mv`, `ln`, `touch`,
//! `chmod`, `chown` and `truncate`.

use std::ffi::OsString;

use clap::{ArgAction, Args, ValueHint};

use super::look::PathFlags;
use crate::paths::criteria::{NewLength, Owner, parse_new_length, parse_owner};
use crate::paths::mode::{ModeChange, parse_mode};
use crate::paths::time;

/// Make directories on a server.
#[derive(Clone, Debug, Args)]
#[command(after_help = "\
Examples:
  xdfs mkdir xdfs://host/runs
  xdfs mkdir -p -m 750 xdfs://host/runs/2026/01")]
pub(crate) struct MkdirFlags {
    /// The directories.
    #[arg(required = true, value_name = "URL", value_hint = ValueHint::Url)]
    pub(crate) urls: Vec<OsString>,

    /// Make the directories above that are missing, and take one that is there already.
    #[arg(short, long)]
    pub(crate) parents: bool,

    /// Permissions, as for chmod; what the server gives by itself unless said.
    #[arg(short, long, value_name = "MODE", value_parser = parse_mode)]
    pub(crate) mode: Option<ModeChange>,

    #[command(flatten)]
    pub(crate) common: PathFlags,
}

/// Remove files, and with -r trees, on a server.
///
/// There is no question and no way back. The root of a server is never removed.
#[derive(Clone, Debug, Args)]
#[command(after_help = "\
Examples:
  xdfs rm xdfs://host/old.img
  xdfs rm -r xdfs://host/runs/2025")]
pub(crate) struct RmFlags {
    /// What to remove. A symbolic link is removed itself.
    #[arg(required = true, value_name = "URL", value_hint = ValueHint::Url)]
    pub(crate) urls: Vec<OsString>,

    /// Remove directories with everything in them.
    #[arg(short, long, visible_short_alias = 'R')]
    pub(crate) recursive: bool,

    /// Remove empty directories.
    #[arg(short, long)]
    pub(crate) dir: bool,

    /// Take what isn't there for removed.
    #[arg(short, long)]
    pub(crate) force: bool,

    #[command(flatten)]
    pub(crate) common: PathFlags,
}

/// Give paths on a server other names.
///
/// Both sides are on the same server. What stands under the new name stays unless -f is given. If
/// the target is a directory, or there are several sources, they keep their names in it.
#[derive(Clone, Debug, Args)]
#[command(
    override_usage = "xdfs mv [OPTIONS] URL... URL",
    after_help = "\
Examples:
  xdfs mv xdfs://host/new.img xdfs://host/big.img
  xdfs mv xdfs://host/a xdfs://host/b xdfs://host/runs/"
)]
pub(crate) struct MvFlags {
    /// What gets another name, and last the new name or a directory.
    #[arg(required = true, num_args = 2.., value_name = "URL", value_hint = ValueHint::Url)]
    pub(crate) urls: Vec<OsString>,

    /// Leave out what stands under its new name already, without an error.
    #[arg(short, long, conflicts_with = "force")]
    pub(crate) no_clobber: bool,

    /// Replace what stands under the new name, as one step.
    #[arg(short, long)]
    pub(crate) force: bool,

    #[command(flatten)]
    pub(crate) common: PathFlags,
}

/// Give a file on a server a further name, or make a symbolic link.
#[derive(Clone, Debug, Args)]
#[command(
    override_usage = "xdfs ln [OPTIONS] URL URL\n       xdfs ln -s [OPTIONS] TEXT URL",
    after_help = "\
Examples:
  xdfs ln xdfs://host/big.img xdfs://host/same.img
  xdfs ln -s runs/2026 xdfs://host/latest          the link says 'runs/2026'"
)]
pub(crate) struct LnFlags {
    /// The file that gets a further name; with -s the text of the link, which isn't looked at.
    #[arg(value_name = "TARGET", value_hint = ValueHint::Url)]
    pub(crate) target: OsString,

    /// The further name, or a directory, in which the name of the target is kept.
    #[arg(value_name = "URL", value_hint = ValueHint::Url)]
    pub(crate) link: OsString,

    /// Make a symbolic link.
    #[arg(short, long)]
    pub(crate) symbolic: bool,

    /// Remove what stands under the further name first, unless it is a directory.
    #[arg(short, long)]
    pub(crate) force: bool,

    #[command(flatten)]
    pub(crate) common: PathFlags,
}

/// Set the times of paths on a server; make files that are missing.
#[derive(Clone, Debug, Args)]
#[command(after_help = "\
Examples:
  xdfs touch xdfs://host/done
  xdfs touch -d '2026-01-31 12:00' xdfs://host/big.img
  xdfs touch -r big.img xdfs://host/big.img         the times of a local file")]
pub(crate) struct TouchFlags {
    /// The paths.
    #[arg(required = true, value_name = "URL", value_hint = ValueHint::Url)]
    pub(crate) urls: Vec<OsString>,

    /// Make no file.
    #[arg(short = 'c', long)]
    pub(crate) no_create: bool,

    /// Set the time of the last read only, unless -m is given too.
    #[arg(short = 'a')]
    pub(crate) access: bool,

    /// Set the time of the last change only, unless -a is given too.
    #[arg(short = 'm')]
    pub(crate) modified: bool,

    /// This time instead of now: '2026-01-31 12:00', 2026-01-31T12:00:00Z, @SECONDS or now.
    #[arg(short, long, value_name = "TIME", value_parser = time::parse,
        conflicts_with_all = ["stamp", "reference"])]
    pub(crate) date: Option<i64>,

    /// This time instead of now, in digits.
    #[arg(short = 't', value_name = "[[CC]YY]MMDDhhmm[.ss]", value_parser = time::parse_stamp,
        conflicts_with = "reference")]
    pub(crate) stamp: Option<i64>,

    /// The times of a local file, or of a path on a server, instead of now.
    #[arg(short, long, value_name = "PLACE", value_hint = ValueHint::AnyPath)]
    pub(crate) reference: Option<OsString>,

    #[command(flatten)]
    pub(crate) common: PathFlags,
}

/// Set permissions of paths on a server.
///
/// MODE is octal (750) or says what changes (u+x,go-w, a=rX). Without u, g, o or a it is about
/// all of them. With -R symbolic links in the tree are left alone.
#[derive(Clone, Debug, Args)]
#[command(after_help = "\
Examples:
  xdfs chmod 640 xdfs://host/big.img
  xdfs chmod -R u+rwX,go-w xdfs://host/runs
  xdfs chmod -- -x xdfs://host/script")]
pub(crate) struct ChmodFlags {
    /// The permissions.
    #[arg(value_name = "MODE", value_parser = parse_mode)]
    pub(crate) mode: ModeChange,

    /// The paths. Symbolic links are followed.
    #[arg(required = true, value_name = "URL", value_hint = ValueHint::Url)]
    pub(crate) urls: Vec<OsString>,

    /// Everything in directories as well.
    #[arg(short = 'R', long)]
    pub(crate) recursive: bool,

    #[command(flatten)]
    pub(crate) common: PathFlags,
}

/// Set the owner and the group of paths on a server.
///
/// They are numbers: the names of the server's accounts aren't known here. Most servers let only
/// root give files away.
#[derive(Clone, Debug, Args)]
#[command(
    disable_help_flag = true,
    after_help = "\
Examples:
  xdfs chown 1000:100 xdfs://host/big.img
  xdfs chown -R :100 xdfs://host/runs               the group only"
)]
pub(crate) struct ChownFlags {
    /// The number of the owner, of the group after a colon, or both.
    #[arg(value_name = "UID[:GID]", value_parser = parse_owner)]
    pub(crate) owner: Owner,

    /// The paths.
    #[arg(required = true, value_name = "URL", value_hint = ValueHint::Url)]
    pub(crate) urls: Vec<OsString>,

    /// Everything in directories as well; symbolic links themselves then.
    #[arg(short = 'R', long)]
    pub(crate) recursive: bool,

    /// Symbolic links themselves, not what they point to.
    #[arg(short = 'h', long)]
    pub(crate) no_dereference: bool,

    #[command(flatten)]
    pub(crate) common: PathFlags,

    /// Print help.
    #[arg(long, action = ArgAction::Help)]
    pub(crate) help: Option<bool>,
}

/// Set the length of files on a server.
///
/// What is cut off is gone; what is added reads as zeros. Files that are missing are made.
#[derive(Clone, Debug, Args)]
#[command(after_help = "\
Examples:
  xdfs truncate -s 0 xdfs://host/log.txt
  xdfs truncate -s +1G xdfs://host/disk.img")]
pub(crate) struct TruncateFlags {
    /// The files.
    #[arg(required = true, value_name = "URL", value_hint = ValueHint::Url)]
    pub(crate) urls: Vec<OsString>,

    /// The new length, or by how much it grows (+SIZE) or shrinks (-SIZE).
    #[arg(short, long, value_name = "[+-]SIZE", value_parser = parse_new_length,
        allow_hyphen_values = true)]
    pub(crate) size: NewLength,

    /// Make no file.
    #[arg(short = 'c', long)]
    pub(crate) no_create: bool,

    #[command(flatten)]
    pub(crate) common: PathFlags,
}
