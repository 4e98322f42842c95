"""Two or more runs -> INTERIM_ANALYSES: documents are labelled batch by batch until the best run is settled."""

import dataclasses
from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np
import polars as pl

from erag_ray.analyses.columns import table_of
from erag_ray.annotators import PAIR
from erag_ray.extras.sequential_test.auxiliary import auxiliary_labels, auxiliary_problems
from erag_ray.extras.sequential_test.config import SettleConfig
from erag_ray.extras.sequential_test.looks import critical_values, largest_divisor, look, rejected
from erag_ray.extras.sequential_test.messages import look_line, summary_lines
from erag_ray.extras.sequential_test.sample import DatasetSample, Pair, differences, draw, run_names
from erag_ray.inference.planning.plan import plan_lists
from erag_ray.inference.stage import readers_session, run_stage
from erag_ray.inputs.evidence import Inputs, evidence_of
from erag_ray.labels.document_labels import label_by_reader
from erag_ray.labels.judgements import check_scores, judge_outputs, scoring_of
from erag_ray.measures.scores import score_sign
from erag_ray.prompts.kinds.answer import ANSWER
from erag_ray.store.schemas import table_schema
from erag_ray.store.tables import TableStore
from erag_ray.support.errors import InputError, JobError
from erag_ray.support.logs import say

# difference of two runs after a number of queries; no interval while too few queries differ; readings are those of the
# dataset, for all pairs of runs; saved are those that reading all documents of the lists would add
INTERIM_ANALYSES = table_schema(
    "interim_analyses",
    "dataset* run_a* run_b* measure* cutoff* look* num_queries num_readings num_documents difference low? "
    "high? settled better? auxiliary? lambda? correlation? num_saved price_saved?",
)
STAGE = "settle"
SETTINGS = (
    "compare", "measure", "rank", "fraction", "num_looks", "equivalence_margin", "boundary", "confidence", "seed",
)  # fmt: skip
Row = dict[str, object]


def settle(config: SettleConfig, inputs: Inputs) -> pl.DataFrame:
    """Read and look until every dataset is settled or all questions were looked at; seals INTERIM_ANALYSES.

    Raises:
        InputError: the runs, the questions or the auxiliary labels are not such that the runs can be compared.
        JobError: a document was not judged, since its reading ended as an error.
    """
    _check(config, inputs)
    samples, tables = draw(config, inputs), TableStore(config.out)
    tables.invalidate(INTERIM_ANALYSES)
    documents = pl.concat(sample.documents.select(*PAIR, "weight") for sample in samples)
    text = f"{documents.height:,} documents in the lists of {len(samples[0].runs)} runs"
    say(f"at most {_num_read(documents):,} readings, of {text}")
    with readers_session(config):
        samples, costs = with_auxiliary(config, inputs, samples, documents)
        rows = _looks(config, inputs, samples, costs)
    table = table_of(rows, INTERIM_ANALYSES)
    settings = {name: getattr(config, name) for name in SETTINGS}
    settings["reader"] = dataclasses.asdict(config.reader)
    if config.auxiliary_annotator:
        settings["auxiliary"] = config.auxiliary_annotator
        if config.auxiliary_reader:
            settings["auxiliary_reader"] = dataclasses.asdict(config.auxiliary_reader)
    tables.write(table, INTERIM_ANALYSES, config=settings)
    return table


def _check(config: SettleConfig, inputs: Inputs) -> None:
    known = inputs.runs["run_id"].unique().sort().to_list()
    names, problems = run_names(config, inputs), []
    if len(names) < 2 or len(names) != len(set(names)) or not set(names) <= set(known):
        text = f"compare: name two or more of the runs {', '.join(known)}, each once; got {', '.join(names)}"
        none = "outputs: there are no lists to sample; erag-ray compare scores all outputs"
        problems.append(text if known else none)
    sizes = inputs.queries["dataset"].value_counts().sort("dataset")
    small = sizes.filter(pl.col("count") < 2)["dataset"].to_list()
    if small or sizes.is_empty():
        of = f" of {', '.join(small)}" if sizes.height > 1 else ""
        problems.append(f"queries{of}: at least 2 are needed")
    if less := sorted(name for name in inputs.queries["score"].unique() if score_sign(name) < 1):
        problems.append(f"score: more of {', '.join(less)} is not better; settle looks for the run with more")
    problems += auxiliary_problems(config, inputs)
    if problems:
        raise InputError(problems)


