"""The training loop: one process, or one of several data-parallel workers of torch.distributed.

The loss of a step is the sum of the token cross-entropies divided by the number of target tokens, both over all workers
and micro-batches; gradients are summed in the same way, by one all-reduce per step. Except for rounding and dropout,
the result does not depend on the number of workers or the micro-batches; a worker without questions contributes zeros.
"""

import contextlib
import functools
import math
import pathlib
import time
from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np
import torch
import torch.distributed as dist
from torch.nn.functional import cross_entropy
from transformers.modeling_outputs import BaseModelOutput

from erag_ray.extras.train.checkpoints import Checkpoints, State
from erag_ray.extras.train.config import MAX_GRAD_NORM, WEIGHT_DECAY, TrainConfig
from erag_ray.extras.train.data.batches import Batches, Sample, micro_batches
from erag_ray.extras.train.data.curriculum import Curriculum
from erag_ray.extras.train.data.examples import open_examples
from erag_ray.extras.train.evaluation import DevQuestions
from erag_ray.extras.train.log import TrainingLog
from erag_ray.extras.train.reader import load_reader, save_reader
from erag_ray.models.local.memory import free_memory, is_out_of_memory
from erag_ray.models.local.model import DEFAULT_LIMITS, prefetch
from erag_ray.models.t5.encoder_cache import encode_prompts
from erag_ray.store.folder import Folder
from erag_ray.support.errors import JobError
from erag_ray.support.ownership import UNFINISHED

NO_TARGET = -100


class Totals(NamedTuple):
    """Sums over all workers and micro-batches of a step."""

    loss: float
    num_targets: float
    num_tokens: float
    num_without_memory: float
    """Workers that ran out of memory."""


class Trainer:
    """Model, optimiser and data of one worker."""

    def __init__(self, config: TrainConfig) -> None:
        self.config = config
        self.out = pathlib.Path(config.out)
        train, dev = open_examples(config, "train"), open_examples(config, "dev")
        self.reader = load_reader(config.start_reader, {**dev.datasets, **train.datasets})
        self.model: Any = self.reader.model.model
        if config.gradient_checkpointing:
            self.model.get_encoder().activation_checkpointing_enable({"use_reentrant": False})
        self.curriculum = Curriculum(config, train.dataset_names)
        self.batches = Batches(train, self.curriculum, self.reader)
        self.dev = DevQuestions(config, dev, self.reader)
        self.gradients = flat_gradients(self.model)
        self.optimizer = make_optimizer(self.model, config.learning_rate)
        self.checkpoints = Checkpoints(self.out / "checkpoints")
        self.log = TrainingLog(self.out, self.dev.rows)

    def run(self) -> State:
        """Train from the newest checkpoint, or from the start, to the end; the result is in ``reader/``.

        Raises:
            JobError: the loss is not finite, or something could not be saved.
            InputError: the checkpoint is of another model.
        """
        for folder in (self.out, self.checkpoints.root):
            # what killed processes were writing
            on_main_worker(functools.partial(Folder(str(folder)).delete_folder, UNFINISHED))
        state, lines = self.checkpoints.restore(self.model, self.optimizer)
        started, num_steps = time.monotonic(), self.curriculum.num_steps
        if is_main():
            started -= self.log.resume(state.step)
            if state.step:
                lines.append(f"resuming after step {state.step:,} of {num_steps:,}")
            self.log.say(*lines)
        rank, num_workers = rank_and_size()
        steps = range(state.step, num_steps)
        for step, samples in prefetch((step, self.batches.share(step, rank, num_workers)) for step in steps):
            values = self._step(step, samples)
            state = State(step=step + 1, best_score=state.best_score, best_step=state.best_step)
            if self._is_due(state.step, self.config.eval_steps) and self.dev.rows:
                with autocast(self.config):
                    self.model.eval()
                    scores = self.dev.scores(rank, num_workers)
                values |= scores
                # on a tie the later one, which was trained for longer
                if state.best_score is None or scores["dev"] >= state.best_score:
                    on_main_worker(self._save_reader)
                    state = State(step=state.step, best_score=scores["dev"], best_step=state.step)
            if is_main():
                self.log.add({**values, "seconds": round(time.monotonic() - started, 3)})
            if self._is_due(state.step, self.config.save_steps):
                on_main_worker(lambda state=state: self.checkpoints.save(self.model, self.optimizer, state))
        if not self.dev.rows:
            on_main_worker(self._save_reader)
        return state

    def _is_due(self, step: int, every: int) -> bool:
        return step % every == 0 or step == self.curriculum.num_steps

    def _step(self, step: int, samples: Sequence[Sample]) -> dict[str, object]:
        """Do one optimiser step; return its line of the log."""
        # seed dropout by the step, so that resuming needs no generator state
        seed = np.random.SeedSequence([self.config.seed, step, rank_and_size()[0]])
        torch.manual_seed(int(seed.generate_state(1)[0]))
        totals = self._backward(samples)
        if totals.num_without_memory:
            raise JobError(
                f"step {step + 1}: out of memory with micro-batches of {self.config.micro_batch_tokens} tokens. Set a "
                "smaller micro_batch_tokens (it does not change what is learned) or gradient_checkpointing: true, and "
                "start the same command again"
            )
        self.gradients /= totals.num_targets
        norm = float(self.gradients.norm())
        loss = totals.loss / totals.num_targets
        if not (math.isfinite(loss) and math.isfinite(norm)):
            raise JobError(self._not_finite(step, loss, norm))
        self.gradients *= min(1.0, MAX_GRAD_NORM / (norm + 1e-6))
        rate = self.curriculum.learning_rate(step)
        for group in self.optimizer.param_groups:
            group["lr"] = rate
        self.optimizer.step()
        return {
            "step": step + 1,
            "stage": self.curriculum.position(step).stage + 1,
            "loss": loss,
            "gradient_norm": norm,
            "learning_rate": rate,
            "tokens": int(totals.num_tokens),
        }

    def _backward(self, samples: Sequence[Sample]) -> Totals:
        """Sum gradients (in place), loss and tokens over all micro-batches of all workers."""
        self.model.train()
        self.gradients.zero_()
        sums = torch.zeros(4, dtype=torch.float64, device=self.gradients.device)
        pass_tokens = self.config.reader.batch_tokens or DEFAULT_LIMITS.tokens
        has_memory = True
        try:
            for batch in micro_batches(samples, self.config.micro_batch_tokens):
                with autocast(self.config):
                    loss = loss_sum(self.model, batch, pass_tokens)
                loss.backward()  # type: ignore[no-untyped-call]
                num_targets = sum(len(sample.target) for sample in batch)
                counts = [num_targets, sum(sample.prompt.length for sample in batch), 0]
                sums += torch.stack([loss.detach().double(), *sums.new_tensor(counts)])
        except (MemoryError, RuntimeError) as error:
            if not is_out_of_memory(error):
                raise
            has_memory = False
        if not has_memory:
            # outside of the handler, because its traceback references the tensors of the batch
            free_memory()
            # still take part in the all-reduce: the other workers wait for it
            sums[3] = 1
        if dist.is_initialized():
            dist.all_reduce(self.gradients)
            dist.all_reduce(sums)
        return Totals(*sums.tolist())

    def _not_finite(self, step: int, loss: float, norm: float) -> str:
        folders = self.checkpoints.folders()
        last = f"the last good checkpoint is {folders[-1]}" if folders else "there is no checkpoint yet"
        return (
            f"step {step + 1}: the loss is {loss} and the norm of its gradient {norm}: training has diverged; "
            f"{last}.\nStart again in another out with a lower learning_rate (now {self.config.learning_rate}), a "
            f"longer warm-up; with bf16 (now {self.config.bf16}) try without, "
            "and start from weights that were trained in bfloat16 or float32, not float16"
        )

    def _save_reader(self) -> None:
        dtype = self.config.scratch.dtype if self.config.scratch else "float32"
        save_reader(self.reader, self.out / "reader", dtype)


