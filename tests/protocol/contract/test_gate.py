"""protocol.contract: what needs the opt-in is named, and hidden from those without it."""

from typing import Any

import pytest

from protocol.contract.gate import has_stable_form, stable_exclude, used_experimental
from protocol.contract.methods import METHODS
from protocol.integrations.mcp import McpServerStatusUpdatedNotification
from protocol.model import WireModel, experimental
from protocol.threads.lists import ThreadListResponse, ThreadReadResponse
from protocol.threads.thread import Thread
from protocol.turns.policy import AskForApproval
from protocol.turns.turn import Turn
from tests.support.harness import claim


class Inner(WireModel):
    """Has a member that needs the opt-in."""

    plain: int = 1
    secret: int | None = experimental()


class Outer(WireModel):
    """Has it further in."""

    one: Inner | None = None
    many: list[Inner] = []


class Asking(WireModel):
    """Has a variant that looks otherwise without the opt-in."""

    policy: AskForApproval | None = None


@claim("experimental:descriptor")
@pytest.mark.parametrize(
    ("method", "params", "descriptor"),
    [
        ("thread/start", {"dynamicTools": []}, "thread/start.dynamicTools"),
        ("thread/start", {"dynamicTools": None}, None),
        ("thread/start", {"experimentalRawEvents": False}, None),
        ("thread/start", {"experimentalRawEvents": True}, "thread/start.experimentalRawEvents"),
        (
            "thread/start",
            {
                "approvalPolicy": {
                    "granular": {"mcp_elicitations": True, "rules": True, "sandbox_approval": True}
                }
            },
            "askForApproval.granular",
        ),
        ("thread/start", {"approvalPolicy": "never", "cwd": "/x"}, None),
        (
            "turn/start",
            {"threadId": "t", "input": [{"type": "text", "text": ""}], "mcpMetaByServer": {}},
            "turn/start.mcpMetaByServer",
        ),
    ],
)
def test_the_gate_names_what_was_used(
    method: str, params: dict[str, Any], descriptor: str | None
) -> None:
    parsed = METHODS[method].params.model_validate(params)
    assert used_experimental(method, parsed) == descriptor


def test_the_gate_looks_into_objects_and_lists() -> None:
    assert used_experimental("m", Outer(one=Inner(), many=[Inner()])) is None
    assert used_experimental("m", Outer(one=Inner(secret=1))) == "m.secret"
    assert used_experimental("m", Outer(many=[Inner(), Inner(secret=1)])) == "m.secret"


def test_what_is_hidden_is_hidden_in_objects_and_lists() -> None:
    full = Outer(one=Inner(secret=1), many=[Inner(secret=2)])
    assert full.model_dump(by_alias=True, exclude=stable_exclude(Outer)) == {
        "one": {"plain": 1},
        "many": [{"plain": 1}],
    }


@pytest.mark.parametrize(
    ("model", "expected"),
    [
        (Inner, True),
        (Outer, True),
        (ThreadReadResponse, True),
        (Asking, True),
        (McpServerStatusUpdatedNotification, False),
    ],
)
def test_types_without_anything_experimental_have_one_form(
    model: type[WireModel], expected: bool
) -> None:
    assert has_stable_form(model) is expected


def test_the_gate_knows_what_to_leave_out() -> None:
    of_thread = {
        "environments": True,
        "extra": True,
        "attached_to_thread_id": True,
        "can_accept_direct_input": True,
        "daybreak_enabled": True,
    }
    assert stable_exclude(Thread) == of_thread
    assert stable_exclude(ThreadListResponse) == {
        "data": {"__all__": of_thread},
        "read_states": True,
    }
    assert stable_exclude(ThreadReadResponse) == {"thread": of_thread, "read_state": True}
    assert stable_exclude(Turn) is None
