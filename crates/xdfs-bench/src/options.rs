//! The command line of the benchmark.
//!
//! Parsed by hand: a dozen options do not justify a dependency in a crate that nobody installs.
//! Called by `main`.

use std::path::PathBuf;

use crate::link::WanLink;

/// Printed by `--help` and after a usage error.
pub(crate) const USAGE: &str = "\
usage: xdfs-bench [GROUP...] [OPTIONS]

Measures xdfs and its rivals on loopback, in interleaved repetitions of one run.

groups (default: all)
  mem               memory to memory, with as many streams as iperf3
  shm               one big file, tmpfs to tmpfs
  disk              files of a tenth, a half and the whole of the big one, disk to disk, cold
                    source, durable at the end
  tiny              one 2-byte file, whole command, server already up
  saturation        a big file against one a tenth of its size, on disk
  channels          rate and peak memory from few channels to many
  private           the four groups of private channels:
  private-shm       one big file, tmpfs to tmpfs, with scp
  private-mem       memory to memory, with the other kinds of protection, and a profile
  private-tiny      one 2-byte file, login by key, whole command, server already up
  private-channels  opening of a thousand channels
  trees             the eight groups of trees:
  tree-a            1000 files of 1 to 512 KiB, 80 MB, tmpfs to tmpfs
  tree-b            2874 files of up to 258 KiB, 147 MB, tmpfs to tmpfs
  tree-c            100,000 files of 4 KiB, tmpfs to tmpfs
  tree-disk         2000 files of 2 MB, disk to disk, cold source, durable at the end
  tree-wan          tree-b with 50 ms of added round trip, with rsync; needs root
  tree-wan-narrow   the same over a link of 1 Gbit/s
  tree-empty        a million empty files, upwards
  calls             stat calls a second
  wan               the eight groups of long paths, tree-wan and tree-wan-narrow; they need root:
  wan-lossy         one big file over 1 Gbit/s with a round trip of 100 ms and 0.1 % loss
  wan-lossy-cubic   the same where the system forbids bbr
  wan-clean         the same path without loss
  wan-far           the same rate, 200 ms and 1 % loss
  wan-slow          a smaller file over 20 Mbit/s, 76 ms
  wan-shallow       a smaller file over 100 Mbit/s, 20 ms, with a queue of 64 KiB
  wan-fair-lossy    two transfers at once over the link of wan-lossy: their shares
  wan-fair-clean    two transfers at once over the link of wan-clean

options
  --repetitions R   repetitions of every row (default 3)
  --channels LIST   channel counts (default 1,4,16,64,256,1000)
  --file-mib N      size of the big file (default: 1024 in shm, 4096 on disk and in private-shm,
                    in wan groups what the link moves in 8 to 25 s)
  --memory-mib N    bytes of a memory to memory run (default 8192)
  --xdfs PATH       measure this program instead of building it; `none` for the rivals alone
  --previous PATH   an older xdfs: memory to memory its channels without protection are compared
                    with ours that prove who we are and send their payload clear, and trees
                    with ours that have none either
  --json FILE       write every run and the verdicts as JSON
  --markdown FILE   write the report there instead of to standard output
  --disk DIR        where the disk groups work (default target)
  --shm DIR         where the tmpfs groups work (default /dev/shm)
  --timeout S       limit of one run in seconds (default 120)
  --quick           small sizes, one repetition, no warm-up and no emptying of caches: shows that
                    everything runs, not how fast
  -h, --help        this text
";

