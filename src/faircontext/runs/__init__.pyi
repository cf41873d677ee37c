from .analyses import analysis_rows as analysis_rows, read_analysis as read_analysis
from .answer import Predictor as Predictor, answer_images as answer_images
from .build import parse_settings as parse_settings
from .costs import Efficiency as Efficiency, measure as measure
from .decisions import AnsweredImage as AnsweredImage, Decision as Decision
from .experiments import (
    Experiment as Experiment,
    experiment_names as experiment_names,
    read_experiment as read_experiment,
)
from .groups import (
    RunGroup as RunGroup,
    RunSettings as RunSettings,
    common_images as common_images,
    find_runs as find_runs,
    group_runs as group_runs,
)
from .options import ClassifyOptions as ClassifyOptions, EvaluateOptions as EvaluateOptions
from .outputs import (
    Classifier as Classifier,
    read_classifier as read_classifier,
    read_embeddings as read_embeddings,
    write_classifier as write_classifier,
)
from .records import AnalysisRow as AnalysisRow, Answer as Answer
from .results import Result as Result, read_results as read_results
from .sidecars import Sidecars as Sidecars, find_sidecars as find_sidecars
from .store import Run as Run, load_run as load_run, load_runs as load_runs, merge as merge
from .stream_results import StreamResult as StreamResult, StreamRuns as StreamRuns, split_streams as split_streams
from .streams import Streams as Streams, read_state as read_state, write_state as write_state
