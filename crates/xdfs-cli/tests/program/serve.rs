//! What a server listens on, and what it refuses.

use std::net::TcpListener;
use std::process::Stdio;

use crate::support::{Place, Running, Server, assert_content, content, names, program, xdfs};

#[test]
fn it_listens_on_several_addresses() {
    let place = Place::new();
    let flags = ["--listen", "127.0.0.1:0", "--listen", "127.0.0.1:0"];
    let server = Server::start_with(&place.root(), &flags);
    assert_eq!(server.addresses.len(), 2);
    assert_ne!(server.addresses[0], server.addresses[1]);
    let source = place.make_here("a", b"abc");
    for (i, address) in server.addresses.iter().enumerate() {
        assert!(!address.ends_with(":0"));
        xdfs(["cp", &source, &format!("xdfs://{address}/f{i}")]).ok();
        assert_content(place.remote(&format!("f{i}")), b"abc");
    }
}

#[test]
fn it_serves_ipv6() {
    if TcpListener::bind("[::1]:0").is_err() {
        return xdfs_testkit::skip::test("this machine has no IPv6");
    }
    let place = Place::new();
    let server = Server::start_with(&place.root(), &["--listen", "[::1]:0"]);
    assert!(server.addresses[0].starts_with("[::1]:"));
    let expected = content(21, 300_000);
    xdfs([
        "cp",
        "-n",
        "2",
        &place.make_here("a", &expected),
        &server.url("/a"),
    ])
    .ok();
    assert_content(place.remote("a"), &expected);
}

#[cfg(unix)]
#[test]
fn it_serves_a_unix_socket() {
    let place = Place::new();
    let socket = place.path().join("s");
    let listen = format!("unix:{}", socket.display());
    let server = Server::start_with(&place.root(), &["--listen", &listen]);
    assert_eq!(server.addresses, [listen]);
    let authority = socket
        .to_str()
        .unwrap()
        .replace('%', "%25")
        .replace('/', "%2F");
    let expected = content(22, 300_000);
    let url = format!("xdfs+unix://{authority}/a");
    xdfs(["cp", "-n", "2", &place.make_here("a", &expected), &url]).ok();
    assert_content(place.remote("a"), &expected);
    xdfs(["cp", &url, &place.here("b")]).ok();
    assert_content(place.here("b"), &expected);
}

#[test]
fn a_read_only_server_takes_nothing() {
    let place = Place::new();
    std::fs::write(place.remote("there"), b"abc").unwrap();
    let server = Server::start_with(&place.root(), &["--listen", "127.0.0.1:0", "--read-only"]);
    let source = place.make_here("a", b"a");
    xdfs(["cp", &source, &server.url("/a")]).fails(5, &["error: server "]);
    xdfs(["cp", "-f", &source, &server.url("/there")]).fails(5, &["error: server "]);
    assert_eq!(names(place.root()), ["there"]);
    xdfs(["cp", &server.url("/there"), &place.here("down")]).ok();
    assert_content(place.here("down"), b"abc");
}

#[test]
fn other_machines_are_served_with_protection_or_by_request_without() {
    let place = Place::new();
    let source = place.make_here("a", b"abc");
    let server = Server::start_with(&place.root(), &["--listen", "0.0.0.0:0"]);
    let url = server.url("/private").replace("0.0.0.0", "127.0.0.1");
    xdfs(["cp", &source, &url]).ok();
    assert_content(place.remote("private"), b"abc");
    // Neither side goes down to no protection by itself.
    xdfs(["cp", "--insecure", &source, &url]).fails(17, &["--insecure"]);
    let server = Server::start_with(&place.root(), &["--listen", "0.0.0.0:0", "--insecure"]);
    let url = server.url("/plain").replace("0.0.0.0", "127.0.0.1");
    xdfs(["cp", &source, &url]).fails(17, &["--insecure"]);
    xdfs(["cp", "--insecure", &source, &url]).ok();
    assert_content(place.remote("plain"), b"abc");
}

