"""turns.approval.asking: what is left of a question that is interrupted, or the disk refuses."""

from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass, field
from types import SimpleNamespace
from typing import Any, cast

import anyio
import anyio.lowlevel
import pytest

from app_server.runtime.clock import SystemClock
from app_server.turns.approval.asking import (
    Decision,
    HookedTool,
    OpenQuestion,
    Question,
    ThreadQuestions,
)
from protocol.log.rollout import ApprovalDecided
from protocol.model import WireModel
from tests.support.harness import WAIT_S

FULL = OSError(28, "No space left on device")


class AnyQuestion(Question):
    """A question that every answer allows."""

    def read(self, answer: WireModel, client: str | None) -> Decision:
        return Decision(is_allowed=True, by="user", word="accept", client=client)


@dataclass
class Place:
    """A thread whose hook, user and disk do what a test says; `seen` is what happened."""

    hook_hangs: bool = False
    user_hangs: bool = False
    is_full: bool = False
    has_hook: bool = False
    seen: list[str] = field(default_factory=list)

    def questions(self) -> ThreadQuestions:
        hooks = SimpleNamespace(listens=lambda event: self.has_hook, fire=self.fire)
        in_force = SimpleNamespace(approvals_reviewer="user")
        state = SimpleNamespace(in_force=in_force)
        return ThreadQuestions(
            log=cast(Any, SimpleNamespace(id="t", state=state, append=self.append)),
            clients=cast(Any, SimpleNamespace(ask=self.ask)),
            reviewer=cast(Any, None),
            clock=SystemClock(),
            status=cast(Any, SimpleNamespace(waiting_on=self.waiting)),
            timeout_s=None,
            hooks=cast(Any, hooks),
        )

    def question(self) -> AbstractContextManager[OpenQuestion]:
        return self.questions().open(
            AnyQuestion(
                action="command",
                turn_id="turn",
                item_id="item",
                subject="ls",
                method="ask",
                params=WireModel(),
                planned=cast(Any, None),
                hooked=HookedTool(name="Bash", input={}),
            )
        )

    @contextmanager
    def waiting(self, flag: str) -> Iterator[None]:
        assert flag == "waitingOnApproval"
        self.seen.append("waiting")
        try:
            yield
        finally:
            self.seen.append("waited")

    async def fire(self, *_: object, **__: object) -> SimpleNamespace:
        self.seen.append("hook")
        if self.hook_hangs:
            await anyio.sleep_forever()
        return SimpleNamespace(blocked=None, allows=False)

    async def ask(self, *_: object) -> tuple[WireModel, str]:
        self.seen.append("asked")
        if self.user_hangs:
            await anyio.sleep_forever()
        return WireModel(), "client"

    async def append(self, record: ApprovalDecided, *, sync: bool) -> None:
        await anyio.lowlevel.checkpoint()
        self.seen.append(f"{record.decision} by {record.by}")
        if self.is_full:
            raise FULL


@pytest.mark.parametrize(
    ("place", "seen"),
    [
        (Place(), ["waiting", "asked", "accept by user", "waited"]),
        (Place(has_hook=True), ["hook", "waiting", "asked", "accept by user", "waited"]),
    ],
    ids=["of the user", "of a hook, then of the user"],
)
async def test_a_question_is_recorded_while_the_status_shows_it(
    place: Place, seen: list[str]
) -> None:
    with place.question() as open_question:
        decision = await open_question.decide()
    assert (decision.is_allowed, place.seen) == (True, seen)


@pytest.mark.parametrize("has_hook", [False, True])
async def test_what_the_disk_does_not_take_is_not_allowed(has_hook: bool) -> None:
    place = Place(is_full=True, has_hook=has_hook)
    with pytest.raises(OSError, match="No space"), place.question() as open_question:
        await open_question.decide()
    assert place.seen[-2:] == ["accept by user", "waited"]


@pytest.mark.parametrize(
    ("place", "seen"),
    [
        (Place(user_hangs=True), ["waiting", "asked", "cancel by server", "waited"]),
        (
            Place(user_hangs=True, is_full=True),
            ["waiting", "asked", "cancel by server", "waited"],
        ),
        (
            Place(has_hook=True, user_hangs=True),
            ["hook", "waiting", "asked", "cancel by server", "waited"],
        ),
        # Nothing was put to a user or a reviewer.
        (Place(has_hook=True, hook_hangs=True), ["hook"]),
    ],
    ids=["the user", "the user, and the disk is full", "the user after a hook", "a hook"],
)
async def test_an_interrupted_question_is_recorded_as_withdrawn_and_leaves_the_status(
    place: Place, seen: list[str]
) -> None:
    with anyio.fail_after(WAIT_S), anyio.CancelScope() as scope:
        async with anyio.create_task_group() as tasks:

            async def decide() -> None:
                with place.question() as open_question:
                    await open_question.decide()

            tasks.start_soon(decide)
            await anyio.wait_all_tasks_blocked()
            scope.cancel()
    assert (scope.cancelled_caught, place.seen) == (True, seen)


async def test_the_end_of_a_turn_withdraws_its_questions_alone() -> None:
    place, left = Place(user_hangs=True), list[str]()
    questions = place.questions()

    async def ask(turn_id: str | None) -> None:
        with questions.withdrawn_with(turn_id) as scope:
            await anyio.sleep_forever()
        assert scope.cancelled_caught
        left.append(str(turn_id))

    with anyio.fail_after(WAIT_S):
        async with anyio.create_task_group() as tasks:
            for turn_id in ("a", "b", None):
                tasks.start_soon(ask, turn_id)
            await anyio.wait_all_tasks_blocked()
            questions.turn_ended("a")
            await anyio.wait_all_tasks_blocked()
            tasks.cancel_scope.cancel()
    assert left == ["a"]
