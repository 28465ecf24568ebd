"""modelProvider/*: providers are listed without secrets, added and changed."""

import tomllib
from pathlib import Path
from typing import Any

import pytest

from tests.support.harness import Served, WireClient, claim, serve

CONFIG = """\
[model_providers.gate]
name = "Gate" # mine
base_url = "http://127.0.0.1:9/v1"
env_key = "GATE_KEY"

[model_providers.hidden]
name = "Hidden"
base_url = "http://user:secret@127.0.0.1:9/v1?key=secret"
experimental_bearer_token = "secret"
"""


def gateway(**members: Any) -> dict[str, Any]:
    return {"settings": {"type": "customGateway", **members}}


def shown(provider_id: str, name: str, url: str | None, **auth: Any) -> dict[str, Any]:
    settings = {"type": "customGateway", "auth": auth or {"mode": "none"}}
    return {"id": provider_id, "name": name, "canEdit": True, "baseUrl": url, "settings": settings}


@claim("providers:list")
async def test_providers_are_listed_without_their_secrets(tmp_path: Path) -> None:
    async with serve(tmp_path, config=CONFIG) as served, served.client() as client:
        listed = await client.call("modelProvider/list", {})
        offline = {**shown("offline", "Offline stand-in", None), "canEdit": False}
        assert listed == {
            "data": [
                shown(
                    "gate",
                    "Gate",
                    "http://127.0.0.1:9/v1",
                    mode="environmentVariable",
                    envKey="GATE_KEY",
                ),
                shown("hidden", "Hidden", None, mode="externallyConfigured", envKey=None),
                offline,
                {
                    "id": "openai",
                    "name": "OpenAI",
                    "canEdit": False,
                    "baseUrl": None,
                    "settings": {"type": "openai"},
                },
                shown("scripted", "scripted", served.model.url),
            ],
            "defaultProviderId": "scripted",
            "canChangeDefault": True,
        }
        able = await client.call("modelProvider/capabilities/read", {})
        assert able == {"imageGeneration": False, "webSearch": True}


@claim("providers:write")
async def test_a_provider_is_added_and_changed_and_threads_can_use_it(tmp_path: Path) -> None:
    async with serve(tmp_path, config=CONFIG) as served, served.client() as client:
        write = "modelProvider/config/write"
        url = served.model.url
        added = await client.call(write, gateway(name="My Gate!", baseUrl=url))
        assert added == {"provider": shown("my-gate", "My Gate!", url)}
        again = await client.call(write, gateway(name="My Gate", baseUrl=url, envKey="K"))
        auth = {"mode": "environmentVariable", "envKey": "K"}
        assert again == {"provider": shown("my-gate-2", "My Gate", url, **auth)}
        changed = await client.call(write, gateway(providerId="gate", envKey=None, baseUrl=url))
        assert changed == {"provider": shown("gate", "Gate", url)}
        text = (tmp_path / "config.toml").read_text()
        assert 'name = "Gate" # mine' in text
        assert tomllib.loads(text)["model_providers"]["my-gate"] == {
            "name": "My Gate!",
            "base_url": url,
            "wire_api": "responses",
        }
        thread_id = await client.start_thread(modelProvider="my-gate")
        turn = await client.turn(thread_id, "hi")
        assert turn["status"] == "completed"


@claim("providers:refused")
@pytest.mark.parametrize(
    ("settings", "message", "code"),
    [
        (gateway(baseUrl="http://a/v1"), "Enter a provider name.", "configValidationError"),
        (
            gateway(name="x" * 129, baseUrl="http://a/v1"),
            "A provider name has at most 128 characters.",
            "configValidationError",
        ),
        (
            gateway(name="x"),
            "A base URL is required to create a custom provider.",
            "configValidationError",
        ),
        *(
            (
                gateway(name="x", baseUrl=url),
                "Enter an HTTP(S) base URL without credentials, a query, or a fragment.",
                "configValidationError",
            )
            for url in (
                "nonsense",
                "ftp://a",
                "http://u:p@a",
                "http://a?q",
                "http://a#f",
                "http://[",
            )
        ),
        (
            gateway(name="x", baseUrl="http://a", envKey="sk-secret value"),
            "Enter the name of an environment variable, not a key.",
            "configValidationError",
        ),
        (gateway(providerId="none", name="x"), "Unknown provider ID.", "configPathNotFound"),
        (
            gateway(providerId="openai", name="x"),
            "A custom provider or gateway cannot use a built-in provider ID.",
            "configValidationError",
        ),
        (
            {"settings": {"type": "gcp", "providerId": "gcp"}},
            "This server does not reach providers of type `gcp`.",
            "configValidationError",
        ),
    ],
)
async def test_what_is_no_provider_is_refused(
    settings: dict[str, Any], message: str, code: str, provider_server: tuple[Served, WireClient]
) -> None:
    served, client = provider_server
    before = (served.home / "config.toml").read_text()
    error = await client.refusal("modelProvider/config/write", settings)
    assert (error.code, error.message, error.data["config_write_error_code"]) == (
        -32600,
        message,
        code,
    )
    assert (served.home / "config.toml").read_text() == before


@pytest.fixture
async def provider_server(tmp_path: Path) -> Any:
    async with serve(tmp_path, config=CONFIG) as served, served.client() as client:
        yield served, client
