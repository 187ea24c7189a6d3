//! Tests of addresses and URLs.

use super::*;
use crate::remote::Listen;

fn place(text: &str) -> RemotePlace {
    text.parse().unwrap()
}

#[test]
fn no_host_is_taken_for_a_socket() {
    for text in ["xdfs://unix", "xdfs://unix:7/x", "xdfs://me@unix/"] {
        assert!(text.parse::<RemotePlace>().is_err(), "{text}");
    }
    let place = place("ssh://unix:22/x");
    assert_eq!(place.to_string().parse(), Ok(place));
}

#[test]
fn places_on_ftp_servers() {
    let found = place("ftp://me:se%2Fc%40ret@host/a%20b?ticket=x");
    let address = |name| Address::Place {
        scheme: registry::scheme_of(name).unwrap().0,
        host: "host".to_owned(),
        port: Some(21),
    };
    assert_eq!(found.address, address("ftp://"));
    assert_eq!(found.user.as_deref(), Some("me"));
    assert_eq!(found.invitation.password.as_deref(), Some("se/c@ret"));
    assert_eq!(found.path, b"/a b?ticket=x");
    let shown = found.to_string();
    assert_eq!(shown, "ftp://me@host:21/a%20b%3Fticket=x");
    assert!(!format!("{found:?}").contains("ret"));
    for (text, shown) in [
        ("ftp://me:secret@h/a@b:c", "ftp://me@h/a@b:c"),
        ("FTP://me:secret@h/x", "FTP://me@h/x"),
        ("gsiftp://me:se/cret@h/x", "gsiftp://me@h/x"),
        ("ftp:/me:secret@h/x", "ftp:/me@h/x"),
        ("ftp://me:12/secret:@h", "ftp://me:12/secret:@h"),
        ("ftp://h:2811/a@b", "ftp://h:2811/a@b"),
        ("ftp://[::1]:2811/a:@b", "ftp://[::1]:2811/a:@b"),
        ("ftp://me@h/a:b@c", "ftp://me@h/a:b@c"),
        ("a/b:/c:d@e", "a/b:/c:d@e"),
    ] {
        assert_eq!(RemotePlace::without_password(text), shown);
    }
    for text in [
        "xdfs+quic://me:secret@h/x",
        "xdfs+unix://me:secret@%2Fs/x",
        "xdfs+tcp+tls+zstd://me:secret@[::1]:5/x",
    ] {
        let fault = text.parse::<RemotePlace>().unwrap_err();
        assert!(!format!("{fault:?}").contains("secret"), "{fault}");
        let (begin, _) = text.split_once("me:").unwrap();
        let hint = format!("write {begin}USER@HOST/PATH; --password-file");
        assert!(fault.hint.starts_with(&hint), "{}", fault.hint);
    }
    // A name with a colon stays one when it is written.
    let odd = place("ftp://me%3Ayou@h/x");
    assert_eq!(odd.user.as_deref(), Some("me:you"));
    assert_eq!(odd.to_string(), "ftp://me%3Ayou@h:21/x");
    let protected = place("ftps://me@host/x");
    assert_eq!(protected.address, address("ftps://"));
    assert_eq!(protected.to_string(), "ftps://me@host:21/x");
    assert!(!protected.shares_session(&place("ftp://me@host/x")));
    assert_eq!(place("gsiftp://host/x").to_string(), "gsiftp://host:2811/x");
    let through_ssh = place("sshftp://me@alias//srv/a");
    assert!(through_ssh.address.scheme().is_some() && through_ssh.address.is_of_ssh());
    assert_eq!(through_ssh.to_string(), "sshftp://me@alias//srv/a");
    assert_eq!(through_ssh.path, b"//srv/a");
    assert_eq!(
        place("sshftp://[::1]:2/x").to_string(),
        "sshftp://[::1]:2/x"
    );
    assert!(!through_ssh.shares_session(&place("ssh://me@alias/x")));
    for text in ["ftp://h//etc", "ftp://h/%2Fetc", "sshftp://h//etc"] {
        assert_eq!(place(text).path, b"//etc");
    }
    assert_eq!(place("ftp://[::1]:2811/mem:x").path, b"/mem:x");
    for bad in [
        "ftp://",
        "ftp://me:secret@/x",
        "ftp://me:secret@h:x/",
        "ftp://h/%",
        "ftps://me:secret@h/x",
        "xdfs://me:secret@h/x",
        "xdfs://me:@h/x",
        "xdfs://me%3Asecret@h/x",
        "xdfs://me:secret@h:2799?ticket=x",
        "xdfs://me:se/cret@h/x",
        "ssh://me:secret@h/x",
        "ssh://me%3Asecret@h/x",
        "sshftp://me:secret@h/x",
        "sshftp://-oProxyCommand=x/x",
        "sshftp://me;x@h/x",
        "gsiftp://me:secret@h/x",
        "sshftp://@h/x",
        "ftp://:secret@h/x",
        "xdfs://@h/x",
        "ssh://@h/x",
    ] {
        let fault = bad.parse::<RemotePlace>().unwrap_err();
        assert!(!fault.to_string().contains("secret"), "{fault}");
        let (scheme, _) = bad.split_once("//").unwrap();
        assert!(
            fault.hint.starts_with(&format!("write {scheme}//")),
            "{fault}"
        );
    }
}

