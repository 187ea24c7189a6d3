//! Accesses a file on a server in place, like a local file: `cargo run --example remote_file --
//! xdfs://HOST/PATH`.
//!
//! The file is a log: a header with the number of records, and records of 16 bytes.

use std::error::Error;
use std::io::{Read as _, Seek as _, SeekFrom};

use xdfs::{Client, ClientOptions, OpenOptions, RemotePlace};

/// Bytes of the header and of each record.
const RECORD_BYTES: u64 = 16;

fn main() -> Result<(), Box<dyn Error>> {
    let words: Vec<String> = std::env::args().skip(1).collect();
    let [url] = words.as_slice() else {
        return Err("usage: remote_file URL".into());
    };
    let server = url.parse()?;
    let count = add_record(&server, b"one more")?;
    let last = read_record(&server, count - 1)?;
    println!("record {count}: {}", last.escape_ascii());
    Ok(())
}

/// Adds a record, makes it durable, and returns the number of records.
pub(crate) fn add_record(place: &RemotePlace, content: &[u8]) -> Result<u64, Box<dyn Error>> {
    let client = Client::connect(place, ClientOptions::default())?;
    let options = OpenOptions {
        read: true,
        write: true,
        create: true,
        ..OpenOptions::default()
    };
    let file = client.open_file(&place.path, &options)?;
    let mut header = [0; 8];
    // A new file has no header yet.
    let count = match file.read_at(0, &mut header)? {
        8 => u64::from_le_bytes(header),
        _ => 0,
    };
    let mut record = content.to_vec();
    record.resize(RECORD_BYTES as usize, b' ');
    // Writes are buffered, and not awaited one by one. The record is made durable before the header
    // counts it.
    file.write_at((count + 1) * RECORD_BYTES, &record)?;
    file.sync_data()?;
    file.write_at(0, &(count + 1).to_le_bytes())?;
    file.sync_data()?;
    file.close()?;
    Ok(count + 1)
}

/// Reads a record with the traits of the standard library.
pub(crate) fn read_record(place: &RemotePlace, number: u64) -> Result<Vec<u8>, Box<dyn Error>> {
    let client = Client::connect(place, ClientOptions::default())?;
    let mut file = client.open_file(&place.path, &OpenOptions::reading())?;
    file.seek(SeekFrom::Start((number + 1) * RECORD_BYTES))?;
    let mut record = vec![0; RECORD_BYTES as usize];
    file.read_exact(&mut record)?;
    Ok(record.trim_ascii_end().to_vec())
}
