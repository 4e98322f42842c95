"""Every model on a pretended GPU: outputs, devices, waits, kernels, attention, and memory that runs out."""

import dataclasses
import gc
import pathlib
import threading
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import models
import pretended_gpu
import pytest
import torch
import transformers
from pretended_gpu import Attention, GpuTensor, Machine
from pretended_gpu.attention import attention
from pretended_gpu.guard import compiler, load_guard
from torch import Tensor

from erag_ray.config.reader import JudgeConfig
from erag_ray.models.causal import kv_cache as leaving
from erag_ray.models.causal.kv_cache import KeyValueCaches
from erag_ray.models.causal.model import CausalModel
from erag_ray.models.local.memory import to_device
from erag_ray.models.local.model import LocalModel, PromptTokens
from erag_ray.models.t5 import engine as t5_engine
from erag_ray.models.t5.encoder_cache import EncoderStates, Passes
from erag_ray.models.t5.engine import CHECK_EVERY, Engine
from erag_ray.models.t5.model import T5Model
from erag_ray.prompts.kinds.answer import ANSWER
from erag_ray.prompts.kinds.base import Case, Kind
from erag_ray.prompts.kinds.likelihood import GOLD_LIKELIHOOD
from erag_ray.prompts.kinds.relevance import RELEVANCE
from erag_ray.prompts.request import Request, Response

MAX_WAITS, MAX_LAYER_KERNELS = 5, 28
"""Of one FiD batch, besides the looks at which rows have ended; of one decoder layer in one step."""
MOST_TOKENS = 12
"""In an answer; `models.case_for` has it."""
MIB = 1 << 20
GOLD_ANSWERS = ("Ada Brunner", "1874")
GATED = {"feed_forward_proj": "gated-gelu", "tie_word_embeddings": False}
# of the width of T5 small, whose cross-attention has heads as wide as the model
SMALL = {"d_model": 512, "d_kv": 64, "d_ff": 256, "num_heads": 8, "num_layers": 1, "num_decoder_layers": 1}
GPT2 = {"kind": "gpt2", "n_embd": 32, "n_layer": 2, "n_head": 4, "n_positions": 1024}
T5: dict[str, dict[str, Any]] = {
    "t5": {},
    "gated": GATED,
    "mt5": {"kind": "mt5", **GATED},
    "umt5": {"kind": "umt5", **GATED},
    "small": SMALL,
}
CAUSAL: dict[str, dict[str, Any]] = {
    "llama": {"kind": "llama"},
    "wide": {"kind": "llama", "hidden_size": 128, "head_dim": 64, "num_attention_heads": 2},
    "gpt2": GPT2,
    "mistral": {"kind": "mistral", "sliding_window": 64},
    "qwen2": {"kind": "qwen2"},
    "gemma2": {"kind": "gemma2", "sliding_window": 12},
    "mamba": {"kind": "mamba", "state_size": 8},
}
MODELS = [("fid", name) for name in T5] + [("ipa", "t5")] + [("causal", name) for name in CAUSAL]
FIRST = [("fid", "t5"), ("ipa", "t5"), ("causal", "llama")]
SLOW = ("small", "gemma2", "mamba")
UNFUSED = ("gemma2", "mamba")
"""Models for which transformers never asks for a fused kernel: scores that are capped, no attention."""


def each(cases: Sequence[tuple[str, str]]) -> pytest.MarkDecorator:
    return pytest.mark.parametrize(("kind", "name"), cases, ids=map("-".join, cases))


each_model = each(MODELS)
Folders = Callable[[str], str]
pytestmark = [
    pytest.mark.skipif(torch.cuda.is_available(), reason="has a real GPU"),
    pytest.mark.skipif(compiler() is None, reason="no C++ compiler"),
    pytest.mark.usefixtures("_guard"),
]


@pytest.fixture(scope="module")
def _guard(tmp_path_factory: pytest.TempPathFactory) -> None:
    load_guard(tmp_path_factory.mktemp("guard"))
    torch.set_num_threads(1)


