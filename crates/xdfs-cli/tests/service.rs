//! `xdfs service` as a process of its own: killed at any moment, its jobs end as they should.

#![expect(clippy::unwrap_used, reason = "a step that fails is a failed test")]

use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use rcgen::{
    BasicConstraints, CertificateParams, CertifiedIssuer, DistinguishedName, DnType, IsCa, KeyPair,
};
use xdfs_service::{JobDetail, JobId, ServiceClient, StateName, Submission};
use xdfs_testkit::process::Guard;
use xdfs_testkit::tree::{TempTree, first_difference};
use xdfs_testkit::wait;

const PATIENCE: Duration = Duration::from_secs(60);
/// Bytes of the file, and the rate at which it is copied.
const SIZE: u64 = 24_000_000;
const RATE: &str = "8M";

struct Scene {
    tree: TempTree,
    server: Guard,
    url: String,
}

impl Scene {
    /// A server that this user knows.
    fn new(seed: u64) -> Self {
        let tree = TempTree::new(seed).unwrap();
        for folder in ["root", "here", "keys"] {
            std::fs::create_dir(tree.join(folder)).unwrap();
        }
        let root = tree.join("root");
        let mut command = program(&tree);
        command.args(["serve", "--listen", "127.0.0.1:0", "--root"]);
        let server = Guard::spawn(command.arg(root)).unwrap();
        let address = server.line(PATIENCE, |line| {
            line.strip_prefix("listening on ").map(str::to_owned)
        });
        let url = format!("xdfs://{}", address.unwrap());
        let scene = Self { tree, server, url };
        // From now on it is known, and there is a key.
        scene.run(&["ls", &format!("{}/", scene.url)]);
        scene
    }

    fn data(&self) -> PathBuf {
        self.tree.join("data")
    }

    /// Starts the service, and waits until it listens.
    fn service(&self) -> Guard {
        let mut command = program(&self.tree);
        command.args(["service", "--listen", "127.0.0.1:0", "--data"]);
        let service = Guard::spawn(command.arg(self.data())).unwrap();
        let link = service.line(PATIENCE, |line| {
            line.strip_prefix("open ").map(str::to_owned)
        });
        assert!(
            link.is_some_and(|link| link.contains("/login?link=")),
            "{:?}",
            service.output()
        );
        service
    }

    /// Runs a command to its end, and returns what it prints.
    #[track_caller]
    fn run(&self, words: &[&str]) -> String {
        let run = program(&self.tree).args(words).output().unwrap();
        let errors = String::from_utf8_lossy(&run.stderr).into_owned();
        assert!(run.status.success(), "{words:?}: {errors}");
        String::from_utf8(run.stdout).unwrap()
    }

    fn submit(&self, words: &[&str]) -> JobId {
        let data = self.data();
        let all = ["submit", "--data", data.to_str().unwrap()];
        self.run(&[&all[..], words].concat())
            .trim()
            .parse()
            .unwrap()
    }

    fn job(&self, id: JobId) -> JobDetail {
        ServiceClient::new(&self.data(), None)
            .unwrap()
            .job(id)
            .unwrap()
    }

    #[track_caller]
    fn until(&self, id: JobId, expected: impl Fn(&JobDetail) -> bool) -> JobDetail {
        let mut last = self.job(id);
        let came = wait::until(PATIENCE, || {
            last = self.job(id);
            expected(&last)
        });
        assert!(came, "{last:#?} {:?}", self.server.output());
        last
    }

