"""The plan that a model keeps: clients are notified, and what makes no sense is refused."""

from pathlib import Path
from typing import Any

import pytest

from app_server.tools.update_plan import MAX_STEPS, MAX_TEXT_CHARS, NOT_IN_PLAN_MODE
from tests.support.harness import Served, WireClient, claim, serve
from tests.support.model import calls, says

PLAN_MODE = {
    "collaborationMode": {"mode": "plan", "settings": {"model": "scripted"}},
}


def step(text: str, status: str = "pending") -> dict[str, str]:
    return {"step": text, "status": status}


async def plan_updates(
    served: Served, client: WireClient, *plans: Any, **options: Any
) -> list[Any]:
    """Run a turn with these calls; returns the updates of the plan that clients got."""
    made = [{"name": "update_plan", "arguments": plan} for plan in plans]
    served.model.scripts += [calls(*made), says("done")]
    thread_id = await client.start_thread()
    said = [{"type": "text", "text": "go"}]
    await client.call("turn/start", {"threadId": thread_id, "input": said, **options})
    messages = await client.until("turn/completed")
    seen = [each["params"] for each in messages if each.get("method") == "turn/plan/updated"]
    for params in seen:
        assert params.pop("threadId") == thread_id
        assert params.pop("turnId") == messages[-1]["params"]["turn"]["id"]
    return seen


def outputs(served: Served) -> list[str]:
    items = served.model.items()
    return [item["output"] for item in items if item["type"] == "function_call_output"]


@claim("plan:updated")
async def test_clients_are_notified_of_a_plan(tmp_path: Path) -> None:
    async with serve(tmp_path) as served, served.client() as client:
        first = {
            "plan": [step("a", "completed"), step("b", "in_progress"), step("c")],
            "explanation": "why",
        }
        assert await plan_updates(served, client, first, {"plan": []}) == [
            {
                "explanation": "why",
                "plan": [
                    {"step": "a", "status": "completed"},
                    {"step": "b", "status": "inProgress"},
                    {"step": "c", "status": "pending"},
                ],
            },
            {"explanation": None, "plan": []},
        ]
        assert outputs(served) == ["Plan updated"] * 2


@pytest.mark.parametrize(
    ("plan", "problem"),
    [
        ({}, "plan: Field required"),
        ({"plan": [step("a", "doing")]}, "plan.0.status: Input should be 'pending', "),
        ({"plan": [{"step": "a"}]}, "plan.0.status: Field required"),
        ({"plan": [step("x" * (MAX_TEXT_CHARS + 1))]}, "plan.0.step: String should have at most"),
        ({"plan": [step("a")] * (MAX_STEPS + 1)}, "plan: List should have at most 100 items"),
        ({"plan": [], "explanation": 5}, "explanation: Input should be a valid string"),
        ({"plan": [], "why": "x"}, "why: Extra inputs are not permitted"),
    ],
)
async def test_a_plan_that_makes_no_sense_is_refused(
    tmp_path: Path, plan: Any, problem: str
) -> None:
    async with serve(tmp_path) as served, served.client() as client:
        assert await plan_updates(served, client, plan) == []
        [text] = outputs(served)
        assert text.startswith(f"failed to parse function arguments: {problem}")


async def test_in_plan_mode_the_plan_is_what_is_written(tmp_path: Path) -> None:
    async with serve(tmp_path) as served, served.client() as client:
        assert await plan_updates(served, client, {"plan": [step("a")]}, **PLAN_MODE) == []
        assert outputs(served) == [NOT_IN_PLAN_MODE]
