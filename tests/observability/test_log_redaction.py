"""What the redactor takes out of a text, and what it leaves."""

import time

import pytest

from app_server.observability.log_lines import MAX_VALUES, Redactor

SECRET = "hunter2-Zx9_qwerty"
JWT = "eyJhbGciOiJIUzI1NiJ9.eyJzdWIiOiIxMjM0NSJ9.sflKxwRJSMeKKF2QT4"
PEM = "-----BEGIN RSA PRIVATE KEY-----\nMIIEow\n-----END RSA PRIVATE KEY-----"


@pytest.mark.parametrize(
    ("text", "clean"),
    [
        # Headers.
        (f"Authorization: Bearer {SECRET}", "Authorization: Bearer ***"),
        (f"authorization: Basic {SECRET}=", "authorization: Basic ***"),
        (f"X-Api-Key: {SECRET}, accept: text", "X-Api-Key: ***, accept: text"),
        (f"Set-Cookie: sid={SECRET}; Path=/", "Set-Cookie: ***; Path=/"),
        (f"{{'authorization': 'Bearer {SECRET}'}}", "{'authorization': ***}"),
        (f"(b'x-api-key', b'{SECRET}')", "(b'x-api-key', ***)"),
        (f"got Bearer {SECRET} from it", "got Bearer *** from it"),
        # URLs.
        (f"wss://ann:{SECRET}@host:1/x", "wss://***@host:1/x"),
        (f"https://h/p?key={SECRET}&sig={SECRET}#x failed", "https://h/p?*** failed"),
        (f"http://h/cb#access_token={SECRET}", "http://h/cb?***"),
        ("https://h/p/q is left", "https://h/p/q is left"),
        # Names with values.
        (f"OPENAI_API_KEY={SECRET} other=1", "OPENAI_API_KEY=*** other=1"),
        (f'{{"refresh_token": "{SECRET}", "n": 1}}', '{"refresh_token": ***, "n": 1}'),
        (f'{{\\"client_secret\\":\\"{SECRET}\\"}}', '{\\"client_secret\\":***}'),
        (f"password='{SECRET}'", "password=***"),
        (f"env['GITHUB_TOKEN'] = {SECRET}", "env['GITHUB_TOKEN'] = ***"),
        # Shapes.
        ("sk-proj-abcdef123456", "***"),
        ("at ghp_0123456789abcdef0123 and AKIAABCDEFGHIJKLMNOP", "at *** and ***"),
        (f"id {JWT}.", "id ***."),
        (f"key\n{PEM}\nend", "key\n***\nend"),
        (PEM[:50], "***"),
        # What is none.
        ("total_tokens: 15, secrets: 2", "total_tokens: 15, secrets: 2"),
        ("a task-list of risk-averse keyboards", "a task-list of risk-averse keyboards"),
        ("thread 01890000-0000-7000-8000-000000000000", None),
    ],
)
def test_secrets_are_replaced_and_the_rest_stays(text: str, clean: str | None) -> None:
    assert Redactor({}).redact(text) == (text if clean is None else clean)


def test_values_of_variables_with_secret_names_are_found_wherever_they_stand() -> None:
    redactor = Redactor({"MY_KEY": "plainwords", "SHORT_KEY": "on", "PATH": "/usr/bin:/bin"})
    assert redactor.redact("it said plainwords on /usr/bin:/bin") == (
        "it said *** on /usr/bin:/bin"
    )


def test_the_longest_values_are_looked_for_where_there_are_too_many() -> None:
    environ = {f"KEY_{number}": "v" * (8 + number) + "_" for number in range(MAX_VALUES + 1)}
    redactor = Redactor(environ)
    assert redactor.redact(environ[f"KEY_{MAX_VALUES}"]) == "***"
    assert redactor.redact(environ["KEY_0"]) == environ["KEY_0"]


@pytest.mark.parametrize(
    "piece", ["a", "token", "token:", "://", "https://a", "Bearer ", "eyJ", "'", '"', "-----BEGIN "]
)
def test_no_text_takes_long(piece: str) -> None:
    text = piece * (32 * 1024 // len(piece))
    began = time.thread_time()
    Redactor({}).redact(text)
    assert time.thread_time() - began < 2
