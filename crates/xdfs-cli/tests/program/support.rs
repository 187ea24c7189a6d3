//! Starts the program and waits for it, with a bound on every wait.

use std::collections::BTreeMap;
use std::ffi::OsStr;
use std::fs::File;
use std::io::{BufRead as _, BufReader, Read as _, Seek as _, Write as _};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::{LazyLock, mpsc};
use std::time::{Duration, Instant};

use serde_json::Value;

/// Longest time that anything here may take.
const DEADLINE: Duration = Duration::from_secs(60);

/// The program, with nothing of the environment that changes what it prints.
pub(crate) fn program() -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_xdfs"));
    command.env_remove("NO_COLOR").env("TERM", "dumb");
    // Keys and known servers of these tests, and not those of who runs them.
    command.env("XDFS_CONFIG_DIR", OWN.path());
    for name in [
        "BEARER_TOKEN",
        "BEARER_TOKEN_FILE",
        "XDFS_REMOTE_PROGRAM",
        "XDFS_SSH",
        "XDFS_TICKET",
        "SSH_AUTH_SOCK",
        "HOME",
    ] {
        command.env_remove(name);
    }
    command
}

/// The folder of keys of all users in this test binary.
static OWN: LazyLock<tempfile::TempDir> = LazyLock::new(|| tempfile::tempdir().unwrap());

/// What came of a run.
#[derive(Debug)]
pub(crate) struct Run {
    pub(crate) code: Option<i32>,
    pub(crate) stdout: Vec<u8>,
    pub(crate) stderr: String,
}

impl Run {
    /// Fails unless the program succeeded.
    #[track_caller]
    pub(crate) fn ok(self) -> Self {
        assert_eq!(self.code, Some(0), "stderr: {}", self.stderr);
        self
    }

    /// Fails unless the program ended so and said `words` on standard error.
    #[track_caller]
    pub(crate) fn fails(self, code: i32, words: &[&str]) -> Self {
        assert_eq!(self.code, Some(code), "stderr: {}", self.stderr);
        for word in words {
            assert!(
                self.stderr.contains(word),
                "'{word}' is not in: {}",
                self.stderr
            );
        }
        self
    }

    pub(crate) fn text(&self) -> String {
        String::from_utf8_lossy(&self.stdout).into_owned()
    }

    /// The JSON objects.
    #[track_caller]
    pub(crate) fn json(&self) -> Vec<Value> {
        self.text()
            .lines()
            .map(|line| serde_json::from_str(line).expect(line))
            .collect()
    }

    /// The last JSON object, which has to be the result.
    #[track_caller]
    pub(crate) fn result(&self) -> Value {
        let last = self.json().pop().expect("there is no output");
        assert_eq!(last["type"], "result", "{last}");
        last
    }
}

/// The shares of the time of a copy, which have to be whole, with the bottleneck as the largest.
#[track_caller]
pub(crate) fn time_shares(result: &Value) -> BTreeMap<String, f64> {
    let shares = result["time_shares"].as_object().unwrap();
    let shares: BTreeMap<_, _> = shares
        .iter()
        .map(|(by, share)| (by.clone(), share.as_f64().unwrap()))
        .collect();
    let sum: f64 = shares.values().sum();
    assert!((sum - 1.0).abs() < 0.001, "{result}");
    let largest = shares.values().copied().fold(0.0, f64::max);
    assert_eq!(shares[result["limited_by"].as_str().unwrap()], largest);
    shares
}

/// A program that runs, and is killed when the value goes away.
#[derive(Debug)]
pub(crate) struct Running {
    child: Child,
    stdout: Option<File>,
    stderr: File,
}

impl Drop for Running {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

impl Running {
    pub(crate) fn start(command: &mut Command) -> Self {
        let stdout = tempfile::tempfile().unwrap();
        command.stdout(stdout.try_clone().unwrap());
        let mut running = Self::start_piped(command);
        running.stdout = Some(stdout);
        running
    }

    fn start_piped(command: &mut Command) -> Self {
        let stderr = tempfile::tempfile().unwrap();
        let child = command.stderr(stderr.try_clone().unwrap()).spawn().unwrap();
        Self {
            child,
            stdout: None,
            stderr,
        }
    }

