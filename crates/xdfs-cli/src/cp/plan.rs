//! Plans the copies of a command line: one [`PlannedCopy`] per file, or a refusal.
//!
//! It inspects local paths (directory or file, length), and uses the network only for groups of
//! servers.

use std::ffi::OsString;
use std::ops::Deref;

use xdfs::operations::path::{ends_with_separator, file_name};
use xdfs::operations::{DownloadTarget, PlannedFile, check_names};
use xdfs::settings::ClientConfig;
use xdfs::{Code, Fault, LocalPlace, RemotePlace, STRIPED_BYTES_MIN};

use super::origins::{Origins, check_removal};
use super::several::SeveralFile;
use crate::flags::CpFlags;
use crate::place::{Place, check_meant_here, shown};
use crate::report::Label;
use crate::session::{self, Connector};

/// One file to copy.
#[derive(Clone, Debug)]
pub(crate) struct PlannedCopy {
    /// Its names in messages.
    pub(crate) label: Label,
    /// Its server and route.
    pub(crate) copy: PlannedFile,
}

impl PlannedCopy {
    /// A copy to the server of `target`, as the user names both.
    fn to_server(copy: PlannedFile, source: String, target: &str) -> Self {
        let target = match &copy.name {
            Some(name) => {
                let name = String::from_utf8_lossy(name);
                format!("{}/{name}", target.trim_end_matches('/'))
            }
            None => target.to_owned(),
        };
        let label = Label { source, target };
        Self { label, copy }
    }

    /// A copy to this machine.
    fn to_here(copy: PlannedFile, source: String) -> Self {
        let target = match copy.route.local() {
            LocalPlace::Memory => "/dev/null".to_owned(),
            local => session::local_text(local),
        };
        let label = Label { source, target };
        Self { label, copy }
    }
}

impl Deref for PlannedCopy {
    type Target = PlannedFile;

    fn deref(&self) -> &PlannedFile {
        &self.copy
    }
}

fn invalid(cause: impl Into<String>) -> Fault {
    Fault::new(Code::InvalidArgument, "plan the copy", cause)
}

/// The groups that the servers of a command are in.
pub(super) enum Groups<'a> {
    /// None, or those whose files are sets already.
    None,
    /// The group of the target, by its place.
    Target(&'a RemotePlace),
    /// Any, which servers are asked for.
    Any(&'a Connector),
}

impl Groups<'_> {
    /// The place of the group that writes to a server.
    fn writing(&self, server: &RemotePlace) -> Result<Option<RemotePlace>, Fault> {
        match self {
            Self::None => Ok(None),
            Self::Target(place) => Ok(Some(RemotePlace::clone(place))),
            Self::Any(connector) => connector.group_of(server),
        }
    }

    /// The place of the group that sends a file of a server.
    fn sending(&self, server: &RemotePlace) -> Result<Option<RemotePlace>, Fault> {
        match self {
            Self::Any(connector) => connector.group_of(server),
            Self::None | Self::Target(_) => Ok(None),
        }
    }
}

