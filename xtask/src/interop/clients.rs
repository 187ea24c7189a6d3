//! The clients of the matrix: the command with which each does what a row asks for.
//!
//! What a client doesn't offer is shown by its own help, in which the words of [`Lack`] don't
//! occur.

use std::path::Path;
use std::process::Command;

use super::servers::Server;
use super::tools::Tools;
use crate::process::run;

/// A client, which is a column of the matrix.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Client {
    Curl,
    Ftplib,
    Globus,
    Lftp,
    Xdfs,
}

/// Which way bytes go.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Direction {
    Down,
    Up,
}

/// What TLS protects, and which version is asked for.
#[derive(Clone, Copy, Debug)]
pub(super) struct Tls {
    /// Data too (PROT P), and not the control connection alone (PROT C).
    pub(super) data: bool,
    /// The only version, such as `1.2`.
    pub(super) version: &'static str,
}

/// What is asked of data connections in GSI.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Level {
    /// DCAU N.
    Bare,
    /// DCAU A and PROT C.
    Clear,
    /// DCAU A and PROT P.
    Private,
    /// DCAU A and PROT S.
    Safe,
}

/// A session with GSI.
#[derive(Clone, Copy, Debug)]
pub(super) struct Gsi {
    pub(super) level: Level,
    /// The client speaks no newer version than TLS 1.2.
    pub(super) is_older: bool,
    pub(super) proxy: &'static str,
}

/// How a row wants bytes to be moved.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct How {
    /// MODE E with so many data connections.
    pub(super) streams: Option<u8>,
    /// Offset and length of the part that is moved.
    pub(super) part: Option<(usize, usize)>,
    pub(super) tls: Option<Tls>,
    pub(super) gsi: Option<Gsi>,
    /// A checksum is compared.
    pub(super) checks: bool,
    /// A tree is synchronised.
    pub(super) sync: bool,
    /// Commands are sent ahead of replies.
    pub(super) pipelines: bool,
    /// So many control connections.
    pub(super) concurrency: Option<u8>,
    /// Failed transfers are tried again.
    pub(super) retries: bool,
    /// Over the data nodes of the server.
    pub(super) stripes: bool,
    /// By RETR and STOR, where the server has GET and PUT too.
    pub(super) no_get_put: bool,
    /// By GET and PUT, which globus-url-copy uses by itself.
    pub(super) get_put: bool,
}

/// What a client doesn't offer.
pub(super) struct Lack {
    /// Words that its help would have.
    words: &'static [&'static str],
    /// What it is.
    pub(super) what: &'static str,
}

