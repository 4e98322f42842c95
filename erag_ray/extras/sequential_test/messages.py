"""Messages of the sequential test: a line for each look, and what came out at the end."""

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from erag_ray.analyses.parts.formats import change
from erag_ray.extras.sequential_test.config import SettleConfig
from erag_ray.extras.sequential_test.sample import DatasetSample
from erag_ray.measures.agreement import TIE_DIGITS


def look_line(
    config: SettleConfig, sample: DatasetSample, row: Mapping[str, Any], num_datasets: int, is_last: bool
) -> str:
    """Return a row of INTERIM_ANALYSES as a line, which names the dataset if there are several."""
    interval = (
        "no interval yet" if row["low"] is None else f"[{change(row['low'], 4)}, {change(row['high'], 4)}]"
    )
    if row["better"]:
        verdict = f": settled, {row['better']} is better"
    elif row["settled"]:
        verdict = f": settled, known to within {config.equivalence_margin:g}"
    elif row["num_queries"] == sample.num_queries:
        advice = "" if config.fraction == 1 else "a larger fraction goes on from here, or "
        verdict = f": not settled; {advice}take more questions"
    else:
        verdict = ": not settled" if is_last else ""
    dataset = f"{sample.dataset}, " if num_datasets > 1 else ""
    return (
        f"{dataset}look {row['look']}: {row['num_queries']:,} of {sample.num_queries:,} questions, "
        f"{row['num_readings']:,} readings, {row['measure']}@{row['cutoff']} of {row['run_a']} - {row['run_b']} "
        f"{change(row['difference'], 4)} {interval}{verdict}"
    )


def summary_lines(
    config: SettleConfig,
    sample: DatasetSample,
    row: Mapping[str, Any],
    runs: Sequence[str],
    *,
    is_settled: bool,
) -> Iterator[str]:
    """Yield the verdict on a dataset, what was saved, and what the auxiliary label says by itself.

    ``row`` is of the last look, ``runs`` are those than which no other is known to be better.
    """
    measure = f"{config.measure}@{config.rank}"
    winner = runs[0] if len(runs) == 1 else None
    if winner:
        yield f"{sample.dataset}: {winner} is the best of {len(sample.runs)} runs by {measure}"
    elif is_settled:
        names = " and ".join(runs)
        within = f"their difference is known to within {config.equivalence_margin:g}"
        yield f"{sample.dataset}: {names} are best by {measure}: {within}"
    else:
        yield f"{sample.dataset}: not settled which of {', '.join(runs)} is best by {measure}"
    saved = f"this saved {row['num_saved']:,} readings"
    if row["price_saved"] is not None:
        saved += f", and about {row['price_saved']:.4f} of the reader's price"
    read = f"{row['num_readings']:,} of {sample.documents.height:,} documents were read"
    yield f"{sample.dataset}: {read}; {saved}"
    if config.auxiliary_annotator:
        yield _auxiliary_alone(config, sample, row, winner)


def _auxiliary_alone(
    config: SettleConfig, sample: DatasetSample, row: Mapping[str, Any], winner: str | None
) -> str:
    """Return which run the auxiliary label names without any reading, and how well it agrees with the labels read."""
    sums = (sample.documents["auxiliary"].to_numpy() @ sample.weights(config)).tolist()
    means = {
        run: round(total / sample.num_queries, TIE_DIGITS)
        for run, total in zip(sample.runs, sums, strict=True)
    }
    best = max(means.values())
    names = " and ".join(run for run, mean in means.items() if mean == best)
    text = f"{sample.dataset}: {config.auxiliary_annotator} alone names {names}"
    if winner:
        text += ", the same run" if names == winner else ", another run"
    if row["correlation"] is None:
        return text
    fit = f"correlation {row['correlation']:.2f}, lambda {row['lambda']:.2f}"
    return f"{text}; with the labels read: {fit} ({row['run_a']} - {row['run_b']})"
