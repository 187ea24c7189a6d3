//! What `xdfs submit` submits: a copy, or with `--from-file` a list of sources and targets as one
//! job, which is sent while it is read, in bounded memory.

use std::ffi::OsStr;
use std::fs::File;
use std::io::{self, BufReader, Read};
use std::path::{Path, PathBuf};
use std::sync::mpsc::Receiver;

use serde_json::{Value, json};
use xdfs::operations::path::local_name;
use xdfs::operations::{PairLine, read_pairs};
use xdfs::settings::ClientConfig;
use xdfs::{
    Code, Fault, FileJob, Job, JobPlace, RetryPolicy, SyncJob, SyncOptions, TransferOptions,
    TransferParameters, TreeJob, TreeOptions, Way,
};

use crate::flags::SubmitFlags;
use crate::place::Place;

const OPERATION: &str = "read the list of copies";
/// Bytes of lines that are made at once.
const PART_BYTES: usize = 64 << 10;

/// A word as the place of a job.
pub(crate) fn place(config: &ClientConfig, word: &OsStr) -> Result<JobPlace, Fault> {
    Ok(match Place::parse(config, word)? {
        Place::Remote(place) => JobPlace::Server(place),
        Place::Standard => {
            let cause = "the service has neither standard input nor output";
            let fault = Fault::new(Code::InvalidArgument, "submit '-'", cause);
            return Err(fault.hint("use xdfs cp, or a file"));
        }
        Place::Local(path) => {
            let name = path.as_os_str().as_encoded_bytes();
            let absolute = std::path::absolute(&path);
            let absolute = absolute.map_err(|error| Fault::from_io("find", name, &error))?;
            JobPlace::Local(absolute)
        }
    })
}

/// The job with the flags of a submission, between two places.
///
/// # Errors
/// The places don't suit it.
pub(crate) fn job_between(
    flags: &SubmitFlags,
    source: JobPlace,
    target: JobPlace,
) -> Result<Job, Fault> {
    if let (JobPlace::Local(path), JobPlace::Local(_)) = (&source, &target) {
        let cause = "neither SOURCE nor TARGET is on a server";
        let fault = Fault::new(Code::InvalidArgument, "submit the copy of", cause);
        return Err(fault
            .path(path.as_os_str().as_encoded_bytes())
            .hint("write one of them as xdfs://HOST/PATH; cp or rsync copy within this machine"));
    }
    let parameters = TransferParameters {
        overwrite: flags.force,
        rate_bytes_per_s_max: flags.limit_rate,
        ..TransferParameters::default()
    };
    let mut recursive = flags.recursive;
    if let JobPlace::Local(path) = &source {
        let name = path.as_os_str().as_encoded_bytes();
        let found = std::fs::metadata(path);
        let found = found.map_err(|error| Fault::from_io("open", name, &error))?;
        if flags.from_file.is_some() && !found.is_dir() {
            recursive = false;
        } else if found.is_dir() && !flags.recursive && !flags.sync {
            let fault = Fault::new(Code::IsDirectory, "copy the file", "it is a directory");
            return Err(fault.path(name).hint("use --recursive, or --sync"));
        }
    }
    let way = Way::default();
    let tree = TreeOptions {
        parameters,
        ..TreeOptions::default()
    };
    Ok(match (flags.sync, recursive) {
        (true, _) => Job::Sync(SyncJob {
            source,
            target,
            way,
            options: SyncOptions {
                tree,
                ..SyncOptions::default()
            },
        }),
        (false, true) => Job::Tree(TreeJob {
            source,
            target,
            way,
            options: tree,
        }),
        (false, false) => Job::File(FileJob {
            source,
            target,
            way,
            options: TransferOptions {
                parameters,
                ..TransferOptions::default()
            },
            retry: RetryPolicy::default(),
        }),
    })
}

/// The list as lines of JSON, made as they are read.
pub(crate) struct Lines<'a> {
    config: &'a ClientConfig,
    flags: &'a SubmitFlags,
    pairs: Receiver<PairLine>,
    made: Vec<u8>,
    /// Bytes of those that have been read.
    taken: usize,
    fault: Option<Fault>,
}

