r"""Second step: read every retrieved document by itself (eRAG) and seal every annotator's labels.

    python jobs/annotate.py --config jobs/demo/compare.yaml
    ray job submit --working-dir . -- python jobs/annotate.py --config nq.yaml \
        --out /shared/nq --cache_dir /shared/store

Works on what jobs/prepare.py has sealed; requests with a stored response are not run again.
"""

from __future__ import annotations

from erag_ray.cli.run import run_job
from erag_ray.config.job import JobConfig
from erag_ray.support.logs import say


def main(config: JobConfig) -> None:
    from erag_ray.comparison import annotate
    from erag_ray.inputs.stage import prepared

    annotate(config, prepared(config))
    say(f"labels of {', '.join(config.annotators)} sealed in {config.out}")


if __name__ == "__main__":
    run_job(JobConfig, main, __doc__ or "")
