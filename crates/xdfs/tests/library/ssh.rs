//! `ssh://` places, by the library alone, with an sshd of these tests.

use std::ffi::OsString;
use std::io::Write as _;
use std::path::Path;
use std::sync::{Arc, Mutex};

use xdfs::ssh::{SshNews, SshOptions, SshServers, bind_over_ssh};
use xdfs::{
    Answer, Call, Client, ClientOptions, Code, Forward, LocalPlace, PlaceSettings, RemotePlace,
    TransferOptions, Tunnel, TunnelPlan,
};
use xdfs_testkit::sshd::Sshd;
use xdfs_testkit::wait;

use crate::support::{Folders, PATIENCE, assert_equal};

/// Set for [`serve_the_client`].
const SERVES: &str = "XDFS_TEST_SERVES";

/// An sshd, and folders for what is copied through it.
struct Scene {
    sshd: Sshd,
    folders: Folders,
    /// The files of the sshd.
    own: tempfile::TempDir,
}

impl Scene {
    #[track_caller]
    fn start(seed: u64) -> Option<Self> {
        let own = tempfile::tempdir().unwrap();
        let sshd = Sshd::start(own.path(), "").unwrap()?;
        let folders = Folders::new(seed);
        Some(Self { sshd, folders, own })
    }

    /// How ssh is run, and what it starts: this program, in its folder.
    fn options(&self, servers: &SshServers) -> ClientOptions {
        let program = std::env::current_exe().unwrap();
        let (home, program) = (self.own.path().display(), program.display());
        let starts = format!(
            "cd '{home}' && {SERVES}=1 '{program}' --exact ssh::serve_the_client --ignored \
             --nocapture --"
        );
        let config = self.sshd.client_config();
        let command = ["ssh".into(), "-F".into(), config.into_os_string()];
        ClientOptions {
            settings: PlaceSettings::default().with(SshOptions {
                command: command.to_vec(),
                remote_program: Some(starts),
                servers: servers.clone(),
            }),
            ..ClientOptions::default()
        }
    }

    fn place(&self, path: &Path) -> RemotePlace {
        let url = format!("ssh://127.0.0.1:{}{}", self.sshd.port(), path.display());
        url.parse().unwrap()
    }
}

fn change_ssh(options: &mut ClientOptions, change: impl FnOnce(&mut SshOptions)) {
    let mut ssh: SshOptions = options.settings.get_or_default();
    change(&mut ssh);
    options.settings = options.settings.clone().with(ssh);
}

/// The other end: a process that sshd starts.
#[test]
#[ignore = "the other end of the tests below"]
fn serve_the_client() {
    if std::env::var_os(SERVES).is_none() {
        return;
    }
    let socket = std::env::args_os().next_back().unwrap();
    let (server, line) = bind_over_ssh(Path::new(&socket), "tester", false).unwrap();
    let mut out = std::io::stdout();
    out.write_all(line.as_bytes()).unwrap();
    out.flush().unwrap();
    let handle = server.handle();
    std::thread::spawn(move || {
        std::io::copy(&mut std::io::stdin().lock(), &mut std::io::sink()).unwrap();
        handle.shutdown();
    });
    server.run().unwrap();
}

