"""Scores, tests and UDCG on real outputs of other people's systems, against published numbers and people's verdicts.

The folder ``real_outputs`` of the public data has the outputs and, in ``expected.json``, numbers that were computed by
other code. The worked lists of UDCG are written out here and always run.
"""

import gzip
import hashlib
import json
import pathlib
import statistics
from collections import Counter
from collections.abc import Sequence
from typing import Any

import numpy as np
import pytest

from erag_ray.annotators.relevance import IRRELEVANT_WEIGHT
from erag_ray.extras.verdicts.agreement import kappa, pair_counts
from erag_ray.measures.agreement import Family, paired_differences
from erag_ray.measures.lists import compute_all, list_ideal
from erag_ray.measures.scores import abstained, score_named, score_outputs

# our `match` is the folder's match_unicode: NFKC, case folding, and punctuation beyond ASCII
EXPECTED = {"exact_match": "exact_match", "match": "match_unicode", "token_f1": "token_f1"}
CLOSE = pytest.approx


def rows(folder: pathlib.Path, name: str) -> list[dict[str, Any]]:
    with gzip.open(folder / f"{name}.jsonl.gz", "rt", encoding="utf-8") as lines:
        return [json.loads(line) for line in lines]


def expected_of(folder: pathlib.Path) -> Any:
    return json.loads((folder / "expected.json").read_text())


def values_of(name: str, outputs: Sequence[str], answers: Sequence[Sequence[str]]) -> list[float]:
    return [float(value or 0.0) for value in score_outputs(outputs, answers, score_named(name))]


# --- short answers and sentences, with people's verdicts ---


def test_means_on_natural_questions_are_those_published(data_folder: pathlib.Path) -> None:
    # published with repaired golds for evigen alone, and with an empty output equal to a gold of signs alone
    folder = data_folder / "real_outputs" / "openqa_eval"
    answers, outputs, expected = (
        rows(folder, "questions"),
        rows(folder, "outputs"),
        expected_of(folder)["means"],
    )
    golds = {row["id"]: row["answers"] for row in answers}
    repaired = {
        **golds,
        **{row["id"]: row["answers_repaired"] for row in answers if row.get("answers_repaired")},
    }
    for system, means in expected.items():
        texts = [(row["query_id"], row["output"]) for row in outputs if row["system"] == system]
        ids, output = zip(*texts, strict=True)
        assert len(ids) == 3610
        for name, column in EXPECTED.items():
            values = values_of(name, output, [golds[query_id] for query_id in ids])
            assert statistics.fmean(values) == CLOSE(means[column], abs=1e-12), (system, name)
        values = values_of("exact_match", output, [repaired[query_id] for query_id in ids])
        assert statistics.fmean(values) == CLOSE(means["exact_match_repaired"], abs=1e-12)


def test_comparisons_of_six_fid_systems_settle_8_of_15(data_folder: pathlib.Path) -> None:
    folder = data_folder / "real_outputs" / "openqa_eval"
    golds = {row["id"]: row["answers"] for row in rows(folder, "questions")}
    pairs = expected_of(folder)["fid_pairs_exact_match"]
    by_system: dict[str, list[float]] = {}
    for system in {name for pair in pairs for name in (pair["a"], pair["b"])}:
        texts = {row["query_id"]: row["output"] for row in rows(folder, "outputs") if row["system"] == system}
        by_system[system] = values_of(
            "exact_match", [texts[query_id] for query_id in golds], list(golds.values())
        )
    columns = [paired_differences(np.array(by_system[p["a"]]), np.array(by_system[p["b"]])) for p in pairs]
    assert [column.mean() for column in columns] == CLOSE([pair["difference"] for pair in pairs], abs=1e-12)
    # copies of the systems bring the same tests again, up to the sign
    for echoes in ([], [sign * column for column in columns for sign in (-1, 1) * 18]):
        family = Family()
        for column in [*columns, *echoes, np.zeros(len(golds))]:
            family.add(column)
        tests = family.adjusted(0.05)[: len(pairs)]
        assert [one.test.p_value for one in tests] == CLOSE([pair["p"] for pair in pairs], rel=1e-9)
        assert [one.p_adjusted for one in tests] == CLOSE([pair["p_holm"] for pair in pairs], rel=1e-9)
        assert sum(one.p_adjusted <= 0.05 for one in tests) == 8


def test_agreement_with_people_on_sentences(data_folder: pathlib.Path) -> None:
    folder = data_folder / "real_outputs" / "evouna_nq"
    questions = {row["id"]: row for row in rows(folder, "questions")}
    outputs = {(row["query_id"], row["system"]): row["output"] for row in rows(folder, "outputs")}
    orders: dict[str, dict[str, float]] = {"people": {}, "match": {}}
    for system, expected in expected_of(folder)["systems"].items():
        verdicts = {
            row["query_id"]: row["accepted"]
            for row in rows(folder, "human")
            if row["system"] == system and not questions[row["query_id"]]["improper"]
        }
        assert len(verdicts) == expected["items"]
        # a missing output scores 0
        texts = [outputs.get((query_id, system), "") for query_id in verdicts]
        golds = [questions[query_id]["answers"] for query_id in verdicts]
        for name, column in EXPECTED.items():
            values = values_of(name, texts, golds)
            assert statistics.fmean(values) == CLOSE(expected[column], abs=1e-12), (system, name)
            at_least = "_at_least_.5" if name == "token_f1" else ""
            pairs = np.array([[value >= 0.5 for value in values], [*verdicts.values()]]).T
            assert kappa(pair_counts(pairs).sum(axis=0)) == CLOSE(
                expected[f"kappa_{column}{at_least}"], abs=1e-12
            ), (system, name)
        orders["people"][system] = statistics.fmean(verdicts.values())
        orders["match"][system] = statistics.fmean(values_of("match", texts, golds))
    ranked = {by: sorted(means, key=lambda name: -means[name]) for by, means in orders.items()}
    assert ranked["people"] == ["bing", "gpt4", "chatgpt", "fid", "gpt35"]
    assert ranked["match"] == ["gpt4", "fid", "chatgpt", "bing", "gpt35"]


