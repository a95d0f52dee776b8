"""Adds pages to the book that do not stand in docs/, and links sources to the repository.

The fields of JSON come from report.schema.json.
"""

import json
import logging
import posixpath
import re
from pathlib import Path

from mkdocs.structure.files import File

log = logging.getLogger("mkdocs.hooks.book")
PAGES = ["ARCHITECTURE.md", "CONTRIBUTING.md", "SECURITY.md", "CHANGELOG.md"]
SCHEME = re.compile(r"[a-z]+:")
LINK = re.compile(r"\]\(([^)#\s]+)(#[^)\s]*)?\)")


def root(config):
    return Path(config.config_file_path).parent


def check(config, page, target, path):
    """Warns, which fails a strict build, where a link to a file of the repository is dead."""
    if not (root(config) / path).exists():
        log.warning("%s links to %s, which is not there", page, target)


def on_files(files, config):
    for target, _ in LINK.findall((root(config) / "README.md").read_text()):
        if not re.match(SCHEME, target):
            check(config, "README.md", target, target)
    for name in PAGES:
        files.append(File.generated(config, name, abs_src_path=str(root(config) / name)))
    schema = json.loads((Path(config.docs_dir) / "report.schema.json").read_text())
    files.append(File.generated(config, "json.md", content=fields(schema)))
    return files


def kind(value, schema):
    """The type of a value of the schema, as a link where it has a section."""
    if "$ref" in value:
        name = value["$ref"].rsplit("/", 1)[1]
        return f"[{name}](#{name})" if "properties" in schema["$defs"][name] else name
    for choice in ("anyOf", "oneOf"):
        if choice in value:
            return " or ".join(kind(one, schema) for one in value[choice])
    if "const" in value or "enum" in value:
        return ", ".join(f"`{one}`" for one in value.get("enum", [value.get("const")]))
    if value.get("type") == "array":
        return f"list of {kind(value.get('items', {}), schema)}"
    of = value.get("type", "any")
    return " or ".join(of) if isinstance(of, list) else of


def rows(properties, schema, path=""):
    """A row for each field, and below an object without a name of its own those of its fields."""
    for name, value in properties.items():
        what = value.get("description", "").replace("|", "\\|")
        yield f"| `{path}{name}` | {kind(value, schema)} | {what} |"
        inner = value.get("items", value)
        if "properties" in inner:
            dots = "[]." if "items" in value else "."
            yield from rows(inner["properties"], schema, f"{path}{name}{dots}")


def fields(schema):
    """A page with a section for each object of the schema."""
    page = ["# JSON by field", schema["description"], "The page is made of [report.schema.json](report.schema.json)."]
    for name, value in schema["$defs"].items():
        if "properties" in value:
            table = ["| field | type | what |", "|---|---|---|", *rows(value["properties"], schema)]
            page += [f"## {name}", value.get("description", ""), "\n".join(table)]
    simple = {name: value for name, value in schema["$defs"].items() if "properties" not in value}
    page += ["## Other types", "\n".join(["| type | is | what |", "|---|---|---|", *rows(simple, schema)])]
    return "\n\n".join(page) + "\n"


def on_page_markdown(markdown, page, config, files):
    """Links as they work in the repository become links of the book."""
    at_root = page.file.src_uri in PAGES
    folder = "" if at_root else posixpath.join("docs", posixpath.dirname(page.file.src_uri))

    def link(match):
        target, anchor = match[1], match[2] or ""
        if re.match(SCHEME, target):
            return match[0]
        path = posixpath.normpath(posixpath.join(folder, target))
        if path in PAGES or (at_root and path.startswith("docs/")):
            here = posixpath.dirname(page.file.src_uri)
            return f"]({posixpath.relpath(path.removeprefix('docs/'), here or '.')}{anchor})"
        if path.startswith("docs/"):
            return match[0]
        check(config, page.file.src_uri, target, path)
        return f"]({config.repo_url}/blob/HEAD/{path}{anchor})"

    return LINK.sub(link, markdown)