/// One group of rows that share a workload.
#[derive(Clone, Copy, Debug, Eq, Hash, PartialEq)]
pub(crate) enum Group {
    /// Memory to memory with iperf3 and GridFTP.
    Mem,
    /// A big file from tmpfs to tmpfs.
    Shm,
    /// A big file from disk to disk.
    Disk,
    /// A file of two bytes.
    Tiny,
    /// Big against small on disk.
    Saturation,
    /// Few against many channels.
    Channels,
    /// A big file from tmpfs to tmpfs over private channels, with scp.
    PrivateShm,
    /// Memory to memory over private channels and others.
    PrivateMem,
    /// A file of two bytes over a private channel.
    PrivateTiny,
    /// Opening many private channels.
    PrivateChannels,
    /// A thousand small files.
    TreeA,
    /// Some thousand smaller ones.
    TreeB,
    /// A hundred thousand tiny files.
    TreeC,
    /// Two thousand files of 2 MB on disk.
    TreeDisk,
    /// `TreeB` over a long way.
    TreeWan,
    /// The same, and the way is narrow.
    TreeWanNarrow,
    /// A million empty files.
    TreeEmpty,
    /// Calls about paths, without payload.
    Calls,
    /// A big file over an emulated link.
    Wan(WanLink),
    /// Two transfers at once over an emulated link that loses packets.
    WanFairLossy,
    /// Two transfers at once over one that loses none.
    WanFairClean,
}

impl Group {
    /// Every group, in the order of the report.
    pub(crate) const ALL: [Self; 26] = [
        Self::Mem,
        Self::Shm,
        Self::Disk,
        Self::Tiny,
        Self::Saturation,
        Self::Channels,
        Self::PrivateShm,
        Self::PrivateMem,
        Self::PrivateTiny,
        Self::PrivateChannels,
        Self::TreeA,
        Self::TreeB,
        Self::TreeC,
        Self::TreeDisk,
        Self::TreeWan,
        Self::TreeWanNarrow,
        Self::TreeEmpty,
        Self::Calls,
        Self::Wan(WanLink::Lossy),
        Self::Wan(WanLink::LossyCubic),
        Self::Wan(WanLink::Clean),
        Self::Wan(WanLink::Far),
        Self::Wan(WanLink::Slow),
        Self::Wan(WanLink::Shallow),
        Self::WanFairLossy,
        Self::WanFairClean,
    ];

    /// What the word `trees` stands for.
    const TREES: [Self; 8] = [
        Self::TreeA,
        Self::TreeB,
        Self::TreeC,
        Self::TreeDisk,
        Self::TreeWan,
        Self::TreeWanNarrow,
        Self::TreeEmpty,
        Self::Calls,
    ];

    /// What the word `private` stands for.
    const PRIVATE: [Self; 4] = [
        Self::PrivateShm,
        Self::PrivateMem,
        Self::PrivateTiny,
        Self::PrivateChannels,
    ];

    /// Whether both sides are far apart, which is what the word `wan` stands for.
    pub(crate) fn is_far(self) -> bool {
        matches!(self, Self::TreeWan | Self::TreeWanNarrow) || self.link().is_some()
    }

    /// The emulated link, where its rate is what the group is about.
    pub(crate) fn link(self) -> Option<WanLink> {
        match self {
            Self::Wan(link) => Some(link),
            Self::WanFairLossy => Some(WanLink::Lossy),
            Self::WanFairClean => Some(WanLink::Clean),
            _ => None,
        }
    }

    /// Whether two transfers run at once.
    pub(crate) fn is_fair(self) -> bool {
        matches!(self, Self::WanFairLossy | Self::WanFairClean)
    }

