//! `xdfs demo`: a demonstration on one machine, with real files and a real server.
//!
//! All files are in a temporary directory that is removed at the end, even after a failure or
//! Ctrl-C. The large file is pseudo-random, so that holes or compression can't make it cheaper.

use std::fs::File;
use std::io::{Read as _, Write as _};
use std::path::{Path, PathBuf};
use std::thread::JoinHandle;
use std::time::{Duration, Instant, SystemTime};

use xdfs::security::{
    ClientSecurity, Credential, Fingerprint, Level, NewHosts, ServerSecurity, TrustPolicy,
};
use xdfs::settings::user_name;
use xdfs::{
    Address, Client, ClientOptions, Code, Fault, RemotePlace, ServerBuilder, ServerHandle,
    TransferOptions, TransferResult, TransferRoute,
};

use crate::console::Console;
use crate::exit_codes::SUCCESS;
use crate::flags::{DemoFlags, OutputFlags};
use crate::human;
use crate::interrupt::Interrupt;
use crate::progress;
use crate::report::{Label, Reporter, Run, print};
use crate::session::{follow, local_file};

/// Name of the large file.
const LARGE: &str = "large.bin";

/// The small files and their sizes, which are edge cases.
const SMALL: &[(&str, u64)] = &[
    ("notes/readme.txt", 1_234),
    ("notes/empty.txt", 0),
    ("data/one-byte.bin", 1),
    ("data/one-block.bin", 1 << 20),
    ("data/one-block-and-a-byte.bin", (1 << 20) + 1),
];

/// Lifetime of the client's ticket.
const TICKET_LIFE: Duration = Duration::from_secs(600);

/// Bytes generated or compared at a time.
const CHUNK: usize = 1 << 20;

/// Runs the command and returns the exit code.
pub(crate) fn run(flags: DemoFlags) -> u8 {
    match demo(flags) {
        Ok(()) => SUCCESS,
        Err(fault) => {
            Console::new(OutputFlags::default()).error(&fault);
            fault.exit_code()
        }
    }
}

fn demo(flags: DemoFlags) -> Result<(), Fault> {
    let temp = TempDir::new()?;
    let path = temp.0.clone();
    let interrupt = Interrupt::install(move || {
        let _ = std::fs::remove_dir_all(&path);
    })?;
    interrupt.orderly(true);
    let [tree, root, back] = ["tree", "server", "back"].map(|name| temp.0.join(name));
    print_line("1. making a tree with one large file and a few small ones")?;
    make_tree(&tree, flags.size, &interrupt)?;
    for dir in [&root, &back] {
        make_directories(dir)?;
    }
    print_line(&format!(
        "   {} of {}, and {} from 0 bytes to a block and a byte",
        LARGE,
        human::size(flags.size),
        human::count(SMALL.len() as u64, "file"),
    ))?;

    let server = RunningServer::start(&root, temp.0.join("keys"))?;
    print_line(&format!(
        "2. serving an empty directory on {}, by the key {}",
        server.place.address, server.fingerprint
    ))?;
    print_line("   all channels are encrypted (TLS 1.3), and a ticket lets the client in")?;
    let options = ClientOptions {
        channels: Some(flags.channels),
        // All channels must exist before one is broken.
        strict: true,
        security: Some(server.guest(&temp.0)),
        ..ClientOptions::default()
    };
    let client = Client::connect(&server.place, options)?;
    let stage = Stage {
        client: &client,
        interrupt: &interrupt,
    };

    print_line(&format!(
        "3. uploading over {}, and breaking one in the middle of the large file",
        human::count(flags.channels.into(), "channel")
    ))?;
    // First, so that the session is open when the large file starts.
    stage.small_files("uploaded", |stage, name| {
        let route = TransferRoute::Upload {
            from: local_file(tree.join(name)),
            to: server_path(name),
        };
        stage.copy(name, &route)
    })?;
    let (large, broken_at) = stage.upload_and_break(&tree, flags.size)?;
    match broken_at {
        Some(time) => print_line(&format!(
            "   a channel was broken after {}; the others took over what it had not confirmed",
            human::seconds(time.as_secs_f64())
        )),
        None => {
            print_line("   it was through before a channel could be broken; try a larger --size")
        }
    }?;
    print_result(LARGE, &large)?;

    print_line("4. downloading everything again")?;
    let route = TransferRoute::Download {
        from: server_path(LARGE),
        to: local_file(back.join(LARGE)),
    };
    print_result(LARGE, &stage.copy(LARGE, &route)?)?;
    stage.small_files("downloaded", |stage, name| {
        let route = TransferRoute::Download {
            from: server_path(name),
            to: local_file(back.join(name)),
        };
        stage.copy(name, &route)
    })?;

    print_line("5. comparing every byte")?;
    for name in std::iter::once(LARGE).chain(SMALL.iter().map(|(name, _)| *name)) {
        for copy in [&root, &back] {
            compare(&tree.join(name), &copy.join(name), &interrupt)?;
        }
    }
    print_line("   all files are identical, on the server and back here")?;
    client.close();
    server.stop()?;
    drop(temp);
    print_line("done: the server has ended and the temporary directory is gone")?;
    Ok(())
}

