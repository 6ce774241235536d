"""Official files in, dialogues out."""

import json
from datetime import UTC, datetime
from pathlib import Path

import pytest

from memgas.errors import InvalidInputError
from memgas.evaluation.datasets import (
    READERS,
    Dataset,
    Dialogue,
    DialogueSession,
    Question,
    read_dataset,
    read_locomo,
    read_long_mt_bench,
    read_longmemeval,
    read_madial,
    read_own,
    sample_questions,
)
from memgas.evaluation.fields import iterate_array
from memgas.types import JSON, Turn

FIXTURES = Path(__file__).parent.parent / "fixtures"
LOCOMO = FIXTURES / "locomo_tiny.json"
LONGMEMEVAL = FIXTURES / "longmemeval_tiny.json"


def write(path: Path, value: JSON) -> Path:
    path.write_text(json.dumps(value, ensure_ascii=False), "utf-8")
    return path


def write_lines(path: Path, *values: JSON) -> Path:
    path.write_text("".join(json.dumps(value) + "\n" for value in values), "utf-8")
    return path


def locomo_sample(**changes: JSON) -> dict[str, JSON]:
    turns: JSON = [{"speaker": "Ada", "dia_id": "D1:1", "text": "Hello."}]
    sample: dict[str, JSON] = {
        "sample_id": "x",
        "conversation": {"session_1": turns, "session_1_date_time": "1:56 pm on 8 May, 2023"},
        "qa": [{"question": "Who?", "answer": "Ada", "evidence": ["D1:1"], "category": 4}],
    }
    return {**sample, **changes}


def gold_of(dialogue: Dialogue) -> list[list[int]]:
    return [sorted(question.gold) for question in dialogue.questions]


# LoCoMo


def test_locomo_reads_sessions_speakers_and_times() -> None:
    """Sessions come in the order of their numbers, with speakers by name, times in UTC and the file's summaries."""
    data = read_locomo(LOCOMO)
    assert (data.name, len(data.dialogues), data.n_questions, data.n_left_out) == ("locomo", 2, 14, 1)
    first = data.dialogues[0]
    assert first.id == "tiny-1"
    assert len(first.sessions) == 6
    assert first.sessions[0].turns[0] == Turn(
        "Iris", "I finally rented the workshop by the canal, the keys came yesterday."
    )
    assert first.sessions[2].happened_at == datetime(2024, 4, 2, 19, 45, tzinfo=UTC)
    assert (first.sessions[5].given_summary or "").startswith("Tobias adopted a tortoise")


def test_locomo_parses_odd_evidence() -> None:
    """Several ids in one string count; broken ids do not; ids of sessions that do not exist are left out."""
    one, two = read_locomo(LOCOMO).dialogues
    assert gold_of(one) == [[0], [3], [2], [0, 2], [2, 4], [3], [5], [3]]
    assert gold_of(two) == [[0], [1, 3], [2, 5], [4], [3], [], [4]]
    assert [question.type for question in two.judged] == ["4", "1", "1", "2", "4", "5"]


def test_locomo_question_whose_evidence_is_all_missing_is_left_out(tmp_path: Path) -> None:
    """A question counts when one of its ids names a session that exists, and only then."""
    qa: JSON = [{"question": "Q", "answer": "A", "evidence": ["D9:1", "D"], "category": 1}]
    data = read_locomo(write(tmp_path / "f.json", [locomo_sample(qa=qa)]))
    assert (data.n_questions, data.n_left_out) == (0, 1)


def test_locomo_answers() -> None:
    """A numeric answer is text; category 5 asks what never happened, so its answer is none, not the false one."""
    one = read_locomo(LOCOMO).dialogues[0]
    assert one.questions[5].answer == "14"
    assert (one.questions[7].type, one.questions[7].answer) == ("5", None)


