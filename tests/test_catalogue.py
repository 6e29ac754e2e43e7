"""The catalogue against the texts that it rests on."""

from __future__ import annotations

import pytest

from cmfspec.contract.rule import CATALOGUE, GRADED, TIERS, UNTESTED, load_catalogue, norms, spec_text, status
from cmfspec.spec import digests, squeezed
from conformance.twins import TWINS
from golden.cases import stored

load_catalogue()
WRITTEN = ("ENV", "FEAT", "VAL", "HDR", "DIR", "DT", "Q", "BLOB", "HASH", "MOE", "ENG")
BEGUN = ("MASK", "SKILL")  # what an engine does under them; the rest is not written yet


def test_the_vendored_texts_are_the_ones_that_were_read() -> None:
    """A changed text must be read again before anything is judged by it."""
    assert digests() == {
        "spec_sha256": "2a8c6675fc792469c669be7aabda076dc8827b2425d7b08a33e53d8339c74531",
        "rules_sha256": "c404d807f395f77f38a461a8ead29d46d82062a6211a61a2cf48897a9ce7e732",
        "rulings_sha256": "c6768259741e65dd38146a63d3ef17f228db2c301c1067908ff60c6856e90e5c",
    }


@pytest.mark.parametrize("identity", [*CATALOGUE, *UNTESTED])
def test_a_rule_quotes_the_text(identity: str) -> None:
    """The quote is the law."""
    quote = CATALOGUE[identity].quote if identity in CATALOGUE else UNTESTED[identity].quote
    assert squeezed(quote) in squeezed(spec_text())


@pytest.mark.parametrize("rule", CATALOGUE.values(), ids=lambda rule: rule.id)
def test_a_rule_is_declared_as_it_was_enumerated(rule) -> None:  # type: ignore[no-untyped-def]
    """Tier, section and party are those of rules.json."""
    norm = norms()[rule.id]
    assert rule.tier == norm.tier
    assert rule.tier in TIERS
    assert rule.binds in norm.binds
    assert norm.profile == "zh" or rule.tier not in GRADED
    assert rule.why, f"{rule.id} has no docstring"
    assert stored().get(rule.id), f"{rule.id} has no stored case"


def test_every_rule_of_the_written_areas_is_declared() -> None:
    """Tested, or untested with a reason; the others are listed as not yet written."""
    for identity, norm in norms().items():
        if norm.area in WRITTEN:
            assert identity in CATALOGUE or identity in UNTESTED, identity
        elif norm.area not in BEGUN or identity not in CATALOGUE:
            assert status(identity) == ("untested", "not yet written")
    assert all(reason.because for reason in UNTESTED.values())


def test_the_graded_reader_and_verifier_rules_are_all_tested() -> None:
    """105 in profile zh: none of them may hide behind a reason."""
    graded = [
        norm.id
        for norm in norms().values()
        if norm.area in WRITTEN
        and norm.tier in GRADED
        and norm.profile == "zh"
        and {"reader", "verifier"} & set(norm.binds)
    ]
    assert len(graded) == 105
    assert set(graded) <= set(CATALOGUE)


def test_every_graded_rule_has_a_twin() -> None:
    """A rule that nothing breaks tests nothing."""
    graded = {identity for identity, rule in CATALOGUE.items() if rule.tier in GRADED}
    assert graded == {twin.breaks for twin in TWINS}
    assert len({twin.name for twin in TWINS}) == len(TWINS)
