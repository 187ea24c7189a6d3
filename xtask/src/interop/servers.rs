//! The servers of the matrix: how each is started, and what it says to a command.

use std::fs;
use std::io::{BufRead as _, BufReader, Write as _};
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr, TcpListener, TcpStream};
use std::os::unix::fs::MetadataExt as _;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

use super::nodes::{self, Node};
use super::tools::{Kind, Tools};
use super::witness::watched;
use crate::process::{PATIENCE, Running, search_path, until};

/// What is special about a server.
#[derive(Clone, Debug, Default)]
pub(super) struct Special {
    pub(super) is_v6: bool,
    /// It speaks no newer version than TLS 1.2, if it uses OpenSSL.
    pub(super) is_older: bool,
    /// strace writes what goes over its connections to files that begin with this.
    pub(super) trace: Option<PathBuf>,
}

/// A running server, which serves one directory to anonymous users, and by GSI to one user.
pub(super) struct Server {
    pub(super) kind: Kind,
    running: Running,
    pub(super) address: SocketAddr,
    /// The served directory on this machine.
    root: PathBuf,
    folder: PathBuf,
    special: Special,
    /// What clients have to trust.
    pub(super) certificate: PathBuf,
    nodes: Vec<Node>,
}

impl Server {
    /// Starts a server with a new directory beneath `folder`.
    pub(super) fn start(
        kind: Kind,
        tools: &Tools,
        folder: &Path,
        is_v6: bool,
    ) -> Result<Self, String> {
        let special = Special {
            is_v6,
            ..Special::default()
        };
        Self::start_as(kind, tools, folder, special)
    }

    /// The same with data nodes.
    pub(super) fn with_nodes(kind: Kind, tools: &Tools, folder: &Path) -> Result<Self, String> {
        // They look for it when they start.
        fs::create_dir_all(folder.join("root/drop")).map_err(|error| error.to_string())?;
        let nodes = nodes::start(kind, tools, folder)?;
        Self::begin(kind, tools, folder, Special::default(), nodes)
    }

    /// The same with what is special about it.
    pub(super) fn start_as(
        kind: Kind,
        tools: &Tools,
        folder: &Path,
        special: Special,
    ) -> Result<Self, String> {
        Self::begin(kind, tools, folder, special, Vec::new())
    }

    fn begin(
        kind: Kind,
        tools: &Tools,
        folder: &Path,
        special: Special,
        nodes: Vec<Node>,
    ) -> Result<Self, String> {
        let root = folder.join("root/drop");
        fs::create_dir_all(&root).map_err(|error| error.to_string())?;
        let ip = match special.is_v6 {
            true => IpAddr::from(Ipv6Addr::LOCALHOST),
            false => IpAddr::from(Ipv4Addr::LOCALHOST),
        };
        let at = SocketAddr::new(ip, 0);
        let (running, address) = spawn(kind, tools, folder, at, &special, &nodes)?;
        Ok(Self {
            kind,
            running,
            nodes,
            address,
            root,
            certificate: match kind {
                Kind::Xdfs => folder.join("server"),
                _ => tools.certificate.clone(),
            }
            .join("server.crt"),
            folder: folder.to_owned(),
            special,
        })
    }

    /// Kills the server and its sessions, and starts it again at the same address.
    pub(super) fn kill_and_restart(&mut self, tools: &Tools) -> Result<(), String> {
        self.running.kill();
        let (kind, at) = (self.kind, self.address);
        let (special, nodes) = (&self.special, &self.nodes);
        (self.running, _) = spawn(kind, tools, &self.folder, at, special, nodes)?;
        Ok(())
    }

    /// Fails unless each data node has moved a part of a file of `bytes`.
    pub(super) fn check_stripes(&self, bytes: usize) -> Result<(), String> {
        nodes::check(self.kind, &self.nodes, bytes)
    }

    /// A path of this machine in the served directory.
    pub(super) fn disk(&self, name: &str) -> PathBuf {
        self.root.join(name)
    }

