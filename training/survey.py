"""Survey the embedded model over the files that it wasn't trained on; keep where each of its neurons is strongest.

Run `python -m training.survey` (some minutes; stops and resumes).
"""

import argparse
from pathlib import Path

from rich.progress import Progress

import duat_jax as duat
from duat_jax.display.examples import FILE
from duat_jax.files import write_file
from duat_jax.models.checkpoint.place import EMBEDDED
from training.corpus import sources, split


def main() -> None:
    """Survey, and keep the file with the model."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--directory", type=Path, default=Path("build/embedded-survey"), help="where parts are kept")
    directory = parser.parse_args().directory
    _, held_out = split(sources())
    with Progress() as bar:
        task = bar.add_task("Surveying")
        texts = [held_out[name] for name in sorted(held_out)]
        print(
            duat.survey.survey(
                None, texts, directory, progress=lambda done, of: bar.update(task, completed=done, total=of)
            )
        )
    write_file(EMBEDDED / FILE, (directory / FILE).read_bytes())


if __name__ == "__main__":
    main()