@pytest.fixture(scope="module")
def folders(tmp_path_factory: pytest.TempPathFactory) -> Folders:
    """Makes the folder of a model, once."""
    made: dict[str, str] = {}

    def folder(name: str) -> str:
        if name not in made:
            made[name] = _folder(tmp_path_factory.mktemp(name), name)
        return made[name]

    return folder


def _folder(path: pathlib.Path, name: str) -> str:
    if name in T5:
        return models.t5_folder(path, **T5[name])
    # the tokenizer of Qwen2 adds the tokens that it lacks, for which a model this small has no weights
    tokenizer = models.causal_tokenizer(pad_token=models.END, unk_token=models.END)
    return models.causal_folder(path, tokenizer=tokenizer, **CAUSAL[name])


@pytest.fixture
def gpu() -> Iterator[Machine]:
    with pretended_gpu.pretended_gpu() as machine:
        yield machine


def requests_to(kind: str, num: int, asked: Sequence[tuple[Kind, Case]] | None = None) -> list[Request]:
    """So many requests of every kind of question."""
    plain, grades = models.case_for(kind), models.case_for(kind, judge=JudgeConfig(scale="grades"))
    every = [(ANSWER, plain), (GOLD_LIKELIHOOD, plain), (RELEVANCE, plain), (RELEVANCE, grades)]
    return [
        question_kind.request(case, request.question, request.passages, GOLD_ANSWERS)
        for question_kind, case in asked or every
        for request in models.some_requests(question_kind.build(case), num)
    ]


def responses(model: LocalModel, requests: Sequence[Request]) -> list[Response]:
    """The responses of a model, in the order of the requests."""
    found = dict(model.run(requests))
    return [found[place] for place in range(len(requests))]


def assert_same(found: Sequence[Response], expected: Sequence[Response]) -> None:
    """Compare responses: all but the last digits of log-probabilities."""
    for one, other in zip(found, expected, strict=True):
        assert dataclasses.replace(one, logprobs=()) == dataclasses.replace(other, logprobs=())
        assert one.logprobs == pytest.approx(other.logprobs, rel=1e-4, abs=1e-4)


# --- outputs, devices and attention of every model


@pytest.mark.long
@each_model
def test_a_gpu_gives_what_the_cpu_gives(folders: Folders, kind: str, name: str) -> None:
    requests = requests_to(kind, 1 if name in SLOW else 3)
    expected = responses(models.loaded(kind, folders(name)), requests)
    with pretended_gpu.pretended_gpu():
        model = models.loaded(kind, folders(name))
        assert all(isinstance(weights, GpuTensor) for weights in model.model.parameters())
        found = responses(model, requests)
    assert_same(found, expected)
    assert len({one.text or one.logprobs for one in found}) > len(requests) // 2


@pytest.mark.long
@each([case for case in MODELS if case[1] not in UNFUSED])
def test_attention_in_bfloat16_has_a_fused_kernel(
    folders: Folders, gpu: Machine, kind: str, name: str
) -> None:
    model = models.loaded(kind, folders(name), dtype="bfloat16")
    gpu.reset()
    asked = [(question_kind, models.case_for(kind)) for question_kind in (ANSWER, GOLD_LIKELIHOOD)]
    responses(model, requests_to(kind, 4, asked))
    attentions = gpu.counts.attentions
    assert attentions
    assert all(one.dtype == torch.bfloat16 for one, _ in attentions), attentions
    slow = [(one, line) for one, line in attentions if one.kernel == "math"]
    # transformers' decoder turns its position biases; only the few tokens of an answer meet each other so
    assert all(line.startswith("models/t5.py") and one.num_keys <= MOST_TOKENS for one, line in slow), slow


@pytest.mark.long
@each([("fid", "t5"), ("fid", "small"), ("ipa", "t5")])
def test_no_mask_of_the_engine_is_copied(folders: Folders, gpu: Machine, kind: str, name: str) -> None:
    model = models.loaded(kind, folders(name), dtype="bfloat16")
    gpu.reset()
    responses(model, requests_to(kind, 5, [(ANSWER, models.case_for(kind))]))
    attentions = gpu.counts.attentions
    assert {line.partition(":")[0] for _, line in attentions} == {"models/t5/attention.py"}
    assert len({line for _, line in attentions}) == 2, "of the encoder, and over its states"
    assert {one.mask for one, _ in attentions} == {"in place"}, attentions


