"""Two finished jobs -> a verdict, an exit code, and the comment."""

import numpy as np
import polars as pl
import rich.console

from erag_ray.analyses.columns import in_clusters
from erag_ray.analyses.parts.formats import counted
from erag_ray.config.job import MIN_READER_QUERIES
from erag_ray.extras.gate.changes import SEEN_BY_READER, check_same, differences, refuse
from erag_ray.extras.gate.comment import Comparison, comment_of, report_of
from erag_ray.extras.gate.config import GateConfig
from erag_ray.extras.gate.decide import Tested, decide, overall
from erag_ray.extras.gate.side import Side, load_side
from erag_ray.extras.prediction_powered import estimate_all
from erag_ray.measures.agreement import paired_differences
from erag_ray.report.console import print_report
from erag_ray.store.folder import Folder
from erag_ray.store.schemas import CLUSTERS
from erag_ray.support.errors import InputError

COMMENT = b"# Gate: "
EXIT_CODES = {"passed": 0, "failed": 3, "not settled": 4}
"""Verdict -> exit code of the job."""


def gate(config: GateConfig, console: rich.console.Console) -> int:
    """Compare two finished jobs, write the pull request's comment (Markdown), print the report; return the exit code.

    The exit code is 0 (passed), 3 (failed) or 4 (not settled). The comment goes to ``comment``, by default
    ``<out>/gate.md``.

    Raises:
        InputError: one of the two is not a finished job, they cannot be compared, or they differ in what
            ``allow_changes`` does not name. An earlier comment is deleted, and none is written.
    """
    path = config.comment or f"{config.out.rstrip('/')}/gate.md"
    parent, _, name = path.rpartition("/")
    folder = Folder(parent or ("/" if path.startswith("/") else "."))
    if folder.exists(name) and not folder.read_bytes(name).startswith(COMMENT):
        raise InputError(
            [f"comment: {path} is not a comment of a gate, and would be replaced. Name another file"]
        )
    # where the sides are refused, no comment of an earlier comparison may pass for this one's
    folder.delete(name)
    comparison = compare(config)
    report = report_of(comparison)
    folder.write_bytes(comment_of(report).encode(), name)
    print_report(report, console, locations=[f"Comment: {path}"])
    return EXIT_CODES[comparison.verdict]


def compare(config: GateConfig) -> Comparison:
    """Return the comparison of the candidate with the baseline; raises as `gate`."""
    baseline, candidate = _sides(config)
    check_same(baseline, candidate)
    depth = _depth(config.depth, baseline, candidate)
    changes = differences(baseline, candidate, depth)
    refuse(changes, config.allow_changes)
    pairs = _pairs(baseline, candidate, depth)
    judged = pairs.filter(pl.col("difference").is_not_nan()).sort("dataset", maintain_order=True)
    missing = sorted({*pairs["dataset"]} - {*judged["dataset"]})
    if missing or pairs.is_empty():
        # without a dataset the others could pass
        where = ", ".join(missing) or "either side"
        text = f"no question of {where} has a score in both with {counted(depth, 'document')}"
        raise InputError([f"candidate: {text}. Run erag-ray compare with retry_failed: true"])
    estimates = _estimates(config.auxiliary, baseline, candidate, pairs, depth)
    parts = {str(name): part for (name,), part in judged.group_by("dataset", maintain_order=True)}
    decisions = decide(
        {name: part["difference"].to_numpy() for name, part in parts.items()},
        config,
        {name: _tested(estimates.get(name, part)) for name, part in parts.items()},
    )
    # of a sample of the questions (reader_queries), those that the reader was asked on at least one side
    answered = pl.concat(
        side.utility.filter(depth=depth).select("query_id") for side in (baseline, candidate)
    )
    is_same = (pairs.join(answered, on="query_id", how="semi")["difference"] == 0).all()
    is_unchanged = bool(is_same) and not any(one.kind in SEEN_BY_READER for one in changes)
    return Comparison(
        baseline=baseline,
        candidate=candidate,
        depth=depth,
        config=config,
        pairs=judged,
        num_unjudged=pairs.height - judged.height,
        num_predicted={name: part.height - decisions[name].num_questions for name, part in estimates.items()},
        changes=changes,
        decisions=decisions,
        verdict="passed" if is_unchanged else overall(list(decisions.values())),
        is_unchanged=is_unchanged,
    )


