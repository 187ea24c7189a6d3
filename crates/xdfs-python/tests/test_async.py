"""Clients of asyncio."""

import asyncio
import os
import threading

import pytest

import xdfs

MEGA = 1 << 20


def threads_now():
    return len(os.listdir("/proc/self/task"))


def opened(server):
    return xdfs.AsyncClient(server.url, insecure=True)


def test_everything_is_awaited(server, root, tmp_path):
    async def main():
        async with opened(server) as client:
            source = tmp_path / "source"
            source.write_bytes(os.urandom(3 * MEGA))
            events = []
            sent = await client.upload(source, "file", progress=events.append, rate=4 * MEGA)
            assert sent.bytes == 3 * MEGA and events
            await client.download("file", tmp_path / "back")
            assert (tmp_path / "back").read_bytes() == source.read_bytes()
            assert (await client.stat("file")).size == 3 * MEGA
            assert [info.name for info in await client.list()] == ["file"]
            await client.mkdir("folder")
            await client.rename("file", "folder/file")
            assert await client.exists("folder/file") and not await client.exists("file")
            assert await client.read("folder/file", -3) == source.read_bytes()[-3:]
            assert (await client.sum("folder/file")).kind == "blake3"
            await client.symlink("file", "folder/link")
            assert await client.readlink("folder/link") == "file"
            await client.link("folder/file", "folder/hard")
            await client.chmod("folder/file", 0o640)
            await client.utime("folder/file", mtime_ns=10**18)
            await client.truncate("folder/hard", 2 * MEGA)
            info = await client.stat("folder/file")
            assert (info.mode, info.links, info.size) == (0o640, 2, 2 * MEGA)
            await client.remove("folder/hard")
            await client.remove("folder/link")
            assert (await client.download_tree("folder", tmp_path / "tree")).files == 1
            assert (await client.sync_to(tmp_path / "tree", "folder")).files == 0
            assert await client.rmtree("folder") == 2
            with pytest.raises(FileNotFoundError):
                await client.stat("file")
        with pytest.raises(RuntimeError):
            await client.stat("file")

    asyncio.run(main())


def test_many_calls_have_no_threads(far_server):
    # Threads of a server in this process would count.
    _, url = far_server

    async def main():
        async with xdfs.AsyncClient(url, insecure=True) as client:
            await client.stat("file")
            before = threads_now()
            calls = [client.read("file", number, number + 1000) for number in range(2000)]
            during = asyncio.create_task(asyncio.sleep(0))
            results = asyncio.gather(*calls)
            await during
            most = threads_now()
            assert [len(data) for data in await results] == [1000] * 2000
            assert most <= before + 1, (before, most)

    asyncio.run(main())


def test_a_cancelled_task_cancels(server, root, tmp_path):
    source = tmp_path / "source"
    source.write_bytes(os.urandom(32 * MEGA))

    async def main():
        async with opened(server) as client:
            begun = asyncio.Event()
            upload = client.upload(source, "target", rate=4 * MEGA, progress=lambda _: begun.set())
            task = asyncio.create_task(upload)
            await begun.wait()
            task.cancel()
            with pytest.raises(asyncio.CancelledError):
                await task
            with pytest.raises(asyncio.TimeoutError):
                await asyncio.wait_for(client.upload(source, "other", rate=MEGA), 0.3)
            # A cancelled transfer doesn't keep the session from the next one.
            assert (await client.upload(source, "target")).bytes == 32 * MEGA
            assert not (root / "other").exists()

    asyncio.run(main())


def test_two_loops_share_a_client(server, root):
    client = opened(server)
    results = []

    def in_a_loop(name):
        async def main():
            for number in range(50):
                await client.upload_bytes(name.encode(), f"{name}{number}")
            return len([info for info in await client.list() if info.name.startswith(name)])

        results.append(asyncio.run(main()))

    threads = [threading.Thread(target=in_a_loop, args=(name,)) for name in "ab"]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(100)
    assert results == [50, 50]
    client.stop()


def test_a_server_that_dies_fails_what_is_awaited(tmp_path):
    (tmp_path / "served").mkdir()
    server = xdfs.Server(tmp_path / "served")

    async def main():
        client = opened(server)
        source = tmp_path / "source"
        source.write_bytes(os.urandom(32 * MEGA))
        begun = asyncio.Event()
        upload = client.upload(source, "target", rate=4 * MEGA, progress=lambda _: begun.set())
        task = asyncio.create_task(upload)
        await begun.wait()
        await asyncio.get_running_loop().run_in_executor(None, server.close)
        with pytest.raises(xdfs.Fault) as caught:
            await task
        assert caught.value.ends_session
        with pytest.raises(xdfs.Fault):
            await client.stat("target")
        await client.close()

    asyncio.run(main())


def test_a_loop_that_was_closed_is_not_called(server, root, tmp_path):
    source = tmp_path / "source"
    source.write_bytes(os.urandom(8 * MEGA))
    client = opened(server)
    loop = asyncio.new_event_loop()
    operation = client.begin.upload(source, "target", rate=8 * MEGA)
    assert operation._raw.poll(loop, lambda: None) is None
    loop.close()
    # The wake-up of the closed loop is lost, and nothing else.
    assert operation.wait().bytes == 8 * MEGA
    client.stop()