/// A time at which the large file is certainly in flight: no current machine writes and
/// synchronises a file at 4 GB/s from its first byte on, and two seconds are long enough.
fn middle(size: u64) -> Duration {
    Duration::from_nanos(size / 4).clamp(Duration::from_millis(5), Duration::from_secs(2))
}

fn print_line(text: &str) -> Result<(), Fault> {
    print(format!("{text}\n"))
}

fn print_result(name: &str, result: &TransferResult) -> Result<(), Fault> {
    print_line(&format!("   {name}: {}", progress::result(result)))?;
    print_line(&format!("   {}", progress::verdict(&result.time_shares)))
}

fn server_path(name: &str) -> Vec<u8> {
    format!("/{name}").into_bytes()
}

/// The session of the demonstration, and its output.
struct Stage<'a> {
    client: &'a Client,
    interrupt: &'a Interrupt,
}

impl Stage<'_> {
    fn reporter(&self) -> Reporter {
        // Redrawn lines on a terminal are fine; plain progress lines would clutter the output.
        let quiet = !Console::new(OutputFlags::default()).is_terminal();
        Reporter::new(
            OutputFlags {
                quiet,
                ..OutputFlags::default()
            },
            Run::default(),
        )
    }

    fn copy(&self, name: &str, route: &TransferRoute) -> Result<TransferResult, Fault> {
        let label = Label {
            source: name.into(),
            target: name.into(),
        };
        let mut reporter = self.reporter();
        let running = self.client.transfer(route, &TransferOptions::default())?;
        let result = follow(
            running,
            &label,
            &mut reporter,
            self.interrupt,
            |_: &mut Reporter| (),
            || (),
        );
        reporter.console().clear();
        result
    }

    /// Uploads the large file, and breaks a channel. Returns the time of that, if it happened.
    fn upload_and_break(
        &self,
        tree: &Path,
        size: u64,
    ) -> Result<(TransferResult, Option<Duration>), Fault> {
        let route = TransferRoute::Upload {
            from: local_file(tree.join(LARGE)),
            to: server_path(LARGE),
        };
        let label = Label {
            source: LARGE.into(),
            target: LARGE.into(),
        };
        let mut reporter = self.reporter();
        let mut running = self.client.transfer(&route, &TransferOptions::default())?;
        let started = Instant::now();
        let moment = middle(size);
        while started.elapsed() < moment && !running.is_finished() {
            let left = moment.saturating_sub(started.elapsed());
            let _ = running.progress(left.min(Duration::from_millis(50)));
            if self.interrupt.requested() {
                break;
            }
        }
        let broken_at = (!running.is_finished()).then(|| {
            self.client.break_channel();
            started.elapsed()
        });
        let result = follow(
            running,
            &label,
            &mut reporter,
            self.interrupt,
            |_: &mut Reporter| (),
            || (),
        );
        reporter.console().clear();
        Ok((result?, broken_at))
    }

    fn small_files(
        &self,
        done: &str,
        copy: impl Fn(&Self, &str) -> Result<TransferResult, Fault>,
    ) -> Result<(), Fault> {
        let mut seconds = 0.0;
        for (name, _) in SMALL {
            seconds += copy(self, name)?.seconds;
        }
        let files = human::count(SMALL.len() as u64, "small file");
        print_line(&format!("   {files} {done} in {}", human::seconds(seconds)))
    }
}

/// A server in this process.
struct RunningServer {
    place: RemotePlace,
    fingerprint: Fingerprint,
    ticket: String,
    handle: ServerHandle,
    thread: JoinHandle<Result<(), Fault>>,
}

