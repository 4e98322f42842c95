"""One measure of lists at one cut-off."""

from erag_ray.measures.lists import Floats, Lists, compute_all


def compute(name: str, lists: Lists, cutoff: int, threshold: float | None = None) -> Floats:
    return compute_all([name], lists, [cutoff], threshold)[name, cutoff]
