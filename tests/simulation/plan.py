"""The plan of one simulated run: everything that a failure needs to be repeated."""

import random  # noqa: TID251 - seeded, so that a run can be repeated
from collections.abc import Iterator, Sequence
from typing import Final, Literal

import msgspec

Fault = Literal["kill", "partition", "loss", "late", "throttle", "skew"]
Work = Literal["names", "creates", "appends", "batches", "delta", "grants", "upkeep"]

FAULTS: Final[tuple[Fault, ...]] = ("kill", "partition", "loss", "late", "throttle", "skew")
WORKS: Final[tuple[Work, ...]] = ("names", "creates", "appends", "batches", "delta", "grants", "upkeep")


class Plan(msgspec.Struct, frozen=True, kw_only=True):
    """A run: `groups` of clients per kind of work, each with `epochs` of concurrent requests.

    `forgets`: records of dropped names are removed after hours, within the run.
    """

    seed: int
    servers: int = 5
    groups: int = 2
    epochs: int = 6
    clients: int = 5
    calm_seconds: float = 8.0
    faults: tuple[Fault, ...] = FAULTS
    works: tuple[Work, ...] = WORKS
    forgets: bool = False

    def has(self, fault: Fault) -> bool:
        return fault in self.faults

    def smaller(self) -> Iterator["Plan"]:
        """Plans with less of one thing, the largest cuts first."""
        for work in self.works:
            if len(self.works) > 1:
                yield self._with(works=(work,))
        for name, least in (("groups", 1), ("epochs", 1), ("servers", 1), ("clients", 2)):
            value: int = getattr(self, name)
            for cut in sorted({least, value // 2, value - 1}):
                if least <= cut < value:
                    yield self._with(**{name: cut})
        for fault in self.faults:
            yield self._with(faults=tuple(one for one in self.faults if one != fault))

    def _with(self, **changes: object) -> "Plan":
        return msgspec.convert({**msgspec.structs.asdict(self), **changes}, Plan)

    def text(self) -> str:
        """The arguments of `python -m tests.simulation` that repeat this run."""
        parts: Sequence[str] = (
            f"--seed {self.seed} --servers {self.servers} --groups {self.groups} --epochs {self.epochs}",
            f"--clients {self.clients} --calm-seconds {self.calm_seconds:g}",
            f"--faults {','.join(self.faults) or 'none'} --works {','.join(self.works)}",
            "--forgets" if self.forgets else "",
        )
        return " ".join(filter(None, parts))


def random_plan(seed: int) -> Plan:
    """The plan of a seed: small and large fleets, calm and rough."""
    chance = random.Random(f"{seed} plan")
    return Plan(
        seed=seed,
        servers=chance.choice((2, 3, 3, 5, 5, 8, 16, 50)),
        groups=chance.randint(1, 3),
        epochs=chance.randint(4, 10),
        clients=chance.randint(3, 6),
        calm_seconds=chance.choice((1.0, 4.0, 15.0, 60.0)),
        faults=FAULTS if chance.random() < 0.7 else tuple(one for one in FAULTS if chance.random() < 0.5),
        forgets=chance.random() < 0.3,
    )


def rough_plan(seed: int, work: Work = "names") -> Plan:
    """A plan with much contention on few names, in which a rule that is left out shows soon."""
    return msgspec.structs.replace(random_plan(seed), works=(work,), groups=3, epochs=10, clients=6)
