//! TLS 1.2 in the client: at vsftpd, where it is too weak, and where it has no place.

use std::fs;
use std::net::TcpListener;
use std::process::{Command, Stdio};
use std::sync::Arc;
use std::thread;

use rustls::ServerConnection;
use rustls::version::TLS12;
use xdfs_testkit::process::Guard;
use xdfs_testkit::skip;

use crate::ftps::{authority, speaking};
use crate::nodes::{node_config, start_node};
use crate::places::{There, vsftpd_told, works, xdfs};
use crate::stage::{PATIENCE, Stage, has, outcome, run};

/// Settings with which OpenSSL speaks nothing newer.
const OLDER: &str = "openssl_conf = a\n[a]\nssl_conf = b\n[b]\nsystem_default = c\n[c]\n\
                     MaxProtocol = TLSv1.2\n";

/// Which by default requires data connections to resume the session of the control connection.
#[test]
fn everything_works_at_vsftpd() {
    let stage = Stage::with_users(153, "");
    let (older, log) = (stage.beside("openssl.cnf"), stage.beside("vsftpd.log"));
    fs::write(&older, OLDER).unwrap();
    let more = format!(
        "ssl_enable=YES\nallow_anon_ssl=YES\nforce_anon_data_ssl=YES\n\
         force_anon_logins_ssl=YES\nrequire_ssl_reuse=YES\nssl_ciphers=HIGH\n\
         rsa_cert_file={0}/server.crt\nrsa_private_key_file={0}/server.key\n\
         debug_ssl=YES\nxferlog_enable=YES\nxferlog_std_format=NO\nvsftpd_log_file={1}\n",
        stage.beside("server").display(),
        log.display(),
    );
    let told = vsftpd_told(&stage, &more, |command| {
        command.env("OPENSSL_CONF", &older);
    });
    let Some((_server, address)) = told else {
        return;
    };
    let (authority, root) = (authority(&stage), stage.beside("anonymous/pub"));
    let place = format!("ftps://localhost:{}/pub", address.port());
    let there = There {
        url: &place,
        root: &root,
        flags: &["--ca", &authority],
    };
    works(&stage, there);
    let text = fs::read_to_string(&log).unwrap();
    let versions = || text.lines().filter(|line| line.contains("SSL version: "));
    assert!(versions().all(|line| line.contains("TLSv1.2")), "{text}");
    // Those of data.
    let is_resumed = |line: &&str| line.contains(", reused,");
    assert!(versions().filter(is_resumed).count() > 5, "{text}");
}

/// A server with one port for each of its arguments, a list of ciphers of OpenSSL: the version, and
/// whether it has the extended master secret, are behind it.
const SERVER: &str = r#"
import socket, ssl, sys, threading
def serve(listener, context):
    while True:
        stream, _ = listener.accept()
        stream.settimeout(60)
        stream.sendall(b"220 hello\r\n")
        lines = [stream.recv(100)]
        stream.sendall(b"234 go on\r\n")
        try:
            stream = context.wrap_socket(stream, server_side=True)
            lines += [stream.version().encode(), stream.recv(100)]
            stream.sendall(b"530 nobody\r\n")
        except (OSError, ssl.SSLError):
            pass
        print(listener.getsockname()[1], lines, flush=True)
        stream.close()
ports = []
for case in sys.argv[2:]:
    ciphers, version, extended = case.split("/")
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(sys.argv[1] + ".crt", sys.argv[1] + ".key")
    context.set_ciphers(ciphers + ":@SECLEVEL=0")
    version = getattr(ssl.TLSVersion, version)
    context.minimum_version = context.maximum_version = version
    if extended == "no":
        # SSL_OP_NO_EXTENDED_MASTER_SECRET, for which Python has no name.
        context.options |= 1
    listener = socket.create_server(("127.0.0.1", 0))
    ports.append(listener.getsockname()[1])
    threading.Thread(target=serve, args=(listener, context), daemon=True).start()
print("ports", *ports, flush=True)
threading.Event().wait()
"#;