def _estimates(
    auxiliary: str | None, baseline: Side, candidate: Side, pairs: pl.DataFrame, depth: int
) -> dict[str, pl.DataFrame]:
    """Return dataset -> its pairs with estimated differences, where the reader answered only some of the questions."""
    if auxiliary is None:
        return {}
    for side in (baseline, candidate):
        predictor = side.predictor(auxiliary, depth).rename({"value": f"{side.name}_predictor"})
        pairs = pairs.join(predictor, on="query_id", how="left", maintain_order="left")
        # asked on both sides and without a score: not judged, and not predicted
        answered = side.utility.filter(depth=depth)["query_id"]
        pairs = pairs.with_columns(
            pl.col("query_id").is_in(answered.implode()).alias(f"{side.name}_answered")
        )
    is_failed = pl.all_horizontal(pl.col("^.*_answered$")) & pl.col("difference").is_nan()
    pairs = pairs.filter(is_failed.not_())
    predicted = pl.col("candidate_predictor") - pl.col("baseline_predictor")
    parts = pairs.with_columns(predictor=predicted.fill_null(0.0)).partition_by("dataset", as_dict=True)
    estimates = {}
    for (name,), part in parts.items():
        values = part["difference"].to_numpy()
        if MIN_READER_QUERIES <= np.isfinite(values).sum() < len(values):
            estimated = pl.Series(estimate_all(values, part["predictor"].to_numpy()).values)
            estimates[str(name)] = part.with_columns(difference=estimated)
    return estimates


def _tested(pairs: pl.DataFrame) -> Tested:
    """Return the differences of the questions of a dataset, and its clusters, for a test."""
    clusters = pairs["cluster"].to_numpy() if "cluster" in pairs.columns else None
    return pairs["difference"].to_numpy(), clusters


def _sides(config: GateConfig) -> tuple[Side, Side]:
    """Load both sides; the problems of both come in one message."""
    folder = config.baseline if config.candidate is None else config.candidate
    run = config.baseline_run if config.candidate_run is None else config.candidate_run
    sides: list[Side] = []
    problems: list[str] = []
    for name, path, chosen in (
        ("baseline", config.baseline, config.baseline_run),
        ("candidate", folder, run),
    ):
        try:
            sides.append(load_side(name, path, chosen))
        except InputError as error:
            problems += error.problems
            if folder == config.baseline:
                break
    if problems:
        raise InputError(problems)
    baseline, candidate = sides
    if baseline.store.folder.path == candidate.store.folder.path and baseline.run == candidate.run:
        text = f"is run {candidate.run} of {candidate.folder}, which is the baseline"
        raise InputError([f"candidate: {text}. Set candidate, candidate_run, or both"])
    return baseline, candidate


def _depth(depth: int | None, baseline: Side, candidate: Side) -> int:
    common = sorted(set(baseline.depths) & set(candidate.depths))
    if (depth is None and common) or depth in common:
        return common[-1] if depth is None else depth
    has = " and ".join(
        f"{side.name} has {', '.join(map(str, side.depths))}" for side in (baseline, candidate)
    )
    wanted = "they have none in common" if depth is None else f"not both have {depth}"
    todo = "Set depth to a common one, or run erag-ray compare with end_to_end_depths that hold it"
    raise InputError([f"depth: {wanted}: the {has} as depths of end-to-end scores. {todo}"])


def _pairs(baseline: Side, candidate: Side, depth: int) -> pl.DataFrame:
    """Return every question with both scores; ``difference`` is NaN where one was not judged."""
    stores = [side.store for side in (candidate, baseline) if side.store.is_sealed(CLUSTERS)]
    pairs = in_clusters(baseline.queries, stores[0].read(CLUSTERS) if stores else None)
    for side in (baseline, candidate):
        scores = side.utility.filter(depth=depth).select("query_id", pl.col("value").alias(side.name))
        pairs = pairs.join(scores, on="query_id", how="left", maintain_order="left")
    a, b = (pairs[side.name].fill_null(np.nan).to_numpy() for side in (candidate, baseline))
    return pairs.with_columns(difference=pl.Series(paired_differences(a, b)))
