"""Identity of the machine."""

from pathlib import Path

import pytest

from app_server.runtime.machine import machine_name


def test_a_machine_is_named_by_a_digest_of_its_id(tmp_path: Path) -> None:
    file = tmp_path / "machine-id"
    file.write_text("0123456789abcdef0123456789abcdef\n")
    name = machine_name(file)
    assert name == "1d0ebc0b5baff063e00698ce73d6455a"
    file.unlink()
    assert machine_name(file) == name


@pytest.mark.parametrize("content", [None, "", "\n"])
def test_a_machine_without_an_id_has_no_name(tmp_path: Path, content: str | None) -> None:
    file = tmp_path / "machine-id"
    if content is not None:
        file.write_text(content)
    assert machine_name(file) is None
