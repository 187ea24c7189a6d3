"""The operations that a session starts: each method returns an operation and does not wait."""

from __future__ import annotations

import json
import os
from collections.abc import Iterable
from typing import Any

from . import _types, _xdfs
from ._buffers import to_read
from ._operation import Operation
from ._types import Checksum, FileInfo, Space, SyncResult, TransferResult, TreeResult

Path = str | bytes | os.PathLike
Buffer = Any

_SKIPS = ("never", "identical", "size-and-time", "content", "not-older", "all")


def _size(name: str, value: int | None) -> None:
    if value is None:
        return
    if not isinstance(value, int) or isinstance(value, bool):
        raise TypeError(f"{name}: it is no integer")
    if not 0 <= value < 1 << 63:
        raise ValueError(f"{name}: {value} is no number of bytes")


def _transfer_options(
    *,
    overwrite: bool = False,
    skip: str = "identical",
    digest: str | None = None,
    resume: str = "trust",
    rate: int | None = None,
    offset: int = 0,
    length: int | None = None,
    dry_run: bool = False,
) -> str:
    for name, value in (("rate", rate), ("offset", offset), ("length", length)):
        _size(name, value)
    if skip not in _SKIPS:
        raise ValueError(f"skip: it is none of {', '.join(_SKIPS)}")
    parameters = _parameters(overwrite, digest, resume, rate, dry_run)
    options: dict[str, Any] = {"parameters": parameters, "skip": skip, "offset": offset}
    if length is not None:
        options["length"] = length
    return json.dumps(options)


def _parameters(
    overwrite: bool, digest: str | None, resume: str, rate: int | None, dry_run: bool
) -> dict[str, Any]:
    return {
        "overwrite": bool(overwrite),
        "digest": digest,
        "resume": resume,
        "rate_bytes_per_s_max": rate,
        "dry_run": bool(dry_run),
    }


def _tree_options(
    *,
    overwrite: bool = False,
    skip: str = "size-and-time",
    digest: str | None = None,
    resume: str = "trust",
    rate: int | None = None,
    dry_run: bool = False,
    owner: bool = False,
    xattrs: bool = False,
    hard_links: bool = False,
    follow_links: bool = False,
    durability: str = "batch",
    file_digests: str | None = None,
    journal: Path | None = None,
    count_source: bool = True,
) -> dict[str, Any]:
    _size("rate", rate)
    if skip not in _SKIPS:
        raise ValueError(f"skip: it is none of {', '.join(_SKIPS)}")
    return {
        "parameters": _parameters(overwrite, digest, resume, rate, dry_run),
        "skip": skip,
        "owner": bool(owner),
        "xattrs": bool(xattrs),
        "hard_links": bool(hard_links),
        "follow_links": bool(follow_links),
        "durability": durability,
        "file_digests": file_digests,
        "journal": None if journal is None else list(os.fsencode(journal)),
        "count_source": bool(count_source),
    }


def _none(_: Any) -> None:
    return None


def _same(value: Any) -> Any:
    return value


