//! Routes of a relay: unchanged programs leave files by FTP and GridFTP, which are delivered to
//! another server by xDFS.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use serde_json::Value;
use xdfs_testkit::process::Guard;
use xdfs_testkit::tree::TempTree;
use xdfs_testkit::{skip, wait};

use crate::stage::{PASSWORD, PATIENCE, Stage, has, outcome, run};

const BIG: usize = 3_000_000;
const STATES: [&str; 6] = [
    "arriving",
    "held",
    "delivering",
    "delivered",
    "dead",
    "cancelled",
];

/// A relay with a route to a target, and users of it.
struct Scene {
    place: TempTree,
    flags: Vec<String>,
    relay: Guard,
    /// For FTP, by the name that is in the certificate, and for xDFS.
    ftp: String,
    xdfs: String,
    target: Option<Guard>,
    target_address: String,
}

/// The program, as the user who runs the relay and the target.
fn program(place: &Path) -> Command {
    let mut program = Command::new(env!("CARGO_BIN_EXE_xdfs"));
    program
        .env("XDFS_CONFIG_DIR", place.join("keys"))
        .env_remove("HOME");
    program
}

fn address(server: &Guard, beginning: &str) -> String {
    let address = |line: &str| Some(line.strip_prefix(beginning)?.to_owned());
    server
        .line(PATIENCE, address)
        .unwrap_or_else(|| panic!("it did not start: {:?}", server.output()))
}

fn start_target(place: &Path, listen: &str) -> (Guard, String) {
    let mut serve = program(place);
    serve.args(["serve", "--listen", listen, "--root"]);
    let target = Guard::spawn(serve.arg(place.join("target"))).unwrap();
    let address = address(&target, "listening on ");
    (target, address)
}

fn start_relay(place: &Path, listen: [&str; 2], flags: &[String]) -> (Guard, String, String) {
    let mut command = program(place);
    command
        .args(["relay", "--log=debug", "--listen", listen[0]])
        .args(["--ftp", listen[1], "--spool"])
        .arg(place.join("spool"))
        .arg("--config")
        .arg(place.join("relay.toml"))
        .arg("--routes")
        .arg(place.join("routes.toml"))
        .args(flags);
    let relay = Guard::spawn(&mut command).unwrap();
    let xdfs = address(&relay, "listening on ");
    let ftp = address(&relay, "GridFTP on ").replace("127.0.0.1", "localhost");
    (relay, xdfs, ftp)
}

impl Scene {
    /// alice may have files delivered, and bob may not. `more` is at the end of the settings, and
    /// `prepare` makes files beside them.
    #[track_caller]
    fn new(seed: u64, flags: &[&str], more: &str, prepare: impl FnOnce(&Path)) -> Self {
        let place = TempTree::new(seed).unwrap();
        for name in ["target", "target/in", "here", "keys"] {
            fs::create_dir(place.join(name)).unwrap();
        }
        prepare(&place.join(""));
        let (target, target_address) = start_target(&place.join(""), "127.0.0.1:0");
        let config = format!(
            "audit = \"audit.jsonl\"\n[[tunnel.send_to]]\nuser = \"alice\"\n\
             host = \"127.0.0.1\"\nports = \"*\"\n{more}"
        );
        fs::write(place.join("relay.toml"), config).unwrap();
        let routes = format!(
            "[[route]]\nname = \"in\"\nto = \"xdfs://{target_address}/in/\"\n\
             [[route]]\nname = \"once\"\nto = \"xdfs://{target_address}/in\"\n\
             overwrite = false\nexpire = \"1h\"\n"
        );
        fs::write(place.join("routes.toml"), routes).unwrap();
        fs::write(place.join("password"), format!("{PASSWORD}\n")).unwrap();
        for user in ["alice", "bob"] {
            let mut add = program(&place.join(""));
            add.args(["user", "add", user, "--config"])
                .arg(place.join("relay.toml"))
                .stdin(fs::File::open(place.join("password")).unwrap());
            assert!(add.status().unwrap().success(), "{user}");
        }
        // The relay knows the servers that its user knows.
        run(program(&place.join("")).args(["ls", &format!("xdfs://{target_address}/")]));
        let flags: Vec<_> = flags.iter().map(|flag| (*flag).to_owned()).collect();
        let free = ["127.0.0.1:0"; 2];
        let (relay, xdfs, ftp) = start_relay(&place.join(""), free, &flags);
        Self {
            place,
            flags,
            relay,
            ftp,
            xdfs,
            target: Some(target),
            target_address,
        }
    }