# --- abstention ---

READ = pathlib.Path(__file__).parents[1] / "golden" / "abstaining_outputs.txt"
"""SHA-256 digests (8 characters) of the outputs of NoMIRACL that abstain, and of those that are unclear.

1,656 of 6,072 distinct outputs were read; the others begin with "I don't know" or "Yes, answer is present".
"""


def digest(text: str) -> str:
    return hashlib.sha256(text.strip().encode()).hexdigest()[:8]


@pytest.mark.parametrize(
    ("language", "abstaining", "missed", "wrong"), [("en", 528, 7, 1), ("ko", 571, 5, 0), ("zh", 508, 5, 0)]
)
def test_abstained_on_the_held_out_half(
    data_folder: pathlib.Path, language: str, abstaining: int, missed: int, wrong: int
) -> None:
    # most of the missed ones are a bare "No"
    folder = data_folder / "real_outputs" / "nomiracl_en_ko"
    abstains, unclear = (set(part.split()) for part in READ.read_text()[len("abstains") :].split("unclear"))
    questions = {row["id"] for row in rows(folder, "questions") if row["language"] == language}
    counts: Counter[tuple[bool, bool]] = Counter()
    for row in rows(folder, "outputs"):
        if (
            row["query_id"] in questions
            # the half on which the patterns were not chosen
            and hashlib.sha256(row["query_id"].encode()).digest()[0] % 2 == 1
            and digest(row["output"]) not in unclear
        ):
            counts[digest(row["output"]) in abstains, bool(abstained(row["output"]))] += 1
    assert counts[True, True] + counts[True, False] == abstaining
    assert counts[True, False] <= missed
    assert counts[False, True] <= wrong


def test_abstained_of_chat_readers_and_of_outputs_that_repeat_the_instruction(
    data_folder: pathlib.Path,
) -> None:
    folder = data_folder / "real_outputs" / "nomiracl_en_ko"
    assert [row for row in rows(folder, "degenerate") if abstained(row["output"])] == []
    questions = {row["id"]: (row["language"], row["subset"]) for row in rows(folder, "questions")}
    values: dict[tuple[str, str, str], list[float]] = {}
    for row in rows(folder, "outputs"):
        values.setdefault((row["system"], *questions[row["query_id"]]), []).append(abstained(row["output"]))
    for (system, language, subset), column in values.items():
        shares = expected_of(folder)["shares"][system][language][subset]
        assert len(column) == shares["outputs"]
        # at least those that write the phrase, except Llama-2's 'Please answer "Yes" or "I don\'t know"'
        assert statistics.fmean(column) >= shares["unknown"] - 1e-9 or system == "llama2_13b"


# --- UDCG ---

UDCG_LISTS = [
    # number of relevant documents, which come first; probabilities of abstaining in rank order
    (2, (2.086162567138672e-06, 1.341104507446289e-05, 0.1318359375, 0.1812744140625, 0.02081298828125)),
    (
        2,
        (
            *(5.960464477539063e-08, 6.616115570068359e-06, 0.00018215179443359375),
            *(0.006114959716796875, 0.0093536376953125),
        ),
    ),
    (
        1,
        (
            *(3.0100345611572266e-05, 0.00010311603546142578, 0.007602691650390625),
            *(0.01299285888671875, 0.00013053417205810547),
        ),
    ),
]
UDCG_VALUES = [0.5553808928170055, 0.5501411475208001, 0.4837510250741193]
"""GiovanniTRA/UDCG (MIT), data/dataset_with_udcg.json: of meta-llama/Llama-3.2-3B-Instruct."""


@pytest.mark.parametrize(
    ("weight", "tolerance"),
    # published with -0.333, where the method and this package have -1/3: off by up to 7e-5
    [(-0.333, 1e-15), (IRRELEVANT_WEIGHT, 7e-5)],
)
def test_udcg_of_the_worked_lists(weight: float, tolerance: float) -> None:
    labels = [
        [(1 - p) * (1.0 if rank < num_relevant else weight) for rank, p in enumerate(abstains)]
        for num_relevant, abstains in UDCG_LISTS
    ]
    values = compute_all(["UDCG"], list_ideal(np.array(labels)), [5])["UDCG", 5]
    assert values == CLOSE(UDCG_VALUES, abs=tolerance)
    if weight == IRRELEVANT_WEIGHT:
        assert values == CLOSE([0.5553370029055983, 0.5500919080793032, 0.48368477588790226], abs=1e-15)
