//! Figures of the transfer service: `xdfs-bench service PROGRAM`.
//!
//! Starts a service and a server of the program that is named, on loopback, with the database on
//! disk and the files in memory, and prints how fast jobs are taken and done, how soon lists are
//! answered when much is stored, what a copy by the service costs over a direct one, and what a
//! server's metrics cost. It is no group of the benchmark, as there are no rivals in it.

use std::fmt::Display;
use std::fs;
use std::io::{self, BufRead, BufReader, Read as _, Write};
use std::net::TcpStream;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitCode, Stdio};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::mpsc::{self, RecvTimeoutError};
use std::thread;
use std::time::{Duration, Instant};

use crate::procfs;
use crate::scratch::{Guard, Scratch};
use crate::server;
use crate::statistics::Spread;

/// The first word of its command lines.
pub(crate) const COMMAND: &str = "service";
const FIGURES: [&str; 6] = ["lines", "jobs", "lists", "idle", "copies", "metrics"];

/// Files of the job that is submitted as lines.
const FILES: usize = 1_000_000;
/// Small jobs that are submitted and done, and the connections that submit them.
const JOBS: usize = 4000;
const CONNECTIONS: usize = 16;
/// Jobs that are stored while lists are asked for.
const STORED_JOBS: usize = 100_000;
/// Times that each list is asked for.
const QUESTIONS: usize = 15;
/// Idle connections, and slow ones that send a byte now and then.
const IDLE: usize = 2000;
const SLOW: usize = 100;
/// Copies of each kind.
const COPIES: usize = 7;
const LARGE_MIB: usize = 1024;
const SMALL_FILES: usize = 10_000;
/// Longest wait for an answer.
const PATIENCE: Duration = Duration::from_secs(600);
/// Jobs that are to wait.
const LATER: &str = "2099-01-01T00:00:00Z";

type Result<T> = std::result::Result<T, String>;

fn text(error: impl ToString) -> String {
    error.to_string()
}

/// A transfer of a job.
fn copy(source: &impl Display, target: &str) -> String {
    format!(r#"{{"file":{{"source":"{source}","target":"{target}"}}}}"#)
}

/// Runs `service PROGRAM [FIGURE]...`.
pub(crate) fn main(arguments: &[String]) -> ExitCode {
    let all: Vec<String> = FIGURES.map(str::to_owned).to_vec();
    let known = |rest: &[String]| rest.iter().all(|one| all.contains(one));
    let (program, figures) = match arguments.split_first() {
        Some((program, [])) => (program, all.as_slice()),
        Some((program, rest)) if known(rest) => (program, rest),
        _ => {
            let figures = FIGURES.join("|");
            eprintln!("usage: xdfs-bench {COMMAND} PROGRAM [{figures}]...");
            return ExitCode::from(2);
        }
    };
    let result = Path::new(program)
        .canonicalize()
        .map_err(|error| format!("{program}: {error}"))
        .and_then(|program| figures.iter().try_for_each(|one| run(&program, one)));
    match result {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("{COMMAND}: {error}");
            ExitCode::FAILURE
        }
    }
}

/// Each figure has a service and a database of its own.
fn run(program: &Path, figure: &str) -> Result<()> {
    let disk = Scratch::new(&std::env::temp_dir()).map_err(text)?;
    let memory = Scratch::new(Path::new("/dev/shm")).map_err(text)?;
    let guard = Guard::start(&[disk.path(), memory.path()]).map_err(text)?;
    if figure == "metrics" {
        return metrics(program, disk.path(), memory.path(), &guard);
    }
    let bench = Bench::new(program, disk.path(), memory.path(), &guard)?;
    match figure {
        "lines" => bench.lines(),
        "jobs" => bench.jobs(),
        "lists" => bench.lists(),
        "idle" => bench.idle(),
        _ => bench.copies(),
    }
}

/// A process, ended when this is dropped.
struct Process<'a> {
    child: Child,
    guard: &'a Guard,
}

impl Drop for Process<'_> {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
        self.guard.release(self.child.id());
    }
}

