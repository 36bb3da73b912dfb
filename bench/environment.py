"""What the environment of this process allows it to use."""

import os


def visible_gpus():
    """GPUs as CUDA_VISIBLE_DEVICES lists them, numbers or identifiers; None where it is not set: CUDA may use all."""
    listed = os.environ.get("CUDA_VISIBLE_DEVICES")
    return None if listed is None else [name for name in listed.split(",") if name]
