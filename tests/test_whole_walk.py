"""From raw files to the report on a real Ray: what is read, what is not read again, and what a crash costs."""

import contextlib
import json
import pathlib
import shutil
from collections.abc import Sequence

import pyarrow.parquet as pq
import pytest
import ray
from conftest import read_here
from crashes import stored
from given_results import RESULTS
from models import t5_folder
from tiny import RIGHT, Tiny, compare, make_tables, num_reader_calls, table, work_of, write_tiny

from erag_ray.config.job import JobConfig
from erag_ray.config.reader import ReaderConfig
from erag_ray.inference.cluster import nodes as cluster_nodes
from erag_ray.inference.cluster.nodes import wait_for_gpus
from erag_ray.inference.cluster.session import FREE_CPUS
from erag_ray.inference.pool import Pool, block_rows, largest_share, plan_pool
from erag_ray.inputs.stage import INPUT_TABLES
from erag_ray.models import Resources
from erag_ray.store.schemas import COSTS, DOCUMENT_OUTPUTS, LABELS, LIST_OUTPUTS, REQUESTS, UTILITY
from erag_ray.store.tables import TableStore
from erag_ray.support.errors import JobError


@pytest.fixture(scope="module")
def walked(tmp_path_factory: pytest.TempPathFactory) -> Tiny:
    """The tiny comparison, once through, in this process."""
    tiny = write_tiny(tmp_path_factory.mktemp("walk"))
    with pytest.MonkeyPatch.context() as patch:
        read_here(patch)
        plan = compare(tiny)
    # pairs: 13 of good, and of bad those that good lacks: d11 (q1, q2, q4, q5), d12 (q3). Lists: 5 of good, 4 of bad,
    # 4 gold_answers of more than one passage. The gold list of q5, good's of q5 and bad's of q5 are pairs.
    assert work_of(plan) == {"pairs": (18, 0, 18), "no passages": (6, 0, 6), "lists": (13, 0, 13)}
    return tiny


@pytest.fixture
def again(walked: Tiny, tmp_path: pathlib.Path) -> Tiny:
    """The same files and a copy of the store after the first walk."""
    shutil.copytree(walked.config.cache_dir, tmp_path / "store")
    return walked.with_config(out=str(tmp_path / "out"), cache_dir=str(tmp_path / "store"))


@pytest.mark.long
def test_the_walk_seals_every_table_and_writes_the_report(local_ray: None, tiny: Tiny) -> None:
    compare(tiny)
    store = TableStore(tiny.config.out)
    sealed = (*INPUT_TABLES, LABELS, UTILITY, DOCUMENT_OUTPUTS, LIST_OUTPUTS, *RESULTS)
    assert all(map(store.is_sealed, sealed))
    assert all(map(TableStore(f"{tiny.config.out}/compare").is_sealed, (REQUESTS, COSTS)))
    manifest = json.loads((pathlib.Path(tiny.config.out) / "compare" / "manifest.json").read_text())
    assert manifest["num_requests"] == manifest["num_responses"] == num_reader_calls(tiny) == 37
    assert manifest["summary"].endswith("; 0 errors.")
    assert (pathlib.Path(tiny.config.out) / "report.md").read_text().startswith("# ")


OTHER_SCORE = {"score": "token_f1", "measures": ["P", "nDCG"], "cutoffs": [2], "statistics": ["spearman_rho"]}


# lists of one are pairs, which are there
@pytest.mark.parametrize(
    "changes", [{}, OTHER_SCORE, {"end_to_end_depths": [1]}], ids=["the same", "score", "depth"]
)
def test_the_same_again_another_score_measure_or_cut_off_and_a_shallower_depth_read_nothing(
    again: Tiny, no_reader: None, changes: dict[str, object]
) -> None:
    make_tables(other := again.with_config(**changes))
    assert num_reader_calls(other) == 0
    assert set(table(other, UTILITY)["score"]) == {changes.get("score", "exact_match")}


