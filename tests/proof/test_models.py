"""The protocols hold over every interleaving of a few actors, and break if a rule is omitted."""

import io
import json

import pytest
from rich.console import Console

from proof.__main__ import main, select_cases
from proof.cases import ALL
from proof.cases.case import Case
from proof.checker import Actor, Moment, System, Violation
from proof.report import check
from proof.rules import RULES
from proof.steps import ABSENT, Cell, Step, call, get, goto, put
from proof.store import held

BOUNDED = select_cases((), is_bounded=True)
COUNTER = Cell[int]("counter")


def titled(case: Case) -> str:
    return case.title.replace(":", "").replace(",", "").replace(" ", "-")


@pytest.mark.parametrize("case", [case for case in BOUNDED if case.breaks is None], ids=titled)
def test_the_protocol_holds(case: Case) -> None:
    verdict = case.build().check(case.limit_states)

    assert verdict.violation is None, "\n".join(verdict.trace)
    assert verdict.is_complete


@pytest.mark.parametrize("case", [case for case in BOUNDED if case.breaks is not None], ids=titled)
def test_the_protocol_breaks_without_the_rule(case: Case) -> None:
    verdict = case.build().check(case.limit_states)

    assert case.breaks is not None
    assert case.breaks in (verdict.violation or "everything holds")
    assert verdict.trace


def test_every_rule_has_a_case_that_breaks_without_it() -> None:
    not_needed_for_safety = {"T5 older", "T2 keep", "R8 pin", "R8 all"}
    titles = [case.title for case in ALL if case.breaks is not None]

    unexplained = {
        rule for rule in RULES if not any(f"without {rule}:" in title for title in titles)
    } - not_needed_for_safety

    assert unexplained == set()


def test_no_two_cases_have_the_same_title() -> None:
    titles = [case.title for case in ALL]

    assert len(set(titles)) == len(titles)


def increment(actor: str, swaps: bool) -> Step[str]:  # noqa: FBT001 -- actors are started by position
    version, count = yield from get(COUNTER)
    answer = yield from put(COUNTER, (count or 0) + 1, version)
    if answer.outcome == "ok":
        return "ok"
    if not swaps:
        return "ok"
    return (yield from goto(increment, actor, swaps))


def counting(*, swaps: bool, losable: int = 0) -> System:
    def judge(moment: Moment) -> None:
        acknowledged = sum(result == "ok" for result in moment.results)
        if acknowledged > (held(moment.store, COUNTER) or 0):
            raise Violation("an increment was lost")

    return System({}, [Actor(name, increment, (name, swaps)) for name in "AB"], judge, losable=losable)


def test_the_checker_finds_the_shortest_trace_to_a_lost_update() -> None:
    verdict = counting(swaps=False).check()

    assert verdict.violation == "an increment was lost"
    reads_and_writes, answers = verdict.trace[:-1], verdict.trace[-1]
    assert len(reads_and_writes) == 4
    assert answers == "answers so far: A=ok, B=ok"


def test_the_checker_explores_everything_when_nothing_is_wrong() -> None:
    verdict = counting(swaps=True).check()

    assert verdict.violation is None
    assert verdict.is_complete


def test_a_reached_limit_is_reported_as_incomplete() -> None:
    verdict = counting(swaps=True).check(limit_states=3)

    assert not verdict.is_complete


def write_and_trust() -> Step[str]:
    answer = yield from put(COUNTER, 1, ABSENT)
    return "ok" if answer.outcome != "lost" else "lost"


def test_a_write_whose_answer_is_lost_may_not_have_happened() -> None:
    def judge(moment: Moment) -> None:
        if moment.results == ("ok",) and held(moment.store, COUNTER) is None:
            raise Violation("acknowledged and not there")

    verdict = System({}, [Actor("A", write_and_trust, ())], judge, losable=1).check()

    assert verdict.violation == "acknowledged and not there"
    assert "in flight, answer lost" in verdict.trace[0]


def read_twice() -> Step[int]:
    first = yield from call(read_count)
    second = yield from call(read_count)
    return second - first


def read_count() -> Step[int]:
    _, count = yield from get(COUNTER)
    return count or 0


def test_other_actors_run_between_the_calls_of_an_entered_step() -> None:
    def judge(moment: Moment) -> None:
        if moment.results[0] == 1:
            raise Violation("the second read saw the write")

    actors = [Actor("reader", read_twice, ()), Actor("A", increment, ("A", True))]
    verdict = System({}, actors, judge).check()

    assert verdict.violation == "the second read saw the write"


def test_the_command_prints_outcomes_as_json(capsys: pytest.CaptureFixture[str]) -> None:
    code = main(["--json", "index: without I4"])

    (outcome,) = json.loads(capsys.readouterr().out)
    assert code == 0
    assert outcome["violation"].endswith("names are (('t', 'u1'),)")
    assert any(line.startswith("rebuild: list name:") for line in outcome["trace"])


def test_the_command_prints_a_table_and_traces(capsys: pytest.CaptureFixture[str]) -> None:
    code = main(["--trace", "files: without GC1"])

    printed = capsys.readouterr().out
    assert code == 0
    assert "1 cases, 0 hold, 1 break" in printed
    assert "gc: delete file:" in printed


def test_without_a_terminal_a_line_on_stderr_says_that_a_case_ended(capsys: pytest.CaptureFixture[str]) -> None:
    main(["files: two attempts", "files: without GC1"])

    printed = capsys.readouterr()
    first, second = printed.err.splitlines()
    assert first.startswith("1/2 files: two attempts under one key: 34 states, 0.")
    assert second.startswith("2/2 files: without GC1: stalled commits, collection by age alone: 648 states, 0.")
    assert second.endswith(" s")
    assert "1/2" not in printed.out


def test_the_line_of_a_case_says_that_it_is_wrong_before_the_others_end() -> None:
    written = io.StringIO()
    wrong = Case("counter: updates are lost", lambda: counting(swaps=False))

    check([wrong, Case("counter", lambda: counting(swaps=True))], Console(file=written))

    first, second = written.getvalue().splitlines()
    assert first.endswith(" s, not as expected")
    assert second.endswith(" s")


def test_on_a_terminal_a_bar_shows_the_progress(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TERM", "xterm")
    written = io.StringIO()
    case = Case("counter", lambda: counting(swaps=True))

    check([case], Console(file=written, force_terminal=True))

    assert "━" in written.getvalue()
    assert "1/1" in written.getvalue()


def test_the_command_fails_when_a_case_has_an_unexpected_result(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    wrong = Case("counter: updates are lost", lambda: counting(swaps=False))
    monkeypatch.setattr("proof.__main__.ALL", (wrong,))

    code = main([])

    assert code == 1
    assert "1 not as expected" in capsys.readouterr().out


def test_the_command_refuses_filters_that_match_no_case(capsys: pytest.CaptureFixture[str]) -> None:
    code = main(["no such case"])

    assert code == 2
    assert "no such case" in capsys.readouterr().err