#[test]
fn payload_is_clear_where_both_sides_say_so() {
    let place = Place::new();
    let source = place.make_here("a", b"abc");
    let local = ["--listen", "127.0.0.1:0"];
    let server = Server::start_with(&place.root(), &local);
    let url = server.url("/a");
    // Neither refused silently nor granted in another way.
    xdfs(["cp", "--protect", "clear", &source, &url]).fails(17, &["--protect clear"]);
    assert!(names(place.root()).is_empty());
    let flags = [&local[..], &["--protect", "clear"]].concat();
    let server = Server::start_with(&place.root(), &flags);
    xdfs(["cp", "--protect", "clear", &source, &server.url("/a")]).ok();
    xdfs(["cp", "--protect", "private", &source, &server.url("/b")]).ok();
    xdfs(["cp", &source, &server.url("/c")]).ok();
    for name in ["a", "b", "c"] {
        assert_content(place.remote(name), b"abc");
    }
    xdfs(["cp", "--insecure", "--protect", "clear", &source, &url])
        .fails(2, &["--insecure can't be combined"]);
    let file = place.make_here("clear.toml", b"protect = \"clear\"\n");
    let server = Server::start_with(&place.root(), &["--listen", "127.0.0.1:0", "-c", &file]);
    xdfs(["cp", "--protect", "clear", &source, &server.url("/d")]).ok();
}

/// The other levels are those of GridFTP: nobody hears of them elsewhere.
#[test]
fn levels_of_gridftp_are_refused_before_anything_is_sent() {
    let place = Place::new();
    let source = place.make_here("a", b"abc");
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    listener.set_nonblocking(true).unwrap();
    let address = listener.local_addr().unwrap();
    let script = place.make_here("ssh", b"touch \"$0.ran\"\n");
    let ssh = format!("sh {script}");
    let hint = "leave out --protect";
    for scheme in ["xdfs", "ssh", "ftps"] {
        let url = format!("{scheme}://{address}/a");
        let (here, there) = (source.as_str(), url.as_str());
        for level in ["safe", "unauthenticated"] {
            let flags = ["--protect", level, "--ssh", &ssh];
            let at = |verb| [&[verb], &flags[..]].concat();
            xdfs([&at("cp"), &[here, there][..]].concat()).fails(17, &[hint]);
            xdfs([&at("cp"), &[there, here][..]].concat()).fails(17, &[hint]);
            xdfs([&at("ls"), &[there][..]].concat()).fails(17, &[hint]);
        }
    }
    let words = ["tunnel", "--protect", "safe", "-L", "0:db:1"];
    xdfs([&words[..], &[&format!("xdfs://{address}")]].concat()).fails(2, &["encrypted"]);
    let error = listener.accept().unwrap_err();
    assert_eq!(error.kind(), std::io::ErrorKind::WouldBlock);
    assert!(!std::path::Path::new(&format!("{script}.ran")).exists());
    // A server only says what clients may do without.
    let root = place.root().display().to_string();
    for level in ["safe", "unauthenticated"] {
        xdfs(["serve", "--root", &root, "--protect", level]).fails(2, &["private, clear"]);
        let config = format!("protect = \"{level}\"\n");
        let file = place.make_here("levels.toml", config.as_bytes());
        xdfs(["serve", "--root", &root, "-c", &file]).fails(2, &["is none of `private`, `clear`"]);
    }
}

#[test]
fn settings_come_from_a_file_and_flags_go_first() {
    let place = Place::new();
    let file = place.make_here(
        "xdfs.toml",
        b"listen = [\"127.0.0.1:0\"]\nroot = \"../root\"\nread_only = true\n",
    );
    std::fs::write(place.remote("x"), b"abc").unwrap();
    let source = place.make_here("a", b"a");
    let flags = ["--config", &file];
    let server = Server::start_with(&place.root(), &flags);
    xdfs(["cp", &source, &server.url("/a")]).fails(5, &["error: server "]);
    let server = Server::start_with(&place.root(), &["--config", &file, "--read-only=false"]);
    xdfs(["cp", &source, &server.url("/a")]).ok();
}

#[test]
fn a_root_or_an_address_that_cannot_be_is_named() {
    let place = Place::new();
    let none = place.here("none");
    xdfs(["serve", "--listen", "127.0.0.1:0", "--root", &none]).fails(4, &["none"]);
    let taken = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = taken.local_addr().unwrap().to_string();
    let root = place.root();
    let run = xdfs([
        "serve",
        "--listen",
        &address,
        "--root",
        root.to_str().unwrap(),
    ]);
    assert!(run.code.is_some_and(|code| code != 0), "{run:?}");
    assert!(run.stderr.contains(&address), "{}", run.stderr);
}

#[cfg(unix)]
#[test]
fn signals_end_an_idle_server_well() {
    for signal in ["TERM", "INT"] {
        let place = Place::new();
        let mut server = Server::start(&place.root());
        server.running.signal(signal);
        server.running.wait().ok();
    }
}

