"""demo: the hosted endpoint that the package ships, asked as the real one would be."""

import hashlib
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass

import anyio
import httpx
import pytest
from pydantic import SecretStr

from app_server.apps.files.upload import Content, UploadFailed, Uploads, UploadTarget
from app_server.apps.inventory.fetch import fetch_tools
from app_server.apps.inventory.inventory import build_inventory
from app_server.apps.inventory.names import allocate_routes
from app_server.apps.upstream.endpoint import apps_endpoint
from app_server.apps.upstream.hosted_session import ElicitationBridge, HostedSession, open_session
from app_server.clients.demo.hosted.endpoint import DAY_URI, HostedEndpoint
from app_server.mcp_wire.errors import PeerError
from protocol.model import JsonObject
from tests.support.apps.hosted import Hosted, serve_hosted
from tests.support.harness import WAIT_S
from tests.support.http_peer import NO_CERTIFICATES


@dataclass
class Stage:
    """An endpoint, a session with it, and plain HTTP beside it."""

    hosted: Hosted
    session: HostedSession
    http: httpx.AsyncClient

    async def call(self, tool: str, **arguments: object) -> JsonObject:
        return await self.session.request("tools/call", {"name": tool, "arguments": arguments})

    async def get(self, path: str) -> JsonObject:
        response = await self.http.get(path)
        assert response.status_code == 200
        found: JsonObject = response.json()
        return found


@asynccontextmanager
async def stage() -> AsyncIterator[Stage]:
    with anyio.fail_after(2 * WAIT_S):
        async with serve_hosted() as hosted:
            target, endpoint = hosted.target(elicitation=True), hosted.endpoint
            headers = {"authorization": f"Bearer {endpoint.token.get_secret_value()}"}
            async with (
                open_session(target, ElicitationBridge()) as session,
                httpx.AsyncClient(
                    verify=NO_CERTIFICATES,
                    base_url=endpoint.base_url,
                    headers=headers,
                    timeout=WAIT_S,
                    trust_env=False,
                ) as http,
            ):
                yield Stage(hosted, session, http)


def uploads(endpoint: HostedEndpoint) -> Uploads:
    headers = {"Authorization": SecretStr(f"Bearer {endpoint.token.get_secret_value()}")}
    return Uploads(UploadTarget(endpoint.base_url, headers))


def content(data: bytes, size: int | None = None) -> Content:
    async def chunks() -> AsyncIterator[bytes]:
        yield data[:3]
        yield data[3:]

    return Content("notes.txt", len(data) if size is None else size, chunks)


async def test_its_address_is_where_the_endpoint_is_looked_for() -> None:
    async with serve_hosted() as hosted:
        assert hosted.target().url == apps_endpoint(f"{hosted.endpoint.origin}/backend-api")
        inventory = build_inventory(await fetch_tools(hosted.target()))
    assert {route.server: sorted(route.tools) for route in allocate_routes(inventory)} == {
        "codex_apps__calendar": ["_create_event", "_list_events"],
        "codex_apps__drive": ["_save_file"],
        "codex_apps__mail": ["_read_inbox"],
        "codex_apps__survey": ["_ask_by_form", "_ask_by_openai_form", "_ask_by_url"],
    }


async def test_an_event_that_is_created_is_in_the_calendar() -> None:
    async with stage() as on:
        event = {"day": "2030-05-01", "title": "Picnic"}
        await on.call("calendar_create_event", **event)
        result = await on.call("calendar_list_events")
    first = {"day": "2030-01-01", "title": "New year"}
    assert result["structuredContent"] == {"events": [first, event]}


async def test_the_calendar_keeps_a_hundred_events() -> None:
    async with stage() as on:
        for number in range(101):
            await on.call("calendar_create_event", day="2030-05-01", title=str(number))
        result = await on.call("calendar_list_events")
    titles = [event["title"] for event in result["structuredContent"]["events"]]
    assert titles == [str(number) for number in range(1, 101)]


