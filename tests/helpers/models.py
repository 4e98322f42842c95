"""Tiny random models in real Hugging Face folders: real loading, tokenising and decoding in milliseconds."""

import json
import pathlib
import random
from collections.abc import Collection, Sequence
from typing import Any

import gguf
import tokenizers
import torch
import transformers

from erag_ray.config.reader import JudgeConfig, ReaderConfig
from erag_ray.data.datasets.tasks import Dataset
from erag_ray.models import Model, make_model, model_class
from erag_ray.models.local.memory import BatchLimits, Limits
from erag_ray.models.local.model import LocalModel, Output, PromptTokens
from erag_ray.prompts.kinds.answer import ANSWER
from erag_ray.prompts.kinds.base import Case, Kind
from erag_ray.prompts.request import Form, Passage, Request

TEXT = """The river Tessel rises in the hills above Marn and flows north to the sea. Who built the first bridge over it?
The lighthouse at Skerry Point was lit in 1874; its lamp burned whale oil. When was it lit? Ada Brunner grew up in Graz
and became a surgeon. question: title: context: Question: Answer: Passage: Read the passages and answer the question
with a few words. yes no SUPPORTS REFUTES 1 2 3 4 5 6 7 8 9 0 < > | / _ ( ) , ; . ! - extra id end start im user s"""
WORDS = TEXT.split()
VOCABULARY = pathlib.Path(__file__).parents[1] / "golden" / "vocabulary.txt"
END, START, TOOL = "<|end|>", "<|start|>", "<tool>"
CHAT_TEMPLATE = (
    "{{ '<|start|>system\nYou are brief. Today is ' + strftime_now('%d %b %Y') + '.<|end|>\n' }}"
    "{% for m in messages %}{{ '<|start|>' + m['role'] + '\n' + m['content'] + '<|end|>\n' }}{% endfor %}"
    "{% if add_generation_prompt %}{{ '<|start|>assistant\n' }}{% endif %}"
)


def some_requests(form: Form, num: int, *, seed: int = 0, longest: int = 30) -> list[Request]:
    """Varied requests: 2 to 12 words, 0 to 4 passages of 0 to ``longest`` words, with and without a title."""
    rng = random.Random(seed)

    def words(low: int, high: int) -> str:
        return " ".join(rng.choices(WORDS, k=rng.randint(low, high)))

    return [
        Request(form, words(2, 12), tuple(Passage(words(0, 4), words(0, longest)) for _ in range(i % 5)))
        for i in range(num)
    ]


def t5_folder(
    folder: pathlib.Path, seed: int = 8, *, kind: str = "t5", tokenizer: Any = None, **settings: Any
) -> str:
    """A random T5 of two layers, saved as safetensors; ``kind`` and ``settings`` are those of transformers."""
    tokenizer = tokenizer or t5_tokenizer()
    size = {"d_model": 32, "d_kv": 8, "d_ff": 64, "num_layers": 2, "num_decoder_layers": 2, "num_heads": 4}
    ids = {"decoder_start_token_id": 0, "eos_token_id": 1, "pad_token_id": 0}
    config = transformers.AutoConfig.for_model(kind, vocab_size=len(tokenizer), **{**size, **ids, **settings})
    model = transformers.AutoModelForSeq2SeqLM.from_config(config)
    _randomise(model, seed, spread=1.2, ends=[1], factor=1.3)
    return _save(model, tokenizer, folder)


def t5_tokenizer() -> transformers.T5Tokenizer:
    """A unigram vocabulary made from `TEXT`."""
    words = {form for word in WORDS for form in (word, word.strip(".,;?"))}
    pieces = sorted({"▁" + word for word in words} | set(TEXT) - {"\n"})
    control = [("<pad>", 0.0), ("</s>", 0.0), ("<unk>", 0.0)]
    vocabulary = [*control, *((piece, -8.0 + len(piece)) for piece in pieces)]
    tokenizer = transformers.T5Tokenizer(vocab=vocabulary, extra_ids=10)
    tokenizer.backend_tokenizer.normalizer = tokenizers.normalizers.NFKC()  # as the real vocabulary has it
    return tokenizer


