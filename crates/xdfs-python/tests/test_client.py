"""Clients that wait: transfers, trees, calls, progress, queues."""

import os
import pickle
import threading
import time

import pytest

import xdfs

MEGA = 1 << 20


def fill(path, size):
    path.write_bytes(os.urandom(size))
    return path


def again(work):
    """Does something that another transfer may still be in the way of."""
    end = time.monotonic() + 60
    while True:
        try:
            return work()
        except xdfs.Busy:
            assert time.monotonic() < end


def test_a_file_goes_there_and_back(client, root, tmp_path):
    source = fill(tmp_path / "source", 5 * MEGA + 3)
    sent = client.upload(source, "/sent")
    assert sent.bytes == 5 * MEGA + 3 and sent.target == "/sent" and not sent.is_skipped
    assert (root / "sent").read_bytes() == source.read_bytes()
    got = client.download("sent", tmp_path / "got")
    assert got.digest == sent.digest and got.digest.startswith("crc64nvme:")
    assert (tmp_path / "got").read_bytes() == source.read_bytes()
    assert "<td>/sent</td>" in sent._repr_html_()


def test_what_exists_is_skipped_replaced_or_refused(client, root, tmp_path):
    source = fill(tmp_path / "source", 1000)
    (root / "there").write_bytes(b"old")
    with pytest.raises(FileExistsError) as caught:
        client.upload(source, "there")
    fault = caught.value
    assert isinstance(fault, xdfs.AlreadyExists) and fault.code == "already-exists"
    assert fault.path == "/there" and fault.filename == "/there" and fault.side == "remote"
    assert (root / "there").read_bytes() == b"old"
    client.upload(source, "there", overwrite=True)
    assert client.upload(source, "there", skip="content").is_skipped


def test_bytes_of_any_buffer_are_sent(client, root):
    import array

    for number, data in enumerate(
        [b"bytes", bytearray(b"array"), memoryview(b"a view")[2:], array.array("B", [1, 2, 3]), b""]
    ):
        assert client.upload_bytes(data, f"data{number}").bytes == len(data)
        assert (root / f"data{number}").read_bytes() == bytes(data)
    (root / "folder").mkdir()
    with pytest.raises(OSError):
        client.upload_bytes(b"x", "folder")
    assert list((root / "folder").iterdir()) == []


def test_progress_is_called_and_iterated(client, root, tmp_path):
    source = fill(tmp_path / "source", 8 * MEGA)
    events = []
    client.upload(source, "one", progress=events.append, rate=16 * MEGA)
    assert events and all(isinstance(event, xdfs.Progress) for event in events)
    assert [event.bytes for event in events] == sorted(event.bytes for event in events)
    assert events[-1].total == 8 * MEGA
    transfer = client.begin.upload(source, "two", rate=16 * MEGA)
    assert not transfer.is_finished
    with pytest.raises(RuntimeError):
        transfer.result
    assert sum(1 for _ in transfer) > 0
    assert transfer.is_finished and transfer.result.bytes == 8 * MEGA
    assert transfer.wait() is transfer.result


def test_an_exception_in_a_callback_cancels(client, root, tmp_path):
    source = fill(tmp_path / "source", 64 * MEGA)

    def fails(event):
        raise KeyError("mine")

    transfer = client.begin.upload(source, "target", rate=4 * MEGA)
    with pytest.raises(KeyError, match="mine"):
        transfer.wait(fails)
    with pytest.raises(KeyError):
        transfer.result
    assert not (root / "target").exists()
    # The session is none the worse, and the same transfer resumes once the server has let go.
    assert again(lambda: client.upload(source, "target")).bytes == 64 * MEGA


def test_a_transfer_outlives_its_client(server, root):
    def begin(name):
        client = xdfs.Client(server.url, insecure=True)
        return client, client.begin.upload_bytes(bytes(4 * MEGA), name, rate=2 * MEGA)

    # The end of a session waits for its transfers, but what drops a client doesn't: before they
    # have begun, and afterwards.
    early = begin("early")[1]
    next(iter(early))
    assert not (root / "early").exists()
    client, late = begin("late")
    next(iter(late))
    del client
    assert not (root / "late").exists()
    assert [transfer.wait().bytes for transfer in (early, late)] == [4 * MEGA] * 2


