"""All readers in one place."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path

from memgas.errors import InvalidInputError
from memgas.evaluation.dialogues import Dataset, Dialogue, DialogueSession, Question, sample_questions
from memgas.evaluation.readers.locomo import read_locomo
from memgas.evaluation.readers.long_mt_bench import read_long_mt_bench
from memgas.evaluation.readers.longmemeval import read_longmemeval
from memgas.evaluation.readers.madial import read_madial
from memgas.evaluation.readers.own import read_own

__all__ = [
    "READERS",
    "Dataset",
    "Dialogue",
    "DialogueSession",
    "Question",
    "read_dataset",
    "read_locomo",
    "read_long_mt_bench",
    "read_longmemeval",
    "read_madial",
    "read_own",
    "sample_questions",
]

READERS: Mapping[str, Callable[[str | Path], Dataset]] = {
    "locomo": read_locomo,
    "longmemeval": read_longmemeval,
    "madial": read_madial,
    "long-mt-bench": read_long_mt_bench,
}
"""Name of a format to the reader of its one file; `read_own` takes two."""


def read_dataset(name: str, path: str | Path) -> Dataset:
    """Read a file in the format of that name.

    Raises
    ------
    InvalidInputError
        No format has that name, or the file is not in it.
    """
    if name not in READERS:
        raise InvalidInputError(f"a data set must be one of {', '.join(READERS)}; got {name!r}")
    return READERS[name](path)
