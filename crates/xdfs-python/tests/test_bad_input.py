"""Wrong arguments, odd names, closed objects, interrupts, forks and deaths."""

import os
import pathlib
import re
import subprocess
import sys
import threading

import pytest

import xdfs

MEGA = 1 << 20


def test_wrong_types_and_values(client, server, tmp_path):
    source = tmp_path / "source"
    source.write_bytes(b"x")
    for wrong in (
        lambda: xdfs.Client(5),
        lambda: xdfs.Client(server.url, no_such_setting=1),
        lambda: xdfs.Client(server.url, channels="four"),
        lambda: xdfs.Client(server.url, insecure="yes"),
        lambda: client.stat(5),
        lambda: client.stat(None),
        lambda: client.upload(source, "x", no_such_option=1),
        lambda: client.upload(source, "x", rate="fast"),
        lambda: client.upload(source, "x", rate=True),
        lambda: client.upload(source, "x", offset=1.5),
        lambda: client.upload_bytes("text", "x"),
        lambda: client.upload_bytes(None, "x"),
        lambda: client.read("x", "0"),
        lambda: client.read_ranges("x", [("a", "b")]),
        lambda: client.chmod("x", "rw"),
        lambda: client.upload_tree(tmp_path, "x", nonsense=1),
        lambda: xdfs.Server(5),
    ):
        with pytest.raises(TypeError):
            wrong()
    for wrong in (
        lambda: xdfs.Client(server.url, channels=0),
        lambda: xdfs.Client(server.url, protect="much"),
        lambda: xdfs.Client(server.url, pin="no fingerprint"),
        lambda: client.upload(source, "x", skip="sometimes"),
        lambda: client.upload(source, "x", digest="rot13"),
        lambda: client.upload(source, "x", resume="maybe"),
        lambda: client.upload(source, "x", rate=-1),
        lambda: client.upload(source, "x", length=1 << 70),
        lambda: client.upload_tree(tmp_path, "x", durability="eternal"),
        lambda: client.sync_to(tmp_path, "x", compare="smell"),
        lambda: client.sum("x", "rot13"),
        lambda: client.queue(0),
        lambda: client.stat("nul\0byte"),
        lambda: xdfs.tune(server.url, seconds_max=-1.0, insecure=True),
    ):
        with pytest.raises(ValueError):
            wrong()
    for wrong in (
        lambda: xdfs.Client(server.url, channels=1 << 40),
        lambda: client.chmod("x", -1),
        lambda: client.chmod("x", 1 << 40),
        lambda: client.truncate("x", -1),
        lambda: client.utime("x", mtime_ns=1 << 70),
        lambda: client.queue(-1),
    ):
        with pytest.raises((OverflowError, ValueError)):
            wrong()
    for wrong in ("xdfs://", "xdfs://host:port/", "nonsense", "http://host/", ""):
        with pytest.raises(OSError):
            xdfs.Client(wrong)
    assert client.list() == [], "nothing of that has happened"


def test_names_of_every_kind(client, root, tmp_path):
    source = tmp_path / "source"
    source.write_bytes(b"x")
    for name in ("text", b"bytes", pathlib.PurePosixPath("path"), "ä", "\udcff", b"\xfe"):
        client.upload(os.fsencode(source), name)
        assert (root / os.fsdecode(name)).read_bytes() == b"x"
        assert client.stat(name).name == os.fsdecode(name)
        here = os.fsencode(tmp_path) + b"/back-" + os.fsencode(name)
        client.download(name, here)
        assert os.path.exists(here)
        client.rename(name, "again")
        client.remove("again")
    local = os.fsencode(tmp_path) + b"/\xff%41 '\n"
    with open(local, "wb") as file:
        file.write(b"odd")
    client.upload(local, "odd")
    assert (root / "odd").read_bytes() == b"odd"
    (root / os.fsdecode(b"\xff\xfe")).write_bytes(b"y")
    assert b"\xff\xfe" in [os.fsencode(info.name) for info in client.list()]
    with pytest.raises(UnicodeEncodeError):
        client.stat("\ud800")


def test_paths_out_of_the_root_are_refused(client):
    for path in ("/../etc/passwd", "../../etc/passwd", "/a/../../x"):
        with pytest.raises(xdfs.Fault):
            client.read(path)


