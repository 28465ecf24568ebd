"""What providers say of their models: read, kept for a while, and put over the catalogue."""

import asyncio
import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from app_server.models.catalogue.models import (
    FAILED_S,
    KEPT_S,
    MAX_KEPT,
    MAX_MODELS,
    MAX_NAME_CHARS,
    ListedModel,
    ModelFeatures,
    ModelLists,
    parse_models,
)
from app_server.models.interface import ModelFailure, Provider
from app_server.runtime.loader import LoadFailed
from tests.support.harness import claim, serve
from tests.support.model import ScriptedModel, calls, says

LOCAL = Provider("local", "Local", "http://127.0.0.1/v1")


def parsed(document: Any) -> list[ListedModel]:
    return parse_models(json.dumps(document).encode())


@pytest.mark.parametrize(
    ("entry", "listed"),
    [
        ({"id": "m", "object": "model", "owned_by": "x"}, ListedModel(name="m")),
        # vLLM
        ({"id": "m", "max_model_len": 32768}, ListedModel(name="m", context_window=32768)),
        # llama.cpp's server
        (
            {"id": "m", "meta": {"vocab_type": 2, "n_ctx_train": 131072}},
            ListedModel(name="m", context_window=131072),
        ),
        (
            {"id": "m", "meta": {"n_ctx": 4096, "n_ctx_train": 131072}},
            ListedModel(name="m", context_window=4096),
        ),
        # OpenRouter
        (
            {
                "id": "a/m",
                "context_length": 200000,
                "architecture": {"input_modalities": ["text", "image", "file"]},
            },
            ListedModel(
                name="a/m",
                context_window=200000,
                inputs=frozenset({"text", "image", "file"}),
            ),
        ),
        ({"id": "m", "max_model_len": "many", "meta": 3}, ListedModel(name="m")),
        ({"id": "m", "max_model_len": -1}, ListedModel(name="m")),
        ({"id": "m", "max_model_len": True}, ListedModel(name="m")),
    ],
)
def test_the_forms_in_use_are_read(entry: Any, listed: ListedModel) -> None:
    assert parsed({"object": "list", "data": [entry]}) == [listed]


def test_what_llama_cpp_says_beside_its_list_counts_too() -> None:
    document = {
        "models": [
            {"name": "m", "model": "m", "capabilities": ["completion", "multimodal"]},
            {"name": "t", "model": "t", "capabilities": ["completion"]},
        ],
        "object": "list",
        "data": [{"id": "m", "meta": {"n_ctx_train": 8192}}, {"id": "t", "meta": None}],
    }
    assert parsed(document) == [
        ListedModel(name="m", context_window=8192, inputs=frozenset({"text", "image"})),
        ListedModel(name="t", inputs=frozenset({"text"})),
    ]


def test_a_list_by_the_name_of_models_is_read() -> None:
    document = {
        "models": [
            {
                "slug": "m",
                "display_name": "M",
                "context_window": 1000,
                "input_modalities": ["text"],
                "visibility": "hide",
            }
        ]
    }
    assert parsed(document) == [
        ListedModel(
            name="m",
            display_name="M",
            context_window=1000,
            inputs=frozenset({"text"}),
            hidden=True,
        )
    ]


def test_what_makes_no_sense_in_a_list_is_left_out() -> None:
    entries = [1, None, {}, {"id": 5}, {"id": ""}, {"id": "x" * (MAX_NAME_CHARS + 1)}]
    assert parsed({"data": [*entries, {"id": "m"}, {"id": "m", "context_length": 5}]}) == [
        ListedModel(name="m")
    ]
    many = [{"id": f"m{number}"} for number in range(MAX_MODELS + 10)]
    assert len(parsed({"data": many})) == MAX_MODELS


