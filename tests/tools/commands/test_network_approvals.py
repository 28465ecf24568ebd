"""tools: the network of commands through the proxy, and the questions about hosts."""

import asyncio
import json
import os
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import pytest

from app_server.clients.mcp_front.questions import command_params
from app_server.host.proxy import server as proxy_server
from app_server.host.proxy.upstream import ProxyBounds, Streams
from app_server.models.prompt.environment_context import PROXIED
from app_server.permissions.network import NetworkPolicy, Target
from app_server.rpc.older_interface.events import command_approval
from app_server.turns.approval.asking import NOT_OFFERED
from protocol.older_interface.approvals import ExecCommandApprovalParams
from tests.support.files.fifos import write_fifo
from tests.support.harness import REQUIREMENTS, claim
from tests.support.host.fetching import fetch_line
from tests.support.host.origin import origin
from tests.support.model import says
from tests.support.turn_tools.turn_commands import Desk, command, desk, stdin

ASKED = "item/commandExecution/requestApproval"
GRANULAR = {"granular": {"rules": True, "sandbox_approval": False, "mcp_elicitations": True}}
ON = "[features.network_proxy]\nenabled = true\n[sandbox_workspace_write]\nnetwork_access = true\n"


@pytest.fixture
async def internet(monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[None]:
    """Let every host that may be reached be one server of this machine."""
    async with origin() as port:

        async def connect(target: Target, policy: NetworkPolicy, bounds: ProxyBounds) -> Streams:
            return await asyncio.open_connection("127.0.0.1", port)

        monkeypatch.setattr(proxy_server, "connect", connect)
        yield


@asynccontextmanager
async def proxied(
    home: Path, policy: str = "on-request", config: str = ON, sandbox: str = "workspace-write"
) -> AsyncIterator[Desk]:
    async with desk(home, sandbox, policy, config) as at:
        yield at


def fetch(*urls: str) -> dict[str, Any]:
    """Fetch pages one after the other; prints a status for each."""
    return command(fetch_line(*urls))


async def answered(at: Desk, call: dict[str, Any], *decisions: Any) -> list[dict[str, Any]]:
    """Run a turn in which the user is asked once for each decision; gives the questions."""
    await at.start(call)
    at.messages, questions = [], []
    for decision in decisions:
        at.messages += await at.client.until(ASKED)
        asked = at.messages[-1]
        questions.append(asked["params"])
        await at.client.send({"id": asked["id"], "result": {"decision": decision}})
    at.messages += await at.client.until("turn/completed")
    return questions


def amendment(host: str, action: str) -> dict[str, Any]:
    chosen = {"network_policy_amendment": {"host": host, "action": action}}
    return {"applyNetworkPolicyAmendment": chosen}


def written(at: Desk) -> list[tuple[str, str, str]]:
    """Give what the thread's log says of hosts."""
    [log] = (at.served.home / "threads").rglob("*.jsonl")
    lines = map(json.loads, log.read_text().splitlines())
    return [
        (line["subject"], line["decision"], line["by"])
        for line in lines
        if line["type"] == "approvalDecided" and line["action"] == "network"
    ]


def output(at: Desk) -> str:
    return at.outputs(1)[0].rpartition("Output:\n")[2]


@claim("network:questions")
async def test_a_host_without_a_rule_is_asked_about(tmp_path: Path, internet: None) -> None:
    async with proxied(tmp_path) as at:
        # Once is for the command: its second connection is not asked about.
        call = fetch("http://a.example/x", "http://A.example./y")
        [question] = await answered(at, call, "accept")
        assert output(at) == "200 200 "
        assert question.pop("startedAtMs") > 0
        assert question.pop("itemId").startswith("network#local#http#a.example#80#")
        assert {name: value for name, value in question.items() if value is not None} == {
            "kind": "command",
            "threadId": at.thread_id,
            "turnId": at.messages[-1]["params"]["turn"]["id"],
            "environmentId": "local",
            "reason": "Network access to a.example requires approval",
            "networkApprovalContext": {"host": "a.example", "protocol": "http"},
            "proposedNetworkPolicyAmendments": [
                {"host": "a.example", "action": "allow"},
                {"host": "a.example", "action": "deny"},
            ],
            "availableDecisions": [
                "accept",
                "acceptForSession",
                amendment("a.example", "allow"),
                "cancel",
            ],
        }
        assert len(await answered(at, call, "accept")) == 1
        assert PROXIED in json.dumps(at.served.model.requests[0]["input"], ensure_ascii=False)
    assert written(at) == [("http://a.example:80", "accept", "user")] * 2


async def test_older_clients_and_those_of_mcp_are_asked_about_the_host(
    tmp_path: Path, internet: None
) -> None:
    async with proxied(tmp_path) as at:
        [question] = await answered(at, fetch("http://a.example/"), "decline")
    words = ["network-access", "http://a.example"]
    older = ExecCommandApprovalParams.model_validate(command_approval(question))
    assert (older.command, older.cwd) == (words, "")
    of_mcp = command_params(question, 1)
    assert of_mcp["message"] == "Allow network access to `a.example` (http)?"
    assert of_mcp["codex_command"] == words


@claim("network:questions")
async def test_what_was_allowed_for_the_session_is_not_asked_about_again(
    tmp_path: Path, internet: None
) -> None:
    async with proxied(tmp_path) as at:
        await answered(at, fetch("http://a.example/"), "acceptForSession")
        assert await answered(at, fetch("http://a.example/")) == []
        assert output(at) == "200 "
        # Another port, and another protocol, are another thing to allow.
        call = fetch("http://a.example:81/", "tunnel=http://a.example/")
        asked = await answered(at, call, "accept", "decline")
        assert [one["networkApprovalContext"]["protocol"] for one in asked] == ["http", "https"]
    assert written(at) == [
        ("http://a.example:80", "acceptForSession", "user"),
        ("http://a.example:80", "accept", "policy"),
        ("http://a.example:81", "accept", "user"),
        ("https://a.example:80", "decline", "user"),
        ("https://a.example:80", "decline", "policy"),
    ]


@claim("network:questions")
async def test_a_refused_host_is_reported_to_the_command_and_to_the_model(
    tmp_path: Path, internet: None
) -> None:
    async with proxied(tmp_path) as at:
        # A host that was refused is not asked about again for the same command.
        call = fetch("http://a.example/", "http://a.example/", "http://b.example/")
        assert len(await answered(at, call, "decline", "accept")) == 2
        [text] = at.outputs(1)
        assert (
            "\nNetwork access to http://a.example:80 was refused: nobody allowed the host\n" in text
        )
        assert output(at) == "403 403 200 "


@claim("network:rules")
async def test_a_rule_that_the_user_accepts_holds_from_then_on(
    tmp_path: Path, internet: None
) -> None:
    async with proxied(tmp_path) as at:
        await answered(at, fetch("http://a.example/"), amendment("a.example", "allow"))
        assert await answered(at, fetch("http://a.example:8080/")) == []
        await answered(at, fetch("http://b.example/"), amendment("b.example", "deny"))
        assert output(at) == "403 "
        # What is denied is so for every protocol.
        assert await answered(at, fetch("http://b.example/", "tunnel=https://b.example/")) == []
        assert output(at) == "403 403 "
        assert (at.served.home / "rules" / "default.rules").read_text() == (
            'network_rule(host="a.example", protocol="http", decision="allow", '
            'justification="Allow http access to a.example")\n'
            'network_rule(host="b.example", protocol="http", decision="deny", '
            'justification="Deny http access to b.example")\n'
        )
        [log] = (at.served.home / "threads").rglob("*.jsonl")
        lines = map(json.loads, log.read_text().splitlines())
        assert [line["rule"] for line in lines if line.get("rule")] == [
            ["allow", "a.example"],
            ["deny", "b.example"],
        ]


@claim("network:rules")
@pytest.mark.parametrize(
    "answer",
    [
        amendment("b.example", "allow"),
        amendment("b.example", "deny"),
        {"acceptWithExecpolicyAmendment": {"execpolicy_amendment": ["sh"]}},
        {"acceptWithExecpolicyAmendment": {"execpolicy_amendment": ["network-access"]}},
    ],
    ids=str,
)
async def test_an_answer_with_a_rule_that_was_not_offered_is_refused(
    tmp_path: Path, answer: Any, internet: None
) -> None:
    async with proxied(tmp_path) as at:
        await answered(at, fetch("http://a.example/"), answer)
        assert output(at) == "403 "
        [warning] = [m["params"] for m in at.messages if m.get("method") == "warning"][-1:]
        assert warning["message"] == NOT_OFFERED
        assert not (at.served.home / "rules").exists()


@claim("network:rules")
async def test_a_rule_that_cannot_be_written_holds_for_the_session(
    tmp_path: Path, internet: None
) -> None:
    async with proxied(tmp_path) as at:
        (at.served.home / "rules").mkdir()
        (at.served.home / "rules" / "default.rules").write_text("oops")
        await answered(at, fetch("http://a.example/"), amendment("a.example", "allow"))
        assert await answered(at, fetch("http://a.example/")) == []
        assert output(at) == "200 "
        assert (at.served.home / "rules" / "default.rules").read_text() == "oops"


@claim("network:questions")
async def test_a_user_who_cancels_ends_the_turn_too(tmp_path: Path, internet: None) -> None:
    async with proxied(tmp_path) as at:
        await answered(at, fetch("http://a.example/"), "cancel")
        assert at.messages[-1]["params"]["turn"]["status"] == "interrupted"


@claim("network:questions")
async def test_connections_that_wait_for_the_same_answer_share_a_question(
    tmp_path: Path, internet: None
) -> None:
    async with proxied(tmp_path) as at:
        line = f"for n in 1 2 3 4; do {fetch_line('http://a.example/')} & done; wait"
        assert len(await answered(at, command(line), "accept")) == 1
        assert output(at) == "200 " * 4
    assert written(at) == [("http://a.example:80", "accept", "user")]


@claim("network:questions")
@pytest.mark.parametrize("policy", ["never", GRANULAR], ids=str)
async def test_where_nobody_may_be_asked_the_host_is_refused(
    tmp_path: Path, policy: Any, internet: None
) -> None:
    async with proxied(tmp_path, policy) as at:
        assert await answered(at, fetch("http://a.example/")) == []
        assert output(at) == "403 "
    assert written(at) == [("http://a.example:80", "decline", "policy")]


@claim("network:questions")
async def test_nobody_is_asked_when_no_turn_runs(tmp_path: Path, internet: None) -> None:
    async with proxied(tmp_path) as at:
        os.mkfifo(at.folder / "go")
        line = f"read x < go; {fetch_line('http://a.example/')}"
        [result] = await at.run_calls(command(line, yield_time_ms=250))
        assert result.session is not None
        await write_fifo(at.folder / "go", "now\n")
        completed = (await at.client.until("item/completed"))[-1]["params"]["item"]
        assert completed["aggregatedOutput"] == "403 "
        [read] = await at.run_calls(stdin(result.session))
        assert read.note == (
            "Network access to http://a.example:80 was refused: nobody allowed the host\n"
        )
    assert written(at) == [("http://a.example:80", "decline", "policy")]


@claim("network:questions")
async def test_the_end_of_a_turn_withdraws_its_questions(tmp_path: Path, internet: None) -> None:
    async with proxied(tmp_path) as at:
        turn_id = await at.start(fetch("http://a.example/"))
        await at.client.until(ASKED)
        await at.client.call("turn/interrupt", {"threadId": at.thread_id, "turnId": turn_id})
        messages = await at.client.until("turn/completed")
        assert messages[-1]["params"]["turn"]["status"] == "interrupted"
        assert "serverRequest/resolved" in [message.get("method") for message in messages]
    assert written(at) == [("http://a.example:80", "cancel", "server")]


@claim("network:questions")
@pytest.mark.parametrize(("verdict", "status"), [("allow", "200 "), ("deny", "403 ")])
async def test_a_reviewer_may_decide_in_the_place_of_the_user(
    tmp_path: Path, internet: None, verdict: str, status: str
) -> None:
    async with proxied(tmp_path, config=f'approvals_reviewer = "auto_review"\n{ON}') as at:
        await at.start(fetch("http://a.example/"))
        judged = {
            "risk_level": "low" if verdict == "allow" else "high",
            "user_authorization": "high",
            "outcome": verdict,
            "rationale": "So.",
        }
        at.served.model.scripts.insert(1, says(json.dumps(judged)))
        at.messages = await at.client.until("turn/completed")
        [started] = [
            message["params"]
            for message in at.messages
            if message.get("method") == "item/autoApprovalReview/started"
        ]
        assert started["action"] == {
            "type": "networkAccess",
            "target": "http://a.example:80",
            "host": "a.example",
            "protocol": "http",
            "port": 80,
        }
        assert output(at) == status
    word = "accept" if verdict == "allow" else "decline"
    assert written(at)[0] == ("http://a.example:80", word, "reviewer")


@claim("network:proxy")
async def test_a_profile_that_names_domains_has_no_other_network(
    tmp_path: Path, internet: None
) -> None:
    config = (
        'default_permissions = "mine"\n[permissions.mine]\nextends = ":workspace"\n'
        "[permissions.mine.network]\nenabled = true\n"
        "domains = {'**.a.example' = 'allow', 'x.a.example' = 'deny'}\n"
    )
    async with desk(tmp_path, "workspace-write", "on-request", config) as at:
        thread_id = await at.client.start_thread(cwd=str(at.folder), approvalPolicy="never")
        at.thread_id = thread_id
        hosts = ["a.example", "y.a.example", "x.a.example", "b.example"]
        call = fetch(*(f"http://{host}/" for host in hosts), "direct=http://127.0.0.1:1/")
        assert await answered(at, call) == []
        assert output(at) == "200 200 403 403 Connection refused "


@claim("requirements:network")
async def test_an_administrator_can_demand_the_proxy(tmp_path: Path, internet: None) -> None:
    home = tmp_path / "home"
    home.mkdir()
    (home / REQUIREMENTS).write_text(
        "[experimental_network]\nmanaged_allowed_domains_only = true\nmitm = true\n"
        "domains = {'a.example' = 'allow', 'b.example' = 'deny'}\n"
    )
    config = "[sandbox_workspace_write]\nnetwork_access = true\n"
    async with proxied(tmp_path, config=config) as at:
        hosts = ["a.example", "b.example", "c.example"]
        assert await answered(at, fetch(*(f"http://{host}/" for host in hosts))) == []
        assert output(at) == "200 403 403 "
        read = (await at.client.call("configRequirements/read", {}))["requirements"]
        shown = {name: value for name, value in read["network"].items() if value is not None}
        assert shown == {
            "enabled": True,
            "domains": {"a.example": "allow", "b.example": "deny"},
            "managedAllowedDomainsOnly": True,
            "allowedDomains": ["a.example"],
            "deniedDomains": ["b.example"],
        }


@claim("network:proxy")
async def test_without_a_network_there_is_no_proxy_either(tmp_path: Path) -> None:
    async with proxied(tmp_path, config="features.network_proxy = true\n") as at:
        result = await at.run(
            "env | grep -ciE '^(http_proxy|all_proxy)='; echo $CODEX_SANDBOX_NETWORK_DISABLED"
        )
        assert result.output == "0\n1\n"


@claim("network:own")
async def test_no_command_reaches_the_server_itself(tmp_path: Path) -> None:
    config = ON.replace(
        "enabled = true", "enabled = true\nallow_local_binding = true\ndomains = {'*' = 'allow'}", 1
    )
    async with proxied(tmp_path, config=config) as at, origin() as port:
        ours = urlsplit(at.served.urls[0]).port
        hosts = [f"127.0.0.1:{port}", f"127.0.0.1:{ours}", f"localhost:{ours}", f"0.0.0.0:{ours}"]
        result = await at.run(fetch_line(*(f"http://{host}/" for host in hosts)))
        assert result.output == "200 403 403 403 "
        assert result.note == "".join(
            f"Network access to http://{host}:{ours} was refused: "
            "this machine and private networks are not reached\n"
            for host in ("127.0.0.1", "localhost", "0.0.0.0")
        )


async def test_command_exec_goes_by_settings_and_rules_and_asks_nobody(
    tmp_path: Path, internet: None
) -> None:
    config = ON.replace("enabled = true", "enabled = true\ndomains = {'**.a.example' = 'allow'}", 1)
    async with proxied(tmp_path, config=config) as at:
        (at.served.home / "rules").mkdir()
        (at.served.home / "rules" / "mine.rules").write_text(
            'network_rule(host="x.a.example", protocol="http", decision="deny")\n'
        )
        line = fetch("http://a.example/", "http://b.example/", "http://x.a.example/")
        params = {
            "command": ["sh", "-c", line["arguments"]["cmd"]],
            "cwd": str(at.folder),
            "sandboxPolicy": {"type": "workspaceWrite", "networkAccess": True},
        }
        ended = await at.client.call("command/exec", params)
        assert ended == {"exitCode": 0, "stdout": "200 403 403 ", "stderr": ""}
