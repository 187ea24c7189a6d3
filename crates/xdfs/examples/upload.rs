//! Uploads a file: `cargo run --example upload -- FILE xdfs://HOST/PATH`.
//!
//! Channels are unprotected, which only servers without protection accept (`xdfs serve
//! --insecure`); for others see `ClientOptions::security`.

use std::error::Error;
use std::path::Path;

use xdfs::{
    Client, ClientOptions, Fault, LocalPlace, RemotePlace, TransferOptions, TransferParameters,
    TransferResult,
};

fn main() -> Result<(), Box<dyn Error>> {
    let words: Vec<String> = std::env::args().skip(1).collect();
    let [file, url] = words.as_slice() else {
        return Err("usage: upload FILE URL".into());
    };
    let result = upload(Path::new(file), &url.parse()?)?;
    println!(
        "{} bytes in {:.1} s, to {}",
        result.bytes,
        result.seconds,
        result.target.escape_ascii(),
    );
    Ok(())
}

/// Uploads `file` to the path of `target`. An interrupted upload resumes.
pub(crate) fn upload(file: &Path, target: &RemotePlace) -> Result<TransferResult, Fault> {
    let client = Client::connect(target, ClientOptions::default())?;
    let options = TransferOptions {
        parameters: TransferParameters {
            overwrite: true,
            ..TransferParameters::default()
        },
        ..TransferOptions::default()
    };
    let source = LocalPlace::Path(file.to_owned());
    client.upload(&source, &target.path, &options)?.wait()
}
