"""Measures the Python package beside its rivals, and says where it stays below what is wanted.

    pip install crates/xdfs-python fsspec paramiko zarr numpy
    python crates/xdfs-python/bench/bench.py --program target/release/xdfs

Rivals are the program xdfs itself, the local file system of fsspec, and its sftp file system by
paramiko, for which an sshd of this machine is started with keys of its own. The link of 20 ms is a
relay in this process, the same for both sides. Rows are medians over `--turns`.
"""

from __future__ import annotations

import argparse
import os
import pathlib
import queue
import resource
import socket
import statistics
import subprocess
import sys
import tempfile
import threading
import time

import fsspec
import numpy as np

MEGA = 1 << 20


def arguments():
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--program", default="xdfs", help="the program xdfs, in release mode")
    parser.add_argument("--turns", type=int, default=3)
    parser.add_argument("--folder", help="where files are kept; a temporary folder if not given")
    parser.add_argument("--size", type=int, default=1024, help="MiB of the large file")
    parser.add_argument("--memory-size", type=int, default=10_000, help="MB of the file for memory")
    parser.add_argument("--files", type=int, default=10_000)
    parser.add_argument("--chunks", type=int, default=2000)
    parser.add_argument("--delay", type=float, default=20, help="ms of a round trip")
    parser.add_argument("rows", nargs="*", help="rows whose names have one of these words")
    return parser.parse_args()


class Relay:
    """A link with a delay: passes connections on to a port, each byte half a round trip late."""

    def __init__(self, port, round_trip):
        self.target, self.delay = port, round_trip / 2
        self.listener = socket.create_server(("127.0.0.1", 0), backlog=256)
        self.port = self.listener.getsockname()[1]
        threading.Thread(target=self._accept, daemon=True).start()

    def _accept(self):
        while True:
            near, _ = self.listener.accept()
            far = socket.create_connection(("127.0.0.1", self.target))
            for one in (near, far):
                one.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            for source, target in ((near, far), (far, near)):
                late = queue.Queue(4096)
                threading.Thread(target=self._receive, args=(source, late), daemon=True).start()
                threading.Thread(target=self._send, args=(late, target), daemon=True).start()

    def _receive(self, source, late):
        try:
            while data := source.recv(1 << 18):
                late.put((time.monotonic() + self.delay, data))
        except OSError:
            pass
        late.put((0, b""))

    def _send(self, late, target):
        try:
            while (item := late.get())[1]:
                wait = item[0] - time.monotonic()
                if wait > 0:
                    time.sleep(wait)
                target.sendall(item[1])
            target.shutdown(socket.SHUT_WR)
        except OSError:
            pass


def free_port():
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        return taken.getsockname()[1]


def wait_for_port(port):
    end = time.monotonic() + 30
    while True:
        try:
            socket.create_connection(("127.0.0.1", port), 1).close()
            return
        except OSError:
            if time.monotonic() > end:
                raise


class Site:
    """The servers and the files."""

    def __init__(self, args, folder):
        self.args, self.folder = args, folder
        self.served = folder / "served"
        self.served.mkdir()
        self.port = free_port()
        listen = ["--listen", f"127.0.0.1:{self.port}", "--root", str(self.served), "--insecure"]
        self.processes = [subprocess.Popen([args.program, "serve", *listen], stderr=subprocess.DEVNULL)]
        wait_for_port(self.port)
        self.ssh_port = self._sshd()

    def _sshd(self):
        keys = self.folder / "ssh"
        keys.mkdir(mode=0o700)
        for name in ("host", "user"):
            make = ["ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-f", str(keys / name)]
            subprocess.run(make, check=True)
        (keys / "authorized").write_text((keys / "user.pub").read_text())
        port = free_port()
        lines = [
            f"Port {port}",
            "ListenAddress 127.0.0.1",
            f"HostKey {keys / 'host'}",
            f"AuthorizedKeysFile {keys / 'authorized'}",
            f"PidFile {keys / 'pid'}",
            "StrictModes no",
            "Subsystem sftp internal-sftp",
        ]
        (keys / "config").write_text("\n".join(lines) + "\n")
        sshd = ["/usr/sbin/sshd", "-D", "-e", "-f", str(keys / "config")]
        log = open(keys / "log", "wb")
        self.processes.append(subprocess.Popen(sshd, stderr=log))
        wait_for_port(port)
        self.key = str(keys / "user")
        return port

    def xdfs(self, port=None, **options):
        return fsspec.filesystem(
            "xdfs",
            host="127.0.0.1",
            port=port or self.port,
            insecure=True,
            skip_instance_cache=True,
            **options,
        )

    def sftp(self, port):
        return fsspec.filesystem(
            "sftp",
            host="127.0.0.1",
            port=port,
            username=os.environ.get("USER", "root"),
            key_filename=self.key,
            skip_instance_cache=True,
        )

    def close(self):
        for process in self.processes:
            process.terminate()
            process.wait(30)


def median(turns, work):
    times = []
    for turn in range(turns):
        began = time.monotonic()
        work(turn)
        times.append(time.monotonic() - began)
    return statistics.median(times)


