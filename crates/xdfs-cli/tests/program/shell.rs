//! `xdfs shell` as a script: every command, directories, quoting, failures and exit codes.

use std::ffi::OsStr;
use std::fs;
use std::os::unix::ffi::OsStrExt as _;
use std::path::Path;

use crate::support::{Place, Run, Server, assert_content, content, names, program, run_with_input};

/// Runs a script at a path of the server, in the directory `here` of the place.
#[track_caller]
fn script(place: &Place, server: &Server, flags: &[&str], path: &str, lines: &str) -> Run {
    let mut command = program();
    command.arg("shell").args(flags).arg(server.url(path));
    command.current_dir(place.here(""));
    run_with_input(&mut command, lines.as_bytes())
}

fn begin() -> (Place, Server) {
    let place = Place::new();
    let server = Server::start(&place.root());
    (place, server)
}

#[test]
fn every_command_works_in_one_session() {
    let (place, server) = begin();
    place.make_here("file", &content(1, 70_000));
    fs::create_dir(place.here("tree")).unwrap();
    place.make_here("tree/leaf", b"leaf");
    let lines = "\
# A comment, and an empty line

mkdir -p dir/sub
put file
put file dir/other
cd dir
ls
stat other
find . -name 'oth*' -type f
sum other
df -h
du -s .
mv other third
ln third fourth
ln -s third link
touch -d '2026-01-31 12:00' new
chmod 640 new
truncate -s 10 third
cat new
get third back
get -f ../file .
cp :third copied
cp copied :sub/
put -r ../here/tree sub
sync ../here/tree :synced
rm -r sub
cd
rm file
history
lpwd
pwd
";
    let run = script(&place, &server, &[], "/", lines);
    let text = run.ok().text();
    for line in ["other", "/dir/other", "Use%", "/"] {
        assert!(text.lines().any(|l| l.contains(line)), "{line}: {text}");
    }
    assert_content(place.here("back"), &content(1, 70_000)[..10]);
    assert_content(place.here("copied"), &content(1, 70_000)[..10]);
    assert_eq!(names(place.root()), ["dir"]);
    let there = ["fourth", "link", "new", "synced", "third"];
    assert_eq!(names(place.remote("dir")), there);
    assert_content(place.remote("dir/synced/leaf"), b"leaf");
}

#[test]
fn directories_are_those_of_the_shell() {
    let (place, server) = begin();
    fs::create_dir_all(place.remote("a/b")).unwrap();
    fs::write(place.remote("a/f"), "there").unwrap();
    fs::create_dir(place.here("l")).unwrap();
    let lines = "pwd\ncd b\npwd\ncd ..\npwd\ncd -\ncd /\npwd\ncd ../..\npwd\ncd\npwd\n\
                 lcd l\nlpwd\nget f\ncd b/../../a/./b/\npwd\n";
    let text = script(&place, &server, &[], "/a", lines).ok().text();
    let lines: Vec<&str> = text.lines().collect();
    let local = fs::canonicalize(place.here("l")).unwrap();
    let local = local.to_str().unwrap();
    let expected = ["/a", "/a/b", "/a", "/a/b", "/", "/", "/a", local, "/a/b"];
    assert_eq!(lines, expected);
    assert_content(place.here("l/f"), b"there");
    script(&place, &server, &[], "/", "cd a/f\n").fails(6, &["directory", "/a/f"]);
    script(&place, &server, &[], "/", "cd gone\n").fails(4, &["/gone"]);
    script(&place, &server, &[], "/", "cd -\n").fails(2, &["no previous directory"]);
    script(&place, &server, &[], "/", "cd a b\n").fails(2, &["too many"]);
    script(&place, &server, &[], "/", "lcd gone\n").fails(4, &["gone"]);
    script(&place, &server, &[], "/gone", "pwd\n").fails(4, &["/gone"]);
    script(&place, &server, &[], "/a/f", "pwd\n").fails(6, &["directory"]);
}

#[test]
fn any_name_can_be_quoted() {
    let (place, server) = begin();
    let odd: [&[u8]; 6] = [b"a b", b"it's", b"\xff\xfe", b"*", b"-l", b"a\nb"];
    for name in odd {
        fs::write(place.root().join(OsStr::from_bytes(name)), name).unwrap();
    }
    let lines = "cat a\\ b\ncat \"it's\"\ncat $'\\377\\376'\ncat '*'\ncat -- -l\ncat ./-l\n\
                 cat $'a\\nb'\nrm 'a b' it\\'s $'\\xff\\xfe' \\*\n";
    let run = script(&place, &server, &[], "/", lines).ok();
    assert_eq!(run.stdout, b"a bit's\xff\xfe*-l-la\nb");
    assert_eq!(names(place.root()), ["-l", "a\nb"]);
    for line in [
        "ls > x",
        "ls | wc",
        "ls; rm -r .",
        "cat $HOME",
        "ls 'a",
        "ls \\",
    ] {
        script(&place, &server, &[], "/", line).fails(2, &["read the line"]);
    }
    assert_eq!(names(place.root()), ["-l", "a\nb"]);
}

