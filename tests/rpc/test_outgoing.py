"""How events are rendered for clients."""

import itertools
import json
from typing import Any

import pytest

from app_server.rpc.outbox import DELTAS, Outgoing
from protocol.contract.methods import METHOD_OF
from protocol.host.commands import CommandExecOutputDeltaNotification
from protocol.host.processes import ProcessOutputDeltaNotification
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
