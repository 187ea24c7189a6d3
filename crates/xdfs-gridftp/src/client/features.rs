//! What a server offers: its reply to FEAT (RFC 2389).

use crate::archive::Compression;
use crate::checksum::Algorithm;
use crate::reply::Reply;
use crate::restart::EXCLUSIVE;
use crate::xmode::{self, Sum};

/// The features that this client uses.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Features {
    /// MLSD and MLST (RFC 3659), which say what an entry is.
    pub mlst: bool,
    /// The argument of OPTS by which MLSD and MLST tell facts that they leave out otherwise.
    pub facts_option: Option<String>,
    /// MFMT, which sets a modification time.
    pub mfmt: bool,
    /// MDTM was refused: the server tells no times of modification.
    pub lacks_times: bool,
    /// MODE E: the server knows parallel data connections.
    pub extended: bool,
    /// REST, in stream mode at least (RFC 3659): a transfer can begin in the middle.
    pub restarts: bool,
    /// The server promises what [`EXCLUSIVE`] says, as those of xDFS do.
    pub exclusive: bool,
    /// Kinds of checksum for CKSM.
    pub checksums: Vec<Algorithm>,
    /// The checksum of MODE X between xDFS and xDFS, if the server has it.
    pub exchange: Option<Sum>,
    /// How segments of MODE T may be compressed; empty without this mode.
    pub segments: Vec<Compression>,
    /// Whoever is on the way can change data, and not what is said about it: checksums that can't
    /// be forged are preferred.
    pub is_exposed: bool,
    /// Nothing is compared by checksums, since the user doesn't want it.
    pub is_uncompared: bool,
    /// The server itself sends files if it is asked to, and no data nodes of it, whose connections
    /// wouldn't be taken here.
    pub unstriped: bool,
}

/// Checksums in the order in which they are preferred for a comparison: fast ones that detect
/// damage first. Nobody is kept out by them, where commands are protected no better than data.
/// SHA-1 is faster than MD5 everywhere, and SHA-256 where processors have instructions for it.
const PREFERRED: [Algorithm; 7] = [
    Algorithm::Crc64Nvme,
    Algorithm::Blake3,
    Algorithm::Sha1,
    Algorithm::Sha256,
    Algorithm::Md5,
    Algorithm::Sha512,
    Algorithm::Crc32,
];

/// Those that nobody can forge.
const UNFORGED: [Algorithm; 3] = [Algorithm::Blake3, Algorithm::Sha256, Algorithm::Sha512];

impl Features {
    /// Reads the reply; what is unknown is left out.
    #[must_use]
    pub fn parse(reply: &Reply) -> Self {
        let mut features = Self::default();
        if reply.code >= 300 {
            return features;
        }
        for line in &reply.lines {
            let line = line.trim_ascii();
            let split = line.iter().position(|byte| *byte == b' ');
            let (name, rest) = line.split_at(split.unwrap_or(line.len()));
            match name.to_ascii_uppercase().as_slice() {
                b"MLST" => (features.mlst, features.facts_option) = facts(rest),
                b"MFMT" => features.mfmt = true,
                b"PARALLEL" => features.extended = true,
                b"MODE" => {
                    let mut parts = rest.split(|byte| matches!(byte, b' ' | b';'));
                    let mut parts = parts.by_ref().filter(|part| !part.is_empty());
                    match parts.next() {
                        Some(b"T") => {
                            features.segments = parts.filter_map(Compression::from_name).collect();
                        }
                        Some(b"X") if parts.next() == Some(xmode::VERSION.as_bytes()) => {
                            let sums: Vec<_> = parts.filter_map(Sum::from_name).collect();
                            let mut all = Sum::ALL.iter().map(|(sum, _)| *sum);
                            features.exchange = all.find(|sum| sums.contains(sum));
                        }
                        _ => {}
                    }
                }
                b"REST" => features.restarts = true,
                name if name == EXCLUSIVE.as_bytes() => features.exclusive = true,
                b"STRIPELAYOUT" => {
                    let mut layouts = rest.split(|byte| matches!(byte, b' ' | b';'));
                    features.unstriped = layouts.any(|own| own.eq_ignore_ascii_case(b"none"));
                }
                b"CKSM" => features.checksums = algorithms(rest),
                _ => {}
            }
        }
        features
    }

    /// The command that sets a time of modification: MFMT, or MDTM with a time before the path, as
    /// some servers without MLSD have it, which others take for a path.
    #[must_use]
    pub fn sets_times_by(&self) -> Option<&'static str> {
        match self.mfmt {
            true => Some("MFMT"),
            false => (!self.mlst && !self.lacks_times).then_some("MDTM"),
        }
    }

    /// The options of RETR for so many connections, with a layout of stripes if that is wanted.
    #[must_use]
    pub fn send_options(&self, layout: Option<&str>, connections: u32) -> String {
        let layout = match layout {
            Some(layout) => layout,
            None if self.unstriped => "StripeLayout=None;",
            None => "",
        };
        format!("RETR {layout}Parallelism={connections},{connections},{connections};")
    }

    /// The checksum to compare by, if there is one.
    #[must_use]
    pub fn checksum(&self) -> Option<Algorithm> {
        self.checksum_with(self)
    }

    /// The checksum to compare by with another server, if both have one in common.
    #[must_use]
    pub fn checksum_with(&self, other: &Self) -> Option<Algorithm> {
        if self.is_uncompared || other.is_uncompared {
            return None;
        }
        let first = match self.is_exposed || other.is_exposed {
            true => &UNFORGED[..],
            false => &[],
        };
        let mut kinds = first.iter().copied().chain(PREFERRED);
        kinds.find(|kind| self.checksums.contains(kind) && other.checksums.contains(kind))
    }
}

