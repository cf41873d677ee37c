"""`faircontext explain`: a page that shows why FCL answers one photo as it does, and the numbers behind it."""

from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Annotated

import tyro

from faircontext.cli.options import ModelOptions, parse_options

__all__ = ["Explain", "run"]


@dataclass(frozen=True)
class Explain(ModelOptions):
    """Show why FCL answers one photo as it does.

    Writes index.html, its pictures and arrays under pieces/, and manifest.json.
    """

    image: Annotated[str, tyro.conf.Positional]
    """The image file."""
    out: Path = field(default=Path("explanation"), kw_only=True)
    """Folder for the page; made where it does not exist."""


def run(arguments: Sequence[str]) -> int:
    """Run the command."""
    options = parse_options(Explain, arguments, "explain")
    names = options.names()
    image = options.reader()(options.image)

    from faircontext.bench.records import writing
    from faircontext.episode import Episode
    from faircontext.methods import FCL, ZeroShot
    from faircontext.report.explain import Explanation, explain_in_words, prepare_folder, write_explanation

    with writing(options.out):
        prepare_folder(options.out)
    setup = options.create(names, "fcl")
    method, backbone = setup.method, setup.labels.backbone
    assert isinstance(method, FCL)
    episode = Episode(image.pixels, setup.labels, setup.recipe, options.seed)
    adaptation = method.adapt(episode)
    run_facts = {
        "backbone": backbone.name,
        "precision": backbone.precision,
        "preset": options.preset,
        "masks": method.masks,
        "seed": options.seed,
    }
    explanation = Explanation(
        options.image.encode(errors="replace").decode(),
        episode,
        method,
        adaptation,
        ZeroShot()(episode).index,
        run_facts,
        image.notes,
    )
    with writing(options.out):
        page = write_explanation(explanation, options.out)
    print(f"{explain_in_words(explanation)}\n{page}")
    return 0
