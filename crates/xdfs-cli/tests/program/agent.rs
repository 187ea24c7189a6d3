//! `xdfs agent`: commands that share its sessions, and all that may go wrong between them.

use std::fs::{self, Permissions};
use std::io::{BufRead as _, BufReader, Read as _, Write as _};
use std::os::unix::fs::{PermissionsExt as _, chown};
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::Duration;

use xdfs_testkit::proxy::FaultProxy;
use xdfs_testkit::wait::until;
use xdfs_testkit::{nobody, skip};

use crate::support::{Place, Run, Running, Server, program};

const PATIENCE: Duration = Duration::from_secs(60);

/// A server behind a proxy, which counts the connections to it, and a state directory of one's own.
struct Scene {
    place: Place,
    server: Server,
    proxy: FaultProxy,
}

impl Scene {
    fn new() -> Self {
        let place = Place::new();
        let server = Server::start(&place.root());
        let proxy = FaultProxy::new(server.addresses[0].parse().unwrap()).unwrap();
        fs::create_dir(place.remote("d")).unwrap();
        for name in ["a", "b", "c"] {
            fs::write(place.remote(&format!("d/{name}")), name).unwrap();
        }
        let scene = Self {
            place,
            server,
            proxy,
        };
        // The agent knows no new server.
        scene.xdfs(&["ls", "--own-session", &scene.url("/d")]).ok();
        scene
    }

    fn url(&self, path: &str) -> String {
        format!("xdfs://{}{path}", self.proxy.addr())
    }

    fn folder(&self) -> PathBuf {
        self.place.path().join("state/agent")
    }

    fn socket(&self) -> PathBuf {
        self.folder().join("agent.sock")
    }

    /// The program with the state of this scene.
    fn program(&self, args: &[&str]) -> Command {
        let mut program = program();
        program
            .env("XDFS_STATE_DIR", self.place.path().join("state"))
            .args(args)
            .stdin(Stdio::null());
        program
    }

    #[track_caller]
    fn xdfs(&self, args: &[&str]) -> Run {
        Running::start(&mut self.program(args)).wait()
    }

    /// An agent that listens.
    #[track_caller]
    fn agent(&self, args: &[&str]) -> Running {
        let agent = Running::start(self.program(&["agent", "run", "-v"]).args(args));
        agent.wait_for_message("listening at ");
        agent
    }

    /// The lines of `agent status` about sessions.
    #[track_caller]
    fn sessions(&self) -> Vec<String> {
        let text = self.xdfs(&["agent", "status"]).ok().text();
        text.lines().skip(1).map(str::to_owned).collect()
    }

    /// A configuration that has agents started.
    fn share(&self) -> PathBuf {
        let folder = self.place.path().join("config");
        let own = program();
        let own = own.get_envs().find(|(name, _)| *name == "XDFS_CONFIG_DIR");
        let own = Path::new(own.unwrap().1.unwrap()).to_owned();
        fs::create_dir(&folder).unwrap();
        for name in ["id_ed25519", "known_hosts"] {
            fs::copy(own.join(name), folder.join(name)).unwrap();
        }
        fs::write(folder.join("config.toml"), "[defaults]\nshare = true\n").unwrap();
        folder
    }

    fn ask(&self, question: &[u8]) -> UnixStream {
        ask(&self.socket(), question)
    }
}

fn ask(socket: &Path, question: &[u8]) -> UnixStream {
    let mut stream = UnixStream::connect(socket).unwrap();
    stream.set_read_timeout(Some(PATIENCE)).unwrap();
    // An agent that has had enough closes the connection.
    let _ = stream.write_all(question);
    stream
}

/// What is answered on a connection up to its end.
fn answer(mut stream: UnixStream) -> String {
    let mut text = String::new();
    // A connection that is closed before everything was read may be reset.
    if let Err(error) = stream.read_to_string(&mut text) {
        assert_eq!(error.kind(), std::io::ErrorKind::ConnectionReset);
    }
    text
}

