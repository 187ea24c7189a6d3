"""The file system of fsspec beyond its abstract tests."""

import asyncio
import multiprocessing
import os
import pickle

import fsspec
import pytest
from fsspec.callbacks import Callback

import xdfs
from xdfs.fsspec import SshXdfsFileSystem, XdfsFileSystem


def url(server, path):
    return f"xdfs://127.0.0.1:{server.port}{path}"


def test_urls_and_names():
    assert fsspec.get_filesystem_class("xdfs") is XdfsFileSystem
    assert fsspec.get_filesystem_class("ssh+xdfs") is SshXdfsFileSystem
    strip = XdfsFileSystem._strip_protocol
    for given, path in [
        ("xdfs://host:99/a/b", "/a/b"),
        ("xdfs://host", "/"),
        ("xdfs://host/", "/"),
        ("xdfs://host/a/", "/a"),
        ("xdfs://host/a%20b", "/a b"),
        ("/a", "/a"),
        ("a", "/a"),
        ("", "/"),
        (b"/a\xff", "/a\udcff"),
    ]:
        assert strip(given) == path, given
    assert strip(["xdfs://h/a", "/b"]) == ["/a", "/b"]
    assert SshXdfsFileSystem._strip_protocol("ssh+xdfs://host/a") == "/a"
    assert XdfsFileSystem._get_kwargs_from_urls("xdfs://me@host:99/a") == {
        "host": "host",
        "port": 99,
        "username": "me",
    }
    fs = XdfsFileSystem("host", 99, "me")
    for name in ("/a b", "/a%41", "/\udcff", "/ä"):
        assert strip(fs.unstrip_protocol(name)) == name
    assert fs.unstrip_protocol("/a").startswith("xdfs://me@host:99/")
    assert XdfsFileSystem("::1", 9)._authority == "[::1]:9"


def test_listing_and_metadata(fs, root):
    fs.makedirs("/a/b")
    fs.pipe("/a/file", b"12345")
    (root / "a/link").symlink_to("file")
    (root / "a/lost").symlink_to("nowhere")
    kinds = {info["name"]: (info["type"], info["islink"]) for info in fs.ls("/a")}
    assert kinds == {
        "/a/b": ("directory", False),
        "/a/file": ("file", False),
        "/a/link": ("file", True),
        "/a/lost": ("link", True),
    }
    assert fs.ls("/a", detail=False) == sorted(kinds)
    assert fs.ls("/a/file", detail=False) == ["/a/file"]
    assert fs.info("/a/link")["size"] == 5
    assert sorted(fs.find("/")) == ["/a/file", "/a/link", "/a/lost"]
    assert sorted(fs.glob("/a/*i*")) == ["/a/file", "/a/link"]
    assert [step[0] for step in fs.walk("/")] == ["/", "/a", "/a/b"]
    assert "file" in fs.tree("/")
    assert fs.du("/a/file") == 5 and fs.size("/a/file") == 5
    assert fs.isdir("/a") and fs.isfile("/a/file") and not fs.exists("/none")
    assert abs(fs.modified("/a/file").timestamp() - (root / "a/file").stat().st_mtime) < 1e-3
    before = fs.checksum("/a/file")
    assert before == fs.checksum("/a/link")
    fs.pipe("/a/file", b"54321")
    assert fs.checksum("/a/file") != before
    for refuses in (fs.sign, fs.created):
        with pytest.raises(NotImplementedError):
            refuses("/a/file")
    with pytest.raises(FileNotFoundError):
        fs.ls("/none")
    fs.touch("/a/file", truncate=False)
    assert fs.cat("/a/file") == b"54321"


def test_moves_and_removals(fs, root):
    fs.pipe({"/a/1": b"1", "/a/2": b"2", "/b/3": b"3"})
    inode = (root / "a/1").stat().st_ino
    fs.mv("/a/1", "/new/place")
    assert (root / "new/place").stat().st_ino == inode, "it was renamed and not copied"
    fs.mv("/new/place", "/b/")
    assert fs.cat("/b/place") == b"1"
    with pytest.raises(IsADirectoryError):
        fs.mv("/a", "/c")
    fs.mv("/a", "/c", recursive=True)
    assert fs.cat("/c/2") == b"2" and not fs.exists("/a")
    with pytest.raises(FileNotFoundError):
        fs.mv("/none", "/x")
    with pytest.raises(OSError):
        fs.rm("/b")
    fs.rm("/b/*")
    assert fs.ls("/b") == []
    fs.rmdir("/b")
    fs.rm(["/c", "/new"], recursive=True)
    assert fs.ls("/") == []


