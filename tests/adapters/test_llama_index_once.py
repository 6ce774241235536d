# ruff: noqa: D102
"""Each message is stored exactly once, whatever happens: flush, save, failure, retry, restart."""

import asyncio
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule
from llama_index.core.llms import ChatMessage
from llama_index.core.memory import Memory

from llama_index_memgas import MemGASMemory, MemGASMemoryBlock
from memgas import MemGAS, StoreError
from memgas.testing import HashEmbedder
from tests.adapters.llama_index_models import failing, stored

pytestmark = pytest.mark.slow

FAULTS = ["append", "append afterwards", "get", "list_sessions"]
# Few and short, so that many are said again.
WORDS = st.sampled_from(["ok", "thanks", "why?", "no"])


@contextmanager
def fault(memory: MemGAS, name: str | None) -> Iterator[None]:
    if name is None:
        yield
        return
    method, _, afterwards = name.partition(" ")
    with failing(memory, method, is_done_first=bool(afterwards)):
        yield


class Chat(RuleBasedStateMachine):
    """A chat on a plain `Memory` with our block, whose short-term memory is so small that it overflows all the time."""

    def __init__(self) -> None:
        super().__init__()
        self.loop = asyncio.new_event_loop()
        self.core = MemGAS.in_memory(embedder=HashEmbedder(8))
        self.said: Counter[tuple[str, str]] = Counter()
        self.fault: str | None = None

    def teardown(self) -> None:
        self.fault = None
        self.save()
        assert Counter(stored(self.core, "chat")) == self.said
        self.restart()
        self.save()
        assert Counter(stored(self.core, "chat")) == self.said
        self.core.close()
        self.loop.run_until_complete(self.memory.sql_store._async_engine.dispose())  # type: ignore[attr-defined]
        self.loop.close()

    @initialize()
    def begin(self) -> None:
        self._open()

    def _open(self, old: Memory | None = None) -> None:
        self.block = MemGASMemoryBlock(self.core, namespace="ana")
        self.memory = Memory.from_defaults(
            session_id="chat", memory_blocks=[self.block], token_limit=5, chat_history_token_ratio=1.0,
            token_flush_size=3, tokenizer_fn=str.split,
        )  # fmt: skip
        if old is not None:
            self.memory.sql_store = old.sql_store

    @rule(question=WORDS, answer=WORDS)
    def put(self, question: str, answer: str) -> None:
        with fault(self.core, self.fault):
            for role, text in (("user", question), ("assistant", answer)):
                self.loop.run_until_complete(self.memory.aput(ChatMessage(role=role, content=text)))
                self.said[role, text] += 1

    @rule()
    def save(self) -> None:
        with fault(self.core, self.fault):
            try:
                self.loop.run_until_complete(self.block.asave(self.memory))
            except StoreError:
                assert self.fault

    @rule()
    def restart(self) -> None:
        self._open(self.memory)

    @rule(name=st.sampled_from([None, None, None, None, *FAULTS]))
    def break_or_mend(self, name: str | None) -> None:
        self.fault = name

    @invariant()
    def is_never_twice(self) -> None:
        assert Counter(stored(self.core, "chat")) <= self.said


