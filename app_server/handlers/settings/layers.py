"""The settings in force as clients are shown them: layer by layer, and where each comes from.

What could be a secret is in none of it: servers and providers have headers and variables.
Source: docs/config.md, "Layers".
"""

import hashlib
import json
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, NamedTuple

from pydantic import ValidationError

from app_server.config.default_provider import default_provider_id
from app_server.config.effective import Configuration
from app_server.config.places import KeyPath
from app_server.config.trust import read_trust
from app_server.config.values import Config, Document
from app_server.permissions.project_config import ProjectLayer
from app_server.sessions.settings import configured_approval_policy
from app_server.turns.model.catalogue.providers import default_model
from protocol.server.config import Config as EffectiveConfig
from protocol.server.config import (
    ConfigLayer,
    ConfigLayerMetadata,
    ProjectConfigLayerSource,
    SessionFlagsConfigLayerSource,
    UserConfigLayerSource,
)

SHOWN_KEYS = (
    "model",
    "review_model",
    "model_context_window",
    "model_provider",
    "approval_policy",
    "approvals_reviewer",
    "sandbox_mode",
    "sandbox_workspace_write",
    "model_reasoning_effort",
    "model_reasoning_summary",
    "model_verbosity",
    "service_tier",
    "web_search",
)
"""Settings that cannot hold a secret and have a place on the wire."""

SHOWN_TABLES = (*SHOWN_KEYS, "projects")
"""What of a layer clients are shown."""

MAX_ORIGINS = 1000
"""Values whose origin is given; an answer must fit into a message."""


class Layer(NamedTuple):
    """One layer, whole."""

    source: UserConfigLayerSource | ProjectConfigLayerSource | SessionFlagsConfigLayerSource
    document: Document
    disabled_reason: str | None = None
    """Why it does not count; None if it does."""

    @property
    def metadata(self) -> ConfigLayerMetadata:
        """Name it, and the state that it was read in."""
        return ConfigLayerMetadata(name=self.source, version=version_of(self.document))


def effective_config(config: Config) -> EffectiveConfig:
    """Show the settings in force.

    Raises:
        ConfigError: one of them does not fit.
    """
    provider_id = default_provider_id(config)
    shown = {key: config.document.get(key) for key in SHOWN_KEYS}
    shown["model_provider"] = provider_id
    shown["model"] = default_model(config, provider_id)
    shown["approval_policy"] = configured_approval_policy(config.view())
    trust = read_trust(config)
    shown["projects"] = {folder: {"trust_level": level} for folder, level in trust.items()} or None
    try:
        return EffectiveConfig.model_validate(shown)
    except ValidationError as exc:
        problem = exc.errors(include_url=False, include_input=False)[0]
        path = tuple(str(part) for part in problem["loc"])
        raise config.error(path, problem["msg"]) from exc


def layers_of(
    config: Config,
    configuration: Configuration,
    documents: Sequence[Document],
    projects: Sequence[ProjectLayer] = (),
) -> Sequence[Layer]:
    """Return the layers of a configuration, the highest first.

    `documents` are the user's files: config.toml, and the profile over it.
    """
    layers = [
        Layer(
            ProjectConfigLayerSource(dot_codex_folder=str(project.folder)),
            project.document,
            project.disabled_reason,
        )
        for project in reversed(projects)
    ]
    file, of_profile = str(configuration.profile_file), configuration.profile
    layers += [
        Layer(UserConfigLayerSource(file=file, profile=of_profile), document)
        for document in documents[1:]
    ]
    user = documents[0] if documents else {}
    layers.append(Layer(UserConfigLayerSource(file=str(configuration.file)), user))
    flags = Config({})
    for overrides in config.layers:
        flags = flags.override(overrides)
    if config.layers:
        layers.insert(0, Layer(SessionFlagsConfigLayerSource(), flags.document))
    return layers


def shown_layer(layer: Layer) -> ConfigLayer:
    """Show what of a layer cannot be a secret."""
    config = {key: plain(layer.document[key]) for key in SHOWN_TABLES if key in layer.document}
    return ConfigLayer(
        name=layer.source,
        version=layer.metadata.version,
        config=config,
        disabled_reason=layer.disabled_reason,
    )


def origins_of(layers: Sequence[Layer]) -> dict[str, ConfigLayerMetadata]:
    """Say of values that are shown which layer decides them, by dotted path."""
    origins: dict[str, ConfigLayerMetadata] = {}
    for layer in layers:
        if layer.disabled_reason is not None:
            continue
        metadata = layer.metadata
        for key in SHOWN_TABLES:
            for path in _leaves((key,), layer.document.get(key, {})):
                if len(origins) == MAX_ORIGINS:
                    return origins
                origins.setdefault(".".join(path), metadata)
    return origins


def _leaves(path: KeyPath, value: Any) -> Iterator[KeyPath]:
    inner: Mapping[Any, Any] = {}
    match value:
        case dict():
            inner = value
        case list():
            inner = dict(enumerate(value))
        case _:
            yield path
    for key, member in inner.items():
        yield from _leaves((*path, str(key)), member)


def version_of(document: Document) -> str:
    """Name the state of a layer: the same settings in another order are the same state."""
    text = json.dumps(
        document, sort_keys=True, separators=(",", ":"), ensure_ascii=False, default=str
    )
    return f"sha256:{hashlib.sha256(text.encode()).hexdigest()}"


def plain(value: Any) -> Any:
    """Make a value of TOML one of JSON: dates and times become texts."""
    match value:
        case dict():
            return {key: plain(inner) for key, inner in value.items()}
        case list():
            return [plain(inner) for inner in value]
        case None | bool() | int() | float() | str():
            return value
    return str(value)