    fn here(&self, name: &str) -> PathBuf {
        self.place.join("here").join(name)
    }

    fn delivered(&self, name: &str) -> PathBuf {
        self.place.join("target/in").join(name)
    }

    /// Names at the target, hidden ones too.
    fn names(&self) -> Vec<String> {
        let entries = fs::read_dir(self.place.join("target/in")).unwrap();
        let names = entries.map(|own| own.unwrap().file_name().to_string_lossy().into_owned());
        let mut names: Vec<_> = names.collect();
        names.sort();
        names
    }

    #[track_caller]
    fn wait_for(&self, name: &str, wanted: &[u8]) {
        let is_there = || fs::read(self.delivered(name)).is_ok_and(|found| found == wanted);
        if !wait::until(PATIENCE, is_there) {
            panic!("{name}: {:?} {:?}", self.parcels(), self.relay.output());
        }
    }

    /// All parcels that the relay knows.
    fn parcels(&self) -> Vec<Value> {
        let mut list = program(&self.place.join(""));
        list.args(["relay", "ls", "--json", "--all-users"]);
        for state in STATES {
            list.args(["--state", state]);
        }
        let text = run(list.arg(format!("xdfs://{}", self.xdfs)));
        let lines = text.lines().filter(|line| line.starts_with('{'));
        lines
            .map(|line| serde_json::from_str(line).unwrap())
            .collect()
    }

    /// Bytes in the segments of the spool.
    fn stored(&self) -> u64 {
        let segments = fs::read_dir(self.place.join("spool/segments")).unwrap();
        let sizes = segments.filter_map(|entry| Some(entry.ok()?.metadata().ok()?.len()));
        sizes.sum()
    }

    fn stop_target(&mut self) {
        self.target.as_mut().unwrap().kill().unwrap();
        self.target = None;
    }

    fn start_target(&mut self) {
        let (target, _) = start_target(&self.place.join(""), &self.target_address);
        self.target = Some(target);
    }

    /// Kills the relay, and starts it again at the same addresses.
    fn kill_relay(&mut self) {
        self.relay.kill().unwrap();
        let ftp = self.ftp.replace("localhost", "127.0.0.1");
        let listen = [&*self.xdfs, &ftp];
        let (relay, ..) = start_relay(&self.place.join(""), listen, &self.flags);
        self.relay = relay;
    }

    fn certificate(&self) -> PathBuf {
        self.place.join("keys/server/server.crt")
    }

    /// curl as a user.
    fn curl(&self, user: &str) -> Command {
        let mut curl = Command::new("curl");
        curl.args(["--silent", "--show-error", "--max-time", "60"])
            .args([
                "--ssl-reqd",
                "-u",
                &format!("{user}:{PASSWORD}"),
                "--cacert",
            ])
            .arg(self.certificate());
        curl
    }

    fn url(&self, path: &str) -> String {
        format!("ftp://{}/{path}", self.ftp)
    }

    /// Leaves a file by curl as alice.
    fn put(&self, file: &str, path: &str) -> Command {
        let mut put = self.curl("alice");
        put.arg("-T").arg(self.here(file)).arg(self.url(path));
        put
    }

    /// lftp as alice, with commands.
    fn lftp(&self, commands: &str) -> Command {
        let script = format!(
            "set net:max-retries 1; set cmd:fail-exit true; set ftp:ssl-force true; \
             set ftp:ssl-protect-data true; set ssl:ca-file {}; \
             open -u 'alice,{PASSWORD}' ftp://{}; lcd {}; {commands}; exit",
            self.certificate().display(),
            self.ftp,
            self.here("").display(),
        );
        let mut lftp = Command::new("lftp");
        lftp.args(["--norc", "-c", &script]);
        lftp
    }
}

