"""The environments of the engines and the talk with them, without an engine."""

import sys
from pathlib import Path

import pytest

from tests.interop.engines.conversation import EngineError, conversation
from tests.interop.engines.environments import NotInstalled, installed, run
from tests.interop.engines.machines import Turns

ECHO = """
import sys
from tests.interop.engines.session_io import answer_lines, taken_output

answers = taken_output()
print("this is no answer")

def answer(request):
    if request["sql"] == "die":
        sys.exit("the engine's last words")
    return 1 / len(request["sql"])

answer_lines(answers, answer)
"""


@pytest.fixture
def pins(tmp_path: Path) -> Path:
    path = tmp_path / "pins.txt"
    path.write_text("engine==1", encoding="utf-8")
    return path


def test_an_environment_is_installed_once_for_what_it_pins(pins: Path, tmp_path: Path) -> None:
    homes: list[Path] = []

    first = installed("engine", [pins], homes.append, tools=tmp_path / "tools")
    again = installed("engine", [pins], homes.append, tools=tmp_path / "tools")
    pins.write_text("engine==2", encoding="utf-8")
    other = installed("engine", [pins], homes.append, tools=tmp_path / "tools")

    assert homes == [first, other]
    assert again == first


def test_an_environment_that_failed_is_installed_again(pins: Path, tmp_path: Path) -> None:
    def fail(home: Path) -> None:
        (home / "half").touch()
        run([sys.executable, "-c", "import sys; sys.exit('no such package')"])

    with pytest.raises(NotInstalled, match="no such package"):
        installed("engine", [pins], fail, tools=tmp_path / "tools")
    home = installed("engine", [pins], lambda folder: (folder / "whole").touch(), tools=tmp_path / "tools")

    assert (home / "whole").exists()
    assert not (home / "half").exists()


def test_answers_and_failures_of_an_engine_are_separate_from_its_output(tmp_path: Path) -> None:
    with conversation([sys.executable, "-c", ECHO], tmp_path) as engine:
        assert engine.ask(sql="four") == 0.25
        with pytest.raises(EngineError, match="ZeroDivisionError: division by zero"):
            engine.ask(sql="")
        assert engine.ask(sql="go on...") == 0.125


def test_an_engine_that_dies_leaves_its_last_words(tmp_path: Path) -> None:
    with (
        conversation([sys.executable, "-c", ECHO], tmp_path) as engine,
        pytest.raises(EngineError, match="the engine's last words"),
    ):
        engine.ask(sql="die")


def test_an_engine_that_could_not_start_leaves_its_last_words_to_every_question(tmp_path: Path) -> None:
    with conversation([sys.executable, "-c", "import sys; sys.exit('no port is free')"], tmp_path) as engine:
        for _ in range(2):
            with pytest.raises(EngineError, match="no port is free"):
                engine.ask(sql="are you there?")


def test_who_takes_the_turn_ends_the_one_before() -> None:
    ended: list[str] = []
    turns = Turns()

    turns.take(lambda: ended.append("Spark"))
    turns.take(lambda: ended.append("Trino"))
    assert ended == ["Spark"]
    turns.take(lambda: ended.append("Flink"))

    assert ended == ["Spark", "Trino"]