def test_closed_objects(server, tmp_path):
    client = xdfs.Client(server.url, insecure=True)
    client.upload_bytes(b"x" * 100, "file")
    file = client.open_raw("file")
    client.close()
    client.close()
    assert client.closed and "closed" in repr(client)
    for use in (
        lambda: client.stat("file"),
        lambda: client.upload_bytes(b"", "x"),
        lambda: client.open("file"),
        lambda: client.upload_tree(tmp_path, "x"),
        lambda: client.user,
    ):
        with pytest.raises(RuntimeError):
            use()
    with pytest.raises(OSError):
        file.read(10)
    file.close()
    other = xdfs.Server(tmp_path)
    other.close()
    other.close()
    assert other.closed


def test_nothing_answers(tmp_path):
    import socket

    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        client = xdfs.Client(f"xdfs://127.0.0.1:{taken.getsockname()[1]}/", insecure=True)
        with pytest.raises(ConnectionRefusedError) as caught:
            client.list()
        assert caught.value.ends_session and caught.value.hint in str(caught.value)
        client.close()


def test_an_unprotected_server_is_not_taken_for_a_protected_one(server):
    with pytest.raises(xdfs.Fault):
        xdfs.Client(server.url).list()


def test_a_server_that_can_only_be_read(tmp_path):
    with xdfs.Server(tmp_path, read_only=True) as server:
        with xdfs.Client(server.url, insecure=True) as client:
            with pytest.raises(PermissionError) as caught:
                client.mkdir("x")
            assert isinstance(caught.value, xdfs.ReadOnly)


INTERRUPTED = {  # each with a minute of work
    "a transfer": "client.upload_bytes(bytes(64 << 20), 'x', rate=1 << 20)",
    "a tree": "client.upload_tree(sys.argv[2], 'x', rate=1 << 20)",
    "a file": "open_slow(client).read(1 << 30)",
    "a queue": "queue = client.queue(); queue.upload(sys.argv[2] + '/large', 'x', rate=1 << 20).wait()",
    "asyncio": "asyncio.run(awaited(sys.argv[1]))",
    "tune": "xdfs.tune(sys.argv[1], insecure=True)",
    "closing a client": "kept = begin_slow(client); client.close()",
    "closing a server": "served, kept = serve_slow(); served.close(at_once=False)",
}
PROGRAM = """
import asyncio, os, signal, sys, threading, xdfs

async def awaited(url):
    async with xdfs.AsyncClient(url, insecure=True) as client:
        await client.upload_bytes(bytes(64 << 20), 'y', rate=1 << 20)

def open_slow(client):
    return client.open_raw('pipe')

def begin_slow(client):
    transfer = client.begin.upload_bytes(bytes(64 << 20), 'z', rate=1 << 20)
    next(iter(transfer))
    return transfer

def serve_slow():
    server = xdfs.Server(sys.argv[2])
    return server, begin_slow(xdfs.Client(server.url, insecure=True))

client = xdfs.Client(sys.argv[1], insecure=True)
client.list()
# The signal of the terminal, once the wait has begun: what is waited for takes a minute or more.
signal.signal(signal.SIGALRM, signal.default_int_handler)
try:
    signal.setitimer(signal.ITIMER_REAL, 0.5)
    {work}
except KeyboardInterrupt:
    print('interrupted', flush=True)
    os._exit(0)
print('went through', flush=True)
"""


@pytest.mark.parametrize("what", INTERRUPTED)
def test_an_interrupt_ends_every_wait(server, root, tmp_path, what):
    tree = tmp_path / "tree"
    tree.mkdir()
    (tree / "large").write_bytes(bytes(64 << 20))
    os.mkfifo(root / "pipe")
    # A reader of a pipe waits for a writer that says nothing.
    writer = os.open(root / "pipe", os.O_RDWR)
    code = PROGRAM.replace("{work}", INTERRUPTED[what])
    args = [sys.executable, "-c", code, server.url, str(tree)]
    ended = subprocess.run(args, capture_output=True, text=True, timeout=100)
    assert ended.stdout == "interrupted\n" and "panicked" not in ended.stderr, ended.stderr
    os.close(writer)


