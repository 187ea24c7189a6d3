//! How channels are protected, and the keys that this needs.
//!
//! Everything lies in a scratch folder: nothing is read from or written to the folders of the user
//! who measures. Client and server of xdfs get a folder each, the server a list with the client's
//! key; OpenSSH gets two keys and its own configuration of both sides. Keys are made when they are
//! needed first and live as long as the scratch folder. Called by `tool`.

use std::{
    fs, io,
    path::{Path, PathBuf},
    process::{Command, Stdio},
};

use crate::command_line::CommandLine;

/// How the channels of a row are protected.
#[derive(Clone, Copy, Debug, Eq, Hash, Ord, PartialEq, PartialOrd, serde::Serialize)]
#[serde(rename_all = "lowercase")]
pub(crate) enum Protection {
    /// Both sides prove who they are; the payload travels as it is.
    Clear,
    /// Nobody proves anything and nothing is encrypted.
    None,
    /// Both sides prove who they are, and everything is encrypted.
    Private,
}

impl Protection {
    /// The word in tables.
    pub(crate) fn name(self) -> &'static str {
        match self {
            Self::Clear => "clear",
            Self::None => "insecure",
            Self::Private => "private",
        }
    }
}

/// The variable that names the folder of keys and known servers.
const FOLDER: &str = "XDFS_CONFIG_DIR";
/// The name of the client's key in its folder.
const KEY: &str = "id_ed25519";

/// Where the keys of xdfs are.
#[derive(Clone, Debug)]
pub(crate) struct Keys {
    client: PathBuf,
    server: PathBuf,
    empty: PathBuf,
}

impl Keys {
    /// Those beneath the scratch folder `work`, which may have to be made first.
    pub(crate) fn at(work: &Path) -> Self {
        Self {
            client: work.join("xdfs.client"),
            server: work.join("xdfs.server"),
            empty: work.join("xdfs.empty"),
        }
    }

    /// A directory to serve where no files are moved: a server doesn't serve its own keys.
    pub(crate) fn empty(&self) -> &Path {
        &self.empty
    }

    /// Makes the client's key with `xdfs` and tells the server, unless that was done before.
    ///
    /// The server makes its own key when it starts for the first time.
    pub(crate) fn make(&self, xdfs: &Path) -> io::Result<()> {
        let list = self.server.join("server").join("authorized_keys");
        if list.exists() {
            return Ok(());
        }
        fs::create_dir_all(self.server.join("server"))?;
        fs::create_dir_all(&self.empty)?;
        let keygen = CommandLine::new(xdfs)
            .args(["keygen", "--file", &text(&self.client.join(KEY))])
            .variable(FOLDER, text(&self.client));
        run(&keygen)?;
        fs::copy(self.client.join(KEY).with_extension("pub"), list)?;
        Ok(())
    }

    /// A command of the client with its key.
    pub(crate) fn client(&self, line: CommandLine, protection: Protection) -> CommandLine {
        let line = match protection {
            Protection::None => return line.arg("--insecure"),
            Protection::Clear => line.args(["--protect", "clear"]),
            Protection::Private => line,
        };
        line.args(["--key", &text(&self.client.join(KEY))])
            .variable(FOLDER, text(&self.client))
    }

    /// A server with its key that takes this kind of protection.
    pub(crate) fn server(&self, line: CommandLine, protection: Protection) -> CommandLine {
        match protection {
            Protection::None => line.arg("--insecure"),
            Protection::Clear => line
                .variable(FOLDER, text(&self.server))
                .arg("--protect")
                .arg("clear"),
            Protection::Private => line.variable(FOLDER, text(&self.server)),
        }
    }
}

/// The cipher of OpenSSH that is fastest where the processor computes AES.
const CIPHER: &str = "aes128-gcm@openssh.com";

/// Where the keys and the configuration of OpenSSH are.
#[derive(Clone, Debug)]
pub(crate) struct OpenSsh {
    folder: PathBuf,
}

impl OpenSsh {
    /// Those beneath the scratch folder `work`, which may have to be made first.
    pub(crate) fn at(work: &Path) -> Self {
        Self {
            folder: work.join("ssh"),
        }
    }

    /// Makes both keys with `ssh-keygen`, unless that was done before, and writes what both sides
    /// read; answers the file of a server on `port`.
    pub(crate) fn make(&self, keygen: &Path, port: &str) -> io::Result<PathBuf> {
        if !self.folder.exists() {
            fs::create_dir_all(&self.folder)?;
            for name in ["host", "user"] {
                let line = CommandLine::new(keygen)
                    .args(["-q", "-t", "ed25519", "-N", "", "-C", "benchmark", "-f"])
                    .arg(text(&self.folder.join(name)));
                run(&line)?;
            }
            fs::write(self.client_file(), self.client_text())?;
        }
        let file = self.folder.join(format!("sshd.{port}.conf"));
        fs::write(&file, self.server_text(port))?;
        Ok(file)
    }

    /// What the client reads in place of the user's own settings.
    pub(crate) fn client_file(&self) -> PathBuf {
        self.folder.join("client.conf")
    }

    /// The private key of the user.
    pub(crate) fn user_key(&self) -> PathBuf {
        self.folder.join("user")
    }

    fn client_text(&self) -> String {
        let folder = self.folder.display();
        format!(
            "IdentityFile {folder}/user\n\
             IdentitiesOnly yes\n\
             IdentityAgent none\n\
             UserKnownHostsFile {folder}/known_hosts\n\
             GlobalKnownHostsFile none\n\
             StrictHostKeyChecking no\n\
             BatchMode yes\n\
             Ciphers {CIPHER}\n\
             Compression no\n\
             ControlPath none\n\
             LogLevel ERROR\n"
        )
    }

