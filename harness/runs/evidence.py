"""All claims in one table, and what is not reproduced and why: a part of docs/validation.md; and
the overview in README.md.

    harness claims --document

Verdicts are those that were published with the results, so the page can be made, and checked, in a
checkout without them. Whether a claim could fail is found by changing the results (`mutations`);
that takes minutes, so it is kept beside the verdicts and found anew only if claims or results have
changed.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, Final

from harness import tiers
from harness.errors import DataFolderError
from harness.paths import Project
from harness.runs import agreement, claims, mutations, parameters, published, queries, summary
from harness.runs.claims import Claim, Paper
from harness.runs.made_part import MadePart, row
from harness.system.files import digest_of, write_atomically

COMMAND: Final = "harness claims --document"
"""Which makes these parts of pages."""

_EMULATED: Final = "emulated"
_MADE_BY: Final = {"simulated": "make reproduce", _EMULATED: "git checkout data, or make emulated"}
_HEADINGS: Final = ("place", "the paper's words", "what is measured", "paper", "expected")


def update(project: Project) -> list[Path]:
    """Judges what is published by the present claims, finds out which of these could fail, where
    that is not known, and writes the pages' parts, and how many have each verdict for DVC. Returns
    the pages.

    Raises DataFolderError if a study of a pipeline has no results on its tier but on some other
    one: the pages would say less than the last ones.
    """
    there = list(_judged(project))
    some = {name for name, _ in there}
    for tier, how in _MADE_BY.items():
        of_tier = parameters.pipelines(project).get(tier, {})
        missing = sorted(n for n in some if n in of_tier and (n, tier) not in there)
        if missing:
            raise DataFolderError(f"no {tier} results of {', '.join(missing)}: {how}")
    for name in claims.load(project):
        for tier in tiers.names():
            _judge(project, name, tier)
    for name, tier in there:
        _find_what_could_fail(project, name, tier)
    summary.write_counts(project)
    made = parts(project)
    for page, text in made.items():
        MadePart(page, COMMAND).write(text)
    return list(made)


def parts(project: Project) -> dict[Path, str]:
    """What has to stand in each page, in Markdown."""
    return {project.validation: text_of(project), project.readme: summary.in_markdown(project)}


def written(page: Path) -> str:
    """What stands in a page now. Raises DataFolderError if it has no such part."""
    return MadePart(page, COMMAND).read()


def text_of(project: Project) -> str:
    """The part of docs/validation.md: every claim."""
    return "\n".join(
        _of_paper(project, name, paper) for name, paper in claims.load(project).items()
    )


def _of_paper(project: Project, name: str, paper: Paper) -> str:
    verdicts = summary.verdicts_of(project, name)
    run = [tier for tier, found in verdicts.items() if found]
    of_tiers = claims.could_fail(project).get(name, {})
    known = {tier: of_tiers[tier] for tier in run if tier in of_tiers}
    lines = [f"### {paper.title}", ""]
    lines += [f"`{name}`. {_sentence(paper.reference)}", ""]
    headings = [*_HEADINGS, *(summary.label(project, name, tier) for tier in run), "could fail"]
    lines += [row(headings), row(["---"] * len(headings))]
    for claim in paper.claims:
        texts = [claim.place, f'"{claim.words}"' if claim.words else "", _measure(claim)]
        texts += [claim.published, claims.format_range(claim.expected, claim.unit)]
        texts += [_said(verdicts[tier].get(claim.id), claim) for tier in run]
        lines.append(row([*texts, _could_fail(claim, known, verdicts)]))
    open_ones = list(_open(paper, {tier: verdicts[tier] for tier in run}, _of_run(project, name)))
    if open_ones:
        lines += ["", "Not reproduced, or not wholly, and why:", "", *open_ones]
    return "\n".join([*lines, ""])


def _open(
    paper: Paper, verdicts: Mapping[str, Mapping[str, Any]], of_run: Mapping[str, Any]
) -> Iterator[str]:
    """A line per claim that a tier does not reproduce. `of_run`: what the model of the emulated run
    says of the claims, values and verdicts.
    """
    for claim in paper.claims:
        said = [
            f"{tier} {_said(found[claim.id], claim)}{_model_of(tier, of_run, claim)}"
            for tier, found in verdicts.items()
            if claim.id in found and found[claim.id]["verdict"] in claims.WANTING
        ]
        if said:
            found = {tier: each.get(claim.id, {}).get("verdict") for tier, each in verdicts.items()}
            modelled = of_run.get(claim.id, {}).get("verdict")
            why = " ".join(claim.because.split()) or _why(found, modelled)
            yield f"- {claim.place}, {claim.statement} ({'; '.join(said)}): {why}"


def _of_run(project: Project, name: str) -> dict[str, Any]:
    """By claim the value and verdict of the model of the published emulated run."""
    model = agreement.modelled(project, name)
    if model.table.empty:
        return {}
    judged = claims.judge(project, name, model)
    found = judged[judged.value.notna()].set_index("id")[["value", "verdict"]]
    return {str(claim): row for claim, row in found.to_dict("index").items()}


def _model_of(tier: str, of_run: Mapping[str, Any], claim: Claim) -> str:
    if tier != _EMULATED or claim.id not in of_run:
        return ""
    return f", where the model of that run has {_said(of_run[claim.id], claim)}"


def _why(found: Mapping[str, str | None], modelled: str | None) -> str:
    """What can be said without knowing more: whether the run's size makes it, or the stack."""
    if found.get(_EMULATED) not in claims.WANTING or found.get("simulated") != claims.REPRODUCED:
        return "unknown."
    if modelled in claims.WANTING:
        return "the run's size: its model says so, too, and that of the paper's size does not."
    if modelled == claims.REPRODUCED:
        return "unknown; something real that its model does not have."
    return "unknown."


