"""The janitor of pointers whose name was never written (GC2)."""

from proof.answers import SWEPT
from proof.names.entries import Active, New, Pending, name_cell, pointer_cell
from proof.rules import Rules
from proof.steps import Step, delete, get, put


def sweep_pointer(name: str, uuid: str, rules: Rules) -> Step[str]:
    """It may run at any time: the minimum age of an orphan has passed."""
    cell = pointer_cell(uuid)
    version, pointer = yield from get(cell)
    if pointer is None or ("N7" in rules and pointer.state not in ("unbound", "condemned")):
        return SWEPT
    if "GC2" in rules:
        marked = yield from put(cell, pointer._replace(state="condemned"), version)
        if marked.outcome != "ok":
            return SWEPT
        version = marked.version
    _, entry = yield from get(name_cell(name))
    if isinstance(entry, New | Active | Pending) and entry.uuid == uuid:
        return SWEPT
    if "N8" in rules:
        yield from put(cell, pointer._replace(state="killed"), version)
    else:
        yield from delete(cell, version)
    return SWEPT
