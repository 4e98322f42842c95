"""What one A100 should reach: kernels, bytes and floating-point operations of a batch, and the time they would take.

    python notebooks/a100_estimate.py [OUT]

An estimate, to be held against the first real run: no GPU is used. T5's forward pass of this package (bfloat16) runs
on meta tensors, which have shapes and no numbers: as many pairs as one batch holds are encoded pass by pass, their
states are put side by side, and every step of the decoder is taken. An 8B decoder (Llama 3's shape) runs through
transformers the same way, with this package's cache: one pass over the prompts, then a step for each further token.
Every kernel is counted with the bytes of its inputs and outputs and with its operations (matrix products and
attention).

- A kernel takes the longest of bytes / `BANDWIDTH`, operations / `OPERATIONS` and `KERNEL_SECONDS` on the GPU.
- The host launches one kernel after the other, each in `LAUNCH_SECONDS`.
- A phase takes the longer of the two, and a pair its share of both phases. Host work besides launching (tokenising and
  so on; `notebooks/benchmark.py --parts '[host]'`) is not included: it runs beside the GPU.

Attention counts as one kernel that reads queries, keys, values and mask once, and a norm of T5 as one. No row ends
early, all prompts have the same length, and no passage occurs twice.
"""

import pathlib
import sys
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import torch
import transformers
from torch.nn import functional
from torch.overrides import TorchFunctionMode
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves

from erag_ray.analyses.parts.model import Column, Format, Table
from erag_ray.analyses.parts.shapes import columns, names, plain
from erag_ray.models.causal import model as causal
from erag_ray.models.causal.kv_cache import KeyValueCaches
from erag_ray.models.local.memory import GPU_SHARE, causal_memory_estimate, largest_batch, t5_memory_estimate
from erag_ray.models.local.model import PromptTokens
from erag_ray.models.t5 import model as t5
from erag_ray.models.t5.encoder_cache import EncoderCache, arrange, encode_all
from erag_ray.models.t5.engine import Engine, _Run
from erag_ray.prompts.prompt import T5
from erag_ray.prompts.request import Form
from erag_ray.report.console import open_console, show
from erag_ray.report.markdown import parts_as_markdown

PEAK, MEMORY_RATE, MEMORY = 312e12, 1.555e12, 40e9
"""A100 40 GB SXM: bfloat16 operations a second on its tensor cores, bytes a second, bytes."""
EFFICIENCY, MEMORY_EFFICIENCY = 0.55, 0.8
OPERATIONS, BANDWIDTH = EFFICIENCY * PEAK, MEMORY_EFFICIENCY * MEMORY_RATE
KERNEL_SECONDS, LAUNCH_SECONDS = 2e-6, 8e-6
T5_TOKENS, T5_OUTPUT = (150, 200, 250), 8
LLAMA_TOKENS, LLAMA_OUTPUT = (150, 500, 1500), 16
T5_SHAPES: dict[str, dict[str, Any]] = {
    "T5-small": {"d_model": 512, "d_kv": 64, "d_ff": 2048, "num_layers": 6, "num_heads": 8},
    "T5-base": {"d_model": 768, "d_kv": 64, "d_ff": 3072, "num_layers": 12, "num_heads": 12},
    "T5-large": {"d_model": 1024, "d_kv": 64, "d_ff": 4096, "num_layers": 24, "num_heads": 16},
}
LLAMA_SHAPE: dict[str, Any] = {
    "vocab_size": 128_256,
    "hidden_size": 4096,
    "intermediate_size": 14_336,
    "num_hidden_layers": 32,
    "num_attention_heads": 32,
    "num_key_value_heads": 8,
}
META = torch.device("meta")
FREE = {"empty", "empty_like", "new_empty", "empty_strided", "detach", "alias", "lift_fresh", "_unsafe_view"}
"""What starts no kernel; views do not either."""
GATHERS = {"embedding", "index_select", "index"}


class Kernel(NamedTuple):
    """One kernel: its name, the bytes that it reads and writes, and its floating-point operations."""

    name: str
    num_bytes: float
    operations: float

    @property
    def seconds(self) -> float:
        """On the GPU."""
        return max(self.num_bytes / BANDWIDTH, self.operations / OPERATIONS, KERNEL_SECONDS)


@dataclass(frozen=True, kw_only=True)
class Phase:
    """The kernels of one phase of a batch."""

    kernels: Sequence[Kernel]

    @property
    def operations(self) -> float:
        """Of all kernels."""
        return sum(kernel.operations for kernel in self.kernels)

    @property
    def num_bytes(self) -> float:
        """Of all kernels."""
        return sum(kernel.num_bytes for kernel in self.kernels)

    @property
    def device_seconds(self) -> float:
        """On the GPU."""
        return sum(kernel.seconds for kernel in self.kernels)

    @property
    def launch_seconds(self) -> float:
        """On the host."""
        return len(self.kernels) * LAUNCH_SECONDS

    @property
    def seconds(self) -> float:
        """The longer of the two."""
        return max(self.device_seconds, self.launch_seconds)


