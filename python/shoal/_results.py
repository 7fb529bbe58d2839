"""What a lookup returns."""

import enum
from typing import Generic, Iterator, List, Optional, Sequence, Tuple, TypeVar, Union, overload

from ._errors import UnknownKeyError, UnverifiedError

Key = TypeVar("Key", str, bytes)


class Outcome(enum.Enum):
    FOUND = 1
    #: Proved: the table has no such key.
    ABSENT = 2
    #: No verified answer. Do not ask again because of it.
    FAILED = 3
    #: The signed row has no room for all of its keys, and this may be one of those: not absent, and not known until the
    #: table places its keys anew.
    UNKNOWN = 4


class Result:
    """The result for one key. Immutable."""

    __slots__ = ("_outcome", "_value", "_error")

    def __init__(self, outcome: Outcome, value: Optional[bytes] = None, error: Optional[str] = None) -> None:
        self._outcome = outcome
        self._value = value
        self._error = error

    @property
    def outcome(self) -> Outcome:
        return self._outcome

    @property
    def found(self) -> bool:
        return self._outcome is Outcome.FOUND

    @property
    def absent(self) -> bool:
        """Whether it is proved that the table has no such key."""
        return self._outcome is Outcome.ABSENT

    @property
    def failed(self) -> bool:
        """Whether there is no verified answer. It says nothing about the key."""
        return self._outcome is Outcome.FAILED

    @property
    def unknown(self) -> bool:
        """Whether the table has no room to say whether it has this key (Outcome.UNKNOWN)."""
        return self._outcome is Outcome.UNKNOWN

    @property
    def value(self) -> Optional[bytes]:
        """The value, or None if the key is absent. Raises UnverifiedError if the result failed and UnknownKeyError if the
        key is unknown, so that nobody takes either for an absent key."""
        if self._outcome is Outcome.FAILED:
            raise UnverifiedError(self._error or "no verified answer")
        if self._outcome is Outcome.UNKNOWN:
            raise UnknownKeyError("the row of this key has no room for all of its keys")
        return self._value

    @property
    def text(self) -> Optional[str]:
        """The value as UTF-8, otherwise as ``value``. Raises UnicodeDecodeError if it is something else."""
        value = self.value
        return None if value is None else value.decode()

    @property
    def error(self) -> Optional[str]:
        """Why the result failed, for people; None if it did not."""
        return self._error

    def __repr__(self) -> str:
        # Without the value: a log that others read must not have it.
        return f"<shoal.Result {self._outcome.name.lower()}>"


class Results(Generic[Key], Sequence[Tuple[Key, Result]]):
    """Pairs of a key and its result, in the order of the keys. Immutable."""

    def __init__(self, keys: Sequence[Key], results: List[Result], sent: int, received: int) -> None:
        self._pairs: List[Tuple[Key, Result]] = list(zip(keys, results))
        self._failed = sum(result.failed for result in results)
        self._sent = sent
        self._received = received

    def __len__(self) -> int:
        return len(self._pairs)

    def __iter__(self) -> Iterator[Tuple[Key, Result]]:
        return iter(self._pairs)

    @overload
    def __getitem__(self, index: int) -> Tuple[Key, Result]: ...
    @overload
    def __getitem__(self, index: slice) -> Sequence[Tuple[Key, Result]]: ...
    def __getitem__(self, index: Union[int, slice]) -> Union[Tuple[Key, Result], Sequence[Tuple[Key, Result]]]:
        return self._pairs[index]

    @property
    def failed(self) -> int:
        """How many have no verified answer."""
        return self._failed

    @property
    def bytes_sent(self) -> int:
        """On the connections of this lookup, without TLS."""
        return self._sent

    @property
    def bytes_received(self) -> int:
        return self._received

    def __repr__(self) -> str:
        return f"<shoal.Results of {len(self)} keys, {self._failed} failed>"
