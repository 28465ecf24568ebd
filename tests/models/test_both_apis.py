"""One table for both APIs of models: whatever a model says, clients get the same."""

import json
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from tests.support.files.images import PNG, PNG_URL
from tests.support.harness import Served, WireClient, claim, serve
from tests.support.model import BREAK, Gate, Refusal

APIS = ("responses", "chat")
BROKEN = {"responseStreamDisconnected": {"httpStatusCode": None}}


@dataclass(frozen=True)
class ModelAnswer:
    """An answer of a model, whatever its API."""

    reasoning: Sequence[str] = ()
    text: Sequence[str] = ()
    calls: Sequence[tuple[str, str]] = ()
    """Names and arguments of functions."""
    tokens: tuple[int, int] = (10, 5)
    ends: bool = True
    """Whether the stream is whole."""
    error: dict[str, Any] | None = None
    cut: str | None = None
    """Why the model stopped in the middle."""


def script(api: str, answer: ModelAnswer) -> list[Any]:
    return _responses(answer) if api == "responses" else _chat(answer)


def _responses(answer: ModelAnswer) -> list[Any]:
    events: list[Any] = []

    def item(kind: str, number: str, **members: Any) -> dict[str, Any]:
        return {"type": kind, "id": number, **members}

    if answer.reasoning:
        text = "".join(answer.reasoning)
        events.append(added(item("reasoning", "rs", summary=[])))
        place = {"item_id": "rs", "content_index": 0}
        events += [
            {"type": "response.reasoning_text.delta", **place, "delta": piece}
            for piece in answer.reasoning
        ]
        content = [{"type": "reasoning_text", "text": text}]
        events.append(done(item("reasoning", "rs", summary=[], content=content)))
    if answer.text:
        begun = item("message", "msg", role="assistant", content=[])
        events.append(added(begun))
        events += [
            {"type": "response.output_text.delta", "item_id": "msg", "delta": d}
            for d in answer.text
        ]
        if answer.ends:
            content = [{"type": "output_text", "text": "".join(answer.text)}]
            events.append(done({**begun, "content": content}))
    for number, (name, arguments) in enumerate(answer.calls):
        call = {"name": name, "call_id": f"call_{number}", "arguments": arguments}
        events.append(done(item("function_call", f"fc_{number}", **call)))
    if answer.error is not None:
        return [*events, {"type": "response.failed", "response": {"error": answer.error}}]
    if answer.cut is not None:
        details = {"incomplete_details": {"reason": answer.cut}}
        return [*events, {"type": "response.incomplete", "response": details}]
    if not answer.ends:
        return [*events, BREAK]
    prompt, output = answer.tokens
    usage = {"input_tokens": prompt, "output_tokens": output, "total_tokens": prompt + output}
    return [*events, {"type": "response.completed", "response": {"id": "r", "usage": usage}}]


def added(item: dict[str, Any]) -> dict[str, Any]:
    return {"type": "response.output_item.added", "item": item}


def done(item: dict[str, Any]) -> dict[str, Any]:
    return {"type": "response.output_item.done", "item": item}


def _chat(answer: ModelAnswer) -> list[Any]:
    deltas: list[dict[str, Any]] = [{"role": "assistant", "content": None}]
    deltas += [{"reasoning_content": piece} for piece in answer.reasoning]
    deltas += [{"content": piece} for piece in answer.text]
    for number, (name, arguments) in enumerate(answer.calls):
        half = len(arguments) // 2
        function = {"name": name, "arguments": arguments[:half]}
        begun = {"index": number, "id": f"call_{number}", "function": function}
        rest = {"index": number, "function": {"arguments": arguments[half:]}}
        deltas += [{"tool_calls": [begun]}, {"tool_calls": [rest]}]
    chunks = [_chunk({"choices": [{"index": 0, "delta": delta}]}) for delta in deltas]
    if answer.error is not None:
        return [*chunks, _chunk({"error": answer.error}), b"data: [DONE]\n\n"]
    if not answer.ends and answer.cut is None:
        return [*chunks, BREAK]
    reason = answer.cut or ("tool_calls" if answer.calls else "stop")
    prompt, output = answer.tokens
    usage = {
        "prompt_tokens": prompt,
        "completion_tokens": output,
        "total_tokens": prompt + output,
    }
    return [
        *chunks,
        _chunk({"choices": [{"index": 0, "delta": {}, "finish_reason": reason}]}),
        _chunk({"choices": [], "usage": usage}),
        b"data: [DONE]\n\n",
    ]