def test_ranges_and_their_errors(fs, root):
    data = os.urandom(500_000)
    fs.pipe({"/one": data, "/two": data[::-1]})
    paths = ["/one", "/two", "/none", "/one"]
    read = fs.cat_ranges(paths, [0, 10, 0, -7], [100, 20, 5, None])
    assert read[0] == data[:100] and read[1] == data[::-1][10:20] and read[3] == data[-7:]
    assert isinstance(read[2], FileNotFoundError)
    with pytest.raises(FileNotFoundError):
        fs.cat_ranges(paths, 0, 10, on_error="raise")
    many = fs.cat_ranges(["/one"] * 1000, list(range(1000)), [at + 64 for at in range(1000)])
    assert many == [data[at : at + 64] for at in range(1000)]
    assert fs.cat(["/one", "/two"]) == {"/one": data, "/two": data[::-1]}
    assert fs.cat_file("/one", start=10, end=-10) == data[10:-10]
    assert fs.head("/one", 5) == data[:5] and fs.tail("/one", 5) == data[-5:]
    assert fs.read_block("/one", 100, 50) == data[100:150]


def test_open_files(fs, root):
    with fs.open("/new/file", "wb") as file:
        file.write(b"x" * 6_000_000)
        assert not fs.exists("/new/file"), "it appears when it is complete"
    assert fs.size("/new/file") == 6_000_000
    assert len(fs.ls("/new")) == 1, "nothing else is left"
    with fs.open("/new/file", "ab") as file:
        assert file.tell() == 6_000_000
        file.write(b"end")
    with fs.open("/new/file") as file:
        file.seek(-4, 2)
        assert file.read() == b"xend"
    with fs.open("/new/file", "r+b") as file:
        file.write(b"start")
    assert fs.cat_file("/new/file", 0, 6) == b"startx"
    with pytest.raises(KeyError), fs.open("/new/half", "wb") as file:
        file.write(b"x")
        raise KeyError
    assert fs.ls("/new", detail=False) == ["/new/file"]
    with fs.open("/new/empty", "wb"):
        pass
    assert fs.size("/new/empty") == 0
    with fs.open("/new/text", "w") as file:
        file.write("äöü")
    with fs.open("/new/text", "r") as file:
        assert file.read() == "äöü"
    with pytest.raises(IsADirectoryError):
        fs.open("/new", "wb")


@pytest.mark.parametrize("cache", ["none", "readahead", "bytes", "blockcache", "all", "background"])
def test_block_caches(fs, cache):
    data = os.urandom(200_000)
    fs.pipe("/file", data)
    with fs.open("/file", block_size=10_000, cache_type=cache) as file:
        for at in (0, 150_000, 5, 199_990, 99_999):
            file.seek(at)
            assert file.read(20_000) == data[at : at + 20_000]


def test_transactions(fs):
    with fs.transaction:
        with fs.open("/one", "wb") as file:
            file.write(b"1")
        assert not fs.exists("/one")
    assert fs.cat("/one") == b"1"
    with pytest.raises(KeyError), fs.transaction:
        with fs.open("/two", "wb") as file:
            file.write(b"2")
        raise KeyError
    assert fs.ls("/", detail=False) == ["/one"]


def test_get_and_put_report_progress(fs, tmp_path):
    source = tmp_path / "source"
    source.write_bytes(os.urandom(3 << 20))
    callback = Callback()
    fs.put_file(str(source), "/file", callback=callback)
    assert callback.size == 3 << 20
    callback = Callback()
    fs.get_file("/file", str(tmp_path / "back"), callback=callback)
    assert (tmp_path / "back").read_bytes() == source.read_bytes()
    with pytest.raises(FileNotFoundError):
        fs.get("/none", str(tmp_path / "none"))
    fs.auto_mkdir = False
    with pytest.raises(FileNotFoundError):
        fs.put(str(source), "/no/such/folder")


def test_names_of_any_bytes(fs, root):
    for name in ("ä", "a b", "a%41", "\udcff\udcfe", "*?", "new\nline", "'\""):
        fs.pipe_file(f"/{name}", b"x")
        assert (root / name).read_bytes() == b"x"
        assert fs.cat_file(f"/{name}") == b"x"
        assert f"/{name}" in fs.ls("/", detail=False)
        fs.rm_file(f"/{name}")
    (root / os.fsdecode(b"\xe4")).write_bytes(b"y")
    (entry,) = fs.ls("/", detail=False)
    assert os.fsencode(entry) == b"/\xe4" and fs.cat_file(entry) == b"y"


