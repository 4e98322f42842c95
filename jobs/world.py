"""A generated encyclopedia with questions of five tasks, in KILT's file formats: data without a download.

    python jobs/world.py --num_passages 3000 --out results/world
    ray job submit --working-dir . -- python jobs/world.py --num_passages 10000000 --out s3://bucket/world

The same seed and settings give the same files. A finished world is left unchanged.
"""

from __future__ import annotations

from erag_ray.cli.run import run_extra

if __name__ == "__main__":
    run_extra("world", __doc__ or "")