STALLED = {  # while the server does nothing any more
    "a call": "client.list()",
    "ranges": "client.read_ranges('file', [(0, 5)])",
    "events": "list(client.begin.upload_bytes(b'x', 'y'))",
    "a tree from there": "client.download_tree('.', sys.argv[2] + '/back')",
    "a synchronisation": "client.sync_to(sys.argv[2], 'x')",
    "opening a file": "client.open('file')",
    "reading a file": "file.read(10)",
    "making a file durable": "file.sync()",
    "flushing a file": "file.write(b'x'); file.flush()",
    "closing a file": "file.write(b'x'); file.close()",
    "the attributes of a file": "file.stat()",
    "closing a queue": "queue.upload(sys.argv[2] + '/large', 'x'); queue.close()",
    "closing a client": "kept = client.begin.sum('file'); client.close()",
    "an awaited call": "asyncio.run(awaited())",
    "fsspec": "fs.cat('/file')",
    "many small files": "fs.cat(['/file'] + [f'/{n}' for n in range(100)])",
    "opening a session by ssh": "xdfs.Client('ssh://host/', ssh='sh -c \\'exec sleep 20 2>/dev/null\\'')",
}
STALLED_PROGRAM = """
import asyncio, fsspec, glob, os, signal, sys, xdfs

async def awaited():
    async with xdfs.AsyncClient(sys.argv[1], insecure=True) as client:
        await client.list()

client = xdfs.Client(sys.argv[1], insecure=True)
fs, _ = fsspec.core.url_to_fs(sys.argv[1], insecure=True)
fs.ls('/')
file = client.open_raw('file', 'r+')
queue = client.queue()
signal.signal(signal.SIGALRM, signal.default_int_handler)
os.kill(int(sys.argv[3]), signal.SIGSTOP)
# Each of its threads.
states = {''}
while states != {'T'}:
    tasks = glob.glob(f'/proc/{sys.argv[3]}/task/*/stat')
    states = {open(task).read().rpartition(')')[2].split()[0] for task in tasks}
try:
    signal.setitimer(signal.ITIMER_REAL, 0.5)
    {work}
except KeyboardInterrupt:
    print('interrupted', flush=True)
    os._exit(0)
print('went through', flush=True)
os._exit(0)
"""


@pytest.mark.parametrize("what", STALLED)
def test_an_interrupt_ends_waits_for_a_server_that_stalls(far_server, tmp_path, what):
    process, url = far_server
    tree = tmp_path / "tree"
    tree.mkdir()
    (tree / "large").write_bytes(bytes(1 << 20))
    code = STALLED_PROGRAM.replace("{work}", STALLED[what])
    args = [sys.executable, "-c", code, url, str(tree), str(process.pid)]
    ended = subprocess.run(args, capture_output=True, text=True, timeout=100)
    assert ended.stdout == "interrupted\n" and "panicked" not in ended.stderr, ended.stderr


METHODS = {  # with arguments that are right
    "upload": ("{here}", "x"),
    "upload_bytes": (b"x", "x"),
    "download": ("file", "{here}2"),
    "upload_tree": ("{here}", "x"),
    "download_tree": ("x", "{here}2"),
    "sync_to": ("{here}", "x"),
    "sync_from": ("x", "{here}2"),
    "read": ("file", 0, 1),
    "read_ranges": ("file", [(0, 1)]),
    "stat": ("file",),
    "exists": ("file",),
    "list": ("",),
    "mkdir": ("x",),
    "remove": ("x",),
    "rmdir": ("x",),
    "rmtree": ("x",),
    "rename": ("file", "x"),
    "copy": ("file", "x"),
    "link": ("file", "x"),
    "symlink": ("file", "x"),
    "readlink": ("x",),
    "chmod": ("file", 0o600),
    "utime": ("file",),
    "truncate": ("file", 1),
    "df": ("",),
    "sum": ("file", "blake3"),
    "open": ("file", "r"),
    "open_raw": ("file", "r"),
    "queue": (1,),
}
KEYWORDS = {  # the types that each takes
    "mode": "number",
    "parents": "flag",
    "follow": "flag",
    "atime_ns": "number",
    "mtime_ns": "number",
    "offset": "number",
    "length": "number",
    "permissions": "number",
}


def test_every_argument_has_its_type(client, root, tmp_path):
    import inspect

    (root / "file").write_bytes(b"content")
    here = tmp_path / "here"
    here.write_bytes(b"x")
    named = {name for name, kind in vars(xdfs.Client).items() if inspect.isfunction(kind)}
    assert {name for name in named if not name.startswith("_")} == {*METHODS, "close"}
    for name, right in METHODS.items():
        method = getattr(client, name)
        right = [one.format(here=here) if isinstance(one, str) else one for one in right]
        for at in range(len(right)):
            # An array of bytes is data, and a number may stand for a mode or a position.
            for wrong in (object(), 1.5, ["x"], {"x": 1}):
                with pytest.raises((TypeError, ValueError, BufferError)):
                    method(*right[:at], wrong, *right[at + 1 :])
                    pytest.fail(f"{name}: argument {at} may be {wrong!r}")
        for keyword, parameter in inspect.signature(method).parameters.items():
            if parameter.kind is inspect.Parameter.KEYWORD_ONLY and keyword in KEYWORDS:
                for wrong in ("1", object(), 1.5):
                    with pytest.raises(TypeError):
                        method(*right, **{keyword: wrong})
                        pytest.fail(f"{name}: {keyword} may be {wrong!r}")
    assert [info.name for info in client.list()] == ["file"]
    assert (root / "file").read_bytes() == b"content" and not list(tmp_path.glob("here2*"))


