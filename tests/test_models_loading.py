"""Where models come from, and what is refused before weights are read."""

import json
import pathlib
import shutil
from typing import Any

import huggingface_hub
import models
import pytest
import safetensors.torch
import torch
import transformers

from erag_ray.config.job import JobConfig
from erag_ray.config.reader import ReaderConfig
from erag_ray.data.datasets.tasks import Dataset
from erag_ray.inference.actor import ModelActor
from erag_ray.inference.in_process import LocalReader
from erag_ray.inference.planning.uses import use_of
from erag_ray.models import make_model, model_id
from erag_ray.prompts.kinds.answer import ANSWER
from erag_ray.store.stages.lock import job_memory
from erag_ray.support.errors import InputError

FORMS = {kind: models.form_for(kind) for kind in ("fid", "ipa", "causal")}
REQUESTS = {kind: models.some_requests(form, 20, seed=5) for kind, form in FORMS.items()}


@pytest.fixture
def t5_copy(t5: str, tmp_path: pathlib.Path) -> pathlib.Path:
    return pathlib.Path(shutil.copytree(t5, tmp_path / "copy"))


def refuse(match: str, model: object, kind: str = "fid") -> None:
    with pytest.raises(InputError, match=match):
        make_model(ReaderConfig(kind=kind, model=str(model)))


def change(file: pathlib.Path, *gone: str, **new: Any) -> None:
    old = json.loads(file.read_text())
    file.write_text(json.dumps({name: old[name] for name in old if name not in gone} | new))


# --- where models come from