#[test]
fn commands_share_one_login() {
    let scene = Scene::new();
    let _agent = scene.agent(&[]);
    let before = scene.proxy.accepted();
    for _ in 0..3 {
        assert_eq!(
            scene.xdfs(&["ls", &scene.url("/d")]).ok().text(),
            "a\nb\nc\n"
        );
    }
    let run = scene
        .xdfs(&["stat", "-v", &scene.url("/d/a"), &scene.url("/d/b")])
        .ok();
    assert!(
        run.stderr.contains("the session is shared"),
        "{}",
        run.stderr
    );
    assert_eq!(scene.proxy.accepted() - before, 1);
    // The use ends with the command, and the session stays.
    let line = format!("{} used by 0", scene.url("/"));
    assert!(until(PATIENCE, || scene.sessions() == [line.as_str()]));
    // What is done to files is done once, by one session of its own.
    scene.xdfs(&["sum", &scene.url("/d/a")]).ok();
    scene.xdfs(&["cat", &scene.url("/d/a")]).ok();
    scene.xdfs(&["rm", "-r", &scene.url("/d")]).ok();
    assert_eq!(scene.proxy.accepted() - before, 4);
    assert!(!scene.place.remote("d").exists());
    scene.xdfs(&["ls", "--own-session", &scene.url("/")]).ok();
    assert_eq!(scene.proxy.accepted() - before, 5);
}

#[test]
fn output_is_the_same_with_and_without_an_agent() {
    let scene = Scene::new();
    fs::create_dir(scene.place.remote("d/deep")).unwrap();
    std::os::unix::fs::symlink("a", scene.place.remote("d/link")).unwrap();
    for number in 0..3000 {
        let name = format!("d/deep/a-name-that-fills-parts-of-listings-{number}");
        fs::write(scene.place.remote(&name), "").unwrap();
    }
    let agent = scene.agent(&[]);
    let url = scene.url("/d");
    let missing = scene.url("/d/missing");
    let closed = "xdfs://127.0.0.1:1/d";
    for words in [
        &["ls", &*url][..],
        &["ls", "-lR", &url],
        &["ls", "-lR", "--json", &url],
        &["ls", "-d", &url, &missing],
        &["ls", "--json", &missing],
        &["stat", &url, &missing],
        &["stat", "--json", &url],
        &["find", &url, "-name", "*9"],
        &["du", &url],
        &["du", "--json", &url],
        &["mkdir", &url],
        &["rm", &missing],
        &["rm", "--json", &url],
        &["mv", &missing, &url],
        &["ln", &missing, &url],
        &["chmod", "-R", "u+w", &url],
        &["partial", "ls", &url],
        &["ls", closed],
        &["ls", "--json", closed],
    ] {
        let shared = scene.xdfs(words);
        // The name of the command, and then the flag.
        let at = 1 + usize::from(words[0] == "partial");
        let mut own = words.to_vec();
        own.insert(at, "--own-session");
        let own = scene.xdfs(&own);
        assert_eq!(shared.code, own.code, "{words:?}");
        if words.contains(&closed) {
            // A session that ended before the call was made doesn't name the path.
            let named = |run: &Run| (run.text() + &run.stderr).replace(" '/d'", "");
            let named = |run: &Run| named(run).replace("\"path\":\"/d\"", "\"path\":null");
            assert_eq!(named(&shared), named(&own), "{words:?}");
            continue;
        }
        assert_eq!(shared.text(), own.text(), "{words:?}");
        assert_eq!(shared.stderr, own.stderr, "{words:?}");
    }
    let changes = [
        vec!["mkdir", "new"],
        vec!["mv", "a", "new/z"],
        vec!["ln", "b", "new/b"],
        vec!["chmod", "600", "c"],
        vec!["rm", "b"],
    ];
    for words in &changes {
        let is_path = |word: &&str| !word.starts_with(|c: char| c.is_ascii_digit());
        let of = |word: &&str| match is_path(word) {
            true => format!("{url}/{word}"),
            false => (*word).to_owned(),
        };
        let mut all = vec![words[0].to_owned()];
        all.extend(words[1..].iter().map(of));
        let all: Vec<&str> = all.iter().map(String::as_str).collect();
        scene.xdfs(&all).ok();
    }
    assert_eq!(fs::read(scene.place.remote("d/new/z")).unwrap(), b"a");
    assert_eq!(fs::read(scene.place.remote("d/new/b")).unwrap(), b"b");
    let mode = fs::metadata(scene.place.remote("d/c")).unwrap();
    assert_eq!(mode.permissions().mode() & 0o777, 0o600);
    assert!(!scene.place.remote("d/b").exists());
    drop(agent);
}

