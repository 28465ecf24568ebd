"""config.toml and requirements.toml are read when they have changed, and only then."""

import os
from pathlib import Path

import anyio
import pytest

from app_server.config.effective import ConfigSources, Configuration
from app_server.config.unchanged import ABSENT, SETTLED_S, is_settled, stamp_of
from app_server.config.values import ConfigError
from tests.support.event_loop.no_worker import no_worker_free
from tests.support.harness import serve

WAIT_S = 60.0
LATER_NS = int(10 * SETTLED_S * 1e9)


def configuration(home: Path, ahead_ns: int) -> Configuration:
    sources = ConfigSources(home, home, home / "requirements.toml", {"over": 1})
    return Configuration(sources, ahead_ns=ahead_ns)


async def test_files_that_have_not_changed_are_not_read_again(tmp_path: Path) -> None:
    (tmp_path / "config.toml").write_text('a = "one"')
    settings = configuration(tmp_path, LATER_NS)
    assert (await settings.read()).document == {"a": "one", "over": 1}
    with anyio.fail_after(WAIT_S):
        async with no_worker_free():
            again = await settings.read({"b": 2})
    assert again.document == {"a": "one", "over": 1, "b": 2}
    again.document["a"] = "spoilt"
    assert (await settings.read()).document == {"a": "one", "over": 1}


async def test_files_that_have_changed_are_read(tmp_path: Path) -> None:
    file, demands = tmp_path / "config.toml", tmp_path / "requirements.toml"
    settings = configuration(tmp_path, LATER_NS)
    assert (await settings.read()).document == {"over": 1}
    file.write_text("a = 1")
    assert (await settings.read()).document == {"a": 1, "over": 1}
    new = tmp_path / "new.toml"
    new.write_text("a = 2")
    new.replace(file)
    assert (await settings.read()).document == {"a": 2, "over": 1}
    demands.write_text('allowed_sandbox_modes = ["read-only"]')
    demanded = (await settings.read()).requirements
    assert demanded is not None
    assert demanded.document == {"allowed_sandbox_modes": ["read-only"]}
    file.write_text("a =")
    for _ in range(2):
        with pytest.raises(ConfigError):
            await settings.read_as_is()
        # The last one that could be used stands in for it; nothing does for demands.
        assert (await settings.read()).document == {"a": 2, "over": 1}
    demands.write_text('allowed_approval_policies = ["never"]')
    demanded = (await settings.read()).requirements
    assert demanded is not None
    assert demanded.document == {"allowed_approval_policies": ["never"]}
    demands.write_text("a =")
    with pytest.raises(ConfigError, match="requirements"):
        await settings.read()
    demands.unlink()
    file.unlink()
    assert (await settings.read()).document == {"over": 1}


async def test_nothing_stands_in_for_files_that_could_never_be_used(tmp_path: Path) -> None:
    file = tmp_path / "config.toml"
    settings = configuration(tmp_path, LATER_NS)
    for text in ("a =", "b ="):
        file.write_text(text)
        with pytest.raises(ConfigError):
            await settings.read()
    file.write_text("a = 1")
    assert (await settings.read()).document == {"a": 1, "over": 1}
    file.write_text("c =")
    assert (await settings.read()).document == {"a": 1, "over": 1}


async def test_a_file_that_was_changed_a_moment_ago_is_read_again(tmp_path: Path) -> None:
    """Its next version may have the same length, and the same time on a coarse clock."""
    file = tmp_path / "config.toml"
    file.write_text("a = 1")
    settings = configuration(tmp_path, -LATER_NS)
    assert (await settings.read()).document["a"] == 1
    seen = file.stat()
    file.write_text("a = 2")
    os.utime(file, ns=(seen.st_atime_ns, seen.st_mtime_ns))
    assert (await settings.read()).document["a"] == 2


def test_what_a_stamp_says(tmp_path: Path) -> None:
    file = tmp_path / "config.toml"
    assert stamp_of(file) == ABSENT
    assert is_settled(ABSENT, LATER_NS)
    assert stamp_of(tmp_path / ("x" * 5000)) is None
    assert not is_settled(None, LATER_NS)
    file.write_text("a = 1")
    stamp = stamp_of(file)
    assert stamp is not None
    assert not is_settled(stamp, stamp.changed_ns + int(SETTLED_S * 1e9))
    assert is_settled(stamp, stamp.changed_ns + int(SETTLED_S * 1e9) + 1)


async def test_an_empty_list_of_mcp_servers_needs_no_worker_thread(tmp_path: Path) -> None:
    async with serve(tmp_path) as served, served.client() as client:
        (tmp_path / "config.toml").unlink()
        first = await client.call("mcpServerStatus/list", {})
        assert first == {"data": [], "nextCursor": None}
        with anyio.fail_after(WAIT_S):
            async with no_worker_free():
                assert await client.call("mcpServerStatus/list", {}) == first