def test_a_cancelled_transfer_says_so(client, tmp_path):
    source = fill(tmp_path / "source", 64 * MEGA)
    transfer = client.begin.upload(source, "target", rate=4 * MEGA)
    transfer.cancel()
    with pytest.raises(xdfs.Cancelled):
        transfer.wait()


def test_calls(client, root, tmp_path):
    client.mkdir("a/b/c", parents=True)
    with pytest.raises(FileExistsError):
        client.mkdir("a")
    client.upload_bytes(b"content", "a/file")
    info = client.stat("a/file")
    assert (info.name, info.kind, info.size, info.is_file) == ("file", "file", 7, True)
    assert info.mtime_ns == (root / "a/file").stat().st_mtime_ns
    assert info.mtime == pytest.approx((root / "a/file").stat().st_mtime)
    assert sorted(entry.name for entry in client.list("a")) == ["b", "file"]
    client.symlink("file", "a/link")
    assert client.readlink("a/link") == "file"
    assert client.stat("a/link").is_file and client.stat("a/link", follow=False).is_symlink
    client.link("a/file", "a/hard")
    assert client.stat("a/hard").links == 2
    client.chmod("a/file", 0o640)
    assert client.stat("a/file").mode == 0o640
    client.utime("a/file", mtime_ns=1_000_000_007)
    assert client.stat("a/file").mtime_ns == 1_000_000_007
    assert client.copy("a/file", "a/copy") == 7
    client.truncate("a/copy", 3)
    assert client.read("a/copy") == b"con"
    client.rename("a/copy", "a/moved")
    with pytest.raises(FileExistsError):
        client.rename("a/moved", "a/file")
    client.rename("a/moved", "a/file", overwrite=True)
    import hashlib

    assert client.sum("a/file", "sha256").hex == hashlib.sha256(b"con").hexdigest()
    assert client.sum("a/file", "md5", offset=1).length == 2
    assert client.df().total >= client.df().available > 0
    assert client.exists("a/link") and not client.exists("a/none")
    client.remove("a/hard")
    with pytest.raises(OSError) as caught:
        client.rmdir("a")
    assert caught.value.code == "not-empty"
    client.rmdir("a/b/c")
    assert client.rmtree("a") >= 3
    assert client.list() == []


def test_a_relative_path_begins_at_the_url(server, root):
    (root / "deep").mkdir()
    with xdfs.Client(server.url + "deep/", insecure=True) as client:
        client.upload_bytes(b"x", "file")
        assert client.stat("/deep/file").size == 1
        assert [entry.name for entry in client.list()] == ["file"]


def test_trees_are_copied_and_synchronised(client, root, tmp_path):
    tree = tmp_path / "tree"
    (tree / "sub").mkdir(parents=True)
    for number in range(50):
        (tree / "sub" / f"file{number}").write_bytes(b"x" * number)
    fill(tree / "large", 2 * MEGA)
    events = []
    sent = client.upload_tree(tree, "copy", progress=events.append, file_digests="blake3")
    assert sent.files == 51 and sent.failed == 0 and sent.target == "/copy"
    moved = {event.path: event for event in events if isinstance(event, xdfs.FileMoved)}
    assert len(moved) == 51 and moved["sub/file49"].bytes == 49
    assert moved["sub/file49"].digest.startswith("blake3:")
    got = client.download_tree("copy", tmp_path / "back")
    assert got.files == 51
    assert (tmp_path / "back/large").read_bytes() == (tree / "large").read_bytes()
    (tree / "sub/file1").unlink()
    (tree / "new").write_bytes(b"new")
    synced = client.sync_to(tree, "copy", delete=True, force=True)
    assert synced.deleted == 1 and synced.files == 1
    assert not (root / "copy/sub/file1").exists() and (root / "copy/new").exists()
    synced = client.sync_from("copy", tmp_path / "back", delete=True, force=True)
    assert synced.deleted == 1 and (tmp_path / "back/new").read_bytes() == b"new"


def test_an_entry_that_fails_is_an_event(client, root, tmp_path):
    tree = tmp_path / "tree"
    tree.mkdir()
    (tree / "dangling").symlink_to("nowhere")
    events = []
    result = client.upload_tree(tree, "copy", follow_links=True, progress=events.append)
    assert result.failed == 1
    (failed,) = [event for event in events if isinstance(event, xdfs.EntryFailed)]
    assert failed.path == "dangling" and isinstance(failed.error, xdfs.Fault)


