"""What of the page's list of safeguards no other test shows, and that the list itself is true."""

import hmac
import re
from collections.abc import Sequence
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import httpx
import pytest

from app_server.apps.routes import generation
from app_server.apps.routes.http import serve_when_wanted
from app_server.extensions.contract.registration import Registration
from tests.support.apps.hosted import connector
from tests.support.apps.peer import listed, serve_tools
from tests.support.apps.service import open_apps, runs
from tests.support.harness import WAIT_S, claim
from tests.support.http_peer import NO_CERTIFICATES
from tests.support.paths import ROOT


@claim("apps:t-24")
async def test_one_port_of_127_0_0_1_is_opened_for_each_inventory_and_none_before_there_is_one(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    opened = 0
    real = serve_when_wanted

    def count(app: Any) -> Any:
        nonlocal opened
        opened += 1
        return real(app)

    monkeypatch.setattr(generation, "serve_when_wanted", count)

    def places(registrations: Sequence[Registration]) -> set[tuple[str | None, bool]]:
        urls = [urlsplit(str(one.config["url"])) for one in registrations]
        assert len({url.port for url in urls}) == 1
        return {(url.hostname, url.port is not None) for url in urls}

    async with open_apps(tmp_path) as apps:
        assert apps.contribute("current") == []
        assert opened == 0
        for others, ports in ((), 1), ((), 1), ((connector(*runs("read"), id_="mail"),), 2):
            apps.hosted.endpoint.connectors.extend(others)
            snapshot = await apps.service.refresh_snapshot(apps.config)
            assert snapshot is not None
            with snapshot:
                assert places(apps.registrations()) == {("127.0.0.1", True)}
            assert opened == ports


@claim("apps:t-23")
async def test_a_bearer_is_compared_in_a_time_that_shows_nothing(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    compared: list[tuple[Any, Any]] = []
    real = hmac.compare_digest

    def note(given: Any, expected: Any) -> bool:
        compared.append((given, expected))
        return real(given, expected)

    monkeypatch.setattr(hmac, "compare_digest", note)
    async with (
        serve_tools([listed("look")]) as served,
        httpx.AsyncClient(verify=NO_CERTIFICATES, timeout=WAIT_S, trust_env=False) as http,
    ):
        server = "codex_apps__cal"
        right = served.generation.bearer(server).get_secret_value()
        wrong = f"{right[:-1]}{'a' if right[-1] != 'a' else 'b'}"
        answer = await http.post(
            served.generation.url(server), headers={"authorization": f"Bearer {wrong}"}
        )
    assert answer.status_code == 401
    assert compared == [(f"Bearer {wrong}".encode(), f"Bearer {right}".encode())]


def test_every_test_that_the_page_names_is_there() -> None:
    page = (ROOT / "docs" / "apps.md").read_text()
    named = set(re.findall(r"`(test_\w+)`", page))
    texts = [path.read_text() for path in (ROOT / "tests").rglob("test_*.py")]
    there = set(re.findall(r"^(?:async )?def (test_\w+)\(", "\n".join(texts), re.MULTILINE))
    assert len(named) > 20
    assert named - there == set()
