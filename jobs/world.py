"""A generated encyclopedia with questions of five tasks, in KILT's file formats: data without a download.

    python jobs/world.py --num_passages 3000 --out results/world
    ray job submit --working-dir . -- python jobs/world.py --num_passages 10000000 --out s3://bucket/world

The same seed and settings give the same files. A finished world is left as it is.
"""

from __future__ import annotations

from erag_ray.cli.run import run_job
from erag_ray.logs import say
from erag_ray.world.config import WorldConfig


def main(config: WorldConfig) -> None:
    from erag_ray.progress import counted
    from erag_ray.world.files import write_world

    with counted("districts", config.num_districts) as on_progress:
        lines = write_world(config, on_progress)
    say(f"sealed in {config.out}:", *(f"  {name}: {count:,} lines" for name, count in lines.items()))


if __name__ == "__main__":
    run_job(WorldConfig, main, __doc__ or "")
