"""Tiny random encoders in real Hugging Face folders, and what they give, worked out without sentence-transformers."""

import pathlib
from typing import Any

import numpy as np
import torch
import transformers

TEXT = "query passage : the a mill river lit in 1874 who built bridge marn tessel flows sea . ?"
WORDS = TEXT.split()
SIZE = {"hidden_size": 32, "num_hidden_layers": 2, "num_attention_heads": 4, "intermediate_size": 64}


def bert_folder(folder: pathlib.Path, *, num_labels: int | None = None) -> str:
    """A BERT (contriever, e5-base): word pieces, lower case; with ``num_labels`` a cross-encoder."""
    vocabulary = {
        word: place for place, word in enumerate(["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", *WORDS])
    }
    (folder / "vocab.txt").parent.mkdir(parents=True, exist_ok=True)
    tokenizer = transformers.BertTokenizer(vocab=vocabulary)
    config = transformers.BertConfig(vocab_size=len(vocabulary), max_position_embeddings=64, **SIZE)
    torch.manual_seed(3)
    if num_labels is None:
        return _save(transformers.BertModel(config), tokenizer, folder)
    config.num_labels = num_labels
    return _save(transformers.BertForSequenceClassification(config), tokenizer, folder)


def xlm_roberta_folder(folder: pathlib.Path, name: str = "XLMRoberta") -> str:
    """An XLM-RoBERTa (bge-m3, multilingual-e5), or another model whose positions begin after that of padding."""
    special = [("<s>", 0.0), ("<pad>", 0.0), ("</s>", 0.0), ("<unk>", 0.0)]
    pieces = [*special, *(("\u2581" + word, -4.0) for word in WORDS), ("\u2581", -5.0), ("<mask>", 0.0)]
    tokenizer = transformers.XLMRobertaTokenizer(vocab=pieces)
    config = getattr(transformers, f"{name}Config")(
        vocab_size=len(tokenizer), max_position_embeddings=66, pad_token_id=1, **SIZE
    )
    torch.manual_seed(4)
    return _save(getattr(transformers, f"{name}Model")(config), tokenizer, folder)


def _save(model: Any, tokenizer: Any, folder: pathlib.Path) -> str:
    model.save_pretrained(folder)
    tokenizer.save_pretrained(folder)
    return str(folder)


def vector(folder: str, text: str, *, pooling: str, is_normalised: bool) -> np.ndarray:
    """One text's vector: the mean over its tokens or the first token's, of length 1 or as it is."""
    tokenizer = transformers.AutoTokenizer.from_pretrained(folder)
    model = transformers.AutoModel.from_pretrained(folder).eval()
    with torch.inference_mode():
        (states,) = model(**tokenizer(text, return_tensors="pt")).last_hidden_state
    found = (states.mean(dim=0) if pooling == "mean" else states[0]).numpy()
    return found / np.linalg.norm(found) if is_normalised else found
