"""HTML pages from the templates beside this file; every value is escaped."""

from typing import Any

from jinja2 import Environment, PackageLoader, StrictUndefined

__all__ = ["render"]


def render(template: str, **values: Any) -> str:
    """Return a template of `report/templates`, filled.

    Args:
        template: its file name.
        values: what it shows; a value that the template names and that is not given is an error.
    """
    environment = Environment(
        loader=PackageLoader("faircontext.report"), autoescape=True, undefined=StrictUndefined, trim_blocks=True
    )
    return environment.get_template(template).render(**values)
