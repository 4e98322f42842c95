"""Prompts of the user's own: what they become, what they change, and what is said of those that are wrong."""

import dataclasses
import pathlib
import re

import models
import pytest
from hypothesis import given
from hypothesis import strategies as st
from tiny import Tiny, compare, table, work_of

from erag_ray.config.prompt import ExampleConfig, PromptConfig, read_prompt
from erag_ray.config.reader import ReaderConfig
from erag_ray.inference.planning.uses import check_reader, reader_id
from erag_ray.inputs.stage import prepare
from erag_ray.models import make_model
from erag_ray.prompts.prompt import as_messages, as_text, custom_prompt, pieces
from erag_ray.prompts.request import Passage, Request
from erag_ray.store.schemas import LABELS, UTILITY
from erag_ray.support.errors import InputError

PASSAGES = (Passage("Marn", "A bridge."), Passage("", "A river."))
FILE = """\
system: Answer in a word.
template: |-
  {passages}

  Q: {question}
  A: {{one word}}
passage: "[{rank}] {title}\\n{text}"
without_passages: "Q: {question}"
examples:
  - {question: "Who?", answer: Orla, passages: [{title: T, text: Orla did.}]}
chat: false
"""


@pytest.fixture
def file(tmp_path: pathlib.Path) -> pathlib.Path:
    path = tmp_path / "mine.yaml"
    path.write_text(FILE)
    return path


def test_a_file_becomes_system_examples_passages_and_question(file: pathlib.Path) -> None:
    prompt = custom_prompt(read_prompt(str(file)))
    assert as_text(prompt, "Where?", PASSAGES) == (
        "Answer in a word.\n\n"
        "[1] T\nOrla did.\n\nQ: Who?\nA: {one word} Orla\n\n"
        "[1] Marn\nA bridge.\n\n[2] A river.\n\nQ: Where?\nA: {one word}"
    )
    assert as_text(prompt, "Where?", ()) == "Answer in a word.\n\nQ: Who? Orla\n\nQ: Where?"


def test_a_chat_has_examples_as_turns(file: pathlib.Path) -> None:
    prompt = dataclasses.replace(custom_prompt(read_prompt(str(file))), is_chat=True)
    text = as_text(prompt, "Where?", PASSAGES[:1])
    assert text == "[1] Marn\nA bridge.\n\nQ: Where?\nA: {one word}"
    messages = as_messages(prompt, text, has_passages=True)
    assert [message["role"] for message in messages] == ["system", "user", "assistant", "user"]
    assert messages[1]["content"] == "[1] T\nOrla did.\n\nQ: Who?\nA: {one word}"
    assert messages[2]["content"] == "Orla"


def test_without_a_template_for_it_a_question_without_passages_has_the_rest_of_the_template() -> None:
    prompt = custom_prompt(PromptConfig(template="{passages}\n\nQ: {question}"))
    assert as_text(prompt, "Where?", ()) == "Q: Where?"


UNTITLED = {
    # without a label
    "({title}) {text}": "{text}",
    "{title}\n{text}": "{text}",
    "{title} {text}": " {text}",
    "[{rank}] {title}\n{text}": "[{rank}] {text}",
    "Passage: {title}\n{text}": "Passage: {text}",
    "Passage {rank}: {passage}": "Passage {rank}: {passage}",
    # a label of the title, brackets, quotes and signs go with it
    "Title: {title}\nText: {text}": "Text: {text}",
    "Title: {title}\n{text}": "{text}",
    "Document title: {title}. {text}": "{text}",
    " title: {title} context: {text}": " context: {text}",
    "Source: {title}\nContent: {text}": "Content: {text}",
    "Passage {rank}\nTitle: {title}\nText: {text}": "Passage {rank}\nText: {text}",
    "Document [{rank}](Title: {title}) {text}": "Document [{rank}] {text}",
    "Passage {rank} (Title: {title}): {text}": "Passage {rank}: {text}",
    "[{rank}] {title}: {text}": "[{rank}] {text}",
    "{title} - {text}": "{text}",
    '"{title}": {text}': "{text}",
    "**{title}**\n{text}": "{text}",
    "# {title}\n{text}": "{text}",
    "[{title}] {text}": "{text}",
    "<title>{title}</title>\n<text>{text}</text>": "<text>{text}</text>",
    '{{"title": "{title}", "text": "{text}"}}': '{{"text": "{text}"}}',
    "{text} (Source: {title})": "{text}",
    "{text}\nTitle: {title}": "{text}",
}


@pytest.mark.parametrize("passage", UNTITLED)
def test_a_passage_without_a_title_has_no_label_of_one(passage: str) -> None:
    prompt = custom_prompt(PromptConfig(template="{passages} {question}", passage=passage))
    assert (prompt.passage, prompt.untitled) == (passage, UNTITLED[passage])


BRACES = st.text("{}ab {question}", max_size=12)


@given(BRACES, BRACES, BRACES)
def test_what_users_and_documents_wrote_is_never_taken_for_a_field(
    question: str, title: str, text: str
) -> None:
    prompt = custom_prompt(PromptConfig(template="P {passages} Q {question} E", passage="<{title}|{text}>"))
    found = pieces(prompt, question, [Passage(title or "t", text)])
    whole = "".join(piece.text for piece in found)
    assert whole == f"P <{title or 't'}|{text}> Q {question} E"
    assert all(piece.text in ("P <", "|", "> Q", " E", "E") for piece in found if piece.kind == "template")


