"""Measures the Python package beside its rivals, and says where it stays below what is wanted.

    pip install crates/xdfs-python fsspec paramiko zarr numpy
    python crates/xdfs-python/bench/bench.py --program target/release/xdfs

Rivals are the program xdfs itself, the local file system of fsspec, and its sftp file system by
paramiko, for which an sshd of this machine is started with keys of its own. The link of 20 ms is a
relay in this process, the same for both sides. Rows are medians over `--turns`. Without `--folder`
the files go where temporary files do: 15 GB at a time. It ends by itself after `--limit` seconds.
"""

from __future__ import annotations

import argparse
import asyncio
import faulthandler
import os
import pathlib
import queue
import resource
import shutil
import signal
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
    parser.add_argument("--rival-chunks", type=int, default=200, help="chunks of the rival")
    parser.add_argument("--samples", type=int, default=50_000, help="of the data loader")
    parser.add_argument("--limit", type=float, default=540, help="seconds after which it ends")
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

    def clear(self):
        """Removes the files of a row."""
        for place in (self.folder, self.served):
            for path in place.iterdir():
                if path.name in ("ssh", "served"):
                    continue
                shutil.rmtree(path) if path.is_dir() else path.unlink()

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
    turns = site.args.turns
    own = median(turns, lambda _: fs.cat([f"/small/{name}" for name in names]))
    other = median(turns, lambda _: local.cat([str(folder / name) for name in names]))
    yield f"cat of {len(names):,} small files, rate beside local files", other / own, 0.3
    here = site.folder / "got"
    own = median(turns, lambda n: fs.get("/small/", f"{here}{n}", recursive=True))
    other = median(turns, lambda n: local.get(f"{folder}/", f"{here}-local{n}", recursive=True))
    yield f"get of {len(names):,} small files, rate beside local files", other / own, 0.3
    own = median(turns, lambda n: fs.put(f"{folder}/", f"/put-small{n}", recursive=True))
    other = median(turns, lambda n: local.put(f"{folder}/", f"{here}-put{n}", recursive=True))
    yield f"put of {len(names):,} small files, rate beside local files", other / own, 0.3


def small_trees(site):
    import xdfs

    tree = site.folder / "tree"
    for number in range(site.args.files):
        path = tree / f"{number % 50}" / f"{number:05}"
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(os.urandom(4000))
    base = f"xdfs://127.0.0.1:{site.port}/tree"
    turns = site.args.turns
    own = median(turns, lambda n: xdfs.copy_tree(tree, f"{base}{n}", insecure=True))
    other = median(turns, lambda n: shutil.copytree(tree, site.folder / f"tree{n}"))
    yield f"copy_tree of {site.args.files:,} small files, rate beside shutil", other / own, 0.3


def zarr_store(site):
    """Chunks a second, since the rival takes too long for all of them."""
    import zarr
    from fsspec.implementations.asyn_wrapper import AsyncFileSystemWrapper
    from zarr.storage import FsspecStore

    delay = site.args.delay / 1000

    def rate(turns, chunks, fs, path):
        data = np.random.default_rng(2).integers(0, 255, (chunks, 4096), dtype="u1")

        def through(turn):
            store = FsspecStore(fs, path=f"{path}{turn}")
            array = zarr.create_array(store, shape=data.shape, chunks=(1, 4096), dtype="u1")
            array[:] = data
            assert (zarr.open_array(store, mode="r")[:] == data).all()

        return chunks / median(turns, through)

    chunks, of_rival = site.args.chunks, min(site.args.chunks, site.args.rival_chunks)
    # The rival makes no folders: it gets them for nothing.
    for number in range(of_rival):
        (site.served / "sftp0" / "c" / str(number)).mkdir(parents=True)
    fs = site.xdfs(Relay(site.port, delay).port, asynchronous=True)
    # The client of paramiko takes one call at a time: of two threads that wait, one may take the
    # answer to the other, which then waits for ever.
    one_by_one = asyncio.Semaphore(1)
    sftp = AsyncFileSystemWrapper(site.sftp(Relay(site.ssh_port, delay).port), semaphore=one_by_one)
    own = rate(site.args.turns, chunks, fs, "/zarr")
    other = rate(1, of_rival, sftp, f"{site.served}/sftp")
    yield f"zarr store of {chunks:,} chunks at {site.args.delay:g} ms, beside sftp", own / other, 5


def data_loader(site):
    """The example, with its default of 50,000 samples; no rate is wanted of it."""
    program = pathlib.Path(__file__).parents[1] / "examples" / "data_loader.py"
    count = str(site.args.samples)
    made = site.served / "samples"
    subprocess.run([sys.executable, str(program), "--make", count, str(made)], check=True)
    options = ["--options", '{"insecure": true}']
    url = f"xdfs://127.0.0.1:{site.port}/samples"
    for kind in ("threads", "processes"):
        rates = []
        for words in ([*options, url], [f"file://{made}"]):
            command = [sys.executable, str(program), "--kind", kind, *words]
            line = subprocess.run(command, check=True, capture_output=True, text=True).stdout
            rates.append(float(line.split(": ")[1].split(" ")[0].replace(",", "")))
        yield f"{count} random samples of 100 kB by {kind}, beside local files", rates[0] / rates[1], 0


MEMORY = """
import sys, fsspec
fs = fsspec.filesystem("xdfs", host="127.0.0.1", port=int(sys.argv[1]), insecure=True)
fs.ls("/")
fs.get_file("/memory", sys.argv[2])
# Not `ru_maxrss`, which the process has from the one that started it.
status = dict(line.split(":", 1) for line in open("/proc/self/status"))
print(int(status["VmHWM"].split()[0]) * 1024 / 1e6)
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


ROWS = [import_time, ranges, zarr_store, small_files, small_trees, large_file, data_loader, memory]


def too_long(number, frame):
    """Shows where each thread is, and ends the benchmark."""
    faulthandler.dump_traceback()
    sys.exit("it takes longer than --limit says")


def main():
    args = arguments()
    faulthandler.dump_traceback_later(args.limit + 30, exit=True)
    signal.signal(signal.SIGALRM, too_long)
    signal.setitimer(signal.ITIMER_REAL, args.limit)
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
                site.clear()
        finally:
            site.close()
    sys.exit(is_short)


if __name__ == "__main__":
    main()
