"""RETRIEVAL_MEASURES of the runs of a comparison: hits, and KILT's two measures of pages (`eval_retrieval.py`)."""

from __future__ import annotations

import collections
from typing import Any

from oracle import chance
from oracle.inputs import read_world
from oracle.readings import SPANS, Row, contains_dpr

CUTOFFS = (1, 5, 20, 100)


def retrieval_measures(config: dict[str, Any]) -> list[Row]:
    """The rows of the table, from the files alone."""
    world, values = read_world(config), collections.defaultdict[Row, list[float]](list)
    cutoffs = [one for one in CUTOFFS if one <= world.depth]
    for run, (name, one) in ((run, item) for run in world.runs for item in world.questions.items()):
        passages = [world.corpus[doc_id] for doc_id in world.documents(run, name)]
        pages, sets = list(dict.fromkeys(passage["page_id"] for passage in passages)), one.page_sets
        for cutoff in cutoffs:
            key, top = (one.dataset, run), passages[:cutoff]
            if one.pages:
                hit = any(passage["page_id"] in one.pages for passage in top)
                values[*key, "gold_page", cutoff].append(float(hit))
                share = sum(point <= cutoff for point in _points(pages, sets)) / len(
                    {frozenset(of) for of in sets}
                )
                values[*key, "kilt_recall", cutoff].append(share)
            if one.score in SPANS:
                hit = any(contains_dpr(passage["text"], one.answers) for passage in top)
                values[*key, "contains_answer", cutoff].append(float(hit))
        if one.pages:
            best = max(len({*pages[: len(of)]} & {*of}) / len(of) for of in sets)
            values[one.dataset, run, "kilt_r_precision", 0].append(best)
    return [(*key, chance.mean(found), len(found), 0) for key, found in values.items()]


def _points(pages: list[str], page_sets: list[list[str]]) -> list[int]:
    """The points at which page sets are complete: a page of no set is a point, a set is one, with its last page."""
    left = [set(of) for of in {frozenset(of) for of in page_sets}]
    gold, found, point = {page for of in left for page in of}, list[int](), 0
    for page in pages:
        if page not in gold:
            point += 1
        for one in [of for of in left if page in of]:
            one.discard(page)
            if not one:
                point += 1
                found.append(point)
    return found