/// Plans the copies; with `many` the target is a directory. `several` are files of several servers,
/// with the places of their sets.
///
/// # Errors
/// The command as a whole is invalid, or the local target directory doesn't exist; or a server is
/// in no group.
pub(super) fn plan(
    config: &ClientConfig,
    flags: &CpFlags,
    (many, several): (bool, &[(&SeveralFile, &RemotePlace)]),
    groups: &Groups<'_>,
    origins: &Origins,
) -> Result<Vec<PlannedCopy>, Fault> {
    let parse = |word: &OsString| Place::parse(config, word);
    let sources = flags.places.sources.iter().map(parse);
    let sources = sources.collect::<Result<Vec<_>, _>>()?;
    let target = parse(&flags.places.target)?;
    if target == Place::Standard && flags.output.json {
        return Err(
            invalid("the file and the JSON lines can't both go to standard output")
                .hint("leave out --json, or name a file as the target"),
        );
    }
    if flags.remove_source && (sources.contains(&Place::Standard) || target == Place::Standard) {
        return Err(
            invalid("what goes through a standard stream can't be compared")
                .hint("leave out --remove-source"),
        );
    }
    if many {
        check_many(&sources, several, &target)?;
    }
    let several_bytes = |file: &SeveralFile| match (flags.offset, flags.length) {
        (0, None) => file.set.length,
        _ => None,
    };
    let texts = flags.places.sources.iter().map(|word| shown(word));
    match target {
        Place::Remote(server) => {
            let target_text = shown(&flags.places.target);
            // Data nodes of a source have stripes already.
            let has_nodes = |source: &Place| match source {
                Place::Remote(place) => place.address.traits().stripes,
                _ => false,
            };
            let group = match sources.iter().any(has_nodes) {
                true => None,
                false => groups.writing(&server)?,
            };
            // The servers for so many bytes.
            let server_of = |bytes: Option<u64>| match &group {
                Some(all) if bytes.is_some_and(|bytes| bytes >= STRIPED_BYTES_MIN) => all,
                _ => &server,
            };
            let jobs = sources.iter().zip(texts).map(|(source, text)| {
                let copy = match source {
                    Place::Remote(place) => {
                        check_removal(flags.remove_source, [place, &server])?;
                        let login = flags.session.security.login();
                        login.check_one_password([place, &server])?;
                        let stays =
                            place.shares_session(&server) || server.address.traits().stripes;
                        let from = match stays {
                            true => None,
                            false => groups.sending(place)?,
                        };
                        let bytes = match &group {
                            Some(_) if !stays => origins.bytes_of(place),
                            _ => None,
                        };
                        let file = origins.file(from.as_ref().unwrap_or(place));
                        let copy = PlannedFile::between(&file, server_of(bytes), many);
                        copy.map_err(|fault| fault.path(text.as_bytes()))?
                    }
                    Place::Standard => PlannedFile::upload_stream(&server)?,
                    Place::Local(path) => {
                        let part = (flags.offset, flags.length);
                        let copy = PlannedFile::upload(path, &server, many, part);
                        match server_of(copy.bytes) {
                            all if *all == server => copy,
                            all => PlannedFile::upload(path, all, many, part),
                        }
                    }
                };
                Ok(PlannedCopy::to_server(copy, text, &target_text))
            });
            let sets = several.iter().map(|(file, place)| {
                let bytes = several_bytes(file);
                let server = server_of(bytes);
                let copy = PlannedFile::between(&origins.file(place), server, many)?;
                let copy = PlannedFile { bytes, ..copy };
                Ok(PlannedCopy::to_server(
                    copy,
                    file.text.clone(),
                    &target_text,
                ))
            });
            jobs.chain(sets).collect()
        }
        local => {
            let target = match &local {
                Place::Local(path) => DownloadTarget::of(path, many)?,
                _ => DownloadTarget::Standard,
            };
            let words = flags.places.sources.iter().chain([&flags.places.target]);
            let words = || words.clone().map(OsString::as_os_str);
            if sources
                .iter()
                .any(|source| matches!(source, Place::Local(_)))
            {
                check_meant_here(config, "plan the copy", words())?;
            }
            let jobs = sources
                .iter()
                .zip(texts)
                .map(|(source, text)| match source {
                    Place::Remote(server) => {
                        let group = groups.sending(server)?;
                        let server = group.as_ref().unwrap_or(server);
                        let copy = PlannedFile::download(server, &target);
                        let copy = copy.map_err(|fault| fault.path(text.as_bytes()))?;
                        Ok(PlannedCopy::to_here(copy, text))
                    }
                    Place::Local(path) if local != Place::Standard => {
                        let part = (flags.offset, flags.length);
                        let copy = PlannedFile::here(path, &target, part)?;
                        Ok(PlannedCopy::to_here(copy, text))
                    }
                    _ => Err(config.hinted(stream_to_local(), words())),
                });
            let sets = several.iter().map(|(file, place)| {
                let bytes = several_bytes(file);
                let copy = PlannedFile::download(place, &target)?;
                let copy = PlannedFile { bytes, ..copy };
                Ok(PlannedCopy::to_here(copy, file.text.clone()))
            });
            jobs.chain(sets).collect()
        }
    }
}

/// Checks the rules for several sources, of which some may be directories.
///
/// # Errors
/// A word is invalid, or two sources would get one name.
pub(super) fn check_several(config: &ClientConfig, flags: &CpFlags) -> Result<(), Fault> {
    let parse = |word: &OsString| Place::parse(config, word);
    let sources = flags.places.sources.iter().map(parse);
    let sources = sources.collect::<Result<Vec<_>, _>>()?;
    check_many(&sources, &[], &parse(&flags.places.target)?)
}

fn stream_to_local() -> Fault {
    invalid("a standard stream comes from a server, or goes to one")
        .hint("use `cat` on this machine, or name a server: xdfs://HOST/PATH")
}

