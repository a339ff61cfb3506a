"""The documentation as a site: ``sphinx-build -W docs site`` needs the extra `docs`, no network."""

from __future__ import annotations

import contextlib
import json
import re
from html.parser import HTMLParser
from pathlib import Path
from urllib.parse import unquote, urlsplit

import latex2mathml.converter
from docutils import nodes
from docutils.parsers.rst import Directive
from docutils.statemachine import StringList
from sphinx.addnodes import pending_xref
from sphinx.application import Sphinx
from sphinx.ext.autosummary import Autosummary
from sphinx.transforms import SphinxTransform
from sphinx.util import logging

import stagepack as sp
from stagepack.report.style import DARK, INK, LINES, PAGE, tint

project = "Stagepack"
author = "The Stagepack maintainers"
project_copyright = author
version = release = sp.__version__

extensions = [
    "myst_parser",
    "sphinx.ext.autodoc",
    "sphinx.ext.autosummary",
    "sphinx.ext.napoleon",
    "sphinx.ext.viewcode",
    "sphinx_copybutton",
]
myst_enable_extensions = ["colon_fence", "deflist", "dollarmath"]
myst_heading_anchors = 3
root_doc = "index"
exclude_patterns = ["_build"]

autosummary_generate = False  # its tables lead to where names are described already
autodoc_default_options = {"members": True, "exclude-members": "__init__, __new__"}
autodoc_member_order = "bysource"
autodoc_typehints = "none"  # types are said in the parameters, in words
autodoc_preserve_defaults = True
autodoc_mock_imports = ["torch"]  # a page describes what needs PyTorch, which the site does not
napoleon_google_docstring = False
napoleon_use_rtype = False
napoleon_use_param = False  # parameters that are described together stay together
napoleon_use_ivar = True

html_theme = "furo"
html_title = f"Stagepack {release}"
html_show_sphinx = False
html_copy_source = False
html_static_path = ["_static"]
html_css_files = ["site.css"]
html_theme_options = {
    "light_css_variables": {"color-brand-primary": "#1f5f99", "color-brand-content": "#1f5f99"},
    "dark_css_variables": {"color-brand-primary": "#8ab8e6", "color-brand-content": "#8ab8e6"},
}
html_math_renderer = "mathml"
copybutton_prompt_text = r"\$ "
copybutton_prompt_is_regexp = True

LOG = logging.getLogger(__name__)


class Schema(Directive):
    """``{schema} KIND``: the JSON Schema of a native file."""

    required_arguments = 1

    def run(self) -> list[nodes.Node]:
        """Return the schema as a block of JSON."""
        text = json.dumps(sp.schema(self.arguments[0]), indent=1)
        block = nodes.literal_block(text, text)
        block["language"] = "json"
        return [block]


class Names(Autosummary):
    """``{names}``: a table of all public names, each with the first line of what it is."""

    def run(self) -> list[nodes.Node]:
        """Return the table."""
        names = sorted(set(dir(sp)) - {"__version__", "plots"}, key=str.lower)
        names += [f"plots.{name}" for name in sp.plots.__all__ if name != "plot"]
        self.content = StringList(names, "names")
        self.options["nosignatures"] = None
        self.env.ref_context["py:module"] = "stagepack"
        return super().run()


def draw_gallery(app: Sphinx) -> None:
    """Run the Python of the gallery, and keep its pictures, light and dark ones."""
    folder = Path(app.srcdir) / "gallery"
    folder.mkdir(exist_ok=True)
    page = (folder.parent / "gallery.md").read_text(encoding="utf-8")
    with contextlib.chdir(folder):
        for source in re.findall(r"^```python\n(.*?)^```$", page, re.MULTILINE | re.DOTALL):
            exec(compile(source, "gallery.md", "exec"), {})
    for light in sorted(folder.glob("*.svg")):
        if not light.stem.endswith("-dark"):
            text = re.sub(r"#[0-9a-f]{6}\b", in_the_dark, light.read_text(encoding="utf-8"))
            style = f"<style>svg {{ fill: {DARK[INK]} }}</style><defs>"  # text without a colour
            dark = light.with_stem(f"{light.stem}-dark")
            dark.write_text(text.replace("<defs>", style, 1), encoding="utf-8")


def in_the_dark(found: re.Match[str]) -> str:
    """Return what a colour becomes on a dark page; areas, as their text is light there, darker."""
    colour = found[0]
    return DARK.get(colour, colour if colour in LINES else tint(colour, 0.5, DARK[PAGE]))


class DarkPictures(SphinxTransform):
    """A picture ``x.png`` that has an ``x-dark.png`` beside it gives way to it in the dark."""

    default_priority = 500

    def apply(self, **kwargs: object) -> None:
        """Put the dark picture behind the light one; the theme shows one of them."""
        folder = Path(self.env.doc2path(self.env.docname)).parent
        for light in list(self.document.findall(nodes.image)):
            path = Path(light["uri"])
            name = path.with_stem(f"{path.stem}-dark")
            if (folder / name).is_file():
                dark = light.copy()
                dark["uri"], dark["classes"] = name.as_posix(), ["only-dark"]
                light["classes"] = ["only-light"]
                light.parent.insert(light.parent.index(light) + 1, dark)


def mathml(self, node: nodes.Element) -> None:
    """Write a formula as MathML, which browsers set without scripts."""
    display = "block" if isinstance(node, nodes.math_block) else "inline"
    self.body.append(latex2mathml.converter.convert(node.astext(), display=display))
    raise nodes.SkipNode


def unlink_words(app: Sphinx, tree: nodes.document) -> None:
    """Leave words of a type without links: "n" in a shape is no attribute of that name."""
    for link in list(tree.findall(pending_xref)):
        word = link.get("reftarget", "")
        if link.get("reftype") == "class" and word.islower() and "." not in word:
            link.replace_self(link.children)


class Targets(HTMLParser):
    """What a page refers to, and the anchors that it has."""

    def __init__(self, page: Path) -> None:
        super().__init__()
        self.links: list[str] = []
        self.anchors = {""}
        self.feed(page.read_text(encoding="utf-8"))

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        """Take down links, sources and ids."""
        for name, value in attrs:
            if name == "id" and value:
                self.anchors.add(value)
            elif name in ("href", "src") and value:
                self.links.append(value)


def check_links(app: Sphinx, error: Exception | None) -> None:
    """Warn of links to pages, files and anchors of the site that are not there."""
    if error or app.builder.format != "html":
        return
    site = Path(app.outdir)
    pages = {path.resolve(): Targets(path) for path in site.rglob("*.html")}
    for path, page in pages.items():
        for link in page.links:
            parts = urlsplit(link)
            if parts.scheme or parts.netloc:
                continue
            target = (path.parent / unquote(parts.path)).resolve() if parts.path else path
            known = pages.get(target)
            if not target.exists() or (known and unquote(parts.fragment) not in known.anchors):
                LOG.warning("%s: broken link %s", path.relative_to(site), link)


def setup(app: Sphinx) -> None:
    """Add what is said above."""
    app.add_directive("schema", Schema)
    app.add_directive("names", Names)
    app.connect("builder-inited", draw_gallery)
    app.add_transform(DarkPictures)
    app.add_html_math_renderer("mathml", (mathml, None), (mathml, None))
    app.connect("doctree-read", unlink_words)
    app.connect("build-finished", check_links)