fn has_tools() -> bool {
    let found = ["curl", "lftp"].into_iter().all(has);
    if !found {
        skip::test("curl or lftp is not installed");
    }
    found
}

#[test]
fn curl_and_lftp_leave_files_that_are_delivered() {
    if !has_tools() {
        return;
    }
    let scene = Scene::new(600, &[], "", |_| {});
    let output = scene.relay.output().join("\n");
    let route = format!("serving /in to xdfs://{}/in/", scene.target_address);
    assert!(output.contains(&route), "{output}");
    let mut names = Vec::new();
    for bytes in [0, 1, BIG] {
        let by_curl = format!("curl {bytes}");
        let by_lftp = format!("lftp-{bytes}");
        let wanted = Stage::make(&scene.here("file"), bytes);
        run(&mut scene.put("file", &format!("in/curl%20{bytes}")));
        run(&mut scene.lftp(&format!("put file -o /in/{by_lftp}")));
        scene.wait_for(&by_curl, &wanted);
        scene.wait_for(&by_lftp, &wanted);
        names.extend([by_curl, by_lftp]);
    }
    // An existing file is replaced, as these programs do at any server.
    let wanted = Stage::make(&scene.here("file"), BIG + 1);
    run(&mut scene.lftp("cd in; mput file"));
    run(&mut scene.put("file", "in/lftp-1"));
    scene.wait_for("file", &wanted);
    scene.wait_for("lftp-1", &wanted);
    names.push("file".into());
    names.sort();
    assert_eq!(scene.names(), names);
    for parcel in scene.parcels() {
        assert_eq!(
            (&parcel["state"], &parcel["user"]),
            (&"delivered".into(), &"alice".into())
        );
        // It was computed as the file came, and the target has compared it.
        assert_ne!(parcel["digest"], Value::Null, "{parcel}");
    }
    // Another route doesn't.
    run(&mut scene.put("file", "once/new"));
    scene.wait_for("new", &wanted);
    run(&mut scene.put("file", "once/file"));
    let dead = || {
        let mut parcels = scene.parcels().into_iter();
        parcels.find(|parcel| parcel["state"] == "dead")
    };
    assert!(wait::until(PATIENCE, || dead().is_some()));
    assert_eq!(dead().unwrap()["error"]["code"], "already-exists");
    let audit = fs::read_to_string(scene.place.join("audit.jsonl")).unwrap();
    for words in [
        ["\"gridftp\"", "\"alice\"", "take a parcel", "/in/lftp-1"],
        ["\"gridftp\"", "\"alice\"", "upload", "in/lftp-1"],
    ] {
        let has_all = |line: &str| words.iter().all(|word| line.contains(word));
        assert!(audit.lines().any(has_all), "{words:?}: {audit}");
    }
}

#[test]
fn what_a_program_has_left_survives_the_relay_and_waits_for_the_target() {
    if !has_tools() {
        return;
    }
    let mut scene = Scene::new(601, &[], "", |_| {});
    scene.stop_target();
    let mut all = Vec::new();
    for round in 0..3 {
        let (name, bytes) = (format!("f{round}"), 10 + round * BIG);
        let wanted = Stage::make(&scene.here(&name), bytes);
        match round {
            1 => run(&mut scene.lftp(&format!("put {name} -o /in/{name}"))),
            _ => run(&mut scene.put(&name, &format!("in/{name}"))),
        };
        // As soon as the program has ended, and the source goes too.
        scene.kill_relay();
        fs::remove_file(scene.here(&name)).unwrap();
        all.push((name, wanted));
    }
    let states: Vec<_> = scene.parcels();
    assert_eq!(states.len(), 3);
    assert!(
        states.iter().all(|own| own["state"] != "arriving"),
        "{states:?}"
    );
    assert_eq!(scene.names(), Vec::<String>::new());
    scene.start_target();
    for (name, wanted) in &all {
        scene.wait_for(name, wanted);
    }
    let names: Vec<_> = all.into_iter().map(|(name, _)| name).collect();
    assert_eq!(scene.names(), names);
}