def test_locomo_captions_are_appended_or_dropped() -> None:
    """An image stands in the text as its caption, or, if so wanted, not at all."""
    appended = read_locomo(LOCOMO).dialogues[0].sessions[1].turns[3].text
    dropped = read_locomo(LOCOMO, captions="drop").dialogues[0].sessions[1].turns[3].text
    assert appended == "Here is what I did this week. [shares an image: a wooden loom standing in an empty brick room]"
    assert dropped == "Here is what I did this week."


@pytest.mark.parametrize(
    ("text", "moment"),
    [
        ("12:10 am on 21 April, 2024", datetime(2024, 4, 21, 0, 10, tzinfo=UTC)),
        ("12:30 pm on 17 March, 2024", datetime(2024, 3, 17, 12, 30, tzinfo=UTC)),
        ("9:05 AM on 29 February, 2024", datetime(2024, 2, 29, 9, 5, tzinfo=UTC)),
    ],
)
def test_locomo_times_around_noon_and_midnight(tmp_path: Path, text: str, moment: datetime) -> None:
    """12 am is midnight, 12 pm is noon."""
    turns: JSON = [{"speaker": "Ada", "text": "Hello."}]
    sample = locomo_sample(conversation={"session_1": turns, "session_1_date_time": text})
    assert read_locomo(write(tmp_path / "f.json", [sample])).dialogues[0].sessions[0].happened_at == moment


def test_locomo_gold_is_an_index_where_a_number_is_missing(tmp_path: Path) -> None:
    """Where session numbers have gaps or a session is empty, gold still points at the right session."""
    turns: JSON = [{"speaker": "Ada", "text": "Hello."}]
    conversation: JSON = {
        "session_2": turns, "session_2_date_time": "1:00 pm on 1 May, 2023",
        "session_4": [], "session_4_date_time": "1:00 pm on 2 May, 2023",
        "session_10": turns, "session_10_date_time": "1:00 pm on 3 May, 2023",
    }  # fmt: skip
    qa: JSON = [{"question": "Q", "answer": "A", "evidence": ["D10:1 D4:1"], "category": 1}]
    dialogue = read_locomo(write(tmp_path / "f.json", [locomo_sample(conversation=conversation, qa=qa)])).dialogues[0]
    assert (len(dialogue.sessions), gold_of(dialogue)) == (2, [[1]])


@pytest.mark.parametrize(
    ("sample", "place"),
    [
        (locomo_sample(qa=[{"question": "Q", "evidence": ["D1:1"]}]), r"\(x\), qa, item 1: .*'category'"),
        (locomo_sample(conversation={"session_1": [{"speaker": "A"}]}), r"session_1, item 1.*'text'"),
        (locomo_sample(conversation={"session_1": [{"speaker": "A", "text": "B"}]}), "'session_1_date_time'"),
        (
            locomo_sample(conversation={"session_1": [{"speaker": "A", "text": "B"}], "session_1_date_time": "soon"}),
            "soon",
        ),
        (
            locomo_sample(
                conversation={
                    "session_1": [{"speaker": "A", "text": "B"}],
                    "session_1_date_time": "1:00 pm on 31 June, 2023",
                }
            ),
            "a time that exists",
        ),
        (locomo_sample(conversation={}), "at least one session_N"),
        ({"qa": []}, "'sample_id'"),
        ("text", "an object"),
    ],
)
def test_locomo_errors_name_the_place(tmp_path: Path, sample: JSON, place: str) -> None:
    """What is wrong in a file is said with the item and the key where it stands."""
    path = write(tmp_path / "f.json", [sample])
    with pytest.raises(InvalidInputError, match=rf"(?s)f\.json, item 1.*{place}"):
        read_locomo(path)


# files


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (b'{"a": 1}', "a JSON array"),
        (b"", "a JSON array"),
        (b'[{"a": 1}, {"a": ', "item 2"),
        (b'[{"a": 1}', "cut short"),
        (b"[\xff]", "UTF-8"),
        (b"[nonsense]", "item 1"),
    ],
)
def test_files_that_are_not_json_arrays(tmp_path: Path, content: bytes, message: str) -> None:
    """A file that is no JSON array, is cut short, or is not UTF-8 is refused; nothing of it is silently dropped."""
    path = tmp_path / "f.json"
    path.write_bytes(content)
    with pytest.raises(InvalidInputError, match=message):
        list(iterate_array(path))