    /// Waits for the end; a program that goes on for too long is a failure.
    #[track_caller]
    pub(crate) fn wait(&mut self) -> Run {
        let deadline = Instant::now() + DEADLINE;
        let code = loop {
            if let Some(status) = self.child.try_wait().unwrap() {
                break status.code();
            }
            if Instant::now() > deadline {
                let _ = self.child.kill();
                panic!("it did not end; stderr: {}", content_of(&mut self.stderr));
            }
            std::thread::sleep(Duration::from_millis(5));
        };
        let mut stdout = Vec::new();
        if let Some(file) = &mut self.stdout {
            file.rewind().unwrap();
            file.read_to_end(&mut stdout).unwrap();
        }
        Run {
            code,
            stdout,
            stderr: content_of(&mut self.stderr),
        }
    }

    /// Whether it has ended.
    pub(crate) fn has_ended(&mut self) -> bool {
        self.child.try_wait().unwrap().is_some()
    }

    /// The most memory that it has had so far, in bytes.
    #[cfg(target_os = "linux")]
    #[track_caller]
    pub(crate) fn peak_memory(&self) -> u64 {
        let path = format!("/proc/{}/status", self.child.id());
        let status = std::fs::read_to_string(path).unwrap();
        let line = status.lines().find_map(|line| line.strip_prefix("VmHWM:"));
        let kib = line.unwrap().trim().trim_end_matches(" kB");
        kib.parse::<u64>().unwrap() * 1024
    }

    /// The number of the process.
    pub(crate) fn id(&self) -> u32 {
        self.child.id()
    }

    /// Ends it as the kernel would: SIGKILL.
    pub(crate) fn kill(&mut self) {
        self.child.kill().unwrap();
        self.child.wait().unwrap();
    }

    /// Sends a signal by its name.
    #[cfg(unix)]
    pub(crate) fn signal(&self, name: &str) {
        send_signal(name, &self.child.id().to_string());
    }

    /// Sends a signal to the process group that it leads, as a terminal does.
    #[cfg(target_os = "linux")]
    pub(crate) fn signal_group(&self, name: &str) {
        send_signal(name, &format!("-{}", self.child.id()));
    }

    /// Waits until standard error has these words.
    #[cfg(unix)]
    #[track_caller]
    pub(crate) fn wait_for_message(&self, words: &str) {
        self.wait_for_messages(words, 1);
    }

    /// Waits until standard error has these words so many times.
    #[cfg(unix)]
    #[track_caller]
    pub(crate) fn wait_for_messages(&self, words: &str, count: usize) {
        let deadline = Instant::now() + DEADLINE;
        while read_all_at(&self.stderr).matches(words).count() < count {
            assert!(Instant::now() < deadline, "'{words}' was not said so often");
            std::thread::sleep(Duration::from_millis(5));
        }
    }

    /// Writes to its standard input, which stays open.
    #[cfg(target_os = "linux")]
    #[track_caller]
    pub(crate) fn write_input(&mut self, input: &[u8]) {
        let stdin = self.child.stdin.as_mut().expect("standard input is piped");
        stdin.write_all(input).unwrap();
    }

    /// Closes its standard input.
    #[cfg(target_os = "linux")]
    pub(crate) fn close_input(&mut self) {
        self.child.stdin = None;
    }

    /// Waits until standard output has these words, and returns all of it.
    #[cfg(target_os = "linux")]
    #[track_caller]
    pub(crate) fn wait_for_output(&self, words: &str) -> String {
        let deadline = Instant::now() + DEADLINE;
        let stdout = self.stdout.as_ref().expect("standard output is a file");
        loop {
            let text = read_all_at(stdout);
            if text.contains(words) {
                return text;
            }
            assert!(Instant::now() < deadline, "'{words}' was never printed");
            std::thread::sleep(Duration::from_millis(5));
        }
    }