async def test_a_mail_call_works_after_the_sign_in_that_it_asks_for() -> None:
    async with stage() as on:
        await fetch_tools(on.hosted.target())
        for _ in range(2):
            refused = await on.call("mail_read_inbox")
            assert refused["isError"] is True
            assert refused["_meta"]["_codex_apps"]["connector_auth_failure"] == {
                "is_auth_failure": True,
                "auth_reason": "missing_link",
                "connector_id": "demo_mail",
                "error_code": "UNAUTHORIZED",
                "error_http_status_code": 401,
            }
        await fetch_tools(on.hosted.target())
        result = await on.call("mail_read_inbox")
    assert [one["from"] for one in result["structuredContent"]["messages"]] == [
        "weather@example.com"
    ]


async def test_a_file_that_was_uploaded_can_be_saved_in_the_drive() -> None:
    data = b"Dear diary"
    async with stage() as on:
        on.hosted.endpoint.files.retries = 1
        argument = await uploads(on.hosted.endpoint).upload(content(data))
        result = await on.call("drive_save_file", file=argument)
    digest = hashlib.sha256(data).hexdigest()
    file = {"name": "notes.txt", "bytes": len(data), "sha256": digest}
    assert result["structuredContent"] == {"file": file}


async def test_a_file_that_was_not_uploaded_is_not_in_the_drive() -> None:
    async with stage() as on:
        body = {"file_name": "notes.txt", "file_size": 3, "use_case": "codex"}
        created = (await on.http.post("/files", json=body)).json()
        for argument in ({"file_id": "another"}, {"file_id": created["file_id"]}, "notes.txt"):
            result = await on.call("drive_save_file", file=argument)
            assert result["isError"] is True
        finished = await on.http.post(f"/files/{created['file_id']}/uploaded", json={})
    assert finished.json() == {"status": "error", "error_message": "nothing was uploaded"}


async def test_a_file_of_another_size_than_announced_is_refused() -> None:
    async with stage() as on:
        body = {"file_name": "notes.txt", "file_size": 3, "use_case": "codex"}
        created = (await on.http.post("/files", json=body)).json()
        headers = {"x-ms-blob-type": "BlockBlob"}
        for data in (b"ab", b"abcd"):
            response = await _plain(created["upload_url"], data, headers)
            assert response.status_code == 400


async def test_what_is_longer_than_announced_is_not_read_to_its_end() -> None:
    async with stage() as on:
        body = {"file_name": "notes.txt", "file_size": 3, "use_case": "codex"}
        created = (await on.http.post("/files", json=body)).json()
        url = httpx.URL(created["upload_url"])
        head = (
            f"PUT {url.path} HTTP/1.1\r\nhost: {url.netloc.decode()}\r\n"
            "x-ms-blob-type: BlockBlob\r\ncontent-length: 1000000\r\n\r\n"
        )
        async with await anyio.connect_tcp(url.host, url.port or 0) as stream:
            await stream.send(head.encode() + b"abcd")
            answer = await stream.receive()
    assert answer.startswith(b"HTTP/1.1 400 ")


async def _plain(url: str, data: bytes, headers: dict[str, str]) -> httpx.Response:
    async with httpx.AsyncClient(verify=NO_CERTIFICATES, timeout=WAIT_S, trust_env=False) as http:
        return await http.put(url, content=data, headers=headers)


@pytest.mark.parametrize(
    ("headers", "status"),
    [
        ({"x-ms-blob-type": "BlockBlob"}, 201),
        ({}, 400),
        ({"x-ms-blob-type": "BlockBlob", "authorization": "Bearer any"}, 403),
        ({"x-ms-blob-type": "BlockBlob", "chatgpt-account-id": "any"}, 403),
    ],
    ids=["as-it-should-be", "no-type", "token", "account"],
)
async def test_the_bytes_of_a_file_come_without_credentials(
    headers: dict[str, str], status: int
) -> None:
    async with stage() as on:
        body = {"file_name": "notes.txt", "file_size": 3, "use_case": "codex"}
        created = (await on.http.post("/files", json=body)).json()
        assert (await _plain(created["upload_url"], b"abc", headers)).status_code == status


async def test_a_file_above_the_bound_is_refused_before_it_is_sent() -> None:
    async with stage() as on:
        with pytest.raises(UploadFailed, match="413"):
            await uploads(on.hosted.endpoint).upload(content(b"", 512 * 1024 * 1024 + 1))
    assert not any(name.startswith("PUT") for name in on.hosted.script.names())


