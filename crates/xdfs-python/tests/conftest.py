"""Servers and clients of the tests, and the last line, which `cargo xtask test` counts."""

import os
import subprocess
import sys
import tempfile

# No setting or key of the user who runs the tests takes part.
_HOME = tempfile.TemporaryDirectory(prefix="xdfs-home-")
os.environ.update(HOME=_HOME.name, XDG_CONFIG_HOME=_HOME.name)

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
