"""The device that this process computes on: which one, its name, and why it is not a GPU."""

from __future__ import annotations

import platform

import torch


def device() -> torch.device:
    """Return the GPU that this process has chosen (the first one, unless told otherwise), else the CPU."""
    if not torch.cuda.is_available():
        return torch.device("cpu")
    return torch.device("cuda", torch.cuda.current_device())


def device_name() -> str:
    """Return the model of this process's GPU, such as "NVIDIA A100-SXM4-40GB", or "CPU (x86_64)"."""
    if not torch.cuda.is_available():
        return f"CPU ({platform.machine()})"
    return str(torch.cuda.get_device_name())


def gpu_error() -> str | None:
    """Return torch's own reason why it cannot use a GPU; None where it can."""
    if torch.cuda.is_available():
        return None
    try:
        torch.cuda.init()  # type: ignore[no-untyped-call]
    except (AssertionError, RuntimeError) as error:
        return " ".join(str(error).split())
    return "torch.cuda.is_available() is False"