/// Says that a client doesn't offer something.
fn lacks<T>(what: &'static str, words: &'static [&'static str]) -> Result<T, Lack> {
    Err(Lack { words, what })
}

/// Bytes a second of clients that can be slowed, where a server is killed meanwhile.
pub(super) const RATE: usize = 40_000_000;

const NO_EXTENDED: &str = "MODE E";
const EXTENDED: &[&str] = &["mode e", "mode_e", "eblock", "extended block"];
const NO_CHOICE: &str = "GET and PUT in place of RETR and STOR";
const CHOICE: &[&str] = &["gridftp2", "gridftp v2", "no-g2", "getput"];
const NO_STRIPES: &str = "stripes (SPAS, SPOR)";
const STRIPES: &[&str] = &["stripe", "striping"];
const NO_TREES: &str = "trees";
const NO_THIRD: &str = "transfers between two servers";
const NO_GSI: &str = "GSI";

impl Client {
    pub(super) const ALL: [Self; 5] = [
        Self::Globus,
        Self::Xdfs,
        Self::Lftp,
        Self::Curl,
        Self::Ftplib,
    ];

    pub(super) fn name(self) -> &'static str {
        match self {
            Self::Curl => "curl",
            Self::Ftplib => "ftplib",
            Self::Globus => "globus-url-copy",
            Self::Lftp => "lftp",
            Self::Xdfs => "xdfs",
        }
    }

    /// What the client says about itself in full.
    pub(super) fn help(self, tools: &Tools, log: &Path) -> String {
        let mut command = match self {
            Self::Curl => program("curl", &["--help", "all"]),
            Self::Ftplib => {
                let names = "import ftplib; print(dir(ftplib.FTP), dir(ftplib.FTP_TLS))";
                program("python3", &["-c", names])
            }
            Self::Globus => program("globus-url-copy", &["-help"]),
            Self::Lftp => program(
                "lftp",
                &["--norc", "-c", "help; set -a; help mirror; help get"],
            ),
            Self::Xdfs => {
                let mut command = Command::new(&tools.xdfs);
                command.args(["cp", "--help"]);
                command
            }
        };
        let help = run(&mut command, log);
        let (Ok(help) | Err(help)) = help;
        help.to_lowercase()
    }

    /// A file there or back.
    ///
    /// # Errors
    /// The client doesn't offer it.
    pub(super) fn file(
        self,
        tools: &Tools,
        server: &Server,
        how: &How,
        direction: Direction,
        name: &str,
        local: &Path,
    ) -> Result<Command, Lack> {
        if how.gsi.is_some() && !matches!(self, Self::Globus | Self::Xdfs) {
            return lacks(NO_GSI, &["gsiftp", "grid security"]);
        }
        let mut command = match self {
            Self::Globus => globus(tools, server, how)?,
            Self::Xdfs => xdfs(tools, server, how, "cp", local)?,
            Self::Curl => curl(server, how, direction)?,
            Self::Lftp => return lftp_file(server, how, direction, name, local),
            Self::Ftplib => return ftplib_file(server, how, direction, name, local),
        };
        let url = self.url(server, how, name);
        let place = local.display().to_string();
        match (self, direction) {
            (Self::Globus, Direction::Down) => command.args([url, format!("file://{place}")]),
            (Self::Globus, Direction::Up) => command.args([format!("file://{place}"), url]),
            (Self::Curl, Direction::Down) => command.args([url, "-o".into(), place]),
            (Self::Curl, Direction::Up) => command.args(["-T".into(), place, url]),
            (_, Direction::Down) => command.args([url, place]),
            (_, Direction::Up) => command.args([place, url]),
        };
        Ok(command)
    }

    /// A tree there or back: the contents of a directory.
    ///
    /// # Errors
    /// The client doesn't offer it.
    pub(super) fn tree(
        self,
        tools: &Tools,
        server: &Server,
        how: &How,
        direction: Direction,
        name: &str,
        local: &Path,
    ) -> Result<Command, Lack> {
        let url = self.url(server, how, name) + "/";
        let place = local.display().to_string() + "/";
        let mut command = match self {
            Self::Curl => return lacks(NO_TREES, &["recurs", "mirror"]),
            Self::Ftplib => return lacks(NO_TREES, &["recurs", "mirror", "walk", "tree"]),
            Self::Lftp => return lftp_tree(server, how, direction, name, local),
            Self::Globus => {
                let mut command = globus(tools, server, how)?;
                command.args(["-r", "-cd"]);
                command
            }
            Self::Xdfs if how.sync => xdfs(tools, server, how, "sync", local)?,
            Self::Xdfs => {
                let mut command = xdfs(tools, server, how, "cp", local)?;
                command.arg("-r");
                command
            }
        };
        let place = match self {
            Self::Globus => format!("file://{place}"),
            _ => place,
        };
        match direction {
            Direction::Down => command.args([url, place]),
            Direction::Up => command.args([place, url]),
        };
        Ok(command)
    }

    /// The names in a directory.
    pub(super) fn list(self, tools: &Tools, server: &Server, name: &str, local: &Path) -> Command {
        let how = How::default();
        let url = self.url(server, &how, name) + "/";
        match self {
            Self::Curl => program("curl", &["--silent", "--show-error", &url]),
            Self::Globus => program("globus-url-copy", &["-list", &url]),
            Self::Lftp => lftp(server, &how, &format!("ls '{}'", server.path(name))),
            Self::Ftplib => ftplib(server, &how, "list", &[&server.path(name)]),
            Self::Xdfs => {
                let mut command = Command::new(&tools.xdfs);
                command.env("XDFS_CONFIG_DIR", local.with_file_name("client"));
                command.args(["ls", "--insecure", &url]);
                command
            }
        }
    }

    /// A file from one server to another, without a way through this machine.
    ///
    /// # Errors
    /// The client doesn't offer it.
    pub(super) fn third_party(
        self,
        tools: &Tools,
        how: &How,
        from: (&Server, &str),
        to: (&Server, &str),
        local: &Path,
    ) -> Result<Command, Lack> {
        let [source, target] = [from, to].map(|(server, name)| self.url(server, how, name));
        match self {
            Self::Curl | Self::Ftplib | Self::Lftp if how.stripes => lacks(NO_STRIPES, STRIPES),
            Self::Curl => lacks(NO_THIRD, &["3p-", "third", "fxp"]),
            Self::Lftp | Self::Ftplib if how.gsi.is_some() => {
                lacks(NO_GSI, &["gsiftp", "grid security"])
            }
            Self::Globus => {
                let mut command = globus(tools, to.0, how)?;
                command.args([source, target]);
                Ok(command)
            }
            Self::Lftp => {
                let (host, file) = (to.0.address, from.0.path(from.1));
                let target = format!(
                    "ftp://{host}/%2F{}",
                    to.0.path(to.1).trim_start_matches('/')
                );
                let script = format!(
                    "set ftp:use-fxp true; set ftp:fxp-force true; get '{file}' -o '{target}'"
                );
                Ok(lftp(from.0, how, &script))
            }
            Self::Ftplib => {
                let address = to.0.address.to_string();
                let paths = [from.0.path(from.1), to.0.path(to.1)];
                let words = [paths[0].as_str(), &address, &paths[1]];
                Ok(ftplib(from.0, how, "third", &words))
            }
            Self::Xdfs => {
                let mut command = xdfs(tools, to.0, how, "cp", local)?;
                command.args(["--between=direct".to_owned(), source, target]);
                Ok(command)
            }
        }
    }

    /// The URL of a file.
    fn url(self, server: &Server, how: &How, name: &str) -> String {
        let scheme = match (self, how.tls, how.gsi) {
            (_, _, Some(_)) => "gsiftp",
            (Self::Xdfs, Some(_), _) => "ftps",
            _ => "ftp",
        };
        // In the certificate there is a name.
        let host = match how.tls.is_some() || how.gsi.is_some() {
            true => format!("localhost:{}", server.address.port()),
            false => server.address.to_string(),
        };
        // To xdfs and curl, a path with one slash begins in the directory of the login.
        let root = match self {
            Self::Xdfs | Self::Curl => "/",
            _ => "",
        };
        format!("{scheme}://{host}{root}{}", server.path(name))
    }
}

