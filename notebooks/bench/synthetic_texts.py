"""Passages and vectors to measure with: as many words, and as few frequent ones, as real text has."""

import numpy as np
import numpy.typing as npt
import polars as pl

PASSAGE_WORDS = 100
QUESTION_WORDS = 8
NUM_WORDS = 500_000
# Zipf's law for the ranks of words, a little steeper, as in English
EXPONENT = 1.1
AT_A_TIME = 10_000


def words_of(ranks: npt.NDArray[np.integer]) -> list[str]:
    """A made word for each rank: the rank in letters (base 26), at least three of them."""
    letters = np.frombuffer(b"etaoinshrdlucmfwypvbgkjqxz", np.uint8)
    left, columns = ranks.astype(np.int64), []
    for _ in range(5):
        left, digit = np.divmod(left, 26)
        columns.append(letters[digit])
    return [row.tobytes().decode() for row in np.stack(columns, axis=1)]


def passages(count: int, seed: int) -> pl.DataFrame:
    """CORPUS of so many passages of 50 to 100 words."""
    generator = np.random.default_rng(seed)
    vocabulary = np.array(words_of(np.arange(NUM_WORDS)), dtype=object)
    texts: list[str] = []
    for start in range(0, count, AT_A_TIME):
        size = min(AT_A_TIME, count - start)
        drawn = vocabulary[_ranks(generator, (size, PASSAGE_WORDS))]
        # of different lengths, as passages are: else nearly all scores of a question are equal
        lengths = generator.integers(PASSAGE_WORDS // 2, PASSAGE_WORDS + 1, size)
        texts += [" ".join(row[:length]) for row, length in zip(drawn, lengths, strict=True)]
    ids = [f"p{number:09}" for number in range(count)]
    return pl.DataFrame({"doc_id": ids, "page_id": ids, "title": [""] * count, "text": texts})


def questions(count: int, seed: int) -> pl.DataFrame:
    """QUERIES (``query_id`` and ``question``) of 8 words, drawn as those of passages but for the most frequent."""
    generator = np.random.default_rng([seed, 1])
    vocabulary = np.array(words_of(np.arange(NUM_WORDS)), dtype=object)
    drawn = vocabulary[100 + _ranks(generator, (count, QUESTION_WORDS)) % (NUM_WORDS - 100)]
    return pl.DataFrame(
        {"query_id": [f"q{number}" for number in range(count)], "question": [" ".join(row) for row in drawn]}
    )


def _ranks(generator: np.random.Generator, shape: tuple[int, int]) -> npt.NDArray[np.integer]:
    return (generator.zipf(EXPONENT, shape) - 1) % NUM_WORDS


def unit_vectors(count: int, width: int, seed: int) -> npt.NDArray[np.float32]:
    """Random vectors of length 1, evenly in all directions."""
    vectors = np.random.default_rng(seed).standard_normal((count, width), dtype=np.float32)
    vectors /= np.linalg.norm(vectors, axis=1, keepdims=True)
    return vectors
