"""turns: whole sequences on the wire, failures and retries, steering, interrupting, injecting."""

import asyncio
import base64
import itertools
import json
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from app_server.config.values import Config, ConfigError, parse_override, read_config
from app_server.http.event_stream import EventParser, EventTooLarge, SseEvent
from app_server.sessions.settings import Overrides, initial_settings
from app_server.turns.model import offline
from app_server.turns.model.prompt import INTERRUPTED
from app_server.turns.model.response_items import first_problem
from app_server.turns.model.user_input import MAX_MEDIA_BYTES
from tests.support.harness import (
    BREAK,
    COMPLETED,
    Gate,
    Refusal,
    WireClient,
    calls,
    claim,
    says,
    serve,
)


def raw(text: str, role: str = "developer") -> dict[str, Any]:
    return {"type": "message", "role": role, "content": [{"type": "input_text", "text": text}]}


def text_input(text: str) -> list[dict[str, Any]]:
    return [{"type": "text", "text": text}]


async def start_turn(client: WireClient, thread_id: str, text: str, **options: Any) -> str:
    result = await client.call(
        "turn/start", {"threadId": thread_id, "input": text_input(text), **options}
    )
    turn_id: str = result["turn"]["id"]
    return turn_id


# The order on the wire.


@claim("turns:order", "turns:streamed", "turns:token-usage", "messages:emitted-at")
async def test_a_text_turn_says_everything_in_its_order(tmp_path: Path) -> None:
    async with serve(tmp_path, config="model_context_window = 1000") as served:
        async with served.client() as client:
            thread_id = await client.start_thread()
            served.model.scripts.append(says("Hel", "lo"))
            await client.request(
                "turn/start",
                {
                    "threadId": thread_id,
                    "input": text_input("hi"),
                    "clientUserMessageId": "mine",
                },
            )
            messages = await client.until("turn/completed")
        answer = messages[0]["result"]["turn"]
        turn_id = answer["id"]
        assert answer == {
            "id": turn_id,
            "rootTurnId": turn_id,
            "items": [],
            "itemsView": "notLoaded",
            "status": "inProgress",
            "error": None,
            "startedAt": None,
            "completedAt": None,
            "durationMs": None,
        }
        assert all(isinstance(message["emittedAtMs"], int) for message in messages[1:])
        here = {"threadId": thread_id, "turnId": turn_id}
        told = [(message["method"], message["params"]) for message in messages[1:]]
        user = told[2][1]["item"] | {"completedAtMs": told[3][1]["item"]["completedAtMs"]}
        agent = told[-5][1]["item"]
        usage = {
            "totalTokens": 15,
            "inputTokens": 10,
            "cachedInputTokens": 2,
            "cacheWriteInputTokens": 0,
            "outputTokens": 5,
            "reasoningOutputTokens": 1,
        }
        start = answer | {"startedAt": told[1][1]["turn"]["startedAt"]}
        end = told[-1][1]["turn"]
        assert told == [
            (
                "thread/status/changed",
                {"threadId": thread_id, "status": {"type": "active", "activeFlags": []}},
            ),
            ("turn/started", {"threadId": thread_id, "turn": start}),
            (
                "item/started",
                {
                    **here,
                    "item": user | {"completedAtMs": None},
                    "startedAtMs": user["startedAtMs"],
                },
            ),
            (
                "item/completed",
                {
                    **here,
                    "item": user,
                    "completedAtMs": user["completedAtMs"],
                    "contentTokenCount": None,
                },
            ),
            (
                "item/started",
                {
                    **here,
                    "item": agent | {"text": "", "completedAtMs": None},
                    "startedAtMs": agent["startedAtMs"],
                },
            ),
            ("item/agentMessage/delta", {**here, "itemId": "msg_1", "delta": "Hel"}),
            ("item/agentMessage/delta", {**here, "itemId": "msg_1", "delta": "lo"}),
            (
                "item/completed",
                {
                    **here,
                    "item": agent,
                    "completedAtMs": agent["completedAtMs"],
                    "contentTokenCount": None,
                },
            ),
            (
                "thread/tokenUsage/updated",
                {
                    **here,
                    "tokenUsage": {"total": usage, "last": usage, "modelContextWindow": 1000},
                },
            ),
            ("thread/readState/changed", told[-3][1]),
            ("thread/status/changed", {"threadId": thread_id, "status": {"type": "idle"}}),
            ("turn/completed", {"threadId": thread_id, "turn": end}),
        ]
        assert (user["clientId"], user["content"]) == (
            "mine",
            [{"type": "text", "text": "hi", "text_elements": []}],
        )
        assert (agent["id"], agent["text"]) == ("msg_1", "Hello")
        assert end == start | {
            "status": "completed",
            "items": [agent],
            "itemsView": "summary",
            "completedAt": end["completedAt"],
            "durationMs": end["durationMs"],
        }
        assert end["durationMs"] >= 0


async def test_usage_adds_up_and_a_model_may_not_count(tmp_path: Path) -> None:
    async with serve(tmp_path) as served, served.client() as client:
        thread_id = await client.start_thread()
        uncounted = {"type": "response.completed", "response": {"id": "r"}}
        served.model.scripts += [says("a"), [*says("b")[:-1], uncounted], says("c")]
        for text in ("one", "two", "three"):
            await client.call("turn/start", {"threadId": thread_id, "input": text_input(text)})
            last = await client.until("turn/completed")
        (usage,) = (m["params"] for m in last if m.get("method") == "thread/tokenUsage/updated")
        assert usage["tokenUsage"]["total"]["totalTokens"] == 30
        assert usage["tokenUsage"]["last"]["totalTokens"] == 15
        assert usage["tokenUsage"]["modelContextWindow"] == 258_400