class Remembered(Chat):
    """A chat on `MemGASMemory`, whose history is also emptied and cut short."""

    was_cut = False
    has_failed = False

    def _open(self, old: Memory | None = None) -> None:
        self.memory = MemGASMemory.from_defaults(
            self.core, namespace="ana", session_id="chat", token_limit=5, chat_history_token_ratio=1.0,
            token_flush_size=3, tokenizer_fn=str.split,
        )  # fmt: skip
        self.block = self.memory.block
        if old is not None:
            self.memory.sql_store = old.sql_store

    def _is_behind(self) -> bool:
        return any(account.pending for account in self.block._ledger._accounts.values())

    @rule()
    def restart(self) -> None:
        # What is neither stored nor in the chat's history any more cannot be known after a restart; nor, once the history
        # was cut, whether a text that failed and was said before as well is one of them.
        if not (self.was_cut and self._is_behind()):
            self._open(self.memory)

    @precondition(lambda self: self.fault is None)
    @rule()
    def reset(self) -> None:
        self.loop.run_until_complete(self.memory.areset())
        self.was_cut = True

    @precondition(lambda self: self.fault is None)
    @rule(keep=st.integers(0, 4))
    def cut_history(self, keep: int) -> None:
        """Hand in the end of the history, as a host does with `chat(..., chat_history=...)`."""
        self.save()
        history = self.loop.run_until_complete(self.memory.aget_all())
        self.loop.run_until_complete(self.memory.aset(history[max(len(history) - keep, 0) :]))
        self.was_cut = True

    @invariant()
    def is_stored_as_it_is_said(self) -> None:
        self.has_failed = self.has_failed or self.fault is not None
        if not self.has_failed:
            assert Counter(stored(self.core, "chat")) == self.said


quick = settings(
    max_examples=40, stateful_step_count=25, deadline=None, suppress_health_check=[HealthCheck.too_slow]
)  # fmt: skip
TestChat = Chat.TestCase
TestChat.settings = quick
TestRemembered = Remembered.TestCase
TestRemembered.settings = quick


class Small:
    """A chat by hand, on a plain `Memory` that keeps five words."""

    def __init__(self, core: MemGAS, old: "Small | None" = None, **options: object) -> None:
        self.core = core
        self.block = MemGASMemoryBlock(core, namespace="ana")
        self.memory = Memory.from_defaults(
            session_id="chat", memory_blocks=[self.block], chat_history_token_ratio=1.0, token_flush_size=1,
            tokenizer_fn=str.split, **{"token_limit": 5, **options},  # type: ignore[arg-type]
        )  # fmt: skip
        if old is not None:
            self.memory.sql_store = old.memory.sql_store

    async def put(self, *texts: str) -> None:
        for at, text in enumerate(texts):
            await self.memory.aput(ChatMessage(role="assistant" if at % 2 else "user", content=text))

    async def save(self, fault_name: str | None = None) -> None:
        with fault(self.core, fault_name):
            if fault_name is None:
                await self.block.asave(self.memory)
                return
            with pytest.raises(StoreError):
                await self.block.asave(self.memory)

    def texts(self) -> list[str]:
        return [text for _, text in stored(self.core, "chat")]


@pytest.fixture
def core() -> Iterator[MemGAS]:
    with MemGAS.in_memory(embedder=HashEmbedder(8)) as memory:
        yield memory


async def test_flush_alone_stores_in_order(core: MemGAS) -> None:
    """Without any save, a flush stores what short-term memory drops, in order; what is said again is stored again."""
    chat = Small(core)
    await chat.put("ok", "ok", "ok", "ok", "why?", "ok", "ok", "no", "yes", "ok")

    assert chat.texts() == ["ok", "ok", "ok", "ok", "why?", "ok"]


async def test_restart_of_a_chat_that_was_only_flushed(core: MemGAS) -> None:
    """After a restart, a flush is known to be new, even where it repeats word for word what was flushed before."""
    chat = Small(core)
    await chat.put("hi", "hello", "hi", "hello", "hi", "hello")
    again = Small(core, chat)
    await again.put("hi", "hello", "hi", "hello")

    assert chat.texts() == ["hi", "hello"] * 3


async def test_short_chat_is_saved(core: MemGAS) -> None:
    """A chat too short to overflow reaches long-term memory by `asave`; saved twice, it is stored once."""
    chat = Small(core)
    await chat.put("hi", "hello")
    assert await chat.block.asave(chat.memory) == 2
    assert await chat.block.asave(chat.memory) == 0

    assert chat.texts() == ["hi", "hello"]


async def test_saved_and_then_flushed(core: MemGAS) -> None:
    """What was saved and is flushed later is stored once; what was said again after the save is stored again."""
    chat = Small(core)
    await chat.put("ok", "ok", "no", "ok")
    await chat.save()
    await chat.put("ok", "ok", "no", "ok")
    await chat.put("ok", "ok", "no", "ok")

    assert chat.texts() == ["ok", "ok", "no", "ok"] * 2
    await chat.save()
    assert chat.texts() == ["ok", "ok", "no", "ok"] * 3