#[test]
fn stacks_in_urls_and_addresses() {
    for (text, stack) in [
        ("xdfs+quic://host:2799/a", "quic"),
        ("xdfs+tcp+tls+zstd://me@[::1]:1/x", "tcp,tls,zstd"),
        ("xdfs+unix+zstd://%2Frun%2Fx.sock/d", "unix,zstd"),
    ] {
        let place = place(text);
        assert_eq!(place.to_string(), text);
        assert_eq!(
            place.stack.map(|stack| stack.to_string()),
            Some(stack.to_owned())
        );
    }
    assert_eq!(place("xdfs+unix://%2Fs/d").stack, None);
    assert!(!place("xdfs+quic://h/a").shares_session(&place("xdfs://h/a")));
    for bad in [
        "xdfs+://h/",
        "xdfs+tcp+://h/",
        "xdfs+TCP://h/",
        "xdfs+tcp:a=b://h/",
    ] {
        assert!(RemotePlace::is_remote(bad), "{bad}");
        assert!(bad.parse::<RemotePlace>().is_err(), "{bad}");
    }
    for local in ["xdfs+a/b://c", "xdfsx://h", "xdfs", "xdfs+a"] {
        assert!(!RemotePlace::is_remote(local), "{local}");
    }
    for (text, scheme) in [
        ("127.0.0.1:2799", "xdfs"),
        ("unix:/run/x", "xdfs+unix"),
        ("quic://0.0.0.0:2799", "xdfs+quic"),
        (
            "tcp:nodelay=false,tls,zstd:level=3://[::]:2799",
            "xdfs+tcp+tls+zstd",
        ),
        ("unix,zstd:///run/x", "xdfs+unix+zstd"),
    ] {
        let listen: Listen = text.parse().unwrap();
        assert_eq!(listen.to_string(), text);
        assert_eq!(listen.scheme(), scheme);
    }
    for bad in [
        "://h:1",
        "QUIC://h:1",
        "quic://",
        "unix://",
        "tcp,://h:1",
        "tcp://:1",
    ] {
        assert!(bad.parse::<Listen>().is_err(), "{bad}");
    }
}

#[test]
fn addresses() {
    let tcp = |host: &str, port| Address::Host {
        host: host.into(),
        port,
    };
    assert_eq!(
        "127.0.0.1:0".parse::<Address>().unwrap(),
        tcp("127.0.0.1", 0)
    );
    assert_eq!("[::1]:7".parse::<Address>().unwrap(), tcp("::1", 7));
    assert_eq!("::1".parse::<Address>().unwrap(), tcp("::1", DEFAULT_PORT));
    assert_eq!(
        "host".parse::<Address>().unwrap(),
        tcp("host", DEFAULT_PORT)
    );
    assert_eq!(
        "unix:/run/x".parse::<Address>().unwrap(),
        Address::Unix("/run/x".into())
    );
    for bad in [
        "",
        ":1",
        "[::1",
        "[::1]x",
        "host:port",
        "host:99999",
        "1:2:3",
        "unix:",
    ] {
        assert!(bad.parse::<Address>().is_err(), "{bad}");
    }
}