def _chunk(document: dict[str, Any]) -> bytes:
    return f"data: {json.dumps(document)}\n\n".encode()


async def thread_of(
    client: WireClient, api: str, provider: dict[str, Any] | None = None, **params: Any
) -> str:
    settings = {"wire_api": api, **(provider or {})}
    overrides = {f"model_providers.scripted.{key}": value for key, value in settings.items()}
    config = {**overrides, "model_context_window": 100_000}
    return await client.start_thread(config=config, **params)


async def turn_events(client: WireClient, thread_id: str, *parts: dict[str, Any]) -> list[Any]:
    """Run a turn and return what clients are sent, without what differs from run to run."""
    user_input = [*parts] or [{"type": "text", "text": "go"}]
    await client.call("turn/start", {"threadId": thread_id, "input": user_input})
    seen: list[Any] = []
    for message in await client.until("turn/completed"):
        params = message.get("params", {})
        item = params.get("item", {})
        match message.get("method"):
            case "item/started" | "item/completed" if item["type"] != "userMessage":
                begun = message["method"] == "item/started"
                kept = {key: item[key] for key in ("type", "text", "content") if key in item}
                seen.append(("begun" if begun else "done", kept))
            case "item/agentMessage/delta" | "item/reasoning/textDelta":
                seen.append(params["delta"])
            case "thread/tokenUsage/updated":
                last = params["tokenUsage"]["last"]
                seen.append((last["inputTokens"], last["outputTokens"], last["totalTokens"]))
            case "error":
                error = params["error"]
                seen.append((error["message"], error["codexErrorInfo"], params["willRetry"]))
            case "turn/completed":
                seen.append(params["turn"]["status"])
    return seen


MESSAGE = {"type": "agentMessage"}

TABLE: dict[str, tuple[ModelAnswer, list[Any]]] = {
    "text": (
        ModelAnswer(text=["Hel", "lo"]),
        [
            ("begun", {**MESSAGE, "text": ""}),
            "Hel",
            "lo",
            ("done", {**MESSAGE, "text": "Hello"}),
            (10, 5, 15),
            "completed",
        ],
    ),
    "reasoning": (
        ModelAnswer(reasoning=["Well", "."], text=["Yes"], tokens=(1, 2)),
        [
            ("begun", {"type": "reasoning", "content": []}),
            "Well",
            ".",
            ("done", {"type": "reasoning", "content": ["Well."]}),
            ("begun", {**MESSAGE, "text": ""}),
            "Yes",
            ("done", {**MESSAGE, "text": "Yes"}),
            (1, 2, 3),
            "completed",
        ],
    ),
    "half a character": (
        ModelAnswer(text=["\ud83d", "x"]),
        [
            ("begun", {**MESSAGE, "text": ""}),
            "\ufffd",
            "x",
            ("done", {**MESSAGE, "text": "\ufffdx"}),
            (10, 5, 15),
            "completed",
        ],
    ),
    "error in the stream": (
        ModelAnswer(
            text=["Hel"], ends=False, error={"code": "insufficient_quota", "message": "no money"}
        ),
        [
            ("begun", {**MESSAGE, "text": ""}),
            "Hel",
            ("no money", "usageLimitExceeded", False),
            "failed",
        ],
    ),
    "cut short": (
        ModelAnswer(text=["Hel"], ends=False, cut="content_filter"),
        [
            ("begun", {**MESSAGE, "text": ""}),
            "Hel",
            ("Incomplete response returned, reason: content_filter", "other", False),
            "failed",
        ],
    ),
}


@claim("chat:same")
@pytest.mark.parametrize("api", APIS)
@pytest.mark.parametrize("name", TABLE)
async def test_clients_get_the_same(tmp_path: Path, name: str, api: str) -> None:
    answer, expected = TABLE[name]
    async with serve(tmp_path) as served, served.client() as client:
        served.model.scripts = [script(api, answer)]
        assert await turn_events(client, await thread_of(client, api)) == expected
        assert served.model.paths == [
            {"responses": "/v1/responses", "chat": "/v1/chat/completions"}[api]
        ]


