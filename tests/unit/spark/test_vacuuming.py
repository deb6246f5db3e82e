"""Which files of a Delta table are needed: decided before Spark is asked for them."""

from sandur.spark.vacuuming import File, Version, needed_versions, unneeded_files


def versions(*times_ms: int, **operations: str) -> list[Version]:
    named = {int(key.removeprefix("v")): operation for key, operation in operations.items()}
    return [Version(number, time_ms, named.get(number, "WRITE")) for number, time_ms in enumerate(times_ms)]


def test_the_version_that_was_current_when_the_retained_time_began_is_needed() -> None:
    assert needed_versions(versions(10, 20, 30, 40), 35) == [2]
    assert needed_versions(versions(10, 20, 30, 40), 30) == [2]
    assert needed_versions(versions(10, 20, 30, 40), 99) == [3]


def test_of_a_table_that_is_younger_than_the_retained_time_the_first_version_is_needed() -> None:
    assert needed_versions(versions(10, 20), 5) == [0]


def test_versions_that_bring_older_files_back_are_needed() -> None:
    assert needed_versions(reversed(versions(10, 20, 30, 40, 50, v1="RESTORE", v3="RESTORE")), 25) == [1, 3]


def test_a_data_file_that_is_old_and_not_needed_goes_and_nothing_else() -> None:
    listed = [
        File("/t/old.parquet", 10),
        File("/t/needed.parquet", 10),
        File("/t/young.parquet", 30),
        File("/t/deletion_vector_1.bin", 10),
        File("/t/p=1/old.parquet", 19),
    ]

    found = [file.path for file in unneeded_files(listed, {"/t/needed.parquet"}, 20)]

    assert found == ["/t/old.parquet", "/t/p=1/old.parquet"]
