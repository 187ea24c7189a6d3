//! The real tools with TLS: each moves files both ways, and the bytes are compared.

use std::fs;
use std::process::{Command, Stdio};

use xdfs_testkit::skip;

use crate::stage::{PASSWORD, Stage, assert_bytes, assert_same_tree, has, outcome, run};

const BIG: usize = 3_000_000;

fn curl(stage: &Stage) -> Command {
    let mut command = Command::new("curl");
    command
        .args(["--silent", "--show-error", "--max-time", "60", "--cacert"])
        .arg(stage.certificate());
    command
}

#[test]
fn curl_moves_files_of_users() {
    if !has("curl") {
        return skip::test("curl is not installed");
    }
    let stage = Stage::with_users(60, "");
    let url = |path: &str| format!("ftp://{}/{path}", stage.named_address());
    let alice = ["-u", &format!("alice:{PASSWORD}")].map(str::to_owned);
    for bytes in [0, 1, BIG] {
        let wanted = Stage::make(&stage.here("file"), bytes);
        for flags in [
            &["--ssl-reqd"][..],
            &["--ssl-reqd", "--disable-epsv"],
            &["--ssl-reqd", "--ftp-ssl-ccc"],
            &["--ssl"],
        ] {
            let (up, back) = (url("alice/up"), stage.here("back"));
            let mut put = curl(&stage);
            run(put
                .args(flags)
                .args(&alice)
                .arg("-T")
                .arg(stage.here("file"))
                .arg(&up));
            assert_bytes(&stage.root("alice/up"), &wanted);
            let mut get = curl(&stage);
            run(get.args(flags).args(&alice).args([&up, "-o"]).arg(&back));
            assert_bytes(&back, &wanted);
            fs::remove_file(stage.root("alice/up")).unwrap();
            fs::remove_file(back).unwrap();
        }
    }
    fs::write(stage.root("bob/file"), "bob's").unwrap();
    let refused = |command: &mut Command, why: &str| {
        let (succeeded, text) = outcome(command);
        assert!(!succeeded && text.contains(why), "{command:?}: {text}");
    };
    // What is another user's isn't reached, nor is anything without a password or without TLS.
    refused(
        curl(&stage)
            .arg("--ssl-reqd")
            .args(&alice)
            .arg(url("bob/file")),
        "",
    );
    let wrong = ["-u", "alice:wrong horse"];
    refused(
        curl(&stage)
            .arg("--ssl-reqd")
            .args(wrong)
            .arg(url("alice/")),
        "Access denied",
    );
    refused(
        curl(&stage).args(&alice).arg(url("alice/")),
        "Access denied",
    );
    // Only the control connection is protected, which the server doesn't take from users.
    let control = curl(&stage)
        .args(["--ftp-ssl-control"])
        .args(&alice)
        .arg(url("alice/"))
        .output();
    assert!(!control.unwrap().status.success());
    // A client that doesn't know the certificate goes no further.
    let mut unknown = Command::new("curl");
    unknown.args(["--silent", "--show-error", "--max-time", "60", "--ssl-reqd"]);
    refused(unknown.args(&alice).arg(url("alice/")), "certificate");
}

/// Servers that take clear payload of users take it here too.
/// alice stores a file by curl with this flag, and gets it again.
fn there_and_back(stage: &Stage, flag: &str) {
    let wanted = Stage::make(&stage.here("file"), BIG);
    let url = format!("ftp://{}/alice/up", stage.named_address());
    let alice = [flag, "-u", &format!("alice:{PASSWORD}")].map(str::to_owned);
    run(curl(stage)
        .args(&alice)
        .arg("-T")
        .arg(stage.here("file"))
        .arg(&url));
    assert_bytes(&stage.root("alice/up"), &wanted);
    run(curl(stage)
        .args(&alice)
        .args([&url, "-o"])
        .arg(stage.here("back")));
    assert_bytes(&stage.here("back"), &wanted);
}

#[test]
fn curl_moves_data_in_clear_where_the_settings_let_it() {
    if !has("curl") {
        return skip::test("curl is not installed");
    }
    let stage = Stage::with_users(61, "protect = \"clear\"");
    there_and_back(&stage, "--ftp-ssl-control");
}

