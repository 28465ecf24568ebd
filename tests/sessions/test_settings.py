"""What clients choose for a thread, and the settings that it becomes."""

from dataclasses import fields

from app_server.config.values import Config
from app_server.models.catalogue.providers import OFFLINE_MODEL
from app_server.sessions.settings import Overrides, initial_settings, with_overrides
from protocol.log.rollout import Settings

OTHERWISE = {"sandbox_mode", "approvals_reviewer", "sandbox_policy", "profile", "mode"}
"""Choices that are not taken over as they are, besides environments."""

CHOSEN = Overrides(
    model="m",
    model_provider="offline",
    cwd="/c",
    approval_policy="never",
    effort="high",
    summary="concise",
    service_tier="priority",
    personality="friendly",
    workspace_roots=["/c", "/d"],
    without_environment=True,
    disabled_plugin_ids=["p@q"],
    base_instructions="b",
    developer_instructions="d",
)


def test_choices_become_settings_of_the_same_name() -> None:
    config = Config({"model_provider": "offline"})
    before = initial_settings(config, "/", Overrides())
    after = with_overrides(before, CHOSEN, config.view())
    names = {field.name for field in fields(Overrides)} - OTHERWISE - {"environments"}
    assert names <= set(Settings.model_fields)
    assert {name: getattr(after, name) for name in names} == {
        name: getattr(CHOSEN, name) for name in names
    }
    rest = set(Settings.model_fields) - names
    assert {name: getattr(after, name) for name in rest} == {
        name: getattr(before, name) for name in rest
    }


def test_what_nobody_chose_stays() -> None:
    config = Config({"model_provider": "offline"})
    before = initial_settings(config, "/", Overrides())
    assert before.model == OFFLINE_MODEL
    assert with_overrides(before, Overrides(), config.view()) == before
    reviewed = Overrides(approvals_reviewer="guardian_subagent")
    changed = with_overrides(before, reviewed, config.view())
    assert changed == before.model_copy(update={"approvals_reviewer": "auto_review"})