@pytest.mark.parametrize("name", FAULTS)
async def test_failed_save_and_then_flush(core: MemGAS, name: str) -> None:
    """What a save could not store is stored once, though a flush brings it as well."""
    chat = Small(core)
    await chat.put("a", "b", "c", "d")
    await chat.save(name) if name != "get" else None
    await chat.put("e", "f", "g", "h")
    await chat.put("i", "j", "k", "l")
    assert Counter(chat.texts()) <= Counter("abcdefghijkl")
    await chat.save()

    assert Counter(chat.texts()) == Counter("abcdefghijkl")


async def test_failed_save_after_a_restart_and_then_flush(core: MemGAS) -> None:
    """After a restart too: what was saved before it, and what failed since, is stored once."""
    chat = Small(core)
    await chat.put("a", "b")
    await chat.save()
    await chat.put("c")
    again = Small(core, chat)
    await again.save("append")
    await again.put("d", "e", "f", "g", "h")
    assert Counter(again.texts()) <= Counter("abcdefgh")
    await again.save()

    assert again.texts() == list("abcdefgh")


@pytest.mark.parametrize("name", FAULTS)
async def test_failed_flush_is_stored_once_later(core: MemGAS, name: str) -> None:
    """When a flush fails, the chat goes on; the next flush, or a save, stores its messages once (PR #22867)."""
    for way in ("flush", "save"):
        chat = Small(core)
        chat.memory.session_id = way
        await chat.put("a", "b", "c", "d")
        with fault(core, name):
            await chat.put("e", "f")
        if way == "flush":
            await chat.put("g", "h", "i", "j")
            assert [text for _, text in stored(core, way)] == list("abcdef")
        await chat.save()
        await chat.put("k", "l", "m", "n", "o", "p")
        await chat.save()

        want = "abcdefghijklmnop" if way == "flush" else "abcdefklmnop"
        assert [text for _, text in stored(core, way)] == list(want)


async def test_save_after_a_restart_knows_what_was_flushed(core: MemGAS) -> None:
    """After a restart and one save, a flush stores at once what is said again, without waiting for another save."""
    chat = Small(core)
    await chat.put(*["ok"] * 4)
    await chat.save()
    await chat.put(*"abcdef")
    chat = Small(core, chat)
    await chat.save()
    await chat.put(*["ok"] * 4, *"ghijkl")

    assert chat.texts()[:14] == [*["ok"] * 4, *"abcdef", *["ok"] * 4]


async def test_message_ids_are_kept(core: MemGAS) -> None:
    """A message with an id of its own is known by it: the same text under two ids is stored twice, one id once."""
    chat = Small(core)
    for message_id in ("m1", "m2", "m2"):
        message = ChatMessage(role="user", content="ok", additional_kwargs={"message_id": message_id})
        await chat.memory.aput(message)
    await chat.save()
    again = Small(core, chat)
    await again.save()

    session = core.get("chat", namespace="ana")
    assert [turn.id for turn in session.turns] == ["m1", "m2"]


async def test_edited_message_keeps_its_first_wording(core: MemGAS) -> None:
    """A message that comes back edited under its id raises nothing, and holds nothing else up."""
    for text in ("I like tea", "I like coffee"):
        chat = Small(core)
        await chat.memory.aput(ChatMessage(role="user", content=text, additional_kwargs={"message_id": "m1"}))
        await chat.memory.aput(ChatMessage(role="assistant", content=f"Noted: {text}"))
        await chat.save()

    assert chat.texts() == ["I like tea", "Noted: I like tea", "Noted: I like coffee"]