    /// The word on the command line.
    pub(crate) fn name(self) -> &'static str {
        match self {
            Self::Wan(link) => link.properties().name,
            Self::Mem => "mem",
            Self::Shm => "shm",
            Self::Disk => "disk",
            Self::Tiny => "tiny",
            Self::Saturation => "saturation",
            Self::Channels => "channels",
            Self::PrivateShm => "private-shm",
            Self::PrivateMem => "private-mem",
            Self::PrivateTiny => "private-tiny",
            Self::PrivateChannels => "private-channels",
            Self::TreeA => "tree-a",
            Self::TreeB => "tree-b",
            Self::TreeC => "tree-c",
            Self::TreeDisk => "tree-disk",
            Self::TreeWan => "tree-wan",
            Self::TreeWanNarrow => "tree-wan-narrow",
            Self::TreeEmpty => "tree-empty",
            Self::Calls => "calls",
            Self::WanFairLossy => "wan-fair-lossy",
            Self::WanFairClean => "wan-fair-clean",
        }
    }

    /// Whether the group works in the disk folder.
    pub(crate) fn on_disk(self) -> bool {
        matches!(self, Self::Disk | Self::Saturation | Self::TreeDisk)
    }

    /// Whether the group is one of those of private channels.
    pub(crate) fn is_private(self) -> bool {
        Self::PRIVATE.contains(&self)
    }

    /// Whether the payload is a file.
    pub(crate) fn moves_a_file(self) -> bool {
        !matches!(
            self,
            Self::Mem
                | Self::Channels
                | Self::PrivateMem
                | Self::PrivateChannels
                | Self::Calls
                | Self::WanFairLossy
                | Self::WanFairClean
        ) && !self.moves_a_tree()
    }

    /// Whether the payload is a tree of files.
    pub(crate) fn moves_a_tree(self) -> bool {
        self.is_of_trees() && self != Self::Calls
    }

    /// Whether the group is one of those that `trees` stands for.
    pub(crate) fn is_of_trees(self) -> bool {
        Self::TREES.contains(&self)
    }

    /// Whether rows of xdfs differ by how their channels are protected.
    pub(crate) fn has_protections(self) -> bool {
        self.is_private() || self.is_of_trees()
    }

    /// Whether the group asks what a command costs with a server that is up.
    pub(crate) fn keeps_servers(self) -> bool {
        matches!(self, Self::Tiny | Self::PrivateTiny)
    }
}

impl serde::Serialize for Group {
    fn serialize<S: serde::Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_str(self.name())
    }
}

/// Which xdfs program is measured.
#[derive(Clone, Debug, Eq, PartialEq)]
pub(crate) enum Program {
    /// The release build of this workspace, built first.
    Build,
    /// None: the rivals alone.
    None,
    /// This file.
    Path(PathBuf),
}

/// What the command line asks for.
#[derive(Clone, Debug, Eq, PartialEq)]
pub(crate) struct Options {
    /// Groups to run, in the order of the report.
    pub(crate) groups: Vec<Group>,
    /// Repetitions of every row, at least one.
    pub(crate) repetitions: u32,
    /// Channel counts, ascending and without doubles.
    pub(crate) channels: Vec<u32>,
    /// Size of the big file in tmpfs, in bytes.
    pub(crate) shm_bytes: u64,
    /// Size of the big file on disk, in bytes.
    pub(crate) disk_bytes: u64,
    /// Size of the big file over private channels, in bytes.
    pub(crate) private_bytes: u64,
    /// Size of the big file over emulated links, in bytes; that of the link where not given.
    pub(crate) wan_bytes: Option<u64>,
    /// Payload of a memory to memory run, in bytes.
    pub(crate) memory_bytes: u64,
    /// The program under test.
    pub(crate) program: Program,
    /// An older program to compare with.
    pub(crate) previous: Option<PathBuf>,
    /// Where to write JSON.
    pub(crate) json: Option<PathBuf>,
    /// Where to write the report.
    pub(crate) markdown: Option<PathBuf>,
    /// Folder of the disk groups.
    pub(crate) disk: PathBuf,
    /// Folder of the tmpfs groups.
    pub(crate) shm: PathBuf,
    /// Limit of one run in seconds.
    pub(crate) timeout_s: u64,
    /// Small sizes and one repetition.
    pub(crate) quick: bool,
    /// Print the usage and end.
    pub(crate) help: bool,
}