/// Checks the rules for several sources.
fn check_many(
    sources: &[Place],
    several: &[(&SeveralFile, &RemotePlace)],
    target: &Place,
) -> Result<(), Fault> {
    if sources.contains(&Place::Standard) {
        return Err(invalid("standard input has no name in a directory")
            .hint("copy it alone, to the URL of a file"));
    }
    if *target == Place::Standard {
        return Err(invalid("several files can't go to standard output")
            .hint("name a directory as the target"));
    }
    let names = sources.iter().map(|source| match source {
        // The contents of a directory have names of their own.
        Place::Local(path) if ends_with_separator(path) => None,
        Place::Remote(server) if server.path.ends_with(b"/") => None,
        Place::Local(path) => path.file_name().map(|name| name.as_encoded_bytes()),
        Place::Remote(server) => file_name(&server.path),
        Place::Standard => None,
    });
    let of_sets = several
        .iter()
        .map(|(file, _)| Some(file.set.name.as_slice()));
    check_names(names.chain(of_sets))
}

#[cfg(test)]
mod tests {
    use clap::Parser as _;

    use xdfs::{TransferRoute, Way};

    use super::*;
    use crate::context::Context;
    use crate::flags::{Cli, Command};

    fn flags(words: &[&str]) -> CpFlags {
        let line = ["xdfs", "cp"].iter().chain(words);
        match Cli::try_parse_from(line).unwrap().command {
            Command::Cp(flags) => flags,
            other => panic!("{other:?}"),
        }
    }

    fn planned(flags: &CpFlags) -> Result<Vec<PlannedCopy>, Fault> {
        let connector = Connector::new(Context::new(true), flags.session.clone());
        let origins = Origins::new(&connector, Way::Any);
        let many = flags.places.sources.len() > 1;
        plan(
            &ClientConfig::default(),
            flags,
            (many, &[]),
            &Groups::None,
            &origins,
        )
    }

    fn refusal(words: &[&str]) -> Fault {
        planned(&flags(words)).unwrap_err()
    }

    #[test]
    fn both_sides_may_be_here_but_not_with_a_stream() {
        for words in [["-", "-"], ["a", "-"], ["-", "a"]] {
            let fault = refusal(&words);
            assert_eq!(fault.code.exit_code(), 2, "{words:?}");
            assert!(fault.hint.contains("`cat`"), "{words:?}");
        }
        assert!(planned(&flags(&["a", "xdfs://a/x", "xdfs://b/y"])).is_ok());
        let jobs = planned(&flags(&["a/x", "xdfs://a/y", "."])).unwrap();
        for (job, name) in jobs.iter().zip(["./x", "./y"]) {
            assert_eq!(*job.route.local(), session::local_file(name));
        }
        assert!(jobs[0].server.address.is_here() && !jobs[1].server.address.is_here());
    }

    #[test]
    fn an_upload_of_one_file_keeps_the_target_as_written() {
        for (url, path) in [
            ("xdfs://h/x", &b"/x"[..]),
            ("xdfs://h/d/", b"/d/"),
            ("xdfs://h", b"/"),
            ("xdfs://h/mem:null", b"mem:null"),
        ] {
            let jobs = planned(&flags(&["some/file", url])).unwrap();
            let expected = TransferRoute::Upload {
                from: session::local_file("some/file"),
                to: path.into(),
            };
            assert_eq!(jobs[0].route, expected, "{url}");
        }
        let jobs = planned(&flags(&["some/file", "xdfs://h/d/"])).unwrap();
        assert_eq!(jobs[0].label.target, "xdfs://h/d/file");
    }

    #[test]
    fn many_uploads_go_into_a_directory() {
        let jobs = planned(&flags(&["a/x", "b/y", "xdfs://h/d"])).unwrap();
        for (job, source) in jobs.iter().zip(["a/x", "b/y"]) {
            let from = session::local_file(source);
            assert_eq!(
                job.route,
                TransferRoute::Upload {
                    from,
                    to: b"/d/".into()
                }
            );
        }
        assert_eq!(jobs[1].label.target, "xdfs://h/d/y");
        assert!(
            refusal(&["a/x", "b/x", "xdfs://h/d/"])
                .cause
                .contains("'x'")
        );
        assert!(
            refusal(&["a/x", "-", "xdfs://h/d/"])
                .cause
                .contains("standard input")
        );
    }

