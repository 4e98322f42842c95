"""Inner products of stored vectors in double precision: the scores of dense lists."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from erag_ray.support.numba_jit import compiled_with

# factor lost when the bits of a half precision number are read as the high bits of single precision
HALF_SCALE = 2.0**112


def exact(
    queries: npt.NDArray[np.float32], vectors: npt.NDArray[np.float16], texts: npt.NDArray[np.int64]
) -> npt.NDArray[np.float32]:
    """Return inner products of each query with its candidates' vectors, computed in double precision.

    A score depends only on its two vectors (and, in the last of 16 digits before rounding to 7, on the kind of
    processor), so a pair has the same score in any batch.

    Args:
        queries: shape (queries, width), finite.
        vectors: shape (texts, width), finite.
        texts: rows of ``vectors``, shape (queries, candidates).
    """
    scores = np.empty(texts.shape, np.float32)
    _sum_products(np.ascontiguousarray(queries), vectors.view(np.uint16), texts, scores)
    return scores


# reassociation allows SIMD sums
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
            for dimension in range(queries.shape[1]):
                # numba has no half precision
                half = np.uint32(halves[text, dimension])
                sign, size = half & np.uint32(0x8000), half & np.uint32(0x7FFF)
                # numba widens shifted integers
                single = np.uint32((sign << np.uint32(16)) | (size << np.uint32(13))).view(np.float32)
                total += np.float64(queries[row, dimension]) * np.float64(single)
            scores[row, column] = total * HALF_SCALE