# --- waits and kernels


def in_one_batch(patch: pytest.MonkeyPatch) -> None:
    """Let batches have any padding."""
    for kind in (LocalModel, T5Model):
        patch.setattr(kind, "max_padding_share", 1.0)


@pytest.mark.long
def test_a_batch_of_fid_waits_for_the_gpu_only_to_look_at_what_has_ended(
    folders: Folders, gpu: Machine, monkeypatch: pytest.MonkeyPatch
) -> None:
    in_one_batch(monkeypatch)
    steps, step = [], t5_engine._Run.step
    monkeypatch.setattr(t5_engine._Run, "step", lambda run, number: steps.append(number) or step(run, number))
    model = models.loaded("fid", folders("t5"))
    gpu.reset()
    responses(model, requests_to("fid", 24, [(ANSWER, models.case_for("fid", max_new_tokens=50))]))
    assert steps == list(range(50))
    waits = gpu.counts.waits
    assert sum(waits.values()) <= MAX_WAITS + len(steps) / CHECK_EVERY, waits
    assert {reason for reason, _ in waits} == {"_to_copy to the CPU"}, waits


@pytest.mark.long
@each(FIRST)
def test_a_large_batch_waits_no_more_often_than_a_small_one(
    folders: Folders, gpu: Machine, kind: str, name: str
) -> None:
    asked = [(question_kind, models.case_for(kind)) for question_kind in (ANSWER, GOLD_LIKELIHOOD)]
    answer, likelihood = requests_to(kind, 1, asked)
    counts, model = [], models.loaded(kind, folders(name))
    for num in (1, 2, 20):
        gpu.reset()
        responses(model, [answer] * num + [likelihood] * num)
        counts.append((gpu.counts.waits, gpu.counts.copies))
    # the first run has read what prompts share
    assert counts[1] == counts[2]


def engine_of(layers: int, dtype: torch.dtype, settings: dict[str, Any]) -> Engine:
    size = {"vocab_size": 64, "d_model": 32, "d_kv": 8, "d_ff": 64, "num_heads": 4, "num_layers": 1}
    config = transformers.T5Config(num_decoder_layers=layers, **size, **settings)
    return Engine(transformers.T5ForConditionalGeneration(config).to("cuda", dtype).eval())


def kernels_of_step(gpu: Machine, engine: Engine) -> float:
    """Kernels of one decoding step, with a share of what comes before and after all steps."""
    states = torch.randn(3, 16, 32, device="cuda", dtype=engine.embedding.dtype)
    gpu.reset()
    engine.decode(EncoderStates(states, [16, 9, 12]), start=0, ends=[], most=CHECK_EVERY)
    return gpu.num_kernels / CHECK_EVERY


@pytest.mark.long
@pytest.mark.parametrize("settings", [{}, GATED], ids=["relu", "gated"])
@pytest.mark.parametrize("dtype", t5_engine.DTYPES, ids=str)
def test_a_decoder_layer_has_few_kernels(gpu: Machine, settings: dict[str, Any], dtype: torch.dtype) -> None:
    few, many = (kernels_of_step(gpu, engine_of(layers, dtype, settings)) for layers in (2, 4))
    assert 10 < (many - few) / 2 <= MAX_LAYER_KERNELS, gpu.counts.kernels


# --- memory


@pytest.fixture
def quick_collection() -> Iterator[None]:
    """Lets `gc.collect` pass over what there is by now: it is called whenever memory has run out."""
    gc.freeze()
    yield
    gc.unfreeze()


