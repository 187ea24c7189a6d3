//! The real tools: each moves files both ways, and the bytes are compared.

use std::fs;
use std::process::{Command, Stdio};

use xdfs_testkit::process::Guard;
use xdfs_testkit::skip;

use crate::stage::{PATIENCE, Stage, assert_bytes, assert_same_tree, has, outcome, run};

const BIG: usize = 3_000_000;

/// `globus-url-copy` with its arguments.
pub(crate) fn copy(args: &[&str]) -> Command {
    let mut command = Command::new("globus-url-copy");
    command.args(args);
    command
}

pub(crate) fn has_globus() -> bool {
    let found = has("globus-url-copy");
    if !found {
        skip::test("globus-url-copy is not installed");
    }
    found
}

pub(crate) fn file_url(path: &std::path::Path) -> String {
    format!("file://{}", path.display())
}

/// A tree with what is easily lost: empty files, spaces, a file of a block and one byte.
fn make_tree(root: &std::path::Path) {
    Stage::make(&root.join("a"), 100);
    Stage::make(&root.join("empty"), 0);
    Stage::make(&root.join("sub/c d.txt"), (256 << 10) + 1);
    Stage::make(&root.join("sub/deep/b"), BIG);
}

#[test]
fn globus_url_copy_moves_files_both_ways() {
    if !has_globus() {
        return;
    }
    let stage = Stage::open(1, &[]);
    for (number, flags) in [
        &[][..],
        &["-fast"],
        &["-p", "4"],
        &["-p", "4", "-tcp-bs", "65536"],
    ]
    .into_iter()
    .enumerate()
    {
        for bytes in [0, 1, 256 << 10, BIG] {
            let name = format!("{number}-{bytes}");
            let wanted = Stage::make(&stage.here(&name), bytes);
            let up = [file_url(&stage.here(&name)), stage.url(&format!("/{name}"))];
            run(copy(flags).args(&up));
            assert_bytes(&stage.root(&name), &wanted);
            let back = format!("{name}.back");
            let down = [stage.url(&format!("/{name}")), file_url(&stage.here(&back))];
            run(copy(flags).args(&down));
            assert_bytes(&stage.here(&back), &wanted);
        }
    }
}

#[test]
fn globus_url_copy_moves_parts() {
    if !has_globus() {
        return;
    }
    let stage = Stage::open(2, &[]);
    let wanted = Stage::make(&stage.root("big"), BIG);
    for flags in [&["-p", "3"][..], &[]] {
        let part = ["-off", "1000", "-len", "500000"];
        let place = file_url(&stage.here("part"));
        run(copy(flags).args(part).args([&stage.url("/big"), &place]));
        // The tool writes at the same offset.
        assert_bytes(&stage.here("part"), &{
            let mut bytes = vec![0; 1000];
            bytes.extend_from_slice(&wanted[1000..501_000]);
            bytes
        });
        fs::remove_file(stage.here("part")).unwrap();
        let other = Stage::make(&stage.here("other"), 600_000);
        fs::write(stage.root("target"), &wanted).unwrap();
        let place = [file_url(&stage.here("other")), stage.url("/target")];
        run(copy(flags).args(part).args(&place));
        let mut changed = wanted.clone();
        changed[1000..501_000].copy_from_slice(&other[1000..501_000]);
        assert_bytes(&stage.root("target"), &changed);
    }
}

