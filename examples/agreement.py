"""A decision: a prediction is given only where the method and zero-shot agree.

Usage: python examples/agreement.py CLASSES PHOTO [PHOTO ...]
"""

import sys
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import faircontext as fc
from faircontext.datasets import Sample
from faircontext.runs import AnsweredImage, Decision, Predictor, answer_images


class Agreement(Decision):
    """Abstains where the method's class is not zero-shot's."""

    @property
    def config(self) -> Mapping[str, Any]:
        """What a run records of the decision, so that it is resumed only with the same."""
        return {"decision": "agreement"}

    def decide(self, image: AnsweredImage) -> AnsweredImage:
        """Return the image with the answers that are to be written; an abstaining answer has no prediction."""
        answers = (
            answer
            if answer.index == answer.zero_shot_index
            else replace(answer, prediction="", fallback=f"none of these: zero-shot predicts {answer.zero_shot}")
            for answer in image.answers
        )
        return replace(image, answers=tuple(answers))


def decide(classes: Sequence[str], photos: Sequence[str], backbone: fc.Backbone) -> Iterator[AnsweredImage]:
    """Yield the answers for photos, after the decision."""
    recipe = backbone.view_recipe("recommended")
    fcl = fc.create_method("fcl", preset="recommended", backbone=backbone)
    predictor = Predictor(fc.LabelSpace(classes, backbone), {"fcl": fcl}, recipe, Agreement())
    return answer_images([Sample(photo, Path(photo)) for photo in photos], predictor)


if __name__ == "__main__":
    for image in decide(sys.argv[1].split(","), sys.argv[2:], fc.create_backbone("lite0")):
        for answer in image.answers:
            print(answer.path, answer.error or answer.prediction or answer.fallback)