impl<'a> Process<'a> {
    /// Starts a program, and waits for the line with this beginning. Returns the rest of it.
    fn start(guard: &'a Guard, command: &mut Command, beginning: &str) -> Result<(Self, String)> {
        let mut child = command.stdout(Stdio::piped()).spawn().map_err(text)?;
        guard.watch(child.id());
        let output = child.stdout.take();
        let process = Self { child, guard };
        let mut said = BufReader::new(output.ok_or("it has no output")?);
        let mut line = String::new();
        loop {
            line.clear();
            if said.read_line(&mut line).map_err(text)? == 0 {
                return Err(format!("it has ended without '{beginning}'"));
            }
            if let Some(rest) = line.trim().strip_prefix(beginning) {
                // Later lines have somewhere to go.
                thread::spawn(move || io::copy(&mut said, &mut io::sink()));
                return Ok((process, rest.to_owned()));
            }
        }
    }

    /// The greatest memory that it has had, in MB.
    fn peak_mb(&self) -> u64 {
        let status = fs::read_to_string(format!("/proc/{}/status", self.child.id()));
        let kib = procfs::parse_kib(&status.unwrap_or_default(), "VmHWM");
        kib.unwrap_or_default() * 1024 / 1_000_000
    }

    /// The processor time that it has used, in seconds.
    fn cpu_s(&self) -> f64 {
        let stat = fs::read_to_string(format!("/proc/{}/stat", self.child.id()));
        let time = procfs::parse_stat(&stat.unwrap_or_default());
        time.map_or(0.0, |time| time.own_s)
    }
}

struct Bench<'a> {
    program: &'a Path,
    disk: &'a Path,
    memory: &'a Path,
    /// The URL of the server of files, which has a folder in memory.
    files: String,
    _server: Process<'a>,
    service: Process<'a>,
    /// Where the service listens, and the token of its owner.
    address: String,
    token: String,
}

/// A connection with the service.
struct Connection {
    stream: BufReader<TcpStream>,
    token: String,
}

/// Writes the body of a request.
type Content<'a> = dyn FnMut(&mut dyn Write) -> io::Result<()> + 'a;

/// An answer of the service.
struct Answer {
    status: u16,
    body: Vec<u8>,
    /// Time until its first byte.
    first_byte: Duration,
}

