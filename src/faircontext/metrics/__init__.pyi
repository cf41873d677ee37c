from .bootstrap import (
    PooledMean as PooledMean,
    average_interval as average_interval,
    bootstrap_mean as bootstrap_mean,
    clustered_correlation as clustered_correlation,
    interval_over_sets as interval_over_sets,
    paired_bootstrap as paired_bootstrap,
    pool as pool,
)
from .multi_label import (
    LabelDecisions as LabelDecisions,
    LabelThreshold as LabelThreshold,
    MeanAveragePrecision as MeanAveragePrecision,
    average_precision as average_precision,
    label_decisions as label_decisions,
    mean_average_precision as mean_average_precision,
    score_of as score_of,
    threshold_for_f1 as threshold_for_f1,
    threshold_for_precision as threshold_for_precision,
)
from .orders import (
    OrdersAccuracy as OrdersAccuracy,
    OrdersDifference as OrdersDifference,
    accuracy_over_orders as accuracy_over_orders,
    corruption_errors as corruption_errors,
    difference_over_orders as difference_over_orders,
    mean_corruption_error as mean_corruption_error,
    means_by_part as means_by_part,
)
from .saliency import (
    Curve as Curve,
    Localisation as Localisation,
    deletion as deletion,
    insertion as insertion,
    localise as localise,
    pointing_game as pointing_game,
    rank_correlation as rank_correlation,
    top_overlap as top_overlap,
)
from .scores import (
    ClassAccuracies as ClassAccuracies,
    Comparison as Comparison,
    Reliability as Reliability,
    brier_score as brier_score,
    brier_scores as brier_scores,
    compare_sets as compare_sets,
    confusion_matrix as confusion_matrix,
    expected_calibration_error as expected_calibration_error,
    log_losses as log_losses,
    mean_per_class as mean_per_class,
    negative_log_likelihood as negative_log_likelihood,
    per_class_accuracy as per_class_accuracy,
    reconstruction_bound as reconstruction_bound,
    reliability as reliability,
)
from .selective import (
    OperatingPoint as OperatingPoint,
    RiskCoverage as RiskCoverage,
    aurc as aurc,
    auroc as auroc,
    auroc_difference as auroc_difference,
    auroc_draws as auroc_draws,
    risk_coverage as risk_coverage,
    threshold_for_coverage as threshold_for_coverage,
    threshold_for_risk as threshold_for_risk,
)
from .stats import (
    Accuracy as Accuracy,
    Interval as Interval,
    chance_p_value as chance_p_value,
    holm as holm,
    mcnemar_exact as mcnemar_exact,
    wilson_interval as wilson_interval,
)
from .temperature import (
    calibration_error_interval as calibration_error_interval,
    fit_temperature as fit_temperature,
    temper as temper,
)
