"""What extensions may register, and what is refused."""

import logging
from collections.abc import Collection, Sequence
from contextlib import ExitStack
from typing import Any

import anyio
import pytest
from pydantic import SecretStr, ValidationError

from app_server.extensions.contract.registration import (
    ApprovalIdentity,
    ApprovalPersistence,
    ApprovalPresentation,
    ApprovalSource,
    ContributionContext,
    Owner,
    Registration,
    RuntimeMetadata,
    Telemetry,
    Tier,
    ToolMetadata,
)
from app_server.extensions.contract.registry import (
    MAX_REGISTRATIONS,
    ExtensionRegistry,
    UnknownTarget,
)
from app_server.extensions.contract.turns import Presentation, ToolCall, TurnExtension
from tests.support.harness import WAIT_S, claim
from tests.support.mcp_peers.shelf import Generation, Shelf

WEB = {"url": "http://127.0.0.1:9/mcp"}
CONTEXT = ContributionContext("current", {})


@claim("extensions:closed", "apps:b4")
def test_metadata_is_a_closed_list() -> None:
    assert set(RuntimeMetadata.model_fields) == {
        "telemetry",
        "plugin_display_names",
        "plugin_id",
        "client_meta_names",
        "trusts_effective_input",
        "trusts_approval_context",
        "sandbox_state_source",
        "serves_skills",
        "approvals_reviewer",
        "tools",
    }
    assert set(ToolMetadata.model_fields) == {
        "approval_identity",
        "approval_source",
        "approval_presentation",
        "approval_header",
        "approval_form_meta",
        "approval_persistence",
        "metric_labels",
        "search_aliases",
    }


LABEL = {"name": "a", "label": "A"}


@claim("apps:b4")
@pytest.mark.parametrize(
    ("kind", "values"),
    [
        (RuntimeMetadata, {"anything_else": 1}),
        (ToolMetadata, {"anything_else": 1}),
        (RuntimeMetadata, {"client_meta_names": ["a", "b", "c", "d", "e"]}),
        (RuntimeMetadata, {"plugin_display_names": [" "]}),
        (RuntimeMetadata, {"plugin_display_names": [str(n) for n in range(65)]}),
        (RuntimeMetadata, {"sandbox_state_source": "elsewhere"}),
        (RuntimeMetadata, {"approvals_reviewer": "somebody"}),
        (Telemetry, {"origin": "x" * 257}),
        (ApprovalSource, {"id": "", "name": "n"}),
        (ApprovalSource, {"id": "i", "name": "  "}),
        (ApprovalPresentation, {"question": "Do it."}),
        (ApprovalPresentation, {"question": "Really? Do it?"}),
        (ApprovalPresentation, {"question": "x" * 512 + "?"}),
        (ApprovalPresentation, {"question": "Do it?", "labels": [LABEL] * 33}),
        (ApprovalPresentation, {"question": "Do it?", "labels": [{"name": "a", "label": " "}]}),
        (ToolMetadata, {"approval_header": "x" * 65}),
        (ToolMetadata, {"approval_form_meta": {str(n): n for n in range(9)}}),
        (ToolMetadata, {"approval_form_meta": {"a": "x" * 4096}}),
        (ToolMetadata, {"search_aliases": ["x" * 65]}),
        (ToolMetadata, {"search_aliases": [str(n) for n in range(33)]}),
        (ApprovalPersistence, {"target": "t", "path": []}),
        (ApprovalPersistence, {"target": " ", "path": ["a"]}),
    ],
)
def test_metadata_out_of_bounds_is_refused(kind: Any, values: Any) -> None:
    with pytest.raises(ValidationError):
        kind.model_validate(values)


def test_metadata_is_put_in_order() -> None:
    metadata = RuntimeMetadata(
        plugin_display_names=(" b ", "a", "b"),
        tools={
            "t": ToolMetadata(
                metric_labels={"ok": "x", "not ok": "x", "long": "x" * 257}
                | {f"n{number}": "x" for number in range(9)},
                search_aliases=(" two ", "one", "two"),
            )
        },
    )
    assert metadata.plugin_display_names == ("a", "b")
    assert metadata.of_tool("t").search_aliases == ("one", "two")
    assert list(metadata.of_tool("t").metric_labels) == ["ok", *(f"n{n}" for n in range(7))]
    assert metadata.of_tool("another") == ToolMetadata()