#[test]
fn globus_url_copy_moves_trees_and_synchronises() {
    if !has_globus() {
        return;
    }
    let stage = Stage::open(3, &[]);
    make_tree(&stage.root("tree"));
    let folder = |path: &str| file_url(&stage.here(path)) + "/";
    for (number, flags) in [&[][..], &["-fast"], &["-p", "2", "-cc", "3"]]
        .into_iter()
        .enumerate()
    {
        let (down, up) = (format!("down{number}"), format!("up{number}"));
        run(copy(flags).args(["-r", "-cd", &stage.url("/tree/"), &folder(&down)]));
        assert_same_tree(&stage.here(&down), &stage.root("tree"));
        let target = stage.url(&format!("/{up}/"));
        run(copy(flags).args(["-r", "-cd", &folder(&down), &target]));
        assert_same_tree(&stage.root(&up), &stage.root("tree"));
    }
    // What is older and of the same size stays; what is missing or of another size comes.
    let target = stage.url("/up0/");
    fs::remove_file(stage.root("up0/a")).unwrap();
    fs::write(stage.root("up0/empty"), "no longer").unwrap();
    fs::write(stage.root("up0/sub/c d.txt"), vec![1; (256 << 10) + 1]).unwrap();
    run(&mut copy(&[
        "-sync",
        "-r",
        "-cd",
        &folder("down0"),
        &target,
    ]));
    assert_bytes(&stage.root("up0/sub/c d.txt"), &vec![1; (256 << 10) + 1]);
    fs::copy(
        stage.root("tree/sub/c d.txt"),
        stage.root("up0/sub/c d.txt"),
    )
    .unwrap();
    assert_same_tree(&stage.root("up0"), &stage.root("tree"));
    // By content.
    fs::write(stage.root("up0/a"), [2; 100]).unwrap();
    run(&mut copy(&[
        "-sync",
        "-sync-level",
        "3",
        "-r",
        "-cd",
        &folder("down0"),
        &target,
    ]));
    assert_same_tree(&stage.root("up0"), &stage.root("tree"));
    let place = file_url(&stage.here("checked"));
    run(&mut copy(&[
        "-verify-checksum",
        &stage.url("/tree/sub/deep/b"),
        &place,
    ]));
    let list = run(&mut copy(&["-list", &stage.url("/tree/")]));
    assert!(list.contains("sub/") && list.contains("empty"), "{list}");
}

/// The server of the Globus tools, for one directory.
pub(crate) struct Globus {
    _server: Guard,
    pub(crate) address: String,
}

impl Globus {
    pub(crate) fn start() -> Option<Self> {
        if !has_globus() {
            return None;
        }
        if !has("globus-gridftp-server") {
            skip::test("globus-gridftp-server is not installed");
            return None;
        }
        // It looks for its own files by this path.
        let mut command = Command::new("globus-gridftp-server");
        let path = std::env::var("PATH").unwrap_or_default();
        command.env("PATH", format!("{path}:/usr/sbin:/sbin"));
        command.args(["-aa", "-control-interface", "127.0.0.1", "-port", "0"]);
        if rustix::process::geteuid().is_root() {
            command.args(["-anonymous-user", "root", "-allow-root"]);
        }
        let server = Guard::spawn(&mut command).unwrap();
        let address = |line: &str| {
            let address = line.strip_prefix("Server listening at ")?;
            Some(address.trim().to_owned())
        };
        let Some(address) = server.line(PATIENCE, address) else {
            panic!("the server did not start: {:?}", server.output());
        };
        let port = address.rsplit(':').next().unwrap().to_owned();
        Some(Self {
            _server: server,
            address: format!("127.0.0.1:{port}"),
        })
    }

    pub(crate) fn url(&self, path: &std::path::Path) -> String {
        format!("ftp://{}{}", self.address, path.display())
    }
}

#[test]
fn files_go_between_two_servers_both_ways() {
    let Some(globus) = Globus::start() else {
        return;
    };
    let stage = Stage::open(4, &[]);
    for flags in [
        &[][..],
        &["-p", "3"],
        &["-dp", "-p", "2"],
        &["-stripe", "-p", "2"],
    ] {
        let wanted = Stage::make(&stage.root("ours"), BIG);
        let theirs = stage.here("theirs");
        run(copy(flags).args([stage.url("/ours"), globus.url(&theirs)]));
        assert_bytes(&theirs, &wanted);
        run(copy(flags).args([globus.url(&theirs), stage.url("/back")]));
        assert_bytes(&stage.root("back"), &wanted);
        fs::remove_file(&theirs).unwrap();
        fs::remove_file(stage.root("back")).unwrap();
    }
    make_tree(&stage.root("tree"));
    for (number, flags) in [&["-pp", "-p", "2"][..], &["-fast", "-cc", "2"]]
        .into_iter()
        .enumerate()
    {
        let theirs = stage.here(&format!("tree{number}/"));
        let flags = [flags, &["-r", "-cd"]].concat();
        run(copy(&flags).args([stage.url("/tree/"), globus.url(&theirs) + "/"]));
        assert_same_tree(&stage.root("tree"), &theirs);
        let back = format!("/back{number}/");
        run(copy(&flags).args([globus.url(&theirs) + "/", stage.url(&back)]));
        assert_same_tree(&stage.root("tree"), &stage.root(back.trim_matches('/')));
    }
}

