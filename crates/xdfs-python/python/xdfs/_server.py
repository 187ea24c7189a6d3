"""A server in this process, for tests and notebooks."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, Any

from . import _xdfs

if TYPE_CHECKING:
    import tempfile


class Server:
    """Serves a directory on this machine, without protection, until it is closed.

    Without ``root`` it serves a temporary directory. Clients need ``insecure=True``. For anything
    else than tests and notebooks run ``xdfs serve``.
    """

    def __init__(
        self,
        root: str | os.PathLike | None = None,
        *,
        listen: str = "127.0.0.1:0",
        read_only: bool = False,
    ) -> None:
        self._folder: tempfile.TemporaryDirectory[str] | None = None
        if root is None:
            # It takes long to be imported, and clients don't need it.
            import tempfile

            self._folder = tempfile.TemporaryDirectory(prefix="xdfs-")
            root = self._folder.name
        self.root: str = os.fspath(root)
        try:
            self._raw = _xdfs.RunningServer(self.root, listen, read_only)
        except BaseException:
            if self._folder is not None:
                self._folder.cleanup()
            raise

    @property
    def url(self) -> str:
        """The URL of the directory."""
        return f"xdfs://{self._raw.addresses[0]}/"

    @property
    def port(self) -> int:
        """The port of its first address."""
        return int(self._raw.addresses[0].rsplit(":", 1)[1])

    @property
    def closed(self) -> bool:
        return self._raw.is_closed

    def close(self, *, at_once: bool = True) -> None:
        """Ends it; running sessions get ten seconds unless that is to be at once."""
        self._raw.close(at_once)
        if self._folder is not None:
            self._folder.cleanup()

    def __enter__(self) -> Server:
        return self

    def __exit__(self, kind: Any, error: Any, trace: Any) -> None:
        self.close()
