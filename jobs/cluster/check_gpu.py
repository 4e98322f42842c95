"""Multiply on every GPU of this machine, or end with torch's own reason why it cannot.

    python jobs/cluster/check_gpu.py

The cluster files run it where they set up a machine with GPUs: a driver that is too old for the installed torch then
shows as one message there, not as readers that run on CPUs.
"""

import sys

import torch

SIZE = 64


def main() -> None:
    build = f"torch {torch.__version__} (CUDA {torch.version.cuda})"
    try:
        torch.cuda.current_device()  # raises where CUDA does not start
        for device in range(torch.cuda.device_count()):
            ones = torch.ones(SIZE, SIZE, device=device)
            if (ones @ ones).sum().item() != SIZE**3:
                raise RuntimeError(f"GPU {device} gives a wrong product")
    except (AssertionError, RuntimeError) as error:
        sys.exit(
            f"{build} cannot use the GPUs of this machine: {error}\n"
            "Install the driver that jobs/cluster/README.md names ('GPU drivers')."
        )
    print(f"{build} works on {torch.cuda.device_count()} GPUs")


if __name__ == "__main__":
    main()