def with_auxiliary(
    config: SettleConfig, inputs: Inputs, samples: list[DatasetSample], documents: pl.DataFrame
) -> tuple[list[DatasetSample], pl.DataFrame | None]:
    """Return the samples with the column auxiliary, if the job has auxiliary labels, and the COSTS, if any.

    A document without an auxiliary label gets 0.
    """
    if config.auxiliary_annotator is None:
        return samples, None
    labels, costs = auxiliary_labels(config, inputs, documents.select(PAIR))
    joined = []
    for sample in samples:
        name = f"{sample.dataset}: {config.auxiliary_annotator}"
        documents = sample.documents.join(labels, on=PAIR, how="left", maintain_order="left")
        if num_missing := documents["auxiliary"].null_count():
            say(f"{name} has no label of {num_missing:,} of {documents.height:,} documents: 0 for them")
        documents = documents.with_columns(pl.col("auxiliary").fill_null(0.0))
        if documents["auxiliary"].n_unique() == 1:
            value = documents["auxiliary"][0]
            say(f"{name} is {value:g} for every document: it says nothing, and lambda is 0")
        joined.append(dataclasses.replace(sample, documents=documents))
    return joined, costs


@dataclass
class PairState:
    """A pair of runs of one dataset over its looks so far."""

    sample: DatasetSample
    pair: Pair
    divisor: int = 0
    """The largest k for which a look was significant at alpha / k."""
    sign: float = 0.0
    """Of the difference at that look."""
    is_known: bool = False
    """Whether the difference was known to within the margin at a look."""
    better: str | None = None
    """The better run, once Holm's procedure has rejected equality."""
    row: Row = field(default_factory=dict)
    """Of INTERIM_ANALYSES, the last look; settled and better follow once all pairs were looked at."""

    @property
    def is_settled(self) -> bool:
        """Whether one run is better, or the difference is known to within the margin."""
        return self.is_known or self.better is not None

    @property
    def names(self) -> tuple[str, str]:
        return self.sample.runs[self.pair[0]], self.sample.runs[self.pair[1]]

    def look(
        self, config: SettleConfig, labels: pl.DataFrame, number: int, num_pairs: int, price: float | None
    ) -> None:
        """Look for the ``number``-th time; the intervals of all ``num_pairs`` pairs of all datasets hold together.

        ``price`` is that of one reading.
        """
        counts, alpha = self.sample.counts, 1 - config.confidence
        one = differences(config, self.sample, labels, counts[number - 1], self.pair)
        critical = critical_values(config.boundary, counts, alpha / num_pairs)
        differs, clusters = one.from_labels != 0, self.sample.clusters
        seen = look(one.values, counts[:number], critical[:number], differs, clusters)
        self.is_known |= bool(seen.is_settled(config.equivalence_margin)[-1])
        levels = (number, config.boundary, alpha, num_pairs)
        divisor = largest_divisor(one.values, counts, *levels, differs, clusters)
        if divisor > self.divisor:
            self.divisor, self.sign = divisor, float(seen.means[-1])
        documents = self.sample.first(counts[number - 1])
        num_saved = self.sample.documents.height - _num_read(documents)
        low, high = float(seen.lows[-1]), float(seen.highs[-1])
        self.row = {
            "dataset": self.sample.dataset,
            "run_a": self.names[0],
            "run_b": self.names[1],
            "measure": config.measure,
            "cutoff": config.rank,
            "look": number,
            "num_queries": counts[number - 1],
            "num_readings": _num_read(documents),
            "num_documents": documents.height,
            "difference": float(seen.means[-1]),
            "low": low if np.isfinite(low) else None,
            "high": high if np.isfinite(high) else None,
            "auxiliary": config.auxiliary_annotator,
            "lambda": one.slope if config.auxiliary_annotator else None,
            "correlation": one.correlation,
            "num_saved": num_saved,
            "price_saved": None if price is None else price * num_saved,
        }


def _decide(states: Sequence[PairState]) -> None:
    """Name the better run of each pair that Holm's procedure decides."""
    for state, is_rejected in zip(states, rejected([state.divisor for state in states]), strict=True):
        if is_rejected and state.better is None:
            state.better = state.names[0 if state.sign > 0 else 1]