    fn server_text(&self, port: &str) -> String {
        let folder = self.folder.display();
        format!(
            "ListenAddress 127.0.0.1:{port}\n\
             HostKey {folder}/host\n\
             AuthorizedKeysFile {folder}/user.pub\n\
             PidFile none\n\
             StrictModes no\n\
             PermitRootLogin prohibit-password\n\
             PasswordAuthentication no\n\
             KbdInteractiveAuthentication no\n\
             UsePAM no\n\
             UseDNS no\n\
             Ciphers {CIPHER}\n\
             Compression no\n\
             Subsystem sftp internal-sftp\n"
        )
    }
}

/// Runs a command to its end; a failure carries what it said last.
fn run(line: &CommandLine) -> io::Result<()> {
    let output = line.command().stdin(Stdio::null()).output()?;
    if output.status.success() {
        return Ok(());
    }
    let said = String::from_utf8_lossy(&output.stderr);
    let last = said.lines().next_back().unwrap_or_default();
    let program = line.program();
    Err(io::Error::other(format!(
        "{program}: {}: {last}",
        output.status
    )))
}

/// Whether the help of a command of `xdfs` names a flag.
pub(crate) fn knows(xdfs: &Path, command: &str, flag: &str) -> bool {
    let output = Command::new(xdfs)
        .args([command, "--help"])
        .stdin(Stdio::null())
        .output();
    output.is_ok_and(|output| names(&String::from_utf8_lossy(&output.stdout), flag))
}

/// Whether a help text has `flag` where flags stand: at the beginning of a line, alone or after a
/// short one.
fn names(help: &str, flag: &str) -> bool {
    help.lines()
        .filter_map(|line| {
            let line = line.trim_start();
            let is_flag = line.starts_with('-');
            is_flag.then(|| line.split(|c: char| c != '-' && !c.is_alphanumeric()))
        })
        .any(|mut words| words.by_ref().take(3).any(|word| word == flag))
}

fn text(path: &Path) -> String {
    path.to_string_lossy().into_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn flags_in_a_help_text() {
        let help = "Options:\n  -q, --quiet\n      --protect <KIND>  clear or private\n          \
                    Not --insecure, which shows less\n      --pin[=<X>]\n";
        for flag in ["--quiet", "--protect", "--pin"] {
            assert!(names(help, flag), "{flag}");
        }
        for flag in ["--insecure", "--prot", "--protection", "clear"] {
            assert!(!names(help, flag), "{flag}");
        }
    }

    #[test]
    fn lines_of_both_sides() {
        let keys = Keys::at(Path::new("/w"));
        let client = |protection| {
            keys.client(CommandLine::new("xdfs").arg("cp"), protection)
                .to_string()
        };
        assert_eq!(client(Protection::None), "xdfs cp --insecure");
        assert_eq!(
            client(Protection::Private),
            "XDFS_CONFIG_DIR=/w/xdfs.client xdfs cp --key /w/xdfs.client/id_ed25519"
        );
        assert!(client(Protection::Clear).contains("cp --protect clear --key "));
        let server = |protection| {
            keys.server(CommandLine::new("xdfs").arg("serve"), protection)
                .to_string()
        };
        assert_eq!(server(Protection::None), "xdfs serve --insecure");
        let private = "XDFS_CONFIG_DIR=/w/xdfs.server xdfs serve";
        assert_eq!(server(Protection::Private), private);
        let clear = format!("{private} --protect clear");
        assert_eq!(server(Protection::Clear), clear);
    }

    #[cfg(unix)]
    #[test]
    fn keys_are_made_once_and_only_beneath_the_folder() {
        let work = tempfile::tempdir().unwrap();
        let program = work.path().join("keygen");
        // Plays `xdfs keygen --file F` and `ssh-keygen ... -f F`: the path comes last. A child
        // writes it: a file that this process had open for writing could not be run at once.
        let script = "#!/bin/sh\nfor path; do :; done\nmkdir -p \"${path%/*}\"\n\
                      echo secret >\"$path\"\n\
                      echo public >\"$path.pub\"; echo once >>\"$0.calls\"\n";
        let line = CommandLine::new("sh")
            .args(["-c", r#"printf %s "$1" >"$2" && chmod 700 "$2""#, "sh"])
            .args([script, &text(&program)]);
        run(&line).unwrap();
        let keys = Keys::at(work.path());
        keys.make(&program).unwrap();
        keys.make(&program).unwrap();
        let list = work.path().join("xdfs.server/server/authorized_keys");
        assert_eq!(fs::read_to_string(list).unwrap(), "public\n");
        let ssh = OpenSsh::at(work.path());
        let file = ssh.make(&program, "77").unwrap();
        ssh.make(&program, "78").unwrap();
        let said = fs::read_to_string(file).unwrap();
        assert!(said.contains("ListenAddress 127.0.0.1:77\n"), "{said}");
        assert!(
            said.contains(&format!("AuthorizedKeysFile {}/ssh/user.pub\n", {
                work.path().display()
            }))
        );
        let read = fs::read_to_string(ssh.client_file()).unwrap();
        assert!(read.contains("Ciphers aes128-gcm@openssh.com\n"), "{read}");
        let calls = fs::read_to_string(work.path().join("keygen.calls")).unwrap();
        assert_eq!(calls, "once\nonce\nonce\n");
    }

    #[cfg(unix)]
    #[test]
    fn a_failure_carries_the_last_words() {
        let line = CommandLine::new("sh").args(["-c", "echo no; echo why >&2; exit 3"]);
        let error = run(&line).unwrap_err().to_string();
        assert!(error.contains('3') && error.ends_with("why"), "{error}");
        assert!(!knows(Path::new("/nonexistent/xdfs"), "cp", "--protect"));
    }
}
