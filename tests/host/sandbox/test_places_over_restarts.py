"""Places that commands swapped before `kill -9`: the next server holds what the policy meant."""

import json
import signal
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest

from tests.support.harness import WireClient, claim, write_config
from tests.support.host.sandboxes import working_sandbox
from tests.support.model import ScriptedModel, calls, says
from tests.support.processes import running
from tests.support.turn_tools.turn_commands import CommandResult, command

pytestmark = pytest.mark.process


@dataclass
class Life:
    """One server process of a home, and a client of it."""

    root: Path
    model: ScriptedModel
    client: WireClient

    async def turn(self, thread_id: str, line: str, **params: Any) -> str:
        """Run a turn with one command; gives what the model read."""
        self.model.scripts[:] = [calls({"call_id": "c", **command(line)}), says("done")]
        content = [{"type": "text", "text": "go"}]
        await self.client.call("turn/start", {"threadId": thread_id, "input": content, **params})
        await self.client.until("turn/completed")
        texts = [
            item["output"]
            for item in self.model.requests[-1]["input"]
            if item["type"] == "function_call_output"
        ]
        return str(texts[-1])

    async def done(self, thread_id: str, line: str, **params: Any) -> None:
        """Run a command that succeeds."""
        result = CommandResult(await self.turn(thread_id, line, **params))
        assert result.exit_code == 0, result.output


@dataclass
class Machine:
    """Folders of a user, and servers that are killed."""

    root: Path
    model: ScriptedModel
    variables: dict[str, str] = field(default_factory=dict)

    def __post_init__(self) -> None:
        for name in ("server", "ws/sub", "home", "tmp"):
            (self.root / name).mkdir(parents=True)
        write_config(self.root / "server", self.model.url)

    @property
    def ws(self) -> Path:
        return self.root / "ws"

    @property
    def outside(self) -> Path:
        """What no policy names."""
        return self.root / "home"

    def policy(self, *roots: Path, tmpdir: bool = False) -> dict[str, Any]:
        return {
            "sandboxPolicy": {
                "type": "workspaceWrite",
                "writableRoots": list(map(str, roots)),
                "excludeSlashTmp": True,
                "excludeTmpdirEnvVar": not tmpdir,
            }
        }

    @asynccontextmanager
    async def life(self) -> AsyncIterator[Life]:
        """Start a server, which is killed in the end."""
        async with running(self.root / "server", **self.variables) as server:
            async with server.client() as client:
                yield Life(self.root, self.model, client)
            server.process.send_signal(signal.SIGKILL)
            await server.ended()


@asynccontextmanager
async def machine(root: Path, **variables: str) -> AsyncIterator[Machine]:
    working_sandbox()
    async with ScriptedModel().serve() as model:
        yield Machine(root.resolve(), model, variables)


@claim("sandbox:places")
@pytest.mark.parametrize("way", ["resume", "fork"])
@pytest.mark.parametrize("place", ["ws/new", "tmp/new", "tmp/x"])
async def test_a_link_that_was_planted_where_nothing_was_is_no_place_after_a_restart(
    tmp_path: Path, place: str, way: str
) -> None:
    async with machine(tmp_path, TMPDIR=str(tmp_path.resolve() / "tmp" / "x")) as at:
        planted = at.root / place
        named = [at.root / "tmp"] if place == "tmp/x" else [at.root / "tmp", planted]
        policy = at.policy(*named, tmpdir=place == "tmp/x")
        async with at.life() as life:
            thread_id = await life.client.start_thread(cwd=str(at.ws), approvalPolicy="never")
            await life.done(thread_id, f"ln -s {at.outside} {planted}", **policy)
        async with at.life() as life:
            answer = await life.client.call(f"thread/{way}", {"threadId": thread_id})
            text = await life.turn(answer["thread"]["id"], f"echo x >{planted}/file")
            assert CommandResult(text).exit_code != 0, text
        assert list(at.outside.iterdir()) == []


