"""Evaluation during training: dev questions through the reader's rendering, batching and decoding, by their scores."""

import numpy as np
import polars as pl
import pyarrow as pa
import torch
import torch.distributed as dist

from erag_ray.data.datasets.queries import sample
from erag_ray.extras.train.config import TrainConfig
from erag_ray.extras.train.data.batches import listed, read_passages
from erag_ray.extras.train.data.examples import Examples
from erag_ray.extras.train.reader import TrainedReader
from erag_ray.measures.scores import score_named, score_outputs
from erag_ray.prompts.request import Request


class DevQuestions:
    """A sample of the dev questions, with the last stage's largest num_passages, its num_gold, and no cropping."""

    def __init__(self, config: TrainConfig, examples: Examples, reader: TrainedReader) -> None:
        self.config = config
        self.examples = examples
        self.reader = reader
        frame = pl.DataFrame(examples.table.select(["query_id", "dataset"])).with_row_index("row")
        parts = frame.partition_by("dataset", as_dict=True, maintain_order=True)
        self.rows = {
            str(name): sample(part, config.eval_questions, config.seed)["row"].to_list()
            for (name,), part in sorted(parts.items())
        }

    def scores(self, rank: int, num_workers: int) -> dict[str, float]:
        """Return the mean score of each dataset (``dev_<name>``) and the mean of these (``dev``), over all workers."""
        sums = np.array([self._sum(name, rank, num_workers) for name in self.rows])
        if num_workers > 1:
            total = torch.tensor(sums, device=self.reader.model.model.device)
            dist.all_reduce(total)
            sums = total.cpu().numpy()
        pairs = zip(self.rows.items(), sums, strict=True)
        means = {f"dev_{name}": float(total) / len(rows) for (name, rows), total in pairs}
        return {"dev": sum(means.values()) / len(means), **means}

    def _sum(self, name: str, rank: int, num_workers: int) -> float:
        """Return the sum of the scores of one worker's questions of a dataset."""
        model, form = self.reader.model, self.reader.forms[name]
        mine, stage = pa.array(self.rows[name][rank::num_workers], pa.int64()), self.config.curriculum[-1]
        records = self.examples.table.take(mine).to_pylist()
        requests = []
        for record in records:
            rows = listed(record["passages"], record["gold"], max(stage.num_passages), stage.num_gold)
            requests.append(Request.of(form, record["question"], read_passages(self.examples.corpus, rows)))
        prompts = model.render(requests)
        outputs = [""] * len(records)
        for rows in model.batches(prompts):
            for row, output in zip(rows, model.generate([prompts[row] for row in rows]), strict=True):
                outputs[row] = output.text
        return sum(
            score_outputs([text], [record["answers"]], score_named(record["score"]))[0] or 0.0
            for text, record in zip(outputs, records, strict=True)
        )
