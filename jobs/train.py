"""Fine-tune a FiD or IPA reader on questions with given or retrieved passages.

    python jobs/train.py --config jobs/reader/train.yaml
    ray job submit --working-dir . -- python jobs/train.py --config train.yaml --out /shared/reader

The result is an ordinary model folder, <out>/reader, the best by dev score. Started again, a killed training continues
from its last checkpoint and a finished one does nothing. Keys with several values are given in the YAML file.
"""

from __future__ import annotations

from erag_ray.cli.run import run_extra

if __name__ == "__main__":
    run_extra("train", __doc__ or "")