def large_file(site):
    size = site.args.size * MEGA
    source = site.folder / "large"
    with open(source, "wb") as file:
        for _ in range(site.args.size):
            file.write(os.urandom(MEGA))
    fs = site.xdfs()
    base = f"xdfs://127.0.0.1:{site.port}"

    def cp(one, other):
        command = [site.args.program, "cp", "--insecure", "--force", "--quiet", one, other]
        subprocess.run(command, check=True)

    turns = site.args.turns
    put = median(turns, lambda n: fs.put_file(str(source), f"/put{n}"))
    cp_up = median(turns, lambda n: cp(str(source), f"{base}/cp{n}"))
    get = median(turns, lambda n: fs.get_file("/put0", str(site.folder / f"get{n}")))
    cp_down = median(turns, lambda n: cp(f"{base}/put0", str(site.folder / f"down{n}")))
    yield f"put of {size >> 20} MiB, rate beside xdfs cp", cp_up / put, 0.95
    yield f"get of {size >> 20} MiB, rate beside xdfs cp", cp_down / get, 0.95


def ranges(site):
    data = os.urandom(128 * MEGA)
    (site.served / "ranges").write_bytes(data)
    starts = list(np.random.default_rng(1).integers(0, len(data) - 65536, 1000))
    starts = [int(start) for start in starts]
    ends = [start + 65536 for start in starts]
    delay = site.args.delay / 1000
    fs = site.xdfs(Relay(site.port, delay).port)
    sftp = site.sftp(Relay(site.ssh_port, delay).port)
    for one, path in ((fs, "/ranges"), (sftp, str(site.served / "ranges"))):
        assert one.cat_ranges([path], starts[:1], ends[:1])[0] == data[starts[0] : ends[0]]
    paths = ["/ranges"] * 1000
    own = median(site.args.turns, lambda _: fs.cat_ranges(paths, starts, ends, on_error="raise"))
    there = [str(site.served / "ranges")] * 1000
    other = median(1, lambda _: sftp.cat_ranges(there, starts, ends, on_error="raise"))
    yield f"1,000 ranges of 64 KiB at {site.args.delay:g} ms, rate beside sftp", other / own, 10


def small_files(site):
    folder = site.served / "small"
    folder.mkdir()
    names = [f"{number:05}" for number in range(site.args.files)]
    for name in names:
        (folder / name).write_bytes(os.urandom(4000))
    fs, local = site.xdfs(), fsspec.filesystem("file")
    own = median(site.args.turns, lambda _: fs.cat([f"/small/{name}" for name in names]))
    other = median(site.args.turns, lambda _: local.cat([str(folder / name) for name in names]))
    yield f"cat of {len(names):,} small files, rate beside local files", other / own, 0.3


def zarr_store(site):
    import zarr
    from fsspec.implementations.asyn_wrapper import AsyncFileSystemWrapper
    from zarr.storage import FsspecStore

    data = np.random.default_rng(2).integers(0, 255, (site.args.chunks, 4096), dtype="u1")
    delay = site.args.delay / 1000

    def through(fs, path):
        store = FsspecStore(fs, path=path)
        array = zarr.create_array(store, shape=data.shape, chunks=(1, 4096), dtype="u1")
        array[:] = data
        assert (zarr.open_array(store, mode="r")[:] == data).all()

    # The rival makes no folders: it gets them for nothing.
    for number in range(site.args.chunks):
        (site.served / "sftp0" / "c" / str(number)).mkdir(parents=True)
    fs = site.xdfs(Relay(site.port, delay).port, asynchronous=True)
    sftp = AsyncFileSystemWrapper(site.sftp(Relay(site.ssh_port, delay).port))
    own = median(site.args.turns, lambda n: through(fs, f"/zarr{n}"))
    other = median(1, lambda n: through(sftp, f"{site.served}/sftp{n}"))
    yield f"zarr store of {site.args.chunks:,} chunks at {site.args.delay:g} ms", other / own, 5


MEMORY = """
import resource, sys, fsspec
fs = fsspec.filesystem("xdfs", host="127.0.0.1", port=int(sys.argv[1]), insecure=True)
fs.ls("/")
fs.get_file("/memory", sys.argv[2])
print(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1000)
"""


def memory(site):
    size = site.args.memory_size * 1_000_000
    with open(site.served / "memory", "wb") as file:
        file.truncate(size)
    command = [sys.executable, "-c", MEMORY, str(site.port), str(site.folder / "memory")]
    megabytes = float(subprocess.run(command, check=True, capture_output=True).stdout)
    yield f"memory of get of {size / 1e9:g} GB, in MB (at most)", megabytes, -100


def import_time(site):
    code = "import time; t = time.perf_counter(); import xdfs; print(time.perf_counter() - t)"

    def once():
        ended = subprocess.run([sys.executable, "-c", code], check=True, capture_output=True)
        return float(ended.stdout) * 1000

    once()
    yield "import, in ms (at most)", statistics.median(once() for _ in range(9)), -60


ROWS = [large_file, ranges, small_files, zarr_store, memory, import_time]


def main():
    args = arguments()
    resource.setrlimit(resource.RLIMIT_NOFILE, (resource.getrlimit(resource.RLIMIT_NOFILE)[1],) * 2)
    with tempfile.TemporaryDirectory(dir=args.folder, prefix="xdfs-bench-") as folder:
        site = Site(args, pathlib.Path(folder))
        is_short = False
        try:
            print("| what | measured | wanted | |\n|---|---|---|---|")
            for row in ROWS:
                if args.rows and not any(word in row.__name__ for word in args.rows):
                    continue
                for name, measured, wanted in row(site):
                    is_met = measured <= -wanted if wanted < 0 else measured >= wanted
                    is_short |= not is_met
                    mark = "" if is_met else "short"
                    print(f"| {name} | {measured:.2f} | {abs(wanted):g} | {mark} |", flush=True)
        finally:
            site.close()
    sys.exit(is_short)


if __name__ == "__main__":
    main()
