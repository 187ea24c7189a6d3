"""Functions that open a session for one thing."""

from __future__ import annotations

import os
from collections.abc import Callable
from typing import Any, NamedTuple

from . import _xdfs
from ._begin import Path
from ._client import Client
from ._operation import OnEvent
from ._types import SyncResult, TransferResult, TreeResult, _table

_SETTINGS = frozenset(
    "channels block_size window retries accept_new key agent password_file token_file ticket_file "
    "anonymous cert cert_key ca pin known_only protect insecure ssh remote_program".split()
)


def _client(place: Path, options: dict[str, Any]) -> Client:
    url = os.fsdecode(place)
    settings = {name: options.pop(name) for name in _SETTINGS & options.keys()}
    return Client(url, **settings)


def _is_url(place: Path) -> bool:
    return isinstance(place, str) and "://" in place


def _ends(source: Path, target: Path) -> bool:
    """Whether it is an upload."""
    is_upload, is_download = _is_url(target), _is_url(source)
    if is_upload == is_download:
        raise ValueError("one of source and target is a URL, and the other a local path")
    return is_upload


def upload(source: Path, url: str, *, progress: OnEvent | None = None, **options: Any) -> TransferResult:
    """Sends a file to a URL. Options are those of ``Client`` and of ``Client.upload``."""
    with _client(url, options) as client:
        return client.upload(source, "", progress=progress, **options)


def download(url: str, target: Path, *, progress: OnEvent | None = None, **options: Any) -> TransferResult:
    """Fetches the file of a URL. Options are those of ``Client`` and of ``Client.download``."""
    with _client(url, options) as client:
        return client.download("", target, progress=progress, **options)


def copy_tree(
    source: Path, target: Path, *, progress: OnEvent | None = None, **options: Any
) -> TreeResult:
    """Copies a directory tree to a URL, or from one."""
    if _ends(source, target):
        with _client(target, options) as client:
            return client.upload_tree(source, "", progress=progress, **options)
    with _client(source, options) as client:
        return client.download_tree("", target, progress=progress, **options)


def sync(
    source: Path, target: Path, *, progress: OnEvent | None = None, **options: Any
) -> SyncResult:
    """Makes the directory ``target`` equal to ``source``; one of them is a URL."""
    if _ends(source, target):
        with _client(target, options) as client:
            return client.sync_to(source, "", progress=progress, **options)
    with _client(source, options) as client:
        return client.sync_from("", target, progress=progress, **options)


class TuneSample(NamedTuple):
    """The rate at one setting; ``None`` is automatic."""

    channels: int | None
    window: int | None
    phase: str
    bytes: int
    seconds: float
    bytes_per_second: float


class TuneReport(NamedTuple):
    """The findings of ``tune``. A setting is a number of channels and a window in bytes."""

    samples: list[TuneSample]
    end: str
    best: tuple[int | None, int | None]
    fastest: tuple[tuple[int | None, int | None], float] | None
    default_bytes_per_second: float
    noise: float | None
    gain: float

    def _repr_html_(self) -> str:
        return _table(self)


def tune(
    url: str,
    *,
    download: bool = False,
    channels: list[int] | None = None,
    bytes_max: int | None = None,
    seconds_max: float | None = None,
    on_sample: Callable[[TuneSample], object] | None = None,
    **settings: Any,
) -> TuneReport:
    """Finds the number of channels and the window that suit the path to a server.

    It moves data from memory to memory; ``on_sample`` gets each sample, and may return ``False`` to
    end the search. Settings are those of ``Client``.
    """
    search = _xdfs.Tuning(url, settings, download, channels, bytes_max, seconds_max)
    try:
        while True:
            is_end, fields = search.step()
            if is_end:
                break
            if on_sample is not None and on_sample(TuneSample(**fields)) is False:
                search.end()
    finally:
        search.end()
    samples = [TuneSample(**sample) for sample in fields["samples"]]
    return TuneReport(**{**fields, "samples": samples})