#[cfg(unix)]
#[test]
fn a_second_signal_ends_running_sessions_at_once() {
    let place = Place::new();
    let flags = ["--listen", "127.0.0.1:0", "--grace", "3600"];
    let mut server = Server::start_with(&place.root(), &flags);
    let source = place.make_here("file", &content(23, 64 << 20));
    let args = [
        "cp",
        "--json",
        "--limit-rate",
        "2M",
        &source,
        &server.url("/file"),
    ];
    let mut client = Running::start(program().args(args));
    client.wait_for_bytes(1);
    server.running.signal("TERM");
    // Two signals of one kind that come together are one: wait until the first was seen.
    server.running.wait_for_message("another signal");
    server.running.signal("TERM");
    server.running.wait();
    client.kill();
    assert!(!names(place.root()).contains(&"file".to_owned()));
}

/// A root that holds what the server rests on is refused, made or not, before anything is made.
#[test]
fn a_home_with_the_servers_own_files_is_not_served() {
    let place = Place::new();
    let home = place.root();
    let serve = |args: &[&str], config: Option<&str>| {
        let mut command = program();
        command.env_remove("XDFS_CONFIG_DIR").env("HOME", &home);
        if let Some(config) = config {
            command.env("XDFS_CONFIG_DIR", config);
        }
        command
            .args(["serve", "--listen", "127.0.0.1:0"])
            .args(args);
        Running::start(&mut command)
    };
    let root = home.to_str().unwrap();
    let words = [".config/xdfs", "serve another directory", "XDFS_CONFIG_DIR"];
    for _ in 0..2 {
        for more in [&[][..], &["--insecure"], &["--read-only"]] {
            let mut run = serve(&[&["--root", root], more].concat(), None);
            run.wait().fails(2, &words);
        }
        // Now with the folder there.
        std::fs::create_dir_all(home.join(".config/xdfs/server")).unwrap();
    }
    assert!(
        std::fs::read_dir(home.join(".config/xdfs/server"))
            .unwrap()
            .next()
            .is_none()
    );
    let above = place.remote("..");
    serve(&["--root", above.to_str().unwrap()], None)
        .wait()
        .fails(2, &words);
    // A file of settings, or a log, in the root.
    let elsewhere = place.here("elsewhere");
    let config = home.join("xdfs.toml");
    std::fs::write(&config, "").unwrap();
    let words = ["xdfs.toml", "it contains"];
    let flags = ["--root", root, "--config", config.to_str().unwrap()];
    serve(&flags, Some(&elsewhere)).wait().fails(2, &words);
    let settings = format!("audit = '{root}/logs/audit'\n");
    let config = place.make_here("audit.toml", settings.as_bytes());
    let flags = ["--root", root, "--config", &config];
    serve(&flags, Some(&elsewhere))
        .wait()
        .fails(2, &["logs/audit"]);
    // Of each user.
    let text = "[[export]]\nname = \"home\"\npath = '{root}/{user}'\nmake = true\n";
    let settings = text.replace("{root}", root);
    let config = place.make_here("homes.toml", settings.as_bytes());
    let own = format!("{root}/me/.config/xdfs");
    serve(&["--config", &config], Some(&own))
        .wait()
        .fails(2, &["{user}", "me/.config"]);
}

#[test]
fn an_address_needs_a_host() {
    xdfs(["serve", "--listen", "28100"]).fails(2, &["localhost:28100"]);
}

#[test]
fn a_server_without_authentication_warns() {
    let place = Place::new();
    let mut server = Server::start_with(&place.root(), &["--insecure", "--listen", "0.0.0.0:0"]);
    server.running.wait_for_message("anyone who can reach");
    server.running.kill();
    let mut server = Server::start_with(&place.root(), &["--insecure", "--listen", "127.0.0.1:0"]);
    server.running.signal("TERM");
    let run = server.running.wait().ok();
    assert!(!run.stderr.contains("anyone"), "{}", run.stderr);
}

#[test]
fn a_server_with_exports_says_what_they_are() {
    let place = Place::new();
    let text = format!(
        "listen = [\"127.0.0.1:0\"]\n[[export]]\nname = \"data\"\npath = \"{}\"\n\
         [[export.grant]]\nuser = \"*\"\nrights = [\"read\", \"list\"]\n",
        place.root().display()
    );
    let config = place.make_here("xdfs.toml", text.as_bytes());
    let mut serve = program();
    serve.args(["serve", "--config", &config]);
    let mut running = Running::start(serve.stdin(Stdio::null()));
    running.wait_for_output("serving /data from ");
    running.kill();
}
