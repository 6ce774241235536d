"""All readers in one place."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
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
    "read_files",
    "read_locomo",
    "read_long_mt_bench",
    "read_longmemeval",
    "read_madial",
    "read_own",
    "sample_questions",
]

_OWN = "own"

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


def read_files(name: str, files: Sequence[str]) -> list[Dataset]:
    """Read what a command line names: a data set and its file, `own` and two files, or `pooled` and `name=file` several times.

    Raises
    ------
    InvalidInputError
        No format has that name, it takes another number of files, or a file is not in it.
    """
    if name == "pooled":
        pairs = [given.partition("=") for given in files]
        if not pairs or any(not sign or dataset == "pooled" for dataset, sign, _ in pairs):
            raise InvalidInputError(
                f"pooled takes data sets with their files, such as locomo=FILE own=SESSIONS,QUESTIONS; got {' '.join(files)}"
            )
        return [
            dataset
            for kind, _, given in pairs
            for dataset in read_files(kind, given.split(",") if kind == _OWN else [given])
        ]
    if name == _OWN:
        if len(files) != 2:
            raise InvalidInputError(f"{_OWN} takes two files, of sessions and of questions; got {len(files)}")
        return [read_own(*files)]
    if name not in READERS:
        raise InvalidInputError(
            f"a data set must be one of {', '.join((*READERS, _OWN))}, or pooled for several; got {name!r}"
        )
    if len(files) != 1:
        raise InvalidInputError(f"{name} takes one file; got {len(files)}")
    return [read_dataset(name, files[0])]
