"""Inner products of stored vectors, in double precision: the scores by which dense lists are ordered."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from erag_ray.numba_jit import compiled_with

# half precision read as the high bits of single precision is too small by this power of two
HALVES_ARE_SMALLER = 2.0**112


def exact(
    queries: npt.NDArray[np.float32], vectors: npt.NDArray[np.float16], texts: npt.NDArray[np.int64]
) -> npt.NDArray[np.float32]:
    """Inner products of each query with the vectors of its candidates: products and sums in double precision.

    A row's sum depends on nothing but its numbers (and on the kind of processor, in the last of 16 digits, before it is
    rounded to 7), so a pair has the same score wherever it is computed.

    Args:
        queries: shape (queries, width), finite.
        vectors: shape (texts, width), finite.
        texts: rows of ``vectors``, shape (queries, candidates).
    """
    scores = np.empty(texts.shape, np.float32)
    _sum_products(np.ascontiguousarray(queries), vectors.view(np.uint16), texts, scores)
    return scores


# sums may be taken in lanes, as many as the processor has
@compiled_with(fastmath={"reassoc", "nsz"})
def _sum_products(
    queries: npt.NDArray[np.float32],
    halves: npt.NDArray[np.uint16],
    texts: npt.NDArray[np.int64],
    scores: npt.NDArray[np.float32],
) -> None:
    for row in range(texts.shape[0]):
        for column in range(texts.shape[1]):
            text, total = texts[row, column], 0.0
            for place in range(queries.shape[1]):
                # numba knows no half precision
                half = np.uint32(halves[text, place])
                sign, size = half & np.uint32(0x8000), half & np.uint32(0x7FFF)
                # numba widens what is shifted
                single = np.uint32((sign << np.uint32(16)) | (size << np.uint32(13))).view(np.float32)
                total += np.float64(queries[row, place]) * np.float64(single)
            scores[row, column] = total * HALVES_ARE_SMALLER