/// The password is in a file of the command, and a new server is trusted by the command itself.
#[test]
fn secrets_and_new_servers_are_the_commands_own() {
    let scene = Scene::new();
    let mut agent = scene.agent(&[]);
    let secret = scene.place.make_here("secret", b"word\n");
    let url = scene.url("/d");
    // Nobody has this password; the token of the environment isn't one of this server.
    scene.xdfs(&["ls", "--password-file", &secret, &url]);
    scene.xdfs(&["ls", "--token-file", &secret, &url]);
    scene.xdfs(&["ls", &format!("{url}?ticket=word")]);
    for variable in ["BEARER_TOKEN", "XDFS_TICKET"] {
        let mut command = scene.program(&["ls", &url]);
        Running::start(command.env(variable, "word")).wait();
    }
    assert!(scene.sessions().is_empty(), "{:?}", scene.sessions());
    // Another address is another server for the client.
    let other = FaultProxy::new(scene.server.addresses[0].parse().unwrap()).unwrap();
    let new = format!("xdfs://{}/d", other.addr());
    let run = scene.xdfs(&["ls", &new]).ok();
    assert!(run.stderr.contains("SHA256:"), "{}", run.stderr);
    let run = scene.xdfs(&["ls", "-v", &new]).ok();
    assert!(
        run.stderr.contains("the session is shared"),
        "{}",
        run.stderr
    );
    // Other keys are another user.
    let mut stranger = scene.program(&["ls", "-v", &url]);
    stranger.env("XDFS_CONFIG_DIR", scene.place.path().join("stranger"));
    let run = Running::start(&mut stranger).wait();
    assert!(run.stderr.contains("is not shared"), "{}", run.stderr);
    let mut stranger = scene.program(&["ls", "-v", &url]);
    stranger.env("XDFS_CONFIG_DIR", scene.place.path().join("stranger"));
    let run = Running::start(&mut stranger).wait();
    assert_ne!(run.code, Some(0));
    assert!(run.stderr.contains("another folder"), "{}", run.stderr);
    agent.signal("TERM");
    agent.wait().ok();
}

#[test]
fn a_directory_that_lets_others_in_is_refused() {
    let scene = Scene::new();
    fs::create_dir_all(scene.folder()).unwrap();
    let set = |mode| fs::set_permissions(scene.folder(), Permissions::from_mode(mode)).unwrap();
    for mode in [0o755, 0o770, 0o701] {
        set(mode);
        let words = ["lets others in", "chmod 700"];
        scene.xdfs(&["agent", "run"]).fails(5, &words);
        let run = scene.xdfs(&["ls", "-v", &scene.url("/d")]).ok();
        assert!(run.stderr.contains("lets others in"), "{}", run.stderr);
    }
    set(0o700);
    let mut agent = scene.agent(&[]);
    let mode = |path: PathBuf| fs::metadata(path).unwrap().permissions().mode() & 0o777;
    assert_eq!((mode(scene.folder()), mode(scene.socket())), (0o700, 0o600));
    // Opened later: the command doesn't ask there any more.
    set(0o711);
    let run = scene.xdfs(&["ls", "-v", &scene.url("/d")]).ok();
    assert!(run.stderr.contains("lets others in"), "{}", run.stderr);
    set(0o700);
    agent.signal("TERM");
    agent.wait().ok();
    assert!(!scene.socket().exists());
}