def test_missing_file(tmp_path: Path) -> None:
    """A file that is not there is bad input, with its path."""
    with pytest.raises(InvalidInputError, match="nowhere"):
        read_locomo(tmp_path / "nowhere.json")


def test_array_larger_than_the_read_buffer(tmp_path: Path) -> None:
    """Items are read one at a time, also where one is larger than what is read at once, or cut in the middle."""
    texts = ["é" * 700_000, "short", "x" * 2_500_000, "y" * 1_048_570]
    value: JSON = [
        {"conversation_id": i, "sessions": [[text]], "questions": ["Q"], "answers": ["A"]}
        for i, text in enumerate(texts)
    ]
    data = read_long_mt_bench(write(tmp_path / "f.json", value))
    assert [dialogue.sessions[0].turns[0].text for dialogue in data.dialogues] == texts


def test_half_a_surrogate_pair(tmp_path: Path) -> None:
    r"""JSON may hold half an emoji (`\ud83d`), which no store takes: it is read as `?`, the rest is kept."""
    path = tmp_path / "f.json"
    path.write_text('[{"conversation_id": 1, "sessions": [["so \\ud83d far"]], "questions": [], "answers": []}]')
    assert read_long_mt_bench(path).dialogues[0].sessions[0].turns[0].text == "so ? far"


# LongMemEval


def test_longmemeval_sorts_by_date_and_keys_by_position() -> None:
    """Sessions come by date, gold points at them there, also where an id repeats within the haystack."""
    data = read_longmemeval(LONGMEMEVAL)
    first, second, third, _ = data.dialogues
    assert [session.happened_at.day for session in first.sessions] == [2, 11, 20, 25]
    assert [gold_of(dialogue) for dialogue in (first, second, third)] == [[[0]], [[0, 2]], [[1]]]
    assert first.questions[0].asked_at == datetime(2024, 5, 30, 18, 0, tzinfo=UTC)
    assert (data.n_questions, data.n_left_out) == (3, 1)


def test_longmemeval_falls_back_to_marked_turns() -> None:
    """Where the haystack has none of the answer's sessions, those with a marked turn are gold."""
    third = read_longmemeval(LONGMEMEVAL).dialogues[2]
    assert third.sessions[1].turns[0].text == "My piano lessons moved to Wednesday evenings."
    assert third.questions[0].answer == "3"


def test_longmemeval_leaves_abstention_out() -> None:
    """Questions about what never happened have no gold and no answer."""
    question = read_longmemeval(LONGMEMEVAL).dialogues[3].questions[0]
    assert (question.gold, question.answer) == (frozenset(), None)


def test_longmemeval_keeps_no_session_id_and_no_label() -> None:
    """Gold session ids begin with `answer_`: none is kept anywhere, nor is the mark of a gold turn."""
    for dialogue in read_longmemeval(LONGMEMEVAL).dialogues:
        assert "answer_" not in repr(dialogue.sessions)
        assert "has_answer" not in repr(dialogue.sessions)


def test_longmemeval_leaves_blank_turns_out() -> None:
    """Some turns are white space or a zero-width space, which a memory refuses: they are no turns."""
    first, _, third, _ = read_longmemeval(LONGMEMEVAL).dialogues
    assert len(third.sessions[2].turns) == 2
    assert [turn.speaker for turn in first.sessions[2].turns] == ["user", "assistant"]


def test_longmemeval_holds_shared_sessions_once() -> None:
    """A session that stands in several haystacks is one object: the large file has each many times."""
    first, second, *_ = read_longmemeval(LONGMEMEVAL).dialogues
    assert first.sessions[0].turns is second.sessions[0].turns


def test_longmemeval_lists_of_unequal_length(tmp_path: Path) -> None:
    """A haystack whose ids, dates and sessions do not match is refused."""
    entry: JSON = {
        "question_id": "q", "haystack_session_ids": ["a"], "haystack_dates": [], "haystack_sessions": [[]],
    }  # fmt: skip
    with pytest.raises(InvalidInputError, match=r"item 1 \(q\).*1, 0 and 1"):
        read_longmemeval(write(tmp_path / "f.json", [entry]))