#[test]
fn nothing_is_delivered_of_a_file_that_is_broken_off() {
    if !has_tools() {
        return;
    }
    let mut scene = Scene::new(602, &[], "", |_| {});
    let wanted = Stage::make(&scene.here("big"), 40_000_000);
    Stage::make(&scene.here("small"), 1000);
    for (round, breaks) in ["curl", "lftp", "relay"].into_iter().enumerate() {
        let mut put = match breaks {
            "lftp" => scene.lftp("set net:limit-rate 0:4000000; put big -o /in/big"),
            _ => {
                let mut put = scene.put("big", "in/big");
                put.args(["--limit-rate", "4M"]);
                put
            }
        };
        let mut putting = Guard::spawn(&mut put).unwrap();
        let comes = || scene.stored() > 2_000_000;
        let output = || (scene.relay.output(), putting.output());
        assert!(wait::until(PATIENCE, comes), "{breaks}: {:?}", output());
        match breaks {
            "relay" => {
                scene.kill_relay();
                let status = putting.wait(PATIENCE).unwrap().unwrap();
                assert!(!status.success(), "{:?}", putting.output());
            }
            _ => drop(putting.kill().unwrap()),
        }
        // Its room is free again, without anything else that comes.
        let is_gone = || scene.stored() == 0;
        assert!(
            wait::until(PATIENCE, is_gone),
            "{breaks}: {}",
            scene.stored()
        );
        assert_eq!(scene.parcels().len(), round, "{breaks}");
        // A later file is delivered, and a part of the first one would show beside it.
        let name = format!("small{round}");
        run(&mut scene.put("small", &format!("in/{name}")));
        scene.wait_for(&name, &fs::read(scene.here("small")).unwrap());
        let names: Vec<_> = (0..=round).map(|round| format!("small{round}")).collect();
        assert_eq!(scene.names(), names, "{breaks}");
    }
    run(&mut scene.put("big", "in/big"));
    scene.wait_for("big", &wanted);
}

#[test]
fn a_route_takes_files_of_those_who_may_and_nothing_else() {
    if !has_tools() {
        return;
    }
    let scene = Scene::new(603, &[], "", |_| {});
    let wanted = Stage::make(&scene.here("file"), 1000);
    let list = |user: &str, path: &str| run(scene.curl(user).arg(scene.url(path)));
    let top = list("alice", "");
    let names = top.lines().filter_map(|line| line.split(' ').next_back());
    assert_eq!(names.collect::<Vec<_>>(), ["in", "once"], "{top}");
    assert_eq!(list("bob", ""), "");
    assert_eq!(list("alice", "in/"), "");
    let refused = |command: &mut Command, why: &str| {
        let (succeeded, text) = outcome(command.arg("-v"));
        assert!(!succeeded && text.contains(why), "{command:?}: {text}");
    };
    let put = |path: &str, flags: &[&str]| {
        let mut put = scene.put("file", path);
        put.args(flags);
        put
    };
    let no = "files are left here, and delivered elsewhere";
    refused(&mut put("in/sub/file", &["--ftp-create-dirs"]), no);
    refused(&mut put("in/file", &["--append"]), no);
    refused(&mut put("file", &[]), "550");
    refused(scene.curl("alice").arg(scene.url("in/file")), "550");
    refused(&mut put("in", &[]), "it is a directory");
    for words in [
        &["DELE in/file"][..],
        &["MKD in/sub"],
        &["RMD in"],
        &["RNFR in", "RNTO out"],
    ] {
        let mut quoted = scene.curl("alice");
        quoted.args(words.iter().flat_map(|line| ["-Q", line]));
        refused(quoted.arg(scene.url("")), "550");
    }
    let (succeeded, text) = outcome(&mut scene.lftp("put file -o /in/a/b"));
    assert!(!succeeded && text.contains("a route has files"), "{text}");
    let mut by_bob = scene.curl("bob");
    by_bob
        .arg("-T")
        .arg(scene.here("file"))
        .arg(scene.url("in/file"));
    let why = format!("don't allow connections to {}", scene.target_address);
    refused(&mut by_bob, &why);
    let mut by_nobody = Command::new("curl");
    by_nobody
        .args(["--silent", "--show-error", "-T"])
        .arg(scene.here("file"));
    refused(by_nobody.arg(scene.url("in/file")), "530");
    assert_eq!(scene.parcels(), Vec::<Value>::new());
    assert_eq!(scene.names(), Vec::<String>::new());
    // After a reload of the settings too.
    let relay = rustix::process::Pid::from_raw(scene.relay.id().cast_signed()).unwrap();
    rustix::process::kill_process(relay, rustix::process::Signal::HUP).unwrap();
    let reloaded = |line: &str| line.contains("the settings were reloaded").then_some(());
    assert!(scene.relay.line(PATIENCE, reloaded).is_some());
    let output = scene.relay.output().join("\n");
    assert!(!output.contains("next start only"), "{output}");
    run(&mut put("in/after", &[]));
    scene.wait_for("after", &wanted);
}