def test_functions_open_a_session(server, root, tmp_path):
    source = fill(tmp_path / "source", 1000)
    xdfs.upload(source, server.url + "file", insecure=True)
    assert xdfs.download(server.url + "file", tmp_path / "back", insecure=True).bytes == 1000
    tree = tmp_path / "tree"
    tree.mkdir()
    fill(tree / "a", 10)
    assert xdfs.copy_tree(tree, server.url + "tree", insecure=True).files == 1
    assert xdfs.copy_tree(server.url + "tree", tmp_path / "t2", insecure=True).files == 1
    fill(tree / "b", 10)
    assert xdfs.sync(tree, server.url + "tree", insecure=True).files == 1
    assert xdfs.sync(server.url + "tree", tmp_path / "t2", insecure=True).files == 1
    with pytest.raises(ValueError):
        xdfs.sync(tree, tmp_path / "t3")
    with pytest.raises(ValueError):
        xdfs.copy_tree(server.url, server.url)


def test_a_queue_copies_many_files(client, root, tmp_path):
    with client.queue(running_max=3) as queue:
        transfers = []
        for number in range(40):
            source = tmp_path / str(number)
            source.write_bytes(b"x" * number)
            transfers.append(queue.upload(source, f"file{number}"))
        assert [transfer.wait().bytes for transfer in transfers] == list(range(40))
        back = queue.download("file7", tmp_path / "back")
        missing = queue.download("none", tmp_path / "none")
    assert back.wait().bytes == 7
    with pytest.raises(FileNotFoundError):
        missing.wait()
    with pytest.raises(RuntimeError):
        queue.upload(tmp_path / "7", "x")


def test_a_stopped_queue_cancels(client, tmp_path):
    queue = client.queue()
    transfer = queue.upload(fill(tmp_path / "source", 64 * MEGA), "target", rate=MEGA)
    queue.stop()
    with pytest.raises(xdfs.Cancelled):
        transfer.wait()


def test_ranges(client, root):
    data = os.urandom(300_000)
    (root / "file").write_bytes(data)
    wanted = [(0, 10), (-5, None), (100_000, 250_000), (299_999, 10**30), (7, 7), (-(10**30), 3)]
    expected = [data[start:end] for start, end in wanted]
    assert client.read_ranges("file", wanted) == expected
    assert client.read("file", 5, -5) == data[5:-5]
    assert client.read("file", 400_000) == b""


def test_threads_share_a_client(client, root, tmp_path):
    errors = []

    def work(number):
        try:
            data = bytes([number]) * (1000 + number)
            for turn in range(5):
                client.upload_bytes(data, f"{number}-{turn}")
                assert client.read(f"{number}-{turn}") == data
                assert client.stat(f"{number}-{turn}").size == len(data)
        except BaseException as error:
            errors.append(error)

    threads = [threading.Thread(target=work, args=(number,)) for number in range(64)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(100)
    assert not errors and not any(thread.is_alive() for thread in threads)
    assert len(client.list()) == 320


def test_faults_are_pickled(client):
    with pytest.raises(xdfs.NotFound) as caught:
        client.stat("missing")
    again = pickle.loads(pickle.dumps(caught.value))
    assert type(again) is xdfs.NotFound and str(again) == str(caught.value)
    assert again.errno == caught.value.errno == 2 and again.path == "/missing"
    assert again.operation == "look at" and again.machine == caught.value.machine != ""


def test_tune_finds_a_setting(server):
    samples = []
    report = xdfs.tune(
        server.url,
        channels=[1, 2],
        bytes_max=64 * MEGA,
        on_sample=samples.append,
        insecure=True,
    )
    assert len(report.samples) == len(samples) > 1
    assert report.end in ("found", "bytes", "time") and report.default_bytes_per_second > 0
    ended = xdfs.tune(server.url, on_sample=lambda _: False, insecure=True)
    assert ended.end == "stopped" and len(ended.samples) <= 2


def test_the_import_is_quick():
    import subprocess
    import sys

    # Nothing that takes long is imported for those who need only a copy.
    slow = ("asyncio", "dataclasses", "fsspec", "html", "tempfile")
    code = f"import sys, xdfs; print([name for name in {slow} if name in sys.modules])"
    ended = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert ended.stdout.strip() == "[]"
