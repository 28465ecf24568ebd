"""turns: what the model is sent."""

from pathlib import Path
from typing import Any

import pytest

from app_server.models.prompt.environment_context import FACTS, PERMISSIONS, kind_of
from app_server.models.prompt.images import MAX_IMAGE_BYTES
from protocol.model import JsonObject
from tests.support.files.images import PNG, PNG_URL
from tests.support.harness import claim, serve
from tests.support.model import BREAK, says
from tests.support.turns import raw, text_input


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
        assert [kind_of(item) for item in first["input"]] == [PERMISSIONS, FACTS, None]
        assert first == {
            "model": "scripted",
            "instructions": "BASE",
            "input": [*first["input"][:2], raw("one", "user")],
            "tools": first["tools"],
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
                    "name": "codex_output_schema",
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
    picture.write_bytes(PNG)
    (tmp_path / "p.txt").write_text("no picture")
    (tmp_path / "big.png").write_bytes(PNG + b"x" * MAX_IMAGE_BYTES)
    inputs: list[dict[str, Any]] = [
        {"type": "text", "text": "see", "text_elements": [{"byteRange": {"start": 0, "end": 1}}]},
        {"type": "image", "url": PNG_URL, "detail": "low"},
        {"type": "image", "url": "data:image/png;base64,AAAA"},
        {"type": "image", "url": "https://pictures.example/a.png"},
        {"type": "localImage", "path": str(picture)},
        *(
            {"type": "localImage", "path": str(tmp_path / name)}
            for name in ("p.txt", "big.png", "none.png")
        ),
        {"type": "skill", "name": "s", "path": "/s"},
        {"type": "mention", "name": "m", "path": "app://m"},
        {"type": "mention", "name": "p", "path": "plugin://p@m"},
    ]
    async with serve(tmp_path) as served, served.client() as client:
        thread_id = await client.start_thread()
        await client.call("turn/start", {"threadId": thread_id, "input": inputs})
        await client.wait_for("turn/completed")
        (message,) = served.model.items(0)
        no_image = "it is not a PNG, JPEG, GIF or WebP image"
        reasons = {
            "p.txt": no_image,
            "big.png": "it has more than 8388608 bytes",
            "none.png": "No such file or directory",
        }
        unread = [
            {"type": "input_text", "text": f"[image {tmp_path / name} could not be read: {reason}]"}
            for name, reason in reasons.items()
        ]
        assert message["content"] == [
            {"type": "input_text", "text": "see"},
            {"type": "input_image", "image_url": PNG_URL, "detail": "low"},
            {"type": "input_text", "text": f"[an image could not be read: {no_image}]"},
            {"type": "input_image", "image_url": "https://pictures.example/a.png"},
            {"type": "input_image", "image_url": PNG_URL},
            *unread,
            {"type": "input_text", "text": "[skill s: /s]"},
            {"type": "input_text", "text": "[$m](app://m)"},
            {"type": "input_text", "text": "[@p](plugin://p@m)"},
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


@pytest.mark.parametrize("is_cut", [False, True])
async def test_a_call_of_the_local_shell_which_nobody_offered_gets_an_output(
    tmp_path: Path, is_cut: bool
) -> None:
    # The Responses API refuses a history with a call that has none.
    async with serve(tmp_path) as served, served.client() as client:
        retries = {"model_providers.scripted.stream_max_retries": 1}
        thread_id = await client.start_thread(config=retries)
        call = {
            "type": "local_shell_call",
            "id": "lsh_1",
            "call_id": "c",
            "status": "completed",
            "action": {"type": "exec", "command": ["ls"], "env": {}},
        }
        done = {"type": "response.output_item.done", "item": call}
        completed = {"type": "response.completed", "response": {"id": "r"}}
        served.model.scripts += [[done, BREAK if is_cut else completed], says("I cannot.")]
        assert (await client.turn(thread_id, "go"))["status"] == "completed"
        text = "aborted before there was a result" if is_cut else "unsupported call: local_shell"
        output = {"type": "function_call_output", "call_id": "c", "output": text}
        assert served.model.items() == [raw("go", "user"), call, output]


async def test_items_of_kinds_that_nobody_offered_are_not_sent_back(tmp_path: Path) -> None:
    # Whoever serves the model refuses a history with a call that has no output.
    left_out: list[JsonObject] = [
        {"type": "computer_call", "id": "cc_1", "call_id": "c1", "action": {"type": "wait"}},
        {"type": "shell_call", "id": "sh_1", "call_id": "c2", "action": {"commands": ["ls"]}},
        {"type": "apply_patch_call", "id": "ap_1", "call_id": "c3", "operation": {}},
        {"type": "mcp_approval_request", "id": "ma_1", "name": "n", "server_label": "s"},
        {"type": "code_interpreter_call", "id": "ci_1", "code": "1", "container_id": "c"},
        {"type": "function_call_output", "call_id": "c4", "output": "said by nobody"},
        {"type": "kind_of_tomorrow", "id": "k_1"},
    ]
    kept: list[JsonObject] = [
        {"type": "image_generation_call", "id": "ig_1", "status": "completed", "result": "aGk="},
        {"type": "compaction", "encrypted_content": "x"},
        {"type": "compaction_summary", "encrypted_content": "x"},
        {"type": "context_compaction", "encrypted_content": "x"},
        {"type": "agent_message", "author": "a", "recipient": "b", "content": []},
        {"type": "additional_tools", "role": "developer", "tools": []},
    ]
    async with serve(tmp_path) as served, served.client() as client:
        thread_id = await client.start_thread()
        done = [{"type": "response.output_item.done", "item": item} for item in left_out + kept]
        completed = {"type": "response.completed", "response": {"id": "r"}}
        served.model.scripts += [[*done, completed], says("Yes.")]
        assert (await client.turn(thread_id, "go"))["status"] == "completed"
        assert (await client.turn(thread_id, "on"))["status"] == "completed"
        assert served.model.items() == [raw("go", "user"), *kept, raw("on", "user")]
