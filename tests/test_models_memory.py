"""Batches as large as memory has room for, and what happens where it had not: outputs stay, one request alone fails."""

import ctypes
import pathlib
import subprocess
import sys
from collections.abc import Callable, Sequence
from typing import Any

import models
import pytest
import torch
import transformers
from held_memory import HeldMemory
from hypothesis import given, settings
from hypothesis import strategies as st

from erag_ray.config.reader import ReaderConfig
from erag_ray.models import make_model
from erag_ray.models.causal.model import CausalModel
from erag_ray.models.local import memory
from erag_ray.models.local.model import LocalModel, Output, PromptTokens
from erag_ray.models.local.process import KEPT_BYTES
from erag_ray.models.t5.engine import CPU_PASS
from erag_ray.models.t5.model import T5Model
from erag_ray.prompts.kinds.answer import ANSWER
from erag_ray.prompts.kinds.base import Kind
from erag_ray.prompts.kinds.likelihood import GOLD_LIKELIHOOD
from erag_ray.prompts.kinds.relevance import RELEVANCE
from erag_ray.prompts.request import Form, Passage, Request

CPU, GPU = torch.device("cpu"), torch.device("cuda", 0)
GIB = 2**30
KINDS = ("fid", "ipa", "causal")
FORMS = {kind: models.form_for(kind) for kind in KINDS}
REQUESTS = {kind: models.some_requests(form, 24, seed=4) for kind, form in FORMS.items()}
Loaded = dict[str, LocalModel]
Expected = dict[str, list[tuple[str, int]]]


@pytest.fixture(scope="module")
def loaded(folders: dict[str, str]) -> Loaded:
    return {kind: models.loaded(kind, folders[kind]) for kind in KINDS}


@pytest.fixture(scope="module")
def alone(loaded: Loaded) -> Expected:
    found = {}
    for kind, model in loaded.items():
        models.keep_to(model, FORMS[kind], memory.Limits(rows=1, tokens=1))
        found[kind] = models.outputs(model, REQUESTS[kind])
        assert len(set(found[kind])) > 15
    return found


def with_room(model: LocalModel, room: int) -> Callable[[Sequence[PromptTokens]], list[Output]]:
    """Its ``generate``, for which memory runs out above so many tokens, padding included."""

    def generate(prompts: Sequence[PromptTokens]) -> list[Output]:
        if len(prompts) * max(prompt.length for prompt in prompts) > room:
            raise MemoryError
        return list(type(model).generate(model, prompts))

    return generate


# --- any batches, the same outputs ---


@pytest.mark.long
@pytest.mark.parametrize("kind", KINDS)
@settings(max_examples=12)
@given(
    rows=st.integers(1, 40),
    tokens=st.integers(1, 6000),
    room=st.integers(1200, 6000),
    places=st.permutations(range(24)),
    count=st.integers(1, 24),
)
def test_no_batch_order_or_room_changes_an_output(
    loaded: Loaded,
    alone: Expected,
    kind: str,
    rows: int,
    tokens: int,
    room: int,
    places: list[int],
    count: int,
) -> None:
    model, some = loaded[kind], places[:count]
    models.keep_to(model, FORMS[kind], memory.Limits(rows, tokens))
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(model, "generate", with_room(model, room))
        found = models.outputs(model, [REQUESTS[kind][place] for place in some])
    assert found == [alone[kind][place] for place in some]


# --- limits after a batch that did not fit ---


def test_limits_recover_after_batches_that_did_fit() -> None:
    limits = memory.BatchLimits(memory.Limits(rows=64, tokens=1000, row_tokens=10))
    limits.shrink(rows=4, longest=90)
    assert limits.now == memory.Limits(64, 400, 10)
    for _ in range(memory.FIRST_PATIENCE):
        assert limits.now.tokens == 400
        limits.count_good()
    assert limits.now.tokens == 800
    for _ in range(memory.FIRST_PATIENCE):
        limits.count_good()
    assert limits.now == limits.most == memory.Limits(64, 1000, 10)


def test_limits_that_were_too_large_again_recover_more_slowly() -> None:
    limits = memory.BatchLimits(memory.Limits(rows=64, tokens=1000))
    limits.shrink(rows=4, longest=100)
    for _ in range(2 * memory.FIRST_PATIENCE):
        limits.count_good()
    assert limits.now == limits.most
    limits.shrink(rows=4, longest=50)
    for _ in range(2 * memory.FIRST_PATIENCE - 1):
        limits.count_good()
    assert limits.now.tokens == 200
    limits.count_good()
    assert limits.now.tokens == 400
    # never more than what did not fit, rounded down to half of it
    limits.shrink(rows=8, longest=100)
    assert limits.now.tokens == 400


