//! The flags of the commands that change paths on servers: `mkdir`, `rm`, `mv`, `ln`, `touch`,
//! `chmod`, `chown` and `truncate`.

use std::ffi::OsString;

use clap::{ArgAction, Args, ValueHint};

use super::look::PathFlags;
use crate::paths::criteria::{NewLength, Owner, parse_new_length, parse_owner};
use crate::paths::mode::{ModeChange, parse_mode};
use crate::paths::time;

/// Create directories on a server.
#[derive(Clone, Debug, Args)]
#[command(after_help = "\
Examples:
  xdfs mkdir xdfs://host/runs
  xdfs mkdir -p -m 750 xdfs://host/runs/2026/01")]
pub(crate) struct MkdirFlags {
    /// The directories. They are new, so that wildcards in them are characters.
    #[arg(required = true, value_name = "URL", value_hint = ValueHint::Url)]
    pub(crate) urls: Vec<OsString>,

    /// Create missing parent directories, and accept existing directories.
    #[arg(short, long)]
    pub(crate) parents: bool,

    /// Permissions, as for chmod. Default: the server's choice.
    #[arg(short, long, value_name = "MODE", value_parser = parse_mode)]
    pub(crate) mode: Option<ModeChange>,

    #[command(flatten)]
    pub(crate) common: PathFlags,
}

/// Remove files on a server, or trees with -r.
///
/// Without -i it does not ask, and removal can't be undone. The root of a server is never removed.
/// With -r, unfinished transfers into the tree are discarded with it; if one is running, that is an
/// error. 'xdfs partial rm' removes single ones.
#[derive(Clone, Debug, Args)]
#[command(after_help = "\
Examples:
  xdfs rm xdfs://host/old.img
  xdfs rm -r xdfs://host/runs/2025")]
pub(crate) struct RmFlags {
    /// The paths to remove. Symbolic links are removed, not followed.
    #[arg(required = true, value_name = "URL", value_hint = ValueHint::Url)]
    pub(crate) urls: Vec<OsString>,

    /// Remove directories and their contents.
    #[arg(short, long, visible_short_alias = 'R')]
    pub(crate) recursive: bool,

    /// Remove empty directories.
    #[arg(short, long)]
    pub(crate) dir: bool,

    /// Ignore paths that don't exist.
    #[arg(short, long)]
    pub(crate) force: bool,

    /// Ask before each path is removed: with -r once for a directory with all in it.
    ///
    /// The answers are lines of standard input: y or yes; any other, or the end of the input, means
    /// no.
    #[arg(short, long, conflicts_with = "force")]
    pub(crate) interactive: bool,

    #[command(flatten)]
    pub(crate) common: PathFlags,
}

/// Rename or move paths on a server.
///
/// All paths must be on the same server. An existing target is replaced with -f only. If the target
/// is a directory, or there are several sources, the sources move into it under their own names.
#[derive(Clone, Debug, Args)]
#[command(
    override_usage = "xdfs mv [OPTIONS] URL... URL",
    after_help = "\
Examples:
  xdfs mv xdfs://host/new.img xdfs://host/big.img
  xdfs mv xdfs://host/a xdfs://host/b xdfs://host/runs/"
)]
pub(crate) struct MvFlags {
    /// The paths to move, and last the new name or a directory.
    #[arg(required = true, num_args = 2.., value_name = "URL", value_hint = ValueHint::Url)]
    pub(crate) urls: Vec<OsString>,

    /// Skip sources whose target exists, without an error.
    #[arg(short, long, conflicts_with = "force")]
    pub(crate) no_clobber: bool,

    /// Replace an existing target atomically.
    #[arg(short, long)]
    pub(crate) force: bool,

    #[command(flatten)]
    pub(crate) common: PathFlags,
}

/// Create hard or symbolic links on a server.
#[derive(Clone, Debug, Args)]
#[command(
    override_usage = "xdfs ln [OPTIONS] URL... URL\n       xdfs ln -s [OPTIONS] TEXT... URL",
    after_help = "\
Examples:
  xdfs ln xdfs://host/big.img xdfs://host/same.img
  xdfs ln 'xdfs://host/runs/*.img' xdfs://host/all/
  xdfs ln -s runs/2026 xdfs://host/latest          the link says 'runs/2026'"
)]
pub(crate) struct LnFlags {
    /// The files to link to, and last the new link or a directory, in which each link has the name
    /// of its file; with -s, texts of links instead of files, which are not checked.
    #[arg(required = true, num_args = 2.., value_name = "URL", value_hint = ValueHint::Url)]
    pub(crate) places: Vec<OsString>,