def loss_sum(model: Any, samples: Sequence[Sample], batch_tokens: int) -> torch.Tensor:
    """Return the sum of the cross-entropies of all target tokens, in float32; targets are batched by length."""
    fused = encode_prompts(model, [sample.prompt for sample in samples], batch_tokens)
    states, mask = fused.states, fused.is_state.long()
    by_size: dict[int, list[int]] = {}
    for index, sample in enumerate(samples):
        by_size.setdefault(len(sample.target).bit_length(), []).append(index)
    losses = []
    for indices in by_size.values():
        rows = [torch.tensor(samples[index].target) for index in indices]
        padded = torch.nn.utils.rnn.pad_sequence(rows, batch_first=True, padding_value=NO_TARGET)
        targets = padded.to(states.device)
        outputs = model(
            encoder_outputs=BaseModelOutput(last_hidden_state=states[indices]),
            attention_mask=mask[indices],
            decoder_input_ids=model.prepare_decoder_input_ids_from_labels(targets),
            use_cache=False,
        )
        logits = outputs.logits.float().flatten(0, 1)
        losses.append(cross_entropy(logits, targets.flatten(), ignore_index=NO_TARGET, reduction="sum"))
    return torch.stack(losses).sum()


def flat_gradients(model: Any) -> torch.Tensor:
    """Return one vector of all gradients, of which each parameter's is a view: zeroed, reduced and scaled at once."""
    parameters = list(model.parameters())
    sizes = [parameter.numel() for parameter in parameters]
    flat = torch.zeros(sum(sizes), device=parameters[0].device)
    for parameter, gradient in zip(parameters, torch.split(flat, sizes), strict=True):
        parameter.grad = gradient.view_as(parameter)
    return flat


def make_optimizer(model: Any, learning_rate: float) -> torch.optim.Optimizer:
    """Return AdamW without weight decay for layer norms and biases (all vectors)."""
    groups: list[dict[str, Any]] = [
        {"params": [p for p in model.parameters() if p.ndim > 1], "weight_decay": WEIGHT_DECAY},
        {"params": [p for p in model.parameters() if p.ndim <= 1], "weight_decay": 0.0},
    ]
    return torch.optim.AdamW(groups, lr=learning_rate)


def autocast(config: TrainConfig) -> contextlib.AbstractContextManager[Any]:
    """Return torch's autocast to bfloat16, enabled by the config's bf16."""
    kind = "cuda" if torch.cuda.is_available() else "cpu"
    return torch.autocast(kind, dtype=torch.bfloat16, enabled=config.bf16)


def rank_and_size() -> tuple[int, int]:
    """Return this worker's rank and the number of workers."""
    return (dist.get_rank(), dist.get_world_size()) if dist.is_initialized() else (0, 1)


def is_main() -> bool:
    """Return whether this worker is the main one, which writes the files."""
    return rank_and_size()[0] == 0


def on_main_worker(act: Any) -> None:
    """Call a function on the main worker while the others wait; a JobError of it is raised on all workers."""
    failed: list[str | None] = [None]
    if is_main():
        try:
            act()
        except JobError as error:
            failed = [str(error)]
    if dist.is_initialized():
        dist.broadcast_object_list(failed)
    if failed[0] is not None:
        raise JobError(failed[0])
