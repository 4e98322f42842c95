"""Speed of an actor of kind vllm relative to bare vLLM, and savings by the order of prompts.

Both sides use one engine in one process, so that their settings are equal. Its prefix cache is emptied before each
round, each round begins with the other side, and a short first one of each does not count. The bare side gets prompts
in tokens and gives tokens back; ours reads PENDING from Parquet, makes the prompts, and writes RESPONSES.
"""

import dataclasses
import pathlib
import random
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import torch

from bench.config import BenchmarkConfig
from bench.readers.host import Clock
from bench.readers.table_2 import given_case
from bench.timing import Row
from erag_ray.inference.actor import ModelActor
from erag_ray.inference.planning.pending import PendingRequests
from erag_ray.inference.planning.plan import ModelPlan
from erag_ray.models.local.model import PromptTokens
from erag_ray.models.vllm.engine import sampling
from erag_ray.prompts.prompt import prompt_named
from erag_ray.prompts.request import Request
from erag_ray.store.fingerprints import new_job_id
from erag_ray.support.errors import InputError

WHAT, ORDER = "vllm", "order of prompts"
ONE, BARE = "erag_ray", "bare vllm.LLM.generate"
PROMPTS = {"question first": "question_first", "passage first": "chat"}
GROUPED, SHUFFLED = "a question's together", "shuffled"
WORST = f"passage first, {SHUFFLED}"
WARMING_ROWS = 32
Work = Callable[..., Row]


def vllm(config: BenchmarkConfig, size: int) -> Iterator[Row]:
    """Measure ``size`` questions of ``config.job``, single documents, by an actor and by bare vLLM in turn.

    Then the prompt tokens that vLLM computes for the same pairs as chats: passage last or first, a question's requests
    together or shuffled.

    Raises:
        InputError: there is no job, its reader is of another kind, or its files cannot be used.
    """
    plan = given_case(config, size).single_document
    kind = plan.model.config.kind
    if kind != WHAT:
        raise InputError(
            [f"job: this part measures reader.kind: {WHAT}, and the job has {kind}; name another job"]
        )
    table = plan.make_requests(plan.new)
    actor = _actor(plan, str(pathlib.Path(config.out, WHAT)))
    yield from _against_bare(actor, table, config)
    yield from _by_order(actor.isolation.model, list(PendingRequests(table, plan.forms)), config.seed)


def _actor(plan: ModelPlan, store: str) -> ModelActor:
    return ModelActor(
        plan.model.config,
        plan.id,
        plan.forms,
        store,
        "job",
        torch.get_num_threads(),
        write_every_seconds=20.0,
        max_batch_seconds=None,
    )


def _against_bare(actor: ModelActor, table: pa.Table, config: BenchmarkConfig) -> Iterator[Row]:
    """Two rows for each round: ours, with its rate against that of bare vLLM, and bare vLLM's."""
    path = pathlib.Path(config.out, WHAT, "pending.parquet")
    path.parent.mkdir(parents=True, exist_ok=True)
    pq.write_table(table, path)

    def ours(rows: int) -> Row:
        actor.job = new_job_id()
        list(actor(pq.read_table(path)[:rows]))
        totals = actor.store.totals_by(actor.job)
        return {name: totals[name] for name in ("num_prompt_tokens", "num_cached_prompt_tokens")}

    def bare(rows: int) -> Row:
        return _generated(model, rendered[:rows])

    # raises what was wrong when it was loaded
    ours(WARMING_ROWS)
    model: Any = actor.isolation.model
    rendered = model.render(list(PendingRequests(table, actor.forms)))
    bare(WARMING_ROWS)
    sides = [(ONE, ours), (BARE, bare)]
    for number in range(1, config.repeats + 1):
        measured = {by: _timed(model, work, table.num_rows) for by, work in sides}
        ratio = measured[BARE]["seconds"] / measured[ONE]["seconds"]
        measured[ONE] |= {"least_ratio": ratio, "most_ratio": ratio}
        common = {"what": f"{WHAT}, round {number}", "count": table.num_rows}
        yield from ({**common, "by": by, **measured[by]} for by in (ONE, BARE))
        sides.reverse()


def _timed(model: Any, work: Work, *arguments: Any) -> Row:
    """One round on an empty prefix cache."""
    model.engine.llm.reset_prefix_cache()
    clock = Clock()
    row = work(*arguments)
    return {**row, **clock.row()}


def _generated(model: Any, prompts: Sequence[PromptTokens]) -> Row:
    """Return the token counts of bare vLLM for prompts in this order."""
    parts = [part for prompt in prompts for part in model.engine_requests(prompt)]
    outputs = model.engine.llm.generate(
        [{"prompt_token_ids": list(part.ids)} for part in parts],
        [sampling(part._replace(ids=())) for part in parts],
        use_tqdm=False,
    )
    cached = sum(output.num_cached_tokens or 0 for output in outputs)
    return {"num_prompt_tokens": sum(len(part.ids) for part in parts), "num_cached_prompt_tokens": cached}


def _by_order(model: Any, requests: Sequence[Request], seed: int) -> Iterator[Row]:
    """Rows of the four orders; ratios of prompt tokens computed, against passage first and shuffled."""
    measured = {}
    for order, name in PROMPTS.items():
        prompt = prompt_named(name, "question", num_examples=0, titles=True)
        chats = [one._replace(form=dataclasses.replace(one.form, prompt=prompt)) for one in requests]
        shuffled = random.Random(seed).sample(chats, len(chats))
        for by, ordered in ((GROUPED, chats), (SHUFFLED, shuffled)):
            rendered = model.render(ordered)
            measured[f"{order}, {by}"] = _timed(model, _generated, model, rendered)
    computed = {
        by: row["num_prompt_tokens"] - row["num_cached_prompt_tokens"] for by, row in measured.items()
    }
    for by, row in measured.items():
        ratio = computed[by] / computed[WORST]
        yield {
            "what": ORDER,
            "by": by,
            "count": len(requests),
            **row,
            "least_ratio": ratio,
            "most_ratio": ratio,
        }