impl Options {
    /// Parses the arguments after the program name; the error is one line for the user.
    pub(crate) fn parse(arguments: &[String]) -> Result<Self, String> {
        let quick = arguments.iter().any(|argument| argument == "--quick");
        let mut options = Self::with_defaults(quick);
        let mut remaining = arguments.iter();
        while let Some(argument) = remaining.next() {
            let (name, inline) = match argument.split_once('=') {
                Some((name, value)) if name.starts_with("--") => (name, Some(value.to_owned())),
                _ => (argument.as_str(), None),
            };
            let mut value = || {
                inline
                    .clone()
                    .or_else(|| remaining.next().cloned())
                    .ok_or_else(|| format!("{name} needs a value"))
            };
            match name {
                "--quick" => {}
                "-h" | "--help" => options.help = true,
                "--repetitions" => {
                    options.repetitions = u32::try_from(number(name, &value()?, 1000)?)
                        .map_err(|_| format!("{name} is too large"))?;
                }
                "--channels" => options.channels = channel_list(&value()?)?,
                "--file-mib" => {
                    let bytes = number(name, &value()?, 1 << 20)? << 20;
                    options.shm_bytes = bytes;
                    options.disk_bytes = bytes;
                    options.private_bytes = bytes;
                    options.wan_bytes = Some(bytes);
                }
                "--memory-mib" => options.memory_bytes = number(name, &value()?, 1 << 30)? << 20,
                "--xdfs" => {
                    options.program = match value()?.as_str() {
                        "none" => Program::None,
                        path => Program::Path(PathBuf::from(path)),
                    };
                }
                "--previous" => options.previous = Some(PathBuf::from(value()?)),
                "--json" => options.json = Some(PathBuf::from(value()?)),
                "--markdown" => options.markdown = Some(PathBuf::from(value()?)),
                "--disk" => options.disk = PathBuf::from(value()?),
                "--shm" => options.shm = PathBuf::from(value()?),
                "--timeout" => options.timeout_s = number(name, &value()?, 86_400)?,
                "all" => options.groups.extend(Group::ALL),
                "private" => options.groups.extend(Group::PRIVATE),
                "trees" => options.groups.extend(Group::TREES),
                "wan" => {
                    let far = Group::ALL.into_iter().filter(|group| group.is_far());
                    options.groups.extend(far);
                }
                word => match Group::ALL.into_iter().find(|group| group.name() == word) {
                    Some(group) => options.groups.push(group),
                    None => return Err(format!("no group or option {word:?}")),
                },
            }
        }
        if options.groups.is_empty() {
            options.groups.extend(Group::ALL);
        }
        let asked = std::mem::take(&mut options.groups);
        options.groups = Group::ALL
            .into_iter()
            .filter(|group| asked.contains(group))
            .collect();
        Ok(options)
    }

    /// Size of the big file over a link, in bytes.
    pub(crate) fn bytes_over(&self, link: WanLink) -> u64 {
        self.wan_bytes.unwrap_or_else(|| link.properties().bytes)
    }

    fn with_defaults(quick: bool) -> Self {
        let mib = |count: u64| count << 20;
        Self {
            groups: Vec::new(),
            repetitions: if quick { 1 } else { 3 },
            channels: if quick {
                vec![1, 4, 16]
            } else {
                vec![1, 4, 16, 64, 256, 1000]
            },
            shm_bytes: mib(if quick { 32 } else { 1024 }),
            disk_bytes: mib(if quick { 32 } else { 4096 }),
            private_bytes: mib(if quick { 32 } else { 4096 }),
            wan_bytes: quick.then(|| mib(2)),
            memory_bytes: mib(if quick { 128 } else { 8192 }),
            program: Program::Build,
            previous: None,
            json: None,
            markdown: None,
            disk: PathBuf::from("target"),
            shm: PathBuf::from("/dev/shm"),
            timeout_s: if quick { 10 } else { 120 },
            quick,
            help: false,
        }
    }
}

fn number(name: &str, text: &str, max: u64) -> Result<u64, String> {
    match text.parse::<u64>() {
        Ok(value) if (1..=max).contains(&value) => Ok(value),
        _ => Err(format!(
            "{name} takes a number from 1 to {max}, not {text:?}"
        )),
    }
}

