"""Curves over time as a picture in SVG, one panel below the other: what a soak has measured."""

from dataclasses import dataclass
from html import escape
from pathlib import Path

WIDTH, PANEL, LEFT, RIGHT, TOP = 960, 150, 90, 20, 40
INK, GRID, LINE = "#444", "#ddd", "#1f6fb2"

Points = list[tuple[float, float]]


@dataclass
class Curve:
    title: str
    unit: str
    points: Points


def slope(points: Points) -> float:
    """Of the straight line with the least squares, in units of y for one of x."""
    count = len(points)
    mean_x = sum(x for x, _ in points) / count
    mean_y = sum(y for _, y in points) / count
    spread = sum((x - mean_x) ** 2 for x, _ in points)
    return sum((x - mean_x) * (y - mean_y) for x, y in points) / spread if spread else 0.0


def number(value: float) -> str:
    return f"{value:,.0f}" if value >= 10 else f"{value:.2g}"


def panel(curve: Curve, top: int, seconds: float) -> list[str]:
    """One curve, its scale beginning at zero."""
    height, inner = PANEL - TOP, WIDTH - LEFT - RIGHT
    most = max(y for _, y in curve.points) * 1.1 or 1.0
    path = " ".join(
        f"{LEFT + x / seconds * inner:.1f},{top + TOP + height * (1 - y / most):.1f}"
        for x, y in curve.points
    )
    marks = []
    for part in (0, 0.5, 1):
        y = top + TOP + height * (1 - part)
        marks.append(f'<path d="M{LEFT} {y}H{WIDTH - RIGHT}" stroke="{GRID}"/>')
        text = f"{number(most * part)} {curve.unit}"
        marks.append(f'<text x="{LEFT - 8}" y="{y + 4}" text-anchor="end">{escape(text)}</text>')
    title = f'<text x="{LEFT}" y="{top + TOP - 10}" font-weight="bold">{escape(curve.title)}</text>'
    line = f'<polyline points="{path}" fill="none" stroke="{LINE}" stroke-width="1.5"/>'
    return [title, *marks, line]


def draw(path: Path, title: str, curves: list[Curve]) -> None:
    """Writes the picture."""
    seconds = max(x for curve in curves for x, _ in curve.points)
    height = TOP + len(curves) * PANEL + 40
    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {height}"'
        f' font-family="sans-serif" font-size="12" fill="{INK}">',
        f'<rect width="{WIDTH}" height="{height}" fill="white"/>',
        f'<text x="{LEFT}" y="26" font-size="15">{escape(title)}</text>',
    ]
    for index, curve in enumerate(curves):
        parts += panel(curve, TOP + index * PANEL, seconds)
    for part in range(5):
        x = LEFT + part / 4 * (WIDTH - LEFT - RIGHT)
        text = f"{seconds * part / 4 / 60:.1f} min"
        parts.append(f'<text x="{x}" y="{height - 14}" text-anchor="middle">{text}</text>')
    path.write_text("\n".join([*parts, "</svg>", ""]))
