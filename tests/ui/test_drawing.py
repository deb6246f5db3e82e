"""Plots, graphs and texts: pure functions from values to SVG and words."""

import pytest

from sandur.operations.explore.files import partition_text
from sandur.server.ui.drawing.graphs import (
    GraphEdge,
    GraphNode,
    SnapshotDot,
    lanes_of,
    layered_graph,
    layers_of,
    ordered_layers,
    snapshot_graph,
)
from sandur.server.ui.drawing.plots import bar_plot, step_plot, version_plot
from sandur.server.ui.texts import age_text, bytes_text, count_text, duration_text, file_name, signed_text, time_text
from tests.ui.html import parse


def test_a_step_plot_stays_at_a_value_until_the_next_one() -> None:
    drawn = parse(str(step_plot([(0, 0), (50, 10), (100, 5)], label="rows", text=count_text)))

    path = drawn.one("path", class_="line-1").attributes["d"]
    assert path == "M64.0 144.0H337.8V12.0H611.6V78.0H628.0"
    assert drawn.one("svg").attributes["aria-label"] == "rows"


def test_a_time_before_the_first_one_is_drawn() -> None:
    """The clock of a later writer may be behind, here by one millisecond."""
    drawn = parse(str(step_plot([(1_000, 10), (999, 20)], label="rows", text=count_text)))

    assert drawn.one("path", class_="line-1").attributes["d"] == "M346.0 78.0H64.0V12.0H628.0"


def test_times_of_one_day_are_shown_with_the_time_of_day() -> None:
    within_a_day = parse(str(step_plot([(1, 1), (60_000, 2)], label="rows", text=count_text)))
    over_days = parse(str(step_plot([(1, 1), (90_000_000, 2)], label="rows", text=count_text)))

    assert [one.text for one in within_a_day.every("text")][2:] == ["1970-01-01 00:00:00", "1970-01-01 00:01:00"]
    assert [one.text for one in over_days.every("text")][2:] == ["1970-01-01", "1970-01-02"]


def test_a_plot_by_version_has_each_version_in_the_middle_of_its_step() -> None:
    """The slider below has its first version at the left end and its last one at the right end."""
    points = [(1, 10), (2, 20), (4, 5)]
    drawn = parse(str(version_plot(points, (0, 4), label="rows", text=count_text, at=1)))

    assert drawn.one("path", class_="line-1").attributes["d"] == "M134.5 78.0H275.5V12.0H557.5V111.0H628.0"
    assert drawn.one("path", class_="now").attributes["transform"] == "translate(141.0 0)"
    assert [one.text for one in drawn.every("text")][2:] == ["version 0", "version 4"]
    assert not version_plot(points[:1], (0, 4), label="rows", text=count_text)


def test_a_plot_of_one_point_is_empty() -> None:
    assert not step_plot([(0, 1)], label="rows", text=count_text)
    assert not bar_plot([("a", 0)], label="files", text=count_text)


def test_the_highest_bar_reaches_the_top() -> None:
    drawn = parse(str(bar_plot([("a", 1), ("<b>", 2)], label="files", text=count_text)))

    heights = [float(bar.attributes["height"]) for bar in drawn.every("rect")]
    assert heights == [66.0, 132.0]
    assert not list(drawn.every("b"))


def test_layers_count_the_steps_from_the_start_in_both_directions() -> None:
    edges = [("raw", "daily"), ("daily", "report"), ("side", "report"), ("topic", "raw")]

    layers = layers_of("daily", ["raw", "daily", "report", "side", "topic"], edges)

    assert layers == {"raw": -1, "topic": -2, "daily": 0, "report": 1, "side": 0}


def test_a_cycle_in_the_lineage_is_drawn_once() -> None:
    layers = layers_of("a", ["a", "b"], [("a", "b"), ("b", "a")])

    assert set(layers) == {"a", "b"}
    assert layers["a"] == 0


def test_nodes_are_ordered_so_that_edges_cross_little() -> None:
    edges = [("a", "x"), ("b", "y"), ("c", "z")]
    layers = {"c": 0, "b": 0, "a": 0, "z": 1, "y": 1, "x": 1}

    rows = ordered_layers(layers, edges)

    assert [dict(edges)[node] for node in rows[0]] == list(rows[1])