@claim("turns:reasoning")
async def test_reasoning_is_streamed_and_kept(tmp_path: Path) -> None:
    done = {
        "type": "reasoning",
        "id": "rs_1",
        "summary": [{"type": "summary_text", "text": "thin"}],
        "content": [{"type": "reasoning_text", "text": "raw"}, {"type": "strange"}],
        "encrypted_content": "E",
    }
    here = {"item_id": "rs_1"}
    script = [
        {"type": "response.output_item.added", "item": {**done, "summary": [], "content": None}},
        {"type": "response.reasoning_summary_part.added", "summary_index": 0, **here},
        {
            "type": "response.reasoning_summary_text.delta",
            "summary_index": 0,
            "delta": "thin",
            **here,
        },
        {"type": "response.reasoning_text.delta", "content_index": 0, "delta": "raw", **here},
        {"type": "response.output_item.done", "item": done},
        {"type": "response.something.new", "x": 1},
        *says("ok"),
    ]
    async with serve(tmp_path) as served, served.client() as client:
        thread_id = await client.start_thread()
        served.model.scripts.append(script)
        turn_id = await start_turn(client, thread_id, "think")
        messages = await client.until("turn/completed")
        told = [(m["method"], m["params"]) for m in messages if "/reasoning/" in m["method"]]
        where = {"threadId": thread_id, "turnId": turn_id, "itemId": "rs_1"}
        assert told == [
            ("item/reasoning/summaryPartAdded", {**where, "summaryIndex": 0}),
            ("item/reasoning/summaryTextDelta", {**where, "delta": "thin", "summaryIndex": 0}),
            ("item/reasoning/textDelta", {**where, "delta": "raw", "contentIndex": 0}),
        ]
        item = next(
            m["params"]["item"]
            for m in messages
            if m["method"] == "item/completed" and m["params"]["item"]["id"] == "rs_1"
        )
        assert (item["type"], item["summary"], item["content"]) == ("reasoning", ["thin"], ["raw"])
        await client.turn(thread_id, "again")
        assert done in served.model.requests[-1]["input"]


async def test_a_model_that_announces_little_is_understood(tmp_path: Path) -> None:
    """Some servers send no `output_item.added`, no ids, or items of kinds of their own."""
    script = [
        {"type": "response.output_text.delta", "item_id": "m", "delta": "hi"},
        {
            "type": "response.output_item.done",
            "item": {"type": "message", "role": "assistant", "id": "m", "phase": "final_answer",
                     "content": [{"type": "output_text", "text": "hi"}]},
        },
        {"type": "response.output_item.added", "item": {"type": "message", "role": "assistant"}},
        {"type": "response.output_item.done",
         "item": {"type": "message", "role": "assistant", "content": "strange"}},
        {"type": "response.output_item.done", "item": {"type": "web_search_call", "id": "ws"}},
        {"type": "response.output_item.done", "item": {"type": "reasoning"}},
        COMPLETED,
    ]  # fmt: skip
    async with serve(tmp_path) as served, served.client() as client:
        thread_id = await client.start_thread()
        served.model.scripts.append(script)
        await start_turn(client, thread_id, "go")
        messages = await client.until("turn/completed")
        done = [m["params"]["item"] for m in messages if m["method"] == "item/completed"][1:]
        assert [(item["type"], item.get("text"), item.get("phase")) for item in done] == [
            ("agentMessage", "hi", "final_answer"),
            ("agentMessage", "", None),
            ("reasoning", None, None),
        ]
        assert messages[-1]["params"]["turn"]["items"] == [done[1]]
        await client.turn(thread_id, "again")
        kinds = [item["type"] for item in served.model.requests[-1]["input"]]
        assert kinds == ["message"] * 3 + ["web_search_call", "reasoning", "message"]


# What the model is sent.


@claim("model:request", "model:output-schema", "turns:overrides")
async def test_the_request_carries_settings_and_the_schema_holds_for_one_turn(
    tmp_path: Path,
) -> None:
    config = 'model_reasoning_effort = "low"\nservice_tier = "flex"\n'
    async with serve(tmp_path, config=config) as served, served.client() as client:
        result = await client.call("thread/start", {"baseInstructions": "BASE", "cwd": "/tmp"})
        thread_id = result["thread"]["id"]
        schema = {"type": "object", "properties": {}}
        await client.turn(
            thread_id, "one", outputSchema=schema, responsesapiClientMetadata={"k": "v"}
        )
        first = served.model.requests[0]
        assert first == {
            "model": "scripted",
            "instructions": "BASE\n\nThe working directory is /tmp",
            "input": [raw("one", "user")],
            "tools": [],
            "tool_choice": "auto",
            "parallel_tool_calls": True,
            "stream": True,
            "store": False,
            "include": ["reasoning.encrypted_content"],
            "prompt_cache_key": thread_id,
            "reasoning": {"effort": "low"},
            "service_tier": "flex",
            "text": {
                "format": {
                    "type": "json_schema",
                    "name": "output_schema",
                    "strict": True,
                    "schema": schema,
                }
            },
            "client_metadata": {"k": "v"},
        }
        await client.call(
            "turn/start",
            {
                "threadId": thread_id,
                "input": text_input("two"),
                "model": "m2",
                "cwd": "sub",
                "effort": "high",
                "summary": "none",
                "approvalPolicy": "never",
                "sandboxPolicy": {"type": "dangerFullAccess"},
            },
        )
        messages = await client.until("turn/completed")
        settings = messages[0]["params"]["threadSettings"]
        assert messages[0]["method"] == "thread/settings/updated"
        assert {key: settings[key] for key in ("model", "cwd", "effort", "approvalPolicy")} == {
            "model": "m2",
            "cwd": str(tmp_path / "sub"),
            "effort": "high",
            "approvalPolicy": "never",
        }
        await client.turn(thread_id, "three")
        third = served.model.requests[2]
        assert {"text", "client_metadata"}.isdisjoint(third)
        assert (third["model"], third["reasoning"]) == ("m2", {"effort": "high"})
        resumed = await client.call("thread/resume", {"threadId": thread_id})
        assert resumed["sandbox"] == {"type": "dangerFullAccess"}