impl Lack {
    /// Whether the client's help doesn't have it.
    pub(super) fn is_true(&self, help: &str) -> bool {
        !self.words.iter().any(|word| help.contains(word))
    }
}

fn program(name: &str, words: &[&str]) -> Command {
    let mut command = Command::new(name);
    command.args(words);
    command
}

/// Has a program of the user's find its proxy, and use the wanted version of TLS.
fn tell_gsi(tools: &Tools, gsi: Gsi, command: &mut Command) {
    tools.grid.tell_proxy(command, gsi.proxy);
    if gsi.is_older {
        // The tools of Globus overrule what OpenSSL is told.
        command
            .env("OPENSSL_CONF", tools.grid.older_tls())
            .env("GLOBUS_GSSAPI_MAX_TLS_PROTOCOL", "TLS1_2_VERSION");
    }
}

fn globus(tools: &Tools, server: &Server, how: &How) -> Result<Command, Lack> {
    if how.tls.is_some() {
        return lacks("FTPS (AUTH TLS)", &["ftps", "auth tls"]);
    }
    let mut command = Command::new("globus-url-copy");
    if let Some(gsi) = how.gsi {
        tell_gsi(tools, gsi, &mut command);
        // It tells the commands.
        command.arg("-dbg").args(match gsi.level {
            Level::Bare => Some("-nodcau"),
            Level::Clear => None,
            Level::Private => Some("-dcpriv"),
            Level::Safe => Some("-dcsafe"),
        });
    }
    if let Some(streams) = how.streams {
        command.args(["-fast", "-p", &streams.to_string()]);
    }
    if let Some((offset, length)) = how.part {
        command.args(["-off", &offset.to_string(), "-len", &length.to_string()]);
    }
    for (is_wanted, words) in [
        (how.checks, &["-verify-checksum"][..]),
        (how.sync, &["-sync"]),
        (how.pipelines, &["-pp"]),
        (how.no_get_put, &["-no-g2"]),
        // Without a size it may leave out nodes.
        (how.stripes, &["-stripe", "-sbs", "1048576"]),
        (how.retries, &["-rst", "-rst-interval", "1"]),
        (server.address.is_ipv6(), &["-ipv6"]),
    ] {
        if is_wanted {
            command.args(words);
        }
    }
    if let Some(number) = how.concurrency {
        command.args(["-cc", &number.to_string()]);
    }
    Ok(command)
}

