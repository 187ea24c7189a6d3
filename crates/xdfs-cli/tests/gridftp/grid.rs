//! A certificate authority, hosts and users of a test, all made by the program `openssl`, and
//! proxies by grid-proxy-init.

use std::fs;
use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};
use std::process::Command;

use crate::stage::{Stage, has, run};

/// The subject of alice.
pub(crate) const ALICE: &str = "/O=Grid/OU=Test/CN=Alice User";
/// The extension of a certificate that may sign.
pub(crate) const SIGNS: &str = "keyUsage=critical,digitalSignature";
/// Flags of `openssl req` for an authority.
const AUTHORITY: [&str; 2] = ["-addext", "keyUsage=critical,keyCertSign,cRLSign"];

/// Whether the programs are there that the tests of GSI need.
pub(crate) fn has_tools() -> bool {
    let tools = [
        "openssl",
        "globus-url-copy",
        "grid-proxy-init",
        "globus-gridftp-server",
    ];
    tools.into_iter().all(has)
}

/// Files of certificates in a directory.
pub(crate) struct Grid {
    folder: PathBuf,
}

impl Grid {
    /// An authority that is trusted, one that isn't, a host, alice and bob, each with a proxy.
    pub(crate) fn make(place: &Path) -> Self {
        let grid = Self {
            folder: place.join("grid"),
        };
        fs::create_dir(&grid.folder).unwrap();
        fs::create_dir(grid.path("certificates")).unwrap();
        for (name, subject) in [
            ("ca", "/O=Grid/OU=Test/CN=Test CA"),
            ("evil", "/O=Evil/CN=CA"),
        ] {
            let mut req = grid.openssl("req -x509 -newkey rsa:2048 -nodes -days 2");
            req.args(["-subj", subject]).args(AUTHORITY);
            run(req.args([
                "-keyout",
                &format!("{name}.key"),
                "-out",
                &format!("{name}.pem"),
            ]));
        }
        grid.trust("ca", "/O=Grid/OU=Test/CN=Test CA");
        let host = "subjectAltName=DNS:localhost,IP:127.0.0.1";
        grid.certify("host", "/O=Grid/OU=Test/CN=localhost", "ca", &[SIGNS, host]);
        for (name, subject) in [("alice", ALICE), ("bob", "/O=Grid/OU=Test/CN=Bob")] {
            grid.certify(name, subject, "ca", &[SIGNS, "extendedKeyUsage=clientAuth"]);
            grid.proxy(name, name, &[]);
        }
        let map = format!("\"{ALICE}\" alice,second\n/O=Grid/OU=Test/CN=Bob bob\n");
        fs::write(grid.path("grid-mapfile"), map).unwrap();
        grid
    }

    pub(crate) fn path(&self, name: &str) -> PathBuf {
        self.folder.join(name)
    }

    pub(crate) fn openssl(&self, words: &str) -> Command {
        let mut openssl = Command::new("openssl");
        openssl.current_dir(&self.folder).args(words.split(' '));
        openssl
    }

    fn hash(&self, name: &str) -> String {
        let text = run(&mut self.openssl(&format!("x509 -noout -hash -in {name}.pem")));
        text.trim().to_owned()
    }

    /// A file of an authority in the directory of those that are trusted.
    pub(crate) fn of_authority(&self, name: &str, ending: &str) -> PathBuf {
        let file = format!("{}.{ending}", self.hash(name));
        self.path("certificates").join(file)
    }

    fn trust(&self, name: &str, subject: &str) {
        let certificate = self.path(&format!("{name}.pem"));
        fs::copy(certificate, self.of_authority(name, "0")).unwrap();
        let policy = format!(
            "access_id_CA X509 '{subject}'\npos_rights globus CA:sign\n\
             cond_subjects globus '\"/O=Grid/*\"'\n"
        );
        fs::write(self.of_authority(name, "signing_policy"), policy).unwrap();
    }

    /// Makes NAME.pem and NAME.key, with these extensions.
    pub(crate) fn certify(&self, name: &str, subject: &str, authority: &str, more: &[&str]) {
        let (key, request) = (format!("{name}.key"), format!("{name}.csr"));
        let mut req = self.openssl("req -newkey rsa:2048 -nodes");
        run(req.args(["-subj", subject, "-keyout", &key, "-out", &request]));
        let extensions = more.join("\n");
        fs::write(self.path("extensions"), extensions).unwrap();
        let mut sign = self.openssl("x509 -req -days 1 -CAcreateserial -extfile extensions");
        run(sign
            .args(["-in", &request, "-out", &format!("{name}.pem")])
            .args(["-CA", &format!("{authority}.pem")])
            .args(["-CAkey", &format!("{authority}.key")]));
        let private = fs::Permissions::from_mode(0o600);
        fs::set_permissions(self.path(&key), private).unwrap();
    }

    /// A proxy of USER by grid-proxy-init, in NAME.proxy.
    pub(crate) fn proxy(&self, name: &str, user: &str, flags: &[&str]) {
        let file = format!("{name}.proxy");
        let mut init = Command::new("grid-proxy-init");
        init.current_dir(&self.folder)
            .env("X509_CERT_DIR", self.path("certificates"))
            .args(["-q", "-valid", "10:00", "-out", &file])
            .args([
                "-cert",
                &format!("{user}.pem"),
                "-key",
                &format!("{user}.key"),
            ]);
        run(init.args(flags));
    }

    /// Sets the variables by which the tools of Globus find a proxy and the authorities.
    pub(crate) fn with_proxy<'a>(&self, name: &str, command: &'a mut Command) -> &'a mut Command {
        command
            .env("X509_CERT_DIR", self.path("certificates"))
            .env("X509_USER_PROXY", self.path(&format!("{name}.proxy")))
    }

    /// globus-url-copy as the user of a proxy.
    pub(crate) fn copy(&self, proxy: &str, words: &[&str]) -> Command {
        let mut copy = Command::new("globus-url-copy");
        self.with_proxy(proxy, &mut copy);
        copy.args(words);
        copy
    }
}

impl Stage {
    /// A server with GSI: alice and bob, each with an export of the same name, and what `more` adds
    /// to the settings before the tables, and `gsi` to that of GSI.
    #[track_caller]
    pub(crate) fn with_gsi(seed: u64, more: &str, gsi: &str) -> (Self, Grid) {
        let export = |name: &str| {
            format!(
                "[[export]]\nname = \"{name}\"\npath = \"ROOT/{name}\"\n\
                 [[export.grant]]\nuser = \"{name}\"\n\
                 rights = [\"read\", \"list\", \"create\", \"write\", \"delete\"]\n"
            )
        };
        let (alice, bob) = (export("alice"), export("bob"));
        let config = format!(
            "folder = \"server\"\naudit = \"audit.jsonl\"\n{more}\n[gridftp.gsi]\n\
             certificate = \"grid/host.pem\"\nkey = \"grid/host.key\"\n\
             authorities = \"grid/certificates\"\ngrid_map = \"grid/grid-mapfile\"\n{gsi}\n\
             {alice}{bob}"
        );
        let mut grid = None;
        let stage = Self::prepared(seed, &config, |root| {
            grid = Some(Grid::make(root.parent().unwrap()));
            for user in ["alice", "bob"] {
                fs::create_dir(root.join(user)).unwrap();
            }
        });
        (stage, grid.unwrap())
    }

    /// A URL for GSI, with the name that is in the certificate.
    pub(crate) fn gsi_url(&self, path: &str) -> String {
        format!("gsiftp://{}{path}", self.named_address())
    }
}