def test_one_more_run_reads_its_new_pairs_and_lists_only(again: Tiny, reads_here: list[int]) -> None:
    more = again.with_config(runs={**again.config.runs, "third": str(again.run("third"))})
    plan = make_tables(more)
    # new pairs: (q2, d12), (q5, d12). Lists of third: q1, q2, q4, q5; that of q4, d8 d7, is the gold list of q4
    assert work_of(plan) == {"pairs": (20, 18, 2), "no passages": (6, 6, 0), "lists": (16, 13, 3)}
    assert [num_reader_calls(more)] == reads_here == [5]
    for depth in (1, 3):
        right = table(more, UTILITY, run_id="third", depth=depth, value=1.0)
        assert set(right["query_id"]) == RIGHT["third", depth]


def test_a_deeper_depth_reads_its_new_pairs_and_lists_only(again: Tiny, reads_here: list[int]) -> None:
    deeper = again.with_config(depth=4, end_to_end_depths=[1, 3, 4])
    plan = make_tables(deeper)
    # rank 4 of good: d5 for q1, d1 for q3
    assert work_of(plan) == {"pairs": (20, 18, 2), "no passages": (6, 6, 0), "lists": (15, 13, 2)}
    assert [num_reader_calls(deeper)] == reads_here == [4]


@pytest.mark.cluster
def test_a_fid_model_walks_too(local_ray: None, tiny: Tiny) -> None:
    folder = t5_folder(tiny.folder / "model")
    reader = ReaderConfig(kind="fid", model=folder, max_new_tokens=4)
    fid = tiny.with_config(reader=reader, runs={"good": str(tiny.run("good"))})
    plan = make_tables(fid)
    # FiD does not see the order of its passages: the gold lists of q2 and q4 are good's lists
    assert work_of(plan) == {"pairs": (13, 0, 13), "no passages": (6, 0, 6), "lists": (7, 0, 7)}
    assert table(fid, UTILITY)["value"].null_count() == 0
    assert set(plan.requests["reader"]) == set(table(fid, LABELS, annotator="erag")["reader"])


# --- the pool ---


def plan_on(
    monkeypatch: pytest.MonkeyPatch,
    nodes: Sequence[dict[str, float]],
    needs: Resources | None = None,
    **changes: object,
) -> Pool:
    alive = [{"Alive": True, "Resources": resources} for resources in nodes]
    dead = {"Alive": False, "Resources": {"CPU": 1000.0, "GPU": 1000.0}}
    monkeypatch.setattr(ray, "nodes", lambda: [*alive, dead])
    return plan_pool(JobConfig(**changes), needs or Resources())  # type: ignore[arg-type]


@pytest.mark.parametrize(
    "nodes",
    [[(1, 0)], [(4, 0)], [(8, 2)], [(4, 0), (96, 8)], [(0, 0), (64, 0), (8, 4)], [(4, 3), (3, 0), (3, 1)]],
)
@pytest.mark.parametrize("num_readers", [None, 1, 2, 3, 5])
@pytest.mark.parametrize("cpus_per_reader", [None, 1, 64])
def test_every_pool_can_be_placed_and_leaves_room(
    monkeypatch: pytest.MonkeyPatch,
    nodes: list[tuple[int, int]],
    num_readers: int | None,
    cpus_per_reader: int | None,
) -> None:
    resources = [{"CPU": cpus, "GPU": gpus} if gpus else {"CPU": cpus} for cpus, gpus in nodes]
    pool = plan_on(monkeypatch, resources, num_readers=num_readers, cpus_per_reader=cpus_per_reader)
    assert pool.size == (num_readers or max(sum(gpus for _, gpus in nodes), 1))
    places = sum(
        min(
            cpus // pool.num_cpus if pool.num_cpus else pool.size,
            gpus * int(1 / pool.num_gpus) if pool.num_gpus else pool.size,
        )
        for cpus, gpus in nodes
    )
    assert places >= pool.size
    if pool.num_cpus:
        assert sum(cpus for cpus, _ in nodes) - pool.size * pool.num_cpus >= FREE_CPUS
    if any(gpus for _, gpus in nodes):
        assert pool.num_gpus > 0  # no reader falls back to a CPU beside a GPU


def test_gpus_and_cores_are_counted_where_they_are_together(monkeypatch: pytest.MonkeyPatch) -> None:
    # 64 cores without a GPU do not help the four readers on the node with 8 cores
    pool = plan_on(monkeypatch, [{"CPU": 64}, {"CPU": 8, "GPU": 4}])
    assert (pool.size, pool.num_cpus, pool.num_gpus) == (4, 2, 1)
    assert largest_share([4, 3, 3], [2, 2, 2], 2) == 3
    assert largest_share([64, 8], [0, 4], 4) == 2


