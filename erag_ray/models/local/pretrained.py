"""A model of transformers without its weights: config and tokenizer, prompts in tokens, and settings of decoding."""

from collections.abc import Callable, Collection, Sequence
from typing import Any

import transformers

from erag_ray.config.reader import ReaderConfig
from erag_ray.models.local.model import LocalModel, PromptTokens
from erag_ray.models.local.tokens import PieceTokenizer, Segment
from erag_ray.models.local.weights import load_settings, load_tokenizer
from erag_ray.models.local.word_cache import Ids
from erag_ray.prompts.prompt import T5, Piece
from erag_ray.prompts.request import Form, Passage, Request
from erag_ray.store.model_sources import find_model
from erag_ray.support.errors import InputError

SMALL = "Who?", (Passage("A title", "A text."),)
"""A short question and passage, to check that the prompt's template leaves room."""
MIN_ROOM = 16
PROBE = Form(method="generate", prompt=T5, max_new_tokens=8, max_prompt_tokens=64)
# a change in tokenization must change the fingerprint: these are rendered and hashed
PROBES = (
    Request(PROBE, "Who wrote it?"),
    Request(PROBE, "Who wrote it?\nAnd when?", (Passage("A title", "A text of two lines.\nHere."),)),
    Request(PROBE, "Which?", (Passage("", "First."), Passage("Second", "word " * 5000))),
)


class Pretrained:
    """Files, config and tokenizer of a model of transformers; raises InputError if one is wrong or does not fit."""

    def __init__(self, config: ReaderConfig, *, encoder_decoder: bool) -> None:
        self.config = config
        self.source = find_model(config.model, key="reader.model", revision=config.model_revision)
        self.settings = load_settings(self.source, encoder_decoder=encoder_decoder)
        self.tokenizer = load_tokenizer(self.source)
        self.pieces = PieceTokenizer(self.tokenizer)
        # plain text never has control tokens; those of templates are checked with the prompt
        self.check_ids(sorted(set(self.tokenizer.get_vocab().values()) - self.pieces.control_ids))

    def fingerprint_fields(self, model: LocalModel) -> dict[str, object]:
        """Return files, precision and tokenization of a model, as `Model.fingerprint_fields`."""
        return {
            "backend": "transformers",
            "dtype": self.config.dtype,
            "files": self.source.digests(),
            "probes": [prompt.segments for prompt in model.render(PROBES)],
        }

    def check(self, form: Form, pieces_of: Callable[[Request], Sequence[Piece]], limit: int) -> None:
        """Raise InputError unless prompts of a form can be rendered, and ``limit`` tokens leave room for a passage."""
        if form.prompt.is_chat and (self.settings.is_encoder_decoder or not self.tokenizer.chat_template):
            text = f"{self.config.model} has no chat template; use a plain prompt (plain, or chat: false)"
            raise InputError([f"reader.prompt: {text}"])
        parts = pieces_of(Request(form, *SMALL))
        (ids,) = self.pieces.tokenise([parts])
        self.check_ids([id_ for piece_ids in ids for id_ in piece_ids])
        template = sum(
            len(tokens) for part, tokens in zip(parts, ids, strict=True) if part.kind == "template"
        )
        if limit - template < MIN_ROOM:
            text = f"a prompt may have {limit} tokens and its fixed words take {template}; at least {MIN_ROOM} must be"
            advice = "left for question and passages (the context minus max_new_tokens is a limit too)"
            raise InputError([f"reader.max_prompt_tokens: {text} {advice}"])

    def check_ids(self, ids: Sequence[int]) -> None:
        """Raise InputError unless every token has a row in the model's embedding.

        Without a row a CPU raises IndexError, and a GPU becomes unusable for the process.
        """
        num_rows = self.settings.vocab_size
        outside = next((id_ for id_ in ids if id_ >= num_rows), None)
        if outside is not None:
            token = self.tokenizer.convert_ids_to_tokens(outside)
            text = f"token {token!r} has id {outside}, but the model's embedding has {num_rows} rows"
            advice = "use the tokenizer that belongs to the model"
            raise InputError([f"reader.model: {self.config.model}: {text}; {advice}"])

    def prompt(
        self, request: Request, segments: Sequence[Segment], answers: tuple[Ids, ...], num_shared: int = 0
    ) -> PromptTokens:
        return PromptTokens(
            form=request.form,
            segments=tuple(segment.ids for segment in segments),
            num_shared=num_shared,
            num_truncated_question_tokens=sum(segment.num_question for segment in segments),
            num_truncated_passage_tokens=sum(segment.num_passages for segment in segments),
            answer_ids=answers,
        )

    def first_in_vocabulary(self, ids: Sequence[int | None]) -> int:
        """Return the first of these ids that has a row in the embedding; 0 if none has."""
        return next((id_ for id_ in ids if id_ is not None and id_ < self.settings.vocab_size), 0)

    def decoding(self, form: Form, ends: Collection[int], pad: int) -> Any:
        """Return the settings of greedy decoding, which replace the model's generation config."""
        return transformers.GenerationConfig(
            max_new_tokens=form.max_new_tokens,
            do_sample=False,
            num_beams=1,
            eos_token_id=sorted(ends) or None,
            pad_token_id=pad,
        )