#[test]
fn what_is_weak_in_tls_1_2_is_refused() {
    if !has("openssl") || !has("python3") {
        return skip::test("openssl or python3 is not installed");
    }
    let stage = Stage::with_users(154, "");
    // RSA without an exchange of keys needs a key of RSA.
    let config = "[req]\ndistinguished_name = d\n[d]\n";
    fs::write(stage.beside("req.cnf"), config).unwrap();
    let (files, own) = (stage.beside("rsa"), stage.beside("rsa.crt"));
    let mut make = Command::new("openssl");
    make.args([
        "req", "-x509", "-newkey", "rsa:2048", "-nodes", "-days", "2",
    ])
    .args([
        "-subj",
        "/CN=localhost",
        "-addext",
        "subjectAltName=DNS:localhost",
    ])
    .args(["-addext", "basicConstraints=critical,CA:FALSE", "-config"])
    .arg(stage.beside("req.cnf"))
    .arg("-keyout")
    .arg(stage.beside("rsa.key"))
    .arg("-out")
    .arg(&own);
    run(&mut make);
    let strong = "ECDHE-RSA-AES128-GCM-SHA256/TLSv1_2/yes";
    let cases = [
        strong,
        // No extended master secret, no AEAD, no ephemeral key, an older version.
        "ECDHE-RSA-AES128-GCM-SHA256/TLSv1_2/no",
        "ECDHE-RSA-AES128-SHA256/TLSv1_2/yes",
        "AES128-GCM-SHA256/TLSv1_2/yes",
        "ALL/TLSv1_1/yes",
    ];
    let mut serve = Command::new("python3");
    serve.args(["-c", SERVER]).arg(&files).args(cases);
    let server = Guard::spawn(&mut serve).unwrap();
    let ports = |line: &str| Some(line.strip_prefix("ports ")?.to_owned());
    let Some(ports) = server.line(PATIENCE, ports) else {
        panic!("{:?}", server.output());
    };
    let own = own.display().to_string();
    for (port, case) in ports.split(' ').zip(cases) {
        let url = format!("ftps://localhost:{port}/f");
        let (succeeded, text) = outcome(&mut xdfs(&stage, &["cat", "--ca", &own, &url]));
        let told = server.line(PATIENCE, |line| {
            Some(line.strip_prefix(&format!("{port} "))?.to_owned())
        });
        let told = told.unwrap();
        assert!(!succeeded, "{case}: {text}");
        if case == strong {
            assert!(text.contains("530 nobody"), "{text}");
            assert!(told.contains("TLSv1.2") && told.contains("USER"), "{told}");
        } else {
            assert!(
                text.contains("the extended master secret"),
                "{case}: {text}"
            );
            assert!(
                told.contains("AUTH TLS") && !told.contains("USER"),
                "{told}"
            );
        }
    }
}

/// Servers, data nodes, and clients of xDFS.
#[test]
fn everything_else_speaks_tls_1_3_alone() {
    if !has("openssl") {
        return skip::test("openssl is not installed");
    }
    let stage = Stage::with_users(155, "");
    let own = |line: &str| Some(line.strip_prefix("listening on ")?.to_owned());
    let own = stage.server.line(PATIENCE, own).unwrap();
    let nobody = format!("SHA256:{}", "A".repeat(43));
    let node = format!("[gridftp.data_node]\nlisten = \"127.0.0.1:0\"\nobeys = [\"{nobody}\"]\n");
    let config = node_config(&stage.beside(""), "node", &stage.root(""), &node);
    let (_node, node, _) = start_node(&config);
    for (address, flags) in [
        (&own, &["-alpn", "xdfs/1"][..]),
        (&node, &["-alpn", "xdfs-node/1"]),
        (&stage.address, &["-starttls", "ftp"]),
    ] {
        let said = |version: &str| {
            let mut ask = Command::new("openssl");
            ask.args(["s_client", version, "-connect", address]);
            let out = ask.args(flags).stdin(Stdio::null()).output().unwrap();
            String::from_utf8_lossy(&[out.stdout, out.stderr].concat()).into_owned()
        };
        let text = said("-tls1_3");
        assert!(
            text.contains("New, TLSv1.3, Cipher is TLS"),
            "{flags:?}: {text}"
        );
        let text = said("-tls1_2");
        let is_refused = text.contains("Cipher is (NONE)") && text.contains("alert");
        assert!(is_refused, "{flags:?}: {text}");
    }
    let (listener, older) = (
        TcpListener::bind("127.0.0.1:0").unwrap(),
        speaking(&stage, &[&TLS12]),
    );
    let port = listener.local_addr().unwrap().port();
    // It ends with the process of the test.
    thread::spawn(move || {
        for mut stream in listener.incoming().flatten() {
            let mut connection = ServerConnection::new(Arc::clone(&older)).unwrap();
            // The client has nothing to agree on.
            let _ = connection.complete_io(&mut stream);
        }
    });
    let url = format!("xdfs://localhost:{port}/f");
    let words = ["cat", "--ca", &authority(&stage), &url];
    let (succeeded, text) = outcome(&mut xdfs(&stage, &words));
    assert!(!succeeded && text.contains("need TLS 1.3"), "{text}");
}
