//! What is to be run.

use std::path::PathBuf;

use xdfs_testkit::powercut::Kind;

use crate::work::Work;

pub(crate) const HELP: &str = "\
  --rounds N          power cuts (default 100)
  --seed N            of the first round; the next ones count up (default 1)
  --form disk,loop    a disk that forgets, or a copy of a mounted image (default: nine
                      of ten are the former)
  --fs ext4,xfs,btrfs (default: those that can be made here)
  --work NAME,...     cp, over, resume, tree, sync, delta, ftp, ftp-tree with -up or
                      -down, in-place (default: all)
  --length N          events (writes and flushes) that a run is taken to have before one
                      was seen (default 50)
  --program FILE      another xdfs than the one that was built
  --errors            each run on a disk that forgets, but the last, gets an error of the disk
                      and no power cut
  --verbose           a line for each round";

/// How the power is cut.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Form {
    /// By a disk that forgets.
    Disk,
    /// By a copy of the image of a mounted file system.
    Loop,
}

#[derive(Clone, Debug)]
pub(crate) struct Options {
    pub(crate) rounds: u32,
    pub(crate) seed: u64,
    pub(crate) forms: Vec<Form>,
    pub(crate) kinds: Vec<Kind>,
    pub(crate) works: Vec<Work>,
    pub(crate) program: PathBuf,
    /// How long a run is taken to be before one was seen, in events or milliseconds.
    pub(crate) length: u64,
    pub(crate) verbose: bool,
    /// Errors of the disk instead of power cuts.
    pub(crate) errors: bool,
}

impl Default for Options {
    fn default() -> Self {
        let mut forms = vec![Form::Disk; 9];
        forms.push(Form::Loop);
        let kinds = Kind::ALL.into_iter().filter(|kind| kind.is_installed());
        Self {
            rounds: 100,
            seed: 1,
            forms,
            kinds: kinds.collect(),
            works: Work::ALL.to_vec(),
            program: env!("CARGO_BIN_EXE_xdfs").into(),
            length: 50,
            verbose: false,
            errors: false,
        }
    }
}

impl Form {
    pub(crate) fn name(self) -> &'static str {
        match self {
            Self::Disk => "disk",
            Self::Loop => "loop",
        }
    }
}

impl Options {
    pub(crate) fn parse<'a>(mut words: impl Iterator<Item = &'a str>) -> Result<Self, String> {
        let mut options = Self::default();
        while let Some(name) = words.next() {
            let switch = match name {
                "--verbose" => Some(&mut options.verbose),
                "--errors" => Some(&mut options.errors),
                _ => None,
            };
            if let Some(switch) = switch {
                *switch = true;
                continue;
            }
            let value = words
                .next()
                .ok_or_else(|| format!("{name} needs a value"))?;
            let number = || value.parse::<u64>().map_err(|e| format!("{value}: {e}"));
            match name {
                "--rounds" => {
                    options.rounds = u32::try_from(number()?).map_err(|e| e.to_string())?;
                }
                "--seed" => options.seed = number()?,
                "--length" => options.length = number()?.max(1),
                "--form" => {
                    options.forms = list(value, |word| match word {
                        "disk" => Some(Form::Disk),
                        "loop" => Some(Form::Loop),
                        _ => None,
                    })?;
                }
                "--fs" => {
                    let of = |word: &str| Kind::ALL.into_iter().find(|kind| kind.name() == word);
                    options.kinds = list(value, of)?;
                }
                "--work" => {
                    let of = |word: &str| Work::ALL.into_iter().find(|work| work.name() == word);
                    options.works = list(value, of)?;
                }
                "--program" => options.program = value.into(),
                _ => return Err(format!("there is no option {name}")),
            }
        }
        Ok(options)
    }
}

fn list<T>(value: &str, of: impl Fn(&str) -> Option<T>) -> Result<Vec<T>, String> {
    let word = |word| of(word).ok_or_else(|| format!("what is {word:?}?"));
    value.split(',').map(word).collect()
}
