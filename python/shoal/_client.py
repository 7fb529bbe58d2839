"""The client of a program that waits for its lookups."""

import contextlib
import ctypes
import enum
import os
import re
import threading
import unicodedata
import weakref
from dataclasses import dataclass
from types import TracebackType
from typing import Callable, Generator, Iterable, List, Literal, Optional, Sequence, Tuple, Type, TypeVar, Union

from . import _library
from ._errors import error_of
from ._results import Key, Outcome, Result, Results

_T = TypeVar("_T")

#: What becomes of a lookup by the chain that is larger than a round protects: it is refused, spread over rounds, or sent
#: in one round with less protection.
Beyond = Literal["refuse", "over-rounds", "accept-more"]
_BEYOND = {"refuse": 0, "over-rounds": 1, "accept-more": 2}


class ProgressKind(enum.Enum):
    #: What the call does: ``text``.
    TELL = 1
    #: What a person should know: ``text``.
    WARN = 2
    #: ``done`` of ``total`` steps of the stage ``text``.
    COUNT = 3
    #: What it waits for, and that this is due at ``due`` at the latest, seconds since 1970.
    WAIT = 4


@dataclass(frozen=True)
class Progress:
    """What a call says while it runs. Never a key or a value."""

    kind: ProgressKind
    text: str
    done: int = 0
    total: int = 0
    due: int = 0


class Cancellation:
    """Ends calls early, from any thread. One object serves any number of calls, and stays cancelled.

    A call notices within a fifth of a second, unless it computes. It raises CancelledError, or returns as if nothing had
    happened if all answers had come.
    """

    def __init__(self) -> None:
        library = _library.load()
        self._pointer = library.shoal_cancellation_new()
        if not self._pointer:
            raise MemoryError
        self._cancelled = False
        weakref.finalize(self, library.shoal_cancellation_free, self._pointer)

    def cancel(self) -> None:
        self._cancelled = True
        _library.load().shoal_cancel(self._pointer)

    @property
    def cancelled(self) -> bool:
        return self._cancelled


def library_version() -> str:
    """The version of libshoal.so.1, which may be another than this package's."""
    version: bytes = _library.load().shoal_version()
    return version.decode()


def engines() -> Tuple[str, ...]:
    """The engines of the library, "chain" first. Which of them a deployment runs is for its parties to say."""
    names: List[str] = []
    for name in _library.load().shoal_engines():
        if name is None:
            break
        names.append(name.decode())
    return tuple(names)


class _Call:
    """The options of one call in C, and what must live as long as it."""

    def __init__(
        self,
        engine: Optional[str],
        parties: Sequence[int],
        pad: int,
        beyond: Beyond,
        progress: Optional[Callable[[Progress], None]],
        cancellation: Optional[Cancellation],
    ) -> None:
        if beyond not in _BEYOND:
            raise ValueError(f"beyond is {beyond!r}, not one of {', '.join(_BEYOND)}")
        if any(not 0 <= number < 2**32 for number in (pad, *parties)):
            raise ValueError("numbers of parties, and pad, are below 2^32")
        self.cancellation = cancellation or Cancellation()
        self._progress = progress
        self._failure: Optional[BaseException] = None
        self._parties = (ctypes.c_uint32 * len(parties))(*parties)
        self._callback = _library.ProgressCallback(self._report if progress else 0)
        self.options = _library.Options(
            size=ctypes.sizeof(_library.Options),
            engine=None if engine is None else engine.encode(),
            parties=self._parties,
            party_count=len(parties),
            pad=pad,
            beyond=_BEYOND[beyond],
            progress=self._callback,
            user=None,
            cancellation=self.cancellation._pointer,
        )

    def _report(self, report: "ctypes._Pointer[_library.Progress]", _user: Optional[int]) -> None:
        # An exception cannot pass through C. It ends the call, which then raises it.
        try:
            said = report.contents
            assert self._progress is not None
            if self._failure is None:
                self._progress(
                    Progress(ProgressKind(said.kind), _library.decode(said.text), said.done, said.total, said.due)
                )
        except BaseException as error:  # noqa: B902
            self._failure = error
            self.cancellation.cancel()

    def check(self, code: int, error: ctypes.c_void_p) -> None:
        """Raises what the call has come to."""
        library = _library.load()
        text = _library.decode(library.shoal_error_text(error))
        library.shoal_error_free(error)
        if self._failure is not None:
            raise self._failure
        if code != _library.OK:
            raise error_of(code, text)


