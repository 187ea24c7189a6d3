"""``xdfs://`` URLs for fsspec, and so for pandas, dask, xarray, zarr and others.

>>> import fsspec
>>> fs = fsspec.filesystem("xdfs", host="data.example.org")          # doctest: +SKIP
>>> pandas.read_parquet("xdfs://data.example.org/table.parquet")      # doctest: +SKIP

Options are those of ``xdfs.Client``, such as ``key`` or ``insecure``, and:

host, port, username
    the server; usually from the URL
auto_mkdir
    make missing directories above what is written, as object stores would (default true)

A file that is written appears under its name once it is complete and durable; within a transaction
all of them do at its end. Nothing is cached but the blocks of open files.
"""

from __future__ import annotations

import asyncio
import contextvars
import datetime
import os
import posixpath
import uuid
from collections.abc import Callable, Iterable
from typing import Any
from urllib.parse import quote, quote_from_bytes, unquote_to_bytes, urlsplit

from fsspec.asyn import AsyncFileSystem, sync_wrapper
from fsspec.callbacks import DEFAULT_CALLBACK
from fsspec.spec import AbstractBufferedFile

from ._begin import Begin
from ._buffers import to_read
from ._client import Client
from ._errors import IsDirectory, NotDirectory
from ._operation import Operation
from ._types import FileInfo, Progress

#: So many files are worth an operation for all of them, which travel in packs if they are small.
_MANY = 32
#: Files of one such operation, and bytes that one sends from memory.
_FILES_AT_ONCE = 2048
_BYTES_AT_ONCE = 64 << 20
#: Larger files don't travel in packs.
_SMALL = 512 << 10

#: The list that takes the names of single files, while fsspec finds out which ones are meant.
_PLAN: contextvars.ContextVar[list[tuple[Any, Any]] | None] = contextvars.ContextVar(
    "xdfs_plan", default=None
)