    /// Submits a copy, kills the service once and again while it runs, and starts it again.
    fn killed_twice(&self, words: &[&str]) -> JobDetail {
        let mut service = self.service();
        let id = self.submit(words);
        for part in [1, 2] {
            let least = SIZE / 4 * part;
            self.until(id, |detail| detail.job.counts.bytes >= least);
            service.kill().unwrap();
            service = self.service();
        }
        let ended = self.until(id, |detail| detail.job.state.is_end());
        assert_eq!(ended.job.state, StateName::Succeeded, "{ended:#?}");
        let by_service = ended
            .transitions
            .iter()
            .filter(|one| one.actor == "service");
        assert!(by_service.count() <= 2);
        assert_eq!(
            ServiceClient::new(&self.data(), None)
                .unwrap()
                .jobs(None, None, 100)
                .unwrap()
                .jobs
                .len(),
            1
        );
        service.terminate().unwrap();
        let status = service.wait(PATIENCE).unwrap();
        assert!(
            status.is_some_and(|status| status.success()),
            "{:?}",
            service.output()
        );
        ended
    }
}

/// The program, with the keys and the state of these tests.
fn program(tree: &TempTree) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_xdfs"));
    command
        .env("NO_COLOR", "1")
        .env("XDFS_CONFIG_DIR", tree.join("keys"));
    command
}

/// Writes a file that others can't read.
fn write_secret(path: &Path, text: &str) {
    use std::os::unix::fs::PermissionsExt as _;
    std::fs::write(path, text).unwrap();
    std::fs::set_permissions(path, std::fs::Permissions::from_mode(0o600)).unwrap();
}

#[test]
fn a_user_asks_by_a_key_and_a_service_manager_is_notified() {
    use std::os::unix::net::UnixDatagram;
    let scene = Scene::new(6);
    let users = scene.tree.join("users");
    std::fs::create_dir_all(users.join("keys")).unwrap();
    // The key that commands of this user have by themselves.
    let public = scene.tree.join("keys/id_ed25519.pub");
    std::fs::copy(public, users.join("keys/alice")).unwrap();
    let config = scene.tree.join("transfers.toml");
    let example = include_str!("../../../contrib/xdfs-transfers.toml")
        .replace("/var/lib/xdfs/users", users.to_str().unwrap())
        .replace("/var/lib/xdfs", scene.tree.join("keys").to_str().unwrap());
    std::fs::write(&config, example).unwrap();
    let notices = scene.tree.join("notices");
    let manager = UnixDatagram::bind(&notices).unwrap();
    manager.set_read_timeout(Some(PATIENCE)).unwrap();
    let notice = || {
        let mut bytes = [0; 100];
        let length = manager.recv(&mut bytes).unwrap();
        String::from_utf8_lossy(&bytes[..length]).trim().to_owned()
    };

    let mut command = program(&scene.tree);
    command.args(["service", "--listen", "127.0.0.1:0", "--config"]);
    command.arg(&config).arg("--data").arg(scene.data());
    let command = command.env("NOTIFY_SOCKET", &notices);
    let mut service = Guard::spawn(command).unwrap();
    let url = service.line(PATIENCE, |line| {
        line.strip_prefix("open ").map(str::to_owned)
    });
    let url = url.unwrap();
    assert_eq!(notice(), "READY=1");
    let run = |words: &[&str]| {
        let mut command = program(&scene.tree);
        let state = scene.tree.join("none");
        let run = command.env("XDFS_STATE_DIR", state).args(words).output();
        let run = run.unwrap();
        let errors = String::from_utf8_lossy(&run.stderr).into_owned();
        (
            run.status.code(),
            String::from_utf8(run.stdout).unwrap() + &errors,
        )
    };
    let way = ["--service", &url, "--service-user", "alice"];
    let places = [format!("{}/a", scene.url), format!("{}/b", scene.url)];
    let copy = ["submit", &places[0], &places[1]];
    let (code, id) = run(&[&copy[..], &way].concat());
    assert_eq!(code, Some(0), "{id}");
    let (code, listed) = run(&[&["jobs"][..], &way].concat());
    assert!(code == Some(0) && listed.contains(id.trim()), "{listed}");
    // The owner of the service has its own key, and sees all.
    let (code, listed) = run(&["jobs", "--service", &url]);
    assert!(code == Some(0) && listed.contains(id.trim()), "{listed}");
    let (code, refused) = run(&["jobs", "--service", &url, "--service-user", "bob"]);
    assert!(
        code != Some(0) && refused.contains("isn't listed"),
        "{refused}"
    );
    service.terminate().unwrap();
    assert_eq!(notice(), "STOPPING=1");
    let status = service.wait(PATIENCE).unwrap();
    assert!(
        status.is_some_and(|status| status.success()),
        "{:?}",
        service.output()
    );
}

