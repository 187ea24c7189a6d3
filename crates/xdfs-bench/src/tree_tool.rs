//! How the tools copy whole trees, and the servers that only trees need.
//!
//! Everybody copies what is in `src` into `dst`, an empty folder. Nothing here starts anything.
//! Called by `session`.

use std::{fs, io, path::Path};

use crate::{
    command_line::CommandLine,
    protection::{Keys, OpenSsh, Protection},
    tool::{Direction, PREVIOUS, Payload, Tool, Toolbox},
};

/// What is copied, beneath the root of the servers.
pub(crate) const SOURCE: &str = "src";
/// The folder that it is copied into, beneath the root of the servers.
pub(crate) const TARGET: &str = "dst";

/// The optional web server from which rclone reads fastest.
const NGINX: &str = "nginx";

// Arguments of all four: the tree, the address, the port, and the pipe by which the side that
// unpacks says that it has ended.
const PACK_CLIENT: &str = r#"tar cf - -C "$1" . | nc -N "$2" "$3" >/dev/null && read -r end <"$4""#;
const UNPACK_SERVER: &str = concat!(
    r#"rm -f "$4"; mkfifo "$4" || exit; "#,
    r#"while :; do nc -l "$2" "$3" | tar xf - -C "$1"; echo end >"$4"; done"#
);
const PACK_SERVER: &str = r#"while :; do tar cf - -C "$1" . | nc -N -l "$2" "$3" >/dev/null; done"#;
const UNPACK_CLIENT: &str = r#"nc -d "$2" "$3" | tar xf - -C "$1""#;

impl Toolbox {
    /// Whether everything is there that `tool` needs for a tree.
    pub(crate) fn can_copy_trees(&self, tool: Tool, direction: Direction) -> bool {
        let needs_ssh = tool == Tool::Rclone && direction == Direction::Up;
        !needs_ssh || (self.finds("sshd") && self.finds("ssh-keygen"))
    }

    /// The server for a tree beneath `base`, as [`Toolbox::server`].
    pub(crate) fn tree_server(
        &self,
        (tool, protection): (Tool, Protection),
        direction: Direction,
        base: &Path,
        (port, work): (u16, &Path),
    ) -> io::Result<Option<CommandLine>> {
        let payload = Payload::File {
            base,
            source: SOURCE,
            target: TARGET,
        };
        match (tool, direction) {
            (Tool::Tar, Direction::Up) => Ok(Some(self.tar(
                UNPACK_SERVER,
                &base.join(TARGET),
                port,
                work,
            ))),
            (Tool::Tar, _) => Ok(Some(self.tar(PACK_SERVER, &base.join(SOURCE), port, work))),
            // rclone's own webdav paces itself, its own http server is slower than nginx.
            (Tool::Rclone, Direction::Up) => {
                let scp = (Tool::Scp, Protection::Private);
                self.server(scp, direction, payload, port, work)
            }
            (Tool::Rclone, Direction::Down) if self.finds(NGINX) => {
                let file = nginx(base, port, work)?;
                let line = self.line(NGINX).args(["-p", &text(work), "-c", &file]);
                Ok(Some(line.args(["-g", "daemon off;"])))
            }
            _ => self.server((tool, protection), direction, payload, port, work),
        }
    }

    /// The client for a tree beneath `base`; `work` is what the server was given.
    pub(crate) fn tree_client(
        &self,
        (tool, protection): (Tool, Protection),
        direction: Direction,
        base: &Path,
        (port, work): (u16, &Path),
    ) -> CommandLine {
        let up = direction == Direction::Up;
        let (source, target) = (text(&base.join(SOURCE)), text(&base.join(TARGET)));
        // From and to, of which one is remote.
        let ends =
            |line: CommandLine, remote: &dyn Fn(&str) -> String, path: fn(&str) -> String| {
                if up {
                    line.arg(path(&source)).arg(remote(TARGET))
                } else {
                    line.arg(remote(SOURCE)).arg(path(&target))
                }
            };
        match tool {
            Tool::Tar if up => self.tar(PACK_CLIENT, &base.join(SOURCE), port, work),
            Tool::Tar => self.tar(UNPACK_CLIENT, &base.join(TARGET), port, work),
            Tool::GridFtp => {
                let line = self.line("globus-url-copy");
                let line = line.args(["-r", "-cd", "-fast", "-cc", "4", "-pp"]);
                let remote =
                    |name: &str| format!("ftp://127.0.0.1:{port}{}/", text(&base.join(name)));
                ends(line, &remote, |path| format!("file://{path}/"))
            }
            Tool::Rsync => {
                let remote = |name: &str| format!("rsync://127.0.0.1:{port}/r/{name}/");
                ends(self.line("rsync").arg("-aW"), &remote, |path| {
                    format!("{path}/")
                })
            }
            Tool::Rclone => {
                let line = self
                    .line("rclone")
                    .args(["--config", "", "copy", "--transfers", "16"])
                    .args(["--checkers", "16", "--ignore-times"]);
                if up {
                    let user = std::env::var("USER").unwrap_or_default();
                    let user = if self.is_root() { "root" } else { &user };
                    let key = text(&OpenSsh::at(work).user_key());
                    line.args(["--ignore-checksum", "--sftp-disable-hashcheck"])
                        .args(["--sftp-host", "127.0.0.1", "--sftp-port", &port.to_string()])
                        .args(["--sftp-user", user, "--sftp-key-file", &key])
                        .arg(source)
                        .arg(format!(":sftp:{target}"))
                } else {
                    line.args(["--http-url", &format!("http://127.0.0.1:{port}")])
                        .arg(format!(":http:{SOURCE}"))
                        .arg(target)
                }
            }
            Tool::Xdfs => {
                let line = self.line("xdfs").args(["cp", "-r"]);
                let line = Keys::at(work).client(line, protection).arg("-q");
                let remote = |name: &str| format!("xdfs://127.0.0.1:{port}/{name}/");
                ends(line, &remote, |path| format!("{path}/"))
            }
            Tool::Previous => {
                let line = self.line(PREVIOUS).args(["cp", "-r", "--insecure", "-q"]);
                let remote = |name: &str| format!("xdfs://127.0.0.1:{port}/{name}/");
                ends(line, &remote, |path| format!("{path}/"))
            }
            // The others copy no trees over a network, so no row asks them.
            Tool::Bare | Tool::Cp | Tool::Iperf3 | Tool::Iperf3Bbr | Tool::Overlap | Tool::Scp => {
                self.line("cp")
                    .args(["-r", "--reflink=never"])
                    .arg(format!("{source}/."))
                    .arg(target)
            }
        }
    }

