"""Named requests whose server is killed at each step of the first try, and that are sent again."""

import shutil
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import anyio
import pytest

from protocol.contract.methods import METHODS
from protocol.contract.specs import ONCE
from tests.support.again.cases import named, requests
from tests.support.again.dying import dying
from tests.support.again.scene import WAITS, Scene, scene_model, set_scene, text, world
from tests.support.harness import WireClient, claim, write_config
from tests.support.processes import running

CHANGING = [name for name, spec in METHODS.items() if spec.takes_operation]
QUICK = ("command/exec", "thread/name/set", "thread/start", "threadSection/delete", "turn/start")
"""Methods that every run of the tests tries."""
OFTEN = (
    "config/value/write",
    "process/spawn",
    "project/create",
    "signal/deliver",
    "thread/fork",
    "thread/queue/add",
)
"""Methods that `-m slow` tries: some of each effect; the others are for `-m long`."""
MAX_STEPS = 60
OF_HISTORY = ("signal/deliver", "thread/inject_items", "thread/prepareApprovedPlan")
OF_RUNNING_TURN = ("turn/interrupt", "turn/settings/update", "turn/steer")


class Trial(NamedTuple):
    """A request that was sent to a server which died, and twice to the next one."""

    first: Any
    """None: the server died before it answered."""
    second: Any
    third: Any
    left: Mapping[str, Any]
    """What is on disk at the end."""


async def outcome(client: WireClient, method: str, params: Any) -> Any:
    """Return the result of a request, or its error."""
    message = await client.answer(await client.request(method, params))
    return message.get("result", message.get("error"))


class Stage(NamedTuple):
    """A home with a scene, which each trial finds as it was."""

    home: Path
    template: Path
    scene: Scene

    async def enter(self, client: WireClient) -> None:
        """Load the threads of the scene."""
        for thread_id in self.scene.threads:
            params = {"threadId": thread_id, "excludeTurns": True}
            await outcome(client, "thread/resume", params)

    async def begin(self, client: WireClient, method: str) -> Any:
        """Make ready for a request, and return its params."""
        await self.enter(client)
        scene = self.scene
        if method in OF_RUNNING_TURN:
            params = {"threadId": scene.busy, "input": text(WAITS)}
            turn = (await client.call("turn/start", params))["turn"]
            await client.wait_for("item/agentMessage/delta", lambda p: p["threadId"] == scene.busy)
            scene = scene.with_turn(turn["id"])
        return named(requests(scene)[method])

    async def trial(self, method: str, step: int | None, *, is_sent: bool = True) -> Trial:
        """Send a request to a server that dies at a step, or behind its answer."""
        shutil.rmtree(self.home)
        shutil.copytree(self.template, self.home, symlinks=True)
        variables = {} if step is None else dying(step)
        first = second = third = None
        async with running(self.home, **variables) as server, server.client() as client:
            params = await self.begin(client, method)
            if is_sent:
                try:
                    first = await outcome(client, method, params)
                except (anyio.EndOfStream, anyio.BrokenResourceError):
                    await server.ended()
        async with running(self.home) as server, server.client() as client:
            await self.enter(client)
            if is_sent:
                second = await outcome(client, method, params)
                third = await outcome(client, method, params)
        left = world(self.home, with_history=method in OF_HISTORY)
        if method == "thread/queue/start":
            # Whether the next entry has become a turn, too, is chance.
            left = {"taken": taken(self.home, self.scene.queued[0])}
        return Trial(first, second, third, left)


def taken(home: Path, submission_id: str) -> int:
    """Count how often an entry of a queue became a turn."""
    lines = [
        line for log in (home / "threads").rglob("*.jsonl") for line in log.read_text().splitlines()
    ]
    return sum("submissionTaken" in line and submission_id in line for line in lines)


def effort(method: str) -> Sequence[pytest.MarkDecorator]:
    """Return the mark of the runs that try a method."""
    if method in QUICK:
        return ()
    return (pytest.mark.slow,) if method in OFTEN else (pytest.mark.long,)


@claim("again:operation-kill")
@pytest.mark.process
@pytest.mark.parametrize(
    "method",
    [pytest.param(name, marks=effort(name)) for name in CHANGING],
)
async def test_a_named_request_has_one_effect_whenever_its_server_is_killed(
    tmp_path: Path, method: str
) -> None:
    home, template = tmp_path / "home", tmp_path / "template"
    with scene_model() as model:
        async with model.serve():
            write_config(home, model.url)
            async with running(home) as server, server.client() as client:
                scene = await set_scene(home, client)
            shutil.copytree(home, template, symlinks=True)
            stage = Stage(home, template, scene)
            nothing = await stage.trial(method, None, is_sent=False)
            whole = await stage.trial(method, None)
            for step in range(MAX_STEPS):
                found = await stage.trial(method, step)
                assert found.third == found.second
                if found.first is not None:
                    break
                assert is_right(method, found, nothing, whole), (step, found, nothing, whole)
            else:
                raise AssertionError(f"{method} takes more than {MAX_STEPS} steps")
            # Before and behind what notes it, and what keeps an answer that is no error of `once`.
            assert step >= (2 if "code" in found.first and METHODS[method].effect is ONCE else 4)
            assert found.left == whole.left
            if METHODS[method].effect is not ONCE:
                assert found.second == found.first


def is_right(method: str, found: Trial, nothing: Trial, whole: Trial) -> bool:
    """Whether a request that was cut off has had its effect once, or says that nobody knows."""
    word = (found.second.get("data") or {}).get("code")
    if METHODS[method].effect is ONCE and word == "operationOutcomeUnknown":
        return found.left in (nothing.left, whole.left)
    if method in OF_RUNNING_TURN and "code" in found.second:
        # The turn has ended with its server, before the request was done.
        return found.left == nothing.left
    return sorted(found.second) == sorted(whole.first) and found.left == whole.left
