//! A command line that can be run and shown.
//!
//! Called by `tool` to say what to run, by `meter` and `server` to run it, and by the report to
//! show it with the passing names of folders and ports replaced.

use std::{
    ffi::OsStr,
    fmt,
    path::{Path, PathBuf},
    process::Command,
};

/// Where servers listen, unless they are told otherwise.
const LOOPBACK: &str = "127.0.0.1";

/// A program, its arguments, and what it finds in its environment beside what we have in ours.
#[derive(Clone, Debug, Eq, PartialEq)]
pub(crate) struct CommandLine {
    environment: Vec<(&'static str, String)>,
    program: PathBuf,
    arguments: Vec<String>,
}

impl CommandLine {
    /// A command line without arguments.
    pub(crate) fn new(program: impl Into<PathBuf>) -> Self {
        Self {
            environment: Vec::new(),
            program: program.into(),
            arguments: Vec::new(),
        }
    }

    /// Adds one argument.
    #[must_use]
    pub(crate) fn arg(mut self, argument: impl Into<String>) -> Self {
        self.arguments.push(argument.into());
        self
    }

    /// Adds arguments.
    #[must_use]
    pub(crate) fn args<const COUNT: usize>(mut self, arguments: [&str; COUNT]) -> Self {
        self.arguments.extend(arguments.map(str::to_owned));
        self
    }

    /// Sets a variable of its environment.
    #[must_use]
    pub(crate) fn variable(mut self, name: &'static str, value: impl Into<String>) -> Self {
        self.environment.push((name, value.into()));
        self
    }

    /// The same command with `host` in place of this machine's own address.
    #[must_use]
    pub(crate) fn at(mut self, host: &str) -> Self {
        for argument in &mut self.arguments {
            *argument = argument.replace(LOOPBACK, host);
        }
        self
    }

    /// The same command started by another program, which takes it after its own `arguments`.
    #[must_use]
    pub(crate) fn after<const COUNT: usize>(
        self,
        program: impl Into<PathBuf>,
        arguments: [&str; COUNT],
    ) -> Self {
        let mut line = Self::new(program).args(arguments);
        line.arguments
            .push(self.program.to_string_lossy().into_owned());
        line.arguments.extend(self.arguments);
        line.environment = self.environment;
        line
    }

    /// The program, for messages.
    pub(crate) fn program(&self) -> String {
        let name = self.program.file_name().unwrap_or(self.program.as_os_str());
        name.to_string_lossy().into_owned()
    }

    /// Ready to be spawned.
    pub(crate) fn command(&self) -> Command {
        let mut command = Command::new(&self.program);
        command
            .args(&self.arguments)
            .envs(self.environment.iter().map(|(name, value)| (name, value)));
        command
    }
}

impl fmt::Display for CommandLine {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (name, value) in &self.environment {
            write!(formatter, "{name}={value} ")?;
        }
        formatter.write_str(&self.program())?;
        for argument in &self.arguments {
            let plain = !argument.is_empty() && !argument.contains(char::is_whitespace);
            if plain {
                write!(formatter, " {argument}")?;
            } else {
                write!(formatter, " '{argument}'")?;
            }
        }
        Ok(())
    }
}

/// Finds a program in `PATH` and in the folders where servers are installed.
pub(crate) fn find_program(name: &str) -> Option<PathBuf> {
    let path = std::env::var_os("PATH").unwrap_or_default();
    std::env::split_paths(&path)
        .chain(["/usr/sbin", "/usr/local/sbin", "/sbin"].map(PathBuf::from))
        .map(|folder| folder.join(name))
        .find(|candidate| is_program(candidate))
}

/// Whether `path` is a file (that it can be executed shows when it is).
fn is_program(path: &Path) -> bool {
    path.file_name().is_some_and(|name| name != OsStr::new("")) && path.is_file()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn shown_as_typed() {
        let line = CommandLine::new("/usr/bin/rclone")
            .args(["--config", "", "copyto"])
            .arg("a b");
        assert_eq!(line.to_string(), "rclone --config '' copyto 'a b'");
        let line = CommandLine::new("/usr/bin/xdfs")
            .arg("serve")
            .variable("PLACE", "/x");
        assert_eq!(line.to_string(), "PLACE=/x xdfs serve");
        assert!(line.command().get_envs().any(|(name, _)| name == "PLACE"));
    }

    #[test]
    fn elsewhere_and_by_another() {
        let line = CommandLine::new("/usr/bin/rsync")
            .args(["--address", "127.0.0.1", "rsync://127.0.0.1:1/r"])
            .variable("PLACE", "/x")
            .at("10.0.0.2")
            .after("ip", ["netns", "exec", "far"]);
        assert_eq!(
            line.to_string(),
            "PLACE=/x ip netns exec far /usr/bin/rsync --address 10.0.0.2 rsync://10.0.0.2:1/r"
        );
    }

    #[cfg(unix)]
    #[test]
    fn programs_are_found() {
        assert!(find_program("sh").is_some());
        assert!(find_program("no such program anywhere").is_none());
    }
}
