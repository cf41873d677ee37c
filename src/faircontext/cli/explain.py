"""`faircontext explain`: a page that shows why FCL answers one photo as it does, and the numbers behind it."""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any

import tyro

from faircontext.datasets.folder import class_names
from faircontext.errors import check_minimum
from faircontext.imageio import MAX_PIXELS, read_image

__all__ = ["Explain", "run"]


@dataclass(frozen=True)
class Explain:
    """Show why FCL answers one photo as it does.

    Writes index.html, its pictures and arrays under pieces/, and manifest.json.
    """

    image: Annotated[str, tyro.conf.Positional]
    """The image file."""
    labels: str | None = None
    """Class names with commas between."""
    labels_file: Path | None = None
    """File with a class name a line."""
    out: Path = Path("explanation")
    """Folder for the page; made where it does not exist."""
    backbone: str = "lite0"
    """See: faircontext list backbones."""
    preset: str = "recommended"
    """Settings to start from: paper or recommended (for the backbone)."""
    set: tuple[str, ...] = ()
    """Settings of FCL, as name=value, over the preset's: --set masks=400 context=cl-hp."""
    seed: int = 0
    """Seed of views and masks."""
    device: str = "cpu"
    """Torch device of the backbone."""
    precision: str = "auto"
    """Of the image tower: auto, fp32, bf16 or fp16."""
    exif: bool = True
    """Apply the EXIF orientation."""
    max_pixels: int = MAX_PIXELS
    """Larger images are refused."""


def run(arguments: Sequence[str]) -> int:
    """Run the command."""
    options = tyro.cli(Explain, args=arguments, prog="faircontext explain")
    check_minimum("seed", options.seed, 0)
    names = class_names(options.labels, options.labels_file)
    image = read_image(options.image, max_pixels=options.max_pixels, exif=options.exif)

    from faircontext.backbones import create_backbone
    from faircontext.bench.records import writing
    from faircontext.episode import Episode
    from faircontext.labels import LabelSpace
    from faircontext.methods import FCL, ZeroShot, create_method, parse_settings
    from faircontext.report.explain import Explanation, explain_in_words, prepare_folder, write_explanation

    with writing(options.out):
        prepare_folder(options.out)
    settings: dict[str, Any] = parse_settings("fcl", options.set)
    create_method("fcl", **settings)  # a wrong setting is found before the model is loaded
    backbone = create_backbone(options.backbone, device=options.device, precision=options.precision)
    method = create_method("fcl", preset=options.preset, backbone=backbone, **settings)
    assert isinstance(method, FCL)
    episode = Episode(image.pixels, LabelSpace(names, backbone), backbone.view_recipe(options.preset), options.seed)
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
