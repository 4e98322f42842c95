"""How fast things are here: BM25, dense search, encoding, evaluation and reading.

    python notebooks/benchmark.py --sizes '[100000, 1000000]'
    python notebooks/benchmark.py --parts '[measures, table_1]'
    python notebooks/benchmark.py --parts '[readings, table_2, shared, depths]'
    python notebooks/benchmark.py --parts '[table_2]' --job jobs/demo/compare.yaml --dataset nq --num_questions 20
    python notebooks/benchmark.py --parts '[precision]' --job jobs/demo/compare.yaml --dataset nq --num_questions 200
    python notebooks/benchmark.py --parts '[host]'
    python notebooks/benchmark.py --parts '[served]'
    python notebooks/benchmark.py --parts '[vllm]' --job vllm.yaml --num_questions 100

Times are of this machine and of whatever else it does meanwhile; only the ratios carry over. Needs rank-bm25.
"""

from bench.config import BenchmarkConfig

from erag_ray.cli.run import run_job
from erag_ray.support.logs import say


def main(config: BenchmarkConfig) -> None:
    from bench import tables as benchmark_tables
    from bench.figures import host_figure, served_figure
    from bench.run import costs_of, run_all

    from erag_ray.extras.papers.pictures import svg
    from erag_ray.report.console import open_console, show
    from erag_ray.report.markdown import parts_as_markdown, picture_name
    from erag_ray.store.fingerprints import new_job_id
    from erag_ray.store.folder import Folder
    from erag_ray.store.schemas import COSTS
    from erag_ray.store.tables import TableStore

    table = run_all(config, say)
    folder = Folder(config.out)
    folder.write_parquet(table.to_arrow(), "benchmark.parquet")
    TableStore(config.out).write(costs_of(table, new_job_id()), COSTS)
    of_precision, of_cpu, of_device, of_tokens = (
        table[name].is_not_null() for name in ("kappa", "cpu_seconds", "device_rate", "num_prompt_tokens")
    )
    of_served, of_vllm = table["what"] == "served", table["num_cached_prompt_tokens"].is_not_null()
    of_host = of_cpu & ~of_served & ~of_vllm
    of_costs = of_tokens & ~of_cpu
    parts = (
        (benchmark_tables.speed_table, table.filter(~of_precision & ~of_cpu & ~of_costs)),
        (benchmark_tables.reading_costs_table, table.filter(of_costs)),
        (benchmark_tables.precision_table, table.filter(of_precision)),
        (benchmark_tables.host_table, table.filter(of_host & ~of_device)),
        (benchmark_tables.device_table, table.filter(of_device)),
        (benchmark_tables.served_table, table.filter(of_served)),
        (benchmark_tables.vllm_table, table.filter(of_vllm)),
    )
    tables = [make(part) for make, part in parts if part.height]
    tables += [benchmark_tables.published_table_2()] if "table_2" in config.parts else []
    show(tables, open_console())
    drawn = (host_figure(table.filter(of_host & ~of_device)), served_figure(table.filter(of_served)))
    figures = [figure for figure in drawn if figure is not None]
    for figure in figures:
        folder.write_bytes(svg(figure).encode(), picture_name(figure))
    page = parts_as_markdown("What reading, retrieval and evaluation cost", [*tables, *figures])
    folder.write_bytes(page.encode(), "benchmark.md")
    say(f"table: {folder.at('benchmark.parquet')}, page: {folder.at('benchmark.md')}")


if __name__ == "__main__":
    run_job(BenchmarkConfig, main, __doc__ or "")
