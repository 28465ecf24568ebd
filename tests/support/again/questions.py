"""Answers to questions of the server that are sent again, over reconnects."""

import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from app_server.tools.request_user_input import METHOD, NAME
from tests.support.harness import Served
from tests.support.model import calls
from tests.support.turn_tools.command_questions import QUESTION, command
from tests.support.turns import start_turn

EVERYWHERE = "[features]\ndefault_mode_request_user_input = true\n"
"""Settings with which the model may ask for input."""


@dataclass(frozen=True)
class Asked:
    """A question that the server asks twice in a turn, and two different answers."""

    method: str
    calls: list[dict[str, Any]]
    answers: list[dict[str, Any]]
    thread: Mapping[str, Any] = field(default_factory=dict)
    """Members of `thread/start`."""


def a_form() -> Asked:
    """Make a question of the model."""
    options = [{"label": "A", "description": "a"}, {"label": "B", "description": "b"}]
    question = {"id": "q1", "header": "Head", "question": "Which?", "options": options}
    call = {"name": NAME, "arguments": {"questions": [question]}}
    return Asked(
        METHOD, [call] * 2, [{"answers": {"q1": {"answers": [label]}}} for label in ("A", "B")]
    )


def an_approval() -> Asked:
    """Make questions about two commands, of which one may run."""
    return Asked(
        QUESTION,
        [command("touch a; echo ran one"), command("touch b; echo ran two")],
        [{"decision": "accept"}, {"decision": "decline"}],
        {"sandbox": "danger-full-access", "approvalPolicy": "untrusted"},
    )


ASKED = {"form": a_form, "approval": an_approval}


async def answer_over_reconnects(served: Served, asked: Asked) -> set[str | int]:
    """Lose the connection that was asked, and send each answer more than once; return the ids."""
    served.model.scripts += [calls(one) for one in asked.calls]
    async with served.client() as lost:
        thread_id = await lost.start_thread(**asked.thread)
        await start_turn(lost, thread_id, "go")
        question = await lost.wait_for(asked.method)
    given = {"id": question["id"], "result": asked.answers[0]}
    async with served.client() as client:
        # It has not been asked on this connection.
        await client.send(given)
        await client.call("thread/resume", {"threadId": thread_id})
        again = await client.wait_for(asked.method)
        assert again["id"] == question["id"]
        await client.send(given)
        await client.send(given)
        second = await client.wait_for(asked.method)
        assert second["id"] != question["id"]
        # The answer to the first is none to the second.
        await client.send(given)
        await client.send({"id": second["id"], "result": asked.answers[1]})
        await client.wait_for("turn/completed")
    read = [str(item["output"]) for item in served.model.items() if "output" in item]
    if asked.method == METHOD:
        assert [json.loads(text) for text in read] == asked.answers
    else:
        assert ["ran one" in read[0], "ran two" in read[1], "rejected" in read[1]] == [
            True,
            False,
            True,
        ]
    return {question["id"], second["id"]}