@claim("sandbox:places")
@pytest.mark.parametrize("target", ["home", None])
@pytest.mark.parametrize("how", ["cwd", "root", "TMPDIR"])
async def test_a_place_of_another_thread_that_was_swapped_is_refused_after_a_restart(
    tmp_path: Path, how: str, target: str | None
) -> None:
    place = tmp_path.resolve() / "ws" / "sub"
    async with machine(tmp_path, TMPDIR=str(place) if how == "TMPDIR" else "/tmp") as at:
        cwd = place if how == "cwd" else at.outside.parent / "tmp"
        policy = at.policy(*([place] if how == "root" else []), tmpdir=how == "TMPDIR")
        async with at.life() as life:
            client = life.client
            other = await client.start_thread(cwd=str(cwd), approvalPolicy="never")
            await life.done(other, f"echo 1 >{place}/file", **policy)
            thread_id = await client.start_thread(cwd=str(at.ws), approvalPolicy="never")
            put = "mkdir sub" if target is None else f"ln -s {at.root / target} sub"
            await life.done(thread_id, f"mv sub sub.2; {put}", **at.policy())
        async with at.life() as life:
            await life.client.call("thread/resume", {"threadId": other})
            text = await life.turn(other, f"echo 2 >{place}/file")
            if target is None:
                assert f"`{place}` is not the folder that it was" in text
                # Named again it may be used.
                await life.done(other, f"echo 2 >{place}/file", cwd=str(cwd), **policy)
            else:
                assert f"`{place}` led to `{place}` when the sandbox was set" in text
                text = await life.turn(other, "true", cwd=str(cwd), **policy)
                assert f"and leads to `{at.outside}` now" in text
                # A thread that has no log of the place meets the same one.
                new = await life.client.start_thread(cwd=str(cwd), approvalPolicy="never")
                assert f"`{place}` led to `{place}`" in await life.turn(new, "true", **policy)
        assert list(at.outside.iterdir()) == []


async def test_a_workspace_that_its_user_makes_anew_is_used_after_a_restart(
    tmp_path: Path,
) -> None:
    async with machine(tmp_path) as at:
        async with at.life() as life:
            thread_id = await life.client.start_thread(cwd=str(at.ws), approvalPolicy="never")
            await life.done(thread_id, "echo 1 >file", **at.policy())
        at.ws.rename(at.root / "old")
        at.ws.mkdir()
        async with at.life() as life:
            await life.client.call("thread/resume", {"threadId": thread_id})
            await life.done(thread_id, "echo 2 >file")
        assert [path.name for path in at.ws.iterdir()] == ["file"]


@pytest.mark.parametrize("way", ["resume", "fork"])
async def test_a_place_that_a_resume_names_is_used_as_it_is(tmp_path: Path, way: str) -> None:
    async with machine(tmp_path) as at:
        place = at.ws / "sub"
        async with at.life() as life:
            other = await life.client.start_thread(cwd=str(place), approvalPolicy="never")
            await life.done(other, "echo 1 >file", **at.policy())
            thread_id = await life.client.start_thread(cwd=str(at.ws), approvalPolicy="never")
            await life.done(thread_id, "mv sub sub.2; mkdir sub", **at.policy())
        async with at.life() as life:
            params = {"threadId": other, "cwd": str(place)}
            answer = await life.client.call(f"thread/{way}", params)
            await life.done(answer["thread"]["id"], "echo 2 >file")


async def test_a_home_on_another_machine_keeps_nobody_from_its_folders(tmp_path: Path) -> None:
    async with machine(tmp_path) as at:
        place = at.ws / "sub"
        async with at.life() as life:
            other = await life.client.start_thread(cwd=str(place), approvalPolicy="never")
            await life.done(other, "echo 1 >file", **at.policy())
            thread_id = await life.client.start_thread(cwd=str(at.ws), approvalPolicy="never")
            await life.done(thread_id, "true", **at.policy())
        # The folders are copies there, on another disk.
        place.rename(at.ws / "old")
        place.mkdir()
        stored = at.root / "server" / "places.jsonl"
        lines = [json.loads(line) for line in stored.read_text().splitlines()]
        for line in lines:
            if line.get("identity") is not None:
                line["identity"][0] += 1
        stored.write_text("".join(f"{json.dumps(line)}\n" for line in lines))
        async with at.life() as life:
            await life.client.call("thread/resume", {"threadId": other})
            await life.done(other, "echo 2 >file")