#[test]
fn a_copy_goes_on_from_the_last_marker_after_its_server_was_killed() {
    let Some(globus) = Globus::start() else {
        return;
    };
    let config = "folder = \"server\"\n[[export]]\nname = \"drop\"\npath = \"ROOT\"\n\
        public = true\nanonymous = [\"read\", \"list\", \"create\", \"write\"]\n\
        [limits]\nbytes_per_second_per_user_max = \"1M\"\n";
    let mut stage = Stage::configured(9, config);
    let wanted = Stage::make(&stage.here("source"), 9_000_000);
    let mut command = copy(&["-dbg", "-rst", "-rst-interval", "1", "-p", "2"]);
    command.args([globus.url(&stage.here("source")), stage.url("/drop/target")]);
    let mut copying = Guard::spawn(&mut command).unwrap();
    let marker = |line: &str| line.starts_with("111 Range Marker 0-").then_some(());
    let found = copying.line(PATIENCE, marker);
    assert!(found.is_some(), "{:?}", copying.output());
    stage.kill_and_restart();
    let status = copying.wait(PATIENCE).unwrap();
    let said = copying.output();
    assert!(status.is_some_and(|status| status.success()), "{said:?}");
    assert!(
        said.iter().any(|line| line.starts_with("REST 0-")),
        "{said:?}"
    );
    assert_bytes(&stage.root("target"), &wanted);
    assert_eq!(fs::read_dir(stage.root("")).unwrap().count(), 1);
}

#[test]
fn lftp_mirrors_both_ways() {
    if !has("lftp") {
        return skip::test("lftp is not installed");
    }
    let stage = Stage::open(5, &[]);
    make_tree(&stage.root("tree"));
    let script = format!(
        "set net:max-retries 1; open ftp://{}; lcd {}; mirror tree down; mirror -R down up; \
         put -c down/a -o again; get -c up/a -o again; mv again moved; chmod 600 moved; \
         cat moved; rm moved; mkdir m; rmdir m; exit",
        stage.address,
        stage.here("").display(),
    );
    run(Command::new("lftp").args(["--norc", "-c", &script]));
    assert_same_tree(&stage.here("down"), &stage.root("tree"));
    assert_same_tree(&stage.root("up"), &stage.root("tree"));
    assert!(!stage.root("moved").exists() && !stage.root("m").exists());
}

#[test]
fn curl_lists_resumes_and_moves_files() {
    if !has("curl") {
        return skip::test("curl is not installed");
    }
    let stage = Stage::open(6, &[]);
    let wanted = Stage::make(&stage.root("big"), BIG);
    let curl = || {
        let mut command = Command::new("curl");
        command.args(["--silent", "--show-error", "--max-time", "60"]);
        command
    };
    let list = run(curl().arg(stage.url("/")));
    assert!(list.contains(" big") && list.contains("3000000"), "{list}");
    for flags in [&[][..], &["--disable-epsv"], &["--ftp-port", "127.0.0.1"]] {
        let (file, up) = (stage.here("file"), stage.url("/up"));
        run(curl()
            .args(flags)
            .args([&stage.url("/big"), "-o"])
            .arg(&file));
        assert_bytes(&file, &wanted);
        run(curl().args(flags).arg("-T").arg(&file).arg(&up));
        assert_bytes(&stage.root("up"), &wanted);
        // It goes on where the file ends.
        fs::write(&file, &wanted[..1_000_000]).unwrap();
        run(curl()
            .args(flags)
            .args(["-C", "-", &stage.url("/big"), "-o"])
            .arg(&file));
        assert_bytes(&file, &wanted);
        fs::write(stage.root("up"), &wanted[..1_000_000]).unwrap();
        run(curl()
            .args(flags)
            .args(["-C", "-", "-T"])
            .arg(&file)
            .arg(&up));
        assert_bytes(&stage.root("up"), &wanted);
    }
    let missing = outcome(curl().arg(stage.url("/missing")));
    assert!(!missing.0, "{}", missing.1);
    // A name with a password is refused before the password is sent.
    let (succeeded, text) = outcome(curl().args(["-u", "alice:secret"]).arg(stage.url("/big")));
    assert!(!succeeded, "{text}");
}

