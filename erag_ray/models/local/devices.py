"""The device of this process: which one, its name, its precision, and why no GPU can be used."""

import torch

from erag_ray.support.errors import JobError

TF32 = "tf32"
TF32_CAPABILITY = 8, 0
"""The smallest compute capability with TF32."""


def device() -> torch.device:
    """Return the current GPU of this process (the first one, unless set otherwise), else the CPU."""
    if not torch.cuda.is_available():
        return torch.device("cpu")
    return torch.device("cuda", torch.cuda.current_device())


def device_name() -> str:
    """Return the model of this process's GPU, such as "NVIDIA A100-SXM4-40GB"; "CPU" if it has none."""
    return str(torch.cuda.get_device_name()) if torch.cuda.is_available() else "CPU"


def has_tf32() -> bool:
    return torch.cuda.is_available() and torch.cuda.get_device_capability() >= TF32_CAPABILITY


def set_matmul_precision(dtype: str) -> torch.dtype:
    """Set the precision in which this process's GPU multiplies float32 matrices; return that of the weights.

    Raises:
        JobError: tf32 on a device without it.
    """
    if dtype == TF32 and not has_tf32():
        needed = ".".join(map(str, TF32_CAPABILITY))
        raise JobError(
            f"reader.dtype: {TF32} needs a GPU of compute capability {needed} or more (A100 and newer), and this "
            f"process has {device_name()}; use float32"
        )
    if torch.cuda.is_available():
        torch.backends.cuda.matmul.fp32_precision = "tf32" if dtype == TF32 else "ieee"
    return torch.float32 if dtype == TF32 else getattr(torch, dtype)


def gpu_error() -> str | None:
    """Return torch's reason why it cannot use a GPU; None if it can."""
    if torch.cuda.is_available():
        return None
    try:
        torch.cuda.init()  # type: ignore[no-untyped-call]
    except (AssertionError, RuntimeError) as error:
        return " ".join(str(error).split())
    return "torch.cuda.is_available() is False"
