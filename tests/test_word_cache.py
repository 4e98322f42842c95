"""Token ids by cached words equal those of the tokenizer on whole texts."""

import io
import pathlib
from collections.abc import Sequence
from typing import Any

import models
import pytest
import sentencepiece
import tokenizers
import transformers
from hypothesis import given, settings
from hypothesis import strategies as st
from sentencepiece import sentencepiece_model_pb2 as proto

from erag_ray.models.local import word_cache
from erag_ray.models.local.tokens import PieceTokenizer, plain_encoder
from erag_ray.models.local.word_cache import WordCache, splits_at_blanks

pre_tokenizers = tokenizers.pre_tokenizers


def with_charsmap() -> Any:
    """T5's real pipeline: SentencePiece's compiled normaliser, then whitespace and Metaspace."""
    trained = io.BytesIO()
    sentencepiece.SentencePieceTrainer.train(
        sentence_iterator=iter(models.TEXT.splitlines() * 20),
        model_writer=trained,
        vocab_size=120,
        normalization_rule_name="nmt_nfkc",
        minloglevel=4,
    )
    charsmap = proto.ModelProto.FromString(trained.getvalue()).normalizer_spec.precompiled_charsmap
    tokenizer = models.t5_tokenizer()
    tokenizer.backend_tokenizer.normalizer = tokenizers.normalizers.Precompiled(charsmap)
    tokenizer.backend_tokenizer.pre_tokenizer = pre_tokenizers.Sequence(
        [pre_tokenizers.WhitespaceSplit(), pre_tokenizers.Metaspace(prepend_scheme="always")]
    )
    return tokenizer


DEMO_READER = pathlib.Path(__file__).parents[1] / "jobs/demo/reader"
TOKENIZERS = {
    "nfkc": models.t5_tokenizer,
    "charsmap": with_charsmap,
    "demo": lambda: transformers.AutoTokenizer.from_pretrained(str(DEMO_READER)),
}
ODD = [
    "\u2581", "\u00a0", "\u0301", "e\u0301", "\u200d", "\u00ad", "\ufb01", "\u00bd", "\u3000", "\u202f", "\u0d4e",
]  # fmt: skip
# a blank by SentencePiece's rule, and marks that join what stands before them
ODD += ["\ufffd", "a\ufffdb", "\u0e33\u0301", "\uff9e\u0301"]
CONTROL = ["</s>", "<unk>", "<extra_id_0>", "\uff1c/s>", "<pad>x", "</s"]
words = st.one_of(
    st.sampled_from([*models.WORDS, *ODD, *CONTROL]), st.text(max_size=4), st.sampled_from(models.TEXT)
)
texts = st.lists(st.builds("".join, st.lists(st.one_of(words, st.just(" ")), max_size=12)), max_size=5)


@pytest.fixture(scope="module", params=TOKENIZERS)
def tokenizer(request: pytest.FixtureRequest) -> Any:
    return TOKENIZERS[request.param]()


def cache_of(tokenizer: Any) -> WordCache:
    found = PieceTokenizer(tokenizer)._plain
    assert isinstance(found, WordCache)
    return found


@pytest.mark.long
@settings(max_examples=300)
@given(batches=st.lists(texts, min_size=1, max_size=3))
def test_cached_words_give_the_tokens_of_the_whole_text(tokenizer: Any, batches: list[list[str]]) -> None:
    whole, cached = plain_encoder(tokenizer), cache_of(tokenizer)
    for batch in batches:
        assert cached(batch) == whole(batch)


def test_a_word_is_tokenised_once_and_the_cache_stays_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(word_cache, "MAX_WORDS", 4)
    encode, encoded = plain_encoder(models.t5_tokenizer()), list[str]()

    def counted(batch: Sequence[str]) -> Any:
        encoded.extend(batch)
        return encode(batch)

    cached = WordCache(counted, [], [])
    # a prompt's texts begin with a blank
    cached(["the river the", " river the"])
    assert sorted(encoded) == ["river", "the"]
    cached(["lamp oil whale"])
    assert cached(["the river"]) == encode(["the river"])
    assert encoded.count("the") == 2


def test_a_word_without_a_start_in_the_vocabulary_is_tokenised_alone() -> None:
    tokenizer = transformers.T5Tokenizer(
        vocab=[("<pad>", 0.0), ("</s>", 0.0), ("<unk>", 0.0), ("\u2581a", -1.0)]
    )
    texts = ["a b a", "b b", "a"]
    assert cache_of(tokenizer)(texts) == plain_encoder(tokenizer)(texts)


def punctuation_first() -> Any:
    made = models.t5_tokenizer().backend_tokenizer
    made.pre_tokenizer = pre_tokenizers.Sequence(
        [pre_tokenizers.Punctuation(), pre_tokenizers.Metaspace(prepend_scheme="always")]
    )
    return made


def blank_for_a_star() -> Any:
    made = models.t5_tokenizer().backend_tokenizer
    made.normalizer = tokenizers.normalizers.Sequence(
        [tokenizers.normalizers.NFKC(), tokenizers.normalizers.Replace("*", " ")]
    )
    return made


def without_prefix() -> Any:
    made = models.t5_tokenizer().backend_tokenizer
    made.pre_tokenizer = pre_tokenizers.Metaspace(prepend_scheme="first")
    return made


@pytest.mark.parametrize(
    "made",
    [
        without_prefix,
        punctuation_first,
        blank_for_a_star,
        lambda: models.causal_tokenizer().backend_tokenizer,
    ],
    ids=["first word differs", "punctuation first", "blank for a star", "BPE of bytes"],
)
def test_tokenizers_whose_words_depend_on_their_place_are_not_cached(made: Any) -> None:
    assert not splits_at_blanks(made())
