//! Where rates are measured: the files, the servers, and programs that are timed.

use std::fs;
use std::io;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use super::link::Far;
use super::tree;
use crate::grid::Grid;
use crate::process::{Running, search_path};

/// Bytes of the file.
const FILE_BYTES: usize = 1 << 30;
/// Longest time of a program.
const LONGEST: Duration = Duration::from_secs(900);
/// Units of the times in `/proc`, of a second.
const TICKS: f64 = 100.0;

/// A server, as a client reaches it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum At {
    Globus,
    Xdfs,
}

/// A running server.
pub(super) struct Server {
    running: Running,
    address: SocketAddr,
}

/// See the module documentation.
pub(super) struct Site {
    pub(super) xdfs: PathBuf,
    folder: PathBuf,
    pub(super) grid: Grid,
    /// Of Globus: for anonymous users, and with GSI.
    globus: [Server; 2],
    own: Server,
    /// Namespaces, and in the far one a server of Globus and one of ours.
    far: Option<(Far, [Server; 2])>,
}

/// What a program took.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Sample {
    pub(super) seconds: f64,
    pub(super) client_cpu: f64,
    pub(super) server_cpu: f64,
    /// Most memory of the server's process: all, and without files that are mapped.
    pub(super) resident: u64,
    pub(super) anonymous: u64,
}

fn failed(error: io::Error) -> String {
    error.to_string()
}

impl Site {
    /// Makes files and trees by their names, and starts servers beneath `folder`, also at a long
    /// link if it `is_far`.
    ///
    /// # Errors
    /// What doesn't come about.
    pub(super) fn new(
        xdfs: PathBuf,
        folder: &Path,
        payloads: &[&str],
        is_far: bool,
    ) -> Result<Self, String> {
        let here = folder.join("here");
        fs::create_dir_all(folder.join("there")).map_err(failed)?;
        fs::create_dir_all(&here).map_err(failed)?;
        for name in ["file", "b", "c"]
            .into_iter()
            .filter(|name| payloads.contains(name))
        {
            let made = match name {
                "b" => tree::make(&here.join(name), 2874, 56, (0, 100 << 10)),
                "c" => tree::make(&here.join(name), 100_000, 1000, (4096, 4096)),
                _ => fs::write(here.join(name), tree::Numbers::new().bytes(FILE_BYTES)),
            };
            made.map_err(failed)?;
            let mut copy = Command::new("cp");
            copy.arg("-r").arg(here.join(name));
            let status = copy.arg(folder.join("there")).status().map_err(failed)?;
            if !status.success() {
                return Err("copy the files".into());
            }
        }
        let grid = Grid::new(folder.join("grid"))?;
        let near = "127.0.0.1";
        let models = [
            start(folder, "globus", globus(&[], near, None)?)?,
            start(folder, "globus-gsi", globus(&[], near, Some(&grid))?)?,
        ];
        let own = start(folder, "xdfs", own(&[], &xdfs, folder, &grid, near)?)?;
        let far = match is_far.then(|| Far::new(folder)).transpose() {
            Ok(None) => None,
            Ok(Some(far)) => {
                let (within, at) = (far.within(1), far.address());
                let model = start(folder, "globus-far", globus(&within, at, None)?)?;
                let ours = self::own(&within, &xdfs, folder, &grid, at)?;
                let ours = start(folder, "xdfs-far", ours)?;
                let servers = [far_away(model, at)?, far_away(ours, at)?];
                Some((far, servers))
            }
            Err(cause) => {
                println!("no long link, so its rows are left out: {cause}");
                None
            }
        };
        Ok(Self {
            xdfs,
            folder: folder.to_owned(),
            grid,
            globus: models,
            own,
            far,
        })
    }

    /// Whether there is a long link.
    pub(super) fn has_far(&self) -> bool {
        self.far.is_some()
    }

