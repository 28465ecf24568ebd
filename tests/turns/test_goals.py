"""Goals: what they cost, when they end, and the turns that threads take by themselves."""

from pathlib import Path
from typing import Any

import pytest

from app_server.rpc.hub import Hub
from app_server.runtime.clock import SystemClock
from app_server.threads.log.live import LiveThread
from app_server.threads.log.state import begin
from app_server.turns.clients import ThreadClients
from app_server.turns.goals import Goals
from protocol.log.metadata import GoalChanged
from protocol.threads.thread import ThreadGoal
from tests.support.harness import WireClient, claim, serve
from tests.support.model import Gate, Refusal, calls, says
from tests.support.threads.stores import USAGE, created

NOBODY = "01990000-0000-7000-8000-000000000000"
USER_INPUT = [{"type": "text", "text": "hi"}]
COST = 13
"""Tokens of a scripted response that were not cached."""


async def set_goal(client: WireClient, thread_id: str, **params: Any) -> Any:
    """Set a goal and wait until it is told."""
    answer = await client.call("thread/goal/set", {"threadId": thread_id, **params})
    told = await client.wait_for("thread/goal/updated")
    assert told["params"] == {"threadId": thread_id, "turnId": None, "goal": answer["goal"]}
    return answer["goal"]


async def get_goal(client: WireClient, thread_id: str) -> Any:
    return (await client.call("thread/goal/get", {"threadId": thread_id}))["goal"]


def update_goal(status: str) -> list[Any]:
    return calls({"name": "update_goal", "arguments": {"status": status}})


@claim("goals:set", "goals:told")
async def test_a_goal_is_set_changed_and_cleared_and_announced_to_everybody(tmp_path: Path) -> None:
    async with (
        serve(tmp_path) as served,
        served.client() as client,
        served.client(experimental=False) as other,
    ):
        thread_id = await client.start_thread()
        assert await get_goal(client, thread_id) is None
        cleared = {"cleared": False}
        assert await client.call("thread/goal/clear", {"threadId": thread_id}) == cleared
        goal = await set_goal(
            client, thread_id, objective=" do it ", status="paused", tokenBudget=100
        )
        assert goal == {
            "threadId": thread_id,
            "objective": "do it",
            "status": "paused",
            "tokenBudget": 100,
            "tokensUsed": 0,
            "timeUsedSeconds": 0,
            "createdAt": goal["createdAt"],
            "updatedAt": goal["updatedAt"],
        }
        changed = await set_goal(client, thread_id, objective="other")
        assert changed == goal | {"objective": "other", "updatedAt": changed["updatedAt"]}
        changed = await set_goal(client, thread_id, tokenBudget=None, status="complete")
        assert (changed["tokenBudget"], changed["status"]) == (None, "complete")
        assert await get_goal(client, thread_id) == changed
        cleared = {"cleared": True}
        assert await client.call("thread/goal/clear", {"threadId": thread_id}) == cleared
        assert await get_goal(client, thread_id) is None
        told = await other.until("thread/goal/cleared")
        heard = [each for each in told if each["method"].startswith("thread/goal/")]
        assert [each["method"] for each in heard] == [
            *["thread/goal/updated"] * 3,
            "thread/goal/cleared",
        ]
        assert heard[-1]["params"] == {"threadId": thread_id}
        assert served.model.requests == []


@claim("goals:refused")
async def test_goals_that_make_no_sense_are_refused(tmp_path: Path) -> None:
    async with serve(tmp_path) as served, served.client() as client:
        thread_id = await client.start_thread()
        ephemeral = await client.start_thread(ephemeral=True)
        for params, message in (
            ({"objective": " "}, "goal objective must not be empty"),
            ({"objective": "x" * 4001}, "goal objective must be at most 4000 characters"),
            (
                {"objective": "o", "tokenBudget": 0},
                "goal budgets must be positive when provided",
            ),
            (
                {"status": "paused"},
                f"cannot update goal for thread {thread_id}: no goal exists",
            ),
            ({"threadId": NOBODY, "objective": "o"}, f"thread not found: {NOBODY}"),
            (
                {"threadId": ephemeral, "objective": "o"},
                f"ephemeral thread does not support goals: {ephemeral}",
            ),
        ):
            error = await client.refusal("thread/goal/set", {"threadId": thread_id, **params})
            assert (error.code, error.message) == (-32600, message)
        for thread, message in (
            (NOBODY, f"thread not found: {NOBODY}"),
            (ephemeral, f"ephemeral thread does not support goals: {ephemeral}"),
        ):
            error = await client.refusal("thread/goal/get", {"threadId": thread})
            assert error.message == message
        assert await get_goal(client, thread_id) is None