fn xdfs(
    tools: &Tools,
    server: &Server,
    how: &How,
    verb: &str,
    local: &Path,
) -> Result<Command, Lack> {
    let mut command = Command::new(&tools.xdfs);
    command.env("XDFS_CONFIG_DIR", local.with_file_name("client"));
    command.arg(verb);
    if verb == "cp" {
        command.arg("--force");
    }
    match (how.tls, how.gsi) {
        (None, None) => {
            command.arg("--insecure");
        }
        (Some(Tls { data: false, .. }), _) => {
            return lacks("PROT C with TLS, which leaves data in clear", &["prot c"]);
        }
        (Some(_), _) => {
            command.arg("--ca").arg(&server.certificate);
        }
        (None, Some(gsi)) => {
            tell_gsi(tools, gsi, &mut command);
            command.args(match gsi.level {
                Level::Bare => &["--protect", "unauthenticated"][..],
                Level::Clear => &["--protect", "clear"],
                Level::Private => &[],
                Level::Safe => &["--protect", "safe"],
            });
            // The log tells the commands.
            command.arg("-vv");
        }
    }
    if let Some(streams) = how.streams.or(how.concurrency) {
        command.args(["-n", &streams.to_string()]);
    }
    if let Some((offset, length)) = how.part {
        command.args([
            "--offset",
            &offset.to_string(),
            "--length",
            &length.to_string(),
        ]);
    }
    if how.get_put {
        return lacks(NO_CHOICE, CHOICE);
    }
    if how.stripes {
        command.args(["--stripe", "--stripe-nodes=127.0.0.0/8"]);
    }
    if how.retries {
        command.args(["--retries", "10", "--limit-rate", &RATE.to_string()]);
    }
    Ok(command)
}

fn curl(server: &Server, how: &How, direction: Direction) -> Result<Command, Lack> {
    let mut command = program("curl", &["--silent", "--show-error", "--globoff"]);
    if how.get_put {
        return lacks(NO_CHOICE, CHOICE);
    }
    if how.stripes {
        return lacks(NO_STRIPES, STRIPES);
    }
    if how.streams.is_some() {
        return lacks(NO_EXTENDED, EXTENDED);
    }
    if how.checks {
        return lacks("checksums of files", &["checksum", "cksm"]);
    }
    match (how.part, direction) {
        (Some(_), Direction::Up) => return lacks("parts in the middle of a file there", &["esto"]),
        (Some((offset, length)), Direction::Down) => {
            command.args(["--range", &format!("{offset}-{}", offset + length - 1)]);
        }
        (None, _) => {}
    }
    if how.retries {
        command.args(["--retry", "10", "--retry-delay", "1", "--retry-all-errors"]);
        command.args(["--limit-rate", &RATE.to_string()]);
    }
    if let Some(tls) = how.tls {
        command.arg("--cacert").arg(&server.certificate);
        command.arg(if tls.data {
            "--ssl-reqd"
        } else {
            "--ftp-ssl-control"
        });
        let version = tls.version;
        command.args([&format!("--tlsv{version}"), "--tls-max", version]);
    }
    Ok(command)
}