    /// The same for a client, from the root of the server.
    pub(super) fn path(&self, name: &str) -> String {
        match self.kind {
            Kind::Globus | Kind::Vsftpd => self.disk(name).display().to_string(),
            Kind::Xdfs => format!("/drop/{name}"),
        }
    }

    /// Sends a command after the login. Returns the first line of the final reply.
    pub(super) fn answer(&self, line: &str) -> Result<String, String> {
        let failed = |error: std::io::Error| format!("ask {}: {error}", self.kind.name());
        let stream = TcpStream::connect_timeout(&self.address, PATIENCE).map_err(failed)?;
        stream.set_read_timeout(Some(PATIENCE)).map_err(failed)?;
        let mut reader = BufReader::new(stream);
        let mut reply = String::new();
        // What is about security comes before the login.
        let login = ["USER anonymous", "PASS x"];
        let before = if line.starts_with("AUTH") {
            &[][..]
        } else {
            &login
        };
        for command in std::iter::once("")
            .chain(before.iter().copied())
            .chain([line])
        {
            if !command.is_empty() {
                write!(reader.get_mut(), "{command}\r\n").map_err(failed)?;
            }
            reply.clear();
            let mut first = String::new();
            loop {
                let mut line = String::new();
                if reader.read_line(&mut line).map_err(failed)? == 0 {
                    return Err(format!("{} has closed the connection", self.kind.name()));
                }
                if first.is_empty() {
                    first.clone_from(&line);
                }
                let is_last = line.len() > 3 && line.as_bytes()[3] == b' ';
                if is_last && line.as_bytes()[..3].iter().all(u8::is_ascii_digit) {
                    break;
                }
            }
            reply = first.trim_end().to_owned();
        }
        Ok(reply)
    }
}

/// What users may do with what xdfs serves.
const RIGHTS: &str = "[\"read\", \"list\", \"create\", \"write\", \"delete\"]";

