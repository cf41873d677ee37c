"""How corruptions and attacks are written, and what is refused in one line."""

import pytest

from faircontext import FairContextError
from faircontext.perturbations import COMMON, KINDS, Attack, Corruption, parse_attack, parse_corruptions


def test_imagenet_c_has_fifteen_corruptions_and_four_extra_ones() -> None:
    assert len({*COMMON}) == 15
    assert len({name for names in KINDS.values() for name in names}) == 19


def test_a_word_stands_for_one_corruption_for_five_severities_for_a_kind_or_for_all() -> None:
    assert parse_corruptions(["fog:3"]) == [Corruption("fog", 3)]
    assert parse_corruptions(["fog"]) == [Corruption("fog", severity) for severity in range(1, 6)]
    assert [str(one) for one in parse_corruptions(["noise:2"])] == [f"{name}:2" for name in KINDS["noise"]]
    assert len(parse_corruptions(["all"])) == 75
    assert {one.name for one in parse_corruptions(["all:5"]) if one} == {*COMMON}
    assert parse_corruptions(["fog:3", "none", "fog:3"]) == [Corruption("fog", 3), None]


def test_what_is_written_is_read_as_it_was() -> None:
    for corruption in parse_corruptions(["all", "extra"]):
        assert parse_corruptions([str(corruption)]) == [corruption]
    assert parse_attack(str(Attack(4))) == Attack(4)
    assert parse_attack("none") is None


@pytest.mark.parametrize(
    ("word", "message"),
    [
        ("fog:6", "invalid severity 6 of fog: must be 1, 2, 3, 4 or 5"),
        ("fog:0", "invalid severity 0 of fog: must be 1, 2, 3, 4 or 5"),
        ("fog:-1", "invalid severity -1 of fog: must be 1, 2, 3, 4 or 5"),
        ("fog:", "invalid severity '' of fog: must be 1, 2, 3, 4 or 5"),
        ("noise:2.5", "invalid severity '2.5' of noise: must be 1, 2, 3, 4 or 5"),
        ("fgo:3", "unknown corruption 'fgo'; did you mean 'fog' or 'frost'?"),
        ("none:3", "invalid corruption 'none:3': none has no severity; write none, or NAME:SEVERITY"),
        (
            "fog:\N{ARABIC-INDIC DIGIT THREE}",
            "invalid severity '\N{ARABIC-INDIC DIGIT THREE}' of fog: must be 1, 2, 3, 4 or 5",
        ),
    ],
)
def test_what_is_no_corruption_is_refused(word: str, message: str) -> None:
    with pytest.raises(FairContextError) as refused:
        parse_corruptions([word])
    assert str(refused.value).startswith(message)


@pytest.mark.parametrize(
    ("word", "message"),
    [
        ("pgd:0", "invalid eps 0 of pgd: must be a whole number from 1 to 255, in 1/255"),
        ("pgd:-4", "invalid eps -4 of pgd: must be a whole number from 1 to 255, in 1/255"),
        ("pgd:256", "invalid eps 256 of pgd: must be a whole number from 1 to 255, in 1/255"),
        ("pgd:0.5", "invalid eps '0.5' of pgd: must be a whole number from 1 to 255, in 1/255, as in pgd:4"),
        ("pgd", "invalid attack 'pgd': has no eps, which must be a whole number from 1 to 255, in 1/255, as in pgd:4"),
        (
            "pgd:\N{SUPERSCRIPT TWO}",
            "invalid eps '\N{SUPERSCRIPT TWO}' of pgd: must be a whole number from 1 to 255, in 1/255, as in pgd:4",
        ),
        ("none:4", "invalid attack 'none:4': none has no eps; write none, or pgd:EPS"),
        ("fgsm:4", "unknown attack 'fgsm'; known: none, pgd"),
    ],
)
def test_what_is_no_attack_is_refused(word: str, message: str) -> None:
    with pytest.raises(FairContextError) as refused:
        parse_attack(word)
    assert str(refused.value) == message


def test_values_from_python_are_checked_as_well() -> None:
    with pytest.raises(FairContextError, match="severity is of type bool, not int"):
        Corruption("fog", True)
    with pytest.raises(FairContextError, match="invalid steps 0 of pgd: must be a whole number from 1 to 10,000"):
        Attack(4, steps=0)
