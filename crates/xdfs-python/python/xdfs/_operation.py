"""Operations: what was started and has not ended."""

from __future__ import annotations

import contextlib
import functools
import time
from collections.abc import Callable, Generator, Iterator
from typing import TYPE_CHECKING, Any, Generic, TypeVar

from . import _types
from ._types import Event

if TYPE_CHECKING:
    from . import _xdfs

T = TypeVar("T")
OnEvent = Callable[[Event], object]

#: Longest time in seconds for which a cancelled operation is waited for.
_PATIENCE = 5.0


class Operation(Generic[T]):
    """A transfer, tree or call that runs.

    Wait for it (``wait``), iterate over its events, or await it; afterwards ``result`` has its
    result. An exception that leaves one of these, ``KeyboardInterrupt`` and the cancellation of a
    task included, cancels it: what is durable stays, and the same call resumes.
    """

    def __init__(self, raw: _xdfs.Operation, convert: Callable[[Any], T]) -> None:
        self._raw = raw
        self._convert = convert
        self._result: list[T] = []
        self._error: BaseException | None = None
        self._is_awaited = False

    @property
    def is_finished(self) -> bool:
        """Whether the end was seen by waiting, iterating or awaiting."""
        return bool(self._result) or self._error is not None

    @property
    def result(self) -> T:
        """The result, once the operation has ended."""
        if self._error is not None:
            raise self._error
        if not self._result:
            raise RuntimeError("the operation has not ended")
        return self._result[0]

    def cancel(self) -> None:
        """Cancels it, and doesn't wait for its end."""
        self._raw.cancel()

    def wait(self, progress: OnEvent | None = None) -> T:
        """Waits for the end. ``progress`` is called with each event, in this thread."""
        for event in self:
            if progress is not None:
                with self._cancelling():
                    progress(event)
        return self.result

    def __iter__(self) -> Iterator[Event]:
        while not self.is_finished:
            with self._cancelling():
                step = self._raw.step()
            event = self._take(step)
            if event is not None:
                try:
                    yield event
                except GeneratorExit:
                    # The loop was left: the operation can be waited for, or cancelled.
                    return
        if self._error is not None:
            raise self._error

    def __await__(self) -> Generator[Any, None, T]:
        return self.run().__await__()

    async def run(self, progress: OnEvent | None = None) -> T:
        """Awaits the end. ``progress`` is called with each event, in the event loop."""
        import asyncio

        self._is_awaited = True
        with self._cancelling():
            try:
                while not self.is_finished:
                    event = self._take(await self._stepped())
                    if event is not None and progress is not None:
                        progress(event)
            except (Exception, asyncio.CancelledError):
                if not self.is_finished and self._raw.cancel():
                    with contextlib.suppress(Exception, asyncio.CancelledError):
                        await asyncio.wait_for(self._ended(), _PATIENCE)
                raise
        return self.result

    async def _stepped(self) -> tuple[bool, Any]:
        """The next step."""
        import asyncio

        loop = asyncio.get_running_loop()
        while True:
            woken = loop.create_future()
            step = self._raw.poll(loop, functools.partial(_wake, woken))
            if step is not None:
                return step
            await woken

    async def _ended(self) -> None:
        while not (await self._stepped())[0]:
            pass

    def _take(self, step: tuple[bool, Any] | None) -> Event | None:
        if step is None:
            return None
        is_end, value = step
        if not is_end:
            return _types.event(value)
        self._result.append(self._convert(value))
        return None

    def _end(self) -> None:
        """Waits until it has been cancelled, so that the same can be begun again."""
        if not self._raw.cancel():
            return
        end = time.monotonic() + _PATIENCE
        with contextlib.suppress(Exception):
            while (left := end - time.monotonic()) > 0:
                step = self._raw.step(left)
                if step is None or step[0]:
                    return

    def _cancelling(self) -> _Cancelling:
        return _Cancelling(self)


class _Cancelling:
    """Cancels the operation if an exception leaves the block."""

    def __init__(self, operation: Operation[Any]) -> None:
        self._operation = operation

    def __enter__(self) -> None:
        pass

    def __exit__(self, kind: Any, error: BaseException | None, trace: Any) -> None:
        operation = self._operation
        if error is None or operation.is_finished:
            return
        operation._error = error
        try:
            if not operation._is_awaited:
                operation._end()
        finally:
            operation._raw.abandon()


def _wake(woken: Any) -> None:
    if not woken.done():
        woken.set_result(None)
