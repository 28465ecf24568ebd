"""Writes to config.toml lose nothing: comments, line ends, what others write, killed processes."""

import os
import signal
import subprocess
import sys
import tempfile
import tomllib
from collections.abc import Iterator, Sequence
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from app_server.config.config_toml import read_config
from app_server.config.editing.file import UNFINISHED, ConfigFile
from app_server.config.editing.toml_edit import remove, set_value
from tests.support.harness import WAIT_S, claim, serve

# Text.

NAMES = ("a", "b", "c")
TABLE = st.fixed_dictionaries(
    {
        "above": st.lists(st.sampled_from(["# one", "  # two", ""]), max_size=3),
        "keys": st.lists(st.sampled_from(["x = 1", "y = { z = 1 } # y", "# in"]), max_size=3),
    }
)


def text_of(tables: Sequence[dict[str, list[str]]], end: str) -> str:
    lines: list[str] = ["# top", "model = 'm'", "mystery = true"]
    for number, (name, table) in enumerate(zip(NAMES, tables, strict=False)):
        lines += [f"{line}{number}" if line else line for line in table["above"]]
        lines += [f"[{name}] # {name}", *dict.fromkeys(table["keys"])]
    return "".join(f"{line}{end}" for line in lines)


def comments(text: str) -> list[str]:
    return [line.strip() for line in text.splitlines() if line.strip().startswith("#")]


@given(
    tables=st.lists(TABLE, min_size=1, max_size=3),
    end=st.sampled_from(["\n", "\r\n"]),
    path=st.sampled_from([("model",), ("new",), ("a", "x"), ("b", "y", "z"), ("c", "n"), ("d",)]),
    value=st.sampled_from(["v", 5, {"k": {"j": 1}}, ["l"]]),
)
def test_a_value_that_is_set_costs_no_comment_and_no_line_end(
    tables: Sequence[dict[str, list[str]]], end: str, path: tuple[str, ...], value: object
) -> None:
    text = text_of(tables, end)
    edited = set_value(text, path, value)
    assert [line for line in comments(text) if line not in comments(edited)] == []
    assert edited.count("\n") == edited.count(end)
    assert tomllib.loads(edited)["mystery"] is True


@given(
    tables=st.lists(TABLE, min_size=1, max_size=3),
    end=st.sampled_from(["\n", "\r\n"]),
    name=st.sampled_from(NAMES),
)
def test_a_removed_table_leaves_the_comments_of_others(
    tables: Sequence[dict[str, list[str]]], end: str, name: str
) -> None:
    text = text_of(tables, end)
    edited = remove(text, (name,))
    lost = [line for line in comments(text) if line not in comments(edited)]
    own = tables[NAMES.index(name)]["above"] if NAMES.index(name) < len(tables) else []
    assert [line for line in lost if line != "# in" and line[:-1] not in "".join(own)] == []
    assert edited.count("\n") == edited.count(end)


def test_comments_above_the_next_table_stay_with_it() -> None:
    text = "# of a\n[a]\nx = 1\n# in a\n\n# of b\n\n# more of b\n[b]\n[a.c]\n# of d\n[d]\n"
    assert remove(text, ("a",)) == "# of a\n# in a\n\n# of b\n\n# more of b\n[b]\n# of d\n[d]\n"


async def test_a_byte_order_mark_is_read_over_and_stays(tmp_path: Path) -> None:
    file = tmp_path / "config.toml"
    file.write_bytes(b'\xef\xbb\xbfmodel = "m"\r\n')
    assert read_config(file).document == {"model": "m"}
    await ConfigFile(tmp_path).write(["model"], "n")
    assert file.read_bytes() == b'\xef\xbb\xbfmodel = "n"\r\n'


async def test_clients_write_into_a_file_of_windows(tmp_path: Path) -> None:
    async with serve(tmp_path) as served, served.client() as client:
        file = tmp_path / "config.toml"
        text = file.read_text().replace("\n", "\r\n")
        file.write_bytes(text.encode())
        edit = {"keyPath": "review_model", "value": "r", "mergeStrategy": "replace"}
        await client.call("config/value/write", edit)
        written = file.read_bytes().decode()
        assert written.count("\n") == written.count("\r\n") == text.count("\n") + 1
        assert tomllib.loads(written) == {**tomllib.loads(text), "review_model": "r"}


# Processes.

WRITER = """
import asyncio, encodings.idna, os, sys
from pathlib import Path
from app_server.config.editing import toml_edit
from app_server.config.values import NotRecorded
from app_server.config.editing.file import ConfigFile

home = Path(sys.argv[1])
"""

