"""Figures of runs, each from records alone: a file per figure, see `faircontext.report.plots.registry`."""
