"""What a type checker knows about a program that uses the package; it is not run."""

import asyncio
from pathlib import Path
from typing import List, Optional, Tuple

import shoal


def by_text(names: List[str]) -> List[Tuple[str, Optional[bytes]]]:
    with shoal.open(Path("client.textproto")) as client:
        results: shoal.Results[str] = client.lookup(names, engine="piano", parties=[1], beyond="refuse")
        first: Tuple[str, shoal.Result] = results[0]
        assert first[1].outcome is shoal.Outcome.FOUND
        return [(name, result.value) for name, result in results]


def by_bytes(client: shoal.Client) -> List[bytes]:
    return [key for key, _ in client.lookup([b"one", b"two"])]


def prepared(client: shoal.Client) -> int:
    return client.prepare("piano", progress=lambda said: print(said.kind, said.text, said.done / said.total)) or 0


async def asked() -> Optional[str]:
    async with shoal.open_async() as client:
        results = await asyncio.wait_for(client.lookup(["one"]), 5)
        return results[0][1].text