def test_a_long_name_is_remembered_by_its_hash_and_nothing_else_looks_like_it() -> None:
    long = ApprovalIdentity(server="s", source="x" * 257, tool=" t ")
    (kept, (hashed, text), tool) = long.key
    assert (kept, hashed, tool) == ((False, "s"), True, (False, " t "))
    assert len(text) == len("sha256:") + 64
    assert ApprovalIdentity(server="s", source=text, tool=" t ").key != long.key


@pytest.mark.parametrize(
    ("values", "reason"),
    [
        ({"config": {"command": "x"}, "bearer": SecretStr("b")}, "behind a url"),
        ({"config": {**WEB, "command": "x"}, "bearer": SecretStr("b")}, "behind a url"),
        ({"config": WEB, "bearer": SecretStr("")}, "empty"),
        (
            {"config": {**WEB, "bearer_token_env_var": "V"}, "bearer": SecretStr("b")},
            "configured authorization",
        ),
        (
            {"config": {**WEB, "http_headers": {"AUTHORIZATION": "x"}}, "bearer": SecretStr("b")},
            "configured authorization",
        ),
        (
            {"config": {**WEB, "env_http_headers": {"authorization": "V"}}}
            | {"bearer": SecretStr("b")},
            "configured authorization",
        ),
        (
            {"config": {**WEB, "http_headers_helper": "x"}, "bearer": SecretStr("b")},
            "configured authorization",
        ),
        ({"config": WEB, "bearer": SecretStr("b"), "tier": Tier.PLUGIN}, "runtime tier"),
        ({"config": WEB, "owner": Generation("1"), "tier": Tier.SELECTED_PLUGIN}, "runtime tier"),
        ({"config": WEB, "tier": Tier.CONFIGURED}, "config.toml"),
    ],
)
def test_a_registration_that_could_leak_or_clash_is_refused(values: Any, reason: str) -> None:
    with pytest.raises(ValueError, match=reason):
        Registration("a", **values)


def test_registrations_are_equal_by_value_and_never_show_their_secrets() -> None:
    def registration(generation: str) -> Registration:
        owner: Owner = Generation(generation)
        return Registration("a", dict(WEB), SecretStr("s3cr3t"), owner, RuntimeMetadata())

    assert registration("gen-1") == registration("gen-1")
    assert registration("gen-1") != registration("gen-2")
    assert hash(Generation("gen-1")) == hash(Generation("gen-1"))
    shown = f"{registration('gen-1')} {registration('gen-1')!r}"
    assert "s3cr3t" not in shown
    assert "gen-1" not in shown


def names(registrations: Sequence[Registration]) -> list[str]:
    return [registration.name for registration in registrations]


class Broken(Shelf):
    """Fails whenever it is asked."""

    def contribute(self, context: ContributionContext) -> Sequence[Registration]:
        raise RuntimeError("broken")

    async def refresh(self, context: ContributionContext) -> None:
        raise RuntimeError("broken")

    def revision(self) -> int:
        raise RuntimeError("broken")


@claim("extensions:contained")
async def test_a_contributor_that_fails_hurts_nobody_else(
    caplog: pytest.LogCaptureFixture,
) -> None:
    well = Shelf("well", Registration("a", WEB))
    registry = ExtensionRegistry([Broken("broken"), well])
    assert names(registry.contributions(CONTEXT).registrations) == ["a"]
    assert registry.revisions() == (0, 0, 0)
    await registry.refresh(CONTEXT)
    assert well.refreshed == [CONTEXT]
    assert [record.getMessage() for record in caplog.records] == [
        "contributor broken does not know its revision",
        "contributor broken failed",
        "contributor broken does not know its revision",
        "contributor broken could not look anew",
    ]


def test_contributors_have_ids_of_their_own() -> None:
    with pytest.raises(ValueError, match="one id"):
        ExtensionRegistry([Shelf("a"), Shelf("a")])


@claim("extensions:bounded")
def test_what_is_above_the_bound_is_dropped(caplog: pytest.LogCaptureFixture) -> None:
    many = [Registration(f"s{number}", WEB) for number in range(MAX_REGISTRATIONS + 2)]
    registry = ExtensionRegistry([Shelf("many", *many)])
    assert registry.contributions(CONTEXT).registrations == many[:MAX_REGISTRATIONS]
    assert [record.getMessage() for record in caplog.records] == [
        "contributor many: 2 servers too many"
    ]