    /// Waits until the JSON lines on standard output tell that so many bytes have arrived.
    #[track_caller]
    pub(crate) fn wait_for_bytes(&mut self, bytes: u64) {
        let deadline = Instant::now() + DEADLINE;
        loop {
            let file = self.stdout.as_ref().expect("standard output is piped");
            // The offset belongs to the program as well: read at a place of our own.
            let text = read_all_at(file);
            let seen = text
                .lines()
                .filter_map(|line| serde_json::from_str::<Value>(line).ok());
            let most = seen.filter_map(|v| v["bytes"].as_u64()).max().unwrap_or(0);
            if most >= bytes {
                return;
            }
            assert!(
                self.child.try_wait().unwrap().is_none(),
                "it ended too early: {text}"
            );
            assert!(Instant::now() < deadline, "it did not come so far: {text}");
            std::thread::sleep(Duration::from_millis(5));
        }
    }
}

/// Sends a signal to a process, or to a group of them.
#[cfg(unix)]
fn send_signal(name: &str, to: &str) {
    let sent = Command::new("kill").args(["-s", name, "--", to]).status();
    assert!(sent.unwrap().success());
}

/// Reads a file without moving the offset that another process writes at.
#[cfg(unix)]
fn read_all_at(file: &File) -> String {
    use std::os::unix::fs::FileExt as _;
    let mut bytes = vec![0; usize::try_from(file.metadata().unwrap().len()).unwrap()];
    let n = file.read_at(&mut bytes, 0).unwrap();
    bytes.truncate(n);
    String::from_utf8_lossy(&bytes).into_owned()
}

#[cfg(windows)]
fn read_all_at(file: &File) -> String {
    use std::os::windows::fs::FileExt as _;
    let mut bytes = vec![0; usize::try_from(file.metadata().unwrap().len()).unwrap()];
    let end = file.metadata().unwrap().len();
    let n = file.seek_read(&mut bytes, 0).unwrap();
    (&mut &*file).seek(std::io::SeekFrom::Start(end)).unwrap();
    bytes.truncate(n);
    String::from_utf8_lossy(&bytes).into_owned()
}

fn content_of(file: &mut File) -> String {
    let mut text = Vec::new();
    file.rewind().unwrap();
    file.read_to_end(&mut text).unwrap();
    String::from_utf8_lossy(&text).into_owned()
}

/// Runs the program to its end.
#[track_caller]
pub(crate) fn xdfs<S: AsRef<OsStr>>(args: impl IntoIterator<Item = S>) -> Run {
    Running::start(program().args(args).stdin(Stdio::null())).wait()
}

/// The same with bytes on standard input.
#[track_caller]
pub(crate) fn xdfs_with_input<S: AsRef<OsStr>>(
    args: impl IntoIterator<Item = S>,
    input: &[u8],
) -> Run {
    run_with_input(program().args(args), input)
}

/// Runs a command to its end with `input` on its standard input.
#[track_caller]
pub(crate) fn run_with_input(command: &mut Command, input: &[u8]) -> Run {
    let mut running = Running::start(command.stdin(Stdio::piped()));
    let mut stdin = running.child.stdin.take().unwrap();
    std::thread::scope(|scope| {
        scope.spawn(move || {
            // The program may end before it has read everything, and tests look at why.
            let _ = stdin.write_all(input);
        });
        running.wait()
    })
}

/// A server with a directory of its own.
#[derive(Debug)]
pub(crate) struct Server {
    pub(crate) running: Running,
    pub(crate) addresses: Vec<String>,
    lines: mpsc::Receiver<String>,
}

/// Forgets the server that had this address before: all tests share the known servers, and the
/// system gives a port again.
fn forget(address: &str) {
    let known = std::fs::read_to_string(OWN.path().join("known_hosts")).unwrap_or_default();
    if known.contains(address) {
        let _ = program().args(["trust", "remove", address]).output();
    }
}

impl Server {
    /// Serves `root` on a free port of 127.0.0.1.
    #[track_caller]
    pub(crate) fn start(root: &Path) -> Self {
        Self::start_with(root, &["--listen", "127.0.0.1:0"])
    }

    /// Serves `root` with further flags.
    #[track_caller]
    pub(crate) fn start_with(root: &Path, flags: &[&str]) -> Self {
        Self::start_as(root, flags, |serve| serve)
    }

    /// The same by a command that `change` makes of the usual one.
    #[track_caller]
    pub(crate) fn start_as(
        root: &Path,
        flags: &[&str],
        change: impl FnOnce(Command) -> Command,
    ) -> Self {
        let root = root.as_os_str();
        let serve = ["serve", "--root"].map(OsStr::new);
        let flags: Vec<&OsStr> = flags.iter().map(OsStr::new).collect();
        Self::start_named(&[&serve[..], &[root], &flags].concat(), change)
    }