fn channel_list(text: &str) -> Result<Vec<u32>, String> {
    let mut channels = Vec::new();
    for word in text.split(',') {
        let value = number("--channels", word.trim(), 65_535)?;
        channels.push(u32::try_from(value).map_err(|_| "too many channels".to_owned())?);
    }
    channels.sort_unstable();
    channels.dedup();
    Ok(channels)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parse(words: &[&str]) -> Result<Options, String> {
        let words: Vec<String> = words.iter().map(|word| (*word).to_owned()).collect();
        Options::parse(&words)
    }

    #[test]
    fn all_groups_by_default() {
        let options = parse(&[]).unwrap();
        assert_eq!(options.groups, Group::ALL);
        assert_eq!(options.channels, [1, 4, 16, 64, 256, 1000]);
        assert_eq!(options.shm_bytes, 1 << 30);
        assert_eq!(options.disk_bytes, 4 << 30);
        assert_eq!(options.program, Program::Build);
    }

    #[test]
    fn groups_are_sorted_and_unique() {
        let options = parse(&["tiny", "mem", "tiny", "--quick"]).unwrap();
        assert_eq!(options.groups, [Group::Mem, Group::Tiny]);
        assert_eq!(options.repetitions, 1);
    }

    #[test]
    fn private_is_a_word_for_several_groups() {
        let options = parse(&["private", "mem", "--previous=/old/xdfs"]).unwrap();
        assert_eq!(options.groups[0], Group::Mem);
        assert_eq!(options.groups[1..], Group::PRIVATE);
        assert!(options.groups[1..].iter().all(|group| group.is_private()));
        assert_eq!(options.previous, Some(PathBuf::from("/old/xdfs")));
        assert_eq!(options.private_bytes, 4 << 30);
        let options = parse(&["private-tiny"]).unwrap();
        assert_eq!(options.groups, [Group::PrivateTiny]);
        assert!(!parse(&["mem"]).unwrap().groups[0].is_private());
    }

    #[test]
    fn trees_is_a_word_for_several_groups() {
        let options = parse(&["trees", "tiny"]).unwrap();
        assert_eq!(options.groups[0], Group::Tiny);
        assert_eq!(options.groups[1..], Group::TREES);
        for group in Group::TREES {
            assert!(group.is_of_trees() && !group.moves_a_file());
            assert_eq!(group.moves_a_tree(), group != Group::Calls);
        }
        let options = parse(&["tree-wan"]).unwrap();
        assert_eq!(options.groups, [Group::TreeWan]);
    }

    #[test]
    fn wan_is_a_word_for_everything_far() {
        let options = parse(&["wan", "mem"]).unwrap();
        assert_eq!(options.groups.len(), 1 + 2 + WanLink::ALL.len() + 2);
        assert_eq!(options.groups[0], Group::Mem);
        for group in &options.groups[1..] {
            assert!(group.is_far(), "{group:?}");
            assert_ne!(group.moves_a_tree(), group.link().is_some(), "{group:?}");
        }
        for link in WanLink::ALL {
            assert!(options.groups.contains(&Group::Wan(link)), "{link:?}");
            assert!(Group::Wan(link).moves_a_file());
        }
        let one = parse(&["wan-fair-lossy"]).unwrap().groups;
        assert_eq!(one, [Group::WanFairLossy]);
        assert!(one[0].is_fair() && !one[0].moves_a_file());
    }

    #[test]
    fn names_are_unique_and_what_json_says() {
        for (index, group) in Group::ALL.into_iter().enumerate() {
            let named = |other: &Group| other.name() == group.name();
            assert_eq!(Group::ALL.iter().position(named), Some(index));
            let json = serde_json::to_value(group).unwrap();
            assert_eq!(json, group.name());
        }
    }

    #[test]
    fn values_inline_or_after_and_over_quick() {
        let options = parse(&[
            "--channels=16,1,4,4",
            "--file-mib",
            "8",
            "--quick",
            "--xdfs",
            "none",
        ])
        .unwrap();
        assert_eq!(options.channels, [1, 4, 16]);
        assert_eq!((options.shm_bytes, options.disk_bytes), (8 << 20, 8 << 20));
        assert_eq!(options.program, Program::None);
    }

    #[test]
    fn bad_words_are_refused() {
        for words in [
            &["--repetitions", "0"][..],
            &["--repetitions"],
            &["--channels", "1,x"],
            &["--channels", ""],
            &["--file-mib", "99999999999999999999"],
            &["--frobnicate"],
            &["bogus"],
            &["--previous"],
            &["privateshm"],
        ] {
            assert!(parse(words).is_err(), "{words:?}");
        }
    }
}
