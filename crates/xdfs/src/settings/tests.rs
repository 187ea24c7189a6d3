//! Names and settings of servers, and mistakes in them.

use std::ffi::OsStr;
use std::path::Path;

use xdfs_proto::{Code, Fault};

use super::client::{ClientConfig, HINT, SCHEMES, located};
use super::file::ConfigText;
use super::login::Login;
use crate::remote::RemotePlace;
use crate::security::{Fingerprint, Level};
use crate::session::ClientOptions;

fn read(text: &str) -> Result<ClientConfig, Fault> {
    let text = ConfigText::new(b"config.toml", text.to_owned(), HINT);
    text.parse().map_err(|mut faults| faults.remove(0))
}

fn url_of(config: &ClientConfig, word: &str) -> Option<String> {
    let place = config.place(OsStr::new(word))?;
    assert!(config.is_remote(OsStr::new(word)), "{word}");
    assert_eq!(
        place.profile.as_deref(),
        word.split_once(':').map(|(n, _)| n)
    );
    Some(place.to_string())
}

#[test]
fn names_stand_for_places() {
    let config = read(
        "[remote.lab]\nurl = \"xdfs://alice@h/da%20ta\"\n\
         [remote.bare]\nurl = \"xdfs://h\"\n\
         [remote.far]\nurl = \"ssh://h\"\n\
         [remote.\"near-1_x.y\"]\nurl = \"xdfs+unix://%2Fs/d/\"\n",
    )
    .unwrap();
    for (word, url) in [
        ("lab:", "xdfs://alice@h:2799/da%20ta/"),
        ("lab:x/y", "xdfs://alice@h:2799/da%20ta/x/y"),
        (
            "lab:x%20?pin=y",
            "xdfs://alice@h:2799/da%20ta/x%2520%3Fpin=y",
        ),
        ("lab:/x", "xdfs://alice@h:2799/x"),
        ("lab:/", "xdfs://alice@h:2799/"),
        ("lab://x", "xdfs://alice@h:2799//x"),
        ("lab:../x:y", "xdfs://alice@h:2799/da%20ta/../x:y"),
        ("lab:mem:null", "xdfs://alice@h:2799/da%20ta/mem:null"),
        ("bare:", "xdfs://h:2799/"),
        ("bare:x", "xdfs://h:2799/x"),
        ("bare:/mem:null", "xdfs://h:2799/mem:null"),
        ("far:", "ssh://h/~/"),
        ("far:x", "ssh://h/~/x"),
        ("far:/x", "ssh://h/x"),
        ("far:/~/x", "ssh://h/~/x"),
        ("near-1_x.y:z", "xdfs+unix://%2Fs/d/z"),
    ] {
        assert_eq!(url_of(&config, word).as_deref(), Some(url), "{word}");
    }
    for word in ["lab", "./lab:x", "LAB:x", "la:x", ":x", "", "xdfs://lab:x"] {
        assert_eq!(url_of(&config, word), None, "{word}");
    }
    assert_eq!(config.names().count(), 4);
}

#[test]
fn mistakes_are_named_with_their_line() {
    for (settings, line, words) in [
        (
            "kye = \"x\"",
            4,
            "unknown setting `kye`; known here: `url`, `key`",
        ),
        ("agent = 1", 4, "true or false is needed, not the number 1"),
        ("key = \"k\"\nkey = \"l\"", 5, "there twice"),
        ("channels = 0", 4, "from 1 to 4096"),
        ("channels = 4097", 4, "from 1 to 4096"),
        (
            "channels = \"8\"",
            4,
            "a whole number is needed, not the text \"8\"",
        ),
        ("retries = -1", 4, ""),
        ("block_size = \"3000\"", 4, "power of two"),
        ("window = true", 4, "expected a number, or text"),
        ("limit_rate = 0", 4, "would never end"),
        ("pin = \"abc\"", 4, "SHA256: and 43"),
        (
            "protect = \"none\"",
            4,
            "`private`, `safe`, `clear`, `unauthenticated`",
        ),
        ("insecure = true\nkey = \"k\"", 2, "`insecure` excludes"),
        ("password = \"x\"", 4, "unknown setting `password`"),
        ("cert = \"c\"", 2, "need each other"),
        ("cert_key = \"c\"", 2, "need each other"),
        ("agent = true\nkey = \"k\"", 2, "exclude each other"),
        (
            "anonymous = true\nkey = \"k\"",
            2,
            "excludes other credentials",
        ),
        ("ssh = \"ssh\"", 2, "for ssh:// and sshftp:// URLs"),
        ("a =", 4, ""),
    ] {
        let text = format!("[defaults]\n[remote.lab]\nurl = \"xdfs://h\"\n{settings}\n");
        let fault = read(&text).unwrap_err();
        let begin = format!("line {line}: ");
        assert!(fault.cause.starts_with(&begin), "{text}: {}", fault.cause);
        assert!(fault.cause.contains(words), "{text}: {}", fault.cause);
        assert_eq!((fault.code, &*fault.hint), (Code::InvalidArgument, HINT));
    }
    for (text, words) in [
        (
            "x = 1",
            "unknown setting `x`; known here: `defaults`, `drivers`, `remote`",
        ),
        ("[default]", "unknown setting `default`"),
        (
            "[defaults]\nkey = \"k\"",
            "unknown setting `key`; known here: `channels`",
        ),
        ("[remote]\nlab = 1", "a table with the settings of a server"),
        ("[remote.lab]", "the setting `url` is missing"),
        ("remote.lab.url = \"lab\"", "does not start with xdfs://"),
        (
            "remote.lab.url = \"xdfs://h/?ticket=hush\"",
            "set `ticket_file`",
        ),
        ("remote.lab.url = \"xdfs://h/mem:null\"", "built-in store"),
        (
            "remote.lab = { url = \"ssh://h\", key = \"k\" }",
            "ssh logs in",
        ),
        (
            "remote.lab = { url = \"ssh://h\", known_only = true }",
            "ssh logs in",
        ),
    ] {
        let fault = read(text).unwrap_err();
        assert!(fault.cause.contains(words), "{text}: {}", fault.cause);
        assert!(!fault.to_string().contains("hush"), "{fault}");
    }
}