@pytest.mark.parametrize(
    ("content", "problem"),
    [
        (b"", "EOF"),
        (b"<html>", "expected value"),
        (b"[]", "must be an object"),
        (b"{}", "must have `data` or `models`"),
        (b'{"data": 3}', "must have `data` or `models`"),
    ],
)
def test_what_is_no_list_is_refused(content: bytes, problem: str) -> None:
    with pytest.raises(ValueError, match=problem):
        parse_models(content)


class Server:
    """Answers as a provider would, and counts."""

    def __init__(self, answer: bytes | Exception) -> None:
        self.answer = answer
        self.asked = 0
        self.clock = 0.0

    async def prepare(self) -> None:
        pass

    async def list_models(self, provider: Provider) -> bytes:
        self.asked += 1
        await asyncio.sleep(0)
        if isinstance(self.answer, Exception):
            raise self.answer
        return self.answer

    def lists(self) -> ModelLists:
        return ModelLists(self, now=lambda: self.clock)


async def test_a_list_is_fetched_once_and_again_when_it_is_old() -> None:
    server = Server(b'{"data": [{"id": "m", "max_model_len": 99}]}')
    lists = server.lists()
    assert lists.features("m", LOCAL) == ModelFeatures(name="m")
    for found in await asyncio.gather(lists.models(LOCAL), lists.models(LOCAL)):
        assert found == [ListedModel(name="m", context_window=99)]
    assert lists.features("m", LOCAL) == ModelFeatures(name="m", is_known=True, context_window=99)
    assert lists.features("other", LOCAL) == ModelFeatures(name="other")
    server.clock = KEPT_S - 1
    await lists.models(LOCAL)
    assert server.asked == 1
    server.clock = KEPT_S
    assert lists.features("m", LOCAL).context_window == 99
    server.answer = b"{}"
    assert await lists.models(LOCAL) is None
    assert server.asked == 2


async def test_a_provider_that_gives_no_list_is_left_in_peace_for_a_while() -> None:
    server = Server(ModelFailure("no"))
    lists = server.lists()
    assert await lists.models(LOCAL) is None
    server.answer = b'{"data": []}'
    server.clock = FAILED_S - 1
    assert await lists.models(LOCAL) is None
    assert server.asked == 1
    server.clock = FAILED_S
    assert await lists.models(LOCAL) == []


async def test_who_leaves_takes_the_answer_from_nobody() -> None:
    server = Server(b'{"data": [{"id": "m"}]}')
    lists = server.lists()
    first = asyncio.create_task(lists.models(LOCAL))
    second = asyncio.create_task(lists.models(LOCAL))
    await asyncio.sleep(0)
    first.cancel()
    assert await second == [ListedModel(name="m")]
    assert server.asked == 1


async def test_an_answer_that_does_not_come_is_not_waited_for() -> None:
    class Silent(Server):
        async def list_models(self, provider: Provider) -> bytes:
            await asyncio.Event().wait()
            return b""

    assert await ModelLists(Silent(b""), fetch_s=0.01).models(LOCAL) is None


async def test_what_cannot_be_loaded_or_read_is_no_list() -> None:
    class Unloaded(Server):
        async def prepare(self) -> None:
            raise LoadFailed("later")

    unloaded = Unloaded(b'{"data": []}')
    assert await unloaded.lists().models(LOCAL) is None
    assert unloaded.asked == 0
    assert await Server(b"<html>").lists().models(LOCAL) is None


async def test_a_base_url_that_is_none_fails_the_turn_by_name(tmp_path: Path) -> None:
    async with serve(tmp_path) as served, served.client() as client:
        overrides = {"model_providers.scripted.base_url": "http://127.0.0.1:port/v1"}
        turn = await client.turn(await client.start_thread(config=overrides), "hi")
        assert turn["error"]["message"].startswith("the base_url of provider `scripted` is no URL")