class Begin:
    """Starts operations of a session. ``Client`` and ``AsyncClient`` have one as ``begin``.

    Paths of the server are absolute, or relative to the path of the client's URL.
    """

    def __init__(self, session: _xdfs.Session) -> None:
        self._session = session
        self._root = session.path

    def path(self, path: Path) -> bytes:
        """A path of the server as bytes."""
        there = os.fsencode(path)
        if there.startswith((b"/", b"mem:")) or not self._root:
            return there
        if not there:
            return self._root
        return self._root.rstrip(b"/") + b"/" + there

    def upload(self, source: Path, target: Path, **options: Any) -> Operation[TransferResult]:
        raw = self._session.upload(
            os.fsencode(source), self.path(target), _transfer_options(**options)
        )
        return Operation(raw, _types.transfer_result)

    def upload_bytes(self, data: Buffer, target: Path, **options: Any) -> Operation[TransferResult]:
        options.setdefault("skip", "never")
        there = self.path(target)
        raw = self._session.upload_bytes(to_read(data), there, _transfer_options(**options))
        return Operation(raw, _types.transfer_result)

    def download(self, source: Path, target: Path, **options: Any) -> Operation[TransferResult]:
        raw = self._session.download(
            self.path(source), os.fsencode(target), _transfer_options(**options)
        )
        return Operation(raw, _types.transfer_result)

    def upload_tree(self, source: Path, target: Path, **options: Any) -> Operation[TreeResult]:
        text = json.dumps(_tree_options(**options))
        raw = self._session.tree(os.fsencode(source), self.path(target), True, text)
        return Operation(raw, _types.tree_result)

    def download_tree(self, source: Path, target: Path, **options: Any) -> Operation[TreeResult]:
        text = json.dumps(_tree_options(**options))
        raw = self._session.tree(os.fsencode(target), self.path(source), False, text)
        return Operation(raw, _types.tree_result)

    def sync_to(self, source: Path, target: Path, **options: Any) -> Operation[SyncResult]:
        raw = self._session.sync(
            os.fsencode(source), self.path(target), True, _sync_options(**options)
        )
        return Operation(raw, _types.sync_result)

    def sync_from(self, source: Path, target: Path, **options: Any) -> Operation[SyncResult]:
        raw = self._session.sync(
            os.fsencode(target), self.path(source), False, _sync_options(**options)
        )
        return Operation(raw, _types.sync_result)

    def read_ranges(
        self, path: Path, ranges: Iterable[tuple[int, int | None]]
    ) -> Operation[list[bytes]]:
        clipped = [(_clipped(start), None if end is None else _clipped(end)) for start, end in ranges]
        raw = self._session.read_ranges(self.path(path), clipped)
        return Operation(raw, lambda read: read[0])

    def read(self, path: Path, start: int = 0, end: int | None = None) -> Operation[bytes]:
        clipped = (_clipped(start), None if end is None else _clipped(end))
        raw = self._session.read_ranges(self.path(path), [clipped])
        return Operation(raw, lambda read: read[0][0])

    def stat(self, path: Path, *, follow: bool = True) -> Operation[FileInfo]:
        there = self.path(path)
        name = os.fsdecode(there.rstrip(b"/").rsplit(b"/", 1)[-1])
        raw = self._session.stat(there, follow)
        return Operation(raw, lambda fields: _types.file_info(fields)._replace(name=name))

    def list(self, path: Path = "") -> Operation[list[FileInfo]]:
        return Operation(self._session.list(self.path(path)), _types.listing)

    def mkdir(self, path: Path, *, mode: int | None = None, parents: bool = False) -> Operation[None]:
        return Operation(self._session.mkdir(self.path(path), mode, parents), _none)

    def remove(self, path: Path) -> Operation[None]:
        return Operation(self._session.remove(self.path(path), "file"), _none)

    def rmdir(self, path: Path) -> Operation[None]:
        return Operation(self._session.remove(self.path(path), "directory"), _none)

    def rmtree(self, path: Path) -> Operation[int]:
        return Operation(self._session.remove(self.path(path), "tree"), _same)

    def rename(self, source: Path, target: Path, *, overwrite: bool = False) -> Operation[None]:
        raw = self._session.rename(self.path(source), self.path(target), overwrite)
        return Operation(raw, _none)

    def copy(self, source: Path, target: Path, *, overwrite: bool = False) -> Operation[int]:
        raw = self._session.copy(self.path(source), self.path(target), overwrite)
        return Operation(raw, _same)

    def link(self, existing: Path, path: Path) -> Operation[None]:
        return Operation(self._session.link(self.path(existing), self.path(path)), _none)

    def symlink(self, target: Path, path: Path) -> Operation[None]:
        return Operation(self._session.symlink(os.fsencode(target), self.path(path)), _none)

    def readlink(self, path: Path) -> Operation[str]:
        return Operation(self._session.read_link(self.path(path)), os.fsdecode)

    def chmod(self, path: Path, mode: int) -> Operation[None]:
        return Operation(self._session.set_mode(self.path(path), mode), _none)

    def utime(
        self,
        path: Path,
        *,
        atime_ns: int | None = None,
        mtime_ns: int | None = None,
        follow: bool = True,
    ) -> Operation[None]:
        raw = self._session.set_times(self.path(path), atime_ns, mtime_ns, follow)
        return Operation(raw, _none)

    def truncate(self, path: Path, length: int) -> Operation[None]:
        return Operation(self._session.truncate(self.path(path), length), _none)

    def df(self, path: Path = "") -> Operation[Space]:
        return Operation(self._session.space(self.path(path)), lambda fields: Space(*fields))

    def sum(
        self, path: Path, kind: str = "blake3", *, offset: int = 0, length: int | None = None
    ) -> Operation[Checksum]:
        raw = self._session.checksum(self.path(path), kind, offset, length)
        return Operation(raw, lambda fields: Checksum(*fields))


def _clipped(number: int) -> int:
    """A number of a range, of which anything beyond 63 bits is beyond any file."""
    if not isinstance(number, int):
        raise TypeError(f"a range has integers, not {type(number).__name__}")
    return max(-(1 << 63), min(number, (1 << 63) - 1))


def _sync_options(
    *,
    delete: bool = False,
    delete_max: int | None = None,
    force: bool = False,
    compare: str | None = None,
    delta: bool = False,
    backup: Path | None = None,
    **tree: Any,
) -> str:
    options: dict[str, Any] = {
        "tree": _tree_options(**{"count_source": False, **tree}),
        "delete": bool(delete),
        "delete_max": delete_max,
        "force": bool(force),
        "delta": bool(delta),
        "backup": None if backup is None else list(os.fsencode(backup)),
    }
    if compare is not None:
        options["compare"] = compare
    return json.dumps(options)