def test_exceptions_in_every_kind_of_callback(client, server, root, tmp_path):
    import asyncio

    from fsspec.callbacks import Callback

    from xdfs.fsspec import XdfsFileSystem

    source = tmp_path / "tree"
    source.mkdir()
    (source / "file").write_bytes(bytes(32 << 20))

    def fails(*args, **kwargs):
        raise KeyError("mine")

    async def awaited():
        async with xdfs.AsyncClient(server.url, insecure=True) as client:
            await client.upload(source / "file", "a", progress=fails, rate=8 * MEGA)

    class Failing(Callback):
        call = fails

    fs = XdfsFileSystem("127.0.0.1", server.port, insecure=True, skip_instance_cache=True)
    for use in (
        lambda: client.upload_tree(source, "b", progress=fails, rate=8 * MEGA),
        lambda: client.sync_to(source, "c", progress=fails, rate=8 * MEGA),
        lambda: asyncio.run(awaited()),
        lambda: xdfs.tune(server.url, insecure=True, on_sample=fails),
        lambda: fs.put(str(source / "file"), "/d", callback=Failing()),
        lambda: fs.get("/", str(tmp_path / "back"), recursive=True, callback=Failing()),
    ):
        with pytest.raises(KeyError, match="mine"):
            use()
    assert len(client.list()) <= 3
    fs.close()


def test_after_a_fork_a_client_is_refused(client):
    client.upload_bytes(b"x", "file")
    file = client.open_raw("file")
    operation = client.begin.read("file")
    read, write = os.pipe()
    child = os.fork()
    if child == 0:
        refused = 0
        for use in (client.list, lambda: file.read(1), operation.wait, client.queue):
            try:
                use()
            except RuntimeError as error:
                refused += "fork" in str(error)
        client.close()
        file.close()
        del client, file, operation
        os.write(write, b"%d" % refused)
        os._exit(0)
    assert os.read(read, 10) == b"4"
    assert os.waitpid(child, 0)[1] == 0
    assert operation.wait() == b"x" and file.read(1) == b"x" and len(client.list()) == 1
    os.close(read)
    os.close(write)


def test_a_server_that_is_killed(far_server, tmp_path):
    process, url = far_server
    client = xdfs.Client(url, insecure=True)
    transfer = client.begin.download("file", tmp_path / "target", rate=4 * MEGA)
    next(iter(transfer))
    results = []

    def fails(work):
        with pytest.raises(OSError):
            work()
        results.append(1)

    upload = client.begin.upload_bytes(bytes(8 << 20), "x", rate=MEGA)
    threads = [threading.Thread(target=fails, args=(one.wait,)) for one in (transfer, upload)]
    for thread in threads:
        thread.start()
    process.kill()
    for thread in threads:
        thread.join(100)
    assert results == [1, 1]
    assert not (tmp_path / "target").exists()
    with pytest.raises(OSError):
        client.list()
    client.close()


AT_EXIT = """
import asyncio, sys, threading, xdfs
client = xdfs.Client(sys.argv[1], insecure=True)
client.list()
kept = [client.begin.upload_bytes(bytes(1 << 20), str(n)) for n in range(10)]
file = client.open_raw('new', 'w')
file.write(b'x' * 100_000)
threading.Thread(target=lambda: client.begin.upload_bytes(bytes(4 << 20), 'z').wait(), daemon=True).start()

async def left():
    asyncio.create_task(xdfs.AsyncClient(sys.argv[1], insecure=True).stat('none'))

asyncio.run(left())
print('ends', flush=True)
"""


