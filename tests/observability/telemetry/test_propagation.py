"""The W3C context of a span travels to the model and to MCP servers, and no further."""

import json
from contextlib import nullcontext
from pathlib import Path
from typing import Any

import pytest

from app_server.observability.telemetry.spans import exported_by, span, trace_context
from tests.support.harness import WireClient, claim, serve
from tests.support.mcp_peers.calls import answer_of, call_items, raw_call, with_peer
from tests.support.mcp_peers.web_peer import Answer, WebPeer
from tests.support.model import Refusal, ScriptedModel, calls, says
from tests.support.spans import SENT, TRACE, Collected, id_of, trace_of

LOOK = {"namespace": "mcp__web", "name": "look", "arguments": {}}
HEADERS = ("traceparent", "tracestate")


def server(peer: WebPeer) -> str:
    return f'[mcp_servers.web]\nurl = "{peer.url}"\ndefault_tools_approval_mode = "approve"\n'


async def traced_turn(client: WireClient, thread_id: str) -> None:
    """Run a turn as part of a trace."""
    params = {"threadId": thread_id, "input": [{"type": "text", "text": "go"}]}
    start = {"id": "r1", "method": "turn/start", "params": params, "trace": SENT}
    await client.send(start)
    await client.wait_for("turn/completed")


def sent_to(model: ScriptedModel) -> list[tuple[str | None, ...]]:
    """Return the context of each request to the model."""
    return [tuple(headers.get(name) for name in HEADERS) for headers in model.headers]


def sent_in(peer: WebPeer, method: str) -> list[tuple[str | None, ...]]:
    """Return the context in the headers of each request for a method."""
    return [
        tuple(headers.get(name) for name in HEADERS)
        for (seen, _), headers in zip(peer.seen, peer.headers, strict=True)
        if seen == method
    ]


@claim("telemetry:propagation")
async def test_the_model_and_an_http_server_get_the_span_of_their_request(tmp_path: Path) -> None:
    collected, peer = Collected(), WebPeer()
    with exported_by(collected.exporting):
        async with peer.serve():
            config = server(peer)
            async with serve(tmp_path, config=config) as served, served.client() as client:
                thread_id = await client.start_thread(approvalPolicy="never")
                served.model.scripts += [calls(LOOK), says("ok")]
                await traced_turn(client, thread_id)
    first, second = [one for one in collected.spans if one.name == "chat scripted"]
    state = SENT["tracestate"]
    assert sent_to(served.model) == [
        (f"00-{TRACE}-{id_of(first)}-01", state),
        (f"00-{TRACE}-{id_of(second)}-01", state),
    ]
    call = f"00-{TRACE}-{id_of(collected.named('tools/call look'))}-01"
    assert sent_in(peer, "tools/call") == [(call, state)]
    (called,) = peer.called
    meta = {name: called["_meta"][name] for name in HEADERS}
    assert meta == {"traceparent": call, "tracestate": state}
    # Nobody's span goes on when the session is over.
    assert sent_in(peer, "DELETE") == [(None, None)]


@pytest.mark.process
@claim("telemetry:propagation")
async def test_a_process_gets_it_in_meta_unless_the_client_gave_one(tmp_path: Path) -> None:
    collected = Collected()
    given = {"raw": {"traceparent": "00-" + "1" * 32 + "-" + "2" * 16 + "-01"}}
    with exported_by(collected.exporting):
        async with with_peer(tmp_path) as (served, client, thread_id):
            ours = await call_items(served, client, thread_id, raw_call("meta"))
            theirs = await call_items(
                served, client, thread_id, raw_call("meta"), mcpMetaByServer=given
            )
    first, _ = [one for one in collected.spans if one.name == "tools/call meta"]
    metas = [answer_of(outputs[-1]) for _, outputs in (ours, theirs)]
    # Of a trace that begins here the flags are the SDK's.
    assert metas[0]["traceparent"].split("-")[:3] == ["00", trace_of(first), id_of(first)]
    assert metas[1]["traceparent"] == given["raw"]["traceparent"]
    assert not any("tracestate" in meta for meta in metas)


async def test_headers_of_the_configuration_stand(tmp_path: Path) -> None:
    peer = WebPeer()
    with exported_by(Collected().exporting):
        async with peer.serve():
            mine = '{ Traceparent = "mine" }'
            config = f"{server(peer)}http_headers = {mine}\n"
            config += '[model_providers.scripted.http_headers]\nTraceparent = "mine"\n'
            async with serve(tmp_path, config=config) as served, served.client() as client:
                thread_id = await client.start_thread(approvalPolicy="never")
                served.model.scripts += [calls(LOOK), says("ok")]
                await client.turn(thread_id, "go")
    assert [context[0] for context in sent_to(served.model)] == ["mine", "mine"]
    assert [context[0] for context in sent_in(peer, "tools/call")] == ["mine"]


@claim("telemetry:propagation")
async def test_a_redirect_takes_it_to_no_other_host(tmp_path: Path) -> None:
    peer = WebPeer()
    with exported_by(Collected().exporting):
        async with ScriptedModel().serve() as other_model, WebPeer().serve() as other, peer.serve():
            config = server(peer)
            async with serve(tmp_path, config=config) as served, served.client() as client:
                thread_id = await client.start_thread(approvalPolicy="never")
                peer.answers["tools/call"] = [Answer(307, b"", {"location": other.url})]
                away = Refusal(307, {}, {"location": f"{other_model.url}/responses"})
                served.model.scripts += [calls(LOOK), away]
                turn = await client.turn(thread_id, "go")
    assert turn["status"] == "failed"
    assert [context[0] is not None for context in sent_to(served.model)] == [True, True]
    assert len(sent_in(peer, "tools/call")) == 1
    assert other_model.headers == other.headers == []


@pytest.mark.parametrize("only_metrics", [False, True], ids=["off", "only-metrics"])
@claim("telemetry:propagation")
async def test_without_traces_nobody_gets_anything(tmp_path: Path, *, only_metrics: bool) -> None:
    collected, peer = Collected(traces=False), WebPeer()
    with exported_by(collected.exporting) if only_metrics else nullcontext():
        async with peer.serve():
            config = server(peer)
            async with serve(tmp_path, config=config) as served, served.client() as client:
                thread_id = await client.start_thread(approvalPolicy="never")
                served.model.scripts += [calls(LOOK), says("ok")]
                await traced_turn(client, thread_id)
    assert sent_to(served.model) == [(None, None), (None, None)]
    sent = json.dumps([peer.headers, peer.called])
    assert not any(name in sent for name in HEADERS)


def test_outside_of_spans_and_for_one_that_is_not_sampled() -> None:
    collected = Collected()
    sent: Any = {"traceparent": SENT["traceparent"].removesuffix("01") + "00"}
    with exported_by(collected.exporting):
        assert trace_context() == {}
        with span("request", "m", sent):
            unsampled = trace_context()
    assert unsampled["traceparent"].startswith(f"00-{TRACE}-")
    assert unsampled["traceparent"].endswith("-00")
