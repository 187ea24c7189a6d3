//! Programs that know nothing of tunnels, while the channels beneath their connections break.

use std::net::{SocketAddr, TcpListener, TcpStream};
use std::path::Path;
use std::process::{Child, Command, Stdio};

use xdfs_testkit::proxy::{FaultProxy, Plan};
use xdfs_testkit::{nobody, skip};

use super::{TO_LOOPBACK, address_of, listening, start, tunnel_to, wait_until};
use crate::ssh::Sshd;
use crate::support::{Place, Running, Server, content};

/// A program that the test started, ended with it.
struct Daemon(Child);

impl Daemon {
    /// Starts it, and waits until it listens.
    fn start(command: &mut Command, at: SocketAddr) -> Self {
        let quiet = command.stdin(Stdio::null()).stdout(Stdio::null());
        let mut daemon = Self(quiet.spawn().unwrap());
        wait_until("the daemon listens", || {
            assert!(daemon.0.try_wait().unwrap().is_none(), "the daemon ended");
            TcpStream::connect(at).is_ok()
        });
        daemon
    }
}

impl Drop for Daemon {
    fn drop(&mut self) {
        // It may have ended.
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// A tunnel of four channels whose connections break all the time.
struct Broken {
    place: Place,
    server: Server,
    proxy: FaultProxy,
}

impl Broken {
    fn new() -> Self {
        let place = Place::new();
        let server = start(&place, &[TO_LOOPBACK]);
        let proxy = FaultProxy::new(address_of(&server)).unwrap();
        Self {
            place,
            server,
            proxy,
        }
    }

    /// Leads the ports of `specs` on; returns the first one's address.
    fn tunnel(&self, specs: &[String]) -> (Running, SocketAddr) {
        let mut words = vec!["-n", "4"];
        for spec in specs {
            words.extend(["-L", spec]);
        }
        let url = format!("xdfs://{}", self.proxy.addr());
        let opened = listening(&mut tunnel_to(&self.place, &url, &words));
        self.proxy.set_plan(
            Plan::up(|up| up.cut_after = Some(600_000))
                .and_down(|down| down.cut_after = Some(600_000)),
        );
        opened
    }

    /// Connections did break, and the server is well.
    fn check(&self, least: u64) {
        let accepted = self.proxy.accepted();
        assert!(accepted >= least, "only {accepted} channels were opened");
        assert!(TcpStream::connect(address_of(&self.server)).is_ok());
    }
}

fn has(program: &str) -> bool {
    let there = std::env::var_os("PATH").is_some_and(|path| {
        std::env::split_paths(&path).any(|folder| folder.join(program).is_file())
    });
    if !there {
        skip::test(format!("there is no {program}"));
    }
    there
}

/// An address that nobody listens at. The system gives it to others last.
fn free() -> SocketAddr {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    listener.local_addr().unwrap()
}

/// A folder of some files, 6 MB together.
fn files(at: &Path) {
    std::fs::create_dir_all(at.join("sub")).unwrap();
    for (number, name) in ["big", "sub/one", "sub/two"].into_iter().enumerate() {
        let size = if number == 0 { 5 << 20 } else { 500_000 };
        std::fs::write(at.join(name), content(70 + number as u64, size)).unwrap();
    }
}

fn are_equal(a: &Path, b: &Path) {
    for name in ["big", "sub/one", "sub/two"] {
        let both = [a, b].map(|folder| std::fs::read(folder.join(name)).unwrap());
        assert!(both[0] == both[1], "{name}");
    }
}

fn succeeds(command: &mut Command) {
    let output = command.stdin(Stdio::null()).output().unwrap();
    assert!(output.status.success(), "{output:?}");
}

#[test]
fn rsync_works_while_channels_break() {
    if !has("rsync") {
        return;
    }
    let broken = Broken::new();
    let (module, here) = (
        broken.place.path().join("module"),
        broken.place.path().join("here"),
    );
    files(&here);
    std::fs::create_dir(&module).unwrap();
    let at = free();
    let text = format!(
        "port = {}\naddress = 127.0.0.1\nuse chroot = no\nlog file = {}\nreverse lookup = no\n\
         [files]\npath = {}\nread only = no\n{}",
        at.port(),
        broken.place.path().join("rsyncd.log").display(),
        module.display(),
        if nobody::is_root() {
            "uid = 0\ngid = 0\n"
        } else {
            ""
        }
    );
    let config = broken.place.make_here("rsyncd.conf", text.as_bytes());
    let mut daemon = Command::new("rsync");
    daemon.args(["--daemon", "--no-detach", "--config", &config]);
    let _daemon = Daemon::start(&mut daemon, at);
    let (_running, near) = broken.tunnel(&[format!("0:{at}")]);
    let url = format!("rsync://127.0.0.1:{}/files/", near.port());
    let back = broken.place.path().join("back");
    let folder = |path: &Path| format!("{}/", path.display());
    succeeds(Command::new("rsync").args(["-a", &folder(&here), &url]));
    are_equal(&here, &module);
    succeeds(Command::new("rsync").args(["-a", &url, &folder(&back)]));
    are_equal(&here, &back);
    broken.check(12);
}

#[test]
fn curl_works_over_http_and_ftp_while_channels_break() {
    if !has("curl") || !has("vsftpd") {
        return;
    }
    let broken = Broken::new();
    let root = broken.place.path().join("ftp");
    files(&root);
    // Where the client looks for data is not where the server listens: only the tunnel leads there.
    let (control, data) = (free().port(), free().port());
    let user = if nobody::is_root() { "root" } else { "nobody" };
    let text = format!(
        "listen=YES\nlisten_address=127.0.0.2\nlisten_port={control}\nbackground=NO\n\
         anonymous_enable=YES\nanon_root={}\nftp_username={user}\nno_anon_password=YES\n\
         pasv_address=127.0.0.1\npasv_min_port={data}\npasv_max_port={data}\n\
         pasv_promiscuous=YES\nrun_as_launching_user=YES\nseccomp_sandbox=NO\n\
         allow_writeable_chroot=YES\nlocal_enable=NO\n",
        root.display()
    );
    let config = broken.place.make_here("vsftpd.conf", text.as_bytes());
    let at = SocketAddr::from(([127, 0, 0, 2], control));
    let _daemon = Daemon::start(Command::new("vsftpd").arg(&config), at);
    let rule = format!("{TO_LOOPBACK}\n[[tunnel.connect]]\n");
    let rule = rule + &TO_LOOPBACK.replace("127.0.0.1", "127.0.0.2");
    super::settings(&broken.place, &[&rule]);
    broken.server.running.signal("HUP");
    broken.server.running.wait_for_message("tunnels_ended=0");
    let specs = [format!("0:{at}"), format!("{data}:127.0.0.2:{data}")];
    let (_running, near) = broken.tunnel(&specs);
    for name in ["big", "sub/one"] {
        let url = format!("ftp://127.0.0.1:{}/{name}", near.port());
        let to = broken.place.here("got");
        let mut curl = Command::new("curl");
        curl.args([
            "-sS",
            "--disable-epsv",
            "--max-time",
            "120",
            "-o",
            &to,
            &url,
        ]);
        succeeds(&mut curl);
        let both =
            [Path::new(&to).to_owned(), root.join(name)].map(|at| std::fs::read(at).unwrap());
        assert!(both[0] == both[1], "{name}");
    }
    broken.check(8);
}

#[test]
fn scp_works_while_channels_break() {
    let Some(sshd) = Sshd::start_with("Subsystem sftp internal-sftp") else {
        return;
    };
    let broken = Broken::new();
    let (_running, near) = broken.tunnel(&[format!("0:127.0.0.1:{}", sshd.port())]);
    let here = broken.place.path().join("here");
    files(&here);
    let config = sshd.client_config();
    let there = broken.place.path().join("there");
    let back = broken.place.path().join("back");
    let scp = |from: &str, to: &str| {
        let mut scp = Command::new("/usr/bin/scp");
        scp.args([
            "-q",
            "-r",
            "-F",
            &config,
            "-P",
            &near.port().to_string(),
            from,
            to,
        ]);
        succeeds(&mut scp);
    };
    let remote = format!("127.0.0.1:{}", there.display());
    scp(&here.display().to_string(), &remote);
    are_equal(&here, &there);
    scp(&remote, &back.display().to_string());
    are_equal(&here, &back);
    broken.check(12);
}
