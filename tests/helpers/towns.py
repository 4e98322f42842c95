"""Questions about towns; the echo reader answers with a passage's title, so a run is right where it has the answer."""

import pathlib
from collections.abc import Mapping

from tiny import Tiny, kilt_line, passage_line, trec_lines, write_tiny


def towns(
    folder: pathlib.Path,
    right: Mapping[str, int],
    num_questions: int,
    mentions: Mapping[str, str] | None = None,
) -> Tiny:
    """Write a comparison of the questions q0, q1, ... in which each list holds one passage.

    Args:
        folder: for the files.
        right: run -> how many questions it has the answer to, from the first on.
        num_questions: how many there are.
        mentions: kind of passage (right or wrong) -> its text, with {n} for the number of the town (None: town {n}).
    """
    tiny, numbers = write_tiny(folder), range(num_questions)
    texts = mentions or {"right": "town {n}", "wrong": "town {n}"}
    titles = {"right": "Person {n}", "wrong": "Nobody"}
    tiny.queries.write_text(
        "".join(kilt_line(f"q{n}", f"who lives in town {n}", f"Person {n}", None) for n in numbers)
    )
    tiny.passages.write_text(
        "".join(
            passage_line(f"d{n}{kind}", f"p{n}", titles[kind].format(n=n), text.format(n=n))
            for n in numbers
            for kind, text in texts.items()
        )
    )
    for run, count in right.items():
        lists = {f"q{n}": f"d{n}{'right' if n < count else 'wrong'}" for n in numbers}
        tiny.run(run).write_text(trec_lines(lists))
    return tiny.with_config(runs={run: str(tiny.run(run)) for run in right}, num_resamples=100)