#[test]
fn encoded_names_have_no_meaning_to_shells() {
    let every: Vec<u8> = (1..=255).filter(|byte| *byte != b'/').collect();
    let encoded = RemotePlace::percent_encoded(&every);
    let plain = |c: char| c.is_ascii_alphanumeric() || "%+,-./:=@_".contains(c);
    assert!(encoded.chars().all(plain), "{encoded}");
    let path = [b"/", every.as_slice()].concat();
    assert_eq!(place(&format!("xdfs://h/{encoded}")).path, path);
    assert_eq!(RemotePlace::percent_encoded(b"a b/c.img"), "a%20b/c.img");
}

#[test]
fn places_on_one_server() {
    for (url, path, at) in [
        ("xdfs://u@h", "/b", "xdfs://u@h:2799/b"),
        ("xdfs://h/a", "/b c", "xdfs://h:2799/b%20c"),
        ("xdfs://h/a", "/mem:null", "xdfs://h:2799/mem:null"),
        ("ssh://h/a", "/~/b", "ssh://h/~/b"),
        ("ssh://h", "/b", "ssh://h/b"),
        ("gsiftp://h/a", "/~/b", "gsiftp://h/~/b"),
        ("ftp://h/a", "//b", "ftp://h//b"),
    ] {
        let at = place(at);
        let other = place(url).at(path.into());
        assert_eq!(other, at, "{url} {path}");
        assert_eq!(other.url_path(), path.as_bytes());
        assert!(other.shares_session(&place(url)));
    }
    // No path is the directory of the login.
    for (text, path, begins_at_login) in [
        ("gsiftp://h", "/~/", false),
        ("sshftp://h", "/~/", false),
        ("gsiftp://h/", "/", false),
        ("ftp://h", "", true),
        ("ftps://h/", "/", true),
        ("xdfs://h", "", false),
    ] {
        let found = place(text);
        assert_eq!(found.path, path.as_bytes(), "{text}");
        assert_eq!(found.address.begins_at_login(), begins_at_login, "{text}");
    }
    let server = place("xdfs://u@h/a");
    assert!(!server.shares_session(&place("xdfs://h/a")));
    let named = RemotePlace {
        profile: Some("lab".into()),
        ..server.clone()
    };
    assert!(!server.shares_session(&named) && named.shares_session(&named));
}

#[test]
fn places_survive_a_round_trip() {
    for text in [
        "xdfs://host:2799/a/b",
        "xdfs://me@[::1]:1/x%20y%FF",
        "xdfs+unix://%2Frun%2Fx.sock/data/f",
        "xdfs://host:2799/mem:null",
        "ssh://host/a/b",
        "ssh://me@[::1]:22/~/x%20y",
        "ssh://host/~/",
    ] {
        assert_eq!(place(text).to_string(), text);
    }
    let pin = format!("SHA256:{}", "A".repeat(43));
    let invited = place(&format!("xdfs://h/a%3Fb?ticket=secret&pin={pin}"));
    assert_eq!(invited.path, b"/a?b");
    assert_eq!(invited.invitation.ticket.as_deref(), Some("secret"));
    assert_eq!(invited.invitation.pin.unwrap().to_string(), pin);
    assert!(!format!("{invited} {invited:?}").contains("secret"));
    assert_eq!(place("xdfs://h/a?b").path, b"/a?b");
    let odd = "xdfs://h/a?ticket=secret&x=1"
        .parse::<RemotePlace>()
        .unwrap_err();
    assert!(!odd.to_string().contains("secret"));
    assert_eq!(place("xdfs://h").path, b"");
    assert_eq!(place("xdfs://h/mem:zero").path, b"mem:zero");
    for (text, path) in [
        ("ssh://h", "./"),
        ("ssh://h/", "/"),
        ("ssh://h/~", "./"),
        ("ssh://h/~/", "./"),
        ("ssh://h/~/a/b", "./a/b"),
        ("ssh://h/~a", "/~a"),
        ("ssh://h/a/~/b", "/a/~/b"),
        ("ssh://h/a?pin=x", "/a?pin=x"),
    ] {
        assert_eq!(place(text).path, path.as_bytes(), "{text}");
    }
    for bad in [
        "http://h/x",
        "xdfs:///x",
        "xdfs://h/%zz",
        "xdfs://h:x/",
        "xdfs://unix:/a",
        "ssh:///a",
        "ssh://h:x/a",
        "ssh://-oProxyCommand=x/a",
        "ssh://h;x/a",
        "ssh://$(x)@h/a",
    ] {
        assert!(bad.parse::<RemotePlace>().is_err(), "{bad}");
    }
}