@claim("chat:same")
@pytest.mark.parametrize("api", APIS)
async def test_calls_are_made_and_answered(tmp_path: Path, api: str) -> None:
    async with serve(tmp_path) as served, served.client() as client:
        calls = [("nothing", '{"a": 1}'), ("nowhere", "{}")]
        answers = [ModelAnswer(text=["Wait."], calls=calls), ModelAnswer(text=["Done."])]
        served.model.scripts = [script(api, answer) for answer in answers]
        seen = await turn_events(client, await thread_of(client, api))
        assert seen[-1] == "completed"
        assert outputs(served, api) == [
            ("call_0", "unsupported call: nothing"),
            ("call_1", "unsupported call: nowhere"),
        ]


def outputs(served: Served, api: str) -> list[tuple[str, str]]:
    request = served.model.requests[-1]
    if api == "responses":
        found = [item for item in request["input"] if item["type"] == "function_call_output"]
        return [(item["call_id"], item["output"]) for item in found]
    found = [message for message in request["messages"] if message["role"] == "tool"]
    return [(message["tool_call_id"], message["content"]) for message in found]


TOO_LONG = "This model's maximum context length is 5 tokens"

REFUSALS: list[tuple[Refusal, str, Any]] = [
    (
        Refusal(400, {"error": {"type": "exceed_context_size_error", "message": "too long"}}),
        "too long",
        "contextWindowExceeded",
    ),
    (
        Refusal(400, {"error": {"message": TOO_LONG, "code": 400}}),
        TOO_LONG,
        "contextWindowExceeded",
    ),
    (
        Refusal(400, {"object": "error", "message": TOO_LONG}),
        TOO_LONG,
        "contextWindowExceeded",
    ),
    (Refusal(500, {"error": {"message": "why"}}), "unexpected status 500", "internalServerError"),
]


@claim("chat:same")
@pytest.mark.parametrize("api", APIS)
@pytest.mark.parametrize(("refusal", "text", "info"), REFUSALS)
async def test_refusals_are_told_apart(
    tmp_path: Path, refusal: Refusal, text: str, info: Any, api: str
) -> None:
    async with serve(tmp_path) as served, served.client() as client:
        served.model.scripts = [refusal]
        (message, got_info, will_retry), end = await turn_events(
            client, await thread_of(client, api)
        )
        assert (text in message, got_info, will_retry, end) == (True, info, False, "failed")


@claim("chat:same")
@pytest.mark.parametrize("api", APIS)
async def test_what_breaks_is_tried_again(tmp_path: Path, api: str) -> None:
    async with serve(tmp_path) as served, served.client() as client:
        served.model.scripts = [
            Refusal(503, {}, {"retry-after": "0"}),
            script(api, ModelAnswer(text=["Hel"], ends=False)),
            script(api, ModelAnswer(text=["Hello"])),
        ]
        thread_id = await thread_of(
            client, api, {"request_max_retries": 1, "stream_max_retries": 1}
        )
        seen = await turn_events(client, thread_id)
        assert seen == [
            ("begun", {**MESSAGE, "text": ""}),
            "Hel",
            ("Reconnecting... 1/1", BROKEN, True),
            ("begun", {**MESSAGE, "text": ""}),
            "Hello",
            ("done", {**MESSAGE, "text": "Hello"}),
            (10, 5, 15),
            "completed",
        ]
        assert len(served.model.requests) == 3


@claim("chat:same")
@pytest.mark.parametrize("api", APIS)
async def test_a_model_that_says_nothing_is_given_up(tmp_path: Path, api: str) -> None:
    async with serve(tmp_path) as served, served.client() as client:
        # A comment keeps the connection alive, but is no answer.
        gate = Gate()
        served.model.scripts = [[b": ping\n\n", gate]]
        thread_id = await thread_of(client, api, {"stream_idle_timeout_ms": 50})
        (message, info, _), end = await turn_events(client, thread_id)
        gate.opened.set()
        assert message == (
            "stream disconnected before completion: idle timeout waiting for the model"
        )
        assert (info, end) == (BROKEN, "failed")


