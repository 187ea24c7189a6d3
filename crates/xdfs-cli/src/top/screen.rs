//! The terminal while it is drawn on. It gets its state back however the command ends.

use std::io::{self, Stdout, stdout};
use std::time::Duration;

use ratatui::backend::CrosstermBackend;
use ratatui::crossterm::event::{Event, KeyCode, KeyEventKind, KeyModifiers, poll, read};
use ratatui::crossterm::terminal::{
    EnterAlternateScreen, LeaveAlternateScreen, disable_raw_mode, enable_raw_mode,
};
use ratatui::crossterm::{cursor, execute};
use ratatui::{Frame, Terminal};
use xdfs::Fault;

/// What the user wants.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Key {
    /// To end.
    Quit,
    /// To see it in another size.
    Resized,
}

/// See the module documentation.
#[derive(Debug)]
pub(super) struct Screen {
    terminal: Terminal<CrosstermBackend<Stdout>>,
    /// After the terminal, since it restores it.
    _state: Restored,
}

/// The state before.
#[derive(Debug)]
struct Restored;

impl Drop for Restored {
    fn drop(&mut self) {
        restore();
    }
}

/// Gives the terminal its state back, in the middle of anything.
pub(super) fn restore() {
    // The terminal may be gone.
    let _ = disable_raw_mode();
    let _ = execute!(stdout(), LeaveAlternateScreen, cursor::Show);
}

/// Whether the terminal has hung up. Keys of such a one would be read without end.
#[cfg(unix)]
fn has_hung_up() -> bool {
    rustix::termios::tcgetattr(io::stdin()).is_err()
}

#[cfg(not(unix))]
fn has_hung_up() -> bool {
    false
}

fn fault(error: io::Error) -> Fault {
    Fault::from_io("draw on the terminal", "", &error)
}

impl Screen {
    /// Takes the terminal.
    ///
    /// # Errors
    /// There is none any more.
    pub(super) fn open() -> Result<Self, Fault> {
        let state = Restored;
        enable_raw_mode().map_err(fault)?;
        execute!(stdout(), EnterAlternateScreen, cursor::Hide).map_err(fault)?;
        let terminal = Terminal::new(CrosstermBackend::new(stdout())).map_err(fault)?;
        Ok(Self {
            terminal,
            _state: state,
        })
    }

    /// Draws.
    ///
    /// # Errors
    /// The terminal is gone.
    pub(super) fn draw(&mut self, draw: impl FnOnce(&mut Frame<'_>)) -> Result<(), Fault> {
        self.terminal.draw(draw).map(drop).map_err(fault)
    }

    /// Waits so long for a key that means something.
    ///
    /// # Errors
    /// The terminal is gone.
    pub(super) fn key(&self, time: Duration) -> Result<Option<Key>, Fault> {
        if has_hung_up() {
            return Err(fault(io::ErrorKind::BrokenPipe.into()));
        }
        if !poll(time).map_err(fault)? {
            return Ok(None);
        }
        Ok(match read().map_err(fault)? {
            Event::Resize(..) => Some(Key::Resized),
            Event::Key(key) if key.kind != KeyEventKind::Release => match key.code {
                KeyCode::Char('q') | KeyCode::Esc => Some(Key::Quit),
                // No signal in this mode.
                KeyCode::Char('c' | 'd') if key.modifiers == KeyModifiers::CONTROL => {
                    Some(Key::Quit)
                }
                KeyCode::Char('l') if key.modifiers == KeyModifiers::CONTROL => Some(Key::Resized),
                _ => None,
            },
            _ => None,
        })
    }
}