# MADial


def madial(**fields: JSON) -> JSON:
    def memory(day: int, event: str, **more: JSON) -> JSON:
        return {"time": f"2023-01-{day:02}", "scene": "Hobby", "emotion": "Glad", "event": event, **more}

    def query(user: int, name: str, line: str, *ids: str) -> JSON:
        context: JSON = ["<BOD>\n", f'<{name}>: "{line}"\n', '<Assistant>:"Go on."\n']
        return {"qid": f"m-{line[:4]}", "user_id": user, "context": context, "relevant_ids": list(ids)}

    memories: JSON = {
        "7": memory(9, "Mira learned to skate.", **fields),
        "9": memory(2, "Mira lost a skate.", **fields),
        "3": memory(5, "Juri baked.") if not fields else memory(5, "Juri baked.", **{"user-id": 2}),
    }
    return {"memories": memories, "queries": [query(1, "Mira", "Cold today", "7", "9"), query(2, "Juri", "Bread", "3")]}


def test_madial_a_dialogue_a_user(tmp_path: Path) -> None:
    """Each user's memories are dated sessions of one turn, apart from the other's; queries are the dialogue so far."""
    mira, juri = read_madial(write(tmp_path / "f.json", madial(**{"user-id": 1}))).dialogues
    texts = ["Mira lost a skate. (Hobby, Glad)", "Mira learned to skate. (Hobby, Glad)"]
    assert [session.turns for session in mira.sessions] == [(Turn("Mira", text),) for text in texts]
    assert (mira.questions[0].text, mira.questions[0].id) == ("Mira: Cold today\nAssistant: Go on.", "m-Cold")
    assert (gold_of(mira), gold_of(juri), len(juri.sessions)) == ([[0, 1]], [[0]], 1)


def test_madial_without_user_ids_goes_by_name(tmp_path: Path) -> None:
    """In the English file no memory says whose it is: it is theirs whose name stands in it."""
    mira, juri = read_madial(write(tmp_path / "f.json", madial())).dialogues
    assert (len(mira.sessions), len(juri.sessions)) == (2, 1)


# Long-MT-Bench+


def test_long_mt_bench_has_answers_but_no_evidence(tmp_path: Path) -> None:
    """Texts are user and assistant in turn; questions keep their answers; retrieval is not judged."""
    entry: JSON = {"conversation_id": 3, "sessions": [["a", "b", "c"], ["d"]], "questions": ["Q"], "answers": ["A"]}
    data = read_long_mt_bench(write(tmp_path / "f.json", [entry]))
    assert [turn.speaker for turn in data.dialogues[0].sessions[0].turns] == ["user", "assistant", "user"]
    assert (data.n_questions, data.dialogues[0].questions[0].answer) == (0, "A")


# your own


def own_session(session_id: str, text: str, day: int = 1, **more: JSON) -> dict[str, JSON]:
    turns: JSON = [{"speaker": "user", "text": text}]
    return {"session_id": session_id, "happened_at": f"2024-05-{day:02}T10:00:00+02:00", "turns": turns, **more}


def test_own_expected_and_phrase(tmp_path: Path) -> None:
    """Gold is the expected session, several of them, or every session that has the phrase."""
    sessions = write_lines(
        tmp_path / "s.jsonl", own_session("b", "The Blue door.", 2, summary="A door."), own_session("a", "A blue DOOR again."),
        own_session("c", "Nothing.", 3, namespace="else"),
    )  # fmt: skip
    questions = write_lines(
        tmp_path / "q.jsonl", {"question": "One?", "expected": "b"}, {"question": "Two?", "expected": ["a", "b"]},
        {"question": "Three?", "phrase": "blue door", "type": "colour", "answer": 2},
        {"question": "Four?", "expected": "c", "namespace": "else", "id": "four"},
    )  # fmt: skip
    main, other = read_own(sessions, questions).dialogues
    assert gold_of(main) == [[1], [0, 1], [0, 1]]
    assert (main.sessions[1].given_summary, main.questions[2].type, main.questions[2].answer) == (
        "A door.",
        "colour",
        "2",
    )
    assert (gold_of(other), other.questions[0].id) == ([[0]], "four")


