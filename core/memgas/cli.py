"""The command line: `memgas demo | add | search | explain | export | import | stats | forget | doctor | evaluate | …`.

Those that measure are in `cli_evaluation.py`.

Results go to stdout, everything else to stderr; with `--json`, stdout is one JSON value and nothing else. Exit code 2:
what was asked cannot be used; 1: it could not be done, or something is wrong.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import TYPE_CHECKING, Literal, TextIO, TypeVar, cast

import click

from memgas import cli_evaluation, rendering
from memgas.errors import InvalidInputError, MemGASError, NotFoundError, SessionConflictError
from memgas.explaining import plain

if TYPE_CHECKING:
    from datetime import datetime

    from memgas.memory import MemGAS
    from memgas.types import JSON

Command = TypeVar("Command", bound=Callable[..., object])

NAMESPACE = click.option("-n", "--namespace", required=True, metavar="NAME", help="Whose memory.")
AS_JSON = click.option("--json", "as_json", is_flag=True, help="Print one JSON value and nothing else.")
EMBEDDER = click.option("--embedder", default="fast-use", show_default=True, metavar="NAME", help="Embedder to use.")


class _Failure(click.ClickException):
    """What failed, said without a traceback: exit code 1."""

    def __init__(self, error: Exception) -> None:
        super().__init__(str(error))


class _BadInput(_Failure):
    """What was asked cannot be used."""

    exit_code = 2


class _Group(click.Group):
    """Turns the library's errors into messages."""

    def invoke(self, ctx: click.Context) -> object:
        """Run a command: 2 for bad input, 1 for what failed."""
        try:
            return super().invoke(ctx)
        except (InvalidInputError, SessionConflictError, NotFoundError, UnicodeDecodeError) as error:
            raise _BadInput(error) from error
        except MemGASError as error:
            raise _Failure(error) from error


def _time(_ctx: click.Context, param: click.Parameter, value: str | None) -> datetime | None:
    """Read a date, or a time with a zone."""
    from memgas.transcripts import parse_time

    return None if value is None else parse_time(value, where=param.opts[-1])


def _json(_ctx: click.Context, param: click.Parameter, value: str | None) -> JSON:
    """Read a JSON value."""
    try:
        return None if value is None else json.loads(value)
    except json.JSONDecodeError as error:
        raise click.BadParameter(f"{value!r} is no JSON ({error.msg})", param=param) from None


def store_options(command: Command) -> Command:
    """Add the options that say which memory."""
    path = click.option(
        "--path", envvar="MEMGAS_PATH", default="./memory", show_default=True, show_envvar=True, metavar="FOLDER",
        type=click.Path(file_okay=False), help="Where the memory is kept.",
    )  # fmt: skip
    return path(EMBEDDER(command))


@contextmanager
def opened(path: str, embedder: str, *, create: bool = False) -> Iterator[MemGAS]:
    """Open the memory at a path; a path without one is bad input unless `create`."""
    if not create and not (Path(path).is_dir() and any(Path(path).iterdir())):
        raise NotFoundError(f"there is no memory at {path}: give its folder by --path or MEMGAS_PATH, or `memgas add`")
    from memgas.memory import MemGAS

    with MemGAS(path, embedder=embedder) as memory:
        yield memory


def show(data: object, lines: Iterator[str], *, as_json: bool) -> None:
    """Print a result: one JSON value, or lines for people."""
    if as_json:
        click.echo(json.dumps(plain(data), ensure_ascii=False, indent=2))
    else:
        for line in lines:
            click.echo(line)


@click.group(cls=_Group, context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 100})
@click.version_option(package_name="memgas")
def main() -> None:
    """Long-term memory for chat agents: keeps every word, finds the right one, shows why."""


@main.command()
def demo() -> None:
    """Remember two people's year and ask about it. Nothing to configure, no network."""
    from memgas.demo import run_demo

    for line in run_demo(width=rendering.terminal_width()):
        click.echo(line)


