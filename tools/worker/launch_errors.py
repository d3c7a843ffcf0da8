"""Errors of kernel launches that nobody asked for: a launch that fails says so only to who asks the runtime."""

import ctypes

import torch


class LaunchErrors:
    """Asks the CUDA runtime that PyTorch and the candidate's extension share; with handles from before its import."""

    def __init__(self, device: str) -> None:
        self._runtime: ctypes.CDLL | None = None
        if device != "cuda" or torch.version.cuda is None:
            return
        try:
            self._runtime = ctypes.CDLL(f"libcudart.so.{torch.version.cuda.split('.')[0]}")
        except OSError:
            return
        self._runtime.cudaGetErrorName.restype = ctypes.c_char_p
        self._runtime.cudaGetErrorString.restype = ctypes.c_char_p

    def take(self) -> str:
        """The last error's name and text, which is then forgotten; empty where there was none, or nothing to ask."""
        status = 0 if self._runtime is None else int(self._runtime.cudaGetLastError())
        if not status or self._runtime is None:
            return ""
        name, text = (ask(status) for ask in (self._runtime.cudaGetErrorName, self._runtime.cudaGetErrorString))
        return f"{(name or b'').decode('ascii', 'replace')}: {(text or b'').decode('ascii', 'replace')}"
