"""Identity of the machine."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from app_server.runtime import machine
from app_server.runtime.machine import machine_name


@pytest.fixture
def file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    monkeypatch.setattr(machine, "MACHINE_ID", tmp_path / "machine-id")
    machine_name.cache_clear()
    yield tmp_path / "machine-id"
    machine_name.cache_clear()


def test_a_machine_is_named_by_a_digest_of_its_id(file: Path) -> None:
    file.write_text("0123456789abcdef0123456789abcdef\n")
    name = machine_name()
    assert name == "1d0ebc0b5baff063e00698ce73d6455a"
    file.unlink()
    assert machine_name() == name


@pytest.mark.parametrize("content", [None, "", "\n"])
def test_a_machine_without_an_id_has_no_name(file: Path, content: str | None) -> None:
    if content is not None:
        file.write_text(content)
    assert machine_name() is None