@pytest.mark.long
@pytest.mark.parametrize("asked", [ANSWER, GOLD_LIKELIHOOD], ids=lambda kind: kind.name)
@each([("fid", "t5"), ("causal", "llama")])
@pytest.mark.usefixtures("quick_collection")
def test_memory_that_runs_out_at_any_kernel_changes_no_output(
    folders: Folders, gpu: Machine, monkeypatch: pytest.MonkeyPatch, kind: str, name: str, asked: Kind
) -> None:
    # a request that is alone in its batch would be an error
    in_one_batch(monkeypatch)
    for module in (t5_engine, leaving):
        monkeypatch.setattr(module, "CHECK_EVERY", 2)
    requests = requests_to(kind, 4, [(asked, models.case_for(kind, max_new_tokens=4))])
    model = models.loaded(kind, folders(name))
    gpu.reset()
    expected = responses(model, requests)
    # the first kernels of lines of the package, and others: every second of them
    numbers = sorted({*gpu.first_kernels.values(), *range(0, gpu.num_kernels, gpu.num_kernels // 8)})
    for number in numbers[::2]:
        # it knows no batch that did not fit, and no start of prompts
        model._limits.clear()
        if isinstance(model, CausalModel):
            model.caches = KeyValueCaches(model.model)
        gpu.reset(fail_at=number)
        found = responses(model, requests)
        assert gpu.failed, number
        assert_same(found, expected)


@pytest.mark.long
@each([("fid", "t5"), ("causal", "llama")])
@pytest.mark.parametrize("asked", [ANSWER, GOLD_LIKELIHOOD], ids=lambda kind: kind.name)
def test_two_actors_with_half_a_gpu_each_have_room(
    folders: Folders, kind: str, name: str, asked: Kind
) -> None:
    total = (2 if kind == "fid" else 8) * MIB
    case = models.case_for(kind, max_new_tokens=4)
    requests = requests_to(kind, 30 if kind == "fid" else 6, [(asked, case)])
    expected, peaks = responses(models.loaded(kind, folders(name)), requests), list[int]()
    for _ in range(2):
        with pretended_gpu.pretended_gpu(total, others=sum(peaks)) as gpu:
            model = models.loaded(kind, folders(name))
            model.memory_share = 0.5
            limits, weights = model.limits(requests[0].form), gpu.memory.held
            found = responses(model, requests)
        assert_same(found, expected)
        # memory is what bounds the batches
        assert not limits.fit(len(found), max(one.num_prompt_tokens for one in found))
        assert weights + limits.tokens * model.memory_estimate(requests[0].form).token <= total // 2
        peaks.append(gpu.memory.peak)
    assert max(peaks) <= total // 2


# --- the thread beside


def test_what_the_thread_beside_prepares_touches_no_device(
    folders: Folders, gpu: Machine, monkeypatch: pytest.MonkeyPatch
) -> None:
    threads, arrange = set(), T5Model.arrange

    def noted(model: T5Model, prompts: Sequence[PromptTokens]) -> Passes | None:
        threads.add(threading.current_thread())
        return arrange(model, prompts)

    monkeypatch.setattr(T5Model, "arrange", noted)
    monkeypatch.setattr(T5Model, "window_tokens", 300)
    model, requests = models.loaded("fid", folders("t5")), requests_to("fid", 2)
    # an operation on the GPU would raise there
    assert len(responses(model, requests)) == len(requests)
    assert threads
    assert threading.current_thread() not in threads


def test_no_other_thread_can_use_the_gpu(gpu: Machine) -> None:
    tensor, errors = torch.zeros(2, device="cuda"), list[Exception]()

    def use(function: Callable[[], object]) -> None:
        try:
            function()
        except (RuntimeError, NotImplementedError) as error:
            errors.append(error)

    for function in (lambda: tensor + 1, lambda: torch.ones(2, device="cuda"), lambda: torch.ones(2).cuda()):
        thread = threading.Thread(target=use, args=[function])
        thread.start()
        thread.join()
    assert len(errors) == 3


# --- what the pretended GPU itself says


@pytest.mark.parametrize(
    ("function", "num_waits"),
    [
        (lambda x: x * 2 + x, 0),
        (lambda x: x.sum().item(), 1),
        (lambda x: x.tolist(), 1),
        (lambda x: x.cpu(), 1),
        (lambda x: bool((x > 0).any()), 1),
        (lambda x: x[x > 0], 1),
        (lambda x: x.nonzero(), 1),
        (lambda x: x[torch.tensor([0, 2])], 1),
        (lambda x: x[to_device(torch.tensor([0, 2]), x.device)], 0),
        (lambda x: torch.tensor([0, 2], device=x.device), 1),
        (lambda x: torch.zeros(2).to(x.device, non_blocking=True), 1),
        (lambda x: torch.zeros(2).pin_memory().to(x.device), 1),
        (lambda x: x.copy_(torch.zeros(4)), 1),
        (lambda x: torch.isin(x, x[:1]), 0),
        (lambda x: torch.isin(x, torch.zeros(64, device=x.device)), 1),
    ],
)
def test_waits_are_counted(gpu: Machine, function: Callable[[Tensor], object], num_waits: int) -> None:
    tensor = torch.arange(4.0, device="cuda")
    gpu.reset()
    with torch.inference_mode():
        function(tensor)
    assert sum(gpu.counts.waits.values()) == num_waits


def test_tensors_of_two_devices_do_not_meet(gpu: Machine) -> None:
    tensor = torch.zeros(2, device="cuda")
    assert (tensor + torch.tensor(1)).tolist() == [1, 1]
    for function in (lambda: tensor + torch.zeros(2), lambda: torch.cat([tensor, torch.zeros(2)])):
        with pytest.raises(RuntimeError, match="tensors on cuda:0, and on the cpu"):
            function()
    with pytest.raises(RuntimeError, match="numpy"):
        tensor.numpy()


def qkv(head: int, heads: int = 2, dtype: torch.dtype = torch.bfloat16) -> list[Tensor]:
    return [torch.zeros(3, count, 16, head, dtype=dtype) for count in (2, heads, heads)]


@pytest.mark.parametrize(
    ("tensors", "mask", "expected"),
    [
        (qkv(64), None, ("flash", "none")),
        (qkv(64, heads=1), None, ("flash", "none")),
        (qkv(512), None, ("efficient", "none")),
        (qkv(64, dtype=torch.float32), None, ("efficient", "none")),
        (qkv(12), torch.zeros(3, 1, 16, 16), ("math", "in place")),
        (qkv(64, heads=1), torch.zeros(3, 1, 16, 16), ("math", "in place")),
        ([tensor.mT for tensor in qkv(16)], torch.zeros(3, 1, 16, 16), ("math", "in place")),
        (qkv(64), torch.zeros(3, 1, 1, 16).expand(3, 2, 16, 16), ("efficient", "in place")),
        (qkv(64), torch.zeros(3, 1, 16, 20)[..., :16], ("efficient", "copied")),
        (qkv(64), torch.zeros(3, 1, 16, 16, dtype=torch.bool), ("efficient", "copied")),
    ],
)
def test_the_attention_kernel_of_an_a100(
    tensors: list[Tensor], mask: Tensor | None, expected: tuple[str, str]
) -> None:
    kernel, copies = expected
    found = attention(*tensors, attn_mask=mask)
    query, key, _ = tensors
    assert found == Attention(kernel, query.dtype, query.shape[-1], key.shape[-2], copies)


def test_memory_is_given_back(gpu: Machine) -> None:
    first = torch.zeros(MIB, dtype=torch.uint8, device="cuda")
    second = first[: MIB // 2].view(-1, 2)
    assert torch.cuda.memory_allocated() == gpu.memory.held == MIB
    del first
    assert gpu.memory.held == MIB
    del second
    assert gpu.memory.held == 0
    assert gpu.memory.peak == MIB
    assert torch.cuda.mem_get_info() == (gpu.memory.total,) * 2


def test_nothing_stays_when_the_gpu_is_gone() -> None:
    names = ("is_available", "device_count", "_lazy_init", "mem_get_info", "empty_cache")
    before = [getattr(torch.cuda, name) for name in names], Tensor.pin_memory, len(vars(Tensor))
    with pretended_gpu.pretended_gpu():
        assert torch.cuda.is_available()
        tensor = torch.zeros(2, device="cuda")
    assert before == ([getattr(torch.cuda, name) for name in names], Tensor.pin_memory, len(vars(Tensor)))
    with pytest.raises(RuntimeError, match="outside of"):
        tensor + 1
    assert not torch.accelerator.is_available()
    weights = torch.ones(2, requires_grad=True)
    (weights * 2).sum().backward()
    assert weights.grad is not None
