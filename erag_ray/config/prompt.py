"""A prompt of the user's own, in a config or in a YAML file of its own."""

import os
import string
from collections.abc import Collection, Iterator
from dataclasses import field

from erag_ray.config.command_line.yaml_files import Locations, location_of, read_yaml
from erag_ray.config.keys.messages import KeysError
from erag_ray.config.keys.values import Flag, Keys, Text, build, require
from erag_ray.support.errors import InputError
from erag_ray.support.uris import searched_in

FILE_ENDINGS = (".yaml", ".yml")
BUILT_IN = ("chat", "plain", "question_first", "t5")
PROMPT_CHOICES = ", ".join((*BUILT_IN, "a YAML file (.yaml, .yml)")) + ", or keys"
KEY = "reader.prompt"
FIELDS = ("question", "passages")
ADVICE_ON_BRACES = "braces that are text are doubled, {{ and }}"
PASSAGE_FIELDS = ("rank", "title", "text", "passage")


class ExampleConfig(Keys):
    """A worked example of a prompt."""

    question: Text
    """The question of the example."""

    answer: Text
    """What the model is to write."""

    passages: list[dict[str, Text]] = field(default_factory=list)
    """Its passages, each with the keys title and text; left out where the request itself has none."""


class PromptConfig(Keys):
    """How a question and its passages become the text that the model gets."""

    template: Text
    """What is asked, with {question} and {passages}. Other braces are doubled: {{ and }}."""

    passage: Text = "[{rank}] {title}\n{text}"
    """One passage, with {rank} (from 1), {title} and {text}; {passage} is "(title) text", or only the text if there
    is no title."""

    separator: Text = "\n\n"
    """Text between two passages."""

    without_passages: Text | None = None
    """The template of a question without passages, with {question} (null: the template without them)."""

    system: Text = ""
    """The system message of a chat; in a plain prompt, the text before everything."""

    examples: list[ExampleConfig] = field(default_factory=list)
    """Worked examples before the question: in a chat turns of user and assistant."""

    chat: Flag = True
    """Send it through the model's chat template; false: as plain text, which the model continues. The prompt of a T5
    is plain text always."""

    def _check(self) -> None:
        check_fields("template", self.template, FIELDS, needs=FIELDS)
        check_fields("passage", self.passage, PASSAGE_FIELDS, needs=())
        shown = {name for _, name in fields_of(self.passage)} - {"rank", ""}
        require(bool(shown), "passage must contain {text}, {title} or {passage}")
        if self.without_passages is not None:
            check_fields("without_passages", self.without_passages, ("question",), needs=("question",))
        for passage in (passage for example in self.examples for passage in example.passages):
            given = ", ".join(passage) or "none"
            text = f"examples: a passage must have the keys title and text, got {given}"
            require({"text"} <= set(passage) <= {"title", "text"}, text)


def check_fields(key: str, template: str, known: Collection[str], needs: Collection[str]) -> None:
    """Raise ValueError for a brace that is no field of ``known``, and if a field of ``needs`` is missing."""
    try:
        fields_in_template = {name for _, name in fields_of(template)} - {""}
    except ValueError as error:
        raise ValueError(f"{key} must have braces in pairs: {error}; {ADVICE_ON_BRACES}") from error
    fields = ", ".join(f"{{{one}}}" for one in known)
    for name in sorted(fields_in_template):
        require(name in known, f"{key} must have no field but {fields}, got {{{name}}}; {ADVICE_ON_BRACES}")
    for name in needs:
        require(name in fields_in_template, f"{key} must contain {{{name}}}")


def fields_of(template: str) -> Iterator[tuple[str, str]]:
    """The text before each field of a template, and the field's name; "" after the last text.

    Raises:
        ValueError: a brace is not part of a pair.
    """
    for text, name, form, conversion in string.Formatter().parse(template):
        if name is None:
            yield text, ""
        else:
            yield text, name + (f"!{conversion}" if conversion else "") + (f":{form}" if form else "") or " "


def read_prompt(path: str) -> PromptConfig:
    """The prompt in a YAML file.

    Raises:
        ValueError: there is no such file, or it contains something else; the message names file and line.
    """
    file = os.path.expanduser(os.path.expandvars(path))
    locations: Locations = {}
    try:
        return build(PromptConfig, read_yaml(file, locations, KEY), KEY)
    except KeysError as error:
        texts = [f"{location_of(key, locations) or f'{file}: '}{text}" for key, text in error.keyed]
        raise InputError(texts) from error
    except OSError as error:
        text = f"{KEY} must name a readable file: {path}: {error.strerror or error}{searched_in(file)}"
        raise ValueError(text) from error
