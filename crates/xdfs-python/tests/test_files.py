"""Open files: what those of Python can, these can."""

import io
import os
import random
import threading

import pytest

import xdfs


def test_modes_are_those_of_python(client, root, tmp_path):
    with client.open("file", "w") as file:
        file.write("first\nsecond\n")
    with client.open("file") as file:
        assert isinstance(file, io.TextIOWrapper) and list(file) == ["first\n", "second\n"]
    with client.open("file", "ab") as file:
        file.write(b"third\n")
    with client.open("file", "rb") as file:
        assert isinstance(file, io.BufferedReader) and file.read() == b"first\nsecond\nthird\n"
        assert file.seek(-6, os.SEEK_END) == 13 and file.readline() == b"third\n"
    with client.open("file", "r+b") as file:
        file.seek(6)
        file.write(b"SECOND")
        file.truncate(12)
    assert (root / "file").read_bytes() == b"first\nSECOND"
    with pytest.raises(FileExistsError):
        client.open("file", "x")
    with pytest.raises(FileNotFoundError):
        client.open("missing")
    with client.open("file", "w+b") as file:
        file.write(b"abc")
        file.seek(0)
        assert file.read() == b"abc"
    for mode in ("q", "rw", "", "rbt", "r++"):
        with pytest.raises(ValueError):
            client.open("file", mode)
    with pytest.raises(ValueError):
        client.open("file", "rb", encoding="utf-8")
    with pytest.raises(ValueError):
        client.open("file", "r", buffering=0)


def test_raw_files(client, root):
    data = os.urandom(200_000)
    (root / "file").write_bytes(data)
    with client.open_raw("file", "r+") as file:
        assert file.name == "/file" and file.seekable() and not file.isatty()
        buffer = bytearray(70_000)
        assert file.readinto(memoryview(buffer)[10:]) == 69_990
        assert buffer[10:] == data[:69_990] and file.tell() == 69_990
        assert file.readinto_at(199_990, buffer) == 10 and buffer[:10] == data[-10:]
        assert file.write_at(5, b"12345") == 5
        assert file.readinto_at(4, buffer) == 70_000 and buffer[1:6] == b"12345"
        assert file.truncate(100) == 100 and file.stat().size == 100
        file.sync()
        assert (root / "file").stat().st_size == 100
        for wrong in (b"readonly", memoryview(bytearray(10))[::2]):
            with pytest.raises((BufferError, TypeError)):
                file.readinto(wrong)
        with pytest.raises(TypeError):
            file.write("text")
        with pytest.raises(io.UnsupportedOperation):
            file.fileno()
    for use in (file.read, file.tell, file.flush, file.sync, lambda: file.write(b"")):
        with pytest.raises(ValueError):
            use()
    file.close()
    with client.open_raw("file") as file, pytest.raises(io.UnsupportedOperation):
        file.write(b"x")


def test_buffers_of_any_items_are_those_of_python(client, root, tmp_path):
    import array
    import ctypes

    import numpy as np

    class Pair(ctypes.Structure):
        _fields_ = [("one", ctypes.c_int16), ("two", ctypes.c_double)]

    record = np.dtype([("one", ">i2"), ("two", "f8", 2)])
    makes = [
        lambda: array.array("d", [1.5] * 10),
        lambda: np.full((3, 5), 2.5),
        lambda: np.full(7, 3, ">f8"),
        lambda: np.zeros(4, record),
        lambda: np.array(2.5, "f4"),
        lambda: np.zeros((0, 3)),
        lambda: bytearray(b"abcde"),
        lambda: memoryview(bytearray(b"abcdefgh")).cast("h"),
        lambda: (Pair * 3)(),
        lambda: array.array("b"),
    ]
    content = bytes(range(1, 251)) * 2
    (root / "file").write_bytes(content)
    for number, make in enumerate(makes):
        size = memoryview(make()).nbytes
        with client.open_raw("file") as file:
            for fill in (file.readinto, lambda buffer: file.readinto_at(0, buffer)):
                filled = make()
                assert fill(filled) == size, number
                assert memoryview(filled).tobytes() == content[:size], number
        with client.open_raw("out", "w") as file:
            assert file.write(make()) == size and file.write_at(size, make()) == size, number
        expected = memoryview(make()).tobytes()
        assert (root / "out").read_bytes() == expected * 2, number
        client.upload_bytes(make(), "out", overwrite=True)
        assert (root / "out").read_bytes() == expected, number
    with client.open_raw("file") as file:
        apart = memoryview(bytearray(9))[::2]
        fixed = np.zeros(3).data.toreadonly()
        for wrong in (b"bytes", apart, np.zeros((4, 4))[:, 1], fixed):
            with pytest.raises(BufferError):
                file.readinto(wrong)


def test_any_sequence_does_what_a_local_file_does(client, root, tmp_path):
    seed = random.randrange(1 << 32)
    draw = random.Random(seed)
    (root / "there").write_bytes(b"")
    local_path = tmp_path / "here"
    local_path.write_bytes(b"")
    with client.open("there", "r+b") as there, open(local_path, "r+b") as here:
        for step in range(300):
            kind = draw.choice(["read", "write", "seek", "truncate", "flush"])
            if kind == "read":
                size = draw.choice([0, 1, 1000, 100_000])
                results = [file.read(size) for file in (there, here)]
            elif kind == "write":
                data = draw.randbytes(draw.choice([0, 1, 1000, 100_000]))
                results = [file.write(data) for file in (there, here)]
            elif kind == "seek":
                at = draw.randrange(300_000)
                results = [file.seek(at) for file in (there, here)]
            elif kind == "truncate":
                size = draw.randrange(300_000)
                results = [file.truncate(size) for file in (there, here)]
            else:
                results = [file.flush() for file in (there, here)]
            assert results[0] == results[1], (seed, step, kind)
    assert (root / "there").read_bytes() == local_path.read_bytes(), seed


def test_a_server_that_dies_in_a_read_is_a_fault(far_server):
    process, url = far_server
    client = xdfs.Client(url, insecure=True)
    file, other = client.open_raw("file"), client.open_raw("file")
    reads, ends = [], []

    def read(one):
        begun = threading.Event()

        def repeat():
            try:
                while True:
                    assert len(one(1 << 16)) == 1 << 16
                    begun.set()
            except OSError as error:
                ends.append(error)

        reads.append(threading.Thread(target=repeat))
        reads[-1].start()
        assert begun.wait(60)

    # One reads ahead, and the other asks for each piece.
    read(lambda size: file.read(size) or (file.seek(0), file.read(size))[1])
    read(lambda size: bytes(other.readinto_at(1000, bytearray(size))))
    process.kill()
    # Otherwise they would wait for another server of that address.
    client.stop()
    for thread in reads:
        thread.join(100)
    assert len(ends) == 2, ends
    file.close()
    other.close()
    client.close()


def test_objects_are_dropped_in_any_order(server, root):
    import gc

    (root / "file").write_bytes(b"x" * 1000)
    for turn in range(6):
        client = xdfs.Client(server.url, insecure=True)
        file = client.open_raw("file")
        operation = client.begin.read("file")
        queue = client.queue()
        objects = [client, file, operation, queue]
        del client, file, operation, queue
        random.Random(turn).shuffle(objects)
        while objects:
            objects.pop()
            gc.collect()