    pub(super) fn server(&self, at: At, is_far: bool, is_protected: bool) -> Option<&Server> {
        match (&self.far, is_far, at) {
            (Some((_, [globus, _])), true, At::Globus) => Some(globus),
            (Some((_, [_, own])), true, At::Xdfs) => Some(own),
            (None, true, _) => None,
            (_, false, At::Globus) => Some(&self.globus[usize::from(is_protected)]),
            (_, false, At::Xdfs) => Some(&self.own),
        }
    }

    /// A path of this machine: what is sent from (`here`), or served (`there`).
    pub(super) fn path(&self, end: &str, name: &str) -> PathBuf {
        self.folder.join(end).join(name)
    }

    /// A program, in the near namespace of the long link if it is far.
    pub(super) fn command(&self, program: &Path, is_far: bool) -> Command {
        let mut command = match (&self.far, is_far) {
            (Some((far, _)), true) => {
                let [first, rest @ ..] = far.within(0);
                let mut command = Command::new(first);
                command.env("GLOBUS_HOSTNAME", "near.example");
                command.args(rest).arg(program);
                command
            }
            _ => Command::new(program),
        };
        self.grid.tell(&mut command);
        command
            .env("XDFS_CONFIG_DIR", self.folder.join("keys-client"))
            .env("XDFS_AGENT", "off");
        command
    }

    /// Runs a program that uses a server.
    ///
    /// # Errors
    /// What it said, if it has not succeeded.
    pub(super) fn time(&self, mut command: Command, server: &Server) -> Result<Sample, String> {
        let log = self.folder.join("log");
        let out = fs::File::create(&log).map_err(failed)?;
        command
            .stdin(Stdio::null())
            .stdout(out.try_clone().map_err(failed)?)
            .stderr(out);
        let id = server.running.id();
        let (own, its) = (cpu("self", true)?, cpu(&id.to_string(), false)?);
        let begun = Instant::now();
        let mut child = command.spawn().map_err(failed)?;
        let mut sample = Sample::default();
        let status = loop {
            if let Some(status) = child.try_wait().map_err(failed)? {
                break status;
            }
            if begun.elapsed() > LONGEST {
                // It may just have ended.
                let _ = child.kill();
            }
            sample.look(id);
            std::thread::sleep(Duration::from_millis(1));
        };
        sample.seconds = begun.elapsed().as_secs_f64();
        // The server's process of the session ends after the client.
        std::thread::sleep(Duration::from_millis(100));
        sample.client_cpu = cpu("self", true)? - own;
        sample.server_cpu = cpu(&id.to_string(), false)? - its;
        match status.success() {
            true => Ok(sample),
            false => Err(fs::read_to_string(&log).unwrap_or_default()),
        }
    }
}

impl Server {
    pub(super) fn address(&self) -> SocketAddr {
        self.address
    }
}

impl Sample {
    /// Takes note of the memory of a server and of the processes of its sessions.
    fn look(&mut self, id: u32) {
        let children = fs::read_to_string(format!("/proc/{id}/task/{id}/children"));
        let mut ids: Vec<String> = vec![id.to_string()];
        ids.extend(
            children
                .unwrap_or_default()
                .split_whitespace()
                .map(Into::into),
        );
        for id in ids {
            // It may have ended.
            let status = fs::read_to_string(format!("/proc/{id}/status")).unwrap_or_default();
            let field = |name: &str| {
                let line = status.lines().find_map(|line| line.strip_prefix(name));
                let number = line.and_then(|line| line.split_whitespace().next()?.parse().ok());
                number.unwrap_or(0)
            };
            self.resident = self.resident.max(field("VmRSS:"));
            self.anonymous = self.anonymous.max(field("RssAnon:"));
        }
    }
}

/// Seconds of processors that a process has taken: with its ended children, or those alone.
fn cpu(process: &str, is_of_children: bool) -> Result<f64, String> {
    let text = fs::read_to_string(format!("/proc/{process}/stat")).map_err(failed)?;
    let fields = text.rsplit(')').next().unwrap_or_default();
    let mut ticks = fields.split_whitespace().skip(11).take(4);
    let mut next = || ticks.next().and_then(|field| field.parse::<f64>().ok());
    let (user, system, of_user, of_system) = (next(), next(), next(), next());
    let children = of_user.unwrap_or(0.0) + of_system.unwrap_or(0.0);
    Ok(match is_of_children {
        true => children / TICKS,
        false => (children + user.unwrap_or(0.0) + system.unwrap_or(0.0)) / TICKS,
    })
}

