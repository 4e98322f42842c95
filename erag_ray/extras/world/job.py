"""The job `world` of the command line."""

from erag_ray.cli.run import Job
from erag_ray.extras.world.config import WorldConfig
from erag_ray.support.logs import say


def main(config: WorldConfig) -> None:
    """A generated encyclopedia with questions of five tasks, in KILT's file formats: data without a download.

        erag-ray world --num_passages 3000 --out results/world

    The same seed and settings give the same files. A finished world is left unchanged.
    """
    from erag_ray.extras.world.files import write_world
    from erag_ray.support.progress import counted

    with counted("districts", config.num_districts) as on_progress:
        lines = write_world(config, on_progress)
    say(f"sealed in {config.out}:", *(f"  {name}: {count:,} lines" for name, count in lines.items()))


JOB = Job(WorldConfig, main)