async def test_lists_are_bounded() -> None:
    server = Server(b'{"data": [{"id": "m", "max_model_len": 99}]}')
    lists = server.lists()
    for number in range(MAX_KEPT + 1):
        await lists.models(replace(LOCAL, id=f"p{number}"))
    assert lists.features("m", replace(LOCAL, id="p0")).context_window != 99
    assert lists.features("m", replace(LOCAL, id="p1")).context_window == 99


async def test_openai_is_not_asked_and_the_offline_model_knows_itself() -> None:
    server = Server(b'{"data": [{"id": "m"}]}')
    lists = server.lists()
    assert await lists.models(replace(LOCAL, requires_openai_auth=True)) is None
    assert await lists.models(Provider("offline", "Offline", None)) == [ListedModel(name="offline")]
    assert server.asked == 0


# On the wire.


@claim("models:list")
async def test_a_provider_s_own_models_are_listed(tmp_path: Path) -> None:
    model = ScriptedModel()
    model.models = {
        "data": [
            {"id": "llama", "max_model_len": 4096},
            {"id": "gpt-5.5"},
            {"id": "secret", "visibility": "hide"},
        ]
    }
    async with serve(tmp_path, model=model) as served, served.client() as client:
        listed = (await client.call("model/list", {}))["data"]
        assert [(entry["id"], entry["isDefault"]) for entry in listed] == [
            ("scripted", True),
            ("gpt-5.5", False),
            ("llama", False),
        ]
        everything = (await client.call("model/list", {"includeHidden": True}))["data"]
        assert [entry["id"] for entry in everything] == ["scripted", "gpt-5.5", "llama", "secret"]
        assert listed[1]["upgrade"] == "gpt-6-sol"
        assert [each["reasoningEffort"] for each in listed[1]["supportedReasoningEfforts"]] == [
            "low",
            "medium",
            "high",
            "xhigh",
        ]
        assert model.lists == 1
        assert model.list_headers["accept"] == "application/json"


@claim("models:list")
async def test_the_catalogue_is_listed_where_a_provider_lists_nothing(tmp_path: Path) -> None:
    async with serve(tmp_path) as served, served.client() as client:
        for provider in ({}, {"modelProvider": "scripted"}, {"modelProvider": "openai"}):
            listed = (await client.call("model/list", provider))["data"]
            assert [entry["id"] for entry in listed[:3]] == [
                "scripted",
                "gpt-6.1-sol",
                "gpt-6-astra",
            ]
            assert not any(entry["hidden"] for entry in listed)
        everything = (await client.call("model/list", {"includeHidden": True}))["data"]
        assert [entry["id"] for entry in everything if entry["hidden"]] == [
            "gpt-daybreak-blue-latest",
            "gpt-daybreak-red-latest",
            "codex-auto-review",
        ]
        offline = (await client.call("model/list", {"modelProvider": "offline"}))["data"]
        assert [entry["id"] for entry in offline] == ["scripted", "offline"]


# In turns.


@claim("models:unknown")
async def test_a_model_of_which_nothing_is_known_is_named_once_a_thread(tmp_path: Path) -> None:
    async with serve(tmp_path) as served, served.client() as client:
        for _ in range(2):
            thread_id = await client.start_thread()
            warnings = []
            for _ in range(2):
                await client.call(
                    "turn/start",
                    {"threadId": thread_id, "input": [{"type": "text", "text": "hi"}]},
                )
                seen = await client.until("turn/completed")
                warnings += [each["params"] for each in seen if each.get("method") == "warning"]
            assert [each["threadId"] for each in warnings] == [thread_id]
            assert warnings[0]["message"].startswith("Nothing is known of the model `scripted`: ")
        assert served.model.lists == 1