@dataclass(frozen=True, kw_only=True)
class Batch:
    """One batch: its pairs, and the kernels of what reads the prompts and of what writes the outputs."""

    num_pairs: int
    reading: Phase
    writing: Phase

    @property
    def pairs_a_second(self) -> float:
        """By the estimate."""
        return self.num_pairs / (self.reading.seconds + self.writing.seconds)


class Kernels(TorchDispatchMode):
    """Writes down the kernels that would be started."""

    def __init__(self) -> None:
        super().__init__()
        self.kernels: list[Kernel] = []

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        if torch._C._dispatch_has_kernel_for_dispatch_key(func.name(), "CompositeImplicitAutograd"):
            with self:
                return func.decompose(*args, **(kwargs or {}))
        out = func(*args, **(kwargs or {}))
        name = func._schema.name.partition("::")[2]
        if not func.is_view and name not in FREE:
            inputs, outputs = _tensors((args, kwargs)), _tensors(out)
            self.kernels.append(
                Kernel(name, _bytes(name, inputs, outputs), _operations(name, inputs, outputs))
            )
        return out


class FusedKernels(TorchFunctionMode):
    """Takes attention and norms as the single kernels that they are on a GPU."""

    def __init__(self, kernels: list[Kernel]) -> None:
        super().__init__()
        self._kernels = kernels

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        if func is functional.scaled_dot_product_attention:
            return self._attention(*args, **(kwargs or {}))
        if func is functional.rms_norm:
            out = torch.empty_like(args[0])
            self._kernels.append(Kernel("rms_norm", 2 * _size(out), 0))
            return out
        return func(*args, **(kwargs or {}))

    def _attention(
        self,
        query: torch.Tensor,
        key: torch.Tensor,
        value: torch.Tensor,
        attn_mask: torch.Tensor | None = None,
        *,
        is_causal: bool = False,
        **settings: Any,
    ) -> torch.Tensor:
        out = query.new_empty(*query.shape[:-1], value.shape[-1])
        read = {id(tensor): _size(tensor) for tensor in (query, key, value, attn_mask) if tensor is not None}
        pairs = query.shape[:-1].numel() * key.shape[-2] / (2 if is_causal else 1)
        operations = 2.0 * pairs * (query.shape[-1] + value.shape[-1])
        self._kernels.append(Kernel("attention", sum(read.values()) + _size(out), operations))
        return out


def _tensors(values: Any) -> list[torch.Tensor]:
    return [leaf for leaf in tree_leaves(values) if isinstance(leaf, torch.Tensor)]


def _size(tensor: torch.Tensor) -> int:
    # of an expanded tensor what there is in memory
    held = tensor.untyped_storage().nbytes() if tensor.device == META else tensor.nbytes
    return min(tensor.nbytes, held)


def _bytes(name: str, inputs: Sequence[torch.Tensor], outputs: Sequence[torch.Tensor]) -> float:
    written = sum(map(_size, outputs))
    return 2 * written if name in GATHERS else written + sum(map(_size, inputs))


def _operations(name: str, inputs: Sequence[torch.Tensor], outputs: Sequence[torch.Tensor]) -> float:
    """Of a matrix product: two for each product of numbers."""
    first = {"mm": 0, "bmm": 0, "addmm": 1}.get(name)
    return 0.0 if first is None else 2.0 * outputs[0].numel() * inputs[first].shape[-1]


def count(work: Callable[[], Any]) -> tuple[Any, Phase]:
    """Run work on meta tensors; its result and its kernels."""
    counting = Kernels()
    with torch.inference_mode(), FusedKernels(counting.kernels), counting:
        result = work()
    return result, Phase(kernels=counting.kernels)


# --- T5 ---


def t5_batch(shape: dict[str, Any], length: int) -> Batch:
    """The largest batch of FiD pairs of so many tokens, by this package's engine."""
    settings = transformers.T5Config(vocab_size=32_128, decoder_start_token_id=0, **shape)
    with META:
        model = transformers.T5ForConditionalGeneration(settings).to(torch.bfloat16).eval()
    engine = Engine(model.requires_grad_(False))
    room = GPU_SHARE * (MEMORY - _weight_bytes(model))
    limits = largest_batch(
        int(room), t5_memory_estimate(settings, torch.bfloat16, T5_OUTPUT), t5.MOST["cuda"]
    )
    form = Form(method="generate", prompt=T5, max_new_tokens=T5_OUTPUT)
    # one token of each differs, and one prompt is shorter, so that there is a mask
    ids = [(number, *[1] * (length - 1 - (number == 0))) for number in range(limits.rows_of(length))]
    prompts = [PromptTokens(form=form, segments=(own,)) for own in ids]

    def encode() -> EncoderCache:
        passes = arrange(prompts, engine.pass_tokens(limits.tokens), engine.multiple)
        return encode_all(engine.encode, passes)

    def decode() -> None:
        run = _Run(engine, encoded.gather(prompts), 0, [1], T5_OUTPUT)
        for step in range(T5_OUTPUT):
            run.step(step)

    encoded, reading = count(encode)
    _, writing = count(decode)
    return Batch(num_pairs=len(prompts), reading=reading, writing=writing)


