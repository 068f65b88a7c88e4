#!/usr/bin/env python3
"""site/check_links.py DIRECTORY: what is wrong with the built pages, a line each; status 1 if anything is.

Every link within the site leads to a file that is there, and to an anchor in it; anchors are unique within a page; and
no page, style sheet or picture loads anything from elsewhere.
"""
import html.parser
import pathlib
import re
import sys
import urllib.parse

# What a browser fetches by itself; the others are followed by a person.
LOADED = {("img", "src"), ("script", "src"), ("iframe", "src"), ("source", "src"), ("video", "src"), ("audio", "src"),
          ("embed", "src"), ("object", "data"), ("image", "href"), ("use", "href"), ("input", "src"), ("link", "href")}
FOLLOWED = {("a", "href"), ("area", "href"), ("form", "action")}
ELSEWHERE = re.compile(r"(?:[a-z][a-z0-9+.-]*:|//)", re.IGNORECASE)


class Page(html.parser.HTMLParser):
    def __init__(self, path):
        super().__init__()
        self.path, self.links, self.ids, self.twice = path, [], set(), []
        self.style = False
        self.feed(path.read_text(encoding="utf-8"))

    def handle_starttag(self, tag, attributes):
        self.style = tag == "style"
        for name, value in attributes:
            value = value or ""
            if name == "id" or (name == "name" and tag == "a"):
                if value in self.ids:
                    self.twice.append(value)
                self.ids.add(value)
            elif name == "srcset":
                self.links += [(True, part.split()[0]) for part in value.split(",")]
            elif name == "style":
                self.links += [(True, url) for url in urls_of(value)]
            elif (tag, name.removeprefix("xlink:")) in LOADED:
                self.links.append((True, value))
            elif (tag, name) in FOLLOWED:
                self.links.append((False, value))

    def handle_data(self, data):
        if self.style:
            self.links += [(True, url) for url in urls_of(data)]

    def handle_endtag(self, tag):
        self.style = False


def urls_of(css):
    css = re.sub(r"/\*.*?\*/", "", css, flags=re.DOTALL)
    found = re.findall(r"url\(\s*(?:\"([^\"]*)\"|'([^']*)'|([^)\s]*))\s*\)|@import\s+[\"']([^\"']+)", css)
    return ["".join(parts) for parts in found]


def check(top):
    wrong = []
    pages = {path: Page(path) for path in sorted(top.rglob("*")) if path.suffix in (".html", ".svg")}
    for path, page in pages.items():
        name = path.relative_to(top)
        wrong += [f"{name}: #{anchor} is there twice" for anchor in page.twice]
        for loaded, link in page.links:
            if ELSEWHERE.match(link):
                if loaded and not link.startswith("data:"):
                    wrong.append(f"{name}: loads {link}")
                continue
            where, _, anchor = link.partition("#")
            where = urllib.parse.unquote(where.partition("?")[0])
            target = (path.parent / where).resolve() if where else path
            if where.startswith("/"):
                wrong.append(f"{name}: {link} works only at the root of a server")
            elif target != top and top not in target.parents:
                wrong.append(f"{name}: {link} leads out of the site")
            elif not target.is_file():
                wrong.append(f"{name}: {link} leads nowhere")
            elif anchor and target in pages and urllib.parse.unquote(anchor) not in pages[target].ids:
                wrong.append(f"{name}: {link}: no such anchor")
    for path in sorted(top.rglob("*.css")):
        for link in urls_of(path.read_text(encoding="utf-8")):
            if ELSEWHERE.match(link) and not link.startswith("data:"):
                wrong.append(f"{path.relative_to(top)}: loads {link}")
            elif not link.startswith(("data:", "#")) and not (path.parent / re.split("[?#]", link)[0]).is_file():
                wrong.append(f"{path.relative_to(top)}: {link} leads nowhere")
    if not any(path.suffix == ".html" for path in pages):
        wrong.append(f"there is no page in {top}")
    return wrong


def main():
    wrong = check(pathlib.Path(sys.argv[1]).resolve())
    print("\n".join(wrong), end="\n" if wrong else "")
    return bool(wrong)


if __name__ == "__main__":
    sys.exit(main())
