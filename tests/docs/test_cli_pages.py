"""docs/cli.md and the man pages agree with the commands."""

import pytest

from checks.cli_reference import MAN, PAGE, commands, man_pages, render_page

RUN = "run: python -m checks.cli_reference"


def test_the_page_of_the_command_line_is_current() -> None:
    assert PAGE.read_text(encoding="utf-8") == render_page() + "\n", RUN


def test_every_command_has_a_current_man_page() -> None:
    written = {page.name: page.read_text(encoding="utf-8") for page in MAN.glob("*.1")}

    assert written == dict(man_pages()), RUN


@pytest.mark.parametrize("command", commands(), ids=lambda command: command.name)
def test_every_command_says_what_it_is_for(command: object) -> None:
    assert getattr(command, "summary", "").endswith("."), command
