"""turns: models that fail, retries, and the bounds of a turn."""

import json
from pathlib import Path
from typing import Any

import pytest

from tests.support.harness import claim, serve
from tests.support.model import BREAK, Gate, Refusal, calls, says
from tests.support.turns import raw, start_turn


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
        (
            [
                {
                    "type": "response.reasoning_text.delta",
                    "content_index": -(2**63) - 1,
                    "delta": "x",
                }
            ],
            BROKEN,
            "content_index must have at most 64 bits",
        ),
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
async def test_a_retry_announces_itself_and_may_succeed(tmp_path: Path) -> None:
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
        assert served.model.items() == [raw("go", "user"), call, aborted]


async def test_a_request_that_got_no_stream_is_tried_again_silently(tmp_path: Path) -> None:
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
    monkeypatch.setattr("app_server.models.response_stream.MAX_EVENT_BYTES", 1000)
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
    monkeypatch.setattr("app_server.sessions.turn.MAX_REQUESTS", 3)
    async with serve(tmp_path) as served, served.client() as client:
        thread_id = await client.start_thread()
        served.model.scripts += [calls({"name": "nothing"})] * 4
        turn = await client.turn(thread_id, "go")
        assert turn["error"]["message"] == "the model made 3 requests in one turn"
        assert len(served.model.requests) == 3


async def test_a_bug_in_a_turn_ends_it_and_its_cause_is_only_logged(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    async with serve(tmp_path) as served, served.client() as client:
        thread_id = await client.start_thread()

        def broken(*_: Any, **__: Any) -> None:
            raise LookupError("the secret is 42")

        with monkeypatch.context() as patch:
            patch.setattr("app_server.turns.model_exchange.request_body", broken)
            turn = await client.turn(thread_id, "go")
        assert turn["error"]["message"] == "internal error"
        assert "the secret is 42" in caplog.text
        assert (await client.turn(thread_id, "again"))["status"] == "completed"


@claim("model:connection")
async def test_requests_of_turns_share_a_connection_until_a_stream_stays_open(
    tmp_path: Path,
) -> None:
    stays_open = Gate()
    async with serve(tmp_path) as served, served.client() as client:
        thread_id = await client.start_thread()
        await client.turn(thread_id, "one")
        await client.turn(thread_id, "two")
        assert len(served.model.connections) == 1
        served.model.scripts.append([*says("three"), stays_open])
        await client.turn(thread_id, "three")
        await client.turn(thread_id, "four")
        assert len(served.model.connections) == 2
        stays_open.opened.set()
