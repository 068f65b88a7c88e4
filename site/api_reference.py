#!/usr/bin/env python3
"""site/api_reference.py HEADER: the page of the public header, as Markdown.

Each section of the header is a section of the page. What stands there without an empty line between is one entry: its
comment becomes words, its declarations stay C. Each function, type and constant has an anchor with its name. pages.py
calls page() and anchors(). Comments are read by the same rules as for the manual pages.
"""
import pathlib
import re
import sys
import textwrap

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent.parent / "man"))
import header2man

TOKEN = re.compile(
    r"^/\*.*?\*/[ \t]*\n?"  # a comment of its own, not one behind a declaration
    r"|^\#define(?:[^\n]*\\\n)*(?:[^\n]*/\*.*?\*/|[^\n]*)\n?"
    r"|^\#[^\n]*\n?"
    r"|^(?:typedef|struct|enum)\b[^;{}]*\{[^{}\n]*\}[^;\n]*;[^\n]*\n?"
    r"|^(?:typedef|struct|enum)\b[^;{}]*\{.*?^\}[^;]*;[^\n]*\n?"
    r"|^(?:HF_API|typedef|struct)\b[^;{}]*;[^\n]*\n?"
    r"|^[ \t]*\n",
    re.DOTALL | re.MULTILINE)
DEFINE = re.compile(r"#define (HF_\w+)(\(?)")
# Lists for generators of bindings, and what makes the initializers: no reader looks for them.
HIDDEN = re.compile(r"#define HF_(?:\w+_FIELDS|INIT|INIT_FIELD|NO_DEFAULTS|API|VERSION_OF|VERSION_JOIN)\b")
ROW = re.compile(r'X\((HF_\w+), (-?\d+), "([^"]*)"\)')
NAME = re.compile(r"\bhf_[a-z]\w*(?:\(\))?|\bHF_[A-Z]\w*")


class Entry:
    """A comment, or "", and the declarations behind it, as they stand."""

    def __init__(self, comment):
        self.comment, self.code = comment, []

    def names(self):
        return [name for code in self.code for name in names_of(code)]

    def functions(self):
        return [name for code in self.code if code.startswith("HF_API") for name in names_of(code)]


def names_of(code):
    """What a declaration declares."""
    bare = re.sub(r"/\*.*?\*/", " ", code, flags=re.DOTALL)
    if code.startswith("#define"):
        if ROW.search(code):
            return [DEFINE.match(code)[1], *(row[0] for row in ROW.findall(code))]
        return [DEFINE.match(code)[1]]
    if code.startswith("HF_API"):
        return [header2man.function_of(" ".join(bare.split()))[1]]
    pointer = re.match(r"typedef[^;{]*\(\*(\w+)\)\(", bare)
    if pointer:
        return [pointer[1]]
    names = re.findall(r"(\w+)\s*;\s*$", bare) if code.startswith("typedef") else []
    if re.match(r"(?:typedef )?enum\b", bare):
        bare = re.sub(r"^#.*", "", bare, flags=re.MULTILINE)
        names += re.findall(r"(?:^|[,{])\s*(HF_\w+)(?=\s*(?:[,=}]|$))", bare, re.MULTILINE)
    return list(dict.fromkeys(names))


def sections_of(header):
    """(name, entries) of each section; the first is what stands before them."""
    found, entry = [("", [])], None
    begin = header.index('extern "C" {')
    end = header.rindex("#ifdef __cplusplus")
    for token in TOKEN.findall(header[header.index("\n\n", begin):end]):
        section = header2man.SECTION.match(token.rstrip())
        entries = found[-1][1]
        if section:
            found.append((section[1], []))
            entry = None
        elif not token.strip():
            entry = None
        elif token.startswith("/*"):
            # Within a list of constants, a comment stays where it is.
            if entry and not entry.comment and all(code.startswith(("#define", "/*")) for code in entry.code):
                entry.code.append(token)
            else:
                entry = Entry(header2man.comment_text(token.strip()))
                entries.append(entry)
        elif re.match(r"#(?!define)", token):
            continue
        elif HIDDEN.match(token) and not ROW.search(token):
            if entry and not entry.code:  # Its comment is about nothing else.
                entries.remove(entry)
                entry = None
        else:
            if entry is None:
                entry = Entry("")
                entries.append(entry)
            entry.code.append(token)
    return [(name, [one for one in entries if one.comment or one.code]) for name, entries in found]


def anchors(header):
    return {name for _, entries in sections_of(header) for entry in entries for name in entry.names()}


def words(text, known):
    """A comment's line as Markdown: names are links, and nothing else is markup but `...`."""
    text = " ".join(text.split())

    def plain(part):
        part = re.sub(r"([\\*_<>|\[\]#])", r"\\\1", part)
        part = re.sub(r"docs/([\w-]+)\.md", r"[\1](docs/\1.md)", part)
        return part

    def linked(part):
        out, at = [], 0
        for found in NAME.finditer(part):
            name = found[0].removesuffix("()")
            out.append(plain(part[at:found.start()]))
            out.append(f"[`{found[0]}`](#{name})" if name in known else f"`{found[0]}`")
            at = found.end()
        return "".join(out) + plain(part[at:])

    return "".join(part if part.startswith("`") else linked(part) for part in re.split(r"(`[^`]*`)", text))