/// The program with a script that begins at a server.
fn lftp(server: &Server, how: &How, script: &str) -> Command {
    let retries = if how.retries { 10 } else { 1 };
    let mut all = format!(
        "set cmd:fail-exit true; set net:max-retries {retries}; set net:timeout 15; \
         set net:reconnect-interval-base 1; set net:reconnect-interval-multiplier 1; "
    );
    if how.retries {
        all += &format!("set net:limit-total-rate {RATE}; ");
    }
    let mut host = server.address.to_string();
    match how.tls {
        None => all += "set ftp:ssl-allow false; ",
        Some(tls) => {
            all += &format!(
                "set ftp:ssl-force true; set ftp:ssl-allow-anonymous true; \
                 set ftp:ssl-protect-data {0}; set ftp:ssl-protect-list {0}; \
                 set ssl:ca-file '{1}'; ",
                tls.data,
                server.certificate.display(),
            );
            let version = tls.version;
            all += &format!("set ssl:priority NORMAL:-VERS-ALL:+VERS-TLS{version}; ");
            host = format!("localhost:{}", server.address.port());
        }
    }
    all += &format!("open ftp://{host}; {script}; exit");
    program("lftp", &["--norc", "-c", &all])
}

fn lftp_file(
    server: &Server,
    how: &How,
    direction: Direction,
    name: &str,
    local: &Path,
) -> Result<Command, Lack> {
    if how.get_put {
        return lacks(NO_CHOICE, CHOICE);
    }
    if how.stripes {
        return lacks(NO_STRIPES, STRIPES);
    }
    if how.streams.is_some() {
        return lacks(NO_EXTENDED, EXTENDED);
    }
    if how.checks {
        return lacks("checksums of files", &["checksum", "cksm"]);
    }
    if how.part.is_some() {
        return lacks("a given part of a file", &["--offset", "set ftp:use-range"]);
    }
    let (path, local) = (server.path(name), local.display());
    let script = match direction {
        Direction::Down => format!("get -e '{path}' -o '{local}'"),
        Direction::Up => format!("put '{local}' -o '{path}'"),
    };
    Ok(lftp(server, how, &script))
}

fn lftp_tree(
    server: &Server,
    how: &How,
    direction: Direction,
    name: &str,
    local: &Path,
) -> Result<Command, Lack> {
    if how.streams.is_some() {
        return lacks(NO_EXTENDED, EXTENDED);
    }
    if how.pipelines {
        return lacks("commands ahead for transfers", &["pipelin"]);
    }
    let parallel = how.concurrency.unwrap_or(1);
    let (path, local) = (server.path(name), local.display());
    let script = match direction {
        Direction::Down => format!("mirror --parallel={parallel} '{path}' '{local}'"),
        Direction::Up => format!("mirror -R --parallel={parallel} '{local}' '{path}'"),
    };
    Ok(lftp(server, how, &script))
}

/// What Python's ftplib does; it takes any command for a transfer.
const FTPLIB: &str = r#"
import ftplib, hashlib, io, re, ssl, sys, zlib
host, port, cafile, data, version, what, *words = sys.argv[1:]
if cafile:
    context = ssl.create_default_context(cafile=cafile)
    context.minimum_version = context.maximum_version = getattr(ssl.TLSVersion, version)
    ftp = ftplib.FTP_TLS(context=context, timeout=30)
else:
    ftp = ftplib.FTP(timeout=30)
ftp.connect(host, int(port))
ftp.login()
if cafile:
    ftp.prot_p() if data else ftp.prot_c()
def content():
    with open(words[1], "rb") as file:
        return file.read()
