"""server: what a start has opened is closed if it fails after that."""

from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, contextmanager
from pathlib import Path

import pytest

from app_server.extensions.plugins.contributor import Plugins
from app_server.server import core
from app_server.threads.files import servers
from app_server.threads.files.store import FileStore
from tests.support.files.descriptors import open_below
from tests.support.harness import serve


class Broken(Exception):
    """What fails."""


@pytest.fixture
def telemetry(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Give what becomes of telemetry: begun, ended."""
    steps: list[str] = []

    @asynccontextmanager
    async def sending(*_: object) -> AsyncIterator[None]:
        steps.append("begun")
        yield
        steps.append("ended")

    monkeypatch.setattr(core, "sending", sending)
    return steps


@contextmanager
def _broken(*_: object) -> Iterator[None]:
    raise Broken
    yield


async def _fail(*_: object) -> None:
    raise Broken


async def failed_start(home: Path) -> None:
    with pytest.raises(Broken):
        async with serve(home):
            pass


async def test_nothing_stays_open_if_plugins_cannot_be_loaded(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, telemetry: list[str]
) -> None:
    monkeypatch.setattr(Plugins, "load", _fail)
    await failed_start(tmp_path)
    assert (open_below(tmp_path), telemetry) == ([], [])


async def test_nothing_stays_open_if_the_server_cannot_be_announced(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, telemetry: list[str]
) -> None:
    monkeypatch.setattr(servers, "announced", _broken)
    await failed_start(tmp_path)
    assert (open_below(tmp_path), telemetry) == ([], ["begun", "ended"])


async def test_one_part_that_cannot_be_closed_keeps_no_other_open(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, telemetry: list[str]
) -> None:
    close = FileStore.aclose

    async def close_and_fail(store: FileStore) -> None:
        await close(store)
        raise Broken

    monkeypatch.setattr(FileStore, "aclose", close_and_fail)
    await failed_start(tmp_path)
    assert (open_below(tmp_path), telemetry) == ([], ["begun", "ended"])
    assert list((tmp_path / "servers").iterdir()) == []