@main.command()
@click.argument("file", type=click.File("r", encoding="utf-8"), default="-")
@NAMESPACE
@click.option("--session", "session_id", metavar="ID", help="Store the turns as this session, whole.")
@click.option("--conversation", "conversation_id", metavar="ID", help="Append the turns to this conversation.")
@click.option(
    "--at",
    "position",
    type=int,
    metavar="N",
    help="Position of the first turn in the conversation: makes a retry harmless.",
)
@click.option("--happened-at", callback=_time, metavar="TIME", help="When it happened, unless the turns say so.")
@click.option("--metadata", callback=_json, metavar="JSON", help="Anything to keep with the session.")
@store_options
@AS_JSON
def add(
    *, file: TextIO, namespace: str, session_id: str | None, conversation_id: str | None, position: int | None,
    happened_at: datetime | None, metadata: JSON, path: str, embedder: str, as_json: bool,
) -> None:  # fmt: skip
    """Remember turns from FILE, or from standard input.

    A line is {"speaker": ..., "text": ..., "happened_at": ..., "id": ...} or `speaker: text`. The same turns again
    change nothing.
    """
    from memgas.transcripts import parse_turns

    if conversation_id is not None and (session_id is not None or happened_at is not None or metadata is not None):
        raise click.UsageError("--conversation goes with neither --session, --happened-at nor --metadata")
    turns = parse_turns(file.read())
    with opened(path, embedder, create=True) as memory:
        if conversation_id is not None:
            added = memory.append(turns, namespace=namespace, conversation_id=conversation_id, at=position)
        else:
            added = memory.add(
                turns, namespace=namespace, session_id=session_id, happened_at=happened_at, metadata=metadata
            )
    line = f"{added.n_new_turns} new of {len(turns)} turns, in session {added.session_id}"
    show(added, iter([line, *added.degraded]), as_json=as_json)


@main.command()
@click.argument("query")
@NAMESPACE
@click.option("-k", "--top-k", default=5, show_default=True, help="Most sessions to show.")
@click.option("--since", callback=_time, metavar="TIME", help="Nothing older.")
@click.option("--until", callback=_time, metavar="TIME", help="Nothing newer.")
@click.option("--min-score", default=0.0, metavar="0..1", help="Nothing with a lower score.")
@click.option("--where", callback=_json, metavar="JSON", help='Only sessions with this metadata: {"topic": "work"}.')
@click.option("--context", "max_tokens", type=int, metavar="TOKENS", help="Print the text for a model instead.")
@store_options
@AS_JSON
def search(
    *, query: str, namespace: str, top_k: int, since: datetime | None, until: datetime | None, min_score: float,
    where: JSON, max_tokens: int | None, path: str, embedder: str, as_json: bool,
) -> None:  # fmt: skip
    """Find the sessions that matter for QUERY, best first."""
    if where is not None and not isinstance(where, dict):
        raise click.BadParameter("must be a JSON object", param_hint="--where")
    with opened(path, embedder) as memory:
        found = memory.retrieve(
            query, namespace=namespace, top_k=top_k, since=since, until=until, min_score=min_score, where=where
        )
    if max_tokens is not None:
        context = found.context(max_tokens=max_tokens)
        show({"context": context}, iter([context]), as_json=as_json)
        return
    width = rendering.terminal_width()
    lines = [
        line
        for rank, hit in enumerate(found.hits, 1)
        for line in rendering.hit_lines(rank, hit, hit.evidence, width=width)
    ]
    lines.append(
        click.style(f"  router  {rendering.router_line(found.trace.routes)}", dim=True) if lines else "Nothing found."
    )
    show(
        {"query": query, "namespace": namespace, "hits": found.hits, "trace": found.trace}, iter(lines), as_json=as_json
    )


