//! Finds the session options that suit the path to a server: `cargo run --example tuned_options --
//! xdfs://HOST`.
//!
//! Channels are unprotected, which only servers without protection accept (`xdfs serve
//! --insecure`); for others see `ClientOptions::security`.

use std::error::Error;
use std::ops::ControlFlow;

use xdfs::{Client, ClientOptions, Fault, RemotePlace, TuneOptions, tune};

fn main() -> Result<(), Box<dyn Error>> {
    let words: Vec<String> = std::env::args().skip(1).collect();
    let [url] = words.as_slice() else {
        return Err("usage: tuned_options URL".into());
    };
    let (options, gain) = tuned_options(&url.parse()?, &TuneOptions::default())?;
    println!(
        "{:?} channels, window {:?}: {gain:.2} times as fast as the default",
        options.channels, options.window,
    );
    Ok(())
}

/// Options for sessions with the server, and the rate with them as a multiple of the default's.
pub(crate) fn tuned_options(
    server: &RemotePlace,
    options: &TuneOptions,
) -> Result<(ClientOptions, f64), Fault> {
    let connect = |setting: xdfs::TuneSetting| {
        let options = ClientOptions {
            channels: setting.channels,
            window: setting.window,
            ..ClientOptions::default()
        };
        Client::connect(server, options).map(Box::new)
    };
    let report = tune(connect, options, |sample| {
        println!("{:?}: {:.0} B/s", sample.setting, sample.bytes_per_second);
        ControlFlow::Continue(())
    })?;
    let best = ClientOptions {
        channels: report.best.channels,
        window: report.best.window,
        ..ClientOptions::default()
    };
    Ok((best, report.gain(options.default)))
}