#[test]
fn other_users_are_sent_away() {
    if !nobody::is_root() {
        return skip::test("only root can act as another user");
    }
    let scene = Scene::new();
    let agent = scene.agent(&[]);
    if let Err(reason) = nobody::let_in(&scene.folder()) {
        return skip::test(reason);
    }
    fs::set_permissions(scene.socket(), Permissions::from_mode(0o666)).unwrap();
    let question = b"{\"agent\":1,\"program\":\"x\",\"ask\":\"stop\"}\n";
    let socket = scene.socket();
    let heard = nobody::act(|| answer(ask(&socket, question)));
    assert_eq!(heard, "");
    agent.wait_for_message("belongs to user 65534");
    fs::set_permissions(scene.folder(), Permissions::from_mode(0o700)).unwrap();
    assert!(scene.sessions().is_empty());
    drop(agent);
    // A directory and an agent of somebody else are not used.
    chown(scene.folder(), Some(nobody::ID), None).unwrap();
    let run = scene.xdfs(&["ls", "-v", &scene.url("/d")]).ok();
    assert!(
        run.stderr.contains("belongs to another user"),
        "{}",
        run.stderr
    );
    scene
        .xdfs(&["agent", "run"])
        .fails(5, &["belongs to another user"]);
    chown(scene.folder(), Some(0), None).unwrap();
    fs::remove_file(scene.socket()).unwrap();
    let listener = nobody_listens(&scene);
    let run = scene.xdfs(&["ls", "-v", &scene.url("/d")]).ok();
    assert!(
        run.stderr.contains("the other end belongs to user 65534"),
        "{}",
        run.stderr
    );
    drop(listener);
}

/// A socket of nobody's under the name of the agent's.
fn nobody_listens(scene: &Scene) -> UnixListener {
    let folder = scene.folder();
    chown(&folder, Some(nobody::ID), None).unwrap();
    fs::set_permissions(&folder, Permissions::from_mode(0o755)).unwrap();
    let socket = scene.socket();
    let listener = nobody::act(|| UnixListener::bind(&socket).unwrap());
    chown(&folder, Some(0), None).unwrap();
    fs::set_permissions(&folder, Permissions::from_mode(0o700)).unwrap();
    listener
}

#[test]
fn only_one_agent_runs_and_a_killed_one_is_replaced() {
    let scene = Scene::new();
    let mut agent = scene.agent(&[]);
    scene
        .xdfs(&["agent", "run"])
        .fails(12, &["another agent of this user is running"]);
    scene.xdfs(&["ls", &scene.url("/d")]).ok();
    agent.kill();
    assert!(scene.socket().exists());
    scene
        .xdfs(&["agent", "status"])
        .fails(4, &["none is running"]);
    scene.xdfs(&["ls", &scene.url("/d")]).ok();
    let mut agent = scene.agent(&[]);
    let run = scene.xdfs(&["ls", "-v", &scene.url("/d")]).ok();
    assert!(
        run.stderr.contains("the session is shared"),
        "{}",
        run.stderr
    );
    scene.xdfs(&["agent", "stop"]).ok();
    agent.wait().ok();
    assert!(!scene.socket().exists());
    scene
        .xdfs(&["agent", "stop"])
        .fails(4, &["none is running"]);
}

/// A command that waits for an answer, with a session of the agent.
fn waiting_command(scene: &Scene) -> Running {
    let mut command = scene.program(&["rm", "-i", &scene.url("/d/a")]);
    let command = Running::start(command.stdin(Stdio::piped()));
    command.wait_for_message("[y/N]");
    command
}

#[cfg(target_os = "linux")]
#[test]
fn a_command_says_that_the_agent_was_killed() {
    let scene = Scene::new();
    let mut agent = scene.agent(&[]);
    let mut command = waiting_command(&scene);
    agent.kill();
    command.write_input(b"y\n");
    let words = ["the agent that shares the session has ended", "again"];
    command.wait().fails(3, &words);
    assert!(scene.place.remote("d/a").exists());
    scene.xdfs(&["rm", &scene.url("/d/a")]).ok();
    assert!(!scene.place.remote("d/a").exists());
}