def _interruptibly(work: Callable[[], _T], cancellation: Cancellation) -> _T:
    """Calls `work`, which calls C, so that Ctrl-C ends it in order. Python handles signals on the main thread alone, and
    not while that is in C."""
    if threading.current_thread() is not threading.main_thread():
        return work()
    results: List[_T] = []
    errors: List[BaseException] = []
    ended = threading.Event()

    def run() -> None:
        try:
            results.append(work())
        except BaseException as error:  # noqa: B902
            errors.append(error)
        finally:
            ended.set()

    # Not a daemon: the interpreter must not end under it.
    threading.Thread(target=run, name="shoal").start()
    try:
        ended.wait()
    except BaseException:
        cancellation.cancel()
        ended.wait()
        raise
    if errors:
        raise errors[0]
    return results[0]


class Client:
    """A configuration, opened. Thread-safe: calls of one client take turns, and different clients are independent.

    Every call connects anew, and locks the state file from its beginning to its end.
    """

    def __init__(self, path: Union[None, str, "os.PathLike[str]"] = None) -> None:
        library = _library.load()
        pointer, error = ctypes.c_void_p(), ctypes.c_void_p()
        code = library.shoal_open(None if path is None else os.fsencode(path), ctypes.byref(pointer), ctypes.byref(error))
        if code != _library.OK:
            text = _library.decode(library.shoal_error_text(error))
            library.shoal_error_free(error)
            raise error_of(code, text)
        self._idle = threading.Condition()
        self._calls = 0
        self._pointer: Optional[int] = pointer.value
        self._close = weakref.finalize(self, library.shoal_close, pointer.value)

    def lookup(
        self,
        keys: Iterable[Key],
        *,
        engine: Optional[str] = None,
        parties: Sequence[int] = (),
        pad: int = 0,
        beyond: Beyond = "refuse",
        progress: Optional[Callable[[Progress], None]] = None,
        cancellation: Optional[Cancellation] = None,
    ) -> "Results[Key]":
        """Looks keys up, all of them together, and returns pairs of key and result in their order.

        Keys are bytes, which are taken as they are, or text that is sent as UTF-8; they may repeat. Text with what nobody
        sees (controls, blanks at an end, byte order marks) is refused, as the key would be proved to be absent. By the chain (no `engine`) a lookup takes as long as
        its round, which may be minutes. With an engine, `parties` are the numbers of the parties that are asked, the
        offline one first if there are two, and the number of queries is rounded up to a multiple of `pad`.

        `progress` is called from other threads, one call at a time, and must not use this client. What it raises ends the
        lookup, and is raised here. Ctrl-C ends the lookup in order: the next one goes on with it.

        Raises subclasses of ShoalError. A key whose answer cannot be verified raises nothing here: see Result.failed.
        """
        if isinstance(keys, (str, bytes)):
            raise TypeError("keys is one key, and must be several: [key]")
        given: List[Key] = list(keys)
        call = _Call(engine, parties, pad, beyond, progress, cancellation)
        if len(given) > _library.MAX_KEYS:
            raise error_of(3, f"{len(given)} keys: a call takes 1 to {_library.MAX_KEYS}")
        # The array refers to these objects, and so keeps them.
        coded = [_coded(key, at) for at, key in enumerate(given)]
        array = (_library.Bytes * len(coded))(*(_library.Bytes(key, len(key)) for key in coded))
        return _interruptibly(lambda: self._lookup(given, array, call), call.cancellation)

    def _lookup(self, keys: List[Key], array: "ctypes.Array[_library.Bytes]", call: _Call) -> "Results[Key]":
        library = _library.load()
        results, error = ctypes.c_void_p(), ctypes.c_void_p()
        with self._use() as client:
            code = library.shoal_lookup(
                client, array, len(keys), ctypes.byref(call.options), ctypes.byref(results), ctypes.byref(error)
            )
        try:
            call.check(code, error)
            sent, received = ctypes.c_uint64(), ctypes.c_uint64()
            library.shoal_results_traffic(results, ctypes.byref(sent), ctypes.byref(received))
            return Results(keys, [_result_of(results, at) for at in range(len(keys))], sent.value, received.value)
        finally:
            library.shoal_results_free(results)

    def prepare(
        self,
        engine: str,
        *,
        parties: Sequence[int] = (),
        anew: bool = False,
        progress: Optional[Callable[[Progress], None]] = None,
        cancellation: Optional[Cancellation] = None,
    ) -> Optional[int]:
        """Prepares queries of an engine that keeps hints of its own, as `shoal prepare` does. Returns how many are prepared
        now, or None if they do not run out. Takes minutes for large tables, and goes on where it was ended. `anew` gives up
        what is prepared first, which the server can see: on a day that was fixed before, or for another table, and never
        because a lookup failed, which would tell whoever spoilt the hints of one row that it was asked for."""
        call = _Call(engine, parties, 0, "refuse", progress, cancellation)

        def work() -> Optional[int]:
            queries, error = ctypes.c_uint64(), ctypes.c_void_p()
            with self._use() as client:
                code = _library.load().shoal_prepare(
                    client, ctypes.byref(call.options), int(anew), ctypes.byref(queries), ctypes.byref(error)
                )
            call.check(code, error)
            return None if queries.value == _library.UNLIMITED else queries.value

        return _interruptibly(work, call.cancellation)

    def close(self) -> None:
        """Ends the client, once its calls have ended. Any number of times."""
        with self._idle:
            self._pointer = None
            while self._calls > 0:
                self._idle.wait()
        self._close()

    @contextlib.contextmanager
    def _use(self) -> Generator[int, None, None]:
        with self._idle:
            if self._pointer is None:
                raise ValueError("the client is closed")
            pointer = self._pointer
            self._calls += 1
        try:
            yield pointer
        finally:
            with self._idle:
                self._calls -= 1
                self._idle.notify_all()

    def __enter__(self) -> "Client":
        return self

    def __exit__(
        self,
        kind: Optional[Type[BaseException]],
        error: Optional[BaseException],
        trace: Optional[TracebackType],
    ) -> None:
        self.close()


