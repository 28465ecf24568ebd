"""Which apps a turn named and used: what counts, and as what."""

from pathlib import Path
from typing import Any

import pytest
from pydantic import TypeAdapter

from app_server.apps.analytics import MAX_IDS, MAX_TURNS, Analytics, AppEvent
from app_server.apps.inventory.inventory import build_inventory
from app_server.apps.turn_hooks import AppsHooks
from app_server.clients.demo.hosted.tool import WRITES, HostedConnector, HostedTool, said
from app_server.clients.demo.hosted.tool import listed as listed_tool
from app_server.extension.registry import ExtensionRegistry
from protocol.items import UserInput
from tests.apps.test_inventory import listed
from tests.apps.test_service import nothing, open_apps, runs
from tests.support.harness import calls, claim, says, serve
from tests.support.hosted import connector, serve_hosted

ASKED = "mcpServer/elicitation/request"
CONNECTORS = build_inventory([listed("look", "cal", "Calendar")]).connectors
CAL = CONNECTORS[0]


def mentioned(app_id: str, name: str | None = None) -> AppEvent:
    return AppEvent("mentioned", app_id, name, "explicit")


def taken(*parts: Any) -> list[AppEvent]:
    """Tell of one input; gives what is counted of it."""
    events: list[AppEvent] = []
    content = TypeAdapter(list[UserInput]).validate_python(parts)
    Analytics(events.append).input_taken("turn", content, CONNECTORS)
    return events


def text(words: str) -> dict[str, str]:
    return {"type": "text", "text": words}


def mention(path: str) -> dict[str, str]:
    return {"type": "mention", "name": "it", "path": path}


@claim("apps:t-51")
@pytest.mark.parametrize(
    ("parts", "events"),
    [
        ([text("see [$calendar](app://cal)")], [mentioned("cal", "Calendar")]),
        ([text("see [anything](app://cal)")], [mentioned("cal", "Calendar")]),
        ([mention("app://cal")], [mentioned("cal", "Calendar")]),
        # Each once, in order; one that nobody knows has no name.
        (
            [text("[x](app://zoo), [x](app://cal)"), mention("app://cal"), text("[x](app://zoo)")],
            [mentioned("cal", "Calendar"), mentioned("zoo")],
        ),
        ([text("app://cal"), text("Calendar"), text("$calendar")], []),
        ([text("[x](mcp://cal) [x](plugin://cal@shop) [x](skill://cal)")], []),
        ([mention("mcp://cal"), mention("plugin://cal@shop"), mention("/app://cal")], []),
        ([{"type": "skill", "name": "x", "path": "app://cal"}], []),
        ([{"type": "image", "url": "app://cal"}], []),
    ],
)
def test_an_app_is_named_by_a_link_or_a_mention(parts: Any, events: list[AppEvent]) -> None:
    assert taken(*parts) == events


@claim("apps:t-51")
def test_what_a_turn_named_is_kept_to_its_end_and_within_bounds() -> None:
    events: list[AppEvent] = []
    analytics = Analytics(events.append)

    def take(turn_id: str, *parts: Any) -> None:
        content = TypeAdapter(list[UserInput]).validate_python(parts)
        analytics.input_taken(turn_id, content, CONNECTORS)

    def use(turn_id: str) -> str:
        analytics.used(turn_id, CAL)
        return events.pop().kind

    take("turn", mention("app://cal"))
    take("turn", mention("app://cal"))
    assert events == [mentioned("cal", "Calendar")]
    assert (use("turn"), use("other")) == ("explicit", "implicit")
    analytics.forget("turn")
    assert use("turn") == "implicit"
    events.clear()
    take("many", text(" ".join(f"[x](app://{number:04})" for number in range(MAX_IDS + 1))))
    take("many", mention("app://cal"))
    assert events == [mentioned(f"{number:04}") for number in range(MAX_IDS)]
    take("first", mention("app://cal"))
    for number in range(MAX_TURNS - 1):
        take(str(number))
    assert use("first") == "explicit"
    take("last")
    assert use("first") == "implicit"


async def fails(call: Any) -> Any:
    return said("It broke.", error=True)


@claim("apps:t-51")
async def test_a_call_counts_once_it_was_made_and_by_what_the_user_had_named(
    tmp_path: Path,
) -> None:
    bare = HostedConnector("disk", "Disk", "An app of a test.")
    wipe = HostedTool(listed_tool(bare, "wipe", "wipe", {}, WRITES), nothing)
    disk = HostedConnector(bare.id, bare.name, bare.description, (wipe,))
    mail = connector(("fail", fails), id_="mail")
    async with (
        serve_hosted([connector(*runs("look"), id_="cal"), mail, disk]) as hosted,
        open_apps(tmp_path / "apps", hosted) as apps,
    ):
        await apps.service.prepare_mcp_servers(apps.config)
        events: list[AppEvent] = []
        hooks = AppsHooks(apps.service, Analytics(events.append))
        config = f'chatgpt_base_url = "{hosted.endpoint.base_url}"'
        registry = ExtensionRegistry([apps.service], hooks=[hooks])
        async with (
            serve(tmp_path / "home", config=config, extensions=registry) as served,
            served.client() as client,
        ):
            thread_id = await client.start_thread()

            async def turn(*parts: Any, decline: bool = False) -> list[AppEvent]:
                events.clear()
                script = [
                    {"namespace": "mcp__codex_apps__cal", "name": "_look"},
                    {"namespace": "mcp__codex_apps__mail", "name": "_fail"},
                ]
                if decline:
                    script = [{"namespace": "mcp__codex_apps__disk", "name": "_wipe"}]
                served.model.scripts += [calls(*script), says("done")]
                params = {"threadId": thread_id, "input": list(parts)}
                await client.call("turn/start", params)
                if decline:
                    question = await client.wait_for(ASKED)
                    answer = {"id": question["id"], "result": {"action": "decline"}}
                    await client.send(answer)
                await client.until("turn/completed")
                return sorted(events, key=lambda event: (event.event, event.app_id))

            used_mail = AppEvent("used", "mail", "Mail", "implicit")
            assert await turn(text("[$cal](app://cal)"), mention("app://disk")) == [
                mentioned("cal", "Cal"),
                mentioned("disk", "Disk"),
                AppEvent("used", "cal", "Cal", "explicit"),
                used_mail,
            ]
            assert await turn(text("again")) == [
                AppEvent("used", "cal", "Cal", "implicit"),
                used_mail,
            ]
            assert await turn(mention("app://disk"), decline=True) == [mentioned("disk", "Disk")]
            assert hosted.script.names().count("tools/call") == 4