type Authority = CertifiedIssuer<'static, KeyPair>;

fn authority(name: &str) -> Authority {
    let mut params = CertificateParams::default();
    params.distinguished_name.push(DnType::CommonName, name);
    params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
    CertifiedIssuer::self_signed(params, KeyPair::generate().unwrap()).unwrap()
}

/// Writes a certificate and its key, and returns their files.
fn certificate(scene: &Scene, file: &str, name: &str, by: &Authority) -> [String; 2] {
    let mut params = CertificateParams::new(vec!["localhost".to_owned()]).unwrap();
    params.distinguished_name = DistinguishedName::new();
    params.distinguished_name.push(DnType::CommonName, name);
    let pair = KeyPair::generate().unwrap();
    let (chain, key) = (format!("{file}.pem"), format!("{file}.key"));
    let (chain, key) = (scene.tree.join(&chain), scene.tree.join(&key));
    std::fs::write(&chain, params.signed_by(&pair, by).unwrap().pem()).unwrap();
    write_secret(&key, &pair.serialize_pem());
    [chain, key].map(|path| path.to_str().unwrap().to_owned())
}

#[test]
fn a_user_asks_by_a_certificate_over_tls() {
    let scene = Scene::new(7);
    let by = authority("authority");
    let authorities = scene.tree.join("ca.pem");
    std::fs::write(&authorities, by.as_ref().pem()).unwrap();
    std::fs::write(scene.tree.join("map"), "\"/CN=Jane Doe\" jane\n").unwrap();
    certificate(&scene, "service", "service", &by);
    let config = scene.tree.join("transfers.toml");
    // With what is commented out.
    let lines = include_str!("../../../contrib/xdfs-transfers.toml").lines();
    let lines = lines.map(|line| match line.strip_prefix('#') {
        Some(setting) if !setting.starts_with(' ') => setting,
        _ => line,
    });
    let users = scene.tree.join("users");
    let example = (lines.collect::<Vec<_>>().join("\n"))
        .replace("0.0.0.0:2781", "127.0.0.1:0")
        .replace("/var/lib/xdfs/users", users.to_str().unwrap())
        .replace("/var/lib/xdfs/", "")
        .replace("/etc/xdfs/chain.pem", "service.pem")
        .replace("/etc/xdfs/key.pem", "service.key")
        .replace("/etc/xdfs/clients.pem", "ca.pem")
        .replace("/etc/xdfs/grid-mapfile", "map");
    std::fs::write(&config, example).unwrap();
    let mut command = program(&scene.tree);
    command.args(["service", "--listen", "127.0.0.1:0", "--config"]);
    let command = command.arg(&config).arg("--data").arg(scene.data());
    let service = Guard::spawn(command).unwrap();
    let address = service.line(PATIENCE, |line| {
        line.strip_prefix("listening on https://127.0.0.1:")
            .map(str::to_owned)
    });
    let Some(port) = address else {
        panic!("{:?}", service.output());
    };
    let url = format!("https://localhost:{port}");
    let run = |trusted: &Path, [chain, key]: &[String; 2], words: &[&str]| {
        let mut command = program(&scene.tree);
        command.env("SSL_CERT_FILE", trusted);
        let way = [
            "--service",
            &url,
            "--service-cert",
            chain,
            "--service-cert-key",
            key,
        ];
        let run = command.args(words).args(way).output().unwrap();
        let errors = String::from_utf8_lossy(&run.stderr).into_owned();
        (
            run.status.code(),
            String::from_utf8(run.stdout).unwrap() + &errors,
        )
    };
    let jane = certificate(&scene, "jane", "Jane Doe", &by);
    let places = [format!("{}/a", scene.url), format!("{}/b", scene.url)];
    let copy = ["submit", &places[0], &places[1]];
    let (code, id) = run(&authorities, &jane, &copy);
    assert_eq!(code, Some(0), "{id}");
    let (code, listed) = run(&authorities, &jane, &["jobs"]);
    assert!(code == Some(0) && listed.contains(id.trim()), "{listed}");
    let (code, changed) = run(
        &authorities,
        &jane,
        &["job", "set", id.trim(), "--label", "x"],
    );
    assert_eq!(code, Some(0), "{changed}");

    // Neither is waited for, as a service that is away would be.
    let foreign = certificate(&scene, "foreign", "Jane Doe", &authority("other"));
    let (code, refused) = run(&authorities, &foreign, &copy);
    assert!(
        code == Some(16) && refused.contains("authorities"),
        "{code:?} {refused}"
    );
    let (code, untrusted) = run(&scene.tree.join("service.pem"), &jane, &copy);
    assert!(
        code == Some(17) && untrusted.contains("SSL_CERT_FILE"),
        "{code:?} {untrusted}"
    );
    std::fs::write(scene.tree.join("map"), "").unwrap();
    let is_out = || run(&authorities, &jane, &["jobs"]).0 == Some(16);
    assert!(wait::until(PATIENCE, is_out));
}

