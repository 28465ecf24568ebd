"""From a call of a model to what it reads, whatever the call is."""

from collections.abc import Sequence
from dataclasses import replace
from typing import Any, cast

import pytest

from app_server.models.catalogue.models import ModelFeatures
from app_server.runtime.clock import SystemClock
from app_server.threads.log.live import LiveThread
from app_server.threads.log.state import begin
from app_server.turns.hooks import ThreadHooks
from app_server.turns.recorder import TurnRecorder
from app_server.turns.tools import RequestedCall, ToolArguments, ToolTable, TurnTool
from protocol.model import Json, JsonObject
from tests.support.threads.stores import created


class Twice(ToolArguments):
    """Arguments of the function."""

    text: str
    times: int = 2


class Repeat(TurnTool):
    """Repeats a text; a custom tool of the same name gives the text back."""

    def declarations(self, model: ModelFeatures) -> Sequence[JsonObject]:
        return [{"type": "custom" if model.freeform_patch else "function", "name": "repeat"}]

    def offers(self, call: RequestedCall) -> bool:
        return call.name == "repeat" or call.kind == "search"

    async def run(self, call: RequestedCall) -> Json:
        match call.kind:
            case "function":
                arguments = call.read(Twice)
                return arguments.text * arguments.times
            case "custom":
                return call.input
            case "search":
                return [{"type": "function", "name": "found"}]


def table() -> ToolTable:
    """Return the table of a turn without hooks."""
    hooks = ThreadHooks(cast(Any, None), cast(Any, None), cast(Any, None))
    log = LiveThread(begin(created()), None, lambda _: None)
    recorder = TurnRecorder(log, "turn", cast(Any, None), SystemClock())
    return ToolTable([Repeat()], hooks, recorder)


def call(item: JsonObject) -> RequestedCall:
    return RequestedCall.of(item, "new")


def function(arguments: Json, name: str = "repeat") -> RequestedCall:
    return call({"type": "function_call", "call_id": "c", "name": name, "arguments": arguments})


async def test_an_answer_has_the_kind_of_its_call() -> None:
    tools = table()
    assert await tools.make_call(function('{"text":"ab"}')) == {
        "type": "function_call_output",
        "call_id": "c",
        "output": "abab",
    }
    custom = {"type": "custom_tool_call", "call_id": "d", "name": "repeat", "input": "as it is"}
    assert await tools.make_call(call(custom)) == {
        "type": "custom_tool_call_output",
        "call_id": "d",
        "output": "as it is",
    }
    assert await tools.make_call(call({"type": "tool_search_call", "arguments": {}})) == {
        "type": "tool_search_output",
        "call_id": "new",
        "status": "completed",
        "execution": "client",
        "tools": [{"type": "function", "name": "found"}],
    }


@pytest.mark.parametrize(
    ("arguments", "text"),
    [
        ("{}", "text: Field required"),
        ('{"text":"a","times":"many"}', "times: Input should be a valid integer"),
        ('{"text":"a","speed":1}', "speed: Extra inputs are not permitted"),
        ("[]", "they must be a JSON object"),
        ("false", "they must be a JSON object"),
        ("{", "err: EOF while parsing"),
    ],
)
async def test_wrong_arguments_are_named_to_the_model(arguments: str, text: str) -> None:
    answer = await table().make_call(function(arguments))
    assert answer["output"].startswith(f"failed to parse function arguments: {text}")


async def test_a_call_that_no_tool_offers_is_answered() -> None:
    tools = table()
    unknown = function("{", name="no_such_tool")
    assert tools.may_overlap(unknown)
    assert (await tools.make_call(unknown))["output"] == "unsupported call: no_such_tool"
    in_namespace = {"type": "custom_tool_call", "namespace": "a", "name": "b", "input": ""}
    assert await tools.make_call(call(in_namespace)) == {
        "type": "custom_tool_call_output",
        "call_id": "new",
        "output": "unsupported call: ab",
    }


def test_tools_are_asked_again_when_model_or_basis_change() -> None:
    asked: list[ModelFeatures] = []

    class Counted(Repeat):
        def declarations(self, model: ModelFeatures) -> Sequence[JsonObject]:
            asked.append(model)
            return super().declarations(model)

    tools = replace(table(), tools=[Counted()])
    model = ModelFeatures()
    first = tools.offer(model, ["a"])
    assert tools.offer(model, ["a"]) == first
    assert asked == [model]
    # The table of the next turn has other objects and the same offer.
    assert replace(tools, tools=[Counted()]).offer(model, ["a"]) == first
    assert asked == [model]
    other = ModelFeatures(freeform_patch=True)
    tools.offer(other, ["a"])
    tools.offer(other, ["b"])
    assert asked == [model, other, other]


def test_declarations_follow_the_model() -> None:
    models = [ModelFeatures(freeform_patch=freeform) for freeform in (False, True)]
    kinds = [table().offer(model, None).declarations[0]["type"] for model in models]
    assert kinds == ["function", "custom"]
