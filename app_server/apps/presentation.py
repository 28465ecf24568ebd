"""Metadata of a connector's tools for approvals, items and search.

Only what is stable goes into what is remembered: ids and upstream names, never routed ones.
Source: docs/apps.md, "Approvals".
"""

import logging
from collections.abc import Iterator, Mapping, Sequence
from importlib import resources
from typing import Literal, Self

from pydantic import BaseModel, ConfigDict, ValidationError
from pydantic_core import to_json

from app_server.apps.inventory.inventory import AppTool, Connector
from app_server.apps.inventory.names import RESOURCES, Route, stripped_title
from app_server.extensions.contract.registration import (
    MAX_FORM_META_BYTES,
    ApprovalIdentity,
    ApprovalPersistence,
    ApprovalPresentation,
    ApprovalSource,
    ParameterLabel,
    ToolMetadata,
)
from protocol.model import Json, JsonObject
from protocol.turns.items import McpToolCallAppContext

logger = logging.getLogger(__name__)

TEMPLATES_FILE = "approval_templates.json"
APPROVAL_HEADER = "Approve app tool call?"

PERSISTENCE_TARGET = "apps"
"""Under this name the service registers what writes lasting approvals down."""

MAX_ALIAS_CHARS = 64

_NAME_VARIABLE = "{connector_name}"


class _Read(BaseModel):
    model_config = ConfigDict(strict=True, frozen=True)


class _Label(_Read):
    name: str
    label: str


class _Template(_Read):
    connector_id: str
    server_name: str
    tool_title: str
    template: str
    template_params: list[_Label]


class _File(_Read):
    schema_version: Literal[4]
    templates: list[_Template]


class ApprovalTemplates:
    """Questions for single tools, by connector and title; for all others there is a general one."""

    def __init__(self, templates: Sequence[_Template] = ()) -> None:
        # Reversed, so that of two for one tool the first counts.
        self._templates = {
            (template.connector_id, template.tool_title): template
            for template in reversed(templates)
            if template.server_name == RESOURCES
        }

    @classmethod
    def load(cls) -> Self:
        """Read the templates of this package. Blocks: call it in a worker."""
        return cls.parse(resources.files(__package__).joinpath(TEMPLATES_FILE).read_bytes())

    @classmethod
    def parse(cls, text: bytes) -> Self:
        """Read templates; a file of another version or form has none, and that is logged."""
        try:
            return cls(_File.model_validate_json(text).templates)
        except ValidationError as exc:
            logger.warning("the questions for approval cannot be used: %s", _first_problem(exc))
            return cls()

    def presentation(self, connector: Connector, tool: AppTool) -> ApprovalPresentation | None:
        """Put the question for a tool; None where no template fits."""
        title = stripped_title(connector, tool)
        template = None if title is None else self._templates.get((connector.id, title))
        if template is None:
            return None
        labels = [(entry.name, entry.label) for entry in template.template_params]
        try:
            return ApprovalPresentation(
                question=template.template.replace(_NAME_VARIABLE, connector.name),
                labels=tuple(ParameterLabel(name=name, label=label) for name, label in labels),
            )
        except ValidationError:
            # A blank label, or a name that makes no question of it: the general one is better.
            return None


class PresentedTools(Mapping[str, ToolMetadata]):
    """The `ToolMetadata` of a connector's tools for the generic packages, by routed name.

    Each is made when it is first asked for: models and clients ask for few of thousands.
    Source: docs/extensions.md, "Metadata".
    """

    def __init__(self, route: Route, templates: ApprovalTemplates) -> None:
        self.route = route
        self._templates = templates
        self._made: dict[str, ToolMetadata] = {}

    def __getitem__(self, name: str) -> ToolMetadata:
        made = self._made.get(name)
        if made is None:
            tool = self.route.tools[name]
            made = self._made[name] = self._tool_metadata(self.route.connector, tool)
        return made

    def __iter__(self) -> Iterator[str]:
        return iter(self.route.tools)

    def __len__(self) -> int:
        return len(self.route.tools)

    def _tool_metadata(self, connector: Connector, tool: AppTool) -> ToolMetadata:
        return ToolMetadata(
            approval_identity=ApprovalIdentity(
                server=RESOURCES, source=connector.id, tool=tool.name
            ),
            approval_source=ApprovalSource(
                id=connector.id, name=connector.name, description=connector.description
            ),
            approval_presentation=self._templates.presentation(connector, tool),
            approval_header=APPROVAL_HEADER,
            approval_form_meta=_form_meta(connector),
            approval_persistence=ApprovalPersistence(
                target=PERSISTENCE_TARGET,
                path=("apps", connector.id, "tools", tool.name, "approval_mode"),
            ),
            metric_labels={"connector_id": connector.id, "connector_name": connector.name},
            search_aliases=_aliases(connector.name, tool.name),
        )


def app_context(connector: Connector, tool: AppTool) -> McpToolCallAppContext:
    """Say in an item to which app a call goes."""
    return McpToolCallAppContext(
        connector_id=connector.id,
        link_id=tool.link_id,
        resource_uri=tool.resources[0] if tool.resources else None,
        app_name=connector.name,
        action_name=tool.action_name,
    )


def _form_meta(connector: Connector) -> JsonObject:
    """Describe the connector within a bound; the description is cut first."""
    meta: dict[str, Json] = {
        "source": "connector",
        "connector_id": connector.id,
        "connector_name": connector.name,
    }
    if connector.description is not None:
        described = meta | {"connector_description": connector.description}
        if _form_fits(described):
            return described
    return meta if _form_fits(meta) else {"source": "connector"}


def _form_fits(meta: Mapping[str, Json]) -> bool:
    return len(to_json(meta)) <= MAX_FORM_META_BYTES


def _aliases(*names: str) -> tuple[str, ...]:
    trimmed = (name.strip() for name in names)
    return tuple(name for name in trimmed if 0 < len(name) <= MAX_ALIAS_CHARS)


def _first_problem(exc: ValidationError) -> str:
    problem = exc.errors(include_url=False, include_input=False, include_context=False)[0]
    return f"{'.'.join(str(part) for part in problem['loc'])}: {problem['msg']}"
