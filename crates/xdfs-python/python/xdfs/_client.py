"""Clients: sessions with a server, for threads and for asyncio."""

from __future__ import annotations

import os
from collections.abc import Iterable
from typing import Any

from . import _xdfs
from ._begin import Begin, Buffer, Path, _transfer_options
from ._file import RemoteFile, raw_flags, wrapped
from ._operation import OnEvent, Operation
from ._types import (
    Checksum,
    FileInfo,
    Space,
    SyncResult,
    TransferResult,
    TreeResult,
    transfer_result,
)


class _Session:
    """The common part of both clients."""

    def __init__(self, url: str, **settings: Any) -> None:
        if not isinstance(url, str):
            raise TypeError(f"url: a str is needed, not {type(url).__name__}")
        self._session = _xdfs.Session(url, settings)
        #: Starts operations without waiting for them.
        self.begin = Begin(self._session)

    @property
    def url(self) -> str:
        """The URL, without secrets."""
        return self._session.url

    @property
    def user(self) -> str | None:
        """The user's name at the server; ``None`` before the session is open."""
        return self._session.user

    @property
    def server_fingerprint(self) -> str | None:
        """The fingerprint of the server's key; ``None`` before the session is open."""
        return self._session.server_fingerprint

    @property
    def closed(self) -> bool:
        return self._session.is_closed

    def stop(self) -> None:
        """Ends the session at once: what runs in it fails soon after."""
        self._session.close(True)

    def __repr__(self) -> str:
        return f"<xdfs.{type(self).__name__} {self.url!r}{' closed' if self.closed else ''}>"