#[track_caller]
fn assert_same(a: &Path, b: &Path) {
    let difference = first_difference(a, b).unwrap();
    assert!(difference.is_none(), "{difference:?}");
}

#[test]
fn a_killed_service_takes_its_file_up_again() {
    let scene = Scene::new(1);
    let source = scene.tree.join("here/file");
    scene.tree.file("here/file", SIZE).unwrap();
    let target = format!("{}/copied", scene.url);
    let words = ["--limit-rate", RATE, source.to_str().unwrap(), &target];
    let ended = scene.killed_twice(&words);
    assert!(ended.transfers[0].attempts >= 2, "{ended:#?}");
    assert_same(&source, &scene.tree.join("root/copied"));
}

#[test]
fn a_killed_service_takes_its_tree_up_again() {
    let scene = Scene::new(2);
    std::fs::create_dir(scene.tree.join("here/tree")).unwrap();
    for number in 0..12 {
        scene
            .tree
            .file(&format!("here/tree/{number}"), SIZE / 12)
            .unwrap();
    }
    let source = scene.tree.join("here/tree");
    let target = format!("{}/copied", scene.url);
    let words = [
        "-r",
        "--limit-rate",
        RATE,
        source.to_str().unwrap(),
        &target,
    ];
    let ended = scene.killed_twice(&words);
    assert!(ended.transfers[0].attempts >= 2, "{ended:#?}");
    for number in 0..12 {
        let name = number.to_string();
        assert_same(
            &source.join(&name),
            &scene.tree.join("root/copied").join(&name),
        );
    }
}

/// Rounds of kills; more by hand.
fn rounds() -> usize {
    let set = std::env::var("XDFS_TEST_ROUNDS").ok();
    set.map_or(10, |rounds| rounds.parse().unwrap())
}

