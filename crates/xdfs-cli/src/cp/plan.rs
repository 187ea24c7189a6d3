//! Plans the copies of a command line: one [`PlannedCopy`] per file, or a refusal.
//!
//! It inspects local paths (directory or file, length), and never uses the network.

use std::collections::HashSet;
use std::ffi::OsString;
use std::path::{Path, PathBuf};

use xdfs::settings::ClientConfig;
use xdfs::{Code, Fault, LocalPlace, RemotePlace, ServerFile, TransferRoute};

use super::origins::{Origins, check_removal};
use crate::flags::CpFlags;
use crate::place::{self, Place, shown};
use crate::report::Label;
use crate::session;

/// One file to copy.
#[derive(Clone, Debug)]
pub(crate) struct PlannedCopy {
    /// Its names in messages.
    pub(crate) label: Label,
    /// The server.
    pub(crate) server: RemotePlace,
    /// Source and target.
    pub(crate) route: TransferRoute,
    /// Number of bytes, if the source is a local file.
    pub(crate) bytes: Option<u64>,
    /// The reason for which it can't be copied; the other files can.
    pub(crate) refused: Option<Fault>,
}

impl PlannedCopy {
    /// Whether source or target is a stream, which can be read or written only once.
    pub(crate) fn is_stream(&self) -> bool {
        *self.route.local() == LocalPlace::Standard
    }
}

fn invalid(cause: impl Into<String>) -> Fault {
    Fault::new(Code::InvalidArgument, "plan the copy", cause)
}