#[cfg(target_os = "linux")]
#[test]
fn the_end_of_a_command_ends_its_use_and_stop_waits_for_others() {
    let scene = Scene::new();
    let mut agent = scene.agent(&[]);
    let used = |count: u32| vec![format!("{} used by {count}", scene.url("/"))];
    let mut killed = waiting_command(&scene);
    let mut other = waiting_command(&scene);
    assert_eq!(scene.sessions(), used(2));
    killed.kill();
    assert!(until(PATIENCE, || scene.sessions() == used(1)));
    // An end in order lets the command go on.
    let mut stop = Running::start(&mut scene.program(&["agent", "stop"]));
    assert!(until(PATIENCE, || !scene.socket().exists()));
    assert!(!agent.has_ended() && !stop.has_ended());
    other.write_input(b"y\n");
    other.wait().ok();
    stop.wait().ok();
    agent.wait().ok();
    assert!(!scene.place.remote("d/a").exists());
}

/// Calls that could not be cancelled, open files and data are not for a session that others use.
#[test]
fn nothing_that_outlives_a_command_is_passed_on() {
    let scene = Scene::new();
    let _agent = scene.agent(&[]);
    let _command = waiting_command(&scene);
    let found = fs::read_dir(scene.folder()).unwrap().flatten();
    let mut names = found.filter_map(|entry| entry.file_name().into_string().ok());
    let name = names.find(|name| name.ends_with(".sock") && name != "agent.sock");
    let socket = scene.folder().join(name.unwrap());
    let socket = socket.to_str().unwrap().replace('/', "%2F");
    let url = |path: &str| format!("xdfs+unix://{socket}{path}");
    // It takes two sessions at a time, and one of them may just be ending.
    let xdfs = |args: &[&str]| {
        let mut last = None;
        let is_over = || {
            let run = scene.xdfs(args);
            let is_over = !matches!(run.code, Some(3 | 10));
            last = Some(run);
            is_over
        };
        assert!(until(PATIENCE, is_over), "{args:?}");
        last.unwrap()
    };
    let listed = xdfs(&["ls", "--own-session", "--insecure", &url("/d")]).ok();
    assert_eq!(listed.text(), "a\nb\nc\n");
    let words = ["a shared session doesn't pass this on"];
    xdfs(&["sum", "--insecure", &url("/d/a")]).fails(14, &words);
    xdfs(&["rm", "-r", "--insecure", &url("/d")]).fails(14, &words);
    let file = scene.place.make_here("file", b"content");
    let written = xdfs(&["cp", "--insecure", &file, &url("/d/new")]);
    written.fails(14, &["it can only be read"]);
    let read = xdfs(&["cat", "--insecure", &url("/d/a")]);
    read.fails(14, &["it can only be written"]);
    assert_eq!(fs::read_dir(scene.place.remote("d")).unwrap().count(), 3);
}

/// A stalled answer to one command holds up no other, and its end leaves nothing behind.
#[test]
fn a_cancelled_call_is_given_up() {
    let scene = Scene::new();
    let _agent = scene.agent(&[]);
    scene.xdfs(&["ls", &scene.url("/d")]).ok();
    // Another server, whose connection says nothing more.
    let other = FaultProxy::new(scene.server.addresses[0].parse().unwrap()).unwrap();
    let url = format!("xdfs://{}/d", other.addr());
    scene.xdfs(&["ls", &url]).ok();
    scene.xdfs(&["ls", &url]).ok();
    for id in other.live() {
        other.hang(id);
    }
    let mut stuck = Running::start(&mut scene.program(&["ls", &url]));
    let used = format!("xdfs://{}/ used by 1", other.addr());
    assert!(until(PATIENCE, || scene.sessions().contains(&used)));
    assert_eq!(
        scene.xdfs(&["ls", &scene.url("/d")]).ok().text(),
        "a\nb\nc\n"
    );
    assert!(!stuck.has_ended());
    stuck.kill();
    let unused = format!("xdfs://{}/ used by 0", other.addr());
    assert!(until(PATIENCE, || scene.sessions().contains(&unused)));
}