#[test]
fn clients_that_resume_sessions_are_served_where_that_is_required() {
    if !has("curl") || !has("lftp") {
        return skip::test("curl or lftp is not installed");
    }
    let stage = Stage::with_users(
        62,
        "[gridftp]\ntls = \"required\"\ntls_resumption = \"required\"",
    );
    there_and_back(&stage, "--ssl-reqd");
}

#[test]
fn lftp_mirrors_with_protected_data_and_without() {
    if !has("lftp") {
        return skip::test("lftp is not installed");
    }
    let stage = Stage::with_users(63, "protect = \"clear\"");
    for (name, bytes) in [
        ("a", 100),
        ("empty", 0),
        ("sub/c d.txt", (256 << 10) + 1),
        ("b", BIG),
    ] {
        Stage::make(&stage.root("alice/tree").join(name), bytes);
    }
    for protects in ["true", "false"] {
        let script = format!(
            "debug 6; set net:max-retries 1; set ftp:ssl-force true; \
             set ftp:ssl-protect-data {protects}; set ftp:ssl-protect-list {protects}; \
             set ssl:ca-file {}; \
             open -u 'alice,{PASSWORD}' ftp://{}; lcd {}; mirror /alice/tree down-{protects}; \
             mirror -R down-{protects} /alice/up-{protects}; exit",
            stage.certificate().display(),
            stage.named_address(),
            stage.here("").display(),
        );
        run(Command::new("lftp").args(["--norc", "-c", &script]));
        let down = stage.here(&format!("down-{protects}"));
        assert_same_tree(&down, &stage.root("alice/tree"));
        assert_same_tree(&stage.root(&format!("alice/up-{protects}")), &down);
    }
    let log = stage.server.output().join("\n");
    assert!(!log.contains(PASSWORD), "{log}");
}

const FTPLIB: &str = r#"
import ftplib, io, os, ssl, sys
host, _, port = sys.argv[1].rpartition(":")
context = ssl.create_default_context(cafile=sys.argv[2])
password = sys.argv[3]

def connect():
    ftp = ftplib.FTP_TLS(context=context, timeout=60)
    ftp.connect(host, int(port))
    return ftp

ftp = connect()
ftp.login("alice", password)
ftp.prot_p()
content = os.urandom(1_234_567)
for body in [content, b"", b"x"]:
    ftp.storbinary("STOR alice/new", io.BytesIO(body))
    back = io.BytesIO()
    ftp.retrbinary("RETR alice/new", back.write)
    assert back.getvalue() == body, len(back.getvalue())
    assert ftp.size("alice/new") == len(body)
assert ftp.nlst("alice") == ["new"], ftp.nlst("alice")
assert [name for name, facts in ftp.mlsd("alice") if facts["type"] == "file"] == ["new"]
ftp.set_pasv(False)
ftp.storbinary("STOR alice/new", io.BytesIO(content))
back = io.BytesIO()
ftp.retrbinary("RETR alice/new", back.write)
assert back.getvalue() == content
for command in ["SIZE bob", "CWD bob", "STOR bob/x", "DELE bob/file"]:
    try:
        ftp.sendcmd(command)
        raise SystemExit(command)
    except ftplib.error_perm as error:
        assert str(error).startswith("550"), error
    except ftplib.error_temp as error:
        assert str(error).startswith("425"), error
try:
    ftp.prot_c()
    raise SystemExit("PROT C")
except ftplib.error_perm as error:
    assert str(error).startswith("534"), error
ftp.quit()

ftp = connect()
try:
    ftp.login("alice", "wrong horse")
    raise SystemExit("a wrong password")
except ftplib.error_perm as error:
    assert str(error).startswith("530"), error
"#;

#[test]
fn ftplib_moves_files_of_users() {
    if !has("python3") {
        return skip::test("python3 is not installed");
    }
    let stage = Stage::with_users(64, "");
    run(Command::new("python3")
        .args(["-c", FTPLIB, &stage.named_address()])
        .arg(stage.certificate())
        .arg(PASSWORD)
        .stdin(Stdio::null()));
    let audit = fs::read_to_string(stage.beside("audit.jsonl")).unwrap();
    let is_upload = |line: &str| {
        [
            "\"gridftp\"",
            "\"alice\"",
            "\"password\"",
            "upload",
            "alice/new",
        ]
        .iter()
        .all(|word| line.contains(word))
    };
    assert!(audit.lines().any(is_upload), "{audit}");
    assert!(!audit.contains(PASSWORD), "{audit}");
}