@claim("goals:budget", "goals:order")
async def test_a_thread_works_on_its_goal_until_the_budget_is_spent(tmp_path: Path) -> None:
    async with serve(tmp_path) as served, served.client() as client:
        thread_id = await client.start_thread()
        first = await client.turn(thread_id, "hi")
        await set_goal(client, thread_id, objective="work hard", tokenBudget=2 * COST)
        told = await client.until("turn/completed")
        told += await client.until("turn/completed")
        methods = [each["method"] for each in told]
        turn = [
            "thread/status/changed",
            "turn/started",
            "item/started",
            "item/agentMessage/delta",
            "item/completed",
            "thread/tokenUsage/updated",
            "thread/goal/updated",
        ]
        end = ["thread/status/changed", "turn/completed"]
        assert methods == [*turn, *end, *turn, "thread/readState/changed", *end]
        goals = [each["params"] for each in told if each["method"] == "thread/goal/updated"]
        turns = [each["params"]["turn"]["id"] for each in told if each["method"] == "turn/started"]
        assert [
            (each["turnId"], each["goal"]["status"], each["goal"]["tokensUsed"]) for each in goals
        ] == [(turns[0], "active", COST), (turns[1], "budgetLimited", 2 * COST)]
        unread = await client.call("thread/read", {"threadId": thread_id})
        assert unread["readState"]["firstUnread"] == {"type": "turn", "turnId": first["id"]}
        assert await get_goal(client, thread_id) == goals[1]["goal"]
        instruction = served.model.inputs()[-1]
        assert instruction[0] == "developer"
        assert "<objective>\nwork hard\n</objective>" in instruction[1]
        assert "Tokens used: 13. Token budget: 26." in instruction[1]
        # Paused or active again without a larger budget, it stays where it is.
        for status in ("active", "paused"):
            assert (await set_goal(client, thread_id, status=status))["status"] == "budgetLimited"
        assert len(served.model.requests) == 3
        await set_goal(client, thread_id, tokenBudget=2 * COST + 1, status="active")
        await client.wait_for("turn/completed")
        assert (await get_goal(client, thread_id))["tokensUsed"] == 3 * COST


@claim("goals:model")
async def test_the_model_reads_the_goal_and_says_how_it_stands(tmp_path: Path) -> None:
    async with serve(tmp_path) as served, served.client() as client:
        thread_id = await client.start_thread()
        served.model.scripts.extend(
            [
                calls({"name": "get_goal"}),
                calls({"name": "update_goal", "arguments": {"status": "done"}}),
                update_goal("complete"),
                says("reached"),
            ]
        )
        await set_goal(client, thread_id, objective="work", tokenBudget=1000)
        told = await client.until("turn/completed")
        goals = [
            (each["params"]["goal"]["status"], each["params"]["goal"]["tokensUsed"])
            for each in told
            if each["method"] == "thread/goal/updated"
        ]
        assert goals == [
            ("active", COST),
            ("active", 2 * COST),
            ("active", 3 * COST),
            ("complete", 3 * COST),
        ]
        names = [
            [tool["name"] for tool in request["tools"] if "goal" in tool["name"]]
            for request in served.model.requests
        ]
        assert names == [["create_goal", "get_goal", "update_goal"]] * 3 + [["create_goal"]]
        outputs = [
            item["output"]
            for item in served.model.items()
            if item["type"] == "function_call_output"
        ]
        assert '"tokensUsed":13' in outputs[0]
        assert '"remainingTokens":987' in outputs[0]
        assert outputs[1] == "err: status must be one of complete, blocked, paused"
        assert '"status":"complete"' in outputs[2]
        # A goal that is reached begins no more turns, and a turn without one has no functions.
        await client.turn(thread_id, "thanks")
        assert len(served.model.requests) == 5
        tools = served.model.requests[-1]["tools"]
        assert [tool["name"] for tool in tools if "goal" in tool["name"]] == ["create_goal"]


