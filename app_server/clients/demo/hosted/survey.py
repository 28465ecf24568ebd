"""An app that asks: with a form, with a link, and with the form that ChatGPT has."""

from dataclasses import replace

from app_server.clients.demo.hosted.tool import (
    READS,
    Call,
    HostedConnector,
    JsonObject,
    Run,
    text_result,
)

_SURVEY = HostedConnector("demo_survey", "Survey", "Asks one question, in one of three ways.")
_SCHEMA = {
    "type": "object",
    "properties": {"colour": {"type": "string", "title": "Colour"}},
    "required": ["colour"],
}
_QUESTION = "Which colour do you like best?"

QUESTIONS: dict[str, tuple[str, JsonObject]] = {
    "form": ("elicitation/create", {"message": _QUESTION, "requestedSchema": _SCHEMA}),
    "url": (
        "elicitation/create",
        {
            "mode": "url",
            "message": "Please choose a colour there.",
            "url": "https://example.com/colours",
            "elicitationId": "demo-colours",
        },
    ),
    "openai/form": ("openai/form", {"message": _QUESTION, "requestedSchema": _SCHEMA}),
}
"""Method and params of each question."""


def survey() -> HostedConnector:
    """Return the app with its three tools."""
    tools = [
        _SURVEY.tool(
            f"ask_by_{mode.replace('/', '_')}", f"Ask by {mode}.", {}, READS, _asking(mode)
        )
        for mode in QUESTIONS
    ]
    return replace(_SURVEY, tools=tuple(tools))


def _asking(mode: str) -> Run:
    method, params = QUESTIONS[mode]

    async def ask(call: Call) -> JsonObject:
        if not call.caller.can_be_asked(mode):
            return text_result(f"Nobody can be asked by {mode}.", error=True)
        answer = await call.caller.ask(method, params)
        return text_result(f"The answer is: {answer.get('action')}.", {"answer": answer})

    return ask
