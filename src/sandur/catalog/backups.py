"""The decision of a backup: which later commits belong to its cut, so that no transaction is halved."""

from collections.abc import Mapping, Sequence


def commits_to_include(included: Sequence[str], later: Mapping[str, Sequence[str]]) -> Mapping[str, int]:
    """How many of the later commits of each table belong to the cut; tables without any are left out.

    `included` are the requests whose commits were copied, and `later` those of the commits that each table got after it
    was copied, oldest first. All files of a transaction name the same request. If one was copied, the others follow,
    with every commit before them in their tables, and with the other files of those.
    """
    requests = set(included)
    counts = dict.fromkeys(later, 0)
    has_grown = True
    while has_grown:
        has_grown = False
        for table, commits in later.items():
            for position in range(len(commits) - 1, counts[table] - 1, -1):
                if commits[position] in requests:
                    requests.update(commits[counts[table] : position + 1])
                    counts[table] = position + 1
                    has_grown = True
                    break
    return {table: count for table, count in counts.items() if count}