impl RunningServer {
    /// Serves `root` to clients with the ticket; the server's own files are in `keys`.
    fn start(root: &Path, keys: PathBuf) -> Result<Self, Fault> {
        let internal = |cause: &str| Fault::new(Code::Internal, "start the server", cause);
        let server = ServerBuilder {
            listen: vec![
                Address::Host {
                    host: "127.0.0.1".into(),
                    port: 0,
                }
                .into(),
            ],
            root: root.into(),
            security: Some(ServerSecurity::new(keys, user_name())),
            ..ServerBuilder::default()
        }
        .bind()?;
        let address = server.addresses().into_iter().next();
        let address = address.ok_or_else(|| internal("it has no address"))?;
        let (Some(fingerprint), Some(tickets)) = (server.fingerprint(), server.tickets()) else {
            return Err(internal("it has no protection"));
        };
        let ticket = tickets.issue(TICKET_LIFE, 1)?;
        let handle = server.handle();
        let thread = std::thread::Builder::new()
            .name("demo-server".into())
            .spawn(move || server.run())
            .map_err(|e| Fault::from_io("start the server", "", &e))?;
        Ok(Self {
            place: RemotePlace {
                user: None,
                address,
                path: Vec::new(),
                invitation: xdfs::Invitation::default(),
                profile: None,
                stack: None,
            },
            fingerprint,
            ticket,
            handle,
            thread,
        })
    }

    /// The client's trust and credentials, which don't touch the user's own files.
    fn guest(&self, folder: &Path) -> ClientSecurity {
        ClientSecurity {
            trust: TrustPolicy {
                known_hosts: folder.join("known_hosts"),
                pins: vec![self.fingerprint],
                roots: Vec::new(),
                system_roots: false,
                new_hosts: NewHosts::Refuse,
            },
            credentials: vec![Credential::Ticket(self.ticket.clone())],
            level: Level::Private,
        }
    }

    fn stop(self) -> Result<(), Fault> {
        self.handle.shutdown();
        self.thread.join().unwrap_or_else(|_| {
            Err(Fault::new(
                Code::Internal,
                "stop the server",
                "its thread panicked",
            ))
        })
    }
}

/// A temporary directory, removed when dropped.
#[derive(Debug)]
struct TempDir(PathBuf);

impl TempDir {
    fn new() -> Result<Self, Fault> {
        let nanos = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH);
        let nanos = nanos.unwrap_or(Duration::ZERO).as_nanos();
        let name = format!("xdfs-demo-{}-{nanos}", std::process::id());
        let path = std::env::temp_dir().join(name);
        #[cfg_attr(not(unix), expect(unused_mut, reason = "there are no modes to set"))]
        let mut builder = std::fs::DirBuilder::new();
        #[cfg(unix)]
        {
            use std::os::unix::fs::DirBuilderExt as _;
            builder.mode(0o700);
        }
        // Fails if the name exists, so that other files are never removed.
        builder
            .create(&path)
            .map_err(|e| fault("make the temporary directory", &path, &e))?;
        Ok(Self(path))
    }
}

impl Drop for TempDir {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.0);
    }
}

fn fault(operation: &str, path: &Path, error: &std::io::Error) -> Fault {
    Fault::from_io(operation, path.as_os_str().as_encoded_bytes(), error)
}

fn make_directories(root: &Path) -> Result<(), Fault> {
    for dir in ["notes", "data"] {
        let dir = root.join(dir);
        std::fs::create_dir_all(&dir).map_err(|e| fault("make the directory", &dir, &e))?;
    }
    Ok(())
}

fn make_tree(tree: &Path, size: u64, interrupt: &Interrupt) -> Result<(), Fault> {
    make_directories(tree)?;
    make_file(&tree.join(LARGE), size, 1, interrupt)?;
    for (seed, (name, size)) in (2..).zip(SMALL) {
        make_file(&tree.join(name), *size, seed, interrupt)?;
    }
    Ok(())
}

/// Pseudo-random numbers: the splitmix64 generator.
struct Noise(u64);

impl Noise {
    fn fill(&mut self, buffer: &mut [u8]) {
        for piece in buffer.chunks_mut(8) {
            self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
            let mut z = self.0;
            z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
            z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
            z ^= z >> 31;
            piece.copy_from_slice(&z.to_le_bytes()[..piece.len()]);
        }
    }
}