# --- what a prompt changes ---


def test_another_prompt_is_another_reader_and_another_answer_and_nothing_else(
    tiny: Tiny, reads_here: list[int], tmp_path: pathlib.Path, file: pathlib.Path
) -> None:
    folder = models.causal_folder(tmp_path / "causal", seed=6)
    before = tiny.with_config(reader=ReaderConfig(kind="causal", model=folder, max_new_tokens=8))
    first = compare(before)
    reader = ReaderConfig(kind="causal", model=folder, max_new_tokens=8, prompt=str(file))
    after = before.with_config(reader=reader)
    second = compare(after)
    dataset = prepare(after.config).datasets["tiny"]
    names = [reader_id(one.config, dataset) for one in (before, after)]
    assert names[0] != names[1]
    # one model, and all of it is asked anew
    assert [part.id for part in first.plans] == [part.id for part in second.plans]
    assert work_of(second) == {"pairs": (18, 0, 18), "no passages": (6, 0, 6), "lists": (13, 0, 13)}
    assert table(after, LABELS, annotator="erag")["reader"].unique().to_list() == [names[1]]
    provenance = [table(one, LABELS, annotator="provenance") for one in (before, after)]
    assert provenance[0].equals(provenance[1])
    assert table(after, UTILITY).height == 35
    # the same prompt in the config is the same reader
    inline = dataclasses.replace(reader, prompt=read_prompt(str(file)))
    assert reader_id(dataclasses.replace(after.config, reader=inline), dataset) == names[1]


def test_a_t5_reads_by_a_plain_prompt_of_the_users(tmp_path: pathlib.Path) -> None:
    folder = models.t5_folder(tmp_path / "t5")
    own = PromptConfig(template="Question: {question} {passages}", passage="Passage: {passage}", chat=False)
    for kind, num_segments in (("fid", 2), ("ipa", 1)):
        model = models.loaded(kind, folder)
        form = models.form_for(kind, prompt=own)
        model.check(form)
        (prompt,) = model.render([Request(form, "Who?", PASSAGES)])
        assert len(prompt.segments) == num_segments
        texts = [model.tokenizer.decode(segment, skip_special_tokens=True) for segment in prompt.segments]
        assert texts[0].startswith("Question: Who? Passage: (Marn) A bridge.")
    chat = models.form_for("fid", prompt=dataclasses.replace(own, chat=True))
    with pytest.raises(InputError, match="has no chat template; use a plain prompt"):
        make_model(ReaderConfig(kind="fid", model=folder)).check(chat)


# --- what is wrong with one ---

TEMPLATE, PASSAGE, NONE = (
    f": reader.prompt.{key} must " for key in ("template", "passage", "without_passages")
)
GOOD = 'template: "{question} {passages}"'
WRONG = {
    'template: "Q: {passages}"': TEMPLATE + "contain {question}",
    'template: "Q: {question}"': TEMPLATE + "contain {passages}",
    'template: "{questoin} {passages}"': TEMPLATE
    + "have no field but {question}, {passages}, got {questoin}; "
    "braces that are text are doubled, {{ and }}",
    'template: "{question} {passages} {\\"a\\": 1}"': ', got {"a": 1}; braces that are text are doubled, {{ and }}',
    'template: "{question} {passages} {}"': ", got { }; braces that are text are doubled",
    'template: "{question} {passages} }"': TEMPLATE + "have braces in pairs: ",
    f'{GOOD}\npassage: "{{rank}}"': PASSAGE + "contain {text}, {title} or {passage}",
    f'{GOOD}\npassage: "{{question}}"': PASSAGE + "have no field but {rank}, {title}",
    f'{GOOD}\nwithout_passages: "none"': NONE + "contain {question}",
    "passage: '{text}'": ": reader.prompt must have the key template",
    'templte: "{question} {passages}"': ":1: unknown key reader.prompt.templte. Did you mean reader.prompt.template?",
    f"{GOOD}\nchat: fasle": ":2: reader.prompt.chat: expected true or false, got fasle. Did you mean false?",
    f"{GOOD}\nexamples:\n  - {{question: a}}": ":3: reader.prompt.examples[0] must have the key answer",
    "- a list": ":1: holds no keys",
    "a: [": "not YAML",
}


@pytest.mark.parametrize("text", WRONG)
def test_a_wrong_prompt_is_one_message_that_names_its_file(text: str, tmp_path: pathlib.Path) -> None:
    path = tmp_path / "wrong.yaml"
    path.write_text(text)
    with pytest.raises(ValueError, match=re.escape(WRONG[text])) as caught:
        ReaderConfig(prompt=str(path))
    assert str(path) in str(caught.value)


def test_a_prompt_with_more_words_than_the_context_is_found_before_the_model_is_loaded(
    tiny: Tiny, tmp_path: pathlib.Path
) -> None:
    folder = models.causal_folder(tmp_path / "causal")
    own = PromptConfig(
        template="{passages}{question}",
        chat=False,
        examples=[ExampleConfig(question="a", answer="b " * 2000)],
    )
    reader = ReaderConfig(kind="causal", model=folder, prompt=own)
    (problem,) = check_reader(dataclasses.replace(tiny.config, reader=reader), prepare(tiny.config).datasets)
    assert problem.startswith(
        "reader.max_prompt_tokens: a prompt may have 974 tokens and its fixed words take "
    )