@pytest.mark.parametrize(
    ("nodes", "settings", "together"),
    [
        ([{"CPU": 8, "GPU": 2}], {}, 1),
        ([{"CPU": 8, "GPU": 2}], {"num_readers": 6}, 3),
        ([{"CPU": 8}], {}, 1),
        ([{"CPU": 8}], {"num_readers": 3}, 3),
        # a node with 8 cores holds two of 3, the other one
        ([{"CPU": 8}, {"CPU": 4}], {"num_readers": 3, "cpus_per_reader": 3}, 2),
        # none reserved: all may come to lie on one
        ([{"CPU": 2}, {"CPU": 2}], {"num_readers": 4}, 4),
    ],
)
def test_how_many_readers_share_a_memory(
    monkeypatch: pytest.MonkeyPatch, nodes: list[dict[str, float]], settings: dict[str, int], together: int
) -> None:
    assert plan_on(monkeypatch, nodes, **settings).num_together == together


SMALL, LARGE = Resources(weight_bytes=242 << 20), Resources(weight_bytes=892 << 20)


@pytest.mark.parametrize(
    ("nodes", "needs", "expected"),
    [
        # without GPUs one reader leaves CPUs free
        *(
            ([{"CPU": cpus}], None, (1, num, 0.0, 1))
            for cpus, num in ((1, 0), (2, 0), (3, 1), (4, 2), (32, 30))
        ),
        # a model that needs no GPU leaves them alone
        ([{"CPU": 8, "GPU": 2}], Resources(num_gpus=0), (1, 6, 0.0, 1)),
        ([{"CPU": 8, "GPU": 2}], Resources(num_gpus=0, num_cpus=2), (1, 2, 0.0, 1)),
        # a small model keeps its host busier than its GPU
        ([{"CPU": 98, "GPU": 8}], SMALL, (16, 6, 0.5, 2)),
        ([{"CPU": 98, "GPU": 8}], LARGE, (8, 12, 1.0, 1)),
        # where each of two has cores enough
        ([{"CPU": 32, "GPU": 8}], SMALL, (8, 3, 1.0, 1)),
        ([{"CPU": 34, "GPU": 8}], SMALL, (16, 2, 0.5, 2)),
        ([{"CPU": 8}], SMALL, (1, 6, 0.0, 1)),
        # two on each GPU
        ([{"CPU": 10, "GPU": 2}], Resources(num_gpus=0.5), (4, 2, 0.5, 2)),
        ([{"CPU": 12, "GPU": 1}], Resources(num_gpus=0.1), (10, 1, 0.1, 10)),
        # one on two GPUs of one node
        ([{"CPU": 8, "GPU": 3}, {"CPU": 8, "GPU": 3}], Resources(num_gpus=2), (2, 7, 2.0, 1)),
    ],
)
def test_a_model_gets_the_gpus_and_cpus_that_it_needs(
    monkeypatch: pytest.MonkeyPatch,
    nodes: list[dict[str, float]],
    needs: Resources | None,
    expected: tuple[int, int, float, int],
) -> None:
    pool = plan_on(monkeypatch, nodes, needs)
    assert (pool.size, pool.num_cpus, pool.num_gpus, pool.num_together) == expected
    assert pool.num_threads >= 1


def test_blocks_are_many_enough_for_all_readers_and_take_a_minute_where_the_speed_is_known() -> None:
    pool, many = Pool(size=8, num_cpus=4, num_gpus=1), 10**9
    for num_rows, speed, expected in (
        (100, None, 128),
        (96_000, None, 1000),
        (many, None, 4096),
        (many, 400.0, 24_000),
        (many, 20.5, 1230),
        # however slow it is, a batch wants some; however fast, a block lies in memory
        (many, 0.1, 128),
        (many, 1e6, 32_768),
        (96_000, 400.0, 1000),
    ):
        assert block_rows(JobConfig(), num_rows, pool, speed) == expected
    assert block_rows(JobConfig(rows_per_block=7), many, pool, None) == 7