#[test]
fn files_are_left_in_a_route_by_xdfs_too() {
    if !has_tools() {
        return;
    }
    let scene = Scene::new(604, &[], "", |_| {});
    let wanted = Stage::make(&scene.here("file"), BIG);
    Stage::make(&scene.here("tree/file"), 10);
    let cp = |words: &[&str], path: &str| {
        let mut cp = program(&scene.place.join(""));
        cp.args(["cp", "--password-file"])
            .arg(scene.place.join("password"))
            .args(words)
            .arg(format!("xdfs://alice@{}{path}", scene.xdfs));
        cp
    };
    let file = scene.here("file").display().to_string();
    let tree = scene.here("tree").display().to_string();
    run(&mut cp(&[&file], "/in/"));
    scene.wait_for("file", &wanted);
    run(&mut cp(&[&file], "/in/other"));
    scene.wait_for("other", &wanted);
    // A stream, whose length is known at its end.
    let mut cat = Command::new("sh");
    let stream = cp(&["-"], "/in/stream");
    let words = std::iter::once(stream.get_program()).chain(stream.get_args());
    cat.args(["-c", "f=$1; shift; cat \"$f\" | \"$@\"", "sh", &file])
        .args(words);
    run(cat.env("XDFS_CONFIG_DIR", scene.place.join("keys")));
    scene.wait_for("stream", &wanted);
    let (succeeded, text) = outcome(&mut cp(&["-r", &tree], "/in/"));
    assert!(!succeeded && text.contains("delivered elsewhere"), "{text}");
    assert_eq!(scene.names(), ["file", "other", "stream"]);
    // The route says whether a file is replaced.
    let changed = Stage::make(&scene.here("file"), BIG + 5);
    run(&mut cp(&[&file], "/in/other"));
    scene.wait_for("other", &changed);
}

#[test]
fn a_file_for_which_there_is_no_room_is_refused() {
    if !has_tools() {
        return;
    }
    let mut scene = Scene::new(605, &["--user-max", "8M"], "", |_| {});
    scene.stop_target();
    let small = Stage::make(&scene.here("small"), BIG);
    let big = Stage::make(&scene.here("big"), 6_000_000);
    run(&mut scene.put("small", "in/small"));
    let (succeeded, text) = outcome(scene.put("big", "in/big").arg("-v"));
    assert!(
        !succeeded && text.contains("parcels of the user may take"),
        "{text}"
    );
    assert_eq!(scene.parcels().len(), 1);
    scene.start_target();
    scene.wait_for("small", &small);
    let has_room = || {
        let states = scene.parcels();
        states.iter().all(|own| own["state"] == "delivered")
    };
    assert!(wait::until(PATIENCE, has_room));
    run(&mut scene.put("big", "in/big"));
    scene.wait_for("big", &big);
}

