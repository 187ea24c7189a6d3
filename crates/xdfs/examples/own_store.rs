//! Copies between a server and a custom store, without an intermediate file: `cargo run --example
//! own_store -- xdfs://HOST/PATH`.
//!
//! This store generates its content on reading, and keeps received files in memory.

use std::collections::HashMap;
use std::error::Error;
use std::io::IoSlice;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use xdfs::store::{
    Capabilities, OpenedSink, Sink, SinkRequest, Source, SourceInfo, SourceTag, Store,
};
use xdfs::{
    Client, ClientOptions, Code, Fault, RemotePlace, Resume, TransferOptions, TransferParameters,
};

fn main() -> Result<(), Box<dyn Error>> {
    let words: Vec<String> = std::env::args().skip(1).collect();
    let [url] = words.as_slice() else {
        return Err("usage: own_store URL".into());
    };
    let squares = there_and_back(&url.parse()?, 1000)?;
    println!("{} bytes came back", squares.len());
    Ok(())
}

/// Uploads the first squares to the path of `place`, downloads them again, and returns the result.
pub(crate) fn there_and_back(place: &RemotePlace, count: u64) -> Result<Vec<u8>, Fault> {
    let client = Client::connect(place, ClientOptions::default())?;
    let store = Arc::new(Squares::default());
    let options = TransferOptions {
        parameters: TransferParameters {
            // This store isn't durable.
            resume: Resume::Never,
            overwrite: true,
            ..TransferParameters::default()
        },
        ..TransferOptions::default()
    };
    let name = count.to_string();
    client
        .upload_from(&*store, name.as_bytes(), &place.path, &options)?
        .wait()?;
    client
        .download_to(
            &place.path,
            Arc::<Squares>::clone(&store),
            b"back",
            &options,
        )?
        .wait()?;
    let back = store.kept().remove(&b"back"[..]);
    back.ok_or_else(|| Fault::new(Code::NotFound, "look at what came back", "nothing did"))
}

/// The source `n` has the first n squares of 8 bytes each; received files are kept in memory.
#[derive(Debug, Default)]
pub(crate) struct Squares {
    kept: Arc<Mutex<HashMap<Vec<u8>, Vec<u8>>>>,
}

impl Squares {
    fn kept(&self) -> MutexGuard<'_, HashMap<Vec<u8>, Vec<u8>>> {
        self.kept.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Store for Squares {
    fn open_source(&self, path: &[u8]) -> Result<Box<dyn Source>, Fault> {
        let count = str::from_utf8(path).ok().and_then(|text| text.parse().ok());
        let Some(count) = count.filter(|count: &u64| *count < 1 << 32) else {
            let cause = "only numbers have squares";
            return Err(Fault::new(Code::NotFound, "open the source", cause).path(path));
        };
        let mut tag = [0; 16];
        tag[..8].copy_from_slice(&count.to_le_bytes());
        Ok(Box::new(SquaresSource(SourceInfo {
            length: Some(count * 8),
            // A name always has the same content.
            tag: SourceTag(tag),
            mode: None,
            mtime_ns: None,
            random_reads: true,
            sparse: false,
        })))
    }

    fn open_sink(&self, request: &SinkRequest) -> Result<OpenedSink, Fault> {
        Ok(OpenedSink {
            path: self.check_sink(request)?,
            sink: Box::new(KeptSink {
                path: request.path.clone(),
                content: Vec::new(),
                kept: Arc::clone(&self.kept),
            }),
            durable: Vec::new(),
            unverified: false,
            block_size: request.block_size,
        })
    }

    fn check_sink(&self, request: &SinkRequest) -> Result<Vec<u8>, Fault> {
        if !request.overwrite && self.kept().contains_key(&request.path) {
            let cause = "it is there already";
            let fault = Fault::new(Code::AlreadyExists, "open the target", cause);
            return Err(fault.path(&request.path));
        }
        Ok(request.path.clone())
    }

    xdfs::store::defaults!(Store: is_slow, read_pack, write_pack, packs_wait, call, open_file);
}

#[derive(Debug)]
struct SquaresSource(SourceInfo);

impl Source for SquaresSource {
    fn info(&self) -> &SourceInfo {
        &self.0
    }

    fn read_at(&mut self, offset: u64, buf: &mut [u8]) -> Result<usize, Fault> {
        let left = self.0.length.unwrap_or(0).saturating_sub(offset);
        let bytes = buf.len().min(usize::try_from(left).unwrap_or(usize::MAX));
        for (at, byte) in (offset..).zip(&mut buf[..bytes]) {
            let number = at / 8;
            *byte = (number * number).to_le_bytes()[(at % 8) as usize];
        }
        Ok(bytes)
    }

    fn verify_unchanged(&mut self) -> Result<(), Fault> {
        Ok(())
    }

    xdfs::store::defaults!(Source: next_data, will_read, is_cold, direct, is_slow, memory,
        is_uniform, shared);
}

/// A file being received; it gets its name once it is complete and verified.
#[derive(Debug)]
struct KeptSink {
    path: Vec<u8>,
    content: Vec<u8>,
    kept: Arc<Mutex<HashMap<Vec<u8>, Vec<u8>>>>,
}

impl Sink for KeptSink {
    fn capabilities(&self) -> Capabilities {
        Capabilities {
            random_writes: true,
            slow_writes: false,
            durable: false,
            atomic_publish: true,
        }
    }

    fn write_at(&mut self, offset: u64, bufs: &[IoSlice<'_>]) -> Result<(), Fault> {
        let mut at = usize::try_from(offset).map_err(|_| {
            Fault::new(Code::NoSpace, "keep the content", "it is too large").path(&self.path)
        })?;
        for buf in bufs {
            let end = at + buf.len();
            self.content.resize(self.content.len().max(end), 0);
            self.content[at..end].copy_from_slice(buf);
            at = end;
        }
        Ok(())
    }

    fn sync(&mut self) -> Result<(), Fault> {
        Ok(())
    }

    fn record(&mut self, _: &[xdfs::store::Fragment]) -> Result<(), Fault> {
        Ok(())
    }

    fn publish(&mut self, length: u64, _: &[xdfs::store::Fragment]) -> Result<(), Fault> {
        self.content
            .resize(usize::try_from(length).unwrap_or(usize::MAX), 0);
        let mut kept = self.kept.lock().unwrap_or_else(PoisonError::into_inner);
        kept.insert(self.path.clone(), std::mem::take(&mut self.content));
        Ok(())
    }

    fn discard(&mut self) -> Result<(), Fault> {
        self.content.clear();
        Ok(())
    }

    xdfs::store::defaults!(Sink: begin_direct, end_direct, hole, begin_write_back, verify,
        read_back, shared);
}