fn start(folder: &Path, name: &str, mut command: Command) -> Result<Server, String> {
    let log = folder.join(format!("{name}.log"));
    let running = Running::start(&mut command, &log).map_err(failed)?;
    let address = running.line(|line| {
        let own = line.strip_prefix("GridFTP on ");
        let text = own.or_else(|| line.strip_prefix("Server listening at "))?;
        text.trim().rsplit(':').next()?.parse::<u16>().ok()
    });
    let port = address.ok_or_else(|| format!("{name} did not start: {}", running.said()))?;
    let ip = std::net::IpAddr::from([127, 0, 0, 1]);
    Ok(Server {
        running,
        address: SocketAddr::new(ip, port),
    })
}

fn far_away(mut server: Server, at: &str) -> Result<Server, String> {
    let ip = at.parse().map_err(|_| format!("{at:?} is no address"))?;
    server.address.set_ip(ip);
    Ok(server)
}

/// The words before a program, and it.
fn prefixed(within: &[&str], program: impl AsRef<std::ffi::OsStr>) -> Command {
    let mut command = match within {
        [] => Command::new(program.as_ref()),
        [first, rest @ ..] => {
            let mut command = Command::new(first);
            command.args(rest).arg(program.as_ref());
            command
        }
    };
    command.env("PATH", search_path());
    command
}

fn globus(within: &[&str], at: &str, grid: Option<&Grid>) -> Result<Command, String> {
    let mut command = prefixed(within, "globus-gridftp-server");
    if !within.is_empty() {
        command.env("GLOBUS_HOSTNAME", "far.example");
    }
    command.args(["-port", "0", "-control-interface", at]);
    command.args(["-data-interface", at, "-allow-root", "-no-detach"]);
    command.arg("-disable-usage-stats");
    match grid {
        Some(grid) => grid.tell_server(&mut command),
        None => {
            command.args(["-aa", "-anonymous-user", "root"]);
        }
    }
    Ok(command)
}

fn own(
    within: &[&str],
    xdfs: &Path,
    folder: &Path,
    grid: &Grid,
    at: &str,
) -> Result<Command, String> {
    let rights = "[\"read\", \"list\", \"create\", \"write\", \"delete\"]";
    let settings = format!(
        "folder = \"server-{at}\"\n{}[[export]]\nname = \"drop\"\npath = \"{}\"\npublic = true\n\
         anonymous = {rights}\n[[export.grant]]\nuser = \"root\"\nrights = {rights}\n",
        grid.settings(),
        folder.join("there").display(),
    );
    let file = folder.join(format!("{at}.toml"));
    fs::write(&file, settings).map_err(failed)?;
    let mut command = prefixed(within, xdfs);
    command
        .env("XDFS_CONFIG_DIR", folder.join("keys"))
        .args(["serve", "--listen=127.0.0.1:0"])
        .arg(format!("--gridftp={at}:0"))
        .arg(format!("--config={}", file.display()));
    Ok(command)
}

/// The processors of this machine.
pub(super) fn machine() -> String {
    let text = fs::read_to_string("/proc/cpuinfo").unwrap_or_default();
    let names = text.lines().filter(|line| line.starts_with("model name"));
    let count = names.count();
    let kernel = fs::read_to_string("/proc/sys/kernel/osrelease").unwrap_or_default();
    let version = kernel.split('-').next().unwrap_or_default().trim();
    format!("{count} processors, Linux {version}")
}

pub(super) fn congestion_control() -> String {
    let path = "/proc/sys/net/ipv4/tcp_congestion_control";
    fs::read_to_string(path)
        .unwrap_or_default()
        .trim()
        .to_owned()
}
