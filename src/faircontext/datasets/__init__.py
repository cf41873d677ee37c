"""Where images and class names come from: known data sets, a user's folders, and collages of photos.

The public names stand in ``__init__.pyi``; they are imported on first use.
"""

import lazy_loader

__getattr__, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)