def _measure(claim: Claim) -> str:
    return claim.measures or claim.statement


def _said(found: Mapping[str, Any] | None, claim: Claim) -> str:
    if found is None:
        return "not judged"
    if found["value"] is None:
        return str(found["verdict"])
    in_vain = found["verdict"] == claims.REPRODUCED and found.get("no_evidence")
    cannot_fail = in_vain and not claim.uncounted
    verdict = f"{found['verdict']}, cannot fail" if cannot_fail else found["verdict"]
    return f"{claims.format_value(found['value'], claim.unit, claim.expected)}, {verdict}"


def _could_fail(
    claim: Claim, known: Mapping[str, Any], verdicts: Mapping[str, Mapping[str, Any]]
) -> str:
    """On the first tier that judged it."""
    if claim.fitted:
        return "fitted"
    if claim.uncounted:
        return f"in no count: {claim.uncounted}"
    for tier, found in known.items():
        if claim.id in found["changed_by"]:
            if change := found["changed_by"][claim.id]:
                return f"yes: {change}"
            reproduced = verdicts[tier].get(claim.id, {}).get("verdict") == claims.REPRODUCED
            return "**no**" if reproduced else "it does, with any of these changes"
    return "not known"


def _sentence(text: str) -> str:
    words = " ".join(text.split())
    return words if words.endswith(".") else f"{words}."


def _judge(project: Project, name: str, tier: str) -> None:
    """Verdicts stay as they were published, unless the claims have become others since."""
    results = published.results(project, name, tier)
    if results.table.empty:
        return
    judged = claims.judge(project, name, results)
    path = project.metrics / f"{name}.{tier}.json"
    found = claims.metrics(judged).encode()
    if not path.is_file() or path.read_bytes() != found:
        write_atomically(path, found, make_folder=True)


def _judged(project: Project) -> Iterator[tuple[str, str]]:
    """Papers and the tiers that there are results of them from."""
    for name in claims.load(project):
        for tier in tiers.names():
            if (project.results / f"{name}.{tier}.csv").is_file():
                yield name, tier


def _find_what_could_fail(project: Project, name: str, tier: str) -> None:
    """Of a paper's claims on a tier, if claims or results are others than when it was found."""
    known = claims.could_fail(project)
    of = _digest(project, name, tier)
    if known.get(name, {}).get(tier, {}).get("of") == of:
        return
    found = mutations.can_fail(project, name, published.results(project, name, tier))
    judged = found[found.verdict != claims.NOT_JUDGED]
    changes = dict(zip(judged.id, judged.changes, strict=True))
    of_tiers = {**known.get(name, {}), tier: {"of": of, "changed_by": changes}}
    text = json.dumps({**known, name: of_tiers}, indent=1, sort_keys=True) + "\n"
    write_atomically(claims.could_fail_record(project), text.encode())


def _digest(project: Project, name: str, tier: str) -> str:
    """Of what could change which claims could fail: the claims, the paper's numbers, the results,
    and the code that makes them wrong and judges.
    """
    paper = claims.load(project)[name]
    asks = {"id", "metric", "each", "signed", "expected", "direction"}
    judged = [claim.model_dump(mode="json", include=asks) for claim in paper.claims]
    files = [project.results / f"{name}.{tier}{end}" for end in (".csv", ".series.json")]
    own = [Path(str(module.__file__)) for module in (claims, mutations, queries)]
    used = (*files, project.published / f"{name}.csv", *own)
    there = [(file.name, file) for file in used if file.is_file()]
    return digest_of(there, json.dumps((paper.relation, judged)))