/// Starts the program of a server at an address; port 0 is any free one.
fn spawn(
    kind: Kind,
    tools: &Tools,
    folder: &Path,
    at: SocketAddr,
    special: &Special,
    nodes: &[Node],
) -> Result<(Running, SocketAddr), String> {
    let log = folder.join("log");
    let finished = |command: &mut Command| {
        if special.is_older {
            command.env("OPENSSL_CONF", tools.grid.older_tls());
        }
        if let Some(trace) = &special.trace {
            *command = watched(command, trace);
        }
    };
    let failed = |error: std::io::Error| format!("start {}: {error}", kind.name());
    match kind {
        Kind::Globus => {
            let mut command = Command::new("globus-gridftp-server");
            // It looks for its own files by this path.
            command.env("PATH", search_path()).args(["-aa", "-port"]);
            command.arg(at.port().to_string());
            command.args(["-control-interface", &at.ip().to_string()]);
            let owner = fs::metadata("/proc/self").map_err(failed)?.uid();
            if owner == 0 {
                command.args(["-anonymous-user", "root", "-allow-root"]);
            }
            match nodes {
                [] => tools.grid.tell_server(&mut command),
                nodes => {
                    // They know nothing of certificates, and their server asks for none.
                    let all: Vec<_> = nodes.iter().map(|node| node.address.as_str()).collect();
                    command.args(["-r", &all.join(",")]);
                }
            }
            finished(&mut command);
            let running = Running::start(&mut command, &log).map_err(failed)?;
            if at.port() != 0 {
                // It tells only what it has chosen.
                let is_there = until(|| TcpStream::connect(at).is_ok());
                return reached(running, is_there.then_some(at));
            }
            let port = running.line(|line| {
                let address = line.strip_prefix("Server listening at ")?;
                address.trim().rsplit(':').next()?.parse().ok()
            });
            reached(running, port.map(|port| SocketAddr::new(at.ip(), port)))
        }
        Kind::Xdfs => {
            let root = folder.join("root/drop").display().to_string();
            let config = format!(
                "folder = \"server\"\nprotect = \"clear\"\n{}[[export]]\nname = \"drop\"\n\
                 path = \"{root}\"\npublic = true\nanonymous = {RIGHTS}\n\
                 [[export.grant]]\nuser = \"{}\"\nrights = {RIGHTS}\n{}",
                tools.grid.settings(),
                tools.grid.user(),
                xdfs_nodes(nodes)
            );
            let file = folder.join("xdfs.toml");
            fs::write(&file, config).map_err(failed)?;
            let mut command = Command::new(&tools.xdfs);
            command
                .env("XDFS_CONFIG_DIR", folder.join("keys"))
                .args(["serve", "--listen=127.0.0.1:0"])
                .arg(format!("--gridftp={at}"))
                .arg(format!("--config={}", file.display()));
            finished(&mut command);
            let running = Running::start(&mut command, &log).map_err(failed)?;
            let address = |line: &str| line.strip_prefix("GridFTP on ")?.parse().ok();
            let address = running.line(address);
            reached(running, address)
        }
        Kind::Vsftpd => {
            // It takes no port of the kernel's choice: another process may get it first, then
            // once more.
            for _ in 0..10 {
                let address = match at.port() {
                    0 => TcpListener::bind(at).and_then(|listener| listener.local_addr()),
                    _ => Ok(at),
                };
                let address = address.map_err(failed)?;
                let file = folder.join("vsftpd.conf");
                fs::write(&file, vsftpd_settings(tools, folder, address)).map_err(failed)?;
                let mut command = Command::new("vsftpd");
                command.env("PATH", search_path()).arg(&file);
                finished(&mut command);
                let mut running = Running::start(&mut command, &log).map_err(failed)?;
                let mut is_there = false;
                until(|| {
                    is_there = TcpStream::connect(address).is_ok();
                    is_there || !running.is_alive()
                });
                std::thread::sleep(Duration::from_millis(20));
                if is_there && running.is_alive() {
                    return Ok((running, address));
                }
            }
            Err("vsftpd did not start".into())
        }
    }
}

/// The settings of a server about its data nodes. They connect to those of another server.
fn xdfs_nodes(nodes: &[Node]) -> String {
    let mut text = String::new();
    if !nodes.is_empty() {
        text += "[gridftp]\nthird_party = true\n";
    }
    for Node { address, key, .. } in nodes {
        text += &format!("[[gridftp.node]]\naddress = \"{address}\"\nkey = \"{key}\"\n");
    }
    text
}

fn reached(running: Running, address: Option<SocketAddr>) -> Result<(Running, SocketAddr), String> {
    match address {
        Some(address) => Ok((running, address)),
        None => Err(format!("a server did not start: {}", running.said())),
    }
}

fn vsftpd_settings(tools: &Tools, folder: &Path, at: SocketAddr) -> String {
    let listen = match at {
        SocketAddr::V4(_) => format!("listen=YES\nlisten_address={}", at.ip()),
        SocketAddr::V6(_) => format!("listen_ipv6=YES\nlisten_address6={}", at.ip()),
    };
    format!(
        "{listen}\nlisten_port={}\nbackground=NO\nanonymous_enable=YES\nanon_root={}\n\
         write_enable=YES\nanon_upload_enable=YES\nanon_mkdir_write_enable=YES\n\
         anon_other_write_enable=YES\nanon_umask=022\nanon_world_readable_only=NO\n\
         run_as_launching_user=YES\nseccomp_sandbox=NO\nssl_enable=YES\nallow_anon_ssl=YES\n\
         force_anon_data_ssl=NO\nforce_anon_logins_ssl=NO\nssl_ciphers=HIGH\n\
         rsa_cert_file={cert}/server.crt\nrsa_private_key_file={cert}/server.key\n",
        at.port(),
        folder.join("root").display(),
        cert = tools.certificate.display(),
    )
}