#[test]
fn routes_that_can_not_be_are_named_at_the_start() {
    let place = TempTree::new(606).unwrap();
    for name in ["keys", "data"] {
        fs::create_dir(place.join(name)).unwrap();
    }
    let route = |name: &str, to: &str| format!("[[route]]\nname = \"{name}\"\nto = \"{to}\"\n");
    let there = "xdfs://store.example/in/";
    let export = "[[export]]\nname = \"data\"\npath = \"data\"\n[[export.grant]]\nuser = \"*\"\n\
                  rights = [\"list\"]\n";
    fs::write(place.join("relay.toml"), export).unwrap();
    for (text, why) in [
        (route("a/b", there), "no name of a directory"),
        (route("..", there), "no name of a directory"),
        (route(".xdfs-parcel", there), "no name of a directory"),
        (route("in", "ftp://store.example/in"), "servers of xdfs"),
        (
            route("in", "xdfs://alice@store.example/in"),
            "leave user and ticket out",
        ),
        (route("in", "in"), "line 3"),
        (route("in", there) + "expire = \"0s\"\n", "line 4"),
        (route("in", there) + "expire = \"31d\"\n", "1 s to 30 days"),
        (route("in", there) + &route("in", there), "has the name"),
        (route("data", there), "has the name"),
        (route("in", there) + "from = 1\n", "line 4"),
    ] {
        fs::write(place.join("routes.toml"), &text).unwrap();
        let mut relay = program(&place.join(""));
        relay
            .args(["relay", "--listen=127.0.0.1:0", "--spool"])
            .arg(place.join("spool"))
            .arg("--config")
            .arg(place.join("relay.toml"))
            .arg("--routes")
            .arg(place.join("routes.toml"));
        let mut running = Guard::spawn(&mut relay).unwrap();
        let status = running.wait(PATIENCE).unwrap();
        let output = running.output().join("\n");
        assert_eq!(
            status.and_then(|own| own.code()),
            Some(2),
            "{text}: {output}"
        );
        assert!(output.contains(why), "{text}: {output}");
    }
}

#[cfg(feature = "gsi")]
#[test]
fn globus_url_copy_leaves_files_that_are_delivered() {
    use crate::grid::{Grid, has_tools};
    if !has_tools() {
        return skip::test("the tools of Globus are not installed");
    }
    let gsi = "[gridftp.gsi]\ncertificate = \"grid/host.pem\"\nkey = \"grid/host.key\"\n\
               authorities = \"grid/certificates\"\ngrid_map = \"grid/grid-mapfile\"\n";
    let mut grid = None;
    let mut scene = Scene::new(607, &[], gsi, |place| grid = Some(Grid::make(place)));
    let grid = grid.unwrap();
    scene.stop_target();
    let mut all = Vec::new();
    for (number, flags) in [
        &["-dcpriv"][..],
        &["-dcpriv", "-fast", "-p", "4"],
        &["-dcsafe", "-fast"],
    ]
    .into_iter()
    .enumerate()
    {
        for bytes in [1, BIG] {
            let name = format!("{number}-{bytes}");
            let wanted = Stage::make(&scene.here(&name), bytes);
            let from = format!("file://{}", scene.here(&name).display());
            let to = format!("gsiftp://{}/in/{name}", scene.ftp);
            run(grid.copy("alice", flags).args([from, to]));
            all.push((name, wanted));
        }
    }
    // bob may not.
    let from = format!("file://{}", scene.here("0-1").display());
    let to = format!("gsiftp://{}/in/bob", scene.ftp);
    let (succeeded, text) = outcome(grid.copy("bob", &["-dcpriv"]).args([from, to]));
    assert!(!succeeded && text.contains("550"), "{text}");
    scene.kill_relay();
    scene.start_target();
    for (name, wanted) in &all {
        scene.wait_for(name, wanted);
    }
    let mut names: Vec<_> = all.into_iter().map(|(name, _)| name).collect();
    names.sort();
    assert_eq!(scene.names(), names);
    // Blocks come in any order, and their digests combine.
    let parcels = scene.parcels();
    assert!(
        parcels.iter().all(|own| own["digest"] != Value::Null),
        "{parcels:?}"
    );
}
