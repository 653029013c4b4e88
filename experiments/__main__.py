"""Run a study and write the pages that show it: `python -m experiments NAME`; without a name, list the studies."""

import sys
from collections.abc import Sequence

from duat_jax.cli.compiled import keep_compiled
from experiments.pages import write_pages
from experiments.run import run as measure
from experiments.studies import studies, study_of


def main(arguments: Sequence[str]) -> None:
    """Run the study that is named, or list all studies."""
    if not arguments:
        print("\n".join(f"{name:{max(map(len, studies()))}}  {line}" for name, line in studies().items()))
        return
    study, *options = arguments
    if study not in studies():
        sys.exit(f"There is no study {study!r}: python -m experiments lists them.")
    if options:
        sys.exit(f"The study {study} has no options: leave out {' '.join(options)}.")
    keep_compiled()
    measure(study, study_of(study))
    write_pages()


if __name__ == "__main__":
    main(sys.argv[1:])
