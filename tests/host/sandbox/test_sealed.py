"""Secrets of a server that are made or replaced while a confined command runs."""

import asyncio
import os
from pathlib import Path

import anyio
import anyio.to_thread
import pytest

from app_server.host.sandbox.linux import sandbox as module
from app_server.host.sandbox.linux.sandbox import Sealed, sealed
from app_server.permissions.sandbox.policy import EffectivePolicy
from app_server.runtime.files.secret import write_private
from tests.support.files.fifos import read_fifo, write_fifo
from tests.support.harness import WAIT_S, claim
from tests.support.host.sandboxes import make_victim, run_confined

SCRIPT = """
cd {home}
cat config.toml
echo >{work}/ready
read x <{work}/go
cat auth.json .credentials.json auth.json.0f later
cat skills/later config.toml
touch mine
ls -A
"""


@pytest.mark.process
@claim("sandbox:secrets")
async def test_a_secret_that_comes_while_a_command_runs_is_not_read(tmp_path: Path) -> None:
    victim = make_victim(tmp_path / "machine")
    home = Path(victim.machine_paths.home)
    (home / "skills").mkdir(exist_ok=True)
    (home / "nowhere").symlink_to("/nowhere")
    (home / "config.toml").write_text("settings\n")
    write_private(home / "auth.json", b"SECRET\n")
    for name in ("ready", "go"):
        os.mkfifo(victim.work / name)
    script = SCRIPT.format(home=home, work=victim.work)
    running = asyncio.create_task(
        run_confined(("/bin/sh", "-c", script), victim.work, victim.sandbox_policy())
    )
    with anyio.fail_after(WAIT_S):
        await read_fifo(victim.work / "ready")
        write_private(home / "auth.json", b"SECRET\n")
        write_private(home / ".credentials.json", b"SECRET\n")
        for name in ("auth.json.0f", "later"):
            (home / name).write_text("SECRET\n")
        (home / "skills" / "later").write_text("a skill\n")
        await write_fifo(victim.work / "go", "\n")
        ended = await running
    seen = ended.out.splitlines()
    assert seen[:3] == ["settings", "a skill", "settings"]
    assert "mine" not in seen
    assert not {"auth.json", ".credentials.json", "auth.json.0f", "later"} & set(seen)
    assert {"skills", "config.toml"} <= set(seen)
    assert "SECRET" not in ended.out
    assert (home / "auth.json").read_bytes() == b"SECRET\n"


def names(found: Sealed, home: Path) -> set[str]:
    return {Path(entry).relative_to(home).as_posix() for entry in found.entries}


def test_only_a_home_that_is_shown_is_made_anew(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    home = tmp_path / "home"
    home.mkdir()
    for name in ("auth.json", "auth.json.bak", ".credentials.json.0f", "a", "b"):
        (home / name).write_text("")
    secret = (str(home / "auth.json"),)
    shown = EffectivePolicy(writable=(), denied=secret, network=False)
    found = sealed(shown)
    assert names(found, home) == {"a", "b"}
    assert set(found.sandbox_policy.denied) == {*secret, str(home)}
    assert set(found.sandbox_policy.readable or ()) == {"/", *found.entries}
    for other in (
        EffectivePolicy(writable=(), readable=("/usr",), denied=secret),
        EffectivePolicy(writable=(str(home),), denied=secret),
        EffectivePolicy(writable=(), denied=(str(home / "a"),)),
        EffectivePolicy(writable=(), denied=(*secret, str(home))),
        EffectivePolicy(writable=(), denied=(str(tmp_path / "gone" / "auth.json"),)),
    ):
        kept = sealed(other)
        assert kept.entries == frozenset()
        assert set(other.denied) <= set(kept.sandbox_policy.denied)
    monkeypatch.setattr(module, "MAX_ENTRIES", 1)
    assert sealed(shown) == Sealed(shown, frozenset())
