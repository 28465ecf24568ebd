"""Web search: how it is declared, and what clients see of searches that were made."""

from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest

from app_server.config.values import Config, ConfigError
from app_server.models.catalogue.models import features_of
from app_server.models.interface import Provider
from app_server.tools.web_search import WebSearch
from app_server.turns.session_settings import read_web_search
from app_server.turns.slot import RunningTurn
from tests.support.harness import claim, serve
from tests.support.model import COMPLETED, says

OPENAI = Provider("openai", "OpenAI", "http://127.0.0.1/v1", requires_openai_auth=True)
CUSTOM = Provider("p", "p", "http://127.0.0.1/v1")
CHAT = Provider("c", "c", "http://127.0.0.1/v1", wire_api="chat")

BOTH = {"search_content_types": ["text", "image"]}
CACHED = {"type": "web_search", "external_web_access": False}
LIVE = {"type": "web_search", "external_web_access": True}


def turn_in(sandbox: str) -> RunningTurn:
    """Return a turn with a sandbox, as the tool sees it."""
    settings = SimpleNamespace(sandbox_policy=SimpleNamespace(type=sandbox))
    return cast(RunningTurn, SimpleNamespace(settings=settings))


@pytest.mark.parametrize(
    ("model", "provider", "config", "declared"),
    [
        ("gpt-5.5", OPENAI, {}, [{**CACHED, **BOTH}]),
        ("gpt-5.5", OPENAI, {"web_search": "live"}, [{**LIVE, **BOTH}]),
        (
            "gpt-5.5",
            OPENAI,
            {"web_search": "indexed"},
            [{**LIVE, "indexed_web_access": True, **BOTH}],
        ),
        ("gpt-5.5", OPENAI, {"web_search": "disabled"}, []),
        ("gpt-5.5", OPENAI, {"tools": {"web_search": False}}, []),
        ("gpt-5.5", CUSTOM, {}, []),
        ("gpt-5.5", CHAT, {"web_search": "live"}, []),
        ("unknown", OPENAI, {}, []),
        ("unknown", CUSTOM, {"web_search": "cached"}, [CACHED]),
        ("unknown", CUSTOM, {"tools": {"web_search": True}}, [LIVE]),
        (
            "unknown",
            CUSTOM,
            {
                "web_search": "live",
                "tools": {
                    "web_search": {
                        "context_size": "high",
                        "allowed_domains": ["a.example"],
                        "location": {"country": "DE", "city": "Berlin"},
                    }
                },
            },
            [
                {
                    **LIVE,
                    "filters": {"allowed_domains": ["a.example"]},
                    "user_location": {"type": "approximate", "country": "DE", "city": "Berlin"},
                    "search_context_size": "high",
                }
            ],
        ),
    ],
)
def test_the_search_is_declared_where_there_is_one(
    model: str, provider: Provider, config: dict[str, Any], declared: list[Any]
) -> None:
    search = WebSearch(read_web_search(Config(config).view()), turn_in("readOnly"))
    assert search.declarations(features_of(model, provider)) == declared


def test_a_turn_that_nothing_confines_searches_the_live_web() -> None:
    settings = read_web_search(Config({}).view())
    [declared] = WebSearch(settings, turn_in("dangerFullAccess")).declarations(
        features_of("gpt-5.5", OPENAI)
    )
    assert declared == {**LIVE, **BOTH}
    cached = read_web_search(Config({"web_search": "cached"}).view())
    [declared] = WebSearch(cached, turn_in("dangerFullAccess")).declarations(
        features_of("gpt-5.5", OPENAI)
    )
    assert declared == {**CACHED, **BOTH}


@pytest.mark.parametrize(
    "config",
    [
        {"web_search": "always"},
        {"tools": {"web_search": "live"}},
        {"tools": {"web_search": {"context_size": "huge"}}},
        {"tools": {"web_search": {"allowed_domains": [1]}}},
    ],
)
def test_settings_that_make_no_sense_are_refused(config: dict[str, Any]) -> None:
    with pytest.raises(ConfigError):
        read_web_search(Config(config).view())


def search(**action: Any) -> dict[str, Any]:
    return {"type": "web_search_call", "id": "ws_1", "status": "completed", "action": action}


@claim("items:web-search")
@pytest.mark.parametrize(
    ("raw", "query", "action"),
    [
        (
            search(type="search", query="a", queries=["a", "b"]),
            "a",
            {"type": "search", "query": "a", "queries": ["a", "b"]},
        ),
        (
            search(type="search", queries=["a", 5]),
            "a",
            {"type": "search", "query": None, "queries": ["a"]},
        ),
        (
            search(type="open_page", url="https://a.example"),
            "https://a.example",
            {"type": "openPage", "url": "https://a.example"},
        ),
        (
            search(type="find_in_page", url="https://a.example", pattern="p"),
            "'p' in https://a.example",
            {"type": "findInPage", "url": "https://a.example", "pattern": "p"},
        ),
        (search(type="dance"), "", {"type": "other"}),
        ({"type": "web_search_call", "id": "ws_1", "action": 5}, "", {"type": "other"}),
    ],
)
async def test_a_search_is_an_item(
    tmp_path: Path, raw: dict[str, Any], query: str, action: dict[str, Any]
) -> None:
    async with serve(tmp_path) as served, served.client() as client:
        begun = {"type": "web_search_call", "id": "ws_1", "status": "in_progress"}
        served.model.scripts.append(
            [
                {"type": "response.output_item.added", "item": begun},
                {"type": "response.web_search_call.searching", "item_id": "ws_1"},
                {"type": "response.output_item.done", "item": raw},
                *says("found"),
            ]
        )
        thread_id = await client.start_thread()
        said = [{"type": "text", "text": "go"}]
        await client.call("turn/start", {"threadId": thread_id, "input": said})
        seen = [
            (each["method"], each["params"]["item"])
            for each in await client.until("turn/completed")
            if each.get("params", {}).get("item", {}).get("type") == "webSearch"
        ]
        (started, first), (completed, last) = seen
        assert (started, completed) == ("item/started", "item/completed")
        assert (first["id"], first["query"], first["action"]) == ("ws_1", "", {"type": "other"})
        assert (last["id"], last["query"], last["action"]) == ("ws_1", query, action)
        assert last["results"] is None
        assert first["startedAtMs"] == last["startedAtMs"]
        assert served.model.items(0)[-1]["type"] == "message"
        await client.turn(thread_id, "again")
        assert raw in served.model.items()


async def test_a_search_without_a_name_or_a_beginning_is_an_item_too(tmp_path: Path) -> None:
    async with serve(tmp_path) as served, served.client() as client:
        raw = {"type": "web_search_call", "action": {"type": "search", "query": "a"}}
        done = {"type": "response.output_item.done", "item": raw}
        served.model.scripts.append([done, done, COMPLETED])
        thread_id = await client.start_thread()
        turn = await client.turn(thread_id, "go")
        assert turn["status"] == "completed"
        read = await client.call("thread/read", {"threadId": thread_id, "includeTurns": True})
        searches = [
            item for item in read["thread"]["turns"][0]["items"] if item["type"] == "webSearch"
        ]
        assert [item["query"] for item in searches] == ["a", "a"]
        assert searches[0]["id"] != searches[1]["id"]