impl Connection {
    /// Sends a request, and its body in parts.
    fn ask(&mut self, request: &str, body: Option<(&str, &mut Content<'_>)>) -> Result<Answer> {
        let began = Instant::now();
        let kind = body.as_ref().map_or(String::new(), |(kind, _)| {
            format!("Content-Type: {kind}\r\nTransfer-Encoding: chunked\r\n")
        });
        let head = format!(
            "{request} HTTP/1.1\r\nHost: localhost\r\nAuthorization: Bearer {}\r\n{kind}\r\n",
            self.token
        );
        let mut out = io::BufWriter::with_capacity(64 << 10, self.stream.get_ref());
        out.write_all(head.as_bytes()).map_err(text)?;
        if let Some((_, write)) = body {
            let mut chunks = io::BufWriter::with_capacity(32 << 10, Chunks(&mut out));
            write(&mut chunks)
                .and_then(|()| chunks.flush())
                .map_err(text)?;
            drop(chunks);
            out.write_all(b"0\r\n\r\n").map_err(text)?;
        }
        out.flush().map_err(text)?;
        drop(out);
        self.stream.fill_buf().map_err(text)?;
        let first_byte = began.elapsed();
        let mut line = String::new();
        self.stream.read_line(&mut line).map_err(text)?;
        let status = line.split(' ').nth(1).and_then(|word| word.parse().ok());
        let status = status.ok_or_else(|| format!("the service said '{line}'"))?;
        let mut length = 0;
        while line.trim() != "" {
            line.clear();
            self.stream.read_line(&mut line).map_err(text)?;
            let lower = line.to_ascii_lowercase();
            if let Some(value) = lower.strip_prefix("content-length:") {
                length = value.trim().parse().map_err(text)?;
            }
        }
        let mut body = vec![0; length];
        self.stream.read_exact(&mut body).map_err(text)?;
        Ok(Answer {
            status,
            body,
            first_byte,
        })
    }

    /// Submits a job, and returns what was answered.
    fn submit(&mut self, job: &str) -> Result<Answer> {
        let mut write = |out: &mut dyn Write| out.write_all(job.as_bytes());
        let answer = self.ask("POST /api/v1/jobs", Some(("application/json", &mut write)))?;
        answer.expect(201)
    }

    /// Submits a job as lines, each with a file.
    fn submit_lines(&mut self, head: &str, files: usize, target: &str) -> Result<Answer> {
        let mut write = |out: &mut dyn Write| {
            writeln!(out, "{head}")?;
            (0..files).try_for_each(|number| {
                let name = format!("{number:07}.dat");
                let source = format!("/data/run/{name}");
                writeln!(out, "{}", copy(&source, &format!("{target}/{name}")))
            })
        };
        let kind = "application/x-ndjson";
        let answer = self.ask("POST /api/v1/jobs", Some((kind, &mut write)))?;
        answer.expect(201)
    }

    /// Whether there is a job in a state.
    fn has(&mut self, state: &str) -> Result<bool> {
        let answer = self.ask(&format!("GET /api/v1/jobs?state={state}&limit=1"), None)?;
        Ok(!answer.expect(200)?.body.starts_with(br#"{"jobs":[]"#))
    }
}

impl Answer {
    fn expect(self, status: u16) -> Result<Self> {
        if self.status == status {
            return Ok(self);
        }
        let body = String::from_utf8_lossy(&self.body).into_owned();
        Err(format!("the service answered {}: {body}", self.status))
    }
}

/// The body of a request, each write of it a chunk.
struct Chunks<W>(W);

impl<W: Write> Write for Chunks<W> {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        write!(self.0, "{:x}\r\n", bytes.len())?;
        self.0.write_all(bytes)?;
        self.0.write_all(b"\r\n")?;
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        self.0.flush()
    }
}

impl<'a> Bench<'a> {
    fn new(program: &'a Path, disk: &'a Path, memory: &'a Path, guard: &'a Guard) -> Result<Self> {
        let root = memory.join("root");
        fs::create_dir(&root).map_err(text)?;
        let mut serve = Self::command(program, disk);
        serve.args(["serve", "--log", "off", "--listen", "127.0.0.1:0", "--root"]);
        let (server, address) = Process::start(guard, serve.arg(root), "listening on ")?;
        let files = format!("xdfs://{address}");
        // From now on it is known, and there is a key.
        run_to_end(Self::command(program, disk).args(["ls", &format!("{files}/")]))?;
        let data = disk.join("data");
        let mut serve = Self::command(program, disk);
        serve.args(["service", "--listen", "127.0.0.1:0", "--data"]);
        let (service, _) = Process::start(guard, serve.arg(&data), "open ")?;
        let url = fs::read_to_string(data.join("url")).map_err(text)?;
        let address = url.trim().trim_start_matches("http://").to_owned();
        let token = fs::read_to_string(data.join("token")).map_err(text)?;
        Ok(Self {
            program,
            disk,
            memory,
            files,
            _server: server,
            service,
            address,
            token: token.trim().to_owned(),
        })
    }

    fn command(program: &Path, folder: &Path) -> Command {
        let mut command = Command::new(program);
        command.env("XDFS_CONFIG_DIR", folder.join("config"));
        command.stdin(Stdio::null());
        command
    }

    fn connect(&self) -> Result<Connection> {
        let stream = TcpStream::connect(&self.address).map_err(text)?;
        stream.set_read_timeout(Some(PATIENCE)).map_err(text)?;
        stream.set_nodelay(true).map_err(text)?;
        Ok(Connection {
            stream: BufReader::new(stream),
            token: self.token.clone(),
        })
    }

    /// One job of a million files.
    fn lines(&self) -> Result<()> {
        let before = self.service.peak_mb();
        let began = Instant::now();
        let head = format!(r#"{{"version":1,"starts_at":"{LATER}","transfers":[]}}"#);
        self.connect()?.submit_lines(&head, FILES, &self.files)?;
        println!(
            "lines: a job of {FILES} files is submitted in {:.1} s; the service has used {} MB at \
             most ({before} before), and {:.1} s of the processor",
            began.elapsed().as_secs_f64(),
            self.service.peak_mb(),
            self.service.cpu_s(),
        );
        Ok(())
    }

    /// Jobs of one file of two bytes, submitted and done.
    fn jobs(&self) -> Result<()> {
        let source = self.memory.join("file");
        fs::write(&source, "ab").map_err(text)?;
        let began = Instant::now();
        self.submit(JOBS, |number| {
            let copy = copy(&source.display(), &format!("{}/{number}", self.files));
            format!(r#"{{"version":1,"transfers":[{copy}]}}"#)
        })?;
        let submitted = began.elapsed().as_secs_f64();
        let mut connection = self.connect()?;
        while connection.has("queued")? || connection.has("running")? {
            thread::sleep(Duration::from_millis(20));
        }
        let done = began.elapsed().as_secs_f64();
        for state in ["failed", "retrying", "cancelled"] {
            if connection.has(state)? {
                return Err(format!("a job is {state}"));
            }
        }
        let arrived = fs::read_dir(self.memory.join("root"))
            .map_err(text)?
            .count();
        if arrived != JOBS {
            return Err(format!("{arrived} files have arrived"));
        }
        println!(
            "jobs: {JOBS} jobs of one file are submitted in {submitted:.1} s and done in \
             {done:.1} s: {:.0} a second; the service has used {:.1} s of the processor",
            JOBS as f64 / done,
            self.service.cpu_s(),
        );
        Ok(())
    }

    /// Submits so many jobs over several connections at once.
    fn submit(&self, jobs: usize, job: impl Fn(usize) -> String + Sync) -> Result<()> {
        let next = AtomicUsize::new(0);
        let submit = || -> Result<()> {
            let mut connection = self.connect()?;
            loop {
                let number = next.fetch_add(1, Ordering::Relaxed);
                if number >= jobs {
                    return Ok(());
                }
                connection.submit(&job(number))?;
            }
        };
        thread::scope(|scope| {
            let threads: Vec<_> = (0..CONNECTIONS).map(|_| scope.spawn(submit)).collect();
            threads
                .into_iter()
                .try_for_each(|one| one.join().map_err(|_| "a thread has failed".to_owned())?)
        })
    }

    /// First bytes of lists when much is stored.
    fn lists(&self) -> Result<()> {
        let head =
            format!(r#"{{"version":1,"label":"files","starts_at":"{LATER}","transfers":[]}}"#);
        let answer = self.connect()?.submit_lines(&head, FILES, &self.files)?;
        let answer = String::from_utf8_lossy(&answer.body).into_owned();
        let id = answer.split(r#""id":""#).nth(1);
        let id = id.and_then(|rest| rest.split('"').next());
        let id = id.ok_or("the job has no id")?;
        let began = Instant::now();
        self.submit(STORED_JOBS, |number| {
            let source = format!("/data/{number}");
            let copy = copy(&source, &format!("{}/{number}", self.files));
            let terms = format!(r#""label":"run {number}","starts_at":"{LATER}""#);
            format!(r#"{{"version":1,{terms},"transfers":[{copy}]}}"#)
        })?;
        let size = fs::metadata(self.disk.join("data/service.db"))
            .map_err(text)?
            .len();
        println!(
            "lists: {STORED_JOBS} jobs, submitted in {:.1} s, and {FILES} files are stored, in {} \
             MB",
            began.elapsed().as_secs_f64(),
            size / 1_000_000,
        );
        let paths = [
            "/".to_owned(),
            "/?state=failed".to_owned(),
            "/?label=run+999".to_owned(),
            format!("/jobs/{id}"),
            format!("/jobs/{id}/transfers"),
            "/api/v1/jobs".to_owned(),
            "/api/v1/jobs?limit=1000".to_owned(),
            "/api/v1/jobs?state=queued".to_owned(),
            "/api/v1/jobs?state=running".to_owned(),
            "/api/v1/jobs?label=run%2077777".to_owned(),
            "/api/v1/jobs?label=nowhere".to_owned(),
            "/api/v1/jobs?state=queued&label=nowhere".to_owned(),
            format!("/api/v1/jobs/{id}"),
            format!("/api/v1/jobs/{id}/transfers?after=500000"),
            format!("/api/v1/jobs/{id}/transfers?state=failed"),
            "/metrics".to_owned(),
        ];
        for path in paths {
            self.first_bytes(&path)?;
        }
        Ok(())
    }

    /// Asks for a path some times, and prints the times until the first byte.
    fn first_bytes(&self, path: &str) -> Result<()> {
        let mut connection = self.connect()?;
        let mut times = Vec::new();
        let mut bytes = 0;
        for _ in 0..QUESTIONS {
            let answer = connection.ask(&format!("GET {path}"), None)?.expect(200)?;
            bytes = answer.body.len();
            times.push(answer.first_byte.as_secs_f64() * 1000.0);
        }
        println!("  {:6} ms {path} ({bytes} bytes)", spread(&times, 1)?);
        Ok(())
    }

    /// Requests while others hold connections.
    fn idle(&self) -> Result<()> {
        let head = format!(
            "GET /api/v1/jobs HTTP/1.1\r\nHost: localhost\r\nAuthorization: Bearer {}\r\n\r\n",
            self.token
        );
        let before = self.service.peak_mb();
        let mut streams = Vec::new();
        for _ in 0..IDLE {
            streams.push(TcpStream::connect(&self.address).map_err(text)?);
        }
        let mut slow = Vec::new();
        for _ in 0..SLOW {
            slow.push(TcpStream::connect(&self.address).map_err(text)?);
        }
        println!("idle: {IDLE} idle connections, and {SLOW} that send a byte now and then");
        let mut times = Vec::new();
        for byte in head.as_bytes().iter().take(head.len() - 1) {
            for stream in &mut slow {
                stream.write_all(&[*byte]).map_err(text)?;
            }
            // A connection that is new, as most are.
            let answer = self.connect()?.ask("GET /api/v1/jobs", None)?.expect(200)?;
            times.push(answer.first_byte.as_secs_f64() * 1000.0);
        }
        for stream in &mut slow {
            stream.write_all(b"\n").map_err(text)?;
            let mut said = [0; 12];
            stream.read_exact(&mut said).map_err(text)?;
            if said != *b"HTTP/1.1 200" {
                return Err("a slow request was not answered".to_owned());
            }
        }
        println!(
            "  {} ms /api/v1/jobs on a new connection; the service has used {} MB at most \
             ({before} before)",
            spread(&times, 1)?,
            self.service.peak_mb(),
        );
        Ok(())
    }

    /// The cost of copies over direct ones.
    fn copies(&self) -> Result<()> {
        let [large, tree] = sources(self.memory).map_err(text)?;
        self.copy(&large, &[], "1 GiB")?;
        self.copy(&tree, &["-r"], "a tree of 10,000 small files")
    }

    fn copy(&self, source: &Path, flags: &[&str], what: &str) -> Result<()> {
        let data = self.disk.join("data");
        let submit: [&str; 4] = [
            "submit",
            "--wait",
            "--data",
            data.to_str().unwrap_or_default(),
        ];
        let (mut direct, mut through, mut ratios) = (Vec::new(), Vec::new(), Vec::new());
        // The first turn warms up.
        for turn in 0..=COPIES {
            let time = |words: &[&str], name: &str| -> Result<f64> {
                let target = self.memory.join("root").join(name);
                let mut command = Self::command(self.program, self.disk);
                command.args(words).args(flags).arg(source);
                command.arg(format!("{}/{name}", self.files));
                let began = Instant::now();
                run_to_end(&mut command)?;
                let seconds = began.elapsed().as_secs_f64();
                remove(&target).map_err(text)?;
                Ok(seconds)
            };
            // In turn the first one.
            let (a, b) = match turn % 2 {
                0 => {
                    let a = time(&["cp"], &format!("direct{turn}"))?;
                    (a, time(&submit, &format!("job{turn}"))?)
                }
                _ => {
                    let b = time(&submit, &format!("job{turn}"))?;
                    (time(&["cp"], &format!("direct{turn}"))?, b)
                }
            };
            if turn > 0 {
                direct.push(a);
                through.push(b);
                ratios.push(b / a);
            }
        }
        println!(
            "copies: {what}, xdfs cp {} s, xdfs submit --wait {} s, {} times as long",
            spread(&direct, 3)?,
            spread(&through, 3)?,
            spread(&ratios, 2)?,
        );
        Ok(())
    }
}

/// Makes what is copied: a large file, and a tree of small ones.
fn sources(folder: &Path) -> io::Result<[PathBuf; 2]> {
    let large = folder.join("large");
    let block = vec![0x5a; 1 << 20];
    let mut file = fs::File::create(&large)?;
    for _ in 0..LARGE_MIB {
        file.write_all(&block)?;
    }
    let tree = folder.join("tree");
    for number in 0..SMALL_FILES {
        let folder = tree.join((number / 500).to_string());
        if number % 500 == 0 {
            fs::create_dir_all(&folder)?;
        }
        let content = vec![0x5a; 1 + number * 7919 % 8192];
        fs::write(folder.join(number.to_string()), content)?;
    }
    Ok([large, tree])
}

/// The cost of a server's metrics: the same copies to a server with them, which are read every
/// second, and to one without.
fn metrics(program: &Path, disk: &Path, memory: &Path, guard: &Guard) -> Result<()> {
    let port = server::free_port().map_err(text)?;
    let address = format!("127.0.0.1:{port}");
    let serve = |name: &str, flags: &[&str]| -> Result<(Process<'_>, String, PathBuf)> {
        let root = memory.join(name);
        fs::create_dir(&root).map_err(text)?;
        // The settings of the user who copies, so that both servers let the user in.
        let mut serve = Bench::command(program, disk);
        serve.args(["serve", "--log", "off", "--listen", "127.0.0.1:0"]);
        serve.args(flags).arg("--root").arg(&root);
        let (server, address) = Process::start(guard, &mut serve, "listening on ")?;
        let url = format!("xdfs://{address}");
        run_to_end(Bench::command(program, disk).args(["ls", &format!("{url}/")]))?;
        Ok((server, url, root))
    };
    let servers = [
        serve("without", &[])?,
        serve("with", &["--metrics", &address])?,
    ];
    let [large, tree] = sources(memory).map_err(text)?;
    let (stop, is_over) = mpsc::channel::<()>();
    let reader = thread::spawn(move || -> io::Result<usize> {
        let mut reads = 0;
        while let Err(RecvTimeoutError::Timeout) = is_over.recv_timeout(Duration::from_secs(1)) {
            let mut stream = TcpStream::connect(&address)?;
            write!(stream, "GET /metrics HTTP/1.0\r\nHost: {address}\r\n\r\n")?;
            let mut page = String::new();
            stream.read_to_string(&mut page)?;
            reads += usize::from(page.contains(" 200 ") && page.contains("# EOF"));
        }
        Ok(reads)
    });
    for (source, flags, what) in [
        (&large, &[][..], "1 GiB"),
        (&tree, &["-r"][..], "a tree of 10,000 small files"),
    ] {
        let mut seconds = [Vec::new(), Vec::new()];
        let mut cpu = [Vec::new(), Vec::new()];
        // The first turn warms up, and each is in turn the first one.
        for turn in 0..=COPIES {
            for at in [turn % 2, 1 - turn % 2] {
                let (server, url, root) = &servers[at];
                let mut copy = Bench::command(program, disk);
                copy.arg("cp").args(flags).arg(source);
                copy.arg(format!("{url}/copy{turn}"));
                let (before, began) = (server.cpu_s(), Instant::now());
                run_to_end(&mut copy)?;
                if turn > 0 {
                    seconds[at].push(began.elapsed().as_secs_f64());
                    cpu[at].push(server.cpu_s() - before);
                }
                remove(&root.join(format!("copy{turn}"))).map_err(text)?;
            }
        }
        let ratios = |values: &[Vec<f64>; 2]| -> Result<String> {
            let pairs = values[0].iter().zip(&values[1]);
            let ratios: Vec<_> = pairs.map(|(without, with)| with / without).collect();
            spread(&ratios, 2)
        };
        println!(
            "metrics: {what}, without {} s, with {} s, {} times as long, and {} times the \
             server's processor time",
            spread(&seconds[0], 3)?,
            spread(&seconds[1], 3)?,
            ratios(&seconds)?,
            ratios(&cpu)?,
        );
    }
    drop(stop);
    let reads = reader.join().map_err(|_| "the reader has failed")?;
    println!("  read {} times meanwhile", reads.map_err(text)?);
    Ok(())
}

fn remove(path: &PathBuf) -> io::Result<()> {
    match fs::metadata(path)?.is_dir() {
        true => fs::remove_dir_all(path),
        false => fs::remove_file(path),
    }
}

/// Runs a command, which has to succeed.
fn run_to_end(command: &mut Command) -> Result<()> {
    let output = command.output().map_err(text)?;
    match output.status.success() {
        true => Ok(()),
        false => Err(format!(
            "{command:?}: {}",
            String::from_utf8_lossy(&output.stderr)
        )),
    }
}

/// The median of a sample, with its smallest and largest value.
fn spread(values: &[f64], digits: usize) -> Result<String> {
    let Spread { median, low, high } = Spread::of(values).ok_or("there is no sample")?;
    Ok(format!(
        "{median:.digits$} ({low:.digits$} to {high:.digits$})"
    ))
}
