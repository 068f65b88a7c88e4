#!/usr/bin/env python3
"""site/pages.py DIRECTORY [REPOSITORY]: what the site's generator reads, one directory for each language.

The documents are written for the repository. Here each becomes a page: links between documents lead to pages, of the
same language, those to the public header lead to the API reference, and those to other files lead to REPOSITORY (a
url), or are plain text without it. Headings get the anchors that GitHub gives them, or that an `<a id>` in them says;
a translation has those of the English page, so that one link serves both. A link that leads nowhere ends this with
status 1.
"""
import json
import os
import pathlib
import re
import shutil
import sys
import tomllib

import api_reference

HERE = pathlib.Path(__file__).resolve().parent
TOP = HERE.parent
HEADER = "include/holdfast/holdfast.h"
FENCE = re.compile(r"^ *(```|~~~)")
HEADING = re.compile(r"^(#{1,6}) +(.*?)(?: *\{#([\w-]+)[^}]*\})?$")
# In the repository, how a translation's heading gets the anchor of the English one.
NAMED = re.compile(r'<a id="([\w-]+)"></a>')
# Code is left alone. A label may have brackets in it.
LINK = re.compile(r"(`+)(?:(?!\1).)+?\1(?!`)|(!?)\[((?:[^\[\]`]|`[^`]*`|\[[^\]]*\])*)\]\(([^()\s]+)\)", re.DOTALL)


def blocks(text):
    """(is code, lines) in turn."""
    found, code = [[False, []]], False
    for line in text.split("\n"):
        if FENCE.match(line):
            if not code:
                found.append([True, []])
            found[-1][1].append(line)
            if code:
                found.append([False, []])
            code = not code
        else:
            found[-1][1].append(line)
    return found


def headings(text):
    """(level, words, anchor) of each, with the anchor that GitHub makes."""
    found, seen = [], {}
    for code, lines in blocks(text):
        for line in lines:
            heading = not code and HEADING.match(line)
            if heading:
                named = NAMED.search(heading[2])
                words = re.sub(r"!?\[([^\]]*)\]\([^)]*\)", r"\1", NAMED.sub("", heading[2])).replace("`", "")
                anchor = re.sub(r"[^\w\- ]", "", words.strip().lower()).replace(" ", "-")
                seen[anchor] = seen.get(anchor, -1) + 1
                anchor += f"-{seen[anchor]}" if seen[anchor] else ""
                found.append((len(heading[1]), heading[2], heading[3] or (named[1] if named else anchor)))
    return found


class Document:
    """A page: its text in each language, where that comes from, and the anchors of its headings."""

    def __init__(self, name, source, languages):
        self.name, self.source = name, source
        header = (TOP / HEADER).read_text(encoding="utf-8")
        text = api_reference.page(header) if name == "api" else (TOP / source).read_text(encoding="utf-8")
        self.texts = {languages[0]["code"]: text}
        for language in languages[1:]:
            path = (TOP / source).with_name(pathlib.Path(source).stem + language["suffix"] + ".md")
            if path.exists() and name != "api":
                self.texts[language["code"]] = path.read_text(encoding="utf-8")
        self.anchors = {}
        english = headings(text)
        for code, words in self.texts.items():
            own = headings(words)
            same = [level for level, _, _ in own] == [level for level, _, _ in english]
            # By heading, the anchor it gets; and which name leads to which.
            given = [anchor for _, _, anchor in (english if same else own)]
            names = {anchor: to for (_, _, anchor), to in zip(own, given, strict=True)}
            names |= {anchor: anchor for anchor in given}
            if name == "api":
                names |= {anchor: anchor for anchor in api_reference.anchors(header)}
            self.anchors[code] = (given, names)


