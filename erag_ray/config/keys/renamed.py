"""Keys of former versions, by the names that they have now."""

from __future__ import annotations

RENAMED = {
    "store": "cache_dir",
    "where": "filters",
    "expect_gpus": "wait_for_gpus",
    "reader.delay_seconds": "reader.simulated_latency_seconds",
    "retry_errors": "retry_failed",
    "max_error_share": "max_error_fraction",
    "recheck_share": "recheck_fraction",
    "clip_norm": "max_grad_norm",
    "eval_every_steps": "eval_steps",
    "checkpoint_every_steps": "save_steps",
    "warmup_share": "warmup_ratio",
    "between": "compare",
    "negligible": "equivalence_margin",
    "share": "fraction",
    "namesake_share": "namesake_fraction",
    "variant_share": "variant_fraction",
    "own_share": "own_fraction",
}
"""Old key -> new key, with dots. An old key is an error that names the new one, where the job has the new one."""