#[test]
fn another_version_shares_nothing_and_can_be_stopped() {
    let scene = Scene::new();
    {
        let agent = scene.agent(&[]);
        let wish = "{\"agent\":1,\"program\":\"0.0.1\",\"ask\":\"session\",\"session\":[]}\n";
        let heard = answer(scene.ask(wish.as_bytes()));
        assert!(heard.contains("\"own\""), "{heard}");
        let heard =
            answer(scene.ask(b"{\"agent\":7,\"program\":\"9\",\"ask\":\"status\",\"x\":1}\n"));
        assert!(heard.contains("\"status\""), "{heard}");
        let heard = answer(scene.ask(b"{\"agent\":7,\"program\":\"9\",\"ask\":\"stop\"}\n"));
        assert!(heard.contains("\"stopping\""), "{heard}");
        let mut agent = agent;
        agent.wait().ok();
    }
    // An agent of a version to come, which answers in ways that nobody knows here.
    let listener = UnixListener::bind(scene.socket()).unwrap();
    let answers = [
        "{\"agent\":2,\"program\":\"99.0.0\",\"answer\":\"own\",\"reason\":\"x\"}\n",
        "{\"agent\":2,\"program\":\"99.0.0\",\"answer\":\"riddle\"}\n",
        "\u{0}\n",
        "",
    ];
    let serving = std::thread::spawn(move || {
        for answer in answers {
            let (stream, _) = listener.accept().unwrap();
            let mut line = String::new();
            BufReader::new(&stream).read_line(&mut line).unwrap();
            (&stream).write_all(answer.as_bytes()).unwrap();
        }
    });
    let words = ["99.0.0", "is not shared", "is not shared", "is not shared"];
    for word in words {
        let run = scene.xdfs(&["ls", "-v", &scene.url("/d")]).ok();
        assert_eq!(run.text(), "a\nb\nc\n");
        assert!(run.stderr.contains(word), "{}", run.stderr);
    }
    serving.join().unwrap();
}

#[test]
fn it_ends_when_nobody_needs_it() {
    let scene = Scene::new();
    let mut agent = scene.agent(&["--idle", "1s"]);
    scene.xdfs(&["ls", &scene.url("/d")]).ok();
    assert!(!agent.has_ended());
    agent.wait().ok();
    assert!(!scene.socket().exists());
    // In order: nothing of the session is left.
    assert!(until(PATIENCE, || scene.proxy.live().is_empty()));
}

/// The processes of agents with this state directory.
#[cfg(target_os = "linux")]
fn agents(state: &Path) -> Vec<PathBuf> {
    let state = format!("XDFS_STATE_DIR={}\0", state.display());
    let is_agent = |process: &Path| {
        let read = |name: &str| fs::read(process.join(name)).unwrap_or_default();
        let text = |name: &str| String::from_utf8_lossy(&read(name)).into_owned();
        text("environ").contains(&state) && text("cmdline").ends_with("agent\0run\0--detached\0")
    };
    let all = fs::read_dir("/proc").unwrap().flatten();
    let all = all.map(|entry| entry.path());
    all.filter(|process| is_agent(process)).collect()
}