/// The facts that this client reads.
const FACTS: [&str; 7] = [
    "type",
    "size",
    "modify",
    "unix.mode",
    "unix.uid",
    "unix.gid",
    "unix.slink",
];

/// Whether rows say what an entry is, by the facts that are announced (RFC 3659, section 7.8), and
/// what asks for those of [`FACTS`] that aren't sent by themselves: such have no asterisk.
fn facts(announced: &[u8]) -> (bool, Option<String>) {
    let text = String::from_utf8_lossy(announced.trim_ascii());
    let all: Vec<_> = text.split(';').filter(|fact| !fact.is_empty()).collect();
    let name = |fact: &str| fact.trim_end_matches('*').to_ascii_lowercase();
    let is_read = |fact: &&&str| FACTS.contains(&name(fact).as_str());
    let read: Vec<_> = all.iter().filter(is_read).collect();
    let says_kind = all.is_empty() || read.iter().any(|fact| name(fact) == "type");
    let is_untold = read.iter().any(|fact| !fact.ends_with('*'));
    let names = read.iter().map(|fact| fact.trim_end_matches('*'));
    let option = names.fold("MLST ".to_owned(), |option, name| option + name + ";");
    (says_kind, is_untold.then_some(option).filter(|_| says_kind))
}

/// The name of a kind of checksum in commands.
#[must_use]
pub fn name_of(kind: Algorithm) -> &'static str {
    let mut all = Algorithm::ALL.iter();
    all.find(|(other, ..)| *other == kind)
        .map_or("", |(_, name, _)| *name)
}

/// Reads `MD5:10;ADLER32:10;`, with commas in place of semicolons too.
fn algorithms(text: &[u8]) -> Vec<Algorithm> {
    let parts = text.split(|byte| matches!(byte, b';' | b',' | b' '));
    let mut kinds = Vec::new();
    for part in parts {
        let name = part.split(|byte| *byte == b':').next().unwrap_or(part);
        if let Some(kind) = Algorithm::from_name(name)
            && !kinds.contains(&kind)
        {
            kinds.push(kind);
        }
    }
    kinds
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn facts_that_are_not_told_unasked_are_asked_for() {
        let features = |line: &str| {
            let features =
                Features::parse(&Reply::of_lines(211, "Extensions", [line.into()], "End"));
            (features.mlst, features.facts_option)
        };
        assert_eq!(features("MLST"), (true, None));
        assert_eq!(features("MLST Type*;SIZE*;Lang;"), (true, None));
        let wanted = Some("MLST type;Modify;unix.mode;".to_owned());
        assert_eq!(
            features("MLST type*;perm;Modify;unix.mode*"),
            (true, wanted)
        );
        assert_eq!(features("MLST size*;modify;"), (false, None));
    }

    #[test]
    fn the_lists_of_known_servers_are_read() {
        let lines = [
            "Extensions",
            "CKSM MD5:10;ADLER32:10;SHA1:10;",
            "MLST Type*;",
            "PARALLEL",
            "REST STREAM",
            "MODE Z",
            "MODE T none;lzma;zstd;",
            "MODE X xdfs-9 CRC32C;",
            "MODE X xdfs-1 MD5;CRC64;CRC32;",
            "STRIPELAYOUT Blocked;None;",
        ];
        let reply = Reply {
            code: 211,
            lines: lines.iter().map(|line| line.as_bytes().to_vec()).collect(),
        };
        let features = Features::parse(&reply);
        assert!(features.mlst && features.extended && !features.mfmt);
        assert!(features.restarts && !features.exclusive);
        let ours = Reply::of_lines(211, "Extensions", [EXCLUSIVE.into()], "End");
        assert!(Features::parse(&ours).exclusive);
        assert!(features.unstriped);
        assert_eq!(features.segments, [Compression::None, Compression::Zstd]);
        let wanted = "RETR StripeLayout=None;Parallelism=4,4,4;";
        assert_eq!(features.send_options(None, 4), wanted);
        let none = Features::default();
        assert_eq!(none.send_options(None, 1), "RETR Parallelism=1,1,1;");
        let layout = Some("StripeLayout=Blocked;BlockSize=65536;");
        let wanted = "RETR StripeLayout=Blocked;BlockSize=65536;Parallelism=2,2,2;";
        assert_eq!(none.send_options(layout, 2), wanted);
        assert_eq!(features.checksum(), Some(Algorithm::Sha1));
        let mut exposed = features.clone();
        exposed.is_exposed = true;
        assert_eq!(exposed.checksum(), Some(Algorithm::Sha1));
        exposed.checksums.push(Algorithm::Sha256);
        assert_eq!(exposed.checksum(), Some(Algorithm::Sha256));
        assert_eq!(features.exchange, Some(Sum::Crc32));
        assert_eq!(Features::parse(&Reply::new(500, "no")), Features::default());
        assert_eq!(Features::default().checksum(), None);
        for (kind, name, _) in Algorithm::ALL {
            assert_eq!(name_of(kind), name);
        }
    }
}
