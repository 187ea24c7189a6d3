//! What is done while the power is cut.

use xdfs_testkit::tree::Random;

/// One kind of work.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Work {
    pub(crate) task: Task,
    pub(crate) up: bool,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Task {
    /// `cp` of one file to a name that nothing has.
    Copy,
    /// `cp --force` onto a file.
    Over,
    /// `cp` that was killed once before.
    Resume,
    /// `cp -r`.
    Tree,
    /// `sync`, often with `--delete`.
    Sync,
    /// `sync --delta`, often with `--delete`.
    Delta,
    /// `cp` of one file with a `ftp://` place, by GridFTP.
    Ftp,
    /// `cp -r` with such a place, by segments of MODE T.
    FtpTree,
    /// Writes at places of a file on the server, and what was synchronised of them.
    InPlace,
}

impl Work {
    pub(crate) const ALL: [Self; 17] = [
        Self::new(Task::Copy, true),
        Self::new(Task::Tree, true),
        Self::new(Task::Sync, true),
        Self::new(Task::Delta, true),
        Self::new(Task::Copy, false),
        Self::new(Task::Tree, false),
        Self::new(Task::Sync, false),
        Self::new(Task::Delta, false),
        Self::new(Task::Over, true),
        Self::new(Task::Resume, true),
        Self::new(Task::InPlace, true),
        Self::new(Task::Over, false),
        Self::new(Task::Resume, false),
        Self::new(Task::Ftp, true),
        Self::new(Task::FtpTree, true),
        Self::new(Task::Ftp, false),
        Self::new(Task::FtpTree, false),
    ];

    const fn new(task: Task, up: bool) -> Self {
        Self { task, up }
    }

    pub(crate) fn name(self) -> &'static str {
        match (self.task, self.up) {
            (Task::Copy, true) => "cp-up",
            (Task::Copy, false) => "cp-down",
            (Task::Over, true) => "over-up",
            (Task::Over, false) => "over-down",
            (Task::Resume, true) => "resume-up",
            (Task::Resume, false) => "resume-down",
            (Task::Tree, true) => "tree-up",
            (Task::Tree, false) => "tree-down",
            (Task::Sync, true) => "sync-up",
            (Task::Sync, false) => "sync-down",
            (Task::Delta, true) => "delta-up",
            (Task::Delta, false) => "delta-down",
            (Task::Ftp, true) => "ftp-up",
            (Task::Ftp, false) => "ftp-down",
            (Task::FtpTree, true) => "ftp-tree-up",
            (Task::FtpTree, false) => "ftp-tree-down",
            (Task::InPlace, _) => "in-place",
        }
    }

    /// Whether it is about a tree, and not about one file.
    pub(crate) fn is_tree(self) -> bool {
        matches!(self.task, Task::Tree | Task::Sync | Task::Delta)
    }

    /// Whether files go by GridFTP.
    pub(crate) fn is_ftp(self) -> bool {
        matches!(self.task, Task::Ftp | Task::FtpTree)
    }

    /// The name of the source, and of what was there before.
    pub(crate) fn source(self) -> (&'static str, Option<&'static str>) {
        match self.task {
            Task::Copy | Task::Resume | Task::Ftp => ("file", None),
            Task::FtpTree => ("plain", None),
            Task::Over | Task::InPlace => ("file", Some("file-old")),
            Task::Tree => ("tree", None),
            Task::Sync => ("tree", Some("tree-old")),
            Task::Delta => ("large", Some("large-old")),
        }
    }

    /// The command without its ends.
    pub(crate) fn command(self, random: &mut Random) -> Command {
        let mut words = match self.task {
            Task::Copy | Task::Resume | Task::InPlace | Task::Ftp => vec!["cp"],
            Task::Over => vec!["cp", "--force"],
            Task::Tree | Task::FtpTree => vec!["cp", "-r"],
            Task::Sync => vec!["sync"],
            Task::Delta => vec!["sync", "--delta"],
        };
        let mut command = Command {
            whole_seconds: self.is_ftp(),
            ..Command::default()
        };
        if matches!(self.task, Task::Sync | Task::Delta) && random.below(3) > 0 {
            words.extend(["--delete", "--force"]);
            command.deletes = true;
        }
        if matches!(self.task, Task::Sync | Task::Tree) && random.below(2) > 0 {
            words.push("-a");
            // Of `sync` only those that are moved together, which depends on what was there.
            command.links = self.task == Task::Tree;
        }
        if random.below(8) == 0 && self.is_tree() {
            words.extend(["--durability", "full"]);
        }
        if random.below(3) == 0 {
            words.extend(["-n", "3"]);
        }
        command.words = words;
        command
    }
}

/// A command without its ends.
#[derive(Clone, Debug, Default)]
pub(crate) struct Command {
    pub(crate) words: Vec<&'static str>,
    /// Whether what isn't in the source goes.
    pub(crate) deletes: bool,
    /// Whether several names of one file stay that.
    pub(crate) links: bool,
    /// Whether times are told in whole seconds.
    pub(crate) whole_seconds: bool,
}