@pytest.mark.long
def test_one_large_batch_does_not_make_all_that_follow_small(
    loaded: Loaded, monkeypatch: pytest.MonkeyPatch
) -> None:
    model, form, sizes = loaded["fid"], FORMS["fid"], list[int]()
    models.keep_to(model, form, memory.Limits(rows=8, tokens=1 << 20))
    failing = [True]

    def generate(prompts: Sequence[PromptTokens]) -> list[Output]:
        if failing.pop() if failing else False:
            raise torch.OutOfMemoryError("CUDA out of memory")
        sizes.append(len(prompts))
        return list(T5Model.generate(model, prompts))  # type: ignore[arg-type]

    monkeypatch.setattr(model, "generate", generate)
    requests = [Request(form, f"Who built it {number}?") for number in range(400)]
    assert len(models.outputs(model, requests)) == 400
    assert sizes[:2] == [4, 4]
    assert max(sizes[: memory.FIRST_PATIENCE]) <= 5
    assert sizes[-2] == 8


# --- what a batch takes ---

HEADS = {"num_attention_heads": 8, "num_key_value_heads": 2, "head_dim": 32}
SCALED = {"hidden_size": 256, "intermediate_size": 896, **HEADS}
"""Llama-3-8B's shape, at a sixteenth of its width."""


@pytest.mark.long
@pytest.mark.parametrize("dtype", ["float32", "bfloat16"])
@pytest.mark.parametrize(
    ("asked", "new_tokens", "layers"), [(ANSWER, 20, 4), (ANSWER, 90, 8), (GOLD_LIKELIHOOD, 20, 4)]
)
def test_the_estimate_of_a_causal_batch_is_its_peak_and_a_little_more(
    tmp_path: pathlib.Path, asked: Kind, new_tokens: int, layers: int, dtype: str
) -> None:
    folder = models.causal_folder(tmp_path, num_hidden_layers=layers, **SCALED)
    model = models.loaded("causal", folder, dtype=dtype)
    form = models.form_for("causal", asked, max_new_tokens=new_tokens, num_examples=1, max_prompt_tokens=256)
    answers = ("the bridge", "Graz") if asked is GOLD_LIKELIHOOD else ()
    request = Request(form, "Who built it?", (Passage("T", "river hills " * 200),), answers)
    prompts = model.render([request] * 7)
    compute = model.loglikelihood if asked is GOLD_LIKELIHOOD else model.generate
    compute(prompts[:1])  # reads the shared start, which stays
    with HeldMemory() as held:
        compute(prompts)
    needs, rows = model.memory_estimate(form), len(prompts) * (2 if asked is GOLD_LIKELIHOOD else 1)
    estimate = rows * (prompts[0].length * needs.token + needs.row)
    assert held.peak < estimate < 1.5 * held.peak


def test_a_40_gb_gpu_takes_as_many_prompts_of_an_8b_model_as_fit() -> None:
    shape = {"hidden_size": 4096, "intermediate_size": 14336, "num_hidden_layers": 32, "vocab_size": 128_256}
    with torch.device("meta"):
        config = transformers.LlamaConfig(num_attention_heads=32, num_key_value_heads=8, **shape)
        model = transformers.LlamaForCausalLM(config).to(torch.bfloat16)
    weights = sum(parameter.numel() * 2 for parameter in model.parameters())
    room = int((39 * GIB - weights) * memory.GPU_SHARE)
    limits = memory.largest_batch(
        room, memory.causal_memory_estimate(model, new_tokens=50, length=500), memory.Limits(512, 1 << 40)
    )
    # keys and values of 550 tokens take 72 MB: 250 such prompts, if nothing else took any
    assert 110 < limits.rows_of(500) < 250


# --- how much fits ---