class XdfsFileSystem(AsyncFileSystem):
    """Files of a server, by ``xdfs://HOST[:PORT]/PATH``."""

    protocol: Any = "xdfs"
    root_marker = "/"
    cachable = True
    _scheme = "xdfs"

    def __init__(
        self,
        host: str = "localhost",
        port: int | None = None,
        username: str | None = None,
        auto_mkdir: bool = True,
        **options: Any,
    ) -> None:
        generic = {
            name: options.pop(name)
            for name in (
                "asynchronous",
                "loop",
                "batch_size",
                "skip_instance_cache",
                "use_listings_cache",
                "listings_expiry_time",
                "max_paths",
            )
            if name in options
        }
        super().__init__(**generic)
        self.host = host
        self.port = port
        self.username = username
        self.auto_mkdir = auto_mkdir
        self._settings = options
        self._opened: Client | None = None

    # The server.

    @property
    def _authority(self) -> str:
        user = "" if self.username is None else f"{quote(self.username, safe='')}@"
        host = f"[{self.host}]" if ":" in self.host and self.host[0] != "[" else self.host
        return user + host + ("" if self.port is None else f":{self.port}")

    @property
    def client(self) -> Client:
        """The client, which is opened when it is first needed, and again when it has broken."""
        if self._pid != os.getpid():
            raise RuntimeError(
                "this file system was made before a fork: make another one in this process, or "
                "start processes by spawn"
            )
        if self._opened is not None:
            try:
                self._opened._session.check()
                return self._opened
            except (OSError, RuntimeError):
                self._opened = None
        self._opened = Client(f"{self._scheme}://{self._authority}/", **self._settings)
        return self._opened

    @property
    def _begin(self) -> Begin:
        return self.client.begin

    def close(self) -> None:
        """Ends the session; the next use opens another one."""
        opened, self._opened = self._opened, None
        if opened is not None:
            opened.close()

    # Names.

    @classmethod
    def _strip_protocol(cls, path: Any) -> Any:
        if isinstance(path, list):
            return [cls._strip_protocol(one) for one in path]
        path = os.fspath(path)
        if isinstance(path, bytes):
            path = os.fsdecode(path)
        protocols = (cls.protocol,) if isinstance(cls.protocol, str) else cls.protocol
        for protocol in protocols:
            if path.startswith(f"{protocol}://"):
                rest = path[len(protocol) + 3 :]
                slash = rest.find("/")
                path = "/" if slash < 0 else os.fsdecode(unquote_to_bytes(os.fsencode(rest[slash:])))
                break
        path = path.rstrip("/")
        if not path.startswith("/"):
            path = f"/{path}"
        return path or "/"

    @staticmethod
    def _get_kwargs_from_urls(path: str) -> dict[str, Any]:
        if "://" not in path:
            return {}
        parts = urlsplit(path)
        found: dict[str, Any] = {"host": parts.hostname or "localhost"}
        if parts.port is not None:
            found["port"] = parts.port
        if parts.username is not None:
            found["username"] = parts.username
        return found

    def unstrip_protocol(self, name: str) -> str:
        protocol = self.protocol if isinstance(self.protocol, str) else self.protocol[0]
        path = self._strip_protocol(name)
        path = quote_from_bytes(os.fsencode(path), safe="/*?[]=+:@,;!$&'()~ ")
        return f"{protocol}://{self._authority}{path}"

    @property
    def fsid(self) -> str:
        return f"{self._scheme}-{self._authority}"

    # Reading.

    async def _info(self, path: str, **kwargs: Any) -> dict[str, Any]:
        path = self._strip_protocol(path)
        try:
            return _entry(path, await self._begin.stat(path))
        except FileNotFoundError:
            # A link that leads nowhere is something all the same.
            info = await self._begin.stat(path, follow=False)
            if not info.is_symlink:
                raise
            return _entry(path, info)

    async def _ls(self, path: str, detail: bool = True, **kwargs: Any) -> list[Any]:
        path = self._strip_protocol(path)
        try:
            found = await self._begin.list(path)
        except NotDirectory:
            entries = [await self._info(path)]
        else:
            prefix = path.rstrip("/")
            entries = [_entry(f"{prefix}/{info.name}", info) for info in found]
            links = [at for at, info in enumerate(found) if info.is_symlink]
            ends = await asyncio.gather(*(self._info(entries[at]["name"]) for at in links))
            for at, end in zip(links, ends):
                entries[at] = {**end, "islink": True}
        return entries if detail else sorted(entry["name"] for entry in entries)

    async def _cat_file(
        self, path: str, start: int | None = None, end: int | None = None, **kwargs: Any
    ) -> bytes:
        path = self._strip_protocol(path)
        return await self._begin.read(path, start or 0, end)

    async def _cat(
        self,
        path: Any,
        recursive: bool = False,
        on_error: str = "raise",
        batch_size: int | None = None,
        **kwargs: Any,
    ) -> Any:
        """The content of files. Many small ones travel together."""
        paths = await self._expand_path(path, recursive=recursive)
        contents: list[Any] = [None] * len(paths)
        if len(paths) >= _MANY and kwargs.get("start") is None and kwargs.get("end") is None:
            names = [os.fsencode(one) for one in paths]
            contents = await self._in_parts(lambda session: session.read_small, names)

        async def read(at: int) -> None:
            try:
                contents[at] = await self._cat_file(paths[at], **kwargs)
            except Exception as error:
                contents[at] = error

        rest = [read(at) for at, content in enumerate(contents) if content is None]
        await self._some(batch_size, rest)
        errors = [content for content in contents if isinstance(content, Exception)]
        if on_error == "raise" and errors:
            raise errors[0]
        is_one = len(paths) == 1 and not isinstance(path, list)
        if is_one and paths[0] == self._strip_protocol(path):
            return contents[0]
        return {
            name: content
            for name, content in zip(paths, contents)
            if on_error != "omit" or not isinstance(content, Exception)
        }

    async def _in_parts(
        self,
        method: Callable[[Any], Callable[[list[Any]], Any]],
        files: list[Any],
        moved: Callable[[int], object] = lambda count: None,
    ) -> list[Any]:
        """Moves small files, so many at a time; ``None`` stands for one that wasn't moved."""
        results: list[Any] = []
        at = 0
        while at < len(files):
            end, size = at, 0
            while end < min(at + _FILES_AT_ONCE, len(files)) and size <= _BYTES_AT_ONCE:
                content = files[end][0] if isinstance(files[end], tuple) else b""
                size += 0 if isinstance(content, bytes) else content.nbytes
                end += 1
            part = files[at:end]
            try:
                raw = method(self.client._session)(part)
                done = await Operation(raw, lambda value: value)
            except OSError:
                # Each of them gets its own verdict, perhaps in another session.
                done = [None] * len(part)
            moved(len(done) - done.count(None))
            results += done
            at = end
        return results

    async def _cat_ranges(
        self,
        paths: list[str],
        starts: Any,
        ends: Any,
        max_gap: int | None = None,
        batch_size: int | None = None,
        on_error: str = "return",
        **kwargs: Any,
    ) -> list[Any]:
        """The ranges of each file travel together, so that gaps need not be read."""
        if not isinstance(paths, list):
            raise TypeError("paths: a list is needed")
        starts = list(starts) if isinstance(starts, Iterable) else [starts] * len(paths)
        ends = list(ends) if isinstance(ends, Iterable) else [ends] * len(paths)
        if len(starts) != len(paths) or len(ends) != len(paths):
            raise ValueError("paths, starts and ends differ in length")
        places: dict[str, list[int]] = {}
        for at, path in enumerate(paths):
            places.setdefault(self._strip_protocol(path), []).append(at)
        results: list[Any] = [None] * len(paths)

        async def read(path: str, numbers: list[int]) -> None:
            try:
                ranges = [(starts[at] or 0, ends[at]) for at in numbers]
                for at, data in zip(numbers, await self._begin.read_ranges(path, ranges)):
                    results[at] = data
            except Exception as error:
                for at in numbers:
                    results[at] = error

        await self._some(batch_size, [read(*place) for place in places.items()])
        if on_error != "return":
            for result in results:
                if isinstance(result, Exception):
                    raise result
        return results

    async def _some(self, batch_size: int | None, coroutines: list[Any]) -> list[Any]:
        """Runs coroutines, so many at a time."""
        limit = asyncio.Semaphore(batch_size or self.batch_size or 128)

        async def limited(coroutine: Any) -> Any:
            async with limit:
                return await coroutine

        tasks = [asyncio.ensure_future(limited(coroutine)) for coroutine in coroutines]
        try:
            return await asyncio.gather(*tasks)
        except BaseException:
            for task in tasks:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)
            raise

    async def _get(
        self,
        rpath: Any,
        lpath: Any,
        recursive: bool = False,
        callback: Any = DEFAULT_CALLBACK,
        maxdepth: int | None = None,
        batch_size: int | None = None,
        **kwargs: Any,
    ) -> Any:
        """Fetches files. Many small ones travel together."""
        find = super()._get(rpath, lpath, recursive=recursive, maxdepth=maxdepth, batch_size=-1)
        pairs = await self._planned(find)

        def method(session: Any) -> Any:
            return session.fetch_small

        def pair(there: Any, here: Any) -> Any:
            if not isinstance(here, (str, bytes, os.PathLike)):
                return None
            return os.fsencode(self._strip_protocol(there)), os.fsencode(os.path.abspath(here))

        files = [pair(*one) for one in pairs]
        return await self._move(pairs, files, method, self._get_file, callback, batch_size, kwargs)

    async def _planned(self, finding: Any) -> list[tuple[Any, Any]]:
        """The files that fsspec would move one by one."""
        pairs: list[tuple[Any, Any]] = []
        token = _PLAN.set(pairs)
        try:
            await finding
        finally:
            _PLAN.reset(token)
        return pairs

    async def _move(
        self,
        pairs: list[tuple[Any, Any]],
        files: list[Any],
        method: Callable[[Any], Callable[[list[Any]], Any]] | None,
        single: Callable[..., Any],
        callback: Any,
        batch_size: int | None,
        options: dict[str, Any],
    ) -> None:
        """Moves files, many small ones together, and the rest one by one."""
        callback.set_size(len(pairs))
        at_once = [at for at, file in enumerate(files) if file is not None]
        if method is None or len(at_once) < _MANY:
            at_once = []
        small = [files[at] for at in at_once]
        done = await self._in_parts(method, small, callback.relative_update) if method else []
        moved = {at for at, size in zip(at_once, done) if size is not None}
        branch = callback.branch_coro(single)

        async def move(one: Any, other: Any) -> None:
            await branch(one, other, **options)
            callback.relative_update(1)

        if batch_size == -1:
            batch_size = len(pairs) or None
        rest = [move(*pair) for at, pair in enumerate(pairs) if at not in moved]
        await self._some(batch_size, rest)

    async def _get_file(
        self, rpath: str, lpath: str, callback: Any = DEFAULT_CALLBACK, **kwargs: Any
    ) -> None:
        plan = _PLAN.get()
        if plan is not None:
            plan.append((rpath, lpath))
            return
        rpath = self._strip_protocol(rpath)
        if hasattr(lpath, "write"):
            lpath.write(await self._cat_file(rpath))
            return
        os.makedirs(os.path.dirname(os.path.abspath(lpath)), exist_ok=True)
        try:
            operation = self._begin.download(rpath, lpath, overwrite=True)
            await operation.run(_reporting(callback))
        except IsDirectory:
            os.makedirs(lpath, exist_ok=True)

    # Writing.

    async def _with_parents(self, path: str, write: Any) -> Any:
        """Does something that writes ``path``, after making what is missing above."""
        try:
            return await write()
        except FileNotFoundError:
            if not self.auto_mkdir:
                raise
            await self._begin.mkdir(self._parent(path), parents=True)
            return await write()

    async def _pipe(
        self, path: Any, value: Any = None, batch_size: int | None = None, **kwargs: Any
    ) -> None:
        """Writes bytes to files. Many small ones travel together."""
        values = {path: value} if isinstance(path, str) else path
        pairs = list(values.items())
        files: list[Any] = []
        for name, content in pairs:
            is_small = memoryview(content).nbytes <= _SMALL
            target = os.fsencode(self._strip_protocol(name))
            files.append((memoryview(to_read(content)), target) if is_small else None)
        method = self._sends(lambda session: session.write_small, kwargs)
        await self._move(
            pairs, files, method, self._piped, DEFAULT_CALLBACK, batch_size, kwargs
        )

    async def _piped(self, path: str, value: Any, callback: Any = None, **kwargs: Any) -> None:
        await self._pipe_file(path, value, **kwargs)

    def _sends(self, method: Any, options: dict[str, Any]) -> Any:
        """The method that sends many files, if it does what is wanted."""
        # Packs replace files, and make directories.
        replaces = options.get("mode", "overwrite") == "overwrite"
        return method if replaces and self.auto_mkdir else None

    async def _put(
        self,
        lpath: Any,
        rpath: Any,
        recursive: bool = False,
        callback: Any = DEFAULT_CALLBACK,
        batch_size: int | None = None,
        maxdepth: int | None = None,
        **kwargs: Any,
    ) -> Any:
        """Sends files. Many small ones travel together."""
        find = super()._put(lpath, rpath, recursive=recursive, maxdepth=maxdepth, batch_size=-1)
        pairs = await self._planned(find)
        files = [
            (os.fsencode(os.path.abspath(here)), os.fsencode(self._strip_protocol(there)))
            for here, there in pairs
        ]
        method = self._sends(lambda session: session.send_small, kwargs)
        return await self._move(pairs, files, method, self._put_file, callback, batch_size, kwargs)

    async def _pipe_file(
        self, path: str, value: Any, mode: str = "overwrite", **kwargs: Any
    ) -> None:
        if mode not in ("overwrite", "create"):
            raise ValueError(f"mode: {mode!r} is none of overwrite and create")
        path = self._strip_protocol(path)

        async def write() -> Any:
            return await self._begin.upload_bytes(value, path, overwrite=mode == "overwrite")

        await self._with_parents(path, write)

    async def _put_file(
        self,
        lpath: str,
        rpath: str,
        callback: Any = DEFAULT_CALLBACK,
        mode: str = "overwrite",
        **kwargs: Any,
    ) -> None:
        plan = _PLAN.get()
        if plan is not None:
            plan.append((lpath, rpath))
            return
        rpath = self._strip_protocol(rpath)
        if os.path.isdir(lpath):
            await self._makedirs(rpath, exist_ok=True)
            return
        callback.set_size(os.path.getsize(lpath))
        overwrite = mode == "overwrite"
        skip = "identical" if overwrite else "never"

        async def write() -> Any:
            operation = self._begin.upload(lpath, rpath, overwrite=overwrite, skip=skip)
            return await operation.run(_reporting(callback))

        await self._with_parents(rpath, write)

    async def _cp_file(self, path1: str, path2: str, **kwargs: Any) -> None:
        path1, path2 = self._strip_protocol(path1), self._strip_protocol(path2)

        async def write() -> Any:
            return await self._begin.copy(path1, path2, overwrite=True)

        try:
            try:
                await write()
            except FileNotFoundError:
                # It may be the source that is missing.
                await self._begin.stat(path1)
                await self._with_parents(path2, write)
        except OSError:
            if not await self._isdir(path1):
                raise
            await self._makedirs(path2, exist_ok=True)

    async def _mv_file(self, path1: str, path2: str) -> None:
        path1, path2 = self._strip_protocol(path1), self._strip_protocol(path2)

        async def write() -> Any:
            return await self._begin.rename(path1, path2, overwrite=True)

        try:
            await write()
        except FileNotFoundError:
            await self._begin.stat(path1, follow=False)
            await self._with_parents(path2, write)

    def mv(
        self,
        path1: Any,
        path2: Any,
        recursive: bool = False,
        maxdepth: int | None = None,
        **kwargs: Any,
    ) -> None:
        """Moves files by renaming them on the server, if neither name is a pattern or a list."""
        is_one = isinstance(path1, str) and isinstance(path2, str) and not _has_magic(path1)
        if not is_one or maxdepth is not None:
            super().mv(path1, path2, recursive=recursive, maxdepth=maxdepth, **kwargs)
            return
        source, target = self._strip_protocol(path1), self._strip_protocol(path2)
        if source == target:
            return
        info = self.info(source)
        if info["type"] == "directory" and not recursive:
            raise IsADirectoryError(f"{path1} is a directory: moving it needs recursive=True")
        if not path1.endswith("/") and (path2.endswith("/") or self.isdir(target)):
            target = posixpath.join(target, posixpath.basename(source))
        self._mv_file_sync(source, target)

    _mv_file_sync = sync_wrapper(_mv_file)

    async def _mkdir(self, path: str, create_parents: bool = True, **kwargs: Any) -> None:
        path = self._strip_protocol(path)
        try:
            await self._begin.mkdir(path)
        except FileNotFoundError:
            if not create_parents:
                raise
            await self._begin.mkdir(self._parent(path), parents=True)
            await self._begin.mkdir(path)

    async def _makedirs(self, path: str, exist_ok: bool = False) -> None:
        path = self._strip_protocol(path)
        if exist_ok:
            await self._begin.mkdir(path, parents=True)
        else:
            await self._mkdir(path)

    async def _rmdir(self, path: str) -> None:
        await self._begin.rmdir(self._strip_protocol(path))

    rmdir = sync_wrapper(_rmdir)

    async def _rm_file(self, path: str, **kwargs: Any) -> None:
        path = self._strip_protocol(path)
        try:
            await self._begin.remove(path)
        except IsDirectory:
            await self._begin.rmdir(path)

    async def _rm(
        self,
        path: Any,
        recursive: bool = False,
        batch_size: int | None = None,
        maxdepth: int | None = None,
        **kwargs: Any,
    ) -> None:
        if not recursive or maxdepth is not None:
            await super()._rm(path, recursive, batch_size, maxdepth, **kwargs)
            return
        paths = await self._expand_path(path, recursive=False)

        async def remove(path: str) -> None:
            try:
                await self._begin.remove(path)
            except IsDirectory:
                await self._begin.rmtree(path)

        await self._some(batch_size, [remove(one) for one in paths])

    async def _touch(self, path: str, truncate: bool = True, **kwargs: Any) -> None:
        path = self._strip_protocol(path)
        if truncate or not await self._exists(path):
            await self._pipe_file(path, b"")
        else:
            now = int(datetime.datetime.now().timestamp() * 1e9)
            await self._begin.utime(path, atime_ns=now, mtime_ns=now)

    touch = sync_wrapper(_touch)

    # Metadata.

    async def _checksum(self, path: str, kind: str = "blake3") -> int:
        found = await self._begin.sum(self._strip_protocol(path), kind)
        return int(found.hex, 16)

    checksum = sync_wrapper(_checksum)
    checksum.__doc__ = "The digest of a file's content, which the server computes, as a number."

    def modified(self, path: str) -> datetime.datetime:
        """The time of the last modification."""
        mtime = self.info(path)["mtime"]
        if mtime is None:
            raise NotImplementedError("the server has no times of modification")
        return datetime.datetime.fromtimestamp(mtime, tz=datetime.timezone.utc)

    def created(self, path: str) -> datetime.datetime:
        raise NotImplementedError("a server of xdfs keeps no times of creation")

    def sign(self, path: str, expiration: int = 100, **kwargs: Any) -> str:
        raise NotImplementedError(
            "xdfs has no signed URLs: give users a ticket (xdfs serve --ticket) or a key"
        )

    # Open files.

    def _open(
        self,
        path: str,
        mode: str = "rb",
        block_size: int | str | None = None,
        autocommit: bool = True,
        cache_options: dict | None = None,
        **kwargs: Any,
    ) -> Any:
        path = self._strip_protocol(path)
        if "+" in mode:
            return self.client.open(path, mode)
        return XdfsFile(
            self,
            path,
            mode,
            "default" if block_size is None else block_size,
            autocommit,
            cache_options=cache_options,
            **kwargs,
        )


