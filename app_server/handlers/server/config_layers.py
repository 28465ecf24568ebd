"""The settings in force as clients are shown them: layer by layer, and where each comes from.

Secrets are in none of it, and neither is what stands at a key that is known to nobody.
Source: docs/config.md, "What clients are shown".
"""

import hashlib
import json
import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict
from typing import Any, NamedTuple

from pydantic import ValidationError

from app_server.accounts.account_settings import CHATGPT_BASE_URL, AccountSettings
from app_server.config.editing.keys import value_at
from app_server.config.effective import Configuration, default_provider_id
from app_server.config.key_check import FIRST_KEYS, known_part
from app_server.config.masking import masked
from app_server.config.positions import KeyPath
from app_server.config.values import Config, Document
from app_server.handlers.server.feature_table import FEATURES
from app_server.models.catalogue.providers import default_model
from app_server.permissions.environment import CommandSettings, EnvironmentPolicy
from app_server.permissions.project_config import ProjectLayer
from app_server.permissions.trust import read_trust
from app_server.sessions.agents_files import AgentsSettings
from app_server.sessions.settings import configured_approval_policy
from protocol.server.config import Config as EffectiveConfig
from protocol.server.config import (
    ConfigLayer,
    ConfigLayerMetadata,
    ProjectConfigLayerSource,
    SessionFlagsConfigLayerSource,
    UserConfigLayerSource,
)

REQUIRED = (
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
"""Settings that must fit. Of other members with a type of their own a wrong value is shown as null:
what needs the setting goes on without it, or refuses it by itself."""

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
    """Show the settings in force: all known keys; null, or what is usual, where nothing is set.

    Raises:
        ConfigError: one of those that must fit does not.
    """
    provider_id = default_provider_id(config)
    document = shown_part(config.document)
    shown = {**dict.fromkeys(FIRST_KEYS), **_usual(), **document}
    shown["model_provider"] = provider_id
    shown["model"] = default_model(config, provider_id)
    shown["approval_policy"] = configured_approval_policy(config.view())
    trust = read_trust(config)
    shown["projects"] = {folder: {"trust_level": level} for folder, level in trust.items()} or None
    shown["features"] = _with_usual(_usual_features(document), shown["features"])
    policy = asdict(EnvironmentPolicy())
    shown["shell_environment_policy"] = _with_usual(policy, shown["shell_environment_policy"])
    if isinstance(value_at(document, ("tools", "web_search")), bool):
        # Short for `web_search`; the member of the wire is a table.
        shown["tools"] = {**document["tools"], "web_search": None}
    try:
        return EffectiveConfig.model_validate(shown)
    except ValidationError as exc:
        for problem in exc.errors(include_url=False, include_input=False):
            path = tuple(str(part) for part in problem["loc"])
            if path[0] in REQUIRED:
                raise config.error(path, problem["msg"]) from exc
            shown[path[0]] = None
    return EffectiveConfig.model_validate(shown)


def shown_part(document: Document) -> Document:
    """Copy what of a document clients are shown."""
    part: Document = plain(masked(known_part(document)))
    return part


def _usual() -> Document:
    """Return what is in force where nothing is set, of what is not null then."""
    agents = AgentsSettings()
    return {
        "allow_login_shell": CommandSettings().allow_login_shell,
        "chatgpt_base_url": CHATGPT_BASE_URL,
        "cli_auth_credentials_store": AccountSettings().store,
        "include_apps_instructions": True,
        "marketplaces": {},
        "mcp_oauth_credentials_store": "auto",
        "mcp_servers": {},
        "model_providers": {},
        "plugins": {},
        "project_doc_fallback_filenames": agents.fallbacks,
        "project_doc_max_bytes": agents.max_bytes,
        "project_root_markers": agents.root_markers,
    }


def _usual_features(document: Document) -> Document:
    """Return each feature of this server, on as it is by default or by an older name."""
    return {
        feature.names[0]: next(
            (
                value
                for name in feature.names
                if (value := value_at(document, ("features", name))) is not None
            ),
            feature.default,
        )
        for feature in FEATURES
    }


def _with_usual(usual: Document, table: Any) -> Any:
    """Put a table over what is usual; what stands in its place is shown as it is."""
    return {**usual, **table} if isinstance(table, dict) else table or usual


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
    if any(config.layers):
        layers.insert(0, Layer(SessionFlagsConfigLayerSource(), flags.document))
    return layers


def shown_layer(layer: Layer) -> ConfigLayer:
    """Show what of a layer is known and no secret."""
    return ConfigLayer(
        name=layer.source,
        version=layer.metadata.version,
        config=shown_part(layer.document),
        disabled_reason=layer.disabled_reason,
    )


def origins_of(layers: Sequence[Layer]) -> dict[str, ConfigLayerMetadata]:
    """Say of values that are shown which layer decides them, by dotted path."""
    origins: dict[str, ConfigLayerMetadata] = {}
    for layer in layers:
        if layer.disabled_reason is not None:
            continue
        metadata = layer.metadata
        for path in _leaves((), known_part(layer.document)):
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
    """Make a value of TOML one of JSON: dates and times, `inf` and `nan` become texts."""
    match value:
        case dict():
            return {key: plain(inner) for key, inner in value.items()}
        case list():
            return [plain(inner) for inner in value]
        case float() if not math.isfinite(value):
            return str(value)
        case None | bool() | int() | float() | str():
            return value
    return str(value)