def rows_of(text):
    """A table of two columns as pairs; None if it is something else, which stays as it stands."""
    if "://" in text:
        return None
    lines = text.split("\n")
    left = min(len(line) - len(line.lstrip()) for line in lines)
    columns = [found.end() for found in (re.match(r" *\S+(?: \S+)*  +(?=\S)", line) for line in lines) if found]
    column = max(columns, key=columns.count, default=0)
    rows = []
    for line in lines:
        name, rest = line[:column].strip(), line[column:]
        if column == 0 or (name and line[column - 1] != " ") or not (name or rows):
            return None
        if name and line[left] == " ":
            return None
        if name:
            rows.append([name, rest])
        else:
            rows[-1][1] += " " + rest
    return rows


def prose(comment, known):
    lines, list_open = [], False
    for kind, text in header2man.parts_of(comment):
        is_item = kind not in (None, "plain", "table")
        if list_open and not is_item:
            lines.append("")
        list_open = is_item
        if kind is None:
            lines.append("")
        elif kind == "plain":
            lines += [words(text, known)]
        elif kind == "item":
            lines += ["- " + words(text, known)]
        elif kind == "table":
            rows = rows_of(text)
            if rows:
                lines += ["", *(f"- `{name.strip('`')}`: {words(rest, known)}" for name, rest in rows), ""]
            else:
                lines += ["", "```text", textwrap.dedent(text), "```", ""]
        else:
            # "HF_EBUSY such and such; HF_ELOST ...": each error a line.
            parts = re.split(r"(?<=[;.]) +(?=HF_E)", text)
            if kind == "Errors" and len(parts) > 1:
                lines += ["", f"**{kind}**", "", *("- " + words(part.rstrip(";"), known) for part in parts), ""]
                list_open = False
            else:
                lines += ["", f"**{kind}**: " + words(text, known)]
    return lines


def introduction(header, known):
    """The comment above everything: what is said of all functions."""
    text = header2man.comment_text(re.match(r"/\*.*?\*/", header, re.DOTALL)[0])
    lines = []
    for part in re.split(r"\n\n", text):
        head, _, rest = part.partition("\n")
        if head.startswith("    "):
            lines += ["```c", re.sub(r"^    ", "", part, flags=re.MULTILINE), "```", ""]
        elif rest.startswith("  - "):
            items = re.split(r"\n(?=  - )", rest)
            lines += [f"## {words(head, known)}", "", *("- " + words(item[4:], known) for item in items), ""]
        elif rest.startswith("  "):
            lines += [f"## {head}", "", *prose(rest, known), ""]
        else:
            lines += [words(" ".join(part.split()), known), ""]
    return lines


def entry_lines(entry, known):
    types = [name for name in entry.names() if name.startswith("hf_")]
    names = entry.functions() or types or entry.names()
    lines = []
    if names:
        all_shown = entry.functions() or all(re.match(r"typedef[^{]*$", code) for code in entry.code)
        title = ", ".join(f"`{name}`" for name in (names if all_shown else names[:1]))
        lines.append(f'### {title} {{#{names[0]} data-toc-label="{names[0]}"}}')
        in_rows = [row[0] for code in entry.code for row in ROW.findall(code)]
        others = [name for name in dict.fromkeys(entry.names()) if name != names[0] and name not in in_rows]
        lines += ["", "".join(f'<span id="{name}"></span>' for name in others)] if others else []
        lines.append("")
    shown, rows = [], []
    for code in entry.code:
        found = ROW.findall(code)
        if found:
            rows += found
        else:
            shown.append(re.sub(r"^HF_API ", "", code).rstrip())
    if shown:
        lines += ["```c", *(re.sub(r"  +\\$", " \\\\", line) for code in shown for line in code.split("\n")), "```", ""]
    lines += [*prose(entry.comment, known), ""]
    if rows:
        lines += ["| code | | meaning |", "|---|--:|---|"]
        for name, number, meaning in rows:
            lines.append(f'| <span id="{name}"></span>`{name}` | {number} | {words(meaning, known)} |')
        lines.append("")
    return lines


def page(header):
    known = anchors(header)
    lines = ["# API reference", "", "This is the header `<holdfast/holdfast.h>`, section by section.", ""]
    lines += introduction(header, known)
    for name, entries in sections_of(header):
        lines += [f"## {name or 'Version'}", ""]
        for entry in entries:
            lines += entry_lines(entry, known)
    return re.sub(r"\n{3,}", "\n\n", "\n".join(lines))


if __name__ == "__main__":
    print(page(pathlib.Path(sys.argv[1]).read_text(encoding="utf-8")))