@pytest.mark.parametrize("is_restarted", [False, True])
async def test_deleted_turn_does_not_come_back(core: MemGAS, is_restarted: bool) -> None:
    """A turn or a session that was deleted is not revived by a save or a flush of the chat that still has it."""
    chat = Small(core)
    await chat.put("my pin is 1234", "I will forget it")
    await chat.save()
    core.delete_turn("chat", 0, namespace="ana")
    if is_restarted:
        chat = Small(core, chat)
    await chat.save()
    await chat.put("thanks", "you are welcome", "bye", "bye")
    await chat.save()

    assert chat.texts() == ["I will forget it", "thanks", "you are welcome", "bye", "bye"]


async def test_deleted_turn_does_not_come_back_by_a_flush(core: MemGAS) -> None:
    """After a restart, a flush may bring a deleted turn before any save: it is not revived."""
    chat = Small(core)
    await chat.put("my pin is 1234", "I will forget it")
    await chat.save()
    core.delete_turn("chat", 0, namespace="ana")
    chat = Small(core, chat)
    await chat.put("thanks", "you are welcome", "bye", "bye")
    await chat.save()

    assert chat.texts() == ["I will forget it", "thanks", "you are welcome", "bye", "bye"]


async def test_deleted_session_does_not_come_back(core: MemGAS) -> None:
    """Deleting a session of a chat in use deletes it for good, while the chat goes on."""
    chat = Small(core)
    await chat.put("a", "b")
    await chat.save()
    core.delete_session("chat", namespace="ana")
    await chat.put("c", "d")
    await chat.save()

    assert chat.texts() == ["c", "d"]


async def test_two_sessions_of_one_block(core: MemGAS) -> None:
    """Two chats through one block are counted apart; a message object that is put into both is stored in both."""
    block = MemGASMemoryBlock(core, namespace="ana")
    chats = [
        Memory.from_defaults(
            session_id=name, memory_blocks=[block], token_limit=2, chat_history_token_ratio=1.0, token_flush_size=1,
            tokenizer_fn=str.split,
        )
        for name in ("one", "two")
    ]  # fmt: skip
    shared = ChatMessage(role="user", content="ok")
    for chat in (*chats, *chats):
        await chat.aput(shared)
        await chat.aput(ChatMessage(role="assistant", content="fine"))
    for chat in chats:
        await block.asave(chat)

    expected = [("user", "ok"), ("assistant", "fine")] * 2
    assert stored(core, "one") == stored(core, "two") == expected


async def test_by_hand_without_a_session(core: MemGAS) -> None:
    """A block that is put to by hand, without a session id, stores it in a conversation of its own."""
    block = MemGASMemoryBlock(core, namespace="ana")
    await block.aput([ChatMessage(role="user", content="I like tea.")])

    (record,) = core.list_sessions(namespace="ana")
    assert stored(core, record.conversation_id or "") == [("user", "I like tea.")]


async def test_concurrent_saves_and_puts(core: MemGAS, tmp_path: Path) -> None:
    """Saves and puts at the same time store each message once.

    On a file: at once, `Memory` loses messages in its database in memory, and hands some to its blocks twice.
    """
    chat = Small(core, token_limit=1_000, async_database_uri=f"sqlite+aiosqlite:///{tmp_path}/chats.db")
    await chat.put("first")

    async def talk(name: str) -> None:
        for at in range(4):
            await chat.put(f"{name}{at}")
            await chat.save()

    await asyncio.gather(*(talk(name) for name in "abc"))
    await chat.save()

    assert Counter(chat.texts()) == Counter(["first", *(f"{name}{at}" for name in "abc" for at in range(4))])


async def test_several_event_loops(core: MemGAS) -> None:
    """One block serves several event loops at once, each message once."""
    block = MemGASMemoryBlock(core, namespace="ana")

    async def talk(name: str) -> None:
        for at in range(4):
            await block.asay([ChatMessage(role="user", content=f"{name}{at}")], session_id="chat")

    await asyncio.gather(*(asyncio.to_thread(asyncio.run, talk(name)) for name in "abc"))

    assert Counter(text for _, text in stored(core, "chat")) == Counter(f"{n}{at}" for n in "abc" for at in range(4))
