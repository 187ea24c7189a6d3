//! `xdfs tune`: finds the setting that suits a path, and writes the samples.

mod picture;
mod plot;
mod table;

use std::cell::RefCell;
use std::fs;
use std::ops::ControlFlow;
use std::path::{Path, PathBuf};
use std::time::Duration;

use xdfs::record::Record;
use xdfs::{
    ClientOptions, Fault, KernelLimits, RemotePlace, Side, TuneAdvice, TuneEnd, TuneOptions,
    TuneReport, TuneSample, TuneSetting, tune,
};

use crate::client::SharedClient;
use crate::console::{Console, printable};
use crate::context::Context;
use crate::exit_codes::SUCCESS;
use crate::flags::{OutputFlags, PictureFormat, SessionFlags, TuneFlags};
use crate::human;
use crate::interrupt::Interrupt;
use crate::log::start_log;
use crate::perf::server_only;
use crate::report::print;
use crate::session::Connector;

use plot::Surface;

/// Runs the command and returns the exit code.
pub(crate) fn run(context: &Context, flags: &TuneFlags) -> u8 {
    start_log(flags.output.log_level());
    match prepare(context, flags) {
        Ok((server, options)) => search(context, flags, &server, &options),
        Err(fault) => report_faults(flags, [fault]),
    }
}

/// The server, and the options of the search. Fails before anything is moved if a file can't be
/// written.
fn prepare(context: &Context, flags: &TuneFlags) -> Result<(RemotePlace, TuneOptions), Fault> {
    let config = context.config()?;
    let server = server_only(config, &flags.server)?;
    for path in files(flags) {
        check_file(path)?;
    }
    let asked = flags.session.client_options()?;
    let usual = config.session(&server).options(asked.clone());
    Ok((server, options(flags, &asked, &usual)))
}

/// The options of the search: what the flags say of channels and window stays as it is, and what
/// the configuration says is the default.
fn options(flags: &TuneFlags, asked: &ClientOptions, usual: &ClientOptions) -> TuneOptions {
    let mut all = TuneOptions::default();
    if usual.window.is_some() {
        // Where one is configured, there is no automatic one.
        all.windows.retain(Option::is_some);
    }
    TuneOptions {
        download: flags.download,
        default: TuneSetting {
            channels: usual.channels,
            window: usual.window,
        },
        channels: asked.channels.map_or(all.channels, |n| vec![n]),
        windows: asked
            .window
            .map_or(all.windows, |window| vec![Some(window)]),
        bytes_max: flags.max_bytes,
        time_max: flags.max_time,
    }
}

/// Searches, writes the files, and returns the exit code.
fn search(context: &Context, flags: &TuneFlags, server: &RemotePlace, options: &TuneOptions) -> u8 {
    let mut samples = Vec::new();
    let tuned = measure(context, flags, server, options, &mut samples);
    // Also what came before a failure: it took bytes and time.
    let written = write_files(flags, options, &samples);
    let reported = tuned.and_then(|report| finish(flags, options, &report));
    if reported.is_err() && !samples.is_empty() {
        let count = human::count(samples.len() as u64, "sample");
        Console::new(flags.output).info(&format!("{count} had been taken before that"));
    }
    report_faults(flags, [reported.err(), written.err()].into_iter().flatten())
}

/// Reports failures, and returns the exit code of the first one.
fn report_faults(flags: &TuneFlags, faults: impl IntoIterator<Item = Fault>) -> u8 {
    let mut first = None;
    for fault in faults {
        if flags.output.json {
            // If standard output is the failure, the console tells of it.
            let _ = print(Record::error(None, &fault).line());
        }
        Console::new(flags.output).error(&fault);
        first.get_or_insert_with(|| fault.code.exit_code());
    }
    first.unwrap_or(SUCCESS)
}