#[test]
fn ipv6_has_extended_data_connections() {
    if !has("curl") {
        return skip::test("curl is not installed");
    }
    if std::net::TcpListener::bind("[::1]:0").is_err() {
        return skip::test("this machine has no IPv6");
    }
    let stage = Stage::open(8, &["--gridftp=[::1]:0"]);
    let wanted = Stage::make(&stage.root("big"), BIG);
    for flags in [&[][..], &["--ftp-port", "::1"]] {
        let file = stage.here("file");
        let mut curl = Command::new("curl");
        curl.args(["--silent", "--show-error", "--globoff", "--max-time", "60"]);
        run(curl.args(flags).args([&stage.url("/big"), "-o"]).arg(&file));
        assert_bytes(&file, &wanted);
        fs::remove_file(file).unwrap();
    }
}

const FTPLIB: &str = r#"
import ftplib, io, sys
host, port = sys.argv[1].split(":")
ftp = ftplib.FTP()
ftp.connect(host, int(port), timeout=60)
ftp.login()
data = bytes(range(256)) * 5000
for passive in (True, False):
    ftp.set_pasv(passive)
    ftp.storbinary("STOR f", io.BytesIO(data))
    assert ftp.size("f") == len(data)
    got = io.BytesIO()
    ftp.retrbinary("RETR f", got.write, rest=1000)
    assert got.getvalue() == data[1000:]
    ftp.storbinary("APPE f", io.BytesIO(b"tail"))
    ftp.storbinary("ESTO A 10 f", io.BytesIO(b"HEAD"))
    got = io.BytesIO()
    ftp.retrbinary("RETR f", got.write)
    assert got.getvalue() == data[:10] + b"HEAD" + data[14:] + b"tail"
    lines = []
    ftp.retrlines("LIST", lines.append)
    assert len(lines) == 1 and lines[0].endswith(" f"), lines
    assert ftp.nlst() == ["f"]
    facts = dict(ftp.mlsd())
    assert facts["f"]["type"] == "file" and facts["f"]["size"] == str(len(data) + 4), facts
assert ftp.mkd("dir \"x\"") == "/dir \"x\""
ftp.cwd("dir \"x\"")
assert ftp.pwd() == "/dir \"x\""
ftp.cwd("..")
ftp.rmd("dir \"x\"")
ftp.rename("f", "g")
assert ftp.sendcmd("MFMT 20200102030405 g").startswith("213")
assert ftp.sendcmd("MDTM g") == "213 20200102030405"
import hashlib, zlib
data = data[:10] + b"HEAD" + data[14:] + b"tail"
for name, digits in [
    ("MD5", hashlib.md5(data).hexdigest()), ("SHA1", hashlib.sha1(data).hexdigest()),
    ("SHA256", hashlib.sha256(data).hexdigest()), ("SHA512", hashlib.sha512(data).hexdigest()),
    ("ADLER32", "%08x" % zlib.adler32(data)), ("CRC32", "%08x" % zlib.crc32(data)),
]:
    assert ftp.sendcmd("CKSM %s 0 -1 g" % name) == "213 " + digits, name
part = hashlib.md5(data[100:300]).hexdigest()
assert ftp.sendcmd("CKSM MD5 100 200 g") == "213 " + part
ftp.delete("g")
assert ftp.nlst() == []
for line in ("RETR g", "CWD g", "SIZE g", "MLST g", "CKSM MD5 0 -1 g"):
    try:
        ftp.set_pasv(True)
        ftp.makepasv()
        ftp.sendcmd(line)
        raise SystemExit(line + " succeeded")
    except ftplib.error_perm as error:
        assert "No such file or directory" in str(error), error
ftp.quit()
"#;

#[test]
fn ftplib_uses_every_command_that_it_has() {
    if !has("python3") {
        return skip::test("python3 is not installed");
    }
    let stage = Stage::open(7, &[]);
    run(Command::new("python3")
        .args(["-c", FTPLIB, &stage.address])
        .stdin(Stdio::null()));
}