class SshXdfsFileSystem(XdfsFileSystem):
    """Files of a machine that ssh reaches, where it starts a server: ``ssh+xdfs://HOST/PATH``."""

    protocol = "ssh+xdfs"
    _scheme = "ssh"


class XdfsFile(AbstractBufferedFile):
    """An open file: read by blocks with the caches of fsspec, or written in order."""

    def __init__(self, fs: XdfsFileSystem, path: str, mode: str = "rb", *args: Any, **kwargs: Any):
        self._written: Any = None
        self._hidden = ""
        super().__init__(fs, path, mode, *args, **kwargs)
        if mode == "rb":
            return
        try:
            self._begin_writing()
        except BaseException:
            # There is nothing to be closed.
            self.closed = True
            raise

    def _begin_writing(self) -> None:
        """Opens the file, so that a path that can't be written shows now, and not at the end."""
        fs = self.fs
        parent = fs._parent(self.path)
        if self.mode == "ab":
            self._written = self._opened(self.path, "ab")
            self.loc = self.offset = self._written.stat().size
            return
        if self.mode == "xb" and fs.exists(self.path):
            raise FileExistsError(17, "the file exists", self.path)
        if self.mode == "wb" and fs.isdir(self.path):
            raise IsADirectoryError(21, "it is a directory", self.path)
        name = f".{posixpath.basename(self.path)[:100]}.{uuid.uuid4().hex}"
        self._hidden = posixpath.join(parent, name)
        self._written = self._opened(self._hidden, "xb")

    def _opened(self, path: str, mode: str) -> Any:
        fs = self.fs
        try:
            return fs.client.open_raw(path, mode)
        except FileNotFoundError:
            if not fs.auto_mkdir:
                raise
            fs.makedirs(fs._parent(path), exist_ok=True)
            return fs.client.open_raw(path, mode)

    def _fetch_range(self, start: int, end: int) -> bytes:
        return self.fs.cat_file(self.path, start=start, end=end)

    def _upload_chunk(self, final: bool = False) -> bool:
        self._written.write(self.buffer.getvalue())
        if final:
            self._written.sync()
            self._written.close()
            if self.autocommit:
                self.commit()
        return True

    def commit(self) -> None:
        """Gives the file its name."""
        if not self._hidden:
            return
        hidden, self._hidden = self._hidden, ""
        self.fs.client.rename(hidden, self.path, overwrite=self.mode != "xb")

    def discard(self) -> None:
        """Removes what was written."""
        if self._written is not None and not self._written.closed:
            self._written.close()
        hidden, self._hidden = self._hidden, ""
        if hidden:
            try:
                self.fs.client.remove(hidden)
            except FileNotFoundError:
                pass

    def __exit__(self, kind: Any, error: Any, trace: Any) -> None:
        if kind is not None and self._hidden and self.autocommit:
            # A file that is only half written gets no name.
            self.forced = True
            self.closed = True
            self.discard()
            return
        super().__exit__(kind, error, trace)


def _entry(path: str, info: FileInfo) -> dict[str, Any]:
    kind = "link" if info.is_symlink else info.kind
    return {
        "name": path,
        "type": kind,
        "size": info.size,
        "mtime": info.mtime,
        "mode": info.mode,
        "uid": info.uid,
        "gid": info.gid,
        "nlink": info.links,
        "ino": info.inode,
        "islink": info.is_symlink,
    }


def _reporting(callback: Any) -> Any:
    """Passes progress on to a callback of fsspec."""
    if callback is DEFAULT_CALLBACK:
        return None

    def report(event: Any) -> None:
        if isinstance(event, Progress):
            if event.total is not None and callback.size != event.total:
                callback.set_size(event.total)
            callback.absolute_update(event.bytes)

    return report


def _has_magic(path: str) -> bool:
    return any(letter in path for letter in "*?[")