    /// A command that serves, with its flags.
    #[track_caller]
    pub(crate) fn start_named<S: AsRef<OsStr>>(
        words: &[S],
        change: impl FnOnce(Command) -> Command,
    ) -> Self {
        let mut command = program();
        command.args(words);
        let mut command = change(command);
        command.stdin(Stdio::null()).stdout(Stdio::piped());
        let mut running = Running::start_piped(&mut command);
        let stdout = running.child.stdout.take().unwrap();
        let (sender, lines) = mpsc::channel();
        std::thread::spawn(move || {
            for line in BufReader::new(stdout).lines().map_while(Result::ok) {
                let _ = sender.send(line);
            }
        });
        let mut addresses = Vec::new();
        loop {
            let Ok(line) = lines.recv_timeout(DEADLINE) else {
                panic!("the server did not start: {}", running.wait().stderr)
            };
            match line.strip_prefix("listening on ") {
                Some(address) => addresses.push(address.to_owned()),
                None if line.starts_with("serving ") => break,
                None => panic!("an unexpected line: {line}"),
            }
        }
        let ends_in_0 = |word: &S| word.as_ref().as_encoded_bytes().ends_with(b":0");
        if words.iter().any(ends_in_0) {
            addresses.iter().for_each(|address| forget(address));
        }
        Self {
            running,
            addresses,
            lines,
        }
    }

    /// The next line that it prints and that begins so.
    #[track_caller]
    pub(crate) fn line_with(&self, start: &str) -> String {
        loop {
            let Ok(line) = self.lines.recv_timeout(DEADLINE) else {
                panic!("the server did not print '{start}'")
            };
            if line.starts_with(start) {
                return line;
            }
        }
    }

    /// The URL of a path on its first address.
    pub(crate) fn url(&self, path: &str) -> String {
        format!("xdfs://{}{path}", self.addresses[0])
    }
}

/// A temporary directory with `root` for a server and `here` for the client.
#[derive(Debug)]
pub(crate) struct Place {
    dir: tempfile::TempDir,
}

impl Place {
    pub(crate) fn new() -> Self {
        let dir = tempfile::tempdir().unwrap();
        std::fs::create_dir(dir.path().join("root")).unwrap();
        std::fs::create_dir(dir.path().join("here")).unwrap();
        Self { dir }
    }

    pub(crate) fn path(&self) -> &Path {
        self.dir.path()
    }

    pub(crate) fn root(&self) -> PathBuf {
        self.dir.path().join("root")
    }

    /// A file on the server's side.
    pub(crate) fn remote(&self, name: &str) -> PathBuf {
        self.root().join(name)
    }

    /// A file on the client's side, as text for the command line.
    pub(crate) fn here(&self, name: &str) -> String {
        self.dir
            .path()
            .join("here")
            .join(name)
            .to_str()
            .unwrap()
            .to_owned()
    }

    /// Makes a file on the client's side.
    pub(crate) fn make_here(&self, name: &str, content: &[u8]) -> String {
        let path = self.here(name);
        std::fs::write(&path, content).unwrap();
        path
    }
}

/// Bytes that look random, the same ones for the same seed.
pub(crate) fn content(seed: u64, length: usize) -> Vec<u8> {
    let mut state = seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1;
    let mut bytes = Vec::with_capacity(length + 8);
    while bytes.len() < length {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        bytes.extend_from_slice(&state.to_le_bytes());
    }
    bytes.truncate(length);
    bytes
}

/// Fails with a short text, not with megabytes, unless the file has this content.
#[track_caller]
pub(crate) fn assert_content(path: impl AsRef<Path>, expected: &[u8]) {
    let path = path.as_ref();
    let found = std::fs::read(path).unwrap_or_else(|e| panic!("{}: {e}", path.display()));
    // Byte by byte takes unoptimized code seconds for a large file.
    if found == expected {
        return;
    }
    assert_eq!(
        found.len(),
        expected.len(),
        "the length of {}",
        path.display()
    );
    let different = found.iter().zip(expected).position(|(a, b)| a != b);
    assert_eq!(
        different,
        None,
        "{} differs from that byte on",
        path.display()
    );
}

/// The names in a directory, hidden ones too.
pub(crate) fn names(dir: impl AsRef<Path>) -> Vec<String> {
    let entries = std::fs::read_dir(dir).unwrap();
    let mut names: Vec<String> = entries
        .map(|entry| entry.unwrap().file_name().to_string_lossy().into_owned())
        .collect();
    names.sort();
    names
}