#[cfg(target_os = "linux")]
#[test]
fn commands_start_it_where_the_configuration_says_so() {
    let scene = Scene::new();
    let config = scene.share();
    let state = scene.place.path().join("state");
    let url = scene.url("/d");
    let inherited = scene.place.make_here("inherited", b"");
    let before = scene.proxy.accepted();
    let mut running: Vec<Running> = (0..4)
        .map(|_| {
            // A shell passes an open file on, and its agent shall not keep it.
            let mut command = Command::new("sh");
            command.args(["-c", "exec 9<\"$1\"; shift; exec \"$@\"", "sh", &inherited]);
            let xdfs = scene.program(&[]);
            command.arg(xdfs.get_program()).args(["ls", "-v", &url]);
            for (name, value) in xdfs.get_envs() {
                match value {
                    Some(value) => command.env(name, value),
                    None => command.env_remove(name),
                };
            }
            command.env("XDFS_CONFIG_DIR", &config);
            Running::start(command.stdin(Stdio::null()))
        })
        .collect();
    for command in &mut running {
        let run = command.wait().ok();
        assert_eq!(run.text(), "a\nb\nc\n");
        assert!(
            run.stderr.contains("the session is shared"),
            "{}",
            run.stderr
        );
    }
    assert_eq!(scene.proxy.accepted() - before, 1);
    assert!(until(PATIENCE, || agents(&state).len() == 1));
    let agent = agents(&state).remove(0);
    for entry in fs::read_dir(agent.join("fd")).unwrap().flatten() {
        // It may be closed meanwhile.
        let Ok(to) = fs::read_link(entry.path()) else {
            continue;
        };
        assert!(!to.ends_with("inherited"), "{}", to.display());
    }
    // It leads a session without a terminal.
    let stat = fs::read_to_string(agent.join("stat")).unwrap();
    let fields: Vec<&str> = stat.rsplit(')').next().unwrap().split(' ').collect();
    assert_eq!(agent.file_name().unwrap().to_str(), Some(fields[4]));
    assert_eq!(fs::read_link(agent.join("cwd")).unwrap(), Path::new("/"));
    // Killed: the next command starts another one.
    let process = agent.file_name().unwrap().to_str().unwrap();
    assert!(
        Command::new("kill")
            .args(["-9", process])
            .status()
            .unwrap()
            .success()
    );
    assert!(until(PATIENCE, || agents(&state).is_empty()));
    // A process on its way out may still have the socket.
    let is_closed = || UnixStream::connect(scene.socket()).is_err();
    assert!(until(PATIENCE, is_closed));
    let with_config = |args: &[&str]| {
        let mut command = scene.program(args);
        Running::start(command.env("XDFS_CONFIG_DIR", &config)).wait()
    };
    let run = with_config(&["ls", "-v", &url]).ok();
    assert!(
        run.stderr.contains("the session is shared"),
        "{}",
        run.stderr
    );
    with_config(&["agent", "stop"]).ok();
    assert!(until(PATIENCE, || agents(&state).is_empty()));
    fs::write(config.join("config.toml"), "[defaults]\nshare = false\n").unwrap();
    let _agent = scene.agent(&[]);
    let run = with_config(&["ls", "-v", &url]).ok();
    assert!(!run.stderr.contains("shared"), "{}", run.stderr);
}

#[test]
fn a_server_that_restarts_is_reached_again() {
    let mut scene = Scene::new();
    let _agent = scene.agent(&[]);
    let url = scene.url("/d");
    scene.xdfs(&["ls", &url]).ok();
    for _ in 0..2 {
        scene.server.running.signal("TERM");
        scene.server.running.wait();
        scene.server = Server::start(&scene.place.root());
        let address = scene.server.addresses[0].parse().unwrap();
        scene.proxy.set_target(address);
        let run = scene.xdfs(&["ls", "-v", &url]).ok();
        assert_eq!(run.text(), "a\nb\nc\n");
        assert!(
            run.stderr.contains("the session is shared"),
            "{}",
            run.stderr
        );
    }
}

/// The session breaks while a command uses it.
#[cfg(target_os = "linux")]
#[test]
fn a_server_that_restarts_during_a_command_is_reached_again() {
    let mut scene = Scene::new();
    let _agent = scene.agent(&[]);
    let mut command = waiting_command(&scene);
    scene.server.running.kill();
    scene.proxy.cut_all();
    scene.server = Server::start(&scene.place.root());
    let address = scene.server.addresses[0].parse().unwrap();
    scene.proxy.set_target(address);
    // The agent notices the end of the session, or refuses to repeat a change.
    command.write_input(b"y\n");
    let run = command.wait();
    let is_done = !scene.place.remote("d/a").exists();
    assert_eq!(run.code == Some(0), is_done, "{}", run.stderr);
    let run = scene.xdfs(&["ls", "-v", &scene.url("/d")]).ok();
    assert!(
        run.stderr.contains("the session is shared"),
        "{}",
        run.stderr
    );
}

