"""Servers and clients of the tests, and the last line, which `cargo xtask test` counts."""

import os
import subprocess
import sys
import tempfile

# No setting or key of the user who runs the tests takes part.
_HOME = tempfile.TemporaryDirectory(prefix="xdfs-home-")
os.environ.update(HOME=_HOME.name, XDG_CONFIG_HOME=_HOME.name)
os.environ.pop("XDFS_CONFIG_DIR", None)

import pytest  # noqa: E402

import xdfs  # noqa: E402


@pytest.fixture
def server(tmp_path):
    root = tmp_path / "served"
    root.mkdir()
    with xdfs.Server(root) as server:
        yield server


@pytest.fixture
def root(server):
    import pathlib

    return pathlib.Path(server.root)


@pytest.fixture
def client(server):
    with xdfs.Client(server.url, insecure=True) as client:
        yield client


SERVES = "import sys, xdfs; s = xdfs.Server(sys.argv[1]); print(s.url, flush=True); sys.stdin.read()"


@pytest.fixture
def far_server(tmp_path):
    """A server in another process, and its URL. It has a file of 64 MiB."""
    served = tmp_path / "far"
    served.mkdir()
    (served / "file").write_bytes(bytes(64 << 20))
    pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE}
    with subprocess.Popen([sys.executable, "-c", SERVES, str(served)], text=True, **pipes) as process:
        yield process, process.stdout.readline().strip()
        process.kill()


@pytest.fixture
def fs(server):
    import fsspec

    fs = fsspec.filesystem(
        "xdfs", host="127.0.0.1", port=server.port, insecure=True, skip_instance_cache=True
    )
    yield fs
    fs.close()


def _made(folder, name):
    """A key pair."""
    make = ["ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-f", str(folder / name)]
    subprocess.run(make, check=True)
    return (folder / f"{name}.pub").read_text()


@pytest.fixture
def ssh_server(tmp_path):
    """A real sshd with keys of its own: its port, and the settings of a client for it."""
    import pathlib
    import socket
    import time

    program = os.environ.get("XDFS_PROGRAM", "")
    if not os.path.exists(program):
        pytest.skip("the program xdfs isn't built, which ssh has to start")
    sshd = "/usr/sbin/sshd"
    if not all(map(os.path.exists, (sshd, "/usr/bin/ssh", "/usr/bin/ssh-keygen"))):
        pytest.skip("it needs openssh-server and openssh-client")
    if os.getuid() == 0:
        # The service of the system makes it at its start.
        pathlib.Path("/run/sshd").mkdir(exist_ok=True)
    folder = tmp_path / "ssh"
    folder.mkdir(mode=0o700)
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        port = taken.getsockname()[1]
    (folder / "known").write_text(f"tested {_made(folder, 'host')}")
    (folder / "authorized").write_text(_made(folder, "user"))
    (folder / "sshd_config").write_text(
        f"ListenAddress 127.0.0.1\nPort {port}\nHostKey {folder}/host\n"
        f"AuthorizedKeysFile {folder}/authorized\nStrictModes no\nUsePAM no\nPidFile none\n"
        "PermitRootLogin yes\n"
    )
    (folder / "ssh_config").write_text(
        f"HostKeyAlias tested\nIdentityFile {folder}/user\nIdentitiesOnly yes\nBatchMode yes\n"
        f"StrictHostKeyChecking yes\nUserKnownHostsFile {folder}/known\n"
    )
    log = folder / "log"
    command = [sshd, "-D", "-f", str(folder / "sshd_config"), "-E", str(log)]
    with subprocess.Popen(command, stdin=subprocess.DEVNULL) as process:
        end = time.monotonic() + 60
        while not (log.exists() and "Server listening" in log.read_text()):
            assert process.poll() is None and time.monotonic() < end, log.read_text()
            time.sleep(0.01)
        yield port, {"ssh": f"ssh -F '{folder}/ssh_config'", "remote_program": program}
        process.terminate()


def pytest_terminal_summary(terminalreporter):
    """Says the result as Rust's test harness does."""
    stats = terminalreporter.stats
    count = {name: len(stats.get(name, [])) for name in ("passed", "failed", "error", "skipped")}
    for report in stats.get("skipped", []):
        reason = report.longrepr[2] if isinstance(report.longrepr, tuple) else ""
        terminalreporter.write_line(f"test {report.nodeid} ... ignored, {reason}")
    failed = count["failed"] + count["error"]
    terminalreporter.write_line(
        f"test result: {'FAILED' if failed else 'ok'}. {count['passed']} passed; {failed} failed; "
        f"{count['skipped']} ignored; 0 measured; 0 filtered out"
    )
