"""The questions that a model puts to the user, with answers to choose from.

Source: docs/tools.md, "Questions to the user".
"""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache

from pydantic import Field

from app_server.models.catalogue.models import ModelFeatures
from app_server.turns.context import ThreadContext
from app_server.turns.slot import RunningTurn
from app_server.turns.tools import (
    BadCall,
    RequestedCall,
    ToolArguments,
    TurnTool,
    function_declaration,
    object_of,
    text,
)
from protocol.model import Json, JsonObject
from protocol.turns.approvals import (
    ToolRequestUserInputOption,
    ToolRequestUserInputParams,
    ToolRequestUserInputQuestion,
    ToolRequestUserInputResponse,
)

NAME = "request_user_input"
METHOD = "item/tool/requestUserInput"
MAX_QUESTIONS = 3
MAX_OPTIONS = 10
MAX_TEXT_CHARS = 4_000
"""Of a question, a header, a label or a description."""

UNAVAILABLE = "request_user_input is unavailable in Default mode"


class _Option(ToolArguments):
    label: str = Field(max_length=MAX_TEXT_CHARS)
    description: str = Field(max_length=MAX_TEXT_CHARS)


class _Question(ToolArguments):
    id: str = Field(max_length=MAX_TEXT_CHARS)
    header: str = Field(max_length=MAX_TEXT_CHARS)
    question: str = Field(max_length=MAX_TEXT_CHARS)
    options: list[_Option] = Field(min_length=1, max_length=MAX_OPTIONS)


class _Questions(ToolArguments):
    questions: list[_Question] = Field(min_length=1, max_length=MAX_QUESTIONS)


@dataclass(frozen=True, slots=True)
class RequestUserInput(TurnTool):
    """Asks the clients of a thread, in plan mode or where the settings allow it in every mode."""

    functions = (NAME,)

    context: ThreadContext
    turn: RunningTurn

    def declarations(self, model: ModelFeatures) -> Sequence[JsonObject]:
        """Declare the function, in every mode: what is declared should not change in a thread."""
        return [_declaration(in_every_mode=self.context.settings.asks_in_every_mode)]

    # Calls do not overlap: what runs beside it might make an answer worthless.

    async def run(self, call: RequestedCall) -> Json:
        """Ask, and wait without limit; returns the answers as JSON, none if a client refused.

        Raises:
            BadCall: the questions make no sense, or this is not the mode for them.
        """
        turn = self.turn
        if not (self.context.settings.asks_in_every_mode or turn.settings.mode == "plan"):
            raise BadCall(UNAVAILABLE)
        questions = call.read(_Questions).questions
        if len({question.id for question in questions}) < len(questions):
            raise BadCall("failed to parse function arguments: questions: two have the same id")
        params = ToolRequestUserInputParams(
            thread_id=self.context.log.id,
            turn_id=turn.id,
            item_id=call.call_id,
            questions=[_shown(question) for question in questions],
            is_blocking=True,
        )
        with self.context.status.waiting_on("waitingOnUserInput"):
            answer, _ = await self.context.clients.ask(METHOD, params)
        if not isinstance(answer, ToolRequestUserInputResponse):
            answer = ToolRequestUserInputResponse(answers={})
        return answer.model_dump_json()


def _shown(question: _Question) -> ToolRequestUserInputQuestion:
    return ToolRequestUserInputQuestion(
        id=question.id,
        header=question.header,
        question=question.question,
        is_other=True,
        options=[
            ToolRequestUserInputOption(label=option.label, description=option.description)
            for option in question.options
        ],
    )


@cache
def _declaration(*, in_every_mode: bool) -> JsonObject:
    where = "in every mode" if in_every_mode else "in plan mode alone"
    option = {
        "label": text("The answer, in a few words."),
        "description": text("What follows from it, in one sentence."),
    }
    question = {
        "id": text("Names the answer in the result: a word in snake_case."),
        "header": text("A title of one or two words."),
        "question": text("The question, in one sentence."),
        "options": {
            "type": "array",
            "description": (
                "Two or three answers that exclude each other, the one you recommend first. Do not "
                "add one for other answers: clients do."
            ),
            "items": object_of(option),
        },
    }
    questions = {
        "type": "array",
        "description": f"One question is best; at most {MAX_QUESTIONS}.",
        "items": object_of(question),
    }
    return function_declaration(
        NAME,
        f"Ask the user one to {MAX_QUESTIONS} short questions and wait for the answers. It works "
        f"{where}. An empty result means that the user did not answer.",
        {"questions": questions},
    )