/// Plans the copies; with `many` the target is a directory.
///
/// # Errors
/// The command as a whole is invalid, or the local target directory doesn't exist.
pub(super) fn plan(
    config: &ClientConfig,
    flags: &CpFlags,
    many: bool,
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
        check_many(&sources, &target)?;
    }
    let texts = flags.places.sources.iter().map(|word| shown(word));
    match target {
        Place::Remote(server) => {
            let target_text = shown(&flags.places.target);
            let jobs = sources
                .iter()
                .zip(texts)
                .map(|(source, text)| match source {
                    Place::Remote(place) => {
                        check_removal(flags.remove_source, [place, &server])?;
                        let login = flags.session.security.login();
                        login.check_one_password([place, &server])?;
                        let file = origins.file(place);
                        between(&file, text, &server, &target_text, many)
                    }
                    Place::Standard => upload_stream(&server, &target_text),
                    Place::Local(path) => {
                        Ok(upload(path, text, &server, &target_text, many, flags))
                    }
                });
            jobs.collect()
        }
        local => {
            let place = local_target(&local, many)?;
            let jobs = sources
                .iter()
                .zip(texts)
                .map(|(source, text)| match source {
                    Place::Remote(server) => download(server, text, &place),
                    _ => {
                        let words = flags.places.sources.iter().chain([&flags.places.target]);
                        let words = words.map(OsString::as_os_str);
                        Err(config.hinted(local_to_local(), words))
                    }
                });
            jobs.collect()
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
    check_many(&sources, &parse(&flags.places.target)?)
}

fn local_to_local() -> Fault {
    invalid("both sides are on this machine")
        .hint("use `cp` for local copies, or name a server: xdfs://HOST/PATH")
}

/// Checks the rules for several sources.
fn check_many(sources: &[Place], target: &Place) -> Result<(), Fault> {
    if sources.contains(&Place::Standard) {
        return Err(invalid("standard input has no name in a directory")
            .hint("copy it alone, to the URL of a file"));
    }
    if *target == Place::Standard {
        return Err(invalid("several files can't go to standard output")
            .hint("name a directory as the target"));
    }
    let mut names = HashSet::new();
    for source in sources {
        let name = match source {
            // The contents of a directory have names of their own.
            Place::Local(path) if place::ends_with_separator(path) => None,
            Place::Remote(server) if server.path.ends_with(b"/") => None,
            Place::Local(path) => path.file_name().map(|name| name.as_encoded_bytes()),
            Place::Remote(server) => place::remote_name(&server.path),
            Place::Standard => None,
        };
        if let Some(name) = name
            && !names.insert(name)
        {
            return Err(invalid(format!(
                "two sources have the name '{}', and the target directory can hold only one",
                name.escape_ascii()
            ))
            .hint("copy one of them by itself, under another name"));
        }
    }
    Ok(())
}

/// The target's path on the server; with a trailing slash if it is meant as a directory.
fn remote_target(server: &RemotePlace, many: bool) -> Vec<u8> {
    let mut path = server.path.clone();
    // A built-in store of the server, such as mem:null, is not a directory and takes any file.
    if path.is_empty() || many && !path.starts_with(b"mem:") && !path.ends_with(b"/") {
        path.push(b'/');
    }
    path
}

fn upload_stream(server: &RemotePlace, target: &str) -> Result<PlannedCopy, Fault> {
    let to = remote_target(server, false);
    if to.ends_with(b"/") {
        return Err(invalid("standard input has no name in a directory")
            .hint("name a file at the end of the URL"));
    }
    Ok(PlannedCopy {
        label: Label {
            source: "-".into(),
            target: target.into(),
        },
        server: server.clone(),
        route: TransferRoute::Upload {
            from: LocalPlace::Standard,
            to,
        },
        bytes: None,
        refused: None,
    })
}

fn upload(
    path: &Path,
    source: String,
    server: &RemotePlace,
    target: &str,
    many: bool,
    flags: &CpFlags,
) -> PlannedCopy {
    let to = remote_target(server, many);
    let target = match path.file_name() {
        Some(name) if to.ends_with(b"/") => {
            format!(
                "{}/{}",
                target.trim_end_matches('/'),
                name.to_string_lossy()
            )
        }
        _ => target.to_owned(),
    };
    // The library reports other errors when it opens the source.
    let (bytes, refused) = match std::fs::metadata(path) {
        Ok(meta) if meta.is_dir() => (None, Some(tree_refusal(path))),
        Ok(meta) if meta.is_file() => {
            let rest = meta.len().saturating_sub(flags.offset);
            (Some(rest.min(flags.length.unwrap_or(u64::MAX))), None)
        }
        _ => (None, None),
    };
    PlannedCopy {
        label: Label { source, target },
        server: server.clone(),
        route: TransferRoute::Upload {
            from: session::local_file(path),
            to,
        },
        bytes,
        refused,
    }
}

/// The copy of a file of another server.
fn between(
    source: &ServerFile,
    text: String,
    server: &RemotePlace,
    target: &str,
    many: bool,
) -> Result<PlannedCopy, Fault> {
    let path = &source.place().path;
    let bad = |cause: &str| invalid(cause).path(text.as_bytes());
    if path.is_empty() || path == b"/" {
        return Err(bad("the URL does not name a file").hint("use --recursive for directories"));
    }
    let to = remote_target(server, many);
    let target = match to.ends_with(b"/") {
        true => {
            let name = place::remote_name(path);
            let name = name.ok_or_else(|| bad("its last part is no name of a file"))?;
            let name = String::from_utf8_lossy(name);
            format!("{}/{name}", target.trim_end_matches('/'))
        }
        false => target.to_owned(),
    };
    Ok(PlannedCopy {
        label: Label {
            source: text,
            target,
        },
        server: server.clone(),
        route: TransferRoute::Upload {
            from: LocalPlace::Server(source.clone()),
            to,
        },
        bytes: None,
        refused: None,
    })
}

fn tree_refusal(path: &Path) -> Fault {
    Fault::new(Code::IsDirectory, "open the source", "is a directory")
        .path(path.as_os_str().as_encoded_bytes())
        .hint("use --recursive to copy it with its contents")
}

/// The local target of downloads.
enum LocalTarget {
    Stream,
    /// Nowhere: the bytes are verified and dropped.
    Null,
    File(PathBuf),
    Directory(PathBuf),
}

/// Inspects the local target.
///
/// # Errors
/// It must be a directory and is not.
fn local_target(target: &Place, many: bool) -> Result<LocalTarget, Fault> {
    let Place::Local(path) = target else {
        return Ok(LocalTarget::Stream);
    };
    if cfg!(unix) && path == Path::new("/dev/null") {
        return Ok(LocalTarget::Null);
    }
    if path.is_dir() {
        return Ok(LocalTarget::Directory(path.clone()));
    }
    if !many && !place::ends_with_separator(path) {
        return Ok(LocalTarget::File(path.clone()));
    }
    Err(no_directory(path.exists()).path(path.as_os_str().as_encoded_bytes()))
}

/// The fault of a target that has to be a directory and is none.
pub(super) fn no_directory(exists: bool) -> Fault {
    let operation = "open the target directory";
    match exists {
        true => Fault::new(Code::NotDirectory, operation, "a file has that name")
            .hint("several sources need a directory as their target"),
        false => Fault::new(Code::NotFound, operation, "no such directory")
            .hint("create it first, with mkdir"),
    }
}

fn download(
    server: &RemotePlace,
    source: String,
    target: &LocalTarget,
) -> Result<PlannedCopy, Fault> {
    let bad = |cause: &str| invalid(cause).path(source.as_bytes());
    if server.path.is_empty() || server.path == b"/" {
        return Err(bad("the URL does not name a file").hint("write xdfs://HOST/PATH"));
    }
    let to = match target {
        LocalTarget::Stream => LocalPlace::Standard,
        LocalTarget::Null => LocalPlace::Memory,
        LocalTarget::File(path) => session::local_file(path),
        LocalTarget::Directory(dir) => {
            let name = place::remote_name(&server.path).and_then(place::local_name);
            let name = name.ok_or_else(|| {
                bad("its last part is not a valid file name on this machine")
                    .hint("name the target file")
            })?;
            session::local_file(dir.join(name))
        }
    };
    Ok(PlannedCopy {
        label: Label {
            source,
            target: match target {
                LocalTarget::Null => "/dev/null".to_owned(),
                _ => session::local_text(&to),
            },
        },
        server: server.clone(),
        route: TransferRoute::Download {
            from: server.path.clone(),
            to,
        },
        bytes: None,
        refused: None,
    })
}

#[cfg(test)]
mod tests {
    use clap::Parser as _;

    use xdfs::Way;

    use super::*;
    use crate::context::Context;
    use crate::flags::{Cli, Command};
    use crate::session::Connector;

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
        plan(&ClientConfig::default(), flags, many, &origins)
    }

    fn refusal(words: &[&str]) -> Fault {
        planned(&flags(words)).unwrap_err()
    }

    #[test]
    fn one_side_at_least_is_a_server() {
        let local = refusal(&["a", "b"]);
        assert_eq!(local.code.exit_code(), 2);
        assert!(local.hint.contains("`cp`"));
        assert!(refusal(&["-", "-"]).hint.contains("`cp`"));
        assert!(planned(&flags(&["a", "xdfs://a/x", "xdfs://b/y"])).is_ok());
        assert_eq!(
            refusal(&["xdfs://a/x", "a", "."]).code,
            Code::InvalidArgument
        );
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
        let LocalPlace::Server(file) = from else {
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