async def test_providers_get_their_headers_parameters_and_key(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    config = (
        'model_provider = "p"\n[model_providers.p]\nenv_key = "P_KEY"\n'
        'http_headers = { X-A = "1" }\nenv_http_headers = { X-B = "P_B", X-C = "P_NONE" }\n'
        'query_params = { v = "1" }\nstream_max_retries = 0\nrequest_max_retries = 0\n'
    )
    monkeypatch.setenv("P_B", "two")
    monkeypatch.setenv("HTTP_PROXY", "http://127.0.0.1:1")
    async with serve(tmp_path) as served, served.client() as client:
        overrides = {"model_provider": "p", "model_providers.p.base_url": f"{served.model.url}/"}
        text = (tmp_path / "config.toml").read_text()
        (tmp_path / "config.toml").write_text(text + config.partition("\n")[2])
        thread_id = await client.start_thread(config=overrides)
        turn = await client.turn(thread_id, "hi")
        assert turn["error"]["message"] == "Missing environment variable: `P_KEY`."
        assert served.model.requests == []
        monkeypatch.setenv("P_KEY", "the-key")
        assert (await client.turn(thread_id, "hi"))["status"] == "completed"
        headers = served.model.headers[0]
        assert headers["authorization"] == "bearer the-key"
        assert (headers["x-a"], headers["x-b"]) == ("1", "two")
        assert "x-c" not in headers
        assert served.model.paths == ["/v1/responses?v=1"]
        log = Path((await client.call("thread/read", {"threadId": thread_id}))["thread"]["path"])
        assert "the-key" not in log.read_text()


@claim("turns:input-kinds")
async def test_every_kind_of_input_reaches_the_model(tmp_path: Path) -> None:
    picture = tmp_path / "p.png"
    picture.write_bytes(b"\x89PNG")
    (tmp_path / "p.txt").write_text("no picture")
    (tmp_path / "big.png").write_bytes(b"x" * (MAX_MEDIA_BYTES + 1))
    inputs: list[dict[str, Any]] = [
        {"type": "text", "text": "see", "text_elements": [{"byteRange": {"start": 0, "end": 1}}]},
        {"type": "image", "url": "data:image/png;base64,AAAA", "detail": "low"},
        {"type": "localImage", "path": str(picture)},
        *(
            {"type": "localImage", "path": str(tmp_path / name)}
            for name in ("p.txt", "big.png", "none.png")
        ),
        {"type": "skill", "name": "s", "path": "/s"},
        {"type": "mention", "name": "m", "path": "app://m"},
    ]
    async with serve(tmp_path) as served, served.client() as client:
        thread_id = await client.start_thread()
        await client.call("turn/start", {"threadId": thread_id, "input": inputs})
        await client.wait_for("turn/completed")
        (message,) = served.model.requests[0]["input"]
        shown = base64.b64encode(b"\x89PNG").decode()
        unread = [
            {"type": "input_text", "text": f"[image {tmp_path / name} could not be read]"}
            for name in ("p.txt", "big.png", "none.png")
        ]
        assert message["content"] == [
            {"type": "input_text", "text": "see"},
            {"type": "input_image", "image_url": "data:image/png;base64,AAAA", "detail": "low"},
            {"type": "input_image", "image_url": f"data:image/png;base64,{shown}"},
            *unread,
            {"type": "input_text", "text": "[skill s: /s]"},
            {"type": "input_text", "text": "[mention m: app://m]"},
        ]
        read = await client.call("thread/read", {"threadId": thread_id, "includeTurns": True})
        content = read["thread"]["turns"][0]["items"][0]["content"]
        assert [part["type"] for part in content] == [part["type"] for part in inputs]
        assert read["thread"]["preview"] == "see"


@claim("bounds:input")
async def test_input_above_the_bound_is_refused_by_name(tmp_path: Path) -> None:
    async with serve(tmp_path) as served, served.client() as client:
        thread_id = await client.start_thread()
        error = await client.refusal(
            "turn/start", {"threadId": thread_id, "input": text_input("x" * ((1 << 20) + 1))}
        )
        assert (error.code, error.data["field"]) == (-32602, "input")
        strange = [{"type": "smell", "url": "x"}]
        error = await client.refusal("turn/start", {"threadId": thread_id, "input": strange})
        assert (error.code, error.data["field"]) == (-32602, "input.0")


# Failures.


def http_failed(status: int | None) -> dict[str, Any]:
    return {"httpConnectionFailed": {"httpStatusCode": status}}


BROKEN: dict[str, Any] = {"responseStreamDisconnected": {"httpStatusCode": None}}


def failed(code: str | None, message: str | None = "why") -> list[Any]:
    error = {"code": code, "message": message}
    return [{"type": "response.failed", "response": {"id": "r", "error": error}}]


@claim("turns:failed", "turns:error-info")
@pytest.mark.parametrize(
    ("script", "info", "message"),
    [
        (Refusal(400, {"error": {"message": "why"}}), "badRequest", "unexpected status 400"),
        (Refusal(401, {"error": {"message": "why"}}), http_failed(401), "unexpected status 401"),
        (Refusal(404, b"plain text"), http_failed(404), "plain text"),
        (Refusal(403, b""), http_failed(403), "Scripted: Scripted, url"),
        (Refusal(429, {"error": {"type": "usage_limit_reached"}}), "usageLimitExceeded", "usage"),
        (
            Refusal(429, [1]),
            {"responseTooManyFailedAttempts": {"httpStatusCode": 429}},
            "unexpected status 429",
        ),
        (Refusal(500, {"error": "strange"}), "internalServerError", "unexpected status 500"),
        (Refusal(502, {}, {"x-request-id": "rq"}), http_failed(502), "request id: rq"),
        (Refusal(503, {"error": {"code": "slow_down"}}), "serverOverloaded", "at capacity"),
        (failed("context_length_exceeded"), "contextWindowExceeded", "why"),
        (failed("insufficient_quota", None), "usageLimitExceeded", "the usage limit is reached"),
        (failed("rate_limit_exceeded"), "rateLimitExceeded", "rate limit exceeded: why"),
        (failed("invalid_prompt"), "badRequest", "why"),
        (failed(None, None), BROKEN, "the model failed without a reason"),
        ([{"type": "error", "message": "why", "code": "x"}], BROKEN, "why"),
        (
            [{"type": "response.incomplete", "response": {"incomplete_details": {"reason": "r"}}}],
            "other",
            "Incomplete response returned, reason: r",
        ),
        (says("part")[:3], BROKEN, "stream closed before response.completed"),
        ([*says("part")[:3], BREAK], BROKEN, "stream disconnected before completion: "),
        ([b"data: nonsense\n\n"], BROKEN, "the model sent an event that makes no sense"),
        ([b"data: {}\n\n"], BROKEN, "KeyError: 'type'"),
        ([b"data: 5\n\n"], BROKEN, "makes no sense"),
        ([{"type": "response.output_text.delta", "item_id": 5, "delta": "x"}], BROKEN, "item_id"),
        ([{"type": "response.output_item.done", "item": {}}], BROKEN, "an object with a type"),
    ],
)
async def test_a_failed_model_call_ends_the_turn_with_what_is_known(
    tmp_path: Path, script: Any, info: Any, message: str
) -> None:
    async with serve(tmp_path) as served, served.client() as client:
        thread_id = await client.start_thread()
        served.model.scripts.append(script)
        turn_id = await start_turn(client, thread_id, "go")
        messages = await client.until("turn/completed")
        (error,) = (m["params"] for m in messages if m["method"] == "error")
        assert message in error["error"]["message"]
        assert error == {
            "error": {
                "message": error["error"]["message"],
                "codexErrorInfo": info,
                "additionalDetails": None,
                "misalignment": None,
            },
            "willRetry": False,
            "threadId": thread_id,
            "turnId": turn_id,
        }
        turn = messages[-1]["params"]["turn"]
        assert (turn["status"], turn["error"], turn["items"]) == ("failed", error["error"], [])
        assert len(served.model.requests) == 1
        assert (await client.turn(thread_id, "again"))["status"] == "completed"


@claim("turns:will-retry")
async def test_a_retry_announces_itself_and_may_succeed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("app_server.turns.model.calls.RETRY_BASE_S", 0)
    monkeypatch.setattr("app_server.turns.model.client.RETRY_BASE_S", 0)
    config = "\n[model_providers.patient]\nrequest_max_retries = 0\nstream_max_retries = 2\n"
    async with serve(tmp_path, config=config) as served, served.client() as client:
        overrides = {
            "model_provider": "patient",
            "model_providers.patient.base_url": served.model.url,
        }
        thread_id = await client.start_thread(config=overrides)
        call = {"type": "function_call", "call_id": "c", "name": "n", "arguments": "{}"}
        served.model.scripts += [
            [{"type": "response.output_item.done", "item": call}, BREAK],
            Refusal(502, {}),
            says("fine", item_id="msg_2"),
        ]
        turn_id = await start_turn(client, thread_id, "go")
        messages = await client.until("turn/completed")
        errors = [m["params"] for m in messages if m["method"] == "error"]
        here = {"willRetry": True, "threadId": thread_id, "turnId": turn_id}
        assert errors == [
            {
                "error": {
                    "message": f"Reconnecting... {attempt}/2",
                    "codexErrorInfo": {"responseStreamDisconnected": {"httpStatusCode": status}},
                    "additionalDetails": errors[attempt - 1]["error"]["additionalDetails"],
                    "misalignment": None,
                },
                **here,
            }
            for attempt, status in ((1, None), (2, 502))
        ]
        assert "unexpected status 502" in errors[1]["error"]["additionalDetails"]
        assert messages[-1]["params"]["turn"]["status"] == "completed"
        aborted = {
            "type": "function_call_output",
            "call_id": "c",
            "output": "aborted before there was a result",
        }
        assert served.model.requests[-1]["input"] == [raw("go", "user"), call, aborted]


async def test_a_request_that_got_no_stream_is_tried_again_silently(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("app_server.turns.model.client.RETRY_BASE_S", 0)
    async with serve(tmp_path) as served, served.client() as client:
        overrides = {"model_providers.scripted.request_max_retries": 2}
        thread_id = await client.start_thread(config=overrides)
        served.model.scripts += [
            Refusal(500, {}, {"retry-after": "0"}),
            Refusal(503, {}, {"retry-after": "soon"}),
            says("fine"),
        ]
        await start_turn(client, thread_id, "go")
        messages = await client.until("turn/completed")
        assert "error" not in {m["method"] for m in messages}
        assert len(served.model.requests) == 3


async def test_a_model_out_of_reach_fails_the_turn(tmp_path: Path) -> None:
    async with serve(tmp_path) as served, served.client() as client:
        overrides = {"model_providers.scripted.base_url": "http://127.0.0.1:1/v1?key=secret"}
        thread_id = await client.start_thread(config=overrides)
        turn = await client.turn(thread_id, "go")
        assert turn["error"]["codexErrorInfo"] == http_failed(None)
        assert "cannot reach the model at http://127.0.0.1:1/" in turn["error"]["message"]
        assert "secret" not in json.dumps(turn)


async def test_a_silent_model_is_given_up(tmp_path: Path) -> None:
    async with serve(tmp_path) as served, served.client() as client:
        overrides = {"model_providers.scripted.stream_idle_timeout_ms": 20}
        thread_id = await client.start_thread(config=overrides)
        gate = Gate()
        served.model.scripts.append([*says("x")[:2], gate])
        turn = await client.turn(thread_id, "go")
        gate.opened.set()
        assert turn["error"]["codexErrorInfo"] == BROKEN
        assert "idle timeout waiting for the model" in turn["error"]["message"]


async def test_an_event_above_the_bound_fails_the_turn(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("app_server.turns.model.client.MAX_EVENT_BYTES", 1000)
    async with serve(tmp_path) as served, served.client() as client:
        thread_id = await client.start_thread()
        served.model.scripts.append(says("x" * 1000))
        turn = await client.turn(thread_id, "go")
        assert turn["error"] == {
            "message": "the response of the model is too long: an event has more than 1000 bytes",
            "codexErrorInfo": BROKEN,
            "additionalDetails": None,
            "misalignment": None,
        }


async def test_a_provider_that_has_gone_fails_the_turn_not_the_thread(tmp_path: Path) -> None:
    async with serve(tmp_path) as served, served.client() as client:
        overrides = {
            "model_provider": "passing",
            "model_providers.passing.base_url": served.model.url,
        }
        thread_id = await client.start_thread(config=overrides)
    async with serve(tmp_path) as served, served.client() as client:
        await client.call("thread/resume", {"threadId": thread_id})
        turn = await client.turn(thread_id, "go")
        assert turn["error"]["message"] == "Model provider `passing` not found"


async def test_a_model_that_never_stops_calling_is_stopped(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("app_server.sessions.turn.runner.MAX_REQUESTS", 3)
    async with serve(tmp_path) as served, served.client() as client:
        thread_id = await client.start_thread()
        served.model.scripts += [calls({"name": "nothing"})] * 4
        turn = await client.turn(thread_id, "go")
        assert turn["error"]["message"] == "the model made 3 requests in one turn"
        assert len(served.model.requests) == 3


async def test_a_bug_in_a_turn_ends_it_and_tells_nobody_why(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    async with serve(tmp_path) as served, served.client() as client:
        thread_id = await client.start_thread()

        def broken(*_: Any) -> None:
            raise LookupError("the secret is 42")

        with monkeypatch.context() as patch:
            patch.setattr("app_server.turns.run.request_body", broken)
            turn = await client.turn(thread_id, "go")
        assert turn["error"]["message"] == "internal error"
        assert "the secret is 42" in caplog.text
        assert (await client.turn(thread_id, "again"))["status"] == "completed"


# Several inputs, one turn.


@claim("turns:join", "turns:steer", "inject:mid-turn")
async def test_input_during_a_turn_joins_it_at_the_next_request_in_its_order(
    tmp_path: Path,
) -> None:
    async with serve(tmp_path) as served, served.client() as client:
        thread_id = await client.start_thread()
        gate = Gate()
        script = says("first")
        served.model.scripts.append([*script[:2], gate, *script[2:]])
        turn_id = await start_turn(client, thread_id, "go")
        await gate.wait_until_reached()
        here = {"threadId": thread_id}
        wrong = await client.refusal(
            "turn/steer", {**here, "expectedTurnId": "x", "input": text_input("no")}
        )
        assert wrong.message == f"expected active turn id `x` but found `{turn_id}`"
        assert wrong.data == {"code": "turnIdMismatch", "expected": "x", "found": turn_id}
        steered = await client.call(
            "turn/steer",
            {
                **here,
                "expectedTurnId": turn_id,
                "input": text_input("steered"),
                "clientUserMessageId": "c",
            },
        )
        assert steered == {"turnId": turn_id}
        injected = {**here, "items": [raw("injected"), raw("too")]}
        assert await client.call("thread/inject_items", injected) == {}
        assert await start_turn(client, thread_id, "joined") == turn_id
        await client.call("turn/steer", {**here, "expectedTurnId": turn_id, "input": []})
        gate.opened.set()
        messages = await client.until("turn/completed")
        done = [m["params"]["item"] for m in messages if m["method"] == "item/completed"]
        assert [
            (item["type"], item.get("text") or item["content"][0]["text"]) for item in done
        ] == [
            ("userMessage", "go"),
            ("agentMessage", "first"),
            ("userMessage", "steered"),
            ("userMessage", "joined"),
            ("agentMessage", "ok"),
        ]
        assert done[2]["clientId"] == "c"
        assert served.model.inputs() == [
            ("user", "go"),
            ("assistant", "first"),
            ("user", "steered"),
            ("developer", "injected"),
            ("developer", "too"),
            ("user", "joined"),
        ]
        assert len(served.model.requests) == 2


@claim("turns:steer-none")
async def test_without_a_turn_there_is_nothing_to_steer_or_interrupt(tmp_path: Path) -> None:
    async with serve(tmp_path) as served, served.client() as client:
        thread_id = await client.start_thread()
        here = {"threadId": thread_id}
        steer = await client.refusal("turn/steer", {**here, "expectedTurnId": "x", "input": []})
        assert (steer.code, steer.message) == (-32600, "no active turn to steer")
        interrupt = await client.refusal("turn/interrupt", {**here, "turnId": "x"})
        assert (interrupt.code, interrupt.message) == (-32600, "no active turn to interrupt")
        assert interrupt.data == {"code": "noActiveTurn"}
        assert await client.call("turn/interrupt", {**here, "turnId": ""}) == {}


@claim("turns:interrupt")
async def test_an_interrupt_is_answered_at_once_and_ends_the_turn(tmp_path: Path) -> None:
    async with serve(tmp_path) as served, served.client() as client, served.client() as other:
        thread_id = await client.start_thread()
        gate = Gate()
        served.model.scripts.append([*says("part")[:3], gate])
        turn_id = await start_turn(client, thread_id, "go")
        await client.wait_for("item/agentMessage/delta")
        here = {"threadId": thread_id}
        wrong = await client.refusal("turn/interrupt", {**here, "turnId": "other"})
        assert wrong.data["code"] == "turnIdMismatch"
        steer = {**here, "expectedTurnId": turn_id, "input": text_input("steered")}
        await client.call("turn/steer", steer)
        await client.request("turn/interrupt", {**here, "turnId": turn_id})
        messages = await client.until("turn/completed")
        gate.opened.set()
        assert messages[0].get("result") == {}
        assert [m["method"] for m in messages[1:]] == [
            "item/started",
            "item/completed",
            "thread/status/changed",
            "turn/completed",
        ]
        turn = messages[-1]["params"]["turn"]
        assert (turn["status"], turn["items"], turn["itemsView"]) == (
            "interrupted",
            [],
            "notLoaded",
        )
        read = await other.call("thread/read", {**here, "includeTurns": True})
        (stored,) = read["thread"]["turns"]
        assert (stored["status"], [item["type"] for item in stored["items"]]) == (
            "interrupted",
            ["userMessage", "userMessage"],
        )
        await client.turn(thread_id, "after")
        assert served.model.inputs() == [
            ("user", "go"),
            ("developer", INTERRUPTED),
            ("user", "steered"),
            ("user", "after"),
        ]


@claim("turns:interrupt-from-answer")
async def test_a_turn_can_be_interrupted_from_the_moment_it_was_answered(tmp_path: Path) -> None:
    async with serve(tmp_path) as served, served.client() as client:
        thread_id = await client.start_thread()
        for _ in range(10):
            turn_id = await start_turn(client, thread_id, "go")
            await client.request("turn/interrupt", {"threadId": thread_id, "turnId": turn_id})
            messages = await client.until("turn/completed")
            end = messages[-1]["params"]["turn"]
            assert (end["id"], end["status"] in ("interrupted", "completed")) == (turn_id, True)


async def test_a_turn_without_input_runs(tmp_path: Path) -> None:
    async with serve(tmp_path) as served, served.client() as client:
        thread_id = await client.start_thread()
        await client.call("turn/start", {"threadId": thread_id, "input": []})
        messages = await client.until("turn/completed")
        assert [m["params"]["item"]["type"] for m in messages if m["method"] == "item/started"] == [
            "agentMessage"
        ]


@claim("turns:outlive-clients")
async def test_a_turn_goes_on_without_its_client(tmp_path: Path) -> None:
    async with serve(tmp_path) as served, served.client() as other:
        gate = Gate()
        script = says("still here")
        served.model.scripts.append([*script[:2], gate, *script[2:]])
        async with served.client() as client:
            thread_id = await client.start_thread()
            await start_turn(client, thread_id, "go")
            await gate.wait_until_reached()
        await other.call("thread/resume", {"threadId": thread_id})
        gate.opened.set()
        end = await other.wait_for("turn/completed")
        assert end["params"]["turn"]["items"][0]["text"] == "still here"


@claim("turns:slow-neighbour")
async def test_a_slow_turn_delays_nobody_else(tmp_path: Path) -> None:
    async with serve(tmp_path) as served, served.client() as client, served.client() as other:
        slow, quick = await client.start_thread(), await other.start_thread()
        gate = Gate()
        served.model.scripts.append([gate, *says("late")])
        await start_turn(client, slow, "go")
        await gate.wait_until_reached()
        assert (await other.turn(quick, "hi"))["status"] == "completed"
        read = await client.call("thread/read", {"threadId": slow})
        assert read["thread"]["status"] == {"type": "active", "activeFlags": []}
        gate.opened.set()
        await client.wait_for("turn/completed")


# Injecting.


@claim("inject:idle", "inject:before-first-turn", "inject:after-restart")
async def test_injected_items_are_there_at_the_next_request(tmp_path: Path) -> None:
    async with serve(tmp_path) as served, served.client() as client:
        thread_id = await client.start_thread()
        here = {"threadId": thread_id}
        await client.call("thread/inject_items", {**here, "items": [raw("before")]})
        await client.turn(thread_id, "one")
        await client.call("thread/inject_items", {**here, "items": [raw("idle")]})
        heard = [message["method"] for message in await _heard_so_far(client, thread_id)]
        assert [method for method in heard if method.startswith("item/")] == []
    async with serve(tmp_path) as served, served.client() as client:
        error = await client.refusal("thread/inject_items", {**here, "items": [raw("x")]})
        assert error.data["code"] == "threadNotFound"
        await client.call("thread/resume", here)
        await client.call("thread/inject_items", {**here, "items": [raw("after restart")]})
        await client.turn(thread_id, "two")
        assert served.model.inputs() == [
            ("developer", "before"),
            ("user", "one"),
            ("assistant", "ok"),
            ("developer", "idle"),
            ("developer", "after restart"),
            ("user", "two"),
        ]


async def _heard_so_far(client: WireClient, thread_id: str) -> list[Any]:
    await client.request("thread/name/set", {"threadId": thread_id, "name": "marker"})
    return [m for m in await client.until("thread/name/updated") if "method" in m]


async def test_items_injected_late_in_a_turn_wait_for_the_next_one(tmp_path: Path) -> None:
    async with serve(tmp_path) as served, served.client() as client:
        thread_id = await client.start_thread()
        gate = Gate()
        script = says("only")
        served.model.scripts.append([*script[:2], gate, *script[2:]])
        await start_turn(client, thread_id, "go")
        await gate.wait_until_reached()
        injected = {"threadId": thread_id, "items": [raw("late")]}
        await client.call("thread/inject_items", injected)
        gate.opened.set()
        await client.wait_for("turn/completed")
        assert len(served.model.requests) == 1
        await client.turn(thread_id, "next")
        assert served.model.inputs() == [
            ("user", "go"),
            ("assistant", "only"),
            ("developer", "late"),
            ("user", "next"),
        ]


@claim("inject:invalid")
async def test_an_item_that_no_model_takes_is_refused_by_its_index(tmp_path: Path) -> None:
    async with serve(tmp_path) as served, served.client() as client:
        thread_id = await client.start_thread()
        here = {"threadId": thread_id}
        empty = await client.refusal("thread/inject_items", {**here, "items": []})
        assert (empty.code, empty.message) == (-32600, "items must not be empty")
        bad = await client.refusal(
            "thread/inject_items", {**here, "items": [raw("fine"), {"type": "bogus"}]}
        )
        assert bad.code == -32602
        assert bad.message == (
            "Invalid params: `items[1]`: `type` 'bogus' is not a Responses input item"
        )
        assert bad.data["field"] == "items[1]"
        await client.turn(thread_id, "go")
        assert served.model.inputs() == [("user", "go")]


@pytest.mark.parametrize(
    ("item", "rule"),
    [
        (5, "must be an object"),
        ({}, "`type` is missing"),
        ({"type": None}, "`type` is missing"),
        ({"type": 5}, "`type` 5 is not a Responses input item"),
        ({"type": "message"}, "`role` must be one of assistant, developer, system, user"),
        ({"role": "user"}, "`content` must be a string or a list that is not empty"),
        ({"role": "user", "content": []}, "`content` must be a string or a list that is not empty"),
        (
            {"role": "user", "content": [{"type": "input_text"}]},
            "`content[0].text` must be a string",
        ),
        (
            {"role": "user", "content": [raw("x")["content"][0], 5]},
            "`content[1].type` None is not a content part",
        ),
        ({"type": "function_call", "call_id": "c", "name": "n"}, "`arguments` must be a string"),
        (
            {"type": "function_call_output", "call_id": "c"},
            "`output` must be a string or a list",
        ),
    ],
)
def test_items_break_rules(item: Any, rule: str) -> None:
    assert first_problem([raw("fine"), item]) == (1, rule)


def test_items_keep_rules() -> None:
    image = {"type": "input_image", "image_url": "data:"}
    fine = [
        {"role": "user", "content": "short form"},
        {"type": "message", "role": "assistant", "content": [image]},
        {"type": "function_call", "call_id": "c", "name": "n", "arguments": "{}"},
        {"type": "function_call_output", "call_id": "c", "output": []},
        {"type": "reasoning", "summary": []},
    ]
    assert first_problem(fine) is None


# Event streams.


def sse(text: str) -> list[SseEvent]:
    return EventParser(1000).feed(text.encode())


@pytest.mark.parametrize(
    ("text", "events"),
    [
        ("data: {}\n\n", [SseEvent(b"message", b"{}")]),
        ("event: x\ndata: 1\n\ndata:2\n\n", [SseEvent(b"x", b"1"), SseEvent(b"message", b"2")]),
        ("data: a\r\ndata: b\r\n\r\n", [SseEvent(b"message", b"a\nb")]),
        ("data: a\rdata:  b\r\r\n", [SseEvent(b"message", b"a\n b")]),
        (": comment\n\n\nid: 5\nretry: 1\nevent: x\n\n", []),
        ("\ufeffdata: a\n\n", [SseEvent(b"message", b"a")]),
        ("data\n\n", [SseEvent(b"message", b"")]),
        ("data: unfinished\n", []),
    ],
)
def test_event_streams_are_read_by_the_standard(text: str, events: list[SseEvent]) -> None:
    assert sse(text) == events


@pytest.mark.parametrize(
    ("text", "last_id", "retry_ms"),
    [
        ("data: a\n\n", b"", None),
        ("id: 5\nretry: 10\n\n", b"5", 10),
        ("id: 5\ndata: a\n\nid\ndata: b\n\n", b"", None),
        ("id: 5\n\nid: 6\n", b"5", None),
        ("id: a\0b\nretry: 1.5\n\nretry: 9999999999\n\n", b"", None),
    ],
)
def test_where_an_event_stream_can_be_taken_up_is_remembered(
    text: str, last_id: bytes, retry_ms: int | None
) -> None:
    parser = EventParser(1000)
    parser.feed(text.encode())
    assert (parser.last_id, parser.retry_ms) == (last_id, retry_ms)


@given(
    st.lists(st.tuples(st.sampled_from(["data: x", "event: e", ":c", "data: ü"]),
                       st.sampled_from(["\n", "\r\n", "\r", "\n\n", "\r\n\r\n"])), max_size=12),
    st.lists(st.integers(0, 60), max_size=6),
)  # fmt: skip
def test_where_chunks_split_makes_no_difference(
    lines: list[tuple[str, str]], cuts: list[int]
) -> None:
    text = ("".join(line + end for line, end in lines) + "\n\n").encode()
    whole = EventParser(10_000).feed(text)
    parser = EventParser(10_000)
    positions = sorted({min(cut, len(text)) for cut in cuts} | {0, len(text)})
    pieces = [text[a:b] for a, b in itertools.pairwise(positions)]
    assert [event for piece in pieces for event in parser.feed(piece)] == whole


@pytest.mark.parametrize("text", ["data: " + "x" * 2000, "data: " + "x" * 2000 + "\n\n"])
def test_an_event_above_the_bound_is_refused(text: str) -> None:
    with pytest.raises(EventTooLarge):
        sse(text)


# The configuration.


def test_overrides_merge_and_keep_the_file_as_it_was() -> None:
    config = Config({"a": {"x": 1, "y": 2}, "b": 1})
    merged = config.override({"a.x": 9, "a": {"z": 3}, "c.d": {"e": 1}, "b": {"f": 1}})
    assert merged.document == {
        "a": {"x": 9, "y": 2, "z": 3},
        "b": {"f": 1},
        "c": {"d": {"e": 1}},
    }
    assert config.document == {"a": {"x": 1, "y": 2}, "b": 1}
    assert Config({"a": 1}).override({"a.b": 2}).document == {"a": {"b": 2}}


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("a.b=5", ("a.b", 5)),
        ('model="x"', ("model", "x")),
        ("model=gpt-5", ("model", "gpt-5")),
        ("x=[1,2]", ("x", [1, 2])),
        ("x=", ("x", "")),
        (" x = a=b ", ("x", "a=b")),
    ],
)
def test_overrides_are_read_from_the_command_line(text: str, expected: Any) -> None:
    assert parse_override(text) == expected


def test_an_override_without_a_key_is_refused() -> None:
    for text in ("novalue", "=5"):
        with pytest.raises(ConfigError, match="use key=value"):
            parse_override(text)


@claim("config:file-position", "config:request-path")
@pytest.mark.parametrize(
    ("text", "overrides", "message"),
    [
        ("a =\n", {}, "{file}:1:4: Invalid value"),
        ("model = 5\n", {}, "{file}:1:9: invalid type: integer `5`, expected a string"),
        (
            "\n[sandbox_workspace_write]\nnetwork_access = 'x'\n",
            {"sandbox_mode": "workspace-write"},
            '{file}:3:18: invalid type: string "x", expected a boolean',
        ),
        (
            "sandbox_mode = 'x'",
            {},
            "{file}:1:16: unknown variant `x`, expected one of `read-only`, `workspace-write`, "
            "`danger-full-access`",
        ),
        ("", {"model": 5}, "invalid type: integer `5`, expected a string\nin `model`\n"),
        (
            "",
            {"model_providers": {"m": {"wire_api": "chat"}}},
            "unknown variant `chat`, expected `responses`\nin `model_providers.m.wire_api`\n",
        ),
        (
            "",
            {"model_providers.m.http_headers": "secret"},
            "invalid type: string, expected a map\nin `model_providers.m.http_headers`\n",
        ),
        (
            "",
            {"model_providers.m.request_max_retries": -1},
            "invalid value: integer `-1`, expected u64\n"
            "in `model_providers.m.request_max_retries`\n",
        ),
        (
            "",
            {"model_providers": [1]},
            "invalid type: sequence, expected a map\nin `model_providers`\n",
        ),
        ("", {"model": {}}, "invalid type: map, expected a string\nin `model`\n"),
        ("", {"model": 1.5}, "invalid type: floating point `1.5`, expected a string\nin `model`\n"),
        ("", {"model": True}, "invalid type: boolean `true`, expected a string\nin `model`\n"),
    ],
)  # fmt: skip
async def test_a_wrong_setting_is_named_with_its_place(
    tmp_path: Path, text: str, overrides: dict[str, Any], message: str
) -> None:
    async with serve(tmp_path) as served, served.client() as client:
        (tmp_path / "config.toml").write_text(text)
        error = await client.refusal("thread/start", {"config": overrides})
        expected = message.replace("{file}", str(tmp_path / "config.toml"))
        assert error.code == -32600
        assert error.message == f"failed to load configuration: {expected}"
        assert error.data == {"code": "configInvalid", "detail": expected}


def test_files_that_are_no_configuration_say_so(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "config.toml"
    assert read_config(path).document == {}
    path.write_bytes(b"\xff")
    with pytest.raises(ConfigError, match="not UTF-8"):
        read_config(path)
    monkeypatch.setattr("app_server.config.values.MAX_FILE_BYTES", 10)
    path.write_text("a = 'too long'")
    with pytest.raises(ConfigError, match="larger than 10 bytes"):
        read_config(path)
    path.unlink()
    path.mkdir()
    with pytest.raises(ConfigError, match="Is a directory"):
        read_config(path)
    path.rmdir()
    path.write_text("a = [")
    with pytest.raises(ConfigError, match=r"config\.toml"):
        read_config(path)


def test_settings_come_from_the_configuration(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("OPENAI_API_KEY", raising=False)
    settings = initial_settings(Config({}), "/w", Overrides())
    assert (settings.model_provider, settings.model) == ("offline", "offline")
    assert (settings.approval_policy, settings.sandbox_policy.type) == ("on-request", "readOnly")
    monkeypatch.setenv("OPENAI_API_KEY", "k")
    settings = initial_settings(Config({}), "/w", Overrides())
    assert (settings.model_provider, settings.model) == ("openai", "gpt-5")
    config = Config(
        {
            "approval_policy": {"granular": {"rules": False}},
            "sandbox_mode": "workspace-write",
            "sandbox_workspace_write": {"writable_roots": ["/a"], "network_access": True},
        }
    )
    settings = initial_settings(config, "/w", Overrides(effort="high"))
    assert settings.model_dump(mode="json", exclude_none=True) == {
        "model": "gpt-5",
        "modelProvider": "openai",
        "cwd": "/w",
        "approvalPolicy": {
            "granular": {
                "mcp_elicitations": True,
                "rules": False,
                "sandbox_approval": True,
                "request_permissions": False,
                "skill_approval": False,
            }
        },
        "approvalsReviewer": "user",
        "sandboxPolicy": {
            "type": "workspaceWrite",
            "writableRoots": ["/a"],
            "networkAccess": True,
            "excludeTmpdirEnvVar": False,
            "excludeSlashTmp": False,
        },
        "effort": "high",
        "disabledPluginIds": [],
    }
    config = Config({"approval_policy": "on-failure", "sandbox_mode": "danger-full-access"})
    settings = initial_settings(config, "/w", Overrides())
    assert (settings.approval_policy, settings.sandbox_policy.type) == (
        "on-request",
        "dangerFullAccess",
    )


async def test_a_provider_that_does_not_exist_is_named(tmp_path: Path) -> None:
    async with serve(tmp_path) as served, served.client() as client:
        error = await client.refusal("thread/start", {"modelProvider": "nope"})
        assert error.message == "failed to load configuration: Model provider `nope` not found"


# What terminal clients ask for first.


@claim("terminal:bootstrap")
async def test_what_is_asked_before_the_first_thread_is_answered_truly(tmp_path: Path) -> None:
    config = 'sandbox_mode = "read-only"\n[model_providers.scripted.http_headers]\nX = "secret"\n'
    async with serve(tmp_path, config=config) as served, served.client() as client:
        assert await client.call("account/read", {}) == {
            "account": None,
            "userId": None,
            "requiresOpenaiAuth": False,
            "workspaceRouting": None,
        }
        shown = await client.call("config/read", {"includeLayers": True, "cwd": "."})
        assert shown["config"]["model"] == "scripted"
        assert shown["config"]["sandbox_mode"] == "read-only"
        (layer,) = shown["layers"]
        assert (layer["name"]["type"], layer["config"]["model"]) == ("user", "scripted")
        assert "secret" not in json.dumps(shown)
        assert await client.call("configRequirements/read") == {
            "requirements": None,
            "supportsIndependentSpeedModes": None,
        }
        models = await client.call("model/list", {})
        assert [(model["id"], model["isDefault"]) for model in models["data"]] == [
            ("scripted", True)
        ]
        assert (await client.call("model/list", {"modelProvider": "other"}))["data"] == []
        skills = await client.call("skills/list", {"cwds": ["/a", "/b"], "forceReload": True})
        assert skills == {
            "data": [{"cwd": cwd, "skills": [], "errors": []} for cwd in ("/a", "/b")]
        }
        assert await client.call("hooks/list", {"cwds": ["/a", "/b"]}) == {
            "data": [
                {"cwd": cwd, "hooks": [], "warnings": [], "errors": []} for cwd in ("/a", "/b")
            ]
        }
        assert await client.call("collaborationMode/list", {}) == {
            "data": [
                {"name": "Default", "mode": "default", "model": None, "reasoning_effort": None}
            ]
        }


@pytest.mark.parametrize(
    ("setting", "policy"),
    [("", "on-request"), ('approval_policy = "on-failure"', "on-request")],
)
async def test_the_approval_policy_is_shown_as_it_holds(
    tmp_path: Path, setting: str, policy: str
) -> None:
    async with serve(tmp_path, config=setting) as served, served.client() as client:
        shown = await client.call("config/read", {})
        assert shown["config"]["approval_policy"] == policy


async def test_a_setting_that_the_wire_has_no_place_for_is_named(tmp_path: Path) -> None:
    config = "[sandbox_workspace_write]\nwritable_roots = 7"
    async with serve(tmp_path, config=config) as served, served.client() as client:
        error = await client.refusal("config/read", {})
        assert (error.code, error.data["code"]) == (-32600, "configInvalid")
        assert "sandbox_workspace_write.writable_roots" in error.message


async def test_tools_that_a_client_brings_are_ignored_aloud(tmp_path: Path) -> None:
    tool = {"type": "function", "name": "x", "description": "", "inputSchema": {}}
    async with serve(tmp_path) as served, served.client() as client:
        await client.call("thread/start", {"dynamicTools": [tool]})
        warning = await client.wait_for("warning")
        assert "dynamicTools are not supported" in warning["params"]["message"]


# The offline model.


@claim("model:offline")
async def test_the_offline_model_answers_through_the_same_client(tmp_path: Path) -> None:
    async with serve(tmp_path) as served, served.client() as client:
        started = await client.call("thread/start", {"modelProvider": "offline"})
        assert started["modelProvider"] == "offline"
        thread_id = started["thread"]["id"]
        await client.call("thread/inject_items", {"threadId": thread_id, "items": [raw("news")]})
        await client.call("turn/start", {"threadId": thread_id, "input": text_input("hello you")})
        messages = await client.until("turn/completed")
        text = (
            "This is the offline model: it repeats what it is told. You said: hello you "
            "I was also told: news"
        )
        assert messages[-1]["params"]["turn"]["items"][0]["text"] == text
        deltas = [m for m in messages if m["method"] == "item/agentMessage/delta"]
        assert "".join(m["params"]["delta"] for m in deltas) == text
        assert len(deltas) > 10
        turn = await client.turn(thread_id, "/tool no.such {}")
        assert turn["items"][0]["text"].endswith("There is no tool no.such.")
        assert served.model.requests == []


@pytest.mark.parametrize(("content", "status"), [(b"{", 400), (b"5", 400), (b"x" * 2000, 413)])
async def test_the_offline_model_refuses_nonsense(
    content: bytes, status: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(offline, "MAX_REQUEST_BYTES", 1000)
    async with offline.serve_offline_model() as url:
        host, port = url.removeprefix("http://").removesuffix("/v1").split(":")
        reader, writer = await asyncio.open_connection(host, int(port))
        writer.write(
            b"POST /v1/responses HTTP/1.1\r\nhost: x\r\nconnection: close\r\n"
            b"content-length: %d\r\n\r\n%b" % (len(content), content)
        )
        head = await reader.readline()
        writer.close()
        await writer.wait_closed()
    assert head.split()[1] == str(status).encode()


def test_the_offline_model_is_deterministic() -> None:
    request: dict[str, Any] = {"input": [raw("x", "user"), 5], "tools": []}
    assert offline.reply(request) == offline.reply(request)
    assert offline.reply({})["content"][0]["text"].endswith("You said: ")
    output = {"type": "function_call_output", "output": [{"text": "a"}, {"text": 5}, 7]}
    assert offline.reply({"input": [output]})["content"][0]["text"] == "The tool answered: a"
