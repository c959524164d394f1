"""What a PromQL expression reads: metric names, matchers, and the labels it names."""

from collections.abc import Iterator
from dataclasses import dataclass, field

import promql_parser as parser


@dataclass
class Selector:
    """One vector selector, with the functions and aggregations around it, innermost last."""

    name: str
    matchers: dict[str, list[tuple[str, str]]]
    inside: list[str] = field(default_factory=list)


OPERATORS = {
    "MatchOp.Equal": "=",
    "MatchOp.NotEqual": "!=",
    "MatchOp.Re": "=~",
    "MatchOp.NotRe": "!~",
}


# Operators whose result can be empty although both sides are there.
COMPARING = {">", "<", ">=", "<=", "==", "!=", "unless"}


def parse(text: str):
    try:
        return parser.parse(text)
    except ValueError as error:
        raise AssertionError(f"PromQL does not parse: {error}\n{text}") from None


def children(node) -> Iterator:
    if isinstance(node, parser.Call):
        yield from node.args
    elif isinstance(node, parser.BinaryExpr):
        yield from (node.lhs, node.rhs)
    elif isinstance(node, parser.AggregateExpr):
        yield node.expr
        if node.param is not None:
            yield node.param
    elif isinstance(node, parser.MatrixSelector):
        yield node.vector_selector
    elif isinstance(node, (parser.ParenExpr, parser.UnaryExpr, parser.SubqueryExpr)):
        yield node.expr


def nodes(text: str) -> Iterator:
    """Every node of the expression, outermost first."""
    waiting = [parse(text)]
    while waiting:
        node = waiting.pop(0)
        yield node
        waiting.extend(children(node))


def selectors(text: str) -> list[Selector]:
    found = []

    def walk(node, inside):
        if isinstance(node, parser.VectorSelector):
            matchers: dict[str, list[tuple[str, str]]] = {}
            for matcher in node.matchers.matchers:
                operator = OPERATORS[str(matcher.op)]
                matchers.setdefault(matcher.name, []).append((operator, matcher.value))
            name = node.name or dict(matchers.get("__name__", [])).get("=", "")
            found.append(Selector(name, matchers, inside))
            return
        around = inside
        if isinstance(node, parser.Call):
            around = [*inside, node.func.name]
        elif isinstance(node, parser.AggregateExpr):
            around = [*inside, str(node.op)]
        for child in children(node):
            walk(child, around)

    walk(parse(text), [])
    return found


def labels_named(text: str) -> set[str]:
    """Labels that the expression relies on: in matchers, `by`, `on` and `group_left`.

    `without` and `ignoring` are left out: they may name labels that are not there.
    """
    named: set[str] = set()
    for node in nodes(text):
        modifier = getattr(node, "modifier", None)
        if isinstance(node, parser.AggregateExpr) and modifier:
            if modifier.type == parser.AggModifierType.By:
                named.update(modifier.labels)
        elif isinstance(node, parser.BinaryExpr) and modifier:
            matching = modifier.matching
            if matching and str(matching.type).endswith("Include"):
                named.update(matching.labels)
            named.update(modifier.group_labels or [])
    for selector in selectors(text):
        named.update(selector.matchers)
    return named - {"__name__"}


def compares(text: str) -> bool:
    """Whether an expression can be empty by comparison or absence, as an alert's must be."""
    for node in nodes(text):
        if isinstance(node, parser.BinaryExpr) and str(node.op) in COMPARING:
            return True
        if isinstance(node, parser.Call) and node.func.name.startswith("absent"):
            return True
    return False
