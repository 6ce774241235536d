"""Reading JSON that somebody else wrote: every complaint names the place in the file."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import TextIO, cast

from memgas.checks import clean_text, is_blank
from memgas.errors import InvalidInputError
from memgas.types import JSON

_CHUNK = 1 << 20
_CLOCK = re.compile(r"(\d{4})[-/](\d{1,2})[-/](\d{1,2})\D*?(?:(\d{1,2}):(\d{2})(?::(\d{2}))?)?\s*")


@dataclass(frozen=True, slots=True)
class Place:
    """A JSON value and where in the file it stands."""

    value: JSON
    where: str

    def fail(self, expected: str) -> InvalidInputError:
        """Return the error that says what was expected here and what came."""
        shown = json.dumps(self.value, ensure_ascii=False)
        return InvalidInputError(f"{self.where}: expected {expected}; got {shown[:80]}{'…' if len(shown) > 80 else ''}")

    def record(self) -> Mapping[str, JSON]:
        """Return the value as an object."""
        if not isinstance(self.value, Mapping):
            raise self.fail("an object")
        return self.value

    def items(self) -> list[Place]:
        """Return the value as a list, each item with its place, counted from 1."""
        if not isinstance(self.value, list):
            raise self.fail("a list")
        return [Place(item, f"{self.where}, item {i}") for i, item in enumerate(self.value, start=1)]

    def get(self, key: str) -> Place:
        """Return what stands under a key, which has to be there."""
        record = self.record()
        if key not in record:
            raise InvalidInputError(
                f"{self.where}: expected a key {key!r}; got {', '.join(map(repr, record)) or 'none'}"
            )
        return Place(record[key], f"{self.where}, {key}")

    def find(self, key: str) -> Place | None:
        """Return what stands under a key, or None where it is missing or null."""
        return None if self.record().get(key) is None else self.get(key)

    def text(self) -> str:
        """Return the value as a string, cleaned as a memory does it: JSON allows half a surrogate pair, UTF-8 does not."""
        if not isinstance(self.value, str):
            raise self.fail("a string")
        return clean_text(self.value)

    def said(self) -> str:
        """Return what was said, without white space about it; empty where there is nothing to read."""
        text = self.text()
        return "" if is_blank(text) else text.strip()

    def words(self) -> str:
        """Return the value as a string that is not blank."""
        if not self.said():
            raise self.fail("a string that is not blank")
        return self.text()

    def scalar(self) -> str:
        """Return a string, number or truth value as a string: data sets write years as numbers."""
        if isinstance(self.value, bool) or not isinstance(self.value, (str, int, float)):
            raise self.fail("a string or a number")
        return self.text() if isinstance(self.value, str) else str(self.value)

    def time(self) -> datetime:
        """Return a time such as `2023-05-20`, `2023/05/20 (Sat) 03:29` or an ISO 8601 one; UTC where no zone is given."""
        text = self.text().strip()
        try:
            moment = datetime.fromisoformat(text)
        except ValueError:
            match = _CLOCK.fullmatch(text)
            if match is None:
                raise self.fail("a time such as 2023-05-20T03:29 or 2023/05/20 (Sat) 03:29") from None
            try:
                moment = datetime(*(int(part or 0) for part in match.groups()))  # type: ignore[arg-type]
            except ValueError as error:
                raise self.fail(f"a time that exists ({error})") from None
        return moment if moment.tzinfo else moment.replace(tzinfo=UTC)


def read_json(path: Path) -> Place:
    """Read one JSON value."""
    with _opened(path) as file:
        try:
            return Place(cast("JSON", json.load(file)), path.name)
        except json.JSONDecodeError as error:
            raise InvalidInputError(f"{path.name}, line {error.lineno}: expected JSON; {error.msg}") from None
        except UnicodeDecodeError as error:
            raise _not_utf8(path, error) from None


def iterate_array(path: Path) -> Iterator[Place]:
    """Read the items of one JSON array, holding no more than one of them: some files have gigabytes."""
    decoder = json.JSONDecoder()
    with _opened(path) as file:
        try:
            buffer = file.read(_CHUNK).lstrip()
            if not buffer.startswith("["):
                raise InvalidInputError(f"{path.name}: expected a JSON array, '[' first; got {buffer[:20]!r}")
            buffer = buffer[1:]
            number = 0
            while True:
                buffer = _skip_separator(buffer, file)
                if buffer.startswith("]"):
                    return
                number += 1
                value, buffer = _decode_item(decoder, buffer, file, f"{path.name}, item {number}")
                yield Place(value, f"{path.name}, item {number}")
        except UnicodeDecodeError as error:
            raise _not_utf8(path, error) from None


def iterate_lines(path: Path) -> Iterator[Place]:
    """Read JSON Lines; blank lines are skipped."""
    with _opened(path) as file:
        try:
            for number, line in enumerate(file, start=1):
                if not line.strip():
                    continue
                try:
                    yield Place(cast("JSON", json.loads(line)), f"{path.name}, line {number}")
                except json.JSONDecodeError as error:
                    raise InvalidInputError(f"{path.name}, line {number}: expected JSON; {error.msg}") from None
        except UnicodeDecodeError as error:
            raise _not_utf8(path, error) from None


def _opened(path: Path) -> TextIO:
    try:
        return path.open(encoding="utf-8-sig")
    except OSError as error:
        raise InvalidInputError(f"{path}: expected a file that can be read; {error.strerror}") from None


def _not_utf8(path: Path, error: UnicodeDecodeError) -> InvalidInputError:
    return InvalidInputError(f"{path.name}: expected UTF-8; got byte {error.object[error.start]:#04x}")


def _skip_separator(buffer: str, file: TextIO) -> str:
    """Drop white space and a comma, reading on where the buffer ends."""
    while not (rest := buffer.lstrip().removeprefix(",").lstrip()):
        more = file.read(_CHUNK)
        if not more:
            raise InvalidInputError(f"{Path(file.name).name}: expected ']' at the end; the file was cut short")
        buffer = more
    return rest


def _decode_item(decoder: json.JSONDecoder, buffer: str, file: TextIO, where: str) -> tuple[JSON, str]:
    """Decode the first value of the buffer, reading on (each time as much again) while it is cut."""
    while True:
        try:
            value, end = decoder.raw_decode(buffer)
        except json.JSONDecodeError as error:
            more = file.read(max(_CHUNK, len(buffer)))
            if not more:
                raise InvalidInputError(f"{where}: expected JSON; {error.msg}") from None
            buffer += more
        else:
            return cast("JSON", value), buffer[end:]
