"""Brings pages that do not stand in docs/ into the book, and links to sources to the repository."""

import logging
import posixpath
import re
from pathlib import Path

from mkdocs.structure.files import File

log = logging.getLogger("mkdocs.hooks.book")
PAGES = ["ARCHITECTURE.md", "CONTRIBUTING.md", "SECURITY.md", "CHANGELOG.md"]
LINK = re.compile(r"\]\(([^)#\s]+)(#[^)\s]*)?\)")


def root(config):
    return Path(config.config_file_path).parent


def on_files(files, config):
    for name in PAGES:
        files.append(File.generated(config, name, abs_src_path=str(root(config) / name)))
    return files


def on_page_markdown(markdown, page, config, files):
    """Links as they work in the repository become links of the book."""
    at_root = page.file.src_uri in PAGES
    folder = "" if at_root else posixpath.join("docs", posixpath.dirname(page.file.src_uri))

    def link(match):
        target, anchor = match[1], match[2] or ""
        if re.match(r"[a-z]+:", target):
            return match[0]
        path = posixpath.normpath(posixpath.join(folder, target))
        if path in PAGES or (at_root and path.startswith("docs/")):
            here = posixpath.dirname(page.file.src_uri)
            return f"]({posixpath.relpath(path.removeprefix('docs/'), here or '.')}{anchor})"
        if path.startswith("docs/"):
            return match[0]
        if not (root(config) / path).exists():
            log.warning("%s links to %s, which is not there", page.file.src_uri, target)
        return f"]({config.repo_url}/blob/HEAD/{path}{anchor})"

    return LINK.sub(link, markdown)
