"""protocol: what the types are for authors of clients, who check theirs with `mypy --strict`."""

import subprocess
import sys
from pathlib import Path
from typing import get_args

import pytest
from pydantic import TypeAdapter
from pydantic.fields import FieldInfo

from protocol.export.definitions import load_types
from protocol.model import JsonObject, UnknownVariant
from protocol.turns.items import ThreadItem
from tests.protocol import typed_client

CLIENT = Path(typed_client.__file__)


def mypy(tmp_path: Path, text: str) -> tuple[int, str]:
    """Check a client without this repository's settings; returns the exit status and the report."""
    client, settings = tmp_path / "client.py", tmp_path / "mypy.ini"
    client.write_text(text)
    settings.write_text("[mypy]\n")
    command = [sys.executable, "-m", "mypy", "--strict", "--config-file", str(settings)]
    command += ["--cache-dir", str(tmp_path / "cache"), str(client)]
    ran = subprocess.run(command, capture_output=True, text=True, check=False, timeout=240)
    return ran.returncode, ran.stdout + ran.stderr


@pytest.mark.process
def test_a_client_that_narrows_items_by_type_passes_strict_checks(tmp_path: Path) -> None:
    text = CLIENT.read_text()
    assert mypy(tmp_path, text) == (0, "Success: no issues found in 1 source file\n")
    left_out = text.replace(
        '        case "sleep":\n            return f"{item.duration_ms} ms"\n', ""
    )
    status, report = mypy(tmp_path, left_out)
    assert status == 1
    assert 'to "assert_never" has incompatible type "Literal[\'sleep\']"' in report


@pytest.mark.parametrize(
    ("item", "line"),
    [
        ({"type": "agentMessage", "id": "a", "text": "hello"}, "hello"),
        ({"type": "sleep", "id": "a", "durationMs": 5}, "5 ms"),
        ({"type": "ofTomorrow", "id": "a", "x": [1]}, "unknown: ofTomorrow"),
        ({"type": 5}, "unknown: 5"),
    ],
)
def test_a_client_reads_items_by_type(item: JsonObject, line: str) -> None:
    read = TypeAdapter(ThreadItem).validate_python(item)
    assert typed_client.shown(read) == line
    if isinstance(read, UnknownVariant):
        assert read.model_dump() == item


def test_unknown_alternatives_have_each_member_that_tells_alternatives_apart() -> None:
    tags = set()
    for alias in load_types().values():
        union, *_ = get_args(getattr(alias, "__value__", None)) or (None,)
        if UnknownVariant in get_args(union):
            marks = [mark for one in get_args(union) for mark in getattr(one, "__metadata__", ())]
            tags |= {mark.discriminator for mark in marks if isinstance(mark, FieldInfo)}
    assert {tag: getattr(UnknownVariant, tag) for tag in map(str, tags)} == {
        "type": None,
        "mode": None,
        "handler_type": None,
    }
