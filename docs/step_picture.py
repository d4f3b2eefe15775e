"""The picture of a training step, drawn from what the engine knows: stages, the kinds called at them, and fields."""

from __future__ import annotations

import html
import textwrap
from collections.abc import Iterable, Sequence
from itertools import groupby

from dovetail.kinds import FIELDS, KINDS, STAGES, Stage
from dovetail.kinds.fields import ENGINE
from dovetail.plan.calls import ENTROPY
from dovetail.plan.roles import OLD, REFERENCE, prefix_of

LEVELS = {
    "host": ("host", "on the host, in numpy"),
    "batch": ("whole batch", "in one compiled call, on all completions of the step"),
    "mini": ("mini-batch", "on each mini-batch of each epoch, before it is split into micro-batches"),
    "micro": ("micro-batch", "on each micro-batch, in the differentiable pass"),
}
"""Where a stage runs, by its level: in a word, and in a sentence."""
COLOURS = {"host": "#0d9488", "batch": "#4f6bd8", "mini": "#b7791f", "micro": "#c2553a"}
WIDTH, LINE, PAD = 1120, 18, 12
STAGE_AT, KINDS_AT, FIELDS_AT = 64, 372, 640
STYLE = """
  .card { fill: #ffffff; stroke: #d5dae1 } .row { fill: #f4f6f9 } .text { fill: #1f2933 } .soft { fill: #52606d }
  text { font: 13px ui-sans-serif, system-ui, sans-serif } .name { font-weight: 600; font-size: 15px }
  .code { font: 12px ui-monospace, monospace } .head { font-weight: 600 }
  .band { fill: #ffffff; font: 600 12px ui-sans-serif, system-ui, sans-serif }
  @media (prefers-color-scheme: dark) {
    .card { fill: #1b1f27; stroke: #39414f } .row { fill: #252b36 } .text { fill: #e4e8ee } .soft { fill: #a9b4c2 }
  }
"""


def called_at(stage: Stage) -> list[str]:
    """Return the kinds whose components are called at a stage; with the setting that brings one there from another."""
    found = [
        f"{kind.name} ({kind.coefficient})" if kind.coefficient else kind.name
        for kind in (*KINDS, ENTROPY)
        if kind.stage == stage.name
    ]
    for kind in KINDS:
        for setting, where in kind.moved.items():
            found += [f"{kind.name} ({setting} = '{value}')" for value, to in where.items() if to == stage.name]
    return found


def fields_of(stage: Stage) -> list[str]:
    """Return the fields that a stage provides."""
    return [name for name, info in FIELDS.items() if info.stage == stage.name]


def quantities_of(stage: Stage) -> str:
    """Say which fields a stage's forward passes provide, beside those that have a name of their own."""
    if stage.name == "passes":
        return f"{OLD}NAME, {prefix_of(REFERENCE)}NAME, ROLE_NAME for every quantity NAME"
    return "NAME: every quantity under the policy being trained" if stage.name == "loss_terms" else ""


def picture() -> str:
    """Return the picture as SVG, on a card of its own so that it can be read on light and dark pages."""
    body, top = [], 58
    for level, stages in groupby(STAGES, key=lambda stage: stage.level):
        begin = top
        for stage in stages:
            drawn, height = _row(stage, top)
            body += drawn
            top += height + 6
        body += _band(begin, top - 6 - begin, level)
    always = [name for name, info in FIELDS.items() if info.stage == ENGINE]
    note = (
        f"There at every stage: {', '.join(always)}. Dataset columns that are read by name are there from the first on."
    )
    legend = [_legend(top + 38 + LINE * number, level) for number, level in enumerate(LEVELS)]
    height = top + 40 + LINE * len(LEVELS)
    head = [
        _text(STAGE_AT + PAD, 36, "stage", "head soft"),
        _text(KINDS_AT, 36, "kinds that are called", "head soft"),
        _text(FIELDS_AT, 36, "fields that it provides", "head soft"),
        _text(STAGE_AT + PAD, top + 16, note, "soft"),
    ]
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {height}" width="{WIDTH}" height="{height}"'
        f' role="img" aria-label="The stages of a training step">\n<style>{STYLE}</style>\n'
        f'<rect class="card" x="0.5" y="0.5" width="{WIDTH - 1}" height="{height - 1}" rx="10"/>\n'
        + "\n".join([*head, *body, *legend])
        + "\n</svg>\n"
    )


def _row(stage: Stage, top: int) -> tuple[list[str], int]:
    said = textwrap.wrap(stage.summary, 42)
    kinds = [line for kind in called_at(stage) for line in textwrap.wrap(kind, 36, subsequent_indent="  ")]
    fields = textwrap.wrap(", ".join(fields_of(stage)), 64, break_long_words=False)
    more = textwrap.wrap(quantities_of(stage), 64)
    height = max(LINE * (1 + len(said)), LINE * len(kinds), LINE * (len(fields) + len(more))) + 2 * PAD
    first = top + PAD + 12
    drawn = [
        f'<rect class="row" x="{STAGE_AT}" y="{top}" width="{WIDTH - STAGE_AT - 16}" height="{height}" rx="6"/>',
        _text(STAGE_AT + PAD, first, stage.name, "name text"),
        *_lines(STAGE_AT + PAD, first + LINE, said, "soft"),
        *_lines(KINDS_AT, first, kinds, "code text"),
        *_lines(FIELDS_AT, first, fields, "code text"),
        *_lines(FIELDS_AT, first + LINE * len(fields), more, "soft"),
    ]
    return drawn, height


def _band(top: int, height: int, level: str) -> list[str]:
    """Draw what the stages of a level have in common, at their left."""
    turned = f'text-anchor="middle" transform="translate(40 {top + height // 2}) rotate(-90)"'
    return [
        f'<rect x="16" y="{top}" width="40" height="{height}" rx="6" fill="{COLOURS[level]}"/>',
        f'<text class="band" {turned}>{LEVELS[level][0]}</text>',
    ]


def _legend(base: int, level: str) -> str:
    name, said = LEVELS[level]
    left = STAGE_AT + PAD
    mark = f'<rect x="{left}" y="{base - 10}" width="12" height="12" rx="3" fill="{COLOURS[level]}"/>'
    return f"{mark}\n{_text(left + 20, base, f'{name}: {said}', 'soft')}"


def _lines(left: int, first: int, lines: Sequence[str], style: str) -> Iterable[str]:
    return (_text(left, first + LINE * number, line, style) for number, line in enumerate(lines))


def _text(left: int, base: int, text: str, style: str) -> str:
    return f'<text class="{style}" x="{left}" y="{base}" xml:space="preserve">{html.escape(text)}</text>'