def test_a_broken_session_is_replaced(tmp_path):
    served = tmp_path / "served"
    served.mkdir()
    (served / "file").write_bytes(b"x")
    server = xdfs.Server(served)
    port = server.port
    fs = XdfsFileSystem("127.0.0.1", port, insecure=True, skip_instance_cache=True)
    assert fs.cat("/file") == b"x"
    server.close()
    with pytest.raises(OSError):
        fs.cat("/file")
    with xdfs.Server(served, listen=f"127.0.0.1:{port}"):
        assert fs.cat("/file") == b"x"
        fs.close()


def test_instances_are_pickled_and_shared(server, root):
    (root / "file").write_bytes(b"x")
    one = fsspec.filesystem("xdfs", host="127.0.0.1", port=server.port, insecure=True)
    again = pickle.loads(pickle.dumps(one))
    assert again is one and again.cat("/file") == b"x"
    with fsspec.open(url(server, "/file"), insecure=True) as file:
        assert file.read() == b"x"
    one.close()


def _in_a_fork(fs, pipe):
    try:
        fs.client
    except RuntimeError as error:
        pipe.send(str(error))
    own = XdfsFileSystem(fs.host, fs.port, insecure=True, skip_instance_cache=True)
    pipe.send(own.cat("/file"))
    own.close()
    del fs


def test_after_a_fork_another_instance_is_needed(fs, root):
    (root / "file").write_bytes(b"x")
    assert fs.cat("/file") == b"x"
    here, there = multiprocessing.Pipe()
    process = multiprocessing.get_context("fork").Process(target=_in_a_fork, args=(fs, there))
    process.start()
    assert here.poll(60) and "fork" in here.recv()
    assert here.poll(60) and here.recv() == b"x"
    process.join(60)
    assert process.exitcode == 0
    assert fs.cat("/file") == b"x"


def test_an_asynchronous_instance(server, root):
    (root / "file").write_bytes(b"x")

    async def main():
        fs = XdfsFileSystem("127.0.0.1", server.port, insecure=True, asynchronous=True)
        await fs._pipe_file("/new", b"new")
        assert await fs._cat(["/file", "/new"]) == {"/file": b"x", "/new": b"new"}
        fs.client.stop()

    asyncio.run(main())


def test_many_small_files_travel_together(fs, root, tmp_path):
    values = {f"/many/{n % 9}/file{n}": os.urandom(n * 31 % 5000) for n in range(500)}
    values["/many/large"] = os.urandom(2 << 20)
    values["/many/view"] = memoryview(bytearray(b"view"))
    fs.pipe(values)
    for name, value in values.items():
        assert (root / name[1:]).read_bytes() == value
    (root / "many/link").symlink_to("0/file9")
    (root / "many/empty").mkdir()
    assert fs.cat(list(values)) == values
    found = fs.cat("/many/0/*")
    assert found == {name: value for name, value in values.items() if name.startswith("/many/0/")}
    back = tmp_path / "back"
    fs.get("/many/", str(back), recursive=True)
    for name, value in values.items():
        assert (back / name[6:]).read_bytes() == value
    assert (back / "link").read_bytes() == values["/many/0/file9"]
    assert (back / "empty").is_dir() and not (back / "link").is_symlink()
    fs.put(f"{back}/", "/again/", recursive=True)
    assert sorted(fs.find("/again")) == sorted(f"/again/{name[6:]}" for name in fs.find("/many"))
    for name, value in values.items():
        assert (root / "again" / name[6:]).read_bytes() == value
    fs.put([str(back / name[6:]) for name in values], [f"/flat/{n}" for n in range(len(values))])
    assert (root / "flat/500").read_bytes() == values["/many/large"]


