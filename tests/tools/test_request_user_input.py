"""Questions of the model to the user: who is asked, what the model reads, what is refused."""

import json
from pathlib import Path
from typing import Any

import pytest

from app_server.tools.request_user_input import METHOD, NAME, UNAVAILABLE
from tests.support.harness import WireClient, claim, serve
from tests.support.model import calls, says

OPTIONS = [{"label": "A", "description": "a"}, {"label": "B", "description": "b"}]
QUESTION = {"id": "q1", "header": "Head", "question": "Which?", "options": OPTIONS}
PLAN = {
    "collaborationMode": {
        "mode": "plan",
        "settings": {
            "model": "scripted",
            "reasoning_effort": None,
            "developer_instructions": None,
        },
    }
}
EVERYWHERE = "[features]\ndefault_mode_request_user_input = true\n"


def asks(*questions: Any) -> list[Any]:
    return calls({"name": NAME, "arguments": {"questions": list(questions)}})


async def begin(client: WireClient, **options: Any) -> str:
    thread_id = await client.start_thread()
    said = [{"type": "text", "text": "go"}]
    await client.call("turn/start", {"threadId": thread_id, "input": said, **options})
    return thread_id


@claim("input:asked", "input:status")
async def test_the_user_is_asked_and_the_model_reads_the_answers(tmp_path: Path) -> None:
    async with serve(tmp_path) as served, served.client() as client:
        served.model.scripts.append(asks(QUESTION))
        thread_id = await begin(client, **PLAN)
        messages = await client.until(METHOD)
        status = [m["params"]["status"] for m in messages if "status" in m.get("params", {})]
        assert status[-1] == {"type": "active", "activeFlags": ["waitingOnUserInput"]}
        request = messages[-1]
        turn_id = request["params"].pop("turnId")
        assert request["params"] == {
            "threadId": thread_id,
            "itemId": "call_1",
            "questions": [{**QUESTION, "isOther": True, "isSecret": False}],
            "isBlocking": True,
            "autoResolutionMs": None,
        }
        answers = {"q1": {"answers": ["A", "user_note: soon"]}}
        await client.send({"id": request["id"], "result": {"answers": answers}})
        resolved = await client.wait_for("serverRequest/resolved")
        assert resolved["params"] == {"threadId": thread_id, "requestId": request["id"]}
        status = await client.wait_for("thread/status/changed")
        assert status["params"]["status"] == {"type": "active", "activeFlags": []}
        end = await client.wait_for("turn/completed")
        assert end["params"]["turn"]["id"] == turn_id
        assert output(served) == json.dumps({"answers": answers}, separators=(",", ":"))


def output(served: Any) -> str:
    (text,) = [item["output"] for item in served.model.items() if "output" in item][-1:]
    return str(text)


@claim("input:refused")
@pytest.mark.parametrize(
    "answer", [{"error": {"code": -32000, "message": "no"}}, {"result": {"nope": 1}}]
)
async def test_a_client_that_refuses_gives_no_answers(
    tmp_path: Path, answer: dict[str, Any]
) -> None:
    async with serve(tmp_path) as served, served.client() as client:
        served.model.scripts.append(asks(QUESTION))
        await begin(client, **PLAN)
        request = await client.wait_for(METHOD)
        await client.send({"id": request["id"], **answer})
        await client.wait_for("turn/completed")
        assert output(served) == '{"answers":{}}'


@claim("input:modes")
async def test_outside_of_plan_mode_nobody_is_asked_unless_the_settings_say_so(
    tmp_path: Path,
) -> None:
    async with serve(tmp_path) as served, served.client() as client:
        served.model.scripts.append(asks(QUESTION))
        thread_id = await begin(client)
        await client.wait_for("turn/completed")
        assert output(served) == UNAVAILABLE
        assert NAME in [tool.get("name") for tool in served.model.requests[-1]["tools"]]
        await client.call("thread/unsubscribe", {"threadId": thread_id})
    async with serve(tmp_path / "other", config=EVERYWHERE) as served, served.client() as client:
        served.model.scripts.append(asks(QUESTION))
        await begin(client)
        request = await client.wait_for(METHOD)
        await client.send({"id": request["id"], "result": {"answers": {}}})
        await client.wait_for("turn/completed")
        features = (await client.call("experimentalFeature/list", {}))["data"]
        (feature,) = [f for f in features if f["name"] == "default_mode_request_user_input"]
        assert (feature["enabled"], feature["defaultEnabled"]) == (True, False)


@claim("input:checked")
@pytest.mark.parametrize(
    ("questions", "named"),
    [
        ([], "questions: "),
        ([{**QUESTION, "id": f"q{n}"} for n in range(4)], "questions: "),
        ([QUESTION, QUESTION], "two have the same id"),
        ([{**QUESTION, "options": []}], "questions.0.options: "),
        ([{k: v for k, v in QUESTION.items() if k != "options"}], "questions.0.options: "),
        ([{**QUESTION, "header": "x" * 4001}], "questions.0.header: "),
        ([{**QUESTION, "more": 1}], "questions.0.more: "),
        ("x", "questions: "),
    ],
)
async def test_the_model_gets_an_error_for_questions_that_make_no_sense(
    tmp_path: Path, questions: Any, named: str
) -> None:
    async with serve(tmp_path) as served, served.client() as client:
        arguments = {"questions": questions}
        served.model.scripts.append(calls({"name": NAME, "arguments": arguments}))
        await begin(client, **PLAN)
        await client.wait_for("turn/completed")
        text = output(served)
        assert text.startswith("failed to parse function arguments: ")
        assert named in text


@claim("input:interrupt")
async def test_an_interrupt_withdraws_the_question(tmp_path: Path) -> None:
    async with serve(tmp_path) as served, served.client() as client:
        served.model.scripts.append(asks(QUESTION))
        thread_id = await begin(client, **PLAN)
        request = await client.wait_for(METHOD)
        await client.call("turn/interrupt", {"threadId": thread_id, "turnId": ""})
        resolved = await client.wait_for("serverRequest/resolved")
        assert resolved["params"]["requestId"] == request["id"]
        end = await client.wait_for("turn/completed")
        assert end["params"]["turn"]["status"] == "interrupted"
        served.model.scripts.append(says("again"))
        assert (await client.turn(thread_id, "go"))["status"] == "completed"


@claim("input:reconnect")
async def test_a_client_that_comes_back_is_asked_again(tmp_path: Path) -> None:
    async with serve(tmp_path) as served:
        async with served.client() as client:
            served.model.scripts.append(asks(QUESTION))
            thread_id = await begin(client, **PLAN)
            await client.wait_for(METHOD)
        async with served.client() as client:
            await client.call("thread/resume", {"threadId": thread_id})
            request = await client.wait_for(METHOD)
            await client.send({"id": request["id"], "result": {"answers": {}}})
            end = await client.wait_for("turn/completed")
            assert end["params"]["turn"]["status"] == "completed"