    fn tar(&self, script: &str, tree: &Path, port: u16, work: &Path) -> CommandLine {
        self.line("sh")
            .args(["-c", script, "sh", &text(tree), "127.0.0.1"])
            .arg(port.to_string())
            .arg(text(&work.join("tar.end")))
    }
}

/// Writes what nginx reads to serve the files beneath `root`; answers where.
fn nginx(root: &Path, port: u16, work: &Path) -> io::Result<String> {
    let file = work.join("nginx.conf");
    let (root, folder) = (root.display(), work.display());
    fs::write(
        &file,
        format!(
            "worker_processes 2;\npid {folder}/nginx.pid;\nerror_log {folder}/nginx.log;\n\
             events {{ worker_connections 4096; }}\n\
             http {{\n  access_log off; sendfile on; tcp_nopush on;\n  \
             client_body_temp_path {folder}/nginx.body;\n  \
             server {{ listen 127.0.0.1:{port}; root {root}; autoindex on; }}\n}}\n"
        ),
    )?;
    Ok(text(&file))
}

fn text(path: &Path) -> String {
    path.to_string_lossy().into_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn client(tool: Tool, protection: Protection, direction: Direction) -> String {
        let place = (99, Path::new("/w"));
        Toolbox::default()
            .tree_client((tool, protection), direction, Path::new("/d"), place)
            .to_string()
    }

    #[test]
    fn tree_clients() {
        let plain = |tool, direction| client(tool, Protection::None, direction);
        let (up, down) = (Direction::Up, Direction::Down);
        assert_eq!(
            plain(Tool::Xdfs, up),
            "xdfs cp -r --insecure -q /d/src/ xdfs://127.0.0.1:99/dst/"
        );
        assert_eq!(
            client(Tool::Xdfs, Protection::Private, down),
            "XDFS_CONFIG_DIR=/w/xdfs.client xdfs cp -r --key /w/xdfs.client/id_ed25519 -q \
             xdfs://127.0.0.1:99/src/ /d/dst/"
        );
        assert_eq!(
            plain(Tool::GridFtp, down),
            "globus-url-copy -r -cd -fast -cc 4 -pp ftp://127.0.0.1:99/d/src/ file:///d/dst/"
        );
        assert_eq!(
            plain(Tool::Rsync, up),
            "rsync -aW /d/src/ rsync://127.0.0.1:99/r/dst/"
        );
        assert_eq!(
            plain(Tool::Previous, down),
            "previous xdfs cp -r --insecure -q xdfs://127.0.0.1:99/src/ /d/dst/"
        );
        assert_eq!(
            plain(Tool::Cp, Direction::Local),
            "cp -r --reflink=never /d/src/. /d/dst"
        );
        let rclone = plain(Tool::Rclone, up);
        assert!(rclone.contains("--sftp-port 99 "), "{rclone}");
        assert!(rclone.ends_with("--sftp-key-file /w/ssh/user /d/src :sftp:/d/dst"));
        let rclone = plain(Tool::Rclone, down);
        assert!(rclone.ends_with("--http-url http://127.0.0.1:99 :http:src /d/dst"));
        let tar = plain(Tool::Tar, down);
        assert!(tar.starts_with("sh -c 'nc -d ") && tar.contains(" /d/dst 127.0.0.1 99 "));
    }

    #[test]
    fn tree_servers() {
        let folder = tempfile::tempdir().unwrap();
        let server = |tool, direction| {
            Toolbox::default()
                .tree_server(
                    (tool, Protection::None),
                    direction,
                    Path::new("/d"),
                    (99, folder.path()),
                )
                .unwrap()
                .map(|line| line.to_string())
        };
        assert_eq!(server(Tool::Cp, Direction::Local), None);
        let tar = server(Tool::Tar, Direction::Down).unwrap();
        assert!(tar.contains(" /d/src 127.0.0.1 99 "), "{tar}");
        let xdfs = server(Tool::Xdfs, Direction::Up).unwrap();
        assert!(xdfs.ends_with("--listen 127.0.0.1:0 --root /d"), "{xdfs}");
        let rclone = server(Tool::Rclone, Direction::Down).unwrap();
        assert!(rclone.contains("serve http"), "without nginx: {rclone}");
    }

    #[test]
    fn rclone_needs_a_server_of_sftp() {
        let toolbox = Toolbox::default();
        assert!(!toolbox.can_copy_trees(Tool::Rclone, Direction::Up));
        assert!(toolbox.can_copy_trees(Tool::Rclone, Direction::Down));
        assert!(toolbox.can_copy_trees(Tool::Rsync, Direction::Up));
    }
}
