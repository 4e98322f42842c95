"""Entry point of ``jobs/world.py``."""

from __future__ import annotations

from erag_ray.cli.run import Job
from erag_ray.extras.world.config import WorldConfig
from erag_ray.support.logs import say


def main(config: WorldConfig) -> None:
    from erag_ray.extras.world.files import write_world
    from erag_ray.support.progress import counted

    with counted("districts", config.num_districts) as on_progress:
        lines = write_world(config, on_progress)
    say(f"sealed in {config.out}:", *(f"  {name}: {count:,} lines" for name, count in lines.items()))


JOB = Job(WorldConfig, main)
