"""Every board can be drawn by Grafana's own components, with an answer in it and without one.

Whether it is a good picture only eyes can tell: the pictures stay in the folder PICTURES.
"""

import html
import os
import re
import unittest
from pathlib import Path

import board_queries
from pictures import draw

DRAWING = Path(os.environ.get("DRAWING", ".tools/drawing")).resolve()
PICTURES = Path(os.environ.get("PICTURES", ".tools/pictures")).resolve()


def text_of(picture: Path) -> set[str]:
    """The pieces of text on a page."""
    page = draw.page_of(picture)
    return {html.unescape(piece).strip() for piece in re.findall(r">([^<]+)", page)}


class Pictures(unittest.TestCase):
    def test_every_board_is_drawn(self):
        drawn = {picture.stem: picture for picture in draw.draw(DRAWING, PICTURES)}
        for file, board in board_queries.boards().items():
            name = file.removesuffix(".json")
            for scene in ("night", "nothing"):
                with self.subTest(name, scene=scene):
                    words = text_of(drawn[f"{name}-{scene}-dark"])
                    titles = {panel["title"] for panel in board_queries.panels(board)}
                    self.assertEqual(titles - words, set())
                    # A column without a name, a value that came from nowhere.
                    strange = r"Value( #[A-Z])?|.*\bNaN\b.*|.*\bundefined\b.*"
                    self.assertEqual([word for word in words if re.fullmatch(strange, word)], [])