KEYS_OF_ONE = """
async def main():
    for number in range(15):
        keys = ["projects", f"/{sys.argv[2]}/{number}", "trust_level"]
        await ConfigFile(home).write(keys, "trusted")
asyncio.run(main())
"""

KILLED = """
import pathlib, signal
real = getattr(os, "fsync"), pathlib.Path.replace
def die(*arguments):
    if sys.argv[2] == "replaced":
        real[1](*arguments)
    os.kill(os.getpid(), signal.SIGKILL)
if sys.argv[2] == "flushing":
    os.fsync = die
else:
    pathlib.Path.replace = die
asyncio.run(ConfigFile(home).write(["model"], "new"))
"""

READ_ONLY = """
import tempfile
if os.geteuid() == 0:
    # The superuser may write what is read-only. Others may not read what is imported late, if this
    # checkout is in the superuser's home.
    with tempfile.TemporaryDirectory() as other:
        asyncio.run(ConfigFile(Path(other)).write(["model"], "new"))
    os.setuid(65534)
try:
    asyncio.run(ConfigFile(home).write(["model"], "new"))
except NotRecorded as exc:
    print(exc)
"""


def python(script: str, *arguments: str) -> "subprocess.Popen[str]":
    command = [sys.executable, "-c", WRITER + script, *arguments]
    return subprocess.Popen(command, stdout=subprocess.PIPE, text=True)


@pytest.mark.process
@claim("config:write-lossless")
def test_two_processes_that_write_at_once_lose_nothing(tmp_path: Path) -> None:
    real = tmp_path / "dotfiles" / "mine.toml"
    real.parent.mkdir()
    real.write_text("# mine\nmystery = 1 # stays\n")
    (tmp_path / "config.toml").symlink_to(real)
    writers = [python(KEYS_OF_ONE, str(tmp_path), name) for name in ("one", "other")]
    for writer in writers:
        writer.communicate(timeout=WAIT_S)
    assert [writer.returncode for writer in writers] == [0, 0]
    text = real.read_text()
    assert text.startswith("# mine\nmystery = 1 # stays\n")
    wanted = {f"/{name}/{number}" for name in ("one", "other") for number in range(15)}
    assert set(tomllib.loads(text)["projects"]) == wanted
    assert [path.name for path in real.parent.iterdir()] == ["mine.toml"]


@pytest.mark.process
@claim("config:write-lossless")
@pytest.mark.parametrize(
    ("point", "model"), [("flushing", "old"), ("replacing", "old"), ("replaced", "new")]
)
async def test_a_process_that_is_killed_within_a_write_leaves_the_old_file_or_the_new_one(
    tmp_path: Path, point: str, model: str
) -> None:
    file = tmp_path / "config.toml"
    file.write_text('# mine\nmodel = "old"\n')
    (tmp_path / ".config.toml.swp").touch()
    writer = python(KILLED, str(tmp_path), point)
    writer.communicate(timeout=WAIT_S)
    assert writer.returncode == -signal.SIGKILL
    assert file.read_text() == f'# mine\nmodel = "{model}"\n'
    left = [path for path in tmp_path.iterdir() if path.name.endswith(UNFINISHED)]
    # Nobody may read it who may not read the file.
    assert [path.stat().st_mode for path in left] == [file.stat().st_mode] * (model == "old")
    # The next write is not disturbed, and clears away; what an editor has there stays.
    await ConfigFile(tmp_path).write(["model"], "newer")
    assert file.read_text() == '# mine\nmodel = "newer"\n'
    assert sorted(path.name for path in tmp_path.iterdir()) == [".config.toml.swp", "config.toml"]


@pytest.fixture
def open_folder() -> Iterator[Path]:
    """Make a folder that every user may write to."""
    with tempfile.TemporaryDirectory() as name:
        Path(name).chmod(0o777)
        yield Path(name)


@pytest.mark.process
def test_a_file_that_is_read_only_is_not_replaced(open_folder: Path) -> None:
    file = open_folder / "config.toml"
    file.write_text('model = "old"\n')
    file.chmod(0o444)
    if os.geteuid() == 0:
        os.chown(file, 65534, 65534)
    writer = python(READ_ONLY, str(open_folder))
    text, _ = writer.communicate(timeout=WAIT_S)
    assert (text, writer.returncode) == (f"{file}: Permission denied\n", 0)
    assert file.read_text() == 'model = "old"\n'
    assert [path.name for path in open_folder.iterdir()] == ["config.toml"]