@pytest.mark.parametrize(
    ("question", "message"),
    [
        ({"question": "Q", "expected": "zz"}, r"q\.jsonl, line 1, expected.*id of a session"),
        ({"question": "Q", "phrase": "never said"}, r"q\.jsonl, line 1, phrase.*stand in one of the sessions"),
        ({"question": "Q"}, "either 'expected' or 'phrase'; got none"),
        ({"question": "Q", "expected": "a", "phrase": "x"}, "got both"),
        ({"question": " ", "expected": "a"}, "not blank"),
        ({"question": "Q", "expected": "a", "namespace": "nobody"}, "namespace that has sessions"),
    ],
)
def test_own_errors_name_file_and_line(tmp_path: Path, question: JSON, message: str) -> None:
    """What cannot be used is said with file and line."""
    sessions = write_lines(tmp_path / "s.jsonl", own_session("a", "Text."))
    with pytest.raises(InvalidInputError, match=message):
        read_own(sessions, write_lines(tmp_path / "q.jsonl", question))


def test_own_refuses_a_session_twice(tmp_path: Path) -> None:
    """Two sessions of one id would make `expected` ambiguous."""
    sessions = write_lines(tmp_path / "s.jsonl", own_session("a", "One."), own_session("a", "Two."))
    with pytest.raises(InvalidInputError, match=r"line 2.*stands in s\.jsonl, line 1"):
        read_own(sessions, write_lines(tmp_path / "q.jsonl"))


def test_own_broken_line(tmp_path: Path) -> None:
    """A line that is no JSON is named."""
    path = tmp_path / "s.jsonl"
    path.write_text(json.dumps(own_session("a", "One.")) + "\n\n{broken\n")
    with pytest.raises(InvalidInputError, match=r"s\.jsonl, line 3"):
        read_own(path, path)


# choosing


def test_reader_by_name() -> None:
    """A format is chosen by its name; an unknown one lists what there is."""
    assert read_dataset("locomo", LOCOMO) == read_locomo(LOCOMO)
    with pytest.raises(InvalidInputError, match="locomo, longmemeval, madial, long-mt-bench"):
        read_dataset("squad", LOCOMO)
    assert set(READERS) == {"locomo", "longmemeval", "madial", "long-mt-bench"}


def dataset_of(sizes: dict[str, int]) -> Dataset:
    session = DialogueSession((Turn("user", "x"),), datetime(2024, 1, 1, tzinfo=UTC))
    questions = tuple(
        Question(f"{kind}{i}", "q", kind, None, frozenset({0})) for kind, n in sizes.items() for i in range(n)
    )
    return Dataset("made", tuple(Dialogue(question.id, (session,), (question,)) for question in questions))


def test_sample_is_stratified_and_repeatable() -> None:
    """A sample has each type in proportion, the same for the same seed, without dialogues nobody asks about."""
    data = dataset_of({"a": 60, "b": 30, "c": 10})
    drawn = sample_questions(data, 20, seed=3)
    kinds = [dialogue.questions[0].type for dialogue in drawn.dialogues]
    assert {kind: kinds.count(kind) for kind in "abc"} == {"a": 12, "b": 6, "c": 2}
    assert drawn == sample_questions(data, 20, seed=3)
    assert drawn != sample_questions(data, 20, seed=4)


def test_sample_larger_than_the_data_set_is_all_of_it() -> None:
    """Asking for more than there is gives everything that has evidence."""
    assert sample_questions(read_locomo(LOCOMO), 10_000, seed=0).n_questions == 14
    with pytest.raises(InvalidInputError, match="at least 1"):
        sample_questions(read_locomo(LOCOMO), 0, seed=0)