def test_a_file_in_a_package_is_found_without_running_the_package(
    t5: str, tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    package = tmp_path / "carries_a_model"
    shutil.copytree(t5, package / "tiny")
    (package / "__init__.py").write_text("raise RuntimeError('the package was run')\n")
    monkeypatch.syspath_prepend(tmp_path)
    found = make_model(ReaderConfig(kind="fid", model="package:carries_a_model/tiny"))
    assert model_id(found) == model_id(make_model(ReaderConfig(kind="fid", model=t5)))
    same = make_model(ReaderConfig(kind="fid", model="package:carries-a-model/tiny"))
    assert same.fingerprint_fields() == found.fingerprint_fields()
    refuse("the Python package carries_a_model holds no other.gguf", "package:carries_a_model/other.gguf")
    for name in ("carries_a_model.tiny", "no_such_package", ""):
        refuse(f"no Python package that is imported as '{name}' is installed", f"package:{name}/x.gguf")


def test_a_missing_folder_or_file_is_named(tmp_path: pathlib.Path) -> None:
    refuse(f"there is no folder {tmp_path}/absent", tmp_path / "absent")
    refuse(f"there is no file {tmp_path}/absent.gguf", tmp_path / "absent.gguf", kind="causal")


def test_a_hub_model_that_is_not_at_hand_is_named(
    tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(huggingface_hub.constants, "HF_HUB_OFFLINE", True)
    monkeypatch.setattr(huggingface_hub.constants, "HF_HUB_CACHE", str(tmp_path))
    refuse(
        "nobody/no-such-model is neither a folder nor a hub model that can be downloaded",
        "nobody/no-such-model",
    )
    refuse("not a name is neither a folder nor a hub model", "not a name")


def test_a_gguf_file_is_read(tmp_path: pathlib.Path) -> None:
    file = models.gguf_file(tmp_path / "tiny.gguf")
    model = models.loaded("causal", file)
    outputs = models.outputs(model, REQUESTS["causal"])
    assert len({text for text, _ in outputs}) > 10
    assert model.model.dtype == torch.float32
    assert list(model.source.digests()) == ["tiny.gguf"]
    refuse(f"has no weights in safetensors form; for GGUF name the file itself, such as {file}", tmp_path)


# --- what is refused


def test_pickled_weights_are_refused(t5_copy: pathlib.Path) -> None:
    torch.save({}, t5_copy / "pytorch_model.bin")
    (t5_copy / "model.safetensors").unlink()
    refuse("has no weights in safetensors form; pickled weights .* can run code and are not read", t5_copy)


def test_a_folder_without_a_tokenizer_or_a_config_is_refused(t5_copy: pathlib.Path) -> None:
    # the library itself would go on with an empty vocabulary
    tokenizer = (t5_copy / "tokenizer.json").rename(t5_copy / "aside")
    refuse("no tokenizer in", t5_copy)
    tokenizer.rename(t5_copy / "tokenizer.json")
    (t5_copy / "config.json").unlink()
    refuse("no model config in", t5_copy)
    (t5_copy / "config.json").write_text("{")
    refuse("no model config in", t5_copy)
    (t5_copy / "adapter_config.json").write_text("{}")
    refuse("has an adapter, which would not be used; merge it into its base model", t5_copy)


def test_a_model_of_the_wrong_kind_is_refused(t5: str, llama: str, t5_copy: pathlib.Path) -> None:
    refuse("has a llama model, not an encoder-decoder", llama, kind="fid")
    refuse("has a llama model, not an encoder-decoder", llama, kind="ipa")
    refuse("has a t5 model, not a decoder-only model", t5, kind="causal")
    # transformers would load these, or their engine has no estimate of its memory
    change(t5_copy / "config.json", model_type="bart", architectures=["BartForConditionalGeneration"])
    refuse("has a bart model, not an encoder-decoder .*: t5, mt5, umt5, longt5", t5_copy)
    for model_type, head in (("bert", "BertForMaskedLM"), ("qwen2", "Qwen2ForSequenceClassification")):
        change(t5_copy / "config.json", is_encoder_decoder=False, model_type=model_type, architectures=[head])
        refuse(f"has a {head}, not a decoder-only model", t5_copy, kind="causal")


def test_missing_weights_are_not_replaced_by_random_ones(t5_copy: pathlib.Path) -> None:
    file = t5_copy / "model.safetensors"
    weights = safetensors.torch.load_file(file)
    name = next(name for name in weights if name.startswith("decoder.block.1"))
    del weights[name]
    safetensors.torch.save_file(weights, file, metadata={"format": "pt"})
    model = make_model(ReaderConfig(kind="fid", model=str(t5_copy)))
    with pytest.raises(InputError, match=f"lacks weights: .*{name}"):
        model.load()


def test_code_in_a_model_is_never_run(t5_copy: pathlib.Path, tmp_path: pathlib.Path) -> None:
    trace = tmp_path / "code_was_run"
    (t5_copy / "evil.py").write_text(f"open({str(trace)!r}, 'w')\nclass Evil: pass\n")
    (t5_copy / "custom_generate").mkdir()
    shutil.copy(t5_copy / "evil.py", t5_copy / "custom_generate" / "generate.py")
    autos = ("AutoConfig", "AutoModelForSeq2SeqLM")
    change(t5_copy / "config.json", auto_map=dict.fromkeys(autos, "evil.Evil"))
    change(t5_copy / "tokenizer_config.json", auto_map={"AutoTokenizer": ["evil.Evil", "evil.Evil"]})
    # a known type: its class of the library is used
    assert models.outputs(models.loaded("fid", str(t5_copy)), REQUESTS["fid"][:2])
    change(t5_copy / "config.json", model_type="unheard_of")
    refuse("no model config in", t5_copy)
    assert not trace.exists()


# --- settings of models


@pytest.mark.parametrize("kind", ["fid", "ipa", "causal"])
def test_generation_settings_of_the_model_are_not_used(
    folders: dict[str, str], tmp_path: pathlib.Path, kind: str
) -> None:
    folder = folders[kind]
    copy = pathlib.Path(shutil.copytree(folder, tmp_path / "copy"))
    own = {"do_sample": True, "temperature": 5.0, "num_beams": 3, "repetition_penalty": 3.0}
    own |= {"no_repeat_ngram_size": 1, "max_length": 4, "min_new_tokens": 10, "decoder_start_token_id": 9}
    own |= {"forced_bos_token_id": 7, "forced_eos_token_id": 5, "suppress_tokens": [40, 41, 42, 43, 44, 45]}
    (copy / "generation_config.json").write_text(json.dumps(own))
    plain = models.outputs(models.loaded(kind, folder), REQUESTS[kind])
    assert models.outputs(models.loaded(kind, str(copy)), REQUESTS[kind]) == plain


def test_a_t5_config_without_token_ids_uses_those_of_the_tokenizer(t5: str, t5_copy: pathlib.Path) -> None:
    for name in ("config.json", "generation_config.json"):
        change(t5_copy / name, "decoder_start_token_id", "eos_token_id", "pad_token_id")
    # decoding starts with <pad>, as T5's does
    plain = models.outputs(models.loaded("fid", t5), REQUESTS["fid"])
    assert models.outputs(models.loaded("fid", str(t5_copy)), REQUESTS["fid"]) == plain


# --- models and tokenizers that lack something


@pytest.mark.parametrize("kind", ["fid", "ipa", "causal"])
def test_a_model_that_is_set_to_keep_no_cache_writes_the_same(tmp_path: pathlib.Path, kind: str) -> None:
    make = models.causal_folder if kind == "causal" else models.t5_folder
    with_cache, without = make(tmp_path / "with"), make(tmp_path / "without", use_cache=False)
    model = models.loaded(kind, without)
    assert model.model.config.use_cache is False
    assert models.outputs(model, REQUESTS[kind]) == models.outputs(
        models.loaded(kind, with_cache), REQUESTS[kind]
    )


@pytest.mark.parametrize("dtype", ["float32", "float16"])
@pytest.mark.parametrize("kind", ["fid", "ipa"])
def test_a_t5_tokenizer_without_a_padding_token(
    t5: str, tmp_path: pathlib.Path, kind: str, dtype: Any
) -> None:
    whole = models.t5_tokenizer()
    bare = transformers.PreTrainedTokenizerFast(
        tokenizer_object=whole.backend_tokenizer, eos_token="</s>", unk_token="<unk>"
    )
    assert bare.pad_token_id is None
    folder = models.t5_folder(tmp_path, tokenizer=bare, pad_token_id=None)
    model = models.loaded(kind, folder, dtype=dtype)
    expected = models.outputs(models.loaded(kind, t5, dtype=dtype), REQUESTS[kind])
    assert models.outputs(model, REQUESTS[kind]) == expected


@pytest.mark.parametrize("kind", ["fid", "ipa", "causal"])
def test_a_model_without_an_end_token_writes_all_its_tokens(tmp_path: pathlib.Path, kind: str) -> None:
    if kind == "causal":
        tokenizer, make = models.causal_tokenizer(eos_token=None), models.causal_folder
    else:
        words, make = models.t5_tokenizer().backend_tokenizer, models.t5_folder
        tokenizer = transformers.PreTrainedTokenizerFast(tokenizer_object=words, unk_token="<unk>")
    model = models.loaded(kind, make(tmp_path, tokenizer=tokenizer, eos_token_id=None))
    requests = models.some_requests(models.form_for(kind, stop_at_newline=False), 20, seed=5)
    assert {num for _, num in models.outputs(model, requests)} == {12}
    alone = [model.generate([prompt])[0][:2] for prompt in model.render(requests)]
    assert alone == models.outputs(model, requests)


# --- ids and the rows of the embedding


@pytest.mark.parametrize("kind", ["fid", "ipa", "causal"])
def test_a_padding_token_without_a_row_is_not_fed(
    folders: dict[str, str], tmp_path: pathlib.Path, kind: str
) -> None:
    folder = folders[kind]
    expected = models.outputs(models.loaded(kind, folder), REQUESTS[kind])
    tokenizer = transformers.AutoTokenizer.from_pretrained(folder)
    # as fine-tuned models have it: added to the tokenizer, the embedding left as it was
    tokenizer.add_special_tokens({"pad_token": "<padding>"})
    copy = pathlib.Path(shutil.copytree(folder, tmp_path / "padded"))
    tokenizer.save_pretrained(copy)
    model = models.loaded(kind, str(copy))
    assert model.tokenizer.pad_token_id >= model.settings.vocab_size
    assert models.outputs(model, REQUESTS[kind]) == expected


@pytest.mark.parametrize("kind", ["fid", "causal"])
def test_a_tokenizer_with_more_tokens_than_the_model_has_rows_is_refused(
    folders: dict[str, str], tmp_path: pathlib.Path, kind: str
) -> None:
    copy = pathlib.Path(shutil.copytree(folders[kind], tmp_path / "copy"))
    change(copy / "config.json", vocab_size=20)
    refuse(r"token '.*' has id 20, but the model's embedding has 20 rows; use the tokenizer", copy, kind=kind)


def test_a_control_token_of_a_chat_template_needs_a_row(llama: str, tmp_path: pathlib.Path) -> None:
    copy = pathlib.Path(shutil.copytree(llama, tmp_path / "copy"))
    tokenizer = transformers.AutoTokenizer.from_pretrained(llama)
    tokenizer.add_special_tokens({"additional_special_tokens": ["<|new|>"]})
    tokenizer.chat_template = "<|new|>{% for m in messages %}{{ m['content'] }}{% endfor %}"
    tokenizer.save_pretrained(copy)
    model = make_model(ReaderConfig(kind="causal", model=str(copy)))
    model.check(models.form_for("causal"))
    with pytest.raises(InputError, match=r"token '<\|new\|>' has id \d+, but the model's embedding has"):
        model.check(models.form_for("causal", prompt="chat"))


def test_a_model_that_is_trained_again_in_its_folder_is_another_one_in_the_next_job(
    tmp_path: pathlib.Path,
) -> None:
    config = JobConfig(reader=ReaderConfig(kind="causal", model=models.causal_folder(tmp_path)))

    def in_a_job() -> str:
        with job_memory():
            (first, model), (again, same) = (use_of(ANSWER, config, Dataset()) for _ in range(2))
        # the steps of a job load it once
        assert model is same
        assert first.model == again.model
        return first.model

    assert in_a_job() == (before := in_a_job())
    models.causal_folder(tmp_path, seed=3)
    assert in_a_job() != before


def test_the_stages_of_a_job_in_one_process_load_a_model_once(
    tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    loaded = []
    monkeypatch.setattr(
        ModelActor, "_load", lambda self, config, model, share: loaded.append(model) or object()
    )

    def load_twice() -> bool:
        reader = LocalReader.__new__(LocalReader)
        return reader._load(ReaderConfig(), "m", 1.0) is reader._load(ReaderConfig(), "m", 1.0)

    with job_memory():
        assert load_twice()
    assert not load_twice()
    assert loaded == ["m"] * 3