def compare(content):
    for name, digits in [
        ("MD5", hashlib.md5(content).hexdigest()), ("SHA1", hashlib.sha1(content).hexdigest()),
        ("SHA256", hashlib.sha256(content).hexdigest()),
        ("SHA512", hashlib.sha512(content).hexdigest()),
        ("ADLER32", "%08x" % zlib.adler32(content)),
    ]:
        reply = ftp.sendcmd("CKSM %s 0 -1 %s" % (name, words[0]))
        assert reply == "213 " + digits, reply
if what in ("get", "get-sum"):
    got = io.BytesIO()
    ftp.retrbinary("RETR " + words[0], got.write)
    with open(words[1], "wb") as file:
        file.write(got.getvalue())
    if what == "get-sum":
        compare(got.getvalue())
elif what in ("put", "put-sum"):
    try:
        ftp.storbinary("STOR " + words[0], io.BytesIO(content()))
    except OSError:
        # The reply says more.
        ftp.voidresp()
        raise
    if what == "put-sum":
        compare(content())
elif what == "get-part":
    with open(words[1], "wb") as file:
        file.seek(int(words[2]))
        ftp.retrbinary("ERET P %s %s %s" % (words[2], words[3], words[0]), file.write)
elif what == "put-part":
    begin, length = int(words[2]), int(words[3])
    part = io.BytesIO(content()[begin:begin + length])
    ftp.storbinary("ESTO A %d %s" % (begin, words[0]), part)
elif what == "list":
    print("\n".join(ftp.nlst(words[0])))
elif what == "third":
    other = ftplib.FTP(timeout=30)
    address = words[1].rpartition(":")
    other.connect(address[0], int(address[2]))
    other.login()
    for one in (ftp, other):
        one.voidcmd("TYPE I")
    numbers = re.search(r"\((.*)\)", other.sendcmd("PASV")).group(1)
    ftp.sendcmd("PORT " + numbers)
    other.putcmd("STOR " + words[2])
    ftp.sendcmd("RETR " + words[0])
    assert other.getresp()[0] == "1"
    ftp.voidresp()
    other.voidresp()
ftp.quit()
"#;

fn ftplib(server: &Server, how: &How, what: &str, words: &[&str]) -> Command {
    let mut host = server.address.ip().to_string();
    let mut tls = [String::new(), String::new(), String::new()];
    if let Some(wanted) = how.tls {
        host = "localhost".into();
        tls[0] = server.certificate.display().to_string();
        tls[1] = if wanted.data {
            "P".into()
        } else {
            String::new()
        };
        tls[2] = format!("TLSv{}", wanted.version.replace('.', "_"));
    }
    let mut command = program("python3", &["-c", FTPLIB, &host]);
    command.arg(server.address.port().to_string()).args(tls);
    command.arg(what).args(words);
    command
}

fn ftplib_file(
    server: &Server,
    how: &How,
    direction: Direction,
    name: &str,
    local: &Path,
) -> Result<Command, Lack> {
    if how.get_put {
        return lacks(NO_CHOICE, CHOICE);
    }
    if how.stripes {
        return lacks(NO_STRIPES, STRIPES);
    }
    if how.streams.is_some() {
        return lacks(NO_EXTENDED, EXTENDED);
    }
    if how.retries {
        return lacks(
            "repeating what has failed",
            &["retr_", "retries", "restart"],
        );
    }
    let (offset, length) = how.part.unwrap_or_default();
    let (offset, length) = (offset.to_string(), length.to_string());
    let (path, local) = (server.path(name), local.display().to_string());
    let words = [path.as_str(), &local, &offset, &length];
    let what = match (direction, how.part, how.checks) {
        (Direction::Down, Some(_), _) => "get-part",
        (Direction::Down, None, true) => "get-sum",
        (Direction::Down, None, false) => "get",
        (Direction::Up, Some(_), _) => "put-part",
        (Direction::Up, None, true) => "put-sum",
        (Direction::Up, None, false) => "put",
    };
    Ok(ftplib(server, how, what, &words))
}
