"""How events are rendered for clients."""

import itertools
import json
from typing import Any

import pytest

from app_server.rpc.outbox import DELTAS, Outgoing
from protocol.contract.methods import METHOD_OF
from protocol.host.commands import CommandExecOutputDeltaNotification
from protocol.host.processes import ProcessOutputDeltaNotification
from protocol.integrations.mcp import (
    McpServerStartupFailureReason,
    McpServerStartupState,
    McpServerStatusUpdatedNotification,
)
from protocol.jsonrpc.envelope import render_notification
from protocol.model import WireModel


@pytest.mark.parametrize("event_type", DELTAS)
@pytest.mark.parametrize("text", ["", "word ", 'q"uo\\te', "\n\t\0\x7f", "ü€😀", '"delta":""'])
def test_a_delta_is_written_as_any_other_event(event_type: type[WireModel], text: str) -> None:
    members = {
        name: 3 if field.annotation is int or "Int" in repr(field.annotation) else '"delta":""'
        for name, field in event_type.model_fields.items()
    }
    event = event_type(**{**members, "delta": text})
    for seq, at_ms in ((None, 7), (5, 0), (12, 1_795_335_540_013)):
        outgoing = Outgoing(METHOD_OF[event_type.__name__], event, at_ms, seq)
        for experimental, jsonrpc, numbered in itertools.product((True, False), repeat=3):
            form = experimental, jsonrpc, numbered
            whole = render_notification(
                outgoing.method,
                event,
                at_ms,
                jsonrpc=jsonrpc,
                experimental=experimental,
                seq=seq if numbered else None,
            )
            assert json.loads(outgoing.text(form)) == json.loads(whole)
            delta = outgoing.delta(form)
            assert delta is not None
            assert json.loads(delta.render(text)) == json.loads(whole)


@pytest.mark.parametrize("program_id", ["p", '"deltaBase64":""', "ü\n"])
@pytest.mark.parametrize("encoded", ["", "AP/+", "eHh4eA=="])
def test_output_is_written_as_any_other_event(program_id: str, encoded: str) -> None:
    piece: dict[str, Any] = {"stream": "stdout", "delta_base64": encoded, "cap_reached": True}
    events: list[WireModel] = [
        CommandExecOutputDeltaNotification(process_id=program_id, **piece),
        ProcessOutputDeltaNotification(process_handle=program_id, **piece),
    ]
    for event, jsonrpc in itertools.product(events, (True, False)):
        outgoing = Outgoing(METHOD_OF[type(event).__name__], event, 7)
        whole = render_notification(outgoing.method, event, 7, jsonrpc=jsonrpc)
        assert outgoing.text((True, jsonrpc, False)) == whole


@pytest.mark.parametrize("thread_id", ["t", 'q"u', "", None])
@pytest.mark.parametrize("name", ["raw", '"threadId":""', "ü\n"])
@pytest.mark.parametrize("status", ["starting", "ready", "failed", "cancelled"])
@pytest.mark.parametrize("error", [None, "broken"])
def test_a_step_of_a_server_is_written_as_any_other_event(
    thread_id: str | None, name: str, status: McpServerStartupState, error: str | None
) -> None:
    again: McpServerStartupFailureReason | None = (
        None if error is None else "reauthenticationRequired"
    )
    event = McpServerStatusUpdatedNotification(
        thread_id=thread_id, name=name, status=status, error=error, failure_reason=again
    )
    flags = (True, False)
    for seq, *form in itertools.product((None, 5), flags, flags, flags):
        experimental, jsonrpc, numbered = form
        outgoing = Outgoing(METHOD_OF[type(event).__name__], event, 7, seq)
        assert outgoing.text((experimental, jsonrpc, numbered)) == render_notification(
            outgoing.method,
            event,
            7,
            jsonrpc=jsonrpc,
            experimental=experimental,
            seq=seq if numbered else None,
        )