@given(
    room=st.integers(0, 10**9),
    token=st.integers(1, 10**6),
    row=st.integers(1, 10**6),
    rows=st.integers(1, 2000),
    tokens=st.integers(1, 10**9),
)
def test_the_largest_batch_fits_and_one_more_does_not(
    room: int, token: int, row: int, rows: int, tokens: int
) -> None:
    found = memory.largest_batch(room, memory.MemoryEstimate(token, row), memory.Limits(rows, tokens))
    assert 1 <= found.rows <= rows
    for longest in (1, 7, 250, 4096):
        fitting = found.rows_of(longest)
        assert 1 <= fitting <= found.rows
        if found.fit(fitting, longest) and fitting > 1:
            assert fitting * (row + longest * token) <= room
        more = fitting + 1
        if more <= rows and more * (longest + found.row_tokens) <= tokens:
            assert not found.fit(more, longest)
            # what a request takes is counted in whole tokens
            assert more * (row + longest * token) > room - (more + 1) * token
    assert found.fit(1, 1)


def test_a_container_bounds_the_memory_of_its_machine(
    tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(memory, "CONTAINER_LIMITS", [str(tmp_path / "none")])
    whole = memory.machine_bytes()
    assert whole > 100 * 2**20
    monkeypatch.setattr(memory, "CONTAINER_LIMITS", [str(tmp_path / "limit")])
    for text, expected in (("max\n", whole), ("1048576\n", 1048576), (f"{2**63}\n", whole)):
        (tmp_path / "limit").write_text(text)
        assert memory.machine_bytes() == expected
    (tmp_path / "limit").write_text(f"{64 * 2**20}")
    assert memory.room_on(CPU, 1.0) == 16 * 2**20
    assert memory.room_on(CPU, 0.25) == 4 * 2**20


@pytest.mark.parametrize(
    ("share", "free", "allocated", "reserved", "room"),
    [
        (1.0, 70, 10, 10, 56.0),
        # what the allocator keeps can be had again
        (1.0, 60, 10, 20, 56.0),
        # a quarter of 80, of which the weights take 5
        (0.25, 75, 5, 5, 12.0),
        # another reader has taken more than its part
        (0.5, 3, 5, 5, 2.4),
        (0.25, 60, 20, 20, 0.0),
    ],
)
def test_the_room_on_a_gpu_is_what_is_free_of_a_readers_share(
    monkeypatch: pytest.MonkeyPatch, share: float, free: int, allocated: int, reserved: int, room: float
) -> None:
    monkeypatch.setattr(torch.cuda, "mem_get_info", lambda device: (free * GIB, 80 * GIB))
    monkeypatch.setattr(torch.cuda, "memory_allocated", lambda device: allocated * GIB)
    monkeypatch.setattr(torch.cuda, "memory_reserved", lambda device: reserved * GIB)
    assert memory.room_on(GPU, share) == pytest.approx(room * GIB)


def limits_of(model: LocalModel, form: Form, share: float = 1.0, **limits: int) -> memory.Limits:
    fresh: Any = make_model(ReaderConfig(kind=model.config.kind, model=model.config.model, **limits))
    fresh.memory_share = share
    fresh.load()
    found: memory.Limits = fresh.limits(form)
    return found


@pytest.mark.parametrize("kind", KINDS)
def test_what_is_configured_goes_before_what_fits(loaded: Loaded, kind: str) -> None:
    model, form = loaded[kind], FORMS[kind]
    assert limits_of(model, form, batch_size=3, batch_tokens=99) == memory.Limits(3, 99)
    assert limits_of(model, form, batch_size=3).rows == 3
    assert limits_of(model, form, batch_tokens=99).tokens == 99


@pytest.mark.long
@pytest.mark.parametrize(
    ("kind", "asked"),
    [
        *((kind, ANSWER) for kind in KINDS),
        ("fid", GOLD_LIKELIHOOD),
        ("causal", GOLD_LIKELIHOOD),
        ("causal", RELEVANCE),
    ],
    ids=lambda part: part.name if isinstance(part, Kind) else part,
)
def test_less_memory_means_smaller_batches(
    loaded: Loaded, monkeypatch: pytest.MonkeyPatch, kind: str, asked: Kind
) -> None:
    model, form, found = loaded[kind], models.form_for(kind, asked), []
    for megabytes in (4000, 400, 40, 4, 0):
        monkeypatch.setattr(memory, "machine_bytes", lambda size=megabytes * 2**20: size)
        found.append(limits_of(model, form))
    assert found == sorted(found, reverse=True)
    assert found[0].rows == (128 if isinstance(model, T5Model) else 32)
    assert found[-1].rows_of(1) == 1
    assert found[-1].rows == 1
    monkeypatch.setattr(memory, "machine_bytes", lambda: 40 * 2**20)
    assert found[2].rows_of(5) > limits_of(model, form, share=0.1).rows_of(5) > 1


def test_models_without_weights_have_fixed_batches() -> None:
    form = models.form_for("echo")
    assert models.BareModel(ReaderConfig(kind="echo")).limits(form) == memory.Limits(32, 16384)


@pytest.mark.parametrize("kind", ["fid", "causal"])
def test_what_needs_more_gets_less(loaded: Loaded, kind: str) -> None:
    def needs(max_new_tokens: int = 12, **changes: Any) -> memory.MemoryEstimate:
        model = models.loaded(kind, str(loaded[kind].config.model), **changes)
        assert isinstance(model, T5Model | CausalModel)
        return model.memory_estimate(models.form_for(kind, max_new_tokens=max_new_tokens))

    assert needs(max_new_tokens=100).row > needs(max_new_tokens=10).row
    assert needs(dtype="bfloat16").token < needs(dtype="float32").token


def test_a_pass_of_the_encoder_has_room_too(t5: str, monkeypatch: pytest.MonkeyPatch) -> None:
    passes = []
    for megabytes in (4000, 40, 0):
        monkeypatch.setattr(memory, "machine_bytes", lambda size=megabytes * 2**20: size)
        model = models.loaded("fid", t5)
        passes.append(model.pass_tokens([FORMS["fid"]]))
        assert models.outputs(model, REQUESTS["fid"][:4])
    assert passes[0] > passes[1] > passes[2] == 1


def test_a_pass_keeps_its_widest_piece_small_enough_to_be_kept(loaded: Loaded) -> None:
    model: Any = loaded["fid"]
    own = model.engine.widest
    assert own == 3 * 4 * 8
    tokens = {}
    for widest in (own, 5000, 9_000_000):
        model.engine.widest = widest
        tokens[widest] = model.engine.pass_tokens(1 << 30)
    model.engine.widest = own
    assert tokens == {own: CPU_PASS, 5000: (KEPT_BYTES - 1) // (5000 * 4), 9_000_000: 1}


HELD = """
import mmap
from erag_ray.models.local.process import peak_resident_bytes

shared = mmap.mmap(-1, 600 << 20)
before = peak_resident_bytes()
for _ in range(600):
    shared.write(bytes(1 << 20))
with_shared = peak_resident_bytes()
own = bytearray(b"1") * (600 << 20)
print(before >> 20, with_shared >> 20, peak_resident_bytes() >> 20)
"""


def test_what_a_process_held_is_without_memory_that_it_shares() -> None:
    found = subprocess.run([sys.executable, "-c", HELD], capture_output=True, text=True, check=True)
    before, with_shared, with_own = map(int, found.stdout.split())
    assert with_shared < before + 20
    assert with_own > before + 400


PIECES = """
import ctypes
import torch
from erag_ray.models.local.memory import reusable
from erag_ray.models.local.process import keep_freed_memory

class Heap(ctypes.Structure):
    _fields_ = [(name, ctypes.c_size_t) for name in ("arena", *"abcdefghi")]

def held():
    libc.mallinfo2.restype = Heap
    return libc.mallinfo2().arena

libc = ctypes.CDLL(None)
keep_freed_memory()
shape, like, kept = (1 << 17, 15), torch.zeros(1), []
before = held()
for _ in range(20):
    piece = reusable(shape, like)
    # small things come to lie around it and stay
    kept.append([torch.empty(50_000), *(libc.malloc(24) for _ in range(1000))])
    del piece
print((held() - before) / (4 * shape[0] * shape[1]))
"""


@pytest.mark.long
@pytest.mark.skipif(not hasattr(ctypes.CDLL(None), "mallinfo2"), reason="of glibc's allocator")
def test_a_piece_of_memory_can_be_taken_again() -> None:
    found = subprocess.run([sys.executable, "-c", PIECES], capture_output=True, check=True)
    # twenty of them, where torch takes it
    assert float(found.stdout) < 3


@given(
    shape=st.lists(st.integers(0, 5), max_size=4),
    dtype=st.sampled_from([torch.float32, torch.bfloat16, torch.int64]),
)
def test_reusable_memory_is_a_tensor_like_any(shape: list[int], dtype: torch.dtype) -> None:
    like = torch.zeros(1, dtype=dtype)
    found, expected = memory.reusable(shape, like), like.new_empty(shape)
    assert (found.shape, found.dtype, found.stride()) == (expected.shape, dtype, expected.stride())
    assert torch.equal(found.fill_(3), expected.fill_(3))
