"""Builds the documentation as a site of plain files, which needs no server and nothing from elsewhere.

    python scripts/docs/build.py [FOLDER]       # dist/docs

The pages are those below docs/ and those that they link to. They are laid out in .cache/docs/pages, with links as they are there:
a link to a file that is no page leads to a page that shows it. What is made of the API's document, of the sample settings and of the
Python SDK is added under reference/; comments `<!-- site … -->` link to it. A link that leads nowhere ends the build, and so does a page of docs/ that the navigation does not have.
"""

from __future__ import annotations

import json
import os
import posixpath
import re
import shutil
import subprocess
import sys
from pathlib import Path

import python_api
import reference
import tomli
from pages import NOTE, ROOT, PageError, parts

SETTINGS = ROOT / "docs" / "zensical.toml"
STAGE = ROOT / ".cache" / "docs" / "pages"
LANGUAGES = {".py": "python", ".mjs": "js", ".ts": "ts", ".go": "go", ".yaml": "yaml", ".json": "json", ".toml": "toml", ".csv": "text"}
# Code, which may look like a link, or the target of one.
LINK = re.compile(r"(?P<ticks>`+)(?:(?!(?P=ticks)).)+?(?P=ticks)(?!`)|\]\((?P<target>[^)\s]+)\)", re.DOTALL)


def placed(file: Path) -> str:
    """Where a file of the repository is in the site's sources."""
    name = (file / "README.md" if file.is_dir() else file).relative_to(ROOT)
    name = name.relative_to("docs") if name.parts[0] == "docs" else Path("source") / name
    if name.name == "README.md":
        name = name.with_name("index.md")
    return name.as_posix() if name.suffix == ".md" else f"{name.as_posix()}.md"


class Site:
    """The pages, as they are laid out. `add` takes a file and, in time, all that it links to."""

    def __init__(self) -> None:
        self.files: list[Path] = []
        self.wrong: list[str] = []

    def add(self, file: Path) -> None:
        if file not in self.files:
            self.files.append(file)

    def lay_out(self) -> None:
        for file in self.files:  # grows meanwhile
            self.write(placed(file), self.listed(file) if file.is_dir() else self.page(file) if file.suffix == ".md" else self.shown(file))

    @staticmethod
    def write(name: str, text: str) -> None:
        place = STAGE / name
        place.parent.mkdir(parents=True, exist_ok=True)
        place.write_text(text, encoding="utf-8")

    def page(self, file: Path) -> str:
        text = ""
        for part in parts(file):
            if part.kind == "text":
                text += LINK.sub(lambda link: self.link(file, link), part.text)
            elif part.kind == "fence":
                text += part.text
            else:  # a comment is for the tests, or for the site; blank, it leaves the lines their numbers
                note = NOTE.fullmatch(part.text)
                text += f"\n{note['words'].strip()}\n\n" if note and note["kind"] == "site" else "\n" * part.text.count("\n")
        return text

    def link(self, file: Path, link: re.Match[str]) -> str:
        target, anchor = re.fullmatch(r"([^#]*)(.*)", link["target"] or "").groups()  # type: ignore[union-attr]
        if not target or re.match(r"[a-z]+:", target):
            return link[0]
        there = Path(os.path.normpath(file.parent / target))
        if (there / "README.md").exists():
            there /= "README.md"
        if not there.exists() or not there.is_relative_to(ROOT):
            self.wrong.append(f"{file.relative_to(ROOT)}: there is no {link['target']}")
            return link[0]
        self.add(there)
        return f"]({posixpath.relpath(placed(there), posixpath.dirname(placed(file)))}{anchor})"

    def listed(self, folder: Path) -> str:
        """A page that lists the files of a folder without a README."""
        files = "".join(f"- [{file.name}]({file.name})\n" for file in sorted(folder.iterdir()) if file.is_file())
        return f"# {folder.relative_to(ROOT)}\n\n" + LINK.sub(lambda link: self.link(folder / "README.md", link), files)

    @staticmethod
    def shown(file: Path) -> str:
        """A page that shows a file which is none."""
        text = file.read_text(encoding="utf-8")
        fence = "`" * (1 + max([2, *map(len, re.findall(r"`+", text))]))
        return f"---\nsearch:\n  exclude: true\n---\n\n# {file.relative_to(ROOT)}\n\n{fence}{LANGUAGES.get(file.suffix, 'text')}\n{text}\n{fence}\n"


def navigation(entries: list[object]) -> tuple[list[object], list[str]]:
    """The navigation with its patterns (`frameworks/*.md`) replaced by the pages that fit, and all pages that are in it."""
    out: list[object] = []
    pages: list[str] = []
    for entry in entries:
        if isinstance(entry, dict):
            ((title, below),) = entry.items()
            if isinstance(below, str):
                pages.append(below)
                out.append(entry)
            else:
                inner, some = navigation(below)
                pages += some
                if inner:
                    out.append({title: inner})
        elif "*" in str(entry):
            some = sorted(p.relative_to(STAGE).as_posix() for p in STAGE.glob(str(entry)))
            some.sort(key=lambda name: not name.endswith("index.md"))
            pages += some
            out += some
        else:
            pages.append(str(entry))
            out.append(entry)
    return out, pages


def toml(value: object) -> str:
    """A value as TOML has it, on one line."""
    if isinstance(value, dict):
        return "{" + ", ".join(f"{json.dumps(k)} = {toml(v)}" for k, v in value.items()) + "}"
    if isinstance(value, list):
        return "[" + ", ".join(map(toml, value)) + "]"
    return json.dumps(value, ensure_ascii=False)


def main() -> int:
    out = Path(sys.argv[1] if len(sys.argv) > 1 else ROOT / "dist" / "docs").resolve()
    shutil.rmtree(STAGE, ignore_errors=True)
    site = Site()
    try:
        for file in sorted((ROOT / "docs").rglob("*.md")):
            site.add(file)
        own = [placed(file) for file in site.files]
        site.lay_out()
    except PageError as error:
        site.wrong.append(str(error))
    shutil.copytree(ROOT / "docs" / "assets", STAGE / "assets")
    made = {**reference.pages(), **python_api.pages()}
    for name, text in made.items():
        site.write(name, text)

    settings = tomli.loads(SETTINGS.read_text())
    project = settings["project"]
    project["nav"], listed = navigation(project["nav"])
    for name in listed:
        if not (STAGE / name).exists():
            site.wrong.append(f"docs/zensical.toml: the navigation has {name}, which there is not")
    for name in [*own, *made]:
        if name not in listed:
            site.wrong.append(f"docs/zensical.toml: the navigation lacks {name}")
    if site.wrong:
        print(*site.wrong, sep="\n", file=sys.stderr)
        return 1
    project |= {"docs_dir": "pages", "site_dir": "site"}
    config = STAGE.parent / "zensical.toml"
    config.write_text("".join(f"{key} = {toml(value)}\n" for key, value in settings.items()))
    done = subprocess.run([sys.executable, "-m", "zensical", "build", "--strict", "--clean", "--config-file", config], cwd=STAGE.parent)
    if done.returncode == 0:
        shutil.rmtree(out, ignore_errors=True)
        shutil.move(STAGE.parent / "site", out)
    return done.returncode


if __name__ == "__main__":
    sys.exit(main())