def test_a_cluster_whose_machines_still_start_is_waited_for(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    growing = [[{"CPU": 4.0}], [{"CPU": 4.0}, {"GPU": 8.0}], [{"CPU": 4.0}, {"GPU": 8.0}, {"GPU": 8.0}]]
    monkeypatch.setattr(
        cluster_nodes, "nodes_alive", lambda: growing.pop(0) if len(growing) > 1 else growing[0]
    )
    monkeypatch.setattr(cluster_nodes, "LOOK_SECONDS", 0.0)
    wait_for_gpus(None, 0.0)
    wait_for_gpus(16, None)
    assert "waiting for GPUs: 8 of 16 are here" in capsys.readouterr().err
    match = (
        r"wait_for_gpus: 17, but the cluster has 16 after 0 s \(placement_timeout\): a node: CPU 4, GPU 0; "
    )
    with pytest.raises(JobError, match=match):
        wait_for_gpus(17, 0.0)


def test_a_reader_that_needs_more_gpus_than_a_node_has_is_refused_before_anything_starts(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    nodes = [{"CPU": 16.0, "GPU": 1.0, "node:10.0.0.1": 1.0}, {"CPU": 8.0, "GPU": 1.0}]
    match = (
        r"GPUs of a reader \(tensor_parallel_size\): 2, but no node of the cluster has as many GPUs "
        r"\(10\.0\.0\.1: CPU 16, GPU 1; a node: CPU 8, GPU 1\)\. A reader takes"
    )
    with pytest.raises(JobError, match=match):
        plan_on(monkeypatch, nodes, Resources(num_gpus=2))
    # without any GPU, models compute on CPUs
    assert plan_on(monkeypatch, [{"CPU": 8.0}], Resources(num_gpus=2)).num_gpus == 0


@pytest.mark.parametrize(
    ("pool", "nodes", "line"),
    [
        (Pool(size=8, num_cpus=11, num_gpus=1), [{"GPU": 8.0, "accelerator_type:A100": 1.0}],
         "readers: 8, one on each GPU (A100), 11 CPU threads each"),
        (Pool(size=6, num_cpus=1, num_gpus=1), [{"GPU": 4.0}, {"GPU": 4.0}],
         "readers: 6, one on each GPU of 8, 2 idle, 1 CPU thread each"),
        (Pool(size=5, num_cpus=2, num_gpus=0.5), [{"GPU": 4.0}],
         "readers: 5 on 4 GPUs, up to 2 on each, 2 CPU threads each"),
        (Pool(size=2, num_cpus=0, num_gpus=0), [{"CPU": 4.0}], "readers: 2 on CPUs, 1 CPU thread each"),
    ],
)  # fmt: skip
def test_the_first_line_names_the_devices(pool: Pool, nodes: list[dict[str, float]], line: str) -> None:
    assert pool.described(nodes) == line


# --- crashes ---


@pytest.mark.long
def test_a_torn_file_is_set_aside_and_its_requests_are_run_again(tiny: Tiny, reads_here: list[int]) -> None:
    make_tables(tiny)
    more = tiny.with_config(runs={**tiny.config.runs, "third": str(tiny.run("third"))})
    make_tables(more)
    assert reads_here == [37, 5]
    first = min(pathlib.Path(tiny.config.cache_dir).glob("responses/*/*.parquet"))
    torn = pq.read_metadata(first).num_rows
    first.write_bytes(first.read_bytes()[:-100])
    plan = make_tables(more)
    assert reads_here == [37, 5, torn]
    assert any(str(first.name) in line for part in plan.plans for line in part.repaired)
    assert len(stored(more.config)) == 42
    make_tables(more)
    assert len(reads_here) == 3


def test_a_stage_that_lacks_responses_is_not_sealed(tiny: Tiny, monkeypatch: pytest.MonkeyPatch) -> None:
    from erag_ray.inference import stage as reading
    from erag_ray.inference.work import Done

    monkeypatch.setattr(reading, "run", lambda *arguments: Done())
    monkeypatch.setattr(reading, "ray_session", lambda address: contextlib.nullcontext())
    with pytest.raises(RuntimeError, match="37 requests have no response"):
        make_tables(tiny)
    assert not (pathlib.Path(tiny.config.out) / "compare" / "manifest.json").exists()