    /// Create a symbolic link.
    #[arg(short, long)]
    pub(crate) symbolic: bool,

    /// Remove an existing LINK first, unless it is a directory.
    #[arg(short, long)]
    pub(crate) force: bool,

    #[command(flatten)]
    pub(crate) common: PathFlags,
}

/// Set file times on a server, creating missing files.
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

    /// Do not create files.
    #[arg(short = 'c', long)]
    pub(crate) no_create: bool,

    /// Set the access time only, unless -m is given too.
    #[arg(short = 'a')]
    pub(crate) access: bool,

    /// Set the modification time only, unless -a is given too.
    #[arg(short = 'm')]
    pub(crate) modified: bool,

    /// Time to use instead of now: '2026-01-31 12:00', 2026-01-31T12:00:00Z, @SECONDS or now.
    #[arg(short, long, value_name = "TIME", value_parser = time::parse,
        conflicts_with_all = ["stamp", "reference"])]
    pub(crate) date: Option<i64>,

    /// Time to use instead of now, in digits.
    #[arg(short = 't', value_name = "[[CC]YY]MMDDhhmm[.ss]", value_parser = time::parse_stamp,
        conflicts_with = "reference")]
    pub(crate) stamp: Option<i64>,

    /// Use the times of a local file, or of a path on a server.
    #[arg(short, long, value_name = "PLACE", value_hint = ValueHint::AnyPath)]
    pub(crate) reference: Option<OsString>,

    #[command(flatten)]
    pub(crate) common: PathFlags,
}

/// Change permissions on a server.
///
/// MODE is octal (750) or symbolic (u+x,go-w, a=rX). Without u, g, o or a, it applies to all of
/// them. With -R, symbolic links in the tree are left alone.
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

    /// Change directories recursively.
    #[arg(short = 'R', long)]
    pub(crate) recursive: bool,

    #[command(flatten)]
    pub(crate) common: PathFlags,
}

/// Change owner and group on a server.
///
/// Names are those of the server's users and groups: it looks them up, and that needs the right to
/// list the path. Digits are always a number. On most servers only root may change the owner.
#[derive(Clone, Debug, Args)]
#[command(
    disable_help_flag = true,
    after_help = "\
Examples:
  xdfs chown alice:staff xdfs://host/big.img
  xdfs chown 1000:100 xdfs://host/big.img
  xdfs chown -R :staff xdfs://host/runs             the group only"
)]
pub(crate) struct ChownFlags {
    /// The owner, the group after a colon, or both; each as a name or a number.
    #[arg(value_name = "OWNER[:GROUP]", value_parser = parse_owner)]
    pub(crate) owner: Owner,

    /// The paths.
    #[arg(required = true, value_name = "URL", value_hint = ValueHint::Url)]
    pub(crate) urls: Vec<OsString>,

    /// Change directories recursively, and symbolic links in them rather than their targets.
    #[arg(short = 'R', long)]
    pub(crate) recursive: bool,

    /// Change symbolic links themselves instead of their targets.
    #[arg(short = 'h', long)]
    pub(crate) no_dereference: bool,

    #[command(flatten)]
    pub(crate) common: PathFlags,

    /// Print help.
    #[arg(long, action = ArgAction::Help, help_heading = None::<&'static str>)]
    pub(crate) help: Option<bool>,
}

/// Truncate or extend files on a server.
///
/// Data beyond the new length is lost; added bytes read as zeros. Missing files are created.
#[derive(Clone, Debug, Args)]
#[command(after_help = "\
Examples:
  xdfs truncate -s 0 xdfs://host/log.txt
  xdfs truncate -s +1G xdfs://host/disk.img")]
pub(crate) struct TruncateFlags {
    /// The files.
    #[arg(required = true, value_name = "URL", value_hint = ValueHint::Url)]
    pub(crate) urls: Vec<OsString>,

    /// The new length, or how much to grow (+SIZE) or shrink (-SIZE) by.
    #[arg(short, long, value_name = "[+-]SIZE", value_parser = parse_new_length,
        allow_hyphen_values = true)]
    pub(crate) size: NewLength,

    /// Do not create files.
    #[arg(short = 'c', long)]
    pub(crate) no_create: bool,

    #[command(flatten)]
    pub(crate) common: PathFlags,
}
