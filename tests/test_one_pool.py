"""One model, whatever is asked of it: it is loaded once in each actor, and passages are encoded once for all kinds."""

import pathlib
import uuid

import models
import pytest
from tiny import Tiny, compare, kilt_line, table

from erag_ray.config.reader import JudgeConfig, ReaderConfig
from erag_ray.models.causal.model import CausalModel
from erag_ray.prompts.kinds.answer import ANSWER
from erag_ray.prompts.kinds.likelihood import GOLD_LIKELIHOOD
from erag_ray.prompts.kinds.relevance import RELEVANCE
from erag_ray.prompts.request import Passage, Request
from erag_ray.store.schemas import LABELS

QUESTIONS = {
    "nq": ("who built the marn bridge", "Ada Brunner"),
    "triviaqa": ("which river flows through tessel", "Orla"),
    "hotpotqa": ("when was the skerry lighthouse lit", "1874"),
    "fever": ("the graz choir was led by ida holm", "SUPPORTS"),
    "wow": ("what metal covers the dome", "it is copper"),
}


class Counted(CausalModel):
    """Leaves a file in a folder whenever it is loaded."""

    def load(self) -> None:
        pathlib.Path(self.config.options["marks"], uuid.uuid4().hex).touch()
        super().load()


ANNOTATORS = ["erag", "gain", "gold_likelihood", "llm_relevance"]


def five(tiny: Tiny, **config: object) -> Tiny:
    """The tiny passages with a question of each of five datasets."""
    for number, (name, (question, answer)) in enumerate(QUESTIONS.items(), 1):
        line = kilt_line(f"q{number}", question, answer, f"p{number}")
        (tiny.folder / f"{name}-dev-kilt.jsonl").write_text(line)
    files = [str(tiny.folder / f"{name}-dev-kilt.jsonl") for name in QUESTIONS]
    return tiny.with_config(queries=files, dataset=None, annotators=ANNOTATORS, **config)


@pytest.mark.cluster
@pytest.mark.timeout(300)
def test_a_model_is_loaded_once_in_its_actor_for_five_datasets_and_three_kinds(
    tiny: Tiny, local_ray: None, tmp_path: pathlib.Path
) -> None:
    folder = models.causal_folder(tmp_path / "causal", seed=6, max_position_embeddings=2048)
    marks = tmp_path / "loads"
    marks.mkdir()
    own = {"kind": f"{__name__}:Counted", "model": folder, "options": {"marks": str(marks)}}
    changed = five(
        tiny,
        reader=ReaderConfig(**own, max_new_tokens=6),  # type: ignore[arg-type]
        judge=JudgeConfig(**own),  # type: ignore[arg-type]
    )
    plan = compare(changed)
    assert {use.kind for use in plan.uses.values()} == {ANSWER, GOLD_LIKELIHOOD, RELEVANCE}
    assert len(plan.plans) == 1
    assert len({dataset for _, dataset in plan.uses}) == 5
    assert len(list(marks.iterdir())) == 1
    labels = table(changed, LABELS)
    assert set(labels["annotator"]) == set(ANNOTATORS)
    assert labels.filter(annotator="llm_relevance")["label"].null_count() == 0


def test_fid_encodes_a_passage_once_for_its_answer_and_its_likelihood(t5: str) -> None:
    model = models.loaded("fid", t5)
    forms = [models.form_for("fid"), models.form_for("fid", GOLD_LIKELIHOOD)]
    passages = [Passage("Marn", "A bridge."), Passage("Orla", "A river.")]
    requests = [
        Request(form, "who built it", given, (" Ada",) if form.method == "loglikelihood" else ())
        for form in forms
        for given in [(passages[0],), (passages[1],), tuple(passages)]
    ]
    encoded: list[tuple[int, ...]] = []
    encode = model.engine.encode
    model.engine.encode = lambda batch: encoded.extend(map(tuple, batch.ids.tolist())) or encode(batch)
    found = dict(model.run(requests))
    assert sorted(found) == list(range(6))
    assert len(encoded) == len(set(encoded)) == 2