def test_what_packs_leave_is_moved_one_by_one(fs, root, tmp_path):
    names = [f"/f{n}" for n in range(100)]
    fs.pipe(dict.fromkeys(names, b"x"))
    with pytest.raises(FileNotFoundError):
        fs.cat([*names, "/none"])
    found = fs.cat([*names, "/none"], on_error="return")
    assert len(found) == 101 and isinstance(found["/none"], FileNotFoundError)
    assert fs.cat([*names, "/none"], on_error="omit") == dict.fromkeys(names, b"x")
    assert fs.cat(names, start=1, end=5) == dict.fromkeys(names, b"")
    with pytest.raises(FileNotFoundError):
        fs.get([*names, "/none"], str(tmp_path / "all"))
    # A name that is a directory, one that exists, and a link on the way.
    (root / "taken/x").mkdir(parents=True)
    (root / "real").mkdir()
    (root / "link").symlink_to("real")
    with pytest.raises(OSError):
        fs.pipe({**dict.fromkeys(names, b"y"), "/taken/x": b"y"})
    assert fs.cat("/f99") == b"y"
    with pytest.raises(FileExistsError):
        fs.pipe(dict.fromkeys(names, b"z"), mode="create")
    assert fs.cat("/f99") == b"y"
    fs.pipe({f"/link/{n}": b"z" for n in range(50)} | {"/f1": b"w"})
    assert (root / "real/49").read_bytes() == b"z" and (root / "f1").read_bytes() == b"w"
    fs.auto_mkdir = False
    with pytest.raises(FileNotFoundError):
        fs.pipe({f"/no/{n}": b"z" for n in range(50)})
    assert not fs.exists("/no")


def test_progress_of_many_files_is_counted(fs, root, tmp_path):
    for number in range(100):
        (tmp_path / f"{number}").write_bytes(b"x" * number)
    (tmp_path / "large").write_bytes(bytes(1 << 20))
    for move in (
        lambda callback: fs.put(f"{tmp_path}/*", "/there/", callback=callback),
        lambda callback: fs.get("/there/*", f"{tmp_path}/back/", callback=callback),
    ):
        callback = Callback()
        move(callback)
        assert (callback.size, callback.value) == (101, 101)
    assert (tmp_path / "back/99").read_bytes() == b"x" * 99


def test_many_files_of_a_server_that_dies(far_server, tmp_path):
    process, url = far_server
    fs, _ = fsspec.core.url_to_fs(url, insecure=True, skip_instance_cache=True)
    fs.pipe({f"/{n}": b"x" for n in range(100)})
    process.kill()
    process.wait(60)
    for use in (
        lambda: fs.cat([f"/{n}" for n in range(100)]),
        lambda: fs.get([f"/{n}" for n in range(100)], [f"{tmp_path}/{n}" for n in range(100)]),
        lambda: fs.pipe({f"/{n}": b"y" for n in range(100)}),
    ):
        with pytest.raises(OSError):
            use()
    assert isinstance(fs.cat(["/1"] * 2 + ["/2"], on_error="return")["/1"], OSError)


def test_a_server_that_ssh_starts(ssh_server, tmp_path):
    port, settings = ssh_server
    at = f"ssh+xdfs://127.0.0.1:{port}{tmp_path}"
    (tmp_path / "file").write_bytes(b"content")
    with fsspec.open(f"{at}/file", **settings) as file:
        assert file.read() == b"content"
    with fsspec.open(f"{at}/new/written", "wb", **settings) as file:
        file.write(b"x" * 3_000_000)
    assert (tmp_path / "new/written").stat().st_size == 3_000_000
    fs, path = fsspec.core.url_to_fs(f"{at}/many", skip_instance_cache=True, **settings)
    assert isinstance(fs, SshXdfsFileSystem) and path == f"{tmp_path}/many"
    values = {f"{path}/{n}": bytes([n]) for n in range(200)}
    fs.pipe(values)
    assert fs.cat(list(values)) == values
    assert fs.unstrip_protocol(path) == f"{at}/many"
    fs.mv(f"{path}/7", f"{path}/seven")
    assert (tmp_path / "many/seven").read_bytes() == b"\x07"
    with pytest.raises(FileNotFoundError):
        fs.cat(f"{path}/7")
    again = pickle.loads(pickle.dumps(fs))
    assert again.cat(f"{path}/8") == b"\x08"
    for one in (fs, again):
        one.close()


def test_an_ssh_that_refuses_is_a_fault(ssh_server, tmp_path):
    port, settings = ssh_server
    fs = SshXdfsFileSystem("127.0.0.1", port, skip_instance_cache=True, **settings)
    fs._settings["remote_program"] = str(tmp_path / "none")
    with pytest.raises(OSError):
        fs.ls("/")
    (tmp_path / "ssh/authorized").write_text("")
    other = SshXdfsFileSystem("127.0.0.1", port, skip_instance_cache=True, **settings)
    with pytest.raises(OSError):
        other.ls("/")
