"""Open files of a server as Python's raw files."""

from __future__ import annotations

import io
import os
from typing import Any

from . import _xdfs
from ._buffers import to_fill, to_read
from ._types import FileInfo, file_info

_MODES = {"r": "r", "w": "wct", "a": "ac", "x": "wx"}


def raw_flags(mode: str) -> str:
    """The flags of the library for a mode of ``open`` without ``b`` and ``t``."""
    kind = mode.replace("+", "", 1)
    if kind not in _MODES:
        raise ValueError(f"invalid mode: {mode!r}")
    flags = _MODES[kind]
    if "+" in mode:
        flags += "w" if kind == "r" else "r"
    return flags


class RemoteFile(io.RawIOBase):
    """An open file of a server.

    The library reads ahead of sequential reads and buffers writes itself; ``open`` of a client
    wraps this in the buffers of ``io`` as the ``open`` of Python does. A broken session is replaced
    if the file is still the same. Nothing is durable before ``sync``, and several threads may share
    a file: it serves them one at a time.
    """

    def __init__(self, raw: _xdfs.OpenFile, name: str, mode: str) -> None:
        super().__init__()
        self._raw = raw
        self._name = name
        self._flags = raw_flags(mode)
        self.mode = mode

    @property
    def name(self) -> str:
        return self._name

    def readable(self) -> bool:
        self._check()
        return "r" in self._flags

    def writable(self) -> bool:
        self._check()
        return "w" in self._flags or "a" in self._flags

    def seekable(self) -> bool:
        self._check()
        return not self._raw.is_pipe

    def readinto(self, buffer: Any, /) -> int:
        if not self.readable():
            raise io.UnsupportedOperation("not readable")
        return self._raw.read_into(to_fill(buffer))

    def readinto_at(self, offset: int, buffer: Any) -> int:
        """Reads current data at an offset until the buffer is full or the file ends."""
        if not self.readable():
            raise io.UnsupportedOperation("not readable")
        return self._raw.read_into_at(offset, to_fill(buffer))

    def write(self, data: Any, /) -> int:
        if not self.writable():
            raise io.UnsupportedOperation("not writable")
        return self._raw.write(to_read(data))

    def write_at(self, offset: int, data: Any) -> int:
        """Writes or buffers all bytes at an offset."""
        if not self.writable():
            raise io.UnsupportedOperation("not writable")
        return self._raw.write_at(offset, to_read(data))

    def seek(self, offset: int, whence: int = os.SEEK_SET, /) -> int:
        if not self.seekable():
            raise io.UnsupportedOperation("not seekable")
        return self._raw.seek(offset, whence)

    def tell(self) -> int:
        return self.seek(0, os.SEEK_CUR)

    def truncate(self, size: int | None = None, /) -> int:
        if not self.writable():
            raise io.UnsupportedOperation("not writable")
        length = self.tell() if size is None else size
        self._raw.set_len(length)
        return length

    def flush(self) -> None:
        """Waits until all writes have been done. They are not durable yet."""
        self._check()
        if self.writable():
            self._raw.flush()

    def sync(self, *, data_only: bool = False) -> None:
        """Makes all writes durable."""
        self._check()
        self._raw.sync(data_only)

    def stat(self) -> FileInfo:
        """The current attributes of the file."""
        self._check()
        return file_info(self._raw.stat())._replace(name=os.path.basename(self._name))

    def fileno(self) -> int:
        raise io.UnsupportedOperation("a file of a server has no descriptor")

    def close(self) -> None:
        """Closes the file after all writes have been done, and raises the failure of one."""
        if self.closed:
            return
        try:
            super().close()
        except KeyboardInterrupt:
            # The user has waited long enough.
            self._raw.abandon()
            raise
        finally:
            try:
                self._raw.close()
            except OSError:
                # Nothing of a file that was only read can be lost.
                if "w" in self._flags or "a" in self._flags:
                    raise

    def _check(self) -> None:
        if self.closed:
            raise ValueError("I/O operation on closed file")

    def __repr__(self) -> str:
        return f"<xdfs.RemoteFile {self._name!r} mode={self.mode!r}>"


def wrapped(
    raw: RemoteFile,
    text: bool,
    buffering: int,
    encoding: str | None,
    errors: str | None,
    newline: str | None,
) -> Any:
    """A raw file in the buffers that the ``open`` of Python would give it."""
    if buffering == 0:
        if text:
            raise ValueError("can't have unbuffered text I/O")
        return raw
    size = buffering if buffering > 1 else 256 << 10
    if raw.readable() and raw.writable() and raw.seekable():
        buffered: Any = io.BufferedRandom(raw, size)
    elif raw.writable():
        buffered = io.BufferedWriter(raw, size)
    else:
        buffered = io.BufferedReader(raw, size)
    if not text:
        return buffered
    return io.TextIOWrapper(buffered, encoding, errors, newline, line_buffering=buffering == 1)
