"""Moves files over any number of channels: resumable, and verified before publication.

>>> import xdfs
>>> with xdfs.Server() as server:
...     with xdfs.Client(server.url, insecure=True) as client:
...         client.upload_bytes(b"hello", "greeting").bytes
...         client.read("greeting", -3)
5
b'llo'

``Client`` waits, ``AsyncClient`` is for asyncio, and ``xdfs.fsspec`` makes ``xdfs://`` URLs known to
pandas, dask, xarray and all else that uses fsspec. Every failure is a ``Fault``.
"""

from ._client import AsyncClient, Client, Queue
from ._errors import (
    AlreadyExists,
    Busy,
    Cancelled,
    ConnectionFailed,
    ConnectionLost,
    ConnectionRefused,
    DeadlineExceeded,
    Fault,
    IntegrityMismatch,
    InvalidArgument,
    IsDirectory,
    LoginFailed,
    NameTooLong,
    NoSpace,
    NotDirectory,
    NotEmpty,
    NotFound,
    PermissionDenied,
    ProtocolFault,
    ReadOnly,
    Stale,
    Unsupported,
)
from ._file import RemoteFile
from ._functions import TuneReport, TuneSample, copy_tree, download, sync, tune, upload
from ._operation import Operation
from ._server import Server
from ._types import (
    Checksum,
    EntryFailed,
    Event,
    FileInfo,
    FileMoved,
    Progress,
    Retrying,
    Space,
    Step,
    SyncResult,
    Target,
    TransferResult,
    TreeProgress,
    TreeResult,
    Warned,
)

__all__ = [name for name in globals() if not name.startswith("_")]