def causal_tokenizer(
    words: Sequence[str] = (), vocab_size: int = 700, **settings: Any
) -> transformers.PreTrainedTokenizerFast:
    """Byte-level BPE with control tokens, one added token that is not marked special, and a chat template.

    ``words`` become tokens of their own, as far as the vocabulary has room.
    """
    made = tokenizers.Tokenizer(tokenizers.models.BPE())
    made.normalizer = tokenizers.normalizers.NFKC()
    made.pre_tokenizer = tokenizers.pre_tokenizers.ByteLevel(add_prefix_space=False)
    made.decoder = tokenizers.decoders.ByteLevel()
    trainer = tokenizers.trainers.BpeTrainer(
        vocab_size=vocab_size,
        special_tokens=[END, START],
        initial_alphabet=tokenizers.pre_tokenizers.ByteLevel.alphabet(),
        show_progress=False,
    )
    # prompts as they were: thresholds of tests depend on the vocabulary
    texts = [TEXT, "one\n\n\ntwo", *VOCABULARY.read_text().splitlines()]
    made.train_from_iterator([*texts * 3, *list(words) * 50], trainer)
    made.add_tokens([TOOL])
    known = {"eos_token": END, "bos_token": START, **settings}
    tokenizer = transformers.PreTrainedTokenizerFast(tokenizer_object=made, **known)
    tokenizer.chat_template = CHAT_TEMPLATE
    return tokenizer


# every other layer sees 12 tokens only
GEMMA = {
    "sliding_window": 12,
    "layer_types": ["sliding_attention", "full_attention"],
    "tie_word_embeddings": False,
}


def causal_folder(
    folder: pathlib.Path,
    seed: int = 2,
    *,
    kind: str = "llama",
    tokenizer: transformers.PreTrainedTokenizerFast | None = None,
    **settings: Any,
) -> str:
    """A random decoder-only model of two layers; ``kind`` and ``settings`` are those of transformers."""
    tokenizer = tokenizer or causal_tokenizer()
    size = {"hidden_size": 32, "intermediate_size": 64, "num_hidden_layers": 2, "num_attention_heads": 4}
    rest = {"num_key_value_heads": 2, "head_dim": 8, "max_position_embeddings": 1024}
    ids = {"eos_token_id": 0, "bos_token_id": 1, "pad_token_id": None}
    config = transformers.AutoConfig.for_model(
        kind, vocab_size=len(tokenizer), **{**size, **rest, **ids, **settings}
    )
    model = transformers.AutoModelForCausalLM.from_config(config)
    breaks = [tokenizer.convert_tokens_to_ids(written) for written in ("Ċ", "ĊĊ")]
    _randomise(model, seed, spread=0.5, ends=[0, *breaks], factor=1.5)
    return _save(model, tokenizer, folder)


def _randomise(model: Any, seed: int, *, spread: float, ends: Sequence[int], factor: float) -> None:
    torch.manual_seed(seed)
    with torch.no_grad():
        for name, parameter in model.named_parameters():
            # large random weights: outputs that differ from prompt to prompt
            if "norm" not in name:
                parameter.copy_(torch.randn_like(parameter) * spread)
        # a long row wins more often: outputs of different lengths
        for id_ in ends:
            model.get_output_embeddings().weight[id_] *= factor


def _save(model: Any, tokenizer: Any, folder: pathlib.Path) -> str:
    transformers.utils.logging.disable_progress_bar()
    model.save_pretrained(folder)
    tokenizer.save_pretrained(folder)
    return str(folder)


def loaded(kind: str, folder: str, **settings: Any) -> Any:
    # matrices this small are many times faster on one thread when the machine is busy
    torch.set_num_threads(1)
    model = make_model(ReaderConfig(kind=kind, model=folder, **settings))
    model.load()
    return model