fn make_file(path: &Path, size: u64, seed: u64, interrupt: &Interrupt) -> Result<(), Fault> {
    let failed = |e: std::io::Error| fault("write", path, &e);
    let mut file = File::create_new(path).map_err(failed)?;
    let mut noise = Noise(seed);
    let mut buffer = vec![0; CHUNK];
    let mut left = size;
    while left > 0 {
        stopped(interrupt)?;
        let n = usize::try_from(left).unwrap_or(usize::MAX).min(CHUNK);
        noise.fill(&mut buffer[..n]);
        file.write_all(&buffer[..n]).map_err(failed)?;
        left -= n as u64;
    }
    Ok(())
}

fn stopped(interrupt: &Interrupt) -> Result<(), Fault> {
    if interrupt.requested() {
        Err(Interrupt::fault("show the demo"))
    } else {
        Ok(())
    }
}

/// Compares two files byte for byte.
fn compare(original: &Path, copy: &Path, interrupt: &Interrupt) -> Result<(), Fault> {
    let open = |path: &Path| File::open(path).map_err(|e| fault("open", path, &e));
    let (mut a, mut b) = (open(original)?, open(copy)?);
    let (mut left, mut right) = (vec![0; CHUNK], vec![0; CHUNK]);
    let mut offset = 0_u64;
    loop {
        stopped(interrupt)?;
        let n = read_full(&mut a, &mut left).map_err(|e| fault("read", original, &e))?;
        let m = read_full(&mut b, &mut right).map_err(|e| fault("read", copy, &e))?;
        if left[..n] != right[..m] {
            let same = left[..n]
                .iter()
                .zip(&right[..m])
                .take_while(|(a, b)| a == b)
                .count();
            let cause = format!(
                "it differs from the original at byte {}",
                offset + same as u64
            );
            return Err(Fault::new(Code::IntegrityMismatch, "compare", cause)
                .path(copy.as_os_str().as_encoded_bytes())
                .hint("this is a bug, please report it"));
        }
        if n == 0 {
            return Ok(());
        }
        offset += n as u64;
    }
}

fn read_full(file: &mut File, buffer: &mut [u8]) -> std::io::Result<usize> {
    let mut filled = 0;
    while filled < buffer.len() {
        match file.read(&mut buffer[filled..])? {
            0 => break,
            n => filled += n,
        }
    }
    Ok(filled)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_directory_vanishes_with_its_value() {
        let temp = TempDir::new().unwrap();
        let path = temp.0.clone();
        make_tree(&path.join("tree"), 3_000_000, &Interrupt::default()).unwrap();
        assert_eq!(
            std::fs::metadata(path.join("tree").join(LARGE))
                .unwrap()
                .len(),
            3_000_000
        );
        drop(temp);
        assert!(!path.exists());
    }

    #[test]
    fn a_difference_of_one_bit_or_byte_is_found() {
        let temp = tempfile::tempdir().unwrap();
        let interrupt = Interrupt::default();
        let [a, b, c, d] = ["a", "b", "c", "d"].map(|name| temp.path().join(name));
        make_file(&a, 2_500_001, 9, &interrupt).unwrap();
        make_file(&b, 2_500_001, 9, &interrupt).unwrap();
        compare(&a, &b, &interrupt).unwrap();
        make_file(&c, 2_500_000, 9, &interrupt).unwrap();
        let shorter = compare(&a, &c, &interrupt).unwrap_err();
        assert!(shorter.cause.ends_with("byte 2500000"), "{}", shorter.cause);
        let mut bytes = std::fs::read(&a).unwrap();
        bytes[1_700_000] ^= 1;
        std::fs::write(&d, bytes).unwrap();
        let changed = compare(&a, &d, &interrupt).unwrap_err();
        assert!(changed.cause.ends_with("byte 1700000"), "{}", changed.cause);
        assert_eq!(changed.code.exit_code(), 8);
    }

    #[test]
    fn a_stop_is_seen_while_files_are_made_and_compared() {
        let temp = tempfile::tempdir().unwrap();
        let interrupt = Interrupt::default();
        let file = temp.path().join("a");
        make_file(&file, 10, 1, &interrupt).unwrap();
        interrupt.request();
        assert_eq!(
            compare(&file, &file, &interrupt).unwrap_err().code,
            Code::Cancelled
        );
        let other = temp.path().join("b");
        assert!(make_file(&other, 10, 1, &interrupt).is_err());
    }
}
