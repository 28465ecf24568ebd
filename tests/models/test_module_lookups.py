"""Requests to models look for no module on the event loop that is not installed."""

import sys
from importlib.machinery import ModuleSpec
from pathlib import Path

import pytest

from tests.support.harness import serve


class Watch:
    """A finder that finds nothing and keeps what was looked for."""

    def __init__(self) -> None:
        self.names: list[str] = []

    def find_spec(self, name: str, path: object, target: object = None) -> ModuleSpec | None:
        self.names.append(name)
        return None


async def test_a_turn_looks_for_no_absent_module(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    watch = Watch()
    monkeypatch.setattr(sys, "meta_path", [watch, *sys.meta_path])
    async with serve(tmp_path) as served, served.client() as client:
        thread_id = await client.start_thread()
        await client.turn(thread_id, "Hello.")
        watch.names.clear()
        await client.turn(thread_id, "Hello.")
    assert [name for name in watch.names if not name.startswith(("app_server", "protocol"))] == []