@claim("goals:created")
async def test_the_model_makes_a_goal_and_the_thread_goes_on_with_it(tmp_path: Path) -> None:
    def create(**arguments: Any) -> list[Any]:
        return calls({"name": "create_goal", "arguments": arguments})

    async with serve(tmp_path) as served, served.client() as client:
        thread_id = await client.start_thread()
        served.model.scripts += [
            create(objective=" "),
            create(objective="x", token_budget=0),
            create(objective="x" * 4001),
            create(objective=" work hard ", token_budget=100_000),
            create(objective="another"),
            says("begun"),
            update_goal("complete"),
            says("reached"),
        ]
        await client.turn(thread_id, "make it a goal")
        outputs = [item["output"] for item in served.model.items() if "output" in item]
        assert outputs[:2] == [
            "err: the objective of a goal must not be empty",
            "err: the budget of a goal must be positive",
        ]
        assert outputs[2].startswith("failed to parse function arguments: objective: ")
        assert '"objective":"work hard"' in outputs[3]
        assert outputs[4] == "err: this thread has an unfinished goal"
        # Nobody asked for the next turn.
        await client.wait_for("turn/completed")
        goal = await get_goal(client, thread_id)
        assert (goal["objective"], goal["status"], goal["tokenBudget"]) == (
            "work hard",
            "complete",
            100_000,
        )
        ephemeral = await client.start_thread(ephemeral=True)
        served.model.scripts.append(create(objective="x"))
        await client.turn(ephemeral, "go")
        assert served.model.items()[-1]["output"] == "err: a thread in memory alone has no goals"


@pytest.mark.parametrize(
    ("refusal", "status"),
    [
        (Refusal(400, {"error": {"message": "bad"}}), "blocked"),
        (
            Refusal(429, {"error": {"type": "usage_limit_reached", "message": "no"}}),
            "usageLimited",
        ),
    ],
)
@claim("goals:failed")
async def test_a_turn_that_fails_holds_its_goal_up(
    tmp_path: Path, refusal: Refusal, status: str
) -> None:
    async with serve(tmp_path) as served, served.client() as client:
        thread_id = await client.start_thread()
        served.model.scripts.append(refusal)
        await set_goal(client, thread_id, objective="work")
        told = await client.until("turn/completed")
        goals = [each["params"]["goal"] for each in told if each["method"] == "thread/goal/updated"]
        assert [goal["status"] for goal in goals] == [status]
        assert await get_goal(client, thread_id) == goals[0]
        assert len(served.model.requests) == 1


@claim("goals:interrupt")
async def test_after_an_interrupt_nothing_goes_on_before_the_user_does(tmp_path: Path) -> None:
    async with serve(tmp_path) as served, served.client() as client:
        thread_id = await client.start_thread()
        gate = Gate()
        served.model.scripts.append([gate])
        await set_goal(client, thread_id, objective="work")
        started = await client.wait_for("turn/started")
        await gate.wait_until_reached()
        turn_id = started["params"]["turn"]["id"]
        await client.call("turn/interrupt", {"threadId": thread_id, "turnId": turn_id})
        ended = await client.wait_for("turn/completed")
        assert ended["params"]["turn"]["status"] == "interrupted"
        assert (await get_goal(client, thread_id))["status"] == "active"
        assert len(served.model.requests) == 1
        served.model.scripts.extend([says("yours"), update_goal("blocked"), says("stuck")])
        await client.turn(thread_id, "go on")
        await client.wait_for("turn/completed")
        assert (await get_goal(client, thread_id))["status"] == "blocked"
        assert len(served.model.requests) == 4


