"""Second step: read every retrieved document alone (eRAG) and seal every annotator's labels.

    python jobs/annotate.py --config jobs/demo/compare.yaml
    ray job submit --working-dir . -- python jobs/annotate.py --config nq.yaml --out /shared/nq --store /shared/store

Works on what jobs/prepare.py has sealed; what the store holds is not read again.
"""

from __future__ import annotations

from erag_ray.config import JobConfig
from erag_ray.steps import run_job, say


def main(config: JobConfig) -> None:
    from erag_ray.steps.inputs import prepared

    inputs = prepared(config)

    # Ray and torch, which take seconds to import, come after the inputs are known to be there
    from erag_ray.steps.judgements import judge_outputs
    from erag_ray.steps.judging import label
    from erag_ray.steps.planning import plan_stage, preview
    from erag_ray.steps.reading import run_stage

    plan = plan_stage(config, inputs, "annotate", alone=True, together=False)
    say(*preview(plan, show=config.progress))
    done = judge_outputs(config, inputs, run_stage(config, plan))
    label(config, inputs, done.values(inputs))
    say(f"labels of {', '.join(config.annotators)} sealed in {config.out}")


if __name__ == "__main__":
    run_job(JobConfig, main, __doc__ or "")