class Client(_Session):
    """A session with a server. Its methods wait; threads may share it.

    It opens without waiting for the server: one that can't be reached shows in the first call.
    A ``KeyboardInterrupt`` ends every wait.

    ``url`` is ``xdfs://HOST/PATH``, another URL that the program xdfs takes, or ``NAME:PATH`` of a
    server that the user's settings name. Keys, known servers and credentials are those of the
    program; settings given here come before them:

    channels, block_size, window, retries
        how data moves; chosen automatically if not given
    key, agent, password_file, token_file, ticket_file, anonymous, cert, cert_key
        how to log in
    ca, pin, known_only, accept_new
        whom to trust; a server that is not known is refused unless ``accept_new`` is true
    protect, insecure
        how channels are protected; ``insecure=True`` for a server without protection
    ssh, remote_program
        how a server of an ``ssh://`` URL is started
    """

    def upload(
        self, source: Path, target: Path, *, progress: OnEvent | None = None, **options: Any
    ) -> TransferResult:
        """Sends a file. In a target directory it keeps its name.

        Options: overwrite, skip (never, identical, size-and-time, content, not-older, all), digest
        (crc64nvme, blake3, none), resume (trust, verify, never), rate (bytes per second), offset,
        length, dry_run. An interrupted transfer resumes when the call is repeated.
        """
        return self.begin.upload(source, target, **options).wait(progress)

    def upload_bytes(
        self, data: Buffer, target: Path, *, progress: OnEvent | None = None, **options: Any
    ) -> TransferResult:
        """Sends bytes to a file, which appears once it is complete and verified."""
        return self.begin.upload_bytes(data, target, **options).wait(progress)

    def download(
        self, source: Path, target: Path, *, progress: OnEvent | None = None, **options: Any
    ) -> TransferResult:
        """Fetches a file, with the options of ``upload``."""
        return self.begin.download(source, target, **options).wait(progress)

    def upload_tree(
        self, source: Path, target: Path, *, progress: OnEvent | None = None, **options: Any
    ) -> TreeResult:
        """Sends a directory tree, small files in packs. Failed entries are counted, and are events.

        Options are those of a file, and owner, xattrs, hard_links, follow_links, durability (batch,
        full, none), file_digests, journal (a directory; with it the call resumes), count_source.
        """
        return self.begin.upload_tree(source, target, **options).wait(progress)

    def download_tree(
        self, source: Path, target: Path, *, progress: OnEvent | None = None, **options: Any
    ) -> TreeResult:
        """Fetches a directory tree, with the options of ``upload_tree``."""
        return self.begin.download_tree(source, target, **options).wait(progress)

    def sync_to(
        self, source: Path, target: Path, *, progress: OnEvent | None = None, **options: Any
    ) -> SyncResult:
        """Makes a directory of the server equal to a local one.

        Options are those of ``upload_tree``, and delete, delete_max, force, compare, delta, backup.
        """
        return self.begin.sync_to(source, target, **options).wait(progress)

    def sync_from(
        self, source: Path, target: Path, *, progress: OnEvent | None = None, **options: Any
    ) -> SyncResult:
        """Makes a local directory equal to one of the server."""
        return self.begin.sync_from(source, target, **options).wait(progress)

    def read(self, path: Path, start: int = 0, end: int | None = None) -> bytes:
        """Reads a range of a file. Negative numbers count from its end."""
        return self.begin.read(path, start, end).wait()

    def read_ranges(self, path: Path, ranges: Iterable[tuple[int, int | None]]) -> list[bytes]:
        """Reads many ranges of a file in one flight."""
        return self.begin.read_ranges(path, ranges).wait()

    def stat(self, path: Path, *, follow: bool = True) -> FileInfo:
        """The attributes of a path."""
        return self.begin.stat(path, follow=follow).wait()

    def exists(self, path: Path) -> bool:
        """Whether there is something at a path."""
        try:
            self.stat(path, follow=False)
        except (FileNotFoundError, NotADirectoryError):
            return False
        return True

    def list(self, path: Path = "") -> list[FileInfo]:
        """The entries of a directory, in the order of the server."""
        return self.begin.list(path).wait()

    def mkdir(self, path: Path, *, mode: int | None = None, parents: bool = False) -> None:
        """Makes a directory; with ``parents`` also those above it, and one that exists is fine."""
        self.begin.mkdir(path, mode=mode, parents=parents).wait()

    def remove(self, path: Path) -> None:
        """Removes a file or link."""
        self.begin.remove(path).wait()

    def rmdir(self, path: Path) -> None:
        """Removes an empty directory."""
        self.begin.rmdir(path).wait()

    def rmtree(self, path: Path) -> int:
        """Removes a directory with its content, and returns the number of removed names."""
        return self.begin.rmtree(path).wait()

    def rename(self, source: Path, target: Path, *, overwrite: bool = False) -> None:
        """Renames an entry."""
        self.begin.rename(source, target, overwrite=overwrite).wait()

    def copy(self, source: Path, target: Path, *, overwrite: bool = False) -> int:
        """Copies a file within the server, and returns the number of bytes."""
        return self.begin.copy(source, target, overwrite=overwrite).wait()

    def link(self, existing: Path, path: Path) -> None:
        """Makes a hard link."""
        self.begin.link(existing, path).wait()

    def symlink(self, target: Path, path: Path) -> None:
        """Makes a symbolic link."""
        self.begin.symlink(target, path).wait()

    def readlink(self, path: Path) -> str:
        """The target of a symbolic link."""
        return self.begin.readlink(path).wait()

    def chmod(self, path: Path, mode: int) -> None:
        """Sets permission bits."""
        self.begin.chmod(path, mode).wait()

    def utime(
        self,
        path: Path,
        *,
        atime_ns: int | None = None,
        mtime_ns: int | None = None,
        follow: bool = True,
    ) -> None:
        """Sets times; ``None`` keeps one."""
        self.begin.utime(path, atime_ns=atime_ns, mtime_ns=mtime_ns, follow=follow).wait()

    def truncate(self, path: Path, length: int) -> None:
        """Sets the length of a file."""
        self.begin.truncate(path, length).wait()

    def df(self, path: Path = "") -> Space:
        """The space of a file system."""
        return self.begin.df(path).wait()

    def sum(
        self, path: Path, kind: str = "blake3", *, offset: int = 0, length: int | None = None
    ) -> Checksum:
        """The digest of a file, which the server computes: blake3, sha256, md5 or crc64nvme."""
        return self.begin.sum(path, kind, offset=offset, length=length).wait()

    def open_raw(self, path: Path, mode: str = "r", *, permissions: int | None = None) -> RemoteFile:
        """Opens a file without the buffers of ``io``."""
        if not isinstance(mode, str):
            raise TypeError(f"mode: a str is needed, not {type(mode).__name__}")
        mode = mode.replace("b", "", 1)
        there = self.begin.path(path)
        raw = self._session.open(there, raw_flags(mode), permissions)
        return RemoteFile(raw, os.fsdecode(there), mode)

    def open(
        self,
        path: Path,
        mode: str = "r",
        buffering: int = -1,
        encoding: str | None = None,
        errors: str | None = None,
        newline: str | None = None,
    ) -> Any:
        """Opens a file as the ``open`` of Python does, with its modes."""
        if not isinstance(mode, str):
            raise TypeError(f"mode: a str is needed, not {type(mode).__name__}")
        is_text = "b" not in mode
        if is_text is False and (encoding or errors or newline):
            raise ValueError("binary mode takes no encoding, errors or newline")
        raw = self.open_raw(path, mode.replace("t", "", 1) if is_text else mode)
        try:
            return wrapped(raw, is_text, buffering, encoding, errors, newline)
        except BaseException:
            raw.close()
            raise

    def queue(self, running_max: int = 4) -> Queue:
        """A queue of files with sessions of its own, which retries what fails for a while."""
        return Queue(self._session.queue(running_max), self.begin)

    def close(self) -> None:
        """Ends the session once its transfers and calls have ended."""
        self._session.close(False)

    def __enter__(self) -> Client:
        return self

    def __exit__(self, kind: Any, error: Any, trace: Any) -> None:
        self._session.close(error is not None)


