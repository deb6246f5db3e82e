"""A lake keeps one instance of each feature's own class."""

from sandur.operations.lake import Lake
from tests.operations.lakes import make_lake


class Cache:
    """A feature's cache."""

    def __init__(self, lake: Lake) -> None:
        self.lake = lake


class ClosingCache(Cache):
    """A feature with work that ends with the lake."""

    def __init__(self, lake: Lake) -> None:
        super().__init__(lake)
        self.is_closed = False
        lake.on_close(self._close)

    async def _close(self) -> None:
        self.is_closed = True


def test_a_feature_has_one_instance_per_lake() -> None:
    one, other = make_lake(), make_lake()

    assert one.feature(Cache) is one.feature(Cache)
    assert one.feature(Cache) is not other.feature(Cache)
    assert one.feature(Cache).lake is one


async def test_features_are_closed_with_their_lake() -> None:
    lake = make_lake()
    cache = lake.feature(ClosingCache)

    await lake.close()

    assert cache.is_closed