@claim("goals:alone")
async def test_a_thread_that_nobody_talks_to_stops_after_a_while(tmp_path: Path) -> None:
    async with serve(tmp_path) as served, served.client() as client:
        thread_id = await client.start_thread()
        served.services.sessions.get(thread_id).context.goals.max_turns_alone = 3
        await set_goal(client, thread_id, objective="work")
        told = await client.wait_for(
            "thread/goal/updated", lambda params: params["goal"]["status"] == "blocked"
        )
        assert told["params"]["goal"]["tokensUsed"] == 3 * COST
        assert len(served.model.requests) == 3
        await set_goal(client, thread_id, status="active", tokenBudget=4 * COST)
        await client.wait_for("turn/completed")
        assert len(served.model.requests) == 4


@claim("goals:resume")
async def test_a_goal_is_there_after_a_restart_and_goes_on_when_the_thread_is_resumed(
    tmp_path: Path,
) -> None:
    async with serve(tmp_path) as served, served.client() as client:
        thread_id = await client.start_thread()
        gate = Gate()
        served.model.scripts.append([gate])
        await set_goal(client, thread_id, objective="work")
        await gate.wait_until_reached()
    async with serve(tmp_path) as served, served.client() as client, served.client() as other:
        goal = await get_goal(client, thread_id)
        assert (goal["objective"], goal["status"]) == ("work", "active")
        changed = await set_goal(client, thread_id, tokenBudget=COST)
        assert served.model.requests == []
        await client.call("thread/resume", {"threadId": thread_id})
        told = await other.until("thread/goal/updated")
        told = await other.until("thread/goal/updated")
        assert told[-1]["params"] == {"threadId": thread_id, "turnId": None, "goal": changed}
        await client.wait_for("turn/completed")
        assert (await get_goal(client, thread_id))["status"] == "budgetLimited"


@claim("goals:running")
async def test_a_goal_that_is_set_in_the_middle_of_a_turn_counts_from_there_on(
    tmp_path: Path,
) -> None:
    async with serve(tmp_path) as served, served.client() as client:
        thread_id = await client.start_thread()
        gate = Gate()
        served.model.scripts.append([gate, *says("late")])
        await client.call("turn/start", {"threadId": thread_id, "input": USER_INPUT})
        await gate.wait_until_reached()
        await set_goal(client, thread_id, objective="work", tokenBudget=2 * COST)
        gate.opened.set()
        await client.wait_for("turn/completed")
        await client.wait_for("turn/completed")
        goal = await get_goal(client, thread_id)
        assert (goal["status"], goal["tokensUsed"]) == ("budgetLimited", 2 * COST)
        await client.call("thread/goal/clear", {"threadId": thread_id})
        await client.turn(thread_id, "plain")
        assert len(served.model.requests) == 3


class HandClock(SystemClock):
    """A clock that stands still until it is moved."""

    def __init__(self) -> None:
        self.at_ms = 10_000_000
        self.set_by_ms = 0

    def now_ms(self) -> int:
        return self.at_ms + self.set_by_ms

    def monotonic_ms(self) -> int:
        return self.at_ms


@claim("goals:time")
@pytest.mark.parametrize("set_by_ms", [0, 3_600_000, -3_600_000])
async def test_the_time_of_turns_is_counted_in_whole_seconds_however_the_clock_is_set(
    set_by_ms: int,
) -> None:
    clock, hub = HandClock(), Hub()
    thread = LiveThread(begin(created(clock.at_ms)), None, lambda _: None)
    goal = ThreadGoal(
        thread_id=thread.id,
        objective="o",
        status="active",
        tokens_used=0,
        time_used_seconds=0,
        created_at=1000,
        updated_at=1000,
    )
    await thread.append(GoalChanged(at_ms=clock.at_ms, goal=goal))
    goals = Goals(thread, ThreadClients(hub, thread.id), clock)
    clock.at_ms += 60_000
    goals.turn_begins()
    clock.set_by_ms = set_by_ms
    counted = []
    for step_ms in (2_500, 700, 100):
        clock.at_ms += step_ms
        await goals.spend("t", USAGE)
        assert thread.state.metadata.goal is not None
        counted.append(thread.state.metadata.goal.time_used_seconds)
    assert counted == [2, 3, 3]
    clock.at_ms += 700
    await thread.change(lambda state: goals.marks_of_end(state, "t", "interrupted", None))
    assert goals.goal == goal.model_copy(
        update={"tokens_used": 9, "time_used_seconds": 4, "updated_at": clock.now_ms() // 1000}
    )
