"""`faircontext explain`: a page that shows why FCL answers one photo as it does, and the numbers behind it."""

from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Annotated

import tyro

from faircontext.cli.options import note, parse_options
from faircontext.errors import FeatureError, ImageError
from faircontext.imageio import MAX_PIXELS
from faircontext.names import name_remarks
from faircontext.runs.options import ModelOptions

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

    from faircontext.episode import Episode
    from faircontext.files import writing
    from faircontext.methods import FCL, ZeroShot
    from faircontext.report.explain import Explanation, explain_in_words, prepare_folder, write_explanation

    with writing(options.out):
        prepare_folder(options.out, Path(options.image))
    setup = options.create(names, "fcl")
    method, backbone = setup.methods["fcl"], setup.labels.backbone
    assert isinstance(method, FCL)
    for remark in [*name_remarks(names), *setup.labels.remarks()]:
        note(remark)
    episode = Episode(image.pixels, setup.labels, setup.recipe, options.seed)
    try:
        adaptation, zero_shot = method.adapt(episode), ZeroShot()(episode)
    except FeatureError as error:
        raise ImageError(options.image, str(error)) from None
    run_facts = {
        "backbone": backbone.name,
        "resize_positions": options.resize_positions,
        "model": dict(backbone.facts),
        "precision": backbone.precision,
        "preset": options.preset,
        "masks": method.masks,
        "seed": options.seed,
        "truncate": options.truncate,
        "exif": options.exif,
        "max_pixels": min(options.max_pixels, MAX_PIXELS),
    }
    explanation = Explanation(
        options.image.encode(errors="replace").decode(),
        episode,
        method,
        adaptation,
        zero_shot.index,
        run_facts,
        image.notes,
    )
    print(explain_in_words(explanation), flush=True)  # first: what was computed is not lost with a full disk
    with writing(options.out):
        page = write_explanation(explanation, options.out)
    print(page)
    return 0
