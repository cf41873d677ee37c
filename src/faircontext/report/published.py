"""Published accuracies of methods with a memory, beside measured ones.

They come from several papers with different prompts and settings, often by way of others, and mostly of settings that
were chosen for each data set. So each stands with its source, and a difference is no verdict.
"""

from collections.abc import Iterator
from dataclasses import dataclass

from faircontext.metrics.orders import accuracy_over_orders
from faircontext.metrics.stats import Interval
from faircontext.report.paper import dataset_title, read_reported
from faircontext.report.render import Cell, Table
from faircontext.report.stream_tables import StreamBlock
from faircontext.report.table_metrics import TOP1
from faircontext.report.tables import marked_title, tuned_note
from faircontext.runs.groups import method_title
from faircontext.runs.stream_results import StreamResult

__all__ = ["ONLINE", "Published", "compare_with_published", "published_accuracies", "published_table"]

ONLINE = {"ViT-B-16": "online_vit_b16"}
"""Where the accuracies of a backbone are."""


@dataclass(frozen=True)
class Published:
    """An accuracy as it was published.

    Attributes:
        method: as tables call it.
        dataset: name of the data set.
        accuracy: as a proportion.
        source: key of the table `online_sources`.
        tuned: whether the settings were chosen for each data set: `yes` or `unknown`.
        prompts: `templates`, one or several by data set, `templates and descriptions`, `learnt` or `unknown`.
    """

    method: str
    dataset: str
    accuracy: float
    source: str
    tuned: str
    prompts: str


def published_accuracies(backbone: str) -> list[Published]:
    """Return what was published of methods with a memory; nothing for a backbone without any.

    Args:
        backbone: an architecture; `-quickgelu`, which says how OpenAI's weights compute, may follow.
    """
    if (table := ONLINE.get(backbone.removesuffix("-quickgelu"))) is None:
        return []
    return [
        Published(
            row["method"],
            row["dataset"],
            float(row["value"]) / 100,
            *(row[name] for name in ("source", "tuned_per_set", "prompts")),
        )
        for row in read_reported(table)
    ]


def compare_with_published(block: StreamBlock) -> Iterator[tuple[StreamResult, Published]]:
    """Yield results on a data set with each accuracy that was published of the method there; not of variants."""
    known = published_accuracies(block.runs.settings.backbone)
    for (scope, method), found in block.results.items():
        yield from ((found, one) for one in known if (one.dataset, one.method) == (scope, method_title(method)))


def published_table(block: StreamBlock) -> Table | str:
    """Return a table of accuracies that were measured and published, or a line that says why there is none."""
    pairs = [*compare_with_published(block)]
    if not pairs:
        return f"no accuracy of these methods with a memory, on {block.runs.settings.backbone}, is known as published"
    rows = []
    for found, one in pairs:
        accuracy = accuracy_over_orders(found.correct)
        ends = (end - one.accuracy for end in vars(accuracy.mean).values())
        numbers = (f"{accuracy.n:,}", TOP1.show(accuracy.mean), TOP1.format(one.accuracy))
        names = (dataset_title(one.dataset), marked_title(found.all, found.method))
        cells = (*names, one.source, one.tuned, one.prompts, *numbers, TOP1.show(Interval(*ends), sign=True))
        rows.append(tuple(map(Cell, cells)))
    sources = {row["source"]: f"{row['title']} ({row['kind']})" for row in read_reported("online_sources")}
    tuned = dict.fromkeys((method_title(f.method), dataset_title(name)) for f, _ in pairs for name in f.tuned)
    return Table(
        title=f"Top-1 accuracy measured, mean of orders, and published: {block.title}",
        columns=(
            *("Data set", "Method", "Source", "Tuned per set", "Prompts"),
            *("n", "Measured [95%]", "Published", "Difference [95%]"),
        ),
        rows=tuple(rows),
        footnotes=(
            "Percent, with 95% intervals of what was measured; published numbers are of one order, mostly of settings "
            "chosen for each data set, and of the prompts that stand beside them. A difference is no verdict.",
            *(f"{name}: {sources[name]}." for name in dict.fromkeys(one.source for _, one in pairs)),
            *tuned_note(tuned),
        ),
        text_columns=5,
        rules=frozenset(i for i in range(len(rows) - 1) if rows[i][0] != rows[i + 1][0]),
        bars=frozenset({4}),
    )