@pytest.mark.parametrize(
    ("config", "params", "models"),
    [
        ("model_context_window = 1000", {}, None),
        ("", {"model": "gpt-5.5"}, None),
        ("", {}, {"data": [{"id": "scripted", "max_model_len": 5000}]}),
    ],
)
@claim("models:unknown")
async def test_there_is_no_warning_for_a_model_that_somebody_knows(
    tmp_path: Path, config: str, params: dict[str, Any], models: Any
) -> None:
    model = ScriptedModel()
    model.models = models
    async with serve(tmp_path, config=config, model=model) as served, served.client() as client:
        thread_id = await client.start_thread(**params)
        await client.call(
            "turn/start", {"threadId": thread_id, "input": [{"type": "text", "text": "hi"}]}
        )
        seen = await client.until("turn/completed")
        assert not [each for each in seen if each.get("method") == "warning"]


async def test_a_known_model_is_asked_for_what_is_usual_for_it(tmp_path: Path) -> None:
    async with serve(tmp_path) as served, served.client() as client:
        await client.turn(await client.start_thread(model="gpt-5.5"), "hi")
        await client.turn(await client.start_thread(model="scripted"), "hi")
        known, unknown = served.model.requests
        assert (known["reasoning"], known["text"]) == ({"effort": "medium"}, {"verbosity": "low"})
        assert "reasoning" not in unknown
        assert "text" not in unknown
        chosen = await client.start_thread(model="gpt-5.5", config={"model_verbosity": "high"})
        await client.turn(chosen, "hi", effort="low", outputSchema={"type": "object"})
        assert served.model.requests[-1]["reasoning"] == {"effort": "low"}
        assert served.model.requests[-1]["text"]["verbosity"] == "high"
        assert served.model.requests[-1]["text"]["format"]["schema"] == {"type": "object"}


async def test_a_provider_is_asked_at_most_once_a_turn(tmp_path: Path) -> None:
    async with serve(tmp_path) as served, served.client() as client:
        served.services.model_lists.failed_s = 0.0
        served.model.scripts = [calls({"name": "nothing"}), calls({"name": "nothing"})]
        thread_id = await client.start_thread()
        await client.turn(thread_id, "go")
        assert (len(served.model.requests), served.model.lists) == (3, 1)
        await client.turn(thread_id, "go")
        assert served.model.lists == 2


@pytest.mark.parametrize(
    ("model", "effort", "sent"),
    [
        ("gpt-5.5", "none", "none"),
        ("gpt-5.5", "max", "max"),
        ("gpt-5.5", "ultra", "xhigh"),
        ("scripted", "ultra", "medium"),
        ("scripted", "low", "low"),
    ],
)
async def test_the_effort_that_is_asked_for_is_a_word_of_the_api(
    tmp_path: Path, model: str, effort: str, sent: str
) -> None:
    async with serve(tmp_path) as served, served.client() as client:
        thread_id = await client.start_thread(model=model, serviceTier="fast")
        await client.turn(thread_id, "hi", effort=effort)
        request = served.model.requests[-1]
        assert (request["reasoning"], request["service_tier"]) == ({"effort": sent}, "priority")


async def test_a_thread_is_compacted_by_the_window_that_its_provider_lists(
    tmp_path: Path,
) -> None:
    model = ScriptedModel()
    model.models = {"data": [{"id": "scripted", "max_model_len": 1000}]}
    async with serve(tmp_path, model=model) as served, served.client() as client:
        thread_id = await client.start_thread()
        full = says("hello")
        usage = {"input_tokens": 900, "output_tokens": 50, "total_tokens": 950}
        full[-1] = {"type": "response.completed", "response": {"id": "r", "usage": usage}}
        model.scripts = [full, says("the summary"), says("on")]
        await client.turn(thread_id, "one")
        await client.call(
            "turn/start", {"threadId": thread_id, "input": [{"type": "text", "text": "two"}]}
        )
        seen = await client.until("turn/completed")
        usages = [
            each["params"]["tokenUsage"]["modelContextWindow"]
            for each in seen
            if each.get("method") == "thread/tokenUsage/updated"
        ]
        assert set(usages) == {1000}
        assert "contextCompaction" in [
            each["params"]["item"]["type"]
            for each in seen
            if each.get("method") == "item/completed"
        ]
