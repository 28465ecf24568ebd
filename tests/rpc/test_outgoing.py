"""How events are rendered for clients."""

import itertools
import json

import pytest

from app_server.rpc.outgoing import DELTAS, Outgoing
from protocol.envelope import render_notification
from protocol.methods import METHOD_OF
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