fn measure(
    context: &Context,
    flags: &TuneFlags,
    server: &RemotePlace,
    options: &TuneOptions,
    samples: &mut Vec<TuneSample>,
) -> Result<TuneReport, Fault> {
    if let (Some(window), Some(max)) = (options.default.window, KernelLimits::read().window_max())
        && window > max
    {
        let text = format!("the system cuts the window down to {max} bytes (net.core.rmem_max)");
        Console::new(flags.output).info(&text);
    }
    let interrupt = Interrupt::install(|| ())?;
    // The session of the current sample.
    let opened = RefCell::new(None::<SharedClient>);
    let connect = |setting: TuneSetting| {
        let flags = SessionFlags {
            channels: setting.channels,
            window: setting.window,
            ..flags.session.clone()
        };
        let client = Connector::new(context.clone(), flags).connect(server)?;
        opened.replace(Some(client.clone()));
        Ok(client)
    };
    let tell_first_use = || {
        let client = opened.take();
        if let Some(server) = client.and_then(|client| client.first_use()) {
            Console::new(flags.output).first_use(&server, !flags.output.json);
        }
    };
    let mut printed = Ok(());
    let report = tune(connect, options, |sample| {
        // Before the first sample a signal loses nothing.
        interrupt.orderly(true);
        tell_first_use();
        if printed.is_ok() {
            printed = match flags.output {
                OutputFlags { json: true, .. } => print(Record::sample(sample).line()),
                OutputFlags { quiet: true, .. } => Ok(()),
                _ => print(table::line(sample, options.default)),
            };
        }
        samples.push(sample.clone());
        match interrupt.requested() || printed.is_err() {
            true => ControlFlow::Break(()),
            false => ControlFlow::Continue(()),
        }
    });
    tell_first_use();
    printed?;
    report
}

/// Prints the result.
fn finish(flags: &TuneFlags, options: &TuneOptions, report: &TuneReport) -> Result<(), Fault> {
    let mut console = Console::new(flags.output);
    if flags.output.json {
        print(Record::tune(report, options).line())?;
    } else if !flags.output.quiet {
        print(summary(report, options.default))?;
    }
    match report.end {
        TuneEnd::Stopped => return Err(Interrupt::fault("tune the session")),
        TuneEnd::Bytes => console.info("the search ended early: --max-bytes was used up"),
        TuneEnd::Time => console.info("the search ended early: --max-time was over"),
        // It ended by itself.
        _ => {}
    }
    Ok(())
}

/// The result for people.
fn summary(report: &TuneReport, default: TuneSetting) -> String {
    let base = human::rate(report.default_bytes_per_second);
    let ratio = report.ratio();
    let fastest = report
        .fastest
        .map(|(setting, rate)| (flags_of(setting), human::rate(rate)));
    let mut text = match (fastest, report.noise) {
        (Some((flags, rate)), Some(noise)) if report.best != default => format!(
            "best: {flags}\n{rate}, {ratio:.2} times the default's {base} (noise {:.0} %)\n",
            noise * 100.0
        ),
        (Some((flags, rate)), Some(noise)) => format!(
            "best: the default\n{base}; the fastest other setting, {flags}: {rate}, {ratio:.2} \
             times that (noise {:.0} %)\n",
            noise * 100.0
        ),
        (Some((flags, rate)), None) => format!(
            "fastest: {flags}\n{rate}, {ratio:.2} times the default's {base}; not compared again, \
             so it may be luck\n"
        ),
        (None, _) => format!("best: the default\n{base}; nothing else was measured\n"),
    };
    let bytes = report.samples.iter().map(|sample| sample.bytes).sum();
    let elapsed: Duration = report.samples.iter().map(|sample| sample.elapsed).sum();
    text.push_str(&format!(
        "{}, {} in {}\n",
        human::count(report.samples.len() as u64, "sample"),
        human::size(bytes),
        human::seconds(elapsed.as_secs_f64()),
    ));
    for advice in &report.advice {
        text.push_str(&advice_text(advice));
    }
    text
}

fn advice_text(advice: &TuneAdvice) -> String {
    let side = match advice.side {
        Side::Local => "here",
        Side::Remote => "on the server",
    };
    let reason = printable(&advice.reason);
    match &advice.command {
        Some(command) => format!("advice, {side}: {reason}:\n  {}\n", printable(command)),
        None => format!("advice, {side}: {reason}\n"),
    }
}

/// A setting as flags: `-n 16 -w 64K`.
fn flags_of(setting: TuneSetting) -> String {
    let channels = setting.channels.map(|n| format!("-n {n}"));
    let window = setting.window.map(|w| format!("-w {}", table::binary(w)));
    let words: Vec<String> = channels.into_iter().chain(window).collect();
    words.join(" ")
}

/// The files to write.
fn files(flags: &TuneFlags) -> impl Iterator<Item = &PathBuf> {
    let pictures = flags.plot.iter().map(|picture| &picture.path);
    flags.csv.iter().chain(pictures)
}

