"""The CPUs of this process, and the threads of torch."""

import os


def num_cpus() -> int:
    """Return how many CPUs this process may use, by its affinity (Slurm) and the quota of its container; at least 1."""
    import joblib

    return int(joblib.cpu_count())


def give_way() -> None:
    """Let threads of torch that wait for each other give way to other programs; call it before torch is imported.

    By default libgomp lets them spin for milliseconds, but where it has more threads than there are CPUs for a thousand
    turns, as here always. Beside a busy program, two threads on two CPUs answered 6 requests a second in place of 230
    to 285; now 107 to 109, and as many as before on idle CPUs (notebooks/LOG.md, "A reader beside other programs").
    """
    if "OMP_WAIT_POLICY" not in os.environ:
        os.environ.setdefault("GOMP_SPINCOUNT", "1000")
