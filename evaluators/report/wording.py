"""Numbers as people read them."""

from __future__ import annotations

from fractions import Fraction

from onnxfr.evaluators.base import Result

_NAMES = {
    "accuracy": "Accuracy",
    "accuracy_std": "Standard deviation over folds",
    "accuracy_by_identity": "Accuracy, people resampled",
    "tar": "Genuine pairs accepted (TAR)",
    "tar_by_identity": "TAR, people resampled",
    "fnmr": "Genuine pairs refused (FNMR)",
    "fmr": "Impostor pairs accepted (FMR)",
    "far": "Strangers let in, per attempt (FAR)",
    "frr": "Genuine users refused, per attempt (FRR)",
    "eer": "Equal error rate (EER)",
    "auc": "Area under the ROC (AUC)",
    "zero_fmr": "Genuine refused when no impostor passes (ZeroFMR)",
    "d_prime": "Separation of the score distributions (d′)",
    "rr": "Rejected: no usable face (RR)",
    "asa": "Accuracy of answered pairs (ASA)",
    "aa": "Accuracy of all pairs (AA)",
    "invalid": "Answers that make no sense",
    "changed_mind": "Answered differently when asked again",
    "refused_queries": "Questions of the attack without a verdict",
    "asr": "Pairs won by asking",
    "asr_auc": "Area under success over questions",
    "median_queries": "Questions to a win, median",
    "mean_queries": "Questions asked per pair, mean",
    "attacked_pairs": "Pairs attacked",
    "clean_wrong_pairs": "Pairs wrong without an attack",
    "calls": "Calls",
    "fdr": "Fairness discrepancy rate (1 = alike)",
    "garbe": "Inequality between groups (GARBE, 0 = alike)",
    "acc_cor": "Accuracy under corruption (Acc_cor)",
    "acc_cor_part": "Accuracy under the corruptions run",
    "acc_cor_difference": "Difference of accuracy under corruption",
    "rce": "Share of clean accuracy lost (RCE)",
    "above_chance": "Left above chance",
    "worst_accuracy": "Right under every condition",
    "worst_accuracy_by_identity": "Right under every condition, people resampled",
    "p_holm": "McNemar, p after Holm's correction",
    "mce": "Errors relative to the first model (mCE)",
    "asr_all": "Attack success, all pairs",
    "asr_all_float": "Attack success before rounding to 8 bits",
    "asr_clean_correct": "Attack success on pairs right before it",
    "asr_unattacked": "Wrong without an attack, same resizing",
    "asr_level": "Attack success by knowledge",
    "robust_acc": "Accuracy under attack",
    "source_strength": "Mean success on other models (source strength)",
    "target_weakness": "Mean success of other models (target weakness)",
    "transfer_mean": "Mean success between different models",
    "transfer_gain": "Difference of two attacks' mean transfer",
    "transfer_gain_p": "p of that difference",
    "asr_8bit": "Right pairs broken, as 8-bit pictures",
    "asr_corrupted": "Right pairs wrong after attack and corruption",
    "asr_corruption_alone": "Right pairs wrong after the corruption alone",
    "asr_beyond_corruption": "Pairs right under the corruption that the attack breaks",
    "asr_survival": "Wins of the attack that survive the corruption",
    "asr_aimed": "Right pairs wrong after an attack aimed through the corruption",
    "asr_aimed_beyond_corruption": "Pairs right under the corruption that the aimed attack breaks",
    "asr_on_corrupted": "Attack success on corrupted pictures",
    "median_on_corrupted": "Smallest change of corrupted pictures, median, grey levels",
    "ease_ratio": "Smallest change, corrupted over clean, median",
    "robust_fnmr": "Genuine pairs refused under attack",
    "robust_fmr": "Impostor pairs accepted under attack",
    "median_distance": "Smallest change, median, grey levels",
    "median_by_identity": "Smallest change, median, people resampled",
    "robfr_median": "Smallest change, median by RobFR's script",
    "optimality": "Nearness to the best of all attacks (1 = the best)",
    "gradients_mean": "Gradients asked per pair, mean",
    "psnr_median": "PSNR of wins, median, dB",
    "ssim_median": "SSIM of wins, median",
    "linf_median": "Largest change of wins, median, grey levels",
    "l2_median": "Euclidean length of the change of wins, median, grey levels",
    "l2n_median": "Root mean square change of wins, median, grey levels",
    "checks_red": "Red flags of the evaluation",
    "checks_yellow": "Yellow flags of the evaluation",
    "unplayable_pairs": "Pairs that could not be attacked",
    "pairs": "Pairs",
    "genuine_pairs": "Genuine pairs",
    "impostor_pairs": "Impostor pairs",
    "rejected_pairs": "Rejected pairs",
    "unreadable_pairs": "Pairs left out, picture unreadable",
    "unasked_pairs": "Pairs not asked, no call was left",
    "unrepeated_pairs": "Pairs not asked again, no call was left",
    "cut_short_pairs": "Attacks cut short, no call was left",
}
_COUNTS = {name for name in _NAMES if name.endswith("pairs")} | {"calls", "attacked_pairs"}
_TRANSFER = ("source_strength", "target_weakness", "transfer_mean", "transfer_gain")
_SHARES = (
    "acc",
    "worst",
    "asr",
    "robust",
    "tar",
    "fnmr",
    "fmr",
    "far",
    "frr",
    "eer",
    "zero_fmr",
    "rr",
)
_COSTS = (
    "median_distance",
    "median_by_identity",
    "median_queries",
    "median_on_corrupted",
    "robfr_median",
)
"""Medians of what pairs cost an attacker: without a value where half or more were never won."""
_API = ("invalid", "changed_mind", "refused_queries")
_NOISE = 1e-12
"""Rates below are what rounding leaves of zero."""
_SHARE_NAMES = ("asa", "aa", "rce", "rve", "above_chance", *_TRANSFER, *_API)


