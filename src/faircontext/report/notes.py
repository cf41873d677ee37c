"""What stands beneath a table: how much of each data set was measured, refused files, gains with their intervals."""

from collections.abc import Iterator, Sequence

from faircontext.metrics.stats import Accuracy, Interval
from faircontext.report.columns import Column, show
from faircontext.report.groups import Group, method_title, set_title
from faircontext.report.measures import Metric, gain
from faircontext.report.results import Result

__all__ = ["coverage", "explanations", "gains", "refused"]


def explanations(group: Group, columns: Sequence[Column], metric: Metric) -> Iterator[str]:
    """Yield what the columns are, and which of them compare nothing."""
    headings = [column.heading for column in columns]
    yield (
        f"{'More' if metric.higher else 'Less'} is better."
        + (f" {headings[len(group.results)]} is the mean over these data sets." if len(group.results) > 1 else "")
        + (" OOD Avg. is the mean over ImageNet-A, -K, -R and -V." if "OOD Avg." in headings else "")
        + " Δ is over zero-shot on the same images."
        + (" ±95% is the largest half-width of a column's 95% intervals." if metric.score else "")
        + ("" if metric.score else " No intervals: resampled, the error is larger than on the images themselves.")
    )
    apart = [column.heading for column in columns if not column.gained and not column.comparable(group)]
    if apart:
        yield f"Not ranked, as methods answered different images: {', '.join(apart)}."


def coverage(group: Group) -> Iterator[str]:
    """Yield, for each data set that was not measured in full, how much of it was; or that the split is another."""
    for name, results in group.results.items():
        for result in {id(result.run): result for result in results.values()}.values():
            words = list(_parts(result))
            if words:
                several = len({id(other.run) for other in results.values()}) > 1
                where = f" ({result.run.folder})" if several else ""
                yield f"{set_title(name)}{where}: {', '.join(words)}."


def _parts(result: Result) -> Iterator[str]:
    config, seen = result.config, result.number + result.refused
    listed, images = config["dataset"]["listed"], config["dataset"]["images"]
    if seen < listed:
        share = 100 * seen / listed
        yield f"{f'{share:.0f}' if share >= 1 else f'{share:.2g}'}% of {listed:,} images"
    if images < listed:
        yield f"{images:,} of them are there"
    if config["limit"] is not None and config["limit"] < images:
        yield f"limit {config['limit']:,}"
    if config["shard"] is not None:
        yield f"shard {config['shard'][0]} of {config['shard'][1]}"
    if not result.run.complete:
        yield f"not complete ({seen:,} of {result.planned:,} so far)"
    if config["dataset"]["split"] not in ("test", "all"):
        yield f"split {config['dataset']['split']}"


def refused(group: Group, metric: Metric) -> Iterator[str]:
    """Yield, for each data set, how many files were refused and the accuracies with them counted as wrong."""
    for name, results in group.results.items():
        found = [results[method] for method in group.methods if method in results and results[method].refused]
        for files in sorted({(result.refused, result.refused + result.number) for result in found}):
            line = f"{set_title(name)}: {files[0]:,} of {files[1]:,} files refused and left out"
            if metric.counts and metric.score is not None:
                same = [result for result in found if (result.refused, result.refused + result.number) == files]
                worse = [f"{method_title(r.method)} {_with_refused(r, metric)}" for r in same]
                line += f"; counted as wrong: {', '.join(worse)}"
            yield f"{line}."


def _with_refused(result: Result, metric: Metric) -> str:
    correct = int(metric.score(result).sum()) if metric.score and result.number else 0
    accuracy = Accuracy(correct, result.number + result.refused)
    return show(Interval(accuracy.value, *accuracy.interval), metric)


def gains(group: Group, metric: Metric) -> Iterator[str]:
    """Yield, for each method, its mean gain over zero-shot with the interval."""
    for method in group.methods:
        row = group.row(method)
        value = gain(list(row.values()), metric)
        if value is not None:
            part = f" over {len(row)} of {len(group.results)} data sets" if len(row) < len(group.results) else ""
            number = sum(result.number for result in row.values())
            yield (
                f"Δ {method_title(method)}: {show(value, metric, sign=True)}{part} (paired on {number:,} images, 95% "
                "bootstrap interval)."
                if metric.score
                else f"Δ {method_title(method)}: {show(value, metric, sign=True)}{part} ({number:,} images)."
            )