#[test]
fn names_mean_nothing_else() {
    for name in [
        "x",
        "",
        "-x",
        ".x",
        "a b",
        "a/b",
        "a:b",
        "\u{e4}\u{e4}",
        "a\\nb",
    ] {
        let fault = read(&format!("remote.\"{name}\".url = \"xdfs://h\"")).unwrap_err();
        assert!(
            fault.cause.contains("can't be the name of a remote"),
            "{name}"
        );
    }
    for name in SCHEMES.into_iter().chain(["ssh", "ftp", "gsiftp"]) {
        read(&format!("remote.{name}.url = \"xdfs://h\"")).unwrap_err();
    }
    read("remote.SSH.url = \"xdfs://h\"").unwrap_err();
}

/// The login to `word`, completed.
fn completed(config: &ClientConfig, word: &str, login: Login) -> Login {
    let place = config.place(OsStr::new(word)).unwrap();
    config.login(&place, &login).unwrap()
}

#[test]
fn settings_are_those_of_their_place_and_flags_override_them() {
    let pin =
        |letter: &str| -> Fingerprint { format!("SHA256:{}", letter.repeat(43)).parse().unwrap() };
    let config = read(&format!(
        "[remote.lab]\nurl = \"xdfs://h\"\nkey = \"k\"\npin = \"{}\"\nprotect = \"clear\"\n\
         known_only = true\n[remote.other]\nurl = \"xdfs://h\"\nca = \"c\"\n",
        pin("A")
    ))
    .unwrap();
    let none = Login::default;
    let lab = completed(&config, "lab:x", none());
    assert_eq!(lab.key, Some("k".into()));
    assert_eq!((lab.pin, lab.known_only), (Some(pin("A")), true));
    assert_eq!(lab.protect, Some(Level::Clear));
    let other = completed(&config, "other:x", none());
    assert!(other.key.is_none() && other.pin.is_none() && !other.known_only);
    assert_eq!(other.ca, Some("c".into()));
    let url: RemotePlace = "xdfs://h".parse().unwrap();
    assert!(!config.login(&url, &none()).unwrap().protects());
    // One credential is not shown beside another one, and a pin not checked beside another.
    let flags = Login {
        password_file: Some("p".into()),
        protect: Some(Level::Private),
        ..none()
    };
    let lab = completed(&config, "lab:x", flags);
    assert!(lab.key.is_none() && lab.password_file.is_some());
    assert_eq!(lab.pin, Some(pin("A")));
    assert_eq!(lab.protect, Some(Level::Private));
    let flags = Login {
        ca: Some("d".into()),
        ..none()
    };
    let lab = completed(&config, "lab:x", flags);
    assert_eq!((lab.pin, lab.ca), (None, Some("d".into())));
    assert_eq!(lab.key, Some("k".into()));
    let insecure = Login {
        insecure: true,
        ..none()
    };
    let place = config.place(OsStr::new("lab:")).unwrap();
    config.login(&place, &insecure).unwrap_err();
    assert!(config.login(&url, &insecure).unwrap().insecure);
}

#[test]
fn defaults_complete_the_settings_of_all_places() {
    let config = read(
        "[defaults]\nchannels = 3\nretries = 5\nwindow = 65536\nshare = true\n\
         [remote.lab]\nurl = \"xdfs://h\"\nchannels = 8\nblock_size = \"1M\"\n\
         limit_rate = \"4M\"\nshare = false\n",
    )
    .unwrap();
    let lab = config.session(&config.place(OsStr::new("lab:")).unwrap());
    let url = config.session(&"xdfs://h".parse().unwrap());
    let options = lab.options(ClientOptions::default());
    assert_eq!(
        (options.channels, options.block_size, options.window),
        (Some(8), Some(1 << 20), Some(1 << 16))
    );
    let given = ClientOptions {
        channels: Some(1),
        ..ClientOptions::default()
    };
    assert_eq!(lab.options(given).channels, Some(1));
    let options = url.options(ClientOptions::default());
    assert_eq!((options.channels, options.block_size), (Some(3), None));
    let retries = |flag: Option<u32>| lab.retry(flag).retries_max;
    assert_eq!((retries(None), retries(Some(0))), (5, 0));
    assert_eq!(
        (lab.rate(None), lab.rate(Some(7))),
        (Some(4_000_000), Some(7))
    );
    assert_eq!(url.rate(None), None);
    assert_eq!((lab.share(), url.share()), (Some(false), Some(true)));
    assert_eq!(ClientConfig::default().defaults.share(), None);
}

#[test]
fn files_are_relative_to_the_folder() {
    let folder = Path::new("/c");
    let found = |file: &str| located(Path::new(file), folder).unwrap();
    assert_eq!(found("k"), Path::new("/c/k"));
    assert_eq!(found("/k"), Path::new("/k"));
    assert_eq!(found("-"), Path::new("-"));
    assert_eq!(found("~k"), Path::new("/c/~k"));
}
