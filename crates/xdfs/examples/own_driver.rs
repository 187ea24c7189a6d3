//! Adds a custom driver to the channels of both ends: `cargo run --example own_driver -- FILE
//! DIRECTORY`.
//!
//! The driver shifts each byte by a number, which is no protection at all. It does no I/O, and
//! works over every transport.

use std::error::Error;
use std::io::{self, IoSlice};
use std::path::Path;
use std::thread;

use xdfs::drivers::{Attribute, Driver, Drivers, Output, Registry, Room, Transform};
use xdfs::{
    Client, ClientOptions, LocalPlace, RemotePlace, Server, ServerBuilder, TransferOptions,
};

fn main() -> Result<(), Box<dyn Error>> {
    let words: Vec<String> = std::env::args().skip(1).collect();
    let [file, directory] = words.as_slice() else {
        return Err("usage: own_driver FILE DIRECTORY".into());
    };
    let server = serve(Path::new(directory), "tcp,turn:by=13")?;
    let place = format!("xdfs://{}/copy", server.addresses()[0]).parse()?;
    let handle = server.handle();
    let serving = thread::spawn(move || server.run());
    let bytes = upload(Path::new(file), &place, "tcp,turn:by=13")?;
    println!("{bytes} bytes");
    handle.shutdown();
    serving.join().map_err(|_| "the server broke off")??;
    Ok(())
}

/// A server of `directory`, whose channels have these drivers.
pub(crate) fn serve(directory: &Path, stack: &str) -> Result<Server, Box<dyn Error>> {
    let builder = ServerBuilder {
        listen: vec!["127.0.0.1:0".parse()?],
        root: directory.to_owned(),
        drivers: drivers(stack)?,
        ..ServerBuilder::default()
    };
    Ok(builder.bind()?)
}

/// Uploads a file over channels with these drivers.
pub(crate) fn upload(
    file: &Path,
    target: &RemotePlace,
    stack: &str,
) -> Result<u64, Box<dyn Error>> {
    let options = ClientOptions {
        drivers: drivers(stack)?,
        ..ClientOptions::default()
    };
    let client = Client::connect(target, options)?;
    let source = LocalPlace::Path(file.to_owned());
    let transfer = client.upload(&source, &target.path, &TransferOptions::default())?;
    Ok(transfer.wait()?.bytes)
}

/// The built-in drivers and `turn`. Channels use those of `stack`.
fn drivers(stack: &str) -> Result<Drivers, Box<dyn Error>> {
    let turn = Driver::transform("turn", ATTRIBUTES, |by: Turned| move |_| Ok(by.clone()));
    Ok(Drivers {
        registry: Registry::standard().with(turn),
        stacks: vec![stack.parse()?],
    })
}

/// One end of the driver; its options are its only state.
#[derive(Clone, Debug, Default)]
struct Turned {
    by: u8,
}

const ATTRIBUTES: &[Attribute<Turned>] = &[Attribute {
    name: "by",
    takes: "0 to 255",
    set: |options, text| text.parse().ok().map(|by| options.by = by),
    text: |options| (options.by != 0).then(|| options.by.to_string()),
}];

impl Transform for Turned {
    fn encode(&mut self, content: &[IoSlice<'_>], out: &mut Output) -> io::Result<usize> {
        let mut taken = 0;
        for slice in content {
            let room = out.room();
            let count = room.len().min(slice.len());
            for (to, from) in room.iter_mut().zip(&slice[..count]) {
                *to = from.wrapping_add(self.by);
            }
            out.advance(count);
            taken += count;
            if count < slice.len() {
                break;
            }
        }
        Ok(taken)
    }

    fn decode(
        &mut self,
        encoded: &[u8],
        content: &mut Room<'_, '_>,
        _: &mut Output,
    ) -> io::Result<usize> {
        let mut taken = 0;
        while taken < encoded.len() && content.left() > 0 {
            let room = content.slice();
            let count = room.len().min(encoded.len() - taken);
            for (to, from) in room.iter_mut().zip(&encoded[taken..taken + count]) {
                *to = from.wrapping_sub(self.by);
            }
            content.advance(count);
            taken += count;
        }
        Ok(taken)
    }
}