@main.command()
@click.argument("query")
@NAMESPACE
@click.option("-k", "--top-k", default=5, show_default=True, help="Most sessions to find.")
@click.option(
    "--session", "session_id", metavar="ID", help="Tell why this session is not among them, and what would help."
)
@store_options
@AS_JSON
def explain(
    *, query: str, namespace: str, top_k: int, session_id: str | None, path: str, embedder: str, as_json: bool
) -> None:
    """Show what was decided for QUERY: router weights, seeds, and for each hit its scores and its path.

    With --session: where that session was lost, by how much, and the smallest change that brings it in.
    """
    with opened(path, embedder) as memory:
        if session_id is not None:
            told = memory.explain(query, namespace=namespace, session_id=session_id, top_k=top_k)
            show(told.as_dict(), told.lines(), as_json=as_json)
            return
        explanation = memory.retrieve(query, namespace=namespace, top_k=top_k).explain()
    show(explanation.as_dict(), explanation.lines(), as_json=as_json)


@main.command()
@NAMESPACE
@click.option(
    "-o", "--out", required=True, metavar="FILE", help="*.html, *.png, *.svg, *.json; a graph also *.graphml."
)
@click.option(
    "--of",
    "what",
    type=click.Choice(["associations", "degrees", "similarities", "router"]),
    default="associations",
    show_default=True,
    help="The graph; how many associations units have; similarities with the fitted mixture; router weights.",
)
@click.option(
    "--by", type=click.Choice(["unit", "session"]), help="What a node of the graph is; units while they are few."
)
@click.option("--session", "session_id", metavar="ID", help="Whose similarities; the newest session's when left out.")
@click.option("-q", "--query", "queries", multiple=True, metavar="TEXT", help="For router weights; may be repeated.")
@store_options
def graph(
    *, namespace: str, out: str, what: str, by: Literal["unit", "session"] | None, session_id: str | None,
    queries: tuple[str, ...], path: str, embedder: str,
) -> None:  # fmt: skip
    """Draw a namespace: its association graph, or a chart of it."""
    from memgas import pictures

    with opened(path, embedder) as memory:
        if namespace not in memory.namespaces():
            raise NotFoundError(f"there is no namespace {namespace!r} in {path}")
        if what == "degrees":
            pictures.write_degrees(memory, namespace, out)
        elif what == "similarities":
            pictures.write_similarities(memory, namespace, out, session_id=session_id)
        elif what == "router":
            pictures.write_router(memory, namespace, queries, out)
        else:
            pictures.write_graph(memory, namespace, out, by=by)
    click.echo(f"written to {out}", err=True)


@main.command()
@click.argument("path", envvar="MEMGAS_PATH", default="./memory", type=click.Path(file_okay=False))
@click.option("--port", type=click.IntRange(0, 65535), default=0, help="Port on 127.0.0.1; any free one when left out.")
@click.option("--allow-forget", is_flag=True, help="Let sessions be deleted from the page.")
@click.option("--open", "open_browser", is_flag=True, help="Open the page in a browser.")
@EMBEDDER
def explore(*, path: str, port: int, allow_forget: bool, open_browser: bool, embedder: str) -> None:
    """Show the memory at PATH as a page for this machine alone, until Ctrl-C. Changes nothing, needs no network."""
    from memgas.explore.serving import open_page

    with opened(path, embedder) as memory:
        page = open_page(memory, port=port, allow_forget=allow_forget)
        click.echo(page.url)
        click.echo("Open it in a browser. Ctrl-C ends it.", err=True)
        if open_browser:
            click.launch(page.url)
        with suppress(KeyboardInterrupt):
            page.serve()


@main.command("export")
@click.argument("file", type=click.Path(dir_okay=False, allow_dash=True), default="-")
@NAMESPACE
@store_options
def export_(*, file: str, namespace: str, path: str, embedder: str) -> None:
    """Write a namespace's sessions to FILE, or to standard output: one JSON line each."""
    with opened(path, embedder) as memory, click.open_file(file, "w", encoding="utf-8", atomic=file != "-") as out:
        if namespace not in memory.namespaces():
            raise NotFoundError(f"there is no namespace {namespace!r} in {path}")
        n_sessions = memory.export_jsonl(out, namespace=namespace)
    click.echo(f"{n_sessions} sessions exported", err=True)


