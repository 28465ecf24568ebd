"""Modes, models and other options of a session, as its thread's settings say. No I/O.

Source: https://agentclientprotocol.com/protocol/v1/session-config-options; docs/acp.md, "Options".
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from protocol.jsonrpc.errors import invalid_member
from protocol.model import JsonObject


@dataclass(frozen=True, slots=True)
class Mode:
    """What the model may do, and who is asked about the rest."""

    name: str
    description: str
    policy: str
    reviewer: str
    permissions: str
    """Id of a profile of permissions that every server has."""
    sandbox: str
    """The policy that it comes to."""

    @property
    def settings(self) -> JsonObject:
        """Members of `thread/settings/update`."""
        return {
            "approvalPolicy": self.policy,
            "approvalsReviewer": self.reviewer,
            "permissions": self.permissions,
        }


MODES: Mapping[str, Mode] = {
    "read-only": Mode(
        "Read only",
        "Reads files; asks before it changes any, and before it uses the network.",
        "on-request", "user", ":read-only", "readOnly",
    ),
    "workspace-write": Mode(
        "Workspace access",
        "Changes files of the project; asks before it goes beyond them or uses the network.",
        "on-request", "user", ":workspace", "workspaceWrite",
    ),
    "agent": Mode(
        "Automatic review",
        "Changes files of the project; a second model decides on the rest.",
        "on-request", "auto_review", ":workspace", "workspaceWrite",
    ),
    "agent-full-access": Mode(
        "Full access",
        "Changes everything and uses the network, and asks nobody.",
        "never", "user", ":danger-full-access", "dangerFullAccess",
    ),
}  # fmt: skip
"""By id; the ids are those of the adapter of Codex, so that settings of editors stay."""

CONFIGURED = "configured"
"""Mode of a thread whose settings are none of MODES."""

COLLABORATION = {"default": "Default", "plan": "Plan"}


@dataclass(frozen=True, slots=True)
class SessionSettings:
    """Settings of one thread, as far as options show them."""

    mode: str
    model: str
    effort: str | None
    collaboration: str = "default"

    @classmethod
    def of_answer(cls, answer: JsonObject) -> "SessionSettings":
        """Read the answer that starts, resumes or forks a thread."""
        collaboration = answer.get("collaborationMode") or {}
        return cls(
            mode=_mode(answer, answer["sandbox"]),
            model=answer["model"],
            effort=answer.get("reasoningEffort"),
            collaboration=collaboration.get("mode", "default"),
        )

    @classmethod
    def of_update(cls, settings: JsonObject) -> "SessionSettings":
        """Read the settings of `thread/settings/updated`."""
        return cls(
            mode=_mode(settings, settings["sandboxPolicy"]),
            model=settings["model"],
            effort=settings.get("effort"),
            collaboration=settings["collaborationMode"]["mode"],
        )

    def modes(self) -> JsonObject:
        """Return the modes, for clients that know no options."""
        available = [
            {"id": option["value"], "name": option["name"], "description": option["description"]}
            for option in self._mode_values()
        ]
        return {"currentModeId": self.mode, "availableModes": available}

    def options(self, models: Sequence[JsonObject]) -> list[JsonObject]:
        """Return all options; `models` are those that can be chosen."""
        chosen = next((one for one in models if one["model"] == self.model), None)
        values = [
            {"value": one["model"], "name": one["displayName"], "description": one["description"]}
            for one in models
        ]
        if chosen is None:
            values.insert(0, {"value": self.model, "name": self.model})
        options = [
            _select("mode", "Mode", "mode", self.mode, self._mode_values()),
            _select(
                "collaboration_mode", "Collaboration", "_collaboration_mode", self.collaboration,
                [{"value": value, "name": name} for value, name in COLLABORATION.items()],
            ),
            _select("model", "Model", "model", self.model, values),
        ]  # fmt: skip
        efforts = [] if chosen is None else chosen["supportedReasoningEfforts"]
        if chosen is not None and efforts:
            current = self.effort or chosen["defaultReasoningEffort"]
            choices = [
                {
                    "value": one["reasoningEffort"],
                    "name": one["reasoningEffort"].capitalize(),
                    "description": one["description"],
                }
                for one in efforts
            ]
            if current not in (choice["value"] for choice in choices):
                choices.insert(0, {"value": current, "name": current.capitalize()})
            options.append(
                _select("reasoning_effort", "Reasoning", "thought_level", current, choices)
            )
        return options

    def _mode_values(self) -> list[JsonObject]:
        values = [
            {"value": mode_id, "name": mode.name, "description": mode.description}
            for mode_id, mode in MODES.items()
        ]
        if self.mode == CONFIGURED:
            about = "What the files of settings say, or another client has chosen."
            values.insert(0, {"value": CONFIGURED, "name": "As configured", "description": about})
        return values

    def change(self, option: str, value: str, models: Sequence[JsonObject]) -> JsonObject:
        """Return the members of `thread/settings/update` that set an option.

        Raises:
            RpcError: there is no such option, or it has no such value.
        """
        found = next((one for one in self.options(models) if one["id"] == option), None)
        if found is None:
            raise invalid_member("configId", f"names no option of the session: {option!r}")
        if value not in (one["value"] for one in found["options"]):
            raise invalid_member("value", f"is none of the option's: {value!r}")
        match option:
            case "mode":
                return MODES[value].settings if value in MODES else {}
            case "model":
                return {"model": value}
            case "reasoning_effort":
                return {"effort": value}
        settings = {"model": self.model, "reasoning_effort": self.effort}
        return {"collaborationMode": {"mode": value, "settings": settings}}


def _mode(settings: JsonObject, sandbox: JsonObject) -> str:
    reviewer = settings["approvalsReviewer"].replace("guardian_subagent", "auto_review")
    found = (settings["approvalPolicy"], reviewer, sandbox["type"])
    for mode_id, mode in MODES.items():
        # Without questions it is of no interest who answers them.
        reviewers = (mode.reviewer, reviewer) if mode.policy == "never" else (mode.reviewer,)
        if found in [(mode.policy, one, mode.sandbox) for one in reviewers]:
            return mode_id
    return CONFIGURED


def _select(
    option_id: str, name: str, category: str, current: str, values: Sequence[JsonObject]
) -> JsonObject:
    return {
        "id": option_id,
        "name": name,
        "category": category,
        "type": "select",
        "currentValue": current,
        "options": list(values),
    }
