"""The page about security lists what every operation needs."""

from checks.privilege_table import BEGIN, END, PAGE, table


def test_the_table_of_privileges_is_that_of_the_routes() -> None:
    written = PAGE.read_text().partition(BEGIN)[2].partition(END)[0]

    assert written == table(), "run: python -m checks.privilege_table"
