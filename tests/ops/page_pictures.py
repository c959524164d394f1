"""Takes pictures of the pages in known situations, to be looked at.

page_pictures.py FOLDER [NAME...]     all of them, or only these (page.cjs names them)

The one in docs/pictures is "targets", with 48 colours (pngquant 48).
"""

import sys
import tempfile
from pathlib import Path

import exporter
import page_scene
import test_page


def main() -> None:
    folder, *names = sys.argv[1:]
    Path(folder).mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(prefix="pictures.") as work:
        scene = page_scene.make(Path(work))
        with exporter.Exporter(scene.folder, scene.config) as running:
            test_page.wait_for_all(running)
            test_page.in_browser(scene, running.url, "pictures", folder, *names)
    print(f"pictures in {folder}")


if __name__ == "__main__":
    main()