#[test]
fn patterns_stand_for_names_on_both_sides() {
    let (place, server) = begin();
    for name in ["1.dat", "2.dat", "-x.dat", "other"] {
        place.make_here(name, name.as_bytes());
    }
    let run = script(
        &place,
        &server,
        &[],
        "/",
        "put ./*.dat .\nls *\nfind . -name *.dat\n",
    )
    .ok();
    let text = run.text();
    let lines: Vec<&str> = text.lines().collect();
    assert_eq!(lines.len(), 6, "{text}");
    assert_eq!(names(place.root()), ["-x.dat", "1.dat", "2.dat"]);
    script(
        &place,
        &server,
        &[],
        "/",
        "mkdir in\nmv [12].dat in\ncp --no-resume -I :in/*.dat .\n",
    )
    .fails(6, &["1.dat"]);
    script(&place, &server, &[], "/", "rm in/*\nrm *.dat\n").ok();
    assert_eq!(names(place.root()), ["in"]);
    script(&place, &server, &[], "/", "rm *.dat\n").fails(4, &["no name matches"]);
}

#[test]
fn what_a_pattern_stands_for_stays_on_its_side() {
    let (place, server) = begin();
    let both = ["out1", "out2", "secret"];
    for name in both {
        place.make_here(name, b"here");
        fs::write(place.remote(name), "there").unwrap();
    }
    place.make_here("notes", b"here");
    fs::write(place.remote("results"), "there").unwrap();
    for line in [
        "put -f notes out*",
        "get -f results out*",
        "cp -f notes :out*",
        "cp -f :results out*",
        "sync notes :out*",
        "mv -f results out*",
        "mv -f out*",
        "ln -f results out*",
    ] {
        script(&place, &server, &[], "/", line).fails(2, &["2 names match", "out*"]);
    }
    assert_eq!(names(place.root()), ["out1", "out2", "results", "secret"]);
    for name in both {
        assert_content(place.here(name), b"here");
        assert_content(place.remote(name), b"there");
    }
    // One name is a target as any other, and what is copied may be many.
    fs::create_dir(place.remote("directory")).unwrap();
    fs::create_dir(place.here("directory")).unwrap();
    let lines = "put -f notes sec*\nput out? dir*\nget -f out? ./dir*\n";
    script(&place, &server, &[], "/", lines).ok();
    assert_content(place.remote("secret"), b"here");
    assert_content(place.here("secret"), b"here");
    assert_eq!(names(place.remote("directory")), ["out1", "out2"]);
    assert_content(place.here("directory/out2"), b"there");
}

#[test]
fn the_first_failure_ends_a_script_and_gives_the_exit_code() {
    let (place, server) = begin();
    let lines = "cat gone\nmkdir d\nrmdir d\nmkdir d\n";
    script(&place, &server, &[], "/", lines).fails(4, &["/gone"]);
    assert_eq!(names(place.root()).len(), 0);
    let run = script(&place, &server, &["--keep-going"], "/", lines);
    run.fails(4, &["/gone", "no such command", "/d"]);
    assert_eq!(names(place.root()), ["d"]);
    for (line, code, word) in [
        ("rmdir d", 2, "no such command"),
        ("serve", 2, "no such command"),
        ("ls --nonsense", 2, "--nonsense"),
        ("mkdir", 2, "required"),
        ("put", 2, "required"),
        ("exit 7", 7, ""),
        ("quit x", 2, "exit code"),
        ("put - x", 2, "belongs to the shell"),
        ("cp - :x", 2, "belongs to the shell"),
        ("cp d e", 4, "no such file"),
        ("cat ''", 2, "empty"),
        ("help nonsense", 2, "no such command"),
    ] {
        script(&place, &server, &[], "/", line).fails(code, &[word]);
    }
    let run = script(&place, &server, &[], "/", "exit 0\ncat gone\n").ok();
    assert_eq!(run.stdout, b"");
    let long = format!("pwd\n{}", "x".repeat(2 << 20));
    script(&place, &server, &[], "/", &long).fails(2, &["too long"]);
    let text = script(&place, &server, &[], "/", "help\nhelp ls\nls --help\n")
        .ok()
        .text();
    assert!(
        text.contains("lcd") && text.matches("--human-readable").count() == 2,
        "{text}"
    );
}

