//! The driver `process`.

use std::io::{self, ErrorKind};

use super::command::split;
use crate::attribute::Attribute;
use crate::driver::Driver;
use crate::endpoint::{Endpoint, Form, Location};
use crate::layer::{Property, Transport, never_listens};
use crate::stream::{Listener, Stream};

/// The driver `process`.
#[must_use]
pub fn driver() -> Driver {
    Driver::transport("process", Form::Command, ATTRIBUTES, Process)
        .gives(&[Property::Order])
        .active_only()
}

#[derive(Debug, Default)]
struct ProcessOptions {
    shell: bool,
}

const ATTRIBUTES: &[Attribute<ProcessOptions>] = &[Attribute {
    name: "shell",
    takes: "true or false",
    set: |options, text| {
        options.shell = text.parse().ok()?;
        Some(())
    },
    text: |options| options.shell.then(|| "true".to_owned()),
}];

#[derive(Debug)]
struct Process(ProcessOptions);

impl Transport for Process {
    fn open(&self, endpoint: &Endpoint) -> io::Result<Box<dyn Stream>> {
        let Location::Command(line) = endpoint.location() else {
            return Err(ErrorKind::InvalidInput.into());
        };
        let words = if self.0.shell {
            vec!["/bin/sh".to_owned(), "-c".to_owned(), line.clone()]
        } else {
            split(line).ok_or_else(|| {
                let why = format!("the command line '{line}' has no word, or a quote has no end");
                io::Error::new(ErrorKind::InvalidInput, why)
            })?
        };
        start(&words)
    }

    fn listen(&self, _: &Endpoint) -> io::Result<Box<dyn Listener>> {
        Err(never_listens("process"))
    }
}

#[cfg(target_os = "linux")]
fn start(words: &[String]) -> io::Result<Box<dyn Stream>> {
    Ok(Box::new(super::stream::ProcessStream::start(words)?))
}

#[cfg(not(target_os = "linux"))]
fn start(_: &[String]) -> io::Result<Box<dyn Stream>> {
    let why = "the transport process exists only on Linux";
    Err(io::Error::new(ErrorKind::Unsupported, why))
}
