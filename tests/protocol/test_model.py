"""protocol: how values look on the wire."""

import json

import pytest
from pydantic import ValidationError

from protocol.export.definitions import load_types
from protocol.integrations.mcp import McpServerToolCallResponse
from protocol.model import WireModel
from protocol.threads.lists import ThreadListParams
from protocol.turns.items import AgentMessageThreadItem, ItemStartedNotification


def test_nulls_are_kept_and_marked_members_vanish() -> None:
    item = AgentMessageThreadItem(id="a", text="")
    started = ItemStartedNotification(item=item, thread_id="t", turn_id="u", started_at_ms=1)
    rendered = json.loads(started.model_dump_json())["item"]
    assert rendered["phase"] is None
    response = McpServerToolCallResponse(content=[])
    assert response.model_dump(mode="json") == {"content": []}


def test_nothing_is_coerced() -> None:
    for params in ({"limit": "5"}, {"limit": True}, {"limit": 1.5}, {"archived": 1}, {"cwd": 5}):
        with pytest.raises(ValidationError):
            ThreadListParams.model_validate(params)


def test_every_type_says_what_it_is() -> None:
    """Docstrings of wire types become descriptions in the schema."""
    load_types()
    models: list[type[WireModel]] = [WireModel]
    for model in models:
        models.extend(model.__subclasses__())
        assert model.__doc__, model