#[test]
fn a_server_that_is_not_there_ends_the_shell() {
    let (place, mut server) = begin();
    server.running.kill();
    script(&place, &server, &[], "/", "pwd\n").fails(3, &[]);
    let run = run_with_input(program().args(["shell", "here"]), b"");
    run.fails(2, &["xdfs://"]);
    let run = run_with_input(program().args(["shell", "xdfs://h/mem:null"]), b"");
    run.fails(6, &["mem:null"]);
}

#[test]
fn a_ticket_is_good_for_the_whole_shell_and_never_shown() {
    let place = Place::new();
    let flags = ["--listen", "127.0.0.1:0", "--ticket"];
    let server = Server::start_with(&place.root(), &flags);
    let url = &server.url(&format!("/?{}", server.line_with("ticket=").trim()));
    let folder = place.here("config");
    let mut command = program();
    command.args(["shell", url]).env("XDFS_CONFIG_DIR", folder);
    let lines = b"mkdir d\nls --json .\ncp --json :d/gone x\n";
    let run = run_with_input(&mut command, lines).fails(4, &["gone"]);
    let secret = url.split_once("ticket=").unwrap().1;
    let secret = secret.split('&').next().unwrap();
    assert!(!run.text().contains(secret) && !run.stderr.contains(secret));
}

#[test]
fn flags_of_the_session_open_another_one() {
    let (place, server) = begin();
    place.make_here("f", &content(2, 100_000));
    // The shell itself has another key, which is not let in there.
    let run = script(
        &place,
        &server,
        &[],
        "/",
        "put -n 2 f\nls --known-only\nls --pin nonsense\n",
    );
    run.fails(2, &["--pin"]);
    assert_content(place.remote("f"), &content(2, 100_000));
}

#[test]
fn another_session_is_as_safe_as_the_first() {
    let place = Place::new();
    // The key is made when it is first used; the servers of these tests know it.
    let first = Server::start(&place.root());
    crate::support::xdfs(["ls", &first.url("/")]).ok();
    let fingerprint = first.line_with("fingerprint ");
    let pin = fingerprint.trim_start_matches("fingerprint ");
    place.make_here("f", b"content");
    let own = program();
    let mut names = own.get_envs();
    let known = names.find(|(name, _)| *name == "XDFS_CONFIG_DIR").unwrap();
    let key = Path::new(known.1.unwrap()).join("id_ed25519");
    let key = key.to_str().unwrap();
    let folder = place.here("config");
    let run = |flags: &[&str], url: &str, lines: &str| {
        let mut command = program();
        command.arg("shell").args(flags).arg(url);
        command.env("XDFS_CONFIG_DIR", &folder);
        command.current_dir(place.here(""));
        run_with_input(&mut command, lines.as_bytes())
    };
    let url = first.url("/");
    // The key and the pin are those of the shell: no key is made, and no server is remembered.
    for line in [
        "put -f -n 2 f\n",
        "put -f -b 64K -w 1M f\n",
        "ls --known-only\n",
    ] {
        run(&["--key", key, "--pin", pin], &url, line).ok();
        let invited = format!("{url}?pin={pin}");
        run(&["--key", key], &invited, line).ok();
        assert!(!Path::new(&folder).join("known_hosts").exists(), "{line}");
        assert!(!Path::new(&folder).join("id_ed25519").exists(), "{line}");
    }
    // What the command names goes before, and takes nothing else away.
    let other = format!("SHA256:{}", "A".repeat(43));
    let flags = ["--key", key, "--pin", pin];
    run(&flags, &url, &format!("ls --pin {other}\n")).fails(17, &[]);
    run(&flags, &url, "ls --insecure\n").fails(2, &["trusted servers"]);
    run(&flags, &url, "ls --protect clear\n").fails(17, &[]);
    run(&flags, &url, "ls --key gone\n").fails(4, &["gone"]);
    assert!(!Path::new(&folder).join("known_hosts").exists());
    // A shell without protection has other sessions without it.
    let open = ["--listen", "127.0.0.1:0", "--insecure"];
    let open = Server::start_with(&place.root(), &open);
    run(&["--insecure"], &open.url("/"), "put -f -n 2 f\nls\n").ok();
}

#[test]
fn a_pipe_is_streamed_to_standard_output() {
    let (place, server) = begin();
    let pipe = place.remote("p");
    xdfs_testkit::tree::make_pipe(&pipe).unwrap();
    let expected = content(3, 500_000);
    for line in ["get p -\n", "cat p\n", "cp :p -\n"] {
        std::thread::scope(|scope| {
            scope.spawn(|| fs::write(&pipe, &expected).unwrap());
            let run = script(&place, &server, &[], "/", line).ok();
            assert!(run.stdout == expected, "{line}");
        });
    }
}