#[test]
fn clients_start_a_server_and_share_it() {
    let Some(scene) = Scene::start(930) else {
        return;
    };
    let servers = SshServers::default();
    let options = scene.options(&servers);
    let source = scene.folders.make_here("source", 3 << 20);
    let target = scene.folders.there("target");
    let place = scene.place(&target);
    let client = Client::connect(&place, options.clone()).unwrap();
    let source_place = LocalPlace::Path(source.clone());
    let sent = client.upload(&source_place, &place.path, &TransferOptions::default());
    assert_eq!(sent.unwrap().wait().unwrap().bytes, 3 << 20);
    assert_equal(&source, &target);
    assert_eq!(client.user().as_deref(), Some("tester"));
    // Relative paths begin where the program there does.
    std::fs::write(scene.own.path().join("f"), "1").unwrap();
    let stat = |path: &[u8]| Call::Stat {
        path: path.to_vec(),
        follow: true,
    };
    let asked = client.call(stat(b"./f")).unwrap();
    assert!(matches!(asked, Answer::Attributes(of) if of.size == 1));
    let absolute = client.absolute(b"./f");
    assert!(absolute.starts_with(b"/") && absolute.ends_with(b"/f"));
    assert!(client.call(stat(&absolute)).is_ok());
    // Another session has the same server, and the server outlives the first one.
    let other = Client::connect(&place, options).unwrap();
    drop(client);
    assert!(other.call(stat(&place.path)).is_ok());
    assert_eq!(scene.sshd.logins(), 1);
    servers.close();
    assert!(other.call(stat(&place.path)).is_ok());
    drop(other);
}

#[test]
fn a_tunnel_leads_through_a_server_that_it_starts() {
    let Some(scene) = Scene::start(931) else {
        return;
    };
    let options = scene.options(&SshServers::default());
    let forward: Forward = "127.0.0.1:0:127.0.0.1:1".parse().unwrap();
    let plan = TunnelPlan {
        local: vec![forward],
        remote: Vec::new(),
        channels: 1,
    };
    let place = scene.place(Path::new("/"));
    let tunnel = Tunnel::open(&place, options, &plan, |_| {}).unwrap();
    assert_eq!(tunnel.ports().len(), 1);
    assert_eq!(scene.sshd.logins(), 1);
}

#[test]
fn the_end_of_ssh_ends_its_sessions() {
    let Some(scene) = Scene::start(932) else {
        return;
    };
    let news = Arc::new(Mutex::new(Vec::new()));
    let heard = Arc::clone(&news);
    let servers = SshServers::new(move |news| heard.lock().unwrap().push(news.clone()));
    let place = scene.place(Path::new("/"));
    let mut options = scene.options(&servers);
    // An ssh that writes down its number.
    let number = scene.own.path().join("number");
    let script = format!("echo $$ >'{}'; exec ssh \"$@\"", number.display());
    let wrapper = ["sh", "-c", &script, "ssh"].map(OsString::from);
    change_ssh(&mut options, |ssh| drop(ssh.command.splice(..1, wrapper)));
    let client = Client::connect(&place, options.clone()).unwrap();
    let root = || Call::Stat {
        path: b"/".to_vec(),
        follow: true,
    };
    assert!(client.call(root()).is_ok());
    let id = std::fs::read_to_string(&number).unwrap();
    let killed = std::process::Command::new("kill").arg(id.trim()).status();
    assert!(killed.unwrap().success());
    let is_heard = || !news.lock().unwrap().is_empty();
    assert!(wait::until(PATIENCE, is_heard), "nothing was heard");
    let address = place.address.to_string();
    assert_eq!(*news.lock().unwrap(), [SshNews::Ended { address }]);
    assert!(wait::until(PATIENCE, || client.call(root()).is_err()));
    // The next one starts another server.
    let next = Client::connect(&place, options).unwrap();
    assert!(next.call(root()).is_ok());
    assert_eq!(scene.sshd.logins(), 2);
}

#[test]
fn what_cannot_be_started_is_a_fault() {
    let Some(scene) = Scene::start(933) else {
        return;
    };
    let place = scene.place(Path::new("/"));
    let mut options = scene.options(&SshServers::default());
    change_ssh(&mut options, |ssh| {
        ssh.remote_program = Some("no-such-xdfs".into())
    });
    let fault = Client::connect(&place, options.clone()).unwrap_err();
    assert_eq!(fault.code, Code::NotFound);
    assert!(fault.cause.contains("no program 'no-such-xdfs' there"));
    change_ssh(&mut options, |ssh| {
        ssh.command = vec!["/no/such/ssh".into()]
    });
    let fault = Client::connect(&place, options).unwrap_err();
    assert_eq!(fault.path, b"/no/such/ssh");
}
