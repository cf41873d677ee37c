"""`faircontext doctor`: what is wrong with this installation, and the fix."""

from collections.abc import Sequence
from dataclasses import dataclass

from faircontext.cli.options import parse_options, say
from faircontext.runs.options import DoctorOptions


@dataclass(frozen=True, kw_only=True)
class Doctor(DoctorOptions):
    """Look for what is wrong: versions, extras, cache, device, precision, weights, data sets; and say the fix.

    Ends with lines to paste into a bug report, in which no person, file or folder is named. Exit code 0: no problem; 1:
    there is one; 2: a wrong argument.
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
