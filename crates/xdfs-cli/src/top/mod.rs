//! `xdfs top`: figures of a server or a service, live.
//!
//! - `source`: reads them, in a thread of its own, so that keys are answered while a server isn't.
//! - `report`: what two readings say, for both kinds and both outputs.
//! - `view`: draws a report.
//! - `screen`: the terminal, and its state before.

mod report;
mod screen;
mod source;
mod view;

use std::io::IsTerminal as _;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{self, RecvTimeoutError};
use std::thread;
use std::time::Duration;

use xdfs::{Code, Fault};

use self::report::History;
use self::screen::{Key, Screen};
use self::source::Source;
use crate::console::Console;
use crate::exit_codes::SUCCESS;
use crate::flags::{OutputFlags, TopFlags};
use crate::interrupt::{end_by_signal, handle_signals};
use crate::report::print;

/// Time within which keys, resizes and signals are answered.
const LOOK: Duration = Duration::from_millis(100);
/// Time in which a signal ends the command in an orderly way.
const LAST_LOOK: Duration = Duration::from_secs(1);

/// Runs the command and returns the exit code.
pub(crate) fn run(flags: &TopFlags) -> u8 {
    match watch(flags) {
        Ok(()) => SUCCESS,
        Err(fault) => {
            Console::new(OutputFlags::default()).error(&fault);
            fault.exit_code()
        }
    }
}

fn watch(flags: &TopFlags) -> Result<(), Fault> {
    let source = Source::find(flags)?;
    // An address that is wrong is refused at once.
    let first = source.read()?;
    let mut history = History::default();
    history.add(first);
    let interval = Duration::from_secs(flags.interval.get().into());
    let is_terminal = std::io::stdin().is_terminal() && std::io::stdout().is_terminal();
    if !is_terminal {
        thread::sleep(interval);
        history.add(source.read()?);
        let report = history.report();
        return print(report.map(|report| report.text()).unwrap_or_default());
    }
    live(source, history, interval)
}

/// Draws until the user has enough of it.
fn live(source: Source, mut history: History, interval: Duration) -> Result<(), Fault> {
    let is_asked = Arc::new(AtomicBool::new(false));
    let asked = Arc::clone(&is_asked);
    handle_signals(move || {
        asked.store(true, Ordering::Relaxed);
        // The process has ended by then, unless its terminal hung up while it waited for a key.
        thread::sleep(LAST_LOOK);
        screen::restore();
        end_by_signal();
    })?;
    let (sender, readings) = mpsc::sync_channel(1);
    let reader = thread::Builder::new().name("xdfs-top".into());
    // It ends with the process, at the latest after the timeout of its request.
    let reader = reader.spawn(move || {
        loop {
            thread::sleep(interval);
            if sender.send(source.read()).is_err() {
                return;
            }
        }
    });
    reader.map_err(|error| Fault::from_io("start a thread", "", &error))?;
    let mut screen = Screen::open()?;
    let mut problem: Option<Fault> = None;
    let mut is_changed = true;
    while !is_asked.load(Ordering::Relaxed) {
        if std::mem::take(&mut is_changed) {
            let report = history.report().unwrap_or_default();
            screen.draw(|frame| view::draw(frame, &report, problem.as_ref()))?;
        }
        match screen.key(LOOK)? {
            Some(Key::Quit) => return Ok(()),
            Some(Key::Resized) => is_changed = true,
            None => {}
        }
        match readings.recv_timeout(Duration::ZERO) {
            Ok(Ok(reading)) => {
                (problem, is_changed) = (None, true);
                history.add(reading);
            }
            Ok(Err(fault)) => (problem, is_changed) = (Some(fault), true),
            Err(RecvTimeoutError::Timeout) => {}
            Err(RecvTimeoutError::Disconnected) => {
                let cause = "the thread that reads has ended";
                return Err(Fault::new(Code::Internal, "watch", cause));
            }
        }
    }
    Ok(())
}