# What Unicode has programs show as nothing, beside its categories of controls and formats.
_UNSEEN = re.compile(
    "[\u034f\u115f\u1160\u17b4\u17b5\u180b-\u180f\u2065\u3164\ufe00-\ufe0d\uffa0\ufff0-\ufff8\U000e0000-\U000e0fff]"
)
# Joiners, which scripts and emoji need.
_NEEDED = "\u200c\u200d"


def _coded(key: Key, at: int) -> bytes:
    """The bytes of the key number `at`. Errors name its place alone."""
    if isinstance(key, bytes):
        return key
    if not isinstance(key, str):
        raise TypeError(f"a key is of type {type(key).__name__}, and must be str or bytes")
    if any(unicodedata.category(c) in ("Cc", "Cf", "Cs", "Zl", "Zp") and c not in _NEEDED for c in key) or _UNSEEN.search(key):
        raise error_of(3, f"the key number {at} has characters that nobody sees: remove them, or give the key as bytes")
    if key != key.strip():
        raise error_of(3, f"the key number {at} begins or ends with a blank: remove it, or give the key as bytes")
    return key.encode()


def _result_of(results: ctypes.c_void_p, at: int) -> Result:
    raw = _library.Result()
    _library.load().shoal_results_get(results, at, ctypes.byref(raw))
    outcome = Outcome(raw.outcome)
    if outcome is Outcome.FOUND:
        return Result(outcome, ctypes.string_at(raw.value, raw.value_size))
    return Result(outcome, error=_library.decode(raw.error) if raw.error is not None else None)


def open(path: Union[None, str, "os.PathLike[str]"] = None) -> Client:
    """Opens a configuration file, or a directory with client.textproto in it; without one, what the environment variable
    SHOAL_CONFIG names, or else the user's own, ~/.config/shoal/client.textproto. Nothing is sent before the first lookup."""
    return Client(path)