def test_boxes_with_a_page_are_links_and_others_are_not() -> None:
    nodes = [GraphNode("a", "main.a", "/ui/a", "start"), GraphNode("h", "hidden")]
    drawn = parse(str(layered_graph("a", nodes, [GraphEdge("h", "a", "declared", "job")], label="lineage")))

    assert drawn.links() == ["/ui/a"]
    assert len(list(drawn.every("rect"))) == 2
    assert drawn.one("path", class_="edge").has("class_", "declared")


def test_a_branch_has_a_lane_of_its_own() -> None:
    dots = [
        SnapshotDot(1, None, "#1", "one"),
        SnapshotDot(2, 1, "#2", "two", ("main",), is_current=True),
        SnapshotDot(3, 1, "#3", "three", ("try",)),
    ]

    assert lanes_of(dots, [2, 3]) == {2: 0, 1: 0, 3: 1}
    drawn = parse(str(snapshot_graph(dots, [2, 3], label="snapshots")))
    assert len(list(drawn.every("path"))) == 2
    assert drawn.links() == ["#1", "#2", "#3"]


def test_the_names_of_branches_and_tags_do_not_overlap() -> None:
    names = ("quarter-1", "audit", "", "main, release-2026")
    dots = [SnapshotDot(place, place - 1, f"#{place}", "", (name,) if name else ()) for place, name in enumerate(names)]
    drawn = parse(str(snapshot_graph(dots, [3], label="snapshots")))

    texts = sorted((float(one.attributes["x"]), one.text) for one in drawn.every("text"))
    ends = [x + 7 * len(text) for x, text in texts]
    assert len(texts) == 3
    assert all(end <= start for end, (start, _) in zip(ends, texts[1:], strict=False))
    assert ends[-1] <= float(drawn.one("svg").attributes["width"])


@pytest.mark.parametrize(
    ("size", "text"),
    [(None, "–"), (0, "0 B"), (999, "999 B"), (1_000, "1.0 kB"), (9_960, "10 kB"), (999_999, "1.0 MB"), (-5, "-5 B")],
)
def test_sizes_have_two_digits_and_a_unit(size: int | None, text: str) -> None:
    assert bytes_text(size) == text


@pytest.mark.parametrize(
    ("time_ms", "text"),
    [(None, ""), (100_000, "just now"), (40_000, "1 minute ago"), (7_300_000, "in 2 hours"), (101_000, "in 1 second")],
)
def test_ages_are_in_the_largest_unit_that_fits(time_ms: int | None, text: str) -> None:
    assert age_text(time_ms, 100_000) == text


def test_times_beyond_the_calendar_are_shown_as_its_end() -> None:
    assert time_text(1 << 62) == "9999-12-31 23:59:59"
    assert signed_text(1_000, 5) == "+1,000 \N{MINUS SIGN}5"
    assert signed_text(None, 0) == ""


@pytest.mark.parametrize(
    ("transform", "value", "text"),
    [
        ("day", 20_454, "2026-01-01"),
        ("month", 672, "2026-01"),
        ("year", 56, "2026"),
        ("hour", 490_896, "2026-01-01 00h"),
        ("day", 1 << 40, str(1 << 40)),
        ("date", 20_454, "2026-01-01"),
        ("date", 1 << 40, str(1 << 40)),
        ("timestamp", 1_767_225_600_000_001, "2026-01-01 00:00:00.000001"),
        ("timestamptz", -1_000_000, "1969-12-31 23:59:59"),
        ("timestamp", 1 << 62, str(1 << 62)),
        ("identity", b"IS", "IS"),
        ("identity", b"\xff\x00", "ff00"),
        ("identity", None, "null"),
        ("bucket[4]", 3, "3"),
    ],
)
def test_partition_values_are_shown_as_people_read_them(transform: str, value: object, text: str) -> None:
    assert partition_text(transform, value) == text


def test_durations_of_one_part_are_words() -> None:
    given = ("P5D", "P1D", "PT2H", "PT30M", "P1DT2H", "forever")

    assert [duration_text(one) for one in given] == ["5 days", "1 day", "2 hours", "30 minutes", "P1DT2H", "forever"]


def test_a_file_is_shown_by_its_path_below_the_data_of_its_table() -> None:
    assert file_name("s3://b/data/t/data/country=IS/a.parquet") == "country=IS/a.parquet"
    assert file_name("s3://b/t/part-0.parquet") == "t/part-0.parquet"