class Site:
    def __init__(self, repository=""):
        self.plan = tomllib.loads((HERE / "site.toml").read_text(encoding="utf-8"))
        self.repository = repository.rstrip("/")
        self.languages = self.plan["languages"]
        self.names = [name for section in self.plan["sections"] for name in section["pages"]]
        self.wrong = []
        self.documents = {}
        for name in self.names:
            source = HEADER if name == "api" else self.plan["sources"].get(name, f"docs/{name}.md")
            self.documents[name] = Document(name, source, self.languages)
        self.by_path = {}
        for document in self.documents.values():
            self.by_path[document.source] = (document, None)
            for language in self.languages[1:]:
                path = pathlib.Path(document.source)
                self.by_path[str(path.with_name(path.stem + language["suffix"] + ".md"))] = (document, language["code"])
        self.pictures = set()

    def complete(self):
        """Each document is a page, once, with a title in each language."""
        for path in sorted((TOP / "docs").glob("*.md")):
            if f"docs/{path.name}" not in self.by_path:
                self.wrong.append(f"site.toml: docs/{path.name} is not a page")
        for name in self.names:
            if len(self.plan["titles"].get(name, [])) != len(self.languages) or self.names.count(name) != 1:
                self.wrong.append(f"site.toml: {name} is not there once, with its titles")

    def link(self, code, document, mark, label, target):
        """A link as the page has it."""
        where, _, anchor = target.partition("#")
        if re.match(r"[a-z]+:", target):
            return f"{mark}[{label}]({target})"
        # api_reference.py names documents from the top.
        base = TOP if document.name == "api" else (TOP / document.source).parent
        path = os.path.normpath((base / where if where else TOP / document.source).relative_to(TOP))
        if not (TOP / path).exists():
            self.wrong.append(f"{document.source}: {target} leads nowhere")
        if mark:
            self.pictures.add(path)
            return f"![{label}]({pathlib.Path(path).name})"
        page, language = self.by_path.get(path, (None, None))
        if page is None and path.startswith("docs/"):
            self.pictures.add(path)
            return f"[{label}]({pathlib.Path(path).name})"
        if page is None:
            return f"[{label}]({self.repository}/blob/HEAD/{path})" if self.repository else label
        if document.name == page.name and where and not anchor:
            return ""  # To the other language: each page has a switch.
        _, names = page.anchors.get(code) or page.anchors[self.languages[0]["code"]]
        if anchor and anchor not in names:
            # A translation that is not parallel: its page is near enough.
            if language or anchor not in page.anchors[self.languages[0]["code"]][1]:
                self.wrong.append(f"{document.source}: there is no #{anchor} in {page.source}")
            anchor = ""
        to = f"{page.name}.md" if where or document.name != page.name else ""
        return f"[{label}]({to}{'#' + names[anchor] if anchor else ''})"

    def page(self, code, document):
        text = document.texts.get(code)
        translated = text is not None
        if not translated:
            text = document.texts[self.languages[0]["code"]]
        given = iter((document.anchors.get(code) or document.anchors[self.languages[0]["code"]])[0])
        out = []
        for is_code, lines in blocks(text):
            if is_code:
                out += lines
                continue
            marked = []
            for line in lines:
                heading = HEADING.match(line)
                if heading:
                    anchor = next(given)
                    line = line if heading[3] else NAMED.sub("", f"{line} {{#{anchor}}}")
                marked.append(line)

            def link(found):
                return found[0] if found[1] else self.link(code, document, *found.group(2, 3, 4))
            out.append(LINK.sub(link, "\n".join(marked)))
        text = "\n".join(out)
        if not translated:
            language = next(one for one in self.languages if one["code"] == code)
            first, _, rest = text.partition("\n")
            text = f"{first}\n\n!!! note \"\"\n    {language['only_english']}\n{rest}"
        return text

    def configuration(self, language):
        """For the generator: YAML, which JSON is."""
        at = self.languages.index(language)
        first = self.languages[0]["code"]
        up = "" if at == 0 else "../"
        titles = self.plan["titles"]
        return {
            "site_name": self.plan["name"],
            "site_description": self.plan["description"],
            "docs_dir": "docs",
            "site_dir": "out",
            "use_directory_urls": False,
            "theme": {
                "name": "material",
                "language": language["theme_language"],
                "custom_dir": "theme",
                "font": False,
                "features": ["navigation.tabs", "navigation.sections", "navigation.top", "toc.follow",
                             "search.highlight", "content.code.copy"],
                "palette": [
                    {"media": "(prefers-color-scheme: light)", "scheme": "default", "primary": "indigo",
                     "toggle": {"icon": "material/weather-night", "name": "dark"}},
                    {"media": "(prefers-color-scheme: dark)", "scheme": "slate", "primary": "indigo",
                     "toggle": {"icon": "material/weather-sunny", "name": "light"}},
                ],
            },
            "extra": {
                "generator": False,
                "polyfills": ["iframe-worker.js"],
                "alternate": [
                    {"name": one["name"], "lang": one["code"],
                     "link": up + ("" if one["code"] == first else one["code"] + "/")}
                    for one in self.languages],
            },
            "extra_css": ["site.css"],
            "plugins": [{"search": {}}, {"offline": {}}],
            "markdown_extensions": [
                "tables", "attr_list", "admonition", "md_in_html", "sane_lists", "pymdownx.superfences",
                {"pymdownx.highlight": {"anchor_linenums": False}}, {"toc": {"permalink": True}}],
            "nav": [{section[language["code"]]: [{titles[name][at]: f"{name}.md"} for name in section["pages"]]}
                    for section in self.plan["sections"]],
        }

    def write(self, directory):
        for language in self.languages:
            place = directory / language["code"]
            shutil.rmtree(place, ignore_errors=True)
            (place / "docs").mkdir(parents=True)
            for name, document in self.documents.items():
                (place / "docs" / f"{name}.md").write_text(self.page(language["code"], document), encoding="utf-8")
            for picture in self.pictures:
                if (TOP / picture).exists():
                    shutil.copy(TOP / picture, place / "docs")
            for name in ("site.css", "iframe-worker.js"):
                shutil.copy(HERE / name, place / "docs")
            shutil.copytree(HERE / "theme", place / "theme")
            text = json.dumps(self.configuration(language), ensure_ascii=False, indent=1)
            (place / "mkdocs.yml").write_text(text, encoding="utf-8")


def main():
    site = Site(*sys.argv[2:3])
    site.complete()
    site.write(pathlib.Path(sys.argv[1]))
    print("\n".join(site.wrong), end="\n" if site.wrong else "")
    return bool(site.wrong)


if __name__ == "__main__":
    sys.exit(main())
