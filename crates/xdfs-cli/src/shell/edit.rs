//! Interactive lines, and their history.

use std::fs::OpenOptions;
use std::path::{Path, PathBuf};
use std::rc::Rc;

use rustyline::Editor;
use rustyline::config::{BellStyle, CompletionType, Config};
use rustyline::error::ReadlineError;
use rustyline::history::FileHistory;
use xdfs::security::trusted;
use xdfs::words::lines;
use xdfs::{Code, Fault};

use super::complete::{Completer, Helper};
use super::{LineOutcome, Shell};
use crate::exit_codes::SUCCESS;
use crate::state;

/// Most lines in the history.
const LINES_MAX: usize = 1000;
/// Longest line in the history, in bytes.
const LINE_BYTES_MAX: usize = 16 << 10;
/// Largest history file that is read, in bytes.
const FILE_BYTES_MAX: u64 = 1 << 24;

type LineEditor = Editor<Helper, FileHistory>;

/// Runs typed lines, and returns the exit code.
pub(super) fn run(shell: &mut Shell) -> u8 {
    let mut editor = match editor(&shell.completer) {
        Ok(editor) => editor,
        Err(error) => return failed(shell, &error),
    };
    let file = remembered(shell, &mut editor);
    loop {
        let line = match editor.readline(&shell.prompt()) {
            Ok(line) => line,
            Err(ReadlineError::Interrupted) => continue,
            Err(ReadlineError::Eof) => return SUCCESS,
            Err(error) => return failed(shell, &error),
        };
        // Pasted text may have several lines.
        for line in lines(&line) {
            remember(&mut editor, line, file.as_deref());
            let history: Vec<String> = editor.history().iter().cloned().collect();
            match shell.line(line.as_bytes(), &history) {
                LineOutcome::Continue(code) if code == Code::Cancelled.exit_code() => break,
                // Reported already, and the shell continues.
                LineOutcome::Continue(_) => {}
                LineOutcome::Exit(code) => return code,
            }
        }
    }
}

fn editor(completer: &Rc<Completer>) -> Result<LineEditor, ReadlineError> {
    let config = Config::builder()
        .max_history_size(LINES_MAX)?
        .history_ignore_space(true)
        .history_ignore_dups(true)?
        .completion_type(CompletionType::List)
        .bell_style(BellStyle::None)
        .auto_add_history(false)
        .build();
    let mut editor = LineEditor::with_config(config)?;
    editor.set_helper(Some(Helper(Rc::clone(completer))));
    Ok(editor)
}

fn failed(shell: &mut Shell, error: &ReadlineError) -> u8 {
    let fault = Fault::new(Code::Io, "read from the terminal", error.to_string());
    shell.console.error(&fault);
    fault.exit_code()
}

/// Reads the history, and returns its file, unless it can't be written.
fn remembered(shell: &mut Shell, editor: &mut LineEditor) -> Option<PathBuf> {
    let folder = state::folder()?;
    let path = folder.join("shell_history");
    let made = trusted::make_folder("create the directory of the history", &folder);
    let ready = made.and_then(|()| prepare(&path));
    let loaded = ready.and_then(|()| {
        editor.load_history(&path).map_err(|error| {
            Fault::new(Code::Io, "read the history", error.to_string())
                .path(path.as_os_str().as_encoded_bytes())
        })
    });
    match loaded {
        Ok(()) => Some(path),
        Err(fault) => {
            shell.console.info(&format!("no history: {fault}"));
            None
        }
    }
}

/// Creates the file if it is missing, readable only by this user.
fn prepare(path: &Path) -> Result<(), Fault> {
    let name = path.as_os_str().as_encoded_bytes();
    let fault = |error: std::io::Error| Fault::from_io("open the history", name, &error);
    let mut options = OpenOptions::new();
    options.append(true).create(true);
    #[cfg(unix)]
    std::os::unix::fs::OpenOptionsExt::mode(&mut options, 0o600);
    let file = options.open(path).map_err(fault)?;
    let metadata = file.metadata().map_err(fault)?;
    #[cfg(unix)]
    file.set_permissions(std::os::unix::fs::PermissionsExt::from_mode(0o600))
        .map_err(fault)?;
    if !metadata.is_file() || metadata.len() > FILE_BYTES_MAX {
        let cause = "not a regular file, or too large";
        return Err(Fault::new(Code::InvalidArgument, "read the history", cause).path(name));
    }
    Ok(())
}

/// Adds a line to the history, unless it starts with a blank, is very long or contains a secret.
fn remember(editor: &mut LineEditor, line: &str, file: Option<&Path>) {
    if line.len() > LINE_BYTES_MAX || line.contains("?ticket=") || line.contains("&ticket=") {
        return;
    }
    // A line that can't be saved is no failure.
    if editor.add_history_entry(line).unwrap_or(false)
        && let Some(file) = file
    {
        let _ = editor.append_history(file);
    }
}