@claim("chat:same")
@pytest.mark.parametrize("api", APIS)
async def test_an_answer_above_the_bound_is_cut_off(tmp_path: Path, api: str) -> None:
    async with serve(tmp_path) as served, served.client() as client:
        served.model.scripts = [script(api, ModelAnswer(text=["x" * 600_000] * 2))]
        seen = await turn_events(client, await thread_of(client, api))
        assert seen[-2:] == [
            (
                "the response of the model is too long: an item has more than 900000 bytes of text",
                BROKEN,
                False,
            ),
            "failed",
        ]
        assert sum(len(each) for each in seen if isinstance(each, str)) >= 600_000


async def test_a_conversation_goes_on_when_the_api_changes(tmp_path: Path) -> None:
    async with serve(tmp_path) as served, served.client() as client:
        config = {
            "model_providers.other": {
                "name": "o",
                "base_url": served.model.url,
                "wire_api": "responses",
            },
            "model_providers.scripted.wire_api": "chat",
        }
        thread_id = await client.start_thread(config=config)
        first = ModelAnswer(reasoning=["Well."], text=["Wait."], calls=[("nothing", "{}")])
        served.model.scripts = [
            script("chat", first),
            script("chat", ModelAnswer(text=["Done."])),
            script("responses", ModelAnswer(text=["Again."])),
        ]
        await client.turn(thread_id, "one")
        copy = {"threadId": thread_id, "modelProvider": "other", "config": config}
        forked = (await client.call("thread/fork", copy))["thread"]["id"]
        await client.turn(forked, "two")
        items = served.model.requests[-1]["input"]
        assert [item["type"] for item in items if item["type"] != "message"] == [
            "function_call",
            "function_call_output",
        ]
        assert ("assistant", "Done.") in served.model.inputs()


@claim("chat:request")
async def test_a_chat_request_has_the_thread_s_tools_and_input(tmp_path: Path) -> None:
    async with serve(tmp_path) as served, served.client() as client:
        served.model.scripts = [script("chat", ModelAnswer(text=["ok"]))]
        thread_id = await thread_of(client, "chat")
        image = {"type": "image", "url": PNG_URL}
        await turn_events(client, thread_id, {"type": "text", "text": "look"}, image)
        request = served.model.requests[-1]
        assert request["messages"][0]["role"] == "system"
        assert request["messages"][-1]["content"][-2:] == [
            {"type": "text", "text": "look"},
            {"type": "image_url", "image_url": {"url": PNG_URL}},
        ]
        assert (request["stream"], request["stream_options"]) == (True, {"include_usage": True})
        assert {tool["type"] for tool in request.get("tools", ())} <= {"function"}


@claim("chat:tools")
@pytest.mark.parametrize("api", APIS)
async def test_tools_work_with_either_api(tmp_path: Path, api: str) -> None:
    (tmp_path / "work").mkdir()
    (tmp_path / "work" / "a.png").write_bytes(PNG)
    patch = "*** Begin Patch\n*** Add File: new.txt\n+made\n*** End Patch\n"
    async with serve(tmp_path) as served, served.client() as client:
        made = [
            ("exec_command", json.dumps({"cmd": "echo hello"})),
            ("view_image", json.dumps({"path": "a.png"})),
            ("apply_patch", json.dumps({"input": patch})),
            ("update_plan", json.dumps({"plan": [{"step": "a", "status": "completed"}]})),
        ]
        served.model.scripts = [
            script(api, ModelAnswer(calls=made)),
            script(api, ModelAnswer(text=["Done."])),
        ]
        thread_id = await thread_of(
            client, api, cwd=str(tmp_path / "work"), sandbox="danger-full-access"
        )
        seen = await turn_events(client, thread_id)
        assert seen[-1] == "completed"
        done = [item["type"] for step, item in filter(is_item, seen) if step == "done"]
        assert sorted(done[:-1]) == ["commandExecution", "fileChange", "imageView"]
        assert (tmp_path / "work" / "new.txt").read_text() == "made\n"
        read = dict(outputs(served, api))
        assert "hello" in read["call_0"]
        assert "Success." in read["call_2"]
        assert read["call_3"] == "Plan updated"
        assert PNG_URL in json.dumps(served.model.requests[-1])


def is_item(seen: Any) -> bool:
    return isinstance(seen, tuple) and seen[0] in ("begun", "done")