#[test]
fn a_service_killed_at_any_moment_loses_and_doubles_nothing() {
    const JOBS: usize = 20;
    let scene = Scene::new(5);
    let (tree, data, url) = (&scene.tree, scene.data(), &scene.url);
    // The large one lasts long enough to be killed in the middle.
    tree.file("here/small", 2).unwrap();
    tree.file("here/large", 4_000_000).unwrap();
    let submit = |number: usize| {
        let (name, options) = match number % JOBS {
            0 => (
                "large",
                r#","options":{"parameters":{"rate_bytes_per_s_max":8000000}}"#,
            ),
            _ => ("small", ""),
        };
        let source = tree.join("here").join(name);
        let source = source.display();
        let file = format!(r#"{{"source":"{source}","target":"{url}/{number}"{options}}}"#);
        let text = format!(r#"{{"version":1,"transfers":[{{"file":{file}}}]}}"#);
        let submission: Submission = serde_json::from_str(&text).unwrap();
        let key = number.to_string();
        // One key for all attempts, until the service answers.
        let done = wait::until(PATIENCE, || {
            let client = ServiceClient::new(&data, None);
            client.is_ok_and(|client| client.submit(&submission, &key).is_ok())
        });
        assert!(done, "job {number}");
    };
    let mut service = scene.service();
    for round in 0..rounds() {
        let (next, said) = (AtomicUsize::new(0), AtomicUsize::new(0));
        std::thread::scope(|scope| {
            for _ in 0..3 {
                scope.spawn(|| {
                    loop {
                        let number = next.fetch_add(1, Ordering::Relaxed);
                        if number >= JOBS {
                            break;
                        }
                        submit(round * JOBS + number);
                        said.fetch_add(1, Ordering::Relaxed);
                    }
                });
            }
            // Each time at another one, in the middle of what the others do.
            let least = round * 7 % JOBS;
            assert!(wait::until(PATIENCE, || said.load(Ordering::Relaxed) >= least));
            service.kill().unwrap();
            service = scene.service();
        });
    }
    let client = ServiceClient::new(&data, None).unwrap();
    let count = rounds() * JOBS;
    let mut jobs = Vec::new();
    let mut after = None;
    loop {
        let page = client.jobs(None, after, 1000).unwrap();
        jobs.extend(page.jobs);
        after = page.next;
        if after.is_none() {
            break;
        }
    }
    assert_eq!(jobs.len(), count);
    // The oldest is the first to be done.
    for job in jobs.into_iter().rev() {
        let ended = scene.until(job.id, |detail| detail.job.state.is_end());
        assert_eq!(ended.job.state, StateName::Succeeded, "{ended:#?}");
        let ends = ended.transitions.iter().filter(|one| one.to.is_end());
        assert_eq!(ends.count(), 1, "{ended:#?}");
    }
    let root = tree.join("root");
    assert_eq!(std::fs::read_dir(&root).unwrap().count(), count);
    for number in 0..count {
        let source = if number % JOBS == 0 { "large" } else { "small" };
        assert_same(
            &tree.join("here").join(source),
            &root.join(number.to_string()),
        );
    }
}

#[test]
fn commands_submit_wait_and_show() {
    let scene = Scene::new(3);
    let mut service = scene.service();
    std::fs::write(scene.tree.join("here/file"), "content").unwrap();
    let source = scene.tree.join("here/file");
    let (source, data) = (source.to_str().unwrap(), scene.data());
    let data = data.to_str().unwrap();
    let target = format!("{}/copied", scene.url);
    let words = [
        "submit", "--data", data, "--label", "for me", "--wait", source, &target,
    ];
    let id = scene.run(&words).trim().to_owned();
    assert_eq!(
        std::fs::read(scene.tree.join("root/copied")).unwrap(),
        b"content"
    );
    let listed = scene.run(&["jobs", "--data", data]);
    assert!(listed.contains(&id) && listed.contains("succeeded") && listed.contains("for me"));
    let shown = scene.run(&["job", "show", "--data", data, &id]);
    assert!(shown.contains("by user "), "{shown}");
    // The exit code of a job that fails is that of its failure.
    let none = scene.tree.join("root/none");
    let missing = format!("{}/missing", scene.url);
    let mut command = program(&scene.tree);
    command
        .args(["submit", "--data", data, "--wait", &missing])
        .arg(none);
    assert_eq!(command.output().unwrap().status.code(), Some(4));
    let mut command = program(&scene.tree);
    command.args(["job", "cancel", "--data", data, &id]);
    assert_eq!(command.output().unwrap().status.code(), Some(9));
    service.terminate().unwrap();
    service.wait(PATIENCE).unwrap();
}

#[test]
fn a_manifest_is_printed_and_verified_and_a_schedule_made_and_deleted() {
    let scene = Scene::new(4);
    let mut service = scene.service();
    let data = scene.data();
    let data = data.to_str().unwrap();
    let tree = scene.tree.join("here/tree");
    std::fs::create_dir(&tree).unwrap();
    for name in ["a", "b", "c"] {
        std::fs::write(tree.join(name), name).unwrap();
    }
    let target = format!("{}/copied", scene.url);
    let submit = ["submit", "--data", data, "--wait", "--manifest", "-r"];
    let words = [&submit[..], &[tree.to_str().unwrap(), &target]].concat();
    let id = scene.run(&words).trim().to_owned();
    let manifest = scene.run(&["job", "manifest", "--data", data, &id]);
    assert_eq!(
        manifest.matches("\"type\":\"file\"").count(),
        3,
        "{manifest}"
    );
    // A program has it by a token, without the folder of the service.
    let token = scene.run(&["token", "create", "--scope", "read", "--data", data]);
    let file = scene.tree.join("keys/token-of-service");
    write_secret(&file, &token);
    let url = std::fs::read_to_string(scene.data().join("url")).unwrap();
    let way = ["--service", url.trim(), "--service-token"];
    let words = [
        &["job", "manifest", &id],
        &way[..],
        &[file.to_str().unwrap()],
    ]
    .concat();
    assert_eq!(scene.run(&words).lines().count(), manifest.lines().count());
    let path = scene.tree.join("manifest");
    std::fs::write(&path, &manifest).unwrap();
    let verify = |place: &str, more: &[&str]| {
        let mut command = program(&scene.tree);
        command.args(["verify-manifest", "--data", data]).args(more);
        let run = command.arg(&path).arg(place).output().unwrap();
        let out = String::from_utf8(run.stdout).unwrap();
        (
            run.status.code(),
            out,
            String::from_utf8(run.stderr).unwrap(),
        )
    };
    let copied = scene.tree.join("root/copied");
    let here = copied.to_str().unwrap();
    for place in [here, &target] {
        let (code, out, errors) = verify(place, &[]);
        assert_eq!((code, out.as_str()), (Some(0), ""), "{errors}");
        assert!(
            errors.contains("3 equal (3 B), 0 differ, 0 missing"),
            "{errors}"
        );
    }
    std::fs::write(copied.join("a"), "A").unwrap();
    std::fs::remove_file(copied.join("b")).unwrap();
    std::fs::write(copied.join("more"), "").unwrap();
    let (code, out, errors) = verify(here, &[]);
    assert_eq!(
        (code, out.as_str()),
        (Some(18), "differs a\nmissing b\n"),
        "{errors}"
    );
    let (code, out, _) = verify(&target, &["--json"]);
    let lines: Vec<_> = out.lines().collect();
    assert_eq!((code, lines.len()), (Some(18), 4), "{out}");
    assert!(lines[1].contains("\"difference\":\"missing\""), "{out}");
    // Another key, and another text.
    let other = scene.tree.join("other");
    scene.run(&["keygen", "--file", other.to_str().unwrap()]);
    let public = other.with_extension("pub");
    let (code, _, errors) = verify(here, &["--signer", public.to_str().unwrap()]);
    assert!(
        code != Some(0) && errors.contains("another key"),
        "{errors}"
    );
    std::fs::write(&path, manifest.replace("\"bytes\":1", "\"bytes\":2")).unwrap();
    let (code, out, errors) = verify(here, &[]);
    assert!(code == Some(8) && out.is_empty(), "{errors}");

    let id = scene.submit(&[
        "--sync",
        "--every",
        "30 2 * * * Europe/Berlin",
        here,
        &target,
    ]);
    let listed = scene.run(&["schedules", "--data", data]);
    assert!(listed.contains(&id.to_string()), "{listed}");
    assert!(
        listed.contains("every 30 2 * * * Europe/Berlin, next at "),
        "{listed}"
    );
    scene.run(&["schedule", "delete", "--data", data, &id.to_string()]);
    assert_eq!(scene.run(&["schedules", "--data", data]), "");
    let later = scene.submit(&[
        "--at",
        "2d",
        "--priority",
        "-3",
        "--deadline",
        "3d",
        here,
        &target,
        "-r",
    ]);
    let later = later.to_string();
    let words = [
        "--priority",
        "5",
        "--keep",
        "9d",
        "--deadline",
        "none",
        &later,
    ];
    scene.run(&[&["job", "set", "--data", data][..], &words].concat());
    let shown = scene.run(&["job", "show", "--data", data, &later]);
    assert!(
        shown.contains("priority 5\n") && shown.contains("starts at "),
        "{shown}"
    );
    assert!(
        shown.contains("kept until ") && !shown.contains("done by "),
        "{shown}"
    );
    scene.run(&["job", "cancel", "--data", data, &later]);
    scene.run(&["job", "delete", "--data", data, &later]);
    let mut gone = program(&scene.tree);
    gone.args(["job", "show", "--data", data, &later]);
    assert_eq!(gone.output().unwrap().status.code(), Some(4));
    service.terminate().unwrap();
    service.wait(PATIENCE).unwrap();
}

#[test]
fn a_list_is_one_job_and_mistakes_are_in_words_of_the_command() {
    let scene = Scene::new(5);
    let mut service = scene.service();
    let data = scene.data();
    let data = data.to_str().unwrap();
    let mut list = String::from("# sources and targets\n\n");
    for number in 0..3 {
        let source = scene.tree.join(format!("here/a {number}"));
        std::fs::write(&source, number.to_string()).unwrap();
        let source = source.to_str().unwrap();
        list.push_str(&format!("\"{source}\" {}/{number}\n", scene.url));
    }
    let path = scene.tree.join("list");
    let path = path.to_str().unwrap();
    std::fs::write(path, &list).unwrap();
    let words = [
        "submit",
        "--data",
        data,
        "--wait",
        "--json",
        "--from-file",
        path,
    ];
    let shown = scene.run(&words);
    let job: JobDetail = serde_json::from_str(&shown).unwrap();
    assert_eq!((job.job.transfers_count, job.job.counts.files), (3, 3));
    for number in 0..3 {
        let copied = std::fs::read(scene.tree.join(format!("root/{number}"))).unwrap();
        assert_eq!(copied, number.to_string().into_bytes());
    }
    // With a wrong line there is no job.
    for (line, cause) in [
        (
            "/a /b\n",
            "line 6: neither SOURCE nor TARGET is on a server",
        ),
        ("/none xdfs://h/a\n", "line 6: no such file"),
        ("one\n", "line 6"),
    ] {
        std::fs::write(path, format!("{list}{line}")).unwrap();
        let mut command = program(&scene.tree);
        command.args(["submit", "--data", data, "--from-file", path]);
        let ran = command.output().unwrap();
        let errors = String::from_utf8_lossy(&ran.stderr).into_owned();
        assert!(!ran.status.success() && errors.contains(cause), "{errors}");
        assert!(errors.contains("nothing was submitted"), "{errors}");
    }
    let client = ServiceClient::new(&scene.data(), None).unwrap();
    assert_eq!(client.jobs(None, None, 100).unwrap().jobs.len(), 1);
    for (words, cause) in [
        (["/a", "/b"], "neither SOURCE nor TARGET is on a server"),
        (
            ["-", "xdfs://h/a"],
            "the service has neither standard input nor output",
        ),
    ] {
        let mut command = program(&scene.tree);
        command.args(["submit", "--data", data]).args(words);
        let ran = command.output().unwrap();
        let errors = String::from_utf8_lossy(&ran.stderr).into_owned();
        assert!(errors.contains(cause), "{errors}");
        assert_eq!(ran.status.code(), Some(2), "{errors}");
    }
    service.terminate().unwrap();
    service.wait(PATIENCE).unwrap();
}