async def test_the_directory_has_the_apps_of_the_account_and_others_page_by_page() -> None:
    async with stage() as on:
        on.hosted.endpoint.directory.page = 3
        first = await on.get("/connectors/directory/list?external_logos=true")
        second = await on.get(f"/connectors/directory/list?token={first['next_token']}")
        workspace = await on.get("/connectors/directory/list_workspace?external_logos=true")
    assert [app["id"] for app in first["apps"] + second["apps"]] == [
        "demo_calendar",
        "demo_drive",
        "demo_mail",
        "demo_survey",
        "demo_notes",
    ]
    assert second["next_token"] is None
    assert workspace == {"apps": [], "next_token": None}


@pytest.mark.parametrize("with_tools", [True, False])
async def test_details_of_apps_have_their_tools_if_they_are_asked_for(with_tools: bool) -> None:
    async with stage() as on:
        body = {"app_ids": ["demo_mail", "nobody"], "include_tools": with_tools}
        answer = (await on.http.post("/ps/apps/batch", json=body)).json()
    summary = {
        "name": "mail_read_inbox",
        "title": "Mail_read_inbox",
        "description": "Read the subjects of the messages in the inbox.",
        "is_enabled": True,
        "disabled_reason": None,
        "is_read_only": True,
    }
    assert answer == {
        "apps": [
            {
                "id": "demo_mail",
                "name": "Mail",
                "description": "Messages of one demonstration account.",
                "tools": [summary] if with_tools else None,
            }
        ]
    }


async def test_the_workspace_of_the_account_allows_apps() -> None:
    async with stage() as on:
        settings = await on.get("/accounts/demo-account/settings")
    assert settings == {"beta_settings": {"plugins": True}}


@pytest.mark.parametrize(
    ("method", "path"),
    [
        ("POST", "/ps/mcp"),
        ("GET", "/ps/mcp"),
        ("GET", "/connectors/directory/list"),
        ("POST", "/ps/apps/batch"),
        ("GET", "/accounts/demo-account/settings"),
        ("POST", "/files"),
        ("GET", "/anything"),
    ],
)
@pytest.mark.parametrize(
    "headers",
    [{"authorization": "Bearer wrong"}, {"authorization": ""}, {"chatgpt-account-id": "another"}],
    ids=["wrong-token", "no-token", "wrong-account"],
)
async def test_a_wrong_token_is_refused(method: str, path: str, headers: dict[str, str]) -> None:
    async with stage() as on:
        assert (await on.http.request(method, path, headers=headers)).status_code == 401


async def test_what_there_is_not_is_refused() -> None:
    async with stage() as on:
        assert (await on.http.get("/anything")).status_code == 404
        assert (await on.http.post("/files", content=b"no json")).status_code == 400
        assert (await on.http.post("/ps/apps/batch", json=[])).status_code == 400
        with pytest.raises(PeerError) as caught:
            await on.call("nothing")
        assert caught.value.code == -32602
        with pytest.raises(PeerError) as caught:
            await on.session.request("tools/list", {"cursor": "x"})
        assert caught.value.code == -32602


async def test_a_resource_is_listed_and_read() -> None:
    async with stage() as on:
        listed = await on.session.request("resources/list", {})
        read = await on.session.request("resources/read", {"uri": DAY_URI})
        templates = await on.session.request("resources/templates/list", {})
        with pytest.raises(PeerError) as caught:
            await on.session.request("resources/read", {"uri": "ui://nothing"})
    assert listed == {"resources": [{"uri": DAY_URI, "name": DAY_URI}]}
    assert read == {
        "contents": [{"uri": DAY_URI, "mimeType": "text/html", "text": "<h1>A day</h1>"}]
    }
    assert templates == {"resourceTemplates": []}
    assert caught.value.code == -32002


async def test_a_client_that_cannot_be_asked_gets_an_error() -> None:
    async with (
        serve_hosted() as hosted,
        open_session(hosted.target(), ElicitationBridge()) as session,
    ):
        params: JsonObject = {"name": "survey_ask_by_url", "arguments": {}}
        result = await session.request("tools/call", params)
    assert result == {
        "content": [{"type": "text", "text": "Nobody can be asked by url."}],
        "isError": True,
    }
