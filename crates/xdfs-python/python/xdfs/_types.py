"""Results and events."""

from __future__ import annotations

import os
from typing import Any, NamedTuple


class FileInfo(NamedTuple):
    """The attributes of a file, directory or link. Times are nanoseconds since 1970."""

    name: str
    kind: str
    size: int
    mode: int
    uid: int
    gid: int
    links: int
    inode: int
    atime_ns: int
    mtime_ns: int | None
    ctime_ns: int

    @property
    def is_dir(self) -> bool:
        return self.kind == "directory"

    @property
    def is_file(self) -> bool:
        return self.kind == "file"

    @property
    def is_symlink(self) -> bool:
        return self.kind == "symlink"

    @property
    def mtime(self) -> float | None:
        """The time of the last modification in seconds; ``None`` if the server has none."""
        return None if self.mtime_ns is None else self.mtime_ns / 1e9


class Space(NamedTuple):
    """The space of a file system. ``files`` is 0 where their number has no limit."""

    total: int
    free: int
    available: int
    files: int
    files_free: int


class Checksum(NamedTuple):
    """A digest of a file or a part of it."""

    kind: str
    hex: str
    length: int


class TransferResult(NamedTuple):
    """The result of a file's transfer. ``digest`` is ``KIND:HEX`` of what was verified."""

    bytes: int
    seconds: float
    bytes_per_second: float
    channels: int
    resumed_bytes: int
    retransmitted_bytes: int
    digest: str | None
    target: str
    is_skipped: bool

    def _repr_html_(self) -> str:
        return _table(self)


class TreeResult(NamedTuple):
    """The result of a tree's copy. ``resumed_files`` were at the target already."""

    files: int
    directories: int
    others: int
    bytes: int
    matched_bytes: int
    failed: int
    resumed_files: int
    seconds: float
    target: str
    reconnects: int

    def _repr_html_(self) -> str:
        return _table(self)


class SyncResult(NamedTuple):
    """The result of a synchronisation."""

    files: int
    directories: int
    others: int
    bytes: int
    matched_bytes: int
    failed: int
    resumed_files: int
    seconds: float
    target: str
    reconnects: int
    replaced: int
    set: int
    renamed: int
    deleted: int
    kept: int

    def _repr_html_(self) -> str:
        return _table(self)


class Progress(NamedTuple):
    """The progress of a file, with the bytes of earlier attempts. At most ten times a second."""

    bytes: int
    total: int | None
    resumed_bytes: int
    channels: int


class TreeProgress(NamedTuple):
    """The progress of a tree. The totals are known once the source was counted."""

    bytes: int
    total: int | None
    files: int
    files_total: int | None
    failed: int


class EntryFailed(NamedTuple):
    """An entry of a tree that could not be moved, or not with all its metadata."""

    path: str
    error: Exception


class FileMoved(NamedTuple):
    """A file of a tree that was moved."""

    path: str
    bytes: int
    digest: str | None


class Step(NamedTuple):
    """A step of a synchronisation, or of a dry run."""

    path: str
    step: str
    old_path: str | None


class Warned(NamedTuple):
    """A problem that does not stop a tree."""

    path: str
    error: Exception


class Retrying(NamedTuple):
    """An attempt failed, and another one follows after a pause."""

    error: Exception
    retry: int
    pause: float


class Target(NamedTuple):
    """The path of a tree at its target, before anything happens there."""

    path: str


Event = Progress | TreeProgress | EntryFailed | FileMoved | Step | Warned | Retrying | Target


def _table(values: Any) -> str:
    from html import escape

    rows = zip(values._fields, values)
    cells = (f"<tr><th>{escape(n)}</th><td>{escape(str(v))}</td></tr>" for n, v in rows)
    return f"<table>{''.join(cells)}</table>"


def file_info(fields: tuple) -> FileInfo:
    return FileInfo(os.fsdecode(fields[0]), *fields[1:])


def listing(rows: list[tuple]) -> list[FileInfo]:
    return [FileInfo(os.fsdecode(row[0]), *row[1:]) for row in rows]


def _decoded(fields: dict[str, Any]) -> dict[str, Any]:
    return {**fields, "target": os.fsdecode(fields["target"])}


def transfer_result(fields: dict[str, Any]) -> TransferResult:
    return TransferResult(**_decoded(fields))


def tree_result(fields: dict[str, Any]) -> TreeResult:
    return TreeResult(**_decoded(fields))


def sync_result(fields: dict[str, Any]) -> SyncResult:
    return SyncResult(**_decoded(fields))


def event(fields: tuple) -> Event | None:
    """The event of a tuple of the compiled part; ``None`` of a kind that it doesn't have yet."""
    match fields:
        case ("progress", *rest):
            return Progress(*rest)
        case ("tree", *rest):
            return TreeProgress(*rest)
        case ("failed", path, error):
            return EntryFailed(os.fsdecode(path), error)
        case ("file", path, size, digest):
            return FileMoved(os.fsdecode(path), size, digest)
        case ("step", path, step, old):
            return Step(os.fsdecode(path), step, None if old is None else os.fsdecode(old))
        case ("warning", path, error):
            return Warned(os.fsdecode(path), error)
        case ("retry", error, retry, pause):
            return Retrying(error, retry, pause)
        case ("target", path):
            return Target(os.fsdecode(path))
    return None
