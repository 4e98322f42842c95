"""Tiny random models in real Hugging Face folders: real loading, tokenising and decoding in milliseconds."""

from __future__ import annotations

import pathlib

import tokenizers
import torch
import transformers

TEXT = """The river Tessel rises in the hills above Marn and flows north to the sea. Who built the first bridge over it?
The lighthouse at Skerry Point was lit in 1874; its lamp burned whale oil. When was it lit? Ada Brunner grew up in Graz
and became a surgeon. question: title: context: Question: Answer: Passage: Read the passages and answer the question
with a few words. yes no SUPPORTS REFUTES 1 2 3 4 5 6 7 8 9 0 < > | / _ ( ) , ; . ! - extra id end start im user s"""


def t5_folder(folder: pathlib.Path, seed: int = 0) -> str:
    """A random T5 of two layers with a unigram vocabulary made from `TEXT`, saved as safetensors."""
    pieces = sorted({"▁" + word for word in TEXT.split()} | set(TEXT) | {"▁"})
    vocabulary = [("<pad>", 0.0), ("</s>", 0.0), ("<unk>", 0.0), *((piece, -8.0 + len(piece)) for piece in pieces)]
    tokenizer = transformers.T5Tokenizer(vocab=vocabulary, extra_ids=10)
    torch.manual_seed(seed)
    size = {"d_model": 32, "d_kv": 8, "d_ff": 64, "num_layers": 2, "num_decoder_layers": 2, "num_heads": 4}
    config = transformers.T5Config(
        vocab_size=len(tokenizer), **size, decoder_start_token_id=0, eos_token_id=1, pad_token_id=0
    )
    model = transformers.T5ForConditionalGeneration(config)
    with torch.no_grad():
        for parameter in model.parameters():
            # large random weights: outputs that differ from prompt to prompt and end at different lengths
            parameter.copy_(torch.randn_like(parameter) * 0.35)
    return _save(model, tokenizer, folder)


def causal_folder(folder: pathlib.Path, seed: int = 0) -> str:
    """A random Llama of two layers with a byte-level vocabulary, control tokens and a chat template."""
    made = tokenizers.Tokenizer(tokenizers.models.BPE())
    made.pre_tokenizer = tokenizers.pre_tokenizers.ByteLevel(add_prefix_space=False)
    made.decoder = tokenizers.decoders.ByteLevel()
    trainer = tokenizers.trainers.BpeTrainer(
        vocab_size=400,
        special_tokens=["<|end|>", "<|start|>"],
        initial_alphabet=tokenizers.pre_tokenizers.ByteLevel.alphabet(),
        show_progress=False,
    )
    made.train_from_iterator([TEXT], trainer)
    tokenizer = transformers.PreTrainedTokenizerFast(tokenizer_object=made, eos_token="<|end|>", bos_token="<|start|>")
    tokenizer.chat_template = (
        "{{ strftime_now('%d %b %Y') }}\n{% for m in messages %}<|start|>{{ m['role'] }}\n{{ m['content'] }}<|end|>\n"
        "{% endfor %}{% if add_generation_prompt %}<|start|>assistant\n{% endif %}"
    )
    torch.manual_seed(seed)
    size = {"hidden_size": 32, "intermediate_size": 64, "num_hidden_layers": 2, "num_attention_heads": 4}
    config = transformers.LlamaConfig(
        vocab_size=len(tokenizer), **size, max_position_embeddings=1024, eos_token_id=0, bos_token_id=1
    )
    model = transformers.LlamaForCausalLM(config)
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.copy_(torch.randn_like(parameter) * 0.35)
    return _save(model, tokenizer, folder)


def _save(model: transformers.PreTrainedModel, tokenizer: object, folder: pathlib.Path) -> str:
    model.save_pretrained(folder, safe_serialization=True)
    tokenizer.save_pretrained(folder)
    return str(folder)