def case_for(
    kind: str, *, family: str = "question", judge: JudgeConfig | None = None, **settings: Any
) -> Case:
    """What a kind of question knows of a dataset and a job; ``settings`` are those of the reader."""
    return Case(
        dataset=Dataset(score="exact_match", family=family),
        reader=ReaderConfig(kind=kind, **{"max_new_tokens": 12, **settings}),
        judge=judge or JudgeConfig(),
        default_prompt=model_class(kind).default_prompt,
        scores_texts=model_class(kind).scores_texts,
    )


def form_for(kind: str, question_kind: Kind = ANSWER, **settings: Any) -> Form:
    """What the requests of one kind to a model share; ``settings`` as for `case_for`."""
    return question_kind.build(case_for(kind, **settings))


def outputs(model: Model, requests: Sequence[Request]) -> list[tuple[str, int]]:
    """Text and number of tokens for each request, in the order of the requests."""
    found = dict(model.run(requests))
    return [(str(found[place].text), found[place].num_output_tokens) for place in range(len(requests))]


def keep_to(model: LocalModel, form: Form, limits: Limits) -> None:
    """From now on its batches of this form keep these limits."""
    model._limits[form] = BatchLimits(limits)


class BareModel(LocalModel):
    """A model of no weights: words are tokens, and nothing is written."""

    def render(self, requests: Sequence[Request]) -> list[PromptTokens]:
        return [bare_prompt(request.form, len(request.question.split())) for request in requests]

    def generate(self, prompts: Sequence[PromptTokens]) -> list[Output]:
        return [Output("", 0) for _ in prompts]

    def loglikelihood(self, prompts: Sequence[PromptTokens]) -> list[list[float]]:
        return [[] for _ in prompts]

    def ends(self, form: Form) -> Collection[int]:
        return ()


def bare_prompt(form: Form, length: int) -> PromptTokens:
    return PromptTokens(form=form, segments=((0,) * length,))


def gguf_file(path: pathlib.Path) -> str:
    """A random Llama of one layer in a GGUF file, with the vocabulary of `causal_tokenizer`."""
    writer = gguf.GGUFWriter(path, "llama")
    size = {"block_count": 1, "context_length": 1024, "embedding_length": 32, "feed_forward_length": 64}
    heads = {"head_count": 4, "head_count_kv": 4, "layer_norm_rms_eps": 1e-5, "rope_freq_base": 10000.0}
    for key, number in {**size, **heads}.items():
        getattr(writer, f"add_{key}")(number)
    num_tokens = _write_vocabulary(writer)
    torch.manual_seed(0)
    square = {f"blk.0.attn_{part}.weight": (32, 32) for part in ("q", "k", "v", "output")}
    feed = {f"blk.0.ffn_{part}.weight": shape for part, shape in (("gate", (64, 32)), ("up", (64, 32)))}
    feed["blk.0.ffn_down.weight"] = (32, 64)
    norms = {f"{name}.weight": (32,) for name in ("blk.0.attn_norm", "blk.0.ffn_norm", "output_norm")}
    words = dict.fromkeys(("token_embd.weight", "output.weight"), (num_tokens, 32))
    for name, shape in {**words, **square, **feed, **norms}.items():
        writer.add_tensor(name, (torch.randn(shape) * 0.5).numpy())
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    return str(path)


def _write_vocabulary(writer: gguf.GGUFWriter) -> int:
    tokenizer = causal_tokenizer()
    merges = json.loads(tokenizer.backend_tokenizer.to_str())["model"]["merges"]
    tokens = tokenizer.convert_ids_to_tokens(list(range(len(tokenizer))))
    kinds = [3 if token in (END, START) else 1 for token in tokens]
    writer.add_vocab_size(len(tokens))
    writer.add_tokenizer_model("gpt2")
    writer.add_tokenizer_pre("default")
    writer.add_token_list(tokens)
    writer.add_token_types(kinds)
    writer.add_token_merges([" ".join(pair) for pair in merges])
    writer.add_eos_token_id(0)
    writer.add_bos_token_id(1)
    return len(tokens)
