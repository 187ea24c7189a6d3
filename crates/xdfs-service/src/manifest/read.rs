//! Manifests are read twice: once for the signature, and only then for what they say.

use std::fs::File;
use std::io::{BufRead as _, BufReader, Read as _, Seek as _};
use std::path::Path;

use base64ct::{Base64, Encoding as _};
use sha2::{Digest as _, Sha512};
use xdfs::security::{PublicKey, signer_of_message};
use xdfs::{Code, Fault};

use super::{Line, NAMESPACE, VERSION};
use crate::listed::ListedFile;

const OPERATION: &str = "verify the manifest";
/// Longest line: that of a path of 64 KiB, each byte of which is escaped.
const LINE_BYTES_MAX: u64 = 1 << 20;

/// A manifest whose signature is right, and an iterator over its files.
#[derive(Debug)]
pub struct Manifest {
    lines: Lines,
    files: u64,
    bytes: u64,
    is_over: bool,
}

/// The lines of a file.
#[derive(Debug)]
struct Lines {
    name: Vec<u8>,
    file: BufReader<File>,
    /// Of the lines up to now, but for the last one.
    sha512: Sha512,
    last: Vec<u8>,
    /// The digest that was signed.
    signed: [u8; 64],
}

impl Lines {
    fn fault(&self, code: Code, cause: impl Into<String>) -> Fault {
        Fault::new(code, OPERATION, cause).path(&self.name[..])
    }

    fn malformed(&self) -> Fault {
        self.fault(
            Code::InvalidArgument,
            "it isn't a manifest, or not all of one",
        )
    }

    /// Reads the next line into `last`; `false` at the end.
    fn read(&mut self) -> Result<bool, Fault> {
        let mut line = Vec::new();
        let mut limited = (&mut self.file).take(LINE_BYTES_MAX);
        let read = limited.read_until(b'\n', &mut line);
        let read = read.map_err(|error| Fault::from_io(OPERATION, &self.name[..], &error))?;
        if read == 0 {
            return Ok(false);
        }
        if line.last() != Some(&b'\n') {
            return Err(self.malformed());
        }
        self.sha512.update(&self.last);
        self.last = line;
        Ok(true)
    }

    fn parsed(&self) -> Result<Line, Fault> {
        serde_json::from_slice(&self.last).map_err(|_| self.malformed())
    }

    fn digest(&self) -> [u8; 64] {
        self.sha512.clone().finalize().into()
    }

    fn rewind(&mut self) -> Result<(), Fault> {
        let rewound = self.file.rewind();
        rewound.map_err(|error| Fault::from_io(OPERATION, &self.name[..], &error))?;
        self.sha512.reset();
        self.last.clear();
        Ok(())
    }
}

impl Manifest {
    /// Opens a manifest, and verifies that this key has signed it.
    ///
    /// # Errors
    /// It can't be read twice, is malformed or of a later version, was changed since it was signed
    /// ([`Code::IntegrityMismatch`]), or is signed by another key ([`Code::ServerUntrusted`]).
    pub fn open(path: &Path, key: &PublicKey) -> Result<Self, Fault> {
        let name = path.as_os_str().as_encoded_bytes().to_vec();
        let file =
            File::open(path).map_err(|error| Fault::from_io(OPERATION, &name[..], &error))?;
        let mut lines = Lines {
            name,
            file: BufReader::new(file),
            sha512: Sha512::new(),
            last: Vec::new(),
            signed: [0; 64],
        };
        while lines.read()? {}
        let Ok(Line::Signature {
            key: named,
            signature,
        }) = lines.parsed()
        else {
            return Err(lines.malformed());
        };
        lines.signed = lines.digest();
        let signature = Base64::decode_vec(&signature).map_err(|_| lines.malformed())?;
        let signer = signer_of_message(&signature, NAMESPACE, &lines.signed);
        match signer {
            // What is for people has to be right too.
            Some(signer) if PublicKey::from_line(&named) != Ok(signer.clone()) => {
                return Err(lines.malformed());
            }
            Some(signer) if signer == *key => {}
            Some(signer) => {
                let signer = signer.fingerprint();
                let cause = format!("it is signed by another key, {signer}");
                let fault = lines.fault(Code::ServerUntrusted, cause);
                return Err(fault.hint("name the key of the service that made it with --signer"));
            }
            None => {
                let cause = "the signature is not of this content";
                return Err(lines.fault(Code::IntegrityMismatch, cause));
            }
        }
        lines.rewind()?;
        if !lines.read()? {
            return Err(lines.malformed());
        }
        match lines.parsed()? {
            Line::Manifest { version, .. } if version == VERSION => Ok(Self {
                lines,
                files: 0,
                bytes: 0,
                is_over: false,
            }),
            Line::Manifest { version, .. } => {
                let cause = format!("its version is {version}, and this program knows {VERSION}");
                Err(lines.fault(Code::Unsupported, cause))
            }
            _ => Err(lines.malformed()),
        }
    }

    /// The next file; `None` at the end.
    fn file(&mut self) -> Result<Option<ListedFile>, Fault> {
        loop {
            if !self.lines.read()? {
                return Err(self.lines.malformed());
            }
            match self.lines.parsed()? {
                Line::Transfer(_) => {}
                Line::File(file) => {
                    if !file.path.is_beneath() {
                        return Err(self.lines.malformed());
                    }
                    self.files += 1;
                    self.bytes = self.bytes.saturating_add(file.bytes);
                    return Ok(Some(file));
                }
                Line::End { files, bytes } => {
                    if (files, bytes) != (self.files, self.bytes) {
                        return Err(self.lines.malformed());
                    }
                    break;
                }
                Line::Manifest { .. } | Line::Signature { .. } => {
                    return Err(self.lines.malformed());
                }
            }
        }
        // The signature, which was verified, and nothing else.
        if !self.lines.read()? || self.lines.digest() != self.lines.signed {
            let cause = "the file was changed while it was read";
            return Err(self.lines.fault(Code::IntegrityMismatch, cause));
        }
        Ok(None)
    }
}

impl Iterator for Manifest {
    type Item = Result<ListedFile, Fault>;

    fn next(&mut self) -> Option<Self::Item> {
        if self.is_over {
            return None;
        }
        let file = self.file().transpose();
        self.is_over = !matches!(file, Some(Ok(_)));
        file
    }
}