    #[test]
    fn files_of_servers_go_to_other_servers() {
        let jobs = planned(&flags(&["xdfs://a/x/y", "ftp://b/d/"])).unwrap();
        assert_eq!(jobs[0].label.target, "ftp://b/d/y");
        let TransferRoute::Upload { from, to } = &jobs[0].route else {
            panic!("{:?}", jobs[0].route);
        };
        let LocalPlace::OtherServer(file) = from else {
            panic!("{from:?}");
        };
        assert_eq!(
            (file.place().path.as_slice(), to.as_slice()),
            (&b"/x/y"[..], &b"/d/"[..])
        );
        // They could be one file.
        let fault = refusal(&["--remove-source", "ftp://a/x", "xdfs://b/y"]);
        assert!(fault.cause.contains("one file"));
        assert!(planned(&flags(&["--remove-source", "xdfs://a/x", "xdfs://b/y"])).is_ok());
        for bad in ["xdfs://a", "xdfs://a/", "xdfs://a/.."] {
            let fault = refusal(&[bad, "xdfs://b/d/"]);
            assert_eq!(fault.code, Code::InvalidArgument, "{bad}");
        }
    }

    #[test]
    fn local_sources_are_looked_at() {
        let dir = tempfile::tempdir().unwrap();
        let file = dir.path().join("f");
        std::fs::write(&file, [0; 100]).unwrap();
        let words = [
            dir.path().to_str().unwrap(),
            file.to_str().unwrap(),
            "xdfs://h/d/",
        ];
        let jobs = planned(&flags(&words)).unwrap();
        assert_eq!(jobs[0].refused.as_ref().unwrap().code.exit_code(), 6);
        assert!(jobs[1].refused.is_none());
        assert_eq!(jobs[1].bytes, Some(100));
        let part = [
            "--offset",
            "30",
            "--length",
            "50",
            file.to_str().unwrap(),
            "xdfs://h/d",
        ];
        assert_eq!(planned(&flags(&part)).unwrap()[0].bytes, Some(50));
        let end = ["--offset", "300", file.to_str().unwrap(), "xdfs://h/d"];
        assert_eq!(planned(&flags(&end)).unwrap()[0].bytes, Some(0));
    }

    #[test]
    fn downloads_take_their_names_along() {
        let dir = tempfile::tempdir().unwrap();
        let target = dir.path().to_str().unwrap();
        let jobs = planned(&flags(&["xdfs://h/a/x", "xdfs://i/y%FF", target])).unwrap();
        let expected = session::local_file(dir.path().join("x"));
        assert_eq!(
            jobs[0].route,
            TransferRoute::Download {
                from: b"/a/x".into(),
                to: expected
            }
        );
        assert_ne!(jobs[0].server.address, jobs[1].server.address);
        let file = dir.path().join("new");
        let jobs = planned(&flags(&["xdfs://h/a/x", file.to_str().unwrap()])).unwrap();
        assert_eq!(*jobs[0].route.local(), session::local_file(&file));
        for bad in ["xdfs://h", "xdfs://h/", "xdfs://h/a/..", "xdfs://h/%00"] {
            assert_eq!(refusal(&[bad, target]).code, Code::InvalidArgument, "{bad}");
        }
    }

    #[test]
    fn a_local_target_directory_has_to_exist() {
        let dir = tempfile::tempdir().unwrap();
        let file = dir.path().join("file");
        std::fs::write(&file, "").unwrap();
        let none = format!("{}/none/", dir.path().display());
        assert_eq!(refusal(&["xdfs://h/x", &none]).code, Code::NotFound);
        let file = file.to_str().unwrap();
        assert_eq!(
            refusal(&["xdfs://h/x", "xdfs://h/y", file]).code,
            Code::NotDirectory
        );
    }

    #[test]
    fn standard_streams() {
        let jobs = planned(&flags(&["-", "xdfs://h/x"])).unwrap();
        assert!(jobs[0].is_stream());
        assert!(refusal(&["-", "xdfs://h/d/"]).cause.contains("no name"));
        let jobs = planned(&flags(&["xdfs://h/x", "-"])).unwrap();
        assert!(jobs[0].is_stream());
        assert!(
            refusal(&["--json", "xdfs://h/x", "-"])
                .hint
                .contains("--json")
        );
        assert_eq!(
            refusal(&["xdfs://h/x", "xdfs://h/y", "-"]).code,
            Code::InvalidArgument
        );
    }
}