/// Fails before anything is moved if there can't be such a file.
fn check_file(path: &Path) -> Result<(), Fault> {
    if path.is_dir() {
        let error = std::io::ErrorKind::IsADirectory.into();
        return Err(unwritten(&path.to_string_lossy(), &error));
    }
    let parent = match path.parent() {
        Some(parent) if !parent.as_os_str().is_empty() => parent,
        _ => Path::new("."),
    };
    let shown = parent.to_string_lossy();
    let found = fs::metadata(parent).map_err(|e| unwritten(&shown, &e))?;
    match found.is_dir() {
        true => Ok(()),
        false => Err(unwritten(&shown, &std::io::ErrorKind::NotADirectory.into())),
    }
}

fn unwritten(path: &str, error: &std::io::Error) -> Fault {
    Fault::from_io("write the samples", path, error)
}

/// Writes the files that were asked for; without samples there is nothing to write.
fn write_files(
    flags: &TuneFlags,
    options: &TuneOptions,
    samples: &[TuneSample],
) -> Result<(), Fault> {
    if samples.is_empty() {
        return Ok(());
    }
    let write = |path: &Path, content: &[u8]| {
        fs::write(path, content).map_err(|e| unwritten(&path.to_string_lossy(), &e))
    };
    if let Some(path) = &flags.csv {
        write(path, table::csv(samples).as_bytes())?;
    }
    let surface = Surface::new(&flags.server, options, samples);
    for picture in &flags.plot {
        let drawn = match picture.format {
            PictureFormat::Svg => picture::svg(&surface),
            PictureFormat::Png => picture::png(&surface),
        };
        write(&picture.path, &drawn?)?;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use clap::Parser as _;

    use super::*;
    use crate::flags::{Cli, Command};

    const SETTING: TuneSetting = TuneSetting {
        channels: Some(16),
        window: Some(64 << 10),
    };

    #[test]
    fn flags_stay_and_the_configuration_is_the_default() {
        let Command::Tune(flags) = Cli::try_parse_from(["xdfs", "tune", "xdfs://h"])
            .unwrap()
            .command
        else {
            panic!()
        };
        let none = ClientOptions::default();
        let given = ClientOptions {
            channels: Some(3),
            window: Some(5000),
            ..ClientOptions::default()
        };
        let free = options(&flags, &none, &none);
        assert_eq!(free.default, TuneSetting::default());
        assert!(free.channels.len() > 1 && free.windows.contains(&None));
        let fixed = options(&flags, &given, &given);
        assert_eq!(fixed.channels, [3]);
        assert_eq!(fixed.windows, [Some(5000)]);
        let configured = options(&flags, &none, &given);
        assert_eq!(configured.default, fixed.default);
        assert_eq!(configured.channels, free.channels);
        assert!(!configured.windows.is_empty() && !configured.windows.contains(&None));
    }

    fn report() -> TuneReport {
        TuneReport {
            samples: Vec::new(),
            end: TuneEnd::Found,
            best: SETTING,
            fastest: Some((SETTING, 30e6)),
            default_bytes_per_second: 10e6,
            noise: Some(0.04),
            advice: vec![TuneAdvice {
                side: Side::Remote,
                reason: "it is slow".into(),
                command: Some("sysctl -w x=1".into()),
            }],
        }
    }

    #[test]
    fn the_summary_tells_the_gain_its_noise_and_the_advice() {
        let text = summary(&report(), TuneSetting::default());
        assert_eq!(
            text,
            "best: -n 16 -w 64K\n\
             30.0 MB/s, 3.00 times the default's 10.0 MB/s (noise 4 %)\n\
             0 samples, 0 B in 0 ms\n\
             advice, on the server: it is slow:\n  sysctl -w x=1\n"
        );
        let same = TuneReport {
            best: TuneSetting::default(),
            noise: Some(2.5),
            ..report()
        };
        let text = summary(&same, TuneSetting::default());
        assert!(text.starts_with("best: the default\n"), "{text}");
        assert!(text.contains("3.00 times that (noise 250 %)"), "{text}");
        let alone = TuneReport {
            best: TuneSetting::default(),
            noise: None,
            ..report()
        };
        let text = summary(&alone, TuneSetting::default());
        assert!(text.contains("may be luck"), "{text}");
    }
}