#[test]
fn absurd_clients_cost_little_and_disturb_nobody() {
    let scene = Scene::new();
    let mut agent = scene.agent(&[]);
    let url = scene.url("/d");
    scene.xdfs(&["ls", &url]).ok();
    let long = [b"x".repeat(1 << 20), b"\n".to_vec()].concat();
    for line in [
        &b"\n"[..],
        b"\x00\xff\xfe\n",
        b"{}\n",
        b"[[[[[[[[\n",
        b"{\"agent\":1,\"program\":\"x\",\"ask\":\"dance\"}\n",
        b"{\"agent\":-1,\"program\":\"x\",\"ask\":\"stop\"}\n",
        b"GET / HTTP/1.1\r\n\r\n",
        &long,
    ] {
        assert_eq!(answer(scene.ask(line)), "");
    }
    let version = env!("CARGO_PKG_VERSION");
    for wish in ["null", "7", "{}", "{\"url\":\"xdfs://h\"}", "[[[[]]]]"] {
        let line = format!(
            "{{\"agent\":1,\"program\":\"{version}\",\"ask\":\"session\",\"session\":{wish}}}\n"
        );
        let mut answered = String::new();
        let stream = scene.ask(line.as_bytes());
        BufReader::new(stream).read_line(&mut answered).unwrap();
        assert!(answered.contains("\"own\""), "{wish}: {answered}");
    }
    // More than the agent takes at a time: some say nothing, some half a line.
    let silent: Vec<UnixStream> = (0..200)
        .map(|number| {
            scene.ask(if number % 2 == 0 {
                b""
            } else {
                b"{\"agent\":1,"
            })
        })
        .collect();
    assert_eq!(scene.xdfs(&["ls", &url]).ok().text(), "a\nb\nc\n");
    for stream in silent {
        assert_eq!(answer(stream), "");
    }
    let run = scene.xdfs(&["ls", "-v", &url]).ok();
    assert!(
        run.stderr.contains("the session is shared"),
        "{}",
        run.stderr
    );
    agent.signal("TERM");
    agent.wait().ok();
}

/// Trust that ended while the agent had a session is looked at again.
#[test]
fn a_server_that_is_no_longer_known_is_not_used() {
    let scene = Scene::new();
    let folder = scene.share();
    fs::remove_file(folder.join("config.toml")).unwrap();
    let own = |args: &[&str]| {
        let mut command = scene.program(args);
        Running::start(command.env("XDFS_CONFIG_DIR", &folder)).wait()
    };
    let mut agent = scene.program(&["agent", "run", "-v"]);
    let agent = Running::start(agent.env("XDFS_CONFIG_DIR", &folder));
    agent.wait_for_message("listening at ");
    let url = scene.url("/d");
    let host = scene.proxy.addr().to_string();
    let words = "the session is shared";
    let strict = ["ls", "-v", "--known-only", &url];
    for _ in 0..2 {
        assert!(own(&strict).ok().stderr.contains(words));
    }
    own(&["trust", "remove", &host]).ok();
    own(&strict).fails(17, &["isn't known"]);
    let opened = scene.proxy.accepted();
    // Without the flag the command trusts it anew, by itself.
    let run = own(&["ls", "-v", &url]).ok();
    assert!(!run.stderr.contains(words), "{}", run.stderr);
    assert!(scene.proxy.accepted() > opened);
    assert!(own(&strict).ok().stderr.contains(words));
    // Another key.
    own(&["trust", "remove", &host]).ok();
    let pin = format!("SHA256:{}", "A".repeat(43));
    own(&["trust", "add", &host, &pin]).ok();
    for args in [&strict[..], &["ls", &url]] {
        let run = own(args);
        assert_ne!(run.code, Some(0), "{}", run.stderr);
    }
}
