//! `xdfs perf`: moves bytes from memory to memory and reports the rate like a copy.

use std::ffi::OsStr;
use std::time::Duration;

use xdfs::settings::ClientConfig;
use xdfs::{
    Code, DigestKind, Fault, LocalPlace, RemotePlace, Resume, TransferOptions, TransferParameters,
    TransferRoute,
};

use crate::context::Context;
use crate::flags::PerfFlags;
use crate::interrupt::Interrupt;
use crate::log::start_log;
use crate::progress;
use crate::report::{self, Label, Reporter, Run};
use crate::session::{Connector, follow, report_session};

/// Default duration of a measurement.
const DURATION_DEFAULT: Duration = Duration::from_secs(10);

/// The server's built-in sink that discards everything.
const SINK: &[u8] = b"mem:null";

/// The server's built-in endless source of zeros.
const SOURCE: &[u8] = b"mem:zero";

/// Runs the command and returns the exit code.
pub(crate) fn run(context: &Context, flags: &PerfFlags) -> u8 {
    start_log(flags.output.log_level());
    let label = if flags.download {
        Label {
            source: flags.server.clone(),
            target: "memory".into(),
        }
    } else {
        Label {
            source: "memory".into(),
            target: flags.server.clone(),
        }
    };
    let run = Run {
        source: Some(label.source.clone()),
        target: label.target.clone(),
        files: 1,
        bytes: flags.bytes,
        dry_run: false,
        stats: false,
        is_open: false,
    };
    let mut reporter = Reporter::new(flags.output, run);
    if let Err(fault) = measure(context, flags, &label, &mut reporter) {
        reporter.failure(Some(&label), &fault);
    }
    let code = reporter.finish();
    if let Some(result) = reporter.only_result()
        && !flags.output.json
    {
        let direction = if flags.download { "download" } else { "upload" };
        let numbers = progress::result(result);
        let limit = progress::verdict(&result.time_shares);
        let line = format!("{direction}: {numbers}, {limit}\n");
        if let Err(fault) = report::print(line) {
            reporter.console().error(&fault);
            return if code == 0 { fault.exit_code() } else { code };
        }
    }
    code
}

fn measure(
    context: &Context,
    flags: &PerfFlags,
    label: &Label,
    reporter: &mut Reporter,
) -> Result<(), Fault> {
    let server = server_only(context.config()?, &flags.server)?;
    let interrupt = Interrupt::install(|| ())?;
    let connector = Connector::new(context.clone(), flags.session.clone());
    let client = connector.connect(&server)?;
    let options = TransferOptions {
        parameters: TransferParameters {
            resume: Resume::Never,
            digest: Some(DigestKind::None),
            overwrite: true,
            ..TransferParameters::default()
        },
        length: flags.bytes,
        duration: duration(flags),
        ..TransferOptions::default()
    };
    let route = if flags.download {
        TransferRoute::Download {
            from: SOURCE.into(),
            to: LocalPlace::Memory,
        }
    } else {
        TransferRoute::Upload {
            from: LocalPlace::Memory,
            to: SINK.into(),
        }
    };
    interrupt.orderly(true);
    let transfer = client.transfer(&route, &options)?;
    let on_tick = |reporter: &mut Reporter| report_session(&client, reporter);
    let result = follow(transfer, label, reporter, &interrupt, on_tick, || ())?;
    reporter.file_measured(label, result);
    Ok(())
}

/// Duration of the measurement; `None` if a number of bytes ends it.
fn duration(flags: &PerfFlags) -> Option<Duration> {
    match (flags.seconds, flags.bytes) {
        (Some(seconds), _) => Some(seconds),
        (None, Some(_)) => None,
        (None, None) => Some(DURATION_DEFAULT),
    }
}

/// Parses the URL or the name of a server, which must not name a file.
pub(crate) fn server_only(config: &ClientConfig, url: &str) -> Result<RemotePlace, Fault> {
    let place = match config.place(OsStr::new(url)) {
        // It is the directory of the server's URL.
        Some(place) if url.ends_with(':') => return Ok(place),
        Some(place) => place,
        None => url
            .parse()
            .map_err(|fault| config.hinted(fault, [OsStr::new(url)]))?,
    };
    // The home of a user of ssh is what a URL without a path names.
    if ![&b""[..], b"/", b"./"].contains(&place.path.as_slice()) {
        return Err(
            Fault::new(Code::InvalidArgument, "read the URL", "it names a file")
                .path(url)
                .hint("name the server only: xdfs://HOST[:PORT], or NAME:"),
        );
    }
    Ok(place)
}

#[cfg(test)]
mod tests {
    use clap::Parser as _;

    use super::*;
    use crate::flags::{Cli, Command};

    fn flags(words: &[&str]) -> PerfFlags {
        let line = ["xdfs", "perf", "xdfs://h"].iter().chain(words);
        match Cli::try_parse_from(line).unwrap().command {
            Command::Perf(flags) => flags,
            other => panic!("{other:?}"),
        }
    }

    #[test]
    fn ten_seconds_unless_said_otherwise() {
        assert_eq!(duration(&flags(&[])), Some(DURATION_DEFAULT));
        assert_eq!(
            duration(&flags(&["--seconds", "0.5"])),
            Some(Duration::from_millis(500))
        );
        assert_eq!(duration(&flags(&["--bytes", "1G"])), None);
    }

    #[test]
    fn only_a_server_is_measured() {
        let none = ClientConfig::default();
        assert!(
            server_only(&none, "xdfs://h:1/").is_ok() && server_only(&none, "xdfs://h").is_ok()
        );
        for bad in ["xdfs://h/x", "h", "/srv/x", "xdfs://h/mem:null"] {
            assert_eq!(
                server_only(&none, bad).unwrap_err().code,
                Code::InvalidArgument,
                "{bad}"
            );
        }
    }
}