@dataclass
class DatasetState:
    """A dataset over its looks so far."""

    sample: DatasetSample
    pairs: Sequence[PairState]
    num_looks: int = 0

    @property
    def unbeaten(self) -> list[str]:
        """The runs to which no other is better so far."""
        beaten = {name for pair in self.pairs if pair.better for name in pair.names if name != pair.better}
        return [run for run in self.sample.runs if run not in beaten]

    @property
    def is_settled(self) -> bool:
        """Whether there is a best run, or the differences of the best ones are known to within the margin.

        Not where each run is beaten by another, as looks at different questions may say in error.
        """
        best = self.unbeaten
        return bool(best) and all(pair.is_settled for pair in self.pairs if set(pair.names) <= set(best))

    @property
    def goes_on(self) -> bool:
        return not self.num_looks or (self.num_looks < len(self.sample.counts) and not self.is_settled)


def _looks(
    config: SettleConfig, inputs: Inputs, samples: Sequence[DatasetSample], costs: pl.DataFrame | None
) -> list[Row]:
    """Look until every dataset is settled; return the rows of INTERIM_ANALYSES, look by look.

    ``costs`` are COSTS of the auxiliary labels: ``max_cost`` is for these and all looks.
    """
    datasets = [
        DatasetState(sample, [PairState(sample=sample, pair=pair) for pair in sample.pairs])
        for sample in samples
    ]
    pairs = [pair for dataset in datasets for pair in dataset.pairs]
    rows: list[Row] = []
    while going := [dataset for dataset in datasets if dataset.goes_on]:
        for dataset in going:
            dataset.num_looks += 1
        parts = [dataset.sample.first(dataset.sample.counts[dataset.num_looks - 1]) for dataset in datasets]
        read = pl.concat(part.filter(pl.col("weight") > 0) for part in parts)
        labels, price, costs = _labels(config, inputs, read, costs)
        for dataset in going:
            for pair in dataset.pairs:
                pair.look(config, labels, dataset.num_looks, len(pairs), price)
        _decide(pairs)
        # Holm's procedure may decide a pair of a dataset that is no longer looked at, once pairs of others are decided
        for pair in pairs:
            pair.row.update(settled=pair.is_settled, better=pair.better)
        for dataset in going:
            for pair in dataset.pairs:
                say(look_line(config, dataset.sample, pair.row, len(datasets), not dataset.goes_on))
                rows.append(pair.row)
    for dataset in datasets:
        runs = dataset.unbeaten or dataset.sample.runs
        row = dataset.pairs[0].row
        say(*summary_lines(config, dataset.sample, row, runs, is_settled=dataset.is_settled))
    return rows


def _num_read(drawn: pl.DataFrame) -> int:
    return int((drawn["weight"] > 0).sum())


def _labels(
    config: SettleConfig, inputs: Inputs, drawn: pl.DataFrame, costs: pl.DataFrame | None
) -> tuple[pl.DataFrame, float | None, pl.DataFrame | None]:
    """Return eRAG's labels of pairs (query_id, doc_id, label), the mean price of a reading, and the COSTS so far.

    Responses of earlier looks are in the store.
    """
    pairs = drawn.select(PAIR)
    if pairs.is_empty():
        return pairs.with_columns(label=pl.lit(0.0)), None, costs
    lists = pairs.select("query_id", kind=pl.lit(ANSWER.name), doc_ids=pl.concat_list("doc_id"))
    done = judge_outputs(config, inputs, run_stage(config, plan_lists(config, inputs, STAGE, lists), costs))
    scoring = scoring_of(done.judgements)
    evidence = dataclasses.replace(evidence_of(inputs, done.values(inputs)), pairs=pairs, scoring=scoring)
    labels = label_by_reader("erag", evidence)
    check_scores(scoring, config)
    if labels["label"].null_count():
        raise JobError(
            f"{labels['label'].null_count()} of {labels.height} documents were not judged: their readings or scores "
            "ended as errors, and without them the estimate would be wrong; see what they say by erag-ray annotate"
        )
    responses = done.responses
    num_prompt, num_output = responses.select(pl.col("num_prompt_tokens", "num_output_tokens").sum()).row(0)
    # without what a server had in its cache; None where no price is given
    price = config.reader.price_of(int(num_prompt), 0, int(num_output))
    return labels.select(*PAIR, "label"), None if price is None else price / responses.height, done.costs