def measure_name(result: Result) -> str:
    """Return what a result measures, in words."""
    name = _NAMES.get(result.metric, result.metric.replace("_", " "))
    return f"{name} at {result.condition}" if result.condition else name


def percent(value: float | None, digits: int = 2) -> str:
    """Write a fraction as a percentage."""
    return "–" if value is None else f"{_hundredths(value, digits)} %"


def span(low: float | None, high: float | None, digits: int = 2) -> str:
    """Write an interval of fractions in percent."""
    if low is None or high is None:
        return "–"
    return f"{_hundredths(low, digits)} – {_hundredths(high, digits)} %"


def value_text(result: Result) -> str:
    """Write the value of any result in its own unit."""
    if result.value is None:
        if not is_never(result):
            return "not measurable"
        return "more than were asked" if result.metric == "median_queries" else "never"
    if result.metric in _COUNTS:
        return count(result.value)
    if not _is_share(result):
        return f"{result.value:.4g}"
    return percent(result.value)


def interval_text(result: Result) -> str:
    """Write the interval of any result in its own unit."""
    if result.low is not None and result.high is None and result.metric in _COSTS:
        return f"{result.low:.4g} – {'more' if result.metric == 'median_queries' else 'never'}"
    if result.low is None or result.high is None:
        return "–"
    if not _is_share(result):
        return f"{result.low:.4g} – {result.high:.4g}"
    return span(result.low, result.high)


def is_never(result: Result) -> bool:
    """Tell a median without a value, which is infinite, from a number that nobody could measure."""
    return result.value is None and result.n > 0 and result.metric in _COSTS


def count(value: float) -> str:
    """Write a number with thousands separated."""
    return f"{round(value):,}"


def one_in(rate: float) -> str:
    """Write a rate as people say it: ``1 in 1,000``, and ``3 in 200`` where one will not do."""
    share = Fraction(rate).limit_denominator(round(1000 / rate))
    return f"{share.numerator:,} in {share.denominator:,}"


def method_text(result: Result) -> str:
    """Return what was done to the pairs: method, goal and norm, as far as there are any."""
    return " ".join(part for part in (result.method, result.goal, result.norm) if part)


def where_text(result: Result) -> str:
    """Return whose result it is, on what and by what: ``toy on people, mim dodge linf``."""
    place = f"{result.model} on {result.data}" if result.data else result.model
    return ", ".join(part for part in (place, method_text(result)) if part)


def _hundredths(value: float, digits: int) -> str:
    """Write a fraction in hundredths; a rate too small for so many digits must not read as zero."""
    shown = f"{100 * value:.{digits}f}"
    return f"{100 * value:.2g}" if float(shown) == 0 and abs(value) > _NOISE else shown


def _is_share(result: Result) -> bool:
    return result.metric.startswith(_SHARES) or result.metric in _SHARE_NAMES