@pytest.mark.parametrize("dies", [False, True])
def test_an_interpreter_ends_with_everything_open(server, dies):
    process = subprocess.Popen(
        [sys.executable, "-c", AT_EXIT, server.url],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    if dies:
        server.close()
    out, err = process.communicate(timeout=100)
    assert "panicked" not in err, err
    if not dies:
        assert out == "ends\n" and process.returncode == 0, err


BUSY_AT_EXIT = """
import asyncio, sys, threading, fsspec, xdfs

client = xdfs.Client(sys.argv[1], insecure=True)
client.upload_bytes(bytes(300_000), 'file', overwrite=True)
fs, _ = fsspec.core.url_to_fs(sys.argv[1], insecure=True)
file = client.open_raw('file')

def fails(work):
    try:
        work()
    except FileNotFoundError:
        return
    raise AssertionError('there is such a file')

async def awaited(begun):
    client = xdfs.AsyncClient(sys.argv[1], insecure=True)
    while True:
        await asyncio.gather(*(client.list() for _ in range(5)))
        begun.set()

async def awaited_in_vain(begun):
    client = xdfs.AsyncClient(sys.argv[1], insecure=True)
    while True:
        found = await asyncio.gather(*(client.stat('x') for _ in range(5)), return_exceptions=True)
        assert all(isinstance(one, FileNotFoundError) for one in found)
        begun.set()

def opened():
    with xdfs.Client(sys.argv[1], insecure=True) as other:
        other.stat('file')

def refused():
    # An exception is made at once, and the interpreter takes long to end.
    import pandas
    sys.setswitchinterval(1e-4)
    try:
        xdfs.Client('nonsense')
    except OSError:
        pass

def tuned():
    xdfs.tune(sys.argv[1], channels=[1], insecure=True, on_sample=lambda sample: False)

KINDS = {
    'awaited': lambda begun: asyncio.run(awaited(begun)),
    'awaited in vain': lambda begun: asyncio.run(awaited_in_vain(begun)),
    'calls': lambda: client.stat('file'),
    'faults': lambda: fails(lambda: client.stat('x')),
    'faults of files': lambda: fails(lambda: client.open('x')),
    'files': lambda: (file.seek(0), file.readinto(bytearray(200_000))),
    'fsspec': lambda: fs.cat_ranges(['/file', '/x'] * 5, 0, 100),
    'progress': lambda: client.upload_bytes(b'x', threading.current_thread().name, overwrite=True,
                                            progress=lambda event: [0] * 100),
    'sessions': opened,
    'sessions that are refused': refused,
    'tune': tuned,
}

def repeat(begun, work):
    while True:
        work()
        begun.set()

kind = KINDS[sys.argv[2]]
events = [threading.Event() for _ in range(3)]
for event in events:
    args = (event,) if 'awaited' in sys.argv[2] else (event, kind)
    target = kind if 'awaited' in sys.argv[2] else repeat
    threading.Thread(target=target, args=args, daemon=True).start()
for event in events:
    assert event.wait(60)
"""


@pytest.mark.parametrize(
    "kind", re.findall(r"^    '([a-z ]+)': ", BUSY_AT_EXIT, re.M), ids=lambda kind: kind
)
def test_an_interpreter_ends_while_threads_are_busy(far_server, kind):
    _, url = far_server
    for _ in range(3):
        args = [sys.executable, "-X", "faulthandler", "-c", BUSY_AT_EXIT, url, kind]
        ended = subprocess.run(args, capture_output=True, text=True, timeout=100)
        assert ended.returncode == 0 and "Fatal" not in ended.stderr, ended.stderr


def test_nothing_is_awaited_once_the_interpreter_ends(server):
    code = (
        "import asyncio, atexit, sys\n"
        "def late():\n"
        "    try:\n"
        "        asyncio.run(xdfs.AsyncClient(sys.argv[1], insecure=True).list())\n"
        "    except RuntimeError as error:\n"
        "        print(error)\n"
        "atexit.register(late)\n"
        "import xdfs\n"
        "@atexit.register\n"
        "def in_time():\n"
        "    print(asyncio.run(xdfs.AsyncClient(sys.argv[1], insecure=True).list()))\n"
    )
    args = [sys.executable, "-c", code, server.url]
    ended = subprocess.run(args, capture_output=True, text=True, timeout=100, check=True)
    assert ended.stdout.startswith("[]\nthe interpreter ends"), ended.stdout + ended.stderr


def test_a_file_is_read_past_its_end(client, root):
    (root / "file").write_bytes(b"abc")
    assert client.read("file", 10) == b"" and client.read("file", 2, 1 << 80) == b"c"
    with client.open("file", "rb") as file:
        file.seek(1 << 40)
        assert file.read() == b""
        with pytest.raises((OSError, ValueError)):
            file.seek(-1)
    with client.open_raw("file") as file, pytest.raises(OverflowError):
        file.seek(1 << 70)