impl<'a> Lines<'a> {
    /// The lines of a list, after the line of the job itself.
    ///
    /// # Errors
    /// The list can't be opened.
    pub(crate) fn new(
        config: &'a ClientConfig,
        flags: &'a SubmitFlags,
        list: &Path,
        head: &str,
    ) -> Result<Self, Fault> {
        let name = list.as_os_str().as_encoded_bytes();
        let pairs = match name {
            b"-" => read_pairs(BufReader::new(io::stdin()), name)?,
            _ => {
                let file = File::open(list);
                let file = file.map_err(|error| Fault::from_io(OPERATION, name, &error))?;
                read_pairs(BufReader::new(file), name)?
            }
        };
        Ok(Self {
            config,
            flags,
            pairs,
            made: format!("{head}\n").into_bytes(),
            taken: 0,
            fault: None,
        })
    }

    /// Why the list has broken off, if it has.
    pub(crate) fn fault(self) -> Option<Fault> {
        self.fault
    }

    fn line(&self, line: PairLine) -> Result<Value, Fault> {
        let number = line.number;
        let numbered = |fault: Fault| {
            let cause = format!("line {number}: {}", fault.cause);
            Fault { cause, ..fault }
        };
        let [source, target] = line.pair?;
        let word = |bytes: &[u8]| -> Result<JobPlace, Fault> {
            let name = local_name(bytes).map(PathBuf::into_os_string);
            let name = name.ok_or_else(|| {
                let cause = "it has bytes that can't be in names on this system";
                Fault::new(Code::InvalidArgument, OPERATION, cause)
            })?;
            place(self.config, &name)
        };
        let job = word(&source).and_then(|source| {
            let target = word(&target)?;
            job_between(self.flags, source, target)
        });
        brief(&job.map_err(numbered)?).map_err(numbered)
    }

    /// Makes more lines. None are made at the end.
    fn fill(&mut self) -> Result<(), Fault> {
        self.made.clear();
        self.taken = 0;
        while self.made.len() < PART_BYTES {
            let Ok(line) = self.pairs.recv() else { break };
            let line = self.line(line)?;
            self.made.extend_from_slice(format!("{line}\n").as_bytes());
        }
        Ok(())
    }
}

impl Read for Lines<'_> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        if self.taken == self.made.len()
            && let Err(fault) = self.fill()
        {
            let error = io::Error::other(fault.to_string());
            self.fault = Some(fault);
            return Err(error);
        }
        let rest = self.made.get(self.taken..).unwrap_or_default();
        let count = rest.len().min(buffer.len());
        buffer[..count].copy_from_slice(&rest[..count]);
        self.taken += count;
        Ok(count)
    }
}

/// The text of a job without the options that are as they are by default: a list is long.
fn brief(job: &Job) -> Result<Value, Fault> {
    let written = |error: serde_json::Error| {
        Fault::new(
            Code::InvalidArgument,
            "write the job as text",
            error.to_string(),
        )
    };
    let mut value = serde_json::to_value(job).map_err(written)?;
    let Some((kind, fields)) = value.as_object_mut().and_then(|job| job.iter_mut().next()) else {
        return Ok(value);
    };
    let (source, target) = (fields["source"].take(), fields["target"].take());
    // The same job with nothing but its places.
    let plain = json!({kind.as_str(): {"source": "/", "target": "/"}});
    let plain: Job = serde_json::from_value(plain).map_err(written)?;
    let plain = serde_json::to_value(plain).map_err(written)?;
    without(fields, &plain[kind.as_str()]);
    fields["source"] = source;
    fields["target"] = target;
    Ok(value)
}

/// Removes the fields that are the same in both.
fn without(value: &mut Value, other: &Value) {
    if let (Some(fields), Some(others)) = (value.as_object_mut(), other.as_object()) {
        fields.retain(|name, field| match others.get(name) {
            Some(other) if field == other => false,
            Some(other) => {
                without(field, other);
                true
            }
            None => true,
        });
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_brief_text_means_the_same() {
        for text in [
            r#"{"file":{"source":"/a","target":"xdfs://h:2799/b"}}"#,
            r#"{"tree":{"options":{"parameters":{"overwrite":true}},"source":"/a","target":"/b"}}"#,
            r#"{"sync":{"options":{"delete":true},"source":"xdfs://h:2799/b","target":"/a"}}"#,
        ] {
            let job: Job = serde_json::from_str(text).unwrap_or_else(|error| panic!("{error}"));
            let brief = brief(&job).unwrap_or_else(|fault| panic!("{fault}"));
            assert_eq!(brief.to_string(), text);
        }
    }
}
