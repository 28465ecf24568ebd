"""Modules that are not installed are looked for once, and those that are can be imported."""

import subprocess
import sys
from importlib.machinery import ModuleSpec
from pathlib import Path

import pytest

from app_server.runtime.http.absent_modules import ASKED_FOR, note_absent
from tests.support.harness import serve


class Watch:
    """A finder that finds nothing and keeps what was looked for."""

    def __init__(self) -> None:
        self.names: list[str] = []

    def find_spec(self, name: str, path: object, target: object = None) -> ModuleSpec | None:
        self.names.append(name)
        return None


@pytest.fixture
def looked_for(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    watch = Watch()
    monkeypatch.setattr(sys, "meta_path", [watch, *sys.meta_path])
    return watch.names


def test_one_that_is_not_installed_is_looked_for_once(looked_for: list[str]) -> None:
    name = "not_installed_anywhere"
    try:
        for _ in range(2):
            note_absent((name,), ())
            with pytest.raises(ModuleNotFoundError):
                __import__(name)
    finally:
        sys.modules.pop(name, None)
    assert looked_for == [name]


def test_one_that_is_installed_stays_importable(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delitem(sys.modules, "this", raising=False)
    note_absent(("this", "sys"), ("sys",))
    assert "this" not in sys.modules
    assert __import__("sys") is sys


@pytest.mark.process
def test_httpx_comes_without_its_command_line() -> None:
    code = (
        "import sys; from app_server.runtime.http.absent_modules import note_absent; "
        "note_absent(); "
        "import httpx; httpx.AsyncClient; print([n for n in ('click', 'rich') if n in sys.modules])"
    )
    argv = [sys.executable, "-c", code]
    assert subprocess.run(argv, capture_output=True, check=True, text=True).stdout == "[]\n"


async def test_turns_look_for_none_of_them(tmp_path: Path, looked_for: list[str]) -> None:
    async with serve(tmp_path) as served, served.client() as client:
        thread_id = await client.start_thread()
        looked_for.clear()
        await client.turn(thread_id, "Hello.")
        assert [name for name in looked_for if name in ASKED_FOR] == []
