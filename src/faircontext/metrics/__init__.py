"""Metrics: accuracies with intervals, paired comparisons, calibration, and how good evidence maps are.

The public names stand in ``__init__.pyi``; they are imported on first use.
"""

import lazy_loader

__getattr__, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)
