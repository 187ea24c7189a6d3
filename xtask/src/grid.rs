//! A certificate authority, a host and a user with proxies, for the rows with GSI.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use crate::process::run;

/// Where they are.
#[derive(Debug)]
pub(crate) struct Grid {
    folder: PathBuf,
    name: String,
}

/// The proxy that programs use, unless they are told another one.
const PROXY: &str = "user.proxy";

impl Grid {
    /// Makes them.
    ///
    /// # Errors
    /// What the programs said that failed.
    pub(crate) fn new(folder: PathBuf) -> Result<Self, String> {
        let mut grid = Self {
            folder,
            name: String::new(),
        };
        let written = |error: std::io::Error| format!("make certificates: {error}");
        fs::create_dir_all(grid.authorities()).map_err(written)?;
        grid.openssl(
            "req -x509 -newkey rsa:2048 -nodes -days 2 -subj /O=Grid/CN=CA -addext \
             keyUsage=critical,keyCertSign,cRLSign -keyout ca.key -out ca.pem",
        )?;
        let hash = grid.openssl("x509 -noout -hash -in ca.pem")?;
        let hash = grid.authorities().join(hash.trim());
        let copied = fs::copy(grid.folder.join("ca.pem"), hash.with_extension("0"));
        copied.map_err(written)?;
        let policy = "access_id_CA X509 '/O=Grid/CN=CA'\npos_rights globus CA:sign\n\
                      cond_subjects globus '\"/O=Grid/*\"'\n";
        fs::write(hash.with_extension("signing_policy"), policy).map_err(written)?;
        for (name, subject) in [("host", "localhost"), ("user", "User")] {
            let extensions = format!("subjectAltName=DNS:{subject}\n");
            fs::write(grid.folder.join("extensions"), extensions).map_err(written)?;
            grid.openssl(&format!(
                "req -newkey rsa:2048 -nodes -subj /O=Grid/CN={subject} -keyout {name}.key -out \
                 {name}.csr"
            ))?;
            grid.openssl(&format!(
                "x509 -req -days 1 -CA ca.pem -CAkey ca.key -CAcreateserial -extfile extensions \
                 -in {name}.csr -out {name}.pem"
            ))?;
        }
        let log = grid.folder.join("log");
        grid.name = run(Command::new("id").arg("-un"), &log)?.trim().to_owned();
        let map = format!("\"/O=Grid/CN=User\" {}\n", grid.name);
        fs::write(grid.folder.join("map"), map).map_err(written)?;
        let older = "openssl_conf = a\n[a]\nssl_conf = b\n[b]\nsystem_default = c\n[c]\n\
                     MaxProtocol = TLSv1.2\n";
        fs::write(grid.older_tls(), older).map_err(written)?;
        grid.add_proxy(PROXY, &[])?;
        Ok(grid)
    }

    /// Makes a proxy of the user.
    ///
    /// # Errors
    /// What grid-proxy-init said.
    pub(crate) fn add_proxy(&self, name: &str, flags: &[&str]) -> Result<(), String> {
        let mut init = self.command("grid-proxy-init");
        init.args(["-q", "-cert", "user.pem", "-key", "user.key", "-out", name]);
        run(init.args(flags), &self.folder.join("log")).map(drop)
    }

    /// What a file of the user's says about itself.
    ///
    /// # Errors
    /// What openssl said.
    pub(crate) fn described(&self, name: &str) -> Result<String, String> {
        self.openssl(&format!("x509 -noout -text -in {name}"))
    }

    /// Settings of OpenSSL, for the variable `OPENSSL_CONF`, with which programs speak no newer
    /// version than TLS 1.2.
    pub(crate) fn older_tls(&self) -> PathBuf {
        self.folder.join("older.cnf")
    }

    /// The user of this machine whom the certificate stands for.
    pub(crate) fn user(&self) -> &str {
        &self.name
    }

    fn openssl(&self, arguments: &str) -> Result<String, String> {
        let mut openssl = self.command("openssl");
        let log = self.folder.join("log");
        let said = run(openssl.args(arguments.split_whitespace()), &log)?;
        for key in ["host.key", "user.key"] {
            let path = self.folder.join(key);
            if path.exists() {
                use std::os::unix::fs::PermissionsExt as _;
                let private = fs::Permissions::from_mode(0o600);
                fs::set_permissions(path, private).map_err(|error| error.to_string())?;
            }
        }
        Ok(said)
    }

    /// A program that finds them by the variables of Globus.
    pub(crate) fn command(&self, program: impl AsRef<Path>) -> Command {
        let mut command = Command::new(program.as_ref());
        command.current_dir(&self.folder);
        self.tell(&mut command);
        command
    }

    /// Has a program find them.
    pub(crate) fn tell(&self, command: &mut Command) {
        self.tell_proxy(command, PROXY);
    }

    /// Has a program find them, and this proxy.
    pub(crate) fn tell_proxy(&self, command: &mut Command, name: &str) {
        command
            .env("X509_CERT_DIR", self.authorities())
            .env("X509_USER_PROXY", self.folder.join(name));
    }

    /// The variables of a server of Globus.
    pub(crate) fn tell_server(&self, command: &mut Command) {
        command
            .env("X509_CERT_DIR", self.authorities())
            .env("X509_USER_CERT", self.folder.join("host.pem"))
            .env("X509_USER_KEY", self.folder.join("host.key"))
            .env("GRIDMAP", self.folder.join("map"));
    }

    /// The settings of a server of xdfs.
    pub(crate) fn settings(&self) -> String {
        let at = |name: &str| self.folder.join(name).display().to_string();
        format!(
            "[gridftp.gsi]\ncertificate = \"{}\"\nkey = \"{}\"\nauthorities = \"{}\"\n\
             grid_map = \"{}\"\n",
            at("host.pem"),
            at("host.key"),
            at("certificates"),
            at("map"),
        )
    }

    fn authorities(&self) -> PathBuf {
        self.folder.join("certificates")
    }
}
