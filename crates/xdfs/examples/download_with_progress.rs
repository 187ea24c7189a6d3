//! Downloads a file and shows its progress: `cargo run --example download_with_progress --
//! xdfs://HOST/PATH FILE`.

use std::error::Error;
use std::ops::ControlFlow;
use std::path::Path;

use xdfs::{
    Client, ClientOptions, Fault, LocalPlace, Observer, Progress, RemotePlace, TransferOptions,
    TransferResult,
};

fn main() -> Result<(), Box<dyn Error>> {
    let words: Vec<String> = std::env::args().skip(1).collect();
    let [url, file] = words.as_slice() else {
        return Err("usage: download_with_progress URL FILE".into());
    };
    let result = download(&url.parse()?, Path::new(file), &mut Printed)?;
    println!("{:.1} MB/s", result.bytes_per_second() / 1e6);
    Ok(())
}

/// Prints progress events.
struct Printed;

impl Observer for Printed {
    fn on_transfer(&mut self, progress: &Progress) -> ControlFlow<()> {
        match progress.bytes_total {
            Some(total) => println!("{} of {total} bytes", progress.bytes),
            None => println!("{} bytes", progress.bytes),
        }
        // `Break` would cancel the download.
        ControlFlow::Continue(())
    }
}

/// Downloads the path of `source` to `file`.
pub(crate) fn download(
    source: &RemotePlace,
    file: &Path,
    observer: &mut dyn Observer,
) -> Result<TransferResult, Fault> {
    let client = Client::connect(source, ClientOptions::default())?;
    let target = LocalPlace::Path(file.to_owned());
    let transfer = client.download(&source.path, &target, &TransferOptions::default())?;
    transfer.wait_with(observer)
}