@main.command("import")
@click.argument("file", type=click.File("r", encoding="utf-8"), default="-")
@NAMESPACE
@store_options
@AS_JSON
def import_(*, file: TextIO, namespace: str, path: str, embedder: str, as_json: bool) -> None:
    """Read sessions from FILE, or from standard input, as `export` wrote them."""
    lines = [line for line in file if line.strip()]
    with opened(path, embedder, create=True) as memory, rendering.progress(lines, "importing") as bar:
        n_sessions = memory.import_jsonl(bar, namespace=namespace)
    show({"n_sessions": n_sessions}, iter([f"{n_sessions} sessions imported"]), as_json=as_json)


@main.command()
@click.option("-n", "--namespace", metavar="NAME", help="Whose memory; all of them when left out.")
@store_options
@AS_JSON
def stats(*, namespace: str | None, path: str, embedder: str, as_json: bool) -> None:
    """Count what is remembered."""
    with opened(path, embedder) as memory:
        counted = plain(memory.stats(namespace))
        names = memory.namespaces() if namespace is None else [namespace]
    data = {"namespaces": names, **cast("dict[str, JSON]", counted)}
    show(data, rendering.mapping_lines(data), as_json=as_json)


@main.command()
@click.option("--repair", is_flag=True, help="Mend what can be mended.")
@store_options
@AS_JSON
def doctor(*, repair: bool, path: str, embedder: str, as_json: bool) -> None:
    """Look for what is wrong with a memory; exit code 1 if something is."""
    with opened(path, embedder) as memory:
        done = memory.repair() if repair else []
        problems = memory.check()
    lines = [*(f"mended: {line}" for line in done), *(f"wrong: {line}" for line in problems)]
    show({"problems": problems, "done": done}, iter(lines or ["Nothing is wrong."]), as_json=as_json)
    if problems:
        sys.exit(1)


@main.command()
@store_options
@AS_JSON
def reembed(*, path: str, embedder: str, as_json: bool) -> None:
    """Move a memory to another embedder: embed everything again from the stored text.

    Goes on where a call that was cut short stopped. With the embedder that the memory has, it gives the move up.
    """
    from memgas.memory import MemGAS

    if not (Path(path).is_dir() and any(Path(path).iterdir())):
        raise NotFoundError(f"there is no memory at {path}: give its folder by --path or MEMGAS_PATH")
    n_sessions = MemGAS.reembed(path, embedder=embedder)
    show({"n_sessions": n_sessions}, iter([f"{n_sessions} sessions embedded with {embedder}"]), as_json=as_json)


@main.command()
@NAMESPACE
@click.option("--session", "session_id", metavar="ID", help="Only this session.")
@click.option("--turn", "position", type=int, metavar="N", help="Only this turn of the session, counted from 0.")
@click.option("--conversation", "conversation_id", metavar="ID", help="Only this conversation.")
@click.option("--erase", is_flag=True, help="Remove the bytes from the disk too. Takes seconds.")
@click.option("--prove", is_flag=True, help="Say what was removed, and look for it afterwards; exit code 1 if found.")
@click.option("--yes", is_flag=True, help="Do not ask.")
@store_options
@AS_JSON
def forget(
    *, namespace: str, session_id: str | None, position: int | None, conversation_id: str | None, path: str,
    embedder: str, erase: bool, prove: bool, yes: bool, as_json: bool,
) -> None:  # fmt: skip
    """Delete a namespace, a conversation, a session or one turn."""
    from memgas import forgetting

    target = forgetting.Target(namespace, conversation_id, session_id, position)
    if not yes:
        click.confirm(f"Delete {target}?", abort=True, err=True)
    with opened(path, embedder) as memory:
        report = forgetting.forget(memory, target, folder=Path(path), erase=erase, prove=prove)
    show(report, report.lines(), as_json=as_json)
    if report.proof is not None and not report.proof.is_clean:
        sys.exit(1)


for _command in (cli_evaluation.evaluate, cli_evaluation.sweep, cli_evaluation.answer):
    main.add_command(_command)


if __name__ == "__main__":
    sys.exit(main())