class Slow(Shelf):
    """Never has done looking anew."""

    async def refresh(self, context: ContributionContext) -> None:
        await anyio.sleep_forever()


@claim("extensions:bounded")
async def test_nobody_waits_for_ever_for_a_contributor_that_looks_anew(
    caplog: pytest.LogCaptureFixture,
) -> None:
    with anyio.fail_after(WAIT_S):
        await ExtensionRegistry([Slow("slow")]).refresh(CONTEXT, refresh_s=0.0)
    assert caplog.record_tuples[-1][1] == logging.WARNING


async def test_an_approval_is_written_down_by_whoever_registered_for_it() -> None:
    written: list[Sequence[str]] = []

    async def write(path: Sequence[str]) -> None:
        written.append(path)

    registry = ExtensionRegistry(persisters={"there": write})
    await registry.persist_approval(ApprovalPersistence(target="there", path=("a", "b")))
    assert written == [("a", "b")]
    with pytest.raises(UnknownTarget, match="nowhere"):
        await registry.persist_approval(ApprovalPersistence(target="nowhere", path=("a",)))


class Check:
    """An install check that answers as it is told."""

    def __init__(self, answer: bool | Exception | None) -> None:
        self.answer = answer

    async def verify_install(
        self, app_ids: Sequence[str], context: ContributionContext
    ) -> bool | None:
        if isinstance(self.answer, Exception):
            raise self.answer
        return self.answer


@pytest.mark.parametrize(
    ("answers", "verified"),
    [
        ([], True),
        ([None], True),
        ([True, None], True),
        ([None, False, True], False),
        ([ValueError("broken"), True], False),
    ],
)
async def test_an_install_is_complete_if_no_check_misses_anything(
    answers: Sequence[bool | Exception | None], verified: bool
) -> None:
    registry = ExtensionRegistry(install_checks=[Check(answer) for answer in answers])
    assert await registry.verify_install(["app"], CONTEXT) is verified


class Noting(Shelf):
    """Notes what it is asked to look for."""

    def __init__(self, id_: str, *registrations: Registration) -> None:
        super().__init__(id_, *registrations)
        self.looked: list[ContributionContext] = []

    async def discovered(self, context: ContributionContext) -> None:
        self.looked.append(context)


class Starting:
    """Fails once, then has a shelf join."""

    id = "late"

    def __init__(self, shelf: Noting) -> None:
        self.shelf = shelf
        self.looks_before: list[int] = []
        self.registry = ExtensionRegistry([Shelf("well", Registration("a", WEB))], late=[self])
        self.joined = ExitStack()
        self.has_failed = False

    async def join(self, context: ContributionContext) -> None:
        if not self.has_failed:
            self.has_failed = True
            raise RuntimeError("broken")
        # What it finds out may change what its contributor has: that looks behind it.
        self.looks_before.append(len(self.shelf.looked))
        if len(self.registry.revisions()) == 2:
            self.joined.enter_context(self.registry.joined(self.shelf, Hints()))


class Hints(TurnExtension):
    """Tells the model one thing."""

    def instructions(
        self, context: ContributionContext, tools: Collection[tuple[str, str]]
    ) -> str | None:
        return "hint"

    def present(self, call: ToolCall) -> Presentation | None:
        return None


async def test_a_late_contributor_counts_from_when_it_has_joined_until_it_leaves(
    caplog: pytest.LogCaptureFixture,
) -> None:
    shelf = Noting("late", Registration("b", WEB))
    late = Starting(shelf)
    registry = late.registry

    def shown() -> tuple[list[str], tuple[int, ...], list[str]]:
        registered = names(registry.contributions(CONTEXT).registrations)
        return registered, registry.revisions(), registry.in_turns.instructions(CONTEXT, [])

    await registry.discovered(CONTEXT)
    assert shown() == (["a"], (0, 0), [])
    assert [record.getMessage() for record in caplog.records] == [
        "contributor late cannot be started"
    ]
    # It is asked once in each look, in that in which it joins too.
    for count in (1, 2):
        await registry.discovered(CONTEXT)
        assert shown() == (["a", "b"], (1, 0, 0), ["hint"])
        assert shelf.looked == [CONTEXT] * count
        assert late.looks_before == list(range(count))
    with (
        pytest.raises(ValueError, match="one id"),
        registry.joined(Shelf("late"), Hints()),
    ):
        pass
    late.joined.close()
    assert shown() == (["a"], (1, 0), [])