class AsyncClient(_Session):
    """A session with a server, for asyncio: its methods are coroutines.

    No call has a thread of its own: the thread of the session wakes the event loop. A cancelled
    task cancels what it awaits. Several event loops may share a client. The arguments are those of
    ``Client``.
    """

    async def upload(
        self, source: Path, target: Path, *, progress: OnEvent | None = None, **options: Any
    ) -> TransferResult:
        """Sends a file, as ``Client.upload``."""
        return await self.begin.upload(source, target, **options).run(progress)

    async def upload_bytes(
        self, data: Buffer, target: Path, *, progress: OnEvent | None = None, **options: Any
    ) -> TransferResult:
        """Sends bytes to a file, as ``Client.upload_bytes``."""
        return await self.begin.upload_bytes(data, target, **options).run(progress)

    async def download(
        self, source: Path, target: Path, *, progress: OnEvent | None = None, **options: Any
    ) -> TransferResult:
        """Fetches a file, as ``Client.download``."""
        return await self.begin.download(source, target, **options).run(progress)

    async def upload_tree(
        self, source: Path, target: Path, *, progress: OnEvent | None = None, **options: Any
    ) -> TreeResult:
        """Sends a directory tree, as ``Client.upload_tree``."""
        return await self.begin.upload_tree(source, target, **options).run(progress)

    async def download_tree(
        self, source: Path, target: Path, *, progress: OnEvent | None = None, **options: Any
    ) -> TreeResult:
        """Fetches a directory tree, as ``Client.download_tree``."""
        return await self.begin.download_tree(source, target, **options).run(progress)

    async def sync_to(
        self, source: Path, target: Path, *, progress: OnEvent | None = None, **options: Any
    ) -> SyncResult:
        """Makes a directory of the server equal to a local one, as ``Client.sync_to``."""
        return await self.begin.sync_to(source, target, **options).run(progress)

    async def sync_from(
        self, source: Path, target: Path, *, progress: OnEvent | None = None, **options: Any
    ) -> SyncResult:
        """Makes a local directory equal to one of the server, as ``Client.sync_from``."""
        return await self.begin.sync_from(source, target, **options).run(progress)

    async def read(self, path: Path, start: int = 0, end: int | None = None) -> bytes:
        """Reads a range of a file. Negative numbers count from its end."""
        return await self.begin.read(path, start, end)

    async def read_ranges(
        self, path: Path, ranges: Iterable[tuple[int, int | None]]
    ) -> list[bytes]:
        """Reads many ranges of a file in one flight."""
        return await self.begin.read_ranges(path, ranges)

    async def stat(self, path: Path, *, follow: bool = True) -> FileInfo:
        """The attributes of a path."""
        return await self.begin.stat(path, follow=follow)

    async def exists(self, path: Path) -> bool:
        """Whether there is something at a path."""
        try:
            await self.stat(path, follow=False)
        except (FileNotFoundError, NotADirectoryError):
            return False
        return True

    async def list(self, path: Path = "") -> list[FileInfo]:
        """The entries of a directory, in the order of the server."""
        return await self.begin.list(path)

    async def mkdir(self, path: Path, *, mode: int | None = None, parents: bool = False) -> None:
        """Makes a directory; with ``parents`` also those above it, and one that exists is fine."""
        await self.begin.mkdir(path, mode=mode, parents=parents)

    async def remove(self, path: Path) -> None:
        """Removes a file or link."""
        await self.begin.remove(path)

    async def rmdir(self, path: Path) -> None:
        """Removes an empty directory."""
        await self.begin.rmdir(path)

    async def rmtree(self, path: Path) -> int:
        """Removes a directory with its content, and returns the number of removed names."""
        return await self.begin.rmtree(path)

    async def rename(self, source: Path, target: Path, *, overwrite: bool = False) -> None:
        """Renames an entry."""
        await self.begin.rename(source, target, overwrite=overwrite)

    async def copy(self, source: Path, target: Path, *, overwrite: bool = False) -> int:
        """Copies a file within the server, and returns the number of bytes."""
        return await self.begin.copy(source, target, overwrite=overwrite)

    async def link(self, existing: Path, path: Path) -> None:
        """Makes a hard link."""
        await self.begin.link(existing, path)

    async def symlink(self, target: Path, path: Path) -> None:
        """Makes a symbolic link."""
        await self.begin.symlink(target, path)

    async def readlink(self, path: Path) -> str:
        """The target of a symbolic link."""
        return await self.begin.readlink(path)

    async def chmod(self, path: Path, mode: int) -> None:
        """Sets permission bits."""
        await self.begin.chmod(path, mode)

    async def utime(
        self,
        path: Path,
        *,
        atime_ns: int | None = None,
        mtime_ns: int | None = None,
        follow: bool = True,
    ) -> None:
        """Sets times; ``None`` keeps one."""
        await self.begin.utime(path, atime_ns=atime_ns, mtime_ns=mtime_ns, follow=follow)

    async def truncate(self, path: Path, length: int) -> None:
        """Sets the length of a file."""
        await self.begin.truncate(path, length)

    async def df(self, path: Path = "") -> Space:
        """The space of a file system."""
        return await self.begin.df(path)

    async def sum(
        self, path: Path, kind: str = "blake3", *, offset: int = 0, length: int | None = None
    ) -> Checksum:
        """The digest of a file, which the server computes."""
        return await self.begin.sum(path, kind, offset=offset, length=length)

    async def close(self) -> None:
        """Ends the session, once what was awaited has ended."""
        import asyncio

        await asyncio.get_running_loop().run_in_executor(None, self._session.close, False)

    async def __aenter__(self) -> AsyncClient:
        return self

    async def __aexit__(self, kind: Any, error: Any, trace: Any) -> None:
        if error is not None:
            self.stop()
        await self.close()


class Queue:
    """Copies many files with a limit on concurrent transfers, and retries transient failures.

    Sessions are opened for the first file, kept, and replaced when they break.
    """

    def __init__(self, raw: _xdfs.TransferQueue, begin: Begin) -> None:
        self._raw = raw
        self._begin = begin

    def upload(self, source: Path, target: Path, **options: Any) -> Operation[TransferResult]:
        """Adds a file to send, and returns its transfer."""
        text = _transfer_options(**options)
        raw = self._raw.add(os.fsencode(source), self._begin.path(target), True, text)
        return Operation(raw, transfer_result)

    def download(self, source: Path, target: Path, **options: Any) -> Operation[TransferResult]:
        """Adds a file to fetch, and returns its transfer."""
        text = _transfer_options(**options)
        raw = self._raw.add(os.fsencode(target), self._begin.path(source), False, text)
        return Operation(raw, transfer_result)

    def close(self) -> None:
        """Waits until every file has ended, and closes the sessions."""
        self._raw.close(False)

    def stop(self) -> None:
        """Cancels every file, and closes the sessions."""
        self._raw.close(True)

    def __enter__(self) -> Queue:
        return self

    def __exit__(self, kind: Any, error: Any, trace: Any) -> None:
        self._raw.close(error is not None)
