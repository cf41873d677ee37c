"""`faircontext doctor`: what is wrong with this installation, and the fix."""

from collections.abc import Sequence
from dataclasses import dataclass

from faircontext.cli.options import parse_options, say
from faircontext.runs.options import DoctorOptions


@dataclass(frozen=True, kw_only=True)
class Doctor(DoctorOptions):
    """Check versions, extras, cache, device, precision, weights and data sets; print problems with their fix.

    Ends with lines for a bug report, without names of persons, files or folders. Exit code 0: no problem; 1: at least
    one; 2: an invalid argument.
    """


def doctor(arguments: Sequence[str]) -> int:
    """Run `faircontext doctor`."""
    options = parse_options(Doctor, arguments, "doctor")
    from faircontext.runs.doctor import describe_for_others, examine

    findings = []
    for finding in examine(options):
        say(str(finding))
        findings.append(finding)
    say("\nFor a bug report:\n")
    for line in describe_for_others(options, findings):
        say(f"    {line}")
    return int(any(finding.state == "problem" for finding in findings))
