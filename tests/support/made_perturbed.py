"""Images that are corrupted and attacked as a run would, step by step."""

from faircontext import LabelSpace, ViewRecipe, load_image
from faircontext.attacks import attacked_views
from faircontext.corruptions import corrupted_views
from faircontext.datasets.spec import Sample
from faircontext.perturbations import Attack, Corruption, Perturbation
from faircontext.views import Views

PERTURBATIONS: tuple[Perturbation, ...] = (Corruption("gaussian_noise", 2), Attack(4))


def perturbed_views(sample: Sample, labels: LabelSpace, recipe: ViewRecipe, perturbation: Perturbation) -> Views:
    """Return the views of a sample's image, with seed 7, after a corruption or an attack."""
    views = Views(load_image(sample.path), labels.backbone.geometry, recipe, 7)
    if isinstance(perturbation, Corruption):
        return corrupted_views(views, perturbation)
    return attacked_views(views, sample.label, labels, perturbation)
