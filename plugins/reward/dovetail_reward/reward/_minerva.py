"""Minerva's normalisation of answers, shared by `math_dapo` and its verl-compatible form."""

from __future__ import annotations

import re

_REPLACED = (
    ("an ", ""),
    ("a ", ""),
    (".$", "$"),
    (r"\$", ""),
    ("\\ ", ""),
    (" ", ""),
    ("mbox", "text"),
    (r",\text{and}", ","),
    (r"\text{and}", ","),
    (r"\text{m}", r"\text{}"),
)
_LEFT_OUT = (
    *("square", "ways", "integers", "dollars", "mph", "inches", "hours", "km", "units", r"\ldots", "sue", "points"),
    *("feet", "minutes", "digits", "cents", "degrees", "cm", "gm", "pounds", "meters", "meals", "edges", "students"),
    *("childrentickets", "multiples", r"\text{s}", r"\text{.}", "\\text{\ns}", r"\text{}^2", r"\text{}^3"),
    *("\\text{\n}", r"\text{}", r"\mathrm{th}", r"^\circ", r"^{\circ}", r"\;", r",\!", "{,}", '"', r"\dots"),
)
_UNWRAPPED = (
    (re.compile(r"[^$\n]*\$([^$\n]*)\$[^\n]*"), r"$\1$"),
    (re.compile(r"\\text\{(.*?)\}"), r"\1"),
    (re.compile(r"\\textbf\{(.*?)\}"), r"\1"),
    (re.compile(r"\\overline\{(.*?)\}"), r"\1"),
    (re.compile(r"\\boxed\{(.*)\}"), r"\1"),
    (re.compile(r"frac([^{])(.)"), r"frac{\1}{\2}"),
    (re.compile(r"sqrt([^{])"), r"sqrt{\1}"),
)


def minerva(text: str) -> str:
    r"""Normalise an answer as in Lewkowycz et al. 2022, *Solving quantitative reasoning problems with language models*,
    listing 1.

    Only the last side of an equation is kept, and only the part between the dollars of a text with `$...$`. Units,
    articles and white space are removed; `\text`, `\textbf`, `\overline` and `\boxed` are unwrapped; `\frac12` becomes
    `\frac{1}{2}`, and `1,000` becomes `1000`.

    >>> minerva(r"x = $\frac12$ cm"), minerva("42 dollars"), minerva("1,000"), minerva(r"\text{yes}")
    ('\\frac{1}{2}', '42', '1000', 'yes')
    """
    text = text.rpartition("=")[2]
    for old, new in _REPLACED:
        text = text.replace(old, new)
    for word in _LEFT_OUT:
        text = text.replace(word, "")
    for pattern, replacement in _UNWRAPPED:
        text = pattern.sub(replacement, text)
    text = text.replace("$", "")
    plain = text.replace(",", "")
    return plain if plain.isdigit() else text.strip()