# --- a decoder ---


def llama_batch(shape: dict[str, Any], length: int) -> Batch:
    """The largest batch of prompts of so many tokens, by transformers' Llama."""
    settings = transformers.LlamaConfig(**shape, attn_implementation="sdpa")
    with META:
        model = transformers.LlamaForCausalLM(settings).to(torch.bfloat16).eval()
    model.requires_grad_(False)
    room = GPU_SHARE * (MEMORY - _weight_bytes(model))
    limits = largest_batch(
        int(room), causal_memory_estimate(model, LLAMA_OUTPUT, length), causal.MOST["cuda"]
    )
    rows = limits.rows_of(length)

    def forward(num_tokens: int, cache: Any) -> None:
        ids = torch.empty(rows, num_tokens, dtype=torch.long, device=META)
        model(input_ids=ids, past_key_values=cache, use_cache=True, logits_to_keep=1)

    cache, _ = KeyValueCaches(model).make((), rows, length + LLAMA_OUTPUT)
    _, reading = count(lambda: forward(length, cache))
    _, step = count(lambda: forward(1, cache))
    # a step reads one token more than the one before it, which changes little
    return Batch(
        num_pairs=rows, reading=reading, writing=Phase(kernels=list(step.kernels) * (LLAMA_OUTPUT - 1))
    )


def _weight_bytes(model: Any) -> int:
    return sum(weights.nbytes for weights in {id(own): own for own in model.parameters()}.values())


# --- the table ---


def estimate() -> Iterator[tuple[str, int, int, Batch]]:
    """Model, tokens of a prompt, tokens of an output, and the batch."""
    for name, shape in T5_SHAPES.items():
        for length in T5_TOKENS:
            yield name, length, T5_OUTPUT, t5_batch(shape, length)
    for length in LLAMA_TOKENS:
        yield "8B decoder", length, LLAMA_OUTPUT, llama_batch(LLAMA_SHAPE, length)


ESTIMATE_COLUMNS = (
    *names("model and tokens", "phase"),
    *columns(("pairs", "kernels"), Format.COUNT),
    Column("GB", Format.TENTHS),
    Column("10^12 operations", Format.NUMBER_2),
    *columns(("ms on the GPU", "ms of launches", "us a pair"), Format.TENTHS),
    Column("pairs a second", Format.COUNT),
)


def table(batches: Sequence[tuple[str, int, int, Batch]]) -> Table:
    """Return a row for each phase of each batch, and the rate."""
    rows = []
    for name, length, written, batch in batches:
        for what, phase in (("in", batch.reading), ("out", batch.writing)):
            is_first = what == "in"
            rows.append(
                plain(
                    f"{name}, {length} in, {written} out" if is_first else "",
                    what,
                    batch.num_pairs if is_first else "",
                    len(phase.kernels),
                    phase.num_bytes / 1e9,
                    phase.operations / 1e12,
                    phase.device_seconds * 1e3,
                    phase.launch_seconds * 1e3,
                    phase.seconds / batch.num_pairs * 1e6,
                    "" if is_first else batch.pairs_a_second,
                )
            )
    return Table(
        name="a100",
        title="What one A100 (40 GB) should reach: an estimate, no A100 has run it",
        columns=ESTIMATE_COLUMNS,
        rows=tuple(rows),
        caption="ms on the GPU: the sum over all kernels of the longest of bytes / "
        f"{BANDWIDTH / 1e12:.2f} TB/s ({MEMORY_EFFICIENCY:.0%} of {MEMORY_RATE / 1e12} TB/s), operations / "
        f"{OPERATIONS / 1e12:.0f} TFLOP/s ({EFFICIENCY:.0%} of {PEAK / 1e12:.0f}) and {KERNEL_SECONDS * 1e6:.0f} us. "
        f"ms of launches: kernels x {LAUNCH_SECONDS * 1e6:.0f} us. us a pair: the longer of the two / pairs. pairs a "
        "second: 10^6 / us a pair of both phases. bfloat16; one batch, as large as the job would make it.",
    )


def main(out: pathlib.Path | None) -> None:
    """Print the table, and write it to a file if one is named."""
    made = table(list(estimate()))
    show([made], open_console())
    if out is not None:
        out.write_text(parts_as_markdown("What an A100 should reach", [made]))


if __name__ == "__main__":
    main(pathlib.Path(sys.argv[1]) if len(sys.argv) > 1 else None)
