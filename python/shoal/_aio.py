"""The client of a program that runs on asyncio."""

import asyncio
import os
import threading
from types import TracebackType
from typing import Callable, Iterable, Optional, Sequence, Type, TypeVar, Union

from ._client import Beyond, Cancellation, Client, Progress
from ._results import Key, Results

_T = TypeVar("_T")


async def _on_a_thread(work: Callable[[], _T], cancellation: Cancellation) -> _T:
    """Awaits `work` on a thread of its own. If the task is cancelled, so is the call, and the task ends with it: the state
    is free again then."""
    loop = asyncio.get_running_loop()
    done: "asyncio.Future[_T]" = loop.create_future()

    def end(result: Optional[_T], error: Optional[BaseException]) -> None:
        if error is not None:
            done.set_exception(error)
        else:
            done.set_result(result)  # type: ignore[arg-type]

    def run() -> None:
        result: Optional[_T] = None
        error: Optional[BaseException] = None
        try:
            result = work()
        except BaseException as caught:  # noqa: B902
            error = caught
        try:
            loop.call_soon_threadsafe(end, result, error)
        except RuntimeError:
            pass  # the loop has ended, and nobody waits any more

    threading.Thread(target=run, name="shoal").start()
    try:
        return await asyncio.shield(done)
    except asyncio.CancelledError:
        cancellation.cancel()
        while not done.done():
            try:
                await asyncio.wait([done])
            except asyncio.CancelledError:
                pass  # cancelled once more, while it ends
        done.exception()  # nobody else looks at it
        raise


class AsyncClient:
    """As Client, for asyncio. Calls of one client take turns.

    To cancel a task that awaits a call, also by ``asyncio.wait_for``, ends the call in order, within a fifth of a second
    unless it computes.
    """

    def __init__(self, path: Union[None, str, "os.PathLike[str]"] = None) -> None:
        self._client = Client(path)

    async def lookup(
        self,
        keys: Iterable[Key],
        *,
        engine: Optional[str] = None,
        parties: Sequence[int] = (),
        pad: int = 0,
        beyond: Beyond = "refuse",
        progress: Optional[Callable[[Progress], None]] = None,
    ) -> "Results[Key]":
        """See Client.lookup. `progress` is called by the event loop, and what it raises goes to the loop's handler of
        exceptions."""
        cancellation = Cancellation()
        told = _by_the_loop(progress)
        if not isinstance(keys, (str, bytes)):
            keys = list(keys)  # on this thread
        return await _on_a_thread(
            lambda: self._client.lookup(
                keys,
                engine=engine,
                parties=parties,
                pad=pad,
                beyond=beyond,
                progress=told,
                cancellation=cancellation,
            ),
            cancellation,
        )

    async def prepare(
        self,
        engine: str,
        *,
        parties: Sequence[int] = (),
        anew: bool = False,
        progress: Optional[Callable[[Progress], None]] = None,
    ) -> Optional[int]:
        """See Client.prepare."""
        cancellation = Cancellation()
        told = _by_the_loop(progress)
        return await _on_a_thread(
            lambda: self._client.prepare(
                engine, parties=parties, anew=anew, progress=told, cancellation=cancellation
            ),
            cancellation,
        )

    async def aclose(self) -> None:
        """Ends the client, once its calls have ended. Any number of times."""
        await _on_a_thread(self._client.close, Cancellation())

    async def __aenter__(self) -> "AsyncClient":
        return self

    async def __aexit__(
        self,
        kind: Optional[Type[BaseException]],
        error: Optional[BaseException],
        trace: Optional[TracebackType],
    ) -> None:
        await self.aclose()


def _by_the_loop(progress: Optional[Callable[[Progress], None]]) -> Optional[Callable[[Progress], None]]:
    if progress is None:
        return None
    loop = asyncio.get_running_loop()
    tell = progress

    def told(what: Progress) -> None:
        try:
            loop.call_soon_threadsafe(tell, what)
        except RuntimeError:
            pass  # the loop has ended

    return told


def open_async(path: Union[None, str, "os.PathLike[str]"] = None) -> AsyncClient:
    """As open, for ``async with shoal.open_async() as client``."""
    return AsyncClient(path)
